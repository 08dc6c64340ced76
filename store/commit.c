/* SPDX-License-Identifier: MIT */
/*
 * commit.c - the one place that writes: group commit of every durable change.
 *
 * 1. Whoever finds the committing role free takes it and commits for all that is queued;
 *    what arrives meanwhile is the next batch. That is the fusion, and the only wait for
 *    the disk in the store.
 *    Whoever is inside a callback of wait.c leaves the next batch to the timer thread.
 * 2. Jobs are applied in the order in which they were queued. One that changes what exists
 *    has a batch of its own; all others of the queue share one transaction and one sync.
 * 3. Memory changes after the commit, in one go, before anybody is answered. If the commit
 *    fails, nothing has changed and everybody is told.
 * 4. With durability disk, synchronous = FULL: SQLite shows a transaction to nobody before
 *    its sync succeeded, and a failed sync fails the commit. A batch that nobody waits
 *    for (implicit acks, shrinking) is not synced.
 * 5. A commit that meets ENOSPC gives up the reserve and is repeated without its pushes;
 *    pushes answer ENOSPC until the reserve is whole again.
 */
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

#define CHORE_PAUSE 16 /* times what it took */

/* What was consumed and not committed yet, as it stood when the batch began. */
struct dirty_row {
	struct cursor *cursor;
	struct cursor_state state;
};

struct batch {
	struct job *jobs;
	bool fold; /* the tail is due */
	struct dirty_row *rows;
	size_t row_count;
	struct segment_list made;
	int64_t took_us;
};

#define batch_each(batch, var) \
	for (struct job * (var) = (batch)->jobs; (var); (var) = (var)->next)

/* ---- a batch -------------------------------------------------------------------------- */

static bool cursors_due_locked(struct store *store)
{
	return !TAILQ_EMPTY(&store->dirty) && monotonic_us() >= store->dirty_due_us;
}

static void take_jobs_locked(struct store *store, struct batch *batch)
{
	struct job **end = &store->jobs;

	if (*end && (*end)->type->alone)
		end = &(*end)->next;
	else
		while (*end && !(*end)->type->alone)
			end = &(*end)->next;
	if (end == &store->jobs)
		return;
	batch->jobs = store->jobs;
	store->jobs = *end;
	*end = NULL;
	if (!store->jobs)
		store->jobs_end = &store->jobs;
}

static void take_cursors_locked(struct store *store, struct batch *batch)
{
	struct cursor *cursor;
	size_t count = 0;

	TAILQ_FOREACH(cursor, &store->dirty, dirty_entry)
	count++;
	batch->rows = malloc(count * sizeof(*batch->rows));
	if (!batch->rows) {
		store->dirty_due_us = monotonic_us() + CURSOR_DELAY_US; /* next time */
		return;
	}
	while ((cursor = TAILQ_FIRST(&store->dirty))) {
		TAILQ_REMOVE(&store->dirty, cursor, dirty_entry);
		cursor->dirty = false;
		batch->rows[batch->row_count++] =
			(struct dirty_row){ cursor, cursor_state_locked(cursor) };
	}
}

static bool batch_take_locked(struct store *store, struct batch *batch)
{
	*batch = (struct batch){ 0 };
	TAILQ_INIT(&batch->made);
	take_jobs_locked(store, batch);
	if (cursors_due_locked(store))
		take_cursors_locked(store, batch);
	batch->fold = tail_due_locked(store);
	return batch->jobs || batch->row_count > 0 || batch->fold;
}

static void set_synchronous(struct store *store, bool full)
{
	if (store->synchronous_full == full)
		return;
	if (conn_exec(store->writer, full ? "PRAGMA synchronous = FULL"
					  : "PRAGMA synchronous = NORMAL") == 0)
		store->synchronous_full = full;
}

static void write_cursors(struct store *store, const struct batch *batch)
{
	for (size_t i = 0; i < batch->row_count && !store->writer->error; i++)
		cursor_write(store, batch->rows[i].cursor, &batch->rows[i].state);
}

