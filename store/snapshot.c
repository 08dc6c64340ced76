/* SPDX-License-Identifier: MIT */
/*
 * snapshot.c - a group's position, kept (section 7).
 *
 * 1. What a snapshot is stands in its text, which is also what its file reads: a line
 *    `<committed><TAB><partition>` for each partition, and `-1<TAB>*` for those born later.
 *    Which those are tells the number of the youngest partition there was, because numbers
 *    rise and a name stands for one partition at a time.
 * 2. In memory it is a row per partition: what must be asked for each segment that is to go.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

#define SECOND_US INT64_C(1000000)
#define LEAST_LIFE_US (3600 * SECOND_US)

struct snapshot_row {
	uint64_t partition;
	int64_t committed;
};

struct snapshot {
	struct item *queue; /* borrowed: its list has this */
	struct snapshot_info info;
	uint64_t last_partition;
	struct snapshot_row *rows; /* by partition */
	size_t count;
	struct alarm alarm; /* when it expires */
	TAILQ_ENTRY(snapshot) entry, expired_entry;
	bool over;    /* its time has come; for good */
	bool expired; /* in the store's list of those to be dropped */
};

static void snapshot_free(struct snapshot *snapshot)
{
	if (!snapshot)
		return;
	free(snapshot->rows);
	free(snapshot);
}

/* ---- finding ------------------------------------------------------------------------------ */

static void drop_soon_locked(struct snapshot *snapshot)
{
	struct store *store = snapshot->queue->store;

	if (snapshot->expired)
		return;
	snapshot->expired = true;
	TAILQ_INSERT_TAIL(&store->expired, snapshot, expired_entry);
	pthread_cond_signal(&store->timer_wake);
}

/* Once over it stays so: a clock that was set forward and back must not show one again that
 * held nothing meanwhile. */
static bool lives_locked(struct snapshot *snapshot)
{
	if (!snapshot->over &&
	    snapshot->info.expires_us <= now_locked(snapshot->queue->store)) {
		snapshot->over = true;
		drop_soon_locked(snapshot);
	}
	return !snapshot->over;
}

static struct snapshot *find_locked(struct item *queue, const char *name)
{
	struct snapshot *snapshot;

	TAILQ_FOREACH(snapshot, &queue_of(queue)->snapshots, entry)
	if (lives_locked(snapshot) && strcmp(snapshot->info.name, name) == 0)
		break;
	return snapshot;
}

static int by_partition(const void *a, const void *b)
{
	const struct snapshot_row *left = a, *right = b;

	return left->partition < right->partition ? -1
						  : left->partition > right->partition;
}

static int64_t committed(const struct snapshot *snapshot, const struct item *partition)
{
	struct snapshot_row key = { .partition = partition->id };
	const struct snapshot_row *row =
		partition->id <= snapshot->last_partition
			? bsearch(&key, snapshot->rows, snapshot->count, sizeof(key),
				  by_partition)
			: NULL;

	return row ? row->committed : -1;
}

int64_t snapshots_floor_locked(const struct partition *partition)
{
	struct queue *queue = queue_of(partition->item.parent);
	struct snapshot *snapshot;
	int64_t floor = INT64_MAX, at;

	TAILQ_FOREACH(snapshot, &queue->snapshots, entry)
	{
		at = lives_locked(snapshot) ? committed(snapshot, &partition->item)
					    : INT64_MAX;
		if (at < floor)
			floor = at;
	}
	return floor;
}

int snapshot_seek_locked(struct item *queue, const char *name,
			 const struct snapshot **out, struct store_why *why)
{
	const struct snapshot *snapshot = find_locked(queue, name);

	if (!snapshot)
		return why_set(why, -ENOENT, "the queue has no snapshot \"%s\"", name);
	if (snapshot->info.expires_us != INT64_MAX &&
	    snapshot->info.expires_us - now_locked(queue->store) < LEAST_LIFE_US)
		return why_set(
			why, -ETIME,
			"the snapshot expires in less than an hour; cp its file to "
			"the cursor while it is there");
	*out = snapshot;
	return 0;
}

