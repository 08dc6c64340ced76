#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 4 of the contract: follow, read-only; waiting, and what ends it.

load lib

# setting DIRECTORY KEY VALUE
setting() { echo "$3" >"$1/config/$2"; }

# python ARGUMENT... - runs the program on stdin, with a limit.
python() { timeout 60 python3 - "$@"; }

# holder OUT FILE [SIZE] - a process, $READER, that reads FILE once and stays.
holder() {
	spawn perl -MFcntl -e '
		sysopen(my $f, $ARGV[0], O_RDONLY) or die $!;
		sysread($f, my $bytes, $ARGV[1]);
		syswrite(STDOUT, $bytes);
		sleep 600;
	' "$2" "${3:-65536}" >"$1"
	READER=$!
}

# sharers COUNT FILE - processes, $READERS, that read one descriptor: each appends what it
# got to $OUT, a line a read: bytes or the name of an errno.
sharers() {
	OUT=$BATS_TEST_TMPDIR/shared
	spawn perl -MFcntl -MErrno -e '
		my ($count, $path, $out) = @ARGV;
		sysopen(my $f, $path, O_RDONLY) or die $!;
		for (1 .. $count) {
			next if fork;
			open(my $to, ">>", $out) or die $!;
			my $n = sysread($f, my $bytes, 65536);
			($bytes) = grep { $!{$_} } sort keys %! unless defined $n;
			chomp $bytes;
			syswrite($to, "$bytes\n");
			exit;
		}
		1 while wait() > 0;
	' "$1" "$2" "$OUT"
	READERS=$!
}


# ---- waiting --------------------------------------------------------------------------

@test "follow waits, and wakes on a push to any partition of the group" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue a b
	reader "$OUT" "$G/follow"
	wait_until waiting 1
	push "$Q/partitions/b" b1
	wait_until shows "$OUT" b1
	wait_until waiting 1
	push "$Q/partitions/a" a1
	wait_until shows "$OUT" $'b1\na1'
	wait_until waiting 1
	push "$Q" d1 # to a partition that is made by it
	wait_until shows "$OUT" $'b1\na1\nd1'
}

@test "a partition's follow waits for that partition only" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue a b
	reader "$OUT" "$Q/partitions/a/groups/g/follow"
	wait_until waiting 1
	push "$Q/partitions/b" b1
	pops "$G/pop" b1
	push "$Q/partitions/a" a1
	wait_until shows "$OUT" a1
}

@test "a queue's follow reads as group default, made by its first open" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	reader "$OUT" "$Q/follow"
	wait_until waiting 1 "$Q/groups/default/stats"
	push "$Q" 1
	wait_until shows "$OUT" 1
}

@test "O_NONBLOCK and nothing there: EAGAIN; it is taken from each read" {
	start
	queue p
	local file
	for file in "$G/follow" "$Q/follow" "$Q/partitions/p/groups/g/follow"; do
		is "$(handle ro+ "$file" read read)" '[EAGAIN] [EAGAIN]'
		is "$(handle rw+ "$file" read read)" '[EAGAIN] [EAGAIN]'
	done
	push "$Q" 1 2
	is "$(handle ro "$G/follow" read + read read)" '[1\n2\n] [EAGAIN] [EAGAIN]'
	not grep -q EAGAIN "$M/errors"
}

@test "O_NONBLOCK and a message there: it is returned, read-write too" {
	start
	queue
	spawn perl -MFcntl -e '
		sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		syswrite($f, "x\n") while !-e $ARGV[1];
	' "$Q/push" "$BATS_TEST_TMPDIR/stop" # somebody else commits all the time
	local pusher=$!
	pop_found "$Q/pop" || wait_until pop_found "$Q/pop"
	python "$G/follow" <<-'END'
		import os, select, sys
		fd = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)
		poll = select.poll()
		poll.register(fd, select.POLLIN)
		for i in range(100):
		    assert poll.poll(20000), f"{i}: not readable"
		    assert os.read(fd, 100) == b"x\n"
		    os.write(fd, b"ack\n")
	END
	touch "$BATS_TEST_TMPDIR/stop"
	wait "$pusher"
}

@test "two processes that share a descriptor may both wait: each read gets an answer" {
	start
	queue
	sharers 2 "$G/follow"
	wait_until waiting '[1-9]'
	push "$Q" 1
	wait_until has "$OUT" '^1$'
	push "$Q" 2
	wait_until has "$OUT" '^2$'
	wait "$READERS"
}

