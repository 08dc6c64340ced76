#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Sections 2 and 4 of the contract: push.json, and the .json twins of pop and follow.

load lib

# refuses LINE... - push.json does not take it, says that it was the second, and stores
# nothing of the write that brought it.
refuses() {
	local line
	for line; do
		is "$line: $(sys write "$Q/push.json" '{"data":1,"partition":"new"}'$'\n'"$line"$'\n')" \
			"$line: EINVAL"
		tail -n 1 "$M/errors" | grep -aEq 'queues/q/push\.json: EINVAL: line 2: .' || {
			tail -n 1 "$M/errors"
			return 1
		}
		is "$(ls "$Q/partitions")" ''
	done
}

# ---- push.json: what is stored -----------------------------------------------------------

@test "push.json: one object a line; the text of a string is the message" {
	start
	queue
	push_json "$Q" '{"data":"one"}' '{"data":""}' ' { "data" : "th ree" } ' \
		'{"data":"q\"b\\s\/\t\u00e9\ud83d\ude00ü😀"}' '{"data":"\\u0000 \\ud800 \\n"}'
	printf '%s\n' one '' 'th ree' 'q"b\s/'$'\t''é😀ü😀' '\u0000 \ud800 \n' | cmp - "$P/log"
	setting "$G" batch 10
	is "$(cat "$G/pop.json" | fields data)" \
		$'"one"\n""\n"th ree"\n"q\\"b\\\\s/\\té😀ü😀"\n"\\\\u0000 \\\\ud800 \\\\n"'
}

@test "push.json: any other value is stored as compact JSON, and comes back digit for digit" {
	start
	queue
	setting "$G" batch 20
	mkdir "$Q/groups/h"
	setting "$Q/groups/h" batch 20
	local values=$BATS_TEST_TMPDIR/values
	cat >"$values" <<-'END'
		0
		-0
		-0.0
		12345678901234567890123456789012345678901234567890
		0.1000000000000000000000000000000000000000000000010
		1E+400
		-1.50e-07
		true
		false
		null
		[]
		{}
		[1,2.50,"x y",{"b":[null],"a":{}}]
		{"z":1.0,"a":9007199254740993,"":" [ 1 , 2 ] ","ü":"😀"}
	END
	sed 's/.*/{"data":&}/' "$values" >"$Q/push.json"
	cmp "$P/log" "$values"
	cat "$G/pop" | cmp - "$values"
	cat "$Q/groups/h/pop.json" | fields data | cmp - "$values"
	sed -n 's/.*"data":\(.*\)}$/\1/p' <(echo start >"$G/cursor" && cat "$G/pop.json") |
		cmp - "$values"
	push_json "$Q" '{"data": [ 1.00 ,	{ "a b" : "c  d" , "e":[ ] } , -0 ] }'
	is "$(tail -n 1 "$P/log")" '[1.00,{"a b":"c  d","e":[]},-0]'
}

@test "push.json: JSON that spells a newline is one line, and means the same when it comes back" {
	start
	queue
	push_json "$Q" '{"data":{"a":"x\ny\u00e9\ud83d\ude00\u0001\"\\","\n":1}}'
	is "$(wc -l <"$P/log")" 1
	is "$(fields a <"$P/log")" '"x\nyé😀\u0001\"\\"'
	is "$(cat "$G/pop.json" | fields data)" '{"a":"x\nyé😀\u0001\"\\","\n":1}'
}

