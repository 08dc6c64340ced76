#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 12 of the contract: owners and modes, as other users meet them. Root mounts, so
# allow_other is on.

load lib

bats_require_minimum_version 1.5.0

OWNER=64001 PRODUCER=64002 CONSUMER=64003 STRANGER=64004
TEAM=64100 # a Unix group

setup_file() {
	[ "$(id -u)" = 0 ] || skip "only root can be other users"
}

# as UID COMMAND... - in the mount ($M: paths are relative), as that user and no Unix group
# but its own and those in GROUPS_OF. A function of this file or of lib works too.
as() {
	local uid=$1 groups=(--clear-groups)
	shift
	[ -z "${GROUPS_OF:-}" ] || groups=(--groups "$GROUPS_OF")
	if [ "$(type -t "$1")" = function ]; then
		set -- bash -c "$(declare -f "$1"); \"\$@\"" - "$@"
	fi
	(cd "$M" && exec setpriv --reuid "$uid" --regid "$uid" "${groups[@]}" "$@" 3>&-)
}

# can UID VERB PATH... - ok or the name of the errno, of an operation as in sys.
can() { as "$1" sys "${@:2}"; }

# cannot UID ERRNO LINE... - each LINE is an operation as in sys; all must be refused so.
cannot() {
	local line words got
	for line in "${@:3}"; do
		read -ra words <<<"$line"
		got=$(can "$1" "${words[@]}")
		is "$line: $got" "$line: $2"
	done
}

# may UID LINE... - each must succeed.
may() {
	local line words
	for line in "${@:2}"; do
		read -ra words <<<"$line"
		is "$line: $(can "$1" "${words[@]}")" "$line: ok"
	done
}

# mode PATH - its owner, Unix group and mode.
mode() { (cd "$M" && stat -c '%u %g %a' "$1"); }

# holder UID PATH - a process of that user that has PATH open; each line written to
# ${HOLDER[1]} is a mode for it, and what chmod comes to is a line in ${HOLDER[0]}.
holder() {
	coproc HOLDER {
		as "$1" perl -MFcntl -MErrno -e '
			$| = 1;
			sysopen(my $f, $ARGV[0], O_RDONLY) or die "$ARGV[0]: $!\n";
			print "open\n";
			while (<STDIN>) {
				my $done = chmod oct, $f;
				my ($name) = grep { $!{$_} } sort keys %!;
				print $done ? "ok" : $name, "\n";
			}' "$2"
	}
	local line
	read -r line <&"${HOLDER[0]}"
	is "$line" open
}
held() { # MODE WANTED
	local line
	echo "$1" >&"${HOLDER[1]}"
	read -r line <&"${HOLDER[0]}"
	is "$line" "$2"
}

# ---- changes ------------------------------------------------------------------------

@test "a changed mode holds at once, in each place where the directory is seen" {
	start
	queue p
	local g=queues/q/groups/g mirror=queues/q/partitions/p/groups/g one two
	for one in "$g" "$mirror"; do
		for two in "$g" "$mirror"; do
			chmod 777 "$M/$two"
			is "$(mode "$g")" "0 0 777"
			is "$(mode "$mirror")" "0 0 777"
			may $STRANGER "read $g/cursor" "read $mirror/cursor"
			as $STRANGER ls "$g" "$mirror" >/dev/null
			chmod 700 "$M/$one"
			is "$(mode "$g")" "0 0 700"
			is "$(mode "$mirror")" "0 0 700"
			cannot $STRANGER EACCES "read $g/cursor" "read $mirror/cursor"
			not as $STRANGER ls "$g" 2>/dev/null
			not as $STRANGER ls "$mirror" 2>/dev/null
		done
	done
}

@test "groups/ and its mirrors have one mode, wherever it is changed" {
	start
	queue a b
	local dir=queues/q/groups a=queues/q/partitions/a/groups b=queues/q/partitions/b/groups
	chmod 777 "$M/$a"
	may $STRANGER "mkdir $dir/one" "mkdir $a/two" "mkdir $b/three"
	chmod 755 "$M/$b"
	cannot $STRANGER EACCES "mkdir $dir/x" "mkdir $a/x" "mkdir $b/x" "rmdir $dir/one"
	is "$(ls "$Q/groups")" $'g\none\nthree\ntwo'
}

@test "a former owner with the directory open changes nothing any more" {
	start
	queue p
	chown $CONSUMER "$G"
	local path
	for path in "$G" "$Q/partitions/p/groups/g"; do
		chown $CONSUMER "$G"
		holder $CONSUMER "${path#"$M/"}"
		held 770 ok
		is "$(mode queues/q/groups/g)" "$CONSUMER 0 770"
		chown $OWNER "$G"
		held 777 EPERM
		is "$(mode queues/q/groups/g)" "$OWNER 0 770"
		eval "exec ${HOLDER[1]}>&-"
		wait "$HOLDER_PID"
	done
}
