/* SPDX-License-Identifier: MIT */
/*
 * test_push.c - section 2: push fusion, what one commit holds, the clock of the store.
 */
#include "store_int.h"
#include "store_test.h"

#include <sys/stat.h>

#define THREADS 4
#define PUSHES 50

static struct answer answers[THREADS][PUSHES];

/* ---- fusion ------------------------------------------------------------------------ */

/* Pushes `<thread> <number>` lines to a partition or to default, waiting for none. */
static int push_some(int thread, struct item *partition)
{
	char text[32];

	for (int i = 0; i < PUSHES; i++) {
		snprintf(text, sizeof(text), "%d %d\n", thread, i);
		push_start(test.queue, partition, text, &answers[thread][i]);
	}
	return 0;
}

static int push_to_p(int thread)
{
	return push_some(thread, test.partition);
}

static int push_to_default(int thread)
{
	return push_some(thread, NULL);
}

static void answers_expect(int error)
{
	for (int thread = 0; thread < THREADS; thread++)
		for (int i = 0; i < PUSHES; i++)
			assert_int_equal(answer_wait(&answers[thread][i]), error);
}

/* The log holds what push_some() pushed, each thread's lines in its order. */
static void log_expect(struct item *partition)
{
	int next[THREADS] = { 0 };
	const char *line = log_text(partition);
	int thread, number, length, count = 0;

	for (; sscanf(line, "%d %d%n", &thread, &number, &length) == 2; count++) {
		assert_in_range(thread, 0, THREADS - 1);
		assert_int_equal(number, next[thread]++);
		line += length + 1;
	}
	assert_int_equal(count, THREADS * PUSHES);
}

/* Each push is one: without a tail (test_tail.c). */
static void with_transactions(void)
{
	pthread_mutex_lock(&test.store->state);
	tail_close(test.store);
	pthread_mutex_unlock(&test.store->state);
}

static void test_fusion(void **state)
{
	struct segment_info segments[4];
	unsigned before;

	(void)state;
	with_transactions();
	before = transactions();
	hold_begin();
	assert_int_equal(in_threads(push_to_p, THREADS), 0);
	assert_int_equal(info_of(test.partition).last_offset, -1);
	hold_end();
	answers_expect(0);
	assert_int_equal(segments_of(test.partition, segments, 4), 1);
	assert_int_equal(segments[0].end_offset, THREADS * PUSHES - 1);
	assert_int_equal(transactions(), before + 1);
	log_expect(test.partition);
	reopen();
	assert_int_equal(segments_of(test.partition, segments, 4), 1);
	log_expect(test.partition);
}

