#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What a program that means no good, or knows no better, does to a mount: the right errno and
# its line in errors, no hang, and memory and descriptors of the daemon as before.

load lib

# The long form: HOSTILE=long.
long() { [ "${HOSTILE:-}" = long ]; }

# hostile ARGUMENT... - the python on stdin as in session, in the mount, with more words:
#   tried(function)   what it returns, or the name of its errno
#   table(rows)       rows of (what, wanted, function): says all that come to something else
#   opened(path, flags, function)   function(fd), and closes it
#   system(name, argument...)   a call of libc
hostile() {
	local program
	program=$(cat)
	(cd "$M" && timeout 250 python3 -c "$JSON_PRELUDE
import ctypes, fcntl, mmap, os, socket, stat, struct
libc = ctypes.CDLL(None, use_errno=True)

def tried(function):
    try: return function()
    except OSError as e: return errno.errorcode[e.errno]

def table(rows):
    wrong = []
    for what, wanted, function in rows:
        got = tried(function)
        if got != wanted and not (isinstance(wanted, tuple) and got in wanted):
            wrong.append(f'{what}: {got!r}, not {wanted!r}')
    if wrong: sys.exit('\n'.join(wrong))

def opened(path, flags, function):
    fd = os.open(path, flags)
    try: return function(fd)
    finally: os.close(fd)

def system(name, *arguments):
    got = getattr(libc, name)(*arguments)
    if got < 0: raise OSError(ctypes.get_errno(), name)
    return got
$program" "$@")
}

# memory - of the daemon, resident, in kB; descriptors - how many it has open.
memory() { awk '/^VmRSS/ { print $2 }' "/proc/$PID/status"; }
descriptors() { find "/proc/$PID/fd" -mindepth 1 | wc -l; }

# steady KB COMMAND... - run a second and third time it takes no more memory than KB, which is
# what allocators and caches may still find to keep, and leaves no descriptor.
steady() {
	local before files
	"${@:2}"
	"${@:2}"
	before=$(memory) files=$(descriptors)
	"${@:2}"
	if [ -z "${QUEENFS_SANITIZE:-}" ] && (($(memory) > before + $1)); then
		echo "memory rose from $before to $(memory) kB" && return 1
	fi
	is "$(descriptors)" "$files"
}

# one_line_each - each line of errors is as section 1 says, and is text.
one_line_each() {
	python3 - "$M/errors" <<-'EOF'
		import re, sys, unicodedata
		for line in open(sys.argv[1], "rb").read().decode().split("\n")[:-1]:
		    if not re.fullmatch(r"[-0-9]{10}T[0-9:.]{15}Z \d+ \d+ .*: E[A-Z0-9]+: .+", line) or \
		       any(unicodedata.category(c) == "Cc" for c in line):
		        sys.exit(repr(line))
	EOF
}

# ---- names ---------------------------------------------------------------------------

@test "names of every kind: what is allowed is made and listed, the rest is EINVAL" {
	start
	hostile <<-'EOF'
		def allowed(name):
		    try: text = name.decode()
		    except UnicodeDecodeError: return False
		    return not (text.startswith(".") or text == "*" or
		                any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text))
		names = [bytes([b]) for b in range(1, 256) if b not in (0x2e, 0x2f)]
		names += [b"a" + bytes([b]) + b"z" for b in range(1, 256) if b != 0x2f]
		names += [bytes([b, c]) for b in range(0xc0, 0xe0) for c in (0x7f, 0x80, 0x9f, 0xa0, 0xbf, 0xc0)]
		names += [b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xed\xa0\x80",
		    b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80",
		    b"\xf8\x88\x80\x80\x80", b"\xef\xbf\xbe", b"\xe2\x80\xae", b"\xe2\x28\xa1", b"x\xe2\x82",
		    b"...", b".x", b"*x", b"**", b"-rf", b" ", b"~", b"\\", b"%n%s", b"$(id)", b"`id`"]
		made = []
		for name in dict.fromkeys(names):
		    got = tried(lambda: os.mkdir(b"queues/" + name))
		    if got != (None if allowed(name) else "EINVAL"): sys.exit(f"{name!r}: {got}")
		    if got is None: made.append(name)
		is_(sorted(os.listdir(b"queues")), sorted(made))
		is_(tried(lambda: os.mkdir("queues/.")), "EEXIST")
		is_(tried(lambda: os.mkdir("queues/..")), "EEXIST")
		for size, wanted in (1, "EEXIST"), (200, None), (201, "ENAMETOOLONG"), (255, "ENAMETOOLONG"), (256, "ENAMETOOLONG"), (5000, "ENAMETOOLONG"):
		    is_((size, tried(lambda: os.mkdir("queues/" + "x" * size))), (size, wanted))
		is_(tried(lambda: os.mkdir("queues/" + "\u20ac" * 67)), "ENAMETOOLONG")
		for name in os.listdir(b"queues"): os.rmdir(b"queues/" + name)
	EOF
	errors_has 'ENAMETOOLONG: 201 bytes long'
	one_line_each
}

