/* SPDX-License-Identifier: MIT */
/*
 * test_seek.c - section 5: where a seek lands, and the things that it does together.
 */
#include "store_test.h"

/* ---- where it lands ---------------------------------------------------------------- */

static void lands(struct item *partition, enum seek_kind kind, int64_t value,
		  int64_t expected)
{
	int error = seek_to(test.group, partition, kind, value);

	if (error || committed(test.group, test.partition) != expected)
		fail_msg("%d to %" PRId64 ": got %d, %" PRId64 ", not %" PRId64, kind,
			 value, error, committed(test.group, test.partition), expected);
}

/* Of the partition alone and of its queue it is the same. */
static void lands_both(enum seek_kind kind, int64_t value, int64_t expected)
{
	lands(test.partition, SEEK_TO_END, 0, info_of(test.partition).last_offset);
	lands(test.partition, kind, value, expected);
	lands(NULL, SEEK_TO_START, 0, info_of(test.partition).first_offset - 1);
	lands(NULL, kind, value, expected);
}

static void refused(int64_t offset)
{
	int64_t before = committed(test.group, test.partition);

	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET, offset),
			 -ERANGE);
	assert_int_not_equal(refused_why[0], '\0');
	assert_int_equal(committed(test.group, test.partition), before);
}

/* Every place of a log of these segments, `first` being the oldest retained. */
static void places_expect(const struct segment_info *segments, size_t count)
{
	int64_t first = info_of(test.partition).first_offset;
	int64_t last = info_of(test.partition).last_offset;

	for (size_t i = 0; i < count; i++) {
		int64_t at = segments[i].created_us, base = segments[i].base_offset;
		bool gap = i + 1 == count || segments[i + 1].created_us > at + 1;
		lands_both(SEEK_TO_TIME, at, base - 1);
		if (i == 0 || segments[i - 1].created_us < at - 1)
			lands_both(SEEK_TO_TIME, at - 1, base - 1);
		if (gap)
			lands_both(SEEK_TO_TIME, at + 1, segments[i].end_offset);
	}
	lands_both(SEEK_TO_TIME, INT64_MIN, first - 1);
	lands_both(SEEK_TO_TIME, 0, first - 1);
	lands_both(SEEK_TO_TIME, store_now(test.store) + 1, last);
	lands_both(SEEK_TO_TIME, INT64_MAX, last);
	lands_both(SEEK_TO_START, 0, first - 1);
	lands_both(SEEK_TO_END, 0, last);
	for (int64_t offset = first - 1; offset <= last; offset++)
		lands(test.partition, SEEK_TO_OFFSET, offset, offset);
	refused(first - 2);
	refused(last + 1);
	refused(INT64_MIN);
	refused(INT64_MAX);
}

static void test_places(void **state)
{
	struct segment_info segments[8];
	size_t count;

	(void)state;
	places_expect(NULL, 0);
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_int_equal(push(test.partition, "c\n"), 0);
	assert_int_equal(push(test.partition, "d\ne\nf\n"), 0);
	count = segments_of(test.partition, segments, 8);
	places_expect(segments, count);
	reopen();
	for (size_t i = 0; i < count; i++) {
		places_expect(segments + i, count - i);
		assert_int_equal(segment_drop(test.partition, segments[i].base_offset),
				 0);
	}
	places_expect(segments, 0);
	assert_int_equal(info_of(test.partition).last_offset, 5);
	reopen();
	places_expect(segments, 0);
}

static void test_many_segments(void **state)
{
	static struct segment_info segments[250];
	static const char *const pushes[] = { "a\n", "a\nb\nc\nd\ne\nf\ng\n", "a\nb\n" };
	size_t count;

	(void)state;
	for (size_t i = 0; i < COUNT(segments); i++)
		assert_int_equal(push(test.partition, pushes[i * i % 7 % 3]), 0);
	assert_int_equal(segment_drop(test.partition, 0), 0);
	count = segments_of(test.partition, segments, COUNT(segments));
	for (size_t i = 0; i < count; i++) {
		lands(test.partition, SEEK_TO_TIME, segments[i].created_us,
		      segments[i].base_offset - 1);
		lands(test.partition, SEEK_TO_TIME, segments[i].created_us + 1,
		      segments[i].end_offset);
	}
}

