/* SPDX-License-Identifier: MIT */
/*
 * dlq.c - dead letters: copies of messages that were given up, kept by their group.
 *
 * A letter stands in its own row with all that a message has, so neither retention nor the
 * end of its partition touches it. One message has one letter: failing again replaces it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

/* ---- keeping ------------------------------------------------------------------------ */

int letter_write(struct store *store, const struct cursor *cursor, int64_t offset,
		 unsigned attempts, const char *error)
{
	struct partition *partition = cursor->partition;
	struct conn *writer = store->writer;
	struct segment *segment;
	sqlite3_stmt *stmt;
	uint32_t from, to;
	int got;

	pthread_mutex_lock(&store->state);
	segment = cache_find_locked(store, partition, offset, cursor->hint);
	pthread_mutex_unlock(&store->state);
	if (!segment) {
		got = segment_load(store, partition, offset, &segment);
		if (got == -ENOENT)
			return 0; /* rm was quicker: there is nothing to keep */
		if (got)
			return got; /* nothing was written: this job alone is refused */
	}
	segment_message(segment, offset, &from, &to);
	to -= to > from && segment->data[to - 1] == '\n'; /* no part of the payload */
	stmt = conn_stmt(writer, STMT_LETTER_INSERT);
	bind_int(stmt, 1, (int64_t)cursor->group->item.id);
	bind_int(stmt, 2, (int64_t)partition->item.id);
	bind_text(stmt, 3, partition->item.name);
	bind_int(stmt, 4, offset);
	bind_text(stmt, 5, error);
	bind_int(stmt, 6, attempts);
	bind_int(stmt, 7, segment->info.created_us);
	bind_int(stmt, 8, store_now(store));
	bind_blob(stmt, 9, segment->data + from, to - from);
	got = conn_run(writer, stmt);
	segment_put(store, segment);
	return got;
}

/* ---- reading ------------------------------------------------------------------------ */

static int letter_row(struct conn *conn, sqlite3_stmt *stmt, struct letter_info *info)
{
	struct letter_info row = { 0 };
	const char *error;
	int got = conn_step(conn, stmt);

	if (got <= 0)
		return got < 0 ? got : -ENOENT;
	row.id = (uint64_t)sqlite3_column_int64(stmt, 0);
	row.partition = strdup((const char *)sqlite3_column_text(stmt, 1));
	row.offset = sqlite3_column_int64(stmt, 2);
	error = (const char *)sqlite3_column_text(stmt, 3);
	snprintf(row.error, sizeof(row.error), "%s", error ? error : "");
	row.attempts = (unsigned)sqlite3_column_int64(stmt, 4);
	row.created_us = sqlite3_column_int64(stmt, 5);
	row.failed_us = sqlite3_column_int64(stmt, 6);
	row.size = (size_t)sqlite3_column_int64(stmt, 7);
	row.partition_number = (uint64_t)sqlite3_column_int64(stmt, 8);
	sqlite3_reset(stmt);
	if (!row.partition)
		return -ENOMEM;
	*info = row;
	return 0;
}

int store_letter(struct item *group, const char *partition, int64_t offset,
		 struct letter_info *info)
{
	sqlite3_stmt *stmt;
	struct conn *conn;
	int error = db_read_begin(group->store, &conn);

	if (error)
		return error;
	stmt = conn_stmt(conn, STMT_LETTER_FIND);
	bind_int(stmt, 1, (int64_t)group->id);
	bind_text(stmt, 2, partition);
	bind_int(stmt, 3, offset);
	error = letter_row(conn, stmt, info);
	db_read_end(group->store, conn);
	return error;
}

int store_letter_next(struct item *group, uint64_t after, struct letter_info *info)
{
	sqlite3_stmt *stmt;
	struct conn *conn;
	int error = db_read_begin(group->store, &conn);

	if (error)
		return error;
	stmt = conn_stmt(conn, STMT_LETTER_NEXT);
	bind_int(stmt, 1, (int64_t)group->id);
	bind_int(stmt, 2, (int64_t)after);
	error = letter_row(conn, stmt, info);
	db_read_end(group->store, conn);
	return error;
}

