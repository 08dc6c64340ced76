#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 4 of the contract: leases, and the verbs of pop and follow opened read-write.

load lib

# now - what `date` prints, in the form of stats.
now() { date -u +%Y-%m-%dT%H:%M:%S.%6NZ; }

# overdue - the lease on partition default has run out, and nobody has taken it.
overdue() {
	local end
	end=$(stat_of "$PG/stats" lease_end)
	[[ $end == 2* && ! $end > $(now) ]]
}

# member OUT FILE OP... - a process in the background, $READER, that runs these on a handle
# of its own (read and lines to write), writes what it read to OUT and stays.
member() {
	spawn perl -MFcntl -e '
		my ($path, @ops) = @ARGV;
		sysopen(my $f, $path, O_RDWR) or die $!;
		for (@ops) {
			if ($_ eq "read") { sysread($f, my $b, 65536) // die $!; syswrite(STDOUT, $b) }
			else { syswrite($f, "$_\n") // die $! }
		}
		sleep 600;
	' "${@:2}" >"$1"
	READER=$!
}

# elapsed_ms - since $began, which mark sets.
mark() { began=$(date +%s%3N); }
elapsed_ms() { echo $(($(date +%s%3N) - began)); }

# ---- reading ---------------------------------------------------------------------------

@test "follow read-write: reading on before acking is EBUSY, after it the next message" {
	start
	queue
	push "$Q" 1 2
	local file
	for file in "$G/follow" "$Q/follow"; do
		is "$(handle rw "$file" read read read ack read read ack)" \
			'[1\n] [EBUSY] [EBUSY] ok [2\n] [EBUSY] ok'
	done
	errors_has 'groups/g/follow: EBUSY: .*ack'
	is "$(handle rw+ "$PG/follow" read)" '[EAGAIN]'
	is "$(cat "$PG/cursor")" 1
}

@test "pop read-write: after its batch EOF until acked, then the next" {
	start
	queue
	push "$Q" 1 2
	local file
	for file in "$G/pop" "$Q/pop"; do
		is "$(handle rw "$file" read read read ack read read ack read)" \
			'[1\n] [] [] ok [2\n] [] ok []'
	done
	is "$(handle rw "$PG/pop" read)" '[]'
	is "$(cat "$PG/cursor")" 1
}

@test "reading read-write acks nothing" {
	start
	queue
	push "$Q" 1 2
	is "$(handle rw "$G/pop" read read)" '[1\n] []'
	pops_soon "$G/pop" 1
	is "$(handle rw "$G/follow" read read)" '[2\n] [EBUSY]'
	pops_soon "$G/pop" 2
}

@test "follow read-write waits for a message" {
	start
	queue
	member "$BATS_TEST_TMPDIR/out" "$G/follow" read ack read
	wait_until waiting 1
	push "$Q" 1
	wait_until shows "$BATS_TEST_TMPDIR/out" 1
	wait_until shows "$PG/cursor" 0
	wait_until waiting 1
	push "$Q" 2
	wait_until shows "$BATS_TEST_TMPDIR/out" $'1\n2'
	is "$(cat "$PG/cursor")" 0
}

@test "config/batch: a span has up to as many messages" {
	start
	queue
	setting "$Q" batch 3
	push "$Q" 1 2 3 4 5
	mkdir "$Q/groups/h"
	is "$(handle rw "$G/follow" read read ack read read ack)" \
		'[1\n2\n3\n] [EBUSY] ok [4\n5\n] [EBUSY] ok'
	is "$(handle rw "$Q/groups/h/pop" read read ack read read ack read)" \
		'[1\n2\n3\n] [] ok [4\n5\n] [] ok []'
}

@test "small reads get the span message by message, also in pieces" {
	start
	queue
	setting "$G" batch 2
	push "$Q" one two three
	is "$(handle rw "$G/follow" read:4 read:2 read:2 read:2 ack read:3)" \
		'[one\n] [tw] [o\n] [EBUSY] ok [thr]'
	wait_until shows "$PG/cursor" 1
}

@test "a span is of one partition; partitions are taken in turn" {
	start
	queue a b
	setting "$G" batch 10
	push "$Q/partitions/a" a1 a2
	push "$Q/partitions/b" b1
	is "$(handle rw+ "$G/follow" read ack read ack read)" '[a1\na2\n] ok [b1\n] ok [EAGAIN]'
}

# ---- ack -------------------------------------------------------------------------------

@test "ack N acks up to N, what is not named stays leased" {
	start
	queue
	setting "$G" batch 4
	push "$Q" 1 2 3 4 5
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read 'ack 1')" '[1\n2\n3\n4\n] ok'
	is "$(cat "$PG/cursor")" 1
	pops "$G/pop" '' # 3 and 4 are held, 5 waits behind them
	is "$(handle fd "$fd" read 'ack 2' read)" '[EBUSY] ok [EBUSY]'
	is "$(cat "$PG/cursor")" 2
	is "$(handle fd "$fd" 'ack 3' read)" 'ok [5\n]'
	is "$(cat "$PG/cursor")" 3
}

@test "after a partial ack closing hands back the rest only" {
	start
	queue
	setting "$G" batch 3
	push "$Q" 1 2 3
	is "$(handle rw "$G/pop" read 'ack 0')" '[1\n2\n3\n] ok'
	pops_soon "$G/pop" 2
	pops "$G/pop" 3 ''
}

@test "ack N below the span has no effect" {
	start
	queue
	push "$Q" 1 2 3 4
	setting "$G" batch 2
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read ack read 'ack 1' 'ack 0' read)" \
		'[1\n2\n] ok [3\n4\n] ok ok [EBUSY]'
	is "$(cat "$PG/cursor")" 1
	pops "$G/pop" ''
	is "$(handle fd "$fd" ack)" ok
	is "$(cat "$PG/cursor")" 3
}

