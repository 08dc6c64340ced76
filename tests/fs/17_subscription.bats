#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 6 of the contract: where a group starts, and who decides it until when.
# What holds for every group, whatever its subscription, is in 06_start.bats.

load lib
load clock

# created N [PARTITION] - created_at of the segment that begins with message N.
created() { attribute "$(segment "${2:-$P}" "$1")" created_at; }

# group NAME SUBSCRIPTION - makes one that starts there.
group() {
	mkdir "$Q/groups/$1"
	setting "$Q/groups/$1" subscription "$2"
}

subscription() { cat "${1:-$G}/config/subscription"; }

# decided [GROUP] - it can no longer be written, and says what it said.
decided() {
	local dir=${1:-$G} text before
	before=$(subscription "$dir")
	for text in all new now 2020-01-01T00:00:00Z default; do
		is "$text: $(sys write "$dir/config/subscription" "$text"$'\n')" "$text: EBUSY"
	done
	errors_has 'config/subscription: EBUSY: .'
	is "$(subscription "$dir")" "$before"
}

# undecided - that of group g can be written.
undecided() {
	setting "$G" subscription new
	setting "$G" subscription all
	is "$(subscription)" all
}

# ---- what it says ----------------------------------------------------------------------

@test "subscription reads all, new or a time" {
	start
	queue
	is "$(subscription)" all
	is "$(subscription "$Q")" all
	local dir
	for dir in "$G" "$Q"; do
		setting "$dir" subscription new
		is "$(subscription "$dir")" new
		setting "$dir" subscription 2026-07-29T14:00:00Z
		subscription "$dir" | grep -Eqx '2026-07-29T14:00:00(\.0+)?Z'
		setting "$dir" subscription '2026-07-29 16:00:00.25 +02:00'
		subscription "$dir" | grep -Eqx '2026-07-29T14:00:00\.250*Z'
		setting "$dir" subscription all
		is "$(subscription "$dir")" all
	done
}

@test "now is new, and reads new" {
	start
	queue
	push "$Q" 1
	setting "$Q" subscription now
	is "$(subscription "$Q")" new
	setting "$G" subscription now
	is "$(subscription)" new
	push "$Q" 2
	pops "$G/pop" 2 ''
}

@test "what subscription reads can be written back" {
	start
	queue
	push "$Q" 1 2 3
	setting "$G" subscription "$(created 1)"
	local text
	text=$(subscription)
	setting "$G" subscription all
	setting "$G" subscription "$text"
	is "$(subscription)" "$text"
	pops "$G/pop" 2 3 ''
}

@test "a subscription that means nothing is EINVAL, says what is allowed, and changes nothing" {
	start
	queue
	setting "$G" subscription 2026-07-29T14:00:00Z
	setting "$Q" subscription new
	local dir text before
	for dir in "$G" "$Q"; do
		before=$(subscription "$dir")
		for text in '' bogus yesterday 5 -1 'new all' all,new 2026-13-01 2026-02-30T00:00Z; do
			is "'$text': $(sys write "$dir/config/subscription" "$text"$'\n')" \
				"'$text': EINVAL"
			is "$(subscription "$dir")" "$before"
		done
		errors_has 'config/subscription: EINVAL: .*"2026-02-30T00:00Z".*all.*new'
	done
}

@test "a subscription needs no newline" {
	start
	queue
	printf new >"$G/config/subscription"
	is "$(od -An -c "$G/config/subscription" | tr -s ' ')" ' n e w \n'
}

# ---- all, new and a time -----------------------------------------------------------------

@test "all: the beginning of time, every message still there" {
	start
	mkdir "$Q" "$Q/partitions/a"
	push "$Q" 1 2 3
	push "$Q/partitions/a" a1
	rm "$(segment "$P" 0)"
	group g all
	is "$(cat "$G/cursor")" $'-1\ta\n0\tdefault'
	is "$(for _ in 1 2 3; do cat "$G/pop"; done | sort)" $'2\n3\na1'
	pops "$G/pop" ''
}

