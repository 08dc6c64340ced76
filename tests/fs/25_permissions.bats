#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 12 of the contract: owners and modes, as other users meet them. Root mounts, so
# allow_other is on.

# shellcheck disable=SC2016,SC2046,SC2086,SC2206 # paths here have no blanks
load lib

OWNER=64001 PRODUCER=64002 CONSUMER=64003 STRANGER=64004
TEAM=64100 # a Unix group

setup_file() {
	[ "$(id -u)" = 0 ] || skip "only root can be other users"
}

# as UID COMMAND... - in the mount ($M: paths are relative), as that user and no Unix group
# but its own and those in GROUPS_OF. A function of this file or of lib works too.
as() {
	local uid=$1 groups=(--clear-groups)
	shift
	[ -z "${GROUPS_OF:-}" ] || groups=(--groups "$GROUPS_OF")
	if [ "$(type -t "$1")" = function ]; then
		set -- bash -c "$(declare -f "$1"); \"\$@\"" - "$@"
	fi
	(cd "$M" && exec setpriv --reuid "$uid" --regid "$uid" "${groups[@]}" "$@" 3>&-)
}

# can UID VERB PATH... - ok or the name of the errno, of an operation as in sys.
can() { as "$1" sys "${@:2}"; }

# cannot UID ERRNO LINE... - each LINE is an operation as in sys; all must be refused so.
cannot() {
	diff <(printf "%s: $2\n" "${@:3}") <(printf '%s\n' "${@:3}" | as "$1" sys -)
}

# may UID LINE... - each must succeed.
may() { cannot "$1" ok "${@:2}"; }

# mode PATH - its owner, Unix group and mode.
mode() { (cd "$M" && stat -c '%u %g %a' "$1"); }

# holder UID PATH - a process of that user that has PATH open; each line written to
# ${HOLDER[1]} is a mode for it, and what chmod comes to is a line in ${HOLDER[0]}.
holder() {
	coproc HOLDER {
		as "$1" perl -MFcntl -MErrno -e '
			$| = 1;
			sysopen(my $f, $ARGV[0], O_RDONLY) or die "$ARGV[0]: $!\n";
			print "open\n";
			while (<STDIN>) {
				my $done = chmod oct, $f;
				my ($name) = grep { $!{$_} } sort keys %!;
				print $done ? "ok" : $name, "\n";
			}' "$2"
	}
	local line
	read -r line <&"${HOLDER[0]}"
	is "$line" open
}
held() { # MODE WANTED
	local line
	echo "$1" >&"${HOLDER[1]}"
	read -r line <&"${HOLDER[0]}"
	is "$line" "$2"
}

# ---- changes ------------------------------------------------------------------------

@test "a changed mode holds at once, in each place where the directory is seen" {
	start
	queue p
	local g=queues/q/groups/g mirror=queues/q/partitions/p/groups/g one two
	for one in "$g" "$mirror"; do
		for two in "$g" "$mirror"; do
			chmod 777 "$M/$two"
			is "$(mode "$g")" "0 0 777"
			is "$(mode "$mirror")" "0 0 777"
			may $STRANGER "read $g/cursor" "read $mirror/cursor"
			as $STRANGER ls "$g" "$mirror" >/dev/null
			chmod 700 "$M/$one"
			is "$(mode "$g")" "0 0 700"
			is "$(mode "$mirror")" "0 0 700"
			cannot $STRANGER EACCES "read $g/cursor" "read $mirror/cursor"
			not as $STRANGER ls "$g" 2>/dev/null
			not as $STRANGER ls "$mirror" 2>/dev/null
		done
	done
}

@test "groups/ and its mirrors have one mode, wherever it is changed" {
	start
	queue a b
	local dir=queues/q/groups a=queues/q/partitions/a/groups b=queues/q/partitions/b/groups
	chmod 777 "$M/$a"
	may $STRANGER "mkdir $dir/one" "mkdir $a/two" "mkdir $b/three"
	chmod 755 "$M/$b"
	cannot $STRANGER EACCES "mkdir $dir/x" "mkdir $a/x" "mkdir $b/x" "rmdir $dir/one"
	is "$(ls "$Q/groups")" $'g\none\nthree\ntwo'
}

@test "a former owner with the directory open changes nothing any more" {
	start
	queue p
	local path pid
	for path in "$G" "$Q/partitions/p/groups/g"; do
		chown $CONSUMER "$G"
		holder $CONSUMER "${path#"$M/"}"
		held 770 ok
		is "$(mode queues/q/groups/g)" "$CONSUMER 0 770"
		chown $OWNER "$G"
		held 777 EPERM
		is "$(mode queues/q/groups/g)" "$OWNER 0 770"
		pid=$HOLDER_PID
		eval "exec ${HOLDER[1]}>&-"
		wait "$pid"
	done
}

