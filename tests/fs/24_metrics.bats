#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Section 12: metrics, in Prometheus' text format.

load lib

# parsed - what a parser of Prometheus finds in its input: a line `name label=value... number`
# for each sample, labels by name. Fails where the format, or what Prometheus makes of it, is
# not kept: a family twice, without HELP or TYPE, a sample that is not its family's, a
# histogram that falls or does not end in +Inf, a counter that is no _total.
parsed() {
	local python
	for python in python3 /usr/bin/python3; do
		"$python" -c 'import prometheus_client.parser' 2>/dev/null && break
	done
	"$python" -c '
import sys
from prometheus_client.parser import text_string_to_metric_families
text = sys.stdin.read()
assert text.endswith("\n")
seen = set()
for family in text_string_to_metric_families(text):
    name = family.name + ("_total" if family.type == "counter" else "")
    assert name not in seen, name + " twice"
    seen.add(name)
    assert family.documentation, name + " without HELP"
    assert family.type in ("counter", "gauge", "histogram"), name + " without TYPE"
    last, buckets = 0, []
    samples = set()
    for sample in family.samples:
        ends = {"histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        assert sample.name in [name + end for end in ends], sample.name
        labels = sorted(sample.labels.items())
        assert (sample.name, tuple(labels)) not in samples, sample
        samples.add((sample.name, tuple(labels)))
        assert sample.value >= 0 and sample.timestamp is None, sample
        if sample.name == name + "_bucket":
            assert sample.value >= last, sample
            last = sample.value
            buckets.append(float(sample.labels["le"]))
        if sample.name == name + "_count":
            assert sample.value == last and buckets[-1] == float("inf"), sample
            assert buckets == sorted(set(buckets)), buckets
        print(" ".join([sample.name] + ["%s=%s" % l for l in labels] + ["%.6f" % sample.value]))
'
}

# figures - reads metrics, into a file that `figure` looks at.
figures() {
	parsed <"$M/metrics" >"$BATS_TEST_TMPDIR/figures"
}

# figure NAME [LABEL=VALUE...] - the number of that sample, without a fraction of zeros.
figure() {
	grep -F -- "queenfs_$* " "$BATS_TEST_TMPDIR/figures" |
		sed -n "s/^queenfs_$* \([0-9.]*\)\$/\1/p" | sed 's/\.000000$//'
}

# have NAME=NUMBER... - of group g; queue: of queue q; mount: without a label.
have() {
	local labels=() one
	case $1 in
	queue) labels=(queue=q) ;;
	group) labels=(group=g queue=q) ;;
	esac
	figures
	for one in "${@:2}"; do
		is "${one%=*} $(figure "${one%=*}" "${labels[@]}")" "${one%=*} ${one#*=}"
	done
}

nobody() { (cd "$M" && setpriv --reuid 65534 --regid 65534 --clear-groups "$@"); }

@test "metrics is in Prometheus' format, whatever queues and groups are called" {
	start
	figures
	queue a b
	mkdir "$M/queues/"'say "hi"' "$M/queues/"'say "hi"/groups/back\slash'
	mkdir "$M/queues/"'say "hi"/groups/ü\n{},='
	push "$Q" one
	pops "$G/pop" one
	figures
	is "$(figure 'group_lag_messages' 'group=g' 'queue=q')" 0
	grep -qxF 'queenfs_group_readers group=back\slash queue=say "hi" 0.000000' \
		"$BATS_TEST_TMPDIR/figures"
	grep -qxF 'queenfs_group_readers group=ü\n{},= queue=say "hi" 0.000000' \
		"$BATS_TEST_TMPDIR/figures"
	is "$(grep -c '^queenfs_queue_bytes ' "$BATS_TEST_TMPDIR/figures")" 2
	is "$(grep -c '^queenfs_group_readers ' "$BATS_TEST_TMPDIR/figures")" 3
	not grep -q 'partition=' "$BATS_TEST_TMPDIR/figures"
}

@test "promtool finds nothing to say of metrics" {
	command -v promtool >/dev/null || skip "no promtool"
	start
	queue
	push "$Q" one
	run -0 promtool check metrics <"$M/metrics"
	is "$output" ""
}

