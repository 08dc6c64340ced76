/* SPDX-License-Identifier: MIT */
/*
 * stats.c - what stats and metrics show: how much there is, how far a group is, how commits
 * go.
 *
 * 1. Counters are kept where things happen, under `state`, which is held there anyway. What is
 *    a sum over partitions is added up when it is asked for, a chunk at a time, so that
 *    nobody waits long for `state`.
 * 2. When the oldest unread message was pushed is known in memory if its segment is the
 *    partition's oldest or newest, or the one in which it was found last. Else it lies
 *    between two times that are known, and only the cursors that could be the oldest of
 *    their group are looked up in the store, the likeliest first and LOOKUPS of them. What
 *    was found is kept, so the next time goes on from there.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "store_int.h"

#define CHUNK 1024 /* cursors or partitions, before others have their turn */
#define LOOKUPS \
	4096 /* in the store, of one store_group_stats(); some microseconds each */

/* ---- commits ---------------------------------------------------------------------------- */

static const uint64_t bounds_us[] = { 10,      25,	50,	 100,	  250,
				      500,     1000,	2500,	 5000,	  10000,
				      25000,   50000,	100000,	 250000,  500000,
				      1000000, 2500000, 5000000, 10000000 };
static const uint64_t bounds_messages[] = { 1,	  4,	16,    64,    256,
					    1024, 4096, 16384, 65536, 262144 };

#define HISTOGRAM(bound)                                                             \
	(struct histogram)                                                           \
	{                                                                            \
		.bounds = (bound), .bound_count = sizeof(bound) / sizeof((bound)[0]) \
	}

static void histogram_add(struct histogram *histogram, uint64_t value)
{
	unsigned at = 0;

	while (at < histogram->bound_count && value > histogram->bounds[at])
		at++;
	histogram->counts[at]++;
	histogram->sum += value;
}

void stats_init(struct store *store)
{
	store->commit_histogram = HISTOGRAM(bounds_us);
	store->messages_histogram = HISTOGRAM(bounds_messages);
}

void stats_commit_locked(struct store *store, int64_t took_us, uint64_t messages)
{
	store->commits++;
	histogram_add(&store->commit_histogram, (uint64_t)took_us);
	if (messages > 0)
		histogram_add(&store->messages_histogram, messages);
}

void store_stats(struct store *store, struct store_stats *stats)
{
	struct stat st;

	pthread_mutex_lock(&store->state);
	*stats = (struct store_stats){
		.commits = store->commits,
		.commit_failures = store->commit_failures,
		.commit_us = store->commit_histogram,
		.commit_messages = store->messages_histogram,
		.wal_bytes = store->wal_bytes,
		.full = store->full,
	};
	pthread_mutex_unlock(&store->state);
	if (stat(store->path, &st) == 0)
		stats->store_bytes = (uint64_t)st.st_size;
}

/* ---- a queue ---------------------------------------------------------------------------- */

/* Adds a chunk of the partitions numbered past `after`: the last of them; 0: there is none. */
static uint64_t add_partitions_locked(const struct queue *queue, uint64_t after,
				      struct queue_stats *stats)
{
	const struct names *names = &queue->partitions;
	size_t at = names_after(names, after), end = at + CHUNK;
	uint64_t last = 0;

	for (; at < names->used && (at < end || last == 0); at++) {
		const struct item *item = names->by_id[at];
		const struct partition *partition;
		if (!item)
			continue;
		partition = container_of(item, struct partition, item);
		last = item->id;
		stats->partitions++;
		stats->offsets += (uint64_t)(partition->last + 1);
		stats->messages += (uint64_t)(partition->last - partition->first + 1);
		stats->bytes += partition->end_position - partition->first_position;
		stats->segments += partition_segments_locked(partition);
	}
	return last;
}

