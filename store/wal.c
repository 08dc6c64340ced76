/* SPDX-License-Identifier: MIT */
/*
 * wal.c - SQLite's WAL: synced, mended, and copied into the file.
 *
 * 1. A thread copies what is committed while commits go on, each time that the WAL has grown
 *    by a part of its limit. When it passes the limit the committing role copies what is
 *    left, and the WAL starts anew.
 * 2. What that thread meets, a full disk or a failed sync, it leaves to the role: the role
 *    comes to the same, and can mend it.
 * 3. Once a sync has failed, the kernel may take pages for clean that never reached the disk,
 *    and a later sync says nothing about them. So before the next sync or checkpoint counts,
 *    the WAL is written once more, and copied from its start. What was refused stands behind
 *    its end, whole, and would be found by the next start: the frame there is made void.
 * 4. A WAL that is found at a start is taken for doubtful: what was met before, nobody knows.
 *    One that is doubtful at the close, and cannot be mended, is left to the next start.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store_int.h"

/* The WAL, if there is one. */
static int wal_file(struct store *store, sqlite3_file **wal)
{
	int code = sqlite3_file_control(store->writer->db, "main",
					SQLITE_FCNTL_JOURNAL_POINTER, wal);

	if (code == SQLITE_OK && *wal && !(*wal)->pMethods)
		*wal = NULL;
	return code;
}

/* The two numbers of the WAL's index that we need; SQLite's file format fixes where. */
enum { INDEX_LAST_FRAME = 16, INDEX_COPIED_FRAMES = 96 };

static int index_field(struct store *store, size_t at, _Atomic uint32_t **field)
{
	enum { INDEX_SIZE = 32768 };
	void volatile *index = NULL;
	sqlite3_file *file = NULL;
	int code = sqlite3_file_control(store->writer->db, "main",
					SQLITE_FCNTL_FILE_POINTER, &file);

	if (code == SQLITE_OK)
		code = file->pMethods->xShmMap(file, 0, INDEX_SIZE, 0, &index);
	*field = index ? (_Atomic uint32_t *)((uintptr_t)index + at) : NULL;
	return code;
}

/* How much of the WAL is committed; only the committing role changes it. */
static int wal_end(struct store *store, sqlite3_int64 *end)
{
	enum { WAL_HEADER = 32 };
	_Atomic uint32_t *frames;
	int code = index_field(store, INDEX_LAST_FRAME, &frames);

	if (code == SQLITE_OK && frames)
		*end = WAL_HEADER +
		       (sqlite3_int64)(*frames * (store->page_bytes + WAL_FRAME_HEADER));
	return code;
}

/* Writes the WAL over itself, and zeros over the frame behind its end. */
static int wal_rewrite(struct store *store, sqlite3_file *wal)
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

/* With copy_lock: as if nothing of the WAL had been copied. */
static int copied_forget(struct store *store)
{
	_Atomic uint32_t *frames;
	int code = index_field(store, INDEX_COPIED_FRAMES, &frames);

	if (code == SQLITE_OK && frames)
		*frames = 0;
	store->copied_bytes = 0;
	return code;
}

