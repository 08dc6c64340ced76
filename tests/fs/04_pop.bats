#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 4 of the contract: pop.

load lib

# reads FILE SIZE COUNT - what COUNT reads of one handle return, each in brackets.
reads() {
	perl -MFcntl -e '
		my ($path, $size, $count) = @ARGV;
		sysopen(my $f, $path, O_RDONLY) or die $!;
		for (1 .. $count) {
			defined sysread($f, my $bytes, $size) or die $!;
			$bytes =~ s/\n/\\n/g;
			print "[$bytes]";
		}
	' "$@"
}

# readers COUNT TOTAL - pops of group g with COUNT processes, each of one handle, until
# there are TOTAL lines; what each got is in $OUT.1, $OUT.2, ...
readers() {
	local i pids=()
	OUT=$BATS_TEST_TMPDIR/out
	for ((i = 1; i <= $1; i++)); do
		spawn perl -MFcntl -e '
			sysopen(my $f, $ARGV[0], O_RDONLY) or die $!;
			until (-e $ARGV[1]) {
				defined(my $n = sysread($f, my $bytes, 65536)) or die $!;
				$n ? syswrite(STDOUT, $bytes) : select(undef, undef, undef, 0.001);
			}
		' "$G/pop" "$OUT.stop" >"$OUT.$i"
		pids+=($!)
	done
	all_there() { [ "$(cat "$OUT".? | wc -l)" -ge "$1" ]; }
	wait_until all_there "$2"
	touch "$OUT.stop"
	wait "${pids[@]}"
}

@test "pop takes one message, then EOF" {
	start
	queue
	printf '1\n2\n3\n' >"$Q/push"
	pops "$G/pop" 1 2
	is "$(cat "$G/pop" | od -An -c | tr -s ' ')" ' 3 \n'
	pops "$G/pop" '' ''
}

@test "when nothing waits: EOF at once" {
	start
	queue p
	is "$(timeout 60 cat "$G/pop" "$Q/partitions/p/groups/g/pop" "$Q/pop")" ""
}

@test "the next read after an EOF starts a new pop" {
	start
	queue
	push "$Q" 1 2
	is "$(reads "$G/pop" 4096 6)" '[1\n][][2\n][][][]'
	push "$Q" 3 4
	is "$(reads "$G/pop" 4096 2)" '[3\n][]'
	pops "$G/pop" 4
}

@test "opening a pop consumes nothing" {
	start
	queue
	push "$Q" 1
	: <"$G/pop"
	is "$(reads "$PG/pop" 4096 0)" ''
	is "$(cat "$PG/cursor")" -1
	pops_soon "$G/pop" 1
}

@test "a queue's pop takes partitions with messages in turn" {
	start
	queue a b c
	push "$Q/partitions/a" a1 a2 a3
	push "$Q/partitions/b" b1 b2 b3
	local got=$BATS_TEST_TMPDIR/got
	reads "$G/pop" 4096 12 | tr -d '[' | tr ']' '\n' | sed -n 's/\\n//p' >"$got"
	is "$(grep a "$got")" $'a1\na2\na3'
	is "$(grep b "$got")" $'b1\nb2\nb3'
	is "$(cut -c 1 "$got" | uniq | wc -l)" 6 # never one twice in a row
	pops "$G/pop" ''
}

@test "a partition's pop takes that partition only" {
	start
	queue a b
	push "$Q/partitions/a" a1
	push "$Q/partitions/b" b1 b2
	pops "$Q/partitions/b/groups/g/pop" b1
	push "$Q/partitions/a" a2
	pops "$Q/partitions/b/groups/g/pop" b2 ''
	pops "$G/pop" a1 a2 ''
}

@test "two groups never affect each other" {
	start
	queue
	mkdir "$Q/groups/h"
	push "$Q" 1 2 3
	pops "$G/pop" 1 2
	pops "$Q/groups/h/pop" 1
	pops "$Q/pop" 1 2 3 ''
	pops "$G/pop" 3 ''
	pops "$Q/groups/h/pop" 2 3 ''
}

@test "a message that its handle did not finish goes back when it closes, in order" {
	start
	queue
	push "$Q" hello world
	is "$(head -c 3 "$G/pop")" hel
	pops_soon "$G/pop" hello
	is "$(head -c 3 "$PG/pop")" wor
	pops_soon "$PG/pop" world
	pops "$G/pop" ''
}

@test "a message goes back when its reader is killed" {
	start
	queue
	push "$Q" hello
	local out=$BATS_TEST_TMPDIR/out reader
	spawn perl -e 'open(my $f, "<", $ARGV[0]); sysread($f, my $b, 3); syswrite(STDOUT, $b);
		sleep 600' "$G/pop" >"$out"
	reader=$!
	wait_until shows "$out" hel
	kill -9 "$reader"
	pops_soon "$G/pop" hello
}

@test "one (partition, group) has one leased span: another handle gets nothing of it" {
	start
	queue a b
	mkdir "$Q/groups/h"
	push "$Q/partitions/a" one two
	local fd rest
	exec {fd}<"$G/pop"
	read -r -N 2 -u "$fd" rest
	is "$rest" on
	pops "$G/pop" '' ''
	pops "$Q/partitions/a/groups/g/pop" ''
	pops "$Q/groups/h/pop" one
	push "$Q/partitions/b" other
	pops "$G/pop" other ''
	read -r -u "$fd" rest
	is "$rest" e
	exec {fd}<&-
	pops_soon "$G/pop" two
}

@test "bash, which reads byte by byte, gets whole lines" {
	start
	queue
	push "$Q" one '' 'th ree' four
	local line fd
	for line in one '' 'th ree'; do
		read -r REPLY <"$G/pop"
		is "$REPLY" "$line"
	done
	exec {fd}<"$G/pop"
	read -r -u "$fd" line
	is "$line" four
	not read -r -u "$fd" line
	push "$Q" five
	read -r -u "$fd" line
	is "$line" five
}

