/* SPDX-License-Identifier: MIT */
/*
 * The floor: what a FUSE filesystem costs that does nothing.
 *
 *	emptyfs MOUNTPOINT SOURCE_BYTES		(in the foreground, until SIGTERM)
 *
 * `sink` takes every write and forgets it. `source` gives SOURCE_BYTES to each open, in
 * replies as large as asked, from one buffer that is reused. A read of `wait` waits for a
 * write to `bell` and gets as many bytes; it has one reader, who is killed at the price
 * that only the next write, or the end, lets go of it. All are opened with the flags that
 * queenfs uses for push, pop and follow. One loop thread: on few cores more of them are
 * slower, and a floor is the best that can be had.
 */
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "bench.h"

enum { NODE_SINK = FUSE_ROOT_ID + 1, NODE_SOURCE, NODE_BELL, NODE_WAIT };

struct file {
	const char *name;
	fuse_ino_t ino;
	mode_t mode;
};

static const struct file files[] = {
	{ "sink", NODE_SINK, 0222 },
	{ "source", NODE_SOURCE, 0444 },
	{ "bell", NODE_BELL, 0222 },
	{ "wait", NODE_WAIT, 0444 },
};

static const double TIMEOUT_S = 1e6;
static uint64_t source_bytes;
static char buffer[1 << 20];
static size_t rung;	   /* bytes written to `bell` that nobody has read */
static fuse_req_t waiting; /* the read of `wait` that is put aside */
static size_t waiting_size;

static const struct file *file_named(const char *name)
{
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (strcmp(files[i].name, name) == 0)
			return &files[i];
	return NULL;
}

static int attr_fill(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_nlink = 1;
	if (ino == FUSE_ROOT_ID) {
		st->st_mode = S_IFDIR | 0755;
		return 0;
	}
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (files[i].ino == ino) {
			st->st_mode = S_IFREG | files[i].mode;
			return 0;
		}
	return ENOENT;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = {
		.attr_timeout = TIMEOUT_S,
		.entry_timeout = TIMEOUT_S,
	};
	const struct file *file = file_named(name);

	(void)parent;
	if (!file) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	entry.ino = file->ino;
	attr_fill(entry.ino, &entry.attr);
	fuse_reply_entry(req, &entry);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (attr_fill(ino, &st))
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_attr(req, &st, TIMEOUT_S);
}

/* What this handle still has to give. */
static uint64_t *left_of(const struct fuse_file_info *fi)
{
	return (uint64_t *)(uintptr_t)fi->fh;
}

/*
 * fuse_reply_open() of libfuse 3.14 knows no FOPEN_STREAM, so the reply is made here. A
 * stream has no position, so each handle counts for itself.
 */
static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fuse_open_out out = { .open_flags = FOPEN_DIRECT_IO | FOPEN_STREAM };
	struct iovec iov = { &out, sizeof(out) };
	uint64_t *left = malloc(sizeof(*left));

	(void)ino;
	(void)fi;
	if (!left) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	*left = source_bytes;
	out.fh = (uintptr_t)left;
	if (fuse_reply_iov(req, &iov, 1))
		free(left);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	free(left_of(fi));
	fuse_reply_err(req, 0);
}

/* Answers the read that waits, if there is one and something for it. */
static void wait_answer(void)
{
	fuse_req_t req = waiting;
	size_t size = rung < waiting_size ? rung : waiting_size;

	if (!req || !size)
		return;
	rung -= size;
	waiting = NULL;
	fuse_reply_buf(req, buffer, size);
}

static void wait_read(fuse_req_t req, size_t size)
{
	if (waiting) {
		fuse_reply_err(req, EBUSY);
		return;
	}
	waiting = req;
	waiting_size = size;
	wait_answer();
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	uint64_t *left = left_of(fi);

	(void)off;
	if (size > sizeof(buffer))
		size = sizeof(buffer);
	if (ino == NODE_WAIT) {
		wait_read(req, size);
		return;
	}
	if (size > *left)
		size = *left;
	*left -= size;
	fuse_reply_buf(req, buffer, size);
}

/* Who waits is answered first: it is what is measured. */
static void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size,
		     off_t off, struct fuse_file_info *fi)
{
	(void)bytes;
	(void)off;
	(void)fi;
	if (ino == NODE_BELL) {
		rung += size;
		wait_answer();
	}
	fuse_reply_write(req, size);
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = op_lookup,
	.getattr = op_getattr,
	.open = op_open,
	.release = op_release,
	.read = op_read,
	.write = op_write,
};

int main(int argc, char **argv)
{
	char *fuse_argv[] = { argv[0], "-o", "fsname=emptyfs", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, fuse_argv);
	struct fuse_session *se;
	int failed = 1;

	if (argc != 3) {
		fprintf(stderr, "usage: emptyfs MOUNTPOINT SOURCE_BYTES\n");
		return 2;
	}
	source_bytes = number(argv[2]);
	memset(buffer, 'x', sizeof(buffer));

	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!se)
		return 1;
	if (fuse_set_signal_handlers(se))
		goto destroy;
	if (fuse_session_mount(se, argv[1]))
		goto no_signals;
	failed = fuse_session_loop(se) < 0;
	fuse_session_unmount(se);
no_signals:
	fuse_remove_signal_handlers(se);
destroy:
	fuse_session_destroy(se);
	return failed;
}
