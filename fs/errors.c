/* SPDX-License-Identifier: MIT */
/*
 * errors.c - the mount's errors file: why the last refusals were refused (section 1).
 *
 * 1. Each uid sees its own lines; root and the mount's owner see all.
 * 2. A node keeps what it has shown, so that an open errors file only grows and `tail -f`
 *    works, while the ring forgets. Of that it keeps the last SHOWN_MAX bytes or so: whoever
 *    has it open and is refused again and again costs no more than that.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

#define SHOWN_MAX (1u << 20)

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

/* A line stays a line, is text, and commands nothing to a terminal: no control characters,
 * U+0080 to U+009F among them. */
static void line_tame(char *text)
{
	size_t left = strlen(text) - 1, length;

	for (; left > 0; text += length, left -= length) {
		unsigned char c = (unsigned char)*text;
		length = utf8_length(text, left);
		if (length == 0 || c < 0x20 || c == 0x7f)
			*text = '?';
		if (length == 2 && c == 0xc2 && (unsigned char)text[1] < 0xa0)
			text[0] = text[1] = '?';
		length = length ? length : 1;
	}
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
	line_tame(text);
	pthread_mutex_lock(&errors->lock);
	line = &errors->ring[errors->next++ % ERRORS_KEPT];
	old = line->text;
	*line = (struct error_line){ who->uid, text };
	pthread_mutex_unlock(&errors->lock);
	free(old);
}

/* Half of it goes, in whole lines, once it is too much. */
static void shorten_locked(struct node *node)
{
	const char *newline;
	size_t gone;

	if (node->text_size < SHOWN_MAX)
		return;
	newline =
		memchr(node->text + SHOWN_MAX / 2, '\n', node->text_size - SHOWN_MAX / 2);
	gone = newline ? (size_t)(newline - node->text) + 1 : node->text_size;
	node->text_size -= gone;
	node->text_gone += gone;
	memmove(node->text, node->text + gone, node->text_size);
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
	shorten_locked(node);
}

static void errors_stat(struct node *node, struct stat *st)
{
	pthread_mutex_lock(&node->mount->errors.lock);
	refresh_locked(node);
	st->st_size = (off_t)(node->text_gone + node->text_size);
	pthread_mutex_unlock(&node->mount->errors.lock);
}

static ssize_t errors_read(struct handle *handle, char *buffer, size_t size, off_t offset)
{
	struct node *node = handle->node;
	ssize_t got = 0;

	pthread_mutex_lock(&node->mount->errors.lock);
	refresh_locked(node);
	if ((uint64_t)offset < node->text_gone) {
		got = -ESTALE; /* as in a log: never other bytes */
	} else if ((uint64_t)offset < node->text_gone + node->text_size) {
		size_t at = (size_t)((uint64_t)offset - node->text_gone);
		size_t left = node->text_size - at;
		got = (ssize_t)(left < size ? left : size);
		memcpy(buffer, node->text + at, (size_t)got);
	}
	pthread_mutex_unlock(&node->mount->errors.lock);
	return got;
}

const struct file_ops errors_file = {
	.flags = FILE_GROWS,
	.stat = errors_stat,
	.read = errors_read,
};
