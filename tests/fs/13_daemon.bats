#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 13 of the contract, and of section 12 what queenfs.ini may say.
# Of bats: tests are subshells, and run sets stderr.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154

load lib

# A daemon in the background is no child of the test: it is found by its command line. Some
# tests have a second mount point, mnt2.
teardown() {
	local mount
	for mount in "$BATS_TEST_TMPDIR/mnt2" "$M"; do
		[ -n "$PID" ] && [ "$mount" = "$M" ] && continue
		while grep -qF " $mount " /proc/self/mountinfo; do umount -l "$mount"; done
	done
	[ -n "$PID" ] || wait_until no_daemon
	tidy
}

# daemons - the pids of the queenfs processes that run below the test's directory.
daemons() {
	local file line
	for file in /proc/[0-9]*/cmdline; do
		line=$(tr '\0' ' ' 2>/dev/null <"$file") || continue
		[[ $line != "$QUEENFS "*"$BATS_TEST_TMPDIR"* ]] || basename "${file%/cmdline}"
	done
}

# by_command - for tests that look for it so.
by_command() {
	[ "${QUEENFS_SANITIZE:-}" != valgrind ] || skip "the command is valgrind's"
}
no_daemon() { [ -z "$(daemons)" ]; }

mounted() { grep -qF " $1 " /proc/self/mountinfo; }

# mount_line MOUNT - its line in the table of mounts: source, path, type, options.
mount_line() { grep -F " $1 fuse" /proc/self/mounts; }

# queenfs ARGUMENT... - as a user types it; it must not wait for bats' descriptor 3.
queenfs() { "$QUEENFS" "$@" 3>&-; }

# refused REGEX ARGUMENT... - status 1, and one line that matches, with and without -f.
refused() {
	local text=$1 first
	shift
	run -1 --separate-stderr queenfs -c "$INI" "$@"
	is "$output" ""
	first=$stderr
	run -1 --separate-stderr queenfs -f -c "$INI" "$@"
	is "$output" ""
	is "$stderr" "$first"
	is "${#stderr_lines[@]}" 1
	[[ $stderr =~ ^queenfs:\ .*$text ]] || { echo "said: $stderr" && return 1; }
	not mounted "$M"
}

# ini_refused REGEX LINE... - a queenfs.ini of these lines.
ini_refused() {
	printf '%s\n' "${@:2}" >"$INI"
	refused "queenfs.ini:$1" "$S" "$M"
	[ ! -e "$S" ]
}

