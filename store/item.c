/* SPDX-License-Identifier: MIT */
/*
 * item.c - things with names: queues, partitions, groups. Find, list, make, drop.
 *
 * 1. What exists changes only in the publishing of a commit; a name and its row appear and
 *    vanish together. The one exception is an UNBORN partition, which only pushes find.
 * 2. Making and dropping are jobs of their own transaction, so when one is applied nothing
 *    else of the batch is in flight, and what it checked still holds when it publishes.
 * 3. A child holds a reference on its parent; the names of a parent hold one on each child.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

/* ---- items --------------------------------------------------------------------------- */

static const struct item_type {
	size_t size, access_at;
	unsigned dirs;
	enum stmt access;
} types[ITEM_KINDS] = {
	[ITEM_QUEUE] = { sizeof(struct queue), offsetof(struct queue, access), QUEUE_DIRS,
			 STMT_QUEUE_ACCESS },
	[ITEM_PARTITION] = { sizeof(struct partition), offsetof(struct partition, access),
			     PARTITION_DIRS, STMT_PARTITION_ACCESS },
	[ITEM_GROUP] = { sizeof(struct group), offsetof(struct group, access), GROUP_DIRS,
			 STMT_GROUP_ACCESS },
};

unsigned item_dirs(enum item_kind kind)
{
	return types[kind].dirs;
}

struct names *item_names(struct store *store, struct item *parent, enum item_kind kind)
{
	return kind == ITEM_QUEUE	? &store->queues
	       : kind == ITEM_PARTITION ? &queue_of(parent)->partitions
					: &queue_of(parent)->groups;
}

struct item *item_new(struct store *store, struct item *parent, enum item_kind kind,
		      const char *name, const struct access *access)
{
	const struct item_type *type = &types[kind];
	struct item *item = calloc(1, type->size);

	if (!item)
		return NULL;
	item->name = strdup(name);
	if (!item->name) {
		free(item);
		return NULL;
	}
	item->kind = kind;
	atomic_init(&item->refs, 1);
	item->store = store;
	item->parent = parent ? store_get(parent) : NULL;
	item->access = (struct access *)(void *)((char *)item + type->access_at);
	for (unsigned i = 0; i < type->dirs; i++) {
		item->access[i] = *access;
		if (i > 0)
			item->access[i].mode &= ~(mode_t)022;
	}
	if (kind == ITEM_QUEUE) {
		queue_of(item)->settings = store->defaults;
		TAILQ_INIT(&queue_of(item)->snapshots);
	}
	if (kind == ITEM_PARTITION)
		partition_of(item)->alarm.ring_locked = retain_ring_locked;
	if (kind == ITEM_PARTITION)
		partition_of(item)->tail_base = INT64_MAX;
	if (kind == ITEM_GROUP)
		group_init(group_of(item));
	return item;
}

struct item *store_get(struct item *item)
{
	atomic_fetch_add_explicit(&item->refs, 1, memory_order_relaxed);
	return item;
}

void store_put(struct item *item)
{
	while (item &&
	       atomic_fetch_sub_explicit(&item->refs, 1, memory_order_acq_rel) == 1) {
		struct item *parent = item->parent;
		if (item->kind == ITEM_GROUP)
			group_clear(group_of(item));
		if (item->kind == ITEM_QUEUE) {
			names_free(&queue_of(item)->partitions);
			names_free(&queue_of(item)->groups);
			free(queue_of(item)->free_slots);
		}
		free(item->name);
		free(item);
		item = parent;
	}
}

struct store *store_of(const struct item *item)
{
	return item->store;
}

uint64_t store_id(const struct item *item)
{
	return item->id;
}

const char *store_name(const struct item *item)
{
	return item->name;
}

bool store_dropped(const struct item *item)
{
	struct store *store = item->store;
	bool dropped;

	pthread_mutex_lock(&store->state);
	dropped = item->state == ITEM_DROPPED;
	pthread_mutex_unlock(&store->state);
	return dropped;
}

int store_find(struct store *store, struct item *parent, enum item_kind kind,
	       const char *name, struct item **out)
{
	struct item *item;
	int error;

	pthread_mutex_lock(&store->state);
	error = names_find_locked(item_names(store, parent, kind), name, &item);
	if (!error && item->state != ITEM_LIVE)
		error = -ENOENT;
	if (!error)
		*out = store_get(item);
	pthread_mutex_unlock(&store->state);
	return error;
}

