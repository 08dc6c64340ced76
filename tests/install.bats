#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# make install, make uninstall and make deb; what mount(8), fstab and systemd do with what
# they install. What has to be below / for that is there in a mount namespace of its own,
# but for the package, which the test removes again.
# Of bats: tests are subshells, and run sets stderr.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154

load fs/lib

TREE=$BATS_TEST_DIRNAME/..

# A daemon that mount(8) has started is found by its mount.
teardown() {
	[ -n "$PID" ] || ! mountpoint -q "$M" || umount -l "$M"
	[ ! -e "$BATS_TEST_TMPDIR/installed" ] || purge
	tidy
}

# maker TARGET VARIABLE=VALUE... - make, of the build that is being tested.
maker() { make -s -C "$TREE" "SANITIZE=${SANITIZE:-}" "$@" >/dev/null 3>&-; }

# files DIRECTORY - what is there that is no directory, sorted.
files() { (cd "$1" && find . ! -type d | sort); }

mount_line() { grep -F " $M fuse" /proc/self/mounts; }

purge() { dpkg -P queenfs >/dev/null 2>&1 3>&-; }

# installed SCRIPT - as root, in a mount namespace where queenfs and its link for mount(8)
# are installed and /etc/queenfs.ini is empty; mounts and daemons end with it. For SCRIPT
# there are $S, $M and wait_until.
installed() {
	[ "$EUID" = 0 ] || skip "only root can give a test a /sbin of its own"
	[ -e /etc/fstab ] || skip "there is no /etc/fstab to put another in place of"
	[ -x /sbin/mount.fuse3 ] || skip "there is no /sbin/mount.fuse3"
	maker install "DESTDIR=$BATS_TEST_TMPDIR/d"
	export S M SCRIPT=$1 D=$BATS_TEST_TMPDIR/d
	export -f wait_until
	unshare -m bash -euc '
		mkdir "$D/upper" "$D/sbin.new"
		cp -P "$D/sbin/mount.fuse.queenfs" /sbin/mount.fuse3 "$D/sbin.new"
		# only what mount(8) needs: /sbin may be all of /usr/sbin
		[ ! -e /sbin/mount.fuse ] || cp -P /sbin/mount.fuse "$D/sbin.new"
		mount --bind "$D/sbin.new" "$(realpath /sbin)"
		mount --bind "$D/usr/local/bin" /usr/local/bin
		: >"$D/empty.ini"
		if [ -e /etc/queenfs.ini ]; then mount --bind "$D/empty.ini" /etc/queenfs.ini; fi
		: >"$D/fstab"
		# a daemon that goes on would keep the namespace
		trap "umount -l \"$M\" 2>/dev/null || :; umount -l /mnt/user/mnt 2>/dev/null || :" EXIT
		bash -euc "$SCRIPT"
	' 3>&-
}

# listen NAME - receives what is sent to $NOTIFY_SOCKET at NAME (@... is abstract) into
# $BATS_TEST_TMPDIR/told; READY=1 only if the mount answers.
listen() {
	spawn python3 -c '
import os, socket, sys
name, path, mount = sys.argv[1:]
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("\0" + name[1:] if name[0] == "@" else name)
open(path, "w").close()
while True:
    text = s.recv(65536).decode()
    with open(path, "a") as f:
        if "READY=1" in text and not os.path.exists(mount + "/version"):
            text = "too early: " + text
        f.write(text + "\n")
' "$1" "$BATS_TEST_TMPDIR/told" "$M"
	wait_until test -e "$BATS_TEST_TMPDIR/told"
}

# ---- make install ----------------------------------------------------------------------

@test "make install puts all in its place below DESTDIR, and make uninstall nothing but takes it away" {
	local d=$BATS_TEST_TMPDIR/d
	maker install "DESTDIR=$d"
	is "$(files "$d")" "$(sort <<-'END'
		./etc/queenfs.ini
		./sbin/mount.fuse.queenfs
		./usr/local/bin/queenfs
		./usr/local/lib/systemd/system/queenfs@.service
		./usr/local/share/doc/queenfs/queenfs.ini.example
		./usr/local/share/man/man8/queenfs.8
	END
	)"
	"$d/usr/local/bin/queenfs" -V
	grep -q '^ExecStart=/usr/local/bin/queenfs -f ' "$d/usr/local/lib/systemd/system/queenfs@.service"
	cmp "$TREE/queenfs.ini" "$d/etc/queenfs.ini"
	: >"$d/usr/local/bin/other"
	maker uninstall "DESTDIR=$d"
	is "$(files "$d")" ./usr/local/bin/other
	[ ! -e "$d/usr/local/share/doc/queenfs" ]
}

