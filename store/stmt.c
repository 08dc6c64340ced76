/* SPDX-License-Identifier: MIT */
/*
 * stmt.c - every SQL text of the store in one table, prepared on first use.
 *
 * 1. A connection is used by one thread at a time; its statements are its own.
 * 2. A statement handed out by conn_stmt() is reset; conn_step() resets it at its end.
 * 3. A failure is kept in conn->error until cleared, so that a run of statements can be
 *    checked once, and a NULL statement passes through binders and conn_step() unharmed.
 */
#include <string.h>

#include "store_int.h"

static const char *const texts[STMT_COUNT] = {
	[STMT_BEGIN] = "BEGIN IMMEDIATE",
	[STMT_COMMIT] = "COMMIT",
	[STMT_ROLLBACK] = "ROLLBACK",

	[STMT_META_GET] = "SELECT value FROM meta WHERE key = ?1",
	[STMT_META_SET] = "INSERT INTO meta(key, value) VALUES(?1, ?2) "
			  "ON CONFLICT(key) DO UPDATE SET value = excluded.value",

	[STMT_USER_VERSION] = "PRAGMA user_version",
	[STMT_PAGE_BYTES] = "PRAGMA page_size",

	[STMT_QUEUE_ALL] = "SELECT id, name, access FROM queues ORDER BY id",
	[STMT_QUEUE_INSERT] = "INSERT INTO queues(name, access) VALUES(?1, ?2)",
	[STMT_QUEUE_DELETE] = "DELETE FROM queues WHERE id = ?1",
	[STMT_QUEUE_ACCESS] = "UPDATE queues SET access = ?2 WHERE id = ?1",

	[STMT_PARTITION_ALL] = "SELECT id, name, access, queue, made_us, next_offset, "
			       "next_position, modified_us FROM partitions ORDER BY id",
	[STMT_PARTITION_INSERT] = "INSERT INTO partitions(name, access, queue, made_us, "
				  "modified_us) VALUES(?1, ?2, ?3, ?4, ?4)",
	[STMT_PARTITION_DELETE] = "DELETE FROM partitions WHERE id = ?1",
	[STMT_PARTITION_ACCESS] = "UPDATE partitions SET access = ?2 WHERE id = ?1",
	[STMT_PARTITION_NEXT] = "UPDATE partitions SET next_offset = ?2, next_position = "
				"?3, modified_us = ?4 WHERE id = ?1",
	/* The offset that its next message gets. */
	[STMT_PARTITION_END] = "SELECT max(next_offset, 1 + coalesce((SELECT last FROM "
			       "segments WHERE partition = ?1 ORDER BY base DESC LIMIT "
			       "1), -1)) FROM partitions WHERE id = ?1",
	[STMT_PARTITION_CURSORS_DELETE] = "DELETE FROM cursors WHERE partition = ?1 "
					  "AND \"group\" = ?2",

	[STMT_GROUP_ALL] =
		"SELECT id, name, access, queue, started FROM groups ORDER BY id",
	[STMT_GROUP_INSERT] = "INSERT INTO groups(name, access, queue) "
			      "VALUES(?1, ?2, ?3)",
	[STMT_GROUP_STARTED] = "UPDATE groups SET started = 1 WHERE id = ?1",
	[STMT_GROUP_DELETE] = "DELETE FROM groups WHERE id = ?1",
	[STMT_GROUP_ACCESS] = "UPDATE groups SET access = ?2 WHERE id = ?1",
	[STMT_GROUP_CURSORS_DELETE] = "DELETE FROM cursors WHERE \"group\" = ?1",
	[STMT_GROUPS_OF_QUEUE_DELETE] = "DELETE FROM groups WHERE queue = ?1",

	[STMT_CURSOR_ALL] =
		"SELECT queue, \"group\", partition, committed, delivered, attempts, "
		"failures, sought FROM cursors JOIN groups ON id = \"group\"",
	[STMT_CURSOR_SET] =
		"INSERT INTO cursors(\"group\", partition, committed, delivered, "
		"attempts, failures, sought) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7) "
		"ON CONFLICT DO UPDATE SET "
		"committed = excluded.committed, delivered = excluded.delivered, "
		"attempts = excluded.attempts, failures = excluded.failures, "
		"sought = excluded.sought",

	[STMT_SEGMENT_INSERT] = "INSERT INTO segments(partition, base, last, created_us, "
				"position, size, body, ends, data, meta, number) "
				"VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
	[STMT_SEGMENTS_BELOW_DELETE] =
		"DELETE FROM segments WHERE partition = ?1 AND base < ?2",
	[STMT_BODY_INSERT] = "INSERT INTO bodies(ends, data, meta) VALUES(?1, ?2, ?3)",
	[STMT_BODY_DELETE] = "DELETE FROM bodies WHERE id = ?1",
#define SEGMENT_COLUMNS "SELECT base, last, created_us, position, size, number"
	[STMT_SEGMENT_FIRST] = SEGMENT_COLUMNS
	" FROM segments WHERE partition = ?1 ORDER BY base LIMIT 1",
	[STMT_SEGMENT_OLDEST] =
		SEGMENT_COLUMNS ", body FROM segments WHERE partition = ?1 ORDER BY base",
	[STMT_SEGMENT_LAST] = SEGMENT_COLUMNS
	" FROM segments WHERE partition = ?1 ORDER BY base DESC LIMIT 1",
	[STMT_SEGMENT_AT] = SEGMENT_COLUMNS " FROM segments WHERE partition = ?1 "
					    "AND base <= ?2 ORDER BY base DESC LIMIT 1",
	[STMT_SEGMENT_FROM] = SEGMENT_COLUMNS " FROM segments WHERE partition = ?1 "
					      "AND base >= ?2 ORDER BY base LIMIT 1",
	/* The segment that holds an offset and those after it. */
	[STMT_SEGMENT_RUN] = SEGMENT_COLUMNS
	", body, s.data, coalesce(s.ends, b.ends), coalesce(s.meta, b.meta) "
	"FROM segments AS s "
	"LEFT JOIN bodies AS b ON b.id = body WHERE partition = ?1 AND base >= "
	"(SELECT base FROM segments WHERE partition = ?1 AND base <= ?2 "
	"ORDER BY base DESC LIMIT 1) ORDER BY base",
	[STMT_SETTING_ALL] = "SELECT queue, \"group\", key, value FROM settings",
	[STMT_SETTING_SET] = "INSERT INTO settings(queue, \"group\", key, value) "
			     "VALUES(?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET "
			     "value = excluded.value",
	[STMT_SETTING_DELETE] =
		"DELETE FROM settings WHERE queue = ?1 AND \"group\" = ?2 AND key = ?3",
	[STMT_QUEUE_SETTINGS_DELETE] = "DELETE FROM settings WHERE queue = ?1",
	[STMT_GROUP_SETTINGS_DELETE] = "DELETE FROM settings WHERE \"group\" = ?1",

	[STMT_SNAPSHOT_ALL] = "SELECT id, queue, name, created_us, expires_us, "
			      "last_partition, text FROM snapshots ORDER BY id",
	[STMT_SNAPSHOT_INSERT] = "INSERT INTO snapshots(queue, name, created_us, "
				 "expires_us, last_partition, text) "
				 "VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
	[STMT_SNAPSHOT_EXPIRED] = "DELETE FROM snapshots WHERE queue = ?1 AND name = ?2",
	[STMT_SNAPSHOT_TEXT] = "SELECT text FROM snapshots WHERE id = ?1",
	[STMT_SNAPSHOT_DELETE] = "DELETE FROM snapshots WHERE id = ?1",
	[STMT_SNAPSHOTS_OF_QUEUE_DELETE] = "DELETE FROM snapshots WHERE queue = ?1",
	[STMT_LETTER_INSERT] =
		"INSERT INTO letters(\"group\", partition_id, partition, \"offset\", "
		"error, "
		"attempts, created_us, failed_us, data, meta) "
		"VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO UPDATE "
		"SET "
		"error = excluded.error, attempts = excluded.attempts, "
		"failed_us = excluded.failed_us",
#define LETTER_COLUMNS                                                               \
	"SELECT id, partition, \"offset\", error, attempts, created_us, failed_us, " \
	"length(data), partition_id, meta FROM letters WHERE \"group\" = ?1 "
	[STMT_LETTER_FIND] = LETTER_COLUMNS "AND partition = ?2 AND \"offset\" = ?3 "
					    "ORDER BY id DESC LIMIT 1",
	[STMT_LETTER_NEXT] = LETTER_COLUMNS "AND id > ?2 ORDER BY id LIMIT 1",
	[STMT_LETTER_DATA] = "SELECT partition, data, meta FROM letters WHERE \"group\" "
			     "= ?1 AND id = ?2",
	[STMT_LETTER_DELETE] = "DELETE FROM letters WHERE \"group\" = ?1 AND id = ?2",
	[STMT_LETTERS_OF_GROUP] = "SELECT 1 FROM letters WHERE \"group\" = ?1 LIMIT 1",
	[STMT_LETTERS_OF_QUEUE] = "SELECT 1 FROM letters WHERE \"group\" IN "
				  "(SELECT id FROM groups WHERE queue = ?1) LIMIT 1",
	/* The keys of an object. A string's text is decoded; the JSON of another value that
	 * is not nested comes from -> because `value` of a number has lost digits. From 3.42
	 * on only json_valid() is strict: json_each() reads JSON5. */
	[STMT_JSON_FIELDS] =
		"SELECT key, type, CASE type WHEN 'text' THEN value WHEN 'object' THEN "
		"value WHEN 'array' THEN value ELSE ?1 -> fullkey END "
		"FROM json_each(iif(json_valid(?1), ?1, 'not JSON'))",
	[STMT_SEEN_FIND] = "SELECT \"offset\", created_us FROM seen WHERE partition = ?1 "
			   "AND transaction_id = ?2",
	[STMT_SEEN_SET] = "INSERT INTO seen(partition, transaction_id, \"offset\", "
			  "created_us, expires_us) VALUES(?1, ?2, ?3, ?4, ?5) "
			  "ON CONFLICT DO UPDATE SET \"offset\" = excluded.\"offset\", "
			  "created_us = excluded.created_us, "
			  "expires_us = excluded.expires_us",
	[STMT_SEEN_DELETE] = "DELETE FROM seen WHERE id IN (SELECT id FROM seen WHERE "
			     "expires_us <= ?1 ORDER BY expires_us LIMIT 1000)",
	[STMT_SEEN_OF_PARTITION] = "DELETE FROM seen WHERE partition = ?1",
	[STMT_SEEN_END] = "SELECT min(expires_us) FROM seen",
	[STMT_FREE_PAGES] = "SELECT freelist_count, page_count "
			    "FROM pragma_freelist_count, pragma_page_count",
};