@test "two processes that share a descriptor may both wait when the mount ends" {
	start
	queue
	sharers 3 "$G/follow"
	wait_until waiting '[1-9]'
	push "$Q" 1
	wait_until has "$OUT" '^1$'
	kill -TERM "$PID"
	wait_until gone
	wait "$READERS"
	is "$(sort "$OUT")" $'1\nENOTCONN\nENOTCONN'
	wait "$PID"
	PID=
}

@test "processes that share a descriptor of pop: each message once and whole" {
	start
	queue a b
	echo 5 >"$G/config/batch"
	seq -f 'a%.0f' 500 >"$Q/partitions/a/push"
	seq -f 'b%.0f' 500 >"$Q/partitions/b/push"
	OUT=$BATS_TEST_TMPDIR/out
	timeout 120 perl -MFcntl -e '
		sysopen(my $f, $ARGV[0], O_RDONLY) or die $!;
		for my $i (1 .. 6) {
			next if fork;
			open(my $to, ">", "$ARGV[1].$i") or die $!;
			my $ends = 0;
			while ($ends < 3) {
				my $n = sysread($f, my $bytes, 4096) // die $!;
				$ends = $n ? 0 : $ends + 1;
				syswrite($to, $bytes);
			}
			exit;
		}
		1 while wait() > 0;
	' "$G/pop" "$OUT"
	is "$(sort "$OUT".?)" "$(printf '%s\n' {a,b}{1..500} | sort)"
}

# ---- poll -----------------------------------------------------------------------------

# polls PROGRAM - python with path (of follow), push(text), and ready(fd, ms) by each of
# poll, select and epoll.
polls() {
	local how
	for how in poll select epoll; do
		mkdir "$Q/groups/$how"
		{
			cat <<-'END'
				import os, select, sys, threading
				queue, how = sys.argv[1:]
				path = f"{queue}/groups/{how}/follow"
				def push(text, partition=None):
				    below = f"/partitions/{partition}" if partition else ""
				    with open(queue + below + "/push", "w") as f:
				        f.write(text)
				def ready(fd, ms):
				    if how == "select":
				        return bool(select.select([fd], [], [], ms / 1000)[0])
				    poll = select.poll() if how == "poll" else select.epoll()
				    poll.register(fd, select.POLLIN)
				    return bool(poll.poll(ms if how == "poll" else ms / 1000))
				def later(*what):
				    threading.Timer(0.05, push, what).start()
			END
			echo "$1"
		} | python "$Q" "$how"
	done
}

@test "poll, select and epoll say readable only when a read would not wait" {
	start
	queue
	polls '
fd = os.open(path, os.O_RDONLY)
while ready(fd, 0): os.read(fd, 100)
for text in b"1\n", b"2\n":
    push(text.decode())
    assert ready(fd, 0), text
    assert os.read(fd, 100) == text
    assert not ready(fd, 0)
'
}

@test "poll, select and epoll wake on a push" {
	start
	queue p
	polls '
fd = os.open(path, os.O_RDONLY)
while ready(fd, 0): os.read(fd, 100)
for i in range(3):
    later("1\n", "p" if i else None)
    assert ready(fd, 20000), f"push {i}"
    assert os.read(fd, 100) == b"1\n"
    later("2\n")     # the reader still holds what it has read
    assert ready(fd, 20000), f"second push {i}"
    while ready(fd, 0): os.read(fd, 100)
'
}

@test "poll says readable while there is more of what a small read has begun or left" {
	start
	queue
	polls '
fd = os.open(path, os.O_RDONLY)
while ready(fd, 0): os.read(fd, 100)
push("abc\ndef\n")
text = b""
while not text.endswith(b"abc\ndef\n"):
    assert ready(fd, 1000), text
    text += os.read(fd, 1)
assert not ready(fd, 0)
'
}

# ---- signals --------------------------------------------------------------------------

@test "a signal ends a waiting read with EINTR and consumes nothing" {
	start
	queue
	spawn perl -MFcntl -MErrno -MPOSIX -e '
		$SIG{USR1} = sub { };
		sysopen(my $f, $ARGV[0], O_RDONLY) or die $!;
		my $n = sysread($f, my $b, 4096);
		print defined $n ? $b : $!{EINTR} ? "EINTR" : $!;
	' "$G/follow" >"$BATS_TEST_TMPDIR/out"
	local reader=$!
	wait_until waiting 1
	kill -USR1 "$reader"
	wait "$reader"
	is "$(cat "$BATS_TEST_TMPDIR/out")" EINTR
	push "$Q" 1
	pops "$G/pop" 1 ''
}

