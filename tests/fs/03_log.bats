#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 3 of the contract: reading without consuming.

load lib

# blocks COUNT - pushes COUNT segments of 2,000 lines of 100 bytes, and keeps them in
# $BLOCKS/0, 1, ...
blocks() {
	local i
	BLOCKS=$BATS_TEST_TMPDIR/blocks
	mkdir "$BLOCKS"
	for ((i = 0; i < $1; i++)); do
		perl -e 'printf "%d %097d\n", $ARGV[0] % 10, $_ for 1 .. 2000' "$i" >"$BLOCKS/$i"
		dd if="$BLOCKS/$i" of="$Q/push" bs=1M status=none
	done
	is "$(count "$P/segments")" "$1"
}

# pread FD POSITION SIZE - the bytes there, or the name of the errno.
pread() {
	perl -MErrno -MFcntl=:seek -e '
		my ($fd, $position, $size, $bytes) = @ARGV;
		open(my $f, "<&=", $fd) or die $!;
		sysseek($f, $position, SEEK_SET) // die $!;
		defined sysread($f, $bytes, $size) or $bytes = $!{ESTALE} ? "ESTALE" : "$!";
		print $bytes;
	' "$@"
}

@test "log is what was pushed" {
	start
	mkdir "$Q"
	seq 20000 >"$Q/push"
	push "$Q" '' end
	{ seq 20000 && printf '\nend\n'; } | cmp - "$P/log"
}

@test "the size is real: stat, wc, cp, tac, grep, head, tail and dd agree" {
	start
	mkdir "$Q"
	local all=$BATS_TEST_TMPDIR/all log=$P/log
	seq -f 'line %.0f' 30000 >"$all"
	cat "$all" >"$Q/push"
	is "$(stat -c %s "$log")" "$(stat -c %s "$all")"
	is "$(wc <"$log")" "$(wc <"$all")"
	cp "$log" "$all.copy"
	cmp "$all" "$all.copy"
	tac "$log" | cmp - <(tac "$all")
	is "$(grep -c '7$' "$log")" 3000
	is "$(head -n 2 "$log")" $'line 1\nline 2'
	is "$(tail -n 2 "$log")" $'line 29999\nline 30000'
	is "$(tail -c 6 "$log")" 30000
	is "$(tail -n +30000 "$log")" 'line 30000'
	dd if="$log" bs=1 skip=100000 count=300 status=none |
		cmp - <(dd if="$all" bs=1 skip=100000 count=300 status=none)
}

@test "a segment can be mapped, and the log privately" {
	command -v python3 >/dev/null || skip "no python3"
	start
	mkdir "$Q"
	seq 30000 | dd bs=256K iflag=fullblock status=none >"$Q/push"
	python3 -c '
import mmap, sys
for path, access in (sys.argv[1], mmap.ACCESS_COPY), (sys.argv[2], mmap.ACCESS_READ):
    with open(path, "rb") as file:
        m = mmap.mmap(file.fileno(), 0, access=access)
        assert m[:] == b"".join(b"%d\n" % n for n in range(1, 30001))
        assert m.rfind(b"\n29999\n") > 0
' "$P/log" "$P/segments/00000000000000000000"
}

@test "the log of an empty partition is empty" {
	start
	mkdir "$Q" "$P"
	is "$(stat -c %s "$P/log")" 0
	is "$(cat "$P/log")" ""
	is "$(count "$P/segments")" 0
}

@test "reading does not consume" {
	start
	queue
	push "$Q" one two
	cat "$P/log" "$P/segments/"* >/dev/null
	tail -n 1 "$P/log" >/dev/null
	is "$(cat "$PG/cursor")" -1
	pops "$G/pop" one two
	is "$(cat "$P/log")" $'one\ntwo'
}

@test "tail -f shows new lines" {
	start
	mkdir "$Q"
	push "$Q" one two
	local out=$BATS_TEST_TMPDIR/out line
	spawn tail -s 0.1 -n 1 -f "$P/log" >"$out" 2>&1
	wait_until shows "$out" two
	for line in three four; do
		push "$Q" "$line"
		wait_until has "$out" "^$line\$"
	done
	is "$(cat "$out")" $'two\nthree\nfour'
}

@test "tail -F shows each line once, and takes the file for the same all the time" {
	start
	mkdir "$Q"
	push "$Q" one
	local out=$BATS_TEST_TMPDIR/out line
	spawn tail -s 0.1 --max-unchanged-stats=1 -n +1 -F "$P/log" >"$out" 2>&1
	wait_until shows "$out" one
	for line in two three four; do
		push "$Q" "$line"
		wait_until has "$out" "^$line\$"
	done
	is "$(cat "$out")" $'one\ntwo\nthree\nfour'
}

@test "tail -f goes on while the oldest is removed" {
	start
	mkdir "$Q"
	push "$Q" one two
	local out=$BATS_TEST_TMPDIR/out
	spawn tail -s 0.1 -n +1 -f "$P/log" >"$out" 2>&1
	wait_until shows "$out" $'one\ntwo'
	rm "$(segment "$P" 0)"
	push "$Q" three
	wait_until has "$out" '^three$'
	rm "$(segment "$P" 1)"
	push "$Q" four
	wait_until has "$out" '^four$'
	is "$(cat "$out")" $'one\ntwo\nthree\nfour'
}

@test "the size grows while the log is open" {
	start
	mkdir "$Q"
	push "$Q" one
	local fd
	exec {fd}<"$P/log"
	is "$(pread "$fd" 0 100)" one
	push "$Q" two
	grown() { is "$(stat -L -c %s "/proc/$BASHPID/fd/$fd")" 8 >/dev/null; }
	wait_until grown
	is "$(pread "$fd" 4 100)" two
}

