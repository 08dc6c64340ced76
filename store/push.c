/* SPDX-License-Identifier: MIT */
/*
 * push.c - messages on their way into a segment.
 *
 * 1. All pushes to one partition in one batch become one segment, in the order in which
 *    they were queued; past SEGMENT_BYTES_MAX another one. A push is never divided.
 * 2. Each segment gets a created_at of its own, above all that were given out before.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

void messages_free(struct messages *messages)
{
	free(messages->data);
	free(messages->ends);
	*messages = (struct messages){ 0 };
}

/* ---- the segments of a batch ---------------------------------------------------------- */

/* Joins the pushes from `first` up to but not with `end`; a single one is not copied. */
static int join(struct push_job *first, const struct push_job *end,
		struct messages *joined)
{
	struct messages all = { 0 };
	size_t count = 0;

	if (first->next == end) {
		*joined = first->messages;
		first->messages = (struct messages){ 0 };
		return 0;
	}
	for (struct push_job *push = first; push != end; push = push->next) {
		all.size += push->messages.size;
		count += push->messages.count;
	}
	all.data = malloc(all.size ? all.size : 1);
	all.ends = malloc((count + 1) * sizeof(*all.ends));
	if (!all.data || !all.ends) {
		messages_free(&all);
		return -ENOMEM;
	}
	all.size = 0;
	for (struct push_job *push = first; push != end; push = push->next) {
		const struct messages *one = &push->messages;
		memcpy(all.data + all.size, one->data, one->size);
		for (uint32_t i = 0; i < one->count; i++)
			all.ends[all.count++] = (uint32_t)all.size + one->ends[i];
		all.size += one->size;
	}
	*joined = all;
	return 0;
}

static void segment_write(struct store *store, const struct segment *segment)
{
	const struct segment_info *info = &segment->info;
	size_t count = (size_t)(info->end_offset - info->base_offset) + 1;
	size_t ends_size = count * sizeof(*segment->ends);
	bool inlined = ends_size + info->size <= SEGMENT_INLINE_MAX;
	struct conn *writer = store->writer;
	sqlite3_stmt *stmt = conn_stmt(writer, STMT_SEGMENT_INSERT), *blobs = stmt;
	int at = 8;

	for (size_t i = 0; i < count; i++)
		segment->ends[i] = htole32(segment->ends[i]);
	if (!inlined) {
		blobs = conn_stmt(writer, STMT_BODY_INSERT);
		at = 1;
	}
	bind_blob(blobs, at, segment->ends, ends_size);
	bind_blob(blobs, at + 1, segment->data, info->size);
	if (!inlined) {
		conn_run(writer, blobs);
		bind_int(stmt, 7, sqlite3_last_insert_rowid(writer->db));
		bind_null(stmt, 8);
		bind_null(stmt, 9);
	} else {
		bind_null(stmt, 7);
	}
	bind_int(stmt, 1, (int64_t)segment->partition);
	bind_int(stmt, 2, info->base_offset);
	bind_int(stmt, 3, info->end_offset);
	bind_int(stmt, 4, info->created_us);
	bind_int(stmt, 5, (int64_t)info->position);
	bind_int(stmt, 6, (int64_t)info->size);
	if (!writer->error)
		conn_run(writer, stmt);
	for (size_t i = 0; i < count; i++)
		segment->ends[i] = le32toh(segment->ends[i]);
}

static void partition_write(struct store *store, struct partition *partition,
			    struct segment_list *made)
{
	struct push_job *first = partition->pushes, *end;

	for (; first && !store->writer->error; first = end) {
		struct segment_info info = { .base_offset = partition->batch_last + 1,
					     .position = partition->batch_end_position };
		struct segment *segment = NULL;
		struct messages joined;
		size_t size = first->messages.size;
		int64_t now = clock_us();
		for (end = first->next;
		     end && size + end->messages.size <= SEGMENT_BYTES_MAX;
		     end = end->next)
			size += end->messages.size;
		if (join(first, end, &joined) == 0) {
			info.end_offset = partition->batch_last + joined.count;
			info.size = joined.size;
			info.created_us =
				now > store->commit_us ? now : store->commit_us + 1;
			segment = segment_new(partition->item.id, &info, joined.data,
					      joined.ends);
		}
		if (!segment) {
			conn_fail(store->writer, SQLITE_NOMEM);
			return;
		}
		segment_write(store, segment);
		TAILQ_INSERT_TAIL(made, segment, lru);
		store->commit_us = info.created_us;
		partition->batch_created_us = info.created_us;
		partition->batch_last = info.end_offset;
		partition->batch_end_position = info.position + info.size;
	}
}

