/* SPDX-License-Identifier: MIT */
/*
 * store_test.h - what the tests of store/ share: one store in a directory of its own, and
 * its verbs as functions that return once they are answered.
 *
 * 1. `test` is the store of the test that runs, with queue q, partition p and group g.
 *    Items and readers that a function here returns are the fixture's: teardown puts and
 *    closes them, also after a failed assertion.
 * 2. Only the main thread asserts; other threads count what was wrong.
 * 3. Nobody waits for a time to pass, only for something to be so.
 */
#ifndef STORE_TEST_H
#define STORE_TEST_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "store.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MiB (1u << 20)

#define TEST(text, function)                                                  \
	{                                                                     \
		.name = (text), .test_func = (function), .setup_func = setup, \
		.teardown_func = teardown                                     \
	}

static struct {
	char dir[128], path[160];
	struct store_options options;
	struct store *store;
	struct item *queue, *partition, *group;
	struct item *items[64]; /* references to put */
	size_t item_count;
	struct reader *readers[16]; /* to close */
	char *text;		    /* what drain() and log_text() return */
	struct {
		pthread_t thread;
		sem_t reached, release;
		bool on;
	} hold;
} test;

static const struct reader_who test_who = { 1, 0 };

/* ---- verbs that are answered ------------------------------------------------------- */

struct answer {
	sem_t done;
	int error;
	char why[240];
	struct item *item; /* a reference */
};

/* Why the last refusal in this thread was one. */
static _Thread_local char refused_why[240];

static inline void sem_take(sem_t *sem)
{
	while (sem_wait(sem) < 0)
		;
}

static inline void answer_done(void *arg, const struct store_result *result)
{
	struct answer *answer = arg;

	answer->error = result->error;
	snprintf(answer->why, sizeof(answer->why), "%s", result->why);
	answer->item = result->item ? store_get(result->item) : NULL;
	sem_post(&answer->done);
}

static inline struct answer *answer_start(struct answer *answer)
{
	memset(answer, 0, sizeof(*answer));
	sem_init(&answer->done, 0, 0);
	return answer;
}

static inline int answer_wait(struct answer *answer)
{
	sem_take(&answer->done);
	sem_destroy(&answer->done);
	snprintf(refused_why, sizeof(refused_why), "%s", answer->why);
	store_put(answer->item);
	return answer->error;
}

/* Messages of a text, one a line. */
static inline struct messages lines(const char *text)
{
	struct messages messages = { .size = strlen(text), .lines = true };

	messages.data = malloc(messages.size + 1);
	messages.ends = malloc((messages.size + 1) * sizeof(*messages.ends));
	if (!messages.data || !messages.ends)
		abort();
	memcpy(messages.data, text, messages.size);
	for (const char *end = text; (end = strchr(end, '\n')); end++)
		messages.ends[messages.count++] = (uint32_t)(end - text) + 1;
	return messages;
}

/* One message: its number, then as many of the letter as it needs to be that long. */
static inline struct messages long_line(unsigned number, char letter, size_t size)
{
	struct messages messages = { .size = size, .count = 1, .lines = true };

	messages.data = malloc(size + 1);
	messages.ends = malloc(sizeof(*messages.ends));
	if (!messages.data || !messages.ends)
		abort();
	memset(messages.data, letter, size);
	messages.data[snprintf(messages.data, size, "%u ", number)] = letter;
	messages.data[size - 1] = '\n';
	messages.ends[0] = (uint32_t)size;
	return messages;
}

static inline void push_start(struct item *queue, struct item *partition,
			      const char *text, struct answer *answer)
{
	struct messages messages = lines(text);

	store_push(queue, partition, &messages, answer_done, answer_start(answer));
}

static inline int push_messages(struct item *partition, struct messages messages)
{
	struct answer answer;

	store_push(test.queue, partition, &messages, answer_done, answer_start(&answer));
	return answer_wait(&answer);
}

/* To a partition of q; NULL: to its default. */
static inline int push(struct item *partition, const char *text)
{
	return push_messages(partition, lines(text));
}

static inline int push_default(struct item *queue, const char *text)
{
	struct answer answer;

	push_start(queue, NULL, text, &answer);
	return answer_wait(&answer);
}

static const struct access anyone = { .uid = 7, .gid = 8, .mode = 0777 };

static inline int make(struct item *parent, enum item_kind kind, const char *name)
{
	struct answer answer;

	store_make(test.store, parent, kind, name, &anyone, answer_done,
		   answer_start(&answer));
	return answer_wait(&answer);
}

