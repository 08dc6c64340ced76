/* SPDX-License-Identifier: MIT */
/* handle.c - per-open state; the list of all, for the end of the mount. */
#include <fcntl.h>
#include <stdlib.h>

#include "fs.h"

struct handle *handle_new(fuse_req_t req, struct node *node, int flags)
{
	struct handle *handle = calloc(1, sizeof(*handle));
	struct mount *mount = node->mount;

	if (!handle)
		return NULL;
	if ((node->place.file->ops->flags & FILE_NAMES) &&
	    (flags & O_ACCMODE) != O_RDONLY) {
		handle->opener = caller_new(req);
		if (!handle->opener) {
			free(handle);
			return NULL;
		}
	}
	handle->node = node;
	handle->flags = flags;
	TAILQ_INIT(&handle->turns);
	pthread_mutex_lock(&mount->handles_lock);
	TAILQ_INSERT_TAIL(&mount->handles, handle, all);
	pthread_mutex_unlock(&mount->handles_lock);
	return handle;
}

void handle_free(struct handle *handle)
{
	struct mount *mount = handle->node->mount;

	pthread_mutex_lock(&mount->handles_lock);
	TAILQ_REMOVE(&mount->handles, handle, all);
	pthread_mutex_unlock(&mount->handles_lock);
	free(handle->opener);
	free(handle);
}

struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}
