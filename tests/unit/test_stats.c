/* SPDX-License-Identifier: MIT */
/*
 * test_stats.c - what stats and metrics show: counters of groups, queues and commits, lag, the
 * age of the oldest unread message.
 */
#include "store_test.h"

#define LEASED READER_LEASED
#define FOLLOW READER_FOLLOW

static struct group_stats group_stats(void)
{
	struct group_stats stats;

	assert_int_equal(store_group_stats(test.group, &stats), 0);
	return stats;
}

static struct queue_stats queue_stats(void)
{
	struct queue_stats stats;

	store_queue_stats(test.queue, &stats);
	return stats;
}

static struct store_stats all_stats(void)
{
	struct store_stats stats;

	store_stats(test.store, &stats);
	return stats;
}

/* delivered redelivered acked failed dead_lettered skipped filtered filter_errors, of the
 * group and, as there is but one partition, of its cursor. */
#define assert_counts(expected) counts_expect((expected), __FILE__, __LINE__)
static void counts_expect(const char *expected, const char *file, int line)
{
	struct counts of[2];
	struct cursor_info info;
	char text[200];

	assert_int_equal(store_cursor_info(test.group, test.partition, &info), 0);
	of[0] = group_stats().counts;
	of[1] = info.counts;
	for (size_t i = 0; i < COUNT(of); i++) {
		const uint64_t numbers[] = { of[i].delivered,	  of[i].redelivered,
					     of[i].acked,	  of[i].failed,
					     of[i].dead_lettered, of[i].skipped,
					     of[i].filtered,	  of[i].filter_errors };
		size_t used = 0;
		for (size_t n = 0; n < COUNT(numbers); n++)
			used += (size_t)snprintf(text + used, sizeof(text) - used,
						 "%s%" PRIu64, n ? " " : "", numbers[n]);
		if (strcmp(text, expected) != 0) {
			print_error("%zu: %s, not %s\n", i, text, expected);
			_fail(file, line);
		}
	}
}

/* One read, once what it waits for is committed. */
static void reads(struct reader *reader, const char *expected)
{
	char buffer[4096];
	ssize_t got;

	wait_for((got = store_read(reader, buffer, sizeof(buffer) - 1)) != -EALREADY);
	assert_int_equal(got, strlen(expected));
	assert_memory_equal(buffer, expected, strlen(expected));
}

static void test_counts(void **state)
{
	struct reader *reader;

	(void)state;
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(push(test.partition, "b\nc\nd\ne\nf\n"), 0);
	assert_counts("0 0 0 0 0 0 0 0");
	reader = opened(test.group, NULL);
	assert_pop(reader, "a\n");
	assert_counts("1 0 1 0 0 0 0 0");
	closed(reader);
	reader = opened_as(test.group, NULL, FOLLOW);
	assert_read(reader, 2, "b\n");
	assert_counts("2 0 1 0 0 0 0 0");
	assert_read(reader, 2, "c\n"); /* which acks b */
	assert_counts("3 0 2 0 0 0 0 0");
	closed(reader);
	assert_int_equal(set(test.group, SETTING_BATCH, "2"), 0);
	assert_int_equal(set(test.group, SETTING_RETRY_LIMIT, "1"), 0);
	reader = opened_as(test.group, NULL, LEASED);
	reads(reader, "c\n");
	assert_counts("3 1 2 0 0 0 0 0");
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_counts("3 1 3 0 0 0 0 0");
	reads(reader, "d\ne\n");
	assert_counts("5 1 3 0 0 0 0 0");
	assert_int_equal(ack(reader, ACK_TO, 3), 0);
	assert_counts("5 1 4 0 0 0 0 0");
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_counts("5 1 4 1 0 0 0 0");
	reads(reader, "e\n");
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_counts("5 2 4 2 1 0 0 0");
	reads(reader, "f\n");
	assert_int_equal(ack(reader, ACK_RETRY, 0), 0);
	reads(reader, "f\n");
	assert_int_equal(ack(reader, ACK_DLQ, 0), 0);
	assert_counts("7 2 4 2 2 0 0 0"); /* retry: as if not delivered */
	closed(reader);
	/* a seek acks nothing */
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), 0);
	assert_counts("7 2 4 2 2 0 0 0");
}

