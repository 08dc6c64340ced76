#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 12 of the contract: settings, stats and members. And what spread does (2).
# ls lists plain names here, and the backquotes in '' are README's.
# shellcheck disable=SC2012,SC2016

load lib

# The keys of a queue, each with its preset as it is written.
PRESETS='framing=line spread=1 batch=1 prefetch=0 lease_seconds=300 retry_limit=3
	max_deliveries=0 retry_delay_seconds=0 dedup_seconds=3600 retention_seconds=0
	completed_retention_seconds=0 retention_bytes=0 max_message_bytes=1M subscription=all
	snapshot_seconds=7d'
# Those of a group that follow the queue's; and those that are a group's own.
FOLLOWED='batch prefetch lease_seconds retry_limit max_deliveries retry_delay_seconds'
OWN='subscription filter'

# keys KEY[=VALUE]... - sorted, a line each.
keys() { printf '%s\n' "${@%%=*}" | sort; }

# has_line FILE LINE... - each is one of its lines.
has_line() {
	local line
	for line in "${@:2}"; do
		grep -qxF -- "$line" "$1" && continue
		echo "no line \"$line\":" && cat "$1"
		return 1
	done
}

# rows - of members, without the line of names.
rows() { tail -n +2 "$G/members"; }
rows_are() { [ "$(rows | wc -l)" = "$1" ]; }

# released - nobody holds partition default.
released() { has "$PG/stats" '^lease_pid 0$'; }

# ---- values ----------------------------------------------------------------------------

@test "each setting has its file and its default, in queues and groups" {
	start
	queue
	local pair key
	for pair in $PRESETS; do
		key=${pair%=*}
		case ${pair#*=} in
		1M) is "$(cat "$Q/config/$key")" 1048576 ;;
		7d) is "$(cat "$Q/config/$key")" 604800 ;;
		*) is "$(cat "$Q/config/$key")" "${pair#*=}" ;;
		esac
	done
	for key in $FOLLOWED; do is "$(cat "$G/config/$key")" "$(cat "$Q/config/$key")"; done
	is "$(cat "$G/config/subscription")" all
	is "$(od -An -c "$G/config/filter" | tr -s ' ')" ' \n'
	# shellcheck disable=SC2086
	is "$(ls "$Q/config" | sort)" "$(keys $PRESETS)"
	# shellcheck disable=SC2086
	is "$(ls "$G/config" | sort)" "$(keys $FOLLOWED $OWN)"
}

@test "what is not a group's, and a filter of a queue, is not there" {
	start
	queue
	local pair key
	for pair in $PRESETS; do
		key=${pair%=*}
		[[ " $FOLLOWED $OWN " != *" $key "* ]] || continue
		is "$key $(sys open "$G/config/$key" O_RDONLY)" "$key ENOENT"
	done
	is "$(sys open "$Q/config/filter" O_RDONLY)" ENOENT
}

# documented SOURCE - `<key>=<preset>` of queue and group for each setting it names, sorted.
documented_in_readme() {
	sed -n '/^### 12\./,/^### 13\./s/^| `\([a-z_]*\)`[ *]* | *\([^ |]*\) *|.*/\1=\2/p' \
		"$TOP/README.md" | sort
}
documented_in_page() {
	sed -n '/^\.Ss Settings of queues/,/^\.Sh/p' "$TOP/fs/queenfs.8" | awk '
		key { sub(/:.*/, ""); print key "=" ($0 ~ /^of a group/ ? "" : $0); key = "" }
		/^\.It Ic/ { key = $3 }' | sort
}
documented_in_ini() {
	sed -n '/^\[defaults\]/,/\[queue /s/^# \([a-z_]*\) = \(.*\)/\1=\2/p' \
		"$TOP/queenfs.ini" | sort
}

@test "README, the manual page and queenfs.ini name the settings that are there, each with its preset" {
	TOP=${BATS_TEST_DIRNAME%/tests/fs}
	start
	queue
	local pair key keys
	keys=$(ls "$Q/config" && ls "$G/config")
	is "$(documented_in_readme | cut -d = -f 1)" "$(sort -u <<<"$keys")"
	is "$(documented_in_page)" "$(documented_in_readme)"
	is "$(documented_in_ini)" "$(documented_in_readme | grep -vx filter=)"
	for pair in $(documented_in_ini); do
		key=$(cat "$Q/config/${pair%=*}")
		setting "$Q" "${pair%=*}" "${pair#*=}"
		is "$pair $(cat "$Q/config/${pair%=*}")" "$pair $key"
	done
	# those marked * are in groups too, ** in groups alone
	keys=$(sed -n 's/^| `\([a-z_]*\)` \*\** |.*/\1/p' "$TOP/README.md" | sort)
	is "$keys" "$(ls "$G/config" | sort)"
	keys=$(sed -n 's/^| `\([a-z_]*\)` \*\* |.*/\1/p' "$TOP/README.md")
	is "$keys" filter
}

