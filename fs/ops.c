/* SPDX-License-Identifier: MIT */
/*
 * ops.c - the requests of the kernel: find the node, call its kind, reply.
 *
 * 1. Nothing here knows a name: what a file does is in its file_ops, what a directory holds
 *    in kinds.c. The kernel has checked permissions before (default_permissions).
 * 2. A handler returns 0, a count or -errno and is answered here, or PARKED and is answered
 *    by whoever commits.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "fs.h"

#define WRITE_MAX (1u << 20)

static struct mount *mount_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct node *node_at(fuse_req_t req, fuse_ino_t ino)
{
	return node_of(mount_of(req), ino);
}

/* A reply's bytes are put together in a buffer that the thread keeps: the first touch of a
 * fresh page costs more than copying into it. */
static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;

static void buffer_key_make(void)
{
	if (pthread_key_create(&buffer_key, free) != 0)
		abort(); /* no key is left of 1,024: our own fault */
}

char *thread_buffer(size_t size, enum thread_buffer which)
{
	char *buffer;

	if (size > WRITE_MAX)
		return NULL;
	pthread_once(&buffer_once, buffer_key_make);
	buffer = pthread_getspecific(buffer_key);
	if (!buffer) {
		buffer = malloc(THREAD_BUFFERS * (size_t)WRITE_MAX);
		pthread_setspecific(buffer_key, buffer);
	}
	return buffer ? buffer + which * (size_t)WRITE_MAX : NULL;
}

static void ops_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->max_write = WRITE_MAX;
	conn->max_read = 0;
	conn->time_gran = 1000;
	/* Copying small requests through a pipe costs more than it saves. */
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE);
}

/* ---- nodes ------------------------------------------------------------------------------ */

static void ops_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *in = node_at(req, parent);
	struct place child = { 0 };
	int error = place_find(in->mount, &in->place, name, &child);

	if (error)
		refuse(req, in, name, error, "");
	else
		reply_entry(req, in->mount, &child);
}

static void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	node_forget(mount_of(req), node_at(req, ino), lookups);
	fuse_reply_none(req);
}

static void ops_forget_multi(fuse_req_t req, size_t count,
			     struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		node_forget(mount_of(req), node_at(req, forgets[i].ino),
			    forgets[i].nlookup);
	fuse_reply_none(req);
}

static void reply_attr(fuse_req_t req, struct node *node)
{
	struct stat st;

	node_stat(node, &st);
	fuse_reply_attr(req, &st, attr_timeout(node));
}

static void ops_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	reply_attr(req, node_at(req, ino));
}

static void setattr_nothing(struct call *call, const struct store_result *result)
{
	(void)result;
	reply_attr(call->req, call->node);
}

static void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set,
			struct fuse_file_info *fi)
{
	struct node *node = node_at(req, ino);
	struct call *call = call_new(req, node, NULL, setattr_nothing);
	int got = 0;

	(void)fi;
	if (!call)
		return;
	/* Sizes and times of a file that can be written are nobody's to set: ignored. */
	if ((set & FUSE_SET_ATTR_SIZE) && node->place.file &&
	    !node->place.file->ops->write)
		got = why_not(&call->why, -EACCES, "this file cannot be written");
	else if (set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		got = access_set(call, st, set);
	if (got != PARKED)
		call_error(call, got);
}

/* ---- making and removing ---------------------------------------------------------------- */

static void mkdir_success(struct call *call, const struct store_result *result)
{
	struct place child = { 0 };
	int error = place_find(call->mount, &call->node->place, call->name, &child);

	(void)result;
	if (error) /* somebody was quick to remove it again */
		refuse(call->req, call->node, call->name, error, "");
	else
		reply_entry(call->req, call->mount, &child);
}

static void ops_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct node *in = node_at(req, parent);
	struct call *call = call_new(req, in, name, mkdir_success);
	const struct children *children = in->place.dir->children;
	int got;

	if (!call)
		return;
	if (children && children->make)
		got = children->make(call, &in->place, name, mode);
	else
		got = why_not(
			&call->why, -EPERM,
			"no directory can be made here; queues are made in queues/, "
			"partitions in partitions/, groups in groups/");
	if (got != PARKED)
		call_error(call, got);
}

/* What is fixed stays, but who may remove the whole is told that it went, so that `rm -r`
 * gets through. The kernel then holds a directory for dead, for everybody in it. */
