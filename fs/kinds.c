/* SPDX-License-Identifier: MIT */
/*
 * kinds.c - the tree as tables: what stands in each kind of directory.
 *
 * Read it from the bottom. A file of the mount is one entry in `files`, a directory one in
 * `dirs`; the order of entries is the order of listings. What users make and remove below a
 * directory is its `children`.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

/* ---- children: items ------------------------------------------------------------------- */

static struct item **item_slot(struct place *place, enum item_kind kind)
{
	return kind == ITEM_QUEUE	? &place->queue
	       : kind == ITEM_PARTITION ? &place->partition
					: &place->group;
}

static struct item *const *place_item(const struct place *place, enum item_kind kind)
{
	return item_slot((struct place *)(uintptr_t)place, kind);
}

static struct place child_of(const struct place *in, struct item *item)
{
	const struct children *children = in->dir->children;
	struct place child = place_get(in);

	child.dir = &dirs[children->dir];
	*item_slot(&child, children->item) = item;
	return child;
}

static int items_find(struct mount *mount, const struct place *in, const char *name,
		      struct place *child)
{
	struct item *item;
	int error =
		store_find(mount->store, in->queue, in->dir->children->item, name, &item);

	if (!error)
		*child = child_of(in, item);
	return error;
}

static int items_next(struct mount *mount, const struct place *in, uint64_t after,
		      struct place *child, uint64_t *key)
{
	struct item *item;
	int error = store_next(mount->store, in->queue, in->dir->children->item, after,
			       &item);

	if (error)
		return error;
	*key = store_id(item);
	*child = child_of(in, item);
	return 0;
}

static int items_make(struct call *call, const struct place *in, const char *name,
		      mode_t mode)
{
	const struct fuse_ctx *who = fuse_req_ctx(call->req);
	struct access access = { who->uid, who->gid, mode & 01777 }, above;

	store_access(call->mount->store, place_owner(in), in->dir->access, &above);
	if (above.mode & S_ISGID) { /* as every filesystem of Linux does */
		access.gid = above.gid;
		access.mode |= S_ISGID;
	}
	store_make(call->mount->store, in->queue, in->dir->children->item, name, &access,
		   call_finish, call);
	return PARKED;
}

static int items_drop(struct call *call, const struct place *child)
{
	enum item_kind kind = dirs[child->dir->parent].children->item;

	store_drop(*place_item(child, kind), call_finish, call);
	return PARKED;
}

/* ---- children that are files ------------------------------------------------------------ */

/* The place of a file that a directory's children->find or next has found. */
static struct place file_in(const struct place *in)
{
	struct place child = place_get(in);

	for (size_t i = 0; i < file_count; i++)
		if (&dirs[files[i].dir] == in->dir && !files[i].name)
			child.file = &files[i];
	return child;
}

static void segments_name(const struct place *child, char text[NAME_TEXT_SIZE])
{
	snprintf(text, NAME_TEXT_SIZE, "%020lld", (long long)child->segment.base_offset);
}

static int segments_find(struct mount *mount, const struct place *in, const char *name,
			 struct place *child)
{
	char exact[NAME_TEXT_SIZE];
	struct place found = { .segment.base_offset = strtoll(name, NULL, 10) };
	int error;

	(void)mount;
	segments_name(&found, exact);
	if (found.segment.base_offset < 0 || strcmp(exact, name) != 0)
		return -ENOENT;
	error = store_segment(in->partition, found.segment.base_offset, &found.segment);
	if (error)
		return error;
	*child = file_in(in);
	child->segment = found.segment;
	return 0;
}

/* A key is base + 1. */
static int segments_next(struct mount *mount, const struct place *in, uint64_t after,
			 struct place *child, uint64_t *key)
{
	struct segment_info info;
	int error = store_segment_next(in->partition, (int64_t)after - 1, &info);

	(void)mount;
	if (error)
		return error;
	*key = (uint64_t)info.base_offset + 1;
	*child = file_in(in);
	child->segment = info;
	return 0;
}

static int segments_drop(struct call *call, const struct place *child)
{
	store_segment_drop(child->partition, child->segment.base_offset, call_finish,
			   call);
	return PARKED;
}

static void settings_name(const struct place *child, char text[NAME_TEXT_SIZE])
{
	snprintf(text, NAME_TEXT_SIZE, "%s", setting_name(child->setting));
}

static bool setting_in(const struct place *in, enum setting setting)
{
	return in->group ? setting_of_group(setting) : setting_of_queue(setting);
}

static int settings_find(struct mount *mount, const struct place *in, const char *name,
			 struct place *child)
{
	enum setting setting;