/* To mend it, with copy_lock. */
static int sync_or_mend(struct store *store, bool mend)
{
	sqlite3_file *wal = NULL;
	int code = wal_file(store, &wal);

	if (code == SQLITE_OK && wal && mend) {
		code = copied_forget(store);
		if (code == SQLITE_OK)
			code = wal_rewrite(store, wal);
	}
	if (code == SQLITE_OK && wal)
		code = wal->pMethods->xSync(wal,
					    SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
	if (code != SQLITE_OK)
		return conn_fail(store->writer, code);
	if (mend)
		store->writer->doubtful = false;
	return 0;
}

int wal_sync(struct store *store)
{
	int error;

	if (!store->writer->doubtful)
		return sync_or_mend(store, false);
	pthread_mutex_lock(&store->copy_lock);
	error = sync_or_mend(store, true);
	pthread_mutex_unlock(&store->copy_lock);
	return error;
}

int wal_mend(struct store *store)
{
	return store->writer->doubtful ? wal_sync(store) : 0;
}

/* ---- into the file ---------------------------------------------------------------------- */

#define COPY_PARTS 2 /* of the limit, after each of which the thread copies */

/* Writing over what is there costs half of what growing a file does, so the file is cut only
 * when it is far too large or its room is wanted. */
static uint64_t far_too_large(const struct store *store)
{
	return 2 * store->wal_limit_bytes;
}

static int checkpoint(struct conn *conn, int mode)
{
	int code = sqlite3_wal_checkpoint_v2(conn->db, "main", mode, NULL, NULL);

	/* Outsiders may read on; the next try comes when the WAL has grown some more. */
	return code == SQLITE_BUSY ? -EBUSY
	       : code == SQLITE_OK ? 0
				   : conn_fail(conn, code);
}

/* The WAL starts anew; mode says whether its file is also cut. */
static int checkpoint_whole(struct store *store, int mode)
{
	struct conn *writer = store->writer;
	int error = writer->doubtful ? sync_or_mend(store, true) : 0;

	if (!error)
		error = checkpoint(writer, SQLITE_CHECKPOINT_PASSIVE);
	if (error == -ENOSPC || writer->doubtful)
		return error;
	/* Most is copied by now, while readers went on: what they wait for is short. */
	pthread_rwlock_wrlock(&store->gate);
	sqlite3_busy_timeout(writer->db, 0);
	error = checkpoint(writer, mode);
	sqlite3_busy_timeout(writer->db, 10000);
	pthread_rwlock_unlock(&store->gate);
	return error;
}

static void restart(struct store *store, int mode)
{
	int error;

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
	store->wal_bytes = store->copied_bytes = 0;
	store->wal_retry_bytes = 0;
}

void wal_checkpoint(struct store *store, enum checkpoint when)
{
	int mode = SQLITE_CHECKPOINT_RESTART;

	if (store->wal_bytes == 0)
		return;
	if (when == CHECKPOINT_IF_LARGE && (store->wal_bytes < store->wal_limit_bytes ||
					    store->wal_bytes < store->wal_retry_bytes)) {
		/* A wake-up that is lost is not the last one. */
		if (store->wal_bytes >=
		    store->copied_bytes + store->wal_limit_bytes / COPY_PARTS)
			pthread_cond_signal(&store->copy_wake);
		return;
	}
	if (when == CHECKPOINT_CUT || store->full ||
	    store->wal_bytes > far_too_large(store))
		mode = SQLITE_CHECKPOINT_TRUNCATE;
	pthread_mutex_lock(&store->copy_lock);
	restart(store, mode);
	pthread_mutex_unlock(&store->copy_lock);
}

int wal_open(struct store *store)
{
	char text[64];
	int error;

	/* Also when it is SQLite that begins it anew. */
	snprintf(text, sizeof(text), "PRAGMA journal_size_limit = %" PRIu64,
		 far_too_large(store));
	error = conn_exec(store->writer, text);
	if (error)
		return error;
	store->writer->doubtful = true;
	error = wal_mend(store);
	if (error != -ENOSPC)
		return error;
	conn_error_clear(store->writer); /* no reason not to start; it stays doubtful */
	return 0;
}

void wal_close(struct store *store)
{
	if (!store->writer->error)
		wal_checkpoint(store, CHECKPOINT_CUT);
	if (wal_mend(store))
		sqlite3_db_config(store->writer->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1,
				  NULL);
}

/* ---- the thread -------------------------------------------------------------------------- */

static int copied_sync(struct store *store)
{
	sqlite3_file *file = NULL;
	int code = sqlite3_file_control(store->copier_conn->db, "main",
					SQLITE_FCNTL_FILE_POINTER, &file);

	if (code == SQLITE_OK)
		code = file->pMethods->xSync(file,
					     SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
	return code;
}

/* SQLite syncs the file once all of the WAL is in it; a part that is on the disk already
 * need not be waited for then. */
static void copy(struct store *store)
{
	uint64_t copied = store->copied_bytes;
	int frames = 0;
	int code = sqlite3_wal_checkpoint_v2(store->copier_conn->db, "main",
					     SQLITE_CHECKPOINT_PASSIVE, NULL, &frames);

	if (code == SQLITE_OK)
		copied = (uint64_t)frames * (store->page_bytes + WAL_FRAME_HEADER);
	/* Somebody outside may keep it from going on, while we are woken at each commit. */
	if (code == SQLITE_OK && copied != store->copied_bytes)
		code = copied_sync(store);
	if (code == SQLITE_OK)
		store->copied_bytes = copied;
	else if (code == SQLITE_IOERR_FSYNC)
		store->writer->doubtful = true;
}

static void *copy_main(void *arg)
{
	struct store *store = arg;

	pthread_mutex_lock(&store->copy_lock);
	while (!store->copy_stop) {
		pthread_cond_wait(&store->copy_wake, &store->copy_lock);
		/* What is in doubt in the WAL must not get into the file. */
		if (!store->copy_stop && !store->full && !store->writer->doubtful)
			copy(store);
	}
	pthread_mutex_unlock(&store->copy_lock);
	return NULL;
}

int copy_start(struct store *store)
{
	struct conn **conn = &store->copier_conn;
	int error = conn_open(store->path, SQLITE_OPEN_READWRITE, conn, NULL);

	if (!error) /* without a first look it would not know that there is a WAL */
		error = conn_run(*conn, conn_stmt(*conn, STMT_USER_VERSION));
	return error ? error : thread_start(&store->copier, copy_main, store);
}

void copy_end(struct store *store)
{
	pthread_mutex_lock(&store->copy_lock);
	store->copy_stop = true;
	pthread_cond_signal(&store->copy_wake);
	pthread_mutex_unlock(&store->copy_lock);
	thread_join(&store->copier);
	conn_close(store->copier_conn);
	store->copier_conn = NULL;
}