@test "settings that were changed survive make install and make uninstall" {
	local d=$BATS_TEST_TMPDIR/d
	mkdir -p "$d/etc"
	echo '# mine' >"$d/etc/queenfs.ini"
	maker install "DESTDIR=$d" PREFIX=/usr
	grep -q '^ExecStart=/usr/bin/queenfs -f ' "$d/lib/systemd/system/queenfs@.service"
	maker uninstall "DESTDIR=$d" PREFIX=/usr
	is "$(files "$d")" ./etc/queenfs.ini
	is "$(cat "$d/etc/queenfs.ini")" '# mine'
}

@test "below another PREFIX nothing outside of it is touched" {
	local d=$BATS_TEST_TMPDIR/d
	maker install "DESTDIR=$d" PREFIX=/opt/queenfs/
	is "$(ls "$d")" opt
	is "$(ls "$d/opt")" queenfs
	grep -q '^ExecStart=/opt/queenfs/bin/queenfs -f ' "$d"/opt/queenfs/lib/systemd/system/*
	maker uninstall "DESTDIR=$d" PREFIX=/opt/queenfs/
	is "$(files "$d")" ""
}

# ---- mount(8) and fstab ----------------------------------------------------------------

@test "mount -t fuse.queenfs STORE MNT works, and umount" {
	run -0 installed '
		mount -t fuse.queenfs "$S" "$M"
		grep -F " $M fuse" /proc/self/mounts
		mkdir "$M/queues/q"
		echo hello >"$M/queues/q/push"
		cat "$M/queues/q/pop"
		umount "$M"
		echo "$S" >"$D/store" # the daemon has it in its command line
		ended() { ! grep -qsF -f "$D/store" /proc/[0-9]*/cmdline; }
		wait_until ended
	'
	[[ $output == "$S $M fuse.queenfs "*,allow_other*hello ]]
}

@test "the link for mount(8) does without the mount.fuse of another version" {
	run -0 installed '
		rm -f "$D/sbin.new/mount.fuse"
		mount -t fuse.queenfs "$S" "$M"
		cat "$M/version"
		umount "$M"
	'
	[[ $output == "queenfs "* ]]
}

@test "a line of fstab mounts with all its words, by mount -a and by its mount point" {
	run -0 installed '
		printf "[queue made]\n" >"$D/my.ini"
		mount --bind "$D/fstab" /etc/fstab
		echo "$S $M fuse.queenfs defaults,nofail,_netdev,x-systemd.automount,x-systemd.requires=a.service,user,noexec,noatime,config=$D/my.ini 0 0" >"$D/fstab"
		mount -a
		grep -F " $M fuse" /proc/self/mounts
		ls "$M/queues"
		umount "$M"
		line=$(cat "$D/fstab")
		echo "${line/nofail/noauto,ro}" >"$D/fstab"
		mount -a
		! mountpoint -q "$M" || exit 1
		mount "$M"
		grep -F " $M fuse" /proc/self/mounts
		umount "$M"
	'
	[[ ${lines[0]} == "$S $M fuse.queenfs rw,"*noexec,noatime* ]]
	is "${lines[1]}" made
	[[ ${lines[2]} == "$S $M fuse.queenfs ro,"* ]]
}

@test "a user mounts what fstab lets users mount, and unmounts it; setuid= is that user too" {
	run -0 installed '
		mount -t tmpfs none /mnt
		mkdir /mnt/user /mnt/user/mnt
		chown -R 65534:65534 /mnt/user
		mknod -m 666 /mnt/fuse c 10 229
		mount --bind /mnt/fuse /dev/fuse
		mount --bind "$D/fstab" /etc/fstab
		chmod 755 "$D" "$D/sbin.new"
		as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
		echo "/mnt/user/queen.db /mnt/user/mnt fuse.queenfs user,noauto 0 0" >"$D/fstab"
		as mount /mnt/user/mnt
		as cat /mnt/user/mnt/version
		as umount /mnt/user/mnt
		echo "/mnt/user/queen.db /mnt/user/mnt fuse.queenfs noauto,setuid=nobody 0 0" >"$D/fstab"
		mount /mnt/user/mnt
		grep " /mnt/user/mnt fuse" /proc/self/mounts
		umount /mnt/user/mnt
	'
	[[ $output == "queenfs "*"/mnt/user/queen.db /mnt/user/mnt fuse.queenfs "*user_id=65534,* ]]
}

