#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 10 of the contract: retention. What snapshots keep from rm is in 21_snapshots.bats.

load lib
load clock

# first [PARTITION] - its oldest offset; first_is N [PARTITION] - a condition for wait_until.
first() { stat_of "${1:-$P}/stats" first_offset; }
first_is() { [ "$(first "${2:-$P}")" = "$1" ]; }

# long_ago PARTITION - the daemon gets a clock of its own, queue q its group, and two
# messages of 100,000 and of 90,000 s ago to this partition; what is pushed next is 80,000
# s old once `sweeps` was called.
long_ago() {
	own_clock
	start
	queue "$@"
	Z=$Q/partitions/$1
	push "$Z" z0
	clock 10000
	push "$Z" z1
	clock 20000
}

# sweeps - at least two sweeps of queue q go by: the first takes one message of $Z, the
# second the other, neither takes anything younger by its age.
sweeps() {
	clock 100000
	setting "$Q" retention_seconds 95000
	wait_until first_is 1 "$Z"
	setting "$Q" retention_seconds 85000
	wait_until first_is 2 "$Z"
}

# events FILE - the events among the lines that a reader of a .json file finds now.
events() {
	perl -MFcntl -MJSON::PP -e '
		sysopen(my $f, $ARGV[0], O_RDONLY | O_NONBLOCK) or die $!;
		my ($json, $text, $ends) = (JSON::PP->new->canonical, "", 0);
		while ($ends < 2) {
			my $n = sysread($f, my $bytes, 65536);
			defined $n or last;
			$text .= $bytes;
			$ends = $n ? 0 : $ends + 1;
		}
		for (map { $json->decode($_) } split /\n/, $text) {
			print $json->encode($_), "\n" if $_->{event};
		}
	' "$1"
}
gaps() { events "$1" | { grep '"gap"' || true; }; }

# pread FD POSITION SIZE - the bytes there, or the name of the errno.
pread() {
	perl -MErrno -MFcntl=:seek -e '
		my ($fd, $position, $size, $bytes) = @ARGV;
		open(my $f, "<&=", $fd) or die $!;
		sysseek($f, $position, SEEK_SET) // die $!;
		defined sysread($f, $bytes, $size) or $bytes = $!{ESTALE} ? "ESTALE" : "$!";
		print $bytes;
	' "$@"
}

# ---- off, and what it says ---------------------------------------------------------------

@test "retention is off by default; that of one queue does not concern another" {
	long_ago z
	is "$(cat "$Q/config/"{retention_seconds,completed_retention_seconds,retention_bytes})" \
		$'0\n0\n0'
	local other=$M/queues/other
	mkdir "$other" "$other/groups/g"
	push "$other" old
	pops "$other/groups/g/pop" old
	sweeps
	is "$(first "$other/partitions/default")" 0
	is "$(cat "$other/partitions/default/log")" old
}

@test "retention_seconds and the like are durations, retention_bytes a size" {
	start
	queue
	local key text
	for key in retention_seconds completed_retention_seconds; do
		for text in 0=0 90=90 90s=90 15m=900 2h=7200 7d=604800; do
			setting "$Q" "$key" "${text%=*}"
			is "$(cat "$Q/config/$key")" "${text#*=}"
		done
		for text in x -1 7w 1.5h 64K; do
			is "$text: $(sys write "$Q/config/$key" "$text")" "$text: EINVAL"
		done
	done
	for text in 0=0 65536=65536 64K=65536 1M=1048576 2G=2147483648; do
		setting "$Q" retention_bytes "${text%=*}"
		is "$(cat "$Q/config/retention_bytes")" "${text#*=}"
	done
	for text in x -1 1T 1.5M 7d; do
		is "$text: $(sys write "$Q/config/retention_bytes" "$text")" "$text: EINVAL"
	done
	errors_has 'config/retention_bytes: EINVAL: .*"7d"'
	for key in retention_seconds completed_retention_seconds retention_bytes; do
		is "$(sys open "$G/config/$key" O_RDONLY)" ENOENT # the queue's alone
	done
}

# ---- by age ------------------------------------------------------------------------------