@test "dataBase64: any bytes in, and out when they are no UTF-8" {
	start
	queue
	setting "$G" batch 9
	push_json "$Q" '{"dataBase64":"/v9h"}' '{"dataBase64":"AIA="}' '{"dataBase64":"YWJjw6k="}' \
		'{"dataBase64":""}'
	printf '\xc0\xafa\n\xed\xa0\x80\n\xf4\x90\x80\x80\nab\xc3\n' >"$Q/push"
	printf '\xfe\xffa\n\x00\x80\nabc\xc3\xa9\n\n\xc0\xafa\n\xed\xa0\x80\n\xf4\x90\x80\x80\nab\xc3\n' |
		cmp - "$P/log"
	is "$(cat "$G/pop.json" | fields data dataBase64)" "$(printf '%s\n' '- "/v9h"' '- "AIA="' \
		'"abcé" -' '"" -' '- "wK9h"' '- "7aCA"' '- "9JCAgA=="' '- "YWLD"')"
}

@test "partition: the one that a line names, made if it is missing" {
	start
	queue a
	push_json "$Q" '{"data":1,"partition":"a"}' '{"partition":"two words ü","data":2}' \
		'{"data":3}' '{"data":4,"partition":"8812"}'
	is "$(ls "$Q/partitions")" $'8812\na\ndefault\ntwo words ü'
	is "$(cat "$Q/partitions/"{8812,a,default,"two words ü"}/log)" $'4\n1\n3\n2'
	is "$(cat "$Q/partitions/8812/groups/g/pop.json" | fields queue partition offset data)" \
		'"q" "8812" 0 4'
}

@test "a partition's own push.json takes lines for that partition only" {
	start
	queue a
	local file=$Q/partitions/a/push.json
	is "$(sys write "$file" $'{"data":1}\n{"data":2,"partition":"a"}\n')" ok
	is "$(sys write "$file" $'{"data":3}\n{"data":4,"partition":"b"}\n')" EINVAL
	errors_has 'partitions/a/push\.json: EINVAL: line 2: .'
	is "$(sys write "$file" $'{"data":5,"partition":"A"}\n')" EINVAL
	is "$(cat "$Q/partitions/a/log")" $'1\n2'
	is "$(ls "$Q/partitions")" a
}

@test "spread deals the lines without a partition; those with one go there" {
	start
	queue
	setting "$Q" spread 3
	is "$(verdicts "$Q/push.json" '{"data":"x"}' '{"data":"y","partition":"p"}' '{"data":"x"}' \
		'{"data":"x"}' '{"data":"x"}')" '0:queued 0:queued 0:queued 0:queued 1:queued'
	is "$(ls "$Q/partitions")" $'0\n1\n2\np'
	is "$(cat "$Q/partitions/"[012]/log | sort | uniq -c | tr -s ' ')" ' 4 x'
}

@test "lines of one write, for one partition or for several, are all or none" {
	start
	queue
	local lines partition
	lines=$(perl -e 'for $n (1 .. 300) { print "{\"data\":$n,\"partition\":\"p$_\"}\n" for 1 .. 3 }')
	is "$(sys write "$Q/push.json" "$lines"$'\n{"data":')" EINVAL # the tail, at its close
	for partition in p1 p2 p3; do is "$(count "$Q/partitions/$partition/segments")" 1; done
	is "$(cat "$Q/partitions/p"[123]/log | wc -l)" 900
	lines=$(printf '{"data":1,"partition":"%s"}\n' p1 new p2)
	is "$(sys write "$Q/push.json" "$lines"$'\n{}\n{"data":1,"partition":"p3"}\n')" EINVAL
	is "$(ls "$Q/partitions")" $'p1\np2\np3'
	is "$(cat "$Q/partitions/p"[123]/log | wc -l)" 900
}

# ---- push.json: what is refused ------------------------------------------------------------

@test "EINVAL, naming the line, for what is no object with data" {
	start
	queue
	refuses '' ' ' x 5 '"data"' '[{"data":1}]' '{}' '{"data"}' '{"data":}' '{"data":1' \
		'{"data":1}}' '{"data":1} x' '{"data":1}{"data":2}' "{'data':1}" '{data:1}' \
		'{"data":1,}' '{"data":01}' '{"data":+1}' '{"data":.5}' '{"data":1.}' '{"data":NaN}' \
		'{"data":[1,]}' '{"data":"x}' '{"data":"\x41"}' '{"data":"\u12"}' $'{"data":"a\tb"}' \
		'{"data":1 /* no */}' '{"partition":"p"}' '{"Data":1}'
}

