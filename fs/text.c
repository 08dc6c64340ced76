/* SPDX-License-Identifier: MIT */
/* text.c - files whose whole text is made when they are opened; README and version. */
#include <errno.h>
#include <stdlib.h>
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
	"  cat queues/jobs/follow                   a worker of group \"default\": waits "
	"for\n"
	"                                           messages; asking for more acks the "
	"last\n"
	"  cat queues/jobs/pop                      take one message and do not wait\n"
	"\n"
	"  mkdir queues/jobs/groups/billing         a second reader of the same "
	"messages\n"
	"  exec 3<> queues/jobs/groups/billing/follow\n"
	"  read -r -u 3 job; echo ack >&3           nothing is done before ack; also:\n"
	"                                           retry, fail [why], dlq [why], extend "
	"600\n"
	"  ls queues/jobs/groups/billing/dlq        what was given up; mv it onto a "
	"push\n"
	"  cat queues/jobs/groups/billing/members   who reads; stats: how far\n"
	"  echo 8 > queues/jobs/config/spread       for 8 workers; ls config/ shows the "
	"rest\n"
	"\n"
	"  echo '{\"data\": \"x\", \"transactionId\": \"inv-42\"}' >> "
	"queues/jobs/push.json\n"
	"                                           objects; an id is stored once in an "
	"hour\n"
	"  cat queues/jobs/follow.json              messages with all that is known of "
	"them,\n"
	"                                           and where a replay begins and ends\n"
	"\n"
	"  cat queues/jobs/groups/billing/cursor    where it stands in each partition\n"
	"  echo -15m > queues/jobs/groups/billing/cursor\n"
	"                                           read the last 15 minutes again; "
	"also:\n"
	"                                           end, start, 2026-07-29T14:00Z, "
	"@seconds,\n"
	"                                           or the text that cursor printed\n"
	"  echo billing > queues/jobs/snapshots/s   keep where it stands, and the "
	"messages;\n"
	"                                           back: echo 'snapshot s' > "
	".../cursor\n"
	"  echo \"data LIKE '%png'\" > queues/jobs/groups/billing/config/filter\n"
	"                                           which messages it gets; "
	"subscription:\n"
	"                                           since when; both before its first "
	"read\n"
	"\n"
	"  tail -f queues/jobs/partitions/default/log\n"
	"                                           everything retained; consumes "
	"nothing\n"
	"  ls -l queues/jobs/partitions/default/segments\n"
	"                                           one file per commit; rm the oldest "
	"to\n"
	"                                           free its room\n"
	"  echo 7d > queues/jobs/config/retention_seconds\n"
	"                                           or let what is older go by itself\n"
	"  rm -rf queues/jobs                       remove it all\n"
	"\n"
	"  tail errors                              why something was refused\n"
	"  cat metrics                              counters and sizes, for Prometheus\n"
	"\n"
	"Partitions are ordered; `mkdir queues/jobs/partitions/8812` or let the first "
	"push\n"
	"make \"default\". The manual is queenfs(8).\n";

static int readme_text(const struct node *node, FILE *out)
{
	(void)node;
	fputs(readme, out);
	return 0;
}

static int version_text(const struct node *node, FILE *out)
{
	(void)node;
	fputs("queenfs " QUEENFS_VERSION "\n", out);
	return 0;
}

int text_make(const struct node *node, struct text *text)
{
	struct text made = { NULL, 0 };
	FILE *out = open_memstream(&made.data, &made.size);
	int error;

	if (!out)
		return -ENOMEM;
	error = node->place.file->ops->text(node, out);
	if (fclose(out) != 0 && !error)
		error = -ENOMEM;
	if (error)
		free(made.data);
	else
		*text = made;
	return error;
}

void text_stat(struct node *node, struct stat *st)
{
	struct text text;

	if (text_make(node, &text) == 0) {
		st->st_size = (off_t)text.size;
		free(text.data);
	}
}

int text_open(struct handle *handle, struct call *call)
{
	struct text *text = calloc(1, sizeof(*text));
	int error = text ? text_make(handle->node, text) : -ENOMEM;

	(void)call;
	if (error)
		free(text);
	else
		handle->state = text;
	return error;
}

ssize_t text_copy(const struct text *text, char *buffer, size_t size, off_t offset)
{
	size_t left;

	if ((size_t)offset >= text->size)
		return 0;
	left = text->size - (size_t)offset;
	left = left < size ? left : size;
	memcpy(buffer, text->data + offset, left);
	return (ssize_t)left;
}

ssize_t text_read(struct handle *handle, char *buffer, size_t size, off_t offset)
{
	return text_copy(handle->state, buffer, size, offset);
}

void text_close(struct handle *handle)
{
	struct text *text = handle->state;

	free(text->data);
	free(text);
}

char *text_line(char *copy, size_t size)
{
	if (size && copy[size - 1] == '\n')
		size--;
	while (size && (copy[size - 1] == ' ' || copy[size - 1] == '\t' ||
			copy[size - 1] == '\r'))
		size--;
	while (size && (*copy == ' ' || *copy == '\t')) {
		copy++;
		size--;
	}
	copy[size] = '\0';
	return strlen(copy) == size && !strchr(copy, '\n') ? copy : NULL;
}

const struct file_ops readme_file = { TEXT_FILE, .text = readme_text };
const struct file_ops version_file = { TEXT_FILE, .text = version_text };