int64_t snapshot_committed(const struct snapshot *snapshot, const struct item *partition)
{
	return committed(snapshot, partition);
}

int store_snapshot(struct item *queue, const char *name, struct snapshot_info *info)
{
	struct snapshot *snapshot;

	pthread_mutex_lock(&queue->store->state);
	snapshot = find_locked(queue, name);
	if (snapshot)
		*info = snapshot->info;
	pthread_mutex_unlock(&queue->store->state);
	return snapshot ? 0 : -ENOENT;
}

int store_snapshot_next(struct item *queue, uint64_t after, struct snapshot_info *info)
{
	struct snapshot *snapshot;

	pthread_mutex_lock(&queue->store->state);
	TAILQ_FOREACH(snapshot, &queue_of(queue)->snapshots, entry)
	if (snapshot->info.id > after && lives_locked(snapshot))
		break;
	if (snapshot)
		*info = snapshot->info;
	pthread_mutex_unlock(&queue->store->state);
	return snapshot ? 0 : -ENOENT;
}

ssize_t store_snapshot_read(struct item *queue, uint64_t id, uint64_t position,
			    char *buffer, size_t size)
{
	sqlite3_stmt *stmt;
	struct conn *conn;
	ssize_t got = db_read_begin(queue->store, &conn);

	if (got)
		return got;
	stmt = conn_stmt(conn, STMT_SNAPSHOT_TEXT);
	bind_int(stmt, 1, (int64_t)id);
	got = conn_step(conn, stmt);
	if (got == 0)
		got = -ESTALE;
	if (got == 1) {
		got = row_slice(stmt, 0, position, buffer, size);
		sqlite3_reset(stmt);
	}
	db_read_end(queue->store, conn);
	return got;
}

/* ---- coming and going ----------------------------------------------------------------------- */

static void ring_locked(struct store *store, struct alarm *alarm)
{
	struct snapshot *snapshot = container_of(alarm, struct snapshot, alarm);

	if (lives_locked(snapshot))
		alarm_clock_locked(store, alarm, snapshot->info.expires_us);
	else
		drop_soon_locked(snapshot);
}

static void link_locked(struct snapshot *snapshot)
{
	TAILQ_INSERT_TAIL(&queue_of(snapshot->queue)->snapshots, snapshot, entry);
	snapshot->alarm.ring_locked = ring_locked;
	if (snapshot->info.expires_us != INT64_MAX)
		alarm_clock_locked(snapshot->queue->store, &snapshot->alarm,
				   snapshot->info.expires_us);
}

static void unlink_locked(struct snapshot *snapshot)
{
	struct store *store = snapshot->queue->store;

	alarm_set_locked(store, &snapshot->alarm, 0);
	if (snapshot->expired)
		TAILQ_REMOVE(&store->expired, snapshot, expired_entry);
	TAILQ_REMOVE(&queue_of(snapshot->queue)->snapshots, snapshot, entry);
	snapshot_free(snapshot);
}

void snapshots_forget_locked(struct item *queue)
{
	struct snapshot *snapshot;

	while ((snapshot = TAILQ_FIRST(&queue_of(queue)->snapshots)))
		unlink_locked(snapshot);
}

/* ---- loading ------------------------------------------------------------------------------- */

/* A line of the text: its committed, and a partition that is still there. */
static void row_load(struct snapshot *snapshot, size_t room, char *line)
{
	char *tab = strchr(line, '\t');
	struct item *partition;

	if (*line == '#' || !tab || snapshot->count == room ||
	    names_find_locked(&queue_of(snapshot->queue)->partitions, tab + 1,
			      &partition) ||
	    partition->id > snapshot->last_partition)
		return;
	snapshot->rows[snapshot->count++] =
		(struct snapshot_row){ partition->id, strtoll(line, NULL, 10) };
}

