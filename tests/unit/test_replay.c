/* SPDX-License-Identifier: MIT */
/* test_replay.c - sections 8 and 11: .json readers, their marks, and filters. */
#include "store_test.h"

#include <stdatomic.h>

/* Reads until there is nothing at the moment, 4000 bytes at a time; valid until the next. */
static const char *read_all(struct reader *reader)
{
	size_t used = 0;
	ssize_t got;

	text_room((size_t)64 * 1024);
	while ((got = store_read(reader, test.text + used, 4000)) > 0) {
		used += (size_t)got;
		assert_true(used < (size_t)60 * 1024);
	}
	test.text[used] = '\0';
	return test.text;
}

static size_t count(const char *text, const char *what)
{
	size_t found_count = 0;

	for (; (text = strstr(text, what)); text++)
		found_count++;
	return found_count;
}

/* A partition that grew since the marks were set does not hold up the replay of others. */
static void test_leased_replay_ends(unsigned flags)
{
	struct item *b = made(test.queue, ITEM_PARTITION, "b");
	struct item *c = made(test.queue, ITEM_PARTITION, "c");
	struct reader *reader;
	char buffer[4000];
	const char *text;
	size_t ends = 0;

	assert_int_equal(set(test.queue, SETTING_BATCH, "10"), 0);
	assert_int_equal(push(test.partition, "p0\n"), 0);
	assert_int_equal(push(b, "b0\n"), 0);
	assert_int_equal(push(c, "c0\n"), 0);
	reader = opened_as(test.group, NULL, flags | READER_JSON | READER_LEASED);
	text = read_all(reader);
	assert_int_equal(count(text, "\"isReplay\":true"), 1);
	assert_int_equal(push(b, "b1\nb2\n"), 0);
	assert_int_equal(push(c, "c1\nc2\n"), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ack(reader, ACK, 0), 0);
		text = read_all(reader);
		assert_int_equal(count(text, "\"isReplay\":true"), 1);
		assert_int_equal(count(text, "\"isReplay\":false"), 0);
		ends += count(text, "replayEnd");
	}
	assert_int_equal(ack(reader, ACK, 0), 0);
	text = read_all(reader);
	assert_int_equal(count(text, "\"isReplay\":true"), 0);
	assert_int_equal(ends + count(text, "replayEnd"), flags ? 1 : 0);
	assert_int_equal(count(text, "\"isReplay\":false"), 2);
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_int_equal(count(read_all(reader), "\"isReplay\":false"), 2);
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_int_equal(store_read(reader, buffer, 100), flags ? -EAGAIN : 0);
}

static void test_leased_follow_replay(void **state)
{
	(void)state;
	test_leased_replay_ends(READER_FOLLOW);
}

static void test_leased_pop_replay(void **state)
{
	(void)state;
	test_leased_replay_ends(0);
}

/* An event that does not fit behind messages is whole in the next read. */
static void test_whole_events(void **state)
{
	struct item *other = made(test.queue, ITEM_GROUP, "h");
	struct reader *reader;
	char buffer[4000], *end;
	size_t size;

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	reader = opened_as(test.group, NULL, READER_FOLLOW | READER_JSON);
	assert_int_equal(count(read_all(reader), "\n"), 4);
	end = strstr(test.text, "{\"event\":\"replayEnd\"");
	assert_non_null(end);
	size = (size_t)(end - test.text);
	reader = opened_as(other, NULL, READER_FOLLOW | READER_JSON);
	assert_int_equal(store_read(reader, buffer, size + strlen(end) - 1), size);
	assert_read(reader, 3000, "{\"event\":\"replayEnd\",\"replayed\":2}\n");
}

/* ---- passing over many ---------------------------------------------------------------------- */

static void push_many(int count_of_lines)
{
	char *text = malloc((size_t)count_of_lines * 2 + 1);

	for (int i = 0; i < count_of_lines; i++)
		memcpy(text + (size_t)i * 2, "x\n", 3);
	assert_int_equal(push(test.partition, text), 0);
	free(text);
}

static void wake_post(void *arg)
{
	sem_post(arg);
}

