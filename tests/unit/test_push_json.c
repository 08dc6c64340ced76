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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("messages without a partition are dealt in turn",
		     test_spread_in_turn),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("push_json", tests, NULL, NULL);
}
