/* SPDX-License-Identifier: MIT */
/*
 * test_pop.c - section 4: claims, what a reader returns, and what consuming comes to.
 */
#include "store_test.h"

static struct item *second_group(void)
{
	return made(test.queue, ITEM_GROUP, "h");
}

/* ---- what a pop returns ------------------------------------------------------------ */

static void test_one_message(void **state)
{
	struct reader *reader = opened(test.group, test.partition);

	(void)state;
	assert_pop(reader, "");
	assert_int_equal(push(test.partition, "a\n\nlonger\n"), 0);
	assert_int_equal(push(test.partition, "b\n"), 0);
	assert_pop(reader, "a\n");
	assert_pop(reader, "\n");
	assert_pop(reader, "longer\n");
	assert_pop(reader, "b\n");
	assert_pop(reader, "");
	assert_pop(reader, "");
	assert_int_equal(push(test.partition, "c\n"), 0);
	assert_pop(reader, "c\n");
}

static void test_pieces(void **state)
{
	/* the size of each read, and what "0123456\n" is divided into */
	static const struct {
		size_t size;
		const char *pieces[10];
	} cases[] = {
		{ 1, { "0", "1", "2", "3", "4", "5", "6", "\n", "" } },
		{ 3, { "012", "345", "6\n", "" } },
		{ 4, { "0123", "456\n", "" } },
		{ 7, { "0123456", "\n", "" } },
		{ 8, { "0123456\n", "" } },
		{ 9, { "0123456\n", "" } },
	};
	struct reader *reader = opened(test.group, test.partition);

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(push(test.partition, "0123456\n"), 0);
		for (int k = 0; cases[i].pieces[k]; k++) {
			bool whole = strchr(cases[i].pieces[k], '\n');
			assert_read(reader, cases[i].size, cases[i].pieces[k]);
			assert_int_equal(committed(test.group, test.partition),
					 whole || !cases[i].pieces[k][0]
						 ? (int64_t)i
						 : (int64_t)i - 1);
		}
	}
	assert_pop(reader, "");
}

static void test_large_message(void **state)
{
	struct reader *reader = opened(test.group, test.partition);
	struct messages expected = long_line(1, 'y', MiB);
	const char *text;

	(void)state;
	assert_int_equal(push_messages(test.partition, long_line(0, 'x', MiB)), 0);
	assert_int_equal(push_messages(test.partition, long_line(1, 'y', MiB)), 0);
	assert_int_equal(push(test.partition, "end\n"), 0);
	text = drain(reader);
	assert_int_equal(strlen(text), 2 * MiB + 4);
	assert_memory_equal(text + MiB, expected.data, MiB);
	assert_string_equal(text + (size_t)2 * MiB, "end\n");
	messages_free(&expected);
}

/* More than the cache holds, so that most comes from the disk, also after a reopen. */
static void test_cold(void **state)
{
	enum { ROUNDS = 24, EACH = MiB / 2 };

	(void)state;
	for (unsigned i = 0; i < ROUNDS; i++) {
		assert_int_equal(push_messages(test.partition, long_line(i, 'x', EACH)),
				 0);
		assert_int_equal(push(test.partition, "short\nshort\n"), 0);
	}
	for (int round = 0; round < 2; round++) {
		const char *text = drain(opened(test.group, test.partition));
		for (unsigned i = 0; i < ROUNDS; i++) {
			assert_int_equal(atoi(text), i);
			assert_memory_equal(text + EACH - 1, "\nshort\nshort\n", 13);
			text += EACH + 12;
		}
		assert_int_equal(*text, '\0');
		assert_int_equal(committed(test.group, test.partition), 3 * ROUNDS - 1);
		reopen();
		assert_int_equal(committed(test.group, test.partition), 3 * ROUNDS - 1);
		assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	}
}

