#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 9 of the contract: dead letters.

load lib

# dead COUNT [WHY] - group g gives up that many messages, one after the other.
dead() {
	local i
	for ((i = 0; i < $1; i++)); do
		is "$(handle rw "$G/follow" read "dlq${2:+ $2}" | sed 's/.*] //')" ok
	done
}

# ---- what it is ------------------------------------------------------------------------

@test "a dead letter is dlq/<partition>@<offset>, a copy of the payload" {
	start
	queue a
	push "$Q/partitions/a" zero one two
	pops "$G/pop" zero
	dead 1
	is "$(letters)" a@1
	is "$(cat "$D/a@1")" one
	is "$(stat -c %s "$D/a@1")" "$(wc -c <"$D/a@1")"
	is "$(stat -c '%F %h' "$D/a@1")" 'regular file 1'
	is "$(cat "$Q/partitions/a/log")" $'zero\none\ntwo' # the original stays
	pops_soon "$G/pop" two
}

@test "any partition's name is in the letter's" {
	start
	local name
	queue 'a@b' 'ü 1' '@3'
	for name in 'a@b' 'ü 1' '@3'; do push "$Q/partitions/$name" "of $name"; done
	dead 3
	for name in 'a@b' 'ü 1' '@3'; do is "$(cat "$D/$name@0")" "of $name"; done
	for name in 'a@b@1' 'a@b' 'a@0' 'a@b@00' 'a@b@-0' 'a@b@+0' 'a@b@0x' 'a@b@' '@0' @; do
		is "$name: $(sys open "$D/$name" O_RDONLY)" "$name: ENOENT"
	done
}

@test "a letter of any size is byte-exact, and read from anywhere" {
	start
	queue
	perl -e 'print map { chr(1 + $_ % 255) =~ s/\n/./r } 1 .. 300_000' \
		>"$BATS_TEST_TMPDIR/line"
	echo >>"$BATS_TEST_TMPDIR/line"
	cat "$BATS_TEST_TMPDIR/line" >"$Q/push"
	push "$Q" ''
	dead 2
	cmp -n 300000 "$D/default@0" "$BATS_TEST_TMPDIR/line"
	cp "$D/default@0" "$BATS_TEST_TMPDIR/copy"
	cmp -n 300000 "$BATS_TEST_TMPDIR/copy" "$BATS_TEST_TMPDIR/line"
	tail -c +200001 "$BATS_TEST_TMPDIR/line" | head -c 1000 >"$BATS_TEST_TMPDIR/part"
	dd if="$D/default@0" iflag=skip_bytes,count_bytes skip=200000 count=1000 status=none |
		cmp - "$BATS_TEST_TMPDIR/part"
	is "$(cat "$D/default@1")" ''
}

@test "its mtime is when it failed" {
	start
	queue
	push "$Q" 1
	local before after mtime
	before=$(date +%s.%6N)
	dead 1
	after=$(date +%s.%6N)
	mtime=$(stat -c %.6Y "$D/default@0")
	[[ ! $mtime < $before && ! $mtime > $after ]]
	remount
	is "$(stat -c %.6Y "$D/default@0")" "$mtime"
}

@test "its attributes: error, attempts, created_at, transaction_id" {
	start
	queue
	setting "$G" retry_limit 1
	push "$Q" 0 1
	pops "$G/pop" 0
	is "$(handle rw "$G/follow" read 'fail first' read 'fail bad address: 17, "x"')" \
		'[1\n] ok [1\n] ok'
	is "$(attribute "$D/default@1" error)" 'bad address: 17, "x"'
	is "$(attribute "$D/default@1" attempts)" 2
	is "$(attribute "$D/default@1" created_at)" "$(attribute "$(segment "$P" 1)" created_at)"
	attribute "$D/default@1" transaction_id | grep -Eqx '[0-9]+-1'
	is "$(getfattr --absolute-names -m . "$D/default@1" | grep -c '^user\.queenfs\.')" 4
	remount
	is "$(attribute "$D/default@1" error)" 'bad address: 17, "x"'
	is "$(attribute "$D/default@1" attempts)" 2
}

