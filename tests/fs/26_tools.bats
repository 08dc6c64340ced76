#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Programs that people use, on the mount: nothing hangs, nothing is consumed, no queue comes
# of their droppings, and a setting can be edited in place. tests/tools.tsv is the table of
# these tests; the first one keeps it true. A program that is not installed skips its test.

load lib

# Tests are in the mount; it cannot be unmounted so.
teardown() {
	cd /
	tidy
}

TABLE=${BATS_TEST_DIRNAME}/../tools.tsv

# here - queue q with three messages that group g has not read, a reader that waits, a dead
# letter and a snapshot; in the queue's config/.
here() {
	start
	queue idle
	push "$Q" one two three
	mkdir "$Q/groups/dead"
	is "$(handle rw "$P/groups/dead/pop" read dlq)" '[one\n] ok'
	echo g >"$Q/snapshots/s"
	reader "$BATS_TEST_TMPDIR/waits" "$Q/partitions/idle/groups/g/follow"
	wait_until waiting 1
	PLACE=$(place)
	export HOME=$BATS_TEST_TMPDIR/home TERM=xterm LINES=24 COLUMNS=80
	mkdir "$HOME"
	cd "$Q/config" || return
}

# place - what consuming and droppings would change.
place() {
	(cd "$M" && find . ! -path '*/segments/*' | sort)
	cat "$Q"/groups/*/cursor "$Q/snapshots/s"
	grep -hE '^(lag|members|waiting|leased|delivered|redelivered|dead_lettered) ' \
		"$Q"/groups/*/stats
}
same_place() { [ "$(place)" = "$PLACE" ]; }

# untouched - nothing has changed. What a tool opened is closed a moment after it ended.
untouched() {
	wait_until same_place || diff <(echo "$PLACE") <(place)
	is "$(stat_of "$G/stats" delivered)" 0
	is "$(cat "$BATS_TEST_TMPDIR/waits")" ''
}

needs() {
	local tool
	for tool; do command -v "$tool" >/dev/null || skip "not installed: $tool"; done
}

# ends COMMAND... - with a limit; prints nothing but its own; STATUS is its status.
ends() {
	STATUS=0
	timeout -k 5 60 "$@" 3>&- || STATUS=$?
	[ "$STATUS" -lt 124 ] || { echo "$1 ended with status $STATUS" && return 1; }
}

# screen [WANT SEND]... -- COMMAND... - on a terminal of its own: as soon as its output since
# the last step matches WANT it is sent SEND. What it showed is in $SHOWN. Fails when it has
# not ended by itself a minute later.
screen() {
	SHOWN=$BATS_TEST_TMPDIR/shown
	STATUS=0
	python3 - "$@" >"$SHOWN" 3>&- <<-'END' || STATUS=$?
		import os, pty, re, select, struct, sys, termios, fcntl, time
		at = sys.argv.index("--")
		steps, command = sys.argv[1:at], sys.argv[at + 1:]
		pid, fd = pty.fork()
		if pid == 0:
		    os.execvp(command[0], command)
		fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
		end, seen = time.time() + 60, b""
		while True:
		    if steps and re.search(os.fsencode(steps[0]), seen):
		        os.write(fd, os.fsencode(steps[1]))
		        steps, seen = steps[2:], b""
		    if not select.select([fd], [], [], max(0, end - time.time()))[0]:
		        os.kill(pid, 9)
		        sys.exit(124)
		    try:
		        got = os.read(fd, 65536)
		    except OSError:
		        break
		    seen += got
		    os.write(1, got)
		status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
		sys.exit(status if status >= 0 else 128 - status)
	END
	[ "$STATUS" != 124 ] || { echo "no end of ${*: -1}; shown:" && cat -v "$SHOWN" && return 1; }
}

# refused FILE WHAT - FILE is as it was, and errors has a line of the file that was not made.
refused() {
	is "$(cat batch)" 1
	errors_has "queues/q/config/$1: EPERM: ."
	untouched
}

vim() {
	local vim
	for vim in vim.basic vim.tiny vim vi; do
		! type -P "$vim" >/dev/null || break
	done
	type -P "$vim"
}