int conn_fail(struct conn *conn, int code)
{
	int error = -EIO;

	if (code == SQLITE_IOERR_FSYNC)
		conn->doubtful = true;
	switch (code & 0xff) {
	case SQLITE_FULL:
		error = -ENOSPC;
		break;
	case SQLITE_NOMEM:
		error = -ENOMEM;
		break;
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN: {
		int system = sqlite3_system_errno(conn->db);
		if (system == ENOSPC || system == EDQUOT)
			error = -ENOSPC;
		break;
	}
	}
	if (!conn->error) {
		conn->error = error;
		why_set(&conn->why, error, "the store answered: %s",
			sqlite3_errmsg(conn->db));
	}
	return error;
}

int conn_fail_errno(struct conn *conn, int number)
{
	if (!conn->error) {
		conn->error = number == EDQUOT ? -ENOSPC : -number;
		why_set(&conn->why, 0, "the store's tail: %s", strerror(number));
	}
	return conn->error;
}

int conn_damaged(struct conn *conn, const char *table)
{
	if (!conn->error) {
		conn->error = -EIO;
		why_set(&conn->why, 0, "it is damaged: %s holds what nobody wrote",
			table);
	}
	return -EIO;
}

void conn_error_clear(struct conn *conn)
{
	conn->error = 0;
	conn->why.text[0] = '\0';
}