static int remove_fixed(struct call *call, const struct place *child)
{
	if (!call_may_remove(call, child))
		return why_not(&call->why, -EACCES,
			       "this belongs to its %s; only who may remove that, may",
			       child->partition ? "partition"
			       : child->group	? "group"
			       : child->queue	? "queue"
						: "mount");
	if (!child->file)
		node_retire(call->mount, child);
	return 0;
}

/* unlink and rmdir. */
static void ops_remove(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *in = node_at(req, parent);
	struct call *call = call_new(req, in, name, call_success_plain);
	struct place child = { 0 };
	int got;

	if (!call)
		return;
	got = place_find(in->mount, &in->place, name, &child);
	if (got) {
		call_error(call, got);
		return;
	}
	if (place_made(&child))
		got = in->place.dir->children->drop(call, &child);
	else
		got = remove_fixed(call, &child);
	place_put(&child);
	if (got != PARKED)
		call_error(call, got);
}

#define STRAY                                                                     \
	"no file can be made here: messages go to push, and mkdir makes queues, " \
	"partitions and groups"

static void ops_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      dev_t device)
{
	(void)mode;
	(void)device;
	refuse(req, node_at(req, parent), name, -EPERM, STRAY);
}

/* The file that a write will make: a node that nobody finds, and open. */
static int create(fuse_req_t req, struct place *place, struct fuse_file_info *fi)
{
	struct mount *mount = mount_of(req);
	struct node *node = node_take(mount, place, fuse_req_ctx(req)->uid);
	struct handle *handle = node ? handle_new(req, node, fi->flags) : NULL;
	struct fuse_entry_param entry = { 0 };

	if (!handle) {
		if (node)
			node_forget(mount, node, 1);
		return -ENOMEM;
	}
	entry.ino = node_ino(node);
	node_stat(node, &entry.attr);
	fi->fh = (uintptr_t)handle;
	fi->direct_io = 1;
	if (fuse_reply_create(req, &entry, fi) != 0) {
		handle_free(handle);
		node_forget(mount, node, 1);
	}
	return 0;
}

static void ops_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		       struct fuse_file_info *fi)
{
	struct node *in = node_at(req, parent);
	const struct children *children = in->place.dir->children;
	struct store_why why = { STRAY };
	struct place child = { 0 };
	int error = -EPERM;

	(void)mode;
	if (children && children->create) {
		error = store_name_check(name, &why);
		if (!error)
			error = children->create(&in->place, name, &child);
		if (!error)
			error = create(req, &child, fi);
	}
	if (error)
		refuse(req, in, name, error, why.text);
}

static void ops_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
			const char *name)
{
	(void)target;
	refuse(req, node_at(req, parent), name, -EPERM, STRAY);
}

static void ops_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	(void)ino;
	refuse(req, node_at(req, parent), name, -EPERM, STRAY);
}

/* Names are for good; the one thing that can be moved is a dead letter, onto a push. */
static int rename_to(struct call *call, const struct place *source, struct node *new_in,
		     const char *new_name)
{
	struct place target = { 0 };
	int got = -EPERM;

	if (place_find(call->mount, &new_in->place, new_name, &target) == 0) {
		if (source->letter && target.file && target.file->ops->take)
			got = target.file->ops->take(call, &target, source);
		place_put(&target);
	}
	if (got == -EPERM)
		why_not(&call->why, got,
			"nothing here can be renamed; a dead letter can be moved onto a "
			"push");
	return got;
}

static void ops_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
		       fuse_ino_t new_parent, const char *new_name, unsigned flags)
{
	struct node *in = node_at(req, parent);
	struct call *call = call_new(req, in, name, call_success_plain);
	struct place source = { 0 };
	int got;

	if (!call)
		return;
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		got = why_not(&call->why, -EINVAL, "nothing here can be exchanged");
	else
		got = place_find(in->mount, &in->place, name, &source);
	if (!got) {
		got = rename_to(call, &source, node_at(req, new_parent), new_name);
		place_put(&source);
	}
	if (got != PARKED)
		call_error(call, got);
}

/* ---- files ------------------------------------------------------------------------------ */

static int open_check(const struct file_ops *ops, int flags, struct store_why *why)
{
	int mode = flags & O_ACCMODE;

	/* Says it to root too, whom the kernel lets through. */
	if (mode != O_WRONLY && !file_reads(ops))
		return why_not(why, -EACCES, "this file can only be written");
	if ((mode != O_RDONLY || (flags & O_TRUNC)) && !ops->write)
		return why_not(why, -EACCES, "this file can only be read");
	return 0;
}