# untouched COMMAND... - what lies beside the store, and the store, stay as they are.
untouched() {
	local before
	before=$(ls -A "$BATS_TEST_TMPDIR/d" && sha256sum "$BATS_TEST_TMPDIR/d"/*)
	"$@"
	is "$(ls -A "$BATS_TEST_TMPDIR/d" && sha256sum "$BATS_TEST_TMPDIR/d"/*)" "$before"
}

# ---- the command line --------------------------------------------------------------

@test "-h prints how queenfs is called, and ends with status 0" {
	run -0 --separate-stderr queenfs -h
	is "$stderr" ""
	[[ $output == "usage: queenfs [options] [STORE] MOUNTPOINT"* ]]
	for option in -c -s -o -f -d -V -h; do
		[[ $output == *"  $option "* ]]
	done
}

@test "-V prints the version" {
	run -0 --separate-stderr queenfs -V
	is "$stderr" ""
	[[ $output =~ ^queenfs\ [0-9]+\.[0-9]+\.[0-9]+ ]]
}

@test "a command line that makes no sense is refused with status 2, on stderr" {
	for wrong in "" "-x $M" "--foo $M" "$M -c" "a b $M" "-s a b $M"; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr queenfs $wrong
		is "$output" ""
		[[ $stderr == "queenfs: "*"queenfs -h shows how it is called" ]]
	done
}

@test "without a store named it is refused, naming the three ways" {
	refused 'no store is named: .*STORE MOUNTPOINT.*-s FILE.*path in section \[store\]' "$M"
}

@test "the store is an argument" {
	queenfs -c "$INI" "$S" "$M"
	[ -e "$S" ]
}

@test "the store is named by -s" {
	queenfs -c "$INI" -s "$S" "$M"
	[ -e "$S" ]
}

@test "the store is named by the ini file, relative to the file" {
	mkdir "$BATS_TEST_TMPDIR/etc"
	printf '[store]\npath = here.db\n' >"$BATS_TEST_TMPDIR/etc/queenfs.ini"
	(cd "$BATS_TEST_TMPDIR" && queenfs -c etc/queenfs.ini "$M")
	[ -e "$BATS_TEST_TMPDIR/etc/here.db" ]
}

@test "a store named on the command line is used instead of the ini file's" {
	printf '[store]\npath = other.db\n' >"$INI"
	queenfs -c "$INI" "$S" "$M"
	[ -e "$S" ]
	[ ! -e "$BATS_TEST_TMPDIR/other.db" ]
}

@test "relative paths count from where it was started" {
	(cd "$BATS_TEST_TMPDIR" && queenfs -c queenfs.ini ./queen.db ./mnt/)
	[ -e "$S" ]
	mounted "$M"
	[[ $(mount_line "$M") == "$S $M fuse.queenfs "* ]]
}

@test "-d stays in the foreground and prints the requests" {
	start -d
	wait_until has "$L" 'opcode: .*unique:|unique: .*opcode:'
	[ -d "/proc/$PID" ]
	stop
}

# ---- mounting ------------------------------------------------------------------------

@test "in the background the parent returns 0 only once the mount answers" {
	for _ in 1 2 3; do
		queenfs -c "$INI" "$S" "$M"
		cat "$M/version"
		fusermount3 -u "$M"
	done
}

@test "a caller that reads its output does not wait for the daemon to end" {
	is "$(queenfs -c "$INI" "$S" "$M" 2>&1)" ""
	mounted "$M"
}

@test "the daemon in the background has left the caller's session, directory and stdio" {
	by_command
	(cd "$BATS_TEST_TMPDIR" && queenfs -c "$INI" "$S" "$M" </dev/null)
	pid=$(daemons)
	is "$(readlink "/proc/$pid/cwd")" /
	is "$(cut -d ' ' -f 6 <"/proc/$pid/stat")" "$pid"
	for fd in 0 1 2; do
		is "$(readlink "/proc/$pid/fd/$fd")" /dev/null
	done
}

@test "mounts show the store, and that the kernel enforces modes" {
	start
	[[ $(mount_line "$M") == "$S $M fuse.queenfs "*default_permissions* ]]
}

@test "a comma, a backslash and a blank in the store's name do no harm" {
	S="$BATS_TEST_TMPDIR/a,b\\c d.db"
	start
	[ -e "$S" ]
	is "$(df --output=source "$M" | tail -n 1)" "$S"
	stop
}

@test "allow_other is on when root mounts" {
	[ "$EUID" = 0 ] || skip "not root"
	start
	[[ $(mount_line "$M") == *,allow_other* ]]
}

@test "-o ro mounts read-only; pop still consumes" {
	start
	queue
	push "$Q" one two
	stop
	start -o ro
	[[ $(mount_line "$M") == *" ro,"* ]]
	is "$(sys mkdir "$M/queues/new")" EROFS
	is "$(sys open "$Q/push" O_WRONLY)" EROFS
	is "$(cat "$P/log")" $'one\ntwo'
	is "$(cat "$G/pop")" one
	is "$(cat "$G/pop")" two
}

@test "words of fstab are accepted" {
	start -o rw,nofail,_netdev,noauto,x-systemd.automount,x-gvfs-show,noatime,relatime \
		-o 'defaults,user,users,comment=of the owner,nosuid,nodev,noexec,fsname=mine'
	[[ $(mount_line "$M") == "mine $M fuse.queenfs "*noexec* ]]
}

@test "an unknown word is refused by name with what is allowed, before a store is made" {
	local word first
	for word in nonsense ro,nonsense,max_read=4096 fd=5 user1 xyz subtype=x; do
		run -2 --separate-stderr queenfs -c "$INI" -o "$word" "$S" "$M"
		first=$stderr
		run -2 --separate-stderr queenfs -f -c "$INI" -o "$word" "$S" "$M"
		is "$stderr" "$first"
		is "${#stderr_lines[@]}" 1
		word=${word#ro,}
		[[ $first == "queenfs: -o has the unknown word \"${word%%,*}\"; allowed are ro, rw, "*", and for mount(8) nofail, "* ]]
	done
	run -2 queenfs -c "$INI" -o remount,ro "$S" "$M"
	is "$output" "queenfs: -o remount: a mount cannot be changed; unmount it and mount it again"
	[ ! -e "$S" ]
}

@test "-o config=FILE is -c FILE, also with a comma in it" {
	local file="$BATS_TEST_TMPDIR/a,b.ini"
	printf '[queue made]\n' >"$file"
	queenfs -o "nofail,config=${file/,/\\,},noexec" "$S" "$M"
	is "$(ls "$M/queues")" made
	[[ $(mount_line "$M") == *noexec* ]]
	run -2 queenfs -o "config=$file.missing" "$S" "$M/missing"
	[[ $output == "queenfs: -o has the unknown word \"b.ini.missing\"; "* ]]
	run -2 queenfs -o config= "$S" "$M"
}

@test "statfs shows the store's disk" {
	start
	is "$(stat -f -c '%b %S' "$M")" "$(stat -f -c '%b %S' "$BATS_TEST_TMPDIR")"
	is "$(df -k --output=size "$M")" "$(df -k --output=size "$BATS_TEST_TMPDIR")"
}

# ---- refusals: the same text and a non-zero status with and without -f ----------------

@test "no /dev/fuse: refused in one sentence" {
	[ "$EUID" = 0 ] || skip "it takes root to hide /dev/fuse"
	queenfs() { unshare -m sh -c 'mount -t tmpfs none /dev && exec "$0" "$@"' "$QUEENFS" "$@" 3>&-; }
	refused '/dev/fuse cannot be opened: No such file or directory' "$S" "$M"
	[ ! -e "$S" ]
}

@test "a mount point that is missing is refused" {
	refused "$BATS_TEST_TMPDIR/missing: no such directory" "$S" "$BATS_TEST_TMPDIR/missing"
	[ ! -e "$S" ]
}

@test "a mount point that is not a directory is refused" {
	refused "$INI: not a directory" "$S" "$INI"
}

@test "a store below the mount point, which would hide it, is refused" {
	refused "$M/queen.db: the store lies below the mount point $M, which would hide it" \
		"$M/queen.db" "$M"
	ln -s mnt "$BATS_TEST_TMPDIR/link"
	refused 'the store lies below' "$BATS_TEST_TMPDIR/link/queen.db" "$M"
	refused 'the store lies below' "$S" "$BATS_TEST_TMPDIR"
	is "$(ls -A "$M")" ""
	mkdir "$BATS_TEST_TMPDIR/mnt-of-old"
	S=$BATS_TEST_TMPDIR/mnt-of-old/queen.db
	start
	stop
}

@test "a mount point with a live queenfs is refused" {
	start
	run -1 --separate-stderr queenfs -c "$INI" "$BATS_TEST_TMPDIR/other.db" "$M"
	first=$stderr
	run -1 --separate-stderr queenfs -f -c "$INI" "$BATS_TEST_TMPDIR/other.db" "$M"
	is "$stderr" "$first"
	is "$first" "queenfs: $M: already a queenfs mount, of $S; unmount it or use another directory"
	[ ! -e "$BATS_TEST_TMPDIR/other.db" ]
	cat "$M/version"
}

@test "a store that is locked is refused, with the holder's pid" {
	start
	M2=$BATS_TEST_TMPDIR/mnt2
	mkdir "$M2"
	run -1 --separate-stderr queenfs -c "$INI" "$S" "$M2"
	first=$stderr
	run -1 --separate-stderr queenfs -f -c "$INI" "$S" "$M2"
	is "$stderr" "$first"
	[[ $first =~ ^queenfs:\ $S:.*[^0-9]$PID([^0-9]|$) ]]
	not mounted "$M2"
	cat "$M/version"
	stop
}

@test "a store in a directory that is missing is refused" {
	refused "$BATS_TEST_TMPDIR/missing/queen.db: .*No such file" \
		"$BATS_TEST_TMPDIR/missing/queen.db" "$M"
}

@test "a file that is no SQLite database is refused and left untouched" {
	mkdir "$BATS_TEST_TMPDIR/d"
	printf 'to whom it may concern\n%.0s' {1..1000} >"$BATS_TEST_TMPDIR/d/letter"
	untouched refused "d/letter: .*not a queenfs store" "$BATS_TEST_TMPDIR/d/letter" "$M"
}

@test "another program's SQLite database is refused and left untouched" {
	mkdir "$BATS_TEST_TMPDIR/d"
	sqlite3 "$BATS_TEST_TMPDIR/d/songs.db" 'create table song (title text)'
	untouched refused "d/songs.db: .*not a queenfs store" "$BATS_TEST_TMPDIR/d/songs.db" "$M"
}

@test "a store of a newer version is refused and left untouched" {
	mkdir "$BATS_TEST_TMPDIR/d"
	S=$BATS_TEST_TMPDIR/d/queen.db
	start
	stop
	sqlite3 "$S" 'pragma user_version = 1000'
	untouched refused "d/queen.db: .*newer" "$S" "$M"
}

@test "a store on a network filesystem is refused" {
	start
	M2=$BATS_TEST_TMPDIR/mnt2
	mkdir "$M2"
	run -1 --separate-stderr queenfs -c "$INI" "$M/queen.db" "$M2"
	first=$stderr
	run -1 --separate-stderr queenfs -f -c "$INI" "$M/queen.db" "$M2"
	is "$stderr" "$first"
	[[ $first =~ ^queenfs:\ $M/queen.db:.*disk ]]
	not mounted "$M2"
	stop
}

@test "a user to whom fuse.conf forbids allow_other is told what to do" {
	run -0 --separate-stderr as_user '
		mkdir mnt
		printf "[mount]\nallow_other = yes\n" >queenfs.ini
		for f in "" -f; do
			! "$queenfs" $f -c queenfs.ini queen.db mnt 2>"said$f" || exit 1
		done
		cmp said said-f
		cat said
	'
	[[ $output == *"queenfs: /mnt/user/mnt: not mounted; "*user_allow_other*/etc/fuse.conf* ]]
}

