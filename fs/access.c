/* SPDX-License-Identifier: MIT */
/*
 * access.c - owner and mode of directories: changing them, and who may (section 12).
 *
 * 1. The kernel checks permissions (default_permissions) with the owners and modes that it
 *    was told. What is here is what it cannot know: that groups/<g> is seen in each
 *    partition too, and what a write names.
 * 2. A change is answered once the kernel holds no older owner or mode of that directory
 *    and of the files in it, wherever they are seen; so it holds at once.
 * 3. What a write names counts as named by who opened the file: a program with more rights
 *    that is given the open file, as its stderr say, lends it none.
 */
#include <errno.h>
#include <stdlib.h>

#include "fs.h"

/* ---- changing ----------------------------------------------------------------------------- */

/* Nodes that the kernel has to ask about again, and then the answer. */
struct change {
	struct errand errand;
	fuse_req_t req;
	struct node *node;
	size_t count;
	fuse_ino_t others[];
};

static void change_reply(fuse_req_t req, struct node *node)
{
	struct stat st;

	node_stat(node, &st);
	fuse_reply_attr(req, &st, attr_timeout(node));
}

/* A node may be forgotten meanwhile: the kernel then knows no such number, or asks about
 * another in vain. */
static void change_tell(struct errand *errand)
{
	struct change *change = (struct change *)errand;
	struct mount *mount = change->node->mount;

	for (size_t i = 0; i < change->count; i++)
		fuse_lowlevel_notify_inval_inode(mount->session, change->others[i], -1,
						 0);
	change_reply(change->req, change->node);
	free(change);
}

static bool follows(const struct node *node, const struct node *changed)
{
	const struct place *place = &node->place, *other = &changed->place;

	return node != changed && place->dir->access == other->dir->access &&
	       place->dir->owner == other->dir->owner &&
	       place_owner(place) == place_owner(other);
}

/* NULL: there are none, or no memory to say so; then the kernel asks within a second. */
static struct change *change_new(fuse_req_t req, struct node *node)
{
	struct mount *mount = node->mount;
	struct change *change = NULL;
	struct node *other;
	size_t count = 0;

	pthread_mutex_lock(&mount->nodes_lock);
	TAILQ_FOREACH(other, &mount->nodes, all)
	count += follows(other, node);
	if (count)
		change = calloc(1, sizeof(*change) + count * sizeof(*change->others));
	if (change) {
		change->errand.run = change_tell;
		change->req = req;
		change->node = node;
		TAILQ_FOREACH(other, &mount->nodes, all)
		if (follows(other, node))
			change->others[change->count++] = node_ino(other);
	}
	pthread_mutex_unlock(&mount->nodes_lock);
	return change;
}

static void access_changed(struct call *call, const struct store_result *result)
{
	struct change *change = change_new(call->req, call->node);

	(void)result;
	if (change)
		park_errand(call->mount, &change->errand);
	else
		change_reply(call->req, call->node);
}

int access_set(struct call *call, const struct stat *st, int set)
{
	const struct place *place = &call->node->place;
	struct store *store = call->mount->store;
	uid_t uid = fuse_req_ctx(call->req)->uid;
	struct access access;

	store_access(store, place_owner(place), place->dir->access, &access);
	if (place->file) {
		if ((!(set & FUSE_SET_ATTR_MODE) ||
		     (st->st_mode & 07777) == (place_mode(place, &access) & 07777)) &&
		    (!(set & FUSE_SET_ATTR_UID) || st->st_uid == access.uid) &&
		    (!(set & FUSE_SET_ATTR_GID) || st->st_gid == access.gid))
			return 0;
		return why_not(
			&call->why, -EPERM,
			"a file's owner and mode follow its directory; change those");
	}
	/* The kernel goes by the owner that it was told last, however long ago. */
	if (uid != 0 && uid != access.uid)
		return why_not(&call->why, -EPERM,
			       "only its owner and root change a directory's mode; it "
			       "has got another owner");
	call->success = access_changed;
	access = (struct access){ st->st_uid, st->st_gid, st->st_mode & 07777 };
	store_access_set(store, place_owner(place), place->dir->access, &access,
			 (set & FUSE_SET_ATTR_UID ? ACCESS_UID : 0) |
				 (set & FUSE_SET_ATTR_GID ? ACCESS_GID : 0) |
				 (set & FUSE_SET_ATTR_MODE ? ACCESS_MODE : 0),
			 call_finish, call);
	return PARKED;
}