static void ops_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *node = node_at(req, ino);
	const struct file_ops *ops = node->place.file->ops;
	struct call *call = call_new(req, node, NULL, reply_open);
	int got;

	if (!call)
		return;
	call->handle = handle_new(req, node, fi->flags);
	got = call->handle ? open_check(ops, fi->flags, &call->why) : -ENOMEM;
	if (!got && ops->open)
		got = ops->open(call->handle, call);
	if (got != PARKED)
		call_error(call, got);
}

static void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	struct handle *handle = handle_of(fi);
	struct node *node = node_at(req, ino);
	const struct file_ops *ops = node->place.file->ops;
	char *buffer;
	ssize_t got;

	if (size > WRITE_MAX)
		size = WRITE_MAX;
	if (ops->reader) {
		park_read(req, handle, size, fi->flags & O_NONBLOCK);
		return;
	}
	buffer = thread_buffer(size, BUFFER_OWN);
	got = buffer ? ops->read(handle, buffer, size, offset) : -ENOMEM;
	if (got < 0)
		refuse(req, node, NULL, (int)got, "");
	else
		fuse_reply_buf(req, buffer, (size_t)got);
}

static void ops_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		     struct fuse_pollhandle *ph)
{
	const struct file_ops *ops = node_at(req, ino)->place.file->ops;
	unsigned events = (file_reads(ops) ? POLLIN | POLLRDNORM : 0) |
			  (ops->write ? POLLOUT | POLLWRNORM : 0);

	if (ops->reader) {
		if (!park_poll(handle_of(fi), ph))
			events &= ~(unsigned)(POLLIN | POLLRDNORM);
	} else if (ph) {
		fuse_pollhandle_destroy(ph);
	}
	fuse_reply_poll(req, events);
}

static void write_success(struct call *call, const struct store_result *result)
{
	(void)result;
	fuse_reply_write(call->req, call->size);
}

static void ops_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size,
		      off_t offset, struct fuse_file_info *fi)
{
	struct node *node = node_at(req, ino);
	struct call *call = call_new(req, node, NULL, write_success);
	ssize_t got;

	(void)offset;
	if (!call)
		return;
	call->handle = handle_of(fi);
	call->size = size;
	got = node->place.file->ops->write(call->handle, call, data, size,
					   fi->lock_owner);
	if (got != PARKED)
		call_error(call, got < 0 ? (int)got : 0);
}

static void ops_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *node = node_at(req, ino);
	const struct file_ops *ops = node->place.file->ops;
	struct call *call = call_new(req, node, NULL, call_success_plain);
	int got;

	if (!call)
		return;
	call->handle = handle_of(fi);
	got = ops->flush ? ops->flush(call->handle, call, fi->lock_owner) : 0;
	if (got != PARKED)
		call_error(call, got);
}

static void ops_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		      struct fuse_file_info *fi)
{
	struct node *node = node_at(req, ino);
	struct call *call = call_new(req, node, NULL, call_success_plain);

	(void)datasync;
	(void)fi;
	if (call)
		store_sync(call->mount->store, call_finish, call);
}

static void ops_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *handle = handle_of(fi);
	const struct file_ops *ops = node_at(req, ino)->place.file->ops;

	if (ops->close)
		ops->close(handle);
	handle_free(handle);
	fuse_reply_err(req, 0);
}

/* ---- directories ------------------------------------------------------------------------ */

static mode_t entry_type(const struct place *place)
{
	if (!place->file)
		return S_IFDIR;
	/* find -type f, and with it many a crawler, passes by what is no text to be read. */
	return (place->file->ops->flags & FILE_STREAM) && file_reads(place->file->ops)
		       ? S_IFIFO
		       : S_IFREG;
}

static size_t add_entry(fuse_req_t req, char *buffer, size_t room,
			const struct place *place, const char *name, uint64_t at)
{
	struct stat st = { .st_ino = place_number(place), .st_mode = entry_type(place) };

	return fuse_add_direntry(req, buffer, room, name, &st, (off_t)at);
}