@test "tools.tsv names each test of tools, and no other" {
	diff <(grep -v '^#' "$TABLE" | cut -f 4 | sort) \
		<(sed -n 's/^@test "\(.*\)" {$/\1/p' "$BATS_TEST_FILENAME" | tail -n +2 | sort)
	not grep -nvE $'^#|^[^\t]+\t[^\t]+\t[^\t]+\t[^\t]+$' "$TABLE"
}

# ---- editing a setting ----------------------------------------------------------------

@test "vim edits a setting in place" {
	[ -n "$(vim)" ] || skip "not installed: vim"
	here
	screen 'batch" 1L' $':s/1/12/\r:wq\r' -- "$(vim)" batch
	is "$STATUS" 0
	is "$(cat batch)" 12
	untouched
}

@test "vim that wants its swap and backup files beside a setting writes it when told to" {
	[ -n "$(vim)" ] || skip "not installed: vim"
	here
	screen 'batch" 1L' $'\r:s/1/12/\r:wq!\r' -- "$(vim)" \
		-c 'set directory=. backup backupdir=. backupcopy=yes' batch
	is "$(cat batch)" 12
	untouched
}

@test "vim that would rename a setting away writes it in place" {
	[ -n "$(vim)" ] || skip "not installed: vim"
	here
	screen 'batch" 1L' $':s/1/12/\r:wq!\r' -- "$(vim)" \
		-c 'set backup backupdir=. backupcopy=no' batch
	is "$(cat batch)" 12
	untouched
}

@test "vim says that a value was refused" {
	[ -n "$(vim)" ] || skip "not installed: vim"
	here
	screen 'batch" 1L' $':s/1/many/\r:w\r' 'E[0-9]+:' $'\r:q!\r' -- "$(vim)" batch
	is "$(cat batch)" 1
	errors_has 'queues/q/config/batch: EINVAL: batch cannot be "many"'
	untouched
}

@test "vim edits a cursor: that is a seek" {
	[ -n "$(vim)" ] || skip "not installed: vim"
	here
	screen 'cursor" 2L' $':1s/-1/1/\r:wq\r' -- "$(vim)" "$G/cursor"
	is "$(cat "$G/cursor")" $'1\tdefault\n-1\tidle'
	pops "$G/pop" three
}

@test "ex edits a setting" {
	needs ex
	here
	ends ex -s -c '%s/1/12/' -c wq batch </dev/null
	is "$(cat batch)" 12
	untouched
}

@test "ed edits a setting" {
	needs ed
	here
	printf ',s/1/12/\nw\nq\n' | ends ed -s batch
	is "$(cat batch)" 12
	untouched
}

@test "nano edits a setting in place, also with -B" {
	needs nano
	here
	local option
	for option in -I -B; do
		echo 1 >./batch
		screen '\^X' $'\v12\x0f' 'File Name|Name to Write' $'\r' 'Wrote' $'\x18' -- \
			nano "$option" batch
		is "$(head -n 1 batch)" 12
	done
	untouched
}

@test "mcedit edits a setting" {
	needs mcedit
	here
	screen 'batch' $'\x19\x31\x32\x1bOQ' 'onfirm|ancel' $'\r' '.' $'\x1b[21~' -- mcedit -a batch
	is "$(cat batch)" 12
	untouched
}

@test "sed -i says that it may make no file, and changes nothing" {
	needs sed
	here
	local option
	for option in -i -i.bak '-i --follow-symlinks'; do
		# shellcheck disable=SC2086
		ends sed $option s/1/12/ batch 2>"$BATS_TEST_TMPDIR/says"
		[ "$STATUS" != 0 ]
		grep -q 'Operation not permitted' "$BATS_TEST_TMPDIR/says"
	done
	refused 'sed[^:]*'
}

@test "perl -i says that it may make no file, and changes nothing" {
	needs perl
	here
	ends perl -i -pe s/1/12/ batch 2>"$BATS_TEST_TMPDIR/says"
	grep -q 'Operation not permitted' "$BATS_TEST_TMPDIR/says"
	ends perl -i.bak -pe s/1/12/ batch 2>"$BATS_TEST_TMPDIR/says"
	grep -q 'Operation not permitted' "$BATS_TEST_TMPDIR/says"
	refused '[^:]*'
}