@test "a user who cannot read the settings, or enter the store's directory, is told so" {
	run -0 --separate-stderr as_user '
		mkdir mnt closed
		: >queenfs.ini
		chmod 0 queenfs.ini closed
		for f in "" -f; do
			! "$queenfs" $f -c queenfs.ini queen.db mnt 2>"said$f" || exit 1
			chmod 600 queenfs.ini
			! "$queenfs" $f -c queenfs.ini closed/queen.db mnt 2>>"said$f" || exit 1
			chmod 0 queenfs.ini
		done
		cmp said said-f
		cat said
	'
	is "${lines[0]}" "queenfs: /mnt/user/queenfs.ini: Permission denied"
	[[ ${lines[1]} == "queenfs: /mnt/user/closed/queen.db: "*"ermission denied"* ]]
	is "${#lines[@]}" 2
}

# ---- what it was started with ----------------------------------------------------------

@test "closed descriptors, an ignored SIGCHLD and a blocked SIGTERM do no harm" {
	by_command
	run -1 bash -c '"$QUEENFS" -c "$1" "$2" "$3/missing" <&- >&- 2>&-' - "$INI" "$S" "$M" 3>&-
	perl -e '
		use POSIX;
		$SIG{CHLD} = "IGNORE";
		POSIX::sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM));
		POSIX::close($_) for 0 .. 3;
		exec @ARGV;
	' "$QUEENFS" -c "$INI" "$S" "$M"
	mkdir "$Q"
	echo hello >"$Q/push"
	is "$(cat "$Q/pop")" hello
	kill -TERM "$(daemons)"
	wait_until no_daemon
	not mounted "$M"
}

