/* SPDX-License-Identifier: MIT */
/*
 * test_items.c - section 1: queues, partitions and groups are made, listed and dropped.
 */
#include "store_test.h"

#include <stdatomic.h>

/* ---- names ------------------------------------------------------------------------- */

#define A50 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const struct {
	const char *name;
	int error;
} names[] = {
	{ "a", 0 },
	{ "orders-2026.07", 0 },
	{ "a b", 0 },
	{ "**", 0 },
	{ "-", 0 },
	{ "~", 0 },
	{ "default", 0 },
	{ "\xc2\xa0", 0 },	   /* the first character after the controls */
	{ "\xdf\xbf", 0 },	   /* the last of two bytes */
	{ "\xe0\xa0\x80", 0 },	   /* the first of three */
	{ "\xed\x9f\xbf", 0 },	   /* the last before the surrogates */
	{ "\xee\x80\x80", 0 },	   /* the first after them */
	{ "\xf0\x90\x80\x80", 0 }, /* the first of four */
	{ "\xf4\x8f\xbf\xbf", 0 }, /* the last of all */
	{ A50 A50 A50 A50, 0 },
	{ A50 A50 A50 A50 "a", -ENAMETOOLONG },
	{ A50 A50 A50 A50 "\n", -ENAMETOOLONG },
	{ "", -EINVAL },
	{ ".", -EINVAL },
	{ "..", -EINVAL },
	{ ".a.swp", -EINVAL },
	{ "*", -EINVAL },
	{ "a/b", -EINVAL },
	{ "a\nb", -EINVAL },
	{ "a\tb", -EINVAL },
	{ "\x1f", -EINVAL },
	{ "\x7f", -EINVAL },
	{ "\xc2\x80", -EINVAL },	 /* a control of two bytes */
	{ "\xc2\x9f", -EINVAL },	 /* the last of those */
	{ "\x80", -EINVAL },		 /* a continuation that continues nothing */
	{ "a\xc3", -EINVAL },		 /* cut short */
	{ "a\xe2\x82", -EINVAL },	 /* cut short */
	{ "\xc0\xaf", -EINVAL },	 /* a slash in too many bytes */
	{ "\xe0\x80\xaf", -EINVAL },	 /* and in more */
	{ "\xed\xa0\x80", -EINVAL },	 /* a surrogate */
	{ "\xf4\x90\x80\x80", -EINVAL }, /* past the last character */
	{ "\xf8\x88\x80\x80\x80", -EINVAL },
	{ "\xff", -EINVAL },
};

static void test_names(void **state)
{
	struct item *queue = made(NULL, ITEM_QUEUE, "names");
	struct store_why why;

	(void)state;
	for (size_t i = 0; i < COUNT(names); i++) {
		int error = names[i].error;
		why.text[0] = '\0';
		if (store_name_check(names[i].name, &why) != error)
			fail_msg("\"%s\" is not answered with %d", names[i].name, error);
		assert_int_equal(why.text[0] != '\0', error != 0);
		for (int kind = 0; kind < ITEM_KINDS; kind++) {
			assert_int_equal(make(kind == ITEM_QUEUE ? NULL : queue,
					      (enum item_kind)kind, names[i].name),
					 error);
			if (error)
				assert_string_equal(refused_why, why.text);
		}
	}
	reopen();
	queue = found(NULL, ITEM_QUEUE, "names");
	for (size_t i = 0; i < COUNT(names); i++)
		for (int kind = 0; kind < ITEM_KINDS; kind++)
			assert_int_equal(missing(kind == ITEM_QUEUE ? NULL : queue,
						 (enum item_kind)kind, names[i].name),
					 names[i].error != 0);
}

/* ---- refusals ---------------------------------------------------------------------- */