@test "what has no name in errors forges none: a line stays a line" {
	start
	not mkdir "$M/queues/"$'x\n2026-01-01T00:00:00.000000Z 0 1 forged: EIO: no'
	not mkdir "$M/queues/"$'\e[2J\x7f\xc2\x9b'
	is "$(wc -l <"$M/errors")" 2
	one_line_each
}

# ---- many ----------------------------------------------------------------------------

open_and_close() {
	hostile "$1" <<-'EOF'
		paths = [("queues/q/push", os.O_WRONLY), ("queues/q/push.json", os.O_RDWR),
		    ("queues/q/partitions/default/log", os.O_RDONLY), ("queues/q/groups/g/pop", os.O_RDWR),
		    ("queues/q/groups/g/follow.json", os.O_RDONLY), ("queues/q/groups/g/cursor", os.O_RDWR),
		    ("queues/q/config/batch", os.O_RDWR), ("queues/q/stats", os.O_RDONLY), ("errors", os.O_RDONLY)]
		for i in range(int(sys.argv[1])):
		    os.close(os.open(*paths[i % len(paths)]))
	EOF
}

@test "opens and closes leave nothing behind" {
	start
	queue
	push "$Q" message
	if long; then steady 4096 open_and_close 100000; else steady 4096 open_and_close 4500; fi
	pops "$G/pop" message
}

half_lines() {
	hostile <<-'EOF'
		import resource
		resource.setrlimit(resource.RLIMIT_NOFILE, (1100, 1100))
		fds = [os.open("queues/q/push", os.O_WRONLY) for _ in range(1000)]
		for i, fd in enumerate(fds): os.write(fd, b"%d " % i + b"x" * 1000)
		is_(os.stat("queues/q/partitions/default/log").st_size, int(sys.argv[1]) if len(sys.argv) > 1 else
		    os.stat("queues/q/partitions/default/log").st_size)
		for fd in fds[:500]: os.write(fd, b" done\n")
		for fd in fds: os.close(fd)
	EOF
}

@test "a thousand handles with half a line each: none mixes, all become messages" {
	start
	queue default
	steady 8192 half_lines
	perl -ne '/^(\d+) x{1000}( done)?\n\z/ && !$2 == ($1 >= 500) or die; $n[$1]++;
		END { die for grep { $_ != 3 } @n[0 .. 999]; die if @n != 1000 }' "$P/log"
}

# ---- large ---------------------------------------------------------------------------

big_messages() {
	hostile <<-'EOF'
		size = 64 << 20
		block = os.urandom(1 << 20)
		with open("queues/q/push", "wb", buffering=0) as f:
		    for _ in range(64):
		        rest = block
		        while rest: rest = rest[f.write(rest):]
		with open("queues/q/groups/g/pop", "rb", buffering=0) as f:
		    seen = 0
		    while part := f.read(1 << 20):
		        at = seen % len(block)
		        if part != (block + block)[at:at + len(part)]: sys.exit(f"other bytes at {seen}")
		        seen += len(part)
		is_(seen, size)
		def too_long():
		    fd = os.open("queues/q/push", os.O_WRONLY)
		    try:
		        for _ in range(65):
		            rest = block
		            while rest: rest = rest[os.write(fd, rest):]
		    finally: os.close(fd)
		is_(tried(too_long), "EMSGSIZE")
		is_(open("queues/q/groups/g/pop", "rb").read(), b"")
	EOF
	rm "$P/segments/"*
}