@test "durations are written as 90, 90s, 15m, 2h, 7d" {
	start
	queue
	local dir text
	for dir in "$Q" "$G"; do
		for text in 90=90 90s=90 15m=900 2h=7200 7d=604800 0=0 0s=0 366d=31622400; do
			setting "$dir" lease_seconds "${text%=*}"
			is "$text: $(cat "$dir/config/lease_seconds")" "$text: ${text#*=}"
		done
		for text in 5=5 5s=5 1m=60 1m:1h=60:3600 5:5=5:5 1s:90=1:90 0=0; do
			setting "$dir" retry_delay_seconds "${text%=*}"
			is "$text: $(cat "$dir/config/retry_delay_seconds")" "$text: ${text#*=}"
		done
	done
	for text in dedup retention completed_retention snapshot; do
		setting "$Q" "${text}_seconds" 90
		is "$(cat "$Q/config/${text}_seconds")" 90
		setting "$Q" "${text}_seconds" 366d
		is "$(cat "$Q/config/${text}_seconds")" 31622400
	done
	for text in retention completed_retention snapshot; do
		setting "$Q" "${text}_seconds" 36525d # a hundred years
		is "$(cat "$Q/config/${text}_seconds")" 3155760000
	done
}

@test "sizes are written as 65536, 64K, 1M, 2G and read in bytes" {
	start
	queue
	local text
	for text in 0=0 1=1 65536=65536 64K=65536 64k=65536 1M=1048576 3m=3145728 2G=2147483648 \
		2g=2147483648 9223372036854775807=9223372036854775807; do
		setting "$Q" retention_bytes "${text%=*}"
		is "$text: $(cat "$Q/config/retention_bytes")" "$text: ${text#*=}"
	done
	for text in 1=1 256M=268435456 262144K=268435456 268435456=268435456; do
		setting "$Q" max_message_bytes "${text%=*}"
		is "$text: $(cat "$Q/config/max_message_bytes")" "$text: ${text#*=}"
	done
}

@test "framing is line or file" {
	start
	queue
	local text
	for text in file FILE line Line; do
		setting "$Q" framing "$text"
		is "$(cat "$Q/config/framing")" "${text,,}"
	done
	setting "$Q" framing file
	remount
	is "$(cat "$Q/config/framing")" file
	setting "$Q" framing default
	is "$(cat "$Q/config/framing")" line
}

@test "subscription is all, new (or now), or a time, which is read in full" {
	start
	queue
	local dir text before after
	for dir in "$Q" "$G"; do
		for text in all=all new=new NEW=new now=new Now=new ALL=all \
			2026-07-29T14:00=2026-07-29T14:00:00.000000Z \
			'2026-07-29 16:00:00.5 +02:00=2026-07-29T14:00:00.500000Z' \
			@1785333600.25=2026-07-29T14:00:00.250000Z \
			2026-07-29=2026-07-29T00:00:00.000000Z; do
			setting "$dir" subscription "${text%=*}"
			is "$text: $(cat "$dir/config/subscription")" "$text: ${text#*=}"
		done
		# relative to the moment of writing it
		before=$(date -u -d -2hours +%FT%T.%6NZ)
		setting "$dir" subscription -2h
		after=$(date -u -d -2hours +%FT%T.%6NZ)
		text=$(cat "$dir/config/subscription")
		[[ ! $text < $before && ! $text > $after ]]
		remount
		is "$(cat "$dir/config/subscription")" "$text"
	done
}