void push_write_segments(struct store *store, struct segment_list *made)
{
	for (struct partition *p = store->batch_partitions; p; p = p->batch_next) {
		p->batch_last = p->last;
		p->batch_end_position = p->end_position;
		partition_write(store, p, made);
	}
}

void push_publish_segments_locked(struct store *store, struct segment_list *made)
{
	struct segment *segment;

	for (struct partition *p = store->batch_partitions; p; p = p->batch_next) {
		if (p->item.state == ITEM_UNBORN)
			partition_born_locked(p);
		p->last = p->batch_last;
		p->end_position = p->batch_end_position;
		p->modified_us = p->batch_created_us;
		p->pushes = NULL;
		partition_wake_locked(p);
	}
	while ((segment = TAILQ_FIRST(made))) {
		TAILQ_REMOVE(made, segment, lru);
		cache_add_locked(store, segment);
		segment_put_locked(segment);
	}
	store->newest_us = store->commit_us;
}

void push_forget_segments(struct store *store, struct segment_list *made)
{
	struct segment *segment;

	for (struct partition *p = store->batch_partitions; p; p = p->batch_next)
		p->pushes = NULL;
	while ((segment = TAILQ_FIRST(made))) {
		TAILQ_REMOVE(made, segment, lru);
		segment_put(store, segment);
	}
}

/* ---- the job -------------------------------------------------------------------------- */

static int push_apply(struct store *store, struct job *job)
{
	struct push_job *push = container_of(job, struct push_job, job);
	struct partition *partition = push->partition;
	int error = 0;

	if (partition->item.state == ITEM_DROPPED ||
	    partition->item.parent->state != ITEM_LIVE)
		return -ESTALE;
	if (partition->item.state == ITEM_UNBORN && !partition->prepared)
		error = partition_insert(store, partition);
	if (error)
		return error;
	push->next = NULL;
	if (!partition->pushes) {
		partition->pushes_end = &partition->pushes;
		partition->batch_next = store->batch_partitions;
		store->batch_partitions = partition;
	}
	*partition->pushes_end = push;
	partition->pushes_end = &push->next;
	return 0;
}

static void push_publish_locked(struct store *store, struct job *job)
{
	(void)store;
	container_of(job, struct push_job, job)->partition->pending--;
}

static void push_undo_locked(struct store *store, struct job *job)
{
	struct partition *partition = container_of(job, struct push_job, job)->partition;

	(void)store;
	partition->pending--;
	partition_undo_locked(partition);
}

static void push_free(struct job *job)
{
	struct push_job *push = container_of(job, struct push_job, job);

	if (push->partition)
		store_put(&push->partition->item);
	messages_free(&push->messages);
	free(push);
}

static const struct job_type push_type = {
	.push = true,
	.apply = push_apply,
	.publish_locked = push_publish_locked,
	.undo_locked = push_undo_locked,
	.free = push_free,
};

void store_push(struct item *queue, struct item *partition, struct messages *messages,
		store_done done, void *arg)
{
	struct store *store = queue->store;
	struct push_job *push = calloc(1, sizeof(*push));
	int error = 0;

	if (!push) {
		messages_free(messages);
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	push->job = (struct job){ .type = &push_type, .done = done, .arg = arg };
	push->messages = *messages;
	*messages = (struct messages){ 0 };

	pthread_mutex_lock(&store->state);
	if (queue->state != ITEM_LIVE || (partition && partition->state == ITEM_DROPPED))
		error = -ESTALE;
	else if (partition)
		store_get(partition);
	else
		partition = partition_or_unborn_locked(queue, STORE_DEFAULT_NAME, &error);
	if (!error) {
		push->partition = partition_of(partition);
		push->partition->pending++;
	}
	pthread_mutex_unlock(&store->state);
	if (error)
		commit_refuse(&push->job, error);
	else
		commit_submit(store, &push->job);
}
