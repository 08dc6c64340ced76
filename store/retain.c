/* SPDX-License-Identifier: MIT */
/*
 * retain.c - removing the oldest segments: rm and retention (sections 3 and 10).
 *
 * 1. Both are the same job: it walks the segments from the oldest on until one has to stay,
 *    so it costs what it removes, and never looks at what is kept.
 * 2. A partition with a rule knows when its oldest segment is due: at a time (its alarm), when
 *    it has grown (a push), or when the slowest group has passed it (a cursor). Then it
 *    stands in store->sweeps, and the timer thread sweeps one after the other.
 * 3. A sweep is a small transaction that nobody waits for.
 * 4. What a snapshot holds stays, whatever the rule (snapshot.c).
 */
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

#define SECOND_US INT64_C(1000000)
#define SWEEP_BYTES (4u << 20) /* of one transaction */
#define SWEEP_SEGMENTS 1024

/* ---- what may go --------------------------------------------------------------------------- */

static int64_t rule(const struct partition *partition, enum setting setting)
{
	return queue_of(partition->item.parent)->settings.values[setting].least;
}

/* The slowest group's cursor; without groups nothing is completed. */
static int64_t completed_locked(const struct partition *partition)
{
	struct names *groups = &queue_of(partition->item.parent)->groups;
	int64_t least = INT64_MAX;
	struct item *group;

	names_each(groups, i, group)
	{
		const struct cursor *cursor = group_of(group)->cursors[partition->slot];
		if (cursor->committed < least)
			least = cursor->committed;
	}
	return groups->count > 0 ? least : -1;
}

/* When the rules want this segment gone: a time of the clock, INT64_MIN at once, INT64_MAX
 * not by time. `bytes` are those of the partition with it. */
static int64_t due_locked(const struct partition *partition,
			  const struct segment_info *info, uint64_t bytes)
{
	int64_t age = rule(partition, SETTING_RETENTION_SECONDS) * SECOND_US;
	int64_t completed = rule(partition, SETTING_COMPLETED_RETENTION_SECONDS);
	int64_t most = rule(partition, SETTING_RETENTION_BYTES), due = INT64_MAX;

	if (most > 0 && bytes > (uint64_t)most && info->end_offset < partition->last)
		return INT64_MIN;
	if (age > 0)
		due = info->created_us + age;
	if (completed > 0 && info->created_us + completed * SECOND_US < due &&
	    completed_locked(partition) >= info->end_offset)
		due = info->created_us + completed * SECOND_US;
	return due;
}

/* Looks whether the oldest segment is due, and if not when it will be. */
void retain_look_locked(struct partition *partition)
{
	struct store *store = partition->item.store;
	struct segment_info oldest = { .base_offset = partition->first,
				       .end_offset = partition->oldest_end,
				       .created_us = partition->oldest_us };
	int64_t due = INT64_MAX;

	if (partition->sweep != SWEEP_NOT || partition->item.state != ITEM_LIVE)
		return;
	if (partition->first <= partition->last &&
	    snapshots_floor_locked(partition) >= oldest.end_offset)
		due = due_locked(partition, &oldest,
				 partition->end_position - partition->first_position);
	partition->waits = rule(partition, SETTING_COMPLETED_RETENTION_SECONDS) > 0 &&
			   completed_locked(partition) < oldest.end_offset;
	if (due > now_locked(store)) {
		if (due == INT64_MAX)
			alarm_set_locked(store, &partition->alarm, 0);
		else
			alarm_clock_locked(store, &partition->alarm, due);
		return;
	}
	alarm_set_locked(store, &partition->alarm, 0);
	partition->sweep = SWEEP_LISTED;
	TAILQ_INSERT_TAIL(&store->sweeps, partition, sweep_entry);
	pthread_cond_signal(&store->timer_wake);
}

void retain_ring_locked(struct store *store, struct alarm *alarm)
{
	(void)store;
	retain_look_locked(container_of(alarm, struct partition, alarm));
}

void retain_grown_locked(struct partition *partition)
{
	int64_t most = rule(partition, SETTING_RETENTION_BYTES);
	bool time = rule(partition, SETTING_RETENTION_SECONDS) > 0 ||
		    rule(partition, SETTING_COMPLETED_RETENTION_SECONDS) > 0;

	if ((most > 0 &&
	     partition->end_position - partition->first_position > (uint64_t)most) ||
	    (time && partition->alarm.at_us == 0))
		retain_look_locked(partition);
}

void retain_queue_locked(struct item *queue)
{
	struct item *partition;

	names_each(&queue_of(queue)->partitions, i, partition)
		retain_look_locked(partition_of(partition));
}

void retain_forget_locked(struct partition *partition)
{
	alarm_set_locked(partition->item.store, &partition->alarm, 0);
	if (partition->sweep == SWEEP_LISTED)
		TAILQ_REMOVE(&partition->item.store->sweeps, partition, sweep_entry);
	partition->sweep = SWEEP_NOT;
}