@test "EINVAL for unknown keys, and for values that a key does not take" {
	start
	queue
	local long
	printf -v long '%0256d' 1
	refuses '{"data":1,"key":"k"}' '{"data":1,"offset":3}' '{"data":1,"dataBase64":"AA=="}' \
		'{"dataBase64":5}' '{"dataBase64":"A"}' '{"dataBase64":"AA=A"}' '{"dataBase64":"*AAA"}' \
		'{"data":1,"partition":5}' '{"data":1,"partition":""}' '{"data":1,"partition":"a/b"}' \
		'{"data":1,"partition":".a"}' '{"data":1,"partition":"*"}' \
		'{"data":1,"partition":"a\nb"}' '{"data":1,"transactionId":5}' \
		'{"data":1,"transactionId":""}' "{\"data\":1,\"transactionId\":\"$long\"}" \
		'{"data":1,"attributes":[]}' '{"data":1,"attributes":"x"}' '{"data":1,"attributes":5}'
	push_json "$Q" "{\"data\":1,\"transactionId\":\"${long:1}\"}"
	is "$(cat "$G/pop.json" | fields transactionId)" "\"${long:1}\""
}

@test "EINVAL for \\u0000, lone surrogates and invalid UTF-8, wherever they are" {
	start
	queue
	local bad
	for bad in '\u0000' '\ud800' '\udc00' '\udc00\ud800' '\ud800\u0041' '\ud800x' $'\xff' \
		$'\xc3' $'\xc0\x80' $'\xed\xa0\x80' $'\xf4\x90\x80\x80' $'\xe2\x82'; do
		refuses "{\"data\":\"a${bad}b\"}" "{\"data\":[{\"k\":\"$bad\"}]}"
		refuses "{\"data\":1,\"attributes\":{\"k\":\"$bad\"}}" \
			"{\"data\":1,\"transactionId\":\"t$bad\"}"
	done
	refuses '{"data":{"\u0000":1}}' '{"data":1,"partition":"p\u0000"}'
	printf '{"data":"a\0b"}\n' >"$BATS_TEST_TMPDIR/nul"
	not dd if="$BATS_TEST_TMPDIR/nul" of="$Q/push.json" status=none 2>/dev/null
	is "$(ls "$Q/partitions")" ''
}

@test "EINVAL for text that holds a newline, which line framing cannot keep" {
	start
	queue
	refuses '{"data":"a\nb"}' '{"data":"\n"}' '{"data":"a\u000Ab"}' '{"dataBase64":"YQpi"}'
}

@test "the number of a refused line counts from the first one written to that open file" {
	start
	queue
	session "$Q/push.json" <<-'END'
		push = Handle(sys.argv[1], "w")
		push.write('{"data":1}\n{"data":2}\n{"da')
		push.write('ta":3}\n')
		is_(push.refused('{"data":4}\nbad\n{"data":6}\n'), "EINVAL")
	END
	errors_has 'queues/q/push\.json: EINVAL: line 5: .'
	is "$(cat "$P/log")" $'1\n2\n3'
	is "$(sys write "$Q/push.json" $'bad\n')" EINVAL
	errors_has 'queues/q/push\.json: EINVAL: line 1: .'
}

@test "after a refusal nothing is left of it: the handle takes the next line" {
	start
	queue
	session "$Q/push.json" <<-'END'
		push = Handle(sys.argv[1], "w")
		push.write('{"data":')
		is_(push.refused('oops}\n{"data":1}\n{"da'), "EINVAL")
		push.write('{"data":2}\n')
		push.write('{"data":3}')
		push.close()
	END
	is "$(cat "$P/log")" $'2\n3'
}

