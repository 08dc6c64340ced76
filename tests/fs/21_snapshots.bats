#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 7 of the contract: snapshots.

load lib
load clock

# MAKE - `perl -e "$MAKE" PATH TEXT` writes to a file that it makes, as the shell's > does:
# ok or the name of the errno.
# shellcheck disable=SC2016
MAKE='use Fcntl; use Errno;
	my ($path, $text) = @ARGV;
	my $f;
	my $done = sysopen($f, $path, O_WRONLY | O_CREAT | O_TRUNC, 0666) &&
		defined syswrite($f, $text) && close $f;
	my ($name) = grep { $!{$_} } sort keys %!;
	print $done ? "ok" : $name, "\n";'

# keep SNAPSHOT [GROUP] - makes it: ok or the name of the errno.
keep() { perl -e "$MAKE" "$Q/snapshots/$1" "${2:-g}"$'\n'; }

snapshots() { ls "$Q/snapshots" | paste -sd ' '; }

# kept SNAPSHOT - its lines that are no comments, apart by blanks, TABs as =.
kept() { grep -v '^#' "$Q/snapshots/$1" | tr '\t' = | paste -sd ' '; }

# stands [GROUP] - its cursor in the same way.
stands() { tr '\t' = <"$Q/groups/${1:-g}/cursor" | paste -sd ' '; }

# expires SNAPSHOT, created SNAPSHOT - what its text says.
expires() { sed -n 's/^# expires //p' "$Q/snapshots/$1"; }
created() { sed -n 's/^# created //p' "$Q/snapshots/$1"; }

# apart FROM TO SECONDS - these two times are so far apart, to the second.
apart() {
	perl -e 'exit(abs($ARGV[1] - $ARGV[0] - $ARGV[2]) > 1)' \
		"$(seconds "$1")" "$(seconds "$2")" "$3" ||
		{ echo "from $1 to $2 is not $3 s" && return 1; }
}

nobody() { (cd "$M" && setpriv --reuid 65534 --regid 65534 --clear-groups "$@"); }

# shop - partitions a and b of four messages each, group g at 1 in a and at 0 in b.
shop() {
	queue a b
	push "$Q/partitions/a" a{0..3}
	push "$Q/partitions/b" b{0..3}
	pops "$Q/partitions/a/groups/g/pop" a0 a1
	pops "$Q/partitions/b/groups/g/pop" b0
}

# rest [GROUP] - what it is given until nothing waits, sorted.
rest() {
	local text
	while text=$(cat "$Q/groups/${1:-g}/pop") && [ -n "$text" ]; do echo "$text"; done |
		sort | paste -sd ' '
}

# ---- what it is ------------------------------------------------------------------------

@test "echo billing > snapshots/before-deploy keeps the group's position" {
	start
	shop
	mkdir "$Q/groups/billing"
	cp "$G/cursor" "$Q/groups/billing/cursor"
	echo billing >"$Q/snapshots/before-deploy"
	is "$(snapshots)" before-deploy
	is "$(kept before-deploy)" '1=a 0=b -1=*'
	is "$(stands billing)" '1=a 0=b' # which goes on as if nothing had happened
	is "$(rest billing)" 'a2 a3 b1 b2 b3'
	is "$(kept before-deploy)" '1=a 0=b -1=*'
}

@test "its text: # lines for group, created, expires, then cursor lines, then -1<TAB>*" {
	local time='[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z' before
	start
	queue b a 10 9 Z 'two words' é
	push "$Q/partitions/9" 1 2
	pops "$G/pop" 1
	mkdir "$Q/groups/bill ing"
	cp "$G/cursor" "$Q/groups/bill ing/cursor"
	before=$(date +%s)
	is "$(keep s 'bill ing')" ok
	sed -n 1p "$Q/snapshots/s" | grep -Fqx '# group bill ing'
	sed -n 2p "$Q/snapshots/s" | grep -Eqx "# created $time"
	sed -n 3p "$Q/snapshots/s" | grep -Eqx "# expires $time"
	is "$(grep -c '^#' "$Q/snapshots/s")" 3
	is "$(tail -n +4 "$Q/snapshots/s")" \
		$'-1\t10\n0\t9\n-1\tZ\n-1\ta\n-1\tb\n-1\ttwo words\n-1\té\n-1\t*'
	[[ ! $(seconds "$(created s)") < $before && ! $(seconds "$(created s)") > $(date +%s.%6N) ]]
}