/* Is this a row as it was written? Rows come by id. */
static bool row_fits(const struct item *queue, sqlite3_stmt *row)
{
	const char *name = (const char *)sqlite3_column_text(row, 2);
	int64_t id = sqlite3_column_int64(row, 0), created = sqlite3_column_int64(row, 3);
	int64_t expires = sqlite3_column_int64(row, 4);
	const struct snapshot *last =
		queue ? TAILQ_LAST(&queue_of((struct item *)queue)->snapshots,
				   snapshot_list)
		      : NULL;

	return queue && name && !store_name_check(name, NULL) && id > 0 &&
	       (!last || (uint64_t)id > last->info.id) && created >= 0 &&
	       created <= TIME_MAX_US && expires >= 0 &&
	       (expires <= TIME_MAX_US || expires == INT64_MAX) &&
	       sqlite3_column_type(row, 6) == SQLITE_BLOB;
}

int snapshot_load(struct store *store, sqlite3_stmt *row)
{
	struct item *queue =
		item_by_ids(store, (uint64_t)sqlite3_column_int64(row, 1), 0);
	const char *text = sqlite3_column_blob(row, 6);
	struct snapshot *snapshot;
	char *copy, *line, *rest;

	if (!row_fits(queue, row) || !text)
		return conn_damaged(store->writer, "snapshots");
	snapshot = calloc(1, sizeof(*snapshot));
	if (!snapshot)
		return -ENOMEM;
	snapshot->queue = queue;
	snapshot->info.id = (uint64_t)sqlite3_column_int64(row, 0);
	snprintf(snapshot->info.name, sizeof(snapshot->info.name), "%s",
		 (const char *)sqlite3_column_text(row, 2));
	snapshot->info.created_us = sqlite3_column_int64(row, 3);
	snapshot->info.expires_us = sqlite3_column_int64(row, 4);
	snapshot->last_partition = (uint64_t)sqlite3_column_int64(row, 5);
	snapshot->info.size = (size_t)sqlite3_column_bytes(row, 6);
	snapshot->rows =
		calloc(queue_of(queue)->partitions.count + 1, sizeof(*snapshot->rows));
	copy = strndup(text, snapshot->info.size);
	if (!snapshot->rows || !copy) {
		free(copy);
		snapshot_free(snapshot);
		return -ENOMEM;
	}
	for (line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		row_load(snapshot, queue_of(queue)->partitions.count, line);
	free(copy);
	qsort(snapshot->rows, snapshot->count, sizeof(*snapshot->rows), by_partition);
	link_locked(snapshot);
	return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

struct snapshot_job {
	struct job job;
	struct item *group; /* a reference */
	struct snapshot *snapshot;
	char name[STORE_NAME_MAX + 1];
};

/* The age of the oldest message that is not consumed, by what is not in rows. */
static int oldest_unread(struct store *store, const struct committed_row *rows,
			 size_t count, int64_t *oldest_us)
{
	for (size_t i = 0; i < count; i++) {
		const struct partition *partition = partition_of(rows[i].partition);
		struct segment_info info;
		int got;
		if (rows[i].committed >= partition->last)
			continue;
		got = segment_at(store->writer, STMT_SEGMENT_AT, partition->item.id,
				 rows[i].committed + 1, &info);
		if (got < 0)
			return got;
		if (got == 1 && info.created_us < *oldest_us)
			*oldest_us = info.created_us;
	}
	return 0;
}

static int life_set(struct store *store, struct snapshot_job *job,
		    const struct committed_row *rows, size_t count)
{
	const struct queue *queue = queue_of(job->group->parent);
	struct snapshot_info *info = &job->snapshot->info;
	int64_t life = queue->settings.values[SETTING_SNAPSHOT_SECONDS].least * SECOND_US;
	int64_t oldest;
	int error;

	info->created_us = oldest = store_now(store);
	info->expires_us = INT64_MAX;
	if (life == 0)
		return 0;
	error = oldest_unread(store, rows, count, &oldest);
	if (error)
		return error;
	info->expires_us = oldest + life;
	if (info->expires_us - info->created_us >= LEAST_LIFE_US)
		return 0;
	return why_set(&job->job.why, -ETIME,
		       "it would live less than an hour: the oldest message that is not "
		       "consumed is %lld s old, and snapshot_seconds is %lld",
		       (long long)((info->created_us - oldest) / SECOND_US),
		       (long long)(life / SECOND_US));
}

static int text_make(struct snapshot_job *job, const struct committed_row *rows,
		     size_t count, char **text, size_t *size)
{
	const struct snapshot_info *info = &job->snapshot->info;
	char created[TIME_TEXT_SIZE], expires[TIME_TEXT_SIZE] = "never";
	FILE *out = open_memstream(text, size);

	if (!out)
		return -ENOMEM;
	time_print(info->created_us, created);
	if (info->expires_us != INT64_MAX)
		time_print(info->expires_us, expires);
	fprintf(out, "# group %s\n# created %s\n# expires %s\n", job->group->name,
		created, expires);
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%lld\t%s\n", (long long)rows[i].committed,
			rows[i].partition->name);
	fprintf(out, "-1\t*\n");
	if (fclose(out) == 0)
		return 0;
	free(*text);
	return -ENOMEM;
}

static int rows_keep(struct snapshot *snapshot, const struct committed_row *rows,
		     size_t count)
{
	snapshot->rows = calloc(count + 1, sizeof(*snapshot->rows));
	if (!snapshot->rows)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		uint64_t id = rows[i].partition->id;
		snapshot->rows[i] = (struct snapshot_row){ id, rows[i].committed };
		if (id > snapshot->last_partition)
			snapshot->last_partition = id;
	}
	snapshot->count = count;
	qsort(snapshot->rows, count, sizeof(*snapshot->rows), by_partition);
	return 0;
}