void store_queue_stats(struct item *item, struct queue_stats *out)
{
	struct store *store = item->store;
	struct queue *queue = queue_of(item);
	struct queue_stats stats = { 0 };
	uint64_t last = 0;

	do {
		pthread_mutex_lock(&store->state);
		last = add_partitions_locked(queue, last, &stats);
		stats.groups = queue->groups.used - queue->groups.holes;
		stats.pushed = queue->pushed;
		stats.pushed_bytes = queue->pushed_bytes;
		pthread_mutex_unlock(&store->state);
	} while (last > 0);
	*out = stats;
}

/* ---- the oldest unread message ------------------------------------------------------------ */

/* Between when and when the first message past committed was pushed; false: there is none. */
static bool unread_locked(const struct cursor *cursor, int64_t *least_us,
			  int64_t *most_us)
{
	const struct partition *partition = cursor->partition;
	int64_t next = cursor_committed_locked(cursor) + 1;

	*least_us = partition->oldest_us;
	*most_us = partition->modified_us;
	if (next > partition->last)
		return false;
	if (next <= partition->oldest_end)
		*most_us = *least_us;
	else if (next >= partition->newest_base)
		*least_us = *most_us;
	else if (next >= cursor->unread_base && next <= cursor->unread_end)
		*least_us = *most_us = cursor->unread_us;
	else if (next > cursor->unread_end && cursor->unread_us > *least_us)
		*least_us = cursor->unread_us;
	return true;
}

/* A cursor, while `state` is not held: its partition may go and another have its slot. */
struct lane {
	uint32_t slot;
	uint64_t partition;
	int64_t least_us;
};

static struct cursor *cursor_at_locked(struct item *group, const struct lane *lane)
{
	struct cursor *cursor = lane->slot < group_of(group)->room
					? group_of(group)->cursors[lane->slot]
					: NULL;

	return cursor && cursor->partition->item.id == lane->partition ? cursor : NULL;
}

/* When the oldest unread message of one cursor was pushed, if need be by a look into the
 * store; if that fails (-errno) the latest that it can be. 0: there is none. */
static int unread_find(struct item *group, const struct lane *lane, int64_t *unread_us)
{
	struct store *store = group->store;
	struct item *partition = NULL;
	struct segment_info info;
	struct cursor *cursor;
	int64_t least = 0, most = 0, next = 0;
	int error;

	*unread_us = 0;
	pthread_mutex_lock(&store->state);
	cursor = cursor_at_locked(group, lane);
	if (cursor && unread_locked(cursor, &least, &most)) {
		*unread_us = most;
		if (least < most)
			partition = store_get(&cursor->partition->item);
		next = cursor_committed_locked(cursor) + 1;
	}
	pthread_mutex_unlock(&store->state);
	if (!partition)
		return 0;
	error = store_segment_of(partition, next, &info);
	store_put(partition);
	if (error)
		return error == -ENOENT ? 0 : error; /* rm was quicker */
	pthread_mutex_lock(&store->state);
	cursor = cursor_at_locked(group, lane);
	*unread_us = 0;
	if (cursor) {
		cursor->unread_base = info.base_offset;
		cursor->unread_end = info.end_offset;
		cursor->unread_us = info.created_us;
		if (unread_locked(cursor, &least, &most))
			*unread_us = most;
	}
	pthread_mutex_unlock(&store->state);
	return 0;
}

int store_cursor_info(struct item *group, struct item *partition, struct cursor_info *out)
{
	struct store *store = group->store;
	struct cursor_info info = { 0 };
	struct lane lane = { .partition = partition->id };
	struct cursor *cursor;
	int error = 0;

	pthread_mutex_lock(&store->state);
	if (group->state != ITEM_LIVE || partition->state != ITEM_LIVE) {
		error = -ESTALE;
	} else {
		lane.slot = partition_of(partition)->slot;
		cursor = cursor_locked(group_of(group), partition_of(partition));
		info.committed = cursor_committed_locked(cursor);
		info.last_offset = partition_of(partition)->last;
		info.leased = cursor->held;
		info.lease_us = cursor->held ? lease_left_locked(cursor) : 0;
		if (cursor->held)
			info.holder = cursor->holder->who;
		info.attempts = cursor->attempts;
		info.failures = cursor->failures;
		info.counts = cursor->counts;
	}
	pthread_mutex_unlock(&store->state);
	if (!error)
		error = unread_find(group, &lane, &info.oldest_us);
	if (!error)
		*out = info;
	return error;
}

