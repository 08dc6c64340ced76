/* SPDX-License-Identifier: MIT */
/*
 * schema.c - the tables as text, and what tells our file from another.
 *
 * 1. A store is made under another name, whole and without WAL, and then renamed: so
 *    application_id and user_version always stand in the header of the main file, and a
 *    foreign or newer file is recognised by reading 100 bytes, without opening it.
 * 2. To change the format: raise STORE_VERSION, change `tables`, add the step from the
 *    version before, and a test that opens a store of that version.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_int.h"

#define NEW_IN_2                                                                          \
	/* text: what the file reads. Partitions numbered past last_partition were born \
	 * later. */ \
	"CREATE TABLE snapshots("                                                         \
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,"                                         \
	"  queue INTEGER NOT NULL REFERENCES queues,"                                     \
	"  name TEXT NOT NULL,"                                                           \
	"  created_us INTEGER NOT NULL,"                                                  \
	"  expires_us INTEGER NOT NULL,"                                                  \
	"  last_partition INTEGER NOT NULL,"                                              \
	"  text BLOB NOT NULL,"                                                           \
	"  UNIQUE(queue, name)) STRICT;" /* The transactionIds of a window. */            \
	"CREATE TABLE seen("                                                              \
	"  id INTEGER PRIMARY KEY,"                                                       \
	"  partition INTEGER NOT NULL,"                                                   \
	"  transaction_id TEXT NOT NULL,"                                                 \
	"  \"offset\" INTEGER NOT NULL,"                                                  \
	"  created_us INTEGER NOT NULL,"                                                  \
	"  expires_us INTEGER NOT NULL,"                                                  \
	"  UNIQUE(partition, transaction_id)) STRICT;"                                    \
	"CREATE INDEX seen_by_end ON seen(expires_us);"

static const char tables[] =
	"CREATE TABLE meta(key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT "
	"ROWID;"
	/* AUTOINCREMENT: a number is never given out twice.
	 * access: uid:gid:mode of each directory of the item, the item itself first. */
	"CREATE TABLE queues("
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,"
	"  name TEXT NOT NULL UNIQUE,"
	"  access TEXT NOT NULL) STRICT;"
	/* next_*: where the log goes on while no segment is left to tell. */
	"CREATE TABLE partitions("
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,"
	"  queue INTEGER NOT NULL REFERENCES queues,"
	"  name TEXT NOT NULL,"
	"  access TEXT NOT NULL,"
	"  made_us INTEGER NOT NULL,"
	"  next_offset INTEGER NOT NULL DEFAULT 0,"
	"  next_position INTEGER NOT NULL DEFAULT 0,"
	"  modified_us INTEGER NOT NULL,"
	"  UNIQUE(queue, name)) STRICT;"
	/* started: somebody has read as this group, so where it starts is decided. */
	"CREATE TABLE groups("
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,"
	"  queue INTEGER NOT NULL REFERENCES queues,"
	"  name TEXT NOT NULL,"
	"  access TEXT NOT NULL,"
	"  started INTEGER NOT NULL DEFAULT 0,"
	"  UNIQUE(queue, name)) STRICT;"
	/* A group without a row here has read nothing of the partition. */
	"CREATE TABLE cursors("
	"  \"group\" INTEGER NOT NULL,"
	"  partition INTEGER NOT NULL,"
	"  committed INTEGER NOT NULL,"
	"  delivered INTEGER NOT NULL," /* given to somebody up to here */
	"  attempts INTEGER NOT NULL,"	/* deliveries of committed + 1 */
	"  failures INTEGER NOT NULL,"
	"  sought INTEGER NOT NULL DEFAULT 0," /* a seek has set it */
	"  PRIMARY KEY(\"group\", partition)) STRICT, WITHOUT ROWID;"
	/* What was written to config/; \"group\" 0: the queue's own. */
	"CREATE TABLE settings("
	"  queue INTEGER NOT NULL,"
	"  \"group\" INTEGER NOT NULL,"
	"  key TEXT NOT NULL,"
	"  value TEXT NOT NULL,"
	"  PRIMARY KEY(queue, \"group\", key)) STRICT, WITHOUT ROWID;"
	/* Copies: a letter outlives the message and the partition that it came from. */
	"CREATE TABLE letters("
	"  id INTEGER PRIMARY KEY AUTOINCREMENT,"
	"  \"group\" INTEGER NOT NULL,"
	"  partition_id INTEGER NOT NULL,"
	"  partition TEXT NOT NULL,"
	"  \"offset\" INTEGER NOT NULL,"
	"  error TEXT NOT NULL,"
	"  attempts INTEGER NOT NULL,"
	"  created_us INTEGER NOT NULL,"
	"  failed_us INTEGER NOT NULL,"
	"  data BLOB NOT NULL,"
	"  meta BLOB," /* as of its segment */
	"  UNIQUE(\"group\", partition_id, \"offset\")) STRICT;"
	"CREATE INDEX letters_by_name ON letters(\"group\", partition, \"offset\");"
	"CREATE INDEX letters_by_id ON letters(\"group\", id);"
	/* One clustered table: a small commit writes one page. base, created_us and position
	 * rise together, so every search is one ordered search on the key. A row must fit its
	 * page, because SQLite would assemble a longer one for each comparison: what is longer
	 * stands in bodies. ends: 32-bit little-endian. meta: see segment.c. */
	"CREATE TABLE segments("
	"  partition INTEGER NOT NULL,"
	"  base INTEGER NOT NULL,"
	"  last INTEGER NOT NULL,"
	"  created_us INTEGER NOT NULL,"
	"  position INTEGER NOT NULL,"
	"  size INTEGER NOT NULL,"
	"  number INTEGER NOT NULL DEFAULT 0," /* in its partition, rising by one */
	"  body INTEGER REFERENCES bodies,"
	"  ends BLOB,"
	"  data BLOB,"
	"  meta BLOB,"
	"  PRIMARY KEY(partition, base)) STRICT, WITHOUT ROWID;"
	"CREATE TABLE bodies("
	"  id INTEGER PRIMARY KEY,"
	"  ends BLOB NOT NULL,"
	"  data BLOB NOT NULL,"
	"  meta BLOB) STRICT;" NEW_IN_2;

/* What makes a store of version i one of version i + 1. */
static const char *const steps[STORE_VERSION] = {
	[1] = "ALTER TABLE groups DROP COLUMN start_us;"
	      "ALTER TABLE groups ADD COLUMN started INTEGER NOT NULL DEFAULT 0;"
	      /* Whoever has a cursor has read, or was told where to. */
	      "UPDATE groups SET started = id IN (SELECT \"group\" FROM cursors);"
	      "ALTER TABLE cursors ADD COLUMN sought INTEGER NOT NULL DEFAULT 0;"
	      "ALTER TABLE letters ADD COLUMN meta BLOB;"
	      "ALTER TABLE segments ADD COLUMN meta BLOB;"
	      "ALTER TABLE bodies ADD COLUMN meta BLOB;" NEW_IN_2,
	[2] = "ALTER TABLE segments ADD COLUMN number INTEGER NOT NULL DEFAULT 0;",
};

static uint32_t big_endian(const unsigned char *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
	       (uint32_t)bytes[2] << 8 | bytes[3];
}

int schema_probe(const char *path, struct store_why *why)
{
	enum { USER_VERSION = 60, APPLICATION_ID = 68, HEADER = 100 };
	unsigned char head[HEADER];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t got;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return why_set(why, -errno, "cannot read it: %s", strerror(errno));
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return why_set(
			why, -EMEDIUMTYPE,
			"not a queenfs store but no regular file; it was left untouched");
	}
	got = read(fd, head, sizeof(head));
	if (got < 0) {
		int error = -errno;
		close(fd);
		return why_set(why, error, "cannot read it: %s", strerror(-error));
	}
	close(fd);
	if (got == 0)
		return 0;
	if (got != HEADER || memcmp(head, "SQLite format 3", 16) != 0 ||
	    big_endian(head + APPLICATION_ID) != STORE_APPLICATION_ID)
		return why_set(why, -EMEDIUMTYPE,
			       "not a queenfs store; it was left untouched");
	if (big_endian(head + USER_VERSION) > STORE_VERSION)
		return why_set(
			why, -EMEDIUMTYPE,
			"made by a newer queenfs (format %u, this one knows up to %d); "
			"it was left untouched",
			big_endian(head + USER_VERSION), STORE_VERSION);
	return 0;
}

