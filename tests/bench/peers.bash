# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2034 # variables that files of `run` share
# Other queues: servers of our own below $tmp, on a unix socket, without a network port.
# `make bench` asks Redis for what goals compare with, if it is installed; `make
# bench-peers` measures all of them. Nothing is asserted.

peer_pid=
peer=$tmp/peer
postgres_bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
[[ -x $postgres_bin/postgres && -x $postgres_bin/pgbench ]] || postgres_bin=

# peer_await COMMAND...: until it works.
peer_await() {
	local i
	for ((i = 0; i < 500; i++)); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.02
	done
	cat "$peer/log" >&2
	die "$* does not work"
}

peer_stop() {
	local i
	[[ $peer_pid ]] || return 0
	kill "$peer_pid" 2>/dev/null || true
	for ((i = 0; i < 500; i++)); do
		kill -0 "$peer_pid" 2>/dev/null || break
		sleep 0.01
	done
	kill -KILL "$peer_pid" 2>/dev/null || true
	wait "$peer_pid" 2>/dev/null || true
	peer_pid=
	rm -rf "$peer"
}

redis_there() {
	command -v redis-server >/dev/null
}

# redis_start always|everysec: an append-only file that is not rewritten meanwhile.
redis_start() {
	mkdir "$peer"
	redis-server --port 0 --unixsocket "$peer/sock" --dir "$peer" --save '' \
		--appendonly yes --appendfsync "$1" --auto-aof-rewrite-percentage 0 \
		--daemonize no >"$peer/log" 2>&1 &
	peer_pid=$!
	peer_await test -S "$peer/sock"
}

# beanstalkd_start MILLISECONDS: between syncs of its log; 0: each write.
beanstalkd_start() {
	mkdir "$peer"
	beanstalkd -b "$peer" "-f$1" -l "unix:$peer/sock" >"$peer/log" 2>&1 &
	peer_pid=$!
	peer_await test -S "$peer/sock"
}

# It refuses to be root's.
as_postgres() {
	if ((EUID)); then
		"$@"
	else
		setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
	fi
}

sql() {
	as_postgres "$postgres_bin/psql" -q -X -h "$peer" -d postgres "$@"
}

# postgres_start on|off: synchronous_commit.
postgres_start() {
	mkdir "$peer"
	if ((EUID == 0)); then
		chmod 711 "$tmp"
		chown postgres "$peer"
	fi
	as_postgres "$postgres_bin/initdb" -A trust -D "$peer/data" >"$peer/log" 2>&1 ||
		die "initdb failed"
	as_postgres "$postgres_bin/postgres" -D "$peer/data" -k "$peer" -h '' \
		-c synchronous_commit="$1" -c max_connections=100 -c shared_buffers=256MB \
		-c max_wal_size=4GB >>"$peer/log" 2>&1 &
	peer_pid=$!
	peer_await sql -c 'select 1'
	sql -c 'create table messages(id bigserial primary key, data bytea not null)' \
		-c 'create table segments(id bigserial primary key, data bytea not null)'
}

# postgres_rate CLIENTS SECONDS SQL: transactions a second.
postgres_rate() {
	echo "$3" >"$tmp/sql"
	chmod 644 "$tmp/sql"
	as_postgres timeout 60 "$postgres_bin/pgbench" -n -M prepared -c "$1" -T "$2" -h "$peer" \
		-f "$tmp/sql" postgres 2>>"$peer/log" | awk '/^tps/ { print $3 }'
}

# --- the peers' table: P<row> <workload> | <column> -----------------------------------------

PEER_SECS=0.5
PEER_BATCH=1000
PEER_BACKLOG=100000
peer_row=(
	"one client, a message a request"
	"64 clients, a message a request"
	"one client, $PEER_BATCH messages a request"
	"taken and acknowledged, best batch"
	"taken and acknowledged, one by one"
)

# peer_record ROW COLUMN MESSAGES_A_SECOND
peer_record() {
	record "P$1 ${peer_row[$1 - 1]} | $2" msg/s "$3"
}

# best KEY...: the largest.
best() {
	printf '%s\n' "$@" | sort -g | tail -n 1
}

peer_queenfs() {
	local q=$mnt/queues/q rates=() batch
	queenfs_start "$1"
	mkdir "$q/partitions/a" "$q/partitions/b" "$q/groups/g"
	drive push -s "$PEER_SECS" "$q/partitions/a/push"
	peer_record 1 "queenfs $1" "$(found messages_per_s)"
	drive push -n 64 -s "$PEER_SECS" "$q/partitions/a/push"
	peer_record 2 "queenfs $1" "$(found messages_per_s)"
	drive push -w $((100 * PEER_BATCH)) -s "$PEER_SECS" "$q/partitions/a/push"
	peer_record 3 "queenfs $1" "$(found messages_per_s)"
	drive push -w $((1 << 20)) -c "$PEER_BACKLOG" "$q/partitions/b/push"
	for batch in 100 1000 10000; do
		echo start >"$q/partitions/b/groups/g/cursor"
		echo "$batch" >"$q/groups/g/config/batch"
		drive stream -a -r $((1 << 20)) -c "$PEER_BACKLOG" "$q/partitions/b/groups/g/follow"
		rates+=("$(found messages_per_s)")
	done
	peer_record 4 "queenfs $1" "$(best "${rates[@]}")"
	echo start >"$q/partitions/b/groups/g/cursor"
	echo 1 >"$q/groups/g/config/batch"
	drive stream -a -c 500 "$q/partitions/b/groups/g/follow"
	peer_record 5 "queenfs $1" "$(found messages_per_s)"
	queenfs_stop
}

