/* SPDX-License-Identifier: MIT */
/* test_replay.c - sections 8 and 11: .json readers, their marks, and filters. */
#include "store_test.h"

/* Reads until there is nothing at the moment, 4000 bytes at a time; valid until the next. */
static const char *read_all(struct reader *reader)
{
	size_t used = 0;
	ssize_t got;

	text_room(64 * 1024);
	while ((got = store_read(reader, test.text + used, 4000)) > 0) {
		used += (size_t)got;
		assert_true(used < 60 * 1024);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("follow.json read-write: a replay of several that grow",
		     test_leased_follow_replay),
		TEST("pop.json read-write: a replay of several that grow",
		     test_leased_pop_replay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
