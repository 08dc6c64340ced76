/* SPDX-License-Identifier: MIT */
/*
 * test_wal.c - section 13, wal_limit: the WAL is copied while commits go on, and bounded.
 *
 * What a failed sync does to it is for tests/crash/power.c.
 */
#include "store_test.h"

#include <sys/stat.h>
#include <sys/syscall.h>

#include "store_int.h"

#define PUSH (64u << 10)

static atomic_uint store_syncs; /* of the store's file */

/* In the place of the C library's. */
int fdatasync(int fd)
{
	char link[64], path[200];
	ssize_t size;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	size = readlink(link, path, sizeof(path) - 1);
	path[size > 0 ? size : 0] = '\0';
	store_syncs += strcmp(path, test.path) == 0;
	return (int)syscall(SYS_fdatasync, fd);
}

/* Every push is a transaction. */
static void open_with_limit(uint64_t limit)
{
	test.options.wal_limit_bytes = limit;
	reopen();
	pthread_mutex_lock(&test.store->state);
	tail_close(test.store);
	pthread_mutex_unlock(&test.store->state);
}

static void push_some(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(push_messages(test.partition, long_line(i, 'x', PUSH)),
				 0);
}

static uint64_t wal_file_bytes(void)
{
	char path[200];
	struct stat st;

	snprintf(path, sizeof(path), "%s-wal", test.path);
	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static sqlite3 *outsider_begin(void)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(test.path, &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_exec(db, "BEGIN; SELECT count(*) FROM meta", NULL, NULL, NULL),
		SQLITE_OK);
	return db;
}

static void test_copied(void **state)
{
	enum { LIMIT = 4 << 20 };

	(void)state;
	open_with_limit(LIMIT);
	while (test.store->wal_bytes < LIMIT / 2)
		push_some(1);
	/* fsync(2) adds nothing to the WAL, and wakes the thread */
	wait_for(sync_store() == 0 && test.store->copied_bytes == test.store->wal_bytes);
	/* all is copied: the next commit begins it anew, and nobody waited for that */
	push_some(1);
	assert_in_range(test.store->wal_bytes, 1, LIMIT / 2);
}

static void test_part_copied(void **state)
{
	enum { LIMIT = 4 << 20 };
	uint64_t seen;
	unsigned before;
	sqlite3 *db;

	(void)state;
	open_with_limit(LIMIT);
	while (test.store->wal_bytes < LIMIT / 8)
		push_some(1);
	seen = test.store->wal_bytes;
	db = outsider_begin();
	while (test.store->wal_bytes < LIMIT * 3 / 4)
		push_some(1);
	wait_for(sync_store() == 0 && test.store->copied_bytes == seen);
	/* there is nothing more to copy, and so nothing to sync, however often it is woken */
	before = store_syncs;
	for (int i = 0; i < 200; i++)
		assert_int_equal(sync_store(), 0);
	assert_int_equal(store_syncs, before);
	sqlite3_close(db);
	wait_for(sync_store() == 0 && test.store->copied_bytes == test.store->wal_bytes);
}

static void test_bounded_again(void **state)
{
	enum { LIMIT = 1 << 18 };
	sqlite3 *first, *last;

	(void)state;
	open_with_limit(LIMIT);
	first = outsider_begin();
	push_some(30);
	assert_true(wal_file_bytes() > 4ull * LIMIT);
	/* one who sees all of it does not keep it from being copied */
	last = outsider_begin();
	sqlite3_close(first);
	wait_for(sync_store() == 0 && test.store->copied_bytes == test.store->wal_bytes);
	sqlite3_close(last);
	/* so SQLite has begun it anew: it has the limit that it always had */
	for (unsigned i = 0; i < 30; i++) {
		push_some(1);
		assert_in_range(test.store->wal_bytes, 0, LIMIT + 2 * PUSH);
		assert_in_range(wal_file_bytes(), 0, 2 * LIMIT + 2 * PUSH);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("a thread copies the WAL before its limit", test_copied),
		TEST("what somebody outside has not seen yet is copied once they have "
		     "gone",
		     test_part_copied),
		TEST("a WAL that somebody outside has kept long is bounded again after "
		     "that",
		     test_bounded_again),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("wal", tests, NULL, NULL);
}
