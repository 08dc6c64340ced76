#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 2 of the contract: file framing and max_message_bytes. And file framing in 3, 4, 9.

load lib

# files - mounts, with queue q in file framing; $A and $B are files of any bytes.
files() {
	start
	queue "$@"
	setting "$Q" framing file
	A=$BATS_TEST_TMPDIR/a
	B=$BATS_TEST_TMPDIR/b
	perl -e 'print map({ chr $_ % 256 } 0 .. 70_000), "\n\n\0\n"' >"$A"
	perl -e 'print "\n\0", map({ chr $_ * 7 % 256 } 0 .. 300_000), "\0"' >"$B"
}

# pops_file FILE PATH... - as many pops give these, to the byte.
pops_file() {
	local path
	for path in "${@:2}"; do cat "$1" | cmp - "$path"; done
}

# ---- push ------------------------------------------------------------------------------

@test "what a process writes up to its close is one message, byte-exact" {
	files
	cat "$A" >"$Q/push"
	cp "$B" "$Q/push"
	dd if="$A" of="$Q/push" bs=777 status=none
	echo text >>"$Q/push"
	is "$(last "$P")" 3
	pops_file "$G/pop" "$A" "$B" "$A" <(echo text) /dev/null
}

@test "two processes on one redirection are two messages, a pipe into one is one" {
	files
	{ cat "$A" && cat "$B"; } >"$Q/push"
	is "$(last "$P")" 1
	{ cat "$A" && cat "$B"; } | cat >"$Q/push"
	is "$(last "$P")" 2
	{ printf 'a\n' && printf b; } >"$Q/push" # one process: the shell
	is "$(last "$P")" 3
	pops_file "$G/pop" "$A" "$B" <(cat "$A" "$B") <(printf 'a\nb')
}

@test "nothing is a message before the close" {
	files
	session "$Q" <<-'END'
		push = Handle(sys.argv[1] + "/push", "w")
		for text in "one\n", "\n", "two": push.write(text)
		is_(os.listdir(sys.argv[1] + "/partitions"), [])
		push.close()
		is_(open(sys.argv[1] + "/partitions/default/log").read(), "one\n\ntwo")
	END
	is "$(last "$P")" 0
}

@test "two processes that share a descriptor write a message each" {
	files
	session "$Q/push" <<-'END'
		push = Handle(sys.argv[1], "w")
		ours, theirs = os.pipe(), os.pipe()
		push.write("p1\n")
		if os.fork() == 0:
		    push.write("c1\n")
		    os.write(theirs[1], b".")
		    os.read(ours[0], 1)
		    push.write("c2")
		    os._exit(0)
		os.read(theirs[0], 1)
		push.write("p2\0")
		os.write(ours[1], b".")
		os.wait()
		push.write("p3")
		push.close()
	END
	is "$(last "$P")" 1
	pops_file "$G/pop" <(printf 'c1\nc2') <(printf 'p1\np2\0p3')
}

@test "a child that closes what it inherited does not end its parent's message" {
	files
	perl -MFcntl -e '
		sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		syswrite($f, "hel");
		system("true");
		unless (fork) { exit }
		wait;
		syswrite($f, "lo");
	' "$Q/push"
	{ printf 'wor' && (true) && /bin/true && printf 'ld'; } >"$Q/push"
	pops "$G/pop" hello world ''
}

@test "an open that writes nothing pushes nothing" {
	files
	: >"$Q/push"
	: >>"$Q/push"
	cat /dev/null >"$Q/push"
	truncate -s 0 "$Q/push"
	is "$(count "$Q/partitions")" 0
}

@test "many writers at once: each file is one message, none is torn" {
	files
	session "$Q" <<-'END'
		import hashlib, random
		for i in range(6):
		    if os.fork(): continue
		    random.seed(i)
		    for n in range(20):
		        push = Handle(sys.argv[1] + "/push", "w")
		        body = random.randbytes(random.choice((1, 100, 5000, 200000)))
		        body = hashlib.md5(body).digest() + body
		        for at in range(0, len(body), 60000): push.write(body[at:at + 60000])
		        push.close()
		    os._exit(0)
		while True:
		    try: assert os.wait()[1] == 0
		    except ChildProcessError: break
		pop = Handle(sys.argv[1] + "/groups/g/pop")
		for n in range(120):
		    message = b"".join(iter(pop.read, b""))
		    assert hashlib.md5(message[16:]).digest() == message[:16], n
		is_(pop.read(), b"")
	END
}

@test "a close that returned is a commit: it survives kill -9 (durability os)" {
	ini durability=os
	files
	cat "$A" >"$Q/push"
	cat "$B" >"$Q/push"
	crash
	start
	pops_file "$G/pop" "$A" "$B" /dev/null
}

@test "push.json: one message a line, and text may hold newlines" {
	files
	is "$(sys write "$Q/push.json" $'{"data":"a\\nb\\n"}\n{"dataBase64":"CgD/Cg=="}\n{"data":[1, "\\n"]}')" ok
	is "$(last "$P")" 2
	pops_file "$G/pop" <(printf 'a\nb\n') <(printf '\n\0\xff\n') <(printf '[1,"\\n"]')
}

