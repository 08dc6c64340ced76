/* SPDX-License-Identifier: MIT */
/*
 * node.c - nodes and inode numbers, lookup and forget; the mount that holds them.
 *
 * 1. A node lives while the kernel remembers it. A directory has one node; every lookup of
 *    a file gives a fresh one, because the kernel serialises writes to an inode.
 * 2. st_ino is computed from what the thing is, so it is the same in every node of it and
 *    in listings.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs.h"

struct node *node_of(struct mount *mount, fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? &mount->root : (struct node *)(uintptr_t)ino;
}

fuse_ino_t node_ino(const struct node *node)
{
	return node == &node->mount->root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)node;
}

/* ---- places --------------------------------------------------------------------------- */

void place_put(struct place *place)
{
	store_put(place->queue);
	store_put(place->partition);
	store_put(place->group);
	if (place->letter && atomic_fetch_sub(&place->letter->refs, 1) == 1) {
		free(place->letter->info.partition);
		free(place->letter);
	}
	if (place->snapshot && atomic_fetch_sub(&place->snapshot->refs, 1) == 1)
		free(place->snapshot);
	place->queue = place->partition = place->group = NULL;
	place->letter = NULL;
	place->snapshot = NULL;
}

struct place place_get(const struct place *place)
{
	if (place->queue)
		store_get(place->queue);
	if (place->partition)
		store_get(place->partition);
	if (place->group)
		store_get(place->group);
	if (place->letter)
		atomic_fetch_add(&place->letter->refs, 1);
	if (place->snapshot)
		atomic_fetch_add(&place->snapshot->refs, 1);
	return *place;
}

static uint64_t mix(uint64_t sum, uint64_t value)
{
	sum = (sum + value + 1) * 0x9e3779b97f4a7c15u;
	return sum ^ sum >> 32;
}

ino_t place_number(const struct place *place)
{
	uint64_t number = mix(1, (uint64_t)(place->dir - dirs));

	if (place->dir == &dirs[DIR_ROOT] && !place->file)
		return FUSE_ROOT_ID;
	number = mix(number, place->file ? (uint64_t)(place->file - files) + 1 : 0);
	number = mix(number, place->queue ? store_id(place->queue) : 0);
	number = mix(number, place->partition ? store_id(place->partition) : 0);
	number = mix(number, place->group ? store_id(place->group) : 0);
	number = mix(number, place->letter     ? place->letter->info.id
			     : place->snapshot ? place->snapshot->info.id
					       : 0);
	if (place->file && !place->file->name)
		number = mix(number,
			     (uint64_t)place->segment.base_offset + place->setting);
	return number > FUSE_ROOT_ID ? number : number + 2;
}

static bool same(const struct place *a, const struct place *b)
{
	return a->dir == b->dir && a->queue == b->queue && a->partition == b->partition &&
	       a->group == b->group;
}

static void path_of_dir(const struct place *place, FILE *out)
{
	struct place up = *place;
	char text[NAME_TEXT_SIZE];

	if (place->dir == &dirs[DIR_ROOT])
		return;
	up.dir = &dirs[place->dir->parent];
	path_of_dir(&up, out);
	up = *place;
	up.file = NULL;
	fprintf(out, "%s%s", place->dir->parent == DIR_ROOT ? "" : "/",
		place_name(&up, text));
}

char *place_path(const struct place *place, const char *name)
{
	char *path = NULL, text[NAME_TEXT_SIZE];
	size_t size;
	FILE *out = open_memstream(&path, &size);
	const char *slash = place->dir == &dirs[DIR_ROOT] ? "" : "/";

	if (!out)
		return NULL;
	path_of_dir(place, out);
	if (place->file)
		fprintf(out, "%s%s", slash, place_name(place, text));
	else if (name)
		fprintf(out, "%s%s", slash, name);
	if (fclose(out) != 0) {
		free(path);
		return NULL;
	}
	return path;
}

/* ---- nodes ---------------------------------------------------------------------------- */

static struct node **bucket(struct mount *mount, const struct place *place)
{
	return &mount->buckets[place_number(place) %
			       (sizeof(mount->buckets) / sizeof(*mount->buckets))];
}

struct node *node_find_locked(struct mount *mount, const struct place *place)
{
	struct node *node = *bucket(mount, place);

	while (node && !same(&node->place, place))
		node = node->hash_next;
	return node;
}

static void unhash_locked(struct mount *mount, struct node *node)
{
	struct node **at = bucket(mount, &node->place);

	if (!node->hashed)
		return;
	while (*at != node)
		at = &(*at)->hash_next;
	*at = node->hash_next;
	node->hashed = false;
}

static void node_free(struct node *node)
{
	place_put(&node->place);
	free(node->text);
	free(node);
}

struct node *node_take(struct mount *mount, struct place *place, uid_t uid)
{
	struct node *node = NULL, *fresh = calloc(1, sizeof(*fresh));
	struct node **at;

