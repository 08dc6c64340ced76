/* SPDX-License-Identifier: MIT */
/*
 * wait.c - readers that wait meet messages that arrive: the one place.
 *
 * 1. A cursor that becomes ready wakes one reader: of its partition first, else of the
 *    queue. A woken reader runs its read again; there is no second way of delivery.
 * 2. Whoever was woken and left something, or died before it claimed, wakes the next. So no
 *    message waits while a reader of its group does.
 * 3. Wake-ups are noted under `state` and called after it was given up.
 * 4. What happens by time - a lease ends, a delay is over - is an alarm of a cursor, one at a
 *    time.
 */
#include "store_int.h"

/* ---- waking ------------------------------------------------------------------------ */

static void unlist_locked(struct reader *reader)
{
	struct group *group = group_of(reader->group);

	if (reader->partition)
		TAILQ_REMOVE(
			&cursor_locked(group, partition_of(reader->partition))->waiting,
			reader, wait_entry);
	else
		TAILQ_REMOVE(&group->waiting, reader, wait_entry);
	group->waiting_count--;
}

void wait_wake_locked(struct reader *reader)
{
	if (reader->wait != WAIT_LISTED && reader->wait != WAIT_RECORD)
		return; /* one that is passing goes on by itself */
	if (reader->wait == WAIT_LISTED)
		unlist_locked(reader);
	reader->wait = WAIT_WOKEN;
	TAILQ_INSERT_TAIL(&reader->store->woken, reader, wait_entry);
}

void wait_watched_locked(struct cursor *cursor)
{
	struct group *group = cursor->group;
	struct reader *reader;

	if (group->watch_count == 0)
		return;
	TAILQ_FOREACH(reader, &group->readers, group_entry)
	{
		store_wake watch = reader->watch;
		if (!watch || (reader->partition &&
			       partition_of(reader->partition) != cursor->partition))
			continue;
		reader->watch = NULL;
		group->watch_count--;
		watch(reader->watch_arg);
	}
}

void wait_ready_locked(struct cursor *cursor)
{
	struct reader *reader = TAILQ_FIRST(&cursor->waiting);

	if (!cursor->ready)
		return;
	if (!reader)
		reader = TAILQ_FIRST(&cursor->group->waiting);
	if (reader)
		wait_wake_locked(reader);
	wait_watched_locked(cursor);
}

void wait_next_locked(struct group *group)
{
	struct cursor *cursor = TAILQ_FIRST(&group->ready);

	if (cursor && group->waiting_count > 0)
		wait_ready_locked(cursor);
}

void wait_all_locked(struct group *group)
{
	struct reader *reader;

	TAILQ_FOREACH(reader, &group->readers, group_entry)
	wait_wake_locked(reader);
}

/* What this thread is in. */
static _Thread_local bool running, calling;

bool wait_calling(void)
{
	return calling;
}

/* Its wait has ended. */
static void call_unlocked(struct store *store, struct reader *reader)
{
	store_wake wake = reader->wake;
	void *arg = reader->wake_arg;
	bool before = calling;

	reader->wait = WAIT_NOT;
	pthread_mutex_unlock(&store->state);
	calling = true;
	wake(arg);
	calling = before;
	pthread_mutex_lock(&store->state);
}

void wait_run(struct store *store)
{
	struct reader *reader;

	/* A callback reads, and so may wake others: the outermost call sees to them. */
	if (running)
		return;
	running = true;
	pthread_mutex_lock(&store->state);
	while ((reader = TAILQ_FIRST(&store->woken))) {
		TAILQ_REMOVE(&store->woken, reader, wait_entry);
		call_unlocked(store, reader);
	}
	pthread_mutex_unlock(&store->state);
	running = false;
}

/* ---- waiting ----------------------------------------------------------------------- */