@test "it is a file, true in size" {
	start
	queue
	mkdir "$Q/partitions/"p{100..299}
	push "$Q/partitions/p150" 0 1 2
	echo 1 >"$Q/partitions/p150/groups/g/cursor"
	is "$(keep s)" ok
	is "$(stat -c '%F %s' "$Q/snapshots/s")" "regular file $(wc -c <"$Q/snapshots/s")"
	is "$(wc -l <"$Q/snapshots/s")" 204
	grep -Fqx $'1\tp150' "$Q/snapshots/s"
	cp "$Q/snapshots/s" "$BATS_TEST_TMPDIR/copy"
	cmp "$Q/snapshots/s" "$BATS_TEST_TMPDIR/copy"
	is "$(tail -c 5 "$Q/snapshots/s")" $'-1\t*'
	is "$(find "$Q/snapshots" -type f)" "$Q/snapshots/s"
}

@test "a partition that the group has not met is in it where the group would start" {
	start
	shop
	rm "$(segment "$Q/partitions/b" 0)"
	setting "$Q" subscription new
	mkdir "$Q/groups/h" "$Q/groups/i"
	setting "$Q/groups/i" subscription all
	push "$Q/partitions/a" a4
	is "$(keep n h)" ok
	is "$(keep a i)" ok
	is "$(kept n)" '3=a 3=b -1=*'
	is "$(kept a)" '-1=a 0=b -1=*'
}

@test "it needs no newline, and its name and the group's can be any" {
	start
	shop
	mkdir "$Q/groups/größe 🐇"
	printf g >"$Q/snapshots/two words"
	is "$(keep größe-🐇 'größe 🐇')" ok
	is "$(keep "$(printf '%0200d' 0)")" ok
	is "$(count "$Q/snapshots")" 3
	echo end >"$G/cursor"
	echo 'snapshot two words' >"$G/cursor"
	is "$(stands)" '1=a 0=b'
	echo 'snapshot größe-🐇' >"$G/cursor"
	is "$(stands)" '-1=a -1=b'
	is "$(keep "$(printf '%0201d' 0)")" ENAMETOOLONG
	is "$(keep $'a\tb')" EINVAL
	is "$(count "$Q/snapshots")" 3
}

@test "it appears when it is accepted: touch, an open and what is refused make nothing" {
	start
	shop
	local fd
	touch "$Q/snapshots/x" 2>/dev/null || true
	is "$(snapshots)" ''
	: >"$Q/snapshots/x" || true
	is "$(snapshots)" ''
	not test -e "$Q/snapshots/x"
	exec {fd}>"$Q/snapshots/x"
	is "$(snapshots)" ''
	echo g >&"$fd"
	is "$(snapshots)" x
	exec {fd}>&-
	is "$(kept x)" '1=a 0=b -1=*'
	is "$(keep y nobody)" ENOENT
	is "$(sys read "$Q/snapshots/y")" ENOENT
	is "$(snapshots)" x
	is "$(keep y)" ok # the name is free
}

@test "an unknown group is ENOENT, with words" {
	start
	shop
	is "$(keep s nope)" ENOENT
	errors_has 'snapshots/s: ENOENT: .*nope'
	is "$(sys write "$Q/snapshots/s" g)" ENOENT
	is "$(snapshots)" ''
}

@test "what is no line with the name of a group makes nothing" {
	start
	shop
	local text
	for text in '' $'g\ng' "$(printf '%0300d' 0)"; do
		not grep -qx ok <<<"$(keep s "$text"$'\n')"
		errors_has 'snapshots/s: [A-Z]+: .'
	done
	is "$(perl -e "$MAKE" "$Q/snapshots/s" '')" ok # an open that writes nothing
	is "$(snapshots)" ''
}

@test "of many who make one of the same name one does" {
	start
	shop
	local i made
	made=$(for i in {1..8}; do keep s & done && wait)
	is "$(sort <<<"$made" | uniq -c | xargs)" '7 EEXIST 1 ok'
	is "$(kept s)" '1=a 0=b -1=*'
}

@test "swap files and the like never become snapshots" {
	start
	shop
	local name
	for name in .x.swp ._x .DS_Store; do
		not grep -qx ok <<<"$(keep "$name")"
		is "$(sys create "$Q/snapshots/$name" | grep -c ok)" 0
	done
	is "$(sys mkdir "$Q/snapshots/d")" EPERM
	is "$(sys symlink "$Q/snapshots/l")" EPERM
	is "$(ls -A "$Q/snapshots")" ''
}

