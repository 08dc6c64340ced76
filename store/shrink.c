/* SPDX-License-Identifier: MIT */
/*
 * shrink.c - room that rm and retention left goes back to the disk (section 10).
 *
 * When a quarter of the file is free it shrinks, a little in a transaction, until less is.
 * On a full disk all that is free is given back, without pauses.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store_int.h"

#define STEP_BYTES (2u << 20)
#define STEP_FULL_BYTES \
	(128u << 10) /* what the WAL takes for it must fit in what is left */

struct shrink_job {
	struct job job;
	int64_t took_us; /* its own work: what else the transaction does is others' */
};

static int shrink_apply(struct store *store, struct job *base)
{
	int64_t began_us = monotonic_us();
	char text[64];
	int error;

	store->batch_freed = true; /* is it enough? */
	snprintf(text, sizeof(text), "PRAGMA incremental_vacuum(%zu)",
		 (store->full ? STEP_FULL_BYTES : STEP_BYTES) / store->page_bytes);
	error = conn_exec(store->writer, text);
	container_of(base, struct shrink_job, job)->took_us = monotonic_us() - began_us;
	return error;
}

static void shrink_done_locked(struct store *store, struct job *base)
{
	struct shrink_job *job = container_of(base, struct shrink_job, job);

	if (base->error)
		store->shrinking = false; /* until the next rm */
	chore_done_locked(store, store->full ? 0 : job->took_us);
}

static void shrink_free(struct job *base)
{
	free(container_of(base, struct shrink_job, job));
}

static const struct job_type shrink_type = {
	.alone = true,
	.lazy = true,
	.apply = shrink_apply,
	.publish_locked = shrink_done_locked,
	.undo_locked = shrink_done_locked,
	.free = shrink_free,
};

bool shrink_step_locked(struct store *store)
{
	struct shrink_job *job;

	if (!store->shrinking || !(job = calloc(1, sizeof(*job))))
		return false;
	job->job = (struct job){ .type = &shrink_type, .done = nobody };
	job->took_us = CHORE_LEAST_US;	  /* of one that is never applied */
	store->chore_next_us = INT64_MAX; /* the next one when this is done */
	pthread_mutex_unlock(&store->state);
	commit_submit(store, &job->job);
	pthread_mutex_lock(&store->state);
	return true;
}

void shrink_look(struct store *store)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_FREE_PAGES);
	enum checkpoint when = CHECKPOINT_IF_LARGE;
	bool before;
	int64_t pages, total;

	if (conn_step(store->writer, stmt) != 1)
		return;
	pages = sqlite3_column_int64(stmt, 0);
	total = sqlite3_column_int64(stmt, 1);
	sqlite3_reset(stmt);
	pthread_mutex_lock(&store->state);
	before = store->shrinking;
	store->shrinking = pages > 0 && (store->full || pages > total / 4);
	if (store->shrinking)
		timer_at_locked(store, store->chore_next_us);
	if (before && store->full)
		when = CHECKPOINT_CUT;
	else if (before && !store->shrinking) /* it is a checkpoint that cuts the file */
		when = CHECKPOINT_NOW;
	pthread_mutex_unlock(&store->state);
	wal_checkpoint(store, when);
}
