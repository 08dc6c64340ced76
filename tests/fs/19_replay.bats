#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 8 of the contract: replay marks. (`told` and `story` are explained in lib.bash.)

load lib

# follower [FILE] - a follow.json of group g in the background, $READER, into $OUT.
follower() {
	OUT=$BATS_TEST_TMPDIR/out.$((++followers))
	reader "$OUT" "${1:-$G/follow.json}"
}

# ---- at the first read --------------------------------------------------------------------

@test "a replay: its count, the backlog with isReplay true, its end, then what is live" {
	start
	queue
	push "$Q" 1 2 3
	follower
	wait_until told "$OUT" 'replayStart=3 old:1 old:2 old:3 replayEnd=3'
	wait_until waiting 1
	push "$Q" 4
	wait_until told "$OUT" 'replayStart=3 old:1 old:2 old:3 replayEnd=3 live:4'
	wait_until waiting 1
	push "$Q" 5 6
	wait_until told "$OUT" 'replayStart=3 old:1 old:2 old:3 replayEnd=3 live:4 live:5 live:6'
	is "$(sed -n '1p;5p' "$OUT")" \
		'{"event":"replayStart","count":3}'$'\n''{"event":"replayEnd","replayed":3}'
}

@test "N may be 0: the marks come at once, without a message or a partition" {
	start
	queue
	follower
	wait_until told "$OUT" 'replayStart=0 replayEnd=0'
	wait_until waiting 1
	push "$Q" 1
	wait_until told "$OUT" 'replayStart=0 replayEnd=0 live:1'
	wait_until waiting 1
	is "$(session "$G/follow.json" <<-'END'
		follow = Handle(sys.argv[1], "r+")
		out(follow.told_all())
		out(follow.told_all())
	END
	)" 'replayStart=0 replayEnd=0'
}

@test "a pause: what was missed is counted and replayed, then comes what is live" {
	start
	queue a b
	follower
	wait_until told "$OUT" 'replayStart=0 replayEnd=0'
	push "$Q/partitions/a" a1
	wait_until told "$OUT" 'replayStart=0 replayEnd=0 live:a1'
	wait_until waiting 1
	kill "$READER"
	wait_until has "$G/stats" '^members 0$'
	push "$Q/partitions/a" a2 a3
	push "$Q/partitions/b" b1
	push "$Q" d1
	follower
	wait_until waiting 1
	push "$Q/partitions/b" b2
	wait_until has "$OUT" b2
	local story
	story=$(story "$OUT")
	is "${story%% *} ${story#* old:* old:* old:* old:* }" 'replayStart=4 replayEnd=4 live:b2'
	is "$(tr ' ' '\n' <<<"$story" | grep old | sort | paste -sd ' ')" 'old:a2 old:a3 old:b1 old:d1'
}

@test "the count is that of the handle: of its partition, or of all of its queue" {
	start
	queue a b
	push "$Q/partitions/a" a1 a2
	push "$Q/partitions/b" b1 b2 b3
	pops "$Q/partitions/b/groups/g/pop" b1
	follower "$Q/partitions/a/groups/g/follow.json"
	wait_until told "$OUT" 'replayStart=2 old:a1 old:a2 replayEnd=2'
	mkdir "$Q/groups/h"
	pops "$Q/partitions/b/groups/h/pop" b1
	follower "$Q/groups/h/follow.json"
	wait_until has "$OUT" replayEnd
	is "$(head -n 1 "$OUT")" '{"event":"replayStart","count":4}'
	is "$(tail -n 1 "$OUT")" '{"event":"replayEnd","replayed":4}'
}

@test "nothing caps a replay" {
	start
	queue
	seq 30000 >"$Q/push"
	follower
	wait_until has "$OUT" replayEnd
	is "$(head -n 1 "$OUT")" '{"event":"replayStart","count":30000}'
	is "$(tail -n 1 "$OUT")" '{"event":"replayEnd","replayed":30000}'
	is "$(grep -c '"isReplay":true' "$OUT")" 30000
	is "$(sed -n 's/.*"data":"\(.*\)"}$/\1/p' "$OUT")" "$(seq 30000)"
}