static int make_at(const char *path, struct store_why *why)
{
	char text[sizeof(tables) + 256];
	struct conn *conn;
	/* The modes in the mount say who may read messages, so nobody else may read the
	 * file; SQLite gives its WAL the same mode. */
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), error;

	if (fd < 0)
		return why_set(why, -errno, "cannot make it: %s", strerror(errno));
	close(fd);
	error = conn_open(path, SQLITE_OPEN_READWRITE, &conn, why);
	if (error)
		return error;
	/* auto_vacuum and page_size cannot be changed later. */
	snprintf(text, sizeof(text),
		 "PRAGMA page_size = %d; PRAGMA auto_vacuum = incremental;"
		 "PRAGMA synchronous = EXTRA; BEGIN IMMEDIATE; %s"
		 "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
		 STORE_PAGE_BYTES, tables, STORE_APPLICATION_ID, STORE_VERSION);
	error = conn_exec(conn, text);
	if (error)
		why_set(why, error, "%s", conn->why.text);
	conn_close(conn);
	return error;
}

int schema_update(struct store *store, struct store_why *why)
{
	struct conn *writer = store->writer;
	sqlite3_stmt *stmt = conn_stmt(writer, STMT_USER_VERSION);
	char text[64];
	int64_t version;
	int got = conn_step(writer, stmt);

	if (got != 1)
		return why_set(why, got < 0 ? got : -EIO, "%s", writer->why.text);
	version = sqlite3_column_int64(stmt, 0);
	sqlite3_reset(stmt);
	if (version == STORE_VERSION)
		return 0;
	conn_run(writer, conn_stmt(writer, STMT_BEGIN));
	for (; version > 0 && version < STORE_VERSION && !writer->error; version++)
		conn_exec(writer, steps[version]);
	snprintf(text, sizeof(text), "PRAGMA user_version = %d", STORE_VERSION);
	if (!writer->error)
		conn_exec(writer, text);
	if (!writer->error)
		conn_run(writer, conn_stmt(writer, STMT_COMMIT));
	if (writer->error)
		return why_set(why, writer->error, "cannot bring it to format %d: %s",
			       STORE_VERSION, writer->why.text);
	/* An older program must see in the header that it is none of its own. */
	wal_checkpoint(store, CHECKPOINT_CUT);
	return 0;
}

int schema_make(const char *path, struct store_why *why)
{
	char *wal = NULL, *fresh = NULL;
	struct stat st;
	int error = -ENOMEM;

	if (stat(path, &st) == 0 && st.st_size > 0)
		return 0;
	if (asprintf(&wal, "%s-wal", path) < 0 || asprintf(&fresh, "%s-new", path) < 0)
		goto out;
	/* SQLite would play the old WAL into the new file. */
	if (stat(wal, &st) == 0 && st.st_size > 0) {
		error = why_set(why, -EEXIST,
				"it is gone but its WAL, %s, is still there; "
				"bring the store back or move that file away",
				wal);
		goto out;
	}
	unlink(fresh);
	error = make_at(fresh, why);
	if (!error && rename(fresh, path) < 0)
		error = why_set(why, -errno, "cannot make it: %s", strerror(errno));
	if (error)
		unlink(fresh);
out:
	free(wal);
	free(fresh);
	return error;
}
