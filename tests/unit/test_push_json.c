/* SPDX-License-Identifier: MIT */
/* test_push_json.c - section 2: push.json in the store, and what messages have besides. */
#include "store_int.h"
#include "store_test.h"

static int push_json(struct item *partition, const char *text)
{
	struct answer answer;

	store_push_json(test.queue, partition, text, strlen(text), 1, false, answer_done,
			answer_start(&answer));
	return answer_wait(&answer);
}

/* Only messages without a partition take a turn, whatever comes between them. */
static void test_spread_in_turn(void **state)
{
	(void)state;
	assert_int_equal(set(test.queue, SETTING_SPREAD, "2"), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(push_json(NULL, "{\"data\":1,\"partition\":\"p\"}\n"
						 "{\"data\":2}\n"),
				 0);
	assert_int_equal(info_of(test.partition).last_offset, 3);
	assert_int_equal(info_of(found(test.queue, ITEM_PARTITION, "0")).last_offset, 1);
	assert_int_equal(info_of(found(test.queue, ITEM_PARTITION, "1")).last_offset, 1);
}

/* What is kept in memory is bounded also where attributes are all of it. */
static void test_attributes_bounded(void **state)
{
	enum { LONG = 1000000, LINES = 30 };
	char *text = malloc(LONG + 100);
	const struct segment *segment;
	size_t kept = 0;

	(void)state;
	sprintf(text, "{\"data\":\"\",\"attributes\":{\"a\":\"%0*d\"}}\n", LONG, 0);
	for (int i = 0; i < LINES; i++)
		assert_int_equal(push_json(test.partition, text), 0);
	free(text);
	TAILQ_FOREACH(segment, &test.store->cache.lru, lru)
	kept += segment->meta_size;
	assert_true(kept < (size_t)10 * MiB);
}

/* And so is a segment: what many push at once is divided. */
static void test_attributes_divided(void **state)
{
	enum { LONG = 1000000, LINES = 12 };
	char *text = malloc(LONG + 100);
	struct answer answers[LINES];
	struct segment_info segments[LINES];

	(void)state;
	sprintf(text, "{\"data\":\"\",\"attributes\":{\"a\":\"%0*d\"}}\n", LONG, 0);
	hold_begin();
	for (int i = 0; i < LINES; i++)
		store_push_json(test.queue, test.partition, text, strlen(text), 1, false,
				answer_done, answer_start(&answers[i]));
	hold_end();
	for (int i = 0; i < LINES; i++)
		assert_int_equal(answer_wait(&answers[i]), 0);
	free(text);
	assert_int_equal(segments_of(test.partition, segments, LINES), LINES / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("messages without a partition are dealt in turn",
		     test_spread_in_turn),
		TEST("attributes count where memory is bounded", test_attributes_bounded),
		TEST("attributes count where a commit is divided",
		     test_attributes_divided),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("push_json", tests, NULL, NULL);
}