@test "a message of 64 MiB comes back as it went, one byte more is EMSGSIZE" {
	start
	queue default
	setting "$Q" framing file
	setting "$Q" max_message_bytes 64M
	if long; then steady 8192 big_messages; else big_messages; fi
	errors_has 'EMSGSIZE: .*67108864'
}

@test "a million empty lines are a million empty messages" {
	start
	queue default
	setting "$G" batch 1000000
	hostile <<-'EOF'
		with open("queues/q/push", "wb", buffering=0) as f:
		    rest = b"\n" * 1000000
		    while rest: rest = rest[f.write(rest):]
	EOF
	is "$(stat -c %s "$P/log")" 1000000
	is "$(tr -d '\n' <"$P/log" | wc -c)" 0
	is "$(stat_of "$P/stats" last_offset)" 999999
	is "$(wc -l <"$G/pop")" 1000000
	is "$(wc -c <"$G/pop")" 0
	is "$(cat "$PG/cursor")" 999999
}

refusals() {
	hostile <<-'EOF'
		fd = os.open("errors", os.O_RDONLY)
		for i in range(6000):
		    try: os.mkdir("queues/." + "x" * 190)
		    except OSError: pass
		    if i % 200 == 0: os.lseek(fd, 0, os.SEEK_END)
		end = os.lseek(fd, 0, os.SEEK_END)
		assert end > 1 << 20, end # it only grows, whatever is kept
		is_(tried(lambda: os.pread(fd, 10, 0)), "ESTALE")
		assert os.pread(fd, 1 << 16, end - 300).endswith(b"\n")
	EOF
}

@test "an open errors file costs no more than a megabyte, however much is refused" {
	start
	steady 2048 refusals
}

# ---- odd system calls -----------------------------------------------------------------

@test "lseek, pread and pwrite where no byte is" {
	start
	queue
	push "$Q" a b c
	hostile <<-'EOF'
		log, push, pop, stats = ("queues/q/partitions/default/log", "queues/q/push",
		    "queues/q/groups/g/pop", "queues/q/stats")
		R, W, RW = os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_NONBLOCK
		seek = lambda path, flags, to, whence: lambda: opened(path, flags, lambda fd: os.lseek(fd, to, whence))
		pread = lambda path, flags, size, at: lambda: opened(path, flags, lambda fd: os.pread(fd, size, at))
		table([
		    ("log end", 6, seek(log, R, 0, os.SEEK_END)),
		    ("log far", 1 << 62, seek(log, R, 1 << 62, os.SEEK_SET)),
		    ("log -1", "EINVAL", seek(log, R, -1, os.SEEK_SET)),
		    ("log data", 0, seek(log, R, 0, os.SEEK_DATA)),
		    ("log hole", 6, seek(log, R, 0, os.SEEK_HOLE)),
		    ("log middle", b"\nc\n", pread(log, R, 10, 3)),
		    ("log at the end", b"", pread(log, R, 10, 6)),
		    ("log past it", b"", pread(log, R, 10, 1 << 40)),
		    ("log at the end of numbers", b"", pread(log, R, 5, 2 ** 63 - 10)),
		    ("stats past its end", b"", pread(stats, R, 5, 1 << 40)),
		    ("push", "ESPIPE", seek(push, W, 0, os.SEEK_CUR)),
		    ("pop", "ESPIPE", seek(pop, RW, 0, os.SEEK_END)),
		    ("pop pread", "ESPIPE", pread(pop, RW, 5, 0)),
		    ("pwrite", "ESPIPE", lambda: opened(push, W, lambda fd: os.pwrite(fd, b"x\n", 7 << 30))),
		])
	EOF
	pops "$G/pop" a b c
}