static void test_each_alone(void **state)
{
	struct segment_info segments[4];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_int_equal(segments_of(test.partition, segments, 4), 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(segments[i].end_offset, 2 * i + 1);
}

static void test_large(void **state)
{
	/* MiB of each push of one batch, and the messages of the segments they become */
	static const struct {
		unsigned pushes[11], segments[5];
	} cases[] = {
		{ { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, { 4, 4, 2 } },
		{ { 4, 1 }, { 1, 1 } },
		{ { 3, 2, 2, 1 }, { 1, 2, 1 } },
		{ { 1, 5, 1 }, { 1, 1, 1 } },
	};
	struct segment_info segments[8];

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		char name[] = { (char)('a' + i), '\0' };
		struct item *partition = made(test.queue, ITEM_PARTITION, name);
		unsigned pushed = 0, checked = 0;
		size_t count;
		hold_begin();
		for (; cases[i].pushes[pushed]; pushed++) {
			struct messages one = long_line(
				pushed, 'x', (size_t)cases[i].pushes[pushed] * MiB);
			store_push(test.queue, partition, &one, answer_done,
				   answer_start(&answers[0][pushed]));
		}
		hold_end();
		for (unsigned k = 0; k < pushed; k++)
			assert_int_equal(answer_wait(&answers[0][k]), 0);
		count = segments_of(partition, segments, COUNT(segments));
		for (; checked < count; checked++)
			assert_int_equal(segments[checked].end_offset + 1 -
						 segments[checked].base_offset,
					 cases[i].segments[checked]);
		assert_int_equal(cases[i].segments[checked], 0);
	}
}

static void test_one_transaction(void **state)
{
	struct item *other = made(test.queue, ITEM_PARTITION, "other");
	struct item *queue = made(NULL, ITEM_QUEUE, "second"), *theirs;
	struct segment_info segments[3];
	unsigned before = transactions();

	(void)state;
	hold_begin();
	push_start(test.queue, test.partition, "a\n", &answers[0][0]);
	push_start(test.queue, other, "b\n", &answers[0][1]);
	push_start(queue, NULL, "c\n", &answers[0][2]);
	push_start(test.queue, test.partition, "d\n", &answers[0][3]);
	hold_end();
	for (int i = 0; i < 4; i++)
		assert_int_equal(answer_wait(&answers[0][i]), 0);
	assert_int_equal(transactions(), before + 1);
	theirs = found(queue, ITEM_PARTITION, "default");
	assert_string_equal(log_text(test.partition), "a\nd\n");
	assert_string_equal(log_text(other), "b\n");
	assert_string_equal(log_text(theirs), "c\n");
	assert_int_equal(segments_of(test.partition, segments, 1), 1);
	assert_int_equal(segments_of(other, segments + 1, 1), 1);
	assert_int_equal(segments_of(theirs, segments + 2, 1), 1);
	assert_true(segments[0].created_us != segments[1].created_us &&
		    segments[1].created_us != segments[2].created_us &&
		    segments[2].created_us != segments[0].created_us);
}

static int push_one(int thread)
{
	push_start(test.queue, test.partition, "x\n", &answers[thread][0]);
	return 0;
}

static sem_t returned;

static int push_and_say(int thread)
{
	push_one(thread);
	sem_post(&returned);
	return 0;
}

static void *outsider_main(void *arg)
{
	sqlite3 *db = arg;

	/* One thread commits and waits for the lock; the others only queue. */
	for (int i = 0; i < THREADS - 1; i++)
		sem_take(&returned);
	return sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL) ? arg : NULL;
}

static void test_outside_lock(void **state)
{
	struct segment_info segments[2];
	pthread_t outsider;
	sqlite3 *db;
	void *failed;

	(void)state;
	with_transactions();
	sem_init(&returned, 0, 0);
	assert_int_equal(sqlite3_open(test.path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), 0);
	assert_int_equal(pthread_create(&outsider, NULL, outsider_main, db), 0);
	assert_int_equal(in_threads(push_and_say, THREADS), 0);
	pthread_join(outsider, &failed);
	assert_null(failed);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(answer_wait(&answers[i][0]), 0);
	sqlite3_close(db);
	sem_destroy(&returned);
	assert_in_range(segments_of(test.partition, segments, 2), 1, 2);
	assert_int_equal(info_of(test.partition).last_offset, THREADS - 1);
}

static int64_t wal_bytes(void)
{
	char path[200];
	struct stat st;

	snprintf(path, sizeof(path), "%s-wal", test.path);
	return stat(path, &st) == 0 ? st.st_size : 0;
}

