# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154,SC2034 # variables that files of `run` share
# What is measured, one function each, in one round; a message is 100 bytes.
#
#   w1   one producer, a message a write          w6   to a time in a long log
#   w2   64 producers                             w7   10 to 100,000 partitions
#   w3   large writes                             w8   10,000 blocked followers
#   w4   a million messages drained               w9   at the end of ten million messages
#   w5   a message to a blocked follower          w10  retention of 1 GB in the background
#
# Helpers of a measure stand above it. What `slices` calls sets floor or ours.

SLICE_SECS=0.2

# partition NAME: makes it, prints its directory.
partition() {
	mkdir -p "$mnt/queues/q/partitions/$1"
	echo "$mnt/queues/q/partitions/$1"
}

# push_rate SECONDS OPTIONS... PATH: messages a second.
push_rate() {
	local seconds=$1
	shift
	drive push -s "$seconds" "$@"
	found messages_per_s
}

# --- W1 -----------------------------------------------------------------------------------

append_small() {
	drive append -b 100 -s "$SLICE_SECS" "$tmp/plain"
	floor=$(found messages_per_s)
}

push_one() {
	ours=$(push_rate "$SLICE_SECS" "$(partition one)/push")
}

sink_one() {
	floor=$(push_rate "$SLICE_SECS" "$empty/sink")
}

redis_one() {
	drive peer redis push -s "$SLICE_SECS" "$peer/sock"
	floor=$(found messages_per_s)
}

w1() {
	queenfs_start disk
	slices 5 append_small push_one
	record_pair "W1 disk" msg/s "append + fdatasync" push ">=0.8" "one sync a commit"
	rm "$tmp/plain"
	queenfs_stop
	queenfs_start os
	slices 7 sink_one push_one
	record_pair "W1 os" msg/s "empty FUSE write" push ">=0.5" \
		"CPU: FUSE requests, then SQLite's rows"
	if redis_there; then
		redis_start everysec
		slices 3 redis_one push_one
		record_against "W1 os" msg/s "Redis everysec" push "" "CPU: FUSE requests, then SQLite's rows"
		peer_stop
	else
		skip "W1, W2 and W4 against Redis" "redis-server is not installed"
	fi
	on_one_cpu slices 3 sink_one push_one
	record_pair "W1 os, one CPU" msg/s "empty FUSE write" push "" "CPU: FUSE requests, then SQLite's rows"
	memory_record W1
	queenfs_stop
}

# --- W2 -----------------------------------------------------------------------------------

# The sides of: one partition (floor), a partition for each (ours).
push_many_one() {
	floor=$(push_rate "$SLICE_SECS" -n 64 "$(partition many)/push")
}

push_many_each() {
	ours=$(push_rate "$SLICE_SECS" -n 64 "$mnt/queues/q/partitions/%d/push")
}

redis_many() {
	drive peer redis push -n 64 -s "$SLICE_SECS" "$peer/sock"
	floor=$(found messages_per_s)
}

push_many() {
	push_many_one
	ours=$floor
}

# fusion_record N: N writers of one partition; fusion shows as messages per segment.
fusion_record() {
	local p rate
	p=$(partition "fusion$1")
	rate=$(push_rate 0.4 -n "$1" "$p/push")
	record "W2 disk: $1 producers" msg/s "$rate"
	record "W2 disk: $1 producers, messages a commit" msg \
		"$(ratio "$(found messages)" "$(find "$p/segments" -mindepth 1 | wc -l)")" ">=3"
}

