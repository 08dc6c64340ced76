/* SPDX-License-Identifier: MIT */
/*
 * push.c - messages on their way into a segment.
 *
 * 1. All pushes to one partition in one batch become one segment, in the order in which
 *    they were queued; past SEGMENT_BYTES_MAX another one. A push is never divided.
 * 2. Each segment gets a created_at of its own, above all that were given out before.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

/* ---- the segments of a batch ---------------------------------------------------------- */

void segment_write(struct store *store, const struct segment *segment)
{
	const struct segment_info *info = &segment->info;
	size_t count = (size_t)(info->end_offset - info->base_offset) + 1;
	size_t ends_size = count * sizeof(*segment->ends);
	bool inlined = ends_size + info->size + segment->meta_size <= SEGMENT_INLINE_MAX;
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
	if (segment->meta)
		bind_blob(blobs, at + 2, segment->meta, segment->meta_size);
	else
		bind_null(blobs, at + 2);
	if (!inlined) {
		conn_run(writer, blobs);
		bind_int(stmt, 7, sqlite3_last_insert_rowid(writer->db));
		bind_null(stmt, 8);
		bind_null(stmt, 9);
		bind_null(stmt, 10);
	} else {
		bind_null(stmt, 7);
	}
	bind_int(stmt, 1, (int64_t)segment->partition);
	bind_int(stmt, 2, info->base_offset);
	bind_int(stmt, 3, info->end_offset);
	bind_int(stmt, 4, info->created_us);
	bind_int(stmt, 5, (int64_t)info->position);
	bind_int(stmt, 6, (int64_t)info->size);
	bind_int(stmt, 11, info->number);
	if (!writer->error)
		conn_run(writer, stmt);
	for (size_t i = 0; i < count; i++)
		segment->ends[i] = le32toh(segment->ends[i]);
}

static void partition_write(struct store *store, struct partition *partition,
			    struct segment_list *made)
{
	struct push_part *first = partition->pushes, *end;

	for (; first && !store->writer->error; first = end) {
		struct segment_info info = { .base_offset = partition->batch_last + 1,
					     .position = partition->batch_end_position,
					     .number =
						     partition->batch_newest_number + 1 };
		struct segment *segment = NULL;
		struct messages joined;
		size_t size = first->messages.size + first->messages.meta_size;
		int64_t now = clock_us();
		for (end = first->next;
		     end && size + end->messages.size + end->messages.meta_size <=
				    SEGMENT_BYTES_MAX;
		     end = end->next)
			size += end->messages.size + end->messages.meta_size;
		if (messages_join(first, end, &joined) == 0) {
			info.end_offset = partition->batch_last + joined.count;
			info.size = joined.size;
			info.created_us =
				now > store->commit_us ? now : store->commit_us + 1;
			segment = segment_new(partition->item.id, &info, &joined);
		}
		if (!segment) {
			conn_fail(store->writer, SQLITE_NOMEM);
			return;
		}
		if (!store->to_tail)
			segment_write(store, segment);
		TAILQ_INSERT_TAIL(made, segment, lru);
		store->commit_us = info.created_us;
		partition->batch_created_us = info.created_us;
		if (info.base_offset == partition->first) { /* it was empty */
			partition->batch_oldest_end = info.end_offset;
			partition->batch_oldest_us = info.created_us;
			partition->batch_oldest_number = info.number;
		}
		partition->batch_newest_base = info.base_offset;
		partition->batch_newest_number = info.number;
		partition->batch_last = info.end_offset;
		partition->batch_end_position = info.position + info.size;
	}
}

void push_write_segments(struct store *store, struct segment_list *made)
{
	for (struct partition *p = store->batch_partitions; p; p = p->batch_next) {
		p->batch_last = p->last;
		p->batch_end_position = p->end_position;
		p->batch_newest_number = p->newest_number;
		partition_write(store, p, made);
	}
	if (store->to_tail && !store->writer->error)
		tail_write(store, made);
}