@test "a mount that mount(8) cannot make is refused with the daemon's text and a status" {
	run -0 installed '
		! mount -t fuse.queenfs "$S" "$M" -o nonsense || exit 1
		! mount -t fuse.queenfs "$S" "$M/missing" || exit 1
		mount -t fuse.queenfs "$S" "$M"
		! mount -o remount,ro "$M" || exit 1
		umount "$M"
	'
	[[ $output == *'queenfs: -o has the unknown word "nonsense"; allowed are ro, rw, '* ]]
	[[ $output == *"queenfs: -o remount: a mount cannot be changed"* ]]
}

# ---- systemd ---------------------------------------------------------------------------

# unit_line KEY - what it is in the unit.
unit_line() { sed -n "s/^$1=-\?//p" "$BATS_TEST_TMPDIR/unit"; }

# unit - the unit as it is installed, for the binary that is tested.
unit() {
	sed "s|@BINDIR@/queenfs|$QUEENFS|" "$TREE/fs/queenfs@.service" >"$BATS_TEST_TMPDIR/unit"
}

# unit_run KEY - runs that command of the unit, as systemd would for $S and $M.
unit_run() {
	local command
	command=$(unit_line "$1")
	STORE=$S MOUNTPOINT=$M OPTIONS="-c $INI" exec bash -c "exec ${command//\$\$/\$}"
}

@test "READY=1 is told once the mount answers, STOPPING=1 before it ends" {
	unit
	for name in "$BATS_TEST_TMPDIR/socket" "@queenfs-test-$$-$BATS_TEST_NUMBER"; do
		rm -f "$BATS_TEST_TMPDIR/told"
		listen "$name"
		NOTIFY_SOCKET=$name spawn unit_run ExecStart >>"$L" 2>&1
		PID=$!
		wait_until has "$BATS_TEST_TMPDIR/told" '^READY=1$'
		cat "$M/version"
		not has "$BATS_TEST_TMPDIR/told" '^STOPPING=1$'
		kill -TERM "$PID"
		wait "$PID"
		PID=
		wait_until has "$BATS_TEST_TMPDIR/told" '^STOPPING=1$'
		is "$(sed '/^STATUS=writing/d' "$BATS_TEST_TMPDIR/told")" "$(printf '%s\n' \
			"STATUS=opening $S" READY=1 "STATUS=$S is mounted at $M" STOPPING=1)"
	done
	is "$(cat "$L")" ""
}

@test "READY=1 is not told for what was refused" {
	listen "$BATS_TEST_TMPDIR/socket"
	echo 'to whom it may concern' >"$S"
	NOTIFY_SOCKET=$BATS_TEST_TMPDIR/socket run -1 "$QUEENFS" -f -c "$INI" "$S" "$M" 3>&-
	[[ $output == *"not a queenfs store"* ]]
	not has "$BATS_TEST_TMPDIR/told" READY
}

@test "a NOTIFY_SOCKET that is none, or where nobody listens, is said and does no harm" {
	for name in tcp:1 "/$(printf 'x%.0s' {1..200})" "$BATS_TEST_TMPDIR/nobody"; do
		NOTIFY_SOCKET=$name start
		stop
	done
	is "$(grep -c 'NOTIFY_SOCKET is ".*allowed is the path of a socket' "$L")" 2
	has "$L" 'systemd could not be told "READY=1": No such file'
}

@test "the unit takes away a mount that was killed, and no other" {
	[ "$EUID" = 0 ] || skip "the unit is root's"
	unit
	start
	(unit_run ExecStopPost)
	up
	kill -9 "$PID"
	wait "$PID" || true
	PID=
	mountpoint -q "$M" || grep -qF " $M fuse.queenfs " /proc/self/mounts
	(unit_run ExecStopPost)
	not grep -qF " $M " /proc/self/mountinfo
	(unit_run ExecStopPost)
}