@test "past a limit on the size of files pushes fail and the daemon goes on" {
	printf '[store]\nreserve = 0\nwal_limit = 64K\n' >"$INI"
	(ulimit -f 1024 && queenfs -c "$INI" "$S" "$M")
	mkdir "$Q"
	echo small >"$Q/push"
	not dd if=/dev/zero of="$Q/push" bs=512K count=20 conv=notrunc status=none
	is "$(head -n 1 "$P/log")" small
}

# ---- the end, and a crash ------------------------------------------------------------

@test "a user who is not root mounts, and replaces a mount that a crash left dead" {
	run -0 as_user '
		mkdir mnt
		: >queenfs.ini
		for _ in 1 2; do
			"$queenfs" -f -c queenfs.ini queen.db mnt &
			until [ -e mnt/version ]; do kill -0 $! && sleep 0.02; done
			kill -9 $!
			wait $! || :
		done
		"$queenfs" -c queenfs.ini queen.db mnt
		cat mnt/version
		grep " /mnt/user/mnt fuse.queenfs " /proc/self/mounts
		fusermount3 -u mnt
	'
	[[ $output == *"replaced the mount of a queenfs that died"* ]]
	[[ $output != *allow_other* ]]
}

@test "SIGTERM ends it with status 0, and what was pushed is there" {
	start
	mkdir "$Q"
	echo hello >"$Q/push"
	kill -TERM "$PID"
	wait "$PID"
	PID=
	not mounted "$M"
	start
	is "$(cat "$P/log")" hello
	stop
}

