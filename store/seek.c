/* SPDX-License-Identifier: MIT */
/*
 * seek.c - where a group stands, and moving it.
 *
 * 1. A seek is one job: it is resolved against what is committed when it is applied, and
 *    all its cursors are written in one transaction.
 * 2. Publishing a cursor's new place raises its epoch and ends its lease; that is the whole
 *    of "acks from before a seek move nothing".
 */
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

/* ---- where it stands ------------------------------------------------------------------ */

int store_committed(struct item *group, struct item *partition, int64_t *committed)
{
	struct store *store = group->store;
	int error = 0;

	pthread_mutex_lock(&store->state);
	if (group->state != ITEM_LIVE || partition->state != ITEM_LIVE)
		error = -ESTALE;
	else
		*committed = cursor_committed_locked(
			cursor_locked(group_of(group), partition_of(partition)));
	pthread_mutex_unlock(&store->state);
	return error;
}

static int by_name(const void *a, const void *b)
{
	const struct committed_row *left = a, *right = b;

	return strcmp(left->partition->name, right->partition->name);
}

int store_committed_all(struct item *group, struct committed_row **out, size_t *out_count)
{
	struct store *store = group->store;
	struct committed_row *rows = NULL;
	struct names *partitions = &queue_of(group->parent)->partitions;
	struct item *partition;
	size_t count = 0;
	int error = 0;

	pthread_mutex_lock(&store->state);
	if (group->state != ITEM_LIVE)
		error = -ESTALE;
	else if (!(rows = malloc((partitions->used + 1) * sizeof(*rows))))
		error = -ENOMEM;
	if (!error)
		names_each(partitions, i, partition)
		{
			struct cursor *cursor =
				cursor_locked(group_of(group), partition_of(partition));
			rows[count++] =
				(struct committed_row){ store_get(partition),
							cursor_committed_locked(cursor) };
		}
	pthread_mutex_unlock(&store->state);
	if (error)
		return error;
	qsort(rows, count, sizeof(*rows), by_name);
	*out = rows;
	*out_count = count;
	return 0;
}

/* ---- checking a row ------------------------------------------------------------------- */

void seek_free(struct seek *seek)
{
	for (size_t i = 0; i < seek->count; i++)
		free(seek->rows[i].partition);
	free(seek->rows);
	free(seek->snapshot);
	*seek = (struct seek){ 0 };
}

/* Is this place past the partition's last offset? */
static int check_last(const struct partition *partition, int64_t committed,
		      struct store_why *why)
{
	if (committed <= partition->last)
		return 0;
	return why_set(why, -ERANGE,
		       "%lld is past the last offset of %s, allowed is %lld to %lld",
		       (long long)committed, partition->item.name,
		       (long long)partition->first - 1, (long long)partition->last);
}

static int row_partition_locked(struct item *group, const struct seek_row *row,
				struct partition **partition, struct store_why *why)
{
	struct item *item;

	if (names_find_locked(&queue_of(group->parent)->partitions, row->partition,
			      &item) ||
	    item->state != ITEM_LIVE)
		return why_set(why, -ENOENT, "the queue has no partition \"%s\"",
			       row->partition);
	*partition = partition_of(item);
	return check_last(*partition, row->committed, why);
}

int store_seek_check(struct item *group, const struct seek_row *row, size_t before,
		     struct store_why *why)
{
	struct partition *partition;
	int error = 0;

	pthread_mutex_lock(&group->store->state);
	if (before > queue_of(group->parent)->partitions.count) /* each once, and "*" */
		error = why_set(why, -EINVAL,
				"the table has more lines than the queue has partitions");
	else if (strcmp(row->partition, "*") != 0)
		error = row_partition_locked(group, row, &partition, why);
	pthread_mutex_unlock(&group->store->state);
	return error;
}

/* ---- the job -------------------------------------------------------------------------- */

struct seek_job {
	struct job job;
	struct item *group;	/* a reference */
	struct item *partition; /* a reference, or NULL */
	struct seek seek;
	struct move *moves;
	size_t count;
};

int seek_resolve(struct store *store, const struct seek *seek,
		 const struct partition *partition, int64_t *committed)
{
	struct segment_info info;
	int got = 0;

	if (seek->kind == SEEK_TO_START) {
		*committed = partition->first - 1;
		return 0;
	}
	if (seek->kind == SEEK_TO_TIME)
		got = segment_search(store->writer, partition->item.id, partition->first,
				     partition->last, BY_TIME, seek->value, &info);
	if (got < 0)
		return got;
	*committed = got ? info.base_offset - 1 : partition->last;
	return 0;
}

static void add_move(struct seek_job *job, struct partition *partition, int64_t committed)
{
	job->moves[job->count++] =
		(struct move){ cursor_locked(group_of(job->group), partition),
			       committed };
}

static int resolve_one(struct store *store, struct seek_job *job,
		       struct partition *partition)
{
	int64_t committed = job->seek.value;
	int error;

	if (job->seek.kind != SEEK_TO_OFFSET) {
		error = seek_resolve(store, &job->seek, partition, &committed);
	} else {
		error = check_last(partition, committed, &job->job.why);
		if (!error && committed < partition->first - 1)
			error = why_set(&job->job.why, -ERANGE,
					"%lld is below the oldest message, allowed is "
					"%lld to %lld",
					(long long)committed,
					(long long)partition->first - 1,
					(long long)partition->last);
	}
	if (!error)
		add_move(job, partition, committed);
	return error;
}

static int row_order(const void *a, const void *b)
{
	const struct seek_row *left = a, *right = b;

	return strcmp(left->partition, right->partition);
}

static struct seek_row *row_find(const struct seek *seek, const char *name)
{
	struct seek_row key = { .partition = (char *)(uintptr_t)name };