@test "it is immutable" {
	start
	shop
	is "$(keep s)" ok
	local before file=$Q/snapshots/s
	before=$(cat "$file")
	is "$(keep s)" EEXIST
	is "$(sys write "$file" x)" EEXIST
	not truncate -s 0 "$file" 2>/dev/null
	not truncate -s 7 "$file" 2>/dev/null
	is "$(sys rename "$file" "$Q/snapshots/t")" EPERM
	is "$(sys link "$file" "$Q/snapshots/t")" EPERM
	is "$(sys chmod "$file" 777)" EPERM
	setting "$Q" snapshot_seconds 2d
	echo end >"$G/cursor"
	push "$Q/partitions/a" a4
	mkdir "$Q/partitions/c"
	is "$(cat "$file")" "$before"
	is "$(snapshots)" s
	remount
	is "$(cat "$file")" "$before"
}

@test "a name in use: EEXIST" {
	start
	shop
	mkdir "$Q/groups/h"
	is "$(keep s)" ok
	is "$(keep s h)" EEXIST
	errors_has 'snapshots/s: EEXIST: .'
	is "$(kept s)" '1=a 0=b -1=*'
	mkdir "$M/queues/other" "$M/queues/other/groups/g" "$M/queues/other/partitions/p"
	echo g >"$M/queues/other/snapshots/s" # another queue's names are its own
}

@test "rm deletes it, and its name can be used again" {
	start
	shop
	is "$(keep s)" ok
	is "$(keep t)" ok
	rm "$Q/snapshots/s"
	is "$(snapshots)" t
	is "$(sys unlink "$Q/snapshots/s")" ENOENT
	is "$(sys write "$G/cursor" $'snapshot s\n')" ENOENT
	echo end >"$G/cursor"
	is "$(keep s)" ok
	is "$(kept s)" '3=a 3=b -1=*'
	rm "$Q/snapshots/"*
	remount
	is "$(snapshots)" ''
}

@test "rm -r removes a queue with its snapshots, and rmdir an empty one with them" {
	start
	shop
	is "$(keep s)" ok
	rm -r "$Q"
	shop
	is "$(snapshots)" ''
	is "$(keep s)" ok
	rmdir "$Q/snapshots" # a fixed directory: nothing happens
	is "$(snapshots)" s
	rm "$Q/snapshots/s"
	rm -r "$Q/partitions/"*
	mkdir "$Q/partitions/p"
	is "$(keep s)" ok
	rmdir "$Q/partitions/p" "$Q"
	mkdir "$Q"
	is "$(snapshots)" ''
}

# ---- back to it --------------------------------------------------------------------------

@test "snapshot before-deploy, written to a cursor, seeks there" {
	start
	shop
	is "$(keep before-deploy)" ok
	is "$(rest)" 'a2 a3 b1 b2 b3'
	push "$Q/partitions/a" a4
	echo 'snapshot before-deploy' >"$G/cursor"
	is "$(stands)" '1=a 0=b'
	is "$(rest)" 'a2 a3 a4 b1 b2 b3'
	printf 'SNAPSHOT before-deploy' >"$G/cursor"
	is "$(stands)" '1=a 0=b'
	echo start >"$G/cursor"
	echo 'snapshot before-deploy' >"$G/cursor" # forwards too
	is "$(stands)" '1=a 0=b'
}

@test "into another group's cursor, and into a new one's" {
	start
	shop
	mkdir "$Q/groups/h"
	is "$(rest h)" 'a0 a1 a2 a3 b0 b1 b2 b3'
	is "$(keep s)" ok
	is "$(rest)" 'a2 a3 b1 b2 b3'
	echo 'snapshot s' >"$Q/groups/h/cursor"
	is "$(stands h) $(stands g)" '1=a 0=b 3=a 3=b'
	setting "$Q" subscription new
	mkdir "$Q/groups/new"
	echo 'snapshot s' >"$Q/groups/new/cursor"
	is "$(stands new)" '1=a 0=b'
	is "$(rest new)" 'a2 a3 b1 b2 b3'
	is "$(rest h)" 'a2 a3 b1 b2 b3'
}

