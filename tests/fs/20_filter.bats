#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 11 of the contract: filters.

load lib

# group NAME FILTER - makes a group with that filter.
group() {
	mkdir "$Q/groups/$1"
	printf '%s\n' "$2" >"$Q/groups/$1/config/filter"
}

# all FILE - what pop after pop gives until nothing is left, apart by blanks.
all() {
	local found
	while pop_found "$1"; do echo "$found"; done | paste -sd ' '
}

# passes FILTER TEXT - a new group with that filter gets these messages, here sorted.
passes() {
	groups=$((groups + 1))
	group "f$groups" "$1"
	is "$1: $(all "$Q/groups/f$groups/pop" | tr ' ' '\n' | sort | paste -sd ' ')" "$1: $2"
}

# regions REGION... - a message of each, e.g. eu0 us1, with that attribute; - is without.
regions() {
	local region i=0
	for region; do
		if [ "$region" = - ]; then push "$Q" "-$i"; else
			push_json "$Q" "{\"data\":\"$region$i\",\"attributes\":{\"region\":\"$region\"}}"
		fi
		i=$((i + 1))
	done
}
EU="attributes ->> 'region' = 'eu'"

# refuses ERRNO FILTER... - g does not take it, and keeps what it has.
refuses() {
	local text before
	before=$(cat "$G/config/filter")
	for text in "${@:2}"; do
		is "$text: $(sys write "$G/config/filter" "$text"$'\n')" "$text: $1"
		tail -n 1 "$M/errors" | grep -q "groups/g/config/filter: $1: ."
		is "$(cat "$G/config/filter")" "$before"
	done
}

# ---- what it lets pass -----------------------------------------------------------------------

@test "a message for which it is not true, or NULL, is passed over as if acked" {
	start
	queue
	setting "$G" filter "$EU"
	is "$(cat "$G/config/filter")" "$EU"
	regions eu us - eu us
	pops "$Q/pop" eu0 us1 -2 eu3 us4 ''
	is "$(stat_of "$PG/stats" lag)" 5 # it passes over nothing until a reader gets there
	pops "$G/pop" eu0 eu3 ''
	wait_until shows "$PG/cursor" 4
	is "$(stat_of "$G/stats" lag) $(stat_of "$G/stats" filter_errors)" '0 0'
	regions us eu
	pops "$G/pop" eu1 ''
}

@test "it sees data, partition, offset, created_at, transaction_id and attributes" {
	start
	queue a b
	push "$Q/partitions/a" a0 a1 a2
	local created
	created=$(attribute "$(segment "$Q/partitions/a" 1)" created_at)
	push_json "$Q" '{"data":"b0","partition":"b","transactionId":"inv-42","attributes":{"n":{"k":[1,2.5]}}}' \
		'{"data":"b1","partition":"b","transactionId":"out-1"}'
	passes "data = 'a1' or data like 'B_'" 'a1 b0 b1'
	passes "partition = 'b'" 'b0 b1'
	passes '"offset" >= 1' 'a1 a2 b1'
	passes '"offset" % 2 = 0' 'a0 a2 b0'
	passes "created_at <= '$created'" 'a0 a1'
	passes "created_at = '$created'" a1
	passes "transaction_id like 'inv-%'" b0
	passes "attributes ->> '\$.n.k[1]' > 2 and json_type(attributes, '\$.n') = 'object'" b0
	passes "attributes -> 'n' is null and partition = 'b'" b1
	passes "case partition when 'a' then \"offset\" = 0 else instr(data, '1') end" 'a0 b1'
}

@test "true is what SQL takes for true" {
	start
	queue
	push "$Q" m
	passes 1 m
	passes 0.5 m
	passes -1 m
	passes 0 ''
	passes NULL ''
	passes "'text'" ''
	passes 'not NULL' ''
	passes 'data is not null' m
	passes '1 = 1 and (2 > 1 or null)' m
}