# ---- removing -----------------------------------------------------------------------

@test "w to push is not w to remove, not even what removing leaves in place" {
	start
	queue p
	push "$Q/partitions/p" one
	chmod 777 "$Q" "$Q/partitions/p" "$G"
	local p=queues/q/partitions/p
	may $PRODUCER "write queues/q/push a" "write $p/push b"
	cannot $PRODUCER EACCES "rmdir queues/q" "rmdir $p" "rmdir queues/q/groups/g" \
		"unlink $p/segments/$(printf %020d 0)" \
		"unlink queues/q/push" "unlink $p/log" "unlink queues/q/groups/g/cursor" \
		"rmdir queues/q/partitions" "rmdir $p/segments" "rmdir queues/q/groups/g/dlq"
	errors_has "$PRODUCER [0-9]+ queues/q/partitions: EACCES: ."
	errors_has "$PRODUCER [0-9]+ queues/q/partitions/p/log: EACCES: .*partition"
	# nobody's directory has gone from under them
	(cd "$Q/partitions" && is "$(ls)" $'default\np')
	chmod 777 "$Q/partitions" "$Q/groups"
	may $PRODUCER "unlink $p/log" "rmdir $p/segments" "unlink queues/q/groups/g/cursor"
	cannot $PRODUCER EACCES "unlink queues/q/push" "rmdir queues/q/partitions"
}

@test "a directory that somebody is in stays theirs when who may not remove it tries" {
	start
	queue p
	chmod 777 "$Q"
	(
		cd "$Q/partitions"
		is "$(can $PRODUCER rmdir queues/q/partitions)" EACCES
		mkdir made
		is "$(ls)" $'made\np'
	)
}

@test "rm -r of a queue by its owner removes it whole" {
	start
	chmod 1777 "$M/queues"
	local q=queues/mine
	may $OWNER "mkdir $q" "mkdir $q/groups/g" "mkdir $q/partitions/p"
	may $OWNER "write $q/push a" "write $q/partitions/p/push b" "make $q/snapshots/s g"
	is "$(as $OWNER cat "$q/pop")" b
	not as $PRODUCER rm -r "$q" 2>/dev/null
	not as $PRODUCER rmdir "$q" 2>/dev/null
	is "$(as $OWNER cat $q/partitions/{default,p}/log)" $'a\nb'
	as $OWNER rm -r "$q"
	is "$(count "$M/queues")" 0
}

@test "rm -r stops at another user's group; rmdir of that group first lets it through" {
	start
	chmod 1777 "$M/queues"
	local q=queues/mine
	may $OWNER "mkdir $q" "chmod $q/groups 777" "mkdir $q/partitions/p"
	may $CONSUMER "mkdir $q/groups/theirs"
	not as $OWNER rm -rf "$q" 2>/dev/null
	[ -d "$M/$q/groups/theirs" ]
	as $OWNER rmdir "$q/groups/theirs"
	as $OWNER rm -r "$q"
	is "$(count "$M/queues")" 0
}

@test "in a sticky directory only the owner of a thing, of the directory, and root remove it" {
	start
	chmod 1777 "$M/queues"
	may $PRODUCER "mkdir queues/a" "mkdir queues/b" "mkdir queues/c"
	is "$(can $CONSUMER rmdir queues/a)" EPERM
	may $PRODUCER "rmdir queues/a"
	chown $OWNER "$M/queues"
	may $OWNER "rmdir queues/b"
	rmdir "$M/queues/c"
	# the same of groups and partitions, and of what stays in place in them
	queue
	chmod 1777 "$Q/groups" "$Q/partitions"
	may $CONSUMER "mkdir queues/q/groups/c" "mkdir queues/q/partitions/c"
	chmod 777 "$Q/groups/c" "$Q/partitions/c"
	cannot $PRODUCER EPERM "rmdir queues/q/groups/c" "rmdir queues/q/partitions/c"
	cannot $PRODUCER EACCES "unlink queues/q/groups/c/cursor" "unlink queues/q/partitions/c/log"
	may $CONSUMER "unlink queues/q/groups/c/cursor" "unlink queues/q/partitions/c/log" \
		"rmdir queues/q/groups/c" "rmdir queues/q/partitions/c"
}