@test "new: the moment of the mkdir; what is pushed after it and before the first pop is delivered" {
	start
	mkdir "$Q" "$Q/partitions/a"
	push "$Q" 1 2
	setting "$Q" subscription new
	mkdir "$G"
	is "$(subscription)" new
	push "$Q" 3
	push "$Q/partitions/a" a1
	is "$(cat "$G/cursor")" $'-1\ta\n1\tdefault'
	push "$Q" 4
	is "$(cat "$G/cursor")" $'-1\ta\n1\tdefault'
	is "$(for _ in 1 2 3; do cat "$G/pop"; done | sort)" $'3\n4\na1'
	pops "$G/pop" ''
}

@test "new: the moment of writing it" {
	start
	queue
	push "$Q" 1
	setting "$G" subscription new
	push "$Q" 2
	setting "$G" subscription new
	is "$(cat "$PG/cursor")" 1
	push "$Q" 3
	pops "$G/pop" 3 ''
}

@test "new: the backlog is skipped to its last message, however short ago it was pushed" {
	start
	mkdir "$Q"
	local i
	for i in 1 2 3 4 5; do
		push "$Q" "before $i"
		group "g$i" new
		push "$Q" "after $i"
		pops "$Q/groups/g$i/pop" "after $i" ''
	done
}

@test "new: nothing pushed after the mkdir is missed when there are many writers" {
	start
	queue a b
	setting "$Q" subscription new
	local i from storm
	PAD=200 spawn writers w 4 150 "$Q/partitions/"{a,b}/push
	storm=$!
	for i in 1 2 3; do
		mkdir "$Q/groups/h$i"
		from[i]=$(cat "$Q/groups/h$i/cursor")
		push "$Q" "mark $i"
	done
	wait "$storm"
	for i in 1 2 3; do
		is "$(cut -f 2 <<<"${from[i]}" | head -n 2)" $'a\nb'
		is "$(head -n 2 "$Q/groups/h$i/cursor")" "$(head -n 2 <<<"${from[i]}")"
		setting "$Q/groups/h$i" batch 1000
		is "$(cat "$P/groups/h$i/pop")" "$(seq -f 'mark %g' "$i" 3)"
	done
}

@test "new: a partition made later is read from its first message" {
	start
	queue
	push "$Q" 1
	setting "$G" subscription new
	mkdir "$Q/partitions/late"
	push "$Q/partitions/late" l1 l2
	is "$(cat "$Q/partitions/late/groups/g/cursor")" -1
	pops "$G/pop" l1 l2 ''
	mkdir "$Q/partitions/later"
	push "$Q/partitions/later" m1 m2
	remount
	pops "$G/pop" m1 m2 ''
}

@test "new: a partition made later, when the clock has been put back" {
	own_clock
	start
	queue a
	push "$Q/partitions/a" a1
	setting "$G" subscription new
	clock -3600
	mkdir "$Q/partitions/late"
	push "$Q/partitions/late" l1 l2
	push "$Q/partitions/a" a2
	is "$(cat "$G/cursor")" $'0\ta\n-1\tlate'
	is "$(for _ in 1 2 3; do cat "$G/pop"; done | sort)" $'a2\nl1\nl2'
	pops "$G/pop" ''
}

@test "new: nothing is missed when the clock was put back before anything was pushed" {
	own_clock
	start
	mkdir "$Q" "$Q/partitions/a"
	setting "$Q" subscription new
	mkdir "$G"
	clock -86400
	mkdir "$Q/partitions/late"
	push "$Q/partitions/a" a1
	push "$Q/partitions/late" l1
	is "$(for _ in 1 2; do cat "$G/pop"; done | sort)" $'a1\nl1'
}

@test "new: nothing is missed when the clock was put back while the daemon was down" {
	own_clock
	start
	queue a
	setting "$G" subscription new
	stop
	clock -86400
	start
	mkdir "$Q/partitions/late"
	push "$Q/partitions/a" a1
	push "$Q/partitions/late" l1
	is "$(for _ in 1 2; do cat "$G/pop"; done | sort)" $'a1\nl1'
}