/* ---- the job --------------------------------------------------------------------------------- */

struct cut_job {
	struct job job;
	struct item *item; /* the partition, a reference */
	bool rm;	   /* `base` and no other; else by the rules */
	int64_t base;
	int64_t took_us; /* its own work: what else the transaction does is others' */
	/* What goes: their bases, and what comes after. */
	int64_t bases[SWEEP_SEGMENTS];
	unsigned count;
	struct segment_info next; /* the oldest one left; base_offset and position hold */
	bool empty;		  /* none is left */
};

static int rm_check(struct cut_job *cut, const struct segment_info *info)
{
	struct partition *partition = partition_of(cut->item);
	struct store *store = cut->item->store;
	int64_t floor;

	if (cut->base < partition->first || cut->base > partition->last)
		return -ENOENT;
	if (cut->base != partition->first)
		return why_set(&cut->job.why, -EBUSY,
			       "only the oldest segment, %020lld, can be removed",
			       (long long)partition->first);
	pthread_mutex_lock(&store->state);
	floor = snapshots_floor_locked(partition);
	pthread_mutex_unlock(&store->state);
	return floor < info->end_offset
		       ? why_set(&cut->job.why, -EBUSY,
				 "a snapshot holds messages from %lld on; rm it in "
				 "snapshots/ first",
				 (long long)floor + 1)
		       : 0;
}

/* 1 this one goes, 0 it stays, -errno. */
static int may_go(struct cut_job *cut, const struct segment_info *info)
{
	struct partition *partition = partition_of(cut->item);
	struct store *store = cut->item->store;
	int error, goes;

	if (cut->rm) {
		error = cut->count == 0 ? rm_check(cut, info) : 0;
		return error ? error : cut->count == 0;
	}
	pthread_mutex_lock(&store->state);
	goes = snapshots_floor_locked(partition) >= info->end_offset &&
	       due_locked(partition, info, partition->end_position - info->position) <=
		       now_locked(store);
	pthread_mutex_unlock(&store->state);
	return goes;
}

/* Walks from the oldest on; removes the bodies on the way. */
static int cut_walk(struct store *store, struct cut_job *cut)
{
	enum { BODY = 6 };
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_SEGMENT_OLDEST);
	uint64_t bytes = 0;
	int got, goes = 1;

	bind_int(stmt, 1, (int64_t)cut->item->id);
	while ((got = conn_step(store->writer, stmt)) == 1) {
		goes = segment_info_columns(stmt, &cut->next);
		if (goes < 0)
			break;
		goes = cut->count < SWEEP_SEGMENTS && bytes < SWEEP_BYTES
			       ? may_go(cut, &cut->next)
			       : 0;
		if (goes <= 0)
			break;
		if (sqlite3_column_type(stmt, BODY) != SQLITE_NULL) {
			sqlite3_stmt *body = conn_stmt(store->writer, STMT_BODY_DELETE);
			bind_int(body, 1, sqlite3_column_int64(stmt, BODY));
			conn_run(store->writer, body);
		}
		cut->bases[cut->count++] = cut->next.base_offset;
		bytes += cut->next.size;
	}
	if (got == 1)
		sqlite3_reset(stmt);
	cut->empty = got == 0;
	if (cut->empty && cut->count > 0) {
		cut->next.base_offset = cut->next.end_offset + 1;
		cut->next.position += cut->next.size;
	}
	return got < 0 ? got : goes < 0 ? goes : store->writer->error;
}

/* Acks that are not committed yet, and for which segments go. */
static void cursors_keep(struct store *store, const struct partition *partition)
{
	struct item *group;

	names_each(&queue_of(partition->item.parent)->groups, i, group)
	{
		const struct cursor *cursor = group_of(group)->cursors[partition->slot];
		struct cursor_state state;
		bool dirty;
		pthread_mutex_lock(&store->state);
		dirty = cursor->dirty;
		state = cursor_state_locked(cursor);
		pthread_mutex_unlock(&store->state);
		if (dirty && !store->writer->error)
			cursor_write(store, cursor, &state);
	}
}

