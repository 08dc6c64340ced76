#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 4 of the contract: programs that read a whole tree consume nothing and do not
# wait, whoever is reading meanwhile.

load lib

# busy - a queue with everything there is: three messages of each of a, default and z, a
# dead letter; a read-write follow that holds a ($HELD), a pop that has begun a message of
# default ($BEGUN), a cat that waits for partition idle, a group nobody has read.
busy() {
	queue a idle z
	mkdir "$Q/groups/idle" "$M/queues/empty" "$M/queues/other"
	push "$Q/partitions/a" a0 needle a2
	push "$Q" d0 d1 d2
	push "$Q/partitions/z" z0 z1 z2
	push "$M/queues/other" o0
	is "$(handle rw "$Q/partitions/z/groups/g/pop" read 'dlq broken')" '[z0\n] ok'
	reader "$BATS_TEST_TMPDIR/waits" "$Q/partitions/idle/groups/g/follow"
	wait_until waiting 1
	exec {HELD}<>"$Q/partitions/a/groups/g/follow"
	is "$(handle fd "$HELD" read)" '[a0\n]'
	exec {BEGUN}<"$PG/pop"
	is "$(handle fd "$BEGUN" read:1)" '[d]'
	PLACE=$(place)
}

# place - all that consuming would change. Names, cursors, counts, handles.
place() {
	ls "$M/queues"/*/groups "$M/queues"/*/partitions "$G/dlq"
	cat "$Q"/groups/*/cursor
	grep -hE '^(lag|members|waiting|leased|delivered|redelivered|dead_lettered) ' \
		"$Q"/groups/*/stats
	cut -f 1,4-6 "$G/members"
	cat "$M"/queues/*/partitions/*/log
}
same_place() { [ "$(place)" = "$PLACE" ]; }

# crawl COMMAND... - with a limit; prints its status. What it opened it has closed again
# (the kernel tells of that a moment later), and nothing has changed.
crawl() {
	local status=0
	timeout -k 5 30 "$@" </dev/null 3>&- {HELD}>&- {BEGUN}<&- || status=$?
	STATUS=$status
	[ "$status" -lt 124 ] || { echo "$1 ended with status $status" && return 1; }
	same_place || wait_until same_place || diff <(echo "$PLACE") <(place)
}

# still_works - everybody goes on where they were.
still_works() {
	is "$(handle fd "$BEGUN" read read)" '[0\n] []'
	is "$(handle fd "$HELD" ack read ack)" 'ok [needle\n] ok'
	push "$Q/partitions/idle" late
	wait_until shows "$BATS_TEST_TMPDIR/waits" late
	pops "$PG/pop" d1
	pops "$Q/partitions/z/groups/g/pop" z1
}

@test "grep -r finds what is in log and segments, consumes nothing and does not wait" {
	start
	busy
	crawl grep -rl needle "$M" >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err"
	grep -qx "$Q/partitions/a/log" "$BATS_TEST_TMPDIR/out"
	grep -qx "$Q/partitions/a/segments/0*1" "$BATS_TEST_TMPDIR/out"
	not grep -Eq '/(pop|follow)$' "$BATS_TEST_TMPDIR/out"
	crawl grep -rs 'not there' "$M"
	[ "$STATUS" != 0 ]
	still_works
}

@test "cp -r and cp -a copy what can be read, consume nothing and do not wait" {
	start
	busy
	local copy=$BATS_TEST_TMPDIR/copy how
	for how in -r -a; do
		rm -rf "$copy"
		crawl cp "$how" "$M" "$copy" 2>/dev/null
		is "$(cat "$copy/queues/q/partitions/a/log")" $'a0\nneedle\na2'
		is "$(cat "$copy/queues/q/groups/g/dlq/z@0")" z0
		is "$(cat "$copy/queues/q/config/batch")" 1
		grep -q . "$copy/queues/q/groups/g/stats"
		is "$(find "$copy" -type f -size +0 \( -name pop -o -name follow \))" ''
	done
	still_works
}

