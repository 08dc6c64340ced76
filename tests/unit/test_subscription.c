/* SPDX-License-Identifier: MIT */
/* test_subscription.c - section 6: what config/subscription and config/filter decide. */
#include "store_test.h"

/* A write that was refused by the disk moves nothing, whatever is written after it. */
static void test_failed_write_moves_nothing(void **state)
{
	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	sql("CREATE TRIGGER no BEFORE INSERT ON settings BEGIN "
	    "SELECT RAISE(ABORT, 'no'); END");
	assert_int_equal(set(test.group, SETTING_SUBSCRIPTION, "new"), -EIO);
	sql("DROP TRIGGER no");
	assert_int_equal(committed(test.group, test.partition), -1);
	assert_int_equal(set(test.queue, SETTING_SUBSCRIPTION, "new"), 0);
	assert_int_equal(committed(test.group, test.partition), -1);
	assert_pop(opened(test.group, test.partition), "a\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("a write that fails moves nothing", test_failed_write_moves_nothing),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("subscription", tests, NULL, NULL);
}
