#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 2 of the contract: push.

load lib

@test "every line is one message, without its newline" {
	start
	queue
	printf 'one\ntwo\nthree\n' >"$Q/push"
	is "$(last "$P")" 2
	pops "$G/pop" one two three ''
}

@test "an empty line is an empty message" {
	start
	queue
	printf '\na\n\n' >"$Q/push"
	is "$(last "$P")" 2
	is "$(cat "$G/pop" | od -An -c | tr -d ' ')" '\n'
	pops "$G/pop" a
	is "$(cat "$G/pop" | wc -c)" 1
	is "$(cat "$G/pop" | wc -c)" 0
}

@test "lines may arrive in any pieces" {
	start
	mkdir "$Q"
	is "$(sys write "$Q/push" he llo $'\nwor' l $'d\n' $'\n' x $'\n')" ok
	is "$(cat "$P/log")" $'hello\nworld\n\nx'
	is "$(last "$P")" 3
}

@test "an unfinished line is no message yet, the tail becomes one at close" {
	start
	mkdir "$Q"
	perl -MFcntl -e '
		my ($push, $log) = @ARGV;
		sysopen(my $f, $push, O_WRONLY) or die $!;
		syswrite($f, "one\ntwo, unfini") or die $!;
		open(my $l, "<", $log) or die $!;
		join("", <$l>) eq "one\n" or die "the tail is there already";
		syswrite($f, "shed") or die $!;
		close $f or die $!;
	' "$Q/push" "$P/log"
	is "$(cat "$P/log")" $'one\ntwo, unfinished'
	printf tail >"$Q/push"
	is "$(tail -n 1 "$P/log")" tail
	is "$(last "$P")" 2
}

@test "two handles never mix" {
	start
	mkdir "$Q"
	perl -MFcntl -e '
		my ($path) = @ARGV;
		sysopen(my $a, $path, O_WRONLY) or die $!;
		sysopen(my $b, $path, O_WRONLY) or die $!;
		syswrite($a, "hel"); syswrite($b, "wor"); syswrite($a, "lo\n"); syswrite($b, "ld\n");
		syswrite($a, "a"); syswrite($b, "b"); close $b or die $!; close $a or die $!;
	' "$Q/push"
	is "$(cat "$P/log")" $'hello\nworld\nb\na'
}

@test "a child that closes what it inherited does not cut its parent's line" {
	start
	mkdir "$Q"
	perl -MFcntl -e '
		sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		syswrite($f, "hel");
		system("true"); # its exec closes the copy
		unless (fork) { exit }
		wait;
		syswrite($f, "lo\n");
	' "$Q/push"
	{ printf 'wor' && (true) && /bin/true && printf 'ld\n'; } >"$Q/push"
	is "$(cat "$P/log")" $'hello\nworld'
}

@test "the tail becomes a message when the process that wrote it closes" {
	start
	mkdir "$Q"
	local fd
	exec {fd}>"$Q/push"
	(printf a >&"$fd")
	is "$(cat "$P/log")" a
	(printf b >&"$fd")
	is "$(cat "$P/log")" $'a\nb'
	exec {fd}>&-
}

@test "an open that writes nothing pushes nothing" {
	start
	queue p
	local fd
	: >"$Q/push"
	: >>"$Q/push"
	exec {fd}>"$Q/partitions/p/push"
	/bin/true
	exec {fd}>&-
	is "$(ls "$Q/partitions")" p
	is "$(count "$Q/partitions/p/segments")" 0
}

@test ">, >> and truncating clear nothing" {
	start
	mkdir "$Q"
	echo a >"$Q/push"
	echo b >"$P/push"
	echo c >>"$Q/push"
	: >"$Q/push"
	truncate -s 0 "$Q/push"
	is "$(sys truncate "$P/push")" ok
	is "$(cat "$P/log")" $'a\nb\nc'
}

@test "a push in a partition goes to that one" {
	start
	queue a b
	push "$Q/partitions/a" 1
	push "$Q/partitions/b" 2
	push "$Q" 3
	is "$(cat "$Q/partitions/a/log" "$Q/partitions/b/log" "$P/log")" $'1\n2\n3'
}

