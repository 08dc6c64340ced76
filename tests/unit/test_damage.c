/* SPDX-License-Identifier: MIT */
/*
 * test_damage.c - stores that hold what nobody wrote (found by tests/fuzz): each is refused
 * with a word about where it is damaged, or is EIO where it is used; what is whole still
 * works.
 */
#include "store_test.h"

/* A value that a constraint forbids: constraints are none for a damaged disk. */
#define LAX                                                                           \
	"PRAGMA writable_schema = on; CREATE TEMP TABLE kept AS SELECT name, sql "    \
	"FROM sqlite_master; UPDATE sqlite_master SET sql = replace(replace(replace(" \
	"sql, ' NOT NULL', ''), 'STRICT, ', ''), ' STRICT', '') "                     \
	"WHERE type = 'table' AND name NOT LIKE 'sqlite_%'; "                         \
	"PRAGMA writable_schema = reset; "
#define STRICT                                                             \
	"; PRAGMA writable_schema = on; UPDATE sqlite_master SET sql = "   \
	"(SELECT o.sql FROM temp.kept o WHERE o.name = sqlite_master.name" \
	") WHERE type = 'table' AND name NOT LIKE 'sqlite_%'; "            \
	"PRAGMA writable_schema = reset"

static void fill_store(void)
{
	struct reader *reader;
	struct answer answer;
	struct item *second = made(test.queue, ITEM_PARTITION, "p2");

	assert_int_equal(push(test.partition, "one\n"), 0);
	assert_int_equal(push(test.partition, "two\n"), 0);
	assert_int_equal(push(second, "three\n"), 0);
	reader = opened_as(test.group, test.partition, READER_LEASED);
	assert_read(reader, 4000, "one\n");
	assert_int_equal(ack(reader, ACK_DLQ, 0), 0);
	closed(reader);
	store_snapshot_make(test.group, "s", answer_done, answer_start(&answer));
	assert_int_equal(answer_wait(&answer), 0);
	assert_int_equal(set(test.queue, SETTING_BATCH, "3"), 0);
}

/* Rows that are read when the store is opened. */
static void test_rows(void **state)
{
	static const struct {
		const char *sql, *table;
	} damages[] = {
		{ LAX "UPDATE queues SET name = NULL" STRICT, "queues" },
		{ LAX "UPDATE queues SET access = NULL" STRICT, "queues" },
		{ "UPDATE queues SET name = '..'", "queues" },
		{ "UPDATE queues SET name = 'a/b'", "queues" },
		{ "UPDATE queues SET id = -5", "queues" },
		{ "UPDATE partitions SET name = '' WHERE id = 1", "partitions" },
		{ "UPDATE partitions SET id = -1 WHERE id = 1", "partitions" },
		{ "UPDATE partitions SET queue = 77", "partitions" },
		{ "UPDATE partitions SET next_offset = -1", "partitions" },
		{ "UPDATE partitions SET next_offset = 9223372036854775807",
		  "partitions" },
		{ "UPDATE partitions SET modified_us = 9223372036854775807",
		  "partitions" },
		{ "UPDATE groups SET name = char(10)", "groups" },
		{ LAX "UPDATE groups SET queue = NULL" STRICT, "groups" },
		{ "UPDATE cursors SET committed = 9223372036854775807", "cursors" },
		{ "UPDATE cursors SET committed = -2", "cursors" },
		{ "UPDATE cursors SET delivered = 5", "cursors" },
		{ "UPDATE cursors SET partition = 99", "cursors" },
		{ "UPDATE segments SET base = -1 WHERE base = 0", "segments" },
		{ "UPDATE segments SET last = 9223372036854775807 WHERE base = 1",
		  "segments" },
		{ "UPDATE segments SET position = -1", "segments" },
		{ "UPDATE segments SET position = 10 WHERE base = 0", "segments" },
		{ "UPDATE segments SET number = 9 WHERE base = 0", "segments" },
		{ "UPDATE segments SET created_us = -1", "segments" },
		{ "UPDATE segments SET size = 9223372036854775807 WHERE base = 1",
		  "segments" },
		{ "UPDATE settings SET key = 'nothing'", "settings" },
		{ LAX "UPDATE settings SET value = NULL" STRICT, "settings" },
		{ "UPDATE snapshots SET name = '.'", "snapshots" },
		{ LAX "UPDATE snapshots SET text = NULL" STRICT, "snapshots" },
		{ "UPDATE snapshots SET expires_us = -7", "snapshots" },
		{ "INSERT OR REPLACE INTO meta VALUES('newest_us', "
		  "9223372036854775807)",
		  "meta" },
	};

	(void)state;
	fill_store();
	for (size_t i = 0; i < COUNT(damages); i++) {
		char copy[200], command[900];
		int error;
		store_stop();
		snprintf(copy, sizeof(copy), "%s/whole.db", test.dir);
		snprintf(command, sizeof(command), "cp %s %s", test.path, copy);
		assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
		sql(damages[i].sql);
		error = store_start();
		if (error != -EIO || !strstr(refused_why, damages[i].table))
			fail_msg("%s: %d, \"%s\"", damages[i].sql, error, refused_why);
		snprintf(command, sizeof(command), "cp %s %s; rm -f %s-wal %s-shm", copy,
			 test.path, test.path, test.path);
		assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
		assert_int_equal(store_start(), 0);
	}
}

/* More lines than there are partitions, of which each is one. */
static void test_snapshot_lines(void **state)
{
	struct snapshot_info info;

	(void)state;
	fill_store();
	store_stop();
	sql("UPDATE snapshots SET text = CAST(replace(hex(zeroblob(500)), '00', "
	    "'0' || char(9) || 'p' || char(10)) AS BLOB)");
	assert_int_equal(store_start(), 0);
	find_own();
	assert_int_equal(store_snapshot(test.queue, "s", &info), 0);
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_string_equal(drain(opened(test.group, test.partition)), "one\ntwo\n");
}

static void test_letters(void **state)
{
	static const char *const damages[] = {
		LAX "UPDATE letters SET partition = NULL" STRICT,
		"UPDATE letters SET partition = 'a/b'",
		"UPDATE letters SET meta = x'01'",
		"UPDATE letters SET meta = x'01ff6162'",
	};
	struct letter_info info;
	struct answer answer;

	(void)state;
	fill_store();
	for (size_t i = 0; i < COUNT(damages); i++) {
		store_stop();
		sql(damages[i]);
		assert_int_equal(store_start(), 0);
		find_own();
		assert_int_equal(store_letter_next(test.group, 0, &info), -EIO);
		store_letter_push(test.group, 1, NULL, answer_done,
				  answer_start(&answer));
		assert_int_equal(answer_wait(&answer), -EIO);
		store_stop();
		sql("UPDATE letters SET partition = 'p', meta = NULL");
		assert_int_equal(store_start(), 0);
		find_own();
	}
	store_letter_drop(test.group, 1, answer_done, answer_start(&answer));
	assert_int_equal(answer_wait(&answer), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("a store whose rows do not add up is refused, by the table's name",
		     test_rows),
		TEST("a snapshot with more lines than partitions is no harm",
		     test_snapshot_lines),
		TEST("a dead letter without a name, or with half a record, is EIO",
		     test_letters),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("damage", tests, NULL, NULL);
}