static int row_insert(struct store *store, const struct snapshot *snapshot,
		      const char *text, size_t size)
{
	const struct snapshot_info *info = &snapshot->info;
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_SNAPSHOT_EXPIRED);

	bind_int(stmt, 1, (int64_t)snapshot->queue->id);
	bind_text(stmt, 2, info->name);
	conn_run(store->writer, stmt);
	stmt = conn_stmt(store->writer, STMT_SNAPSHOT_INSERT);
	bind_int(stmt, 1, (int64_t)snapshot->queue->id);
	bind_text(stmt, 2, info->name);
	bind_int(stmt, 3, info->created_us);
	bind_int(stmt, 4, info->expires_us);
	bind_int(stmt, 5, (int64_t)snapshot->last_partition);
	bind_blob(stmt, 6, text, size);
	return conn_run(store->writer, stmt);
}

static int make_check(struct store *store, struct snapshot_job *job)
{
	bool there;

	if (job->group->state != ITEM_LIVE)
		return -ESTALE;
	pthread_mutex_lock(&store->state);
	there = find_locked(job->group->parent, job->name) != NULL;
	pthread_mutex_unlock(&store->state);
	return there ? why_set(&job->job.why, -EEXIST,
			       "there is a snapshot of that name; rm it first")
		     : 0;
}

static int make_rows(struct store *store, struct snapshot_job *job,
		     const struct committed_row *rows, size_t count)
{
	struct snapshot *snapshot = job->snapshot;
	char *text = NULL;
	int error = life_set(store, job, rows, count);

	if (!error)
		error = rows_keep(snapshot, rows, count);
	if (!error)
		error = text_make(job, rows, count, &text, &snapshot->info.size);
	if (error)
		return error;
	error = row_insert(store, snapshot, text, snapshot->info.size);
	snapshot->info.id = (uint64_t)sqlite3_last_insert_rowid(store->writer->db);
	free(text);
	return error;
}