@test "a message longer than a read comes in pieces" {
	start
	queue
	push "$Q" abcdefghijklmnopqrstuvwxyz next
	is "$(reads "$G/pop" 10 4)" '[abcdefghij][klmnopqrst][uvwxyz\n][]'
	is "$(reads "$G/pop" 1 6)" '[n][e][x][t][\n][]'
}

@test "a message of exactly the size of a read does not pull the next one along" {
	start
	queue
	local size line
	for size in 4095 4096 8192 131072; do
		printf -v line "%0$((size - 1))d" 0
		printf '%s\n' "$line" "$line" >"$Q/push"
		is "$(cat "$G/pop")" "$line"
		is "$(reads "$G/pop" "$size" 3 | tr -d '[]')" "$line\\n"
		pops "$Q/pop" "$line" "$line"
	done
	pops "$G/pop" ''
	pops "$Q/pop" ''
}

@test "cat gets a message of 1 MiB whole" {
	start
	queue
	perl -e 'print map { sprintf "%06d ", $_ } 1 .. 149_796' >"$BATS_TEST_TMPDIR/line"
	echo 1234 >>"$BATS_TEST_TMPDIR/line"
	is "$(stat -c %s "$BATS_TEST_TMPDIR/line")" 1048577
	cat "$BATS_TEST_TMPDIR/line" >"$Q/push"
	push "$Q" next
	cat "$G/pop" | cmp - "$BATS_TEST_TMPDIR/line"
	pops "$G/pop" next
}

@test "a reply that would fill a read of the kernel does not swallow the EOF after it" {
	start
	queue
	is "$(sys fill "$Q/push" 1048575 $'\n')" ok
	push "$Q" next
	# dd's buffer is aligned: the kernel asks for 1 MiB, and asks on if it gets that
	is "$(dd if="$G/pop" bs=2M status=none | wc -c)" 1048576
	pops "$G/pop" next
}

@test "write-only opens of pop: EACCES, naming the read-write way" {
	start
	queue
	push "$Q" one
	local file
	for file in "$G/pop" "$PG/pop" "$Q/pop"; do
		is "$(sys open "$file" O_WRONLY)" EACCES
	done
	errors_has 'groups/g/pop: EACCES: .*read'
	pops "$G/pop" one
}

@test "pop is not seekable and has no size" {
	start
	queue
	push "$Q" one
	is "$(sys lseek "$G/pop")" ESPIPE
	is "$(stat -c %s "$G/pop")" 0
	pops_soon "$G/pop" one
}

@test "what was consumed stays so after a restart" {
	start
	queue a
	push "$Q/partitions/a" 1 2 3
	push "$Q" x y
	pops "$PG/pop" x
	pops "$Q/partitions/a/groups/g/pop" 1 2
	is "$(head -c 1 "$Q/partitions/a/groups/g/pop")" 3
	remount
	is "$(cat "$G/cursor")" $'1\ta\n0\tdefault'
	pops "$Q/partitions/a/groups/g/pop" 3 ''
	pops "$PG/pop" y ''
}

@test "kill -9 may redeliver the last pop, never lose one" {
	start
	queue
	push "$Q" 1 2 3 4
	echo 0 >"$PG/cursor" # a seek is durable when it returns
	pops "$PG/pop" 2
	crash
	start
	local next
	next=$(cat "$PG/pop")
	[ "$next" = 2 ] || [ "$next" = 3 ]
	pops "$PG/pop" $((next + 1))
}

@test "eight readers at once get each of 1000 messages exactly once" {
	start
	queue a b c d
	local partition
	for partition in a b c d; do
		seq -f "$partition%.0f" 250 >"$Q/partitions/$partition/push"
	done
	readers 8 1000
	is "$(sort "$OUT".?)" "$(printf '%s\n' {a..d}{1..250} | sort)"
	pops "$G/pop" ''
}

@test "many readers of one partition share it in order" {
	start
	queue
	seq 300 >"$Q/push"
	readers 3 300
	local i
	for i in 1 2 3; do sort -nc "$OUT.$i"; done
	is "$(sort -n "$OUT".?)" "$(seq 300)"
}

@test "opens with O_NOFOLLOW are refused: EPERM" {
	start
	queue
	push "$Q" one
	local file
	for file in "$G/pop" "$PG/pop" "$Q/pop"; do
		is "$(sys open "$file" 'O_RDONLY|O_NOFOLLOW')" EPERM
	done
	errors_has 'groups/g/pop: EPERM: .'
	is "$(ls "$Q/groups")" g # a refused open makes no group
	pops "$G/pop" one
}

@test "grep -r, cp -r and find -type f consume nothing" {
	start
	queue
	push "$Q" one two
	grep -rq two "$M" 2>/dev/null
	not grep -r nowhere "$M" 2>/dev/null
	cp -r "$M" "$BATS_TEST_TMPDIR/copy" 2>/dev/null || true
	is "$(cat "$BATS_TEST_TMPDIR/copy/queues/q/partitions/default/log")" $'one\ntwo'
	find "$M/queues" -type f -name '[lp]o[gp]' -exec cat {} + >/dev/null
	is "$(ls "$Q/groups")" g
	is "$(cat "$G/cursor")" $'-1\tdefault'
	pops "$G/pop" one two
}

@test "readdir gives pop the type FIFO" {
	start
	queue p
	is "$(find "$Q" -type p -name pop | wc -l)" 3
	is "$(find "$Q" -type f -name pop | wc -l)" 0
	is "$(find "$Q" -type f -name push | wc -l)" 2
}
