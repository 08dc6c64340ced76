/* SPDX-License-Identifier: MIT */
/* segment.c - segments/<base>: one commit's messages as an immutable file (section 3). */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs.h"

static void segment_stat(struct node *node, struct stat *st)
{
	st->st_size = (off_t)node->place.segment.size;
	stat_time(st, node->place.segment.created_us);
}

static int segment_open(struct handle *handle, struct call *call)
{
	(void)call;
	handle->state = calloc(1, sizeof(_Atomic int64_t)); /* store_log_read()'s hint */
	return handle->state ? 0 : -ENOMEM;
}

static ssize_t segment_read(struct handle *handle, char *buffer, size_t size,
			    off_t offset)
{
	const struct place *place = &handle->node->place;
	uint64_t left;

	if ((uint64_t)offset >= place->segment.size)
		return 0;
	left = place->segment.size - (uint64_t)offset;
	return store_log_read(place->partition,
			      place->segment.position + (uint64_t)offset, handle->state,
			      buffer, left < size ? (size_t)left : size);
}

static void segment_close(struct handle *handle)
{
	free(handle->state);
}

static const char *segment_xattr(const struct node *node, unsigned i,
				 char value[XATTR_VALUE_SIZE])
{
	static const char *const names[] = { "user.queenfs.base_offset",
					     "user.queenfs.end_offset",
					     "user.queenfs.messages",
					     "user.queenfs.created_at" };
	const struct segment_info *info = &node->place.segment;
	const long long numbers[] = { info->base_offset, info->end_offset,
				      info->end_offset - info->base_offset + 1 };

	if (i >= sizeof(names) / sizeof(*names))
		return NULL;
	if (i < sizeof(numbers) / sizeof(*numbers))
		snprintf(value, XATTR_VALUE_SIZE, "%lld", numbers[i]);
	else
		time_print(info->created_us, value);
	return names[i];
}

const struct file_ops segment_file = {
	.flags = FILE_CACHED,
	.stat = segment_stat,
	.open = segment_open,
	.read = segment_read,
	.close = segment_close,
	.xattr = segment_xattr,
};