@test "a filter is a line of up to 2000 bytes; an empty one or default is none" {
	start
	queue
	local text none
	for none in '' default ' '; do
		text="attributes ->> 'region' = 'eu' AND \"offset\" % 2 = 0"
		setting "$G" filter "$text"
		is "$(cat "$G/config/filter")" "$text"
		remount
		is "$(cat "$G/config/filter")" "$text"
		setting "$G" filter "$none"
		is "$(cat "$G/config/filter")" ''
		remount
		is "$(cat "$G/config/filter")" ''
	done
	setting "$G" filter "$none"
	text="data <> '$(printf 'é%.0s' {1..995})'"
	[ "$(printf %s "$text" | wc -c)" = 2000 ]
	setting "$G" filter "$text"
	is "$(cat "$G/config/filter")" "$text"
	remount
	is "$(cat "$G/config/filter")" "$text"
	refuses "$G" filter "${text/é/eee}" "$(printf '%05000d' 1)" \
		$'data = 1\nOR data = 2'
	errors_has 'groups/g/config/filter: EINVAL: .*allowed.*2000 bytes'
}

@test "numbers are accepted up to what is allowed" {
	start
	queue
	local pair
	for pair in spread=100000 batch=1 batch=1000000 prefetch=0 prefetch=1000000 \
		retry_limit=0 retry_limit=1000000 max_deliveries=0 max_deliveries=1000000; do
		setting "$Q" "${pair%=*}" "${pair#*=}"
		is "$(cat "$Q/config/${pair%=*}")" "${pair#*=}"
	done
}

@test "a value needs no newline" {
	start
	queue
	printf 7 >"$Q/config/batch"
	is "$(od -An -c "$Q/config/batch" | tr -s ' ')" ' 7 \n'
}

# refuses DIRECTORY KEY VALUE... - each is EINVAL and changes nothing; errors names KEY.
refuses() {
	local value before
	before=$(cat "$1/config/$2")
	for value in "${@:3}"; do
		is "$2 '$value': $(sys write "$1/config/$2" "$value"$'\n')" "$2 '$value': EINVAL"
		is "$(cat "$1/config/$2")" "$before"
	done
}

@test "a bad value is EINVAL, says what is allowed, and changes nothing" {
	start
	queue
	setting "$Q" lease_seconds 77
	setting "$G" batch 5
	local dir
	refuses "$Q" spread '' 0 -1 +2 100001 x 1.5 5s '2 3' 0x10
	errors_has 'config/spread: EINVAL: .*"0x10".*1 to 100000'
	for dir in "$Q" "$G"; do
		refuses "$dir" batch '' 0 -1 1000001 x 1.5 3m 3K '2 3' $'2\n3'
		refuses "$dir" prefetch '' -1 1000001 x 1m
		refuses "$dir" lease_seconds '' -1 -1s 367d x s '5 s' 5w 5S 1h30m 1.5 5ms 1:2 \
			99999999999999999999 9223372036854775807d
		refuses "$dir" retry_limit '' -1 1000001 x 1s
		refuses "$dir" max_deliveries '' -1 1000001 x 1s
		refuses "$dir" retry_delay_seconds '' -1 x : :5 1: 2:1 1m:59s 1:2:3 '1: 2' 1-2
	done
	errors_has 'groups/g/config/retry_delay_seconds: EINVAL: .*"1-2".*15m.*:'
	refuses "$Q" batch "$(printf '%0300d' 1)"
}

@test "a bad word, time, age or size is EINVAL and changes nothing" {
	start
	queue
	local dir
	for dir in "$Q" "$G"; do
		refuses "$dir" subscription '' x old 17 -1 -1y 1h 2026-13-01 26-07-29 all,new \
			'all new' 10000-01-01 start end
	done
	refuses "$Q" framing '' lines 0 1 'line file' default,
	refuses "$Q" dedup_seconds '' -1 x 367d 1K
	for dir in retention completed_retention snapshot; do
		refuses "$Q" "${dir}_seconds" '' -1 x 36526d 3155760001 1K 1:2
	done
	refuses "$Q" retention_bytes '' -1 x K 1T 1KB '1 K' 1.5M 0x10 1:2 1d \
		9223372036854775808 9223372036854775807K
	refuses "$Q" max_message_bytes '' 0 -1 x 257M 1G 268435457 1s
}