@test "dlq/, segments/ and snapshots/ each have their own w" {
	start
	queue
	push "$Q" one two three
	is "$(handle rw "$G/pop" read dlq)" '[one\n] ok'
	echo g >"$Q/snapshots/s"
	chmod 777 "$Q" "$P" "$G"
	local letter=queues/q/groups/g/dlq/default@0 first=queues/q/partitions/default/segments/
	first+=$(printf %020d 0)
	cannot $STRANGER EACCES "unlink $letter" "rename $letter queues/q/push" \
		"unlink $first" "unlink queues/q/snapshots/s" "make queues/q/snapshots/t g" \
		"create queues/q/snapshots/t"
	chmod 777 "$D" "$P/segments" "$Q/snapshots"
	may $STRANGER "rename $letter queues/q/push" "unlink $first" "unlink queues/q/snapshots/s"
	is "$(tail -n 1 "$P/log")" one
}

# ---- what a write names -------------------------------------------------------------

@test "a snapshot takes r and x of its group, and tells no other names" {
	start
	queue
	push "$Q" one
	mkdir "$Q/groups/theirs"
	chmod 777 "$Q/snapshots"
	chmod 711 "$Q/groups"
	chown $CONSUMER "$Q/groups/theirs"
	chmod 700 "$G" "$Q/groups/theirs"
	may $CONSUMER "make queues/q/snapshots/mine theirs"
	cannot $CONSUMER EACCES "make queues/q/snapshots/s g"
	chmod 740 "$G" && chgrp $TEAM "$G"
	GROUPS_OF=$TEAM cannot $CONSUMER EACCES "make queues/q/snapshots/s g"
	chmod 750 "$G"
	GROUPS_OF=$TEAM may $CONSUMER "make queues/q/snapshots/s g"
	chmod 705 "$G" # to others, but not to that Unix group
	GROUPS_OF=$TEAM cannot $CONSUMER EACCES "make queues/q/snapshots/t g"
	may $CONSUMER "make queues/q/snapshots/t g"
	# who may not look a name up in groups/ does not learn of it from a snapshot either
	chmod 700 "$Q/groups"
	cannot $CONSUMER EACCES "make queues/q/snapshots/u g" "make queues/q/snapshots/u none" \
		"make queues/q/snapshots/u theirs"
	is "$(as $CONSUMER grep -cE '"(g|none)"' errors)" 0
	is "$(ls "$Q/snapshots")" $'mine\ns\nt'
}

@test "a seek to a snapshot takes r and x of snapshots/, and tells no other names" {
	start
	queue
	push "$Q" one
	mkdir "$Q/groups/theirs"
	chown $CONSUMER "$Q/groups/theirs"
	echo g >"$Q/snapshots/s"
	local cursor=queues/q/groups/theirs/cursor name
	is "$(as $CONSUMER cat queues/q/groups/theirs/pop)" one
	for name in 700 711 744; do
		chmod "$name" "$Q/snapshots"
		is "$(can $CONSUMER write $cursor 'snapshot s')" EACCES
		is "$(can $CONSUMER write $cursor 'snapshot none')" EACCES
	done
	is "$(as $CONSUMER cat queues/q/groups/theirs/pop)" ''
	chmod 755 "$Q/snapshots"
	is "$(can $CONSUMER write $cursor 'snapshot s')" ok
	is "$(as $CONSUMER cat queues/q/groups/theirs/pop)" one
}

# lent UID PATH TEXT - that user opens PATH, and root writes to it, as a set-uid program
# does to its stdout.
lent() {
	# shellcheck disable=SC2016
	(cd "$M" && perl -MFcntl -MErrno -e '
		my ($uid, $path, $text) = @ARGV;
		$) = "$uid $uid"; $> = $uid;
		sysopen(my $f, $path, O_WRONLY | O_CREAT) or die "$path: $!\n";
		$> = 0; $) = "0 0";
		print defined syswrite($f, "$text\n") ? "ok" : $!{EACCES} ? "EACCES" : $!;
	' "$@")
}

@test "an open file lends its opener no rights of a program that writes to it" {
	start
	queue
	push "$Q" one
	chmod 777 "$Q/snapshots"
	chmod 700 "$G"
	mkdir "$Q/groups/theirs"
	chown $CONSUMER "$Q/groups/theirs"
	run lent $CONSUMER queues/q/snapshots/s g
	is "$output" EACCES
	is "$(count "$Q/snapshots")" 0
	echo g >"$Q/snapshots/roots"
	chmod 700 "$Q/snapshots"
	# shellcheck disable=SC2016
	run perl -MFcntl -MPOSIX -e '
		chdir $ARGV[0] or die;
		$) = "$ARGV[1] $ARGV[1]"; $> = $ARGV[1];
		sysopen(my $f, $ARGV[2], O_WRONLY) or die "$!\n";
		$> = 0; $) = "0 0";
		defined syswrite($f, "$ARGV[3]\n") or print $!{EACCES} ? "EACCES" : $!;
		' "$M" $CONSUMER queues/q/groups/theirs/cursor 'snapshot roots'
	is "$output" EACCES
}