static void test_exists(void **state)
{
	struct item *second = made(NULL, ITEM_QUEUE, "second");

	(void)state;
	assert_int_equal(make(NULL, ITEM_QUEUE, "q"), -EEXIST);
	assert_int_equal(make(test.queue, ITEM_PARTITION, "p"), -EEXIST);
	assert_int_equal(make(test.queue, ITEM_GROUP, "g"), -EEXIST);
	assert_int_equal(make(test.queue, ITEM_GROUP, "p"), 0);
	assert_int_equal(make(test.queue, ITEM_PARTITION, "g"), 0);
	assert_int_equal(make(second, ITEM_PARTITION, "p"), 0);
	assert_int_equal(children(test.queue, ITEM_PARTITION), 2);
	assert_int_equal(children(second, ITEM_GROUP), 0);
}

static int make_contended(int thread)
{
	int successes = 0;
	char name[16];

	(void)thread;
	for (int i = 0; i < 50; i++) {
		int error;
		snprintf(name, sizeof(name), "%d", i);
		error = make(test.queue, ITEM_GROUP, name);
		if (error && error != -EEXIST)
			return -1000;
		successes += !error;
	}
	return successes;
}

static void test_exists_contended(void **state)
{
	(void)state;
	assert_int_equal(in_threads(make_contended, 4), 50);
	assert_int_equal(children(test.queue, ITEM_GROUP), 51);
}

static void test_not_empty(void **state)
{
	(void)state;
	assert_int_equal(drop(test.queue), -ENOTEMPTY);
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(drop(test.partition), -ENOTEMPTY);
	assert_int_not_equal(refused_why[0], '\0');
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(drop(test.partition), 0);
	assert_int_equal(drop(test.queue), 0);
	assert_true(missing(NULL, ITEM_QUEUE, "q"));
	assert_int_equal(sql("SELECT count(*) FROM groups"), 0);
	assert_int_equal(sql("SELECT count(*) FROM cursors"), 0);
}

static void test_busy(void **state)
{
	struct item *other = made(test.queue, ITEM_PARTITION, "other");
	struct item *second = made(NULL, ITEM_QUEUE, "second");
	struct item *group = made(second, ITEM_GROUP, "g");
	struct reader *reader;

	(void)state;
	/* a reader of one partition keeps it and the group */
	reader = opened(test.group, test.partition);
	assert_int_equal(drop(test.partition), -EBUSY);
	assert_int_not_equal(refused_why[0], '\0');
	assert_int_equal(drop(test.group), -EBUSY);
	assert_int_equal(drop(other), 0);
	closed(reader);
	/* one of the queue keeps group and queue, and the partition it reads in */
	assert_int_equal(push(test.partition, "abc\n"), 0);
	reader = opened(test.group, NULL);
	assert_read(reader, 1, "a");
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(drop(test.partition), -EBUSY);
	assert_int_equal(drop(test.group), -EBUSY);
	assert_read(reader, 10, "bc\n");
	assert_int_equal(drop(test.partition), 0);
	assert_int_equal(drop(test.queue), -EBUSY);
	assert_int_equal(drop(test.group), -EBUSY);
	closed(reader);
	assert_int_equal(drop(test.queue), 0);
	/* nobody ever met a partition here */
	reader = opened(group, NULL);
	assert_int_equal(drop(second), -EBUSY);
	closed(reader);
	assert_int_equal(drop(second), 0);
}

static void stale_expect(struct item *queue, struct item *partition, struct item *group)
{
	_Atomic int64_t hint = 0;
	struct committed_row *rows;
	struct reader *reader;
	struct answer answer;
	int64_t value;
	char byte;
	size_t count;

	if (store_dropped(queue)) {
		assert_int_equal(drop(queue), -ESTALE);
		assert_int_equal(make(queue, ITEM_PARTITION, "x"), -ESTALE);
		assert_int_equal(make(queue, ITEM_GROUP, "x"), -ESTALE);
		assert_int_equal(push_default(queue, "x\n"), -ESTALE);
	}
	if (store_dropped(partition)) {
		assert_int_equal(drop(partition), -ESTALE);
		assert_int_equal(segment_drop(partition, 0), -ESTALE);
		assert_int_equal(store_log_read(partition, 0, &hint, &byte, 1), -ESTALE);
		store_access_set(test.store, partition, PARTITION_DIR, &anyone,
				 ACCESS_ALL, answer_done, answer_start(&answer));
		assert_int_equal(answer_wait(&answer), -ESTALE);
	}
	if (store_dropped(group)) {
		assert_int_equal(drop(group), -ESTALE);
		assert_int_equal(store_committed_all(group, &rows, &count), -ESTALE);
		assert_int_equal(store_reader_open(group, NULL, 0, &test_who, &reader),
				 -ESTALE);
		assert_int_equal(seek_to(group, NULL, SEEK_TO_END, 0), -ESTALE);
	}
	assert_int_equal(store_committed(group, partition, &value), -ESTALE);
	assert_int_equal(store_reader_open(group, partition, 0, &test_who, &reader),
			 -ESTALE);
	assert_int_equal(seek_to(group, partition, SEEK_TO_START, 0), -ESTALE);
}