@test "an unknown snapshot is ENOENT and moves nothing; of another queue, too" {
	start
	shop
	mkdir "$M/queues/other" "$M/queues/other/groups/g" "$M/queues/other/partitions/p"
	echo g >"$M/queues/other/snapshots/s"
	is "$(sys write "$G/cursor" $'snapshot s\n')" ENOENT
	errors_has 'groups/g/cursor: ENOENT: .*s'
	is "$(stands)" '1=a 0=b'
	is "$(keep s)" ok
	is "$(sys write "$Q/partitions/a/groups/g/cursor" $'snapshot s\n')" EINVAL # the queue's only
	is "$(stands)" '1=a 0=b'
}

@test "cp snapshots/before-deploy groups/g/cursor writes its text, a table" {
	start
	shop
	is "$(keep before-deploy)" ok
	echo end >"$G/cursor"
	cp "$Q/snapshots/before-deploy" "$G/cursor"
	is "$(stands)" '1=a 0=b'
	mkdir "$Q/groups/h"
	cat "$Q/snapshots/before-deploy" >"$Q/groups/h/cursor"
	is "$(stands h)" '1=a 0=b'
	cp "$Q/snapshots/before-deploy" "$BATS_TEST_TMPDIR/copy" # which outlives it
	rm "$Q/snapshots/before-deploy"
	echo end >"$G/cursor"
	cp "$BATS_TEST_TMPDIR/copy" "$G/cursor"
	is "$(rest)" 'a2 a3 b1 b2 b3'
}

@test "partitions born later are unread, by name and by its text" {
	start
	shop
	is "$(keep s)" ok
	mkdir "$Q/partitions/c"
	push "$Q/partitions/c" c0 c1
	echo end >"$G/cursor"
	echo 'snapshot s' >"$G/cursor"
	is "$(stands)" '1=a 0=b -1=c'
	echo end >"$G/cursor"
	cp "$Q/snapshots/s" "$G/cursor"
	is "$(stands)" '1=a 0=b -1=c'
	is "$(rest)" 'a2 a3 b1 b2 b3 c0 c1'
}

@test "a partition that has gone since is passed over; made again it was born later" {
	start
	shop
	echo end >"$Q/partitions/b/groups/g/cursor"
	is "$(keep s)" ok
	is "$(kept s)" '1=a 3=b -1=*'
	rm -r "$Q/partitions/b"
	echo end >"$G/cursor"
	echo 'snapshot s' >"$G/cursor"
	is "$(stands)" '1=a'
	mkdir "$Q/partitions/b"
	push "$Q/partitions/b" n{0..5}
	echo end >"$G/cursor"
	echo 'snapshot s' >"$G/cursor"
	is "$(stands)" '1=a -1=b'
	echo end >"$G/cursor"
	remount
	echo 'snapshot s' >"$G/cursor"
	is "$(stands)" '1=a -1=b'
	is "$(sys unlink "$(segment "$Q/partitions/b" 0)")" EBUSY # held, as any born later
	is "$(rest)" 'a2 a3 n0 n1 n2 n3 n4 n5'
}

@test "a seek to a snapshot does what a seek does: leases end, waiting readers wake" {
	start
	shop
	is "$(keep s)" ok
	local fd
	setting "$G" batch 2
	exec {fd}<>"$Q/partitions/a/groups/g/follow"
	is "$(handle fd "$fd" read)" '[a2\na3\n]'
	echo 'snapshot s' >"$G/cursor"
	is "$(handle fd "$fd" ack)" ESTALE
	exec {fd}>&-
	echo end >"$G/cursor"
	reader "$BATS_TEST_TMPDIR/out" "$Q/partitions/b/groups/g/follow"
	wait_until waiting 1
	echo 'snapshot s' >"$G/cursor"
	wait_until shows "$BATS_TEST_TMPDIR/out" $'b1\nb2\nb3'
}

# ---- what counts as consumed ---------------------------------------------------------------

@test "leased messages are unconsumed in it, as far as they are not acked" {
	start
	queue
	setting "$G" batch 3
	push "$Q" m{0..5}
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[m0\nm1\nm2\n]'
	is "$(keep leased)" ok
	is "$(kept leased)" '-1=default -1=*'
	is "$(handle fd "$fd" 'ack 1')" ok
	is "$(keep part)" ok
	is "$(kept part)" '1=default -1=*'
	is "$(handle fd "$fd" ack)" ok
	is "$(keep all)" ok
	is "$(kept all)" '2=default -1=*'
}