@test "a signal handler of Python that raises ends a waiting read" {
	start
	queue
	python "$G/follow" <<-'END'
		import signal, sys
		def ring(*_): raise TimeoutError
		signal.signal(signal.SIGALRM, ring)
		signal.setitimer(signal.ITIMER_REAL, 0.2)
		try:
		    open(sys.argv[1], "rb", buffering=0).read(4096)
		    sys.exit("it returned")
		except TimeoutError:
		    pass
	END
	push "$Q" 1
	pops_soon "$G/pop" 1
}

@test "cat waits on after a stop and continue" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	reader "$OUT" "$G/follow"
	wait_until waiting 1
	kill -STOP "$READER"
	kill -CONT "$READER"
	push "$Q" 1
	wait_until shows "$OUT" 1
}

@test "kill -9 of a waiting reader consumes nothing; the next message goes to another" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	reader "$OUT" "$G/follow"
	wait_until waiting 1
	local first=$READER
	reader "$OUT.2" "$G/follow"
	wait_until waiting 2
	kill -9 "$first"
	wait "$first" || true
	push "$Q" 1
	wait_until shows "$OUT.2" 1
	is "$(cat "$OUT")" ''
}

@test "SIGTERM of the daemon: waiting reads end with ENOTCONN, what was acked is committed" {
	start
	queue
	push "$Q" 1 2
	spawn perl -MFcntl -MErrno -e '
		sysopen(my $f, $ARGV[0], O_RDONLY) or die $!;
		my $n;
		1 while $n = sysread($f, my $b, 4096);
		print defined $n ? "end" : $!{ENOTCONN} ? "ENOTCONN" : $!;
	' "$G/follow" >"$BATS_TEST_TMPDIR/out"
	local reader=$!
	wait_until shows "$PG/cursor" 1
	wait_until waiting 1
	kill -TERM "$PID"
	wait "$PID"
	PID=
	wait "$reader"
	is "$(cat "$BATS_TEST_TMPDIR/out")" ENOTCONN
	start
	is "$(cat "$PG/cursor")" 1
}

# ---- what reading acks ------------------------------------------------------------------

@test "the read that asks for more acks all that was returned before" {
	start
	queue
	push "$Q" 1 2 3
	local fd
	exec {fd}<"$G/follow"
	read -r -u "$fd" REPLY
	is "$REPLY $(cat "$PG/cursor")" '1 -1'
	read -r -u "$fd" REPLY
	is "$REPLY $(cat "$PG/cursor")" '2 0'
	exec {fd}<&-
	pops_soon "$G/pop" 2
	pops "$G/pop" 3 ''
}

@test "a killed reader: what it had comes back in order, one message at a time" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	push "$Q" 1 2 3
	holder "$OUT" "$G/follow"
	wait_until shows "$OUT" $'1\n2\n3'
	push "$Q" 4 5
	kill -9 "$READER"
	is "$(handle ro "$G/follow" read read read read)" '[1\n] [2\n] [3\n] [4\n5\n]'
}

@test "a loop of bash's read works: what its body did not finish comes back" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	push "$Q" 1 2 3
	# shellcheck disable=SC2016
	spawn bash -c '
		while read -r line; do
			[ "$line" != 2 ] || kill -9 $$
			echo "$line" >>"$1"
		done <"$2"' - "$OUT" "$G/follow"
	wait $! || true
	is "$(cat "$OUT")" 1
	is "$(handle ro "$G/follow" read read)" '[2\n] [3\n]'
}

@test "a message longer than a read comes in pieces; acked by the read after its last" {
	start
	queue
	push "$Q" abcdefgh next
	local fd
	exec {fd}<"$G/follow"
	is "$(handle fd "$fd" read:5 read:5)" '[abcde] [fgh\n]'
	is "$(cat "$PG/cursor")" -1
	is "$(handle fd "$fd" read:5)" '[next\n]'
	is "$(cat "$PG/cursor")" 0
	exec {fd}<&-
	pops_soon "$G/pop" next
}

