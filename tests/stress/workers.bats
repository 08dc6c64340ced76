#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Many workers of one group (contract, sections 4, 5 and 9). STRESS_SECONDS (8): how long;
# the long form is STRESS_SECONDS=60.

load ../fs/lib

SECONDS_EACH=${STRESS_SECONDS:-8}

driver() {
	command -v python3 >/dev/null || skip "no python3"
	start
	spawn timeout $((SECONDS_EACH + 240)) python3 "$BATS_TEST_DIRNAME/workers.py" "$1" "$Q" \
		"$BATS_TEST_TMPDIR" "$SECONDS_EACH" >"$BATS_TEST_TMPDIR/said" 2>&1
	wait $! || { cat "$BATS_TEST_TMPDIR/said" && return 1; }
	sed 's/^/# /' "$BATS_TEST_TMPDIR/said" >&3
}

@test "killed and stopped workers lose nothing, keep the order, and only their work is redone" {
	driver storm
}

@test "a seek in the middle makes what was read before ESTALE, and its acks move nothing" {
	driver seek
}

# ---- a message that kills ---------------------------------------------------------------

# Workers that die of "poison". bash has one message in its hands, Perl a buffer full.
bash_mortal() {
	exec bash -c 'while IFS= read -r message; do
		[ "${message#poison}" = "$message" ] || kill -9 $$
		echo "$message" >>"$0"
	done <"$1"' "$DONE" "$G/follow"
}
perl_mortal() {
	exec perl -e 'open(my $done, ">>", $ARGV[0]) or die;
		open(my $messages, "<", $ARGV[1]) or die;
		while (<$messages>) {
			kill(9, $$) if /^poison/;
			syswrite($done, $_);
		}' "$DONE" "$G/follow"
}

# tend MORTAL - starts it again whenever it has died; ends when the mount does.
tend() {
	trap 'kill -9 $! 2>/dev/null; exit' TERM
	while up; do
		"$1" &
		wait $! || echo x >>"$DEATHS"
	done 2>/dev/null
}

# poisoned MORTAL... - they share four partitions, each with a poison at 7 and at 19.
poisoned() {
	local p tends=()
	DONE=$BATS_TEST_TMPDIR/done DEATHS=$BATS_TEST_TMPDIR/deaths
	: >"$DONE"
	: >"$DEATHS"
	start
	queue 0 1 2 3
	echo 3 >"$Q/config/max_deliveries"
	for p in 0 1 2 3; do
		seq -f "$p %g" 0 29 | sed -E '8s/^/poison /; 20s/^/poison /' >"$Q/partitions/$p/push"
	done
	for p; do
		spawn tend "$p"
		tends+=($!)
	done
	wait_until has "$G/stats" '^lag 0$'
	for p in 0 1 2 3; do echo "$p 30" >"$Q/partitions/$p/push"; done
	wait_until has "$G/stats" '^lag 0$'
	kill "${tends[@]}"
	wait "${tends[@]}" || true
	is "$(cd "$G/dlq" && echo *)" "0@19 0@7 1@19 1@7 2@19 2@7 3@19 3@7"
	for p in "$G/dlq"/*; do
		is "$(attribute "$p" attempts)" 3
		has "$p" '^poison '
	done
	# all the others, each partition in order apart from what came again
	for p in 0 1 2 3; do
		is "$(grep "^$p " "$DONE" | awk '!seen[$0]++' | xargs)" \
			"$(seq -f "$p %g" 0 30 | sed -E '8d; 20d' | xargs)"
	done
}

@test "a message that kills each worker is a dead letter after max_deliveries, its lane goes on" {
	poisoned bash_mortal bash_mortal bash_mortal bash_mortal
	is "$(wc -l <"$DEATHS")" 24
	is "$(wc -l <"$DONE")" 116 # none of them again
}

@test "what dies together with a message that kills is no dead letter" {
	poisoned perl_mortal bash_mortal perl_mortal perl_mortal
}
