/* SPDX-License-Identifier: MIT */
/*
 * test_tail.c - pushes that SQLite does not have yet (store/tail.c): they are read like
 * others, and survive what they have to.
 */
#include <sys/stat.h>

#include "store_test.h"

/* The files of the store as a kill -9 right now would leave them, under another name. */
static void crash_copy(const char *name)
{
	static const char *const endings[] = { "", "-wal", "-tail" };
	char from[300], to[300], command[700];

	for (size_t i = 0; i < COUNT(endings); i++) {
		snprintf(from, sizeof(from), "%s%s", test.path, endings[i]);
		snprintf(to, sizeof(to), "%s/%s%s", test.dir, name, endings[i]);
		snprintf(command, sizeof(command), "cp %s %s", from, to);
		assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
	}
}

static void open_copy(const char *name)
{
	store_stop();
	snprintf(test.path, sizeof(test.path), "%s/%s", test.dir, name);
	assert_int_equal(store_start(), 0);
	find_own();
}

static void tail_edit(const char *name, off_t at, const void *bytes, size_t size)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s-tail", test.dir, name);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, size, at), size);
	close(fd);
}

static bool sqlite_has(int64_t segments)
{
	return sql("SELECT count(*) FROM segments") == segments;
}

/* Fills the tail anew: what was there is in SQLite. */
static void settle(void)
{
	assert_int_equal(sync_store(), 0);
}

static void test_read(void **state)
{
	struct segment_info segments[8];
	struct reader *reader;

	(void)state;
	settle();
	for (int i = 0; i < 3; i++)
		assert_int_equal(push(test.partition, "a\nbb\n"), 0);
	assert_int_equal(segments_of(test.partition, segments, 8), 3);
	assert_string_equal(log_text(test.partition), "a\nbb\na\nbb\na\nbb\n");
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET, 2), 0);
	reader = opened(test.group, test.partition);
	assert_pop(reader, "bb\n");
	closed(reader);
	assert_int_equal(
		seek_to(test.group, test.partition, SEEK_TO_TIME, segments[1].created_us),
		0);
	assert_int_equal(committed(test.group, test.partition), 1);
}

static void test_soon_in_sqlite(void **state)
{
	(void)state;
	settle();
	assert_int_equal(push(test.partition, "a\n"), 0);
	while (!sqlite_has(1))
		usleep(1000);
}

static void test_many(void **state)
{
	(void)state;
	for (int i = 0; i < 5000; i++)
		assert_int_equal(push(test.partition, "a line of the log\n"), 0);
	assert_int_equal(info_of(test.partition).last_offset, 4999);
	reopen();
	assert_true(sqlite_has(5000));
	assert_int_equal(info_of(test.partition).last_offset, 4999);
}

static void test_kill(void **state)
{
	(void)state;
	settle();
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(push(test.partition, "b\n"), 0);
	crash_copy("copy");
	open_copy("copy");
	assert_string_equal(log_text(test.partition), "a\nb\n");
	/* again, with records that SQLite has in front */
	assert_int_equal(push(test.partition, "c\n"), 0);
	crash_copy("again");
	open_copy("again");
	assert_string_equal(log_text(test.partition), "a\nb\nc\n");
}

/* Three records that SQLite does not have yet, in the copy as well. */
static void three_in_the_tail(const char *name)
{
	static const char *const three[] = { "aaaaaaaa\n", "bbbbbbbb\n", "cccccccc\n" };

	do { /* a slow machine: the tail has become due in between */
		while (info_of(test.partition).last_offset >=
		       info_of(test.partition).first_offset)
			assert_int_equal(
				segment_drop(test.partition,
					     info_of(test.partition).first_offset),
				0);
		settle();
		for (size_t i = 0; i < COUNT(three); i++)
			assert_int_equal(push(test.partition, three[i]), 0);
		crash_copy(name);
	} while (!sqlite_has(0));
}

static void test_torn(void **state)
{
	(void)state;
	three_in_the_tail("torn");
	/* the second record: 72 bytes of head, an end, the message */
	tail_edit("torn", 2 * (72 + 4 + 9) - 2, "x", 1);
	open_copy("torn");
	assert_string_equal(log_text(test.partition), "aaaaaaaa\n");
	assert_int_equal(push(test.partition, "d\n"), 0);
	reopen();
	assert_string_equal(log_text(test.partition), "aaaaaaaa\nd\n");
}