@test "ack N past what was returned: ERANGE, naming what is allowed" {
	start
	queue
	setting "$G" batch 3
	push "$Q" one two three four
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read:4 'ack 1' 'ack 3' 'ack 99')" '[one\n] ERANGE ERANGE ERANGE'
	errors_has 'groups/g/follow: ERANGE: .*99.* 0'
	is "$(cat "$PG/cursor")" -1
	is "$(handle fd "$fd" read:2 'ack 1' 'ack 0')" '[tw] ERANGE ok'
	is "$(cat "$PG/cursor")" 0
}

@test "ack acks only what was returned to its last byte" {
	start
	queue
	setting "$G" batch 2
	push "$Q" one two
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read:3 ack)" '[one] EINVAL'
	is "$(cat "$PG/cursor")" -1
	is "$(handle fd "$fd" read:1 read:3 ack)" '[\n] [two] ok'
	is "$(cat "$PG/cursor")" 0
	is "$(handle fd "$fd" read:3 ack)" '[\n] ok'
	is "$(cat "$PG/cursor")" 1
}

@test "before anything was read every verb is EINVAL, and after all was acked" {
	start
	queue
	push "$Q" 1 2
	local file
	for file in "$G/follow" "$PG/pop"; do
		is "$(handle rw "$file" ack 'ack 0' retry fail 'fail why' dlq 'dlq why' 'extend 5')" \
			'EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL'
		is "$(handle rw "$file" read ack ack retry fail 'fail why' dlq 'dlq why' 'extend 5' |
			cut -d ' ' -f 2-)" 'ok EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL'
	done
	errors_has 'partitions/default/groups/g/pop: EINVAL: .*read'
	is "$(cat "$PG/cursor") $(letters)" '1 '
}

