#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 5 of the contract: the cursor, seek.

load lib

# ten - ten messages m0 .. m9 in ten segments of partition default, and group g.
ten() {
	queue
	push "$Q" m{0..9}
}

# created N - created_at of mN's segment.
created() { attribute "$(segment "$P" "$1")" created_at; }

# lands COMMITTED TEXT... - each of them, written to the cursor of the queue and to that of
# the partition, moves the group from somewhere else to COMMITTED, and pop goes on there.
lands() {
	local file text next=m$(($1 + 1))
	[ "$1" != 9 ] || next=
	for text in "${@:2}"; do
		for file in "$PG/cursor" "$G/cursor"; do
			echo "seek to '$text'"
			echo 6 >"$PG/cursor"
			echo "$text" >"$file"
			is "$(cat "$PG/cursor")" "$1"
			is "$(cat "$G/cursor")" "$1"$'\tdefault'
			pops "$G/pop" "$next"
		done
	done
}

# refused ERRNO FILE TEXT... - each of them is refused, moves nothing and is in errors.
refused() {
	local text before
	before=$(cat "$G/cursor")
	for text in "${@:3}"; do
		echo "seek to '$text'"
		is "$(sys write "$2" "$text"$'\n')" "$1"
		tail -n 1 "$M/errors" | grep -Eq "cursor: $1: ."
		is "$(cat "$G/cursor")" "$before"
	done
}

# ---- reading ------------------------------------------------------------------------

@test "a partition's cursor prints the last consumed offset, -1 for none" {
	start
	ten
	is "$(cat "$PG/cursor" | od -An -c | tr -s ' ')" ' - 1 \n'
	pops "$G/pop" m0 m1
	is "$(cat "$PG/cursor")" 1
}

@test "a queue's cursor is a line per partition, sorted by name" {
	start
	queue b a 10 9 Z 'two words' é
	push "$Q/partitions/9" 1 2
	pops "$G/pop" 1
	is "$(cat "$G/cursor")" $'-1\t10\n0\t9\n-1\tZ\n-1\ta\n-1\tb\n-1\ttwo words\n-1\té'
}

@test "the cursor of a queue without partitions is empty" {
	start
	queue
	is "$(cat "$G/cursor")" ""
}

@test "for a partition that the group has not met it prints where it will start" {
	start
	queue a
	push "$Q/partitions/a" 0 1 2
	is "$(cat "$Q/partitions/a/groups/g/cursor")" -1
	rm "$(segment "$Q/partitions/a" 0)"
	is "$(cat "$Q/partitions/a/groups/g/cursor")" 0
	is "$(cat "$G/cursor")" $'0\ta'
	pops "$G/pop" 1
}

@test "what a cursor prints can be written back" {
	start
	queue b a 'two words'
	push "$Q/partitions/a" a{0..3}
	push "$Q/partitions/two words" t{0..3}
	echo 2 >"$Q/partitions/a/groups/g/cursor"
	echo 1 >"$Q/partitions/two words/groups/g/cursor"
	local kept=$BATS_TEST_TMPDIR/kept part=$BATS_TEST_TMPDIR/part
	cp "$G/cursor" "$kept"
	cp "$Q/partitions/a/groups/g/cursor" "$part"
	is "$(cat "$kept")" $'2\ta\n-1\tb\n1\ttwo words'
	echo end >"$G/cursor"
	cat "$kept" >"$G/cursor"
	is "$(cat "$G/cursor")" "$(cat "$kept")"
	echo start >"$G/cursor"
	cp "$kept" "$G/cursor"
	is "$(cat "$G/cursor")" "$(cat "$kept")"
	echo start >"$G/cursor"
	cat "$part" >"$Q/partitions/a/groups/g/cursor"
	is "$(cat "$G/cursor")" $'2\ta\n-1\tb\n-1\ttwo words'
}

# ---- the table of seeks ---------------------------------------------------------------

@test "end, now: skip all that is pending; words in any case" {
	start
	ten
	lands 9 end now END Now eNd
	push "$Q" m10
	pops "$G/pop" m10 ''
}

@test "start: just below the oldest retained message" {
	start
	ten
	lands -1 start START
	rm "$(segment "$P" 0)" "$(segment "$P" 1)"
	lands 1 Start
}