@test "what is refused says what is allowed, for each setting" {
	start
	queue
	local key allowed
	while IFS='|' read -r key allowed; do
		is "$(sys write "$Q/config/$key" bad)" EINVAL
		errors_has "queues/q/config/$key: EINVAL: $key cannot be \"bad\"; allowed is $allowed"
	done <<-'END'
		framing|line or file$
		spread|a number of partitions from 1 to 100000$
		batch|a number of messages from 1 to 1000000$
		prefetch|a number of messages up to 1000000, or 0 for what fits$
		lease_seconds|a duration like 90, 90s, 15m, 2h or 7d, or 0 for while the file is open$
		retry_limit|a number of times up to 1000000$
		max_deliveries|a number of deliveries up to 1000000, or 0 for any$
		retry_delay_seconds|a duration like .*, or two as least:greatest$
		dedup_seconds|a duration like .*, up to 366d, or 0 for no de-duplication$
		retention_seconds|a duration like .*, up to 36525d, or 0 for whatever age$
		completed_retention_seconds|a duration like .*, up to 36525d, or 0 for whatever age$
		retention_bytes|a size like 65536, 64K, 1M or 2G, or 0 for any$
		max_message_bytes|a size like 65536, 64K, 1M or 2G, from 1 to 256M$
		subscription|all, new, or a time like 2026-07-29T14:00Z, -2h or @1785333600$
		snapshot_seconds|a duration like .*, up to 36525d, or 0 for ever$
	END
}

@test "a value of the queue: default brings back the preset" {
	start
	queue
	setting "$Q" batch 9
	setting "$Q" batch default
	is "$(cat "$Q/config/batch")" 1
	setting "$Q" lease_seconds 5
	remount
	setting "$Q" lease_seconds default
	remount
	is "$(cat "$Q/config/lease_seconds")" 300
	local pair before
	for pair in framing=file spread=2 prefetch=1 retry_limit=1 max_deliveries=1 \
		retry_delay_seconds=1:5 dedup_seconds=1 retention_seconds=365d \
		completed_retention_seconds=365d retention_bytes=1G max_message_bytes=2M \
		subscription=-1h snapshot_seconds=1d; do
		before=$(cat "$Q/config/${pair%=*}")
		setting "$Q" "${pair%=*}" "${pair#*=}"
		[ "$(cat "$Q/config/${pair%=*}")" != "$before" ]
		setting "$Q" "${pair%=*}" default
		is "$(cat "$Q/config/${pair%=*}")" "$before"
	done
}

@test "a setting is 0644 and its directory's owner's; rm and rmdir do nothing" {
	start
	queue
	setting "$Q" batch 4
	setting "$G" batch 5
	rm "$Q/config/batch" "$G/config/batch" "$G/config/prefetch"
	rmdir "$Q/config" "$G/config"
	is "$(cat "$Q/config/batch") $(cat "$G/config/batch")" '4 5'
	setting "$Q" prefetch 3
	is "$(cat "$G/config/prefetch")" 3 # not written by its rm either
	is "$(sys create "$Q/config/colour")" EPERM
	is "$(sys mkdir "$G/config/colour")" EPERM
	is "$(sys rename "$Q/config/batch" "$Q/config/other")" EPERM
	[ "$(stat -c %a "$Q/config/batch")" = 644 ]
}

# ---- groups ----------------------------------------------------------------------------

@test "a key never written in a group shows and follows the queue's value" {
	start
	queue
	local key value=10
	for key in $FOLLOWED; do
		value=$((value + 1))
		setting "$Q" "$key" "$value"
		is "$(cat "$G/config/$key")" "$value"
	done
	mkdir "$Q/groups/later"
	is "$(cat "$Q/groups/later/config/batch")" 11
	remount
	is "$(cat "$G/config/batch")" 11
	setting "$Q" batch 20
	is "$(cat "$G/config/batch")" 20
}

@test "a group's own value holds until default is written" {
	start
	queue
	mkdir "$Q/groups/h"
	setting "$G" batch 5
	setting "$Q" batch 7
	is "$(cat "$Q/config/batch") $(cat "$G/config/batch")" '7 5'
	is "$(cat "$Q/groups/h/config/batch")" 7
	setting "$Q" batch 5
	setting "$Q" batch 8
	is "$(cat "$G/config/batch")" 5
	setting "$G" batch default
	is "$(cat "$G/config/batch")" 8
	setting "$Q" batch 9
	is "$(cat "$G/config/batch")" 9
	setting "$G" batch default # nothing to return from
	is "$(cat "$G/config/batch")" 9
}

@test "a group's value that equals the queue's is its own all the same" {
	start
	queue
	setting "$G" batch 1
	setting "$Q" batch 6
	is "$(cat "$G/config/batch")" 1
	remount
	is "$(cat "$G/config/batch")" 1
}