int store_next(struct store *store, struct item *parent, enum item_kind kind,
	       uint64_t after, struct item **out)
{
	struct names *names;
	size_t at;
	int error = -ENOENT;

	pthread_mutex_lock(&store->state);
	names = item_names(store, parent, kind);
	for (at = names_after(names, after); at < names->used; at++)
		if (names->by_id[at] && names->by_id[at]->id > after) {
			*out = store_get(names->by_id[at]);
			error = 0;
			break;
		}
	pthread_mutex_unlock(&store->state);
	return error;
}

/* ---- names and access as text -------------------------------------------------------- */

/* The length of a character that may stand in a name, or 0. */
static size_t name_character(const char *at, size_t left)
{
	const unsigned char *byte = (const unsigned char *)at;
	size_t length = utf8_length(at, left);

	if (byte[0] < 0x20 || byte[0] == 0x7f || byte[0] == '/')
		return 0;
	if (length == 2 && byte[0] == 0xc2 && byte[1] < 0xa0) /* controls, U+0080 to 9f */
		return 0;
	return length;
}

int store_name_check(const char *name, struct store_why *why)
{
	static const char allowed[] =
		"a name is 1 to 200 bytes of UTF-8 without '/' or "
		"control characters, does not begin with '.' and is not \"*\"";
	size_t left = strlen(name), length;

	if (left > STORE_NAME_MAX)
		return why_set(why, -ENAMETOOLONG, "%zu bytes long; %s", left, allowed);
	if (*name == '\0' || *name == '.' || strcmp(name, "*") == 0)
		return why_set(why, -EINVAL, "not a name; %s", allowed);
	for (const char *at = name; left > 0; at += length, left -= length) {
		length = name_character(at, left);
		if (!length)
			return why_set(why, -EINVAL, "not a name; %s", allowed);
	}
	return 0;
}

void access_text(const struct access *access, unsigned count, char *text, size_t size)
{
	size_t used = 0;

	for (unsigned i = 0; i < count && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%u:%u:%o",
					 i ? " " : "", access[i].uid, access[i].gid,
					 access[i].mode);
}

static void access_parse(const char *text, unsigned count, struct access *access)
{
	for (unsigned i = 0; i < count && text; i++) {
		struct access one;
		int length;
		if (sscanf(text, "%u:%u:%o%n", &one.uid, &one.gid, &one.mode, &length) !=
		    3)
			return;
		one.mode &= 07777;
		access[i] = one;
		text += length + (text[length] == ' ');
	}
}

/* ---- loading ------------------------------------------------------------------------- */

static struct item *by_id(struct names *names, uint64_t id)
{
	size_t at = names_after(names, id - 1);

	return at < names->used && names->by_id[at] && names->by_id[at]->id == id
		       ? names->by_id[at]
		       : NULL;
}

struct item *item_by_ids(struct store *store, uint64_t queue_id, uint64_t group_id)
{
	struct item *queue = by_id(&store->queues, queue_id);

	return queue && group_id ? by_id(&queue_of(queue)->groups, group_id) : queue;
}

static const char *const row_tables[ITEM_KINDS] = {
	[ITEM_QUEUE] = "queues",
	[ITEM_PARTITION] = "partitions",
	[ITEM_GROUP] = "groups",
};

/* Is this a row as it was written? Then no other has its name, and rows come by id. */
static bool row_fits(struct names *names, sqlite3_stmt *stmt)
{
	const char *name = (const char *)sqlite3_column_text(stmt, 1);
	int64_t id = sqlite3_column_int64(stmt, 0);
	struct item *last = names->used ? names->by_id[names->used - 1] : NULL, *other;

	return name && sqlite3_column_text(stmt, 2) && !store_name_check(name, NULL) &&
	       names_find_locked(names, name, &other) && id > 0 && id < COUNT_MAX &&
	       (!last || (uint64_t)id > last->id);
}

/* One row (id, name, access, queue...) becomes an item, known by name and id. */
static int item_load(struct store *store, sqlite3_stmt *stmt, enum item_kind kind,
		     struct item **out)
{
	struct access access = { 0, 0, 0 };
	struct item *parent = NULL, *item;
	struct names *names;