/* Offsets 0 and 1 are short, 2 does not fit a page, 3 is short again. */
static void test_damage(void **state)
{
	static const struct {
		const char *sql;
		int64_t offset; /* the message that cannot be read */
	} damages[] = {
		{ "UPDATE segments SET ends = zeroblob(4) WHERE base = 0", 0 },
		{ "UPDATE segments SET ends = x'0400000002000000' WHERE base = 0", 0 },
		{ "UPDATE segments SET ends = x'02000000ff000000' WHERE base = 0", 0 },
		{ "UPDATE segments SET data = zeroblob(3) WHERE base = 0", 0 },
		{ "UPDATE segments SET data = NULL WHERE base = 0", 0 },
		{ "UPDATE segments SET size = 5 WHERE base = 0", 0 },
		{ "UPDATE segments SET last = 5 WHERE base = 0", 0 },
		{ "UPDATE bodies SET ends = zeroblob(8)", 2 },
		{ "UPDATE bodies SET data = zeroblob(30001)", 2 },
		{ "UPDATE segments SET body = body + 1 WHERE base = 2", 2 },
		{ "DELETE FROM bodies", 2 },
		{ "DELETE FROM segments WHERE base = 2", 2 },
	};
	char buffer[40000];

	(void)state;
	for (size_t i = 0; i < COUNT(damages); i++) {
		uint64_t at = damages[i].offset == 0 ? 0 : 4;
		_Atomic int64_t hint = 0;
		struct reader *reader;
		assert_int_equal(push(test.partition, "a\nb\n"), 0);
		assert_int_equal(push_messages(test.partition, long_line(0, 'x', 30000)),
				 0);
		assert_int_equal(push(test.partition, "c\n"), 0);
		store_stop();
		sql(damages[i].sql);
		assert_int_equal(store_start(), 0);
		find_own();
		reader = opened(test.group, test.partition);
		if (damages[i].offset == 2) {
			assert_pop(reader, "a\n");
			assert_pop(reader, "b\n");
		}
		for (size_t size = 1; size < sizeof(buffer); size *= 3000)
			if (store_read(reader, buffer, size) != -EIO)
				fail_msg("%s: it was popped", damages[i].sql);
		if (store_log_read(test.partition, at, &hint, buffer, 2) != -EIO)
			fail_msg("%s: it is in the log", damages[i].sql);
		assert_int_equal(committed(test.group, test.partition),
				 damages[i].offset - 1);
		/* a seek gets past it */
		assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET, 2),
				 0);
		assert_pop(reader, "c\n");
		teardown(state);
		assert_int_equal(setup(state), 0);
	}
}

/* ---- leases ------------------------------------------------------------------------ */

static void test_closed_early(void **state)
{
	struct reader *reader;

	(void)state;
	assert_int_equal(push(test.partition, "abc\nd\n"), 0);
	for (size_t size = 1; size < 4; size++) {
		reader = opened(test.group, size == 2 ? test.partition : NULL);
		assert_read(reader, size, size == 1 ? "a" : size == 2 ? "ab" : "abc");
		closed(reader);
		assert_int_equal(committed(test.group, test.partition), -1);
	}
	reader = opened(test.group, test.partition);
	assert_pop(reader, "abc\n");
	closed(reader);
	assert_pop(opened(test.group, test.partition), "d\n");
}

static void test_one_span(void **state)
{
	struct item *other = made(test.queue, ITEM_PARTITION, "other");
	struct reader *first = opened(test.group, test.partition);
	struct reader *second = opened(test.group, test.partition);
	struct reader *third = opened(test.group, NULL);

	(void)state;
	assert_int_equal(push(test.partition, "ab\ncd\n"), 0);
	assert_int_equal(push(other, "xy\n"), 0);
	assert_read(first, 1, "a");
	assert_pop(second, "");
	assert_pop(third, "xy\n");
	assert_pop(third, "");
	/* the other group does not notice */
	assert_pop(opened(second_group(), test.partition), "ab\n");
	assert_read(first, 10, "b\n");
	/* the pop is over with its last byte, whether its end was read or not */
	assert_read(second, 1, "c");
	assert_read(first, 10, "");
	assert_pop(first, "");
	assert_pop(third, "");
	assert_read(second, 10, "d\n");
}