# ---- consuming ----------------------------------------------------------------------

@test "the queue's pop and follow take r and w of the queue, and of group default" {
	start
	mkdir "$Q"
	push "$Q" one two
	chmod 777 "$Q"
	# what first use makes is as the queue's directory
	is "$(as $CONSUMER cat queues/q/pop)" one
	is "$(mode queues/q/groups/default)" "0 0 777"
	chmod 750 "$Q/groups/default"
	cannot $CONSUMER EACCES "read queues/q/pop" "read queues/q/pop.json" \
		"open queues/q/follow O_RDWR" "read queues/q/groups/default/pop"
	errors_has "$CONSUMER [0-9]+ queues/q/pop: EACCES: .*groups/default"
	chmod 770 "$Q/groups/default" && chgrp $TEAM "$Q/groups/default"
	cannot $CONSUMER EACCES "read queues/q/pop"
	GROUPS_OF=$TEAM may $CONSUMER "open queues/q/follow O_RDWR"
	chmod 733 "$Q"
	GROUPS_OF=$TEAM cannot $CONSUMER EACCES "read queues/q/pop"
	is "$(GROUPS_OF=$TEAM as $CONSUMER cat queues/q/groups/default/pop)" two
}

# ---- owners and modes ---------------------------------------------------------------

@test "mkdir: the caller's, 0777 less umask; fixed directories less write for others" {
	start
	chmod 777 "$M/queues"
	local mask name made fixed fixed_dir
	while read -r mask made fixed; do
		name=queues/q$mask
		as $OWNER bash -c "umask $mask && mkdir $name $name/groups/g $name/partitions/p"
		is "$(mode "$name")" "$OWNER $OWNER $made"
		is "$(mode "$name/groups/g")" "$OWNER $OWNER $made"
		is "$(mode "$name/partitions/p")" "$OWNER $OWNER $made"
		for fixed_dir in partitions groups snapshots config groups/g/{config,dlq} \
			partitions/p/segments; do
			is "$(mode "$name/$fixed_dir")" "$OWNER $OWNER $fixed"
		done
		is "$(mode "$name/partitions/p/groups/g")" "$OWNER $OWNER $made"
	done <<-'END'
		000 777 755
		022 755 755
		027 750 750
		002 775 755
		077 700 700
	END
	is "$(mode queues)" "0 0 777"
	as $OWNER mkdir -m 1730 queues/m
	is "$(mode queues/m)" "$OWNER $OWNER 1730"
	is "$(mode queues/m/groups)" "$OWNER $OWNER 1710"
}

@test "what first use makes is as the queue's directory" {
	start
	queue
	chown $OWNER:$TEAM "$Q"
	chmod 773 "$Q"
	may $PRODUCER "write queues/q/push one"
	is "$(GROUPS_OF=$TEAM as $CONSUMER cat queues/q/pop)" one
	is "$(mode queues/q/partitions/default)" "$OWNER $TEAM 773"
	is "$(mode queues/q/groups/default)" "$OWNER $TEAM 773"
	is "$(mode queues/q/groups/default/config)" "$OWNER $TEAM 751"
}

@test "below a set-gid directory what is made gets its Unix group" {
	start
	chown 0:$TEAM "$M/queues"
	chmod 2777 "$M/queues"
	may $OWNER "mkdir queues/q" "mkdir queues/q/groups/g" "mkdir queues/q/partitions/p"
	local dir
	for dir in queues/q queues/q/config queues/q/groups/g queues/q/partitions/p/segments; do
		is "$(mode $dir)" "$OWNER $TEAM 2755"
	done
	chmod g-s "$Q/groups"
	may $OWNER "mkdir queues/q/groups/h"
	is "$(mode queues/q/groups/h)" "$OWNER $OWNER 755"
}

# all - each directory of queue q with owner and mode, on a line.
all() { (cd "$M" && find . -type d -exec stat -c '%n %u %g %a' {} + | sort); }