static int make_apply(struct store *store, struct job *base)
{
	struct snapshot_job *job = container_of(base, struct snapshot_job, job);
	struct committed_row *rows = NULL;
	size_t count = 0;
	int error = make_check(store, job);

	if (error)
		return error;
	snapshot_free(job->snapshot);
	job->snapshot = calloc(1, sizeof(*job->snapshot));
	if (!job->snapshot)
		return -ENOMEM;
	job->snapshot->queue = job->group->parent;
	snprintf(job->snapshot->info.name, sizeof(job->snapshot->info.name), "%s",
		 job->name);
	error = store_committed_all(job->group, &rows, &count);
	if (!error)
		error = make_rows(store, job, rows, count);
	for (size_t i = 0; i < count; i++)
		store_put(rows[i].partition);
	free(rows);
	return error;
}

static void make_publish_locked(struct store *store, struct job *base)
{
	struct snapshot_job *job = container_of(base, struct snapshot_job, job);

	(void)store;
	link_locked(job->snapshot);
	job->snapshot = NULL;
}

static void make_free(struct job *base)
{
	struct snapshot_job *job = container_of(base, struct snapshot_job, job);

	snapshot_free(job->snapshot);
	store_put(job->group);
	free(job);
}

static const struct job_type make_type = {
	.alone = true,
	.apply = make_apply,
	.publish_locked = make_publish_locked,
	.free = make_free,
};

void store_snapshot_make(struct item *group, const char *name, store_done done, void *arg)
{
	struct snapshot_job *job = calloc(1, sizeof(*job));
	int error;

	if (!job) {
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	job->job = (struct job){ .type = &make_type, .done = done, .arg = arg };
	job->group = store_get(group);
	error = store_name_check(name, &job->job.why);
	snprintf(job->name, sizeof(job->name), "%.*s", STORE_NAME_MAX, name);
	if (error)
		commit_refuse(&job->job, error);
	else
		commit_submit(group->store, &job->job);
}

/* ---- dropping --------------------------------------------------------------------------------- */

struct snapshot_drop_job {
	struct job job;
	struct item *queue; /* a reference */
	uint64_t id;
};

static int drop_apply(struct store *store, struct job *base)
{
	struct snapshot_drop_job *job = container_of(base, struct snapshot_drop_job, job);
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_SNAPSHOT_DELETE);

	bind_int(stmt, 1, (int64_t)job->id);
	return conn_run(store->writer, stmt);
}

static void drop_publish_locked(struct store *store, struct job *base)
{
	struct snapshot_drop_job *job = container_of(base, struct snapshot_drop_job, job);
	struct snapshot *snapshot;

	(void)store;
	TAILQ_FOREACH(snapshot, &queue_of(job->queue)->snapshots, entry)
	if (snapshot->info.id == job->id)
		break;
	if (snapshot)
		unlink_locked(snapshot);
	retain_queue_locked(job->queue);
}

static void drop_free(struct job *base)
{
	struct snapshot_drop_job *job = container_of(base, struct snapshot_drop_job, job);

	store_put(job->queue);
	free(job);
}

static const struct job_type drop_type = {
	.alone = true,
	.apply = drop_apply,
	.publish_locked = drop_publish_locked,
	.free = drop_free,
};

void store_snapshot_drop(struct item *queue, uint64_t id, store_done done, void *arg)
{
	struct snapshot_drop_job *job = calloc(1, sizeof(*job));

	if (!job) {
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	job->job = (struct job){ .type = &drop_type, .done = done, .arg = arg };
	job->queue = store_get(queue);
	job->id = id;
	commit_submit(queue->store, &job->job);
}

bool snapshots_step_locked(struct store *store)
{
	struct snapshot *snapshot = TAILQ_FIRST(&store->expired);
	struct item *queue;
	uint64_t id;

	if (!snapshot)
		return false;
	TAILQ_REMOVE(&store->expired, snapshot, expired_entry);
	snapshot->expired = false;
	alarm_set_locked(store, &snapshot->alarm, monotonic_us() + 60 * SECOND_US);
	queue = store_get(snapshot->queue);
	id = snapshot->info.id;
	pthread_mutex_unlock(&store->state);
	store_snapshot_drop(queue, id, nobody, NULL);
	store_put(queue);
	pthread_mutex_lock(&store->state);
	return true;
}