# ---- max_message_bytes -------------------------------------------------------------------

@test "past max_message_bytes: EMSGSIZE, nothing of it is stored, and errors says so" {
	files
	is "$(sys fill "$Q/push" 1048577)" EMSGSIZE
	errors_has 'queues/q/push: EMSGSIZE: .*1048576'
	is "$(sys fill "$Q/push" 1048576 x)" EMSGSIZE
	is "$(sys fill "$Q/push" 5000000)" EMSGSIZE
	not cp <(head -c 2000000 /dev/zero) "$Q/push" 2>/dev/null
	is "$(count "$Q/partitions")" 0
	is "$(sys fill "$Q/push" 1048576)" ok
	is "$(stat -c %s "$P/log")" 1048576
	is "$(cat "$G/pop" | wc -c)" 1048576
}

@test "a message that was refused stays so: what its writer goes on to write is no other message" {
	files
	session "$Q/push" <<-'END'
		push = Handle(sys.argv[1], "w")
		answers = [push.refused("x" * 700000) for _ in range(2)]
		answers += [push.refused("the end")]
		try: push.close()
		except OSError as e: answers += [errno.errorcode[e.errno]]
		assert "EMSGSIZE" in answers, answers
	END
	is "$(count "$Q/partitions")" 0
	echo next >"$Q/push"
	is "$(cat "$P/log")" next
}

@test "config/max_message_bytes in line framing: counts from the next write" {
	start
	queue
	setting "$Q" max_message_bytes 10
	is "$(sys write "$Q/push" $'0123456789\n')" ok
	is "$(sys write "$Q/push" $'0123456789+\n')" EMSGSIZE
	errors_has 'queues/q/push: EMSGSIZE: .*10'
	is "$(sys write "$Q/push" $'one\n0123456789+\ntwo\n')" EMSGSIZE # all or none
	is "$(sys write "$Q/push" 01234 56789 $'+\n')" EMSGSIZE
	is "$(sys write "$P/push" 01234 56789 $'\n')" ok
	session "$Q" <<-'END'
		push = Handle(sys.argv[1] + "/push", "w")
		def limit(text):
		    with open(sys.argv[1] + "/config/max_message_bytes", "w") as f: f.write(text)
		limit("4K")
		push.write("a" * 4096 + "\n")
		is_(push.refused("b" * 4097 + "\n"), "EMSGSIZE")
		limit("3")
		is_(push.refused("tail"), "EMSGSIZE")
		push.write("c\n")
	END
	is "$(cut -c 1-12 "$P/log")" $'0123456789\n0123456789\naaaaaaaaaaaa\nc'
}

@test "a larger max_message_bytes takes larger messages, in both framings" {
	files
	setting "$Q" max_message_bytes 8M
	perl -e 'print pack("N*", 0 .. 1_499_999)' >"$A"
	cat "$A" >"$Q/push"
	is "$(count "$P/segments")" 1
	pops_file "$G/pop" "$A"
	cmp "$P/log" "$A"
	cmp "$(segment "$P" 0)" "$A"
	mkdir "$M/queues/lines"
	setting "$M/queues/lines" max_message_bytes 8M
	tr '\n' x <"$A" >"$B"
	echo >>"$B"
	cat "$B" >"$M/queues/lines/push"
	pops_file "$M/queues/lines/pop" "$B" /dev/null
}

# ---- framing, the setting ------------------------------------------------------------------

