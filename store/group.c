/* SPDX-License-Identifier: MIT */
/*
 * group.c - a group in memory: a cursor for each partition, and which of them are ready.
 *
 * 1. cursors[partition->slot] exists for every live pair of the queue.
 * 2. A cursor is in the ready list exactly when its partition has a message past committed
 *    and nobody holds its lease. A queue-level reader takes the head; what becomes ready
 *    (again) goes to the tail: so partitions are served in turn.
 */
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

struct group *group_of(struct item *item)
{
	return container_of(item, struct group, item);
}

struct cursor *cursor_locked(struct group *group, struct partition *partition)
{
	return group->cursors[partition->slot];
}

int64_t cursor_committed_locked(const struct cursor *cursor)
{
	int64_t oldest = cursor->partition->first - 1;

	return cursor->committed < oldest ? oldest : cursor->committed;
}

int cursor_make_locked(struct group *group, struct partition *partition)
{
	struct cursor *cursor;

	if (partition->slot >= group->room) {
		uint32_t room = group->room ? group->room : 8;
		struct cursor **cursors;
		while (room <= partition->slot)
			room *= 2;
		cursors = realloc(group->cursors, room * sizeof(struct cursor *));
		if (!cursors)
			return -ENOMEM;
		memset(cursors + group->room, 0,
		       (room - group->room) * sizeof(struct cursor *));
		group->cursors = cursors;
		group->room = room;
	}
	cursor = calloc(1, sizeof(*cursor));
	if (!cursor)
		return -ENOMEM;
	cursor->group = group;
	cursor->partition = partition;
	cursor->committed = cursor->delivered = cursor->unread_end = -1;
	cursor->alarm.ring_locked = cursor_ring_locked;
	TAILQ_INIT(&cursor->waiting);
	group->cursors[partition->slot] = cursor;
	return 0;
}

static void cursor_free(struct cursor *cursor)
{
	if (!cursor)
		return;
	if (cursor->ready)
		TAILQ_REMOVE(&cursor->group->ready, cursor, ready_entry);
	if (cursor->dirty)
		TAILQ_REMOVE(&cursor->group->item.store->dirty, cursor, dirty_entry);
	alarm_set_locked(cursor->group->item.store, &cursor->alarm, 0);
	free(cursor);
}

void cursor_free_locked(struct group *group, struct partition *partition)
{
	if (partition->slot >= group->room)
		return;
	cursor_free(group->cursors[partition->slot]);
	group->cursors[partition->slot] = NULL;
}

bool cursor_ready_locked(struct cursor *cursor)
{
	bool ready = cursor->partition->last > cursor_committed_locked(cursor) &&
		     !cursor->busy && !cursor->applied && !cursor->delayed &&
		     (!cursor->held || cursor->overdue);

	if (ready == cursor->ready)
		return false;
	cursor->ready = ready;
	if (ready)
		TAILQ_INSERT_TAIL(&cursor->group->ready, cursor, ready_entry);
	else
		TAILQ_REMOVE(&cursor->group->ready, cursor, ready_entry);
	return ready;
}

void cursor_dirty_locked(struct cursor *cursor)
{
	struct store *store = cursor->group->item.store;

	if (cursor->dirty)
		return;
	if (TAILQ_EMPTY(&store->dirty)) {
		store->dirty_due_us = monotonic_us() + CURSOR_DELAY_US;
		timer_at_locked(store, store->dirty_due_us);
	}
	cursor->dirty = true;
	TAILQ_INSERT_TAIL(&store->dirty, cursor, dirty_entry);
}

struct cursor_state cursor_state_locked(const struct cursor *cursor)
{
	return (struct cursor_state){ cursor->committed, cursor->delivered,
				      cursor->attempts, cursor->failures,
				      cursor->sought };
}

void cursor_pass(struct cursor_state *state, int64_t offset)
{
	if (offset <= state->committed)
		return;
	state->committed = offset;
	state->failures = 0;
	/* What was given together with it was given once. */
	state->attempts = offset < state->delivered;
	if (state->delivered < offset)
		state->delivered = offset;
}

void cursor_set_locked(struct cursor *cursor, const struct cursor_state *state)
{
	cursor->committed = state->committed;
	cursor->delivered = state->delivered;
	cursor->attempts = state->attempts;
	cursor->failures = state->failures;
	cursor->sought = state->sought;
	if (cursor->partition->waits && state->committed >= cursor->partition->oldest_end)
		retain_look_locked(cursor->partition);
}

