# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# clock.bash - a daemon whose wall clock the test sets. For what takes hours.

# own_clock - what `start` mounts from now on has a clock of its own, which is right at first.
own_clock() {
	local shim=$BATS_FILE_TMPDIR/clock.so program=$QUEENFS
	CLOCK=$BATS_TEST_TMPDIR/clock
	[ -e "$shim" ] || ${CC:-cc} -shared -fPIC -O2 -D_GNU_SOURCE -o "$shim" \
		"${BASH_SOURCE[0]%/*}/clock.c"
	QUEENFS=$BATS_TEST_TMPDIR/queenfs
	cat >"$QUEENFS" <<-END
		#!/bin/sh
		ASAN_OPTIONS=\${ASAN_OPTIONS:+\$ASAN_OPTIONS:}verify_asan_link_order=0
		LD_PRELOAD='$shim' QUEENFS_CLOCK='$CLOCK'
		export ASAN_OPTIONS LD_PRELOAD QUEENFS_CLOCK
		exec '$program' "\$@"
	END
	chmod 755 "$QUEENFS"
}

# clock SECONDS - from now on it is so many seconds fast (slow, if negative).
clock() {
	echo "$1" >"$CLOCK.new"
	mv "$CLOCK.new" "$CLOCK"
}

# seconds TIME - of a printed time, with its microseconds.
seconds() { date -d "$1" +%s.%6N; }