@test "all lines of one write are one segment" {
	start
	mkdir "$Q"
	is "$(sys write "$Q/push" "$(seq 5000)"$'\n')" ok
	is "$(ls "$P/segments")" "$(printf %020d 0)"
	is "$(attribute "$(segment "$P" 0)" messages)" 5000
}

@test "a write of 1 MiB less 4 KiB is one request" {
	start
	mkdir "$Q"
	perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		syswrite($f, ("x" x 1019 . "\n") x 1024) == 1044480 or die $!' "$Q/push"
	is "$(count "$P/segments")" 1
	is "$(last "$P")" 1023
}

@test "ten pushes 5 ms apart are ten segments" {
	start
	mkdir "$Q"
	perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		for (1 .. 10) { syswrite($f, "$_\n") or die $!; select undef, undef, undef, 0.005 }
	' "$Q/push"
	is "$(ls "$P/segments")" "$(printf '%020d\n' {0..9})"
}

@test "pushes that arrive while a commit is under way become one segment" {
	start
	mkdir "$Q"
	writers w 16 40 "$Q/push"
	is "$(last "$P")" 1919
	written "$P/log"
	local segments
	segments=$(count "$P/segments")
	[ "$segments" -lt 640 ] # fewer than writes
}

@test "the order of each writer is kept, in every partition" {
	start
	queue a b
	writers w 8 50 "$Q/partitions/a/push" "$Q/partitions/b/push"
	written "$Q/partitions/a/log" "$Q/partitions/b/log"
	is "$(cat "$Q/partitions/"?"/log" | wc -l)" 1200
}

@test "a line of exactly max_message_bytes is a message" {
	start
	queue
	is "$(sys fill "$Q/push" 1048576 $'\n')" ok
	is "$(last "$P")" 0
	is "$(stat -c %s "$P/log")" 1048577
	is "$(cat "$G/pop" | tr -d x | od -An -c | tr -d ' ')" '\n'
}

@test "past max_message_bytes: EMSGSIZE, and no piece of it is stored" {
	start
	mkdir "$Q"
	is "$(sys fill "$Q/push" 1048577)" EMSGSIZE
	is "$(sys fill "$Q/push" 1048576 x $'\n')" EMSGSIZE
	errors_has 'queues/q/push: EMSGSIZE: .'
	is "$(sys fill "$Q/push" 1048576 $'xx\nanother\n')" EMSGSIZE
	is "$(count "$Q/partitions")" 0
	push "$Q" after
	is "$(cat "$P/log")" after
}

@test "a write-all loop over 2.5 MiB without a newline gets EMSGSIZE and stores nothing" {
	start
	mkdir "$Q"
	is "$(sys fill "$Q/push" 2621440 $'\n')" EMSGSIZE
	is "$(count "$Q/partitions")" 0
	is "$(sys fill "$Q/push" 5000000 $'\n')" EMSGSIZE
	is "$(count "$Q/partitions")" 0
}

@test "cp of a line that is too long fails and stores nothing" {
	start
	mkdir "$Q"
	seq 300000 | tr '\n' ' ' >"$BATS_TEST_TMPDIR/long"
	not cp "$BATS_TEST_TMPDIR/long" "$Q/push" 2>/dev/null
	not dd if="$BATS_TEST_TMPDIR/long" of="$Q/push" bs=64K status=none 2>/dev/null
	is "$(count "$Q/partitions")" 0
}

@test "after EMSGSIZE the handle takes the next line" {
	start
	mkdir "$Q"
	perl -MFcntl -MErrno -e '
		sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		syswrite($f, "tail, then ") or die $!;
		my ($text, $at, $n) = ("y" x (3 << 19) . "\n", 0);
		$at += $n while defined($n = syswrite($f, $text, length($text) - $at, $at))
			&& $at + $n < length $text;
		$!{EMSGSIZE} && !defined $n or die "accepted";
		syswrite($f, "next\n") or die $!;
		syswrite($f, "tail") or die $!;
		close $f or die $!;
	' "$Q/push"
	is "$(cat "$P/log")" $'next\ntail'
}