@test "what is at or below the marks is served first" {
	start
	queue a b
	push "$Q/partitions/a" a1 a2 a3
	session "$Q" <<-'END'
		queue = sys.argv[1]
		def push(partition, text):
		    with open(f"{queue}/partitions/{partition}/push", "w") as f: f.write(text)
		follow = Handle(queue + "/groups/g/follow.json", "rw")
		is_(follow.told(2), "replayStart=3 old:a1")
		push("b", "b1\n")
		push("a", "a4\n")
		os.mkdir(queue + "/partitions/new")
		push("new", "n1\n")
		for wanted in "old:a2", "old:a3", "replayEnd=3":
		    follow.write("ack\n")
		    is_(follow.told(1), wanted)
		told = []
		for i in range(3):
		    told += [follow.told(1)]
		    follow.write("ack\n")
		is_(sorted(told), ["live:a4", "live:b1", "live:n1"])
	END
}

@test "O_NONBLOCK: the marks are there, then EAGAIN; poll says so" {
	start
	queue
	push "$Q" 1
	session "$G/follow.json" <<-'END'
		import select
		follow = Handle(sys.argv[1], "r+")
		poll = select.poll()
		poll.register(follow.fd, select.POLLIN)
		assert poll.poll(10000)
		is_(follow.told_all(), "replayStart=1 old:1 replayEnd=1")
		is_(follow.told_all(), "")
		assert not poll.poll(0)
	END
}

@test "bash, which reads byte by byte, gets whole events and acks by reading on" {
	start
	queue
	push "$Q" 1
	local fd line
	exec {fd}<"$G/follow.json"
	read -r -u "$fd" line
	is "$line" '{"event":"replayStart","count":1}'
	read -r -u "$fd" line
	is "$(fields data isReplay <<<"$line") $(cat "$PG/cursor")" '"1" true -1'
	read -r -u "$fd" line
	is "$line $(cat "$PG/cursor")" '{"event":"replayEnd","replayed":1} 0'
	push "$Q" 2
	read -r -u "$fd" line
	is "$(fields data isReplay <<<"$line") $(cat "$PG/cursor")" '"2" false 0'
}

# ---- after a seek ---------------------------------------------------------------------------

@test "a seek back while the reader waits begins a replay" {
	start
	queue a b
	push "$Q/partitions/a" 1 2 3
	echo end >"$G/cursor"
	follower
	wait_until told "$OUT" 'replayStart=0 replayEnd=0'
	wait_until waiting 1
	echo start >"$G/cursor"
	local first='replayStart=0 replayEnd=0 replayStart=3 old:1 old:2 old:3 replayEnd=3'
	wait_until told "$OUT" "$first"
	wait_until waiting 1
	push "$Q/partitions/a" 4
	wait_until told "$OUT" "$first live:4"
	wait_until waiting 1
	echo 1 >"$Q/partitions/a/groups/g/cursor" # of one partition, and what was live is old now
	wait_until told "$OUT" "$first live:4 replayStart=2 old:3 old:4 replayEnd=2"
	wait_until waiting 1
	push "$Q/partitions/b" 5
	wait_until told "$OUT" "$first live:4 replayStart=2 old:3 old:4 replayEnd=2 live:5"
}

@test "a seek that moves nothing back begins none" {
	start
	queue a b
	push "$Q/partitions/a" 1 2
	push "$Q/partitions/b" 3
	follower
	wait_until has "$OUT" replayEnd
	wait_until waiting 1
	local story
	story=$(story "$OUT")
	echo end >"$G/cursor"
	echo 1 >"$Q/partitions/a/groups/g/cursor"
	push "$Q/partitions/a" 4
	wait_until told "$OUT" "$story live:4"
}

@test "a seek during a replay ends it first" {
	start
	queue
	push "$Q" 1 2 3 4 5
	session "$Q" <<-'END'
		def write(file, text):
		    with open(sys.argv[1] + "/" + file, "w") as f: f.write(text)
		follow = Handle(sys.argv[1] + "/groups/g/follow.json", "rw")
		def next(count):
		    follow.write("ack\n")
		    return follow.told(count)
		is_(follow.told(2), "replayStart=5 old:1")
		is_(next(1), "old:2")
		follow.write("ack\n")
		write("groups/g/cursor", "start\n")
		is_(follow.told(3), "replayEnd=2 replayStart=5 old:1")
		is_(next(1), "old:2")
		is_(next(1), "old:3")
		follow.write("ack\n")
		write("partitions/default/groups/g/cursor", "1\n")
		is_(follow.told(3), "replayEnd=3 replayStart=3 old:3")
		follow.write("ack\n")
		write("groups/g/cursor", "end\n") # forward: it ends, and none begins
		write("push", "6\n")
		is_(follow.told(2), "replayEnd=1 live:6")
	END
}