@test "lines of push.json may arrive in any pieces; the tail is one at close" {
	start
	queue
	is "$(sys write "$Q/push.json" '{"da' 'ta":1}' $'\n' $'{"data":2}\n{"data":"' 3 '"}')" ok
	is "$(cat "$P/log")" $'1\n2\n3'
	is "$(sys write "$Q/push.json" '{"data":4')" EINVAL
	errors_has 'queues/q/push\.json: EINVAL: line 1: .'
	printf '{"data":5}' >>"$Q/push.json"
	: >"$Q/push.json"
	is "$(cat "$P/log")" $'1\n2\n3\n5'
}

@test "max_message_bytes is of the message, not of its line: past it EMSGSIZE" {
	start
	queue
	setting "$Q" max_message_bytes 10
	is "$(sys write "$Q/push.json" '{"data":"0123456789"}')" ok
	is "$(sys write "$Q/push.json" '{"data":"\u0030\u0031\u0032\u0033456789"}')" ok
	is "$(sys write "$Q/push.json" '{"data": [ 1, 2, 3, 45 ] }')" ok
	is "$(sys write "$Q/push.json" $'{"data":1}\n{"data":"0123456789+"}\n')" EMSGSIZE
	errors_has 'queues/q/push\.json: EMSGSIZE: .'
	is "$(sys write "$Q/push.json" $'{"data":[1,2,3,456]}\n')" EMSGSIZE
	is "$(sys write "$Q/push.json" $'{"dataBase64":"MDEyMzQ1Njc4OSs="}\n')" EMSGSIZE
	is "$(cat "$P/log")" $'0123456789\n0123456789\n[1,2,3,45]'
}

@test "messages of 1 MiB pass through push.json and pop.json whole; a line without end does not" {
	start
	queue
	session "$Q/push.json" "$G/pop.json" <<-'END'
		import base64, random
		push, pop = sys.argv[1:]
		random.seed(7)
		text = "".join(random.choice('ab"\\ é😀/') for _ in range(1 << 20)).encode()[:1 << 20]
		text = text.decode(errors="ignore")
		data = random.randbytes(1 << 20).replace(b"\n", b"\xff")
		number = "1" * (1 << 20)
		with open(push, "wb") as f:
		    f.write(b'{"data":%s}\n' % json.dumps(text).encode())
		    f.write(b'{"dataBase64":"%s"}\n' % base64.b64encode(data))
		    f.write(b'{"data":%s}\n' % number.encode())
		got = [parse(open(pop, "rb", buffering=0).readall()) for _ in range(3)]
		assert got[0]["data"] == text
		assert base64.b64decode(got[1]["dataBase64"]) == data
		assert got[2]["data"] == number and isinstance(got[2]["data"], Digits)
	END
	is "$(last "$P")" 2
	is "$(sys fill "$Q/push.json" 20000000)" EMSGSIZE
	is "$(last "$P")" 2
}

@test "JSON nested a hundred thousand deep harms nobody" {
	start
	queue
	local deep
	deep=$(perl -e 'print "[" x 500, "]" x 500')
	push_json "$Q" "{\"data\":$deep}"
	is "$(cat "$G/pop")" "$deep"
	perl -e 'print "{\"data\":", "[" x 100_000, "]" x 100_000, "}\n"' >"$BATS_TEST_TMPDIR/deep"
	perl -e 'print "{\"data\":1,\"attributes\":", "{\"a\":" x 50_000, 1, "}" x 50_000, "}\n"' \
		>"$BATS_TEST_TMPDIR/deeper"
	cat "$BATS_TEST_TMPDIR/deep" >"$Q/push.json" || true
	cat "$BATS_TEST_TMPDIR/deeper" >"$Q/push.json" || true
	push "$Q" after
	echo $(($(last "$P") - 1)) >"$PG/cursor"
	pops "$G/pop" after ''
}

# ---- verdicts --------------------------------------------------------------------------

