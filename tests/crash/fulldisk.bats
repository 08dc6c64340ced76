#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A full disk: pushes answer ENOSPC, all that makes room or moves on works (contract,
# section 13).

load ../fs/lib

DISK=
teardown() {
	local status=0
	tidy || status=$?
	[ -z "$DISK" ] || umount "$DISK" || status=1
	return "$status"
}

# disk MOUNT-ARGUMENT... - mounts a small disk and puts the store on it.
disk() {
	DISK=$BATS_TEST_TMPDIR/disk
	mkdir "$DISK"
	mount "$@" "$DISK" || { DISK= && return 1; }
	S=$DISK/queen.db
	ini reserve=6M wal_limit=1M
}

# fill - pushes to partition a until there is no room, then to b: it is the same there.
fill() {
	PAD=30000 writers "$1" 1 100000 "$Q/partitions/a/push" 2>"$BATS_TEST_TMPDIR/why" && return 1
	is "$(cat "$BATS_TEST_TMPDIR/why")" "${1}0: No space left on device"
	errors_has 'a/push: ENOSPC: .'
}

pushed() { is "$(sys write "$Q/partitions/b/push" $'again\n')" ok; }

# goes_on - the whole of what must work on a full disk, then that it recovers.
goes_on() {
	local a=$Q/partitions/a kept=$BATS_TEST_TMPDIR/kept half base
	start
	queue a b
	push "$Q/partitions/b" first
	fill w
	PAD=30000 written "$a/log"
	[ "$(stat -c %s "$a/log")" -gt 4000000 ] # it was full, not refused from the start

	# reading, acks, seeks
	pops "$a/groups/g/pop" "$(sed -n 1p "$a/log")" "$(sed -n 2p "$a/log")"
	is "$(cat "$G/cursor")" $'1\ta\n-1\tb'
	echo end >"$G/cursor"
	is "$(cat "$G/cursor")" "$(last "$a")"$'\ta\n0\tb'
	echo 5 >"$a/groups/g/cursor"
	pops "$a/groups/g/pop" "$(sed -n 7p "$a/log")"
	mkdir "$Q/groups/h"
	pops "$Q/partitions/b/groups/h/pop" first ''

	# and all of it again after kill -9, still full
	cp "$a/log" "$kept"
	crash
	start
	cmp "$a/log" "$kept"
	is "$(ls "$Q/groups")" $'g\nh'
	echo start >"$G/cursor"
	pops "$a/groups/g/pop" "$(sed -n 1p "$a/log")"

	# rm makes room
	half=$(($(last "$a") * 2 / 3))
	for base in $(ls "$a/segments" | sed 's/^0*\(.\)/\1/'); do
		[ "$base" -lt "$half" ] || break
		rm "$(segment "$a" "$base")"
	done
	tail -c "$(stat -c %s "$a/log")" "$kept" | cmp - "$a/log"
	wait_until pushed
	PAD=30000 writers v 1 20 "$Q/partitions/b/push"
	is "$(grep -vc '^v' "$Q/partitions/b/log")" 2
	remount
	tail -c "$(stat -c %s "$a/log")" "$kept" | cmp - "$a/log"
	is "$(grep -c '^v' "$Q/partitions/b/log")" 60
	stop
	is "$(sqlite3 "$S" 'pragma quick_check')" ok
}

@test "a full tmpfs" {
	disk -t tmpfs -o size=24M queenfs-test
	goes_on
}

@test "a full ext4" {
	command -v mkfs.ext4 >/dev/null || skip "no mkfs.ext4"
	truncate -s 40M "$BATS_TEST_TMPDIR/image"
	mkfs.ext4 -q -m 0 "$BATS_TEST_TMPDIR/image"
	disk -o loop "$BATS_TEST_TMPDIR/image" || skip "no loop device"
	goes_on
}
