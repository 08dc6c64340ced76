#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 1 of the contract: the tree.

load lib

@test "mkdir makes a queue, a partition and a group, with their files" {
	start
	mkdir "$Q"
	[ -f "$Q/push" ] && [ -d "$Q/partitions" ] && [ -d "$Q/groups" ]
	is "$(count "$Q/partitions")$(count "$Q/groups")" 00
	mkdir "$Q/partitions/p" "$Q/groups/g"
	local file
	for file in push log segments groups groups/g/cursor groups/g/pop; do
		[ -e "$Q/partitions/p/$file" ]
	done
	[ -f "$G/cursor" ] && [ -f "$G/pop" ]
	is "$(sys mkdir "$Q")" EEXIST
	is "$(sys mkdir "$G")" EEXIST
}

@test "README and version can be read" {
	start
	grep -q queues "$M/README"
	is "$(wc -l <"$M/version")" 1
	is "$(stat -c %s "$M/README")" "$(wc -c <"$M/README" | tr -d ' ')"
}

@test "names are 1 to 200 bytes of valid UTF-8" {
	start
	queue
	local where name
	for where in "$M/queues" "$Q/partitions" "$Q/groups"; do
		for name in a "two words" "größe-数-🐇" -n 4913 "$(printf '%0200d' 0)"; do
			mkdir -- "$where/$name"
			(cd "$where" && ls) | grep -Fqx -e "$name"
		done
		is "$(sys mkdir "$where/$(printf '%0201d' 0)")" ENAMETOOLONG
		for name in $'\xff\xfe' $'a\xc0\xafb' $'\xed\xa0\x80' $'\xf4\x90\x80\x80' $'\xe6\x95'; do
			is "$(sys mkdir "$where/$name")" EINVAL
		done
	done
}

@test "no control character in a name, no '.' before it, and not \"*\"" {
	start
	queue
	local where name
	for where in "$M/queues" "$Q/partitions" "$Q/groups"; do
		for name in $'a\nb' $'a\tb' $'\x01' $'a\x7f' .hidden ... '*'; do
			is "$(sys mkdir "$where/$name")" EINVAL
		done
	done
	is "$(ls "$M/queues")" q
	is "$(ls "$Q/groups")" g
	is "$(count "$Q/partitions")" 0
}

@test "a group is mirrored in every partition's groups, both ways" {
	start
	queue a b
	[ -d "$Q/partitions/a/groups/g" ] && [ -d "$Q/partitions/b/groups/g" ]
	mkdir "$Q/partitions/a/groups/h"
	[ -d "$Q/groups/h" ] && [ -d "$Q/partitions/b/groups/h" ]
	mkdir "$Q/partitions/c"
	is "$(ls "$Q/partitions/c/groups")" $'g\nh'
	rmdir "$Q/groups/g"
	is "$(ls "$Q/partitions/a/groups")" h
}

@test "partition default is made by the first push, not by looking" {
	start
	mkdir "$Q" "$Q/partitions/p"
	ls -lR "$Q" >/dev/null
	stat "$Q/push" >/dev/null
	: >"$Q/push"
	not stat "$P" 2>/dev/null
	push "$Q/partitions/p" elsewhere
	is "$(ls "$Q/partitions")" p
	push "$Q" first
	is "$(ls "$Q/partitions")" $'default\np'
	is "$(cat "$P/log")" first
}

@test "group default is made by the first open of the queue's pop, not by looking" {
	start
	mkdir "$Q"
	ls -lR "$Q" >/dev/null
	stat "$Q/pop" >/dev/null
	not stat "$Q/groups/default" 2>/dev/null
	is "$(count "$Q/groups")" 0
	cat "$Q/pop"
	is "$(ls "$Q/groups")" default
}

@test "no other file can be created: EPERM" {
	start
	queue p
	local where name
	for where in "$M" "$M/queues" "$Q" "$Q/partitions" "$Q/partitions/p" \
		"$Q/partitions/p/segments" "$Q/partitions/p/groups" "$Q/groups" "$G"; do
		for name in .x.swp 4913 ._x .DS_Store notes.txt; do
			is "$(sys create "$where/$name")" EPERM
		done
		is "$(sys symlink "$where/l")" EPERM
		is "$(sys mkfifo "$where/f")" EPERM
		is "$(sys link "$Q/push" "$where/h")" EPERM
		is "$(ls -A "$where" | grep -cxE '\..*|4913|notes.txt|[lfh]')" 0
	done
	is "$(count "$Q/partitions")" 1
	errors_has '/\.x\.swp: EPERM: .'
}

@test "directories can be made only where queues, partitions and groups are: EPERM" {
	start
	queue p
	local where
	for where in "$M" "$Q" "$Q/partitions/p" "$Q/partitions/p/segments" "$G"; do
		is "$(sys mkdir "$where/x")" EPERM
	done
}

@test "nothing can be renamed: EPERM" {
	start
	queue p
	is "$(sys rename "$Q" "$M/queues/r")" EPERM
	is "$(sys rename "$G" "$Q/groups/h")" EPERM
	is "$(sys rename "$Q/partitions/p" "$Q/partitions/r")" EPERM
	is "$(sys rename "$G/cursor" "$G/other")" EPERM
	[ -d "$Q/partitions/p" ] && [ -f "$G/cursor" ]
}