static int cut_apply(struct store *store, struct job *job)
{
	struct cut_job *cut = container_of(job, struct cut_job, job);
	struct partition *partition = partition_of(cut->item);
	struct conn *writer = store->writer;
	int64_t began_us = monotonic_us();
	sqlite3_stmt *stmt;
	int error;

	cut->count = 0;
	if (cut->item->state != ITEM_LIVE)
		return -ESTALE;
	if (cut->rm && (cut->base < partition->first || cut->base > partition->last))
		return -ENOENT;
	pthread_mutex_lock(&store->state);
	partition->removing = true; /* rows go before `first` moves */
	pthread_mutex_unlock(&store->state);
	error = cut_walk(store, cut);
	if (error || cut->count == 0)
		return error;
	stmt = conn_stmt(writer, STMT_SEGMENTS_BELOW_DELETE);
	bind_int(stmt, 1, (int64_t)cut->item->id);
	bind_int(stmt, 2, cut->next.base_offset);
	conn_run(writer, stmt);
	/* Where the log goes on, and the clock, must outlive the last segment. */
	stmt = conn_stmt(writer, STMT_PARTITION_NEXT);
	bind_int(stmt, 1, (int64_t)cut->item->id);
	bind_int(stmt, 2, cut->next.base_offset);
	bind_int(stmt, 3, (int64_t)cut->next.position);
	bind_int(stmt, 4, partition->modified_us);
	conn_run(writer, stmt);
	stmt = conn_stmt(writer, STMT_META_SET);
	bind_text(stmt, 1, "newest_us");
	bind_int(stmt, 2, store->newest_us);
	conn_run(writer, stmt);
	cursors_keep(store, partition);
	store->batch_freed = true;
	cut->took_us = monotonic_us() - began_us;
	return writer->error;
}

static void removing_end_locked(struct store *store, struct partition *partition)
{
	if (!partition->removing)
		return;
	partition->removing = false;
	pthread_cond_broadcast(&store->removed);
}

static void sweep_end_locked(struct store *store, struct cut_job *cut)
{
	if (cut->rm)
		return;
	partition_of(cut->item)->sweep = SWEEP_NOT;
	chore_done_locked(store, cut->took_us);
}

static void cut_undo_locked(struct store *store, struct job *job)
{
	struct cut_job *cut = container_of(job, struct cut_job, job);

	removing_end_locked(store, partition_of(cut->item));
	if (!job->error)
		return; /* it is applied once more, and until then nobody may list it */
	sweep_end_locked(store, cut);
	/* A disk that fails is asked again in a minute. */
	if (!cut->rm && cut->item->state == ITEM_LIVE)
		alarm_set_locked(store, &partition_of(cut->item)->alarm,
				 monotonic_us() + 60 * SECOND_US);
}

static void cut_publish_locked(struct store *store, struct job *job)
{
	struct cut_job *cut = container_of(job, struct cut_job, job);
	struct partition *partition = partition_of(cut->item);

	removing_end_locked(store, partition);
	sweep_end_locked(store, cut);
	if (cut->count > 0) {
		partition->first = cut->next.base_offset;
		partition->first_position = cut->next.position;
		partition->oldest_end = cut->next.end_offset;
		partition->oldest_us = cut->next.created_us;
		partition->oldest_number = cut->next.number;
		for (unsigned i = 0; i < cut->count; i++)
			cache_forget_locked(store, cut->item->id, cut->bases[i]);
		partition_wake_locked(partition);
	}
	retain_look_locked(partition);
}

static void cut_free(struct job *job)
{
	struct cut_job *cut = container_of(job, struct cut_job, job);

	store_put(cut->item);
	free(cut);
}

static const struct job_type rm_type = {
	.alone = true,
	.apply = cut_apply,
	.publish_locked = cut_publish_locked,
	.undo_locked = cut_undo_locked,
	.free = cut_free,
};
static const struct job_type sweep_type = {
	.alone = true,
	.lazy = true,
	.apply = cut_apply,
	.publish_locked = cut_publish_locked,
	.undo_locked = cut_undo_locked,
	.free = cut_free,
};

static struct cut_job *cut_new(struct item *partition, const struct job_type *type,
			       store_done done, void *arg)
{
	struct cut_job *cut = calloc(1, sizeof(*cut));

	if (!cut)
		return NULL;
	cut->job = (struct job){ .type = type, .done = done, .arg = arg };
	cut->item = store_get(partition);
	cut->took_us = CHORE_LEAST_US; /* of one that is never applied */
	return cut;
}

void store_segment_drop(struct item *partition, int64_t base, store_done done, void *arg)
{
	struct cut_job *cut = cut_new(partition, &rm_type, done, arg);

	if (!cut) {
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	cut->rm = true;
	cut->base = base;
	commit_submit(partition->store, &cut->job);
}

bool retain_step_locked(struct store *store)
{
	struct partition *partition = TAILQ_FIRST(&store->sweeps);
	struct cut_job *cut;

	if (!partition)
		return false;
	cut = cut_new(&partition->item, &sweep_type, nobody, NULL);
	if (!cut)
		return false;
	TAILQ_REMOVE(&store->sweeps, partition, sweep_entry);
	partition->sweep = SWEEP_NOW;
	store->chore_next_us = INT64_MAX; /* the next one when this is done */
	pthread_mutex_unlock(&store->state);
	commit_submit(store, &cut->job);
	pthread_mutex_lock(&store->state);
	return true;
}