@test "an unknown verb, or one with text it does not take: EINVAL, and nothing happens" {
	start
	queue
	push "$Q" 1 2
	local fd bad
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	for bad in '' nack ackk ack0 'ack x' 'ack -1' 'ack 0x0' 'ack 0 0' 'ack 0,1' \
		'ack 99999999999999999999' $'ack\nack' 'retry now' 'retry 1' extend 'extend x' \
		'extend 0' 'extend -5' 'extend 5 5' 'extend 5s5' commit; do
		is "$bad: $(handle fd "$fd" "$bad")" "$bad: EINVAL"
	done
	errors_has 'groups/g/follow: EINVAL: .*ack, .*retry, fail.*, dlq.*, extend'
	is "$(cat "$PG/cursor") $(letters)" '-1 '
	pops "$G/pop" '' # still held
	is "$(handle fd "$fd" ack read)" 'ok [2\n]'
}

@test "a verb needs no newline; echo and printf to the descriptor do" {
	start
	queue
	push "$Q" 1 2 3
	local fd line
	exec {fd}<>"$G/follow"
	for line in 1 2; do
		read -r -u "$fd" REPLY
		is "$REPLY" "$line"
		echo ack >&"$fd"
	done
	read -r -u "$fd" REPLY
	printf ack >&"$fd"
	is "$REPLY $(cat "$PG/cursor")" '3 2'
}

# ---- retry -----------------------------------------------------------------------------

@test "retry hands back the rest, which comes again in one span" {
	start
	queue
	setting "$G" batch 3
	push "$Q" 1 2 3 4
	is "$(handle rw "$G/follow" read retry read 'ack 0' retry read ack)" \
		'[1\n2\n3\n] ok [1\n2\n3\n] ok ok [2\n3\n4\n] ok'
}

@test "retry gives the messages to another reader at once" {
	start
	queue
	push "$Q" 1
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read retry)" '[1\n] ok'
	pops "$G/pop" 1
	is "$(handle fd "$fd" ack)" EINVAL
}

@test "retry is not counted as a delivery" {
	start
	queue
	setting "$G" max_deliveries 2
	push "$Q" 1
	is "$(handle rw "$G/follow" read retry read retry read retry read retry read ack)" \
		'[1\n] ok [1\n] ok [1\n] ok [1\n] ok [1\n] ok'
	is "$(letters)" ''
	is "$(cat "$PG/cursor")" 0
}

@test "retry is not charged" {
	start
	queue
	setting "$G" retry_limit 0
	push "$Q" 1
	is "$(handle rw "$G/pop" read retry read retry read)" '[1\n] ok [1\n] ok [1\n]'
	is "$(stat_of "$PG/stats" retries) $(letters)" '0 '
}

@test "a message of which a part was read is finished after a retry, then comes again whole" {
	start
	queue
	push "$Q" hello
	is "$(handle rw "$G/follow" read:3 retry read read)" '[hel] ok [lo\n] [hello\n]'
}

# ---- fail ------------------------------------------------------------------------------

@test "fail hands back; past retry_limit (3) the message is a dead letter" {
	start
	queue
	push "$Q" 1 2
	is "$(handle rw "$G/follow" read fail read 'fail no reason' read fail read)" \
		'[1\n] ok [1\n] ok [1\n] ok [1\n]'
	is "$(letters)" ''
	is "$(handle rw "$G/follow" read 'fail it is broken' read)" '[1\n] ok [2\n]'
	is "$(letters)" default@0
	is "$(attribute "$G/dlq/default@0" error)" 'it is broken'
	is "$(cat "$PG/cursor")" 0
}

@test "retry_limit 0: the first fail makes it a dead letter" {
	start
	queue
	setting "$G" retry_limit 0
	push "$Q" 1 2
	is "$(handle rw "$G/pop" read 'fail at once' read)" '[1\n] ok [2\n]'
	is "$(letters)" default@0
	is "$(attribute "$G/dlq/default@0" attempts)" 1
}

@test "fail gives the message to another reader at once" {
	start
	queue
	push "$Q" 1
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read fail)" '[1\n] ok'
	pops "$G/pop" 1
}

