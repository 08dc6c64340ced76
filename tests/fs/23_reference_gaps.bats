#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What tests/references.tsv names and no section of the contract has a test of its own for:
# whole stories of replay, as their authors tell them.

load lib

# work GROUP [COUNT] - what a worker of the group pops, up to COUNT messages, a line each.
work() {
	local text i
	for ((i = 0; i < ${2:-1000}; i++)); do
		text=$(cat "$Q/groups/$1/pop")
		[ -n "$text" ] || break
		echo "$text"
	done
}

# json GROUP KEY... - of each message that the group pops, these values, apart by blanks.
json() {
	local line
	while line=$(cat "$Q/groups/$1/pop.json") && [ -n "$line" ]; do
		perl -MJSON::PP -e '
			my $message = JSON::PP->new->decode(shift);
			print join(" ", map { $message->{$_} } @ARGV), "\n";
		' "$line" "${@:2}"
	done
}

first_is() { [ "$(stat_of "${2:-$P}/stats" first_offset)" = "$1" ]; }

@test "a snapshot before a bad deploy brings the group and a shadow group back to the same lines" {
	start
	queue a b
	push "$Q/partitions/a" a{0..4}
	push "$Q/partitions/b" b{0..2}
	pops "$Q/partitions/a/groups/g/pop" a0 a1
	echo g >"$Q/snapshots/before-deploy"
	setting "$Q" retention_seconds 1
	wait_until first_is 2 "$Q/partitions/a"
	work g >"$BATS_TEST_TMPDIR/bad" # the new code acks all, and does nothing right
	push "$Q/partitions/b" b3
	push "$Q" d0
	push "$Q/partitions/a" a5
	is "$(work g | sort | paste -sd ' ')" 'a5 b3 d0'
	# all is older now than retention keeps, and it has been at work
	mkdir "$M/queues/other"
	setting "$M/queues/other" retention_seconds 1
	push "$M/queues/other" o0
	wait_until first_is 1 "$M/queues/other/partitions/default"
	echo 'snapshot before-deploy' >"$G/cursor"
	mkdir "$Q/groups/shadow"
	echo 'snapshot before-deploy' >"$Q/groups/shadow/cursor"
	is "$(cat "$Q/groups/shadow/cursor")" "$(cat "$G/cursor")"
	work g | sort >"$BATS_TEST_TMPDIR/again"
	work shadow | sort | cmp - "$BATS_TEST_TMPDIR/again"
	is "$(paste -sd ' ' "$BATS_TEST_TMPDIR/again")" 'a2 a3 a4 a5 b0 b1 b2 b3 d0'
	is "$(sort "$BATS_TEST_TMPDIR/bad" | paste -sd ' ')" 'a2 a3 a4 b0 b1 b2'
	rm "$Q/snapshots/before-deploy"
	wait_until first_is 6 "$Q/partitions/a"
}

@test "without a snapshot: a bad deploy is undone by a seek to the moment before it" {
	start
	queue a b
	push "$Q/partitions/a" a0
	push "$Q/partitions/b" b0
	work g >/dev/null
	local deployed
	push "$Q/partitions/b" b1
	deployed=$(attribute "$(segment "$Q/partitions/b" 1)" created_at)
	push "$Q/partitions/a" a1 a2
	is "$(work g | sort | paste -sd ' ')" 'a1 a2 b1'
	echo "$deployed" >"$G/cursor"
	is "$(work g | sort | paste -sd ' ')" 'a1 a2 b1'
}

@test "a seek to a time in the future purges all that waits, and nothing that comes" {
	start
	queue a b
	push "$Q/partitions/a" a{0..4}
	push "$Q/partitions/b" b{0..4}
	pops "$Q/partitions/b/groups/g/pop" b0
	date -Is -d 'next year' >"$G/cursor"
	is "$(cat "$G/cursor")" $'4\ta\n4\tb'
	is "$(stat_of "$G/stats" lag)" 0
	pops "$G/pop" ''
	push "$Q/partitions/a" a5
	pops "$G/pop" a5 ''
	is "$(wc -l <"$Q/partitions/a/log")" 6 # purged for this group only
}

@test "a redelivered message is the same: data, transactionId, attributes, createdAt" {
	start
	queue
	mkdir "$Q/groups/h"
	echo '{"data":{"n":1},"transactionId":"inv-1","attributes":{"k":"v"}}' >"$Q/push.json"
	echo '{"data":"two"}' >"$Q/push.json"
	local out=$BATS_TEST_TMPDIR/out when
	same() { perl -pe 's/"attempt":\d+,//; s/"isReplay":\w+,//' "$out.$1"; }
	for _ in 1 2; do cat "$G/pop.json"; done >"$out.first"
	for _ in 1 2; do cat "$Q/groups/h/pop.json"; done >"$out.other"
	echo start >"$G/cursor"
	for _ in 1 2; do cat "$G/pop.json"; done >"$out.replayed"
	remount
	echo start >"$G/cursor"
	is "$(handle rw "$G/pop.json" read retry | tail -c 4)" ' ok' # lost once
	for _ in 1 2; do cat "$G/pop.json"; done >"$out.again"
	same first | grep -q '"transactionId":"inv-1"'
	is "$(wc -l <"$out.first")" 2
	for when in other replayed again; do is "$(same "$when")" "$(same first)"; done
}