@test "framing can be changed only while no partition holds messages: EBUSY" {
	start
	queue p
	is "$(cat "$Q/config/framing")" line
	setting "$Q" framing file
	is "$(cat "$Q/config/framing")" file
	setting "$Q" framing line
	printf 'a\nb\n' >"$Q/partitions/p/push"
	is "$(sys write "$Q/config/framing" $'file\n')" EBUSY
	errors_has 'queues/q/config/framing: EBUSY: .'
	is "$(cat "$Q/config/framing")" line
	is "$(sys write "$Q/config/framing" $'line\n')" ok # as it is
	rm "$Q"/partitions/p/segments/*
	setting "$Q" framing file
	printf 'a\nb\n' >"$Q/partitions/p/push"
	is "$(last "$Q/partitions/p")" 2
	is "$(sys write "$Q/config/framing" $'line\n')" EBUSY
	remount
	is "$(cat "$Q/config/framing")" file
	printf 'c\nd\n' >"$Q/push"
	pops_file "$Q/partitions/p/groups/g/pop" <(printf 'a\nb\n') /dev/null
	pops_file "$PG/pop" <(printf 'c\nd\n') /dev/null
}

@test "a framing that is none is refused" {
	start
	queue
	is "$(sys write "$Q/config/framing" $'word\n')" EINVAL
	errors_has 'queues/q/config/framing: EINVAL: .*line.*file'
	is "$(cat "$Q/config/framing")" line
	not test -e "$G/config/framing"
}

# ---- reading ----------------------------------------------------------------------------

@test "pop gives one message, then EOF, whatever batch says" {
	files
	setting "$Q" batch 10
	local text
	for text in $'one\n' two $'\nthree\n\n'; do printf %s "$text" >"$Q/push"; done
	is "$(handle ro "$G/pop" read read read read read:3 read:2 read:100 read read)" \
		'[one\n] [] [two] [] [\nth] [re] [e\n\n] [] []'
	is "$(cat "$PG/cursor")" 2
}

@test "a message of exactly the size of a read is not joined with the next" {
	files
	local size
	for size in 1 4095 4096 4097 131072 1048576; do
		is "$(sys fill "$Q/push" "$size")" ok
		echo next >"$Q/push"
		is "$(cat "$G/pop" | tr -d x | wc -c) $(cat "$Q/pop" | wc -c)" "0 $size"
		is "$(dd if="$G/pop" bs=2M status=none)" next
		is "$(cat "$Q/pop")" next
		is "$(cat "$G/pop")" ''
	done
}

@test "pop read-write: one message, EOF until it is acked, then the next" {
	files
	setting "$Q" batch 10
	printf 'one\n' >"$Q/push"
	printf 'two' >"$Q/push"
	is "$(handle rw "$G/pop" read read ack read read retry read ack read)" \
		'[one\n] [] ok [two] [] ok [two] ok []'
	is "$(cat "$PG/cursor")" 1
}

@test "what was not read to its end goes back whole" {
	files
	cat "$A" >"$Q/push"
	is "$(head -c 3 "$G/pop" | od -An -tx1)" ' 00 01 02'
	wait_until has "$PG/stats" '^lease_pid 0$'
	is "$(cat "$PG/cursor")" -1
	pops_file "$G/pop" "$A"
	is "$(cat "$PG/cursor")" 0
}

@test "plain follow is refused: EINVAL, naming follow.json" {
	files
	echo one >"$Q/push"
	local file
	for file in "$G/follow" "$PG/follow" "$Q/follow"; do
		is "$(sys read "$file")" EINVAL
		handle rw "$file" read 2>&1 | grep -Eq 'EINVAL|Invalid argument' # by open or by read
	done
	errors_has 'groups/g/follow: EINVAL: .*follow\.json'
	pops "$G/pop" one
}

@test "follow.json works, and pop.json: any bytes, newlines in the text" {
	files
	OUT=$BATS_TEST_TMPDIR/out
	printf 'a\nb' >"$Q/push"
	is "$(cat "$G/pop.json" | fields data)" '"a\nb"'
	reader "$OUT" "$G/follow.json"
	wait_until waiting 1
	cat "$A" >"$Q/push"
	printf 'é\n\n' >"$Q/push"
	wait_until has "$OUT" '"offset":2'
	wait_until waiting 1
	is "$(grep '"offset":2' "$OUT" | fields data)" '"é\n\n"'
	grep '"offset":1' "$OUT" | fields dataBase64 | tr -d '"' | base64 -d | cmp - "$A"
}

@test "log and segments show the payloads one after the other, without newlines between" {
	files
	cat "$A" >"$Q/push"
	printf end >"$Q/push"
	cat "$B" >"$Q/push"
	{ cat "$A" && printf end && cat "$B"; } | cmp - "$P/log"
	is "$(stat -c %s "$P/log")" $(($(stat -c %s "$A") + 3 + $(stat -c %s "$B")))
	cmp "$(segment "$P" 0)" "$A"
	is "$(cat "$(segment "$P" 1)")" end
	is "$(stat -c %s "$(segment "$P" 2)")" "$(stat -c %s "$B")"
	is "$(attribute "$(segment "$P" 2)" messages)" 1
	is "$(attribute "$(segment "$P" 2)" end_offset)" 2
	rm "$(segment "$P" 0)"
	{ printf end && cat "$B"; } | cmp - "$P/log"
	remount
	{ printf end && cat "$B"; } | cmp - "$P/log"
}

# ---- dead letters ----------------------------------------------------------------------------

@test "dead letters are byte-exact, and so is what mv pushes again" {
	files p
	cat "$A" >"$Q/partitions/p/push"
	printf 'last\n' >"$Q/partitions/p/push"
	session "$G/pop" <<-'END'
		pop = Handle(sys.argv[1], "rw")
		for i in range(2):
		    while pop.read(): pass
		    pop.write("dlq\n")
	END
	cmp "$D/p@0" "$A"
	is "$(stat -c %s "$D/p@0")" "$(stat -c %s "$A")"
	cmp "$D/p@1" <(printf 'last\n')
	mv "$D/p@1" "$Q/push"
	mv "$D/p@0" "$Q/partitions/p/push"
	is "$(letters)" ''
	pops_file "$G/pop" <(printf 'last\n') "$A" /dev/null
}