static void test_in_turn(void **state)
{
	struct item *a = made(test.queue, ITEM_PARTITION, "a");
	struct item *b = made(test.queue, ITEM_PARTITION, "b");
	struct reader *reader, *one;

	(void)state;
	assert_int_equal(push(test.partition, "p0\np1\np2\n"), 0);
	assert_int_equal(push(a, "a0\n"), 0);
	assert_int_equal(push(b, "b0\nb1\n"), 0);
	reader = opened(test.group, NULL);
	assert_string_equal(drain(reader), "p0\na0\nb0\np1\nb1\np2\n");
	/* as much from each of several, whoever reads: two readers share the turn */
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	one = opened(test.group, NULL);
	assert_read(reader, 1, "p");
	assert_pop(one, "a0\n");
	assert_pop(one, "b0\n");
	assert_pop(one, "b1\n");
	assert_pop(one, "");
	assert_pop(reader, "0\n");
	assert_pop(one, "p1\n");
	assert_pop(reader, "p2\n");
	/* what comes while it reads, of new partitions as well */
	assert_int_equal(push_default(test.queue, "d0\n"), 0);
	assert_int_equal(push(a, "a1\n"), 0);
	assert_string_equal(drain(reader), "d0\na1\n");
}

static void test_groups_apart(void **state)
{
	struct item *group = second_group();
	struct reader *g = opened(test.group, NULL), *h = opened(group, NULL);

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_pop(g, "a\n");
	assert_pop(h, "a\n");
	assert_pop(h, "b\n");
	assert_int_equal(seek_to(group, NULL, SEEK_TO_START, 0), 0);
	assert_int_equal(committed(test.group, test.partition), 0);
	assert_pop(g, "b\n");
	assert_pop(g, "");
	assert_pop(h, "a\n");
	closed(h);
	assert_int_equal(drop(group), 0);
	assert_int_equal(committed(test.group, test.partition), 1);
	/* one that comes later has it all before it */
	assert_string_equal(drain(opened(second_group(), NULL)), "a\nb\n");
}

/* ---- a message that was begun ------------------------------------------------------ */

/* Begins "abc\n", loses its lease in one of these ways, and finishes it. */
static void test_begun_is_finished(void **state)
{
	static const struct {
		bool rm, whole_queue;
		enum seek_kind kind;
		const char *next;
		int64_t committed; /* once it is finished */
	} cases[] = {
		{ false, false, SEEK_TO_START, "0\n", -1 },
		{ false, false, SEEK_TO_END, "", 2 },
		{ false, false, SEEK_TO_OFFSET, "abc\n", 0 },
		{ false, true, SEEK_TO_START, "0\n", -1 },
		{ false, true, SEEK_TO_END, "", 2 },
		{ .rm = true, .next = "z\n", .committed = 1 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct item *p = test.partition;
		struct reader *reader = opened(test.group, i % 2 ? NULL : p);
		assert_int_equal(push(p, "0\n"), 0);
		assert_int_equal(push(p, "abc\n"), 0);
		assert_int_equal(push(p, "z\n"), 0);
		assert_pop(reader, "0\n");
		assert_read(reader, 1, "a");
		if (cases[i].rm) {
			assert_int_equal(segment_drop(p, 0), 0);
			assert_int_equal(segment_drop(p, 1), 0);
		} else {
			assert_int_equal(seek_to(test.group,
						 cases[i].whole_queue ? NULL : p,
						 cases[i].kind, 0),
					 0);
		}
		assert_read(reader, 1, "b");
		assert_read(reader, 1, "c");
		assert_read(reader, 1, "\n");
		assert_read(reader, 10, "");
		assert_int_equal(committed(test.group, p), cases[i].committed);
		assert_pop(reader, cases[i].next);
		teardown(state);
		assert_int_equal(setup(state), 0);
	}
}

/* Meanwhile another reader has what the seek asked for. */
static void test_begun_and_taken(void **state)
{
	struct reader *first = opened(test.group, test.partition), *second;

	(void)state;
	assert_int_equal(push(test.partition, "abc\ndef\n"), 0);
	assert_read(first, 1, "a");
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_START, 0), 0);
	second = opened(test.group, test.partition);
	assert_read(second, 2, "ab");
	assert_read(first, 10, "bc\n");
	assert_int_equal(committed(test.group, test.partition), -1);
	assert_read(first, 10, "");
	assert_pop(first, ""); /* the second has the lease */
	assert_pop(second, "c\n");
	assert_pop(first, "def\n");
}

/* ---- a reply that got lost --------------------------------------------------------- */