static void job_undo(struct store *store, struct job *job, int error)
{
	job->error = error;
	pthread_mutex_lock(&store->state);
	if (job->type->undo_locked)
		job->type->undo_locked(store, job);
	pthread_mutex_unlock(&store->state);
}

/* For the disk, that is. */
static bool anybody_waits(const struct batch *batch)
{
	batch_each(batch, job) if (!job->type->lazy) return true;
	return false;
}

/* Nothing but plain pushes, which need no transaction? */
static bool batch_for_tail(struct store *store, struct batch *batch)
{
	size_t sum = 0;

	if (!store->tail || store->full || batch->fold || batch->row_count > 0)
		return false;
	batch_each(batch, job) if (!push_for_tail(store, job, &sum)) return false;
	return true;
}

/* The jobs of the batch, and the segments that they make. */
static void batch_apply(struct store *store, struct batch *batch)
{
	struct conn *writer = store->writer;
	int error;

	store->batch_partitions = NULL;
	store->batch_partitions_end = &store->batch_partitions;
	store->batch_freed = false;
	store->commit_us = store->newest_us;
	batch_each(batch, job)
	{
		if (writer->error)
			break;
		if (job->error)
			continue;
		error = job->type->apply(store, job);
		if (error && !writer->error)
			job_undo(store, job, error);
	}
	if (!writer->error)
		push_write_segments(store, &batch->made);
}

/* One transaction, up to and with its COMMIT: 0, or -errno and nothing is written. */
static int batch_write(struct store *store, struct batch *batch)
{
	struct conn *writer = store->writer;
	int error;

	conn_error_clear(writer);
	store->to_tail = batch_for_tail(store, batch);
	if (store->to_tail) {
		batch_apply(store, batch);
		return writer->error;
	}
	if (store->disk && wal_mend(store)) {
		tail_folded(store, false);
		return writer->error;
	}
	set_synchronous(store,
			store->disk && (anybody_waits(batch) || !tail_empty(store)));
	conn_run(writer, conn_stmt(writer, STMT_BEGIN));
	tail_fold(store);
	write_cursors(store, batch);
	batch_apply(store, batch);
	if (!writer->error)
		conn_run(writer, conn_stmt(writer, STMT_COMMIT));
	error = writer->error;
	if (error && !sqlite3_get_autocommit(writer->db))
		conn_run(writer, conn_stmt(writer, STMT_ROLLBACK));
	tail_folded(store, !error);
	return error;
}

static void batch_publish(struct store *store, struct batch *batch)
{
	pthread_mutex_lock(&store->state);
	batch_each(batch, job) if (!job->error && job->type->publish_locked)
		job->type->publish_locked(store, job);
	stats_commit_locked(store, batch->took_us,
			    push_publish_segments_locked(store, &batch->made));
	pthread_mutex_unlock(&store->state);
}

/* Undoes what is not answered yet; `pushes` alone, or all. */
static void batch_fail(struct store *store, struct batch *batch, bool pushes, int error)
{
	push_forget_segments(store, &batch->made);
	batch_each(batch, job)
	{
		if (job->error)
			continue;
		if (pushes && !job->type->push) {
			job_undo(store, job, 0);
			continue;
		}
		job->why = store->writer->why;
		job_undo(store, job, error);
	}
}

static void batch_redirty(struct store *store, struct batch *batch)
{
	pthread_mutex_lock(&store->state);
	store->commit_failures++;
	for (size_t i = 0; i < batch->row_count; i++)
		cursor_dirty_locked(batch->rows[i].cursor);
	pthread_mutex_unlock(&store->state);
}

static void batch_refuse_pushes(struct store *store, struct batch *batch)
{
	batch_each(batch, job) if (job->type->push && !job->error)
	{
		why_set(&job->why, 0,
			"the disk is full; pushing goes on once the "
			"reserve can be allocated again");
		job_undo(store, job, -ENOSPC);
	}
}