static void test_skipped(void **state)
{
	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_int_equal(push(test.partition, "c\n"), 0);
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_counts("0 0 0 0 0 0 0 0");
	assert_pop(opened(test.group, NULL), "c\n");
	assert_counts("1 0 1 0 0 2 0 0");
}

static void test_filtered(void **state)
{
	struct reader *reader;

	(void)state;
	assert_int_equal(set(test.group, SETTING_FILTER, "data -> '$.a' = '1'"), 0);
	assert_int_equal(push(test.partition, "{\"a\":2}\n{\"a\":1}\nbad\n{\"a\":3}\n"),
			 0);
	reader = opened(test.group, NULL);
	assert_pop(reader, "{\"a\":1}\n");
	assert_counts("1 0 2 0 0 0 1 0");
	assert_pop(reader, "bad\n");
	assert_counts("2 0 3 0 0 0 1 1");
	assert_pop(reader, "");
	assert_counts("2 0 4 0 0 0 2 1");
}

/* What happened in a partition stays counted when it is removed. */
static void test_counters_stay(void **state)
{
	struct item *other = made(test.queue, ITEM_PARTITION, "other");

	(void)state;
	assert_int_equal(push(other, "a\nb\n"), 0);
	assert_pop(opened(test.group, NULL), "a\n");
	assert_int_equal(segment_drop(other, 0), 0);
	assert_int_equal(drop(other), 0);
	assert_int_equal(group_stats().counts.delivered, 1);
	assert_int_equal(group_stats().counts.acked, 1);
	assert_int_equal(group_stats().partitions, 1);
	assert_int_equal(queue_stats().pushed, 2);
	assert_int_equal(queue_stats().pushed_bytes, 4);
	assert_int_equal(queue_stats().offsets, 0);
	reopen();
	assert_int_equal(queue_stats().pushed, 0);
	assert_int_equal(group_stats().counts.delivered, 0);
}

static void test_queue(void **state)
{
	struct queue_stats stats = queue_stats();
	struct item *other = made(test.queue, ITEM_PARTITION, "other");

	(void)state;
	assert_int_equal(stats.partitions, 1);
	assert_int_equal(stats.groups, 1);
	assert_int_equal(stats.segments, 0);
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_int_equal(push(test.partition, "c\n"), 0);
	assert_int_equal(push(other, "dd\n"), 0);
	for (int round = 0; round < 2; round++) {
		stats = queue_stats();
		assert_int_equal(stats.partitions, 2);
		assert_int_equal(stats.messages, 4);
		assert_int_equal(stats.bytes, 9);
		assert_int_equal(stats.segments, 3);
		assert_int_equal(stats.offsets, 4);
		assert_int_equal(stats.pushed, round ? 0 : 4);
		reopen();
	}
	assert_int_equal(segment_drop(test.partition, 0), 0);
	stats = queue_stats();
	assert_int_equal(stats.messages, 2);
	assert_int_equal(stats.bytes, 5);
	assert_int_equal(stats.segments, 2);
	assert_int_equal(stats.offsets, 4);
}

