/* SPDX-License-Identifier: MIT */
/* dlq.c - dlq/<partition>@<offset>: a message that was given up, as a file (section 9). */
#include <errno.h>
#include <stdio.h>

#include "fs.h"

static void letter_stat(struct node *node, struct stat *st)
{
	const struct letter_info *info = &node->place.letter->info;

	st->st_size = (off_t)info->size;
	stat_time(st, info->failed_us);
}

static ssize_t letter_read(struct handle *handle, char *buffer, size_t size, off_t offset)
{
	const struct place *place = &handle->node->place;

	return store_letter_read(place->group, place->letter->info.id, (uint64_t)offset,
				 buffer, size);
}

static const char *letter_xattr(const struct node *node, unsigned i,
				char value[XATTR_VALUE_SIZE])
{
	static const char *const names[] = { "user.queenfs.error",
					     "user.queenfs.attempts",
					     "user.queenfs.created_at",
					     "user.queenfs.transaction_id" };
	const struct letter_info *info = &node->place.letter->info;

	if (i >= sizeof(names) / sizeof(*names))
		return NULL;
	if (i == 0)
		snprintf(value, XATTR_VALUE_SIZE, "%s", info->error);
	else if (i == 1)
		snprintf(value, XATTR_VALUE_SIZE, "%u", info->attempts);
	else if (i == 2)
		time_print(info->created_us, value);
	else
		snprintf(value, XATTR_VALUE_SIZE, "%s", info->transaction);
	return names[i];
}

const struct file_ops letter_file = {
	.flags = FILE_CACHED,
	.stat = letter_stat,
	.read = letter_read,
	.xattr = letter_xattr,
};
