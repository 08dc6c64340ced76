# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# lib.bash - what every mount test shares. Not for tests of store/ (tests/unit).
#
# - Every test has a mount ($M), a store ($S), a settings file ($INI) and a log ($L) of
#   its own, all in its own temporary directory. teardown leaves no mount and no process,
#   and fails a test whose daemon died or printed a sanitizer report.
# - Nothing waits for a duration, only for a condition (wait_until).
# - $Q is the queue most tests use, $P its partition "default", $G its group g, $PG the
#   view of that group on that partition, $D that group's dead letters.

bats_require_minimum_version 1.5.0

export QUEENFS=${QUEENFS:-$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)/build/queenfs}
export LC_ALL=C # what is sorted is sorted by bytes

setup() {
	M=$BATS_TEST_TMPDIR/mnt
	S=$BATS_TEST_TMPDIR/queen.db
	L=$BATS_TEST_TMPDIR/daemon.log
	INI=$BATS_TEST_TMPDIR/queenfs.ini
	ACKED=$BATS_TEST_TMPDIR/acked
	Q=$M/queues/q
	P=$Q/partitions/default
	G=$Q/groups/g
	PG=$P/groups/g
	D=$G/dlq
	PID=
	mkdir -p "$M" "$ACKED"
	: >"$INI" # so that /etc/queenfs.ini is not read
}

teardown() {
	tidy
}

# ---- the daemon -------------------------------------------------------------------

# ini KEY=VALUE... - the [store] section of the settings that start uses.
ini() {
	{ echo '[store]' && printf '%s\n' "${@/=/ = }"; } >"$INI"
}

# spawn COMMAND... - runs it in the background ($!), without bats' descriptor 3, for the
# end of which bats waits.
spawn() {
	"$@" 3>&- &
}

up() { cat "$M/version" >/dev/null 2>&1; }
gone() { ! kill -0 "$PID" 2>/dev/null; }
up_or_gone() { up || gone; }

# start [OPTION...] - mounts, and returns once the mount answers.
start() {
	OPTIONS=("$@")
	spawn "$QUEENFS" -f "$@" -c "$INI" -s "$S" "$M" >>"$L" 2>&1
	PID=$!
	wait_until up_or_gone
	up || { echo "the daemon did not mount" && return 1; }
}

# stop - unmounts; the daemon must end with status 0.
stop() {
	local status=0
	fusermount3 -u "$M"
	wait "$PID" || status=$?
	PID=
	is "$status" 0
}

remount() {
	stop
	start "${OPTIONS[@]}"
}

# as_user SCRIPT - for somebody who is not root, in /mnt of a mount namespace of its own,
# where anybody may open /dev/fuse and /etc/fuse.conf is empty. Reads $queenfs, the binary.
as_user() {
	[ "$EUID" = 0 ] || skip "it takes root to become another user"
	export SCRIPT=$1
	unshare -m bash -euc '
		mount -t tmpfs -o mode=1777 none /mnt
		cd /mnt
		cp "$QUEENFS" queenfs
		mknod -m 666 fuse c 10 229
		mount --bind fuse /dev/fuse
		: >fuse.conf
		[ ! -e /etc/fuse.conf ] || mount --bind fuse.conf /etc/fuse.conf
		mkdir -m 755 user
		chown 65534:65534 user
		cd user
		export queenfs=/mnt/queenfs
		exec setpriv --reuid=65534 --regid=65534 --clear-groups bash -euc "$SCRIPT"
	' 3>&-
}

# crash - kill -9; what is left of the mount is detached.
crash() {
	kill -9 "$PID"
	wait "$PID" 2>/dev/null || true
	PID=
	umount -l "$M"
}