@test "SIGINT ends it with status 0" {
	# a shell has its background jobs ignore SIGINT, and they inherit that
	spawn perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' "$QUEENFS" -f -c "$INI" "$S" "$M"
	PID=$!
	wait_until up_or_gone
	kill -INT "$PID"
	wait "$PID"
	PID=
	not mounted "$M"
}

@test "fusermount3 -u ends it with status 0" {
	start
	stop
}

@test "what ended can be started again at once" {
	for _ in 1 2 3 4 5; do
		queenfs -c "$INI" "$S" "$M"
		mkdir -p "$Q"
		echo again >>"$Q/push"
		fusermount3 -u "$M"
	done
	start
	is "$(wc -l <"$P/log")" 5
}

@test "a mount left dead by a crash is replaced at start, in the background" {
	by_command
	queenfs -c "$INI" "$S" "$M"
	kill -9 "$(daemons)"
	wait_until no_daemon
	run -0 queenfs -c "$INI" "$S" "$M"
	is "$output" "queenfs: $M: replaced the mount of a queenfs that died (its store was $S)"
	cat "$M/version"
	is "$(grep -cF " $M " /proc/self/mountinfo)" 1
}

@test "a mount left dead by a crash is replaced at start, in the foreground" {
	start
	kill -9 "$PID"
	wait "$PID" || true
	start
	has "$L" "queenfs: $M: replaced the mount of a queenfs that died"
	is "$(grep -cF " $M " /proc/self/mountinfo)" 1
	stop
}

@test "a dead mount whose path has a blank and a # is replaced too" {
	M="$BATS_TEST_TMPDIR/a #1"
	mkdir "$M"
	start
	kill -9 "$PID"
	wait "$PID" || true
	start
	stop
	not mountpoint -q "$M"
}

# ---- queenfs.ini ---------------------------------------------------------------------

@test "a file named by -c that is missing is refused" {
	INI=$BATS_TEST_TMPDIR/missing.ini
	refused 'missing.ini: No such file' "$S" "$M"
}

@test "the example is accepted as it is, and with every key at its default" {
	example=${BATS_TEST_DIRNAME%/tests/fs}/queenfs.ini
	cp "$example" "$INI"
	start
	stop
	sed 's/^# \([a-z_]* = \)/\1/' "$example" >"$INI"
	is "$(grep -c '^[a-z_]* = ' "$INI")" 21
	start
	stop
}