static void test_garbage(void **state)
{
	static char garbage[256 << 10];

	(void)state;
	assert_int_equal(push(test.partition, "a\n"), 0);
	settle();
	crash_copy("garbage");
	for (int round = 0; round < 50; round++) {
		for (size_t i = 0; i < sizeof(garbage); i++)
			garbage[i] = (char)(rand() >> (round % 9)); /* NOLINT */
		store_stop();
		tail_edit("garbage", 0, garbage, sizeof(garbage));
		open_copy("garbage");
		assert_string_equal(log_text(test.partition), "a\n");
	}
}

/* After a power loss SQLite may be older than the tail. */
static void test_gap(void **state)
{
	char command[700];

	(void)state;
	assert_int_equal(push(test.partition, "a\n"), 0);
	settle();
	crash_copy("gap");
	assert_int_equal(push(test.partition, "b\n"), 0);
	settle();
	assert_int_equal(push(test.partition, "c\n"), 0);
	snprintf(command, sizeof(command), "cp %s-tail %s/gap-tail", test.path, test.dir);
	assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
	open_copy("gap");
	assert_string_equal(log_text(test.partition), "a\n");
}

static void test_disk_after_os(void **state)
{
	char path[300];
	struct stat st;

	(void)state;
	settle();
	assert_int_equal(push(test.partition, "a\n"), 0);
	crash_copy("disk");
	test.options.disk = true;
	open_copy("disk");
	assert_string_equal(log_text(test.partition), "a\n");
	assert_int_equal(push(test.partition, "b\n"), 0);
	snprintf(path, sizeof(path), "%s-tail", test.path);
	assert_int_equal(stat(path, &st), 0);
	settle();
	assert_true(sqlite_has(2));
}

/* A write to several partitions is several records. */
static void test_batch(void **state)
{
	struct answer pushed;
	struct item *p0, *p1;

	(void)state;
	assert_int_equal(set(test.queue, SETTING_SPREAD, "2"), 0);
	assert_int_equal(push_default(test.queue, "a\nb\n"), 0); /* makes them */
	p0 = found(test.queue, ITEM_PARTITION, "0");
	p1 = found(test.queue, ITEM_PARTITION, "1");
	do {
		settle();
		push_start(test.queue, NULL, "aaaaaaaa\nbbbbbbbb\n", &pushed);
		assert_int_equal(answer_wait(&pushed), 0);
		crash_copy("batch");
	} while (sqlite_has(2 * (info_of(p0).last_offset + 1)));
	tail_edit("batch", 2 * (72 + 4 + 9) - 2, "x", 1);
	assert_int_equal(info_of(p0).last_offset, info_of(p1).last_offset);
	open_copy("batch");
	p0 = found(test.queue, ITEM_PARTITION, "0");
	p1 = found(test.queue, ITEM_PARTITION, "1");
	assert_int_equal(info_of(p0).last_offset, info_of(p1).last_offset);
}

/* A power loss took the first record and left others: what is written over it is not
 * followed by those. */
static void test_ghosts(void **state)
{
	(void)state;
	three_in_the_tail("ghosts");
	tail_edit("ghosts", 72 + 4, "x", 1);
	open_copy("ghosts");
	assert_string_equal(log_text(test.partition), "");
	assert_int_equal(push(test.partition, "dddddddd\n"), 0);
	crash_copy("again");
	open_copy("again");
	assert_string_equal(log_text(test.partition), "dddddddd\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("what is in the tail is read, listed and sought like the rest",
		     test_read),
		TEST("SQLite gets the tail by itself", test_soon_in_sqlite),
		TEST("the tail may fill any number of times", test_many),
		TEST("what was answered is there after a kill -9", test_kill),
		TEST("of a torn tail the beginning counts, and pushes go on from there",
		     test_torn),
		TEST("garbage in the tail is nothing", test_garbage),
		TEST("a tail that does not follow what SQLite has is nothing", test_gap),
		TEST("a write of which the tail has only some partitions is nothing",
		     test_batch),
		TEST("what a power loss has left behind a gap never comes back",
		     test_ghosts),
		TEST("a store with durability disk brings in what os has left",
		     test_disk_after_os),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("tail", tests, NULL, NULL);
}