@test "push.json read-write from bash: a verdict for each line" {
	start
	queue
	local fd verdict
	exec {fd}<>"$Q/push.json"
	not read -r -u "$fd" verdict # nothing was written yet
	echo '{"data":"a"}' >&"$fd"
	read -r -u "$fd" verdict
	is "$verdict" '{"offset":0,"status":"queued"}'
	echo '{"data":"b","transactionId":"t"}' >&"$fd"
	read -r -u "$fd" verdict
	is "$verdict" '{"offset":1,"status":"queued"}'
	not read -r -u "$fd" verdict
	echo '{"data":"c","transactionId":"t"}' >&"$fd"
	read -r -u "$fd" verdict
	is "$verdict" '{"offset":1,"status":"duplicate"}'
	not read -r -u "$fd" verdict
	is "$(cat "$P/log")" $'a\nb'
}

@test "push.json read-write from python: the verdicts of the last write, then EOF" {
	start
	queue
	push "$Q" zero
	session "$Q/push.json" <<-'END'
		push = Handle(sys.argv[1], "rw")
		def verdicts(size=4096):
		    text = b""
		    while more := push.read(size): text += more
		    return text.decode().replace('"status":', "").replace('"offset":', "")
		push.write('{"data":1}\n{"data":2,"partition":"p"}\n{"data":3}\n')
		is_(verdicts(), '{1,"queued"}\n{0,"queued"}\n{2,"queued"}\n')
		is_(verdicts(), "")
		push.write('{"data":4,"transactionId":"t"}\n')
		push.write('{"data":5}\n{"data":6,"transactionId":"t"}\n') # the first is not asked for
		is_(verdicts(7), '{4,"queued"}\n{3,"duplicate"}\n')
		is_(push.refused('{"data":7}\nbad\n'), "EINVAL")
		push.write('{"data":' + "8" * 3000)
		push.write("}\n")
		is_(verdicts(), '{5,"queued"}\n')
		push.write("".join('{"data":9}\n' for _ in range(5000)))
		is_(verdicts(100), "".join('{%d,"queued"}\n' % (6 + i) for i in range(5000)))
	END
}

@test "each handle has the verdicts of its own writes" {
	start
	queue
	session "$Q/push.json" <<-'END'
		one, two = (Handle(sys.argv[1], "rw") for _ in range(2))
		one.write('{"data":1}\n')
		two.write('{"data":2}\n')
		is_(two.read(), b'{"offset":1,"status":"queued"}\n')
		is_(one.read(), b'{"offset":0,"status":"queued"}\n')
	END
}

@test "push.json opened only for reading: EACCES" {
	start
	queue p
	local file
	for file in "$Q/push.json" "$Q/partitions/p/push.json"; do
		is "$(sys open "$file" O_RDONLY)" EACCES
		is "$(sys open "$file" O_WRONLY)" ok
		is "$(sys open "$file" O_RDWR)" ok
	done
	errors_has 'queues/q/push\.json: EACCES: .'
	is "$(count "$Q/partitions/p/segments")" 0
}

# ---- pop.json: what a line says -------------------------------------------------------------

@test "a line of pop.json, to the letter" {
	start
	queue
	push_json "$Q" '{"partition":"8812","attributes":{"k":"v","n":[1.50,{"x":null}]},"transactionId":"inv-42","data":{"total":10.00}}'
	local created
	created=$(attribute "$(segment "$Q/partitions/8812" 0)" created_at)
	is "$(cat "$G/pop.json" | sed 's/"isReplay":[a-z]*/"isReplay":-/')" \
		'{"queue":"q","partition":"8812","offset":0,"createdAt":"'"$created"'","transactionId":"inv-42","attempt":1,"isReplay":-,"attributes":{"k":"v","n":[1.50,{"x":null}]},"data":{"total":10.00}}'
	is "$(cat "$Q/pop.json" | fields attributes)" '{"k":"v","n":[1.50,{"x":null}]}'
}