@test "every key takes what it is said to allow" {
	for line in 'durability = disk' 'durability = os' 'reserve = 0' 'reserve = 65536' \
		'reserve = 64K' 'reserve = 1M' 'reserve = 64k' 'wal_limit = 64K' 'wal_limit = 2G' \
		'wal_limit: 1M ; a comment'; do
		printf '[store]\n%s\n' "$line" >"$INI"
		start
		stop
	done
	for word in yes no true false 1 0; do
		printf '[mount]\nallow_other = %s\n' "$word" >"$INI"
		start
		stop
	done
}

@test "a byte order mark, CR LF and comments are accepted" {
	printf '\xef\xbb\xbf[store] ; of mine\r\n# one\r\n  ; two\r\n\r\nreserve = 1M\r\n' >"$INI"
	start
	stop
}

@test "an unknown key is refused with file, line and what is allowed" {
	ini_refused '3: unknown key "foo" in \[store\]; allowed are path, durability, reserve, wal_limit' \
		'[store]' 'durability = os' 'foo = 1'
	ini_refused '2: unknown key "path" in \[mount\]; allowed are allow_other' \
		'[mount]' 'path = x'
}

@test "an unknown section is refused with file, line and what is allowed" {
	ini_refused '2: unknown section \[stroe\]; allowed are \[store\], \[mount\]' '' '[stroe]'
}

@test "a key outside of any section is refused" {
	ini_refused '1: "path" stands before any section' 'path = x'
}

@test "a bad value is refused with file, line and what is allowed" {
	ini_refused '2: bad value "ssd" for durability; allowed is disk or os' \
		'[store]' 'durability = ssd'
	for size in -1 1.5M '1 M' 1T M 0x10 99999999999G 18446744073709551617; do
		ini_refused "2: bad value \"$size\" for reserve; allowed is a size" \
			'[store]' "reserve = $size"
	done
	ini_refused '2: bad value "63K" for wal_limit; .*at least 64K' '[store]' 'wal_limit = 63K'
	ini_refused '2: bad value "maybe" for allow_other; allowed is yes or no' \
		'[mount]' 'allow_other = maybe'
	ini_refused '2: bad value "" for path' '[store]' 'path ='
}

@test "a line that means nothing is refused" {
	ini_refused '2: neither a \[section\] nor a setting' '[store]' 'durability' '[foo]'
	ini_refused '1: a section without its closing \]' '[store' 'durability = os'
	ini_refused '1: text after \[store\]' '[store] durability = os'
}

@test "an over-long line is refused" {
	long=$(printf 'x%.0s' {1..191})
	ini_refused '2: the line is longer than 198 bytes' '[store]' "path = ${long}x"
	ini_refused '1: a section name longer than 49 bytes' "[${long:0:50}]"
	printf '[store]\n# %s\n' "${long:0:190}" >"$INI"
	start
	stop
}

@test "an indented line is refused, not taken for more of the value above" {
	ini_refused '3: an indented line' '[store]' 'path = a' '  b'
}

@test "a NUL byte is refused" {
	printf '[store]\npath = a\0b\n' >"$INI"
	refused 'queenfs.ini:2: a NUL byte' "$S" "$M"
}

@test "a file that cannot be read is refused" {
	rm "$INI"
	mkdir "$INI"
	refused 'queenfs.ini: Is a directory' "$S" "$M"
}

@test "[defaults] are for new queues; [queue NAME] makes and updates one at each start" {
	printf '[queue orders]\nspread = 3\nlease_seconds = 2h\n[defaults]\nbatch = 7\n[queue bare]\n' >"$INI"
	start
	is "$(cat "$M/queues/orders/config/"{spread,lease_seconds,batch})" $'3\n7200\n7'
	[ -d "$M/queues/bare" ]
	echo 2 >"$M/queues/orders/config/spread"
	echo 5 >"$M/queues/orders/config/batch"
	stop
	printf '[defaults]\nbatch = 9\n[queue orders]\nspread = 4\n' >"$INI"
	start
	is "$(cat "$M/queues/orders/config/"{spread,batch})" $'4\n5'
	mkdir "$M/queues/new"
	is "$(cat "$M/queues/new/config/batch")" 9
}