uint64_t push_publish_segments_locked(struct store *store, struct segment_list *made)
{
	struct segment *segment;
	uint64_t messages = 0;

	for (struct partition *p = store->batch_partitions; p; p = p->batch_next) {
		if (p->item.state == ITEM_UNBORN)
			partition_born_locked(p);
		if (p->last < p->first) {
			p->oldest_end = p->batch_oldest_end;
			p->oldest_us = p->batch_oldest_us;
			p->oldest_number = p->batch_oldest_number;
		}
		p->newest_base = p->batch_newest_base;
		p->newest_number = p->batch_newest_number;
		queue_of(p->item.parent)->pushed += (uint64_t)(p->batch_last - p->last);
		queue_of(p->item.parent)->pushed_bytes +=
			p->batch_end_position - p->end_position;
		messages += (uint64_t)(p->batch_last - p->last);
		p->last = p->batch_last;
		p->end_position = p->batch_end_position;
		p->modified_us = p->batch_created_us;
		p->pushes = NULL;
		partition_wake_locked(p);
		retain_grown_locked(p);
	}
	/* The segments of a partition stand together, in the order of partitions. */
	for (struct partition *p = store->batch_partitions; p; p = p->batch_next)
		while ((segment = TAILQ_FIRST(made)) &&
		       segment->partition == p->item.id) {
			TAILQ_REMOVE(made, segment, lru);
			if (store->to_tail)
				tail_publish_locked(store, p, segment);
			cache_add_locked(store, segment);
			segment_put_locked(segment);
		}
	store->newest_us = store->commit_us;
	dedup_due_locked(store);
	return messages;
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

static int push_check(struct push_job *push)
{
	for (unsigned i = 0; i < push->part_count; i++) {
		const struct push_part *part = &push->parts[i];
		const struct item *partition = &part->partition->item;
		if (partition->state == ITEM_DROPPED ||
		    partition->parent->state != ITEM_LIVE)
			return -ESTALE;
		if (part->messages.lines != queue_lines_locked(partition->parent))
			return why_set(&push->job.why, -EINVAL,
				       "framing was changed since this was opened; open "
				       "it again");
	}
	return 0;
}

/* The part joins what this batch adds to its partition. */
static void part_join(struct store *store, struct push_part *part)
{
	struct partition *partition = part->partition;

	part->next = NULL;
	if (!partition->pushes) {
		partition->pushes_end = &partition->pushes;
		partition->batch_count = 0;
		partition->batch_next = NULL;
		*store->batch_partitions_end = partition;
		store->batch_partitions_end = &partition->batch_next;
	}
	*partition->pushes_end = part;
	partition->pushes_end = &part->next;
	partition->batch_count += part->messages.count;
}

static int part_apply(struct store *store, struct push_job *push, struct push_part *part)
{
	struct partition *partition = part->partition;
	int64_t base;
	int error = 0;

	if (partition->item.state == ITEM_UNBORN && !partition->prepared)
		error = partition_insert(store, partition);
	base = partition->last + 1 + (partition->pushes ? partition->batch_count : 0);
	if (!error && !push->letter_group)
		error = dedup_part(store, part, base, push->verdicts);
	for (uint32_t i = 0; push->verdicts && i < part->messages.count; i++)
		push->verdicts[part->order ? part->order[i] : i].offset = base + i;
	if (!error && part->messages.count > 0)
		part_join(store, part);
	return error;
}

static int push_apply(struct store *store, struct job *job)
{
	struct push_job *push = container_of(job, struct push_job, job);
	int error = push_check(push);

	if (!error && push->letter_group)
		error = letter_delete(store, push->letter_group, push->letter);
	push->applied = !error;
	for (unsigned i = 0; i < push->part_count && !error; i++)
		error = part_apply(store, push, &push->parts[i]);
	return error;
}

static void push_publish_locked(struct store *store, struct job *job)
{
	struct push_job *push = container_of(job, struct push_job, job);

	(void)store;
	for (unsigned i = 0; i < push->part_count; i++)
		push->parts[i].partition->pending--;
}

static void push_undo_locked(struct store *store, struct job *job)
{
	struct push_job *push = container_of(job, struct push_job, job);

	(void)store;
	for (unsigned i = 0; i < push->part_count; i++) {
		push->parts[i].partition->pending--;
		partition_undo_locked(push->parts[i].partition, push->applied);
	}
	push->applied = false;
}

static void push_free(struct job *job)
{
	struct push_job *push = container_of(job, struct push_job, job);

	for (unsigned i = 0; i < push->part_count; i++) {
		store_put(&push->parts[i].partition->item);
		messages_free(&push->parts[i].messages);
		free(push->parts[i].order);
	}
	store_put(push->letter_group);
	free(push->verdicts);
	free(push);
}

static const struct job_type push_type = {
	.push = true,
	.apply = push_apply,
	.publish_locked = push_publish_locked,
	.undo_locked = push_undo_locked,
	.free = push_free,
};

bool push_for_tail(struct store *store, struct job *job, size_t *sum)
{
	struct push_job *push = container_of(job, struct push_job, job);

	if (job->type != &push_type || push->letter_group)
		return false;
	for (unsigned i = 0; i < push->part_count; i++) {
		const struct push_part *part = &push->parts[i];
		if (part->partition->item.state != ITEM_LIVE || part->messages.meta ||
		    !tail_fits(store, &part->messages, sum))
			return false;
	}
	return true;
}

struct push_job *push_new(unsigned parts, store_done done, void *arg)
{
	struct push_job *push = calloc(1, sizeof(*push) + parts * sizeof(*push->parts));

	if (push)
		push->job = (struct job){ .type = &push_type, .done = done, .arg = arg };
	return push;
}

int push_add_locked(struct push_job *push, struct item *queue, struct item *partition,
		    const char *name, struct messages *messages)
{
	int error = 0;

	if (queue->state != ITEM_LIVE || (partition && partition->state == ITEM_DROPPED))
		return -ESTALE;
	if (partition)
		store_get(partition);
	else
		partition = partition_or_unborn_locked(queue, name, &error);
	if (error)
		return error;
	push->parts[push->part_count++] =
		(struct push_part){ .partition = partition_of(partition),
				    .messages = *messages };
	partition_of(partition)->pending++;
	*messages = (struct messages){ 0 };
	return 0;
}

void push_submit(struct store *store, struct push_job *push, int error)
{
	if (!error) {
		commit_submit(store, &push->job);
		return;
	}
	pthread_mutex_lock(&store->state);
	push_undo_locked(store, &push->job);
	pthread_mutex_unlock(&store->state);
	commit_refuse(&push->job, error);
}

/* ---- dealing ---------------------------------------------------------------------------- */

uint64_t push_deal(struct item *queue, uint32_t count, uint64_t *turn)
{
	uint64_t spread;

	pthread_mutex_lock(&queue->store->state);
	spread = (uint64_t)queue_of(queue)->settings.values[SETTING_SPREAD].least;
	*turn = queue_of(queue)->dealt;
	if (spread > 1)
		queue_of(queue)->dealt += count;
	pthread_mutex_unlock(&queue->store->state);
	return spread;
}

void push_dealt_name(uint64_t turn, uint64_t spread, char name[24])
{
	snprintf(name, 24, "%llu", (unsigned long long)(turn % spread));
}

/* Every step-th message from the first-th on. */
static int deal(const struct messages *all, uint32_t first, uint32_t step,
		struct messages *dealt)
{
	uint32_t *which = malloc((all->count / step + 1) * sizeof(*which)), count = 0;
	int error;

	if (!which)
		return -ENOMEM;
	for (uint32_t i = first; i < all->count; i += step)
		which[count++] = i;
	error = messages_pick(all, which, count, dealt);
	free(which);
	return error;
}

/* Messages without a partition go in turn to partitions 0 .. spread - 1. */
static void push_spread(struct item *queue, uint64_t spread, uint64_t turn,
			struct messages *messages, store_done done, void *arg)
{
	struct store *store = queue->store;
	unsigned parts = messages->count < spread ? messages->count : (unsigned)spread;
	struct push_job *push = push_new(parts, done, arg);
	int error = 0;

	if (!push) {
		messages_free(messages);
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	for (unsigned i = 0; i < parts && !error; i++) {
		struct messages some = *messages;
		char name[24];
		push_dealt_name(turn + i, spread, name);
		if (parts > 1)
			error = deal(messages, i, (uint32_t)spread, &some);
		else
			*messages = (struct messages){ 0 };
		if (error)
			break;
		pthread_mutex_lock(&store->state);
		error = push_add_locked(push, queue, NULL, name, &some);
		pthread_mutex_unlock(&store->state);
		messages_free(&some);
	}
	messages_free(messages);
	push_submit(store, push, error);
}

void store_push(struct item *queue, struct item *partition, struct messages *messages,
		store_done done, void *arg)
{
	struct store *store = queue->store;
	struct push_job *push;
	uint64_t turn, spread = partition ? 1 : push_deal(queue, messages->count, &turn);
	int error;

	if (spread > 1) {
		push_spread(queue, spread, turn, messages, done, arg);
		return;
	}
	push = push_new(1, done, arg);
	if (!push) {
		messages_free(messages);
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	pthread_mutex_lock(&store->state);
	error = push_add_locked(push, queue, partition, STORE_DEFAULT_NAME, messages);
	pthread_mutex_unlock(&store->state);
	messages_free(messages);
	push_submit(store, push, error);
}

void push_letter(struct item *group, uint64_t letter, struct item *partition,
		 const char *name, struct messages *messages, store_done done, void *arg)
{
	struct store *store = group->store;
	struct push_job *push = push_new(1, done, arg);
	int error;

	if (!push) {
		messages_free(messages);
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	push->letter_group = store_get(group);
	push->letter = letter;
	pthread_mutex_lock(&store->state);
	error = push_add_locked(push, group->parent, partition, name, messages);
	pthread_mutex_unlock(&store->state);
	messages_free(messages);
	push_submit(store, push, error);
}