static void batch_answer(struct batch *batch)
{
	struct job *job;

	while ((job = batch->jobs)) {
		struct store_result result = { .error = job->error,
					       .why = job->why.text,
					       .item = job->item,
					       .verdicts = job->verdicts,
					       .verdict_count = job->verdict_count };
		batch->jobs = job->next;
		job->done(job->arg, &result);
		job->type->free(job);
	}
	free(batch->rows);
}

/* What was committed stands; that it is on the disk cannot be promised. */
static void fail_syncs(struct store *store, struct batch *batch)
{
	batch_each(batch, job) if (job->type == &sync_type)
	{
		job->error = store->writer->error;
		job->why = store->writer->why;
	}
}

static void batch_run(struct store *store, struct batch *batch)
{
	bool synced = false, pushes = false;
	int64_t began_us;
	int error;

	batch_each(batch, job)
	{
		pushes |= job->type->push;
		synced |= job->type == &sync_type;
	}
	if (store->full && pushes) {
		store->full = reserve_take(store) != 0;
		if (store->full) {
			batch_refuse_pushes(store, batch);
			shrink_look(store);
		}
	}
	began_us = monotonic_us();
	error = batch_write(store, batch);
	if (error == -ENOSPC && !store->full) {
		batch_fail(store, batch, true, error);
		reserve_free(store);
		store->full = true;
		error = batch_write(store, batch);
	}
	if (!error && synced && wal_sync(store) < 0)
		fail_syncs(store, batch);
	batch->took_us = monotonic_us() - began_us;
	if (error) {
		batch_fail(store, batch, false, error);
		batch_redirty(store, batch);
		wal_mend(store); /* before those who were refused are told */
	} else {
		batch_publish(store, batch);
	}
	/* Those who wait for messages first: whoever is answered takes the processor. */
	wait_run(store);
	batch_answer(batch);
	if (!error && store->batch_freed)
		shrink_look(store);
	else
		wal_checkpoint(store, CHECKPOINT_IF_LARGE);
}

/* ---- chores --------------------------------------------------------------------------- */

/* What goes by itself, by jobs that nobody waits for: a little, then a pause for a multiple
 * of the time that it took, so that those who do wait have the disk. */
static bool chores_locked(const struct store *store)
{
	return !TAILQ_EMPTY(&store->sweeps) || store->shrinking;
}

static bool chore_step_locked(struct store *store)
{
	if (snapshots_step_locked(store) || dedup_step_locked(store))
		return true;
	if (!chores_locked(store) || monotonic_us() < store->chore_next_us)
		return false;
	/* Room that is about to be larger is not given back yet. */
	return retain_step_locked(store) || shrink_step_locked(store);
}

void chore_done_locked(struct store *store, int64_t took_us)
{
	store->chore_next_us = monotonic_us() + CHORE_PAUSE * took_us;
	if (chores_locked(store))
		timer_at_locked(store, store->chore_next_us);
}

/* ---- the role ------------------------------------------------------------------------- */

enum committer {
	ANY_THREAD,
	TIMER_THREAD,	 /* may be kept here for long, and has more to do */
	INSIDE_CALLBACK, /* others wait for its end */
};

/* With the role: commits until nothing is left; inside a callback one batch, and what has
 * been queued meanwhile is left to the timer thread. */
static void role_run(struct store *store, enum committer who)
{
	struct batch batch;

	for (bool enough = false;; enough = who == INSIDE_CALLBACK) {
		pthread_mutex_lock(&store->state);
		if (who == TIMER_THREAD) {
			alarms_ring_locked(store);
			while (chore_step_locked(store))
				;
		}
		/* Once it stops there is no timer thread. */
		if ((enough && !store->stopping) || !batch_take_locked(store, &batch)) {
			store->committing = false;
			if (store->jobs)
				pthread_cond_signal(&store->timer_wake);
			pthread_mutex_unlock(&store->state);
			return;
		}
		pthread_mutex_unlock(&store->state);
		batch_run(store, &batch);
	}
}

