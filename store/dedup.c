/* SPDX-License-Identifier: MIT */
/*
 * dedup.c - transactionIds that were seen: a message pushed again is not stored again.
 *
 * 1. What was seen stands in a row per (partition, transactionId), written in the
 *    transaction of the message itself: so it holds across restarts, and the first of one
 *    write wins.
 * 2. dedup_seconds as it is now says whether a row still counts; the row itself goes when
 *    the window has ended that was in force when it was written.
 */
#include <stdlib.h>

#include "store_int.h"

#define SECOND_US 1000000

static void bind_id(sqlite3_stmt *stmt, const struct partition *partition,
		    const struct message *message)
{
	bind_int(stmt, 1, (int64_t)partition->item.id);
	if (stmt)
		sqlite3_bind_text(stmt, 2, message->transaction,
				  (int)message->transaction_size, SQLITE_STATIC);
}

/* 1 and the offset that it has, 0: not seen since then. */
static int find(struct conn *writer, const struct partition *partition,
		const struct message *message, int64_t since_us, int64_t *offset)
{
	sqlite3_stmt *stmt = conn_stmt(writer, STMT_SEEN_FIND);
	int got;

	bind_id(stmt, partition, message);
	got = conn_step(writer, stmt);
	if (got != 1)
		return got;
	*offset = sqlite3_column_int64(stmt, 0);
	got = sqlite3_column_int64(stmt, 1) > since_us;
	sqlite3_reset(stmt);
	return got;
}

static int note(struct conn *writer, const struct partition *partition,
		const struct message *message, int64_t offset, int64_t now_us,
		int64_t window_us)
{
	sqlite3_stmt *stmt = conn_stmt(writer, STMT_SEEN_SET);

	bind_id(stmt, partition, message);
	bind_int(stmt, 3, offset);
	bind_int(stmt, 4, now_us);
	bind_int(stmt, 5, now_us + window_us);
	return conn_run(writer, stmt);
}

/* The part keeps those that are listed, and knows which items of the push they are. */
static int keep(struct push_part *part, uint32_t *which, uint32_t count)
{
	struct messages kept = { 0 };
	int error = count ? messages_pick(&part->messages, which, count, &kept) : 0;

	if (error)
		return error;
	for (uint32_t i = 0; i < count && part->order; i++)
		which[i] = part->order[which[i]];
	messages_free(&part->messages);
	part->messages = kept;
	free(part->order);
	part->order = which;
	return 0;
}

int dedup_part(struct store *store, struct push_part *part, int64_t base,
	       struct verdict *verdicts)
{
	const struct messages *all = &part->messages;
	const struct queue *queue = queue_of(part->partition->item.parent);
	int64_t window = queue->settings.values[SETTING_DEDUP_SECONDS].least * SECOND_US;
	int64_t now = clock_us();
	uint32_t *which, count = 0;
	int got = 0;

	if (!all->meta || window == 0)
		return 0;
	if (now <= store->commit_us)
		now = store->commit_us + 1;
	which = malloc(all->count * sizeof(*which));
	if (!which)
		return conn_fail(store->writer, SQLITE_NOMEM);
	for (uint32_t i = 0; i < all->count && got >= 0; i++) {
		struct message message = { 0 };
		int64_t offset;
		size_t size;
		const char *record = record_find(all->meta, all->count, i, &size);
		record_read(record, size, &message);
		got = message.transaction ? find(store->writer, part->partition, &message,
						 now - window, &offset)
					  : 0;
		if (got == 1 && verdicts)
			verdicts[part->order ? part->order[i] : i] =
				(struct verdict){ offset, true };
		if (got != 0)
			continue;
		if (message.transaction)
			got = note(store->writer, part->partition, &message, base + count,
				   now, window);
		if (message.transaction && now + window < store->seen_end_us)
			store->seen_end_us = now + window;
		which[count++] = i;
	}
	if (got >= 0 && count < all->count) {
		got = keep(part, which, count);
		if (!got)
			return 0;
		conn_fail(store->writer, SQLITE_NOMEM);
	}
	free(which);
	return got < 0 ? got : 0;
}

/* ---- rows whose window has ended ------------------------------------------------------------ */

void dedup_ring_locked(struct store *store, struct alarm *alarm)
{
	(void)alarm;
	store->seen_due = true;
}

static int forget_apply(struct store *store, struct job *base)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_SEEN_DELETE);

	(void)base;
	bind_int(stmt, 1, store_now(store));
	conn_run(store->writer, stmt);
	if (sqlite3_changes(store->writer->db) > 0)
		store->batch_freed = true;
	return dedup_load(store);
}

static void forget_publish_locked(struct store *store, struct job *base)
{
	(void)base;
	dedup_due_locked(store);
}

static void forget_free(struct job *job)
{
	free(job);
}

static const struct job_type forget_type = {
	.lazy = true,
	.apply = forget_apply,
	.publish_locked = forget_publish_locked,
	.free = forget_free,
};

int dedup_load(struct store *store)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_SEEN_END);
	int got = conn_step(store->writer, stmt);

	if (got != 1)
		return got;
	store->seen_end_us = sqlite3_column_type(stmt, 0) == SQLITE_NULL
				     ? INT64_MAX
				     : sqlite3_column_int64(stmt, 0);
	sqlite3_reset(stmt);
	return 0;
}

void dedup_due_locked(struct store *store)
{
	if (store->seen_end_us < INT64_MAX && store->seen_alarm.at_us == 0)
		alarm_clock_locked(store, &store->seen_alarm, store->seen_end_us);
}

bool dedup_step_locked(struct store *store)
{
	struct job *job;

	if (!store->seen_due)
		return false;
	store->seen_due = false;
	job = calloc(1, sizeof(*job));
	if (!job)
		return false;
	*job = (struct job){ .type = &forget_type, .done = nobody };
	pthread_mutex_unlock(&store->state);
	commit_submit(store, job);
	pthread_mutex_lock(&store->state);
	return true;
}