/* ---- a group ------------------------------------------------------------------------------ */

struct pass {
	struct group_stats stats;
	int64_t oldest_us; /* INT64_MAX: nothing is unread */
	/* Those that may have something older, to be looked up. */
	struct lane *lanes;
	size_t count, room;
};

/* Room for a chunk of lanes more. Without it the oldest stays the latest that it can be. */
static void pass_reserve(struct pass *pass)
{
	size_t room = pass->room ? pass->room * 2 : CHUNK;
	struct lane *lanes;

	if (pass->count + CHUNK <= pass->room)
		return;
	lanes = realloc(pass->lanes, room * sizeof(*lanes));
	if (!lanes)
		return;
	pass->lanes = lanes;
	pass->room = room;
}

static void pass_add_locked(struct pass *pass, const struct cursor *cursor)
{
	const struct partition *partition = cursor->partition;
	int64_t least, most;

	pass->stats.partitions++;
	pass->stats.leased += cursor->held;
	pass->stats.lag += (uint64_t)(partition->last - cursor_committed_locked(cursor));
	if (!unread_locked(cursor, &least, &most))
		return;
	if (most < pass->oldest_us)
		pass->oldest_us = most;
	if (least < most && least < pass->oldest_us && pass->count < pass->room)
		pass->lanes[pass->count++] =
			(struct lane){ partition->slot, partition->item.id, least };
}

/* Adds the chunk of cursors from a slot on; false: there is none. */
static bool pass_chunk_locked(struct pass *pass, const struct group *group, uint32_t slot)
{
	for (uint32_t end = slot + CHUNK; slot < group->room && slot < end; slot++) {
		const struct cursor *cursor = group->cursors[slot];
		if (cursor && cursor->partition->item.state == ITEM_LIVE)
			pass_add_locked(pass, cursor);
	}
	return slot < group->room;
}

static int by_least(const void *a, const void *b)
{
	const struct lane *left = a, *right = b;

	return left->least_us < right->least_us ? -1 : left->least_us > right->least_us;
}

static void pass_look_up(struct pass *pass, struct item *group)
{
	int64_t unread_us;

	qsort(pass->lanes, pass->count, sizeof(*pass->lanes), by_least);
	for (size_t i = 0; i < pass->count && i < LOOKUPS; i++) {
		if (pass->lanes[i].least_us >= pass->oldest_us)
			break;
		/* If it fails, the latest that it can be stands. */
		(void)unread_find(group, &pass->lanes[i], &unread_us);
		if (unread_us && unread_us < pass->oldest_us)
			pass->oldest_us = unread_us;
	}
}

int store_group_stats(struct item *item, struct group_stats *stats)
{
	struct store *store = item->store;
	struct group *group = group_of(item);
	struct pass pass = { .oldest_us = INT64_MAX };
	uint32_t slot = 0;
	bool more, live;

	do {
		pass_reserve(&pass);
		pthread_mutex_lock(&store->state);
		live = item->state == ITEM_LIVE;
		more = live && pass_chunk_locked(&pass, group, slot);
		pass.stats.readers = group->reader_count;
		pass.stats.waiting = group->waiting_count;
		pass.stats.counts = group->counts;
		pthread_mutex_unlock(&store->state);
		slot += CHUNK;
	} while (more);
	if (live && pass.count > 0)
		pass_look_up(&pass, item);
	free(pass.lanes);
	if (!live)
		return -ESTALE;
	if (pass.oldest_us != INT64_MAX) {
		pass.stats.oldest_us = pass.oldest_us;
		pass.stats.age_us = store_now(store) - pass.oldest_us;
	}
	*stats = pass.stats;
	return 0;
}
