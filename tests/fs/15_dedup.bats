#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 2 of the contract: a transactionId that was seen is not stored again.

load lib

# once ID [DATA] - a line of push.json with that transactionId.
once() { printf '{"data":"%s","transactionId":"%s"}' "${2:-$1}" "$1"; }

# pushed ID... - the verdict on each, one write after the other, apart by blanks.
pushed() {
	local id
	for id; do verdicts "$Q/push.json" "$(once "$id")"; done | paste -sd ' '
}

# expired - dedup_seconds of 1 are over for all that was pushed before: a condition for
# wait_until. mark - from now on.
mark() { pushed_ms=$(date +%s%3N); }
expired() { (($(date +%s%3N) > pushed_ms + 1010)); }

@test "a transactionId that was seen in that partition is not stored again; the write succeeds" {
	start
	queue
	is "$(pushed a b a)" '0:queued 1:queued 0:duplicate'
	is "$(sys write "$Q/push.json" "$(once b other)"$'\n')" ok
	is "$(verdicts "$P/push.json" "$(once b)")" 1:duplicate
	is "$(pushed c A 'a ' aa)" '2:queued 3:queued 4:queued 5:queued'
	is "$(cat "$P/log")" $'a\nb\nc\nA\na \naa'
	is "$(count "$P/segments")" 6 # a write of duplicates makes none
}

@test "it looks at the transactionId only, not at the data" {
	start
	queue
	is "$(verdicts "$Q/push.json" "$(once a first)" "$(once b first)")" '0:queued 1:queued'
	is "$(verdicts "$Q/push.json" "$(once a second)")" 0:duplicate
	is "$(cat "$P/log")" $'first\nfirst'
	is "$(verdicts "$Q/push.json" '{"data":1}' '{"data":1}')" '2:queued 3:queued'
	push "$Q" 1 1
	is "$(last "$P")" 5
}

@test "any transactionId up to 255 bytes is itself" {
	start
	queue
	local long
	printf -v long '%0254d' 0
	is "$(verdicts "$Q/push.json" "$(once "${long}1")" "$(once "${long}2")" "$(once "${long}1")" \
		"$(once ü)" "$(once '\u00fc')" "$(once '\"; drop table message; --')" "$(once '\"; drop')")" \
		'0:queued 1:queued 0:duplicate 2:queued 2:duplicate 3:queued 4:queued'
}

@test "the first one wins within one write" {
	start
	queue
	is "$(verdicts "$Q/push.json" "$(once a 1)" "$(once b 2)" "$(once a 3)" '{"data":4}' \
		"$(once b 5)" "$(once a 6)")" \
		'0:queued 1:queued 0:duplicate 2:queued 1:duplicate 0:duplicate'
	is "$(cat "$P/log")" $'1\n2\n4'
}

@test "what a refused write brought was not seen" {
	start
	queue
	is "$(verdicts "$Q/push.json" "$(once a)" bad)" EINVAL
	is "$(pushed a)" 0:queued
}

@test "each partition, and each queue, for itself" {
	start
	queue p
	mkdir "$M/queues/other"
	is "$(pushed a)" 0:queued
	is "$(verdicts "$Q/push.json" '{"data":1,"transactionId":"a","partition":"p"}' \
		'{"data":2,"transactionId":"a"}' '{"data":3,"transactionId":"a","partition":"new"}' \
		'{"data":4,"transactionId":"a","partition":"p"}')" \
		'0:queued 0:duplicate 0:queued 0:duplicate'
	is "$(verdicts "$M/queues/other/push.json" "$(once a)")" 0:queued
	is "$(cat "$Q/partitions/"{default,new,p}/log)" $'a\n3\n1'
}

@test "with spread: in the partition that it is dealt to" {
	start
	queue
	setting "$Q" spread 2
	is "$(pushed x x x x)" '0:queued 0:queued 0:duplicate 0:duplicate'
	is "$(cat "$Q/partitions/"[01]/log)" $'x\nx'
}

@test "it looks at pushes, never at deliveries: what was consumed is a duplicate too" {
	start
	queue
	is "$(pushed a b)" '0:queued 1:queued'
	pops "$G/pop" a b ''
	is "$(pushed a)" 0:duplicate
	echo start >"$G/cursor"
	pops "$G/pop" a b ''
}

@test "what was removed with its segment is a duplicate too" {
	start
	queue
	is "$(pushed a b)" '0:queued 1:queued'
	rm "$(segment "$P" 0)"
	is "$(pushed a b c)" '0:duplicate 1:duplicate 2:queued'
	is "$(cat "$P/log")" $'b\nc'
}