/* More partitions than are looked at in one go. */
static void test_many(void **state)
{
	enum { MANY = 3000 };
	char name[16];

	(void)state;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		assert_int_equal(make(test.queue, ITEM_PARTITION, name), 0);
	}
	for (int i = 0; i < MANY; i += 1000) {
		snprintf(name, sizeof(name), "p%d", i);
		assert_int_equal(push(found(test.queue, ITEM_PARTITION, name), "a\nb\n"),
				 0);
	}
	assert_int_equal(queue_stats().partitions, MANY + 1);
	assert_int_equal(group_stats().partitions, MANY + 1);
	for (int i = 1; i < MANY; i += 2) { /* holes */
		snprintf(name, sizeof(name), "p%d", i);
		assert_int_equal(drop(found(test.queue, ITEM_PARTITION, name)), 0);
		store_put(test.items[--test.item_count]);
	}
	assert_int_equal(queue_stats().partitions, MANY / 2 + 1);
	assert_int_equal(queue_stats().messages, 6);
	assert_int_equal(group_stats().partitions, MANY / 2 + 1);
	assert_int_equal(group_stats().lag, 6);
	assert_true(group_stats().age_us > 0);
}

/* ---- the oldest unread message ---------------------------------------------------------- */

/* What the store says when asked for each partition. */
static int64_t oldest_by_lookup(struct item *const *partitions, size_t count)
{
	struct segment_info info;
	int64_t oldest = 0;

	for (size_t i = 0; i < count; i++) {
		int64_t at = committed(test.group, partitions[i]);
		if (at == info_of(partitions[i]).last_offset)
			continue;
		assert_int_equal(store_segment_of(partitions[i], at + 1, &info), 0);
		if (!oldest || info.created_us < oldest)
			oldest = info.created_us;
	}
	return oldest;
}

static void test_oldest(void **state)
{
	enum { PARTITIONS = 5, SEGMENTS = 6, STEPS = 400 };
	struct item *partitions[PARTITIONS];
	struct cursor_info info;
	unsigned seed = 1;
	char name[16];

	(void)state;
	for (int i = 0; i < PARTITIONS; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		partitions[i] = made(test.queue, ITEM_PARTITION, name);
	}
	assert_int_equal(group_stats().oldest_us, 0);
	assert_int_equal(group_stats().age_us, 0);
	for (int i = 0; i < PARTITIONS * SEGMENTS; i++)
		assert_int_equal(push(partitions[i % PARTITIONS], "a\nb\n"), 0);
	/* Anything that moves a cursor or an end of a partition, in any order. */
	for (int step = 0; step < STEPS; step++) {
		struct item *partition;
		struct partition_info now;
		int64_t span;
		seed = seed * 1103515245 + 12345;
		partition = partitions[(seed >> 16) % PARTITIONS];
		now = info_of(partition);
		span = now.last_offset - now.first_offset + 2;
		switch ((seed >> 8) % 8) {
		case 0:
			assert_int_equal(push(partition, "c\n"), 0);
			break;
		case 1:
			if (now.first_offset <= now.last_offset)
				assert_int_equal(
					segment_drop(partition, now.first_offset), 0);
			break;
		default:
			assert_int_equal(seek_to(test.group, partition, SEEK_TO_OFFSET,
						 now.first_offset - 1 +
							 (int64_t)(seed >> 20) % span),
					 0);
		}
		if (step % 3 == 0)
			assert_int_equal(group_stats().oldest_us,
					 oldest_by_lookup(partitions, PARTITIONS));
		if (step % 2 == 0) {
			assert_int_equal(store_cursor_info(test.group, partition, &info),
					 0);
			assert_int_equal(info.oldest_us, oldest_by_lookup(&partition, 1));
		}
	}
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), 0);
	assert_int_equal(group_stats().oldest_us, 0);
	assert_int_equal(drop(test.group), 0);
	assert_int_equal(store_group_stats(test.group, &(struct group_stats){ 0 }),
			 -ESTALE);
}

/* One commit that pushes a message to each of so many partitions, p0 first or last. */
static void push_each(int count, bool backwards)
{
	enum { LINE = 40 };
	char *text = malloc((size_t)count * LINE);
	struct answer answer;
	size_t used = 0;

	assert_non_null(text);
	for (int i = 0; i < count; i++)
		used += (size_t)snprintf(text + used, LINE,
					 "{\"partition\":\"p%d\",\"data\":1}\n",
					 backwards ? count - 1 - i : i);
	store_push_json(test.queue, NULL, text, used, 1, false, answer_done,
			answer_start(&answer));
	free(text);
	assert_int_equal(answer_wait(&answer), 0);
}