static inline int drop(struct item *item)
{
	struct answer answer;

	store_drop(item, answer_done, answer_start(&answer));
	return answer_wait(&answer);
}

static inline int segment_drop(struct item *partition, int64_t base)
{
	struct answer answer;

	store_segment_drop(partition, base, answer_done, answer_start(&answer));
	return answer_wait(&answer);
}

static inline int seek_to(struct item *group, struct item *partition, enum seek_kind kind,
			  int64_t value)
{
	struct seek seek = { .kind = kind, .value = value };
	struct answer answer;

	store_seek(group, partition, &seek, answer_done, answer_start(&answer));
	return answer_wait(&answer);
}

static inline int set(struct item *item, enum setting setting, const char *text)
{
	struct answer answer;

	store_setting_set(item, setting, text, answer_done, answer_start(&answer));
	return answer_wait(&answer);
}

static inline int ack(struct reader *reader, enum ack_verb verb, int64_t offset)
{
	struct answer answer;

	store_ack(reader, verb, offset, "why not", answer_done, answer_start(&answer));
	return answer_wait(&answer);
}

static inline int sync_store(void)
{
	struct answer answer;

	store_sync(test.store, answer_done, answer_start(&answer));
	return answer_wait(&answer);
}

/* ---- items, readers, what they show ------------------------------------------------ */

static inline struct item *kept(struct item *item)
{
	assert_true(test.item_count < COUNT(test.items));
	return test.items[test.item_count++] = item;
}

static inline struct item *found(struct item *parent, enum item_kind kind,
				 const char *name)
{
	struct item *item;

	assert_int_equal(store_find(test.store, parent, kind, name, &item), 0);
	return kept(item);
}

static inline struct item *made(struct item *parent, enum item_kind kind,
				const char *name)
{
	assert_int_equal(make(parent, kind, name), 0);
	return found(parent, kind, name);
}

static inline int missing(struct item *parent, enum item_kind kind, const char *name)
{
	struct item *item;
	int error = store_find(test.store, parent, kind, name, &item);

	if (!error)
		store_put(item);
	return error == -ENOENT;
}

static inline size_t children(struct item *parent, enum item_kind kind)
{
	struct item *item;
	uint64_t after = 0;
	size_t count = 0;

	while (store_next(test.store, parent, kind, after, &item) == 0) {
		assert_true(store_id(item) > after);
		after = store_id(item);
		store_put(item);
		count++;
	}
	return count;
}

static inline struct reader *opened_as(struct item *group, struct item *partition,
				       unsigned flags)
{
	size_t i = 0;

	while (i < COUNT(test.readers) && test.readers[i])
		i++;
	assert_true(i < COUNT(test.readers));
	assert_int_equal(
		store_reader_open(group, partition, flags, &test_who, &test.readers[i]),
		0);
	return test.readers[i];
}

static inline struct reader *opened(struct item *group, struct item *partition)
{
	return opened_as(group, partition, 0);
}

static inline void closed(struct reader *reader)
{
	for (size_t i = 0; i < COUNT(test.readers); i++)
		if (test.readers[i] == reader)
			test.readers[i] = NULL;
	store_reader_close(reader);
}

/* One read of at most `size` bytes has to return exactly this text. */
#define assert_read(reader, size, expected) \
	read_expect((reader), (size), (expected), __FILE__, __LINE__)
static inline void read_expect(struct reader *reader, size_t size, const char *expected,
			       const char *file, int line)
{
	char buffer[4096];
	ssize_t got = store_read(reader, buffer, size);

	assert_true(size < sizeof(buffer));
	buffer[got > 0 ? got : 0] = '\0';
	if (got != (ssize_t)strlen(expected) || strcmp(buffer, expected) != 0) {
		print_error("read %zd \"%s\", not \"%s\"\n", got, buffer, expected);
		_fail(file, line);
	}
}

/* One pop: this text, then its end. */
#define assert_pop(reader, expected) pop_expect((reader), (expected), __FILE__, __LINE__)
static inline void pop_expect(struct reader *reader, const char *expected,
			      const char *file, int line)
{
	read_expect(reader, 4000, expected, file, line);
	if (expected[0])
		read_expect(reader, 4000, "", file, line);
}

static inline char *text_room(size_t size)
{
	test.text = realloc(test.text, size);
	assert_non_null(test.text);
	return test.text;
}