@test "rsync copies what can be read, consumes nothing and does not wait" {
	command -v rsync >/dev/null || skip "there is no rsync"
	start
	busy
	crawl rsync -a "$M/" "$BATS_TEST_TMPDIR/copy" 2>/dev/null
	cmp "$Q/partitions/a/log" "$BATS_TEST_TMPDIR/copy/queues/q/partitions/a/log"
	still_works
}

@test "tar consumes nothing and does not wait" {
	start
	busy
	crawl tar -C "$M" -cf "$BATS_TEST_TMPDIR/all.tar" . 2>/dev/null
	is "$(tar -xOf "$BATS_TEST_TMPDIR/all.tar" ./queues/q/partitions/a/log)" $'a0\nneedle\na2'
	is "$(tar -xOf "$BATS_TEST_TMPDIR/all.tar" ./queues/q/groups/g/dlq/z@0)" z0
	still_works
}

@test "find -type f passes pop and follow by: all that it names can be read" {
	start
	busy
	crawl find "$M" -type f ! -name push -exec cat {} + >"$BATS_TEST_TMPDIR/out"
	is "$STATUS" 0
	grep -qx needle "$BATS_TEST_TMPDIR/out"
	crawl find "$M" -type f -newermt 2020-01-01 >"$BATS_TEST_TMPDIR/out"
	is "$STATUS" 0
	grep -q '/segments/' "$BATS_TEST_TMPDIR/out"
	not grep -Eq '/(pop|follow)$' "$BATS_TEST_TMPDIR/out"
	crawl find "$M" -type f -size +0 -print0
	is "$STATUS" 0
	still_works
}

@test "ls -lR, du and stat of everything end with 0 and consume nothing" {
	start
	busy
	crawl ls -lRi "$M" >"$BATS_TEST_TMPDIR/out"
	is "$STATUS" 0
	grep -q ' follow$' "$BATS_TEST_TMPDIR/out"
	crawl ls -laR --color=always "$M" >/dev/null
	is "$STATUS" 0
	crawl du -a "$M" >/dev/null
	is "$STATUS" 0
	crawl du -s --apparent-size "$M" >/dev/null
	is "$STATUS" 0
	crawl find "$M" -exec stat -c %s {} + >/dev/null
	is "$STATUS" 0
	crawl getfattr -R -d --absolute-names "$M" >/dev/null
	is "$STATUS" 0
	still_works
}

@test "diff -r with a copy consumes nothing and does not wait" {
	start
	busy
	local copy=$BATS_TEST_TMPDIR/copy
	crawl cp -r "$M" "$copy" 2>/dev/null
	find "$copy" \( -name pop -o -name follow \) -delete
	crawl diff -r "$M/queues" "$copy/queues" >"$BATS_TEST_TMPDIR/out"
	[ "$STATUS" -le 2 ]
	grep -q '^Only in .*: follow$' "$BATS_TEST_TMPDIR/out"
	not grep -q '/log' "$BATS_TEST_TMPDIR/out"
	still_works
}

@test "looking at names and modes from the shell consumes nothing" {
	start
	busy
	# shellcheck disable=SC2016
	crawl bash -c '
		shopt -s globstar
		for file in "$1"/**; do
			test -r "$file" && test -s "$file"
			[[ -f $file && $file -nt $1 ]]
		done
		exit 0' - "$M"
	still_works
}

@test "crawlers at once, while messages are pushed, end" {
	start
	busy
	local jobs=() job
	spawn timeout 30 grep -rs nothing "$M" </dev/null
	jobs+=($!)
	spawn timeout 30 cp -r "$M" "$BATS_TEST_TMPDIR/copy" </dev/null 2>/dev/null
	jobs+=($!)
	spawn timeout 30 tar -C "$M" -cf "$BATS_TEST_TMPDIR/all.tar" . </dev/null 2>/dev/null
	jobs+=($!)
	spawn timeout 30 ls -lR "$M" </dev/null >/dev/null
	jobs+=($!)
	push "$M/queues/other" {1..20}
	for job in "${jobs[@]}"; do
		STATUS=0
		wait "$job" || STATUS=$?
		[ "$STATUS" -lt 124 ]
	done
	is "$(cat "$Q/groups/idle/cursor")" $'-1\ta\n-1\tdefault\n-1\tidle\n-1\tz'
	still_works
}
