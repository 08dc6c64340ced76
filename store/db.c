/* SPDX-License-Identifier: MIT */
/*
 * db.c - SQLite connections: how they are opened, lent, synced and checkpointed.
 *
 * 1. There is one writing connection, used by the committing role alone: nobody inside
 *    ever meets SQLITE_BUSY.
 * 2. Reading connections come from a pool, each for one short call under the gate's read
 *    side. A restarting checkpoint takes the write side, so it finds no reader of ours and
 *    the WAL stays bounded however steadily readers come (section 13, wal_limit).
 * 3. Once a sync has failed, the kernel may take pages for clean that never reached the disk,
 *    and a later sync says nothing about them. So before the next sync or checkpoint counts,
 *    the WAL is written once more. What was refused stands behind its end, whole, and would
 *    be found by the next start: the frame there is made void.
 */
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

int conn_open(const char *path, int flags, struct conn **out, struct store_why *why)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	int code;

	if (!conn)
		return -ENOMEM;
	code = sqlite3_open_v2(path, &conn->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
	if (code != SQLITE_OK) {
		int error = conn_fail(conn, code);
		why_set(why, error, "cannot open it: %s", sqlite3_errmsg(conn->db));
		conn_close(conn);
		return error;
	}
	sqlite3_extended_result_codes(conn->db, 1);
	/* Only somebody outside, say a sqlite3 shell, can hold a lock of ours. */
	sqlite3_busy_timeout(conn->db, 10000);
	*out = conn;
	return 0;
}

void conn_close(struct conn *conn)
{
	if (!conn)
		return;
	for (int i = 0; i < STMT_COUNT; i++)
		sqlite3_finalize(conn->stmts[i]);
	sqlite3_close(conn->db);
	free(conn);
}

int db_read_begin(struct store *store, struct conn **out)
{
	struct conn *conn;
	int error = 0;

	pthread_rwlock_rdlock(&store->gate);
	pthread_mutex_lock(&store->pool_lock);
	conn = store->pool;
	if (conn)
		store->pool = conn->next;
	pthread_mutex_unlock(&store->pool_lock);
	if (!conn)
		error = conn_open(store->path, SQLITE_OPEN_READWRITE, &conn, NULL);
	if (!error) {
		conn_error_clear(conn);
		*out = conn;
		return 0;
	}
	pthread_rwlock_unlock(&store->gate);
	return error;
}

void db_read_end(struct store *store, struct conn *conn)
{
	pthread_mutex_lock(&store->pool_lock);
	conn->next = store->pool;
	store->pool = conn;
	pthread_mutex_unlock(&store->pool_lock);
	pthread_rwlock_unlock(&store->gate);
}

/* The WAL, if there is one. */
static int wal_file(struct store *store, sqlite3_file **wal)
{
	int code = sqlite3_file_control(store->writer->db, "main",
					SQLITE_FCNTL_JOURNAL_POINTER, wal);

	if (code == SQLITE_OK && *wal && !(*wal)->pMethods)
		*wal = NULL;
	return code;
}

/* How much of the WAL is committed, from the header of its index, whose form SQLite's file
 * format fixes. Only the committing role changes it. */
static int wal_end(struct store *store, sqlite3_int64 *end)
{
	enum { INDEX_SIZE = 32768, LAST_FRAME = 16, WAL_HEADER = 32 };
	void volatile *index = NULL;
	sqlite3_file *file = NULL;
	uint32_t frames;
	int code = sqlite3_file_control(store->writer->db, "main",
					SQLITE_FCNTL_FILE_POINTER, &file);

	if (code == SQLITE_OK)
		code = file->pMethods->xShmMap(file, 0, INDEX_SIZE, 0, &index);
	if (code != SQLITE_OK || !index)
		return code;
	memcpy(&frames, (const char *)index + LAST_FRAME, sizeof(frames));
	*end = WAL_HEADER + (sqlite3_int64)frames * (sqlite3_int64)(store->page_bytes + WAL_FRAME_HEADER);
	return SQLITE_OK;
}