@test "a time: just below the first segment with created_at >= time" {
	start
	ten
	local t
	t=$(created 5)
	lands 4 "$t" "${t/T/ }" "${t%Z}+00:00" "${t%Z} +0000" "${t%Z}+00" "${t%Z}" "${t%Z}000Z"
	lands 4 "$(date -u -d "$t" +%Y%m%dT%H%M%S.%6NZ)" "$(date -u -d "$t" '+%F %T,%N+00:00')"
	lands 4 "@$(date -d "$t" +%s.%6N)"
}

@test "a time just after a segment: the next one; past 9 digits rounds up" {
	start
	ten
	local t
	t=$(created 5)
	lands 5 "${t%Z}0001Z" "@$(date -d "$t" +%s.%6N)0001"
	t=$(date -u -d "$t" +%s%6N)
	t=$((t + 1))
	lands 5 "@${t:0:-6}.${t: -6}"
}

@test "what date and stat print is accepted" {
	start
	ten
	local file zone
	file=$(segment "$P" 5)
	for zone in UTC Asia/Kolkata America/New_York; do
		export TZ=$zone
		lands 4 "$(stat -c %y "$file")" "$(date -Ins -r "$file")" "$(date --rfc-3339=ns -r "$file")"
		lands 9 "$(date -Is -d 'next year')"
	done
}

@test "no zone means UTC whatever TZ says" {
	TZ=Asia/Tokyo start
	ten
	local t
	t=$(created 5)
	lands 4 "${t%Z}"
	lands -1 "$(date -u -d '1 hour ago' +%FT%T)"
	lands 9 "$(date -u -d '1 hour' +%FT%T)"
}

@test "older than the oldest: the oldest; in the future: end" {
	start
	ten
	lands -1 1970-01-01 2000-01-01 '2000-01-01 00:00' 2016-12-31T23:59:60Z @0 @1000000000.5 \
		20010101T0000Z
	lands 9 2999-01-01 2999-12-31T23:59Z '2999-01-01 00:00:00.5 +14:00' @32503680000
	echo 2999-01-01 >"$G/cursor"
	push "$Q" m10
	pops "$G/pop" m10
}

@test "that long before now" {
	start
	ten
	lands -1 -15m -2h -7d -90s
	echo end >"$G/cursor"
	old_enough() { perl -MTime::HiRes=stat,time -e 'exit((stat $ARGV[0])[9] + 2 > time)' "$P/log"; }
	wait_until old_enough
	push "$Q" m10
	echo -2s >"$G/cursor"
	is "$(cat "$PG/cursor")" 9
}

@test "a partition: an integer is the offset" {
	start
	ten
	local n
	for n in -1 0 5 9 3; do
		echo "$n" >"$PG/cursor"
		is "$(cat "$PG/cursor")" "$n"
	done
	pops "$G/pop" m4
	refused ERANGE "$PG/cursor" 10 -2 99999999999999999999
	rm "$(segment "$P" 0)" "$(segment "$P" 1)"
	refused ERANGE "$PG/cursor" 0 -1
	echo 1 >"$PG/cursor"
	pops "$G/pop" m2
}

@test "a queue: an integer is no seek: EINVAL" {
	start
	ten
	refused EINVAL "$G/cursor" 5 0 -1
}

@test "an empty line: end for a partition, EINVAL for a queue" {
	start
	ten
	echo >"$PG/cursor"
	is "$(cat "$PG/cursor")" 9
	echo 3 >"$PG/cursor"
	refused EINVAL "$G/cursor" ''
	errors_has 'must specify end or a time'
}

@test "anything else is EINVAL, moves nothing and is a line of errors" {
	start
	ten
	echo 3 >"$PG/cursor"
	local file
	for file in "$PG/cursor" "$G/cursor"; do
		refused EINVAL "$file" bogus yesterday 12:00 2026-13-01 2026-02-30 2026-07-29T25:00 \
			2026-07-29T14:60 2026-7-9 2026-07-29T '2026-07-29T14:00:00 Mars/Phobos' \
			2026-07-29T14:00:00+ 2026-07-29T14:00:00+25:00 2026-07-29Tnoon '2026-07-29 14:00Zx' \
			-15x -m - @ @abc @1.2.3 +5 5.5 'start now' 'end end'
	done
	refused EINVAL "$PG/cursor" $'3\tdefault'
}