@test "new: the backlog is skipped also when the clock has been put back since" {
	own_clock
	start
	queue a
	push "$Q/partitions/a" a1 a2
	clock -3600
	setting "$G" subscription new
	is "$(cat "$G/cursor")" $'1\ta'
	push "$Q/partitions/a" a3
	pops "$G/pop" a3 ''
}

@test "a time: just below the first segment with created_at >= it, in each partition" {
	start
	queue a b
	push "$Q/partitions/a" a0 a1
	push "$Q/partitions/b" b0
	push "$Q/partitions/a" a2
	push "$Q/partitions/b" b1
	setting "$G" subscription "$(created 2 "$Q/partitions/a")"
	is "$(cat "$G/cursor")" $'1\ta\n0\tb'
	group h "$(stat -c %y "$(segment "$Q/partitions/a" 1)")"
	is "$(cat "$Q/groups/h/cursor")" $'0\ta\n-1\tb'
	is "$(for _ in 1 2; do cat "$G/pop"; done | sort)" $'a2\nb1'
	pops "$G/pop" ''
	is "$(for _ in 1 2 3 4; do cat "$Q/groups/h/pop"; done | sort)" $'a1\na2\nb0\nb1'
}

@test "a time just after a segment: the next one; after all: what is pushed from now on" {
	start
	queue
	push "$Q" 0 1 2
	local t
	t=$(created 1)
	setting "$G" subscription "${t%Z}0001Z" # fractions are rounded up
	is "$(cat "$PG/cursor")" 1
	t=$(created 2)
	setting "$G" subscription "${t%Z}0001Z"
	is "$(cat "$PG/cursor")" 2
	push "$Q" 3
	pops "$G/pop" 3 ''
}

@test "a time older than the oldest message: the oldest" {
	start
	queue
	push "$Q" 0 1 2
	local t
	t=$(created 0)
	rm "$(segment "$P" 0)"
	setting "$G" subscription "$t"
	is "$(cat "$PG/cursor")" 0
	setting "$G" subscription 2000-01-01
	is "$(cat "$PG/cursor")" 0
	pops "$G/pop" 1 2 ''
}

@test "a time: a partition made later does not hide its backlog" {
	start
	queue
	push "$Q" 0 1
	setting "$G" subscription "$(created 1)"
	pops "$G/pop" 1 ''
	mkdir "$Q/partitions/late"
	push "$Q/partitions/late" l0 l1
	pops "$G/pop" l0 l1 ''
}

@test "a time in the future counts as now" {
	start
	queue a
	push "$Q/partitions/a" a0 a1
	setting "$G" subscription 2999-01-01
	is "$(cat "$G/cursor")" $'1\ta'
	push "$Q/partitions/a" a2
	mkdir "$Q/partitions/late"
	push "$Q/partitions/late" l0
	is "$(for _ in 1 2; do cat "$G/pop"; done | sort)" $'a2\nl0'
	setting "$Q" subscription 2999-01-01
	mkdir "$Q/groups/h"
	push "$Q/partitions/a" a3
	pops "$Q/groups/h/pop" a3 ''
}

@test "a segment of many messages is one moment: all of it or nothing" {
	start
	queue
	push "$Q" before
	seq 100 | dd of="$Q/push" iflag=fullblock bs=4096 status=none
	setting "$G" subscription "$(created 1)"
	is "$(cat "$PG/cursor")" 0
	pops "$G/pop" 1 2
	group h new
	pops "$Q/groups/h/pop" ''
}

# ---- who says it -------------------------------------------------------------------------

