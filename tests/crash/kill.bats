#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kill -9 of the daemon in the middle of pushes: what a write returned for is kept, whole
# and in order (contract, section 2).

load ../fs/lib

# rounds COUNT - as many storms of six writers over three partitions, each ended by kill
# -9 at another moment, and what is left is checked after each.
rounds() {
	local round storm i logs=("$Q/partitions/"{a,b,c}/log)
	start
	queue a b c
	for ((round = 1; round <= $1; round++)); do
		spawn writers "round${round}w" 6 1000000 "${logs[@]/%log/push}" 2>/dev/null
		storm=$!
		wait_until acknowledged "round$round" $((round * round * 20))
		crash
		wait "$storm" || true # its writers end when the mount does
		store_is_whole
		start
		written "${logs[@]}"
		for i in a b c; do is "$(last_pushed "$i")" "$(last "$Q/partitions/$i")"; done
	done
	pops "$Q/partitions/a/groups/g/pop" "$(head -n 1 "${logs[0]}")"
	stop
	is "$(sqlite3 "$S" 'pragma integrity_check')" ok
}

# acknowledged ROUND N - every writer of the round is past line N.
acknowledged() {
	local note
	for note in "$ACKED/$1w"{0..5}; do
		[ "$(tail -n 1 "$note" 2>/dev/null || true)" -gt "$2" ] 2>/dev/null || return 1
	done
}

# store_is_whole - looked at in a copy, so that recovery stays the daemon's.
store_is_whole() {
	cp "$S" "$BATS_TEST_TMPDIR/copy.db"
	[ ! -e "$S-wal" ] || cp "$S-wal" "$BATS_TEST_TMPDIR/copy.db-wal"
	is "$(sqlite3 "$BATS_TEST_TMPDIR/copy.db" 'pragma quick_check')" ok
	rm "$BATS_TEST_TMPDIR/copy.db"*
}

last_pushed() { echo $(($(wc -l <"$Q/partitions/$1/log") - 1)); }

@test "kill -9 in a storm of pushes loses nothing (durability disk)" {
	rounds 4
}

@test "kill -9 in a storm of pushes loses nothing (durability os)" {
	ini durability=os
	rounds 4
}

@test "kill -9 while readers pop redelivers, never loses" {
	start
	queue a b
	writers w 2 200 "$Q/partitions/"{a,b}/push
	local reader out=$BATS_TEST_TMPDIR/out round
	read_on() {
		exec perl -MFcntl -e '
			sysopen(my $f, $ARGV[0], O_RDONLY) or die $!;
			while (defined(my $n = sysread($f, my $bytes, 65536))) {
				$n ? syswrite(STDOUT, $bytes) : select(undef, undef, undef, 0.001);
			}
		' "$G/pop"
	}
	got() { [ "$(sort -u "$out" | wc -l)" -ge "$1" ]; }
	for round in 200 500 900; do
		spawn read_on >>"$out" 2>/dev/null
		reader=$!
		wait_until got "$round"
		crash
		wait "$reader" || true
		start
	done
	spawn read_on >>"$out" 2>/dev/null
	wait_until got 1200
	cat "$Q/partitions/"{a,b}/log | sort | cmp - <(sort -u "$out")
	kill $!
	not wait $!
}
