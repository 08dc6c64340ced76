/* SPDX-License-Identifier: MIT */
/*
 * test_threads.c - everything at once, above all for the thread sanitizer: pushing,
 * popping, seeking, looking, making and dropping in threads of their own.
 */
#include "store_test.h"

#include <sched.h>
#include <stdatomic.h>

enum { PUSHERS = 3, PUSHES = 250, PARTITIONS = 3 };

static atomic_int pushing;
static struct item *partitions[PARTITIONS]; /* segments of the last one are removed */

/* Lines `<who> <number>!`, now to one partition, now to another. */
static int thread_push(int who)
{
	int next[PARTITIONS] = { 0 }, wrong = 0;
	char text[64];

	for (int i = 0; i < PUSHES; i++) {
		int at = (i + who) % PARTITIONS;
		snprintf(text, sizeof(text), "%d %d!\n%d %d!\n", who, next[at], who,
			 next[at] + 1);
		next[at] += 2;
		wrong += push(partitions[at], text) != 0;
	}
	atomic_fetch_sub(&pushing, 1);
	return wrong;
}

/* Pops in small pieces; each line has to be whole. */
static int pop_lines(struct item *group, struct item *partition, int keep_for)
{
	struct reader *reader;
	char line[64];
	size_t used = 0;
	int wrong = 0, who, number;

	while (atomic_load(&pushing) > 0) {
		if (store_reader_open(group, partition, 0, &test_who, &reader))
			return 1000;
		for (int i = 0; i < keep_for; i++) {
			ssize_t got = store_read(reader, line + used, 3);
			char end;
			if (got <= 0) {
				wrong += got < 0 || used > 0;
				sched_yield();
				continue;
			}
			used += (size_t)got;
			line[used] = '\0';
			if (line[used - 1] != '\n')
				continue;
			wrong += sscanf(line, "%d %d%c", &who, &number, &end) != 3 ||
				 end != '!' || strchr(line, '\n') != line + used - 1;
			used = 0;
			if (i % 50 == 0)
				store_unread(reader);
		}
		store_reader_close(reader);
		used = 0;
	}
	return wrong;
}

static int thread_pop_queue(int index)
{
	(void)index;
	return pop_lines(test.group, NULL, 1000);
}

static int thread_pop_partition(int index)
{
	return pop_lines(test.group, partitions[index % PARTITIONS], 100);
}

/* Two threads share one reader of a group that nobody seeks: each message comes once. */
static struct reader *shared;
static atomic_int shared_lines;

static int thread_share(int index)
{
	char line[64];
	int wrong = 0;

	(void)index;
	while (atomic_load(&pushing) > 0) {
		ssize_t got = store_read(shared, line, sizeof(line));
		wrong += got < 0 || (got > 0 && line[got - 1] != '\n');
		for (ssize_t i = 0; i < got; i++)
			if (line[i] == '\n')
				atomic_fetch_add(&shared_lines, 1);
	}
	return wrong;
}

static int thread_seek(int index)
{
	unsigned seed = (unsigned)index;
	int wrong = 0;

	while (atomic_load(&pushing) > 0) {
		struct item *partition = partitions[rand_r(&seed) % PARTITIONS];
		struct partition_info info = info_of(partition);
		enum seek_kind kind = (enum seek_kind)(rand_r(&seed) % SEEK_TO_TABLE);
		int64_t value =
			kind == SEEK_TO_TIME ? info.modified_us - 1000 : info.last_offset;
		int error = seek_to(
			test.group,
			kind != SEEK_TO_OFFSET && rand_r(&seed) % 2 ? NULL : partition,
			kind, value);
		wrong += error && error != -ERANGE; /* removed meanwhile */
	}
	return wrong;
}