@test "each setting can be in [defaults] and in [queue NAME], and be said again at each start" {
	local pairs='framing=file spread=2 batch=3 prefetch=4 lease_seconds=5 retry_limit=6
		max_deliveries=7 retry_delay_seconds=8:9 dedup_seconds=10 retention_seconds=864000
		completed_retention_seconds=864001 retention_bytes=1073741824
		max_message_bytes=65536 subscription=2026-07-29T14:00:00.000000Z
		snapshot_seconds=86400'
	local pair round
	for pair in '[defaults]' $pairs '[queue orders]' $pairs; do
		echo "${pair/=/ = }"
	done >"$INI"
	for round in 1 2; do
		start
		[ "$round" = 2 ] || mkdir "$M/queues/new" "$M/queues/orders/groups/g"
		is "$(cd "$M/queues/orders/config" && grep . ./*)" "$(cd "$M/queues/new/config" && grep . ./*)"
		for pair in $pairs; do
			is "$(cat "$M/queues/new/config/${pair%=*}")" "${pair#*=}"
		done
		is "$(ls "$M/queues/new/config" | wc -l)" "$(wc -w <<<"$pairs")"
		is "$(cat "$M/queues/orders/groups/g/config/subscription")" 2026-07-29T14:00:00.000000Z
		# so that it is not empty
		[ "$round" = 2 ] || echo message >"$M/queues/orders/push"
		stop
	done
}

@test "a time in the settings that is relative counts from the start" {
	printf '%s\n' '[defaults]' 'subscription = -1h' '[queue q]' 'subscription = -1h' >"$INI"
	start
	local text first
	first=$(cat "$Q/config/subscription")
	[[ $first > $(date -u -d '-61 minutes' +%FT%T) && $first < $(date -u -d '-59 minutes' +%FT%T) ]]
	mkdir "$M/queues/new" "$G"
	text=$(cat "$M/queues/new/config/subscription")
	[[ $text > $(date -u -d '-61 minutes' +%FT%T) && $text < $(date -u -d '-59 minutes' +%FT%T) ]]
	stop
	start
	[[ $(cat "$Q/config/subscription") > $first ]]
	is "$(cat "$M/queues/new/config/subscription")" "$text"
	is "$(cat "$G/config/subscription")" "$first"
}

@test "a setting that is not understood is refused with file, line and what is allowed" {
	local text
	while IFS='|' read -r ini want; do
		printf '%b' "$ini" >"$INI"
		! text=$("$QUEENFS" -c "$INI" "$S" "$M" 2>&1)
		[[ $text == "queenfs: $INI:"$want ]] || { echo "$text" && return 1; }
		[ ! -e "$S" ]
	done <<-'END'
		[defaults]\nfoo = 1\n|2: unknown key "foo" in *allowed are framing, spread, batch*, snapshot_seconds
		[defaults]\nfilter = 1\n|2: unknown key "filter" in [[]defaults]: only a group has it, *config/filter; allowed are *
		[queue a]\nfilter = \n|2: unknown key "filter" in [[]queue a]: only a group has it, *
		[defaults]\nframing = lines\n|2: framing cannot be "lines"; allowed is line or file
		[queue a]\nmax_message_bytes = 1G\n|2: max_message_bytes cannot be "1G"; allowed is *256M
		[defaults]\nsubscription = never\n|2: subscription cannot be "never"; allowed is all, new, or a time*
		[defaults]\nretention_seconds = 1y\n|2: retention_seconds cannot be "1y"; allowed is *
		[queue a]\nspread = 0\n|2: spread cannot be "0"; allowed is *
		[queue a]\nlease_seconds = 5y\n|2: lease_seconds cannot be "5y"; allowed is *
		[queue .a]\n|1: *not a name*
		[queue ]\n|1: *not a name*
	END
}