@test "data is the text of a message, JSON as push.json took it" {
	start
	queue
	push_json "$Q" '{"data": { "total" : 120.50, "vip":true } }' '{"data":{"total":7}}' \
		'{"data":"{\"total\":130}"}'
	push "$Q" '{"total":140}'
	passes "data ->> 'total' > 100" '{"total":120.50,"vip":true} {"total":130} {"total":140}'
	passes "data = '{\"total\":120.50,\"vip\":true}'" '{"total":120.50,"vip":true}'
	passes "typeof(data) <> 'text'" ''
	printf 'keep\xff\xfe\0x\ndrop\xff\n' >"$Q/push"
	group binary "data like 'keep%'"
	cat "$Q/groups/binary/pop" | cmp - <(printf 'keep\xff\xfe\0x\n')
	is "$(cat "$Q/groups/binary/pop")" ''
}

@test "a long filter is taken, and any text in it is kept" {
	start
	queue
	push "$Q" 1 "it's" 3
	local list
	list=$(seq -s , 1000 1200)
	setting "$G" filter "data in (1$list, '3', 'it''s', 'ü ;--/*')"
	is "$(cat "$G/config/filter")" "data in (1$list, '3', 'it''s', 'ü ;--/*')"
	remount
	is "$(cat "$G/config/filter")" "data in (1$list, '3', 'it''s', 'ü ;--/*')"
	pops "$G/pop" "it's" 3 ''
}

# ---- reading ---------------------------------------------------------------------------------

@test "each group has its own; the members of one share what passes" {
	start
	queue a b c
	local partition i outs=()
	for partition in a b c; do seq -f "$partition%03.0f" 300 >"$Q/partitions/$partition/push"; done
	group even "substr(data, 4) % 2 = 0"
	group odd "substr(data, 4) % 2 = 1"
	for i in even even even odd odd; do
		outs+=("$BATS_TEST_TMPDIR/$i.${#outs[@]}")
		reader "${outs[-1]}" "$Q/groups/$i/follow"
	done
	idle() { has "$Q/groups/$1/stats" "^waiting $2\$" && has "$Q/groups/$1/stats" '^lag 0$'; }
	wait_until idle even 3
	wait_until idle odd 2
	is "$(cat "$BATS_TEST_TMPDIR"/even.* | sort)" "$(printf '%s\n' {a..c}{002..300..2})"
	is "$(cat "$BATS_TEST_TMPDIR"/odd.* | sort)" "$(printf '%s\n' {a..c}{001..300..2})"
}

@test "a follow that waits passes over what is not for it, and its cursor moves" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	setting "$G" filter "$EU"
	reader "$OUT" "$G/follow"
	wait_until waiting 1
	regions us us
	wait_until shows "$PG/cursor" 1
	regions us eu
	wait_until shows "$OUT" eu1
	wait_until shows "$PG/cursor" 3
	is "$(handle rw+ "$G/follow" read)" '[EAGAIN]'
	regions us
	is "$(handle rw+ "$PG/follow" read)" '[EAGAIN]'
}

@test "leased readers: an ack passes over what the filter passed before" {
	start
	queue
	setting "$G" batch 2
	setting "$G" filter "$EU"
	regions us eu us us eu us eu us
	local fd
	exec {fd}<>"$PG/pop"
	session "$fd" <<-'END'
		pop = Handle("/dev/null")
		pop.fd = int(sys.argv[1])
		first = pop.read()
		assert first.startswith(b"eu1\n"), first
		pop.write("ack 1\n")
	END
	[[ $(cat "$PG/cursor") == [123] ]]
	exec {fd}>&-
	wait_until has "$PG/stats" '^lease_pid 0$'
	session "$PG/follow" <<-'END'
		follow, got = Handle(sys.argv[1], "rw"), b""
		while got.count(b"\n") < 2:
		    got += follow.read()
		    follow.write("ack\n")
		is_(got, b"eu4\neu6\n")
	END
	pops "$G/pop" ''
	wait_until shows "$PG/cursor" 7
}