	if (kind != ITEM_QUEUE) {
		parent = by_id(&store->queues, (uint64_t)sqlite3_column_int64(stmt, 3));
		if (!parent)
			return conn_damaged(store->writer, row_tables[kind]);
	}
	names = item_names(store, parent, kind);
	if (!row_fits(names, stmt))
		return conn_damaged(store->writer, row_tables[kind]);
	item = item_new(store, parent, kind, (const char *)sqlite3_column_text(stmt, 1),
			&access);
	if (!item)
		return -ENOMEM;
	item->id = (uint64_t)sqlite3_column_int64(stmt, 0);
	access_parse((const char *)sqlite3_column_text(stmt, 2), item_dirs(kind),
		     item->access);
	if (names_reserve_locked(names, 1) || names_add_locked(names, item)) {
		store_put(item);
		return -ENOMEM;
	}
	*out = item;
	return 0;
}

static int load_queue(struct store *store, sqlite3_stmt *stmt)
{
	struct item *item = NULL;
	int error = item_load(store, stmt, ITEM_QUEUE, &item);

	if (!error)
		names_born_locked(&store->queues, item);
	return error;
}

static int load_partition(struct store *store, sqlite3_stmt *stmt)
{
	struct item *item = NULL;
	int error = item_load(store, stmt, ITEM_PARTITION, &item);

	if (!error)
		error = partition_load(partition_of(item), stmt);
	return error;
}

static int load_group(struct store *store, sqlite3_stmt *stmt)
{
	struct item *item = NULL;
	int error = item_load(store, stmt, ITEM_GROUP, &item);

	if (!error)
		error = group_load(group_of(item), stmt);
	return error;
}

static int load_cursor(struct store *store, sqlite3_stmt *stmt)
{
	struct item *group = item_by_ids(store, (uint64_t)sqlite3_column_int64(stmt, 0),
					 (uint64_t)sqlite3_column_int64(stmt, 1));
	struct item *partition = group ? by_id(&queue_of(group->parent)->partitions,
					       (uint64_t)sqlite3_column_int64(stmt, 2))
				       : NULL;
	struct cursor_state state = { sqlite3_column_int64(stmt, 3),
				      sqlite3_column_int64(stmt, 4),
				      (unsigned)sqlite3_column_int64(stmt, 5),
				      (unsigned)sqlite3_column_int64(stmt, 6),
				      sqlite3_column_int(stmt, 7) };
	struct cursor *cursor;

	if (!group || !partition || state.committed < -1 || state.delivered < -1 ||
	    state.committed > partition_of(partition)->last ||
	    state.delivered > partition_of(partition)->last)
		return conn_damaged(store->writer, "cursors");
	cursor = cursor_locked(group_of(group), partition_of(partition));
	cursor_set_locked(cursor, &state);
	cursor_ready_locked(cursor);
	return 0;
}

static int load_root_access(struct store *store)
{
	sqlite3_stmt *stmt;
	int got = meta_find(store, "access", &stmt);

	if (got == 1) {
		access_parse((const char *)sqlite3_column_text(stmt, 0), ROOT_DIRS,
			     store->access);
		sqlite3_reset(stmt);
	}
	return got < 0 ? got : 0;
}

int items_load(struct store *store)
{
	static const struct {
		enum stmt all;
		int (*load)(struct store *store, sqlite3_stmt *stmt);
	} tables[] = { { STMT_QUEUE_ALL, load_queue },
		       { STMT_PARTITION_ALL, load_partition },
		       { STMT_GROUP_ALL, load_group },
		       { STMT_CURSOR_ALL, load_cursor },
		       { STMT_SNAPSHOT_ALL, snapshot_load } };
	struct item *queue;
	int got = load_root_access(store);

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables) && got >= 0; i++) {
		sqlite3_stmt *stmt = conn_stmt(store->writer, tables[i].all);
		while ((got = conn_step(store->writer, stmt)) == 1)
			if ((got = tables[i].load(store, stmt)))
				break;
		sqlite3_reset(stmt);
	}
	if (got >= 0)
		got = settings_load(store);
	if (got >= 0)
		names_each(&store->queues, i, queue) retain_queue_locked(queue);
	return got;
}