@test "a reader killed in the middle of a message: it comes back whole" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	push "$Q" hello
	holder "$OUT" "$G/follow" 3
	wait_until shows "$OUT" hel
	kill -9 "$READER"
	is "$(handle ro "$G/follow" read)" '[hello\n]'
}

@test "a large read takes several partitions" {
	start
	queue a b c
	push "$Q/partitions/a" a1 a2
	push "$Q/partitions/b" b1 b2
	push "$Q/partitions/c" c1 c2
	is "$(handle ro "$G/follow" read)" '[a1\na2\nb1\nb2\nc1\nc2\n]'
}

@test "with another member waiting a read takes one partition only" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue a b z
	reader "$OUT" "$Q/partitions/z/groups/g/follow"
	wait_until waiting 1
	push "$Q/partitions/a" a1 a2
	push "$Q/partitions/b" b1 b2
	is "$(handle ro "$G/follow" read read)" '[a1\na2\n] [b1\nb2\n]'
}

@test "config/prefetch bounds what a read takes" {
	start
	queue a b
	setting "$G" prefetch 3
	push "$Q/partitions/a" a1 a2
	push "$Q/partitions/b" b1 b2 b3
	is "$(handle ro "$G/follow" read read)" '[a1\na2\nb1\n] [b2\nb3\n]'
	mkdir "$Q/groups/h"
	setting "$Q/groups/h" prefetch 1
	is "$(handle ro "$Q/groups/h/follow" read read read)" '[a1\n] [b1\n] [a2\n]'
}

@test "two groups never affect each other" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	mkdir "$Q/groups/h"
	reader "$OUT.g" "$G/follow"
	reader "$OUT.h" "$Q/groups/h/follow"
	wait_until waiting 1
	wait_until waiting 1 "$Q/groups/h/stats"
	push "$Q" 1 2 3
	wait_until shows "$OUT.g" $'1\n2\n3'
	wait_until shows "$OUT.h" $'1\n2\n3'
}

@test "two followers of one group share its partitions" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue a b
	reader "$OUT.1" "$G/follow"
	reader "$OUT.2" "$G/follow"
	wait_until waiting 2
	echo 2 >"$Q/config/spread"
	printf '%s\n' one two >"$Q/push" # both at once, to two partitions
	both() { [ -s "$OUT.1" ] && [ -s "$OUT.2" ]; }
	wait_until both
	is "$(sort "$OUT.1" "$OUT.2")" $'one\ntwo'
}

@test "eight followers get each of 1000 messages exactly once, partitions in order" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue a b c d
	local i p
	for i in {1..8}; do reader "$OUT.$i" "$G/follow"; done
	wait_until waiting 8
	for i in {0..9}; do
		for p in a b c d; do
			seq -f "$p %03.0f" $((i * 25 + 1)) $((i * 25 + 25)) >"$Q/partitions/$p/push"
		done
	done
	all_there() { [ "$(cat "$OUT".? | wc -l)" -ge 1000 ]; }
	wait_until all_there
	is "$(sort "$OUT".?)" "$(printf '%s\n' {a..d}' '{001..250})"
	for i in {1..8}; do
		for p in a b c d; do grep "^$p" "$OUT.$i" | sort -c; done
	done
}

# ---- what else wakes ----------------------------------------------------------------------

@test "a waiting read wakes on a seek" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	push "$Q" 1 2
	reader "$OUT" "$G/follow"
	wait_until shows "$PG/cursor" 1
	wait_until waiting 1
	echo start >"$G/cursor"
	wait_until shows "$OUT" $'1\n2\n1\n2'
	wait_until waiting 1
	echo 0 >"$PG/cursor"
	wait_until shows "$OUT" $'1\n2\n1\n2\n2'
}

@test "a waiting read wakes when another reader lets go" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	push "$Q" 1
	holder "$OUT.1" "$G/follow"
	wait_until shows "$OUT.1" 1
	local first=$READER
	reader "$OUT" "$G/follow"
	wait_until waiting 1
	kill -9 "$first"
	wait_until shows "$OUT" 1
}

@test "a waiting read wakes when another reader's lease ends" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	setting "$G" lease_seconds 1
	push "$Q" 1
	holder "$OUT.1" "$G/follow"
	wait_until shows "$OUT.1" 1
	reader "$OUT" "$G/follow"
	wait_until shows "$OUT" 1
}