@test "any bytes are kept, NUL too" {
	start
	mkdir "$Q"
	perl -e 'print map { chr $_ % 256 } 0 .. 99_999; print "\n"' >"$BATS_TEST_TMPDIR/bytes"
	cat "$BATS_TEST_TMPDIR/bytes" >"$Q/push"
	cmp "$BATS_TEST_TMPDIR/bytes" "$P/log"
	is "$(last "$P")" "$(($(wc -l <"$BATS_TEST_TMPDIR/bytes") - 1))"
}

@test "large writes that cut lines anywhere keep them whole" {
	start
	mkdir "$Q"
	local all=$BATS_TEST_TMPDIR/all bs
	perl -e 'printf "%098d.\n", $_ for 1 .. 60_000' >"$all"
	for bs in 1M 128K 100003; do dd if="$all" of="$Q/push" bs="$bs" status=none; done
	cat "$all" "$all" "$all" | cmp - "$P/log"
	is "$(last "$P")" 179999
}

@test "a write answers with its commit, never EINTR" {
	start
	mkdir "$Q"
	perl -MFcntl -MPOSIX -MTime::HiRes=setitimer,ITIMER_REAL -e '
		sigaction(SIGALRM, POSIX::SigAction->new(sub { $alarms++ })) or die $!;
		sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		setitimer(ITIMER_REAL, 0.001, 0.0007);
		for (0 .. 499) { defined syswrite($f, "$_\n") or die "$_: $!\n" }
		setitimer(ITIMER_REAL, 0);
		$alarms or die "no signal came";
	' "$Q/push"
	is "$(cat "$P/log")" "$(seq 0 499)"
}

@test "what a write returned for survives kill -9 (durability os)" {
	ini durability=os
	start
	mkdir "$Q"
	push "$Q" one two
	crash
	start
	is "$(cat "$P/log")" $'one\ntwo'
}

@test "fsync works, at durability disk and os" {
	start
	mkdir "$Q"
	is "$(sys fsync "$Q/push" $'one\n')" ok
	stop
	ini durability=os
	start
	is "$(sys fsync "$Q/push" $'two\n')" ok
	sync "$P/log"
	is "$(cat "$P/log")" $'one\ntwo'
}

@test "the WAL stays bounded while readers read without a pause" {
	ini wal_limit=256K
	start
	queue
	spawn bash -c 'while cat "$0" || sleep 0.01; do :; done >/dev/null 2>&1' "$P/log"
	spawn bash -c 'while cat "$0"; do :; done >/dev/null 2>&1' "$G/pop"
	perl -MFcntl -e '
		my ($push, $wal) = @ARGV;
		sysopen(my $f, $push, O_WRONLY) or die $!;
		my ($most, $line) = (0, "x" x 1023 . "\n");
		for (1 .. 128) {
			syswrite($f, $line x 64) == 65536 or die $!;
			my $size = -s $wal;
			$most = $size if $size > $most;
		}
		print "the WAL grew to $most bytes\n";
		exit($most > 0 && $most < 2 << 20 ? 0 : 1);
	' "$Q/push" "$S-wal"
	is "$(stat -c %s "$P/log")" 8388608
}

@test "opening a push for reading: EACCES" {
	start
	mkdir "$Q" "$P"
	local file
	for file in "$Q/push" "$P/push"; do
		is "$(sys open "$file" O_RDONLY)" EACCES
		is "$(sys open "$file" O_RDWR)" EACCES
		is "$(sys open "$file" O_WRONLY)" ok
	done
	errors_has 'queues/q/push: EACCES: .'
}

@test "a write to the push of a removed queue: ESTALE" {
	start
	mkdir "$Q"
	local fd
	exec {fd}>"$Q/push"
	rmdir "$Q"
	is "$(sys fdwrite "$fd" $'x\n')" ESTALE
	errors_has 'push: ESTALE: .'
}
