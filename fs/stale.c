/* SPDX-License-Identifier: MIT */
/*
 * stale.c - names that are gone without the kernel's doing: segments that retention removed,
 * expired snapshots, letters.
 *
 * 1. The kernel keeps what it looked up until it is short of memory or somebody asks for the
 *    same name again, and we keep a node for it. A year of find in segments/ would be a year
 *    of nodes. So when there are twice as many nodes as were in use last time, it is told.
 * 2. Telling waits for the directory's lock in the kernel, which somebody may hold who waits
 *    for an answer of the notifier; hence a thread of its own. When the daemon ends, such a
 *    call ends with the mount, and needs nothing of the store.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "fs.h"

#define LEAST 4096 /* nodes that are not worth a look */

struct name {
	fuse_ino_t parent;
	struct item *partition; /* of a segment: a reference */
	int64_t base;
	char *text;
};

struct names {
	struct name *all;
	size_t count;
};

static bool vanishes(const struct place *place)
{
	return place->file &&
	       (place->letter || place->snapshot || place->dir == &dirs[DIR_SEGMENTS]);
}

static bool add_locked(struct mount *mount, struct names *names,
		       const struct place *place)
{
	struct place up = { .dir = place->dir,
			    .queue = place->queue,
			    .partition = place->partition,
			    .group = place->group };
	const struct node *parent = node_find_locked(mount, &up);
	struct name *grown = array_grown(names->all, names->count, sizeof(*names->all));
	char text[NAME_TEXT_SIZE], *copy = strdup(place_name(place, text));

	if (grown)
		names->all = grown;
	if (!grown || !copy || !parent) {
		free(copy);
		return grown && copy;
	}
	names->all[names->count++] = (struct name){
		.parent = node_ino(parent),
		.partition = place->letter || place->snapshot
				     ? NULL
				     : store_get(place->partition),
		.base = place->segment.base_offset,
		.text = copy,
	};
	return true;
}

/* Of letters and snapshots there are few; who wants one looks it up again. */
static bool gone(const struct name *name)
{
	struct partition_info info;

	if (!name->partition || store_dropped(name->partition))
		return true;
	store_partition_info(name->partition, &info);
	return name->base < info.first_offset;
}

/* How many are gone; the others lose their text. */
static size_t gone_count(struct names *names)
{
	size_t count = 0;

	for (size_t i = 0; i < names->count; i++) {
		struct name *name = &names->all[i];
		if (gone(name)) {
			count++;
		} else {
			free(name->text);
			name->text = NULL;
		}
		store_put(name->partition);
	}
	return count;
}

/* A parent may be forgotten meanwhile: then the kernel knows no such number, or looks a name
 * up again. */
static void tell(struct mount *mount, struct names *names)
{
	for (size_t i = 0; i < names->count; i++) {
		const struct name *name = &names->all[i];
		if (name->text && !mount->stale.stopping)
			fuse_lowlevel_notify_inval_entry(mount->session, name->parent,
							 name->text, strlen(name->text));
		free(name->text);
	}
	free(names->all);
}

static void names_take_locked(struct mount *mount, struct names *names)
{
	struct node *node;

	TAILQ_FOREACH(node, &mount->nodes, all)
	if (vanishes(&node->place) && !add_locked(mount, names, &node->place))
		break;
}

static void *stale_main(void *arg)
{
	struct mount *mount = arg;
	struct stale *stale = &mount->stale;

	pthread_mutex_lock(&mount->nodes_lock);
	while (!stale->stopping) {
		struct names names = { 0 };
		size_t count, left;
		if (mount->node_count < stale->at) {
			pthread_cond_wait(&stale->news, &mount->nodes_lock);
			continue;
		}
		stale->looking = true;
		names_take_locked(mount, &names);
		pthread_mutex_unlock(&mount->nodes_lock);
		count = gone_count(&names);
		pthread_mutex_lock(&mount->nodes_lock);
		stale->looking = false;
		pthread_cond_broadcast(&stale->news);
		left = mount->node_count > count ? mount->node_count - count : 0;
		stale->at = left > LEAST / 2 ? 2 * left : LEAST;
		pthread_mutex_unlock(&mount->nodes_lock);
		tell(mount, &names);
		pthread_mutex_lock(&mount->nodes_lock);
	}
	pthread_mutex_unlock(&mount->nodes_lock);
	return NULL;
}

int stale_begin(struct mount *mount)
{
	struct stale *stale = &mount->stale;
	sigset_t all, before;
	int error;

	stale->at = LEAST;
	pthread_cond_init(&stale->news, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&stale->thread, NULL, stale_main, mount);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	stale->running = error == 0;
	return -error;
}

void stale_stop(struct mount *mount)
{
	struct stale *stale = &mount->stale;

	pthread_mutex_lock(&mount->nodes_lock);
	stale->stopping = true;
	pthread_cond_broadcast(&stale->news);
	while (stale->looking)
		pthread_cond_wait(&stale->news, &mount->nodes_lock);
	pthread_mutex_unlock(&mount->nodes_lock);
}

void stale_end(struct mount *mount)
{
	if (mount->stale.running)
		pthread_join(mount->stale.thread, NULL);
	mount->stale.running = false;
}