@test "retention_seconds: by age, whole segments, oldest first, whether read or not" {
	own_clock
	start
	queue
	push "$Q" m0
	seq 1 3 | dd of="$Q/push" iflag=fullblock status=none
	pops "$G/pop" m0
	clock 5000
	push "$Q" m4 m5
	clock 10000
	setting "$Q" retention_seconds 7500
	wait_until first_is 4
	is "$(ls "$P/segments")" "$(printf '%020d\n' 4 5)"
	is "$(cat "$P/log")" $'m4\nm5'
	is "$(stat_of "$P/stats" messages)" 2
	setting "$Q" retention_seconds 2500 # the newest too
	wait_until first_is 6
	is "$(count "$P/segments") $(cat "$P/log")" '0 '
	push "$Q" m6
	is "$(ls "$P/segments")" "$(printf '%020d' 6)"
	pops "$G/pop" m6 ''
}

@test "retention_seconds: a message goes by itself once it is old enough" {
	start
	queue
	setting "$Q" retention_seconds 1
	push "$Q" m0 m1
	wait_until first_is 2
	push "$Q" m2
	wait_until first_is 3
	is "$(cat "$P/log")" ''
}

@test "a partition that retention has emptied can be removed" {
	start
	queue
	push "$Q" m0 m1
	is "$(sys rmdir "$P")" ENOTEMPTY
	setting "$Q" retention_seconds 1
	wait_until first_is 2
	rmdir "$P" "$Q"
}

@test "what grew old while the daemon was down goes after its start" {
	own_clock
	start
	queue
	push "$Q" m0 m1
	setting "$Q" retention_seconds 1h
	stop
	clock 7200
	start
	wait_until first_is 2
}

# ---- by age, what every group has read -----------------------------------------------------

@test "completed_retention_seconds: never past the slowest group's cursor" {
	long_ago z
	mkdir "$Q/groups/h"
	push "$Q" m{0..4}
	pops "$PG/pop" m0 m1 m2 m3
	pops "$P/groups/h/pop" m0 m1
	clock 100000
	setting "$Q" completed_retention_seconds 10
	wait_until first_is 2
	sweeps
	is "$(first)" 2
	is "$(cat "$PG/cursor" "$P/groups/h/cursor" | paste -sd ' ')" '3 1'
	pops "$P/groups/h/pop" m2 m3
	setting "$Q" completed_retention_seconds 11
	wait_until first_is 4
	pops "$P/groups/h/pop" m4
	pops "$PG/pop" m4
	setting "$Q" completed_retention_seconds 10
	wait_until first_is 5
}

@test "completed_retention_seconds: by age, so what is younger stays" {
	long_ago z
	push "$Q" m0 m1
	pops "$PG/pop" m0 m1
	setting "$Q" completed_retention_seconds 90000
	sweeps
	is "$(first)" 0
	setting "$Q" completed_retention_seconds 70000
	wait_until first_is 2
}

@test "completed_retention_seconds: a message that was read long ago goes by itself" {
	start
	queue
	setting "$Q" completed_retention_seconds 1
	push "$Q" m0 m1
	pops "$G/pop" m0
	wait_until first_is 1
	pops "$G/pop" m1
	wait_until first_is 2
}

@test "completed_retention_seconds: a segment that is read in part stays whole" {
	long_ago z
	seq 0 2 | dd of="$Q/push" iflag=fullblock status=none
	push "$Q" 3
	pops "$PG/pop" 0 1
	setting "$Q" completed_retention_seconds 10
	sweeps
	is "$(first)" 0
	pops "$PG/pop" 2
	setting "$Q" completed_retention_seconds 11
	wait_until first_is 3
}

@test "completed_retention_seconds: what is leased is not read yet" {
	long_ago z
	push "$Q" m0 m1
	setting "$G" lease_seconds 0
	local fd
	exec {fd}<>"$PG/follow"
	is "$(handle fd "$fd" read)" '[m0\n]'
	setting "$Q" completed_retention_seconds 10
	sweeps
	is "$(first)" 0
	is "$(handle fd "$fd" ack)" ok
	setting "$Q" completed_retention_seconds 11
	wait_until first_is 1
}