/* Pops all that waits; valid until the next call of this or log_text(). */
static inline const char *drain(struct reader *reader)
{
	size_t used = 0, room = 64 * 1024;
	int ends = 0;

	while (ends < 2) {
		ssize_t got = store_read(reader, text_room(used + room + 1) + used, room);
		assert_true(got >= 0);
		ends = got == 0 ? ends + 1 : 0;
		used += (size_t)got;
	}
	test.text[used] = '\0';
	return test.text;
}

static inline struct partition_info info_of(struct item *partition)
{
	struct partition_info info;

	store_partition_info(partition, &info);
	return info;
}

static inline const char *log_text(struct item *partition)
{
	struct partition_info info = info_of(partition);
	size_t size = (size_t)(info.end_position - info.first_position);
	_Atomic int64_t hint = 0;

	assert_int_equal(store_log_read(partition, info.first_position, &hint,
					text_room(size + 1), size),
			 size);
	test.text[size] = '\0';
	return test.text;
}

/* All segments, the oldest first; they have to lie end to end and rise in time. */
static inline size_t segments_of(struct item *partition, struct segment_info *segments,
				 size_t room)
{
	struct partition_info info = info_of(partition);
	struct segment_info segment;
	int64_t next = info.first_offset, newest_us = INT64_MIN;
	uint64_t position = info.first_position;
	size_t count = 0;

	memset(segments, 0, room * sizeof(*segments));
	while (store_segment_next(partition, next - 1, &segment) == 0) {
		assert_int_equal(segment.base_offset, next);
		assert_true(segment.end_offset >= segment.base_offset);
		assert_int_equal(segment.position, position);
		assert_true(segment.created_us > newest_us);
		next = segment.end_offset + 1;
		position += segment.size;
		newest_us = segment.created_us;
		assert_true(count < room);
		segments[count++] = segment;
	}
	assert_int_equal(next, info.last_offset + 1);
	assert_int_equal(position, info.end_position);
	assert_int_equal(info.segments, count);
	return count;
}

static inline int64_t committed(struct item *group, struct item *partition)
{
	int64_t value;

	assert_int_equal(store_committed(group, partition, &value), 0);
	return value;
}

/* ---- while a commit is under way --------------------------------------------------- */

static inline void hold_done(void *arg, const struct store_result *result)
{
	(void)arg;
	(void)result;
	sem_post(&test.hold.reached);
	sem_take(&test.hold.release);
}

static inline void *hold_main(void *arg)
{
	store_sync(test.store, hold_done, arg);
	return NULL;
}

/* A commit that goes on until hold_end(): what is queued meanwhile is the next batch. */
static inline void hold_begin(void)
{
	sem_init(&test.hold.reached, 0, 0);
	sem_init(&test.hold.release, 0, 0);
	assert_int_equal(pthread_create(&test.hold.thread, NULL, hold_main, NULL), 0);
	test.hold.on = true;
	sem_take(&test.hold.reached);
}

/* Returns once all that was queued is answered. */
static inline void hold_end(void)
{
	test.hold.on = false;
	sem_post(&test.hold.release);
	pthread_join(test.hold.thread, NULL);
	sem_destroy(&test.hold.reached);
	sem_destroy(&test.hold.release);
}

/* Runs function(0..count-1) in threads to their end; what they return is added up. */
struct runner {
	pthread_t thread;
	int (*function)(int index);
	int index, result;
};

static inline void *runner_main(void *arg)
{
	struct runner *runner = arg;

	runner->result = runner->function(runner->index);
	return NULL;
}

static inline int in_threads(int (*function)(int index), int count)
{
	struct runner runners[16];
	int sum = 0;

	assert_true(count <= (int)COUNT(runners));
	for (int i = 0; i < count; i++) {
		runners[i] = (struct runner){ .function = function, .index = i };
		assert_int_equal(pthread_create(&runners[i].thread, NULL, runner_main,
						&runners[i]),
				 0);
	}
	for (int i = 0; i < count; i++) {
		pthread_join(runners[i].thread, NULL);
		sum += runners[i].result;
	}
	return sum;
}