/* Each partition has its own segments: one time is another place in each. */
static void test_whole_queue(void **state)
{
	struct item *other = made(test.queue, ITEM_PARTITION, "other");
	struct item *empty = made(test.queue, ITEM_PARTITION, "empty");
	struct segment_info segments[4];
	unsigned before;

	(void)state;
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(push(other, "b\nc\n"), 0);
	assert_int_equal(push(test.partition, "d\ne\n"), 0);
	assert_int_equal(push(other, "f\n"), 0);
	assert_int_equal(segments_of(other, segments, 4), 2);
	before = transactions();
	lands(NULL, SEEK_TO_TIME, segments[0].created_us, 0);
	assert_int_equal(transactions(), before + 1);
	assert_int_equal(committed(test.group, other), -1);
	assert_int_equal(committed(test.group, empty), -1);
	lands(NULL, SEEK_TO_TIME, segments[1].created_us, 2);
	assert_int_equal(committed(test.group, other), 1);
	lands(NULL, SEEK_TO_END, 0, 2);
	assert_int_equal(committed(test.group, other), 2);
	assert_int_equal(committed(test.group, empty), -1);
}

static void test_no_partitions(void **state)
{
	static const enum seek_kind kinds[] = { SEEK_TO_START, SEEK_TO_END, SEEK_TO_TIME,
						SEEK_TO_TABLE };

	(void)state;
	assert_int_equal(drop(test.partition), 0);
	for (size_t i = 0; i < COUNT(kinds); i++) {
		assert_int_equal(seek_to(test.group, NULL, kinds[i], 0), -ENOENT);
		assert_string_equal(refused_why, "queue not found or has no partitions");
	}
}

/* ---- tables ------------------------------------------------------------------------ */

/* A table as text: `<partition>=<committed>` and blanks. */
static struct seek table_of(const char *text)
{
	struct seek seek = { .kind = SEEK_TO_TABLE,
			     .rows = calloc(8, sizeof(*seek.rows)) };
	char name[8];
	int length;

	assert_non_null(seek.rows);
	for (; sscanf(text, " %7[^=]=%" SCNd64 "%n", name,
		      &seek.rows[seek.count].committed, &length) == 2;
	     text += length)
		seek.rows[seek.count++].partition = strdup(name);
	return seek;
}

static void test_tables(void **state)
{
	/* a holds 0..3, b 2..5, c nothing, d nothing after 0..1; all stand at `before` */
	static const char before[] = "a=1 b=3 c=-1 d=1";
	static const struct {
		const char *table;
		int error;
		const char *after;
	} cases[] = {
		{ "a=2 b=4 c=-1 d=1", 0, "a=2 b=4 c=-1 d=1" },
		{ "d=1 c=-1 b=5 a=3", 0, "a=3 b=5 c=-1 d=1" },
		{ "a=0", 0, "a=0 b=3 c=-1 d=1" },
		{ "", 0, "a=1 b=3 c=-1 d=1" },
		{ "*=-1", 0, "a=-1 b=1 c=-1 d=1" },
		{ "*=-1 a=2", 0, "a=2 b=1 c=-1 d=1" },
		{ "b=5 *=-1", 0, "a=-1 b=5 c=-1 d=1" },
		/* below the oldest lands there */
		{ "a=-2 b=-1 d=0", 0, "a=-1 b=1 c=-1 d=1" },
		{ "b=0", 0, "a=1 b=1 c=-1 d=1" },
		{ "b=-9223372036854775808", 0, "a=1 b=1 c=-1 d=1" },
		/* refused: nothing has moved */
		{ "a=4 b=2", -ERANGE, before },
		{ "b=2 a=4", -ERANGE, before },
		{ "c=0", -ERANGE, before },
		{ "d=2", -ERANGE, before },
		{ "a=9223372036854775807", -ERANGE, before },
		{ "a=2 e=0", -ENOENT, before },
		{ "e=0 *=-1", -ENOENT, before },
		{ "default=0", -ENOENT, before },
		{ "a=0 b=2 a=0", -EINVAL, before },
		{ "a=0 a=2", -EINVAL, before },
		{ "*=-1 a=0 *=-1", -EINVAL, before },
	};
	struct item *queue = made(NULL, ITEM_QUEUE, "tables"), *group, *d;

	(void)state;
	assert_int_equal(push(made(queue, ITEM_PARTITION, "d"), "0\n1\n"), 0);
	made(queue, ITEM_PARTITION, "c");
	assert_int_equal(push(made(queue, ITEM_PARTITION, "a"), "0\n1\n2\n3\n"), 0);
	assert_int_equal(push(made(queue, ITEM_PARTITION, "b"), "0\n1\n"), 0);
	assert_int_equal(push(found(queue, ITEM_PARTITION, "b"), "2\n3\n4\n5\n"), 0);
	assert_int_equal(segment_drop(found(queue, ITEM_PARTITION, "b"), 0), 0);
	d = found(queue, ITEM_PARTITION, "d");
	assert_int_equal(segment_drop(d, 0), 0);
	group = made(queue, ITEM_GROUP, "g");
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct committed_row *rows;
		struct seek seek = table_of(before);
		struct answer answer;
		char text[64] = "";
		size_t count;
		store_seek(group, NULL, &seek, answer_done, answer_start(&answer));
		assert_int_equal(answer_wait(&answer), 0);
		seek = table_of(cases[i].table);
		store_seek(group, NULL, &seek, answer_done, answer_start(&answer));
		if (answer_wait(&answer) != cases[i].error)
			fail_msg("%s: got %d %s", cases[i].table, answer.error,
				 refused_why);
		assert_null(seek.rows);
		assert_int_equal(refused_why[0] != '\0', cases[i].error != 0);
		assert_int_equal(store_committed_all(group, &rows, &count), 0);
		for (size_t k = 0; k < count; k++) {
			snprintf(text + strlen(text), sizeof(text) - strlen(text),
				 "%s%s=%" PRId64, k ? " " : "",
				 store_name(rows[k].partition), rows[k].committed);
			store_put(rows[k].partition);
		}
		free(rows);
		if (strcmp(text, cases[i].after) != 0)
			fail_msg("%s: %s", cases[i].table, text);
	}
}