@test "mmap shows a log as it is, or is refused; nothing is mapped to be written" {
	start
	queue
	push "$Q" a b c
	hostile <<-'EOF'
		def mapped(path, flags, how, protection):
		    def map_it(fd):
		        try: return bytes(mmap.mmap(fd, 6, how, protection)[:6])
		        except ValueError: return "ENODEV" # what says it has no bytes
		    return lambda: opened(path, flags, map_it)
		log = "queues/q/partitions/default/log"
		table([
		    ("private", (b"a\nb\nc\n", "ENODEV"), mapped(log, os.O_RDONLY, mmap.MAP_PRIVATE, mmap.PROT_READ)),
		    ("shared", (b"a\nb\nc\n", "ENODEV"), mapped(log, os.O_RDONLY, mmap.MAP_SHARED, mmap.PROT_READ)),
		    ("shared to write", "EACCES", mapped(log, os.O_RDONLY, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)),
		    ("pop", "ENODEV", mapped("queues/q/groups/g/pop", os.O_RDWR, mmap.MAP_SHARED, mmap.PROT_READ)),
		])
	EOF
	pops "$G/pop" a b c
}

@test "copy_file_range, sendfile and splice move messages, or say they cannot" {
	start
	queue
	push "$Q" a b c
	printf 'x\ny\n' >"$BATS_TEST_TMPDIR/from"
	hostile "$BATS_TEST_TMPDIR" <<-'EOF'
		log, push, pop = "queues/q/partitions/default/log", "queues/q/push", "queues/q/groups/g/pop"
		to, origin = sys.argv[1] + "/to", sys.argv[1] + "/from"
		W = os.O_WRONLY | os.O_CREAT
		def both(a, b, function):
		    return lambda: opened(a, os.O_RDONLY, lambda x: opened(b, W if b == to else os.O_WRONLY, lambda y: function(x, y)))
		copy = lambda x, y: os.copy_file_range(x, y, 100)
		send = lambda x, y: os.sendfile(y, x, 0, 100)
		def splice(source, target, size):
		    r, w = os.pipe()
		    try:
		        got = libc.splice(source, None, w, None, size, 0)
		        if got < 0: raise OSError(ctypes.get_errno(), "splice")
		        if got and libc.splice(r, None, target, None, got, 0) != got: raise OSError(ctypes.get_errno(), "splice")
		        return got
		    finally: os.close(r); os.close(w)
		table([
		    ("copy_file_range in", ("EXDEV", 4), both(origin, push, copy)),
		    ("copy_file_range out", ("EXDEV", 6), both(log, to, copy)),
		    ("sendfile in", 4, both(origin, push, send)),
		    ("sendfile out", 10, both(log, to, send)),
		    ("splice in", 4, both(origin, push, lambda x, y: splice(x, y, 100))),
		    ("splice out", 14, both(log, to, lambda x, y: splice(x, y, 100))),
		    # The kernel goes by the size, which a pop does not have: it gives and takes nothing.
		    ("splice of a pop", (0, 2), both(pop, to, lambda x, y: splice(x, y, 100))),
		])
	EOF
	is "$(paste -sd ' ' "$P/log")" "a b c x y x y"
	is "$(tail -n 1 "$BATS_TEST_TMPDIR/to"; cat "$G/pop")" $'y\na'
	pops "$G/pop" b c x y x y
}

@test "sendfile of a log that grows sends what was pushed since, never other bytes" {
	start
	queue
	push "$Q" a b c
	hostile "$BATS_TEST_TMPDIR/to" <<-'EOF'
		log = os.open("queues/q/partitions/default/log", os.O_RDONLY)
		to = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
		for i in range(1, 40):
		    os.fstat(log)
		    while os.sendfile(to, log, None, 1 << 20): pass
		    with open("queues/q/push", "w") as f: f.write("%d\n" % i * 300)
		os.fstat(log)
		while os.sendfile(to, log, None, 1 << 20): pass
		is_(os.pread(to, 1 << 20, 0), os.pread(log, 1 << 20, 0))
	EOF
}