@test "leased readers: what was not acked comes back, what was passed over does not" {
	start
	queue
	setting "$G" filter "$EU"
	regions us eu us eu
	is "$(handle rw "$G/pop" read fail read)" '[eu1\n] ok [eu1\n]'
	pops_soon "$G/pop" eu1
	is "$(handle rw "$G/pop" read dlq read)" '[eu3\n] ok []'
	is "$(letters)" default@3
	is "$(cat "$PG/cursor")" 3
}

@test "leased readers of pop.json and follow.json: each message once, as its first attempt" {
	start
	queue
	mkdir "$Q/groups/h"
	setting "$Q" batch 2
	setting "$G" filter "$EU"
	setting "$Q/groups/h" filter "$EU"
	regions us eu eu us eu
	session "$Q/groups" <<-'END'
		pop = Handle(sys.argv[1] + "/g/pop.json", "rw")
		follow = Handle(sys.argv[1] + "/h/follow.json", "rw+")
		def attempts(handle):
		    got = []
		    for i in range(4):
		        try:
		            while (line := handle.line()) is not None: got += [parse(line)]
		        except OSError as e: assert e.errno in (errno.EBUSY, errno.EAGAIN), e
		        handle.refused("ack\n")
		    return [m["data"] + "=" + m["attempt"] for m in got if "data" in m]
		is_(attempts(pop), ["eu1=1", "eu2=1", "eu4=1"])
		is_(attempts(follow), ["eu1=1", "eu2=1", "eu4=1"])
	END
	is "$(cat "$PG/cursor") $(cat "$P/groups/h/cursor")" '4 4'
}

@test "follow.json and pop.json: only what passes; the count of a replay does not ask the filter" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue
	setting "$G" filter "$EU"
	group h "$EU"
	regions us eu us eu us
	reader "$OUT" "$G/follow.json"
	wait_until waiting 1
	is "$(story "$OUT" | sed 's/ replayEnd=[0-9]*$//')" 'replayStart=5 old:eu1 old:eu3'
	is "$(cat "$Q/groups/h/pop.json" | fields offset data)" '1 "eu1"'
}

@test "a seek: each group applies its own filter again" {
	start
	queue
	setting "$G" filter "$EU"
	mkdir "$Q/groups/h"
	regions us eu us eu
	is "$(all "$G/pop") $(all "$Q/groups/h/pop")" 'eu1 eu3 us0 eu1 us2 eu3'
	echo start >"$G/cursor"
	is "$(all "$G/pop")" 'eu1 eu3'
	echo 1 >"$PG/cursor"
	is "$(cat "$PG/cursor")" 1
	is "$(all "$G/pop")" eu3
	attribute "$(segment "$P" 2)" created_at >"$G/cursor"
	is "$(cat "$PG/cursor")" 1
	is "$(all "$G/pop")" eu3
	echo start >"$G/cursor"
	echo end >"$G/cursor"
	is "$(all "$G/pop")" ''
	cat "$G/cursor" >"$BATS_TEST_TMPDIR/table"
	echo start >"$Q/groups/h/cursor"
	cat "$BATS_TEST_TMPDIR/table" >"$Q/groups/h/cursor"
	is "$(all "$Q/groups/h/pop")" ''
}

@test "a snapshot holds also what its group's filter would pass over" {
	start
	queue
	setting "$G" filter "$EU"
	mkdir "$Q/groups/h"
	regions us eu us eu
	echo g >"$Q/snapshots/before"
	is "$(all "$G/pop") $(all "$Q/groups/h/pop")" 'eu1 eu3 us0 eu1 us2 eu3'
	is "$(sys unlink "$(segment "$P" 0)")" EBUSY
	echo 'snapshot before' >"$G/cursor"
	echo 'snapshot before' >"$Q/groups/h/cursor"
	is "$(all "$G/pop") $(all "$Q/groups/h/pop")" 'eu1 eu3 us0 eu1 us2 eu3'
}

