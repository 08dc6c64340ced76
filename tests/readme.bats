#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# README.md is true: its ```console blocks are typed into a shell, a section at a time,
# and must print what README shows; its ```tree is compared with a mount.
#
# In a block `$ ` begins a command, `> ` goes on with it, the rest is what it prints.
# Times, process ids and users are compared by their form only. What an interactive shell
# says of its jobs (`[1] 4711`) is not compared, but a job that README ends is waited for.
# What a job prints comes when it comes: the next command is typed once as many lines have
# been printed as README shows, and once what was closed is closed for the mount too.

load fs/lib

README=$BATS_TEST_DIRNAME/../README.md

# section HEADING - the lines below it, up to the next heading of its rank or higher.
section() {
	awk -v heading="$1" '
		/^```/ { fenced = !fenced }
		!fenced && /^#+ / {
			rank = index($0, " ") - 1
			if (inside && rank <= inside) inside = 0
			if ($0 == heading) { inside = rank; next }
		}
		inside' "$README"
}

# blocks KIND - what stands in the fences of that kind.
blocks() {
	awk -v fence="\`\`\`$1" '
		/^```/ { inside = $0 == fence; next }
		inside'
}

# script - makes of blocks a script that shows each command as it was typed, runs it, and
# waits for what it has to print.
script() {
	perl -e '
		my ($typed, $command, $lines, $ended) = ("", "", 0, "");
		sub flush {
			print "cat <<\"#typed\"\n$typed#typed\n$command${ended}_shown $lines\n" if $typed;
			($typed, $command, $ended) = ("", "", "");
		}
		while (<STDIN>) {
			if (/^\[\d+\]/) { # of a job, not of a command
				$ended = "wait\n" if /^\[\d+\]\+ +Terminated/;
				next;
			}
			flush() if /^\$ /;
			$lines++;
			next unless s/^([\$>] )//;
			$typed .= "$1$_";
			$command .= $_;
		}
		flush();
	'
}

# _shown LINES - until so many are printed and, unless a job or descriptor 3 may still read,
# no reader is open: the kernel tells of a close after close(2) has returned. The limit is
# there to end a failed test.
_shown() {
	local end=$((SECONDS + 60))
	while [ "$(wc -l <"$GOT")" -lt "$1" ] && ((SECONDS < end)); do sleep 0.02; done
	[ -z "$(jobs -p)" ] && [ ! -e /proc/$$/fd/3 ] || return 0
	while grep -qs '^members [^0]' "$M"/queues/*/groups/*/stats && ((SECONDS < end)); do
		sleep 0.02
	done
}

# normal - hides what differs from run to run: times, who it was, line numbers, jobs.
normal() {
	sed -E \
		-e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z/TIME/g' \
		-e 's/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\.[0-9]{9} [+-][0-9]{4}/TIME/g' \
		-e 's/^TIME [0-9]+ [0-9]+ /TIME UID PID /' \
		-e 's/^[0-9]+\t[0-9]+\t(.*\t){3}/PID\tUID\t&/;s/^(PID\tUID\t)[0-9]+\t[0-9]+\t/\1/' \
		-e 's/^([a-z_]+_seconds) [0-9]+\.[0-9]{3}$/\1 SECONDS/' \
		-e 's/^[^ ]*: line [0-9]+: /bash: /' \
		-e '/^\[[0-9]+\]/d'
}

# types - types the blocks of its input into a shell beside the mount.
types() {
	local wanted=$BATS_TEST_TMPDIR/wanted
	export GOT=$BATS_TEST_TMPDIR/got M
	export -f _shown
	cat >"$wanted"
	[ -s "$wanted" ] || { echo "no console block" && return 1; }
	script <"$wanted" >"$BATS_TEST_TMPDIR/script"
	(
		cd "$BATS_TEST_TMPDIR"
		umask 022
		HOME=$BATS_TEST_TMPDIR TZ=UTC bash script >"$GOT" 2>&1 </dev/null 3>&-
	) || true # what the last command came to is seen in what it printed
	diff -u --label README --label "what it printed" <(normal <"$wanted") <(normal <"$GOT")
}

@test "the tour prints what README shows" {
	start
	section '## Two minutes' | blocks console | types
}

@test "each recipe prints what README shows" {
	local recipe ran=0
	before=$(section '## Recipes' | sed '/^### /,$d' | blocks console)
	while IFS= read -r recipe; do
		section "$recipe" | blocks console >"$BATS_TEST_TMPDIR/recipe"
		[ -s "$BATS_TEST_TMPDIR/recipe" ] || continue
		echo "$recipe"
		S=$BATS_TEST_TMPDIR/recipe$((++ran)).db
		start
		{ echo "$before" && cat "$BATS_TEST_TMPDIR/recipe"; } | types
		stop
	done < <(section '## Recipes' | grep '^### ')
	[ "$ran" -gt 10 ]
}

# tree_of_readme - `<mode> <path>` for each line; the mode is r, w, rw, / of a directory.
tree_of_readme() {
	section '## The tree' | blocks tree | awk '
		{
			depth = match($0, /[^ ]/) - 1
			path = ""
			names[depth / 2] = $1
			for (i = 0; i <= depth / 2; i++) path = path names[i]
			mode = $1 ~ /\/$/ ? "/" : $2
			sub(/\/$/, "", path)
			print mode, path
		}' | sort
}

# tree_of_mount - the same of the mount.
tree_of_mount() {
	find "$M" -mindepth 1 -printf '%y %m %P\n' | awk '
		{
			mode = $1 == "d" ? "/" : ($2 ~ /^[4-7]/ ? "r" : "") ($2 ~ /^[2367]/ ? "w" : "")
			print mode, $3
		}' | sort
}

@test "the tree is the one README shows" {
	start
	mkdir "$M/queues/jobs" "$M/queues/jobs/groups/mail"
	push "$M/queues/jobs" one
	exec 5<>"$M/queues/jobs/groups/mail/follow"
	IFS= read -r -u 5
	echo dlq >&5
	exec 5>&-
	diff -u --label README --label mount <(tree_of_readme) <(tree_of_mount)
	[ "$(tree_of_readme | wc -l)" -gt 15 ]
}

@test "make run mounts, what it says to try works, make stop unmounts" {
	local copy=$BATS_TEST_TMPDIR/copy
	mkdir "$copy"
	(cd "$BATS_TEST_DIRNAME/.." && cp -a Makefile queenfs.ini store fs build "$copy")
	cd "$copy"
	M=$copy/mnt # for teardown
	run -0 make -s run PACKAGES= 3>&-
	[[ $output == "mounted at ./mnt; try:"* ]]
	run -0 bash -euc "$(tail -n +2 <<<"$output")"
	is "$output" "resize photo-1.png"
	[ -f queen.db ]
	run -0 make -s run PACKAGES=
	[[ $output == "already mounted at ./mnt"* ]]
	run -0 make -s stop
	not mountpoint -q mnt
}

@test "the manual page renders without a warning" {
	command -v groff >/dev/null || skip "no groff"
	local page=$BATS_TEST_DIRNAME/../fs/queenfs.8
	run -0 --separate-stderr groff -mandoc -Tutf8 -ww -K utf8 "$page"
	is "$stderr" ""
}