@test "a handle that was opened before a seek and reads only after it marks once" {
	start
	queue
	push "$Q" 1 2
	local fd
	exec {fd}<"$G/follow.json"
	pops "$G/pop" 1 2
	echo start >"$G/cursor"
	is "$(session "$fd" <<-'END'
		follow = Handle("/dev/null")
		follow.fd = int(sys.argv[1])
		out(follow.told(4))
	END
	)" 'replayStart=2 old:1 old:2 replayEnd=2'
}

# ---- pop.json, and the plain files ------------------------------------------------------------

@test "pop.json has isReplay by the same marks, and no replayStart or replayEnd" {
	start
	queue
	push "$Q" 1 2
	session "$Q" <<-'END'
		def write(file, text):
		    with open(sys.argv[1] + "/" + file, "w") as f: f.write(text)
		pop = Handle(sys.argv[1] + "/groups/g/pop.json")
		is_(pop.told_all(), "old:1")
		write("push", "3\n")
		is_(pop.told_all(), "old:2")
		is_(pop.told_all(), "live:3")
		is_(pop.told_all(), "")
		write("push", "4\n")
		is_(pop.told_all(), "live:4")
		write("groups/g/cursor", "start\n")
		is_([pop.told_all() for _ in range(5)], ["old:1", "old:2", "old:3", "old:4", ""])
		write("push", "5\n")
		is_(pop.told_all(), "live:5")
		other = Handle(sys.argv[1] + "/groups/g/pop.json")
		is_(other.told_all(), "")
		write("push", "6\n")
		is_(other.told_all(), "live:6")
	END
	push "$Q" 7
	is "$(cat "$G/pop.json" | fields offset isReplay)" '6 true'
}

@test "plain pop and follow show messages only" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	push "$Q" 1 2
	pops "$G/pop" 1
	reader "$OUT" "$G/follow"
	wait_until waiting 1
	echo start >"$G/cursor"
	wait_until shows "$OUT" $'2\n1\n2'
}

# ---- together -----------------------------------------------------------------------------

@test "two members share a replay: each message to one, and neither waits for the other" {
	start
	queue a b
	setting "$G" batch 3
	push "$Q/partitions/a" a1 a2 a3
	push "$Q/partitions/b" b1 b2 b3
	session "$G/follow.json" <<-'END'
		one, two, three = (Handle(sys.argv[1], "rw") for _ in range(3))
		first, second = one.told(4), two.told(4)
		is_(sorted([first, second]), ["replayStart=6 old:%s1 old:%s2 old:%s3" % (p, p, p)
		    for p in "ab"])
		is_(three.told(2), "replayStart=6 replayEnd=0")
		two.write("ack\n")
		is_(two.told(1), "replayEnd=3")
		one.write("ack\n")
		is_(one.told(1), "replayEnd=3")
	END
}

@test "four members of four partitions: each of 1000 messages to exactly one, all replayed" {
	start
	queue a b c d
	local partition i outs=()
	for partition in a b c d; do seq -f "$partition%03.0f" 250 >"$Q/partitions/$partition/push"; done
	for i in 1 2 3 4; do
		follower
		outs+=("$OUT")
	done
	all_there() { [ "$(cat "${outs[@]}" | grep -c '"data"')" -ge 1000 ]; }
	wait_until all_there
	wait_until waiting 4
	is "$(cat "${outs[@]}" | sed -n 's/.*"isReplay":true.*"data":"\(.*\)"}$/\1/p' | sort)" \
		"$(printf '%s\n' {a,b,c,d}{001..250})"
	for i in "${outs[@]}"; do
		is "$(grep -c replayStart "$i") $(grep -c replayEnd "$i")" '1 1'
		head -n 1 "$i" | grep -q replayStart
	done
}

# ---- gaps ----------------------------------------------------------------------------------

@test "messages removed before the group read them: a gap, once, and skipped in stats" {
	start
	queue p
	push "$Q/partitions/p" 0 1 2 3 4
	pops "$G/pop" 0
	rm "$(segment "$Q/partitions/p" 0)" "$(segment "$Q/partitions/p" 1)" "$(segment "$Q/partitions/p" 2)"
	follower
	wait_until has "$OUT" replayEnd
	is "$(grep -v 'replay[SE]' "$OUT" | head -n 1)" '{"event":"gap","partition":"p","from":1,"to":2}'
	is "$(story "$OUT" | sed 's/gap=[^ ]* //')" 'replayStart=2 old:3 old:4 replayEnd=2'
	is "$(stat_of "$G/stats" skipped)" 2
	is "$(stat_of "$Q/partitions/p/groups/g/stats" skipped)" 2
	follower
	wait_until waiting 2
	push "$Q/partitions/p" 5
	has5() { has "$BATS_TEST_TMPDIR/out.1" '"5"' || has "$OUT" '"5"'; }
	wait_until has5
	is "$(cat "$BATS_TEST_TMPDIR/out".? | grep -c gap)" 1
}