@test "fail charges the head; the rest comes back one message at a time, not charged" {
	start
	queue
	setting "$G" batch 3
	setting "$G" retry_limit 1
	push "$Q" 1 2 3 4 5
	is "$(handle rw "$G/follow" read fail read read ack)" '[1\n2\n3\n] ok [1\n] [EBUSY] ok'
	is "$(handle rw "$G/follow" read fail read fail)" '[2\n] ok [2\n] ok'
	is "$(letters)" default@1
	is "$(handle rw "$G/follow" read read ack read)" '[3\n] [EBUSY] ok [4\n5\n]'
}

@test "fail after ack N charges the first that was not acked" {
	start
	queue
	setting "$G" batch 3
	setting "$G" retry_limit 0
	push "$Q" 1 2 3
	is "$(handle rw "$G/follow" read 'ack 0' fail read)" '[1\n2\n3\n] ok ok [3\n]'
	is "$(letters)" default@1
}

@test "the charge ends when the cursor passes the message" {
	start
	queue
	setting "$G" retry_limit 1
	push "$Q" 1 2
	is "$(handle rw "$G/follow" read fail)" '[1\n] ok'
	is "$(stat_of "$PG/stats" retries)" 1
	is "$(handle rw "$G/follow" read ack read fail read)" '[1\n] ok [2\n] ok [2\n]'
	is "$(stat_of "$PG/stats" retries) $(letters)" '1 '
	wait_until has "$PG/stats" '^lease_pid 0$'
	is "$(handle rw "$G/follow" read fail)" '[2\n] ok'
	is "$(letters)" default@1
	is "$(stat_of "$PG/stats" retries)" 0
}

@test "the charge survives kill -9 of the daemon" {
	start
	queue
	setting "$G" retry_limit 1
	push "$Q" 1 2
	is "$(handle rw "$G/follow" read fail)" '[1\n] ok'
	crash
	start
	is "$(stat_of "$PG/stats" retries)" 1
	is "$(handle rw "$G/follow" read fail read)" '[1\n] ok [2\n]'
	is "$(letters)" default@0
}

# ---- dlq and extend --------------------------------------------------------------------

@test "dlq makes the head a dead letter and goes on" {
	start
	queue
	setting "$G" batch 3
	push "$Q" 1 2 3 4
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read 'dlq not for us')" '[1\n2\n3\n] ok'
	is "$(letters) $(cat "$PG/cursor")" 'default@0 0'
	is "$(attribute "$G/dlq/default@0" error)" 'not for us'
	pops "$G/pop" ''
	is "$(handle fd "$fd" read ack read)" '[EBUSY] ok [4\n]'
	is "$(cat "$PG/cursor")" 2
}

@test "dlq of the only message of a span: the next read claims the next" {
	start
	queue
	push "$Q" 1 2 3
	is "$(handle rw "$G/follow" read dlq read dlq read ack)" '[1\n] ok [2\n] ok [3\n] ok'
	is "$(letters)" 'default@0 default@1'
}

@test "two dlq in a row are for the first two messages" {
	start
	queue
	setting "$G" batch 3
	push "$Q" 1 2 3
	is "$(handle rw "$G/pop" read 'dlq first' 'dlq second' ack)" '[1\n2\n3\n] ok ok ok'
	is "$(letters)" 'default@0 default@1'
	is "$(attribute "$G/dlq/default@1" error)" second
	is "$(cat "$PG/cursor")" 2
}

@test "dlq does not touch what was not returned: EINVAL" {
	start
	queue
	setting "$G" batch 3
	push "$Q" 1 2 3
	is "$(handle rw "$G/follow" read:2 dlq dlq fail read:2 ack)" \
		'[1\n] ok EINVAL EINVAL [2\n] ok'
	is "$(letters)" default@0
	pops_soon "$G/pop" 3
}