@test "a group is given its queue's subscription when it is made, and keeps it" {
	start
	queue
	mkdir "$Q/groups/later"
	setting "$Q" subscription 2026-07-29
	mkdir "$Q/groups/time"
	setting "$Q" subscription new
	mkdir "$Q/groups/new"
	mkdir "$P" "$P/groups/mirrored"
	setting "$Q" subscription all
	mkdir "$Q/groups/all"
	setting "$Q" subscription @0
	setting "$Q/groups/later" subscription new
	for _ in 1 2; do
		is "$(cd "$Q/groups" && grep . ./*/config/subscription)" \
			"$(printf './%s/config/subscription:%s\n' all all g all later new mirrored new \
				new new time 2026-07-29T00:00:00.000000Z)"
		remount
	done
	# default: as a group that is made now
	setting "$G" subscription default
	is "$(cat "$G/config/subscription")" 1970-01-01T00:00:00.000000Z
	setting "$Q" subscription default
	is "$(cat "$Q/config/subscription")" all
	setting "$Q/groups/later" subscription default
	remount
	is "$(cat "$G/config/subscription")" 1970-01-01T00:00:00.000000Z
	is "$(cat "$Q/groups/later/config/subscription")" all
}

@test "each group reads by its own values" {
	start
	queue
	mkdir "$Q/groups/h"
	setting "$Q" batch 2
	setting "$G" batch 3
	push "$Q" 1 2 3 4
	pops "$G/pop" $'1\n2\n3'
	pops "$Q/groups/h/pop" $'1\n2'
	pops "$Q/pop" $'1\n2'
	pops "$P/groups/h/pop" $'3\n4'
}

# ---- durable ---------------------------------------------------------------------------

@test "settings survive a restart" {
	start
	queue
	setting "$Q" spread 3
	setting "$Q" retry_delay_seconds 1:8
	setting "$G" retry_delay_seconds 2m
	setting "$G" lease_seconds 4
	setting "$G" lease_seconds default
	remount
	is "$(cat "$Q/config/spread")" 3
	is "$(cat "$Q/config/retry_delay_seconds")" 1:8
	is "$(cat "$G/config/retry_delay_seconds")" 120
	setting "$Q" lease_seconds 6
	is "$(cat "$G/config/lease_seconds")" 6
}

@test "a setting survives kill -9 of the daemon at once" {
	start
	queue
	setting "$Q" batch 3
	crash
	start
	is "$(cat "$Q/config/batch")" 3
	setting "$G" batch 4
	crash
	start
	is "$(cat "$Q/config/batch") $(cat "$G/config/batch")" '3 4'
	setting "$G" batch default
	crash
	start
	is "$(cat "$G/config/batch")" 3
}

@test "a queue made again has the defaults again" {
	start
	queue
	setting "$Q" batch 3
	setting "$G" retry_limit 9
	rm -r "$Q"
	queue
	is "$(cat "$Q/config/batch") $(cat "$G/config/batch")" '1 1'
	is "$(cat "$G/config/retry_limit")" 3
}

@test "a group made again follows its queue again" {
	start
	queue
	setting "$G" batch 3
	setting "$G" subscription new
	setting "$G" filter 'data > 1'
	rmdir "$G"
	mkdir "$G"
	for _ in 1 2; do
		is "$(cat "$G/config/"{batch,subscription,filter})" $'1\nall'
		remount
	done
}

@test "[defaults] are for new queues, [queue NAME] makes or updates one at mount" {
	start
	queue
	stop
	printf '%s\n' '[defaults]' 'batch = 4' 'lease_seconds = 2m' '[queue q]' 'spread = 2' \
		'[queue other]' 'retry_limit = 7' >"$INI"
	start
	is "$(cat "$Q/config/batch") $(cat "$Q/config/spread")" '1 2'
	mkdir "$M/queues/new"
	is "$(cat "$M/queues/new/config/batch")" 4
	is "$(cat "$M/queues/new/config/lease_seconds")" 120
	is "$(cat "$M/queues/other/config/retry_limit")" 7
	is "$(cat "$M/queues/other/config/batch")" 4
}

# ---- from the next claim ---------------------------------------------------------------

@test "a changed batch counts from the next claim" {
	start
	queue
	push "$Q" 1 2 3 4
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	setting "$Q" batch 3
	is "$(handle fd "$fd" read ack read)" '[EBUSY] ok [2\n3\n4\n]'
	setting "$G" batch 1
	is "$(handle fd "$fd" read retry read)" '[EBUSY] ok [2\n]'
}