@test "pushes are counted in messages and bytes, what is retained in segments too" {
	start
	queue
	have queue pushed_messages_total=0 pushed_bytes_total=0 queue_messages=0 queue_bytes=0 \
		queue_segments=0 queue_partitions=0
	is "$(sys write "$Q/push" $'one\ntwo\n')" ok
	push "$Q" three
	mkdir "$Q/partitions/empty"
	have queue pushed_messages_total=3 pushed_bytes_total=14 queue_messages=3 \
		queue_bytes=14 queue_segments=2 queue_partitions=2
	rm "$(segment "$P" 0)"
	have queue pushed_messages_total=3 pushed_bytes_total=14 queue_messages=1 \
		queue_bytes=6 queue_segments=1
	is "$(stat_of "$Q/stats" segments) $(stat_of "$P/stats" segments)" "1 1"
}

@test "what was de-duplicated is not pushed" {
	start
	queue
	local line='{"transactionId":"a","data":"x"}'
	printf '%s\n' "$line" >"$Q/push.json"
	printf '%s\n' "$line" >"$Q/push.json"
	have queue pushed_messages_total=1
}

@test "popped, acked, failed, redelivered, dead-lettered and skipped are counted" {
	start
	queue
	setting "$G" retry_limit 0
	push "$Q" 1 2 3 4 5 6
	have group popped_messages_total=0 acked_messages_total=0 failed_messages_total=0 \
		redelivered_messages_total=0 dead_lettered_messages_total=0 \
		skipped_messages_total=0 group_lag_messages=6
	pops "$G/pop" 1
	have group popped_messages_total=1 acked_messages_total=1 group_lag_messages=5
	is "$(handle rw "$G/follow" read ack read)" '[2\n] ok [3\n]'
	pops_soon "$G/pop" 3
	have group popped_messages_total=3 acked_messages_total=3 \
		redelivered_messages_total=1 group_lag_messages=3
	is "$(handle rw "$G/follow" read fail)" '[4\n] ok'
	have group failed_messages_total=1 dead_lettered_messages_total=1 \
		popped_messages_total=4 acked_messages_total=3 group_lag_messages=2
	local base
	for base in 0 1 2 3 4; do rm "$(segment "$P" "$base")"; done
	pops "$G/pop" 6
	have group skipped_messages_total=1 popped_messages_total=5 acked_messages_total=4 \
		group_lag_messages=0
	# the same numbers as in stats
	local key
	for key in acked failed redelivered dead_lettered skipped; do
		is "$(figure "${key}_messages_total" group=g queue=q)" "$(stat_of "$G/stats" "$key")"
	done
}

@test "what a filter passes over and fails at is counted" {
	start
	queue
	setting "$G" filter "data -> '\$.a' = '1'"
	push "$Q" '{"a":2}' '{"a":1}' bad
	pops "$G/pop" '{"a":1}' bad
	have group filtered_messages_total=1 filter_errors_total=1 popped_messages_total=2 \
		acked_messages_total=3
}

@test "the oldest unread message has its age, in many segments too" {
	start
	queue a b
	have group group_oldest_unread_seconds=0
	push "$Q/partitions/a" 1 2 3 4
	push "$Q/partitions/b" 1 2 3
	pops "$Q/partitions/a/groups/g/pop" 1
	pops "$Q/partitions/b/groups/g/pop" 1
	local age created before
	created=$(date -d "$(attribute "$(segment "$Q/partitions/a" 1)" created_at)" +%s%6N)
	before=$(date +%s%6N)
	figures
	age=$(figure group_oldest_unread_seconds group=g queue=q)
	[ "$((created + 10#${age/./}))" -ge "$before" ] # when it was read
	[ "$((created + 10#${age/./}))" -le "$(date +%s%6N)" ]
	echo end >"$G/cursor"
	have group group_oldest_unread_seconds=0
}