@test "what follow has returned is unconsumed in it until more is asked for" {
	start
	queue
	setting "$G" prefetch 1
	push "$Q" m{0..2}
	local fd
	exec {fd}<"$G/follow"
	is "$(handle fd "$fd" read)" '[m0\n]'
	is "$(keep s)" ok
	is "$(handle fd "$fd" read)" '[m1\n]'
	is "$(keep t)" ok
	is "$(kept s) $(kept t)" '-1=default -1=* 0=default -1=*'
}

@test "a message that is partly read is unconsumed in it" {
	start
	queue
	push "$Q" long1 long2
	local fd text
	exec {fd}<"$G/pop"
	read -r -N 3 -u "$fd" text
	is "$text" lon
	is "$(keep s)" ok
	is "$(kept s)" '-1=default -1=*'
	read -r -u "$fd" text
	is "$text" g1
	is "$(keep t)" ok
	is "$(kept t)" '0=default -1=*'
	exec {fd}<&-
	echo 'snapshot s' >"$G/cursor"
	is "$(rest)" 'long1 long2'
}

@test "it is one transaction over all partitions, under seeks" {
	start
	queue p{1..20}
	local i seeker
	for i in {1..20}; do push "$Q/partitions/p$i" 0 1; done
	seek_on() {
		until [ -e "$BATS_TEST_TMPDIR/stop" ]; do
			echo end >"$G/cursor"
			echo start >"$G/cursor"
		done
	}
	spawn seek_on
	seeker=$!
	for i in {1..40}; do is "$(keep "s$i")" ok; done
	touch "$BATS_TEST_TMPDIR/stop"
	wait "$seeker"
	for i in {1..40}; do
		is "$(grep -v '\*' "$Q/snapshots/s$i" | grep -v '^#' | cut -f 1 | uniq | wc -l)" 1
	done
}

@test "it is one transaction over all partitions, under pushes and pops" {
	ini durability=os
	start
	queue a b
	local i storm worker
	spawn perl -MFcntl -e '
		my @pushes = map { sysopen(my $f, $_, O_WRONLY) or die $!; $f } @ARGV[1, 2];
		until (-e $ARGV[0]) {
			for my $f (@pushes) { syswrite($f, "x\n") or die $! }
		}
	' "$BATS_TEST_TMPDIR/stop" "$Q/partitions/"{a,b}/push
	storm=$!
	# pops of a and b in turn: a is never behind b, nor ahead by more than one
	spawn perl -MFcntl -e '
		my @pops = map { sysopen(my $f, $_, O_RDONLY) or die $!; $f } @ARGV[1, 2];
		until (-e $ARGV[0]) {
			for my $f (@pops) {
				my ($text, $n) = "";
				until ($text =~ /\n/) {
					$n = sysread($f, my $bytes, 4096) // die $!;
					$text .= $bytes;
				}
				$n = sysread($f, my $rest, 4096) // die $!;
				$n == 0 or die "more than one";
			}
		}
	' "$BATS_TEST_TMPDIR/stop" "$Q/partitions/"{a,b}/groups/g/pop 2>"$BATS_TEST_TMPDIR/why"
	worker=$!
	moved() { [ "$(tail -n 1 "$G/cursor" | cut -f 1)" -gt "$1" ]; }
	for i in {1..15}; do
		wait_until moved $((i * 10))
		is "$(keep "s$i")" ok
	done
	touch "$BATS_TEST_TMPDIR/stop"
	wait "$worker" || { cat "$BATS_TEST_TMPDIR/why" && false; }
	wait "$storm"
	for i in {1..15}; do
		kept "s$i" | perl -ne '/^(\d+)=a (\d+)=b -1=\*$/ && ($1 == $2 || $1 == $2 + 1) or
			die "not of one moment: $_"'
		echo "snapshot s$i" >"$G/cursor"
		is "$(stands) -1=*" "$(kept "s$i")"
	done
}

# ---- what it holds -------------------------------------------------------------------------