@test "a changed lease_seconds counts from the next claim" {
	start
	queue
	setting "$G" lease_seconds 0
	push "$Q" 1 2
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	setting "$G" lease_seconds 1
	is "$(stat_of "$PG/stats" lease_end)" -
	is "$(handle fd "$fd" ack read)" 'ok [2\n]'
	pops_soon "$G/pop" 2 # taken
	is "$(handle fd "$fd" ack)" ESTALE
}

@test "a changed spread counts from the next write of an open handle" {
	start
	queue
	local fd
	exec {fd}>"$Q/push"
	echo 1 >&"$fd"
	setting "$Q" spread 2
	printf '2\n3\n' >&"$fd"
	setting "$Q" spread 1
	echo 4 >&"$fd"
	is "$(cat "$P/log")" $'1\n4'
	is "$(cat "$Q/partitions/0/log" "$Q/partitions/1/log" | sort)" $'2\n3'
}

# ---- spread ----------------------------------------------------------------------------

# dealt N - the logs of partitions 0 to N-1, a line each with blanks, sorted.
dealt() {
	local i
	for ((i = 0; i < $1; i++)); do paste -sd ' ' "$Q/partitions/$i/log"; done | sort
}

@test "spread N: the queue's push deals to partitions 0 to N-1 in turn" {
	start
	queue
	setting "$Q" spread 3
	push "$Q" 1 2 3 4 5 6 7
	is "$(ls "$Q/partitions")" $'0\n1\n2'
	is "$(dealt 3)" $'1 4 7\n2 5\n3 6'
}

@test "spread deals the lines of one write and those of other handles in the same turn" {
	start
	queue
	setting "$Q" spread 2
	is "$(sys write "$Q/push" $'1\n2\n3\n' $'4\n5\n')" ok
	push "$Q" 6
	is "$(dealt 2)" $'1 3 5\n2 4 6'
}

@test "a partition's push is not spread" {
	start
	queue a
	setting "$Q" spread 2
	push "$Q/partitions/a" 1 2
	is "$(ls "$Q/partitions")" a
	is "$(cat "$Q/partitions/a/log")" $'1\n2'
}

@test "spread: all lines of one write commit together or not at all" {
	ini durability=os
	start
	queue
	setting "$Q" spread 3
	local i writer
	spawn perl -MFcntl -e '
		sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		for (my $n = 0; ; $n++) { syswrite($f, "$n\n" x 3) or exit }
	' "$Q/push"
	writer=$!
	many() { [ "$(wc -l <"$Q/partitions/0/log")" -gt 50 ]; }
	wait_until many
	crash
	wait "$writer" || true
	start
	for i in 1 2; do cmp "$Q/partitions/0/log" "$Q/partitions/$i/log"; done
	is "$(cat "$Q/partitions/0/log")" "$(seq 0 "$(last "$Q/partitions/0")")"
}

@test "N workers share a spread queue" {
	start
	queue
	setting "$Q" spread 2
	is "$(sys write "$Q/push" $'1\n2\n')" ok
	local first second
	exec {first}<>"$G/follow"
	exec {second}<>"$G/follow"
	is "$({ handle fd "$first" read && handle fd "$second" read; } | sort)" $'[1\\n]\n[2\\n]'
}

# ---- members ---------------------------------------------------------------------------

@test "members: a # line names the columns; nobody reads, no row" {
	start
	queue
	is "$(cat "$G/members")" $'# pid\tuid\tcommand\tfile\tpartition\tfrom-to\tlease-end'
}

@test "members: a row for each handle, TAB-separated; without a lease -" {
	start
	queue a
	local me=$BASHPID uid fd other
	uid=$(id -u)
	exec {fd}<>"$G/follow"
	is "$(rows)" "$me"$'\t'"$uid"$'\t'"$(cat "/proc/$me/comm")"$'\tfollow rw\t-\t-\t-'
	exec {other}<"$Q/partitions/a/groups/g/pop"
	rows_are 2
	is "$(rows | cut -f 4 | sort | paste -sd ,)" 'follow rw,pop'
	exec {fd}>&- {other}<&-
	wait_until rows_are 0
}

