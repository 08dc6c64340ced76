/* SPDX-License-Identifier: MIT */
/*
 * names.c - the children of one kind below one parent: by name, and by id for listings.
 *
 * 1. by_id ascends, because ids are given out in the order in which items are born.
 * 2. An item that leaves leaves a hole, so dropping many costs no more than each.
 */
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

size_t name_hash(const char *name)
{
	size_t value = 5381;

	for (; *name; name++)
		value = value * 33 + (unsigned char)*name;
	return value ^ value >> 17;
}

static struct item **bucket(struct names *names, const char *name)
{
	return &names->buckets[name_hash(name) & (names->bucket_count - 1)];
}

int names_find_locked(struct names *names, const char *name, struct item **out)
{
	struct item *item = names->bucket_count ? *bucket(names, name) : NULL;

	while (item && strcmp(item->name, name) != 0)
		item = item->hash_next;
	if (!item)
		return -ENOENT;
	*out = item;
	return 0;
}

static int names_grow(struct names *names)
{
	size_t count = names->bucket_count ? names->bucket_count * 2 : 8;
	struct item **old = names->buckets, **buckets = calloc(count, sizeof(*buckets));
	size_t old_count = names->bucket_count;

	if (!buckets)
		return -ENOMEM;
	names->buckets = buckets;
	names->bucket_count = count;
	for (size_t i = 0; i < old_count; i++)
		for (struct item *item = old[i], *next; item; item = next) {
			struct item **at = bucket(names, item->name);
			next = item->hash_next;
			item->hash_next = *at;
			*at = item;
		}
	free(old);
	return 0;
}

int names_add_locked(struct names *names, struct item *item)
{
	struct item **at;
	int error;

	if (names->count >= names->bucket_count && (error = names_grow(names)))
		return error;
	at = bucket(names, item->name);
	item->hash_next = *at;
	*at = item;
	names->count++;
	return 0;
}

int names_reserve_locked(struct names *names, size_t more)
{
	/* Unborn ones are among count: all of them may be born by one commit. */
	size_t need = names->count + names->holes + more, room = names->room;
	struct item **by_id;

	if (need <= room)
		return 0;
	while (room < need)
		room = room ? room * 2 : 8;
	by_id = realloc(names->by_id, room * sizeof(struct item *));
	if (!by_id)
		return -ENOMEM;
	names->by_id = by_id;
	names->room = room;
	return 0;
}

void names_born_locked(struct names *names, struct item *item)
{
	names->by_id[names->used++] = item;
	item->state = ITEM_LIVE;
}

/* The place of the first id above `after`. */
size_t names_after(const struct names *names, uint64_t after)
{
	size_t low = 0, high = names->used;

	while (low < high) {
		size_t middle = low + (high - low) / 2, at = middle;
		while (at < high && !names->by_id[at])
			at++;
		if (at < high && names->by_id[at]->id <= after)
			low = at + 1;
		else
			high = middle;
	}
	return low;
}

static void names_compact(struct names *names)
{
	size_t kept = 0;

	for (size_t i = 0; i < names->used; i++)
		if (names->by_id[i])
			names->by_id[kept++] = names->by_id[i];
	names->used = kept;
	names->holes = 0;
}

void names_remove_locked(struct names *names, struct item *item)
{
	struct item **at = bucket(names, item->name);

	while (*at != item)
		at = &(*at)->hash_next;
	*at = item->hash_next;
	names->count--;
	if (item->state == ITEM_LIVE) {
		size_t place = names_after(names, item->id - 1);
		while (names->by_id[place] != item)
			place++;
		names->by_id[place] = NULL;
		if (++names->holes > 16 && names->holes > names->used / 2)
			names_compact(names);
	}
	item->state = ITEM_DROPPED;
}

void names_free(struct names *names)
{
	for (size_t i = 0; i < names->bucket_count; i++)
		for (struct item *item = names->buckets[i], *next; item; item = next) {
			next = item->hash_next;
			item->state = ITEM_DROPPED;
			store_put(item);
		}
	free(names->buckets);
	free(names->by_id);
	memset(names, 0, sizeof(*names));
}