@test "poll wakes on a seek, on a released lease and on one that ends" {
	start
	queue
	push "$Q" 1
	python "$G" <<-'END'
		import os, select, sys, threading
		group = sys.argv[1]
		def write(file, text):
		    with open(f"{group}/{file}", "w") as f:
		        f.write(text)
		def ready(fd, ms=20000):
		    poll = select.poll()
		    poll.register(fd, select.POLLIN)
		    return bool(poll.poll(ms))
		holder = os.open(group + "/follow", os.O_RDWR)
		other = os.open(group + "/follow", os.O_RDONLY)
		assert os.read(holder, 100) == b"1\n"
		assert not ready(other, 0)
		threading.Timer(0.05, write, ("cursor", "start\n")).start()
		assert ready(other), "seek"
		assert os.read(holder, 100) == b"1\n"
		assert not ready(other, 0)
		threading.Timer(0.05, os.close, (holder,)).start()
		assert ready(other), "release"
		write("config/lease_seconds", "1\n")
		holder = os.open(group + "/follow", os.O_RDWR)
		assert os.read(holder, 100) == b"1\n"
		assert ready(other), "lease"
	END
}

# ---- others are not in the way ----------------------------------------------------------

@test "250 waiting readers hold up neither ls nor push nor pop" {
	start
	queue
	mkdir "$Q/groups/h"
	spawn perl -MFcntl -e '
		for (1 .. 250) {
			next if fork;
			sysopen(my $f, $ARGV[0], O_RDONLY) or die $!;
			1 while sysread($f, my $b, 4096);
			exit;
		}
		1 while wait() > 0;
	' "$G/follow"
	local readers=$!
	wait_until waiting 250
	timeout 30 ls -R "$Q" >/dev/null
	timeout 30 bash -c "echo 1 >'$Q/push'"
	is "$(timeout 30 cat "$Q/groups/h/pop")" 1
	wait_until shows "$PG/cursor" 0
	wait_until waiting 250
	kill -TERM "$PID"
	wait "$PID"
	PID=
	wait "$readers"
}

# ---- what is refused ----------------------------------------------------------------------

@test "while somebody reads, its group, partition and queue cannot be removed: EBUSY" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue p
	reader "$OUT" "$Q/partitions/p/groups/g/follow"
	wait_until waiting 1
	is "$(sys rmdir "$G")" EBUSY
	is "$(sys rmdir "$Q/partitions/p")" EBUSY
	kill "$READER"
	wait_until rmdir "$Q/partitions/p" 2>/dev/null
	reader "$OUT" "$G/follow"
	wait_until waiting 1
	is "$(sys rmdir "$G")" EBUSY
	is "$(sys rmdir "$Q")" EBUSY
	errors_has 'queues/q: EBUSY: .'
	kill "$READER"
	wait_until rmdir "$G" 2>/dev/null
	rmdir "$Q"
}

@test "write-only opens of follow: EACCES, naming the read-write way" {
	start
	queue
	push "$Q" 1
	local file
	for file in "$G/follow" "$PG/follow" "$Q/follow"; do
		is "$(sys open "$file" O_WRONLY)" EACCES
		not dd if=/dev/null of="$file" conv=notrunc 2>/dev/null
	done
	errors_has 'groups/g/follow: EACCES: .*read-write'
	pops "$G/pop" 1
}

@test "opens of follow with O_NOFOLLOW are refused, its type is FIFO, it has no size" {
	start
	queue
	push "$Q" 1
	local file
	for file in "$G/follow" "$PG/follow" "$Q/follow"; do
		is "$(sys open "$file" 'O_RDONLY|O_NOFOLLOW')" EPERM
		is "$(stat -c %s "$file")" 0
	done
	is "$(sys lseek "$G/follow")" ESPIPE
	is "$(find "$Q" -type p -name follow | wc -l)" 3
	is "$(find "$Q" -type f -name follow | wc -l)" 0
}

@test "a seek in the middle of a message: it is finished whole, then the seek counts" {
	start
	queue
	push "$Q" hello other last
	local fd
	exec {fd}<"$G/follow"
	is "$(handle fd "$fd" read:3)" '[hel]'
	echo 1 >"$PG/cursor"
	is "$(handle fd "$fd" read:3 read:100)" '[lo\n] [last\n]'
	is "$(cat "$PG/cursor")" 1
}