@test "members: a lease shows its partition, from-to and end" {
	start
	queue a
	setting "$G" batch 3
	setting "$G" lease_seconds 100
	push "$Q/partitions/a" 1 2 3 4
	local fd
	exec {fd}<>"$G/pop"
	is "$(handle fd "$fd" read)" '[1\n2\n3\n]'
	is "$(rows | cut -f 4-6)" $'pop rw\ta\t0-2'
	rows | cut -f 7 | grep -Eqx '[0-9-]{10}T[0-9:]{8}\.[0-9]{6}Z'
	[[ $(rows | cut -f 7) > $(date -u -d '+30 seconds' +%FT%T) ]]
	[[ $(rows | cut -f 7) < $(date -u -d '+101 seconds' +%FT%T) ]]
	is "$(handle fd "$fd" 'ack 0')" ok
	is "$(rows | cut -f 4-6)" $'pop rw\ta\t1-2'
	is "$(handle fd "$fd" ack)" ok
	is "$(rows | cut -f 4-7)" $'pop rw\t-\t-\t-'
}

@test "members: a row for each lease of a follow that holds several" {
	start
	queue a b
	push "$Q/partitions/a" a1 a2
	push "$Q/partitions/b" b1
	setting "$G" lease_seconds 0
	local fd
	exec {fd}<"$G/follow"
	is "$(handle fd "$fd" read)" '[a1\na2\nb1\n]'
	is "$(rows | cut -f 4- | sort)" $'follow\ta\t0-1\t-\nfollow\tb\t0-0\t-'
	is "$(rows | cut -f 1 | uniq)" "$BASHPID"
}

@test "members: the command is the reader's" {
	start
	queue
	reader "$BATS_TEST_TMPDIR/out" "$G/follow"
	wait_until waiting 1
	is "$(rows | cut -f 1,3,4)" "$READER"$'\tcat\tfollow'
}

# ---- stats -----------------------------------------------------------------------------

@test "stats are lines of a key and a value, each key once" {
	start
	queue a
	push "$Q/partitions/a" 1
	local file
	for file in "$Q/stats" "$Q/partitions/a/stats" "$G/stats" \
		"$Q/partitions/a/groups/g/stats"; do
		[ "$(wc -l <"$file")" -ge 5 ]
		not grep -Evq '^[a-z_]+ [^ ]+$' "$file"
		is "$(cut -d ' ' -f 1 "$file" | sort | uniq -d)" ''
	done
}

@test "a queue's stats" {
	start
	queue a b
	has_line "$Q/stats" 'partitions 2' 'groups 1' 'pushed 0' 'messages 0' 'bytes 0'
	mkdir "$Q/groups/h"
	push "$Q/partitions/a" one two
	push "$Q/partitions/b" three ''
	has_line "$Q/stats" 'partitions 2' 'groups 2' 'pushed 4' 'messages 4' 'bytes 15'
	pops "$G/pop" one # deletes nothing
	rm "$(segment "$Q/partitions/a" 0)"
	has_line "$Q/stats" 'pushed 4' 'messages 3' 'bytes 11'
	rmdir "$Q/groups/h"
	has_line "$Q/stats" 'groups 1'
	remount
	has_line "$Q/stats" 'partitions 2' 'groups 1' 'pushed 4' 'messages 3' 'bytes 11'
}

@test "a partition's stats" {
	start
	queue p
	local p=$Q/partitions/p
	has_line "$p/stats" 'first_offset 0' 'last_offset -1' 'messages 0' 'bytes 0'
	[[ ! $(stat_of "$p/stats" made_at) > $(date -u +%FT%T.%6NZ) ]]
	is "$(sys write "$p/push" $'one\ntwo\n')" ok
	push "$p" three
	has_line "$p/stats" 'first_offset 0' 'last_offset 2' 'messages 3' 'bytes 14' \
		"modified_at $(attribute "$(segment "$p" 2)" created_at)"
	rm "$(segment "$p" 0)"
	has_line "$p/stats" 'first_offset 2' 'last_offset 2' 'messages 1' 'bytes 6'
	remount
	has_line "$p/stats" 'first_offset 2' 'last_offset 2' 'messages 1' 'bytes 6'
}