/* The bound is for a store that is broken; nothing is measured. */
#define wait_for(condition)                                                  \
	do {                                                                 \
		time_t give_up = time(NULL) + 30;                            \
		while (!(condition)) {                                       \
			nanosleep(&(struct timespec){ 0, 1000000 }, NULL);   \
			if (time(NULL) > give_up)                            \
				fail_msg("never came true: %s", #condition); \
		}                                                            \
	} while (0)

/* ---- the store from outside -------------------------------------------------------- */

/* Runs SQL in a connection of its own; returns the first number it answers, or 0. */
static inline int64_t sql(const char *text)
{
	sqlite3_stmt *stmt = NULL;
	int64_t answer = 0;
	bool answered = false;
	sqlite3 *db;
	int code;

	assert_int_equal(sqlite3_open(test.path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 60000);
	for (code = SQLITE_OK; *text && code == SQLITE_OK;) {
		code = sqlite3_prepare_v2(db, text, -1, &stmt, &text);
		while (code == SQLITE_OK && stmt && sqlite3_step(stmt) == SQLITE_ROW) {
			if (!answered)
				answer = sqlite3_column_int64(stmt, 0);
			answered = true;
		}
		if (code == SQLITE_OK)
			code = sqlite3_finalize(stmt);
	}
	if (code != SQLITE_OK)
		print_error("%s\n", sqlite3_errmsg(db));
	assert_int_equal(code, SQLITE_OK);
	sqlite3_close(db);
	return answer;
}

static inline uint32_t big_endian32(const unsigned char *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 |
	       at[3];
}

/* How many transactions the WAL holds: the frames that end one. */
static inline unsigned transactions(void)
{
	enum { HEADER = 32, FRAME = 24, PAGE_SIZE_AT = 8, SALT_AT = 16 };
	unsigned char header[HEADER], frame[FRAME];
	unsigned count = 0;
	char path[sizeof(test.path) + 8];
	FILE *wal;

	snprintf(path, sizeof(path), "%s-wal", test.path);
	wal = fopen(path, "rb");
	if (!wal)
		return 0;
	if (fread(header, HEADER, 1, wal) == 1)
		while (fread(frame, FRAME, 1, wal) == 1 &&
		       memcmp(frame + 8, header + SALT_AT, 8) == 0) {
			count += big_endian32(frame + 4) != 0;
			fseek(wal, (long)big_endian32(header + PAGE_SIZE_AT), SEEK_CUR);
		}
	fclose(wal);
	return count;
}

/* ---- the fixture ------------------------------------------------------------------- */

static inline void dir_make(const char *below)
{
	memset(&test, 0, sizeof(test));
	snprintf(test.dir, sizeof(test.dir), "%s/queenfs-unit.XXXXXX", below);
	assert_non_null(mkdtemp(test.dir));
	snprintf(test.path, sizeof(test.path), "%s/queen.db", test.dir);
	test.options = (struct store_options){ .path = test.path,
					       .reserve_bytes = 65536,
					       .wal_limit_bytes = 16 * MiB };
}

static inline void dir_remove(void)
{
	struct dirent **entries = NULL;
	int count = scandir(test.dir, &entries, NULL, alphasort);
	char path[512];

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", test.dir, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.')
			remove(path);
		free(entries[i]);
	}
	free(entries);
	rmdir(test.dir);
}

static inline int store_start(void)
{
	struct store_why why;
	int error = store_open(&test.options, &test.store, &why);

	snprintf(refused_why, sizeof(refused_why), "%s", error ? why.text : "");
	return error;
}

static inline void store_stop(void)
{
	if (!test.store)
		return;
	if (test.hold.on)
		hold_end();
	for (size_t i = 0; i < COUNT(test.readers); i++)
		if (test.readers[i])
			closed(test.readers[i]);
	while (test.item_count > 0)
		store_put(test.items[--test.item_count]);
	store_close(test.store);
	test.store = NULL;
	test.queue = test.partition = test.group = NULL;
}

static inline void find_own(void)
{
	test.queue = found(NULL, ITEM_QUEUE, "q");
	test.partition = found(test.queue, ITEM_PARTITION, "p");
	test.group = found(test.queue, ITEM_GROUP, "g");
}

static inline void make_own(void)
{
	test.queue = made(NULL, ITEM_QUEUE, "q");
	test.partition = made(test.queue, ITEM_PARTITION, "p");
	test.group = made(test.queue, ITEM_GROUP, "g");
}

/* Closes the store and opens it again; items and readers from before are gone. */
static inline void reopen(void)
{
	store_stop();
	assert_int_equal(store_start(), 0);
	find_own();
}

static inline const char *temporary(void)
{
	const char *dir = getenv("TMPDIR");

	return dir && strlen(dir) < 64 ? dir : "/tmp";
}

static inline int setup(void **state)
{
	(void)state;
	dir_make(temporary());
	if (store_start())
		return -1;
	make_own();
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	store_stop();
	free(test.text);
	test.text = NULL;
	dir_remove();
	return 0;
}

#endif