@test "a gap while the reader is away from the partition, between its messages" {
	start
	queue
	push "$Q" 0 1 2 3
	session "$Q" <<-'END'
		follow = Handle(sys.argv[1] + "/groups/g/follow.json", "rw")
		is_(follow.told(2), "replayStart=4 old:0")
		follow.write("ack\n")
		for base in range(3): os.unlink(sys.argv[1] + "/partitions/default/segments/%020d" % base)
		is_(follow.told(2), "gap=default/1-2 old:3")
		follow.write("ack\n")
		is_(follow.told(1), "replayEnd=2")
	END
}

@test "a gap comes in pop.json as well; all that was there removed: at the next message" {
	start
	queue
	push "$Q" 0 1 2
	pops "$G/pop" 0
	rm "$(segment "$P" 0)" "$(segment "$P" 1)"
	is "$(cat "$G/pop.json" | fields event partition from to data)" \
		$'"gap" "default" 1 1 -\n- "default" - - "2"'
	push "$Q" 3 4
	rm "$P"/segments/*
	push "$Q" 5
	is "$(cat "$G/pop.json" | fields event from to data)" $'"gap" 3 4 -\n- - - "5"'
	is "$(stat_of "$PG/stats" skipped)" 3
	is "$(cat "$G/pop.json")" ''
}

@test "a gap at a read-write handle: its message is acked as any" {
	start
	queue
	push "$Q" 0 1 2 3
	pops "$G/pop" 0
	rm "$(segment "$P" 0)" "$(segment "$P" 1)"
	session "$G/pop.json" <<-'END'
		pop = Handle(sys.argv[1], "rw")
		is_(pop.told_all(), "gap=default/1-1 old:2")
		pop.write("retry\n")
		is_(pop.told_all(), "old:2")
		pop.write("ack\n")
		is_(pop.told_all(), "old:3")
		pop.write("ack 3\n")
		is_(pop.told_all(), "")
	END
	is "$(cat "$PG/cursor")" 3
}

@test "a plain reader that comes over a gap counts it, and nobody is told of it any more" {
	start
	queue
	push "$Q" 0 1 2 3
	pops "$G/pop" 0
	rm "$(segment "$P" 0)" "$(segment "$P" 1)"
	pops "$G/pop" 2
	is "$(stat_of "$G/stats" skipped)" 1
	is "$(cat "$G/pop.json" | fields event data)" '- "3"'
	follower
	wait_until told "$OUT" 'replayStart=0 replayEnd=0'
}

@test "a seek to what was removed is no gap, nor is the start of a new group" {
	start
	queue
	push "$Q" 0 1 2
	pops "$G/pop" 0 1 2
	rm "$(segment "$P" 0)"
	echo start >"$G/cursor"
	is "$(cat "$G/pop.json" | fields event data)" '- "1"'
	mkdir "$Q/groups/h"
	is "$(cat "$Q/groups/h/pop.json" | fields event data)" '- "1"'
	is "$(stat_of "$G/stats" skipped) $(stat_of "$Q/groups/h/stats" skipped)" '0 0'
}

# ---- without a group ---------------------------------------------------------------------------

@test "tail -n 0 -f log sees only what is new: no group, no history" {
	start
	mkdir "$Q"
	push "$Q" 1 2
	spawn tail -n 0 -s 0.05 -f "$P/log" >"$BATS_TEST_TMPDIR/out"
	local tail=$! n=2
	seen() { n=$((n + 1)) && push "$Q" "$n" && [ -s "$BATS_TEST_TMPDIR/out" ]; }
	wait_until seen # it has begun
	push "$Q" last
	wait_until has "$BATS_TEST_TMPDIR/out" '^last$'
	kill "$tail"
	local first
	first=$(head -n 1 "$BATS_TEST_TMPDIR/out")
	[ "$first" -gt 2 ]
	is "$(cat "$BATS_TEST_TMPDIR/out")" "$(seq "$first" "$n" && echo last)"
	is "$(ls "$Q/groups")" ''
}