@test "a group's stats: partitions, lag, what was delivered" {
	start
	queue a b
	has_line "$G/stats" 'partitions 2' 'lag 0' 'oldest_unread_seconds 0' 'members 0' \
		'waiting 0' 'leased 0' 'delivered 0' 'redelivered 0' 'dead_lettered 0' 'skipped 0'
	push "$Q/partitions/a" 1 2 3
	push "$Q/partitions/b" 4 5
	has_line "$G/stats" 'lag 5'
	pops "$Q/partitions/a/groups/g/pop" 1 2
	has_line "$G/stats" 'lag 3' 'delivered 2' 'redelivered 0'
	is "$(handle rw "$Q/partitions/b/groups/g/follow" read)" '[4\n]'
	pops_soon "$Q/partitions/b/groups/g/pop" 4
	has_line "$G/stats" 'lag 2' 'delivered 3' 'redelivered 1'
	is "$(handle rw "$Q/partitions/b/groups/g/pop" read dlq)" '[5\n] ok'
	has_line "$G/stats" 'lag 1' 'delivered 4' 'redelivered 1' 'dead_lettered 1'
	echo end >"$G/cursor"
	has_line "$G/stats" 'lag 0' 'oldest_unread_seconds 0'
}

@test "a group's stats: members, waiting and leased" {
	start
	queue a b
	push "$Q/partitions/a" 1
	local fd
	exec {fd}<>"$G/follow"
	has_line "$G/stats" 'members 1' 'waiting 0' 'leased 0'
	is "$(handle fd "$fd" read)" '[1\n]'
	has_line "$G/stats" 'members 1' 'waiting 0' 'leased 1'
	reader "$BATS_TEST_TMPDIR/out" "$Q/partitions/b/groups/g/follow" # holds $fd too
	wait_until waiting 1
	has_line "$G/stats" 'members 2' 'leased 1'
	is "$(handle fd "$fd" ack)" ok
	has_line "$G/stats" 'members 2' 'leased 0'
}

@test "oldest_unread_seconds is the age of the first message not consumed" {
	start
	queue
	push "$Q" 1 2
	older() { [[ $(stat_of "$1" oldest_unread_seconds) > 0.1 ]]; }
	wait_until older "$G/stats"
	wait_until older "$PG/stats"
	stat_of "$PG/stats" oldest_unread_seconds | grep -Eqx '[0-9]+\.[0-9]{3}'
	pops "$G/pop" 1 2
	has_line "$G/stats" 'oldest_unread_seconds 0'
	has_line "$PG/stats" 'oldest_unread_seconds 0'
}

@test "stats of a group in a partition: cursor, lease, attempts, retries" {
	start
	queue
	setting "$G" batch 2
	setting "$G" lease_seconds 100
	push "$Q" 1 2 3
	has_line "$PG/stats" 'committed -1' 'lag 3' 'lease_pid 0' 'lease_uid -1' 'lease_end -' \
		'attempts 0' 'retries 0' 'delivered 0' 'redelivered 0' 'dead_lettered 0' 'skipped 0'
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n2\n]'
	has_line "$PG/stats" 'committed -1' "lease_pid $BASHPID" "lease_uid $(id -u)" \
		'attempts 1' 'delivered 2'
	[[ $(stat_of "$PG/stats" lease_end) < $(date -u -d '+101 seconds' +%FT%T) ]]
	[[ $(stat_of "$PG/stats" lease_end) > $(date -u -d '+30 seconds' +%FT%T) ]]
	is "$(handle fd "$fd" fail read)" 'ok [1\n]'
	has_line "$PG/stats" 'attempts 2' 'retries 1' 'delivered 2' 'redelivered 1'
	is "$(handle fd "$fd" ack)" ok
	has_line "$PG/stats" 'committed 0' 'lag 2' 'lease_pid 0' 'lease_uid -1' 'lease_end -' \
		'retries 0'
	echo end >"$PG/cursor"
	has_line "$PG/stats" 'committed 2' 'lag 0' 'attempts 0' 'retries 0'
}

@test "redelivered counts what was delivered before, whatever max_deliveries says" {
	start
	queue
	setting "$G" max_deliveries 1
	push "$Q" 1 2
	is "$(handle rw "$G/follow" read ack)" '[1\n] ok'
	pops "$G/pop" 2
	has_line "$PG/stats" 'delivered 2' 'redelivered 0'
}

@test "skipped counts what rm took before the group read it" {
	start
	queue
	push "$Q" 1 2 3
	rm "$(segment "$P" 0)"
	rm "$(segment "$P" 1)"
	pops "$G/pop" 3 ''
	has_line "$PG/stats" 'skipped 2' 'delivered 1' 'lag 0'
	has_line "$G/stats" 'skipped 2'
}
