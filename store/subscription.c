/* SPDX-License-Identifier: MIT */
/*
 * subscription.c - where a group starts (section 6).
 *
 * 1. A start is a time, and the start in a partition a seek to that time, done when the
 *    group is made or its subscription written: that moment is what `new` means. A partition
 *    that is born later begins after it, so all of it is unread.
 * 2. What stands in the store is the place itself: a cursor without a row has read nothing.
 *    So neither the clock nor retention can move a start afterwards.
 */
#include <stdlib.h>

#include "store_int.h"

static int resolve(struct store *store, const struct partition *partition,
		   int64_t start_us, int64_t *committed)
{
	struct seek seek = { .kind = start_us == START_ALL   ? SEEK_TO_START
				     : start_us == START_NEW ? SEEK_TO_END
							     : SEEK_TO_TIME,
			     .value = start_us };

	return seek_resolve(store, &seek, partition, committed);
}

int subscription_begin(struct store *store, struct group *group)
{
	int64_t start_us = group->settings.values[SETTING_SUBSCRIPTION].least;
	struct item *item;
	int error = 0;

	names_each(&queue_of(group->item.parent)->partitions, i, item)
	{
		struct cursor *cursor = cursor_locked(group, partition_of(item));
		struct cursor_state state = { 0 };
		if (!error)
			error = resolve(store, partition_of(item), start_us,
					&state.committed);
		state.delivered = state.committed;
		if (!error && state.committed >= 0)
			error = cursor_write(store, cursor, &state);
		if (!error)
			cursor_set_locked(cursor, &state); /* nobody else knows it yet */
	}
	return error;
}

/* ---- config/subscription --------------------------------------------------------------- */

static bool decided(struct group *group)
{
	bool started;

	pthread_mutex_lock(&group->item.store->state);
	started = group->started;
	pthread_mutex_unlock(&group->item.store->state);
	return started;
}

int subscription_open(struct group *group, struct store_why *why)
{
	return decided(group) ? why_set(why, -EBUSY,
					"the group has read; where it starts and what it "
					"filters was decided with its first read")
			      : 0;
}

int subscription_apply(struct store *store, struct item *item,
		       struct setting_change *change, struct store_why *why)
{
	struct names *partitions;
	struct item *partition;
	int error;

	if (item->kind != ITEM_GROUP)
		return 0;
	error = subscription_open(group_of(item), why);
	if (error)
		return error;
	partitions = &queue_of(item->parent)->partitions;
	free(change->moves); /* of a first try */
	change->move_count = 0;
	change->moves = malloc((partitions->used + 1) * sizeof(*change->moves));
	if (!change->moves)
		return -ENOMEM;
	names_each(partitions, i, partition)
	{
		struct move move = {
			cursor_locked(group_of(item), partition_of(partition)), 0
		};
		if (error || move.cursor->sought)
			continue;
		error = resolve(store, partition_of(partition), change->value.least,
				&move.committed);
		if (!error)
			error = cursor_write(
				store, move.cursor,
				&(struct cursor_state){ .committed = move.committed,
							.delivered = move.committed });
		change->moves[change->move_count++] = move;
	}
	return error;
}

void subscription_publish_locked(struct store *store, struct item *item,
				 struct setting_change *change)
{
	(void)store;
	(void)item;
	for (size_t i = 0; i < change->move_count; i++)
		cursor_move_locked(change->moves[i].cursor, change->moves[i].committed,
				   false);
}

/* ---- the first read ---------------------------------------------------------------------- */

struct decided_job {
	struct job job;
	struct item *group; /* a reference */
};

static int decided_apply(struct store *store, struct job *base)
{
	struct decided_job *job = container_of(base, struct decided_job, job);
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_GROUP_STARTED);

	bind_int(stmt, 1, (int64_t)job->group->id);
	return conn_run(store->writer, stmt);
}

static void decided_free(struct job *base)
{
	struct decided_job *job = container_of(base, struct decided_job, job);

	store_put(job->group);
	free(job);
}

static const struct job_type decided_type = {
	.lazy = true,
	.apply = decided_apply,
	.free = decided_free,
};

void subscription_decided(struct group *group)
{
	struct decided_job *job = calloc(1, sizeof(*job));

	if (!job)
		return; /* decided it is, until the next start */
	job->job = (struct job){ .type = &decided_type, .done = nobody };
	job->group = store_get(&group->item);
	commit_submit(group->item.store, &job->job);
}