# tidy - ends whatever the test has left, and fails when the daemon misbehaved.
tidy() {
	local status=0 job fd reports
	if [ -n "$PID" ] && gone; then
		echo "the daemon has died"
		status=1 PID=
	fi
	for job in $(jobs -p); do
		[ "$job" = "$PID" ] || kill -9 "$job" 2>/dev/null || true
	done
	for fd in /proc/"$BASHPID"/fd/*; do
		case $(readlink "$fd" || true) in
		"$M"/*) eval "exec ${fd##*/}>&-" ;;
		esac
	done
	if [ -n "$PID" ] && wait_until unmounted && wait_until gone; then
		wait "$PID" || { echo "the daemon ended with status $?" && status=1; }
	elif [ -n "$PID" ]; then
		echo "the daemon did not end"
		kill -9 "$PID" || true
		status=1
	fi
	! mountpoint -q "$M" 2>/dev/null || umount -l "$M"
	reports='ERROR: AddressSanitizer|runtime error:|WARNING: ThreadSanitizer|ERROR: LeakSanitizer'
	! grep -Eqs "$reports" "$L" || status=1
	if [ "$status" != 0 ] || [ -z "$BATS_TEST_COMPLETED" ]; then
		echo "--- the log of the daemon:" && cat "$L" 2>/dev/null || true
	fi
	return "$status"
}
unmounted() { fusermount3 -u "$M" 2>/dev/null || ! mountpoint -q "$M"; }

# ---- asking -----------------------------------------------------------------------

# wait_until COMMAND... - runs it again and again until it succeeds. The limit is only
# there to end a failed test; sanitizer builds are slow.
wait_until() {
	local end=$((SECONDS + 60))
	until "$@"; do
		((SECONDS < end)) || { echo "not so within 60 s: $*" && return 1; }
		sleep 0.02
	done
}

# is GOT WANTED
is() {
	[ "$1" = "$2" ] || { printf 'got:    %q\nwanted: %q\n' "$1" "$2" && return 1; }
}

# not COMMAND... - it must fail (bash lets a plain `! command` pass either way).
not() {
	if "$@"; then echo "succeeded: $*" && return 1; fi
}

# shows FILE TEXT, has FILE REGEX - conditions for wait_until.
shows() { [ "$(cat "$1")" = "$2" ]; }
has() { grep -Eqs -- "$2" "$1"; }

# count DIRECTORY - how many entries ls shows.
count() { ls "$1" | wc -l; }

# errors_has REGEX - one of the last lines of MOUNT/errors matches.
errors_has() {
	tail -n 20 "$M/errors" | grep -Eq -- "$1" && return
	echo "no line of errors matches $1:" && tail -n 20 "$M/errors"
	return 1
}

# sys VERB PATH [ARGUMENT...] - one operation; prints ok or the name of its errno. `sys -`
# reads operations from stdin, a line each, and prints each line with `: ok` or the like.
#   open PATH FLAGS   read PATH   create PATH   mkdir rmdir unlink symlink mkfifo PATH
#   truncate PATH   chmod PATH MODE   utime PATH SECONDS   rename link PATH TO
#   write PATH TEXT...        each TEXT one write (retried until all is written), then close
#   make PATH TEXT            the same with O_CREAT
#   fill PATH SIZE TEXT...    the same after a write of SIZE times x
#   fsync PATH TEXT   flock lockf lseek PATH
#   fdread FD   fdwrite FD TEXT     on an open descriptor of the caller
sys() {
	perl -MFcntl=:DEFAULT,:flock,:seek,O_NOFOLLOW -MErrno -MIO::Handle -e '
		my ($verb, $path, @rest) = @ARGV;
		our @open; # a handle closed on the way out would change $!
		sub handle { my $f; sysopen($f, $path, $_[0]) && push(@open, $f) && $f }
		sub fd { my $f; open($f, $_[0], $path) && push(@open, $f) && $f }
		sub all {
			my ($f, $text, $at) = (@_, 0);
			while ($at < length $text) {
				my $n = syswrite($f, $text, length($text) - $at, $at);
				defined $n or return 0;
				$at += $n;
			}
			1;
		}
		sub put {
			my $f = handle(O_WRONLY) or return 0;
			all($f, $_) or return 0 for @_;
			close $f;
		}
		my %verbs = (
			open => sub { handle(eval $rest[0]) },
			read => sub { my $f = handle(O_RDONLY); $f && defined sysread($f, my $b, 65536) },
			create => sub { handle(O_WRONLY | O_CREAT) },
			mkdir => sub { mkdir $path },
			rmdir => sub { rmdir $path },
			unlink => sub { unlink $path },
			symlink => sub { symlink "target", $path },
			mkfifo => sub { require POSIX; POSIX::mkfifo($path, 0600) },
			truncate => sub { truncate $path, 0 },
			chmod => sub { chmod oct $rest[0], $path },
			utime => sub { utime $rest[0], $rest[0], $path },
			rename => sub { rename $path, $rest[0] },
			link => sub { link $path, $rest[0] },
			write => sub { put(@rest) },
			make => sub {
				my $f = handle(O_WRONLY | O_CREAT);
				$f && all($f, $rest[0]) && close $f;
			},
			fill => sub { put("x" x shift @rest, @rest) },
			fsync => sub {
				my $f = handle(O_WRONLY);
				$f && all($f, $rest[0]) && $f->sync && close $f;
			},
			flock => sub { my $f = handle(O_RDONLY); $f && flock($f, LOCK_EX | LOCK_NB) },
			lockf => sub {
				my $f = handle(O_RDONLY);
				my $lock = pack("ssx4qqix4", F_RDLCK, SEEK_SET, 0, 0, 0);
				$f && fcntl($f, F_SETLK, $lock);
			},
			lseek => sub { my $f = handle(O_RDONLY); $f && sysseek($f, 1, SEEK_SET) },
			fdread => sub { my $f = fd("<&="); $f && defined sysread($f, my $b, 65536) },
			fdwrite => sub { my $f = fd(">&="); $f && all($f, $rest[0]) },
		);
		sub result {
			my $done = $verbs{$verb}->();
			my ($name) = grep { $!{$_} } sort keys %!;
			$done ? "ok" : $name;
		}
		print(result(), "\n"), exit if $verb ne "-";
		while (<STDIN>) {
			chomp;
			($verb, $path, @rest) = split " ";
			print "$_: ", result(), "\n";
			@open = ();
		}
	' "$@"
}