/* A read that was passing over many messages is interrupted. */
static void interrupted_while_passing(struct reader *reader)
{
	char buffer[100];
	sem_t woken;

	sem_init(&woken, 0, 0);
	assert_int_equal(set(test.group, SETTING_FILTER, "data <> 'x'"), 0);
	for (bool cancelled = false; !cancelled;) {
		push_many(20000);
		assert_int_equal(store_read(reader, buffer, sizeof(buffer)), -EALREADY);
		assert_int_equal(store_wait(reader, wake_post, &woken), 0);
		cancelled = store_wait_cancel(reader);
		if (!cancelled) /* the thread that passes over was quicker */
			sem_take(&woken);
	}
	sem_destroy(&woken);
}

static void test_interrupted_polls(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, READER_FOLLOW);

	(void)state;
	interrupted_while_passing(reader);
	assert_int_equal(push(test.partition, "y\n"), 0);
	assert_true(store_readable(reader, NULL, NULL));
}

static void test_interrupted_holds_nothing(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, READER_LEASED);
	struct reader *other = opened(test.group, NULL);
	char buffer[100];
	ssize_t got;

	(void)state;
	interrupted_while_passing(reader);
	assert_int_equal(push(test.partition, "y\n"), 0);
	while ((got = store_read(other, buffer, sizeof(buffer))) == -EALREADY)
		;
	assert_int_equal(got, 2);
}

/* ---- acks of a span from which some were left out -------------------------------------------- */

static void test_acks_of_filtered(void **state)
{
	struct reader *reader = opened_as(test.group, test.partition, READER_LEASED);

	(void)state;
	assert_int_equal(set(test.group, SETTING_FILTER, "data <> 'x'"), 0);
	assert_int_equal(set(test.group, SETTING_BATCH, "4"), 0);
	assert_int_equal(push(test.partition, "x\n1\nx\nx\n4\n5\nx\n7\nx\n"), 0);
	assert_read(reader, 2, "1\n");
	assert_int_equal(committed(test.group, test.partition), 0);
	assert_read(reader, 2, "4\n");
	assert_int_equal(ack(reader, ACK_TO, 1), 0);
	assert_int_equal(committed(test.group, test.partition), 3);
	assert_int_equal(ack(reader, ACK_TO, 3), 0);
	assert_int_equal(committed(test.group, test.partition), 3);
	assert_int_equal(ack(reader, ACK_TO, 5), -ERANGE);
	assert_int_equal(ack(reader, ACK_DLQ, 0), 0);
	assert_int_equal(committed(test.group, test.partition), 4);
	assert_read(reader, 2, "5\n");
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_read(reader, 100, "5\n");
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_read(reader, 100, "7\n");
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_read(reader, 100, "");
	assert_int_equal(committed(test.group, test.partition), 8);
}

/* ---- poll beside a read --------------------------------------------------------------------- */

static struct reader *both;
static atomic_bool over;

static int read_or_poll(int index)
{
	char buffer[4000];
	int times = 0;

	if (index == 0) {
		while (store_read(both, buffer, sizeof(buffer)) > 0)
			times++;
		over = true;
		return times > 0;
	}
	while (!over)
		store_readable(both, NULL, NULL);
	return 0;
}

static void test_poll_beside_read(void **state)
{
	(void)state;
	push_many(20000);
	both = opened_as(test.group, NULL, READER_FOLLOW | READER_JSON);
	over = false;
	assert_int_equal(in_threads(read_or_poll, 2), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("follow.json: an event is never cut to fill a read",
		     test_whole_events),
		TEST("follow.json read-write: a replay of several that grow",
		     test_leased_follow_replay),
		TEST("pop.json read-write: a replay of several that grow",
		     test_leased_pop_replay),
		TEST("a read is interrupted while it passes over many, then polled",
		     test_interrupted_polls),
		TEST("a read is interrupted while it passes over many, others go on",
		     test_interrupted_holds_nothing),
		TEST("acks of a span from which the filter took some",
		     test_acks_of_filtered),
		TEST("poll and read at once", test_poll_beside_read),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