void items_free(struct store *store)
{
	struct item *queue, *partition;

	/* All alarms are in one heap: none may stay there when what it belongs to goes. */
	names_each(&store->queues, i, queue)
		names_each(&queue_of(queue)->partitions, j, partition)
			retain_forget_locked(partition_of(partition));
	names_each(&store->queues, i, queue)
	{
		snapshots_forget_locked(queue);
		names_free(&queue_of(queue)->groups);
		names_free(&queue_of(queue)->partitions);
	}
	names_free(&store->queues);
}

/* ---- making -------------------------------------------------------------------------- */

struct make_job {
	struct job job;
	struct item *parent; /* a reference, or NULL */
	struct item *item;   /* a reference */
	bool named;	     /* item is in the names, not yet born */
};

static int make_insert(struct store *store, struct item *item)
{
	char access[ACCESS_TEXT_SIZE];
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_QUEUE_INSERT);
	int error;

	if (item->kind == ITEM_PARTITION)
		return partition_insert(store, partition_of(item));
	if (item->kind == ITEM_GROUP)
		return group_insert(store, group_of(item));
	pthread_mutex_lock(&store->state);
	error = names_reserve_locked(&store->queues, 1);
	pthread_mutex_unlock(&store->state);
	if (error)
		return error;
	access_text(item->access, QUEUE_DIRS, access, sizeof(access));
	bind_text(stmt, 1, item->name);
	bind_text(stmt, 2, access);
	error = conn_run(store->writer, stmt);
	item->id = (uint64_t)sqlite3_last_insert_rowid(store->writer->db);
	return error ? error : settings_write(store, item);
}

static int make_apply(struct store *store, struct job *job)
{
	struct make_job *make = container_of(job, struct make_job, job);
	struct names *names = item_names(store, make->parent, make->item->kind);
	struct item *there = NULL;
	int error = 0;

	pthread_mutex_lock(&store->state);
	if (make->parent && make->parent->state != ITEM_LIVE)
		error = -ESTALE;
	else if (names_find_locked(names, make->item->name, &there) == 0)
		error = there->state == ITEM_LIVE ? -EEXIST : 0;
	/* An unborn one of that name is born now, with what was pushed to it kept. */
	if (!error && there && there != make->item) {
		store_put(make->item);
		make->item = store_get(there);
	} else if (!error && !there) {
		make->item->state = ITEM_UNBORN; /* an undo may have dropped it */
		error = names_add_locked(names, make->item);
		if (!error)
			store_get(make->item);
	}
	make->named = !error;
	pthread_mutex_unlock(&store->state);
	return error ? error : make_insert(store, make->item);
}

static void make_publish_locked(struct store *store, struct job *job)
{
	struct make_job *make = container_of(job, struct make_job, job);

	if (make->item->kind == ITEM_PARTITION)
		partition_born_locked(partition_of(make->item));
	else if (make->item->kind == ITEM_GROUP)
		group_born_locked(group_of(make->item));
	else
		names_born_locked(&store->queues, make->item);
	job->item = make->item;
}

static void make_undo_locked(struct store *store, struct job *job)
{
	struct make_job *make = container_of(job, struct make_job, job);
	struct item *item = make->item;

	if (!make->named)
		return;
	make->named = false;
	if (item->kind == ITEM_PARTITION) {
		partition_undo_locked(partition_of(item), true);
		return;
	}
	if (item->kind == ITEM_GROUP)
		group_clear(group_of(item));
	names_remove_locked(item_names(store, make->parent, item->kind), item);
	store_put(item);
}

static void make_free(struct job *job)
{
	struct make_job *make = container_of(job, struct make_job, job);

	store_put(make->item);
	store_put(make->parent);
	free(make);
}

static const struct job_type make_type = {
	.alone = true,
	.apply = make_apply,
	.publish_locked = make_publish_locked,
	.undo_locked = make_undo_locked,
	.free = make_free,
};