@test "flags of open: O_TMPFILE, O_PATH, O_DIRECT, O_EXCL, O_DIRECTORY" {
	start
	queue
	push "$Q" a
	hostile <<-'EOF'
		push, pop, log = "queues/q/push", "queues/q/groups/g/pop", "queues/q/partitions/default/log"
		flagged = lambda path, flags, function=lambda fd: "ok": lambda: opened(path, flags, function)
		rows = [("O_TMPFILE " + d, "ENOTSUP", flagged(d, os.O_TMPFILE | os.O_RDWR))
		    for d in (".", "queues", "queues/q", "queues/q/groups/g/dlq", "queues/q/snapshots")]
		table(rows + [
		    ("O_PATH", "ok", flagged(pop, os.O_PATH)),
		    ("O_PATH read", "EBADF", flagged(pop, os.O_PATH, lambda fd: os.read(fd, 1))),
		    ("O_EXCL", "EEXIST", flagged(push, os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
		    ("O_CREAT", "ok", flagged(push, os.O_WRONLY | os.O_CREAT)),
		    ("O_DIRECTORY", "ENOTDIR", flagged(push, os.O_RDONLY | os.O_DIRECTORY)),
		    ("a directory to write", "EISDIR", flagged("queues/q", os.O_WRONLY)),
		    ("a directory's bytes", "EISDIR", flagged("queues/q", os.O_RDONLY, lambda fd: os.read(fd, 1))),
		    ("O_TRUNC of a log", "EACCES", flagged(log, os.O_RDONLY | os.O_TRUNC)),
		    ("O_DIRECT", b"a\n", flagged(log, os.O_RDONLY | os.O_DIRECT, lambda fd: os.read(fd, 100))),
		    ("below a file", "ENOTDIR", flagged(push + "/x", os.O_RDONLY)),
		])
	EOF
	errors_has 'log: EACCES: this file can only be read'
	pops "$G/pop" a
}

@test "nothing can be renamed, linked or made, whatever it is and wherever" {
	start
	queue p
	push "$Q/partitions/p" a
	echo g >"$Q/snapshots/s"
	not rmdir "$Q"
	hostile <<-'EOF'
		paths = []
		for at, dirs, files in os.walk("."):
		    paths += [os.path.join(at, n) for n in dirs + files]
		assert len(paths) > 60, paths
		dirs = [d for d, _, _ in os.walk(".")]
		rows = []
		for p in paths:
		    q = os.path.dirname(p) + "/other"
		    rows += [("rename " + p, "EPERM", lambda p=p, q=q: os.rename(p, q)),
		        ("onto version " + p, ("EPERM", "ENOTDIR"), lambda p=p: os.rename(p, "version")),
		        ("exchange " + p, "EINVAL", lambda p=p: system("renameat2", -100, p.encode(), -100, b"version" if p != "./version" else b"README", 2)),
		        ("link " + p, "EPERM", lambda p=p, q=q: os.link(p, q)),
		        ("setxattr " + p, "ENOTSUP", lambda p=p: os.setxattr(p, "user.x", b"1")),
		        ("removexattr " + p, "ENOTSUP", lambda p=p: os.removexattr(p, "user.x"))]
		for d in dirs:
		    n = d + "/other"
		    rows += [("symlink " + d, "EPERM", lambda n=n: os.symlink("x", n)),
		        ("device " + d, "EPERM", lambda n=n: os.mknod(n, stat.S_IFCHR | 0o600, os.makedev(1, 3))),
		        ("fifo " + d, "EPERM", lambda n=n: os.mkfifo(n)),
		        ("socket " + d, "EPERM", lambda n=n: socket.socket(socket.AF_UNIX).bind(n))]
		before = sorted(paths)
		table(rows)
		after = [os.path.join(at, n) for at, d, f in os.walk(".") for n in d + f]
		is_(sorted(after), before)
	EOF
	pops "$G/pop" a
	one_line_each
}

@test "truncate, chmod, chown, utimens, ioctl, fallocate and locks of files" {
	start
	queue
	push "$Q" a
	hostile <<-'EOF'
		R, W, RW = os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_NONBLOCK
		files = [("queues/q/push", W), ("queues/q/partitions/default/log", R), ("queues/q/groups/g/pop", RW),
		    ("queues/q/groups/g/cursor", RW), ("queues/q/config/batch", RW), ("queues/q/stats", R), ("errors", R)]
		rows = []
		for path, flags in files:
		    do = lambda function, path=path, flags=flags: lambda: opened(path, flags, function)
		    can_write = flags != R
		    rows += [
		        (path + " truncate", None if can_write else "EACCES", lambda path=path: os.truncate(path, 1 << 40)),
		        (path + " chmod", "EPERM", lambda path=path: os.chmod(path, 0o7777)),
		        (path + " chown", "EPERM", lambda path=path: os.chown(path, 12345, 12345)),
		        (path + " utimens", None, lambda path=path: os.utime(path, ns=(2 ** 62, 2 ** 62))),
		        (path + " ioctl", "ENOTTY", do(lambda fd: fcntl.ioctl(fd, 0xC0FF1234, b"\0" * 255))),
		        (path + " terminal", "ENOTTY", do(lambda fd: fcntl.ioctl(fd, 0x5401, b"\0" * 64))),
		        (path + " punch", "ENOTSUP" if can_write else "EBADF",
		            do(lambda fd: system("fallocate", fd, 3, ctypes.c_long(0), ctypes.c_long(10)))),
		        (path + " flock", "ENOLCK", do(lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))),
		        (path + " lockf", "ENOLCK", do(lambda fd, w=can_write: fcntl.lockf(fd, (fcntl.LOCK_EX if w else fcntl.LOCK_SH) | fcntl.LOCK_NB))),
		        (path + " exec", "EACCES", lambda path=path: os.execv(path, ["x"])),
		        (path + " acl", "ENOTSUP", lambda path=path: os.setxattr(path, "system.posix_acl_access", b"\2\0\0\0")),
		    ]
		table(rows)
		is_(open("queues/q/config/batch").read(), "1\n")
	EOF
	errors_has 'ENOLCK: files here cannot be locked'
	pops "$G/pop" a
}

@test "names that are gone without the kernel's doing are kept by nobody" {
	ini durability=os
	start
	queue
	P=$Q/partitions/default
	left_one() { [ "$(find "$P/segments" -mindepth 1 | wc -l)" = 1 ]; }
	come_and_go() {
		local i
		for i in 1 2 3 4; do
			setting "$Q" retention_bytes 0
			perl -e 'open F, ">", $ARGV[0]; syswrite F, "m\n" for 1 .. 3000' "$Q/push"
			ls -l "$P/segments" >/dev/null
			setting "$Q" retention_bytes 1
			wait_until left_one
		done
	}
	steady 1500 come_and_go
}

@test "files that are open though they are gone cost no CPU" {
	ini durability=os
	start
	queue
	export PID
	hostile <<-'EOF'
		import resource, time
		most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
		resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
		p, d = os.open("queues/q/push", os.O_WRONLY), "queues/q/partitions/default/segments/"
		for _ in range(9000): os.write(p, b"m\n")
		fds = [os.open(d + n, os.O_RDONLY) for n in os.listdir(d)[:min(8100, most - 500)]]
		open("queues/q/config/retention_bytes", "w").write("1\n")
		while len(os.listdir(d)) > 1: time.sleep(0.01)
		fds += [os.open("queues/q/push", os.O_WRONLY) for _ in range(300)]
		for _ in range(9000): os.stat("queues/q/push")
		def ticks(): return sum(map(int, open(f"/proc/{os.environ['PID']}/stat").read().split()[13:15]))
		quiet = 0
		while quiet < 20: # or there is no end
		    before = ticks()
		    time.sleep(0.05)
		    quiet = quiet + 1 if ticks() == before else 0
	EOF
}

@test "inotify watches of everything cost nobody anything" {
	start
	queue
	hostile <<-'EOF'
		fd = system("inotify_init1", os.O_NONBLOCK)
		for at, dirs, files in os.walk("."):
		    for n in dirs + files:
		        system("inotify_add_watch", fd, os.path.join(at, n).encode(), 0xfff)
		with open("queues/q/push", "w") as f: f.write("a\n")
		is_(open("queues/q/groups/g/pop").read(), "a\n")
		assert os.read(fd, 1 << 16)
	EOF
	pops "$G/pop" ""
}

@test "pieces of a line, a byte at a time and from all sides, with closes between" {
	start
	queue default
	hostile <<-'EOF'
		text = b"".join(b"line %d\n" % i for i in range(60))
		a, b = (os.open("queues/q/push", os.O_WRONLY) for _ in range(2))
		for byte in text:
		    os.write(a, bytes([byte])); os.write(b, bytes([byte]))
		    os.close(os.open("queues/q/push", os.O_WRONLY))
		os.close(a); os.close(b)
		is_(sorted(open("queues/q/partitions/default/log", "rb")), sorted(text.splitlines(True) * 2))
	EOF
}
