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

/* ---- a partition that goes while it is to be swept ----------------------------------------- */

/* The timer thread meanwhile queues its sweep behind what waits. */
static void set_done(void *arg, const struct store_result *result)
{
	nanosleep(&(struct timespec){ 0, 200000000 }, NULL);
	answer_done(arg, result);
}

static void test_sweep_of_dropped(void **state)
{
	struct answer answers[3];

	(void)state;
	push_times(test.partition, 1);
	wait_for(store_now(test.store) > info_of(test.partition).modified_us + 1000000);
	hold_begin();
	store_setting_set(test.queue, SETTING_RETENTION_SECONDS, "1", set_done,
			  answer_start(&answers[0]));
	store_segment_drop(test.partition, 0, answer_done, answer_start(&answers[1]));
	store_drop(test.partition, answer_done, answer_start(&answers[2]));
	hold_end();
	for (size_t i = 0; i < COUNT(answers); i++)
		assert_int_equal(answer_wait(&answers[i]), 0);
	assert_int_equal(sync_store(), 0);
	/* Whoever sets an alarm now meets it. */
	store_put(test.partition);
	for (size_t i = 0; i < test.item_count; i++)
		if (test.items[i] == test.partition)
			test.items[i] = test.items[--test.item_count];
	test.partition = NULL;
	assert_int_equal(set(test.queue, SETTING_RETENTION_SECONDS, "1h"), 0);
	assert_int_equal(push_default(test.queue, "b\n"), 0);
}

/* ---- a commit that fails ------------------------------------------------------------------- */

/* The sweep is in a batch that fails before the sweep has its turn: it comes again. */
static void test_sweep_in_failed_batch(void **state)
{
	struct reader *reader = opened(test.group, test.partition);

	(void)state;
	assert_pop(reader, ""); /* the first read has a job of its own */
	push_times(test.partition, 2);
	wait_for(store_now(test.store) > info_of(test.partition).modified_us + 1000000);
	assert_int_equal(set(test.queue, SETTING_COMPLETED_RETENTION_SECONDS, "1"), 0);
	sql("CREATE TRIGGER no BEFORE INSERT ON cursors BEGIN "
	    "SELECT RAISE(ABORT, 'no'); END");
	hold_begin();
	assert_pop(reader, "a line of some length\n");
	nanosleep(&(struct timespec){ 0, 200000000 }, NULL);
	hold_end();
	assert_int_equal(info_of(test.partition).first_offset, 0);
	sql("DROP TRIGGER no");
	assert_int_equal(set(test.queue, SETTING_COMPLETED_RETENTION_SECONDS, "1"), 0);
	wait_for(info_of(test.partition).first_offset == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("a store with alarms is closed", test_close_with_alarms),
		TEST("a partition is dropped before it is swept", test_sweep_of_dropped),
		TEST("a sweep whose batch fails comes again", test_sweep_in_failed_batch),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("retain", tests, NULL, NULL);
}