/* Reads what is there, as log, as segments, as cursors, as names. */
static int thread_look(int index)
{
	struct item *partition = partitions[index % PARTITIONS], *item;
	_Atomic int64_t hint = 0;
	struct segment_info segment;
	struct committed_row *rows;
	char buffer[4096];
	size_t count;
	int wrong = 0;

	while (atomic_load(&pushing) > 0) {
		struct partition_info info = info_of(partition);
		ssize_t got = store_log_read(partition, info.first_position, &hint,
					     buffer, sizeof(buffer));
		wrong += got < 0 && got != -ESTALE;
		wrong += got > 0 && (buffer[0] < '0' || buffer[0] >= '0' + PUSHERS);
		for (int64_t after = -1;
		     store_segment_next(partition, after, &segment) == 0;
		     after = segment.base_offset)
			wrong += segment.base_offset <= after;
		for (uint64_t after = 0; store_next(test.store, test.queue,
						    ITEM_PARTITION, after, &item) == 0;
		     store_put(item))
			after = store_id(item);
		if (store_committed_all(test.group, &rows, &count))
			return 1000;
		for (size_t i = 0; i < count; i++) {
			wrong += rows[i].committed < -1;
			store_put(rows[i].partition);
		}
		free(rows);
		wrong += store_now(test.store) < info.modified_us;
	}
	return wrong;
}

static int thread_make(int index)
{
	struct item *item;
	int wrong = 0;

	(void)index;
	while (atomic_load(&pushing) > 0) {
		wrong += make(test.queue, ITEM_PARTITION, "passing") != 0;
		wrong += make(test.queue, ITEM_GROUP, "passing") != 0;
		wrong += sync_store() != 0;
		for (int kind = ITEM_PARTITION; kind <= ITEM_GROUP; kind++) {
			wrong += store_find(test.store, test.queue, (enum item_kind)kind,
					    "passing", &item) != 0;
			wrong += drop(item) != 0;
			store_put(item);
		}
	}
	return wrong;
}

static int thread_remove(int index)
{
	struct item *partition = partitions[PARTITIONS - 1];
	struct segment_info segment;
	int wrong = 0;

	(void)index;
	while (atomic_load(&pushing) > 0)
		if (store_segment_next(partition, -1, &segment) == 0)
			wrong += segment_drop(partition, segment.base_offset) != 0;
	return wrong;
}

static int thread_any(int index)
{
	static int (*const others[])(int) = {
		thread_pop_queue, thread_pop_queue, thread_pop_partition, thread_seek,
		thread_look,	  thread_look,	    thread_make,	  thread_remove,
		thread_share,	  thread_share,
	};

	return index < PUSHERS ? thread_push(index) : others[index - PUSHERS](index);
}

static void test_at_once(void **state)
{
	int64_t total = 0;

	(void)state;
	test.options.wal_limit_bytes = MiB;
	reopen();
	partitions[0] = test.partition;
	partitions[1] = made(test.queue, ITEM_PARTITION, "second");
	partitions[2] = made(test.queue, ITEM_PARTITION, "third");
	shared = opened(made(test.queue, ITEM_GROUP, "shared"), test.partition);
	atomic_store(&shared_lines, 0);
	atomic_store(&pushing, PUSHERS);
	assert_int_equal(in_threads(thread_any, PUSHERS + 10), 0);
	for (int i = 0; i < PARTITIONS; i++) {
		int next[PUSHERS], who, number, length;
		const char *line = log_text(partitions[i]);
		memset(next, -1, sizeof(next));
		total += info_of(partitions[i]).last_offset + 1;
		for (; *line; line += length + 1) {
			assert_int_equal(sscanf(line, "%d %d!%n", &who, &number, &length),
					 2);
			/* the log of the last one begins anywhere */
			assert_true(number == next[who] + 1 ||
				    (i == PARTITIONS - 1 && next[who] < 0));
			next[who] = number;
		}
	}
	assert_int_equal(total, 2 * PUSHERS * PUSHES);
	for (const char *line = drain(shared); *line; line = strchr(line, '\n') + 1)
		atomic_fetch_add(&shared_lines, 1);
	assert_int_equal(atomic_load(&shared_lines),
			 info_of(test.partition).last_offset + 1);
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	for (int i = 0; i < PARTITIONS; i++) {
		char *log = strdup(log_text(partitions[i]));
		struct reader *reader = opened(test.group, partitions[i]);
		assert_string_equal(drain(reader), log);
		free(log);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("pushing, popping, seeking, looking, making and removing at once",
		     test_at_once),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