@test "rmdir: a partition must be empty of messages, a queue of partitions" {
	start
	mkdir "$Q"
	push "$Q" one
	is "$(sys rmdir "$P")" ENOTEMPTY
	is "$(sys rmdir "$Q")" ENOTEMPTY
	errors_has 'queues/q: ENOTEMPTY: .'
	is "$(cat "$P/log")" one
	rm "$(segment "$P" 0)"
	rmdir "$P"
	rmdir "$Q"
	is "$(count "$M/queues")" 0
}

@test "rmdir: nobody may be reading below" {
	start
	queue p
	local fd
	exec {fd}<"$G/pop"
	is "$(sys rmdir "$G")" EBUSY
	exec {fd}<&-
	exec {fd}<"$Q/partitions/p/groups/g/pop"
	is "$(sys rmdir "$Q/partitions/p")" EBUSY
	is "$(sys rmdir "$G")" EBUSY
	errors_has 'groups/g: EBUSY: .'
	exec {fd}<&-
	wait_until rmdir "$Q/partitions/p"
	exec {fd}<"$G/pop"
	is "$(sys rmdir "$Q")" EBUSY
	exec {fd}<&-
	wait_until rmdir "$Q"
}

@test "a queue's groups go with it" {
	start
	queue
	push "$Q" one
	pops "$G/pop" one
	rm "$(segment "$P" 0)"
	rmdir "$P" "$Q"
	mkdir "$Q"
	is "$(count "$Q/groups")" 0
	push "$Q" two
	mkdir "$G"
	pops "$G/pop" two
}

@test "other handles on what was removed get ESTALE" {
	start
	queue
	push "$Q" one
	local log push cursor
	exec {log}<"$P/log" {push}>"$P/push"
	rm "$(segment "$P" 0)"
	rmdir "$P"
	is "$(sys fdread "$log")" ESTALE
	is "$(sys fdwrite "$push" $'x\n')" ESTALE
	exec {push}>&- {push}>"$Q/push" {cursor}>"$G/cursor"
	rmdir "$Q"
	is "$(sys fdwrite "$push" $'x\n')" ESTALE
	is "$(sys fdwrite "$cursor" $'end\n')" ESTALE
	mkdir "$Q"
	is "$(sys fdwrite "$push" $'x\n')" ESTALE
	is "$(count "$Q/partitions")" 0
}

@test "rm -r removes a queue whole" {
	start
	queue a b
	push "$Q" 1 2 3
	push "$Q/partitions/a" 1 2 3
	pops "$P/groups/g/pop" 1
	cat "$Q/pop" >/dev/null
	rm -r "$Q"
	is "$(count "$M/queues")" 0
	mkdir "$Q"
	is "$(count "$Q/partitions")" 0
	push "$Q" again
	is "$(ls "$P/segments")" "$(printf %020d 0)"
}

@test "rm -r removes one partition whole; made again it is a new one and starts at 0" {
	start
	queue other
	push "$Q/partitions/other" x y
	push "$Q" 1 2 3
	pops "$PG/pop" 1 2
	pops "$Q/partitions/other/groups/g/pop" x
	rm -r "$P"
	is "$(ls "$Q/partitions")" other
	is "$(ls "$Q/groups")" g
	mkdir "$P"
	is "$(cat "$PG/cursor")" -1
	push "$Q" new
	is "$(ls "$P/segments")" "$(printf %020d 0)"
	pops "$PG/pop" new ''
	pops "$Q/partitions/other/groups/g/pop" y
}

@test "rm -r removes a partition of many segments" {
	start
	mkdir "$Q"
	perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_WRONLY) or die $!;
		syswrite($f, "$_\n") or die $! for 1 .. 500' "$Q/push"
	is "$(count "$P/segments")" 500
	rm -r "$P"
	is "$(count "$Q/partitions")" 0
}

@test "a listing of many entries is whole" {
	start
	queue
	mkdir "$Q/partitions/"{1..300}
	is "$(ls "$Q/partitions" | sort -n)" "$(seq 300)"
}

@test "rm of a fixed file succeeds and does nothing" {
	start
	queue p
	local p=$Q/partitions/p
	rm "$Q/push" "$p/push" "$p/log" "$G/cursor" "$G/pop" "$p/groups/g/cursor" "$p/groups/g/pop"
	push "$p" one two
	push "$Q" three
	is "$(cat "$p/log")" $'one\ntwo'
	echo 0 >"$p/groups/g/cursor"
	is "$(cat "$G/cursor")" $'-1\tdefault\n0\tp'
	pops "$p/groups/g/pop" two
	pops "$G/pop" three
}

@test "rmdir of a fixed directory succeeds and does nothing" {
	start
	queue p
	rmdir "$Q/partitions" "$Q/groups" "$Q/partitions/p/segments" "$Q/partitions/p/groups"
	mkdir "$Q/partitions/r" "$Q/groups/h"
	is "$(ls "$Q/partitions")" $'p\nr'
	is "$(ls "$Q/groups")" $'g\nh'
	is "$(ls "$Q/partitions/p/groups")" $'g\nh'
	push "$Q/partitions/p" one
	is "$(count "$Q/partitions/p/segments")" 1
}