/* Writes the WAL over itself, and zeros over the frame behind its end. */
static int wal_renew(struct store *store, sqlite3_file *wal)
{
	char buffer[8192];
	sqlite3_int64 end = 0, size = 0;
	int code = wal_end(store, &end), piece;

	if (code == SQLITE_OK)
		code = wal->pMethods->xFileSize(wal, &size);
	for (sqlite3_int64 at = 0; at < end && at < size && code == SQLITE_OK;
	     at += piece) {
		sqlite3_int64 left = (end < size ? end : size) - at;
		piece = left < (int)sizeof(buffer) ? (int)left : (int)sizeof(buffer);
		code = wal->pMethods->xRead(wal, buffer, piece, at);
		if (code == SQLITE_OK)
			code = wal->pMethods->xWrite(wal, buffer, piece, at);
	}
	memset(buffer, 0, sizeof(buffer));
	if (code == SQLITE_OK && end > 0 && end < size)
		code = wal->pMethods->xWrite(wal, buffer, 64, end);
	return code;
}

int db_sync_wal(struct store *store)
{
	sqlite3_file *wal = NULL;
	int code = wal_file(store, &wal);

	if (code == SQLITE_OK && wal && store->writer->doubtful)
		code = wal_renew(store, wal);
	if (code == SQLITE_OK && wal)
		code = wal->pMethods->xSync(wal,
					    SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
	if (code != SQLITE_OK)
		return conn_fail(store->writer, code);
	store->writer->doubtful = false;
	return 0;
}

int db_mend_wal(struct store *store)
{
	return store->writer->doubtful ? db_sync_wal(store) : 0;
}

static int checkpoint(struct store *store, int mode)
{
	int code = sqlite3_wal_checkpoint_v2(store->writer->db, "main", mode, NULL, NULL);

	/* Outsiders may read on; the next try comes when the WAL has grown some more. */
	return code == SQLITE_BUSY ? -EBUSY
	       : code == SQLITE_OK ? 0
				   : conn_fail(store->writer, code);
}

/* The WAL starts anew; mode says whether its file is also cut. */
static int checkpoint_whole(struct store *store, int mode)
{
	int error = db_mend_wal(store);

	if (!error)
		error = checkpoint(store, SQLITE_CHECKPOINT_PASSIVE);
	if (error == -ENOSPC || store->writer->doubtful)
		return error;
	/* Most is copied by now, while readers went on: what they wait for is short. */
	pthread_rwlock_wrlock(&store->gate);
	sqlite3_busy_timeout(store->writer->db, 0);
	error = checkpoint(store, mode);
	sqlite3_busy_timeout(store->writer->db, 10000);
	pthread_rwlock_unlock(&store->gate);
	return error;
}

void db_checkpoint(struct store *store, enum checkpoint when)
{
	int error, mode = SQLITE_CHECKPOINT_RESTART;

	if (store->wal_bytes == 0 ||
	    (when == CHECKPOINT_IF_LARGE && (store->wal_bytes < store->wal_limit_bytes ||
					     store->wal_bytes < store->wal_retry_bytes)))
		return;
	/* Writing over what is there costs half of what growing a file does, so the file is
	 * cut only when it is far too large or its room is wanted. */
	if (when == CHECKPOINT_CUT || store->full ||
	    store->wal_bytes > 2 * store->wal_limit_bytes)
		mode = SQLITE_CHECKPOINT_TRUNCATE;
	conn_error_clear(store->writer);
	error = checkpoint_whole(store, mode);
	if (error == -ENOSPC && !store->full) {
		/* What is in the WAL is durable there; copying it may take the reserve. */
		reserve_free(store);
		store->full = true;
		error = checkpoint_whole(store, mode);
	}
	if (error) {
		store->wal_retry_bytes = store->wal_bytes + store->wal_limit_bytes / 4;
		return;
	}
	store->wal_bytes = 0;
	store->wal_retry_bytes = 0;
}