/* ---- who may ------------------------------------------------------------------------------ */

struct caller {
	uid_t uid;
	gid_t gid;
	int count; /* of groups; -1: nobody knows */
	gid_t groups[];
};

struct caller *caller_new(fuse_req_t req)
{
	const struct fuse_ctx *who = fuse_req_ctx(req);
	int room = who->uid == 0 ? 0 : fuse_req_getgroups(req, 0, NULL);
	size_t size = room > 0 ? (size_t)room : 0;
	struct caller *caller = calloc(1, sizeof(*caller) + size * sizeof(gid_t));

	if (!caller)
		return NULL;
	caller->uid = who->uid;
	caller->gid = who->gid;
	caller->count = room;
	if (room > 0)
		caller->count = fuse_req_getgroups(req, room, caller->groups);
	if (caller->count > room)
		caller->count = room; /* it has joined more just now */
	return caller;
}

/* 1: a member of that Unix group, 0: not, -1: nobody knows. */
static int member_of(const struct caller *caller, gid_t gid)
{
	if (caller->gid == gid)
		return 1;
	for (int i = 0; i < caller->count; i++)
		if (caller->groups[i] == gid)
			return 1;
	return caller->count < 0 ? -1 : 0;
}

static bool may(const struct caller *caller, const struct access *access, unsigned bits)
{
	bool group = (access->mode >> 3 & bits) == bits;
	bool others = (access->mode & bits) == bits;
	int member;

	if (caller->uid == 0)
		return true;
	if (caller->uid == access->uid)
		return (access->mode >> 6 & bits) == bits;
	member = member_of(caller, access->gid);
	return member < 0 ? group && others : member ? group : others;
}

/* Asks for the caller's Unix groups only if they matter: that is a file of /proc to read. */
static bool req_may(fuse_req_t req, const struct access *access, unsigned bits)
{
	const struct fuse_ctx *who = fuse_req_ctx(req);
	bool groups = who->uid != access->uid && who->gid != access->gid &&
		      ((access->mode >> 3 ^ access->mode) & bits);
	struct caller plain = { .uid = who->uid, .gid = who->gid };
	struct caller *caller = groups ? caller_new(req) : &plain;
	bool answer = caller && may(caller, access, bits);

	if (groups)
		free(caller);
	return answer;
}

bool call_may(const struct call *call, struct item *item, unsigned dir, unsigned bits)
{
	struct access access;

	store_access(call->mount->store, item, dir, &access);
	return call->handle && call->handle->opener
		       ? may(call->handle->opener, &access, bits)
		       : req_may(call->req, &access, bits);
}

bool call_may_remove(const struct call *call, const struct place *place)
{
	struct store *store = call->mount->store;
	uid_t uid = fuse_req_ctx(call->req)->uid;
	struct item *made = place->partition ? place->partition
			    : place->group   ? place->group
					     : place->queue;
	struct item *in = made == place->queue ? NULL : place->queue;
	struct access above, own;

	if (!made) { /* the mount itself */
		store_access(store, NULL, ROOT_DIR, &own);
		return uid == 0 || uid == own.uid;
	}
	store_access(store, in,
		     !in		? ROOT_QUEUES
		     : place->partition ? QUEUE_PARTITIONS
					: QUEUE_GROUPS,
		     &above);
	if (!req_may(call->req, &above, 3))
		return false;
	store_access(store, made, 0, &own); /* the first is the item itself */
	return !(above.mode & S_ISVTX) || uid == 0 || uid == above.uid || uid == own.uid;
}