	(void)mount;
	if (setting_find(name, &setting) || !setting_in(in, setting))
		return -ENOENT;
	*child = file_in(in);
	child->setting = setting;
	return 0;
}

/* A key is the setting + 1. */
static int settings_next(struct mount *mount, const struct place *in, uint64_t after,
			 struct place *child, uint64_t *key)
{
	(void)mount;
	while (after < SETTING_COUNT && !setting_in(in, (enum setting)after))
		after++;
	if (after >= SETTING_COUNT)
		return -ENOENT;
	*key = after + 1;
	*child = file_in(in);
	child->setting = (enum setting)after;
	return 0;
}

static void letters_name(const struct place *child, char text[NAME_TEXT_SIZE])
{
	const struct letter_info *info = &child->letter->info;

	snprintf(text, NAME_TEXT_SIZE, "%s@%lld", info->partition,
		 (long long)info->offset);
}

static int letter_place(const struct place *in, const struct letter_info *info,
			struct place *child)
{
	struct letter *letter = calloc(1, sizeof(*letter));

	if (!letter) {
		free(info->partition);
		return -ENOMEM;
	}
	atomic_init(&letter->refs, 1);
	letter->info = *info;
	*child = file_in(in);
	child->letter = letter;
	return 0;
}

static int letters_find(struct mount *mount, const struct place *in, const char *name,
			struct place *child)
{
	const char *at = strrchr(name, '@');
	char partition[STORE_NAME_MAX + 1], exact[24];
	struct letter_info info;
	long long offset;
	int error;

	(void)mount;
	if (!at || at - name > STORE_NAME_MAX)
		return -ENOENT;
	offset = strtoll(at + 1, NULL, 10);
	snprintf(exact, sizeof(exact), "%lld", offset);
	snprintf(partition, sizeof(partition), "%.*s", (int)(at - name), name);
	if (strcmp(exact, at + 1) != 0)
		return -ENOENT;
	error = store_letter(in->group, partition, offset, &info);
	return error ? error : letter_place(in, &info, child);
}

static int letters_next(struct mount *mount, const struct place *in, uint64_t after,
			struct place *child, uint64_t *key)
{
	struct letter_info info;
	int error = store_letter_next(in->group, after, &info);

	(void)mount;
	if (error)
		return error;
	*key = info.id;
	return letter_place(in, &info, child);
}

static int letters_drop(struct call *call, const struct place *child)
{
	store_letter_drop(child->group, child->letter->info.id, call_finish, call);
	return PARKED;
}

static void snapshots_name(const struct place *child, char text[NAME_TEXT_SIZE])
{
	snprintf(text, NAME_TEXT_SIZE, "%s", child->snapshot->info.name);
}

static int snapshot_place(const struct place *in, const struct snapshot_info *info,
			  struct place *child)
{
	struct snapshot_name *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return -ENOMEM;
	atomic_init(&snapshot->refs, 1);
	snapshot->info = *info;
	*child = file_in(in);
	child->snapshot = snapshot;
	return 0;
}

static int snapshots_find(struct mount *mount, const struct place *in, const char *name,
			  struct place *child)
{
	struct snapshot_info info;
	int error = store_snapshot(in->queue, name, &info);

	(void)mount;
	return error ? error : snapshot_place(in, &info, child);
}

static int snapshots_next(struct mount *mount, const struct place *in, uint64_t after,
			  struct place *child, uint64_t *key)
{
	struct snapshot_info info;
	int error = store_snapshot_next(in->queue, after, &info);

	(void)mount;
	if (error)
		return error;
	*key = info.id;
	return snapshot_place(in, &info, child);
}

static int snapshots_create(const struct place *in, const char *name, struct place *child)
{
	struct snapshot_info info = { 0 };

	snprintf(info.name, sizeof(info.name), "%s", name);
	return snapshot_place(in, &info, child);
}

static int snapshots_drop(struct call *call, const struct place *child)
{
	store_snapshot_drop(child->queue, child->snapshot->info.id, call_finish, call);
	return PARKED;
}

/* ---- looking into a directory ----------------------------------------------------------- */

struct item *place_owner(const struct place *place)
{
	return place->dir->owner == ITEM_KINDS ? NULL
					       : *place_item(place, place->dir->owner);
}

bool place_made(const struct place *place)
{
	const struct children *children =
		place->file ? place->dir->children : dirs[place->dir->parent].children;

	return (place->file ? !place->file->name : !place->dir->name) && children &&
	       !children->fixed;
}

