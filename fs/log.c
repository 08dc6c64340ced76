/* SPDX-License-Identifier: MIT */
/*
 * log.c - everything a partition retains, as one growing file (section 3).
 *
 * 1. Positions count from the oldest message retained when the node was looked up, which is
 *    when it was opened: so an open log never shrinks, whatever is removed meanwhile.
 * 2. The kernel keeps no pages of it: filling one would ask for bytes that nobody reads and
 *    that may have been removed. (So it cannot be mapped shared; segments can.)
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "fs.h"

static void log_init(struct node *node)
{
	struct partition_info info;

	store_partition_info(node->place.partition, &info);
	node->origin = info.first_position;
}

static void log_stat(struct node *node, struct stat *st)
{
	struct partition_info info;

	store_partition_info(node->place.partition, &info);
	st->st_size = (off_t)(info.end_position - node->origin);
	stat_time(st, info.modified_us);
}

static int log_open(struct handle *handle, struct call *call)
{
	(void)call;
	handle->state = calloc(1, sizeof(_Atomic int64_t)); /* store_log_read()'s hint */
	return handle->state ? 0 : -ENOMEM;
}

static ssize_t log_read(struct handle *handle, char *buffer, size_t size, off_t offset)
{
	struct node *node = handle->node;

	return store_log_read(node->place.partition, node->origin + (uint64_t)offset,
			      handle->state, buffer, size);
}

static void log_close(struct handle *handle)
{
	free(handle->state);
}

const struct file_ops log_file = {
	.flags = FILE_GROWS,
	.init = log_init,
	.stat = log_stat,
	.open = log_open,
	.read = log_read,
	.close = log_close,
};