@test "the log's mtime is the last commit" {
	start
	mkdir "$Q"
	push "$Q" one two
	is "$(stat -c %y "$P/log")" "$(stat -c %y "$(segment "$P" 1)")"
	push "$Q" three
	is "$(stat -c %y "$P/log")" "$(stat -c %y "$(segment "$P" 2)")"
}

@test "segments are named by their base, 20 digits; together they are the log" {
	start
	mkdir "$Q"
	push "$Q" one
	printf 'two\nthree\nfour\n' >"$BATS_TEST_TMPDIR/lines"
	dd if="$BATS_TEST_TMPDIR/lines" of="$Q/push" status=none
	push "$Q" five
	is "$(ls "$P/segments")" "$(printf '%020d\n' 0 1 4)"
	cat "$P/segments/"* | cmp - "$P/log"
	is "$(stat -c %s "$P/segments/"*)" $'4\n15\n5'
	is "$(cat "$(segment "$P" 1)")" $'two\nthree\nfour'
	is "$(sys read "$P/segments/$(printf %020d 2)")" ENOENT
	is "$(sys read "$P/segments/1")" ENOENT
}

@test "a segment's attributes: base_offset, end_offset, messages, created_at" {
	start
	mkdir "$Q"
	push "$Q" one
	dd if=<(seq 5) of="$Q/push" iflag=fullblock status=none
	local file
	file=$(segment "$P" 1)
	is "$(attribute "$file" base_offset)" 1
	is "$(attribute "$file" end_offset)" 5
	is "$(attribute "$file" messages)" 5
	is "$(getfattr --absolute-names "$file" | grep -c '^user\.queenfs\.')" 4
	attribute "$file" created_at | grep -Eqx '[-0-9]{10}T[:0-9]{8}\.[0-9]{6}Z'
	not getfattr -n user.queenfs.other "$file" 2>/dev/null
	not setfattr -n user.queenfs.messages -v 9 "$file" 2>/dev/null
	is "$(attribute "$file" messages)" 5
}

@test "a segment's mtime is created_at to the microsecond" {
	start
	mkdir "$Q"
	push "$Q" one two three
	local file
	for file in "$P/segments/"*; do
		is "$(stat -c %.6Y "$file")" "$(date -d "$(attribute "$file" created_at)" +%s.%6N)"
	done
}

@test "find -newermt shows what a seek to just after would replay" {
	start
	mkdir "$Q"
	push "$Q" {0..9}
	is "$(find "$P/segments" -type f -newermt "$(stat -c %y "$(segment "$P" 4)")" | sort)" \
		"$(for base in {5..9}; do segment "$P" "$base" && echo; done)"
}

@test "segments are immutable" {
	start
	mkdir "$Q"
	push "$Q" one two
	local file
	file=$(segment "$P" 0)
	is "$(sys open "$file" O_WRONLY)" EACCES
	is "$(sys open "$file" 'O_WRONLY|O_APPEND')" EACCES
	is "$(sys open "$file" O_RDWR)" EACCES
	not truncate -s 1 "$file" 2>/dev/null
	not truncate -s 1 "$P/log" 2>/dev/null
	is "$(sys chmod "$file" 777)" EPERM
	is "$(cat "$file")" one
	is "$(cat "$P/log")" $'one\ntwo'
}

@test "rm of the oldest segment removes it, of any other: EBUSY" {
	start
	mkdir "$Q"
	push "$Q" one two three
	is "$(sys unlink "$(segment "$P" 1)")" EBUSY
	is "$(sys unlink "$(segment "$P" 2)")" EBUSY
	errors_has "segments/$(printf %020d 2): EBUSY: ."
	is "$(cat "$P/log")" $'one\ntwo\nthree'
	rm "$(segment "$P" 0)"
	is "$(ls "$P/segments")" "$(printf '%020d\n' 1 2)"
	is "$(sys unlink "$(segment "$P" 0)")" ENOENT
	is "$(cat "$P/log")" $'two\nthree'
	is "$(stat -c %s "$P/log")" 10
	rm "$P/segments/"*
	is "$(count "$P/segments")" 0
}

@test "reading a part that was removed since: ESTALE, never wrong bytes" {
	start
	mkdir "$Q"
	blocks 4
	local fd
	exec {fd}<"$P/log"
	rm "$(segment "$P" 0)"
	is "$(pread "$fd" 0 100)" ESTALE
	is "$(pread "$fd" 100000 100)" ESTALE
	is "$(pread "$fd" 600000 100)" "$(head -n 1 "$BLOCKS/3")"
	pread "$fd" 204800 4096 | cmp - <(tail -c +4801 "$BLOCKS/1" | head -c 4096)
	rm "$(segment "$P" 2000)"
	is "$(pread "$fd" 390000 100)" ESTALE # 204800 may be in the page cache, and right
	is "$(pread "$fd" 700000 100)" "$(sed -n 1001p "$BLOCKS/3")"
	cmp "$P/log" <(cat "$BLOCKS/2" "$BLOCKS/3") # a new open counts from what is left
}

@test "the last segment can be removed too; the next push continues the offsets" {
	start
	mkdir "$Q"
	push "$Q" one two
	rm "$(segment "$P" 0)" "$(segment "$P" 1)"
	is "$(stat -c %s "$P/log")" 0
	is "$(cat "$P/log")" ""
	push "$Q" three
	is "$(ls "$P/segments")" "$(printf %020d 2)"
	is "$(cat "$P/log")" three
	rm "$(segment "$P" 2)"
	remount
	push "$Q" four
	is "$(ls "$P/segments")" "$(printf %020d 3)"
}
