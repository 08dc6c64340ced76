#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What stands between the daemon and who means it harm: how it is built, what it holds, what a
# stranger can make it spend. Who may do what is in 25_permissions.bats.
# Of bats: tests are subshells; of one, what another user runs is in single quotes.
# shellcheck disable=SC2016,SC2030,SC2031

load lib

STRANGER=64009

# elf OPTION - what readelf says of the program.
elf() { readelf -W "$1" "$QUEENFS"; }

# status KEY - of /proc/PID/status.
status() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$PID/status"; }

@test "the program is built to be hard to turn against itself" {
	[ -z "${QUEENFS_SANITIZE:-}" ] || skip "a sanitizer's build is another"
	command -v readelf >/dev/null || skip "there is no readelf"
	elf -h | grep -Eq 'Type: +DYN'
	elf -d | grep -Eq '\(FLAGS_1\).*NOW.*PIE|\(FLAGS_1\).*PIE.*NOW'
	elf -d | grep -Eq '\(FLAGS\).*BIND_NOW'
	elf -l | grep -q 'GNU_RELRO'
	elf -l | grep -E 'GNU_STACK' | grep -vq 'RWE'
	not grep -Eq 'TEXTREL|RPATH|RUNPATH' <(elf -d)
	elf -s | grep -q '__stack_chk_fail'
	elf -s | grep -Eq '__(memcpy|snprintf|vsnprintf|read)_chk'
}

# in_background - mounts as most do, and finds the daemon's PID.
in_background() {
	local line
	"$QUEENFS" -c "$INI" -s "$S" "$M" 3>&-
	for line in /proc/[0-9]*/cmdline; do
		tr '\0' ' ' 2>/dev/null <"$line" | grep -qF -- "-s $S $M" || continue
		PID=${line//[!0-9]/}
	done
}

@test "the daemon dumps no core, stands in /, and leaves nothing to what it runs" {
	local fd
	in_background
	queue
	push "$Q" a
	pops "$G/pop" a
	is "$(awk '/^Max core file size/ { print $5 }' "/proc/$PID/limits")" 0
	is "$(readlink "/proc/$PID/cwd")" /
	for fd in 0 1 2; do is "$(readlink "/proc/$PID/fd/$fd")" /dev/null; done
	for fd in /proc/"$PID"/fdinfo/*; do
		[ "${fd##*/}" -gt 2 ] || continue
		(($(awk '/^flags/ { print "0" $2 }' "$fd") & 02000000)) ||
			{ echo "not closed on exec: $(readlink "/proc/$PID/fd/${fd##*/}")" && return 1; }
	done
	fusermount3 -u "$M"
	wait_until gone
	PID=
}

@test "started by root the daemon keeps only what mounting and its files take" {
	[ "$(id -u)" = 0 ] || skip "this is about root"
	start
	is "$(status NoNewPrivs)" 1
	# sys_admin, chown, dac_override, fowner, sys_resource, sys_ptrace
	is "$((0x$(status CapEff) & ~(1 << 21 | 1 | 1 << 1 | 1 << 3 | 1 << 24 | 1 << 19)))" 0
	is "$(status CapEff)" "$(status CapPrm)"
	is "$((0x$(status CapInh)))" 0
	stop # it can still unmount
	not mountpoint -q "$M"
}

@test "started by a user it has nothing to give up, and unmounts by itself" {
	[ -z "${QUEENFS_SANITIZE:-}" ] || skip "its reports belong to root"
	as_user '
		mkdir mnt && : >queenfs.ini
		"$queenfs" -f -c queenfs.ini queen.db mnt &
		until cat mnt/version 2>/dev/null; do kill -0 $! && sleep 0.02; done
		[ "$(awk "/^NoNewPrivs/ { print \$2 }" /proc/$!/status)" = 0 ]
		[ "$(awk "/^CapEff/ { print \$2 }" /proc/$!/status)" = 0000000000000000 ]
		kill -TERM $!
		wait $!
		! grep -F " $PWD/mnt " /proc/self/mountinfo
	'
}

@test "the store and what lies beside it are nobody else's to read, whatever the umask" {
	local file
	umask 0
	ini durability=os
	start
	queue
	push "$Q" secret
	for file in "$S" "$S"-*; do
		is "$file $(stat -c %a "$file")" "$file 600"
	done
	[ -e "$S-wal" ] && [ -e "$S-tail" ] && [ -e "$S-lock" ] && [ -e "$S-reserve" ]
}

# pestered - a stranger tries all doors again and again.
pestered() {
	(cd "$M" && setpriv --reuid "$STRANGER" --regid "$STRANGER" --clear-groups timeout 100 \
		python3 - 3>&- <<-'EOF'
		import os, sys
		def tried(function):
		    try: function()
		    except OSError: return
		    sys.exit("it was let in")
		held = [os.open("errors", os.O_RDONLY), os.open("README", os.O_RDONLY)]
		q = "queues/q"
		for i in range(1500):
		    tried(lambda: os.mkdir(f"queues/n{i}"))
		    tried(lambda: os.mkdir(f"{q}/partitions/n{i}"))
		    tried(lambda: os.mkdir(f"{q}/groups/n{i}"))
		    tried(lambda: os.stat(f"{q}/groups/n{i}"))
		    tried(lambda: os.stat(f"queues/{i}" + "x" * 180))
		    for name, flags in (("push", os.O_WRONLY), ("push.json", os.O_RDWR), ("pop", os.O_RDONLY),
		        ("groups/g/cursor", os.O_RDWR), ("groups/g/follow.json", os.O_RDONLY),
		        ("partitions/default/log", os.O_RDONLY), ("config/batch", os.O_RDONLY)):
		        tried(lambda: os.open(q + "/" + name, flags))
		    tried(lambda: os.link("README", "queues/l"))
		    tried(lambda: os.chmod(q, 0o777))
		    tried(lambda: os.listdir(q))
		    tried(lambda: os.rmdir(q))
		    tried(lambda: os.setxattr(q, "user.x", b"x" * 1000))
		EOF
	)
}

@test "a stranger gets in nowhere, and costs no memory however often they try" {
	local before
	[ "$(id -u)" = 0 ] || skip "only root can be another user"
	[ -z "${QUEENFS_SANITIZE:-}" ] || skip "a sanitizer keeps what was freed"
	chmod 755 "$BATS_TEST_TMPDIR"
	start
	queue
	push "$Q" secret
	chmod 700 "$Q"
	pestered
	before=$(status VmRSS)
	pestered
	(($(status VmRSS) <= before + 2048))
	pops "$G/pop" secret
}