@test "a seek needs no newline" {
	start
	ten
	printf end >"$PG/cursor"
	is "$(cat "$PG/cursor")" 9
	printf start >"$G/cursor"
	is "$(cat "$PG/cursor")" -1
}

# ---- tables -----------------------------------------------------------------------------

# three - partitions a, b and c of four messages each, the group at 1 in each.
three() {
	queue a b c
	local partition
	for partition in a b c; do push "$Q/partitions/$partition" "$partition"{0..3}; done
	is "$(sys write "$G/cursor" $'1\ta\n1\tb\n1\tc\n')" ok
}

# at A B C - the group stands there.
at() { is "$(cut -f 1 "$G/cursor" | tr '\n' ' ')" "$1 $2 $3 "; }

@test "a table moves the partitions it names" {
	start
	three
	at 1 1 1
	printf '3\tc\n-1\ta\n' >"$G/cursor"
	at -1 1 3
	pops "$Q/partitions/a/groups/g/pop" a0
}

@test "a table: # lines are skipped, -1<TAB>* is every partition not named" {
	start
	three
	printf '# group g\n#\t9\tnowhere\n3\tb\n-1\t*\n' >"$G/cursor"
	at -1 3 -1
	printf -- '-1\t*\n2\tc\n' >"$G/cursor"
	at -1 -1 2
	rm "$(segment "$Q/partitions/a" 0)"
	printf -- '-1\t*\n' >"$G/cursor"
	at 0 -1 -1
}

@test "a table in many writes, cut anywhere, is one seek at close" {
	start
	three
	is "$(sys write "$G/cursor" 3 $'\t' $'a\n2' $'\tb\n#' $' x\n-' $'1\tc')" ok
	at 3 2 -1
	perl -MFcntl -e '
		my ($cursor) = @ARGV;
		sysopen(my $f, $cursor, O_WRONLY) or die $!;
		for ("0\ta\n", "0\tb\n", "0\tc\n") {
			syswrite($f, $_) or die $!;
			open(my $r, "<", $cursor) or die $!;
			join("", <$r>) eq "3\ta\n2\tb\n-1\tc\n" or die "moved before the close";
		}
		close $f or die $!;
	' "$G/cursor"
	at 0 0 0
}

@test "a table with a bad line is refused whole, by the write that brings it" {
	start
	three
	local bad
	for bad in $'4\tb' $'99\ta'; do
		is "$(sys write "$G/cursor" $'3\ta\n' "$bad"$'\n')" ERANGE
		is "$(sys write "$G/cursor" $'3\ta\n'"$bad"$'\n0\tc\n')" ERANGE
		at 1 1 1
	done
	errors_has 'groups/g/cursor: ERANGE: .'
	is "$(sys write "$G/cursor" $'3\ta\n' $'0\tnowhere\n')" ENOENT
	at 1 1 1
	for bad in $'x\ta' $'\ta' end; do
		is "$(sys write "$G/cursor" $'3\ta\n' "$bad"$'\n')" EINVAL
		at 1 1 1
	done
	errors_has 'groups/g/cursor: EINVAL: .'
	perl -MFcntl -e ' # closing after the refusal, and what comes after, moves nothing
		sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		syswrite($f, "3\ta\n") or die $!;
		defined syswrite($f, "9\tb\n") and die "accepted";
		close $f;
	' "$G/cursor"
	at 1 1 1
}

@test "a table: below oldest-1 lands there" {
	start
	three
	rm "$(segment "$Q/partitions/a" 0)" "$(segment "$Q/partitions/a" 1)"
	printf -- '-1\ta\n0\tb\n' >"$G/cursor"
	at 1 0 1
}

@test "a table of many partitions" {
	start
	queue
	mkdir "$Q/partitions/"p{100..299}
	push "$Q/partitions/p150" 0 1 2
	cat "$G/cursor" >"$BATS_TEST_TMPDIR/kept"
	is "$(wc -l <"$BATS_TEST_TMPDIR/kept")" 200
	echo end >"$G/cursor"
	is "$(grep p150 "$G/cursor")" $'2\tp150'
	dd if="$BATS_TEST_TMPDIR/kept" of="$G/cursor" bs=7 status=none
	cmp "$G/cursor" "$BATS_TEST_TMPDIR/kept"
}

