#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Every example works: each program in examples/ ends with status 0, and README names it.

# shellcheck disable=SC2016
load fs/lib

@test "every example ends with status 0" {
	local example failed=() ran=0
	for example in "$BATS_TEST_DIRNAME"/../examples/*; do
		[ -f "$example" ] && [ -x "$example" ] || continue
		ran=$((ran + 1))
		mkdir "$BATS_TEST_TMPDIR/$ran"
		echo "--- ${example##*/}"
		(cd "$BATS_TEST_TMPDIR/$ran" && timeout 300 "$example" </dev/null 3>&-) ||
			failed+=("${example##*/} ($?)")
	done
	echo "failed: ${failed[*]}"
	[ "${#failed[@]}" = 0 ]
	[ "$ran" -ge 10 ]
}

@test "README names every example" {
	diff -u --label README --label examples/ \
		<(sed -n '/^## Examples/,/^## Where/s/^| `\([^`]*\)` |.*/\1/p' \
			"$BATS_TEST_DIRNAME/../README.md") \
		<(find "$BATS_TEST_DIRNAME/../examples" -maxdepth 1 -type f -perm -u+x \
			-printf '%f\n' | sort)
}
