/* SPDX-License-Identifier: MIT */
/*
 * test_wait.c - who waits is woken, and what goes by itself goes on, also while others push
 * without a pause: then whoever commits has the next batch before it is done with this one.
 */
#include "store_test.h"

#include <stdatomic.h>

#define MOST 100000

static struct {
	struct item *partition; /* pushed to */
	atomic_bool enough;
	atomic_uint pushes;
	sem_t ended;
} stream;

static void stream_push(void);

static void stream_done(void *arg, const struct store_result *result)
{
	(void)arg;
	(void)result;
	if (!stream.enough && stream.pushes < MOST)
		stream_push();
	else
		sem_post(&stream.ended);
}

static void stream_push(void)
{
	struct messages messages = lines("x\n");

	stream.pushes++;
	store_push(test.queue, stream.partition, &messages, stream_done, NULL);
}

static void stream_wake(void *arg)
{
	(void)arg;
	stream_push();
}

static void enough_wake(void *arg)
{
	(void)arg;
	stream.enough = true;
}

/* From inside the wake-up of a reader of p, as a read does that has something to commit. */
static void stream_begin(struct item *partition)
{
	struct reader *holder = opened_as(test.group, test.partition, READER_LEASED);
	struct reader *next =
		opened_as(test.group, test.partition, READER_LEASED | READER_FOLLOW);
	char buffer[10];

	stream.partition = partition;
	stream.enough = false;
	stream.pushes = 0;
	sem_init(&stream.ended, 0, 0);
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(store_read(holder, buffer, sizeof(buffer)), 2);
	assert_int_equal(store_read(next, buffer, sizeof(buffer)), -EAGAIN);
	assert_int_equal(store_wait(next, stream_wake, NULL), 0);
	closed(holder);
}

static void test_others_are_woken(void **state)
{
	struct item *b = made(test.queue, ITEM_PARTITION, "b");
	struct reader *reader = opened_as(test.group, b, READER_FOLLOW);
	char buffer[10];

	(void)state;
	assert_int_equal(store_read(reader, buffer, sizeof(buffer)), -EAGAIN);
	assert_int_equal(store_wait(reader, enough_wake, NULL), 0);
	stream_begin(b);
	sem_take(&stream.ended);
	assert_true(stream.pushes < MOST);
}

static void test_retention_goes_on(void **state)
{
	struct item *b = made(test.queue, ITEM_PARTITION, "b");

	(void)state;
	assert_int_equal(set(test.queue, SETTING_RETENTION_BYTES, "100"), 0);
	stream_begin(b);
	wait_for(info_of(b).first_offset > 0 || stream.pushes >= MOST);
	assert_true(stream.pushes < MOST);
	stream.enough = true;
	sem_take(&stream.ended);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("a reader is woken while a callback's commit meets more pushes",
		     test_others_are_woken),
		TEST("retention goes on while the timer thread commits for pushers",
		     test_retention_goes_on),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
