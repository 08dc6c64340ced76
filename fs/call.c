/* SPDX-License-Identifier: MIT */
/*
 * call.c - requests on their way to an answer; all answers to calls leave through here.
 *
 * 1. An error gets its line in the errors file before the caller learns of it.
 * 2. A refusal's words come from whoever refused (call->why, store_result.why); the errors
 *    file has general ones for the rest.
 */
#include <errno.h>
#include <linux/fuse.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

/* How long the kernel may keep what it was told, in seconds. Directories change by calls
 * through the kernel only; a file's name is looked up each time (node.c). */
#define DIR_TIMEOUT 1.0
#define ATTR_TIMEOUT 1.0

int why_not(struct store_why *why, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why->text, sizeof(why->text), format, args);
	va_end(args);
	return error;
}

void refuse(fuse_req_t req, struct node *node, const char *name, int error,
	    const char *why)
{
	char *path;

	if (errors_wants(error, why)) {
		path = place_path(&node->place, name);
		errors_add(node->mount, fuse_req_ctx(req), path, error, why);
		free(path);
	}
	fuse_reply_err(req, -error);
}

struct call *call_new(fuse_req_t req, struct node *node, const char *name,
		      void (*success)(struct call *, const struct store_result *))
{
	struct call *call = calloc(1, sizeof(*call));

	if (call && name && !(call->name = strdup(name))) {
		free(call);
		call = NULL;
	}
	if (!call) {
		refuse(req, node, name, -ENOMEM, "");
		return NULL;
	}
	call->req = req;
	call->mount = node->mount;
	call->node = node;
	call->success = success;
	return call;
}

void call_finish(void *arg, const struct store_result *result)
{
	struct call *call = arg;

	if (result->error && call->success == reply_open && call->handle)
		handle_free(call->handle);
	if (result->error)
		refuse(call->req, call->node, call->name, result->error,
		       call->why.text[0] ? call->why.text : result->why);
	else
		call->success(call, result);
	free(call->name);
	free(call);
}

void call_error(struct call *call, int error)
{
	struct store_result result = { .error = error, .why = "" };

	call_finish(call, &result);
}

void call_success_plain(struct call *call, const struct store_result *result)
{
	(void)result;
	fuse_reply_err(call->req, 0);
}

double attr_timeout(const struct node *node)
{
	const struct place *place = &node->place;

	/* A mirrored directory's mode changes with the one that it mirrors. */
	if (!place->file)
		return place->dir == &dirs[DIR_PARTITION_GROUPS] ||
				       place->dir == &dirs[DIR_PARTITION_GROUP]
			       ? 0
			       : ATTR_TIMEOUT;
	return place->file->ops->flags & FILE_GROWS ? 0 : ATTR_TIMEOUT;
}

void reply_entry(fuse_req_t req, struct mount *mount, struct place *place)
{
	const struct fuse_ctx *who = fuse_req_ctx(req);
	struct node *node = node_take(mount, place, who->uid);
	struct fuse_entry_param entry = { 0 };
	bool file;

	if (!node) {
		refuse(req, &mount->root, NULL, -ENOMEM, "");
		return;
	}
	file = node->place.file != NULL;
	entry.ino = node_ino(node);
	entry.entry_timeout = file ? 0 : DIR_TIMEOUT;
	entry.attr_timeout = attr_timeout(node);
	node_stat(node, &entry.attr);
	if (fuse_reply_entry(req, &entry) != 0)
		node_forget(mount, node, 1);
}

/*
 * libfuse 3.14 has no name for FOPEN_STREAM, so the reply is made here. Without it the
 * kernel holds the file position's lock while a read waits, and every other call on that
 * descriptor sleeps, unkillable.
 */
void reply_open(struct call *call, const struct store_result *result)
{
	const struct file_ops *ops = call->node->place.file->ops;
	struct fuse_open_out out = {
		.fh = (uintptr_t)call->handle,
		.open_flags = ops->flags & FILE_STREAM	 ? FOPEN_DIRECT_IO | FOPEN_STREAM
			      : ops->flags & FILE_CACHED ? 0
							 : FOPEN_DIRECT_IO,
	};
	struct iovec iov = { &out, sizeof(out) };

	(void)result;
	/* The opener is gone: nobody will release it. */
	if (fuse_reply_iov(call->req, &iov, 1) != 0) {
		if (ops->close)
			ops->close(call->handle);
		handle_free(call->handle);
	}
}
