#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What is guaranteed, tried at random moments (contract, sections 2, 4 and 13). This is the
# short form; `make torture` runs as much as KILLS, CUTS and ERRORS say.

load ../fs/lib

HERE=$BATS_TEST_DIRNAME

@test "the checker finds every fault of records made by hand, and none in a right one" {
	command -v python3 >/dev/null || skip "no python3"
	python3 "$HERE/test_checker.py"
}

@test "kill -9 under every kind of load: nothing lost, reordered, doubled or moved" {
	command -v python3 >/dev/null || skip "no python3"
	local said=$BATS_TEST_TMPDIR/said
	spawn timeout 600 python3 "$HERE/kills.py" "$BATS_TEST_TMPDIR" "${KILLS:-10}" >"$said" 2>&1
	wait $! || { cat "$said" && return 1; }
	sed 's/^/# /' "$said" >&3
}

# power MODE DURABILITY NUMBER
power() {
	local program=${CRASH_BIN:-$PWD/${BUILD:-build}/tests/crash}/power said=$BATS_TEST_TMPDIR/said
	[ -z "${SANITIZE:-}" ] || skip "the disk it makes up and sanitizers stand in the same place"
	TMPDIR=$BATS_TEST_TMPDIR timeout 600 "$program" "$@" >"$said" 2>&1 || {
		head -c 20000 "$said"
		return 1
	}
	sed 's/^/# /' "$said" >&3
}

@test "power cuts, durability disk: what was answered is there, and nothing in halves" {
	power cuts disk 60
}

@test "power cuts, durability os: the end is missing, but nothing from before a sync" {
	power cuts os 60
}

@test "EIO and ENOSPC at any write and sync, durability disk: refused, and nothing changed" {
	power errors disk 60
}

@test "EIO and ENOSPC at any write and sync, durability os: refused, and nothing changed" {
	power errors os 60
}

@test "a sync that fails while the WAL is copied, at the close or before a start loses nothing" {
	power syncs disk 2
	power syncs os 2
}
