# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# lib.sh - what the examples share, so that each shows only what it is about. An example
# that sources this has a temporary directory, $tmp, of its own, and may end anywhere:
# no process, no mount and no file stays behind.
#
#   QUEENFS     the daemon                  (../build/queenfs)
export LC_ALL=C

here=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
QUEENFS=${QUEENFS:-$here/../build/queenfs}

tmp=$(mktemp -d)
# shellcheck disable=SC2034 # an example uses it
mnt=$tmp/mnt
declare -A daemons=() # the process of each mount

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# wait_until COMMAND... - until it succeeds.
wait_until() {
	local end=$((SECONDS + 60))
	until "$@"; do
		((SECONDS < end)) || fail "not so within 60 s: $*"
		sleep 0.02
	done
}

# same WHAT FILE FILE - fails, saying WHAT, unless they are equal.
same() {
	cmp -s "$2" "$3" || { diff "$2" "$3" | head >&2 || true; fail "$1"; }
}

lines() { wc -l <"$1"; }

# ---- the mount -----------------------------------------------------------------------

# mount_store STORE MOUNT - does what `queenfs STORE MOUNT` does, with a daemon that stays a
# child of the example. Returns when the mount answers.
mount_store() {
	mkdir -p "$2" 2>/dev/null || true # after a crash it is there, and dead
	: >"$tmp/queenfs.ini"             # so that /etc/queenfs.ini is not read
	"$QUEENFS" -f -c "$tmp/queenfs.ini" "$1" "$2" &
	daemons[$2]=$!
	wait_until answers_or_ended "$2"
	answers "$2" || fail "queenfs did not mount $1"
}
answers() { [[ -e $1/version ]]; }
answers_or_ended() { answers "$1" || ! kill -0 "${daemons[$1]}" 2>/dev/null; }

# unmount_store MOUNT - as soon as nobody has a file of it open; the daemon must end well.
unmount_store() {
	local daemon=${daemons[$1]}
	wait_until unmounted "$1"
	unset "daemons[$1]"
	wait "$daemon" || fail "queenfs ended with status $?"
}
unmounted() { fusermount3 -u "$1" 2>/dev/null || ! mountpoint -q "$1"; }

# crash_store MOUNT - kill -9 of the daemon. The next mount_store removes what is left.
crash_store() {
	kill -9 "${daemons[$1]}"
	{ wait "${daemons[$1]}" || true; } 2>/dev/null
}

# ---- workers -------------------------------------------------------------------------

# spawn COMMAND... - runs it in the background ($!), in a process group of its own.
spawn() {
	set -m
	"$@" &
	set +m
}

# stop [-SIGNAL] PID... - ends what spawn has begun, with all that it has started.
stop() {
	local signal=-TERM
	[[ $1 != -* ]] || { signal=$1 && shift; }
	kill "$signal" -- "${@/#/-}" || true
	wait "$@" || true
} 2>/dev/null

# ---- the end -------------------------------------------------------------------------

cleanup() {
	local pid at
	for pid in $(jobs -pr); do
		kill -9 -- "-$pid" || true # the daemon leads no process group
	done
	for at in "${!daemons[@]}"; do
		fusermount3 -u "$at" || { kill -9 "${daemons[$at]}" && fusermount3 -uz "$at"; } || true
	done
	wait
	rm -rf --one-file-system "$tmp"
} 2>/dev/null
trap cleanup EXIT
trap 'echo "${0##*/}: line $LINENO: that failed" >&2' ERR
trap 'exit 1' INT TERM HUP