static void test_check(void **state)
{
	static const struct {
		const char *partition;
		int64_t committed;
		int error;
	} rows[] = {
		{ "p", -1, 0 },	       { "p", 1, 0 },
		{ "p", INT64_MIN, 0 }, { "p", 2, -ERANGE },
		{ "q", 0, -ENOENT },   { "*", -1, 0 },
		{ "", -1, -ENOENT },   { "p", INT64_MAX, -ERANGE },
		{ "P", -1, -ENOENT },
	};

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	for (size_t i = 0; i < COUNT(rows); i++) {
		char name[8];
		struct seek_row row = { name, rows[i].committed };
		struct store_why why = { "" };
		snprintf(name, sizeof(name), "%s", rows[i].partition);
		assert_int_equal(store_seek_check(test.group, &row, 0, &why),
				 rows[i].error);
		assert_int_equal(why.text[0] != '\0', rows[i].error != 0);
	}
	assert_int_equal(
		store_seek_check(test.group, &(struct seek_row){ "p", 0 }, 1, NULL), 0);
	assert_int_equal(
		store_seek_check(test.group, &(struct seek_row){ "p", 0 }, 2, NULL),
		-EINVAL);
	assert_int_equal(committed(test.group, test.partition), -1);
}

/* ---- what it does ------------------------------------------------------------------ */

static void test_lease_ends(void **state)
{
	struct reader *first = opened(test.group, test.partition);
	struct reader *second = opened(test.group, NULL);

	(void)state;
	assert_int_equal(push(test.partition, "ab\ncd\n"), 0);
	assert_read(first, 1, "a");
	assert_pop(second, "");
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET, 0), 0);
	assert_read(second, 1, "c");
	assert_read(first, 10, "b\n");
	assert_read(second, 10, "d\n");
	assert_int_equal(committed(test.group, test.partition), 1);
	/* also one that moves nothing */
	assert_int_equal(push(test.partition, "ef\n"), 0);
	assert_read(second, 10, "");
	assert_read(second, 1, "e");
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET, 1), 0);
	assert_read(second, 10, "f\n");
	assert_int_equal(committed(test.group, test.partition), 1);
	assert_read(second, 10, "");
	assert_read(second, 10, "ef\n");
	assert_int_equal(committed(test.group, test.partition), 2);
}

static void test_makes_the_cursor(void **state)
{
	(void)state;
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(sql("SELECT count(*) FROM cursors"), 0);
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_int_equal(sql("SELECT count(*) FROM cursors WHERE committed = -1"), 1);
	/* in an empty partition as well */
	made(test.queue, ITEM_PARTITION, "empty");
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), 0);
	assert_int_equal(sql("SELECT count(*) FROM cursors"), 2);
}

static void test_shows_at_once(void **state)
{
	struct reader *reader = opened(test.group, NULL);

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_string_equal(drain(reader), "a\nb\n");
	assert_pop(reader, "");
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET, 0), 0);
	assert_pop(reader, "b\n");
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_pop(reader, "a\n");
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), 0);
	assert_pop(reader, "");
	assert_int_equal(push(test.partition, "c\n"), 0);
	assert_pop(reader, "c\n");
}

/* The end of a pop that was not read yet ends nothing that a seek asked for. */
static void test_after_end(void **state)
{
	struct reader *reader = opened(test.group, test.partition);

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_read(reader, 10, "a\n");
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_START, 0), 0);
	assert_read(reader, 10, "");
	assert_pop(reader, "a\n");
	assert_pop(reader, "b\n");
}