static void test_stale(void **state)
{
	struct item *group = made(test.queue, ITEM_GROUP, "second");

	(void)state;
	assert_int_equal(drop(group), 0);
	assert_true(store_dropped(group));
	stale_expect(test.queue, test.partition, group);
	assert_int_equal(drop(test.partition), 0);
	stale_expect(test.queue, test.partition, test.group);
	assert_int_equal(drop(test.queue), 0);
	assert_true(store_dropped(test.queue) && store_dropped(test.partition) &&
		    store_dropped(test.group));
	stale_expect(test.queue, test.partition, test.group);
	assert_string_equal(store_name(test.group), "g");
}

static void test_queue_takes_its_groups(void **state)
{
	struct item *queue = made(NULL, ITEM_QUEUE, "many"), *groups[60];
	char name[16];

	(void)state;
	for (int i = 0; i < (int)COUNT(groups); i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(make(queue, ITEM_GROUP, name), 0);
		assert_int_equal(
			store_find(test.store, queue, ITEM_GROUP, name, &groups[i]), 0);
	}
	assert_int_equal(drop(queue), 0);
	for (int i = 0; i < (int)COUNT(groups); i++) {
		if (!store_dropped(groups[i]))
			fail_msg("group %d of a dropped queue lives", i);
		store_put(groups[i]);
	}
	assert_int_equal(sql("SELECT count(*) FROM groups"), 1);
}

/* ---- numbers ----------------------------------------------------------------------- */

static void test_again_is_new(void **state)
{
	uint64_t partition = store_id(test.partition), group = store_id(test.group);
	struct item *again;

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_pop(opened(test.group, test.partition), "a\n");
	closed(test.readers[0]);
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(drop(test.partition), 0);
	again = made(test.queue, ITEM_PARTITION, "p");
	assert_true(store_id(again) > partition);
	assert_int_equal(info_of(again).last_offset, -1);
	assert_int_equal(info_of(again).end_position, 0);
	assert_int_equal(committed(test.group, again), -1);
	assert_int_equal(push(again, "c\n"), 0);
	assert_pop(opened(test.group, again), "c\n");
	closed(test.readers[0]);
	assert_int_equal(drop(test.group), 0);
	test.group = made(test.queue, ITEM_GROUP, "g");
	assert_true(store_id(test.group) > group);
	assert_int_equal(committed(test.group, again), -1);
	reopen();
	assert_string_equal(log_text(test.partition), "c\n");
	assert_int_equal(committed(test.group, test.partition), -1);
}

/* Also not when the highest was dropped and the store was closed meanwhile. */
static void test_numbers(void **state)
{
	uint64_t last[ITEM_KINDS] = { 0 };

	(void)state;
	for (int round = 0; round < 4; round++) {
		for (int kind = 0; kind < ITEM_KINDS; kind++) {
			struct item *item = made(kind == ITEM_QUEUE ? NULL : test.queue,
						 (enum item_kind)kind, "again");
			assert_true(store_id(item) > last[kind]);
			last[kind] = store_id(item);
			assert_int_equal(drop(item), 0);
		}
		if (round % 2)
			reopen();
	}
}

/* ---- listings ---------------------------------------------------------------------- */