# ---- what a seek does -------------------------------------------------------------------

@test "each of ten segments is found by its own mtime" {
	start
	queue
	perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		for (0 .. 9) { syswrite($f, "m$_\n") or die $!; select undef, undef, undef, 0.003 }
	' "$Q/push"
	local i
	for i in 4 0 9 1 8 2 7 3 6 5; do
		stat -c %y "$(segment "$P" "$i")" >"$G/cursor"
		pops "$G/pop" "m$i"
	done
}

@test "a segment of many messages is sought to its first" {
	start
	queue
	push "$Q" before
	seq 100 | dd of="$Q/push" iflag=fullblock bs=4096 status=none
	push "$Q" after
	stat -c %y "$(segment "$P" 1)" >"$G/cursor"
	pops "$G/pop" 1 2
	echo 50 >"$PG/cursor"
	pops "$G/pop" 51
}

@test "an open that writes nothing moves nothing" {
	start
	ten
	echo 3 >"$PG/cursor"
	local file
	for file in "$PG/cursor" "$G/cursor"; do
		: >"$file"
		: >>"$file"
		touch "$file"
		truncate -s 0 "$file"
	done
	is "$(cat "$PG/cursor")" 3
	pops "$G/pop" m4
}

@test "a queue without partitions: ENOENT" {
	start
	queue
	local text
	for text in end start 2000-01-01 -15m; do
		is "$(sys write "$G/cursor" "$text"$'\n')" ENOENT
		errors_has 'queue not found or has no partitions'
	done
}

@test "a seek reaches all partitions of the queue" {
	start
	queue a b c
	push "$Q/partitions/a" a0 a1
	local mark
	mark=$(attribute "$(segment "$Q/partitions/a" 1)" created_at)
	push "$Q/partitions/b" b0 b1
	echo end >"$G/cursor"
	is "$(cat "$G/cursor")" $'1\ta\n1\tb\n-1\tc'
	pops "$G/pop" ''
	echo "$mark" >"$G/cursor"
	is "$(cat "$G/cursor")" $'0\ta\n-1\tb\n-1\tc'
	is "$(cat "$G/pop" "$G/pop" "$G/pop" "$G/pop" | sort)" $'a1\nb0\nb1'
}

@test "a partition's seek moves that partition only" {
	start
	queue a b
	push "$Q/partitions/a" a0 a1
	push "$Q/partitions/b" b0 b1
	echo end >"$Q/partitions/a/groups/g/cursor"
	is "$(cat "$G/cursor")" $'1\ta\n-1\tb'
	pops "$G/pop" b0 b1 ''
}

@test "only this group moves" {
	start
	ten
	mkdir "$Q/groups/h"
	pops "$Q/groups/h/pop" m0 m1
	pops "$Q/pop" m0
	echo end >"$G/cursor"
	echo 5 >"$PG/cursor"
	is "$(cat "$P/groups/h/cursor")" 1
	is "$(cat "$P/groups/default/cursor")" 0
	pops "$Q/groups/h/pop" m2
	pops "$Q/pop" m1
}

@test "all partitions of a queue move in one transaction" {
	start
	queue p{1..20}
	local i seen=$BATS_TEST_TMPDIR/seen
	for i in {1..20}; do push "$Q/partitions/p$i" 0 1; done
	spawn perl -e '
		my ($cursor, $stop) = @ARGV;
		until (-e $stop) {
			open(my $f, "<", $cursor) or die $!;
			my %at = map { /^(-?\d+)\t/ ? ($1 => 1) : die "line: $_" } <$f>;
			print join(" ", sort keys %at), "\n";
		}
	' "$G/cursor" "$seen.stop" >"$seen"
	i=$!
	for _ in {1..40}; do
		echo end >"$G/cursor"
		echo start >"$G/cursor"
	done
	touch "$seen.stop"
	wait "$i"
	is "$(grep -cvEx -e '-1|1' "$seen")" 0
	[ -s "$seen" ]
}