@test "a seek sets attempts to 0, and begins the retries anew" {
	start
	queue
	setting "$G" retry_limit 2
	push "$Q" m0
	is "$(handle rw "$G/follow" read fail read fail read)" '[m0\n] ok [m0\n] ok [m0\n]'
	echo start >"$PG/cursor"
	is "$(stat_of "$PG/stats" attempts) $(stat_of "$PG/stats" retries)" '0 0'
	is "$(json g attempt)" 1
	echo start >"$PG/cursor"
	is "$(handle rw "$G/follow" read fail read fail read ack)" \
		'[m0\n] ok [m0\n] ok [m0\n] ok'
	is "$(letters)" '' # the fails before the seek did not count
}

@test "a new group reads all that is retained, in batches, then keeps up with new pushes" {
	start
	queue
	seq 1000 >"$Q/push"
	mkdir "$Q/groups/reindex"
	setting "$Q/groups/reindex" batch 300
	local out=$BATS_TEST_TMPDIR/out
	spawn perl -MFcntl -e '
		$| = 1;
		sysopen(my $f, $ARGV[0], O_RDWR) or die $!;
		while (sysread($f, my $bytes, 65536)) {
			print $bytes;
			$bytes =~ /\n\z/ or die "torn";
			syswrite($f, "ack") or die $!;
		}
	' "$Q/groups/reindex/follow" >"$out"
	wait_until has "$out" '^1000$'
	push "$Q" live1
	wait_until has "$out" '^live1$'
	push "$Q" live2
	wait_until has "$out" '^live2$'
	seq 1000 | cat - <(printf 'live1\nlive2\n') | cmp - "$out"
	is "$(cat "$PG/cursor")" -1 # the running group was not disturbed
}

@test "every run from a snapshot is over the same data, whatever is pushed meanwhile" {
	start
	queue
	push "$Q" m{0..4}
	pops "$G/pop" m0
	setting "$Q" snapshot_seconds 0
	echo g >"$Q/snapshots/fixture"
	local run
	for run in 1 2 3; do
		mkdir "$Q/groups/run$run"
		echo 'snapshot fixture' >"$Q/groups/run$run/cursor"
		is "$(work "run$run" 4 | paste -sd ' ')" 'm1 m2 m3 m4'
		rmdir "$Q/groups/run$run"
		push "$Q" "later$run"
	done
}

@test "workers scaled to zero: what was pushed meanwhile goes to exactly one member, in order" {
	start
	queue a b c
	local i member out=$BATS_TEST_TMPDIR/out members=()
	spawn cat "$G/follow" >"$out"
	member=$!
	push "$Q/partitions/a" a0
	wait_until shows "$out" a0
	wait_until waiting 1 # it has asked for more
	kill "$member"
	wait "$member" || true
	for i in {1..50}; do
		push "$Q/partitions/a" "a$i"
		push "$Q/partitions/b" "b$i"
		push "$Q/partitions/c" "c$i"
	done
	for i in 1 2 3; do
		spawn cat "$G/follow" >"$out.$i"
		members+=("$!")
	done
	all() { [ "$(cat "$out."? | wc -l)" -ge 150 ]; }
	wait_until all
	kill "${members[@]}"
	sort "$out."? | cmp - <(printf '%s\n' {a,b,c}{1..50} | sort)
	for i in 1 2 3; do
		for member in a b c; do grep "^$member" "$out.$i" | sort -Vc; done
	done
}

@test "a snapshot of a group with a filter: what does not match is in it, and what came later" {
	start
	queue
	mkdir "$Q/groups/all"
	setting "$G" filter "attributes ->> 'region' = 'eu'"
	local text
	for text in '"eu0","attributes":{"region":"eu"}' '"us1","attributes":{"region":"us"}' \
		'"eu2","attributes":{"region":"eu"}'; do
		printf '{"data":%s}\n' "$text" >"$Q/push.json"
	done
	pops "$G/pop" eu0
	echo g >"$Q/snapshots/s"
	printf '{"data":"us3","attributes":{"region":"us"}}\n' >"$Q/push.json"
	printf '{"data":"eu4","attributes":{"region":"eu"}}\n' >"$Q/push.json"
	is "$(work g | paste -sd ' ')" 'eu2 eu4'
	rm "$(segment "$P" 0)"
	is "$(sys unlink "$(segment "$P" 1)")" EBUSY
	echo 'snapshot s' >"$G/cursor"
	is "$(work g | paste -sd ' ')" 'eu2 eu4' # each group applies its own
	echo 'snapshot s' >"$Q/groups/all/cursor"
	is "$(work all | paste -sd ' ')" 'us1 eu2 us3 eu4'
}

@test "a partition of which much was removed is sought as quickly, and as rightly" {
	ini durability=os
	start
	queue
	perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		syswrite($f, "m$_\n") or die $! for 0 .. 2999' "$Q/push"
	setting "$Q" retention_bytes 30 # five messages of six bytes
	wait_until first_is 2995
	local n
	for n in 2999 2995 2997; do
		attribute "$(segment "$P" "$n")" created_at >"$G/cursor"
		pops "$G/pop" "m$n"
	done
	echo 2000-01-01 >"$G/cursor"
	is "$(cat "$PG/cursor")" 2994
	is "$(work g | paste -sd ' ')" 'm2995 m2996 m2997 m2998 m2999'
}