#define FIXED 40

static atomic_int listing;

/* Drops and makes groups whose names begin with an x until the listing is over. */
static int churn(int thread)
{
	struct item *item;
	char name[16];
	int wrong = 0;

	for (int i = 0; atomic_load(&listing); i++) {
		snprintf(name, sizeof(name), "x%d-%d", thread, i % 20);
		if (store_find(test.store, test.queue, ITEM_GROUP, name, &item) == 0) {
			wrong += drop(item) != 0;
			store_put(item);
		}
		wrong += make(test.queue, ITEM_GROUP, name) != 0;
	}
	return wrong;
}

static int list(void)
{
	int wrong = 0;

	for (int round = 0; round < 50; round++) {
		uint64_t after = 0;
		struct item *item;
		int fixed = 0;
		while (!store_next(test.store, test.queue, ITEM_GROUP, after, &item)) {
			wrong += store_id(item) <= after;
			after = store_id(item);
			fixed += store_name(item)[0] == 'f';
			store_put(item);
		}
		wrong += fixed != FIXED;
	}
	atomic_store(&listing, 0);
	return wrong;
}

static int list_or_churn(int thread)
{
	return thread == 0 ? list() : churn(thread);
}

static void test_listing_stays_whole(void **state)
{
	char name[16];

	(void)state;
	for (int i = 0; i < FIXED; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(make(test.queue, ITEM_GROUP, name), 0);
		snprintf(name, sizeof(name), "x1-%d", i % 20);
		make(test.queue, ITEM_GROUP, name);
	}
	atomic_store(&listing, 1);
	assert_int_equal(in_threads(list_or_churn, 3), 0);
}

/* Every one of 200, dropping each third one that is shown, and all behind it later. */
static void test_drop_while_listing(void **state)
{
	struct item *queue = made(NULL, ITEM_QUEUE, "list"), *item;
	uint64_t after = 0;
	unsigned seen = 0;
	char name[16];

	(void)state;
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(make(queue, ITEM_PARTITION, name), 0);
	}
	while (!store_next(test.store, queue, ITEM_PARTITION, after, &item)) {
		snprintf(name, sizeof(name), "%u", seen);
		assert_string_equal(store_name(item), name);
		after = store_id(item);
		if (seen++ % 3 != 0)
			assert_int_equal(drop(item), 0);
		store_put(item);
	}
	assert_int_equal(seen, 200);
	assert_int_equal(children(queue, ITEM_PARTITION), 67);
	while (!store_next(test.store, queue, ITEM_PARTITION, 0, &item)) {
		assert_int_equal(drop(item), 0);
		store_put(item);
	}
	assert_int_equal(drop(queue), 0);
}

#define MANY 5000

static void test_many(void **state)
{
	struct committed_row *rows;
	struct item *item;
	char name[16];
	size_t count;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(make(test.queue, ITEM_PARTITION, name), 0);
	}
	for (int i = 0; i < MANY; i += 500) {
		snprintf(name, sizeof(name), "%d", i);
		item = found(test.queue, ITEM_PARTITION, name);
		assert_int_equal(push(item, "a\nb\n"), 0);
		assert_int_equal(seek_to(test.group, item, SEEK_TO_OFFSET, 0), 0);
	}
	reopen();
	assert_int_equal(children(test.queue, ITEM_PARTITION), MANY + 1);
	assert_int_equal(store_committed_all(test.group, &rows, &count), 0);
	assert_int_equal(count, MANY + 1);
	for (size_t i = 0; i < count; i++) {
		const char *at = store_name(rows[i].partition);
		int64_t here = strcmp(at, "p") != 0 && atoi(at) % 500 == 0 ? 0 : -1;
		assert_int_equal(rows[i].committed, here);
		assert_true(i == 0 || strcmp(store_name(rows[i - 1].partition), at) < 0);
		assert_int_equal(info_of(rows[i].partition).last_offset, here ? -1 : 1);
	}
	for (size_t i = 0; i < count; i++)
		store_put(rows[i].partition);
	free(rows);
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), 0);
	assert_pop(opened(test.group, NULL), "");
}

