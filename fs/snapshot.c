/* SPDX-License-Identifier: MIT */
/*
 * snapshot.c - snapshots/<name>: a group's position as a file (section 7).
 *
 * A name that is opened to be created is nothing yet. What is written to it, the name of a
 * group, makes the snapshot, with that write's commit; then it is found, and is immutable.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

static void snapshot_stat(struct node *node, struct stat *st)
{
	const struct snapshot_info *info = &node->place.snapshot->info;

	st->st_size = (off_t)info->size;
	if (info->id)
		stat_time(st, info->created_us);
}

static int snapshot_open(struct handle *handle, struct call *call)
{
	const struct snapshot_info *info = &handle->node->place.snapshot->info;

	if (info->id && (handle->flags & O_ACCMODE) != O_RDONLY)
		return why_not(
			&call->why, -EEXIST,
			"there is a snapshot of that name, and it cannot be changed; "
			"rm it first");
	return 0;
}

static ssize_t snapshot_read(struct handle *handle, char *buffer, size_t size,
			     off_t offset)
{
	const struct place *place = &handle->node->place;

	if (!place->snapshot->info.id)
		return 0; /* created, and nothing was written yet */
	return store_snapshot_read(place->queue, place->snapshot->info.id,
				   (uint64_t)offset, buffer, size);
}

static ssize_t snapshot_write(struct handle *handle, struct call *call, const char *data,
			      size_t size, uint64_t owner)
{
	const struct place *place = &handle->node->place;
	char copy[STORE_NAME_MAX + 2], *name = NULL;
	struct item *group;
	int error;

	(void)owner;
	if (size < sizeof(copy)) {
		memcpy(copy, data, size);
		name = text_line(copy, size);
	}
	if (!name || !*name)
		return why_not(&call->why, -EINVAL,
			       "a write here is one line, the name of a group");
	if (!call_may(call, place->queue, QUEUE_GROUPS, 1))
		return why_not(&call->why, -EACCES,
			       "naming a group takes x of the queue's groups/");
	error = store_find(call->mount->store, place->queue, ITEM_GROUP, name, &group);
	if (error)
		return why_not(&call->why, error, "the queue has no group \"%.200s\"",
			       name);
	if (!call_may(call, group, GROUP_DIR, 5)) {
		store_put(group);
		return why_not(&call->why, -EACCES,
			       "a snapshot of a group takes r and x of its directory");
	}
	store_snapshot_make(group, place->snapshot->info.name, call_finish, call);
	store_put(group);
	return PARKED;
}

const struct file_ops snapshot_file = {
	.flags = FILE_NAMES,
	.stat = snapshot_stat,
	.open = snapshot_open,
	.read = snapshot_read,
	.write = snapshot_write,
};