@test "messages of one partition, and of two of one name, have transaction_ids of their own" {
	start
	queue
	push "$Q" 0 1
	dead 2
	local ids
	ids=$(attribute "$D/default@0" transaction_id && echo &&
		attribute "$D/default@1" transaction_id && echo)
	rm "$D"/*
	rm "$P"/segments/*
	rmdir "$P"
	push "$Q" 0
	dead 1
	ids+=$'\n'$(attribute "$D/default@0" transaction_id)
	is "$(sort -u <<<"$ids" | wc -l)" 3
}

@test "dlq without a reason, and a message delivered too often, have letters too" {
	start
	queue
	push "$Q" 1 2
	dead 1
	attribute "$D/default@0" error >/dev/null
	setting "$G" max_deliveries 1
	is "$(handle rw "$G/follow" read)" '[2\n]'
	wait_until has "$PG/stats" '^lease_pid 0$'
	pops "$G/pop" ''
	is "$(letters)" 'default@0 default@1'
	attribute "$D/default@1" error | grep -q deliver
	is "$(attribute "$D/default@1" attempts)" 1
}

@test "letters are listed in the order in which they failed" {
	start
	queue b a
	push "$Q/partitions/b" b0 b1
	push "$Q/partitions/a" a0
	is "$(handle rw "$Q/partitions/b/groups/g/pop" read dlq)" '[b0\n] ok'
	is "$(handle rw "$Q/partitions/a/groups/g/pop" read dlq)" '[a0\n] ok'
	is "$(handle rw "$Q/partitions/b/groups/g/pop" read dlq)" '[b1\n] ok'
	is "$(letters)" 'b@0 a@0 b@1'
	remount
	is "$(letters)" 'b@0 a@0 b@1'
}

@test "a thousand letters are listed, each once, also while they are removed" {
	start
	queue
	setting "$G" batch 1000
	setting "$G" lease_seconds 0
	seq 1000 >"$Q/push"
	is "$(perl -MFcntl -e '
		sysopen(my $f, $ARGV[0], O_RDWR) or die $!;
		while (sysread($f, my $b, 65536)) {
			for (1 .. ($b =~ tr/\n//)) { syswrite($f, "dlq\n") or die $! }
			last if $b =~ /^1000$/m;
		}' "$G/follow")" ''
	is "$(ls "$G/dlq" | sort -u | wc -l)" 1000
	rm -r "$G/dlq" # its letters; the directory stays
	is "$(letters)" ''
	test -d "$G/dlq"
}

@test "a letter can only be read; nothing is made in dlq/" {
	start
	queue
	push "$Q" 1
	dead 1
	is "$(stat -c %a "$D/default@0")" 444
	is "$(sys open "$D/default@0" O_WRONLY)" EACCES
	is "$(sys open "$D/default@0" O_RDWR)" EACCES
	is "$(sys create "$D/default@7")" EPERM
	is "$(sys mkdir "$D/default@7")" EPERM
	is "$(sys symlink "$D/default@7")" EPERM
	is "$(sys link "$D/default@0" "$D/default@7")" EPERM
	rmdir "$D" # a fixed directory: nothing happens
	is "$(letters)" default@0
}

# ---- who has it ------------------------------------------------------------------------

@test "each group has its own letters" {
	start
	queue
	mkdir "$Q/groups/h"
	push "$Q" 1
	dead 1
	is "$(letters "$Q/groups/h")" ''
	pops "$Q/groups/h/pop" 1
	push "$Q" 2
	is "$(handle rw "$Q/groups/h/follow" read dlq)" '[2\n] ok'
	is "$(letters) $(letters "$Q/groups/h")" 'default@0 default@1'
	rm "$D/default@0"
	is "$(letters "$Q/groups/h")" default@1
}

@test "letters survive a restart and kill -9" {
	start
	queue
	push "$Q" 1 2
	dead 1 why
	crash
	start
	is "$(letters)" default@0
	is "$(cat "$D/default@0") $(attribute "$D/default@0" error)" '1 why'
	remount
	is "$(letters)" default@0
	is "$(cat "$D/default@0") $(attribute "$D/default@0" error)" '1 why'
	pops "$G/pop" 2 ''
}

@test "a letter survives the rm of its segment and of its partition" {
	start
	queue a
	push "$Q/partitions/a" 1
	dead 1
	rm "$(segment "$Q/partitions/a" 0)"
	is "$(cat "$D/a@0")" 1
	rmdir "$Q/partitions/a"
	is "$(cat "$D/a@0")" 1
	remount
	is "$(letters) $(cat "$D/a@0")" 'a@0 1'
}

@test "a group and a queue with dead letters cannot be removed: ENOTEMPTY" {
	start
	queue
	push "$Q" 1
	dead 1
	is "$(sys rmdir "$G")" ENOTEMPTY
	errors_has 'groups/g: ENOTEMPTY: .*dead letter'
	rm "$P"/segments/*
	rmdir "$P"
	is "$(sys rmdir "$Q")" ENOTEMPTY
	errors_has 'queues/q: ENOTEMPTY: .*dead letter'
	rm "$D/default@0"
	rmdir "$G"
	rmdir "$Q"
}

@test "rm -r removes a queue with its dead letters" {
	start
	queue
	push "$Q" 1 2
	dead 2
	rm -r "$Q"
	is "$(ls "$M/queues")" ''
	queue
	is "$(letters)" ''
}

@test "rm removes a letter, and moves no cursor" {
	start
	queue
	push "$Q" 1 2
	dead 1
	rm "$D/default@0"
	is "$(letters)" ''
	is "$(sys unlink "$D/default@0")" ENOENT
	is "$(cat "$PG/cursor")" 0
	remount
	is "$(letters)" ''
	pops "$G/pop" 2
}

@test "a seek neither moves nor delivers letters, it redelivers their originals" {
	start
	queue
	push "$Q" 1 2
	dead 1
	echo start >"$PG/cursor"
	is "$(letters)" default@0
	pops "$G/pop" 1 2 ''
	is "$(letters)" default@0
}

@test "a message that fails again after a seek has one letter" {
	start
	queue
	push "$Q" 1 2 3
	dead 2 first
	echo start >"$PG/cursor"
	is "$(handle rw "$G/follow" read retry read 'dlq second')" '[1\n] ok [1\n] ok'
	is "$(count "$D")" 2
	is "$(cat "$D/default@0")" 1
	is "$(attribute "$D/default@0" error)" second
	is "$(attribute "$D/default@1" error)" first
	remount
	is "$(count "$D")" 2
	rm "$D/default@0"
	is "$(letters)" default@1
}

# ---- pushed again ----------------------------------------------------------------------

@test "mv onto the queue's push: pushed again to its own partition, and removed" {
	start
	queue a b
	push "$Q/partitions/a" a0 a1
	push "$Q/partitions/b" b0
	is "$(handle rw "$Q/partitions/a/groups/g/pop" read dlq)" '[a0\n] ok'
	mv "$G/dlq/a@0" "$Q/push"
	is "$(letters)" ''
	is "$(cat "$Q/partitions/a/log")" $'a0\na1\na0'
	is "$(cat "$Q/partitions/b/log")" b0
	pops "$Q/partitions/a/groups/g/pop" a1 a0 ''
	is "$(ls "$Q/partitions")" $'a\nb'
}

@test "mv onto a partition's push: pushed to that one" {
	start
	queue a b
	push "$Q/partitions/a" a0
	dead 1
	mv "$D/a@0" "$Q/partitions/b/push"
	is "$(letters)" ''
	is "$(cat "$Q/partitions/b/log")" a0
	is "$(cat "$Q/partitions/a/log")" a0
	pops "$G/pop" a0 ''
}

@test "mv onto push: spread does not count, it has a partition" {
	start
	queue a
	push "$Q/partitions/a" a0
	dead 1
	setting "$Q" spread 2
	mv "$D/a@0" "$Q/push"
	is "$(ls "$Q/partitions")" a
	is "$(cat "$Q/partitions/a/log")" $'a0\na0'
}

@test "mv onto the queue's push makes the letter's partition again if it is gone" {
	start
	queue a
	push "$Q/partitions/a" a0
	dead 1
	rm "$Q"/partitions/a/segments/*
	rmdir "$Q/partitions/a"
	mv "$D/a@0" "$Q/push"
	is "$(letters)" ''
	is "$(cat "$Q/partitions/a/log")" a0
	pops "$G/pop" a0
}

@test "mv onto push wakes a waiting reader, and survives kill -9 at once" {
	start
	queue
	push "$Q" 1 2
	dead 2
	mv "$D/default@0" "$Q/push"
	crash
	start
	is "$(letters)" default@1
	is "$(cat "$P/log")" $'1\n2\n1'
	pops "$G/pop" 1
	reader "$BATS_TEST_TMPDIR/out" "$G/follow"
	wait_until waiting 1
	mv "$D/default@1" "$P/push"
	wait_until shows "$BATS_TEST_TMPDIR/out" 2
}

@test "mv keeps the payload byte-exact" {
	start
	queue
	printf 'caf\xe9\0 \t \r\n' >"$Q/push"
	push "$Q" ''
	is "$(sys fill "$Q/push" 1000000 $'\n')" ok
	dead 3
	mv "$D/default@0" "$Q/push"
	mv "$D/default@1" "$Q/push"
	mv "$D/default@2" "$Q/push"
	local first again i
	is "$(last "$P")" 5
	for i in 0 1 2; do
		first=$(segment "$P" "$i") again=$(segment "$P" $((i + 3)))
		cmp "$first" "$again"
	done
}

@test "what was pushed again can fail again" {
	start
	queue
	push "$Q" 1
	dead 1 first
	mv "$D/default@0" "$Q/push"
	dead 1 second
	is "$(letters)" default@1
	is "$(attribute "$D/default@1" error)" second
	is "$(attribute "$D/default@1" attempts)" 1
}

@test "mv onto a push of another queue: EXDEV, and nothing is moved" {
	start
	queue
	mkdir "$M/queues/other" "$M/queues/other/partitions/p"
	push "$Q" 1
	dead 1
	is "$(sys rename "$D/default@0" "$M/queues/other/push")" EXDEV
	is "$(sys rename "$D/default@0" "$M/queues/other/partitions/p/push")" EXDEV
	errors_has 'default@0: EXDEV: .'
	not mv "$D/default@0" "$M/queues/other/push" </dev/null
	is "$(letters)" default@0
	is "$(ls "$M/queues/other/partitions")" p
	is "$(cat "$M/queues/other/partitions/p/log")" ''
}

@test "mv to another name, place or file: EPERM" {
	start
	queue
	mkdir "$Q/groups/h"
	push "$Q" 1
	dead 1
	local to
	for to in "$D/default@1" "$D/other" "$Q/groups/h/dlq/default@0" "$Q/groups/h/x" "$Q/x" \
		"$P/log" "$Q/stats" "$G/cursor" "$G/pop" "$Q/config/batch" "$M/README" \
		"$(segment "$P" 0)"; do
		is "$to: $(sys rename "$D/default@0" "$to")" "$to: EPERM"
	done
	errors_has 'default@0: EPERM: .*push'
	is "$(letters)" default@0
	is "$(sys rename "$P/log" "$Q/push")" EPERM
	is "$(sys rename "$(segment "$P" 0)" "$Q/push")" EPERM
	is "$(cat "$P/log")" 1
}

@test "mv out of the mount copies the letter and removes it" {
	start
	queue
	push "$Q" 1
	dead 1
	mv "$D/default@0" "$BATS_TEST_TMPDIR/letter"
	is "$(cat "$BATS_TEST_TMPDIR/letter")" 1
	is "$(letters)" ''
}

@test "cp of a letter onto a push pushes it and keeps the letter" {
	start
	queue
	push "$Q" 1
	dead 1
	cp "$D/default@0" "$P/push"
	is "$(cat "$P/log")" $'1\n1'
	is "$(letters)" default@0
}

@test "a file browser's look at dlq/ costs nothing: reading a letter consumes nothing" {
	start
	queue
	push "$Q" 1 2
	dead 1
	cat "$D"/* >/dev/null
	grep -rq 1 "$D"
	find "$D" -type f -newermt '2020-01-01' | grep -q default@0
	is "$(letters) $(cat "$PG/cursor")" 'default@0 0'
}