/* Offsets 1 and 2 are the dots'; the rest place_list()'s, moved up by two. */
static void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			struct fuse_file_info *fi)
{
	struct node *node = node_at(req, ino);
	static const char *const dots[] = { ".", ".." };
	uint64_t at = (uint64_t)offset, next;
	struct place entry;
	char *buffer, text[NAME_TEXT_SIZE];
	size_t used = 0, need;

	(void)fi;
	size = size < WRITE_MAX ? size : WRITE_MAX;
	buffer = thread_buffer(size, BUFFER_OWN);
	if (!buffer) {
		refuse(req, node, NULL, -ENOMEM, "");
		return;
	}
	for (; at < 2; at++) {
		need = add_entry(req, buffer + used, size - used, &node->place, dots[at],
				 at + 1);
		if (need > size - used)
			break;
		used += need;
	}
	while (at >= 2 &&
	       place_list(node->mount, &node->place, at - 2, &entry, &next) == 0) {
		need = add_entry(req, buffer + used, size - used, &entry,
				 place_name(&entry, text), next + 2);
		place_put(&entry);
		if (need > size - used)
			break;
		used += need;
		at = next + 2;
	}
	fuse_reply_buf(req, buffer, used);
}

static void ops_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs disk;
	int error = store_statvfs(mount_of(req)->store, &disk);

	if (error) {
		refuse(req, node_at(req, ino), NULL, error, "");
		return;
	}
	disk.f_namemax = STORE_NAME_MAX;
	fuse_reply_statfs(req, &disk);
}

/* ---- attributes and locks ---------------------------------------------------------------- */

static void reply_sized(fuse_req_t req, const char *text, size_t length, size_t size)
{
	if (size == 0)
		fuse_reply_xattr(req, length);
	else if (size < length)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, text, length);
}

static const char *xattr(const struct node *node, unsigned i,
			 char value[XATTR_VALUE_SIZE])
{
	const struct file_kind *file = node->place.file;

	return file && file->ops->xattr ? file->ops->xattr(node, i, value) : NULL;
}

static void ops_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	const struct node *node = node_at(req, ino);
	const char *known;
	char value[XATTR_VALUE_SIZE];

	for (unsigned i = 0; (known = xattr(node, i, value)); i++)
		if (strcmp(known, name) == 0) {
			reply_sized(req, value, strlen(value), size);
			return;
		}
	fuse_reply_err(req, ENODATA); /* a missing name */
}

static void ops_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	const struct node *node = node_at(req, ino);
	char names[512], value[XATTR_VALUE_SIZE];
	const char *name;
	size_t used = 0;

	for (unsigned i = 0; (name = xattr(node, i, value)); i++) {
		size_t length = strlen(name) + 1;
		if (used + length > sizeof(names))
			break;
		memcpy(names + used, name, length);
		used += length;
	}
	reply_sized(req, names, used, size);
}

static void ops_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
			 const char *value, size_t size, int flags)
{
	(void)name;
	(void)value;
	(void)size;
	(void)flags;
	refuse(req, node_at(req, ino), NULL, -EOPNOTSUPP, "attributes can only be read");
}

static void ops_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	ops_setxattr(req, ino, name, NULL, 0, 0);
}

#define NO_LOCKS                                                                      \
	"files here cannot be locked, since each open has an inode of its own; lock " \
	"the "                                                                        \
	"directory"

static void ops_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	(void)fi;
	(void)op;
	refuse(req, node_at(req, ino), NULL, -ENOLCK, NO_LOCKS);
}

static void ops_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		      struct flock *lock)
{
	(void)lock;
	ops_flock(req, ino, fi, 0);
}

static void ops_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		      struct flock *lock, int wait)
{
	(void)lock;
	/* Every close unlocks; nothing was locked. */
	if (lock->l_type == F_UNLCK)
		fuse_reply_err(req, 0);
	else
		ops_flock(req, ino, fi, wait);
}

const struct fuse_lowlevel_ops ops_table = {
	.init = ops_init,
	.lookup = ops_lookup,
	.forget = ops_forget,
	.forget_multi = ops_forget_multi,
	.getattr = ops_getattr,
	.setattr = ops_setattr,
	.mkdir = ops_mkdir,
	.unlink = ops_remove,
	.rmdir = ops_remove,
	.mknod = ops_mknod,
	.create = ops_create,
	.symlink = ops_symlink,
	.link = ops_link,
	.rename = ops_rename,
	.open = ops_open,
	.read = ops_read,
	.write = ops_write,
	.flush = ops_flush,
	.fsync = ops_fsync,
	.fsyncdir = ops_fsync,
	.release = ops_release,
	.poll = ops_poll,
	.readdir = ops_readdir,
	.statfs = ops_statfs,
	.getxattr = ops_getxattr,
	.listxattr = ops_listxattr,
	.setxattr = ops_setxattr,
	.removexattr = ops_removexattr,
	.flock = ops_flock,
	.getlk = ops_getlk,
	.setlk = ops_setlk,
};