/* More partitions than are looked up at once, and the oldest message where it is looked for
 * last: what is said is never older than the truth, and is the truth the second time. */
static void test_oldest_of_many(void **state)
{
	enum { MANY = 6000 };
	struct seek seek = { .kind = SEEK_TO_TABLE, .count = MANY };
	struct segment_info truth;
	struct answer answer;
	char name[16];

	(void)state;
	push_each(MANY, false);
	push_each(MANY, true);
	push_each(MANY, false);
	seek.rows = calloc(MANY, sizeof(*seek.rows));
	assert_non_null(seek.rows);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		seek.rows[i].partition = strdup(name);
	}
	store_seek(test.group, NULL, &seek, answer_done, answer_start(&answer));
	assert_int_equal(answer_wait(&answer), 0);
	assert_int_equal(
		store_segment(found(test.queue, ITEM_PARTITION, name), 1, &truth), 0);
	assert_true(group_stats().oldest_us > truth.created_us);
	assert_int_equal(group_stats().oldest_us, truth.created_us);
	assert_int_equal(group_stats().lag, 2 * MANY);
	assert_int_equal(queue_stats().segments, 3 * MANY);
}

/* ---- commits ------------------------------------------------------------------------------ */

static uint64_t values(const struct histogram *histogram)
{
	uint64_t count = 0;

	for (unsigned i = 0; i <= histogram->bound_count; i++)
		count += histogram->counts[i];
	return count;
}

static void test_commits(void **state)
{
	struct store_stats before = all_stats(), stats;
	struct answer answers[3];

	(void)state;
	assert_int_equal(values(&before.commit_us), before.commits);
	assert_int_equal(values(&before.commit_messages), 0);
	assert_int_equal(before.commit_us.bounds[0], 10);
	assert_int_equal(before.commit_us.bounds[before.commit_us.bound_count - 1],
			 10000000);
	for (unsigned i = 1; i < before.commit_us.bound_count; i++)
		assert_true(before.commit_us.bounds[i] > before.commit_us.bounds[i - 1]);
	/* three pushes that one commit stores */
	hold_begin();
	for (size_t i = 0; i < COUNT(answers); i++)
		push_start(test.queue, test.partition, "a\nb\n", &answers[i]);
	hold_end();
	for (size_t i = 0; i < COUNT(answers); i++)
		assert_int_equal(answer_wait(&answers[i]), 0);
	stats = all_stats();
	assert_int_equal(stats.commits - before.commits, 2); /* the held one too */
	assert_int_equal(values(&stats.commit_us), stats.commits);
	assert_true(stats.commit_us.sum > before.commit_us.sum);
	assert_int_equal(stats.commit_messages.sum, 6);
	assert_int_equal(values(&stats.commit_messages), 1);
	assert_int_equal(stats.commit_messages.bounds[1], 4);
	assert_int_equal(stats.commit_messages.counts[2], 1); /* 5 to 16 */
	assert_int_equal(stats.commit_failures, 0);
	assert_true(stats.store_bytes > 0);
	assert_true(stats.wal_bytes > 0);
	assert_int_equal(stats.full, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("what becomes of messages is counted, of a group as of its cursor",
		     test_counts),
		TEST("what was removed unread is skipped", test_skipped),
		TEST("what the filter passes over is acked and filtered", test_filtered),
		TEST("counters outlive partitions, and start at 0 with the store",
		     test_counters_stay),
		TEST("a queue is the sum of its partitions", test_queue),
		TEST("sums are whole over thousands of partitions, with holes",
		     test_many),
		TEST("the oldest unread message is what a look at each partition finds",
		     test_oldest),
		TEST("behind in thousands of partitions it is found step by step",
		     test_oldest_of_many),
		TEST("commits are counted, timed and sized", test_commits),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
