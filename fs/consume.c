/* SPDX-License-Identifier: MIT */
/*
 * consume.c - pop: reading that consumes (section 4).
 *
 * The open file is the lease; its messages come from store_read(), which also decides what
 * a read counts as consumed.
 */
#include <errno.h>
#include <fcntl.h>

#include "fs.h"

/* The kernel asks on after a reply that fills a request, within one read(2), and so would
 * ack what the reader has not seen. Requests under a page come alone. */
#define FULL_REQUEST 4096

static int reader_open(struct handle *handle, struct item *group)
{
	struct reader *reader;
	int error = store_reader_open(group, handle->node->place.partition, &reader);

	if (!error)
		handle->state = reader;
	return error;
}

static void default_made(void *arg, const struct store_result *result)
{
	struct call *call = arg;
	struct item *group = result->item;
	struct store_result opened = *result;

	/* Another opener was quicker: that is the group. */
	if (result->error == -EEXIST &&
	    store_find(call->mount->store, call->node->place.queue, ITEM_GROUP,
		       STORE_DEFAULT_NAME, &group) == 0) {
		opened.error = reader_open(call->handle, group);
		store_put(group);
	} else if (!result->error) {
		opened.error = reader_open(call->handle, group);
	}
	call_finish(call, &opened);
}

/* The queue's own pop reads as group "default", which its first open makes. */
static int default_open(struct handle *handle, struct call *call)
{
	struct item *queue = call->node->place.queue, *group;
	struct access access;
	int error;

	if (store_find(call->mount->store, queue, ITEM_GROUP, STORE_DEFAULT_NAME,
		       &group) == 0) {
		error = reader_open(handle, group);
		store_put(group);
		return error;
	}
	store_access(call->mount->store, queue, QUEUE_DIR, &access);
	store_make(call->mount->store, queue, ITEM_GROUP, STORE_DEFAULT_NAME, &access,
		   default_made, call);
	return PARKED;
}

static int pop_open(struct handle *handle, struct call *call)
{
	if (handle->flags & O_NOFOLLOW)
		return why_not(
			&call->why, -EPERM,
			"grep -r, cp -r and rsync open with O_NOFOLLOW and would consume "
			"messages; open it without, as cat does");
	if (!handle->node->place.group)
		return default_open(handle, call);
	return reader_open(handle, handle->node->place.group);
}

static ssize_t pop_read(struct handle *handle, char *buffer, size_t size, off_t offset)
{
	(void)offset;
	return store_read(handle->state, buffer, size < FULL_REQUEST ? size : size - 1);
}

static void pop_unread(struct handle *handle)
{
	store_unread(handle->state);
}

static void pop_close(struct handle *handle)
{
	store_reader_close(handle->state);
}

const struct file_ops pop_file = {
	.flags = FILE_STREAM | FILE_CONSUMES,
	.open = pop_open,
	.read = pop_read,
	.unread = pop_unread,
	.close = pop_close,
};