	if (!fresh) {
		place_put(place);
		return NULL;
	}
	fresh->place = *place;
	fresh->mount = mount;
	fresh->uid = uid;
	if (place->file && place->file->ops->init)
		place->file->ops->init(fresh);
	pthread_mutex_lock(&mount->nodes_lock);
	if (!place->file)
		node = node_find_locked(mount, place);
	if (!node) {
		node = fresh;
		TAILQ_INSERT_TAIL(&mount->nodes, node, all);
		if (++mount->stale.made == mount->stale.after)
			pthread_cond_signal(&mount->stale.news);
		if (!place->file) {
			at = bucket(mount, place);
			node->hash_next = *at;
			*at = node;
			node->hashed = true;
		}
	}
	node->lookups++;
	pthread_mutex_unlock(&mount->nodes_lock);
	if (node != fresh)
		node_free(fresh);
	return node;
}

void node_forget(struct mount *mount, struct node *node, uint64_t lookups)
{
	bool gone;

	if (node == &mount->root)
		return;
	pthread_mutex_lock(&mount->nodes_lock);
	node->lookups -= lookups;
	gone = node->lookups == 0;
	if (gone) {
		unhash_locked(mount, node);
		TAILQ_REMOVE(&mount->nodes, node, all);
	}
	pthread_mutex_unlock(&mount->nodes_lock);
	if (gone)
		node_free(node);
}

void node_retire(struct mount *mount, const struct place *place)
{
	struct node *node;

	pthread_mutex_lock(&mount->nodes_lock);
	node = node_find_locked(mount, place);
	if (node)
		unhash_locked(mount, node);
	pthread_mutex_unlock(&mount->nodes_lock);
}

void stat_time(struct stat *st, int64_t time_us)
{
	st->st_mtim.tv_sec = time_us / 1000000;
	st->st_mtim.tv_nsec = time_us % 1000000 * 1000;
	st->st_ctim = st->st_atim = st->st_mtim;
}

/* Below a partition the time of its last commit; elsewhere nothing has a time of its own. */
static int64_t place_time(struct mount *mount, const struct place *place)
{
	struct partition_info info;

	if (!place->partition)
		return mount->started_us;
	store_partition_info(place->partition, &info);
	return info.modified_us;
}

void node_stat(struct node *node, struct stat *st)
{
	const struct place *place = &node->place;
	struct access access;

	store_access(node->mount->store, place_owner(place), place->dir->access, &access);
	*st = (struct stat){
		.st_ino = place_number(place),
		.st_mode = place_mode(place, &access),
		.st_nlink = 1, /* of a directory: not counted */
		.st_uid = access.uid,
		.st_gid = access.gid,
		.st_blksize = 4096,
	};
	stat_time(st, place_time(node->mount, place));
	if (place->file && place->file->ops->stat)
		place->file->ops->stat(node, st);
	st->st_blocks = (st->st_size + 511) / 512;
}

/* ---- the mount ------------------------------------------------------------------------ */

struct mount *mount_new(struct store *store)
{
	struct mount *mount = calloc(1, sizeof(*mount));

	if (!mount)
		return NULL;
	mount->store = store;
	mount->owner = geteuid();
	mount->started_us = store_now(store);
	mount->root.mount = mount;
	mount->root.place.dir = &dirs[DIR_ROOT];
	TAILQ_INIT(&mount->nodes);
	TAILQ_INIT(&mount->handles);
	pthread_mutex_init(&mount->nodes_lock, NULL);
	pthread_mutex_init(&mount->handles_lock, NULL);
	pthread_mutex_init(&mount->errors.lock, NULL);
	if (park_begin(mount) || stale_begin(mount)) {
		park_end(mount);
		mount_free(mount);
		return NULL;
	}
	return mount;
}

void mount_speaks(struct mount *mount, struct fuse_session *session)
{
	mount->session = session;
}

/* The kernel neither releases nor forgets when a mount ends. */
void mount_end(struct mount *mount)
{
	struct handle *handle;
	struct node *node;

	stale_stop(mount);
	park_end(mount); /* its notifier may be the one that commits just now */
	store_settle(mount->store); /* calls that wait use nodes and handles */
	while ((handle = TAILQ_FIRST(&mount->handles))) {
		const struct file_kind *file = handle->node->place.file;
		if (file->ops->close)
			file->ops->close(handle);
		handle_free(handle);
	}
	while ((node = TAILQ_FIRST(&mount->nodes))) {
		TAILQ_REMOVE(&mount->nodes, node, all);
		node_free(node);
	}
}

void mount_free(struct mount *mount)
{
	for (size_t i = 0; i < ERRORS_KEPT; i++)
		free(mount->errors.ring[i].text);
	pthread_mutex_destroy(&mount->nodes_lock);
	pthread_mutex_destroy(&mount->handles_lock);
	pthread_mutex_destroy(&mount->errors.lock);
	pthread_mutex_destroy(&mount->park.lock);
	pthread_cond_destroy(&mount->park.news);
	pthread_cond_destroy(&mount->park.calm);
	pthread_cond_destroy(&mount->stale.news);
	free(mount);
}