@test "a partition made again has seen nothing" {
	start
	queue
	is "$(pushed a)" 0:queued
	rm "$P"/segments/*
	rmdir "$P"
	is "$(pushed a a)" '0:queued 0:duplicate'
}

@test "across a restart, and across kill -9 of the daemon" {
	ini durability=os
	start
	queue
	is "$(pushed a b)" '0:queued 1:queued'
	remount
	is "$(pushed b c)" '1:duplicate 2:queued'
	crash
	start
	is "$(pushed a b c d)" '0:duplicate 1:duplicate 2:duplicate 3:queued'
	is "$(cat "$P/log")" $'a\nb\nc\nd'
}

@test "kill -9 in the middle of many pushes: each was stored once, when all is pushed again" {
	ini durability=os
	start
	queue
	session "$Q/push.json" 3>&- <<-'END' &
		try:
		    push = Handle(sys.argv[1], "w")
		    for i in range(100000): push.write('{"data":%d,"transactionId":"t%d"}\n' % (i, i))
		except OSError: pass
	END
	local writer=$!
	stored() { [ "$(cat "$P/log" | wc -l)" -ge 300 ]; }
	wait_until stored
	crash
	wait "$writer" || true
	start
	local count
	count=$(cat "$P/log" | wc -l)
	perl -e 'print "{\"data\":$_,\"transactionId\":\"t$_\"}\n" for 0 .. $ARGV[0]' \
		$((count + 100)) >"$BATS_TEST_TMPDIR/all"
	cat "$BATS_TEST_TMPDIR/all" >"$Q/push.json"
	is "$(cat "$P/log")" "$(seq 0 $((count + 100)))"
}

@test "past dedup_seconds the same transactionId is a message again" {
	start
	queue
	setting "$Q" dedup_seconds 1
	is "$(pushed a)" 0:queued
	mark
	wait_until expired
	is "$(pushed a)" 1:queued
	is "$(cat "$P/log")" $'a\na'
}

@test "within dedup_seconds it is none, also after others have expired" {
	start
	queue
	setting "$Q" dedup_seconds 1h
	is "$(pushed a)" 0:queued
	mkdir "$M/queues/short"
	setting "$M/queues/short" dedup_seconds 1
	is "$(verdicts "$M/queues/short/push.json" "$(once a)")" 0:queued
	mark
	wait_until expired
	is "$(verdicts "$M/queues/short/push.json" "$(once a)" "$(once b)")" '1:queued 2:queued'
	is "$(pushed a)" 0:duplicate
	remount
	is "$(verdicts "$M/queues/short/push.json" "$(once c)")" 3:queued
	is "$(pushed a)" 0:duplicate
}

@test "dedup_seconds 0: no transactionId is remembered; a changed value counts from the next write" {
	start
	queue
	setting "$Q" dedup_seconds 0
	is "$(pushed a a)" '0:queued 1:queued'
	setting "$Q" dedup_seconds 90s
	is "$(pushed b b)" '2:queued 2:duplicate'
	is "$(cat "$P/log")" $'a\na\nb'
}

@test "writers that push the same messages at the same time: each is stored once" {
	start
	queue
	session "$Q/push.json" >"$BATS_TEST_TMPDIR/queued" <<-'END'
		import random
		for i in range(6):
		    if os.fork(): continue
		    push = Handle(sys.argv[1], "rw")
		    random.seed(i)
		    order = random.sample(range(300), 300)
		    queued = 0
		    for at in range(0, 300, 3):
		        push.write("".join('{"data":%d,"transactionId":"t%d"}\n' % (n, n)
		            for n in order[at:at + 3]))
		        said = b"".join(iter(push.read, b""))
		        assert said.count(b"\n") == 3
		        queued += said.count(b"queued")
		    os.write(1, b"%d\n" % queued)
		    os._exit(0)
		while True:
		    try: assert os.wait()[1] == 0
		    except ChildProcessError: break
	END
	is "$(sort -n "$P/log")" "$(seq 0 299)"
	is "$(awk '{ sum += $1 } END { print sum }' "$BATS_TEST_TMPDIR/queued")" 300
}

@test "twenty thousand messages pushed twice are stored once" {
	start
	queue
	perl -e 'print "{\"data\":$_,\"transactionId\":\"order-$_\"}\n" for 1 .. 20_000' \
		>"$BATS_TEST_TMPDIR/all"
	cat "$BATS_TEST_TMPDIR/all" >"$Q/push.json"
	remount
	cat "$BATS_TEST_TMPDIR/all" >"$Q/push.json"
	is "$(last "$P")" 19999
	is "$(cat "$P/log")" "$(seq 20000)"
}

@test "a dead letter that is moved back is exempt, and what it was is still a duplicate" {
	start
	queue
	is "$(pushed a b)" '0:queued 1:queued'
	is "$(handle rw "$G/pop" read dlq)" '[a\n] ok'
	mv "$D/default@0" "$Q/push"
	is "$(cat "$P/log")" $'a\nb\na'
	[[ $(pushed a) == [02]:duplicate ]]
	pops "$G/pop" b a ''
	echo 1 >"$PG/cursor"
	is "$(cat "$G/pop.json" | fields offset transactionId)" '2 "a"'
}