@test "a message of which a part was read can be failed or given up, and is finished" {
	start
	queue
	setting "$G" retry_limit 1
	push "$Q" hello other
	is "$(handle rw "$G/follow" read:3 fail read read:3 'dlq torn' read read ack)" \
		'[hel] ok [lo\n] [hel] ok [lo\n] [other\n] ok'
	is "$(letters) $(cat "$G/dlq/default@0")" 'default@0 hello'
}

@test "extend <seconds> moves the end of the lease" {
	start
	queue
	setting "$G" lease_seconds 100
	push "$Q" 1
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	[[ $(stat_of "$PG/stats" lease_end) < $(date -u -d '+101 seconds' +%FT%T) ]]
	is "$(handle fd "$fd" 'extend 500')" ok
	[[ $(stat_of "$PG/stats" lease_end) > $(date -u -d '+400 seconds' +%FT%T) ]]
	[[ $(stat_of "$PG/stats" lease_end) < $(date -u -d '+501 seconds' +%FT%T) ]]
	is "$(handle fd "$fd" 'extend 1')" ok
	pops_soon "$G/pop" 1
	is "$(handle fd "$fd" 'extend 5' ack)" 'ESTALE ESTALE'
}

@test "extend brings an overdue lease back" {
	start
	queue
	setting "$G" lease_seconds 1
	push "$Q" 1
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	wait_until overdue
	is "$(handle fd "$fd" 'extend 300')" ok
	pops "$G/pop" ''
	is "$(handle fd "$fd" ack)" ok
}

# ---- the end of a lease ----------------------------------------------------------------

@test "past lease_seconds the holder acks and reads on until the span is taken" {
	start
	queue
	setting "$G" lease_seconds 1
	setting "$G" batch 2
	push "$Q" one two three
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read:4)" '[one\n]'
	wait_until overdue
	is "$(handle fd "$fd" read 'ack 0')" '[two\n] ok'
	is "$(cat "$PG/cursor")" 0
	is "$(handle fd "$fd" ack read)" 'ok [three\n]'
	is "$(cat "$PG/cursor")" 1
}

@test "taken by another: acks are ESTALE, the next read claims anew" {
	start
	queue
	setting "$G" lease_seconds 1
	push "$Q" 1 2
	local fd verb
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	pops_soon "$G/pop" 1
	for verb in ack 'ack 0' retry fail 'dlq no' 'extend 5'; do
		is "$verb: $(handle fd "$fd" "$verb")" "$verb: ESTALE"
	done
	errors_has 'groups/g/follow: ESTALE: .*lost'
	is "$(cat "$PG/cursor") $(letters)" '0 '
	is "$(handle fd "$fd" read ack)" '[2\n] ok'
	is "$(cat "$PG/cursor")" 1
}

@test "a waiting reader takes a span whose lease runs out" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	setting "$G" lease_seconds 1
	push "$Q" 1
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	reader "$OUT" "$G/follow"
	wait_until shows "$OUT" 1
	wait_until shows "$PG/cursor" 0
	is "$(handle fd "$fd" ack)" ESTALE
}

@test "a message that was begun is finished after it was taken; that acks nothing" {
	start
	queue
	setting "$G" lease_seconds 1
	push "$Q" hello
	local fd other
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read:3)" '[hel]'
	exec {other}<>"$G/follow"
	is "$(handle fd "$other" read)" '[hello\n]' # waits for it
	is "$(handle fd "$fd" read ack)" '[lo\n] ESTALE'
	is "$(cat "$PG/cursor")" -1
	is "$(handle fd "$other" ack)" ok
}