# Segments of one commit are made microseconds apart, commits a disk flush.
fusion_each_record() {
	local q=$mnt/queues/each commits
	mkdir "$q"
	mkdir "$q"/partitions/{0..63}
	drive push -n 64 -s 0.4 "$q/partitions/%d/push"
	commits=$(find "$q"/partitions/*/segments -mindepth 1 -printf '%T@\n' | sort -n | awk '
		$1 - last > 50e-6 { commits++ }
		{ last = $1 }
		END { print commits }')
	record "W2 disk: 64 producers of 64 partitions, messages a commit" msg \
		"$(ratio "$(found messages)" "$commits")"
}

w2() {
	queenfs_start disk
	mkdir "$mnt"/queues/q/partitions/{0..63}
	fusion_record 16
	fusion_record 64
	fusion_each_record
	slices 4 push_many_one push_many_each
	record_pair "W2 disk, 64 producers" msg/s "one partition" "64 partitions" ">=1.0" \
		"CPU: a segment a partition in each commit"
	if redis_there; then
		redis_start always
		slices 3 redis_many push_many
		record_against "W2 disk, 64 producers" msg/s "Redis always" "one partition" ">=1.2" \
			"CPU: FUSE requests"
		slices 3 redis_many push_many_each
		record "W2 disk, 64 producers: 64 partitions / Redis always" ratio \
			"$(ratio "$ours" "$floor")" ">=1.2" "CPU: a segment a partition in each commit"
		peer_stop
	fi
	memory_record W2
	queenfs_stop
}

# --- W3 -----------------------------------------------------------------------------------

append_large() {
	drive append -b $((1 << 20)) -s "$SLICE_SECS" "$tmp/plain"
	floor=$(ratio "$(found bytes_per_s)" 1e6)
}

# push_large BYTES: of one message.
push_large() {
	drive push -b "$1" -w $((1 << 20)) -s "$SLICE_SECS" "$(partition "large$1")/push"
	ours=$(ratio "$(found bytes_per_s)" 1e6)
}

push_large_100() {
	push_large 100
}

push_large_1024() {
	push_large 1024
}

w3() {
	queenfs_start disk
	slices 4 append_large push_large_100
	record_pair "W3 disk, 100 B" MB/s "append 1 MiB + fdatasync" push ">=0.4" \
		"the disk: each byte is written to the WAL and to the store"
	slices 4 append_large push_large_1024
	record_pair "W3 disk, 1 KiB" MB/s "append 1 MiB + fdatasync" push ">=0.4" \
		"the disk: each byte is written to the WAL and to the store"
	rm "$tmp/plain"
	record "W3 disk: push.json" lines/s \
		"$(push_rate 0.5 -j -w $((1 << 20)) "$(partition json)/push.json")" ">=150000" \
		"CPU: SQLite's JSON of each line"
	memory_record W3
	queenfs_stop
}

# --- W4 -----------------------------------------------------------------------------------

STREAM_MESSAGES=1000000
DRAIN_MESSAGES=100000

# messages_push COUNT QUEUE: makes the queue, a group g, and messages of 100 B.
messages_push() {
	mkdir -p "$2" "$2/groups/g"
	drive push -w $((1 << 20)) -c "$1" "$2/push"
}

stream_empty() {
	drive stream -c "$STREAM_MESSAGES" "$empty/source"
	floor=$(found messages_per_s)
}

# stream_queue FILE OPTIONS...: the whole backlog, from its start.
stream_queue() {
	local group=$mnt/queues/stream/groups/g file=$1
	shift
	echo start >"$group/cursor"
	drive stream "$@" -c "$STREAM_MESSAGES" "$group/$file"
	ours=$(found messages_per_s)
}

stream_follow() {
	stream_queue follow
}

stream_acked() {
	stream_queue follow -a
}

cat_log() {
	local log=$mnt/queues/stream/partitions/default/log
	milliseconds timeout 60 cat "$log"
	ours=$(ratio "$STREAM_MESSAGES" "${took}e-3")
}

pop_by_open() {
	drive drain -o -s "$SLICE_SECS" "$mnt/queues/drain/groups/open/pop"
	floor=$(found messages_per_s)
}

pop_by_fd() {
	drive drain -k -s "$SLICE_SECS" "$mnt/queues/drain/groups/g/pop"
	ours=$(found messages_per_s)
}

# The best batch of Redis.
redis_drain_best() {
	local batch rates=()
	redis_start everysec
	drive peer redis push -p 1000 -s 0.4 "$peer/sock"
	for batch in 100 1000 10000; do
		drive peer redis drain -p "$batch" -s 2 "$peer/sock"
		rates+=("$(found messages_per_s)")
	done
	peer_stop
	floor=$(best "${rates[@]}")
}

w4() {
	local follow json
	queenfs_start disk
	messages_push "$STREAM_MESSAGES" "$mnt/queues/stream"
	slices 3 stream_empty stream_follow
	follow=$ours
	record_pair "W4" msg/s "empty FUSE read" follow ">=0.3" \
		"three copies, out of SQLite's pages to the reader"
	on_one_cpu slices 3 stream_empty stream_follow
	record_pair "W4 one CPU" msg/s "empty FUSE read" follow "" \
		"three copies, out of SQLite's pages to the reader"
	slices 2 stream_empty cat_log
	record "W4: cat log" msg/s "$ours"
	record "W4: cat log / empty FUSE read" ratio "$(ratio "$ours" "$floor")" "" \
		"three copies, out of SQLite's pages to the reader"
	stream_queue follow.json -l
	json=$ours
	record "W4 follow.json" msg/s "$json" "" "CPU: an envelope a message"
	echo 1000 >"$mnt/queues/stream/groups/g/config/batch"
	slices 2 stream_empty stream_acked
	record "W4 read-write follow, ack by 1000" msg/s "$ours" "" "the sync of each ack"
	if redis_there; then
		redis_drain_best
		record "W4 Redis XREADGROUP + XACK, best batch" msg/s "$floor"
		record "W4 follow / Redis" ratio "$(ratio "$follow" "$floor")" ">=5" \
			"three copies, out of SQLite's pages to the reader"
		record "W4 ack by 1000 / Redis" ratio "$(ratio "$ours" "$floor")" ">=5" \
			"the sync of each ack; Redis syncs once a second"
		record "W4 follow.json / Redis" ratio "$(ratio "$json" "$floor")" "" \
			"CPU: an envelope a message"
	fi
	messages_push "$DRAIN_MESSAGES" "$mnt/queues/drain"
	mkdir "$mnt/queues/drain/groups/open"
	slices 3 pop_by_open pop_by_fd
	record "W4 pop: open, read, close" msg/s "$floor" "" "CPU: FUSE requests"
	record "W4 pop: one descriptor" msg/s "$ours" "" "CPU: FUSE requests"
	memory_record W4
	queenfs_stop
}

# --- W5 -----------------------------------------------------------------------------------

WAKE_ROUNDS=400

wake_empty() {
	drive wake -n "$WAKE_ROUNDS" "$empty/bell" "$empty/wait"
	floor=$(found p50_us)
	floor99=$(found p99_us)
}

wake_follow() {
	local queue=$mnt/queues/q
	drive wake -n "$WAKE_ROUNDS" "$queue/push" "$queue/groups/g/follow"
	ours=$(found p50_us)
	ours99=$(found p99_us)
}

w5() {
	queenfs_start os
	mkdir "$mnt/queues/q/groups/g"
	slices 5 wake_empty wake_follow
	record_pair "W5 os, p50" us "empty FUSE" follow "<=3" "two wake-ups"
	floor=$floor99 ours=$ours99
	record_pair "W5 os, p99" us "empty FUSE" follow "" "the scheduler"
	on_one_cpu slices 2 wake_empty wake_follow
	record_pair "W5 os, one CPU, p50" us "empty FUSE" follow "" "CPU: FUSE requests, then SQLite's rows"
	memory_record W5
	queenfs_stop
}

# --- W6 -----------------------------------------------------------------------------------

LOG_BEGAN_US=1700000000000000
SEEKS=150 # in a slice

# log_store SEGMENTS: a store with a log of that many, a millisecond apart, each a message
# that is its number. It is made by SQL, once, and kept: by a million pushes it would take
# half a minute.
log_store() {
	store=$tmp/log$1
	[[ ! -e $store ]] || return 0
	store_open disk "$store"
	mkdir "$mnt/queues/q" "$mnt/queues/q/partitions/p" "$mnt/queues/q/groups/g"
	store_close "$mnt"
	sqlite3 "$store" "
		with recursive c(i) as (select 0 union all select i + 1 from c where i < $1 - 1)
		insert into segments(partition, base, last, created_us, position, size, ends, data)
		select 1, i, i, $LOG_BEGAN_US + i * 1000, i * 8, 8, x'08000000',
			cast(printf('%07d', i) || char(10) as blob) from c" ||
		die "sqlite3 could not make the log"
}

# seek_times SEGMENTS DIR
seek_times() {
	local p=$2/queues/q/partitions/p/groups/g
	drive seek -n "$SEEKS" -m "$1" -t "$LOG_BEGAN_US" "$p/cursor" "$p/pop"
}

seek_few() {
	seek_times 1000 "$twin"
	floor=$(found p50_us)
	floor99=$(found p99_us)
}

seek_many() {
	seek_times 1000000 "$mnt"
	ours=$(found p50_us)
	ours99=$(found p99_us)
}

w6() {
	local store
	if ! command -v sqlite3 >/dev/null; then
		skip W6 "sqlite3 is not installed"
		return
	fi
	log_store 1000000
	log_store 1000
	store_open disk "$tmp/log1000" "$twin"
	milliseconds store_open disk "$tmp/log1000000"
	record "W6 1,000,000 segments: mount" ms "$took"
	slices 4 seek_few seek_many
	record "W6 seek and first message: 1,000 segments, p50" us "$floor"
	record "W6 seek and first message: 1,000,000 segments, p50" us "$ours" "<=2000" \
		"the sync of the seek"
	record "W6 seek and first message: 1,000 segments, p99" us "$floor99"
	record "W6 seek and first message: 1,000,000 segments, p99" us "$ours99" "" "the disk"
	record "W6 seek and first message: 1,000,000 / 1,000 segments" ratio \
		"$(ratio "$ours" "$floor")" "<=2" "the sync of the seek"
	memory_record W6
	store_close "$mnt"
	store_close "$twin"
}

# --- W7 -----------------------------------------------------------------------------------

SCALE_MESSAGES=100000

# partitions_store N: a store with N partitions that share SCALE_MESSAGES messages; made
# once, by push.json.
partitions_store() {
	store=$tmp/partitions$1
	[[ ! -e $store ]] || return 0
	store_open disk "$store"
	mkdir "$mnt/queues/q"
	awk -v n="$1" -v messages="$SCALE_MESSAGES" 'BEGIN {
		for (i = 0; i < messages; i++)
			printf "{\"partition\":\"%d\",\"data\":\"%080d\"}\n", i % n, i
	}' | dd bs=1M iflag=fullblock status=none >>"$mnt/queues/q/push.json"
	store_close "$mnt"
}

count_partitions() {
	# shellcheck disable=SC2012 # a user's command is what is measured
	[[ $(ls "$mnt/queues/q/partitions" | wc -l) == "$1" ]]
}

w7() {
	local n store few="" many="" goals
	for n in 10 1000 100000; do
		goals=("" "" "")
		((n < 100000)) || goals=("<=2000" "<=1000" "<=150")
		partitions_store "$n"
		milliseconds store_open disk "$store"
		record "W7 $n partitions: mount" ms "$took" "${goals[0]}" \
			"CPU: reading the tables of partitions and segments"
		milliseconds count_partitions "$n"
		record "W7 $n partitions: ls | wc -l" ms "$took" "${goals[1]}" \
			"CPU: readdir, and ls sorts"
		mkdir "$mnt/queues/q/groups/$round"
		drive drain -k -s 0.5 "$mnt/queues/q/groups/$round/pop"
		many=$(found p50_us)
		few=${few:-$many}
		record "W7 $n partitions: pop, p50" us "$many" "" "CPU: FUSE requests"
		record "W7 $n partitions: pop, p99" us "$(found p99_us)"
		milliseconds cat "$mnt/queues/q/groups/$round/stats"
		record "W7 $n partitions: cat a group's stats" ms "$took" "" \
			"CPU: a look at each partition"
		record "W7 $n partitions: memory" MiB "$(ratio "$(daemon_kib VmRSS)" 1024)" \
			"${goals[2]}" "the partitions and cursors held in memory"
		rmdir "$mnt/queues/q/groups/$round" # so that each round has one group
		store_close "$mnt"
	done
	record "W7 pop: 100000 / 10 partitions" ratio "$(ratio "$many" "$few")" "<=1.5" \
		"CPU: a segment is read for each pop"
}

# --- W8 -----------------------------------------------------------------------------------

IDLE_FILES=200
BLOCKED=200 # followers while ls runs
BLOCKED_MANY=10000
IDLE_SECS=1.5 # /proc counts in ticks of 10 ms: this resolves 7 ms a second

# The daemon's utime + stime, in ticks; the name before them may hold blanks.
daemon_ticks() {
	awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/${daemon_pid[$mnt]}/stat"
}

# How often its threads went to sleep, and so woke up.
daemon_sleeps() {
	cat "/proc/${daemon_pid[$mnt]}"/task/*/status |
		awk '/^voluntary_ctxt_switches/ { n += $2 } END { print n }'
}

# idle_record LABEL: what the daemon does while nothing happens.
idle_record() {
	local ticks sleeps
	sleep 0.5 # what was consumed before is committed within 100 ms
	ticks=$(daemon_ticks)
	sleeps=$(daemon_sleeps)
	sleep "$IDLE_SECS"
	ticks=$(($(daemon_ticks) - ticks))
	sleeps=$(($(daemon_sleeps) - sleeps))
	record "$1: CPU" ms/s \
		"$(ratio $((ticks * 1000 / $(getconf CLK_TCK))) "$IDLE_SECS")" "<=0" "nothing runs"
	record "$1: wake-ups" 1/s "$(ratio "$sleeps" "$IDLE_SECS")"
}

# Each file has been read to its end once, so that its handle is known to the group. A
# process of their own holds them: whoever inherits a descriptor sends a flush when it
# ends, and this shell forks.
idle_files() {
	local pop=$mnt/queues/idle/groups/g/pop holder_pid
	mkdir "$mnt/queues/idle" "$mnt/queues/idle/partitions/p" "$mnt/queues/idle/groups/g"
	coproc holder {
		for ((i = 0; i < IDLE_FILES; i++)); do
			exec {fd}<"$pop"
			if read -r -u "$fd" _; then die "pop of an empty queue gave a line"; fi
		done
		echo open
		read -r _ || true # until our end is closed
	}
	holder_pid=$!
	read -r _ <&"${holder[0]}" || die "$pop could not be opened $IDLE_FILES times"
	idle_record "W8 $IDLE_FILES idle pop files"
	eval "exec ${holder[1]}>&-"
	wait "$holder_pid"
}

# hold N: N followers of $held more that are blocked.
hold() {
	local there i
	echo "$1" >&"${holder[1]}"
	read -r there <&"${holder[0]}" || die "$held could not be opened $1 times"
	for ((i = 0; i < 1000; i++)); do
		[[ $(awk '$1 == "waiting" { print $2 }' "${held%/*}/stats") != "$there" ]] ||
			return 0
		sleep 0.01
	done
	die "$there followers of $held do not wait"
}

# blocked_limit: BLOCKED_MANY, or fewer where a process may not open as many files or the
# machine not run as many threads (there is one for each).
blocked_limit() {
	local most=$BLOCKED_MANY limit
	for limit in "$(ulimit -Hn)" "$(ulimit -Hu)" "$(cat /proc/sys/kernel/threads-max)"; do
		[[ $limit == unlimited ]] || ((limit - 500 > most)) || most=$((limit - 500))
	done
	((most == BLOCKED_MANY)) ||
		skip "W8 with $BLOCKED_MANY followers" "the limits of this shell allow $most"
	echo "$most"
}

# In a store without much else: ls -lR shows every segment.
w8() {
	local queue=$mnt/queues/held held i kib holder_pid most
	most=$(blocked_limit)
	queenfs_start os
	idle_files
	held=$queue/groups/g/follow
	mkdir "$queue" "$queue/groups/g"
	for i in 1 2 3 4; do
		mkdir "$queue/partitions/$i"
		echo message >"$queue/partitions/$i/push"
	done
	echo end >"$queue/groups/g/cursor"
	coproc holder { exec "$BENCH_BIN/hold" "$held"; }
	holder_pid=$!
	kib=$(daemon_kib VmRSS)
	hold "$BLOCKED"
	milliseconds ls "$mnt"
	record "W8 $BLOCKED blocked: ls" ms "$took" "<=100" "CPU: FUSE requests"
	milliseconds ls -lR "$mnt/queues"
	record "W8 $BLOCKED blocked: ls -lR queues" ms "$took" "<=100" "CPU: FUSE requests"
	hold $((most - BLOCKED))
	kib=$(($(daemon_kib VmRSS) - kib))
	record "W8 $most blocked: VmRSS of the daemon, added" MiB "$(ratio "$kib" 1024)" "<=100" \
		"a handle, a node and a request each; not counted: the kernel's and the readers' own"
	record "W8 $most blocked: of one" KiB "$(ratio "$kib" "$most")"
	idle_record "W8 $most blocked"
	eval "exec ${holder[1]}>&-"
	wait "$holder_pid"
	queenfs_stop
}

# --- W9 -----------------------------------------------------------------------------------

END_MESSAGES=10000000 # 1 GB
END_BACKLOG=200000 # what is popped; more than in all slices

# big_store COPY: a copy of a store with END_MESSAGES in one partition, 1 GB, made once.
big_store() {
	if [[ ! -e $tmp/big ]]; then
		store_open os "$tmp/big"
		messages_push "$END_MESSAGES" "$mnt/queues/q"
		store_close "$mnt"
	fi
	cp "$tmp/big" "$1"
	sync -f "$1"
}

push_begin() {
	floor=$(push_rate "$SLICE_SECS" "$mnt/queues/q/push")
}

push_end() {
	ours=$(push_rate "$SLICE_SECS" "$twin/queues/q/push")
}

pop_begin() {
	drive drain -k -s "$SLICE_SECS" "$mnt/queues/q/groups/g/pop"
	floor=$(found messages_per_s)
}

pop_end() {
	drive drain -k -s "$SLICE_SECS" "$twin/queues/q/groups/g/pop"
	ours=$(found messages_per_s)
}

# Both groups begin at END_BACKLOG messages that were pushed in the same way, last of all.
w9() {
	local cursor=$twin/queues/q/partitions/default/groups/g/cursor
	[[ -e $tmp/end ]] || big_store "$tmp/end"
	store_open os "$tmp/end" "$twin"
	queenfs_start os
	messages_push "$END_BACKLOG" "$mnt/queues/q"
	((round > 1)) || echo $((END_MESSAGES - END_BACKLOG - 1)) >"$cursor"
	slices 4 pop_begin pop_end
	record_pair "W9 os, pop" msg/s "in a new log" "after 10 million" ">=0.85" \
		"CPU: FUSE requests"
	slices 4 push_begin push_end
	record_pair "W9 os, push" msg/s "in a new log" "after 10 million" ">=0.85" \
		"CPU: FUSE requests, then SQLite's rows"
	queenfs_stop
	store_close "$twin"
}

# --- W10 ----------------------------------------------------------------------------------

RETAIN_SECS=8 # while retention is watched, at most

push_beside() {
	push_rate "$SLICE_SECS" -n 4 "$(partition new)/push"
}

# Four producers of another partition of the queue, in slices, before retention and until
# it has removed the messages and given their room back: until the store is small.
w10() {
	local i began rate before=() meanwhile=() size secs
	big_store "$tmp/store"
	store_open disk "$tmp/store"
	size=$(stat -c %s "$tmp/store")
	push_beside >/dev/null # what comes first after a start is no measure
	for i in 1 2 3 4 5 6; do
		before+=("$(push_beside)")
	done
	began=${EPOCHREALTIME/./}
	echo 1M >"$mnt/queues/q/config/retention_bytes"
	secs=0
	while (($(stat -c %s "$tmp/store") > size / 4)); do
		meanwhile+=("$(push_beside)")
		secs=$(ratio $((${EPOCHREALTIME/./} - began)) 1000000)
		((${secs%.*} < RETAIN_SECS)) || break
	done
	((${#meanwhile[@]})) || die "retention was over before it could be watched"
	floor=$(median "${before[@]}")
	ours=$(median "${meanwhile[@]}")
	record_pair "W10 disk, 4 producers" msg/s "before" "while retention works" ">=0.8" \
		"the disk: freed pages are written too"
	rate=$(printf '%s\n' "${meanwhile[@]}" | sort -g | head -n 1)
	record "W10 disk, 4 producers: worst $SLICE_SECS s / before" ratio \
		"$(ratio "$rate" "$floor")"
	record "W10 removed and given back, of 1 GB" MB \
		"$(ratio $((size - $(stat -c %s "$tmp/store"))) 1e6)"
	record "W10 it took, or was watched for" s "$secs" "" "it pauses for pushers"
	queenfs_stop
}