@test "it outlives its group" {
	start
	shop
	is "$(keep s)" ok
	local text
	text=$(cat "$Q/snapshots/s")
	rmdir "$G"
	is "$(cat "$Q/snapshots/s")" "$text"
	mkdir "$Q/groups/h" "$G"
	echo 'snapshot s' >"$Q/groups/h/cursor"
	is "$(stands h) $(stands)" '1=a 0=b -1=a -1=b'
	rmdir "$G"
	remount
	is "$(cat "$Q/snapshots/s")" "$text"
	is "$(rest h)" 'a2 a3 b1 b2 b3'
}

@test "rm of a segment that it holds: EBUSY; once it is removed, rm works" {
	start
	shop
	local a=$Q/partitions/a n
	is "$(keep s)" ok
	push "$a" a4
	rm "$(segment "$a" 0)" "$(segment "$a" 1)" # were consumed in it
	for n in 2 3 4; do is "$(sys unlink "$(segment "$a" "$n")")" EBUSY; done
	is "$(sys unlink "$(segment "$a" 2)")" EBUSY
	errors_has "segments/$(printf %020d 2): EBUSY: .*snapshot"
	echo end >"$G/cursor"
	remount
	is "$(sys unlink "$(segment "$a" 2)")" EBUSY
	is "$(cat "$a/log")" $'a2\na3\na4'
	rm "$Q/snapshots/s"
	rm "$(segment "$a" 2)" "$(segment "$a" 3)" "$(segment "$a" 4)"
}

@test "it holds what was pushed after it, also to partitions born later" {
	start
	shop
	echo end >"$G/cursor"
	is "$(keep s)" ok
	push "$Q/partitions/a" a4
	push "$Q" c0
	rm "$(segment "$Q/partitions/a" 0)" "$(segment "$Q/partitions/a" 1)" \
		"$(segment "$Q/partitions/a" 2)" "$(segment "$Q/partitions/a" 3)"
	is "$(sys unlink "$(segment "$Q/partitions/a" 4)")" EBUSY
	is "$(sys unlink "$(segment "$P" 0)")" EBUSY
	is "$(sys rmdir "$P")" ENOTEMPTY
	rm "$Q/snapshots/s"
	rm "$(segment "$Q/partitions/a" 4)" "$(segment "$P" 0)"
}

@test "a segment of which a part was unconsumed is held whole" {
	start
	queue
	seq 0 3 | dd of="$Q/push" iflag=fullblock status=none
	pops "$G/pop" 0 1 2
	is "$(keep s)" ok
	echo end >"$G/cursor"
	is "$(sys unlink "$(segment "$P" 0)")" EBUSY
	echo 'snapshot s' >"$G/cursor"
	is "$(rest)" 3
}

@test "of two snapshots the earlier one holds more" {
	start
	queue
	push "$Q" m{0..3}
	is "$(keep early)" ok
	pops "$G/pop" m0 m1
	is "$(keep late)" ok
	is "$(sys unlink "$(segment "$P" 0)")" EBUSY
	rm "$Q/snapshots/early"
	rm "$(segment "$P" 0)" "$(segment "$P" 1)"
	is "$(sys unlink "$(segment "$P" 2)")" EBUSY
}

# ---- how long it lives -----------------------------------------------------------------------

@test "it lives snapshot_seconds (7 days) when nothing is unconsumed" {
	start
	shop
	is "$(cat "$Q/config/snapshot_seconds")" 604800
	is "$(sys open "$G/config/snapshot_seconds" O_RDONLY)" ENOENT # the queue's alone
	echo end >"$G/cursor"
	is "$(keep s)" ok
	apart "$(created s)" "$(expires s)" 604800
	setting "$Q" snapshot_seconds 2h
	is "$(keep t)" ok
	apart "$(created t)" "$(expires t)" 7200
}

@test "less the age of the oldest unconsumed message" {
	own_clock
	start
	queue a b
	push "$Q/partitions/b" b0
	clock 36400
	push "$Q/partitions/a" a0 a1
	clock 86400
	is "$(keep s)" ok # a day old: six are left
	apart "$(created s)" "$(expires s)" $((6 * 86400))
	apart "$(attribute "$(segment "$Q/partitions/b" 0)" created_at)" "$(expires s)" 604800
	pops "$Q/partitions/b/groups/g/pop" b0
	is "$(keep t)" ok
	apart "$(created t)" "$(expires t)" $((604800 - 50000))
	echo end >"$G/cursor"
	is "$(keep u)" ok
	apart "$(created u)" "$(expires u)" 604800
}