int cursor_write(struct store *store, const struct cursor *cursor,
		 const struct cursor_state *state)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_CURSOR_SET);

	bind_int(stmt, 1, (int64_t)cursor->group->item.id);
	bind_int(stmt, 2, (int64_t)cursor->partition->item.id);
	bind_int(stmt, 3, state->committed);
	bind_int(stmt, 4, state->delivered);
	bind_int(stmt, 5, state->attempts);
	bind_int(stmt, 6, state->failures);
	bind_int(stmt, 7, state->sought);
	return conn_run(store->writer, stmt);
}

bool cursor_moves_back_locked(const struct cursor *cursor, int64_t committed)
{
	int64_t given = cursor->delivered > cursor->committed ? cursor->delivered
							      : cursor->committed;

	/* What retention has removed cannot be gone back to. */
	return committed < given && given >= cursor->partition->first;
}

void cursor_move_locked(struct cursor *cursor, int64_t committed, bool sought)
{
	struct store *store = cursor->group->item.store;

	cursor->seeks.all++;
	cursor->seeks.back += cursor_moves_back_locked(cursor, committed);
	cursor_set_locked(cursor, &(struct cursor_state){ .committed = committed,
							  .delivered = committed,
							  .sought = sought });
	cursor->epoch++;
	cursor->held = cursor->overdue = cursor->delayed = cursor->seeking = false;
	alarm_set_locked(store, &cursor->alarm, 0);
	if (cursor->dirty)
		TAILQ_REMOVE(&store->dirty, cursor, dirty_entry);
	cursor->dirty = false; /* the seek's own row is newer */
	cursor_ready_locked(cursor);
	wait_ready_locked(cursor);
}

void partition_wake_locked(struct partition *partition)
{
	struct item *group;

	names_each(&queue_of(partition->item.parent)->groups, i, group)
	{
		struct cursor *cursor = cursor_locked(group_of(group), partition);
		if (cursor_ready_locked(cursor))
			wait_ready_locked(cursor);
		else if (cursor->held) /* who holds it has more to read */
			wait_watched_locked(cursor);
	}
}

/* ---- birth and end ------------------------------------------------------------------- */

static int prepare_locked(struct group *group)
{
	struct queue *queue = queue_of(group->item.parent);
	struct item *partition;
	int error = names_reserve_locked(&queue->groups, 1);

	names_each(&queue->partitions, i, partition) if (!error) error =
		cursor_make_locked(group, partition_of(partition));
	if (error)
		group_clear(group);
	return error;
}

void group_init(struct group *group)
{
	settings_init(&group->settings);
	TAILQ_INIT(&group->ready);
	TAILQ_INIT(&group->readers);
	TAILQ_INIT(&group->waiting);
}

void group_clear(struct group *group)
{
	for (uint32_t i = 0; i < group->room; i++)
		cursor_free(group->cursors[i]);
	free(group->cursors);
	group->cursors = NULL;
	group->room = 0;
	free(group->filter_text);
	group->filter_text = NULL;
	filter_free(group->filter);
	group->filter = NULL;
}

int group_insert(struct store *store, struct group *group)
{
	char access[ACCESS_TEXT_SIZE];
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_GROUP_INSERT);
	int error;

	pthread_mutex_lock(&store->state);
	error = prepare_locked(group);
	pthread_mutex_unlock(&store->state);
	if (error)
		return conn_fail(store->writer, SQLITE_NOMEM);
	access_text(group->access, GROUP_DIRS, access, sizeof(access));
	bind_text(stmt, 1, group->item.name);
	bind_text(stmt, 2, access);
	bind_int(stmt, 3, (int64_t)group->item.parent->id);
	error = conn_run(store->writer, stmt);
	group->item.id = (uint64_t)sqlite3_last_insert_rowid(store->writer->db);
	if (!error)
		error = settings_inherit(store, group);
	return error ? error : subscription_begin(store, group);
}

void group_born_locked(struct group *group)
{
	struct queue *queue = queue_of(group->item.parent);
	struct item *partition;

	names_born_locked(&queue->groups, &group->item);
	names_each(&queue->partitions, i, partition)
		cursor_ready_locked(cursor_locked(group, partition_of(partition)));
}

int group_load(struct group *group, sqlite3_stmt *row)
{
	int error = prepare_locked(group);

	if (error)
		return error;
	group->started = sqlite3_column_int(row, 4);
	group_born_locked(group);
	return 0;
}