@test "owner and mode of each directory last, through a remount and kill -9" {
	start
	queue p
	push "$Q" one
	local dir number=1
	while read -r dir; do
		case $dir in */partitions/*/groups*) continue ;; esac
		((++number))
		chmod "$(printf %o $((07000 | 0700 | number)))" "$M/$dir"
		chown $((50000 + number)):$((60000 + number)) "$M/$dir"
		is "$(mode "$dir")" \
			"$((50000 + number)) $((60000 + number)) $(printf %o $((07700 | number)))"
	done < <(cd "$M" && find . -type d | sort)
	[ "$number" -gt 14 ]
	all >"$BATS_TEST_TMPDIR/before"
	crash
	start
	all | diff "$BATS_TEST_TMPDIR/before" -
	remount
	all | diff "$BATS_TEST_TMPDIR/before" -
}

@test "chmod of a file to another mode and chown of a file: EPERM; to what it is: nothing" {
	start
	queue
	push "$Q" one
	chown -h $OWNER "$Q" "$G"
	local file mode
	for file in queues/q/push queues/q/stats queues/q/groups/g/cursor errors; do
		mode=$(cd "$M" && stat -c %a $file)
		is "$(can 0 chmod $file 666)" EPERM
		is "$(can 0 chmod $file "$mode")" ok
		not chown $STRANGER "$M/$file" 2>/dev/null
		not chgrp $STRANGER "$M/$file" 2>/dev/null
		chown "$(stat -c %u:%g "$M/$file")" "$M/$file"
		is "$(can $STRANGER chmod $file "$mode")" EPERM
	done
	is "$(can $OWNER chmod queues/q/push 666)" EPERM
	errors_has "$OWNER [0-9]+ queues/q/push: EPERM: .*directory"
}

@test "chown takes root; chgrp the owner, to a Unix group of theirs; chmod the owner" {
	start
	queue
	chown $OWNER:$OWNER "$Q"
	not as $OWNER chown $STRANGER queues/q 2>/dev/null
	not as $STRANGER chown $STRANGER queues/q 2>/dev/null
	not as $STRANGER chgrp $STRANGER queues/q 2>/dev/null
	not as $OWNER chgrp $TEAM queues/q 2>/dev/null
	cannot $STRANGER EPERM "chmod queues/q 777"
	GROUPS_OF=$TEAM as $OWNER chgrp $TEAM queues/q
	may $OWNER "chmod queues/q 750"
	is "$(mode queues/q)" "$OWNER $TEAM 750"
	# of a Unix group that is not theirs, no set-gid bit
	may $OWNER "chmod queues/q 2750"
	is "$(mode queues/q)" "$OWNER $TEAM 750"
}

# ---- three users --------------------------------------------------------------------

# roles - queue q of OWNER: PRODUCER, by its Unix group, may push to it, CONSUMER has group
# theirs; two messages, a dead letter of each group, a snapshot, readers of both groups
# waiting for partition idle. Queue other is the owner's alone.
roles() {
	start
	chmod 711 "$M/queues"
	mkdir "$Q" "$G" "$Q/groups/theirs" "$Q/partitions/idle" "$M/queues/other"
	push "$Q" one two
	is "$(handle rw "$PG/pop" read 'dlq why')" '[one\n] ok'
	is "$(handle rw "$P/groups/theirs/pop" read 'dlq why')" '[one\n] ok'
	echo g >"$Q/snapshots/s"
	# of the directories only those are seen twice that chown makes the same
	find "$Q" "$M/queues/other" -type d -exec chown $OWNER:$OWNER {} +
	find "$Q" "$M/queues/other" -type d -exec chmod go= {} +
	chown -R $CONSUMER:$CONSUMER "$Q/groups/theirs" 2>/dev/null || true
	chmod 711 "$Q/groups"
	chgrp $PRODUCER "$Q"
	chmod 731 "$Q"
	chown $OWNER:$OWNER "$G"
	reader "$BATS_TEST_TMPDIR/g" "$Q/partitions/idle/groups/g/follow"
	reader "$BATS_TEST_TMPDIR/theirs" "$Q/partitions/idle/groups/theirs/follow"
	wait_until waiting 1
	wait_until waiting 1 "$Q/groups/theirs/stats"
	PLACE=$(standing)
}

# standing - what none of them may have changed.
standing() {
	ls -R "$M/queues"
	cat "$G/cursor" "$G/dlq/"* "$P/log" "$Q/snapshots/s"
	grep -v oldest "$G/stats"
	grep -r . "$Q/config" "$G/config" "$M/queues/other/config" --exclude filter
	find "$M" -type d -exec stat -c '%n %u %g %a' {} +
}

# every PATH... - each operation on what is there, as in cannot.
every() {
	local path
	for path; do
		printf '%s\n' "open $path O_RDONLY" "open $path O_WRONLY" "open $path O_RDWR" \
			"truncate $path"
	done
}

# The paths of things that are fixed in queue $1, partition $2, group $3.
of_queue() { printf "$1/%s\n" pop pop.json follow follow.json stats; }
of_config() { printf "$1/config/%s\n" batch retry_limit lease_seconds; }
of_group() {
	printf "$1/%s\n" cursor pop pop.json follow follow.json members stats dlq/default@0
	of_config "$1"
	printf "$1/config/%s\n" filter subscription
}
of_lane() { printf "$1/%s\n" cursor pop pop.json follow follow.json stats; }
of_partition() {
	printf "$1/%s\n" push push.json log stats "segments/$(printf %020d 0)"
}

@test "a producer pushes, and does nothing else" {
	roles
	local q=queues/q lines
	may $PRODUCER "write $q/push three" "open $q/push O_WRONLY|O_APPEND|O_CREAT"
	is "$(can $PRODUCER write $q/push.json '{"data":4,"partition":"made"}'$'\n')" ok
	is "$(cat "$P/log" "$Q/partitions/made/log")" $'one\ntwo\nthree\n4'
	PLACE=$(standing)
	mapfile -t lines < <(every $(of_queue $q; of_config $q; of_group $q/groups/g
		of_group $q/groups/theirs; of_partition $q/partitions/default
		of_lane $q/partitions/default/groups/g; echo $q/snapshots/s))
	cannot $PRODUCER EACCES "${lines[@]}"
	cannot $PRODUCER EACCES "open $q/push O_RDONLY" "open $q/push O_RDWR" \
		"open $q/push.json O_RDWR" "read $q" "read $q/groups" "read $q/partitions" \
		"rmdir $q" "rmdir $q/groups/g" "rmdir $q/groups/theirs" \
		"rmdir $q/partitions/made" "rmdir $q/partitions" "unlink $q/push" \
		"unlink $q/snapshots/s" "mkdir $q/groups/h" "mkdir $q/partitions/h" \
		"make $q/snapshots/t g" "rename $q/groups/g/dlq/default@0 $q/push"
	cannot $PRODUCER EPERM "mkdir $q/h" "create $q/h" "symlink $q/h" "chmod $q 777" \
		"chmod $q/push 777"
	mapfile -t lines < <(every queues/other/{push,pop,follow,stats})
	cannot $PRODUCER EACCES "${lines[@]}" "read queues" "mkdir queues/h"
	diff <(echo "$PLACE") <(standing)
}

@test "a consumer reads its own group, and does nothing else" {
	roles
	local q=queues/q g=queues/q/groups/theirs lines
	is "$(as $CONSUMER cat $g/pop)" two
	is "$(as $CONSUMER cat $g/cursor)" $'1\tdefault\n-1\tidle'
	as $CONSUMER bash -c "echo start >$g/cursor"
	is "$(as $CONSUMER cat $g/pop)" one
	# shellcheck disable=SC2016
	is "$(as $CONSUMER bash -c 'exec 3<>'$g'/follow; read -ru 3 a; echo ack >&3; echo "$a"')" two
	is "$(as $CONSUMER cat $g/cursor)" $'1\tdefault\n-1\tidle'
	is "$(as $CONSUMER cat $g/dlq/default@0)" one
	as $CONSUMER getfattr -d $g/dlq/default@0 | grep -q 'queenfs.error="why"'
	is "$(as $CONSUMER cat $g/members | wc -l)" 2
	as $CONSUMER grep -q '^lag 0$' $g/stats
	as $CONSUMER bash -c "echo 7 >$g/config/batch"
	is "$(as $CONSUMER cat $g/config/batch)" 7
	may $CONSUMER "unlink $g/dlq/default@0"
	PLACE=$(standing)
	mapfile -t lines < <(every $(of_queue $q; of_config $q; of_group $q/groups/g
		of_partition $q/partitions/default; of_lane $q/partitions/default/groups/g
		of_lane $q/partitions/default/groups/theirs; echo $q/push $q/push.json
		echo $q/snapshots/s queues/other/{push,pop,follow,stats}))
	cannot $CONSUMER EACCES "${lines[@]}"
	cannot $CONSUMER EACCES "read $q" "read $q/groups" "rmdir $g" "rmdir $q/groups/g" \
		"rmdir $q" "unlink $g/cursor" "rmdir $g/dlq" "mkdir $q/groups/h" \
		"mkdir $q/partitions/h" "make $q/snapshots/t theirs" "unlink $q/push"
	is "$(can $CONSUMER write $g/cursor 'snapshot s')" EACCES
	cannot $CONSUMER EPERM "mkdir $g/h" "create $g/h" "chmod $q/groups 777"
	diff <(echo "$PLACE") <(standing)
}

@test "a stranger learns nothing: not even which names there are" {
	roles
	local q=queues/q lines paths path there missing
	chmod o= "$Q"
	PLACE=$(standing)
	mapfile -t lines < <(every $(of_queue $q; of_config $q; of_group $q/groups/g
		of_group $q/groups/theirs; of_partition $q/partitions/default
		of_lane $q/partitions/default/groups/g; echo $q/push $q/push.json
		echo $q/snapshots/s queues/other/{push,pop,follow,stats}))
	cannot $STRANGER EACCES "${lines[@]}"
	# what is there and what is missing get the same answer
	paths=($q/push $q/none $q/groups/{g,none} $q/groups/g/{pop,none}
		$q/partitions/{default,none} $q/partitions/default/{log,segments/none}
		$q/snapshots/{s,none} $q/groups/g/dlq/default@{0,9} queues/other/none)
	mapfile -t lines < <(for path in "${paths[@]}"; do
		printf '%s\n' "read $path" "unlink $path" "rmdir $path" "mkdir $path" \
			"create $path" "rename $path $q/push" "symlink $path" \
			"utime $path 1000" "chmod $path 777" "make $path g"
	done)
	cannot $STRANGER EACCES "${lines[@]}"
	is "$(as $STRANGER stat "${paths[@]}" 2>/dev/null)" ''
	is "$(as $STRANGER stat -f "${paths[@]}" 2>/dev/null)" ''
	is "$(as $STRANGER getfattr -d "${paths[@]}" 2>/dev/null)" ''
	cannot $STRANGER EACCES "read queues" "mkdir queues/h" "rmdir $q" "rmdir queues/other" \
		"rename $q queues/h" "create queues/h" "unlink README" "rmdir queues" "mkdir h"
	# of the queue's own directory only what stat(2) says of any, the same for all
	there=$(as $STRANGER stat -c '%h %s %b %Y' queues/q)
	missing=$(as $STRANGER stat -c '%h %s %b %Y' queues/other)
	is "$there" "$missing"
	# errors are for those who caused them
	is "$(can 0 mkdir "$Q/groups/.hidden")" EINVAL
	is "$(as $STRANGER cat errors)" ""
	is "$(as $STRANGER stat -c %s errors)" 0
	[ "$(wc -l <"$M/errors")" -ge 1 ]
	diff <(echo "$PLACE") <(standing)
}

@test "metrics, which names each queue and group, is for the mount's owner and Unix group" {
	roles
	local mode uid
	for mode in 755 777 775; do
		chmod $mode "$M"
		is "$(mode metrics)" "0 0 440"
		for uid in $OWNER $PRODUCER $CONSUMER $STRANGER; do
			cannot $uid EACCES "open metrics O_RDONLY" "open metrics O_RDWR" "unlink metrics" \
				"rmdir queues"
			is "$(as $uid stat -c %s metrics)" 0
		done
	done
	chgrp $TEAM "$M" && chmod 755 "$M"
	GROUPS_OF=$TEAM may $STRANGER "read metrics"
	chgrp 0 "$M"
	diff <(echo "$PLACE") <(standing)
}

@test "with x but no r, a stranger who knows a name learns no more of it than stat(2) says" {
	roles
	local q=queues/q
	find "$Q" -type d -exec chmod o=x {} +
	mapfile -t lines < <(every $(of_queue $q; of_config $q; of_group $q/groups/g
		of_partition $q/partitions/default; of_lane $q/partitions/default/groups/g
		echo $q/push $q/push.json))
	cannot $STRANGER EACCES "${lines[@]}" "read $q/snapshots/s" "rename $q/groups/g/dlq/default@0 $q/push"
	not as $STRANGER getfattr -n user.queenfs.error $q/groups/g/dlq/default@0 2>/dev/null
	not as $STRANGER ls $q/groups 2>/dev/null
}

@test "errors: each user their own lines, root and who mounts all, also while it is open" {
	start
	chmod 777 "$M/queues"
	queue
	chmod 777 "$Q" "$G"
	local uid lines
	for uid in $PRODUCER $CONSUMER; do
		cannot $uid EINVAL "mkdir queues/.of-$uid"
		is "$(can $uid write queues/q/groups/g/cursor "of $uid")" EINVAL
	done
	# a tail that nobody is told of but errors: the last close, of a refused message
	as $PRODUCER perl -MFcntl -e 'sysopen(my $f, "queues/q/push.json", O_WRONLY) or die $!;
		syswrite($f, "{not json") or die $!' || true
	for uid in $PRODUCER $CONSUMER $STRANGER; do
		lines=$(as $uid cat errors)
		not grep -v " $uid [0-9]* queues/" <<<"${lines:- $uid 1 queues/}"
		is "$(as $uid stat -c %s errors)" "$(as $uid cat errors | wc -c)"
	done
	is "$(as $PRODUCER wc -l <"$M/errors")" 5
	is "$(as $PRODUCER cat errors | wc -l)" 3
	is "$(as $CONSUMER cat errors | wc -l)" 2
	is "$(as $STRANGER cat errors | wc -l)" 0
}

# ---- single bits --------------------------------------------------------------------

@test "a w-only directory lets nobody in; w and x let one push by name" {
	start
	queue
	chmod 772 "$Q"
	cannot $PRODUCER EACCES "write queues/q/push x" "read queues/q" "unlink queues/q/push"
	chmod 773 "$Q"
	may $PRODUCER "write queues/q/push x"
	cannot $PRODUCER EACCES "read queues/q" "read queues/q/stats" "read queues/q/pop"
	not as $PRODUCER ls queues/q 2>/dev/null
	chmod 774 "$Q"
	is "$(as $PRODUCER ls queues/q 2>/dev/null | grep -c push)" 2
	cannot $PRODUCER EACCES "read queues/q/stats"
	chmod 775 "$Q"
	may $PRODUCER "read queues/q/stats"
	cannot $PRODUCER EACCES "write queues/q/push x" "read queues/q/pop"
	is "$(cat "$P/log")" x
}

@test "each file takes the bits of its directory that it says" {
	start
	queue
	push "$Q" one two
	local d=queues/q/groups/g p=queues/q/partitions/default bits r w rw first
	first=$p/segments/$(printf %020d 0)
	for bits in 1 3 5 7; do
		chmod "77$bits" "$G" "$P" "$P/segments"
		r=EACCES w=EACCES rw=EACCES
		((bits & 4)) && r=ok
		((bits & 2)) && w=ok
		((bits == 7)) && rw=ok
		diff - <(as $STRANGER sys - <<-END
			open $d/cursor O_RDONLY
			open $d/cursor O_WRONLY
			open $d/cursor O_RDWR
			open $d/members O_RDONLY
			open $d/stats O_RDONLY
			open $d/pop O_RDONLY
			open $d/follow O_RDWR
			open $p/groups/g/follow O_RDWR
			open $p/log O_RDONLY
			open $p/push O_WRONLY
			open $p/push.json O_RDWR
			open $first O_RDONLY
			open $d/config/batch O_WRONLY
			open queues/q/config/batch O_WRONLY
		END
		) <<-END
			open $d/cursor O_RDONLY: $r
			open $d/cursor O_WRONLY: $w
			open $d/cursor O_RDWR: $rw
			open $d/members O_RDONLY: $r
			open $d/stats O_RDONLY: $r
			open $d/pop O_RDONLY: $rw
			open $d/follow O_RDWR: $rw
			open $p/groups/g/follow O_RDWR: $rw
			open $p/log O_RDONLY: $r
			open $p/push O_WRONLY: $w
			open $p/push.json O_RDWR: $rw
			open $first O_RDONLY: $r
			open $d/config/batch O_WRONLY: EACCES
			open queues/q/config/batch O_WRONLY: EACCES
		END
	done
	chmod 757 "$Q/config"
	may $STRANGER "write queues/q/config/batch 3"
	is "$(cat "$Q/config/batch")" 3
}

@test "a Unix group counts whether it is a user's first or another" {
	start
	queue
	chgrp $TEAM "$Q" "$G"
	chmod 770 "$Q" "$G"
	cannot $CONSUMER EACCES "write queues/q/push x" "read queues/q/groups/g/pop"
	GROUPS_OF=64050,$TEAM,64051 may $CONSUMER "write queues/q/push x"
	is "$(GROUPS_OF=64050,$TEAM as $CONSUMER cat queues/q/groups/g/pop)" x
	is "$(cd "$M" && setpriv --reuid $CONSUMER --regid $TEAM --clear-groups \
		cat queues/q/groups/g/cursor)" $'0\tdefault'
	# the class of a user is the first that fits, also if it may less
	chmod 707 "$Q"
	GROUPS_OF=$TEAM cannot $CONSUMER EACCES "write queues/q/push x"
	may $STRANGER "write queues/q/push x"
}
