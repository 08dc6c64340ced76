/* SPDX-License-Identifier: MIT */
/*
 * db.c - SQLite connections: how they are opened and lent.
 *
 * 1. There is one writing connection, used by the committing role alone: nobody inside
 *    ever meets SQLITE_BUSY.
 * 2. Reading connections come from a pool, each for one short call under the gate's read
 *    side. A restarting checkpoint takes the write side, so it finds no reader of ours and
 *    the WAL stays bounded however steadily readers come (section 13, wal_limit).
 */
#include <stdlib.h>

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