@test "without attributes, or with none in them: {}" {
	start
	queue
	push_json "$Q" '{"data":1,"attributes":{}}' '{"data":2,"attributes": { } }' '{"data":3}'
	setting "$G" batch 3
	is "$(cat "$G/pop.json" | fields attributes)" $'{}\n{}\n{}'
}

@test "lines of push are strings, whatever they look like" {
	start
	queue
	setting "$G" batch 9
	printf '%s\n' 12 '{"a":1}' '"x"' '' $'tab\tbell\a\b\f\r\e\x7f' 'back\slash "q" ü😀</script>' \
		>"$Q/push"
	is "$(cat "$G/pop.json" | fields data)" "$(printf '%s\n' '"12"' '"{\"a\":1}"' '"\"x\""' '""' \
		'"tab\tbell\u0007\b\f\r\u001b'$'\x7f''"' '"back\\slash \"q\" ü😀</script>"')"
}

@test "a NUL, and every other byte, comes back from pop.json" {
	start
	queue
	perl -e 'print map({ chr } 0 .. 9, 11 .. 255), "\n", map({ chr } 0 .. 9, 11 .. 127), "\n"' \
		>"$Q/push"
	session "$G/pop.json" <<-'END'
		import base64
		every = bytes(b for b in range(256) if b != 10)
		first, second = (parse(open(sys.argv[1], "rb", buffering=0).readall()) for _ in range(2))
		is_(base64.b64decode(first["dataBase64"]), every)
		got = base64.b64decode(second["dataBase64"]) if "dataBase64" in second \
		    else second["data"].encode()
		is_(got, every[:127])
	END
}

@test "names are JSON strings too" {
	start
	mkdir "$M/queues/a\"b\\c ü"
	push "$M/queues/a\"b\\c ü" 1
	is "$(cat "$M/queues/a\"b\\c ü/pop.json" | fields queue partition data)" \
		'"a\"b\\c ü" "default" "1"'
}

@test "without a transactionId: <partition number>-<offset>, on every delivery, in every group" {
	start
	queue
	setting "$Q" batch 2
	push "$Q" 0 1 2
	push_json "$Q" '{"data":3,"partition":"p"}'
	local number ids
	number=$(cat "$PG/pop.json" | fields transactionId | sed -n '1s/"\([0-9]*\)-0"/\1/p')
	[ -n "$number" ]
	ids=$(cat "$Q/pop.json" "$Q/pop.json" "$Q/pop.json" | fields partition transactionId)
	is "$(grep default <<<"$ids")" \
		"$(printf '"default" "%s"\n' "$number-0" "$number-1" "$number-2")"
	is "$(grep -c "\"p\" \"[0-9]*-0\"" <<<"$ids")" 1
	echo start >"$PG/cursor"
	is "$(handle rw "$PG/pop" read dlq)" '[0\n1\n] ok'
	is "$(attribute "$D/default@0" transaction_id)" "$number-0"
	remount
	echo start >"$PG/cursor"
	is "$(cat "$PG/pop.json" | fields transactionId)" "$(printf '"%s"\n' "$number-0" "$number-1")"
	rm "$P"/segments/*
	rmdir "$P"
	push "$Q" 0
	ids=$(cat "$PG/pop.json" | fields transactionId)
	[[ $ids =~ ^\"[0-9]+-0\"$ && $ids != "\"$number-0\"" ]]
}

@test "attempt counts deliveries, but not what retry hands back" {
	start
	queue
	push "$Q" 1 2
	attempts() { handle rw "$G/pop.json" "$@" | sed 's/[^ ]*"attempt":\([0-9]*\)[^ ]*/\1/g'; }
	is "$(attempts read retry read retry read fail read)" '1 ok 1 ok 1 ok 2'
	wait_until has "$PG/stats" '^lease_pid 0$'
	is "$(attempts read ack read)" '3 ok 1'
	wait_until has "$PG/stats" '^lease_pid 0$'
	crash
	start
	is "$(cat "$G/pop.json" | fields offset attempt)" '1 2'
	echo start >"$G/cursor"
	is "$(cat "$G/pop.json" | fields offset attempt)" '0 1' # a seek resets it
}