@test "completed_retention_seconds: without groups nothing" {
	long_ago z
	rmdir "$G"
	push "$Q" m0 m1
	setting "$Q" completed_retention_seconds 10
	sweeps
	is "$(first)" 0
	mkdir "$G"
	pops "$PG/pop" m0
	setting "$Q" completed_retention_seconds 11
	wait_until first_is 1
}

@test "a group that has read nothing keeps everything; rmdir of it releases that" {
	long_ago z
	mkdir "$Q/groups/h"
	push "$Q" m{0..2}
	pops "$PG/pop" m0 m1 m2
	setting "$Q" completed_retention_seconds 10
	sweeps
	is "$(first)" 0
	rmdir "$Q/groups/h"
	wait_until first_is 3
}

@test "a group's floor is where it starts" {
	long_ago z
	push "$Q" m0 m1
	setting "$Q" subscription new
	mkdir "$Q/groups/h"
	push "$Q" m2
	pops "$PG/pop" m0 m1 m2
	clock 100000
	setting "$Q" completed_retention_seconds 10
	wait_until first_is 2
	sweeps
	is "$(first)" 2
	pops "$Q/groups/h/pop" m2
	setting "$Q" completed_retention_seconds 11
	wait_until first_is 3
}

@test "what a group skips by a seek or a later start, it needs no more" {
	long_ago z
	mkdir "$Q/groups/h"
	push "$Q" m{0..3}
	setting "$Q" completed_retention_seconds 10
	pops "$PG/pop" m0 m1
	echo end >"$PG/cursor"
	clock 100000
	setting "$Q" completed_retention_seconds 11
	echo 1 >"$P/groups/h/cursor"
	wait_until first_is 2
	mkdir "$Q/groups/i" # which starts at the oldest
	rmdir "$Q/groups/h"
	setting "$Q/groups/i" subscription new
	wait_until first_is 4
}

@test "a seek back keeps what is still there for completed_retention_seconds" {
	long_ago z
	push "$Q" m{0..3}
	pops "$PG/pop" m{0..3}
	echo 1 >"$PG/cursor"
	clock 100000
	setting "$Q" completed_retention_seconds 10
	wait_until first_is 2
	sweeps
	is "$(first)" 2
	pops "$PG/pop" m2 m3
}

# ---- by size -------------------------------------------------------------------------------