# ---- queues -----------------------------------------------------------------------

# queue [PARTITION...] - makes queue q with group g and these partitions.
queue() {
	local partition
	mkdir "$Q" "$G"
	for partition; do mkdir "$Q/partitions/$partition"; done
}

# push DIRECTORY LINE... - each line a write, hence a segment, of its own.
push() {
	local line
	for line in "${@:2}"; do printf '%s\n' "$line" >"$1/push"; done
}

# pops FILE TEXT... - as many pops give these lines.
pops() {
	local line
	for line in "${@:2}"; do is "$(cat "$1")" "$line"; done
}

# pops_soon FILE TEXT - the first message that a pop finds. For what follows a close: the
# kernel tells of it after close(2) has returned.
pops_soon() {
	wait_until pop_found "$1"
	is "$found" "$2"
}
pop_found() { found=$(cat "$1") && [ -n "$found" ]; }

# segment PARTITION BASE - its path; attribute FILE NAME - one of its attributes.
segment() { printf '%s/segments/%020d' "$1" "$2"; }
attribute() { getfattr --absolute-names --only-values -n "user.queenfs.$2" "$1"; }

# last PARTITION - its last offset, from its newest segment.
last() { attribute "$1/segments/$(ls "$1/segments" | tail -n 1)" end_offset; }

# writers TAG COUNT WRITES FILE... - COUNT processes, each with a handle of its own on one
# of the files in turn; each does WRITES writes of three lines `<tag><i> <number> <pad>.`
# and notes in $ACKED/<tag><i> the number of the last line that a write returned for.
# Fails, saying why, when a write does. PAD: the longest line.
writers() {
	perl -MFcntl -e '
		my ($acked, $pad, $tag, $count, $writes, @files) = @ARGV;
		for my $i (0 .. $count - 1) {
			next if fork;
			open(my $note, ">", "$acked/$tag$i") or die $!;
			sysopen(my $push, $files[$i % @files], O_WRONLY) or die "$tag$i: $!\n";
			for my $n (0 .. $writes - 1) {
				my $text = join "", map {
					"$tag$i $_ " . "x" x ($_ * 37 % $pad) . ".\n"
				} 3 * $n .. 3 * $n + 2;
				my $done = syswrite($push, $text);
				defined $done or die "$tag$i: $!\n";
				$done == length $text or die "$tag$i: short write\n";
				syswrite($note, 3 * $n + 2 . "\n");
			}
			exit 0;
		}
		my $failed = 0;
		while (wait() > 0) { $failed = 1 if $? }
		exit $failed;
	' "$ACKED" "${PAD:-3000}" "$@"
}