@test "snapshot_seconds 0: for ever" {
	own_clock
	start
	shop
	setting "$Q" snapshot_seconds 0
	is "$(keep s)" ok
	is "$(sed -n 3p "$Q/snapshots/s")" '# expires never'
	clock $((3650 * 86400))
	push "$Q/partitions/a" a4
	is "$(keep t)" ok # however old the backlog is
	remount
	is "$(snapshots)" 's t'
	echo end >"$G/cursor"
	echo 'snapshot s' >"$G/cursor"
	is "$(stands)" '1=a 0=b'
}

@test "under an hour: ETIME, and nothing is made" {
	start
	shop
	echo end >"$G/cursor"
	setting "$Q" snapshot_seconds 59m
	is "$(keep s)" ETIME
	errors_has 'snapshots/s: ETIME: .'
	is "$(snapshots)" ''
	setting "$Q" snapshot_seconds 61m
	is "$(keep s)" ok
	is "$(snapshots)" s
}

@test "a backlog so old that it would live under an hour: ETIME" {
	own_clock
	start
	shop
	clock $((604800 - 3500))
	is "$(keep s)" ETIME
	is "$(snapshots)" ''
	setting "$Q" snapshot_seconds 8d
	is "$(keep s)" ok
	setting "$Q" snapshot_seconds 7d
	is "$(keep t)" ETIME
	echo end >"$G/cursor"
	is "$(keep t)" ok
}

@test "in its last hour a seek to it by name is ETIME and moves nothing; its text can be written" {
	own_clock
	start
	shop
	echo end >"$G/cursor"
	is "$(keep s)" ok
	echo start >"$G/cursor"
	clock $((604800 - 3700))
	echo 'snapshot s' >"$G/cursor"
	is "$(stands)" '3=a 3=b'
	echo start >"$G/cursor"
	clock $((604800 - 3500))
	is "$(sys write "$G/cursor" $'snapshot s\n')" ETIME
	errors_has 'groups/g/cursor: ETIME: .'
	is "$(stands)" '-1=a -1=b'
	is "$(snapshots)" s
	cp "$Q/snapshots/s" "$G/cursor"
	is "$(stands)" '3=a 3=b'
}

# left TEXT - the snapshots that there are: a condition for wait_until.
left() { [ "$(snapshots)" = "$1" ]; }