# ---- writing it ------------------------------------------------------------------------------

@test "it can be changed until the group's first read of any pop or follow, then EBUSY" {
	start
	queue
	mkdir "$Q/groups/"{h,i,j}
	regions us eu
	setting "$G" filter "data = 'nothing'"
	setting "$G" filter "$EU"
	: <"$G/pop" # opened, not read
	cat "$G/cursor" "$G/stats" "$G/members" "$P/log" >/dev/null
	setting "$G" filter "data = 'us0'"
	pops "$PG/pop" us0
	refuses EBUSY "$EU" '' default 1
	is "$(handle ro+ "$Q/groups/h/follow" read)" $'[us0\\neu1\\n]'
	is "$(sys write "$Q/groups/h/config/filter" $'1\n')" EBUSY
	setting "$Q/groups/i" filter "data = 'nothing'"
	is "$(cat "$Q/groups/i/pop.json")" '' # one that finds nothing, too
	is "$(sys write "$Q/groups/i/config/filter" $'1\n')" EBUSY
	remount
	refuses EBUSY "$EU"
	setting "$Q/groups/j" filter "$EU"
	pops "$Q/groups/j/pop" eu1
}

@test "an empty line or default clears it" {
	start
	queue
	regions us eu
	is "$(cat "$G/config/filter")" ''
	local text
	for text in '' default; do
		setting "$G" filter "$EU"
		setting "$G" filter "$text"
		is "$(cat "$G/config/filter")" ''
	done
	pops "$G/pop" us0 eu1 ''
}

@test "it survives kill -9 of the daemon" {
	start
	queue
	regions us eu us eu
	setting "$G" filter "$EU"
	crash
	start
	is "$(cat "$G/config/filter")" "$EU"
	is "$(handle rw "$G/pop" read ack)" '[eu1\n] ok'
	crash
	start
	refuses EBUSY 1
	pops "$G/pop" eu3 ''
}

@test "a bad one: EINVAL with SQLite's message, and the old one stays" {
	start
	queue
	setting "$G" filter "$EU"
	refuses EINVAL "attributes ->>"
	refuses EINVAL 'colour = 1'
	errors_has 'config/filter: EINVAL: .*no such column: colour'
	refuses EINVAL "foo(data)"
	errors_has 'config/filter: EINVAL: .*no such function: foo'
	refuses EINVAL 'data ='
	refuses EINVAL "data = 'x" 'substr(data)' 'data data' '(data' 'data)' '*' 'data = "x'
	errors_has 'config/filter: EINVAL: .*(unrecognized token|incomplete input|syntax error)'
	regions us eu
	pops "$G/pop" eu1 ''
}

@test "it is one expression: anything around it is EINVAL" {
	start
	queue
	refuses EINVAL '1; select 1' '1) union select (1' '1) or (select 1' 'select 1' '1, 2' '1 order by 1' \
		'1 limit 1' '1 from sqlite_master' '1) from sqlite_master where (1' '1 group by 1' \
		'1 as x' ';' '1) --' '1)/*'
}

# ---- hostile ---------------------------------------------------------------------------------

# bounded FILTER... - each is refused; or the message is delivered, in its time, and counted
# as filter_errors. (Without bounds each of them would not be true in the end.)
bounded() {
	local text
	for text; do
		groups=$((groups + 1))
		mkdir "$Q/groups/f$groups"
		if printf '%s\n' "$text" 2>/dev/null >"$Q/groups/f$groups/config/filter"; then
			echo "accepted: $text"
			is "$(timeout 20 cat "$Q/groups/f$groups/pop" | wc -c)" "$(stat -c %s "$P/log")"
			is "$(stat_of "$Q/groups/f$groups/stats" filter_errors)" 1
			is "$(stat_of "$P/groups/f$groups/stats" filter_errors)" 1
		fi
	done
}