@test "sponge sets a setting" {
	needs sponge
	here
	sed s/1/12/ batch | ends sponge batch
	is "$(cat batch)" 12
	untouched
}

@test "tee and tee -a set a setting" {
	needs tee
	here
	echo 12 | ends tee batch >/dev/null
	is "$(cat batch)" 12
	echo 13 | ends tee -a batch >/dev/null
	is "$(cat batch)" 13
	untouched
}

@test "dd sets a setting, with conv=notrunc too" {
	needs dd
	here
	echo 12 | ends dd of=batch status=none
	is "$(cat batch)" 12
	echo 7 | ends dd of=batch conv=notrunc,fsync status=none
	is "$(cat batch)" 7
	untouched
}

@test "truncate changes no setting; what is written next does" {
	needs truncate
	here
	ends truncate -s 0 batch
	is "$STATUS" 0
	is "$(cat batch)" 1
	echo 12 >>./batch
	is "$(cat batch)" 12
	untouched
}

@test "cp, > and >> set a setting" {
	here
	echo 12 >"$HOME/value"
	ends cp "$HOME/value" batch
	is "$(cat batch)" 12
	echo 13 >./batch
	is "$(cat batch)" 13
	echo 14 >>./batch
	is "$(cat batch)" 14
	ends cp batch "$HOME/kept"
	ends cp "$HOME/value" batch
	ends cp "$HOME/kept" batch
	is "$(cat batch)" 14
	untouched
}

@test "mv and install onto a setting fail and change nothing" {
	needs install
	here
	echo 12 >"$HOME/value"
	ends install -m 644 "$HOME/value" batch 2>/dev/null
	[ "$STATUS" != 0 ]
	ends mv "$HOME/value" batch 2>/dev/null
	[ "$STATUS" != 0 ]
	is "$(cat "$HOME/value") $(cat batch)" "12 1"
	untouched
}

@test "rsync sets a setting with --inplace; without it may make no file" {
	needs rsync
	here
	echo 12 >"$HOME/batch"
	ends rsync "$HOME/batch" batch 2>/dev/null
	[ "$STATUS" != 0 ]
	is "$(cat batch)" 1
	ends rsync --inplace "$HOME/batch" batch
	is "$STATUS $(cat batch)" "0 12"
	untouched
}

# ---- looking --------------------------------------------------------------------------

@test "find, with -exec, -newer and -size, consumes nothing" {
	needs find
	here
	ends find "$M" -type f -newermt 2020-01-01 -size -100k -exec grep -l two {} + >"$HOME/found"
	grep -qx "$P/log" "$HOME/found"
	ends find "$M" -name 'pop*' -newer "$INI" -ls >/dev/null
	ends find "$M" -empty -print0 >/dev/null
	untouched
}

@test "tree shows the mount and consumes nothing" {
	needs tree
	here
	ends tree -apugs --inodes --du "$M" >"$HOME/out"
	is "$STATUS" 0
	grep -q 'default@0' "$HOME/out"
	untouched
}

@test "ncdu shows the mount and consumes nothing" {
	needs ncdu
	here
	ends ncdu -0 -o "$HOME/out" "$M" </dev/null
	is "$STATUS" 0
	grep -q 'default@0' "$HOME/out"
	screen 'Total' $'q' -- ncdu -1 "$M"
	untouched
}

@test "a file manager (mc) walks the mount and consumes nothing" {
	needs mc
	here
	screen 'Quit' $'\x1bOB\x1bOB\x1bOB\t\x1bOB' '.' $'\x1b[21~' 'really' $'\r' -- \
		mc -u --nosubshell "$Q" "$G"
	untouched
}

@test "less shows log and stats, and follows log, consuming nothing" {
	needs less
	here
	screen 'three' q -- less "$P/log"
	screen 'three' $'/two\r' 'two' $'G?one\r' 'one' q -- less -R "$P/log"
	screen 'messages' q -- less "$P/stats"
	screen 'interrupt to abort' $'\x03' '.' q -- less +F "$P/log"
	untouched
}