const char *place_name(const struct place *place, char text[NAME_TEXT_SIZE])
{
	if (place->file && place->file->name)
		return place->file->name;
	if (place->file) {
		place->dir->children->name(place, text);
		return text;
	}
	if (place->dir->name)
		return place->dir->name;
	return store_name(*place_item(place, dirs[place->dir->parent].children->item));
}

mode_t place_mode(const struct place *place, const struct access *access)
{
	const struct file_ops *ops;
	mode_t mode = access->mode;

	if (!place->file)
		return S_IFDIR | mode;
	ops = place->file->ops;
	mode &= (file_reads(ops) ? 0444 : 0) | (ops->write ? 0222 : 0);
	/* Consuming is reading and moving a cursor: it takes both bits of the group. */
	if (ops->flags & FILE_CONSUMES)
		mode &= (access->mode & 0222) << 1 | (access->mode & 0444) >> 1;
	return S_IFREG | (mode & ~ops->withheld);
}

/* The directory's own fixed entries: files first, as the table has them, then directories.
 * Numbered from 0 on; false past the last. */
static bool fixed_entry(const struct place *in, size_t number, struct place *entry)
{
	for (size_t i = 0; i < DIR_COUNT; i++)
		if (i != DIR_ROOT && dirs[i].name && &dirs[dirs[i].parent] == in->dir &&
		    number-- == 0) {
			*entry = *in;
			entry->dir = &dirs[i];
			return true;
		}
	for (size_t i = 0; i < file_count; i++)
		if (files[i].name && &dirs[files[i].dir] == in->dir && number-- == 0) {
			*entry = *in;
			entry->file = &files[i];
			return true;
		}
	return false;
}

int place_find(struct mount *mount, const struct place *in, const char *name,
	       struct place *child)
{
	struct place entry;
	char text[NAME_TEXT_SIZE];

	for (size_t i = 0; fixed_entry(in, i, &entry); i++)
		if (strcmp(place_name(&entry, text), name) == 0) {
			*child = place_get(&entry);
			return 0;
		}
	return in->dir->children ? in->dir->children->find(mount, in, name, child)
				 : -ENOENT;
}

/* Directory offsets: fixed entries count from 1, what users made goes by its key: so a
 * listing stays whole while things come and go. */
#define FIXED_OFFSETS 64

int place_list(struct mount *mount, const struct place *in, uint64_t after,
	       struct place *child, uint64_t *at)
{
	struct place entry;
	uint64_t key;
	int error;

	if (after < FIXED_OFFSETS && fixed_entry(in, (size_t)after, &entry)) {
		*child = place_get(&entry);
		*at = after + 1;
		return 0;
	}
	if (!in->dir->children)
		return -ENOENT;
	after = after < FIXED_OFFSETS ? 0 : after - FIXED_OFFSETS;
	error = in->dir->children->next(mount, in, after, child, &key);
	if (!error)
		*at = key + FIXED_OFFSETS;
	return error;
}

/* ---- the tables ------------------------------------------------------------------------ */

static const struct children queues = {
	.item = ITEM_QUEUE,
	.dir = DIR_QUEUE,
	.find = items_find,
	.next = items_next,
	.make = items_make,
	.drop = items_drop,
};
static const struct children partitions = {
	.item = ITEM_PARTITION,
	.dir = DIR_PARTITION,
	.find = items_find,
	.next = items_next,
	.make = items_make,
	.drop = items_drop,
};
static const struct children groups = {
	.item = ITEM_GROUP,
	.dir = DIR_GROUP,
	.find = items_find,
	.next = items_next,
	.make = items_make,
	.drop = items_drop,
};
/* partitions/<p>/groups/ mirrors the queue's groups, with their owners and modes. */
static const struct children mirrored_groups = {
	.item = ITEM_GROUP,
	.dir = DIR_PARTITION_GROUP,
	.find = items_find,
	.next = items_next,
	.make = items_make,
	.fixed = true,
};
static const struct children segments = {
	.item = ITEM_KINDS,
	.name = segments_name,
	.find = segments_find,
	.next = segments_next,
	.drop = segments_drop,
};
static const struct children settings = {
	.item = ITEM_KINDS,
	.name = settings_name,
	.find = settings_find,
	.next = settings_next,
	.fixed = true,
};
static const struct children letters = {
	.item = ITEM_KINDS,
	.name = letters_name,
	.find = letters_find,
	.next = letters_next,
	.drop = letters_drop,
};

static const struct children snapshots = {
	.item = ITEM_KINDS,
	.name = snapshots_name,
	.find = snapshots_find,
	.next = snapshots_next,
	.create = snapshots_create,
	.drop = snapshots_drop,
};