# peer_socket PROTOCOL COLUMN BATCHES...: what `peer` can drive. Each drain is of what the
# pushes left; for Redis it is the same each time, for beanstalkd pushed anew. A beanstalkd
# that syncs each message gets fewer in a request, which changes nothing but the time.
peer_socket() {
	local protocol=$1 column=$2 rates=() batch pushed=$PEER_BATCH
	[[ $column != *-f0 ]] || pushed=50
	shift 2
	drive peer "$protocol" push -s "$PEER_SECS" "$peer/sock"
	peer_record 1 "$column" "$(found messages_per_s)"
	drive peer "$protocol" push -n 64 -s "$PEER_SECS" "$peer/sock"
	peer_record 2 "$column" "$(found messages_per_s)"
	drive peer "$protocol" push -p "$pushed" -s "$PEER_SECS" "$peer/sock"
	peer_record 3 "$column" "$(found messages_per_s)"
	for batch in "$@"; do
		[[ $protocol == redis ]] ||
			drive peer "$protocol" push -p "$pushed" -s "$PEER_SECS" "$peer/sock"
		drive peer "$protocol" drain -p "$batch" -s "$PEER_SECS" "$peer/sock"
		rates+=("$(found messages_per_s)")
	done
	peer_record 4 "$column" "$(best "${rates[@]}")"
	peer_record 5 "$column" "${rates[0]}"
}

# A row a message, or as a segment: a row of many. DELETE is the acknowledgement.
peer_postgres() {
	local column="PostgreSQL $1" rate take
	postgres_start "$1"
	rate=$(postgres_rate 1 1 "insert into messages(data) values (repeat('x', 100)::bytea);")
	peer_record 1 "$column" "$rate"
	rate=$(postgres_rate 64 1 "insert into messages(data) values (repeat('x', 100)::bytea);")
	peer_record 2 "$column" "$rate"
	rate=$(postgres_rate 1 1 "insert into segments(data)
		values (repeat('x', 100 * $PEER_BATCH)::bytea);")
	peer_record 3 "$column, a row a segment" "$(ratio "${rate}e3" 1)"
	rate=$(postgres_rate 1 1 "insert into messages(data)
		select repeat('x', 100)::bytea from generate_series(1, $PEER_BATCH);")
	peer_record 3 "$column" "$(ratio "${rate}e3" 1)"
	take="delete from messages where id in (select id from messages order by id
		for update skip locked limit %d) returning data;"
	sql -c "truncate messages" -c "insert into messages(data)
		select repeat('x', 100)::bytea from generate_series(1, 5 * $PEER_BACKLOG)" \
		-c "vacuum analyze messages"
	# shellcheck disable=SC2059
	rate=$(postgres_rate 1 1 "$(printf "$take" 1)")
	peer_record 5 "$column" "$rate"
	# shellcheck disable=SC2059
	rate=$(postgres_rate 1 1 "$(printf "$take" "$PEER_BATCH")")
	peer_record 4 "$column" "$(ratio "${rate}e3" 1)"
	peer_stop
}

peers_all() {
	local how
	peer_queenfs disk
	peer_queenfs os
	if redis_there; then
		for how in always everysec; do
			redis_start "$how"
			peer_socket redis "Redis $how" 1 100 1000 10000
			peer_stop
		done
	else
		skip Redis "redis-server is not installed"
	fi
	if command -v beanstalkd >/dev/null; then
		for how in 0 1000; do
			beanstalkd_start "$how"
			peer_socket beanstalkd "beanstalkd -f$how" 1 10 50
			peer_stop
		done
	else
		skip beanstalkd "it is not installed"
	fi
	if [[ $postgres_bin ]]; then
		peer_postgres on
		peer_postgres off
	else
		skip PostgreSQL "it is not installed"
	fi
}

# One line a workload, one column a queue, medians; min and max are in the CSV.
peers_table() {
	echo
	summary | awk -F '\t' '
	/^P[0-9] / {
		split(substr($1, 4), name, " [|] ")
		number = substr($1, 2, 1)
		rows[number] = name[1]
		if (!(name[2] in column)) { column[name[2]] = 1; columns[++width] = name[2] }
		cell[number, name[2]] = sprintf("%.0f", $3)
	}
	END {
		print "messages a second, 100 B each:"
		for (y = 1; y in rows; y++)
			printf "  (%d) %s\n", y, rows[y]
		printf "%-32s", ""
		for (y = 1; y in rows; y++)
			printf " %11s", "(" y ")"
		print ""
		for (x = 1; x <= width; x++) {
			printf "%-32s", columns[x]
			for (y = 1; y in rows; y++)
				printf " %11s", (y, columns[x]) in cell ? cell[y, columns[x]] : "-"
			print ""
		}
	}'
}