@test "no tables, files, writes or non-deterministic functions: EINVAL" {
	start
	queue
	push "$Q" secret
	local file=$BATS_TEST_TMPDIR/evil
	refuses EINVAL '(select count(*) from sqlite_master) > 0' 'exists (select 1 from sqlite_schema)' \
		'(select sql from sqlite_temp_master) is null' 'data in (select name from sqlite_schema)' \
		'data in sqlite_master' "exists (select 1 from pragma_database_list)" \
		"exists (select 1 from pragma_table_info('sqlite_master'))" \
		'exists (select 1 from dbstat)' 'exists (select 1 from meta)' 'exists (select 1 from main.meta)'
	refuses EINVAL "1; attach database '$file' as evil" "attach database '$file' as evil" \
		"1); attach database '$file' as evil; select (1" "1; vacuum into '$file'" \
		'1; drop table meta' '1; pragma writable_schema = 1' '1; delete from sqlite_master' \
		"load_extension('$file')" "load_extension('$file', 'entry') is null" \
		"readfile('/etc/passwd') is null" "writefile('$file', data)" "edit(data)" \
		"raise(abort, 'x')" "raise(ignore)"
	refuses EINVAL 'random() > 0' 'length(randomblob(8)) > 0' 'last_insert_rowid() = 0' \
		'changes() = 0' 'total_changes() = 0'
	bounded "current_timestamp < '2000'" "current_time < ''" "datetime('now') < '2000'" \
		'julianday() < 0' "strftime('%s', 'now') + 0 < 0" 'unixepoch() < 0' \
		"date(created_at, 'localtime') < ''"
	not test -e "$file"
	is "$(cat "$Q/pop")" secret
	remount
	pops "$G/pop" secret ''
}

