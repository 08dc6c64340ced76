/* SPDX-License-Identifier: MIT */
/*
 * reserve.c - a file of fixed size beside the store, room for the undo (section 13).
 *
 * A full disk must not stop acks, seeks and rm, and those need room for the WAL. The
 * reserve is that room: it is given up when a commit meets ENOSPC and taken again before
 * pushes go on. Used by the committing role only, and while opening.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_int.h"

/* Zeros from a position on, up to size. */
int zeros_write(int fd, uint64_t from, uint64_t size)
{
	static const char zeros[65536];

	for (uint64_t at = from; at < size;) {
		size_t piece =
			size - at < sizeof(zeros) ? (size_t)(size - at) : sizeof(zeros);
		ssize_t put = pwrite(fd, zeros, piece, (off_t)at);
		if (put < 0)
			return -errno;
		at += (uint64_t)put;
	}
	return 0;
}

int wal_prepare(struct store *store)
{
	char *path;
	struct stat st;
	int fd, error = 0;

	if (store->full || store->reserve_bytes == 0)
		return 0; /* nothing is to be kept in advance */
	if (asprintf(&path, "%s-wal", store->path) < 0)
		return -ENOMEM;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	free(path);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	/* Zeros are no valid frame: to SQLite the WAL ends where it did. If the disk has no
	 * room for them it grows as it is written; only what was taken must be given back. */
	if (fstat(fd, &st) == 0 &&
	    zeros_write(fd, (uint64_t)st.st_size, store->wal_limit_bytes) &&
	    ftruncate(fd, st.st_size) < 0)
		error = -errno;
	close(fd);
	return error;
}

int reserve_take(struct store *store)
{
	struct stat st;
	int error = 0;

	if (fstat(store->reserve_fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size > store->reserve_bytes &&
	    ftruncate(store->reserve_fd, (off_t)store->reserve_bytes) < 0)
		return -errno;
	if (store->reserve_bytes == 0)
		return 0;
	if (fallocate(store->reserve_fd, 0, 0, (off_t)store->reserve_bytes) < 0)
		error = errno == EOPNOTSUPP
				? zeros_write(store->reserve_fd, 0, store->reserve_bytes)
				: -errno;
	if (error)
		reserve_free(store); /* what was taken of it is needed now */
	return error;
}

void reserve_free(struct store *store)
{
	/* Making a file smaller needs no room; if it fails all the same, the repeated
	 * commit meets ENOSPC again and says so to whoever asked for it. */
	if (ftruncate(store->reserve_fd, 0) < 0)
		return;
}

int reserve_open(struct store *store, struct store_why *why)
{
	char *path;
	int error;

	if (asprintf(&path, "%s-reserve", store->path) < 0)
		return -ENOMEM;
	store->reserve_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	error = store->reserve_fd < 0 ? -errno : 0;
	free(path);
	if (error)
		return why_set(why, error, "cannot make its reserve file: %s",
			       strerror(-error));
	/* A full disk is no reason not to start: what makes room needs a mount. */
	error = reserve_take(store);
	store->full = error == -ENOSPC;
	if (error && !store->full)
		return why_set(why, error, "cannot allocate its reserve file: %s",
			       strerror(-error));
	return 0;
}

void reserve_close(struct store *store)
{
	if (store->reserve_fd >= 0)
		close(store->reserve_fd);
}