@test "it works while a member reads: the line is finished, the next is the sought one" {
	start
	ten
	local fd rest
	exec {fd}<"$G/pop"
	read -r -N 1 -u "$fd" rest
	echo 5 >"$PG/cursor"
	read -r -u "$fd" rest
	is "$rest" 0
	is "$(cat "$PG/cursor")" 5
	not read -r -u "$fd" rest
	read -r -u "$fd" rest
	is "$rest" m6
	is "$(cat "$PG/cursor")" 6
}

@test "a seek drops the lease: another reader begins at once where it sought" {
	start
	ten
	local fd rest
	exec {fd}<"$G/pop"
	read -r -N 1 -u "$fd" rest
	pops "$G/pop" ''
	echo 7 >"$PG/cursor"
	pops "$G/pop" m8
	read -r -u "$fd" rest
	is "$rest" 0
	pops "$G/pop" m9
	is "$(cat "$PG/cursor")" 9
}

@test "a lost line that is never finished does not come back after a seek" {
	start
	ten
	local fd rest
	exec {fd}<"$G/pop"
	read -r -N 1 -u "$fd" rest
	echo end >"$G/cursor"
	exec {fd}<&-
	push "$Q" m10
	pops_soon "$G/pop" m10
	is "$(cat "$PG/cursor")" 10
}

@test "a seek back redelivers, in order" {
	start
	ten
	pops "$G/pop" m0 m1 m2
	echo start >"$G/cursor"
	pops "$G/pop" m{0..9} ''
}

@test "seeks are durable across kill -9" {
	start
	queue a b
	push "$Q/partitions/a" a{0..4}
	push "$Q/partitions/b" b{0..4}
	mkdir "$Q/groups/h" "$Q/groups/i"
	echo 2 >"$Q/partitions/a/groups/g/cursor"
	echo end >"$Q/groups/h/cursor"
	printf '3\ta\n1\tb\n' >"$Q/groups/i/cursor"
	crash
	start
	is "$(cat "$G/cursor")" $'2\ta\n-1\tb'
	is "$(cat "$Q/groups/h/cursor")" $'4\ta\n4\tb'
	is "$(cat "$Q/groups/i/cursor")" $'3\ta\n1\tb'
	pops "$Q/partitions/a/groups/g/pop" a3
}

@test "after rm of segments the cursor is never below oldest-1, and pop resumes there" {
	start
	ten
	pops "$G/pop" m0
	rm "$(segment "$P" 0)" "$(segment "$P" 1)" "$(segment "$P" 2)"
	is "$(cat "$PG/cursor")" 2
	is "$(cat "$G/cursor")" $'2\tdefault'
	pops "$G/pop" m3
	is "$(cat "$PG/cursor")" 3
	rm "$(segment "$P" 3)" "$(segment "$P" 4)"
	remount
	is "$(cat "$PG/cursor")" 4
	lands 4 start 2000-01-01
}

@test "seeks in a partition whose messages were all removed" {
	start
	queue
	push "$Q" m0 m1
	local t
	t=$(created 1)
	rm "$P/segments/"*
	is "$(cat "$PG/cursor")" 1
	for t in "$t" start end 2000-01-01; do
		echo "$t" >"$G/cursor"
		is "$(cat "$PG/cursor")" 1
	done
	push "$Q" m2
	pops "$G/pop" m2 ''
}

@test "a cursor that was copied compares equal, by its size too" {
	start
	queue p q
	push "$Q/partitions/p" 1
	cp "$G/cursor" "$BATS_TEST_TMPDIR/kept"
	cmp -s "$BATS_TEST_TMPDIR/kept" "$G/cursor"
	is "$(stat -c %s "$G/cursor")" "$(wc -c <"$G/cursor")"
}

@test "a table has no more lines than the queue has partitions" {
	start
	ten
	run -0 python3 - "$G/cursor" <<-'EOF'
		import errno, os, sys
		table = os.open(sys.argv[1], os.O_WRONLY)
		try:
		    for _ in range(1000):
		        os.write(table, b"3\tdefault\n")
		except OSError as error:
		    assert error.errno == errno.EINVAL, error
		else:
		    sys.exit("a thousand lines for one partition")
	EOF
	grep -q 'more lines than the queue has partitions' "$M/errors"
	is "$(cat "$G/cursor")" "$(printf -- '-1\tdefault')"
}
