#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 6 of the contract: where a group starts.

load lib

@test "a new group reads everything retained, of all partitions" {
	start
	mkdir "$Q"
	push "$Q" 1 2 3
	mkdir "$Q/partitions/a"
	push "$Q/partitions/a" a1 a2
	rm "$(segment "$P" 0)"
	mkdir "$G"
	is "$(cat "$G/cursor")" $'-1\ta\n0\tdefault'
	is "$(for _ in {1..5}; do cat "$G/pop"; done | sort)" $'2\n3\na1\na2'
}

@test "a partition made later is delivered from its start" {
	start
	queue
	push "$Q" 1
	pops "$G/pop" 1 ''
	mkdir "$Q/partitions/late"
	is "$(cat "$Q/partitions/late/groups/g/cursor")" -1
	push "$Q/partitions/late" l1 l2
	pops "$G/pop" l1 l2 ''
	is "$(cat "$G/cursor")" $'0\tdefault\n1\tlate'
}

@test "a partition made later, after a seek to the end and a restart, too" {
	start
	queue
	push "$Q" 1 2
	echo end >"$G/cursor"
	remount
	mkdir "$Q/partitions/late"
	push "$Q/partitions/late" l1
	pops "$G/pop" l1 ''
}

@test "a cursor that a seek has set stays" {
	start
	queue
	push "$Q" 1 2 3
	echo end >"$G/cursor"
	pops "$G/pop" ''
	is "$(cat "$PG/cursor")" 2
	push "$Q" 4
	pops "$G/pop" 4 ''
}

@test "registrations and cursors survive a restart" {
	start
	queue a
	mkdir "$Q/groups/h" "$Q/groups/two words"
	push "$Q/partitions/a" 1 2 3
	pops "$G/pop" 1
	pops "$Q/groups/h/pop" 1 2
	pops "$Q/pop" 1 2 3
	remount
	is "$(ls "$Q/groups")" $'default\ng\nh\ntwo words'
	is "$(cat "$Q/groups/"{default,g,h,"two words"}/cursor)" $'2\ta\n0\ta\n1\ta\n-1\ta'
	pops "$G/pop" 2
	pops "$Q/groups/h/pop" 3 ''
	pops "$Q/pop" ''
}

@test "registering is durable across kill -9" {
	start
	queue p
	cat "$Q/pop" # makes group default
	mkdir "$Q/partitions/p/groups/h"
	crash
	start
	is "$(ls "$Q/groups")" $'default\ng\nh'
	is "$(ls "$Q/partitions")" p
	rmdir "$Q/groups/h"
	crash
	start
	is "$(ls "$Q/groups")" $'default\ng'
}
