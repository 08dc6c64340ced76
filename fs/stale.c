/* SPDX-License-Identifier: MIT */
/*
 * stale.c - names that are gone without the kernel's doing: segments that retention removed,
 * expired snapshots, letters.
 *
 * 1. The kernel keeps what it looked up until it is short of memory or somebody asks for the
 *    same name again, and we keep a node for it. A year of find in segments/ would be a year
 *    of nodes. So each time that as many nodes have been made as there are, it is told. It
 *    may forget them later, or never while they are open: so they are not counted again.
 * 2. Telling waits for the directory's lock in the kernel, which somebody may hold who waits
 *    for an answer of the notifier; hence a thread of its own. When the daemon ends, such a
 *    call ends with the mount, and needs nothing of the store.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "fs.h"

#define LEAST 4096 /* nodes made that are not worth a look */

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

/* Those that are there lose their text. */
static void gone_keep(struct names *names)
{
	for (size_t i = 0; i < names->count; i++) {
		struct name *name = &names->all[i];
		if (!gone(name)) {
			free(name->text);
			name->text = NULL;
		}
		store_put(name->partition);
	}
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
	struct stale *stale = &mount->stale;
	struct node *node;
	size_t count = 0;

	TAILQ_FOREACH(node, &mount->nodes, all)
	{
		if (vanishes(&node->place) && !add_locked(mount, names, &node->place))
			break;
		count++;
	}
	stale->made = 0;
	stale->after = count > LEAST ? count : LEAST;
}

static void *stale_main(void *arg)
{
	struct mount *mount = arg;
	struct stale *stale = &mount->stale;

	pthread_mutex_lock(&mount->nodes_lock);
	while (!stale->stopping) {
		struct names names = { 0 };
		if (stale->made < stale->after) {
			pthread_cond_wait(&stale->news, &mount->nodes_lock);
			continue;
		}
		stale->looking = true;
		names_take_locked(mount, &names);
		pthread_mutex_unlock(&mount->nodes_lock);
		gone_keep(&names);
		pthread_mutex_lock(&mount->nodes_lock);
		stale->looking = false;
		pthread_cond_broadcast(&stale->news);
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

	stale->after = LEAST;
	pthread_cond_init(&stale->news, NULL);
	return thread_start(&stale->thread, stale_main, mount);
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
	thread_join(&mount->stale.thread);
}
