/* SPDX-License-Identifier: MIT */
/*
 * test_segments.c - section 3: the log and its segments, and removing the oldest.
 */
#include "store_test.h"

static const char *const pushes[] = { "zero\n", "one\ntwo\n", "three\n", "\n\n\n",
				      "end\n" };
#define LOG "zero\none\ntwo\nthree\n\n\n\nend\n"

static void push_all(void)
{
	for (size_t i = 0; i < COUNT(pushes); i++)
		assert_int_equal(push(test.partition, pushes[i]), 0);
}

static void log_expect(const char *expected)
{
	struct partition_info info = info_of(test.partition);
	char buffer[64];

	for (size_t size = 1; size <= strlen(LOG) + 1; size++) {
		_Atomic int64_t hint = 0;
		uint64_t at = info.first_position;
		size_t used = 0;
		ssize_t got;
		while ((got = store_log_read(test.partition, at, &hint, buffer + used,
					     size)) > 0) {
			used += (size_t)got;
			at += (uint64_t)got;
		}
		assert_int_equal(got, 0);
		assert_int_equal(used, strlen(expected));
		assert_memory_equal(buffer, expected, used);
	}
}

static void test_log(void **state)
{
	_Atomic int64_t hint;
	char byte;

	(void)state;
	log_expect("");
	push_all();
	for (int round = 0; round < 2; round++) {
		log_expect(LOG);
		/* from any position, with any hint */
		for (uint64_t at = 0; at < strlen(LOG); at++)
			for (int64_t base = -1; base < 9; base++) {
				hint = base;
				assert_int_equal(store_log_read(test.partition, at, &hint,
								&byte, 1),
						 1);
				assert_int_equal(byte, LOG[at]);
			}
		hint = 0;
		assert_int_equal(
			store_log_read(test.partition, strlen(LOG), &hint, &byte, 1), 0);
		assert_int_equal(store_log_read(test.partition, 1000, &hint, &byte, 1),
				 0);
		reopen();
	}
}

/* Reading on from where a reader stands meets what is pushed later. */
static void test_log_grows(void **state)
{
	_Atomic int64_t hint = 0;
	uint64_t at = 0;
	char buffer[64];

	(void)state;
	for (size_t i = 0; i < COUNT(pushes); i++) {
		ssize_t got;
		assert_int_equal(push(test.partition, pushes[i]), 0);
		got = store_log_read(test.partition, at, &hint, buffer, sizeof(buffer));
		assert_int_equal(got, strlen(pushes[i]));
		assert_memory_equal(buffer, pushes[i], (size_t)got);
		at += (uint64_t)got;
	}
}

static void test_segment_index(void **state)
{
	static const int64_t bases[] = { 0, 1, 3, 4, 7 };
	struct segment_info segments[8], info;

	(void)state;
	assert_int_equal(store_segment(test.partition, 0, &info), -ENOENT);
	assert_int_equal(store_segment_next(test.partition, -1, &info), -ENOENT);
	push_all();
	for (int round = 0; round < 2; round++) {
		size_t next = 0;
		assert_int_equal(segments_of(test.partition, segments, 8), COUNT(bases));
		for (int64_t base = -1; base <= 9; base++) {
			bool here = next < COUNT(bases) && bases[next] == base;
			assert_int_equal(store_segment(test.partition, base, &info),
					 here ? 0 : -ENOENT);
			if (here) {
				assert_memory_equal(&info, &segments[next], sizeof(info));
				assert_int_equal(info.size, strlen(pushes[next]));
				next++;
			}
			assert_int_equal(store_segment_next(test.partition, base, &info),
					 next < COUNT(bases) ? 0 : -ENOENT);
			if (next < COUNT(bases))
				assert_int_equal(info.base_offset, bases[next]);
		}
		reopen();
	}
}

static void test_drop_oldest(void **state)
{
	_Atomic int64_t hint = 0;
	struct partition_info info;
	char byte;

	(void)state;
	assert_int_equal(segment_drop(test.partition, 0), -ENOENT);
	push_all();
	assert_int_equal(segment_drop(test.partition, 1), -EBUSY);
	assert_non_null(strstr(refused_why, "00000000000000000000"));
	assert_int_equal(segment_drop(test.partition, 7), -EBUSY);
	assert_int_equal(segment_drop(test.partition, 8), -ENOENT);
	assert_int_equal(segment_drop(test.partition, -1), -ENOENT);
	log_expect(LOG);
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(segment_drop(test.partition, 0), -ENOENT);
	assert_int_equal(segment_drop(test.partition, 1), 0);
	for (int round = 0; round < 2; round++) {
		info = info_of(test.partition);
		assert_int_equal(info.first_offset, 3);
		assert_int_equal(info.first_position, strlen("zero\none\ntwo\n"));
		assert_int_equal(info.segments, 3);
		log_expect("three\n\n\n\nend\n");
		for (uint64_t at = 0; at < info.first_position; at++)
			assert_int_equal(
				store_log_read(test.partition, at, &hint, &byte, 1),
				-ESTALE);
		reopen();
	}
}

static void test_log_of_dropped(void **state)
{
	_Atomic int64_t hint = 0;
	char byte;

	(void)state;
	push_all();
	assert_int_equal(store_log_read(test.partition, 0, &hint, &byte, 1), 1);
	for (int base = 0; base <= 7; base++)
		segment_drop(test.partition, base);
	assert_int_equal(store_log_read(test.partition, 0, &hint, &byte, 1), -ESTALE);
	assert_int_equal(store_log_read(test.partition, strlen(LOG), &hint, &byte, 1), 0);
	assert_int_equal(drop(test.partition), 0);
	assert_int_equal(store_log_read(test.partition, strlen(LOG), &hint, &byte, 1),
			 -ESTALE);
}