static void test_wal_bounded(void **state)
{
	enum { LIMIT = 1 << 18, PUSH = 1 << 16 };
	sqlite3 *db;

	(void)state;
	test.options.wal_limit_bytes = LIMIT;
	reopen();
	with_transactions();
	for (unsigned i = 0; i < 40; i++) {
		assert_int_equal(push_messages(test.partition, long_line(i, 'x', PUSH)),
				 0);
		assert_in_range(wal_bytes(), 0, LIMIT + 2 * PUSH);
	}
	/* somebody outside reads on: it has to grow, and shrinks again after that */
	assert_int_equal(sqlite3_open(test.path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT * FROM meta", NULL, NULL, NULL),
			 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(push_messages(test.partition, long_line(i, 'x', PUSH)),
				 0);
	assert_true(wal_bytes() > LIMIT);
	sqlite3_close(db);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(push_messages(test.partition, long_line(i, 'x', PUSH)),
				 0);
	assert_in_range(wal_bytes(), 0, LIMIT + 2 * PUSH);
}

/* ---- failure ----------------------------------------------------------------------- */

static void poison(const char *table, const char *when)
{
	char text[256];

	snprintf(text, sizeof(text),
		 "CREATE TRIGGER poison BEFORE INSERT ON %s WHEN %s "
		 "BEGIN SELECT RAISE(ABORT, 'poisoned'); END",
		 table, when);
	sql(text);
}

static void test_all_or_none(void **state)
{
	struct item *other;

	(void)state;
	with_transactions();
	other = made(test.queue, ITEM_PARTITION, "other");
	assert_int_equal(push(test.partition, "first\n"), 0);
	poison("segments", "CAST(new.data AS TEXT) LIKE '%bad%'");
	hold_begin();
	push_start(test.queue, test.partition, "a\n", &answers[0][0]);
	push_start(test.queue, other, "b\nbad\n", &answers[0][1]);
	hold_end();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(answer_wait(&answers[0][i]), -EIO);
		assert_non_null(strstr(refused_why, "poisoned"));
	}
	assert_string_equal(log_text(test.partition), "first\n");
	assert_int_equal(info_of(other).last_offset, -1);
	assert_int_equal(push(test.partition, "second\n"), 0);
	assert_int_equal(push(other, "good\n"), 0);
	reopen();
	assert_string_equal(log_text(test.partition), "first\nsecond\n");
	assert_string_equal(log_text(found(test.queue, ITEM_PARTITION, "other")),
			    "good\n");
}

static void test_dropped(void **state)
{
	struct item *queue = made(NULL, ITEM_QUEUE, "gone");

	(void)state;
	assert_int_equal(drop(test.partition), 0);
	assert_int_equal(push(test.partition, "a\n"), -ESTALE);
	assert_int_equal(drop(queue), 0);
	assert_int_equal(push_default(queue, "a\n"), -ESTALE);
}

/* A drop and a push that meet: whichever is first decides. */
static void test_push_meets_drop(void **state)
{
	struct answer dropped;

	(void)state;
	hold_begin();
	push_start(test.queue, test.partition, "a\n", &answers[0][0]);
	store_drop(test.partition, answer_done, answer_start(&dropped));
	hold_end();
	assert_int_equal(answer_wait(&answers[0][0]), 0);
	assert_int_equal(answer_wait(&dropped), -ENOTEMPTY);
	assert_string_equal(log_text(test.partition), "a\n");
}

/* ---- the partition default --------------------------------------------------------- */

static void test_default_once(void **state)
{
	struct segment_info segments[2];
	struct access access;
	struct item *partition;

	(void)state;
	assert_true(missing(test.queue, ITEM_PARTITION, "default"));
	hold_begin();
	assert_int_equal(in_threads(push_to_default, THREADS), 0);
	assert_true(missing(test.queue, ITEM_PARTITION, "default"));
	assert_int_equal(children(test.queue, ITEM_PARTITION), 1);
	hold_end();
	answers_expect(0);
	assert_int_equal(children(test.queue, ITEM_PARTITION), 2);
	partition = found(test.queue, ITEM_PARTITION, "default");
	assert_int_equal(segments_of(partition, segments, 2), 1);
	log_expect(partition);
	store_access(test.store, partition, PARTITION_DIR, &access);
	assert_memory_equal(&access, &anyone, sizeof(access));
	store_access(test.store, partition, PARTITION_SEGMENTS, &access);
	assert_int_equal(access.mode, 0755);
	assert_int_equal(drop(test.queue), -ENOTEMPTY);
}

static void test_default_fails(void **state)
{
	struct item *queue = made(NULL, ITEM_QUEUE, "empty");

	(void)state;
	poison("segments", "1");
	hold_begin();
	push_start(queue, NULL, "a\n", &answers[0][0]);
	push_start(queue, NULL, "b\n", &answers[0][1]);
	hold_end();
	assert_int_equal(answer_wait(&answers[0][0]), -EIO);
	assert_int_equal(answer_wait(&answers[0][1]), -EIO);
	assert_int_equal(push_default(queue, "c\n"), -EIO);
	assert_true(missing(queue, ITEM_PARTITION, "default"));
	assert_int_equal(children(queue, ITEM_PARTITION), 0);
	assert_int_equal(sql("SELECT count(*) FROM partitions WHERE name = 'default'"),
			 0);
	sql("DROP TRIGGER poison");
	assert_int_equal(push_default(queue, "d\n"), 0);
	assert_string_equal(log_text(found(queue, ITEM_PARTITION, "default")), "d\n");
}

static void test_default_fails_and_queue_goes(void **state)
{
	struct item *queue = made(NULL, ITEM_QUEUE, "empty");

	(void)state;
	poison("segments", "1");
	assert_int_equal(push_default(queue, "a\n"), -EIO);
	assert_int_equal(drop(queue), 0);
}

/* 'p' pushes without a partition, 'm' makes default; in one go, in this order. */
static void test_default_meets_mkdir(void **state)
{
	static const struct {
		const char *steps;
		bool poisoned;
		int errors[3];
		const char *log;
	} cases[] = {
		{ "pm", false, { 0, -EEXIST }, "0\n" },
		{ "mp", false, { 0, 0 }, "1\n" },
		{ "pmp", false, { 0, -EEXIST, 0 }, "0\n2\n" },
		{ "pm", true, { -EIO, 0 }, "" },
		{ "mp", true, { 0, -EIO }, "" },
		{ "pmp", true, { -EIO, 0, -EIO }, "" },
		{ "ppm", true, { -EIO, -EIO, 0 }, "" },
		{ "mm", false, { 0, -EEXIST }, "" },
	};

	(void)state;
	with_transactions();
	for (size_t i = 0; i < COUNT(cases); i++) {
		char name[] = { (char)('a' + i), '\0' };
		struct item *queue = made(NULL, ITEM_QUEUE, name), *partition;
		if (cases[i].poisoned)
			poison("segments", "1");
		hold_begin();
		for (int k = 0; cases[i].steps[k]; k++) {
			char text[] = { (char)('0' + k), '\n', '\0' };
			if (cases[i].steps[k] == 'p')
				push_start(queue, NULL, text, &answers[0][k]);
			else
				store_make(test.store, queue, ITEM_PARTITION, "default",
					   &anyone, answer_done,
					   answer_start(&answers[0][k]));
		}
		hold_end();
		for (int k = 0; cases[i].steps[k]; k++)
			assert_int_equal(answer_wait(&answers[0][k]), cases[i].errors[k]);
		if (cases[i].poisoned)
			sql("DROP TRIGGER poison");
		partition = found(queue, ITEM_PARTITION, "default");
		assert_int_equal(children(queue, ITEM_PARTITION), 1);
		assert_string_equal(log_text(partition), cases[i].log);
		assert_int_equal(push_default(queue, "z\n"), 0);
		assert_int_equal(push(partition, "z\n"), 0);
		assert_int_equal(info_of(partition).last_offset,
				 strlen(cases[i].log) / 2 + 1);
	}
}

/* ---- the clock --------------------------------------------------------------------- */

#define AHEAD_US INT64_C(32503680000000000) /* the year 3000 */

static void ahead_expect(int64_t expected_us)
{
	struct segment_info segments[8];
	size_t count = segments_of(test.partition, segments, COUNT(segments));

	assert_true(count > 0);
	assert_int_equal(segments[count - 1].created_us, expected_us);
	assert_int_equal(info_of(test.partition).modified_us, expected_us);
	assert_int_equal(store_now(test.store), expected_us);
}

static void test_clock_behind(void **state)
{
	(void)state;
	store_stop();
	sql("INSERT OR REPLACE INTO meta VALUES('newest_us', 32503680000000000)");
	assert_int_equal(store_start(), 0);
	find_own();
	assert_int_equal(store_now(test.store), AHEAD_US);
	assert_int_equal(push(test.partition, "a\n"), 0);
	ahead_expect(AHEAD_US + 1);
	assert_int_equal(push_default(test.queue, "b\n"), 0);
	assert_int_equal(push(test.partition, "c\n"), 0);
	ahead_expect(AHEAD_US + 3);
	reopen();
	assert_int_equal(push(test.partition, "d\n"), 0);
	ahead_expect(AHEAD_US + 4);
}

/* The newest may be a segment of any partition, or one that is no longer there. */
static void test_clock_of_removed(void **state)
{
	struct item *other = made(test.queue, ITEM_PARTITION, "other");

	(void)state;
	assert_int_equal(push(other, "a\n"), 0);
	store_stop();
	sql("UPDATE segments SET created_us = 32503680000000000");
	assert_int_equal(store_start(), 0);
	find_own();
	assert_int_equal(push(test.partition, "b\n"), 0);
	ahead_expect(AHEAD_US + 1);
	other = found(test.queue, ITEM_PARTITION, "other");
	assert_int_equal(push(other, "c\n"), 0);
	assert_int_equal(segment_drop(other, 0), 0);
	assert_int_equal(segment_drop(other, 1), 0);
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(drop(other), 0);
	reopen();
	assert_int_equal(store_now(test.store), AHEAD_US + 2);
	assert_int_equal(push(test.partition, "d\n"), 0);
	ahead_expect(AHEAD_US + 3);
}

static void test_clock_of_failed(void **state)
{
	struct segment_info segments[2];

	(void)state;
	store_stop();
	sql("INSERT OR REPLACE INTO meta VALUES('newest_us', 32503680000000000)");
	assert_int_equal(store_start(), 0);
	find_own();
	with_transactions();
	poison("segments", "1");
	assert_int_equal(push(test.partition, "a\n"), -EIO);
	sql("DROP TRIGGER poison");
	assert_int_equal(store_now(test.store), AHEAD_US);
	assert_int_equal(push(test.partition, "b\n"), 0);
	assert_int_equal(segments_of(test.partition, segments, 2), 1);
	ahead_expect(AHEAD_US + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("pushes that arrive while a commit is under way become one segment, "
		     "each thread's in its order",
		     test_fusion),
		TEST("a push that finds no commit under way is a segment of its own",
		     test_each_alone),
		TEST("past 4 MiB a commit has several segments, and no push is divided",
		     test_large),
		TEST("pushes to several partitions and queues share one transaction",
		     test_one_transaction),
		TEST("a lock from outside delays pushes and refuses none",
		     test_outside_lock),
		TEST("the WAL stays bounded, and again after somebody outside read on",
		     test_wal_bounded),
		TEST("pushes commit together or not at all", test_all_or_none),
		TEST("a push to what was dropped is ESTALE", test_dropped),
		TEST("a partition with a push on its way cannot be dropped",
		     test_push_meets_drop),
		TEST("concurrent first pushes make the partition default, once",
		     test_default_once),
		TEST("a first push that fails leaves no partition", test_default_fails),
		TEST("a first push that fails does not keep its queue",
		     test_default_fails_and_queue_goes),
		TEST("a first push and a mkdir of default agree in any order",
		     test_default_meets_mkdir),
		TEST("created_at rises by 1 us while the clock is behind the newest",
		     test_clock_behind),
		TEST("the newest created_at outlives its segment", test_clock_of_removed),
		TEST("a commit that failed has not moved the clock",
		     test_clock_of_failed),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("push", tests, NULL, NULL);
}