@test "rm of the segment of what is leased: the ack is taken, the next read goes on behind" {
	start
	queue
	setting "$G" batch 3
	push "$Q" 1 2 3 4 5
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read:2)" '[1\n]'
	rm "$(segment "$P" 0)"
	rm "$(segment "$P" 1)"
	is "$(handle fd "$fd" read ack read)" '[3\n] ok [4\n5\n]'
	rm "$(segment "$P" 2)"
	rm "$(segment "$P" 3)"
	rm "$(segment "$P" 4)"
	is "$(handle fd "$fd" ack)" ok
	push "$Q" 6
	is "$(handle fd "$fd" read ack)" '[6\n] ok'
}

@test "lease_seconds 0: while the handle is open" {
	start
	queue
	setting "$G" lease_seconds 0
	push "$Q" 1
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	is "$(stat_of "$PG/stats" lease_end)" -
	not is "$(stat_of "$PG/stats" lease_pid)" 0
	pops "$G/pop" ''
	exec {fd}<&-
	pops_soon "$G/pop" 1
}

@test "after a seek every verb is ESTALE and moves nothing; the next read obeys the seek" {
	start
	queue
	setting "$G" batch 2
	push "$Q" 1 2 3 4
	local fd verb
	exec {fd}<>"$G/follow"
	for verb in ack 'ack 1' retry fail 'fail no' dlq 'dlq no' 'extend 5'; do
		echo start >"$PG/cursor"
		is "$(handle fd "$fd" read)" '[1\n2\n]'
		echo 2 >"$PG/cursor"
		is "$verb: $(handle fd "$fd" "$verb")" "$verb: ESTALE"
		is "$(cat "$PG/cursor") $(letters)" '2 '
		is "$(stat_of "$PG/stats" retries)" 0
		is "$(handle fd "$fd" read)" '[4\n]'
		is "$(handle fd "$fd" retry)" ok
	done
}

@test "a seek to where the cursor stands also ends the lease" {
	start
	queue
	push "$Q" 1
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	echo start >"$PG/cursor"
	is "$(handle fd "$fd" ack read ack)" 'ESTALE [1\n] ok'
	is "$(cat "$PG/cursor")" 0
}

# ---- giving back -----------------------------------------------------------------------

@test "what was not acked when a handle closes is redelivered at once, in order" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	setting "$G" batch 3
	push "$Q" 1 2 3 4
	member "$BATS_TEST_TMPDIR/held" "$G/follow" read 'ack 0'
	wait_until shows "$PG/cursor" 0
	local holder=$READER
	reader "$OUT" "$G/follow"
	wait_until waiting 1
	kill "$holder"
	wait_until shows "$OUT" $'2\n3\n4'
	is "$(cat "$BATS_TEST_TMPDIR/held")" $'1\n2\n3'
}

@test "what was not acked when its process is killed is redelivered at once, in order" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue a b
	setting "$G" batch 2
	push "$Q/partitions/a" a1 a2 a3
	push "$Q/partitions/b" b1
	member "$BATS_TEST_TMPDIR/held" "$G/follow" read
	wait_until shows "$BATS_TEST_TMPDIR/held" $'a1\na2'
	kill -9 "$READER"
	member "$OUT" "$G/follow" read ack read ack read ack read
	wait_until has "$OUT" a3
	is "$(grep a "$OUT")" $'a1\na2\na3'
}

@test "what was lost comes back one message at a time, whatever batch says, until passed" {
	start
	queue
	setting "$G" batch 10
	push "$Q" 1 2 3
	is "$(handle rw "$G/follow" read)" '[1\n2\n3\n]'
	push "$Q" 4 5
	wait_until has "$PG/stats" '^lease_pid 0$'
	is "$(handle rw "$G/follow" read read ack read read ack read ack read ack)" \
		'[1\n] [EBUSY] ok [2\n] [EBUSY] ok [3\n] ok [4\n5\n] ok'
}

@test "what was lost comes back to cat pop one message at a time too" {
	start
	queue
	setting "$G" batch 10
	push "$Q" 1 2
	is "$(handle rw "$G/pop" read)" '[1\n2\n]'
	push "$Q" 3 4
	pops_soon "$G/pop" 1
	pops "$G/pop" 2 $'3\n4' ''
}