@test "watch shows stats again and again and consumes nothing" {
	needs watch
	here
	screen 'lag 3' $'\x03' -- watch -n 0.2 cat "$G/stats"
	ends watch -n 0.1 -g "cat $Q/stats; echo \$\$" </dev/null >/dev/null
	untouched
}

@test "rsync copies from the mount and consumes nothing" {
	needs rsync
	here
	ends rsync -aX "$M/" "$HOME/copy" 2>/dev/null
	cmp "$P/log" "$HOME/copy/queues/q/partitions/default/log"
	ends rsync -rc "$M/" "$HOME/copy" 2>/dev/null
	untouched
}

@test "what file managers and editors drop makes no file and no queue" {
	here
	local where name lines=()
	for where in "$M" "$M/queues" "$Q" "$Q"/{partitions,groups,config} "$P" "$G" "$D" \
		"$P/segments" "$P/groups"; do
		for name in .DS_Store ._batch .directory Thumbs.db desktop.ini 4913 .batch.swp \
			'batch~' .#batch '#batch#' .fuse_hidden0001 .nfs0001 .goutputstream-X1 \
			.~lock.x# sedX1; do
			lines+=("create $where/$name")
		done
		lines+=("symlink $where/.#batch" "link $where/x $where/y")
	done
	lines=("${lines[@]/#link */create $M/x}")
	diff <(printf '%s: EPERM\n' "${lines[@]}") <(printf '%s\n' "${lines[@]}" | sys -)
	for where in "$M/queues" "$Q/partitions" "$Q/groups"; do
		is "$(sys mkdir "$where/.Trash-0")" EINVAL
	done
	is "$(sys mkdir "$M/.Trash-0")" EPERM
	is "$(sys create "$Q/snapshots/.DS_Store")" EINVAL
	untouched
}

# ---- pushing --------------------------------------------------------------------------

# pushed TEXT - default got these lines, in any order, and g has them before it.
pushed() {
	is "$(tail -n +4 "$P/log" | sort)" "$1"
	is "$(cat "$G/cursor")" $'-1\tdefault\n-1\tidle'
	is "$(stat_of "$G/stats" delivered)" 0
	is "$(ls "$M/queues")" q
}

@test "tee and tee -a push" {
	needs tee
	here
	seq 2 | ends tee "$Q/push" >/dev/null
	echo 3 | ends tee -a "$Q/push" >/dev/null
	pushed $'1\n2\n3'
}

@test "dd pushes whole lines, whatever its block size" {
	needs dd
	here
	seq 100 199 | ends dd of="$Q/push" bs=7 status=none
	seq 200 299 | ends dd of="$Q/push" bs=1M iflag=fullblock oflag=append \
		conv=notrunc,fsync status=none
	pushed "$(seq 100 299)"
}

@test "xargs -P pushes" {
	needs xargs
	here
	# shellcheck disable=SC2016
	seq 100 199 | ends xargs -n 1 -P 8 sh -c 'echo "$1" >>"$0"' "$Q/push"
	pushed "$(seq 100 199)"
}

@test "parallel pushes" {
	needs parallel
	here
	seq 100 119 | ends parallel -j 4 "echo {} >>'$Q/push'" 2>/dev/null
	seq 120 139 | ends parallel -j 4 echo >>"$Q/push" 2>/dev/null
	pushed "$(seq 100 139)"
}

@test "logger pushes with -s" {
	needs logger
	here
	ends logger --no-act --socket-errors=off -s -t me 'a line' 2>>"$Q/push"
	tail -n 1 "$P/log" | grep -q 'me: a line$'
	pushed "$(tail -n 1 "$P/log")"
}

@test "cp and cat push a file" {
	here
	seq 100 199 >"$HOME/lines"
	ends cp "$HOME/lines" "$Q/push"
	ends cat "$HOME/lines" >>"$Q/push"
	pushed "$(seq 100 199 | sed p)"
}