sqlite3_stmt *conn_stmt(struct conn *conn, enum stmt id)
{
	sqlite3_stmt **stmt = &conn->stmts[id];

	if (!*stmt) {
		int code = sqlite3_prepare_v3(conn->db, texts[id], -1,
					      SQLITE_PREPARE_PERSISTENT, stmt, NULL);
		if (code != SQLITE_OK)
			conn_fail(conn, code);
	}
	return *stmt;
}

/* Binding fails only for want of memory, and then the step that follows fails as well
 * (NOT NULL columns) or finds nothing; with NULL it is a harmless misuse. */
void bind_int(sqlite3_stmt *stmt, int at, int64_t value)
{
	if (stmt)
		sqlite3_bind_int64(stmt, at, value);
}

void bind_null(sqlite3_stmt *stmt, int at)
{
	if (stmt)
		sqlite3_bind_null(stmt, at);
}

void bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
	if (stmt)
		sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
}

void bind_blob(sqlite3_stmt *stmt, int at, const void *data, size_t size)
{
	if (stmt)
		sqlite3_bind_blob64(stmt, at, data, size, SQLITE_STATIC);
}

int conn_step(struct conn *conn, sqlite3_stmt *stmt)
{
	int code;

	if (!stmt)
		return conn->error ? conn->error : -EIO;
	code = sqlite3_step(stmt);
	if (code == SQLITE_ROW)
		return 1;
	if (code != SQLITE_DONE)
		code = conn_fail(conn, code);
	else
		code = 0;
	sqlite3_reset(stmt);
	return code;
}

int conn_run(struct conn *conn, sqlite3_stmt *stmt)
{
	int got = conn_step(conn, stmt);

	if (got == 1) {
		sqlite3_reset(stmt);
		return 0;
	}
	return got;
}

int conn_exec(struct conn *conn, const char *sql)
{
	int code = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);

	return code == SQLITE_OK ? 0 : conn_fail(conn, code);
}

ssize_t row_slice(sqlite3_stmt *row, int column, uint64_t position, char *buffer,
		  size_t size)
{
	const char *data = sqlite3_column_blob(row, column);
	size_t length = (size_t)sqlite3_column_bytes(row, column);

	if (position >= length)
		return 0;
	size = size < length - position ? size : length - (size_t)position;
	memcpy(buffer, data + position, size);
	return (ssize_t)size;
}