@test "what a daemon that was killed had handed out comes back one message at a time" {
	start
	queue
	setting "$G" batch 10
	push "$Q" 1 2
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n2\n]'
	crash
	exec {fd}<&-
	start
	push "$Q" 3 4
	is "$(handle rw "$G/follow" read ack read ack read)" '[1\n] ok [2\n] ok [3\n4\n]'
}

# ---- max_deliveries --------------------------------------------------------------------

@test "attempts of a leased handle survive kill -9 of the daemon: max_deliveries counts them" {
	start
	queue
	setting "$G" max_deliveries 2
	push "$Q" 1 2
	local i fd
	for i in 1 2; do
		exec {fd}<>"$G/follow"
		is "$(handle fd "$fd" read)" '[1\n]'
		crash
		exec {fd}<&-
		start
		is "$(stat_of "$PG/stats" attempts)" "$i"
	done
	is "$(handle rw "$G/follow" read ack)" '[2\n] ok'
	is "$(letters)" default@0
	is "$(attribute "$G/dlq/default@0" attempts)" 2
	grep -q . <<<"$(attribute "$G/dlq/default@0" error)"
}

@test "a message that is dead-lettered while its overdue holder hangs is lost to it: ESTALE" {
	start
	queue
	setting "$G" lease_seconds 1
	setting "$G" max_deliveries 1
	push "$Q" 1
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	wait_until overdue
	is "$(cat "$G/pop")" ''
	is "$(letters)" default@0
	is "$(handle fd "$fd" ack fail)" 'ESTALE ESTALE'
	is "$(cat "$PG/cursor") $(letters)" '0 default@0'
	push "$Q" 2
	is "$(handle fd "$fd" read ack)" '[2\n] ok'
}

# worker OUT FILE - reads and acks message by message until one says quit; one that says
# poison kills it first.
worker() {
	perl -MFcntl -e '
		sysopen(my $f, $ARGV[0], O_RDWR) or die $!;
		alarm 60;
		while (sysread($f, my $b, 65536)) {
			syswrite(STDOUT, $b);
			kill 9, $$ if $b =~ /poison/;
			syswrite($f, "ack\n") or die $!;
			exit 0 if $b =~ /quit/;
		}
	' "$2" >>"$1"
}

@test "a message that always kills its reader ends in dlq/, and the lane goes on" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	setting "$G" max_deliveries 3
	setting "$G" batch 10
	push "$Q" before poison after quit
	: >"$OUT"
	local lives=0
	until worker "$OUT" "$G/follow" 2>/dev/null; do
		lives=$((lives + 1))
		[ "$lives" -lt 10 ]
	done
	is "$(letters)" default@1
	is "$(cat "$G/dlq/default@1")" poison
	is "$(cat "$PG/cursor")" 3
	# together with the others, then alone
	is "$(uniq "$OUT" | paste -sd ' ')" 'before poison after quit before poison after quit'
	is "$(grep -c poison "$OUT")" 3
}

@test "max_deliveries 1: a message that kills its reader is not delivered again" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	setting "$G" max_deliveries 1
	setting "$G" batch 10
	push "$Q" before poison after quit
	not worker "$OUT" "$G/follow" 2>/dev/null
	worker "$OUT" "$G/follow"
	is "$(cat "$OUT")" $'before\npoison\nafter\nquit'
	is "$(letters)" default@1
}

@test "max_deliveries counts what cat has begun and not finished" {
	start
	queue
	setting "$G" max_deliveries 2
	push "$Q" hello other
	is "$(head -c 1 "$G/pop")" h
	wait_until has "$PG/stats" '^lease_pid 0$'
	is "$(head -c 1 "$G/pop")" h
	wait_until has "$PG/stats" '^lease_pid 0$'
	is "$(cat "$G/pop")" other
	is "$(letters)" default@0
}