@test "mkdir registers the group with the queue's subscription" {
	start
	mkdir "$Q" "$P"
	push "$Q" 1 2 3
	setting "$Q" subscription new
	mkdir "$Q/groups/n" "$P/groups/m"
	setting "$Q" subscription "$(created 1)"
	mkdir "$Q/groups/t"
	setting "$Q" subscription all
	mkdir "$Q/groups/a"
	is "$(subscription "$Q/groups/n") $(subscription "$Q/groups/m")" 'new new'
	is "$(subscription "$Q/groups/a")" all
	is "$(seconds "$(subscription "$Q/groups/t")")" "$(seconds "$(created 1)")"
	is "$(cat "$Q/groups/"{a,m,n,t}/cursor | cut -f 1 | paste -sd ' ')" '-1 2 2 0'
}

@test "the first open of the queue's pop registers group default with the queue's subscription" {
	start
	mkdir "$Q"
	push "$Q" 1
	setting "$Q" subscription new
	pops "$Q/pop" ''
	is "$(subscription "$Q/groups/default")" new
	push "$Q" 2
	pops "$Q/pop" 2 ''
}

@test "what the queue's subscription becomes later does not concern a group" {
	start
	mkdir "$Q"
	push "$Q" 1
	setting "$Q" subscription new
	mkdir "$G"
	setting "$Q" subscription all
	is "$(subscription)" new
	remount
	is "$(subscription)" new
	push "$Q" 2
	pops "$G/pop" 2 ''
}

@test "a group's default takes the queue's" {
	start
	queue
	push "$Q" 1
	setting "$Q" subscription new
	setting "$G" subscription default
	is "$(subscription)" new
	push "$Q" 2
	pops "$G/pop" 2 ''
	setting "$Q" subscription default
	is "$(subscription "$Q")" all
}

@test "a group's subscription does not concern the queue or other groups" {
	start
	queue
	mkdir "$Q/groups/h"
	push "$Q" 1
	setting "$G" subscription new
	is "$(subscription "$Q") $(subscription "$Q/groups/h")" 'all all'
	pops "$Q/groups/h/pop" 1
	pops "$G/pop" ''
}

@test "queenfs.ini names it for new queues and for one queue" {
	printf '%s\n' '[defaults]' 'subscription = new' '[queue q]' \
		'subscription = 2020-01-01T00:00:00Z' >"$INI"
	start
	mkdir "$M/queues/other"
	is "$(subscription "$M/queues/other")" new
	subscription "$Q" | grep -Eqx '2020-01-01T00:00:00(\.0+)?Z'
}

@test "a group made again starts anew" {
	start
	queue
	push "$Q" 1
	setting "$G" subscription new
	pops "$G/pop" ''
	rmdir "$G"
	mkdir "$G"
	is "$(subscription)" all
	undecided
	pops "$G/pop" 1 ''
	decided
}

# ---- until when ----------------------------------------------------------------------------

@test "it can be written until the group's first read, then EBUSY" {
	start
	queue
	push "$Q" 1 2
	undecided
	pops "$G/pop" 1
	decided
	remount
	decided
	pops "$G/pop" 2 ''
}

@test "also a first read that finds nothing decides: of pop" {
	start
	queue
	setting "$G" subscription new
	is "$(cat "$G/pop")" ''
	decided
	remount
	decided
	push "$Q" 1 # to a partition that did not exist at that read
	pops "$G/pop" 1 ''
}

@test "also a first read that finds nothing decides: of follow" {
	start
	queue a
	is "$(handle ro+ "$G/follow" read)" '[EAGAIN]'
	decided
	mkdir "$Q/groups/h" "$Q/groups/i"
	is "$(handle rw+ "$Q/groups/h/follow" read)" '[EAGAIN]'
	decided "$Q/groups/h"
	reader "$BATS_TEST_TMPDIR/out" "$Q/groups/i/follow"
	wait_until waiting 1 "$Q/groups/i/stats"
	decided "$Q/groups/i"
}

@test "a first read in one partition decides, and so does one of a .json file" {
	start
	queue a b
	push "$Q/partitions/b" b0
	is "$(cat "$Q/partitions/a/groups/g/pop")" ''
	decided
	local file i=0
	for file in pop.json follow.json; do
		i=$((i + 1))
		mkdir "$Q/groups/h$i"
		handle ro+ "$Q/groups/h$i/$file" read
		decided "$Q/groups/h$i"
	done
}

