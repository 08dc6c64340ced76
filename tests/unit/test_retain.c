/* SPDX-License-Identifier: MIT */
/* test_retain.c - sections 3 and 10: the oldest segments go, by rm and by the rules. */
#include "store_test.h"

static void push_times(struct item *partition, int count)
{
	for (int i = 0; i < count; i++)
		assert_int_equal(push(partition, "a line of some length\n"), 0);
}

/* ---- the end of the store ------------------------------------------------------------------ */

/* Alarms of two queues stand in one heap, and the queues are freed one after the other. */
static void test_close_with_alarms(void **state)
{
	struct item *queue;

	(void)state;
	assert_int_equal(set(test.queue, SETTING_RETENTION_SECONDS, "1h"), 0);
	push_times(test.partition, 1);
	queue = made(NULL, ITEM_QUEUE, "r");
	assert_int_equal(set(queue, SETTING_RETENTION_SECONDS, "2h"), 0);
	assert_int_equal(push_default(queue, "b\n"), 0);
	made(queue, ITEM_GROUP, "h");
	for (int i = 0; i < 3; i++) {
		struct answer answer;
		char name[16];
		snprintf(name, sizeof(name), "snapshot%d", i);
		store_snapshot_make(found(queue, ITEM_GROUP, "h"), name, answer_done,
				    answer_start(&answer));
		assert_int_equal(answer_wait(&answer), 0);
	}
	store_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("a store with alarms is closed", test_close_with_alarms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