void commit_submit(struct store *store, struct job *job)
{
	bool mine;

	pthread_mutex_lock(&store->state);
	*store->jobs_end = job;
	store->jobs_end = &job->next;
	mine = !store->committing;
	store->committing = true;
	pthread_mutex_unlock(&store->state);
	if (mine)
		role_run(store, wait_calling() ? INSIDE_CALLBACK : ANY_THREAD);
}

void commit_refuse(struct job *job, int error)
{
	struct batch batch = { .jobs = job };

	job->error = error;
	batch_answer(&batch);
}

void nobody(void *arg, const struct store_result *result)
{
	(void)arg;
	(void)result;
}

void job_refuse(store_done done, void *arg, int error)
{
	struct store_result result = { .error = error, .why = "" };

	done(arg, &result);
}

/* ---- fsync ---------------------------------------------------------------------------- */

static int sync_apply(struct store *store, struct job *job)
{
	(void)store;
	(void)job;
	return 0; /* batch_run syncs after the commit: SQLite would not for an empty one */
}

static void sync_free(struct job *job)
{
	free(job);
}

const struct job_type sync_type = { .apply = sync_apply, .free = sync_free };

void store_sync(struct store *store, store_done done, void *arg)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job) {
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	*job = (struct job){ .type = &sync_type, .done = done, .arg = arg };
	commit_submit(store, job);
}

/* ---- the timer thread ----------------------------------------------------------------- */

/* When the timer thread has to look again; INT64_MAX: when it is told to. What is to be
 * committed already, whoever commits just now sees to. */
static int64_t timer_next_locked(const struct store *store, bool due)
{
	int64_t at = alarm_next_locked(store), later = monotonic_us() + CURSOR_DELAY_US;

	if (chores_locked(store) && store->chore_next_us < at)
		at = store->chore_next_us;
	if (due)
		return later < at ? later : at;
	if (tail_next_locked(store) < at)
		at = tail_next_locked(store);
	if (!TAILQ_EMPTY(&store->dirty) && store->dirty_due_us < at)
		at = store->dirty_due_us;
	return at;
}

static void timer_sleep_locked(struct store *store, int64_t at_us)
{
	struct timespec until = { at_us / 1000000, at_us % 1000000 * 1000 };

	store->timer_until_us = at_us;
	if (at_us == INT64_MAX)
		pthread_cond_wait(&store->timer_wake, &store->state);
	else
		pthread_cond_timedwait(&store->timer_wake, &store->state, &until);
	store->timer_until_us = 0; /* awake: nobody need tell it */
}

static void *timer_main(void *arg)
{
	struct store *store = arg;

	pthread_mutex_lock(&store->state);
	while (!store->stopping) {
		bool due = store->jobs || cursors_due_locked(store) ||
			   tail_due_locked(store);
		alarms_ring_locked(store);
		if (due && !store->committing) {
			store->committing = true;
			pthread_mutex_unlock(&store->state);
			role_run(store, TIMER_THREAD);
			pthread_mutex_lock(&store->state);
		} else if (chore_step_locked(store)) {
			continue;
		} else if (!TAILQ_EMPTY(&store->woken)) {
			pthread_mutex_unlock(&store->state);
			wait_run(store);
			pthread_mutex_lock(&store->state);
		} else {
			timer_sleep_locked(store, timer_next_locked(store, due));
		}
	}
	pthread_mutex_unlock(&store->state);
	return NULL;
}

int timer_start(struct store *store)
{
	return thread_start(&store->timer, timer_main, store);
}

void store_settle(struct store *store)
{
	pthread_mutex_lock(&store->state);
	store->stopping = true;
	pthread_cond_signal(&store->timer_wake);
	pthread_cond_signal(&store->passing_wake);
	pthread_mutex_unlock(&store->state);
	thread_join(&store->timer);
	thread_join(&store->passer);
	copy_end(store);
	pthread_mutex_lock(&store->state);
	store->dirty_due_us = 0;
	tail_hasten_locked(store);
	store->committing = true; /* nobody else is left */
	pthread_mutex_unlock(&store->state);
	role_run(store, ANY_THREAD);
}