ssize_t store_letter_read(struct item *group, uint64_t id, uint64_t position,
			  char *buffer, size_t size)
{
	sqlite3_stmt *stmt;
	struct conn *conn;
	size_t length;
	ssize_t got = db_read_begin(group->store, &conn);

	if (got)
		return got;
	stmt = conn_stmt(conn, STMT_LETTER_DATA);
	bind_int(stmt, 1, (int64_t)group->id);
	bind_int(stmt, 2, (int64_t)id);
	got = conn_step(conn, stmt);
	if (got == 0)
		got = -ESTALE;
	if (got == 1) {
		const char *data = sqlite3_column_blob(stmt, 0);
		length = (size_t)sqlite3_column_bytes(stmt, 0);
		got = 0;
		if (position < length) {
			size = size < length - position ? size
							: length - (size_t)position;
			memcpy(buffer, data + position, size);
			got = (ssize_t)size;
		}
	}
	sqlite3_reset(stmt);
	db_read_end(group->store, conn);
	return got;
}

/* ---- dropping ------------------------------------------------------------------------- */

struct letter_job {
	struct job job;
	struct item *group; /* a reference */
	uint64_t id;
};

/* In the transaction: 0, or ENOENT when it is gone already. */
int letter_delete(struct store *store, const struct item *group, uint64_t id)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_LETTER_DELETE);
	int error;

	if (group->state != ITEM_LIVE)
		return -ESTALE;
	bind_int(stmt, 1, (int64_t)group->id);
	bind_int(stmt, 2, (int64_t)id);
	error = conn_run(store->writer, stmt);
	if (error)
		return error;
	return sqlite3_changes(store->writer->db) == 1 ? 0 : -ENOENT;
}

static int letter_drop_apply(struct store *store, struct job *base)
{
	struct letter_job *job = container_of(base, struct letter_job, job);

	store->batch_freed = true;
	return letter_delete(store, job->group, job->id);
}

static void letter_job_free(struct job *base)
{
	struct letter_job *job = container_of(base, struct letter_job, job);

	store_put(job->group);
	free(job);
}

static const struct job_type letter_drop_type = {
	.apply = letter_drop_apply,
	.free = letter_job_free,
};

void store_letter_drop(struct item *group, uint64_t id, store_done done, void *arg)
{
	struct letter_job *job = calloc(1, sizeof(*job));

	if (!job) {
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	job->job = (struct job){ .type = &letter_drop_type, .done = done, .arg = arg };
	job->group = store_get(group);
	job->id = id;
	commit_submit(group->store, &job->job);
}

/* ---- pushing it again ----------------------------------------------------------------- */

void store_letter_push(struct item *group, uint64_t id, struct item *partition,
		       store_done done, void *arg)
{
	struct messages messages = { 0 };
	struct letter_info info;
	sqlite3_stmt *stmt;
	struct conn *conn;
	char *name = NULL;
	int error = db_read_begin(group->store, &conn);

	if (error) {
		job_refuse(done, arg, error);
		return;
	}
	stmt = conn_stmt(conn, STMT_LETTER_BY_ID);
	bind_int(stmt, 1, (int64_t)group->id);
	bind_int(stmt, 2, (int64_t)id);
	error = letter_row(conn, stmt, &info);
	if (!error) {
		name = info.partition;
		messages.data = malloc(info.size + 1);
		messages.ends = malloc(sizeof(*messages.ends));
	}
	stmt = conn_stmt(conn, STMT_LETTER_DATA);
	bind_int(stmt, 1, (int64_t)group->id);
	bind_int(stmt, 2, (int64_t)id);
	if (!error && (!messages.data || !messages.ends))
		error = -ENOMEM;
	if (!error && (error = conn_step(conn, stmt)) == 1) {
		error = (size_t)sqlite3_column_bytes(stmt, 0) == info.size ? 0 : -EIO;
		if (!error && info.size)
			memcpy(messages.data, sqlite3_column_blob(stmt, 0), info.size);
	} else if (!error) {
		error = -ENOENT;
	}
	sqlite3_reset(stmt);
	db_read_end(group->store, conn);
	if (error) {
		messages_free(&messages);
		job_refuse(done, arg, error);
	} else {
		messages.data[info.size] = '\n';
		messages.size = info.size + 1;
		messages.ends[0] = (uint32_t)messages.size;
		messages.count = 1;
		push_letter(group, id, partition, name, &messages, done, arg);
	}
	free(name);
}