@test "expired ones vanish by themselves, and hold nothing any more" {
	own_clock
	start
	shop
	setting "$Q" snapshot_seconds 2h
	is "$(keep short)" ok
	setting "$Q" snapshot_seconds 1d
	is "$(keep long)" ok
	echo end >"$G/cursor"
	is "$(keep later)" ok
	clock 7300
	wait_until left 'later long'
	not test -e "$Q/snapshots/short"
	is "$(sys write "$G/cursor" $'snapshot short\n')" ENOENT
	is "$(keep short)" ok # its name is free
	clock 86500
	wait_until left short
	rm "$(segment "$Q/partitions/a" 0)"
	clock 180000
	wait_until left ''
	rm "$Q/partitions/"{a,b}/segments/*
}

@test "what expired while the daemon was down is gone after its start" {
	own_clock
	start
	shop
	is "$(keep s)" ok
	setting "$Q" snapshot_seconds 0
	is "$(keep t)" ok
	stop
	clock 700000
	start
	wait_until left t
	rm "$Q/snapshots/t"
	rm "$Q/partitions/"{a,b}/segments/*
}

@test "retention goes on once the snapshot that held it has expired" {
	own_clock
	start
	shop
	echo end >"$G/cursor"
	setting "$Q" snapshot_seconds 2h
	is "$(keep s)" ok
	push "$Q/partitions/a" a4 a5
	setting "$Q" retention_seconds 1h
	clock 7100
	setting "$Q" retention_seconds 1000
	gone_to() { [ "$(stat_of "$Q/partitions/a/stats" first_offset)" = "$1" ]; }
	wait_until gone_to 4
	clock 7300
	wait_until left ''
	setting "$Q" retention_seconds 900
	wait_until gone_to 6
}

# emptied PARTITION - a condition for wait_until.
emptied() { [ -z "$(ls "$Q/partitions/$1/segments")" ]; }

@test "while it lives nothing of it is deleted: a clock set forward and back brings back none" {
	own_clock
	start
	shop
	setting "$Q" snapshot_seconds 1d
	is "$(keep s)" ok
	clock 1000000
	setting "$Q" retention_seconds 10d
	wait_until left ''
	wait_until emptied a
	wait_until emptied b
	clock 0
	setting "$Q" retention_seconds 0
	is "$(snapshots)" ''
	is "$(sys write "$G/cursor" $'snapshot s\n')" ENOENT
	is "$(keep s)" ok
	remount
	is "$(kept s)" '3=a 3=b -1=*' # the oldest retained
}

# ---- durable, and who may ---------------------------------------------------------------------

@test "it survives kill -9 at once, and a remount; so do its removal and what it holds" {
	start
	shop
	is "$(keep s)" ok
	is "$(keep t)" ok
	local text
	text=$(cat "$Q/snapshots/s")
	rm "$Q/snapshots/t"
	crash
	start
	is "$(snapshots)" s
	is "$(cat "$Q/snapshots/s")" "$text"
	is "$(sys unlink "$(segment "$Q/partitions/b" 0)")" ok
	is "$(sys unlink "$(segment "$Q/partitions/b" 1)")" EBUSY
	echo end >"$G/cursor"
	remount
	is "$(cat "$Q/snapshots/s")" "$text"
	echo 'snapshot s' >"$G/cursor"
	crash
	start
	is "$(stands)" '1=a 0=b'
}

@test "making one takes w of snapshots/ and r of the group's directory" {
	start
	shop
	mkdir "$Q/groups/secret"
	chmod 700 "$Q/groups/secret"
	local at=queues/q/snapshots
	is "$(nobody perl -e "$MAKE" "$at/s" g)" EACCES # snapshots/ is its owner's at first
	is "$(stat -c %a "$Q/snapshots")" 755
	chmod 777 "$Q/snapshots"
	is "$(nobody perl -e "$MAKE" "$at/s" secret)" EACCES
	nobody cat errors | grep -Eq ' 65534 [0-9]+ [^ ]*snapshots/s: EACCES: .'
	is "$(snapshots)" ''
	is "$(nobody perl -e "$MAKE" "$at/s" g)" ok
	is "$(snapshots)" s
	chmod 705 "$Q/groups/secret"
	is "$(nobody perl -e "$MAKE" "$at/t" secret)" ok
	is "$(keep u secret)" ok
	chmod 711 "$Q/groups" # the cursor can still be read, and so be kept
	is "$(nobody head -c 2 queues/q/groups/g/cursor)" 1$'\t'
	is "$(nobody perl -e "$MAKE" "$at/v" g)" ok
}

@test "r and w of it are its directory's; to write to one is EEXIST for who may write there" {
	start
	shop
	is "$(keep s)" ok
	local at=queues/q/snapshots
	is "$(stat -c '%a %u %g' "$Q/snapshots/s")" '644 0 0'
	is "$(nobody perl -e "$MAKE" "$at/s" g)" EACCES
	is "$(nobody sh -c "head -n 1 $at/s")" '# group g'
	chmod 777 "$Q/snapshots"
	is "$(stat -c %a "$Q/snapshots/s")" 666
	is "$(nobody perl -e "$MAKE" "$at/s" g)" EEXIST
	chmod 711 "$Q/snapshots"
	is "$(stat -c %a "$Q/snapshots/s")" 600
	is "$(nobody cat "$at/s" 2>/dev/null || echo refused)" refused
}

@test "rm takes w of snapshots/, a seek to it w of the group's cursor" {
	start
	shop
	is "$(keep s)" ok
	local at=queues/q/snapshots
	not nobody rm -f "$at/s" 2>/dev/null
	is "$(snapshots)" s
	# shellcheck disable=SC2016
	local seek='my $f; open($f, ">", $ARGV[0]) && syswrite($f, "snapshot s\n") && print "ok"'
	is "$(nobody perl -e "$seek" queues/q/groups/g/cursor)" ''
	chmod 777 "$G"
	is "$(nobody perl -e "$seek" queues/q/groups/g/cursor)" ok
	is "$(stands)" '1=a 0=b'
	chmod 777 "$Q/snapshots"
	nobody rm -f "$at/s"
	is "$(snapshots)" ''
}

@test "the mode of snapshots/ survives a restart" {
	start
	shop
	chmod 1775 "$Q/snapshots"
	chown 65534:65534 "$Q/snapshots"
	remount
	is "$(stat -c '%a %u %g' "$Q/snapshots")" '1775 65534 65534'
}
