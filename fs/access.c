/* SPDX-License-Identifier: MIT */
/*
 * access.c - owner and mode of directories: changing them, and who may (section 12).
 *
 * 1. The kernel checks permissions (default_permissions) with the owners and modes that it
 *    was told. What is here is what it cannot know: that groups/<g> is seen in each
 *    partition too, and what a write names.
 * 2. A change is answered once the kernel holds no older owner or mode of that directory
 *    and of the files in it, wherever they are seen; so it holds at once.
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

/* 1: the caller is a member of that Unix group, 0: is not, -1: nobody knows. */
static int member_of(fuse_req_t req, gid_t gid)
{
	int room = fuse_req_getgroups(req, 0, NULL), count, found = 0;
	gid_t *groups;

	if (room < 0)
		return -1;
	groups = calloc((size_t)room + 1, sizeof(*groups));
	count = groups ? fuse_req_getgroups(req, room, groups) : -1;
	for (int i = 0; i < count && i < room && !found; i++)
		found = groups[i] == gid;
	free(groups);
	return count < 0 ? -1 : found;
}

static bool may(fuse_req_t req, const struct access *access, unsigned bits)
{
	const struct fuse_ctx *who = fuse_req_ctx(req);
	bool group = (access->mode >> 3 & bits) == bits;
	bool others = (access->mode & bits) == bits;
	int member;

	if (who->uid == 0)
		return true;
	if (who->uid == access->uid)
		return (access->mode >> 6 & bits) == bits;
	if (group == others)
		return group;
	member = who->gid == access->gid ? 1 : member_of(req, access->gid);
	return member < 0 ? group && others : member ? group : others;
}

bool call_may(const struct call *call, struct item *item, unsigned dir, unsigned bits)
{
	struct access access;

	store_access(call->mount->store, item, dir, &access);
	return may(call->req, &access, bits);
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

	store_access(store, in,
		     !in		? ROOT_QUEUES
		     : place->partition ? QUEUE_PARTITIONS
					: QUEUE_GROUPS,
		     &above);
	if (!may(call->req, &above, 3))
		return false;
	store_access(store, made, 0, &own); /* the first is the item itself */
	return !(above.mode & S_ISVTX) || uid == 0 || uid == above.uid || uid == own.uid;
}