/* A queue lists snapshots/ and groups/ before partitions/, so that `rm -r` takes what holds
 * messages away before them. */
const struct dir_kind dirs[DIR_COUNT] = {
	[DIR_ROOT] = { DIR_ROOT, "", ITEM_KINDS, ROOT_DIR, NULL },
	[DIR_QUEUES] = { DIR_ROOT, "queues", ITEM_KINDS, ROOT_QUEUES, &queues },
	[DIR_QUEUE] = { DIR_QUEUES, NULL, ITEM_QUEUE, QUEUE_DIR, NULL },
	[DIR_QUEUE_CONFIG] = { DIR_QUEUE, "config", ITEM_QUEUE, QUEUE_CONFIG, &settings },
	[DIR_SNAPSHOTS] = { DIR_QUEUE, "snapshots", ITEM_QUEUE, QUEUE_SNAPSHOTS,
			    &snapshots },
	[DIR_QUEUE_GROUPS] = { DIR_QUEUE, "groups", ITEM_QUEUE, QUEUE_GROUPS, &groups },
	[DIR_GROUP] = { DIR_QUEUE_GROUPS, NULL, ITEM_GROUP, GROUP_DIR, NULL },
	[DIR_GROUP_CONFIG] = { DIR_GROUP, "config", ITEM_GROUP, GROUP_CONFIG, &settings },
	[DIR_DLQ] = { DIR_GROUP, "dlq", ITEM_GROUP, GROUP_DLQ, &letters },
	[DIR_PARTITIONS] = { DIR_QUEUE, "partitions", ITEM_QUEUE, QUEUE_PARTITIONS,
			     &partitions },
	[DIR_PARTITION] = { DIR_PARTITIONS, NULL, ITEM_PARTITION, PARTITION_DIR, NULL },
	[DIR_SEGMENTS] = { DIR_PARTITION, "segments", ITEM_PARTITION, PARTITION_SEGMENTS,
			   &segments },
	[DIR_PARTITION_GROUPS] = { DIR_PARTITION, "groups", ITEM_QUEUE, QUEUE_GROUPS,
				   &mirrored_groups },
	[DIR_PARTITION_GROUP] = { DIR_PARTITION_GROUPS, NULL, ITEM_GROUP, GROUP_DIR,
				  NULL },
};

const struct file_kind files[] = {
	{ DIR_ROOT, "README", &readme_file },
	{ DIR_ROOT, "errors", &errors_file },
	{ DIR_ROOT, "metrics", &metrics_file },
	{ DIR_ROOT, "version", &version_file },

	{ DIR_QUEUE, "push", &push_file },
	{ DIR_QUEUE, "push.json", &push_json_file },
	{ DIR_QUEUE, "pop", &pop_file },
	{ DIR_QUEUE, "pop.json", &pop_json_file },
	{ DIR_QUEUE, "follow", &follow_file },
	{ DIR_QUEUE, "follow.json", &follow_json_file },
	{ DIR_QUEUE, "stats", &queue_stats_file },

	{ DIR_GROUP, "cursor", &cursor_file },
	{ DIR_GROUP, "pop", &pop_file },
	{ DIR_GROUP, "pop.json", &pop_json_file },
	{ DIR_GROUP, "follow", &follow_file },
	{ DIR_GROUP, "follow.json", &follow_json_file },
	{ DIR_GROUP, "members", &members_file },
	{ DIR_GROUP, "stats", &group_stats_file },

	{ DIR_PARTITION, "push", &push_file },
	{ DIR_PARTITION, "push.json", &push_json_file },
	{ DIR_PARTITION, "log", &log_file },
	{ DIR_PARTITION, "stats", &partition_stats_file },

	{ DIR_PARTITION_GROUP, "cursor", &cursor_file },
	{ DIR_PARTITION_GROUP, "pop", &pop_file },
	{ DIR_PARTITION_GROUP, "pop.json", &pop_json_file },
	{ DIR_PARTITION_GROUP, "follow", &follow_file },
	{ DIR_PARTITION_GROUP, "follow.json", &follow_json_file },
	{ DIR_PARTITION_GROUP, "stats", &lane_stats_file },

	/* What a directory's children name. */
	{ DIR_SEGMENTS, NULL, &segment_file },
	{ DIR_QUEUE_CONFIG, NULL, &setting_file },
	{ DIR_GROUP_CONFIG, NULL, &setting_file },
	{ DIR_DLQ, NULL, &letter_file },
	{ DIR_SNAPSHOTS, NULL, &snapshot_file },
};
const size_t file_count = sizeof(files) / sizeof(*files);