static void test_only_this_group(void **state)
{
	struct item *group = made(test.queue, ITEM_GROUP, "h");
	struct reader *reader = opened(group, test.partition);

	(void)state;
	assert_int_equal(push(test.partition, "ab\ncd\n"), 0);
	assert_pop(reader, "ab\n");
	assert_read(reader, 1, "c");
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), 0);
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_START, 0), 0);
	assert_int_equal(committed(group, test.partition), 0);
	assert_read(reader, 10, "d\n");
	assert_int_equal(committed(group, test.partition), 1);
	assert_int_equal(committed(test.group, test.partition), -1);
}

static void test_durable(void **state)
{
	(void)state;
	assert_int_equal(push(test.partition, "a\nb\nc\n"), 0);
	/* what was consumed before is not written over it later */
	assert_string_equal(drain(opened(test.group, NULL)), "a\nb\nc\n");
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET, 0), 0);
	reopen();
	assert_int_equal(committed(test.group, test.partition), 0);
	/* what is consumed after it, is */
	assert_pop(opened(test.group, NULL), "b\n");
	reopen();
	assert_int_equal(committed(test.group, test.partition), 1);
	/* nor does a lease from before write over it */
	assert_read(opened(test.group, NULL), 1, "c");
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_read(test.readers[0], 1, "\n");
	reopen();
	assert_int_equal(committed(test.group, test.partition), -1);
}

/* A commit that fails in its last partition has moved none, in memory or on disk. */
static void test_all_or_none(void **state)
{
	struct item *other = made(test.queue, ITEM_PARTITION, "other");
	struct reader *reader = opened(test.group, test.partition);
	char text[200];

	(void)state;
	assert_int_equal(push(test.partition, "ab\ncd\n"), 0);
	assert_int_equal(push(other, "xy\n"), 0);
	assert_pop(reader, "ab\n");
	assert_read(reader, 1, "c");
	wait_for(sql("SELECT count(*) FROM cursors WHERE committed = 0") == 1);
	snprintf(text, sizeof(text),
		 "CREATE TRIGGER poison BEFORE INSERT ON cursors WHEN new.partition = "
		 "%" PRIu64 " BEGIN SELECT RAISE(ABORT, 'poisoned'); END",
		 store_id(other));
	sql(text);
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), -EIO);
	assert_int_equal(committed(test.group, test.partition), 0);
	assert_int_equal(committed(test.group, other), -1);
	assert_read(reader, 10, "d\n"); /* the lease still holds */
	assert_int_equal(committed(test.group, test.partition), 1);
	sql("DROP TRIGGER poison");
	reopen();
	assert_int_equal(committed(test.group, test.partition), 1);
	assert_pop(opened(test.group, NULL), "xy\n");
}

/* Seeks that arrive while a commit is under way are done in their order. */
static void test_in_order(void **state)
{
	struct reader *reader = opened(test.group, test.partition);
	struct answer answers[3];
	struct seek seek;

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\nc\n"), 0);
	hold_begin();
	for (int i = 0; i < 3; i++) {
		seek = (struct seek){ .kind = SEEK_TO_OFFSET,
				      .value = (int64_t[]){ 2, -1, 1 }[i] };
		store_seek(test.group, test.partition, &seek, answer_done,
			   answer_start(&answers[i]));
	}
	assert_pop(reader, "a\n"); /* none of them is answered yet */
	hold_end();
	for (int i = 0; i < 3; i++)
		assert_int_equal(answer_wait(&answers[i]), 0);
	assert_int_equal(committed(test.group, test.partition), 1);
	assert_pop(reader, "c\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("a time, start, end and an offset land where section 5 says, and "
		     "all else is ERANGE",
		     test_places),
		TEST("the first segment at or after a time is found among many",
		     test_many_segments),
		TEST("a seek of the queue moves each partition by its own segments, in "
		     "one transaction",
		     test_whole_queue),
		TEST("a queue without partitions is ENOENT", test_no_partitions),
		TEST("a table moves the partitions it names, '*' the others; a bad one "
		     "moves nothing",
		     test_tables),
		TEST("a row is checked before it is written", test_check),
		TEST("a seek ends the lease, wherever it goes", test_lease_ends),
		TEST("a seek makes the cursor that the group had not",
		     test_makes_the_cursor),
		TEST("a seek shows its messages at once", test_shows_at_once),
		TEST("the end of a pop is returned after a seek, then what it asked for",
		     test_after_end),
		TEST("a seek moves this group only", test_only_this_group),
		TEST("a seek is durable and is the last word", test_durable),
		TEST("a seek that fails has moved nothing", test_all_or_none),
		TEST("seeks take effect in their order", test_in_order),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("seek", tests, NULL, NULL);
}