@test "readers, those that wait and what they hold are counted" {
	start
	queue a b
	push "$Q/partitions/a" 1
	local fd
	exec {fd}<>"$G/follow"
	is "$(handle fd "$fd" read)" '[1\n]'
	have group group_readers=1 group_waiting_readers=0 group_leased_partitions=1
	reader "$BATS_TEST_TMPDIR/out" "$Q/partitions/b/groups/g/follow"
	wait_until waiting 1
	have group group_readers=2 group_waiting_readers=1 group_leased_partitions=1
	is "$(handle fd "$fd" ack)" ok
	have group group_leased_partitions=0
}

@test "commits are counted, timed and sized; the store and its WAL have sizes" {
	start
	queue
	local before
	figures
	before=$(figure commits_total)
	is "$(sys write "$Q/push" $'1\n2\n3\n4\n5\n')" ok
	push "$Q" 1 2
	figures
	is "$(figure commits_total)" "$((before + 3))"
	is "$(figure commit_seconds_count)" "$(figure commits_total)"
	is "$(figure commit_messages_count) $(figure commit_messages_sum)" "3 7"
	is "$(figure commit_messages_bucket le=1) $(figure commit_messages_bucket le=16)" "2 3"
	[ "$(figure commit_seconds_sum)" != 0 ]
	is "$(figure commit_failures_total) $(figure store_full)" "0 0"
	is "$(figure store_bytes)" "$(stat -c %s "$S")"
	[ "$(figure wal_bytes)" -gt 0 ]
}

@test "counters begin at 0 when the daemon starts, and it says when that was" {
	local before after
	before=$(date +%s)
	start
	queue
	push "$Q" one two
	pops "$G/pop" one
	have queue pushed_messages_total=2 queue_messages=2 queue_segments=2
	after=$(date +%s)
	[ "$(figure start_time_seconds | cut -d. -f1)" -ge "$before" ]
	[ "$(figure start_time_seconds | cut -d. -f1)" -le "$after" ]
	is "$(figure build_info "version=$(cut -d' ' -f2 "$M/version")")" 1
	before=$(figure start_time_seconds)
	remount
	have queue pushed_messages_total=0 queue_messages=2 queue_segments=2
	have group acked_messages_total=0 group_lag_messages=1
	[[ $(figure start_time_seconds) > $before ]]
}

@test "counters do not fall when a partition goes, and go with their queue and group" {
	start
	queue a
	push "$Q/partitions/a" 1 2
	pops "$G/pop" 1
	rm -rf "$Q/partitions/a"
	have group popped_messages_total=1 acked_messages_total=1
	have queue pushed_messages_total=2 queue_messages=0
	rmdir "$G"
	figures
	not grep -q 'group=' "$BATS_TEST_TMPDIR/figures"
	rm -rf "$Q"
	figures
	not grep -q 'queue=' "$BATS_TEST_TMPDIR/figures"
}

@test "metrics is for the owner and the group of the mount's root, whatever its mode" {
	start
	queue
	is "$(stat -c '%A %s' "$M/metrics")" "-r--r----- 0"
	chmod 777 "$M"
	is "$(stat -c %A "$M/metrics")" "-r--r-----"
	not nobody cat metrics 2>"$BATS_TEST_TMPDIR/why"
	has "$BATS_TEST_TMPDIR/why" 'Permission denied'
	is "$(nobody cat version)" "$(cat "$M/version")"
	not nobody dd if=metrics of=/dev/null status=none 2>/dev/null
	is "$(sys write "$M/metrics" x)" EACCES
	is "$(sys chmod "$M/metrics" 644)" EPERM
	chgrp 65534 "$M"
	nobody cat metrics | parsed >/dev/null
	chgrp 0 "$M"
	not nobody cat metrics 2>/dev/null
	chown 65534 "$M"
	nobody cat metrics | parsed >/dev/null
	chmod 077 "$M"
	is "$(stat -c %A "$M/metrics")" "----r-----"
}

@test "README names each family, and no other" {
	start
	diff -u --label README --label metrics \
		<(grep -o '^| `queenfs_[^|]*' "$BATS_TEST_DIRNAME/../../README.md" |
			grep -o 'queenfs_[a-z_]*' | sort) \
		<(sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' "$M/metrics" | sort)
}