@test "the unit has nothing that gives it a mount namespace of its own" {
	unit
	not grep -E '^(Protect[A-Za-z]*|Private[A-Za-z]*|ProcSubset|TemporaryFileSystem|DynamicUser|Root[A-Za-z]*|(ReadOnly|ReadWrite|Inaccessible|Exec|NoExec|Bind|BindReadOnly)Paths|MountFlags|MountAPIVFS|LoadCredential|SetCredential|LogNamespace)=' \
		"$BATS_TEST_TMPDIR/unit"
}

@test "systemd-analyze verify finds nothing in the unit" {
	command -v systemd-analyze >/dev/null || skip "there is no systemd-analyze"
	unit
	# the page is not installed, and systemd-analyze would look
	sed '/^Documentation=/d' "$BATS_TEST_TMPDIR/unit" >"$BATS_TEST_TMPDIR/queenfs@jobs.service"
	run systemd-analyze verify "$BATS_TEST_TMPDIR/queenfs@jobs.service"
	[[ $status == 0 ]] || [[ $output == *"Failed to "*"manager"* ]]
	[[ $output != *queenfs@* ]] || { echo "$output" && return 1; }
}

# ---- the package -----------------------------------------------------------------------

# deb - makes the package; sets `package`.
deb() {
	local tool
	[ -z "${SANITIZE:-}" ] || skip "the package is made of a plain build"
	for tool in dpkg-deb dpkg-shlibdeps strip; do
		command -v "$tool" >/dev/null || skip "there is no $tool"
	done
	maker deb
	package=$(echo "$TREE"/build/queenfs_*.deb)
	[ -f "$package" ]
}

@test "make deb makes a package with what policy asks for" {
	deb
	is "$(dpkg-deb -f "$package" Package)" queenfs
	is "$(dpkg-deb -f "$package" Architecture)" "$(dpkg --print-architecture)"
	[[ $(dpkg-deb -f "$package" Depends) == *libfuse3-3*libinih1*libsqlite3-0*", fuse3" ]]
	local d=$BATS_TEST_TMPDIR/d
	dpkg-deb -R "$package" "$d"
	is "$(cat "$d/DEBIAN/conffiles")" /etc/queenfs.ini
	(cd "$d" && md5sum --quiet -c DEBIAN/md5sums)
	is "$(cd "$d" && find . ! -type d ! -path './DEBIAN/*' | sort)" "$(sort <<-'END'
		./etc/queenfs.ini
		./lib/systemd/system/queenfs@.service
		./sbin/mount.fuse.queenfs
		./usr/bin/queenfs
		./usr/share/doc/queenfs/README.md.gz
		./usr/share/doc/queenfs/changelog.gz
		./usr/share/doc/queenfs/copyright
		./usr/share/doc/queenfs/queenfs.ini.example
		./usr/share/man/man8/queenfs.8.gz
	END
	)"
	zcat "$d/usr/share/man/man8/queenfs.8.gz" | cmp - "$TREE/fs/queenfs.8"
	not dpkg-deb -c "$package" | grep -v ' root/root '
}

@test "the package installs, serves a mount, and is removed without a trace" {
	[ "$EUID" = 0 ] || skip "only root can install a package"
	deb
	local trace
	for trace in /etc/queenfs.ini /usr/bin/queenfs /sbin/mount.fuse.queenfs; do
		[ ! -e "$trace" ] || skip "this machine has a $trace of its own"
	done
	: >"$BATS_TEST_TMPDIR/installed"
	dpkg -i "$package" 3>&-
	is "$(dpkg-query -W -f '${Status}' queenfs)" "install ok installed"
	mount -t fuse.queenfs "$S" "$M" 3>&-
	[[ $(mount_line) == "$S $M fuse.queenfs "* ]]
	mkdir "$Q"
	echo hello >"$Q/push"
	is "$(cat "$Q/pop")" hello
	umount "$M"
	dpkg -r queenfs 3>&-
	[ -e /etc/queenfs.ini ] # removed, not purged
	purge
	rm "$BATS_TEST_TMPDIR/installed"
	not dpkg-query -W queenfs
	is "$(find /etc/queenfs* /usr/bin/queenfs* /sbin/mount.fuse.queenfs /lib/systemd/system/queenfs* /usr/share/doc/queenfs /usr/share/man/man8/queenfs* 2>/dev/null)" ""
}