int store_wait(struct reader *reader, store_wake wake, void *arg)
{
	struct store *store = reader->store;
	struct group *group = group_of(reader->group);
	int ready;

	pthread_mutex_lock(&store->state);
	ready = reader_ready_locked(reader);
	if (reader->passing) {
		reader->wait = WAIT_PASSING;
		TAILQ_INSERT_TAIL(&store->passing, reader, wait_entry);
		pthread_cond_signal(&store->passing_wake);
	}
	if (!ready && !reader->passing) {
		/* What waits for a record of its own would do nothing with a message. */
		reader->wait = reader->recording ? WAIT_RECORD : WAIT_LISTED;
	}
	if (!ready) {
		reader->wake = wake;
		reader->wake_arg = arg;
	}
	if (!ready && reader->wait == WAIT_LISTED) {
		if (reader->partition)
			TAILQ_INSERT_TAIL(
				&cursor_locked(group, partition_of(reader->partition))
					 ->waiting,
				reader, wait_entry);
		else
			TAILQ_INSERT_TAIL(&group->waiting, reader, wait_entry);
		group->waiting_count++;
	}
	pthread_mutex_unlock(&store->state);
	return ready;
}

bool store_wait_cancel(struct reader *reader)
{
	struct store *store = reader->store;
	struct group *group = group_of(reader->group);
	bool ours = true;

	pthread_mutex_lock(&store->state);
	if (reader->wait == WAIT_LISTED) {
		unlist_locked(reader);
	} else if (reader->wait == WAIT_PASSING) {
		TAILQ_REMOVE(&store->passing, reader, wait_entry);
		reader->passing = false; /* nobody goes on, but a read */
	} else if (reader->wait == WAIT_WOKEN) {
		TAILQ_REMOVE(&store->woken, reader, wait_entry);
		if (reader->partition)
			wait_ready_locked(
				cursor_locked(group, partition_of(reader->partition)));
		wait_next_locked(group);
	} else if (reader->wait == WAIT_NOT) {
		ours = false;
	}
	reader->wait = WAIT_NOT;
	pthread_mutex_unlock(&store->state);
	if (ours) /* else this very wait may be listed again, and would be called here */
		wait_run(store);
	return ours;
}

static void watch_set_locked(struct reader *reader, store_wake watch, void *arg)
{
	struct group *group = group_of(reader->group);

	group->watch_count += (watch != NULL) - (reader->watch != NULL);
	reader->watch = watch;
	reader->watch_arg = arg;
}

bool store_readable(struct reader *reader, store_wake watch, void *arg)
{
	bool ready;

	pthread_mutex_lock(&reader->store->state);
	/* A record under way is a commit of our own; a read waits for that, no more. */
	ready = !(reader->flags & READER_FOLLOW) || reader->recording ||
		reader_ready_locked(reader);
	watch_set_locked(reader, ready ? NULL : watch, arg);
	pthread_mutex_unlock(&reader->store->state);
	return ready;
}

void wait_forget_locked(struct reader *reader)
{
	watch_set_locked(reader, NULL, NULL);
}

/* ---- passing over what filters do not want ------------------------------------------- */

/* Reads that pass over many messages go on here, a turn each: so none of them keeps a thread
 * from those who have something to get. */
static void *passing_main(void *arg)
{
	struct store *store = arg;
	struct reader *reader;

	pthread_mutex_lock(&store->state);
	while (!store->stopping) {
		reader = TAILQ_FIRST(&store->passing);
		if (!reader) {
			pthread_cond_wait(&store->passing_wake, &store->state);
			continue;
		}
		TAILQ_REMOVE(&store->passing, reader, wait_entry);
		call_unlocked(store, reader);
	}
	pthread_mutex_unlock(&store->state);
	return NULL;
}

int passing_start(struct store *store)
{
	return thread_start(&store->passer, passing_main, store);
}

/* ---- the alarm of a cursor ------------------------------------------------------------- */

void timer_at_locked(struct store *store, int64_t at_us)
{
	if (at_us >= store->timer_until_us)
		return;
	store->timer_until_us = at_us;
	pthread_cond_signal(&store->timer_wake);
}

void cursor_ring_locked(struct store *store, struct alarm *alarm)
{
	struct cursor *cursor = container_of(alarm, struct cursor, alarm);

	(void)store;
	cursor->overdue = cursor->held;
	cursor->delayed = false;
	if (cursor_ready_locked(cursor))
		wait_ready_locked(cursor);
}