# ---- retry_delay_seconds ---------------------------------------------------------------

@test "retry_delay_seconds: what failed or was lost comes again after a pause, not before" {
	start
	queue
	setting "$G" retry_delay_seconds 1
	push "$Q" 1 2
	mark
	is "$(handle rw+ "$G/follow" read fail read)" '[1\n] ok [EAGAIN]'
	pops "$G/pop" ''
	is "$(handle rw "$G/follow" read)" '[1\n]' # waits for it; and its close loses it
	[ "$(elapsed_ms)" -ge 1000 ]
	mark
	pops_soon "$G/pop" 1
	[ "$(elapsed_ms)" -ge 1000 ]
	pops "$G/pop" 2
}

@test "retry_delay_seconds min:max doubles up to max" {
	start
	queue
	setting "$G" retry_delay_seconds 1:2
	setting "$G" retry_limit 100
	push "$Q" 1
	local least
	is "$(handle rw "$G/follow" read fail)" '[1\n] ok'
	for least in 1000 2000 2000; do
		mark
		is "$(handle rw "$G/follow" read fail)" '[1\n] ok'
		# the pause has begun a moment before the mark
		[ "$(elapsed_ms)" -ge $((least - 500)) ]
	done
	mark
	is "$(handle rw "$G/follow" read fail)" '[1\n] ok'
	[ "$(elapsed_ms)" -lt 8000 ]
}

@test "retry_delay_seconds: a retry has no pause" {
	start
	queue
	setting "$G" retry_delay_seconds 5m
	push "$Q" 1
	is "$(handle rw+ "$G/follow" read retry read retry)" '[1\n] ok [1\n] ok'
	pops "$G/pop" 1
}

@test "a seek ends the pause" {
	start
	queue
	setting "$G" retry_delay_seconds 5m
	push "$Q" 1
	is "$(handle rw+ "$G/follow" read fail read)" '[1\n] ok [EAGAIN]'
	echo start >"$PG/cursor"
	is "$(handle rw+ "$G/follow" read ack)" '[1\n] ok'
}

# ---- who may hold ----------------------------------------------------------------------

@test "one (partition, group) has one leased span" {
	start
	queue a b
	mkdir "$Q/groups/h"
	push "$Q/partitions/a" a1 a2
	local first second
	exec {first}<>"$G/follow"
	exec {second}<>"$G/follow"
	is "$(handle fd "$first" read)" '[a1\n]'
	is "$(handle fd "$second" + read -)" '[EAGAIN]'
	is "$(handle rw+ "$Q/partitions/a/groups/g/follow" read)" '[EAGAIN]'
	pops "$G/pop" ''
	is "$(handle rw "$Q/groups/h/follow" read ack)" '[a1\n] ok' # another group
	push "$Q/partitions/b" b1
	is "$(handle fd "$second" read)" '[b1\n]' # another partition
	is "$(handle fd "$first" ack)" ok
	pops "$G/pop" a2
	is "$(handle fd "$second" ack)" ok
}

@test "write-only opens: EACCES, naming the read-write way" {
	start
	queue
	local file
	for file in follow pop; do
		is "$(sys open "$G/$file" O_WRONLY)" EACCES
		errors_has "groups/g/$file: EACCES: .*read-write"
	done
}

@test "explicit acks survive kill -9 of the daemon at once" {
	start
	queue
	setting "$G" batch 2
	push "$Q" 1 2 3 4 5
	is "$(handle rw "$G/follow" read 'ack 0')" '[1\n2\n] ok'
	crash
	start
	is "$(cat "$PG/cursor")" 0
	is "$(handle rw "$G/follow" read ack)" '[2\n] ok'
	crash
	start
	is "$(cat "$PG/cursor")" 1
	is "$(handle rw "$G/follow" read 'dlq why')" '[3\n4\n] ok'
	crash
	start
	is "$(cat "$PG/cursor") $(letters)" '2 default@2'
}