# ---- pop.json and follow.json are pop and follow ------------------------------------------

@test "pop.json pops: one message, then EOF, and the next read is the next pop" {
	start
	queue a b
	push "$Q/partitions/a" a1 a2
	push "$Q/partitions/b" b1
	is "$(cat "$Q/partitions/a/groups/g/pop.json" | fields data)" '"a1"'
	is "$(cat "$G/pop" "$G/pop" | sort)" $'a2\nb1'
	is "$(cat "$G/pop.json" "$Q/partitions/a/groups/g/pop.json")" ''
	is "$(cat "$G/cursor")" $'1\ta\n0\tb'
	echo start >"$G/cursor"
	is "$(handle ro "$Q/partitions/a/groups/g/pop.json" read read read read read |
		grep -Eo '"data":"a.|\[\]' | paste -sd ' ')" '"data":"a1 [] "data":"a2 [] []'
	is "$(cat "$Q/pop.json" | fields queue offset)" '"q" 0'
	is "$(ls "$Q/groups")" $'default\ng'
}

@test "a line that its handle did not finish goes back, and is read whole or byte by byte" {
	start
	queue
	push "$Q" hello
	is "$(head -c 9 "$G/pop.json")" '{"queue":'
	is "$(cat "$PG/cursor")" -1
	local line
	wait_until has "$PG/stats" '^lease_pid 0$'
	read -r line <"$G/pop.json"
	is "$(fields data attempt <<<"$line")" '"hello" 2'
	is "$(cat "$PG/cursor")" 0
}

@test "pop.json read-write: leased, acked, up to batch" {
	start
	queue
	setting "$G" batch 2
	push "$Q" 1 2 3
	local fd
	exec {fd}<>"$G/pop.json"
	is "$(handle fd "$fd" read | tr -d '[]' | sed 's/\\n/\n/g' | fields offset)" $'0\n1'
	is "$(handle fd "$fd" read 'ack 0' read)" '[] ok []'
	is "$(cat "$PG/cursor")" 0
	is "$(handle fd "$fd" 'ack 2' 'dlq why')" 'ERANGE ok'
	is "$(cat "$D/default@1")" 2
	is "$(handle fd "$fd" read | grep -o '"offset":2')" '"offset":2'
	is "$(handle fd "$fd" ack read)" 'ok []'
	is "$(cat "$PG/cursor")" 2
}

@test "follow.json waits, wakes on a push, and acks by reading on" {
	start
	OUT=$BATS_TEST_TMPDIR/out
	queue p
	reader "$OUT" "$G/follow.json"
	wait_until waiting 1
	push "$Q/partitions/p" 1
	wait_until has "$OUT" '"partition":"p","offset":0'
	wait_until waiting 1
	is "$(cat "$Q/partitions/p/groups/g/cursor")" 0
	push_json "$Q" '{"data":{"a":2},"attributes":{"k":5}}'
	wait_until has "$OUT" '"partition":"default","offset":0.*"attributes":\{"k":5\},"data":\{"a":2\}\}'
	wait_until waiting 1
	kill "$READER"
	pops "$G/pop" ''
	is "$(grep -c '"queue":"q"' "$OUT")" 2
}

@test "follow.json read-write: reading on before acking is EBUSY" {
	start
	queue
	push "$Q" 1 2
	session "$G/follow.json" <<-'END'
		follow = Handle(sys.argv[1], "rw")
		def message():
		    while True:
		        m = parse(follow.line())
		        if "event" not in m: return m["data"]
		is_(message(), "1")
		try: is_(follow.line(), "an error")
		except OSError as e: is_(e.errno, errno.EBUSY)
		follow.write("ack\n")
		is_(message(), "2")
		follow.write("retry\n")
		is_(message(), "2")
	END
	is "$(cat "$PG/cursor")" 0
}

