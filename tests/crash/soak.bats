#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A long life: nothing grows, no promise is forgotten. This is the short form, in which only
# bounds are judged; `make soak` runs an hour and asks whether memory and files are flat.

load ../fs/lib
load ../fs/clock

@test "a mixed load, a clock that steps, readers that stop: all bounded, no promise broken" {
	command -v python3 >/dev/null || skip "no python3"
	local said=$BATS_TEST_TMPDIR/said
	own_clock
	export CLOCK
	spawn timeout 600 python3 "$BATS_TEST_DIRNAME/soak.py" "$BATS_TEST_TMPDIR" \
		"${SOAK_SECONDS:-12}" >"$said" 2>&1
	wait $! || { cat "$said" && return 1; }
	sed 's/^/# /' "$said" >&3
}