/* ---- what lasts -------------------------------------------------------------------- */

static void access_expect(struct item *item, unsigned dir, uid_t uid, mode_t mode)
{
	struct access access;

	store_access(test.store, item, dir, &access);
	assert_int_equal(access.uid, uid);
	assert_int_equal(access.mode, mode);
}

static void test_access(void **state)
{
	static const struct access private = { 42, 43, 0700 };
	struct answer answer;

	(void)state;
	for (int round = 0; round < 2; round++) {
		access_expect(test.queue, QUEUE_DIR, 7, 0777);
		access_expect(test.queue, QUEUE_PARTITIONS, 7, 0755);
		access_expect(test.queue, QUEUE_CONFIG, 7, 0755);
		access_expect(test.partition, PARTITION_SEGMENTS, 7, 0755);
		access_expect(test.group, GROUP_DLQ, 7, 0755);
		reopen();
	}
	store_access_set(test.store, test.queue, QUEUE_GROUPS, &private, ACCESS_ALL,
			 answer_done, answer_start(&answer));
	assert_int_equal(answer_wait(&answer), 0);
	store_access_set(test.store, NULL, ROOT_QUEUES, &private, ACCESS_ALL, answer_done,
			 answer_start(&answer));
	assert_int_equal(answer_wait(&answer), 0);
	for (int round = 0; round < 2; round++) {
		access_expect(test.queue, QUEUE_GROUPS, 42, 0700);
		access_expect(test.queue, QUEUE_SNAPSHOTS, 7, 0755);
		access_expect(NULL, ROOT_QUEUES, 42, 0700);
		access_expect(NULL, ROOT_DIR, geteuid(), 0755);
		reopen();
	}
}

struct changer {
	pthread_t thread;
	unsigned set;
};

/* Changes one thing of a directory, and gives all the rest as it never was. */
static void *changer_main(void *arg)
{
	const struct changer *changer = arg;
	struct access access = { 99, 99, 0111 };
	struct answer answer;

	if (changer->set == ACCESS_UID)
		access.uid = 42;
	else
		access.mode = 0750;
	for (int i = 0; i < 50; i++) {
		store_access_set(test.store, test.group, GROUP_DIR, &access, changer->set,
				 answer_done, answer_start(&answer));
		if (answer_wait(&answer))
			return "refused";
	}
	return NULL;
}

static void test_access_parts(void **state)
{
	struct changer changers[] = { { .set = ACCESS_UID }, { .set = ACCESS_MODE } };
	void *failed;

	(void)state;
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&changers[i].thread, NULL, changer_main,
						&changers[i]),
				 0);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(changers[i].thread, &failed), 0);
		assert_null(failed);
	}
	for (int round = 0; round < 2; round++) {
		access_expect(test.group, GROUP_DIR, 42, 0750);
		reopen();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("a name is 1 to 200 bytes of UTF-8 without '/', controls or a dot "
		     "first, and not \"*\"",
		     test_names),
		TEST("a name in use is EEXIST, per kind and queue", test_exists),
		TEST("of many that make one name at once, one succeeds",
		     test_exists_contended),
		TEST("a queue with partitions and a partition with messages are "
		     "ENOTEMPTY",
		     test_not_empty),
		TEST("what somebody reads below is EBUSY", test_busy),
		TEST("what was dropped answers ESTALE", test_stale),
		TEST("a queue takes all its groups with it", test_queue_takes_its_groups),
		TEST("a partition or group made again is a new one", test_again_is_new),
		TEST("no number is given out twice", test_numbers),
		TEST("a listing stays whole while others make and drop",
		     test_listing_stays_whole),
		TEST("a listing stays whole while what it shows is dropped",
		     test_drop_while_listing),
		TEST("5,000 partitions are all there when the store is opened again",
		     test_many),
		TEST("each directory's owner and mode last", test_access),
		TEST("an owner and a mode that are set at once both count",
		     test_access_parts),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("items", tests, NULL, NULL);
}