@test "the queue's pop decides for group default" {
	start
	mkdir "$Q"
	is "$(cat "$Q/pop")" ''
	decided "$Q/groups/default"
}

@test "looking, opening, reading log and cursor, and seeking are no first read" {
	start
	queue
	push "$Q" 1 2
	ls -lR "$Q" >/dev/null
	cat "$G/cursor" "$PG/cursor" "$G/stats" "$G/members" "$P/log" >/dev/null
	undecided
	local fd other
	exec {fd}<"$G/pop" {other}<>"$G/follow"
	undecided
	exec {fd}<&- {other}>&-
	echo 0 >"$PG/cursor"
	echo end >"$G/cursor"
	undecided
}

@test "the first read of one group does not decide for another" {
	start
	queue
	mkdir "$Q/groups/h"
	push "$Q" 1
	pops "$Q/groups/h/pop" 1
	decided "$Q/groups/h"
	undecided
	setting "$Q" subscription new # the queue's is for groups to come, and stays writable
}

@test "a cursor that a seek has set stays, whatever subscription says later" {
	start
	queue a b
	push "$Q/partitions/a" a0 a1 a2
	push "$Q/partitions/b" b0 b1
	echo 0 >"$Q/partitions/a/groups/g/cursor"
	setting "$G" subscription new
	is "$(cat "$G/cursor")" $'0\ta\n1\tb'
	setting "$G" subscription all
	is "$(cat "$G/cursor")" $'0\ta\n-1\tb'
	setting "$G" subscription new
	remount
	is "$(cat "$G/cursor")" $'0\ta\n1\tb'
	pops "$G/pop" a1 a2 ''
}

@test "a seek of the queue sets all cursors; a partition made later starts by subscription" {
	start
	queue a
	push "$Q/partitions/a" a0 a1
	setting "$G" subscription new
	echo start >"$G/cursor"
	mkdir "$Q/partitions/late"
	push "$Q/partitions/late" l0
	is "$(for _ in 1 2 3; do cat "$G/pop"; done | sort)" $'a0\na1\nl0'
}

# ---- durable -------------------------------------------------------------------------------

@test "a subscription survives kill -9 and a remount, with its moment" {
	start
	queue a
	mkdir "$Q/groups/t"
	push "$Q/partitions/a" a0 a1
	setting "$G" subscription new
	setting "$Q/groups/t" subscription "$(created 1 "$Q/partitions/a")"
	crash
	start
	is "$(subscription)" new
	push "$Q/partitions/a" a2
	remount
	is "$(subscription)" new
	is "$(seconds "$(subscription "$Q/groups/t")")" "$(seconds "$(created 1 "$Q/partitions/a")")"
	is "$(cat "$G/cursor" "$Q/groups/t/cursor" | cut -f 1 | paste -sd ' ')" '1 0'
	mkdir "$Q/partitions/late"
	push "$Q/partitions/late" l0
	crash
	start
	is "$(for _ in 1 2; do cat "$G/pop"; done | sort)" $'a2\nl0'
}

@test "mkdir with the queue's new is durable at once" {
	start
	mkdir "$Q" "$P"
	push "$Q" 1
	setting "$Q" subscription new
	mkdir "$G"
	crash
	start
	is "$(subscription "$Q") $(subscription)" 'new new'
	push "$Q" 2
	pops "$G/pop" 2 ''
}

@test "registrations and cursors never expire" {
	own_clock
	start
	queue
	push "$Q" 1 2
	pops "$G/pop" 1
	mkdir "$Q/groups/h"
	setting "$Q/groups/h" subscription new
	clock $((3650 * 86400))
	push "$Q" 3
	remount
	is "$(cat "$PG/cursor" "$P/groups/h/cursor" | paste -sd ' ')" '0 1'
	pops "$Q/groups/h/pop" 3
	pops "$G/pop" 2 3
}
