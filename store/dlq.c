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
	struct message message = { 0 };
	const char *record;
	size_t size;
	int got;

	pthread_mutex_lock(&store->state);
	segment = cache_find_locked(store, partition, offset, cursor->hint);
	pthread_mutex_unlock(&store->state);
	if (!segment) {
		/* By the writing connection, which sees what this transaction has. */
		got = segment_load_from(store, writer, partition, offset, &segment);
		if (got == -ENOENT)
			return 0; /* rm was quicker: there is nothing to keep */
		if (got)
			return got; /* nothing was written: this job alone is refused */
	}
	segment_view(segment, offset, queue_lines_locked(partition->item.parent),
		     &message);
	record = segment_record(segment, offset, &size);
	stmt = conn_stmt(writer, STMT_LETTER_INSERT);
	bind_int(stmt, 1, (int64_t)cursor->group->item.id);
	bind_int(stmt, 2, (int64_t)partition->item.id);
	bind_text(stmt, 3, partition->item.name);
	bind_int(stmt, 4, offset);
	bind_text(stmt, 5, error);
	bind_int(stmt, 6, attempts);
	bind_int(stmt, 7, segment->info.created_us);
	bind_int(stmt, 8, store_now(store));
	bind_blob(stmt, 9, message.data, message.size);
	if (size)
		bind_blob(stmt, 10, record, size);
	else
		bind_null(stmt, 10);
	got = conn_run(writer, stmt);
	segment_put(store, segment);
	return got;
}

/* ---- reading ------------------------------------------------------------------------ */

/* Its own, or the one that every message has. */
static void letter_transaction(struct letter_info *info, const char *record, size_t size)
{
	struct message message = { 0 };

	record_read(record, size, &message);
	if (message.transaction)
		snprintf(info->transaction, sizeof(info->transaction), "%.*s",
			 (int)message.transaction_size, message.transaction);
	else
		snprintf(info->transaction, sizeof(info->transaction), "%llu-%lld",
			 (unsigned long long)info->partition_number,
			 (long long)info->offset);
}

/* Has this letter a name, and a record that is whole? */
static bool letter_fits(sqlite3_stmt *stmt, int name, int meta)
{
	const char *text = (const char *)sqlite3_column_text(stmt, name);
	const unsigned char *record = sqlite3_column_blob(stmt, meta);
	size_t size = (size_t)sqlite3_column_bytes(stmt, meta);

	return text && !store_name_check(text, NULL) &&
	       (size == 0 || record_fits(record, size));
}

static int letter_row(struct conn *conn, sqlite3_stmt *stmt, struct letter_info *info)
{
	enum { META = 9 };
	struct letter_info row = { 0 };
	const char *error;
	int got = conn_step(conn, stmt);

	if (got <= 0)
		return got < 0 ? got : -ENOENT;
	row.id = (uint64_t)sqlite3_column_int64(stmt, 0);
	if (!letter_fits(stmt, 1, META)) {
		sqlite3_reset(stmt);
		return -EIO;
	}
	row.partition = strdup((const char *)sqlite3_column_text(stmt, 1));
	row.offset = sqlite3_column_int64(stmt, 2);
	error = (const char *)sqlite3_column_text(stmt, 3);
	snprintf(row.error, sizeof(row.error), "%s", error ? error : "");
	row.attempts = (unsigned)sqlite3_column_int64(stmt, 4);
	row.created_us = sqlite3_column_int64(stmt, 5);
	row.failed_us = sqlite3_column_int64(stmt, 6);
	row.size = (size_t)sqlite3_column_int64(stmt, 7);
	row.partition_number = (uint64_t)sqlite3_column_int64(stmt, 8);
	letter_transaction(&row, sqlite3_column_blob(stmt, META),
			   (size_t)sqlite3_column_bytes(stmt, META));
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
	struct letter_info found;
	sqlite3_stmt *stmt;
	struct conn *conn;
	int error = db_read_begin(group->store, &conn);

	if (error)
		return error;
	stmt = conn_stmt(conn, STMT_LETTER_NEXT);
	bind_int(stmt, 1, (int64_t)group->id);
	bind_int(stmt, 2, (int64_t)after);
	error = letter_row(conn, stmt, &found);
	db_read_end(group->store, conn);
	if (!error && found.id <= after) { /* none that was asked for */
		free(found.partition);
		error = -EIO;
	}
	if (!error)
		*info = found;
	return error;
}

ssize_t store_letter_read(struct item *group, uint64_t id, uint64_t position,
			  char *buffer, size_t size)
{
	sqlite3_stmt *stmt;
	struct conn *conn;
	ssize_t got = db_read_begin(group->store, &conn);

	if (got)
		return got;
	stmt = conn_stmt(conn, STMT_LETTER_DATA);
	bind_int(stmt, 1, (int64_t)group->id);
	bind_int(stmt, 2, (int64_t)id);
	got = conn_step(conn, stmt);
	if (got == 0)
		got = -ESTALE;
	if (got == 1)
		got = row_slice(stmt, 1, position, buffer, size);
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

/* The letter as the one message of a push, and the name of its partition (malloc'd). */
static int letter_message(struct item *group, uint64_t id, struct messages *messages,
			  char **name, struct store_why *why)
{
	enum { NAME, DATA, META };
	struct message message = { 0 };
	struct maker maker = { 0 };
	struct message_rules rules;
	sqlite3_stmt *stmt;
	struct conn *conn;
	int got = db_read_begin(group->store, &conn);

	if (got)
		return got;
	store_message_rules(group->parent, &rules);
	stmt = conn_stmt(conn, STMT_LETTER_DATA);
	bind_int(stmt, 1, (int64_t)group->id);
	bind_int(stmt, 2, (int64_t)id);
	got = conn_step(conn, stmt);
	if (got == 1 && !letter_fits(stmt, NAME, META)) {
		got = -EIO;
	} else if (got == 1) {
		record_read(sqlite3_column_blob(stmt, META),
			    (size_t)sqlite3_column_bytes(stmt, META), &message);
		message.data = sqlite3_column_blob(stmt, DATA);
		message.size = (size_t)sqlite3_column_bytes(stmt, DATA);
		*name = strdup((const char *)sqlite3_column_text(stmt, NAME));
		if (message.size && rules.lines &&
		    memchr(message.data, '\n', message.size))
			got = why_set(why, -EINVAL,
				      "it holds a newline, which ends a message in this "
				      "queue; config/framing file allows it");
		else
			got = *name ? maker_add(&maker, &message, rules.lines) : -ENOMEM;
	} else if (got == 0) {
		got = -ENOENT;
	}
	if (!got)
		got = maker_take(&maker, rules.lines, messages);
	maker_free(&maker);
	if (stmt)
		sqlite3_reset(stmt);
	db_read_end(group->store, conn);
	return got;
}

void store_letter_push(struct item *group, uint64_t id, struct item *partition,
		       store_done done, void *arg)
{
	struct messages messages = { 0 };
	struct store_why why = { "" };
	struct store_result result = { .why = why.text };
	char *name = NULL;

	result.error = letter_message(group, id, &messages, &name, &why);
	if (result.error)
		done(arg, &result);
	else
		push_letter(group, id, partition, name, &messages, done, arg);
	free(name);
}