# written LOG... - what writers pushed: no line torn, none lost that a write returned for,
# each writer in its order, each write whole.
written() {
	perl -e '
		my ($acked, $pad, @logs) = @ARGV;
		my %next;
		for my $path (@logs) {
			open(my $log, "<", $path) or die "$path: $!\n";
			while (<$log>) {
				/^(\w+) (\d+) (x*)\.\n\z/ && length $3 == $2 * 37 % $pad
					or die "torn: $_\n";
				$2 == ($next{$1} // 0) or die "$1: $2 after ", $next{$1} // 0, "\n";
				$next{$1}++;
			}
		}
		$next{$_} % 3 and die "$_: half a write\n" for keys %next;
		for my $note (glob "$acked/*") {
			my ($writer) = $note =~ /(\w+)\z/;
			open(my $f, "<", $note) or die $!;
			my @numbers = <$f>;
			my $last = @numbers ? $numbers[-1] : -1;
			$last < ($next{$writer} // 0) or die "$writer: lost after ", $next{$writer} // 0, "\n";
		}
	' "$ACKED" "${PAD:-3000}" "$@"
}

# ---- JSON -------------------------------------------------------------------------

# push_json DIRECTORY LINE... - each line a write, hence a segment, of its own.
push_json() {
	local line
	for line in "${@:2}"; do printf '%s\n' "$line" >"$1/push.json"; done
}

# verdicts FILE LINE... - what a push.json says of these lines, brought by one write: for
# each `<offset>:<status>`, apart by blanks; or the errno of the write.
verdicts() {
	perl -MFcntl -MErrno -e '
		my $text = join "", map { "$_\n" } @ARGV[1 .. $#ARGV];
		sysopen(my $f, $ARGV[0], O_RDWR) or die "$ARGV[0]: $!\n";
		my ($n, $all) = (syswrite($f, $text), "");
		unless (defined $n) { ($n) = grep { $!{$_} } sort keys %!; print "$n\n"; exit }
		$n == length $text or die "a short write\n";
		while ($n = sysread($f, my $bytes, 4096)) { $all .= $bytes }
		defined $n or die "verdicts: $!\n";
		$all =~ s/\{"offset":(\d+),"status":"(\w+)"\}\n/$1:$2 /g;
		print $all =~ s/ \z//r, "\n";
	' "$@"
}

# session ARGUMENT... - runs the python on stdin, with a limit. Its prelude:
#   parse(line)   the object, its numbers as they were written; show(value) is the inverse
#   tell(line)    replayStart=3  replayEnd=3  gap=p/0-1, or a message: old:DATA if it is
#                 replayed, else live:DATA
#   Handle(path, how)   an open file; how: r, w or rw, + for O_NONBLOCK
#     .read(size)       bytes; .write(text) one write; .refused(text) the name of its errno
#     .line()           the next line; .told(count) as many lines, told, apart by blanks
#     .told_all()       what there is until EOF or EAGAIN, told
session() {
	local program
	program=$(cat)
	timeout 60 python3 -c "$JSON_PRELUDE
$program" "$@"
}

JSON_PRELUDE='
import errno, json, os, sys

class Digits(str): pass

def no_number(text): raise ValueError(text)

def parse(line):
    return json.loads(line, parse_int=Digits, parse_float=Digits, parse_constant=no_number)

def show(value):
    if isinstance(value, Digits): return str(value)
    if isinstance(value, list): return "[" + ",".join(map(show, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(show(k) + ":" + show(v) for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)

def tell(line):
    m = parse(line)
    if m.get("event") == "gap": return "gap={partition}/{from}-{to}".format_map(m)
    if "event" in m: return "=".join(m.values())
    return ("old:" if m["isReplay"] else "live:") + m["data"]

class Handle:
    def __init__(self, path, how="r"):
        flags = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR}[how.strip("+")]
        self.fd = os.open(path, flags | (os.O_NONBLOCK if "+" in how else 0))
        self.kept = b""
    def read(self, size=1 << 16): return os.read(self.fd, size)
    def write(self, text):
        data = text.encode() if isinstance(text, str) else text
        assert os.write(self.fd, data) == len(data), "a short write"
    def refused(self, text):
        try: self.write(text)
        except OSError as e: return errno.errorcode[e.errno]
        return "ok"
    def line(self):
        while b"\n" not in self.kept:
            more = self.read()
            if not more: return None
            self.kept += more
        line, self.kept = self.kept.split(b"\n", 1)
        return line
    def told(self, count): return " ".join(tell(self.line()) for _ in range(count))
    def told_all(self):
        words = []
        try:
            while (line := self.line()) is not None: words.append(tell(line))
        except BlockingIOError: pass
        return " ".join(words)
    def close(self): os.close(self.fd)

def is_(got, wanted):
    if got != wanted: sys.exit(f"got:    {got!r}\nwanted: {wanted!r}")

def out(text): sys.stdout.buffer.write(text.encode() + b"\n")
'

# fields KEY... - of each line of JSON on stdin the values of these keys as JSON, apart by
# blanks; - for a key that is not there. Numbers stay as they are written.
fields() {
	python3 -c "$JSON_PRELUDE"'
for line in sys.stdin.buffer:
    m = parse(line)
    out(" ".join(show(m[key]) if key in m else "-" for key in sys.argv[1:]))' "$@"
}

# story FILE - its lines told (see session), apart by blanks. told FILE TEXT - that is it:
# a condition for wait_until.
story() {
	python3 -c "$JSON_PRELUDE"'
out(" ".join(tell(line) for line in open(sys.argv[1], "rb") if line.endswith(b"\n")))' "$1"
}
told() { [ "$(story "$1")" = "$2" ]; }

# ---- readers ----------------------------------------------------------------------

# handle HOW FILE OP... - what each op comes to on one handle of one process, apart by
# blanks. HOW: ro or rw, with + for O_NONBLOCK, or fd: FILE is a descriptor of the caller.
#   read[:SIZE]   [what it returned], with \n for a newline, or [the name of its errno]
#   +, -          O_NONBLOCK from now on, or no longer
#   anything else is a line to write: ok or the name of its errno
handle() {
	perl -MFcntl -MErrno -e '
		my ($how, $path, @ops) = @ARGV;
		my %modes = (ro => O_RDONLY, rw => O_RDWR,
			"ro+" => O_RDONLY | O_NONBLOCK, "rw+" => O_RDWR | O_NONBLOCK);
		my $f;
		alarm 60; # ends a test that would wait for ever
		($how eq "fd" ? open($f, "+<&=", $path) : sysopen($f, $path, $modes{$how}))
			or die "$path: $!\n";
		sub name { my ($name) = grep { $!{$_} } sort keys %!; $name }
		sub run {
			my $op = shift;
			if ($op =~ /^read(?::(\d+))?\z/) {
				my $n = sysread($f, my $bytes, $1 // 65536);
				$bytes = name() unless defined $n;
				$bytes =~ s/\n/\\n/g;
				return "[$bytes]";
			}
			return fcntl($f, F_SETFL, $op eq "+" ? O_NONBLOCK : 0) && () if $op =~ /^[+-]\z/;
			return defined syswrite($f, "$op\n") ? "ok" : name();
		}
		print join(" ", map { run($_) } @ops), "\n";
	' "$@"
}

# reader OUT FILE - a process in the background, $READER, that follows FILE into OUT.
reader() {
	spawn cat "$2" >"$1"
	READER=$!
}

# setting DIRECTORY KEY VALUE - sets it, of a queue or a group.
setting() { echo "$3" >"$1/config/$2"; }

# stat_of STATS KEY - the value of that line.
stat_of() { sed -n "s/^$2 //p" "$1"; }

# letters [GROUP] - the names in dlq/, apart by blanks, in the order of the listing.
letters() { ls -U "${1:-$G}/dlq" | paste -sd ' '; }

# waiting COUNT [STATS] - as many reads of group g wait: a condition for wait_until.
waiting() { has "${2:-$G/stats}" "^waiting $1\$"; }