/* Empties the partition in several ways and checks that nothing starts anew. */
static void test_goes_on(void **state)
{
	struct segment_info segment;
	struct partition_info info;
	int64_t newest_us = 0;

	(void)state;
	for (int round = 0; round < 4; round++) {
		int64_t offset = 8 * (int64_t)round;
		push_all();
		if (round & 1)
			reopen();
		while (store_segment_next(test.partition, -1, &segment) == 0) {
			assert_true(segment.created_us > newest_us);
			newest_us = segment.created_us;
			assert_int_equal(segment.base_offset, offset);
			offset = segment.end_offset + 1;
			assert_int_equal(
				segment_drop(test.partition, segment.base_offset), 0);
		}
		if (round & 2)
			reopen();
		info = info_of(test.partition);
		assert_int_equal(info.first_offset, 8 * (round + 1));
		assert_int_equal(info.last_offset, 8 * (round + 1) - 1);
		assert_int_equal(info.first_position,
				 strlen(LOG) * (unsigned)(round + 1));
		assert_int_equal(info.end_position, info.first_position);
		assert_int_equal(info.segments, 0);
		assert_int_equal(committed(test.group, test.partition), info.last_offset);
		assert_true(store_now(test.store) >= newest_us);
		log_expect("");
	}
	assert_int_equal(push(test.partition, "again\n"), 0);
	assert_int_equal(info_of(test.partition).segments, 1);
	assert_string_equal(log_text(test.partition), "again\n");
	assert_pop(opened(test.group, NULL), "again\n");
}

/* ---- reading what is being removed ------------------------------------------------- */

enum { LINES = 400, LINE = 7 };

static int remove_all(void)
{
	struct segment_info segment;

	while (store_segment_next(test.partition, -1, &segment) == 0)
		if (segment_drop(test.partition, segment.base_offset))
			return 1;
	return 0;
}

/* Reads at the beginning of what is retained until nothing is. */
static int read_oldest(void)
{
	struct partition_info info;
	char expected[LINE + 1], line[LINE];
	int wrong = 0;

	while ((info = info_of(test.partition)).first_offset < LINES) {
		_Atomic int64_t hint = 0;
		ssize_t got = store_log_read(test.partition, info.first_position, &hint,
					     line, sizeof(line));
		snprintf(expected, sizeof(expected), "%06d\n",
			 (int)(info.first_position / LINE));
		wrong += got < 0 ? got != -ESTALE
				 : got != LINE || memcmp(line, expected, LINE) != 0;
	}
	return wrong;
}

static int remove_or_read(int index)
{
	return index ? read_oldest() : remove_all();
}

static void test_read_while_removed(void **state)
{
	char line[LINE + 1];

	(void)state;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < LINES; i++) {
			snprintf(line, sizeof(line), "%06d\n", i);
			assert_int_equal(push(test.partition, line), 0);
		}
		assert_int_equal(in_threads(remove_or_read, 3), 0);
		teardown(state);
		assert_int_equal(setup(state), 0);
	}
}

/* What does not fit a page stands elsewhere, and goes with its segment. */
static void test_drop_large(void **state)
{
	struct segment_info segment;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(push(test.partition, "a\n"), 0);
		assert_int_equal(
			push_messages(test.partition,
				      long_line(i, 'x', (size_t)i * 9000 + 9000)),
			0);
	}
	while (store_segment_next(test.partition, -1, &segment) == 0)
		assert_int_equal(segment_drop(test.partition, segment.base_offset), 0);
	assert_int_equal(sql("SELECT count(*) FROM segments"), 0);
	assert_int_equal(sql("SELECT count(*) FROM bodies"), 0);
}

/* modified_us is the last commit; when empty, the making. */
static void test_modified(void **state)
{
	struct partition_info info = info_of(test.partition);
	struct segment_info segments[8];
	int64_t made_us = info.made_us;
	size_t count;

	(void)state;
	assert_int_equal(info.modified_us, made_us);
	push_all();
	count = segments_of(test.partition, segments, 8);
	assert_int_equal(info_of(test.partition).modified_us,
			 segments[count - 1].created_us);
	reopen();
	assert_int_equal(info_of(test.partition).modified_us,
			 segments[count - 1].created_us);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(segment_drop(test.partition, segments[i].base_offset),
				 0);
	for (int round = 0; round < 2; round++) {
		info = info_of(test.partition);
		assert_int_equal(info.made_us, made_us);
		assert_int_equal(info.modified_us, segments[count - 1].created_us);
		reopen();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("the log is everything retained, from any position on", test_log),
		TEST("reading on at the log's end meets what is pushed later",
		     test_log_grows),
		TEST("a segment is found by its base alone, and listed by what is above",
		     test_segment_index),
		TEST("only the oldest segment can be removed; below it is ESTALE",
		     test_drop_oldest),
		TEST("the log of a dropped partition is ESTALE", test_log_of_dropped),
		TEST("offsets, positions and times go on after all was removed",
		     test_goes_on),
		TEST("a large segment leaves nothing behind", test_drop_large),
		TEST("reading what is being removed is ESTALE, never wrong bytes",
		     test_read_while_removed),
		TEST("the log was modified by the last commit, also when that was "
		     "removed",
		     test_modified),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("segments", tests, NULL, NULL);
}