	return bsearch(&key, seek->rows, seek->count, sizeof(key), row_order);
}

static int resolve_table(struct store *store, struct seek_job *job)
{
	struct seek *seek = &job->seek;
	struct item *item;
	struct partition *partition;
	bool rest;
	int error = 0;

	qsort(seek->rows, seek->count, sizeof(*seek->rows), row_order);
	for (size_t i = 1; i < seek->count; i++)
		if (row_order(&seek->rows[i - 1], &seek->rows[i]) == 0)
			return why_set(&job->job.why, -EINVAL, "the table names %s twice",
				       seek->rows[i].partition);
	rest = row_find(seek, "*") != NULL;
	pthread_mutex_lock(&store->state);
	for (size_t i = 0; i < seek->count && !error; i++)
		if (strcmp(seek->rows[i].partition, "*") != 0)
			error = row_partition_locked(job->group, &seek->rows[i],
						     &partition, &job->job.why);
	pthread_mutex_unlock(&store->state);
	if (error)
		return error;
	names_each(&queue_of(job->group->parent)->partitions, i, item)
	{
		const struct seek_row *row = row_find(seek, item->name);
		int64_t oldest = partition_of(item)->first - 1;
		if (row)
			add_move(job, partition_of(item),
				 row->committed < oldest ? oldest : row->committed);
		else if (rest)
			add_move(job, partition_of(item), oldest);
	}
	return 0;
}

static int resolve_snapshot(struct store *store, struct seek_job *job)
{
	const struct snapshot *snapshot;
	struct item *item;
	int error;

	pthread_mutex_lock(&store->state);
	error = snapshot_seek_locked(job->group->parent, job->seek.snapshot, &snapshot,
				     &job->job.why);
	if (!error)
		names_each(&queue_of(job->group->parent)->partitions, i, item)
		{
			int64_t oldest = partition_of(item)->first - 1;
			int64_t committed = snapshot_committed(snapshot, item);
			add_move(job, partition_of(item),
				 committed < oldest ? oldest : committed);
		}
	pthread_mutex_unlock(&store->state);
	return error;
}

static int resolve_queue(struct store *store, struct seek_job *job)
{
	struct item *item;
	int error = 0;

	names_each(&queue_of(job->group->parent)->partitions, i, item) if (!error) error =
		resolve_one(store, job, partition_of(item));
	return error;
}

/* From here on an ack of an older lease is stale, also one of the same batch. */
static void seeking_locked(struct seek_job *job, bool on)
{
	for (size_t i = 0; i < job->count; i++)
		job->moves[i].cursor->seeking = on;
}

static int seek_apply(struct store *store, struct job *base)
{
	struct seek_job *job = container_of(base, struct seek_job, job);
	size_t partitions;
	int error;

	if (job->group->state != ITEM_LIVE ||
	    (job->partition && job->partition->state != ITEM_LIVE))
		return -ESTALE;
	partitions = queue_of(job->group->parent)->partitions.used -
		     queue_of(job->group->parent)->partitions.holes;
	if (partitions == 0)
		return why_set(&base->why, -ENOENT,
			       "queue not found or has no partitions");
	job->count = 0;
	free(job->moves);
	job->moves = malloc(partitions * sizeof(*job->moves));
	if (!job->moves)
		return -ENOMEM;
	error = job->partition ? resolve_one(store, job, partition_of(job->partition))
		: job->seek.kind == SEEK_TO_TABLE    ? resolve_table(store, job)
		: job->seek.kind == SEEK_TO_SNAPSHOT ? resolve_snapshot(store, job)
						     : resolve_queue(store, job);
	for (size_t i = 0; i < job->count && !error; i++)
		error = cursor_write(
			store, job->moves[i].cursor,
			&(struct cursor_state){ .committed = job->moves[i].committed,
						.delivered = job->moves[i].committed,
						.sought = true });
	if (!error) {
		pthread_mutex_lock(&store->state);
		seeking_locked(job, true);
		pthread_mutex_unlock(&store->state);
	}
	return error;
}

static void seek_publish_locked(struct store *store, struct job *base)
{
	struct seek_job *job = container_of(base, struct seek_job, job);
	struct group *group = group_of(job->group);
	bool back = false;

	(void)store;
	for (size_t i = 0; i < job->count; i++) {
		const struct move *move = &job->moves[i];
		back |= cursor_moves_back_locked(move->cursor, move->committed);
		cursor_move_locked(move->cursor, move->committed, true);
	}
	group->seeks.all++;
	group->seeks.back += back;
	wait_all_locked(group); /* those that show replays have one to begin or to end */
}

static void seek_undo_locked(struct store *store, struct job *base)
{
	struct seek_job *job = container_of(base, struct seek_job, job);

	(void)store;
	seeking_locked(job, false);
	job->count = 0;
}

static void seek_job_free(struct job *base)
{
	struct seek_job *job = container_of(base, struct seek_job, job);

	store_put(job->partition);
	store_put(job->group);
	seek_free(&job->seek);
	free(job->moves);
	free(job);
}

static const struct job_type seek_type = {
	.apply = seek_apply,
	.publish_locked = seek_publish_locked,
	.undo_locked = seek_undo_locked,
	.free = seek_job_free,
};

void store_seek(struct item *group, struct item *partition, struct seek *seek,
		store_done done, void *arg)
{
	struct seek_job *job = calloc(1, sizeof(*job));

	if (!job) {
		seek_free(seek);
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	job->job = (struct job){ .type = &seek_type, .done = done, .arg = arg };
	job->group = store_get(group);
	job->partition = partition ? store_get(partition) : NULL;
	job->seek = *seek;
	*seek = (struct seek){ 0 };
	commit_submit(group->store, &job->job);
}