# peak_kib - the most memory that the daemon has had.
peak_kib() { sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$PID/status"; }

@test "endless recursion ends" {
	start
	queue
	push "$Q" m
	local digits='d(n) as (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))'
	bounded '(with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r) = 0' \
		'(with recursive r(n) as (values (1) union select n * 2 % 1000003 from r, (values (1), (2))) select count(*) from r, r) = 0' \
		"(with $digits select count(*) from d, d, d, d, d, d, d, d, d, d, d, d where data <> '') = 0" \
		"(with recursive r(s) as (select data union all select s || s from r) select count(*) from r) = 0"
	pops "$G/pop" m
}

@test "huge values are errors, and take no memory" {
	start
	queue
	push "$Q" m
	local before x
	before=$(peak_kib)
	printf -v x '%01000d' 0
	bounded 'length(zeroblob(1000000000)) = 0' 'length(hex(zeroblob(400000000))) = 0' \
		"length(printf('%900000000d', 1)) = 0" "length(printf('%.*c', 900000000, 'x')) = 0" \
		"length(replace(replace(replace(hex(zeroblob(2000)), '0', '$x'), '0', '$x'), '0', 'xx')) = 0" \
		"length(json_array(hex(zeroblob(300000000)))) = 0"
	(($(peak_kib) - before < 300000))
	pops "$G/pop" m
}

@test "a pattern or a search over a large message ends in its time" {
	start
	queue
	perl -e 'print "a" x 1_000_000, "\n"' >"$Q/push"
	local text wildest i size
	wildest=$(perl -e 'print "%_a" x 12, "b"')
	for text in "instr(data, substr(data, 1, 500000) || 'b') > 0" "data like '$wildest'" \
		"data like '%' || substr(data, 1, 40000) || 'b'" \
		"data glob '*$(perl -e 'print "[a]" x 300')b'"; do
		i=$((i + 1))
		group "f$i" "$text"
		size=$(timeout 20 cat "$Q/groups/f$i/pop" | wc -c)
		# true it is not: either it took too long, or it was answered
		is "$size $(stat_of "$Q/groups/f$i/stats" filter_errors)" \
			"$size $((size == 1000001))"
		wait_until has "$P/groups/f$i/stats" '^lag 0$'
	done
	is "$(cat "$G/pop" | wc -c)" 1000001
}

@test "an error delivers the message and counts as filter_errors, in the group and the lane" {
	start
	queue p
	push_json "$Q" '{"data":{"k":1}}' '{"data":{"k":2}}'
	push "$Q" 'no JSON' '{"k":1}'
	setting "$G" filter "data ->> 'k' = 1"
	pops "$G/pop" '{"k":1}' 'no JSON' '{"k":1}' ''
	is "$(stat_of "$G/stats" filter_errors)" 1
	is "$(stat_of "$PG/stats" filter_errors)" 1
	is "$(stat_of "$Q/partitions/p/groups/g/stats" filter_errors)" 0
	group h "abs(-9223372036854775807 - (\"offset\" > 1)) > 0 and data <> 'x'"
	is "$(all "$Q/groups/h/pop" | wc -c)" "$(stat -c %s "$P/log")" # all of them
	is "$(stat_of "$Q/groups/h/stats" filter_errors)" 2
}

@test "passing over 100,000 messages blocks nobody, and the pop finds the one behind them" {
	start
	queue b
	mkdir "$Q/groups/h"
	setting "$G" filter "data like '%0_0%1_2%3_4%5_x' or lower(data) like '%m%e%s%x%' or data = 'found'"
	perl -e 'print map { sprintf "message %050d\n", $_ } 1 .. 100_000' >"$Q/push"
	push "$Q" found
	session "$Q" <<-'END'
		import threading, time
		queue = sys.argv[1]
		def pop(path):
		    handle = Handle(queue + path)
		    text = b"".join(iter(handle.read, b""))
		    handle.close()
		    return text
		done, worst, rounds = threading.Event(), {}, 0
		def pass_over():
		    global got, took
		    begin = time.monotonic()
		    got = pop("/partitions/default/groups/g/pop")
		    took = time.monotonic() - begin
		    done.set()
		threading.Thread(target=pass_over).start()
		def timed(name, work, wanted):
		    begin = time.monotonic()
		    is_(work(), wanted)
		    worst[name] = max(worst.get(name, 0), time.monotonic() - begin)
		def push(path):
		    with open(queue + path, "w") as f: f.write("found\n")
		while not done.is_set():
		    rounds += 1
		    timed("another group", lambda: pop("/partitions/default/groups/h/pop"), b"message %050d\n" % rounds)
		    timed("push", lambda: push("/partitions/b/push"), None)
		    timed("another partition", lambda: pop("/partitions/b/groups/g/pop"), b"found\n")
		    timed("stats", lambda: pop("/groups/g/stats") != b"", True)
		is_(got, b"found\n")
		print(f"{took:.3f} s, {rounds} rounds, {worst}")
		for name, seconds in worst.items(): assert seconds < max(0.5, took / 2), name
	END
	is "$(cat "$PG/cursor")" 100000
}

@test "passing over large messages with filters that take their time blocks no push" {
	start
	queue b
	local i slow="data like '%_b' or data like '%_c'"
	for i in 1 2 3 4; do group "f$i" "$slow"; done
	perl -e 'print "a" x 1_000_000, "\n" for 1 .. 24' >"$Q/push"
	session "$Q" <<-'END'
		import threading, time
		queue, done, begin = sys.argv[1], [], time.monotonic()
		def pass_over(i):
		    with open(f"{queue}/partitions/default/groups/f{i}/pop", "rb", buffering=0) as f: is_(f.read(100), b"")
		    done.append(time.monotonic() - begin)
		for i in range(1, 5): threading.Thread(target=pass_over, args=(i,)).start()
		worst = 0
		while len(done) < 4:
		    start = time.monotonic()
		    with open(queue + "/partitions/b/push", "w") as f: f.write("m")
		    worst = max(worst, time.monotonic() - start)
		    time.sleep(0.001) # the two do not take all of the machine
		each = max(done) / 24 # a message of each of the four
		print(f"{each:.3f} s for a message of each, a push took up to {worst:.3f} s")
		assert worst < 4 * each + 0.1
	END
}