@test "the twins are opened as pop and follow are: no O_NOFOLLOW, not write-only, FIFOs" {
	start
	queue p
	push "$Q" 1
	is "$(find "$Q" -type p -name '[pf]o*.json' | wc -l)" 8
	is "$(find "$Q" -type f -name '[pf]o*.json' | wc -l)" 0
	local file
	for file in "$G/pop.json" "$G/follow.json" "$PG/pop.json" "$Q/follow.json"; do
		is "$(sys open "$file" 'O_RDONLY|O_NOFOLLOW')" EPERM
		is "$(sys open "$file" O_WRONLY)" EACCES
		is "$(stat -c %s "$file")" 0
		is "$(sys lseek "$file")" ESPIPE
	done
	errors_has 'groups/g/pop\.json: EACCES: .*read'
	pops_soon "$G/pop" 1
}

# ---- durable, and shared ------------------------------------------------------------------

@test "transactionId, attributes and whether it was JSON survive kill -9" {
	start
	queue
	setting "$G" batch 3
	push_json "$Q" '{"data":"5","transactionId":"a","attributes":{"k":1}}' '{"data":5,"transactionId":"b"}'
	push "$Q" 5
	crash
	start
	is "$(cat "$G/pop.json" | fields data transactionId attributes | sed 's/"[0-9]*-2"/own/')" \
		$'"5" "a" {"k":1}\n5 "b" {}\n"5" own {}'
}

@test "writers of push and push.json share one log, each in its order" {
	start
	queue
	session "$Q" <<-'END'
		for i in range(8):
		    if os.fork(): continue
		    push = Handle(sys.argv[1] + ("/push.json" if i % 2 else "/push"), "w")
		    for n in range(100):
		        if i % 2: push.write('{"data":{"w":%d,"n":%d},"attributes":{"w":%d}}\n' % (i, n, i))
		        else: push.write('{"w":%d,"n":%d}\n' % (i, n))
		    os._exit(0)
		while True:
		    try: assert os.wait()[1] == 0
		    except ChildProcessError: break
		log = [json.loads(line) for line in open(sys.argv[1] + "/partitions/default/log")]
		for i in range(8): is_([m["n"] for m in log if m["w"] == i], list(range(100)))
		is_(len(log), 800)
	END
	setting "$G" batch 1000
	cat "$G/pop.json" >"$BATS_TEST_TMPDIR/all"
	is "$(grep -c '"attributes":{},"data":"{\\"w\\":[0246],' "$BATS_TEST_TMPDIR/all")" 400
	is "$(grep -cE '"attributes":\{"w":([1357])\},"data":\{"w":\1,' "$BATS_TEST_TMPDIR/all")" 400
}

# ---- dead letters ---------------------------------------------------------------------------

@test "a dead letter that is moved back keeps its transactionId, attributes and data" {
	start
	queue
	push_json "$Q" '{"data":{"n":1.0},"transactionId":"inv-42","attributes":{"k":"v"},"partition":"a"}'
	is "$(handle rw "$G/pop" read dlq)" '[{"n":1.0}\n] ok'
	is "$(cat "$D/a@0")" '{"n":1.0}'
	is "$(attribute "$D/a@0" transaction_id)" inv-42
	is "$(sys rename "$D/a@0" "$Q/push.json")" EPERM
	is "$(sys rename "$D/a@0" "$Q/partitions/a/push.json")" EPERM
	is "$(letters)" a@0
	remount
	mv "$D/a@0" "$Q/push"
	is "$(cat "$G/pop.json" | fields partition offset transactionId attempt attributes data)" \
		'"a" 1 "inv-42" 1 {"k":"v"} {"n":1.0}'
}