# kilobytes N... - a message of 1,000 bytes in the log for each, beginning with mN.
kilobytes() {
	local n
	for n; do printf 'm%s %*s\n' "$n" $((998 - 1 - ${#n})) . >"$Q/push"; done
}

@test "retention_bytes: oldest first while the partition is larger" {
	start
	queue
	kilobytes {0..9}
	is "$(stat_of "$P/stats" bytes)" 10000
	setting "$Q" retention_bytes 7000
	wait_until first_is 3
	setting "$Q" retention_bytes 6999
	wait_until first_is 4
	is "$(stat_of "$P/stats" bytes)" 6000
	setting "$Q" retention_bytes 3K
	wait_until first_is 7
	is "$(wc -c <"$P/log")" 3000
	kilobytes 10
	wait_until first_is 8 # by itself
}

@test "retention_bytes: the newest segment stays" {
	start
	queue
	kilobytes 0 1 2
	setting "$Q" retention_bytes 1
	wait_until first_is 2
	kilobytes 3
	wait_until first_is 3
	is "$(stat_of "$P/stats" messages)" 1
	seq 1000 | dd of="$Q/push" iflag=fullblock bs=16K status=none
	wait_until first_is 4
	is "$(stat_of "$P/stats" messages)" 1000
	is "$(count "$P/segments")" 1
}

@test "retention_bytes counts each partition by itself, read or not" {
	start
	queue a b
	push "$Q/partitions/a" 1 2 3 4
	push "$Q/partitions/b" 1 2 3 4 5 6
	setting "$Q" retention_bytes 8
	wait_until first_is 2 "$Q/partitions/b"
	setting "$Q" retention_bytes 9
	push "$Q/partitions/b" 7
	wait_until first_is 3 "$Q/partitions/b"
	is "$(first "$Q/partitions/a")" 0
}

@test "all rules hold at once: what any of them takes goes" {
	long_ago z
	push "$Q" m0 m1
	pops "$PG/pop" m0
	clock 30000
	push "$Q" m2 m3 m4
	clock 100000
	setting "$Q" completed_retention_seconds 1h
	wait_until first_is 1
	setting "$Q" retention_seconds 75000
	wait_until first_is 2
	setting "$Q" retention_bytes 6
	wait_until first_is 3
	is "$(cat "$P/log")" $'m3\nm4'
}

# ---- what snapshots hold -------------------------------------------------------------------

# held SETTING VALUE - under this rule the message that was unconsumed in a snapshot stays, and
# so does what came after it; once the snapshot is removed, they go.
held() {
	long_ago z
	push "$Q" m{0..3}
	pops "$PG/pop" m0 m1
	echo end >"$Z/groups/g/cursor"
	clock 30000
	mkdir "$Q/partitions/y"
	push "$Q/partitions/y" y0 y1
	echo end >"$Q/partitions/y/groups/g/cursor"
	echo g >"$Q/snapshots/before"
	push "$Q" m4 m5
	echo end >"$G/cursor"
	clock 100000
	setting "$Q" "$1" "$2"
	wait_until first_is 2
	# y0 and y1 went in that sweep or go in the next, at the latest by their age
	setting "$Q" retention_seconds 60000
	wait_until first_is 2 "$Q/partitions/y"
	is "$(first)" 2
	echo 'snapshot before' >"$G/cursor"
	pops "$PG/pop" m{2..5} ''
	setting "$Q" retention_seconds 0
	setting "$Q" "$1" "$2"
	is "$(first)" 2
	rm "$Q/snapshots/before"
}

@test "a snapshot holds what it needs under retention_seconds, and releases it when removed" {
	held retention_seconds 10
	wait_until first_is 6
}

@test "a snapshot holds what it needs under completed_retention_seconds" {
	held completed_retention_seconds 10
	wait_until first_is 6
}

@test "a snapshot holds what it needs under retention_bytes" {
	held retention_bytes 1
	wait_until first_is 5
	is "$(cat "$P/log")" m5
}

@test "of two snapshots the earlier counts; without it, the later" {
	start
	queue
	push "$Q" m{0..5}
	pops "$G/pop" m0
	echo g >"$Q/snapshots/early"
	pops "$G/pop" m1 m2
	echo g >"$Q/snapshots/late"
	setting "$Q" retention_bytes 1
	wait_until first_is 1
	rm "$Q/snapshots/early"
	wait_until first_is 3
	rm "$Q/snapshots/late"
	wait_until first_is 5
}

# ---- what else it leaves alone -------------------------------------------------------------

@test "dead letters are never touched" {
	start
	queue
	push "$Q" m0 m1
	is "$(handle rw "$G/follow" read 'dlq why')" '[m0\n] ok'
	setting "$Q" retention_seconds 1
	wait_until first_is 2
	is "$(letters) $(cat "$D/default@0")" 'default@0 m0'
	is "$(attribute "$D/default@0" error)" why
	setting "$Q" retention_seconds 0
	mv "$D/default@0" "$Q/push"
	pops "$G/pop" m0
}

@test "rmdir of a group releases only what no other group needs" {
	start
	queue
	mkdir "$Q/groups/h" "$Q/groups/i"
	push "$Q" m{0..3}
	pops "$G/pop" m0 m1 m2
	pops "$Q/groups/h/pop" m0
	setting "$Q" completed_retention_seconds 1
	rmdir "$Q/groups/i"
	wait_until first_is 1
	pops "$Q/groups/h/pop" m1 m2
	wait_until first_is 3
	is "$(cat "$P/log")" m3
}

# ---- what readers see of it ------------------------------------------------------------------

@test "a cursor below the oldest resumes there, and counts what it missed as skipped" {
	start
	queue
	push "$Q" m{0..4}
	pops "$G/pop" m0
	setting "$Q" retention_bytes 6
	wait_until first_is 3
	is "$(cat "$PG/cursor")" 2
	is "$(cat "$G/cursor")" $'2\tdefault'
	pops "$G/pop" m3
	is "$(stat_of "$PG/stats" skipped) $(stat_of "$G/stats" skipped)" '2 2'
	pops "$G/pop" m4 ''
	is "$(stat_of "$PG/stats" skipped)" 2
	local text
	for text in start 2000-01-01; do
		echo "$text" >"$PG/cursor"
		is "$(cat "$PG/cursor")" 2
	done
	is "$(sys write "$PG/cursor" $'1\n')" ERANGE
	printf '0\tdefault\n' >"$G/cursor"
	is "$(cat "$PG/cursor")" 2
}

@test "follow.json shows what a group missed as one gap, once" {
	start
	queue
	push "$Q" m{0..4}
	setting "$Q" retention_bytes 6
	wait_until first_is 3
	is "$(gaps "$G/follow.json")" '{"event":"gap","from":0,"partition":"default","to":2}'
	is "$(stat_of "$PG/stats" skipped)" 3
	is "$(gaps "$G/follow.json")" ''
	wait_until has "$PG/stats" '^lease_pid 0$'
	echo end >"$G/cursor"
	push "$Q" m{5..8}
	wait_until first_is 7
	is "$(gaps "$G/follow.json")" '{"event":"gap","from":5,"partition":"default","to":6}'
}

@test "pop.json shows the gap too; a group made later has missed nothing" {
	start
	queue
	push "$Q" m{0..4}
	pops "$G/pop" m0
	setting "$Q" retention_bytes 6
	wait_until first_is 3
	is "$(gaps "$PG/pop.json")" '{"event":"gap","from":1,"partition":"default","to":2}'
	pops "$G/pop" ''
	is "$(gaps "$G/pop.json")" ''
	mkdir "$Q/groups/h"
	is "$(gaps "$Q/groups/h/follow.json")" ''
	is "$(stat_of "$Q/groups/h/stats" skipped)" 0
}

@test "a read message that retention removes is no gap, and no message is skipped" {
	start
	queue
	push "$Q" m{0..4}
	pops "$G/pop" m0 m1 m2
	setting "$Q" retention_bytes 6
	wait_until first_is 3
	is "$(gaps "$G/pop.json")" ''
	is "$(stat_of "$G/stats" skipped)" 0
}

@test "who holds a message that retention removes acks it, and reads on behind" {
	start
	queue
	push "$Q" m{0..4}
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[m0\n]'
	setting "$Q" retention_bytes 6
	wait_until first_is 3
	is "$(handle fd "$fd" ack read ack)" 'ok [m3\n] ok'
	pops "$G/pop" m4
}

@test "reading a part of an open log that retention has removed: ESTALE, never wrong bytes" {
	start
	mkdir "$Q"
	local i fd
	for i in 0 1 2; do
		perl -e 'printf "%d %097d\n", $ARGV[0], $_ for 1 .. 2000' "$i" |
			dd of="$Q/push" bs=1M iflag=fullblock status=none
	done
	is "$(count "$P/segments")" 3
	exec {fd}<"$P/log"
	setting "$Q" retention_bytes 400000
	wait_until first_is 2000
	is "$(pread "$fd" 0 100)" ESTALE
	is "$(pread "$fd" 100000 100)" ESTALE
	is "$(pread "$fd" 400000 2)" '2 '
	is "$(pread "$fd" 599900 100)" "2 $(printf %097d 2000)"
	is "$(head -c 2 "$P/log")" '1 ' # a new open counts from what is left
	is "$(stat -c %s "$P/log")" 400000
}

@test "tail -f goes on while retention removes the oldest" {
	start
	mkdir "$Q"
	setting "$Q" retention_bytes 1
	push "$Q" 0
	local out=$BATS_TEST_TMPDIR/out i
	spawn tail -s 0.1 -n +1 -f "$P/log" >"$out" 2>&1
	wait_until shows "$out" 0
	for i in 1 2 3 4; do
		push "$Q" "$i"
		wait_until has "$out" "^$i\$"
		wait_until first_is "$i"
	done
	is "$(paste -sd ' ' "$out")" '0 1 2 3 4'
}

@test "a follower gets whole messages in order while retention overtakes it" {
	ini durability=os
	start
	queue
	setting "$Q" retention_bytes 3000
	reader "$BATS_TEST_TMPDIR/out" "$G/follow"
	wait_until waiting 1
	perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		for (1 .. 3000) { syswrite($f, "$_ " . "x" x ($_ % 90) . ".\n") or die $! }' "$Q/push"
	wait_until has "$BATS_TEST_TMPDIR/out" '^3000 '
	perl -ne '/^(\d+) (x*)\.$/ && length $2 == $1 % 90 or die "torn: $_";
		$1 > ($last // 0) or die "$1 after $last\n"; $last = $1' "$BATS_TEST_TMPDIR/out"
	is $(($(wc -l <"$BATS_TEST_TMPDIR/out") + $(stat_of "$PG/stats" skipped))) 3000
}

# ---- first_offset and the file -----------------------------------------------------------------

@test "first_offset only rises, also over kill -9 and a remount" {
	ini durability=os
	start
	queue
	setting "$Q" retention_bytes 20000
	local out=$BATS_TEST_TMPDIR/firsts before
	spawn perl -e '
		my ($stats, $stop) = @ARGV;
		until (-e $stop) {
			open(my $f, "<", $stats) or next;
			/^first_offset (\d+)/ and print "$1\n" for <$f>;
		}
	' "$P/stats" "$out.stop" >"$out"
	PAD=300 writers w 2 300 "$Q/push"
	risen() { [ "$(first)" -gt 100 ]; }
	wait_until risen
	touch "$out.stop"
	sort -nc "$out"
	before=$(first)
	crash
	start
	[ "$(first)" -ge "$before" ]
	before=$(first)
	remount
	[ "$(first)" -ge "$before" ]
	is "$(ls "$P/segments" | head -n 1)" "$(printf %020d "$(first)")"
}

@test "retention survives a remount: settings, what is gone, and sweeping on" {
	start
	queue
	push "$Q" m{0..5}
	setting "$Q" retention_bytes 9
	setting "$Q" completed_retention_seconds 7d
	wait_until first_is 3
	remount
	is "$(cat "$Q/config/retention_bytes") $(cat "$Q/config/completed_retention_seconds")" \
		'9 604800'
	is "$(first) $(paste -sd ' ' "$P/log")" '3 m3 m4 m5'
	push "$Q" m6
	wait_until first_is 4
	crash
	start
	is "$(first)" 4
	push "$Q" m7
	wait_until first_is 5
	pops "$G/pop" m5 m6 m7 ''
}

@test "kill -9 while retention removes: what is left is whole" {
	ini durability=os
	start
	queue
	setting "$Q" retention_bytes 20000
	local round before storm
	far() { [ "$(first)" -gt "$1" ]; }
	swept() { [ "$(stat_of "$P/stats" bytes)" -le 20000 ]; }
	for round in 1 2; do
		PAD=300 spawn writers "w$round" 3 1000000 "$Q/push" 2>/dev/null
		storm=$!
		wait_until far $((round * 300))
		before=$(first)
		crash
		wait "$storm" || true # its writers end when the mount does
		start
		[ "$(first)" -ge "$before" ]
		wait_until swept # it goes on where it was
		is "$(wc -l <"$P/log") $(wc -c <"$P/log")" \
			"$(stat_of "$P/stats" messages) $(stat_of "$P/stats" bytes)"
		is "$(ls "$P/segments" | head -n 1)" "$(printf %020d "$(first)")"
		cat "$P/segments/"* | cmp - "$P/log"
	done
	stop
	is "$(sqlite3 "$S" 'pragma integrity_check')" ok
}

@test "the file shrinks when a quarter is free" {
	ini durability=os
	start
	queue
	local i before
	for i in {1..12}; do
		perl -e 'print "x" x 99, "\n" for 1 .. 10000' |
			dd of="$Q/push" bs=1000000 iflag=fullblock status=none
	done
	remount # so that all is in the file
	before=$(stat -c %s "$S")
	[ "$before" -gt 11000000 ]
	setting "$Q" retention_bytes 1M
	smaller() { [ "$(stat -c %s "$S")" -lt $((before / 2)) ]; }
	wait_until smaller
	wait_until first_is 110000
	is "$(wc -l <"$P/log")" 10000
}