@test "a refusal is a line: time, uid, pid, path, errno, and what was wrong" {
	start
	local time='[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z' pid
	spawn mkdir "$M/queues/.bad" 2>/dev/null
	pid=$!
	not wait "$pid"
	is "$(wc -l <"$M/errors")" 1
	errors_has "^$time 0 $pid [^ ]*queues/\\.bad: EINVAL: .{10}"
}

@test "a name with a newline does not break a line of errors" {
	start
	is "$(sys mkdir "$M/queues/"$'a\nb')" EINVAL
	is "$(wc -l <"$M/errors")" 1
	errors_has ': EINVAL: .'
}

@test "the last 256 refusals are kept" {
	start
	perl -e 'mkdir "$ARGV[0]/queues/.n$_" for 0 .. 299' "$M"
	is "$(wc -l <"$M/errors")" 256
	head -n 1 "$M/errors" | grep -q '\.n44: '
	tail -n 1 "$M/errors" | grep -q '\.n299: '
}

@test "a missing name is no line of errors" {
	start
	mkdir "$Q"
	is "$(sys read "$M/nothing")" ENOENT
	is "$(sys read "$M/queues/none/push")" ENOENT
	is "$(sys read "$Q/partitions/none/log")" ENOENT
	is "$(sys unlink "$Q/none")" ENOENT
	is "$(sys rmdir "$Q/groups/none")" ENOENT
	is "$(cat "$M/errors")" ""
}

@test "each uid sees its own lines of errors, root all" {
	start
	chmod 777 "$M/queues"
	is "$(sys mkdir "$M/queues/.roots")" EINVAL
	nobody() { (cd "$M" && setpriv --reuid 65534 --regid 65534 --clear-groups "$@"); }
	not nobody mkdir queues/.theirs 2>/dev/null
	is "$(nobody cat errors | wc -l)" 1
	nobody cat errors | grep -Eq ' 65534 [0-9]+ [^ ]*queues/\.theirs: EINVAL: '
	is "$(wc -l <"$M/errors")" 2
}

@test "tail -f shows new lines of errors" {
	start
	spawn tail -s 0.1 -n +1 -f "$M/errors" >"$BATS_TEST_TMPDIR/out"
	local name
	for name in .one .two; do
		is "$(sys mkdir "$M/queues/$name")" EINVAL
		wait_until has "$BATS_TEST_TMPDIR/out" "queues/\\$name: EINVAL: "
	done
	is "$(wc -l <"$BATS_TEST_TMPDIR/out")" 2
}

@test "what cannot be read or written refuses it to root too: EACCES" {
	start
	queue
	push "$Q" one
	local file
	for file in "$Q/push" "$P/push"; do
		is "$(sys read "$file")" EACCES
	done
	errors_has 'default/push: EACCES: .'
	for file in "$M/README" "$M/errors" "$M/version" "$P/log" "$(segment "$P" 0)"; do
		is "$(sys write "$file" x)" EACCES
	done
	errors_has 'default/log: EACCES: .'
	is "$(cat "$P/log")" one
}

@test "locks on files: ENOLCK; directories can be locked" {
	start
	queue
	push "$Q" one
	local file fd
	for file in "$P/log" "$G/cursor" "$M/README"; do
		is "$(sys flock "$file")" ENOLCK
		is "$(sys lockf "$file")" ENOLCK
	done
	exec {fd}<"$Q"
	flock -n "$fd"
	is "$(sys flock "$Q")" EAGAIN
	exec {fd}<&-
	is "$(sys flock "$Q")" ok
}

@test "times set on a file are ignored" {
	start
	queue
	push "$Q" one
	local file before
	for file in "$P/log" "$(segment "$P" 0)"; do
		before=$(stat -c %y "$file")
		is "$(sys utime "$file" 1000)" ok
		is "$(stat -c %y "$file")" "$before"
	done
	touch "$Q/push" "$P/push" "$G/cursor"
	is "$(sys utime "$Q" 1000)" ok
	is "$(cat "$P/log")" one
	is "$(cat "$PG/cursor")" -1
}

@test "created_at never falls, in no partition" {
	start
	queue a b
	local base partition
	for base in {0..19}; do
		for partition in a b; do
			push "$Q/partitions/$partition" x
			stat -c %.6Y "$(segment "$Q/partitions/$partition" "$base")"
		done
	done >"$BATS_TEST_TMPDIR/times"
	sort -nuc "$BATS_TEST_TMPDIR/times" # each later than the one before
}

@test "queues, partitions and messages survive a restart" {
	start
	queue p "two words"
	push "$Q/partitions/p" 1 2
	rm "$(segment "$Q/partitions/p" 0)"
	remount
	is "$(ls "$Q/partitions")" $'p\ntwo words'
	is "$(cat "$Q/partitions/p/log")" 2
	push "$Q/partitions/p" 3
	is "$(last "$Q/partitions/p")" 2
}
