/* SPDX-License-Identifier: MIT */
/* text.c - files of constant text: README and version. */
#include <string.h>

#include "fs.h"

static const char readme[] =
	"queenfs: a durable message queue as files.\n"
	"\n"
	"  mkdir queues/jobs                        make a queue\n"
	"  echo 'resize photo-1.png' >> queues/jobs/push\n"
	"                                           push: each line is one message, and "
	"is\n"
	"                                           on the disk when the write returns\n"
	"  cat queues/jobs/pop                      take the next message (group "
	"\"default\")\n"
	"\n"
	"  mkdir queues/jobs/groups/billing         a second reader of the same "
	"messages\n"
	"  cat queues/jobs/groups/billing/pop\n"
	"  cat queues/jobs/groups/billing/cursor    where it stands in each partition\n"
	"  echo -15m > queues/jobs/groups/billing/cursor\n"
	"                                           read the last 15 minutes again; "
	"also:\n"
	"                                           end, start, 2026-07-29T14:00Z, "
	"@seconds,\n"
	"                                           or the text that cursor printed\n"
	"\n"
	"  tail -f queues/jobs/partitions/default/log\n"
	"                                           everything retained; consumes "
	"nothing\n"
	"  ls -l queues/jobs/partitions/default/segments\n"
	"                                           one file per commit; rm the oldest "
	"to\n"
	"                                           free its room\n"
	"  rm -rf queues/jobs                       remove it all\n"
	"\n"
	"  tail errors                              why something was refused\n"
	"\n"
	"Partitions are ordered; `mkdir queues/jobs/partitions/8812` or let the first "
	"push\n"
	"make \"default\". The manual is queenfs(8).\n";

static const char version[] = "queenfs " QUEENFS_VERSION "\n";

static ssize_t text_read(const char *text, char *buffer, size_t size, off_t offset)
{
	size_t length = strlen(text), left;

	if ((size_t)offset >= length)
		return 0;
	left = length - (size_t)offset;
	left = left < size ? left : size;
	memcpy(buffer, text + offset, left);
	return (ssize_t)left;
}

static void readme_stat(struct node *node, struct stat *st)
{
	(void)node;
	st->st_size = sizeof(readme) - 1;
}

static ssize_t readme_read(struct handle *handle, char *buffer, size_t size, off_t offset)
{
	(void)handle;
	return text_read(readme, buffer, size, offset);
}

static void version_stat(struct node *node, struct stat *st)
{
	(void)node;
	st->st_size = sizeof(version) - 1;
}

static ssize_t version_read(struct handle *handle, char *buffer, size_t size,
			    off_t offset)
{
	(void)handle;
	return text_read(version, buffer, size, offset);
}

const struct file_ops readme_file = { .stat = readme_stat, .read = readme_read };
const struct file_ops version_file = { .stat = version_stat, .read = version_read };