static void test_unread(void **state)
{
	struct reader *reader = opened(test.group, test.partition), *other;

	(void)state;
	assert_int_equal(push(test.partition, "abc\nd\n"), 0);
	store_unread(reader);
	assert_read(reader, 10, "abc\n");
	store_unread(reader);
	store_unread(reader);
	assert_int_equal(committed(test.group, test.partition), -1);
	/* whoever comes first */
	other = opened(test.group, NULL);
	assert_pop(other, "abc\n");
	assert_pop(other, "d\n");
	/* what was told is told: its end was read, so it had arrived */
	store_unread(other);
	assert_int_equal(committed(test.group, test.partition), 1);
}

/* A read that was interrupted is repeated by whoever goes on: it has no end before it. */
static void test_unread_again(void **state)
{
	struct reader *reader = opened(test.group, test.partition);

	(void)state;
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_read(reader, 10, "a\n");
	store_unread(reader);
	assert_pop(reader, "a\n");
	assert_pop(reader, "");
}

static void test_unread_went_on(void **state)
{
	struct reader *reader = opened(test.group, test.partition);
	struct reader *other = opened(test.group, NULL);

	(void)state;
	assert_int_equal(push(test.partition, "a\nbc\nd\n"), 0);
	assert_read(reader, 10, "a\n");
	assert_read(other, 1, "b"); /* the other is in the middle of the next */
	store_unread(reader);
	assert_read(other, 10, "c\n");
	assert_int_equal(committed(test.group, test.partition), 1);
	assert_read(reader, 10, "");
	assert_read(reader, 10, "d\n");
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), 0);
	store_unread(reader); /* a seek in between has the last word */
	assert_int_equal(committed(test.group, test.partition), 2);
}

/* ---- what lasts -------------------------------------------------------------------- */

static void test_committed_soon(void **state)
{
	(void)state;
	assert_int_equal(push(test.partition, "a\nb\nc\n"), 0);
	assert_pop(opened(test.group, test.partition), "a\n");
	wait_for(sql("SELECT count(*) FROM cursors WHERE committed = 0") == 1);
	assert_pop(test.readers[0], "b\n");
	wait_for(sql("SELECT count(*) FROM cursors WHERE committed = 1") == 1);
	/* and when the store is closed */
	assert_pop(test.readers[0], "c\n");
	reopen();
	assert_int_equal(committed(test.group, test.partition), 2);
	assert_pop(opened(test.group, test.partition), "");
}

static void test_passed_by_rm(void **state)
{
	struct reader *reader = opened(test.group, NULL);

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(push(test.partition, i ? "b\n" : "a\n"), 0);
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(committed(test.group, test.partition), 0);
	assert_pop(reader, "b\n");
	assert_int_equal(segment_drop(test.partition, 1), 0);
	assert_int_equal(segment_drop(test.partition, 2), 0);
	assert_pop(reader, "");
	assert_int_equal(committed(test.group, test.partition), 2);
	reopen();
	assert_int_equal(committed(test.group, test.partition), 2);
	assert_int_equal(push(test.partition, "d\n"), 0);
	assert_pop(opened(test.group, NULL), "d\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("a pop is one message, then its end; the read after that is another",
		     test_one_message),
		TEST("a message longer than the read comes in pieces and is popped with "
		     "its last byte",
		     test_pieces),
		TEST("a message of 1 MiB comes whole", test_large_message),
		TEST("what the cache has forgotten is read again", test_cold),
		TEST("a damaged segment is EIO and is not consumed", test_damage),
		TEST("a reader closed early gives its message back", test_closed_early),
		TEST("one partition and group have one span", test_one_span),
		TEST("a reader of the queue takes partitions in turn", test_in_turn),
		TEST("two groups never affect each other", test_groups_apart),
		TEST("a message that was begun is finished after a seek and after an rm",
		     test_begun_is_finished),
		TEST("finishing a message whose lease was lost acks nothing",
		     test_begun_and_taken),
		TEST("what a lost reply consumed is unread again", test_unread),
		TEST("a pop whose reply was lost begins again", test_unread_again),
		TEST("unread moves nothing once somebody went on", test_unread_went_on),
		TEST("what was consumed is committed soon and at the closing",
		     test_committed_soon),
		TEST("a cursor below the oldest resumes at the oldest",
		     test_passed_by_rm),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("pop", tests, NULL, NULL);
}
