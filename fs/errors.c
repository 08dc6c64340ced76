/* SPDX-License-Identifier: MIT */
/*
 * errors.c - the mount's errors file: why the last refusals were refused (section 1).
 *
 * 1. Each uid sees its own lines; root and the mount's owner see all.
 * 2. A node keeps what it has shown, so that an open errors file only grows and `tail -f`
 *    works, while the ring forgets.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

static const char *general(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{ ESTALE,
		  "it was removed, or the part that was asked for was; open it again" },
		{ ENOMEM, "the daemon is out of memory; nothing was changed" },
		{ EIO, "the store could not be read or written; nothing was changed" },
		{ ENOSPC, "the disk is full; nothing was changed" },
		{ EEXIST, "it exists already" },
		{ EBUSY, "messages are leased here: write ack, retry, fail or dlq before "
			 "reading on" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return strerror(error);
}

bool errors_wants(int error, const char *why)
{
	return (error != -ENOENT || *why) && error != -EAGAIN && error != -EINTR;
}

void errors_add(struct mount *mount, const struct fuse_ctx *who, const char *path,
		int error, const char *why)
{
	struct errors *errors = &mount->errors;
	struct error_line *line;
	char time[TIME_TEXT_SIZE], *text, *old;
	const char *name = strerrorname_np(-error);

	time_print(store_now(mount->store), time);
	if (asprintf(&text, "%s %u %d %s: %s: %s\n", time, who->uid, who->pid,
		     path ? path : "?", name ? name : "?",
		     *why ? why : general(-error)) < 0)
		return;
	for (char *at = text; at[1]; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			*at = '?'; /* a line stays a line */
	pthread_mutex_lock(&errors->lock);
	line = &errors->ring[errors->next++ % ERRORS_KEPT];
	old = line->text;
	*line = (struct error_line){ who->uid, text };
	pthread_mutex_unlock(&errors->lock);
	free(old);
}

/* Appends what has come since, under the lock; without memory it comes the next time. */
static void refresh_locked(struct node *node)
{
	struct errors *errors = &node->mount->errors;
	bool all = node->uid == 0 || node->uid == node->mount->owner;

	if (errors->next - node->text_next > ERRORS_KEPT)
		node->text_next = errors->next - ERRORS_KEPT;
	for (; node->text_next < errors->next; node->text_next++) {
		const struct error_line *line =
			&errors->ring[node->text_next % ERRORS_KEPT];
		size_t size = strlen(line->text);
		char *text;
		if (!all && line->uid != node->uid)
			continue;
		text = realloc(node->text, node->text_size + size);
		if (!text)
			return;
		memcpy(text + node->text_size, line->text, size);
		node->text = text;
		node->text_size += size;
	}
}

static void errors_stat(struct node *node, struct stat *st)
{
	pthread_mutex_lock(&node->mount->errors.lock);
	refresh_locked(node);
	st->st_size = (off_t)node->text_size;
	pthread_mutex_unlock(&node->mount->errors.lock);
}

static ssize_t errors_read(struct handle *handle, char *buffer, size_t size, off_t offset)
{
	struct node *node = handle->node;
	ssize_t got = 0;

	pthread_mutex_lock(&node->mount->errors.lock);
	refresh_locked(node);
	if ((size_t)offset < node->text_size) {
		size_t left = node->text_size - (size_t)offset;
		got = (ssize_t)(left < size ? left : size);
		memcpy(buffer, node->text + offset, (size_t)got);
	}
	pthread_mutex_unlock(&node->mount->errors.lock);
	return got;
}

const struct file_ops errors_file = {
	.flags = FILE_GROWS,
	.stat = errors_stat,
	.read = errors_read,
};