void store_make(struct store *store, struct item *parent, enum item_kind kind,
		const char *name, const struct access *access, store_done done, void *arg)
{
	struct make_job *make = calloc(1, sizeof(*make));
	int error;

	if (!make) {
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	make->job = (struct job){ .type = &make_type, .done = done, .arg = arg };
	make->parent = parent ? store_get(parent) : NULL;
	error = store_name_check(name, &make->job.why);
	if (!error) {
		make->item = item_new(store, parent, kind, name, access);
		error = make->item ? 0 : -ENOMEM;
	}
	if (error)
		commit_refuse(&make->job, error);
	else
		commit_submit(store, &make->job);
}

/* ---- dropping ------------------------------------------------------------------------ */

struct drop_job {
	struct job job;
	struct item *item; /* a reference */
};

static int drop_check_locked(struct item *item, struct store_why *why)
{
	struct queue *queue = item->kind == ITEM_QUEUE ? queue_of(item) : NULL;
	struct partition *partition =
		item->kind == ITEM_PARTITION ? partition_of(item) : NULL;
	struct item *group;
	unsigned readers = partition ? partition->readers : 0;

	if (item->state != ITEM_LIVE)
		return -ESTALE;
	if (queue && queue->partitions.count > 0)
		return why_set(why, -ENOTEMPTY,
			       "the queue has %zu partitions; remove them first",
			       queue->partitions.count);
	if (partition && (partition->last >= partition->first || partition->pending))
		return why_set(why, -ENOTEMPTY,
			       "the partition holds messages; remove its segments first");
	if (item->kind == ITEM_GROUP)
		readers = group_of(item)->reader_count + group_of(item)->jobs;
	if (queue)
		names_each(&queue->groups, i, group) readers +=
			group_of(group)->reader_count + group_of(group)->jobs;
	if (partition)
		names_each(&queue_of(item->parent)->groups, i, group) readers +=
			cursor_locked(group_of(group), partition)->pins;
	if (readers > 0)
		return why_set(why, -EBUSY,
			       "somebody has a pop open below it; close it first");
	return 0;
}

/* Statements about an item, and for cursors of a partition about a group. */
static int run_by_id(struct conn *conn, enum stmt which, const struct item *item,
		     const struct item *group)
{
	sqlite3_stmt *stmt = conn_stmt(conn, which);

	bind_int(stmt, 1, (int64_t)item->id);
	if (group)
		bind_int(stmt, 2, (int64_t)group->id);
	return conn_step(conn, stmt);
}

static int drop_rows(struct conn *writer, struct item *item)
{
	enum { MOST = 4 };
	static const enum stmt rows[ITEM_KINDS][MOST] = {
		[ITEM_QUEUE] = { STMT_QUEUE_SETTINGS_DELETE, STMT_GROUPS_OF_QUEUE_DELETE,
				 STMT_SNAPSHOTS_OF_QUEUE_DELETE, STMT_QUEUE_DELETE },
		[ITEM_PARTITION] = { STMT_SEEN_OF_PARTITION, STMT_PARTITION_DELETE,
				     STMT_COUNT, STMT_COUNT },
		[ITEM_GROUP] = { STMT_GROUP_SETTINGS_DELETE, STMT_GROUP_CURSORS_DELETE,
				 STMT_GROUP_DELETE, STMT_COUNT },
	};
	struct item *group;
	int error = 0;

	if (item->kind == ITEM_PARTITION)
		names_each(&queue_of(item->parent)->groups, i,
			   group) if (error >= 0) error =
			run_by_id(writer, STMT_PARTITION_CURSORS_DELETE, item, group);
	for (int i = 0; i < MOST && error >= 0 && rows[item->kind][i] != STMT_COUNT; i++)
		error = run_by_id(writer, rows[item->kind][i], item, NULL);
	return error;
}

static int drop_letters_check(struct conn *writer, struct item *item,
			      struct store_why *why)
{
	enum stmt which =
		item->kind == ITEM_QUEUE ? STMT_LETTERS_OF_QUEUE : STMT_LETTERS_OF_GROUP;
	int got = item->kind == ITEM_PARTITION ? 0 : run_by_id(writer, which, item, NULL);

	if (got <= 0)
		return got;
	sqlite3_reset(conn_stmt(writer, which));
	return why_set(why, -ENOTEMPTY,
		       "it has dead letters; rm or mv them in dlq/ first");
}

static int drop_apply(struct store *store, struct job *job)
{
	struct item *item = container_of(job, struct drop_job, job)->item;
	int error;

	pthread_mutex_lock(&store->state);
	error = drop_check_locked(item, &job->why);
	item->leaving = !error;
	pthread_mutex_unlock(&store->state);
	if (!error)
		error = drop_letters_check(store->writer, item, &job->why);
	return error ? error : drop_rows(store->writer, item);
}

static void drop_publish_locked(struct store *store, struct job *job)
{
	struct item *item = container_of(job, struct drop_job, job)->item, *group;

	if (item->kind == ITEM_PARTITION)
		partition_gone_locked(partition_of(item));
	if (item->kind == ITEM_GROUP)
		group_clear(group_of(item));
	if (item->kind == ITEM_QUEUE) {
		names_each(&queue_of(item)->groups, i, group)
			group_clear(group_of(group));
		names_free(&queue_of(item)->groups);
		snapshots_forget_locked(item);
	}
	names_remove_locked(item_names(store, item->parent, item->kind), item);
	if (item->kind == ITEM_GROUP)
		retain_queue_locked(item->parent); /* it holds nothing back any more */
	store_put(item); /* the names' reference; the job has one too */
}

static void drop_undo_locked(struct store *store, struct job *job)
{
	(void)store;
	container_of(job, struct drop_job, job)->item->leaving = false;
}

static void drop_free(struct job *job)
{
	struct drop_job *drop = container_of(job, struct drop_job, job);

	store_put(drop->item);
	free(drop);
}

static const struct job_type drop_type = {
	.alone = true,
	.apply = drop_apply,
	.publish_locked = drop_publish_locked,
	.undo_locked = drop_undo_locked,
	.free = drop_free,
};

void store_drop(struct item *item, store_done done, void *arg)
{
	struct drop_job *drop = calloc(1, sizeof(*drop));

	if (!drop) {
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	drop->job = (struct job){ .type = &drop_type, .done = done, .arg = arg };
	drop->item = store_get(item);
	commit_submit(item->store, &drop->job);
}

/* ---- owner and mode ------------------------------------------------------------------ */

void store_access(struct store *store, struct item *item, unsigned dir,
		  struct access *access)
{
	pthread_mutex_lock(&store->state);
	*access = item ? item->access[dir] : store->access[dir];
	pthread_mutex_unlock(&store->state);
}

struct access_job {
	struct job job;
	struct item *item; /* a reference, or NULL: the mount's own */
	unsigned dir, set;
	struct access access; /* what `set` names of it */
};

/* Two that change different things of one directory at once both count. */
static void access_merge(struct access *access, const struct access_job *set)
{
	if (set->set & ACCESS_UID)
		access->uid = set->access.uid;
	if (set->set & ACCESS_GID)
		access->gid = set->access.gid;
	if (set->set & ACCESS_MODE)
		access->mode = set->access.mode;
}

static int access_apply(struct store *store, struct job *job)
{
	struct access_job *set = container_of(job, struct access_job, job);
	struct access all[STORE_DIRS_MAX];
	unsigned dirs = set->item ? item_dirs(set->item->kind) : ROOT_DIRS;
	char text[ACCESS_TEXT_SIZE];
	sqlite3_stmt *stmt;
	bool live;

	pthread_mutex_lock(&store->state);
	live = !set->item || set->item->state == ITEM_LIVE;
	memcpy(all, set->item ? set->item->access : store->access, dirs * sizeof(*all));
	pthread_mutex_unlock(&store->state);
	if (!live)
		return -ESTALE;
	access_merge(&all[set->dir], set);
	access_text(all, dirs, text, sizeof(text));
	stmt = conn_stmt(store->writer,
			 set->item ? types[set->item->kind].access : STMT_META_SET);
	if (set->item)
		bind_int(stmt, 1, (int64_t)set->item->id);
	else
		bind_text(stmt, 1, "access");
	bind_text(stmt, 2, text);
	return conn_run(store->writer, stmt);
}

static void access_publish_locked(struct store *store, struct job *job)
{
	struct access_job *set = container_of(job, struct access_job, job);

	access_merge(&(set->item ? set->item->access : store->access)[set->dir], set);
}

static void access_free(struct job *job)
{
	struct access_job *set = container_of(job, struct access_job, job);

	store_put(set->item);
	free(set);
}

static const struct job_type access_type = {
	.alone = true,
	.apply = access_apply,
	.publish_locked = access_publish_locked,
	.free = access_free,
};

void store_access_set(struct store *store, struct item *item, unsigned dir,
		      const struct access *access, unsigned set_what, store_done done,
		      void *arg)
{
	struct access_job *set = calloc(1, sizeof(*set));

	if (!set) {
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	set->job = (struct job){ .type = &access_type, .done = done, .arg = arg };
	set->item = item ? store_get(item) : NULL;
	set->dir = dir;
	set->set = set_what;
	set->access = *access;
	commit_submit(store, &set->job);
}
