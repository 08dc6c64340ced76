/* SPDX-License-Identifier: MIT */
/*
 * claim.c - readers: taking the next span of a group, reading it, giving it back.
 *
 * The lease of one (partition, group), which is cursor->holder:
 *
 *              claim                    read to the batch's end, close
 *      free ----------> held by reader ---------------------------------> free
 *                         |
 *                         | seek: epoch + 1, holder = NULL
 *                         v
 *                       lost (the reader still points here; the cursor is free)
 *                         |
 *                         | finishes the message it began, or closes
 *                         v
 *                       no claim
 *
 * 1. A reader begins a message only while it holds the lease under the cursor's epoch.
 * 2. A message that was begun is finished by its reader whatever happened to the lease; its
 *    segment is kept for that. Finishing it moves committed only under the same epoch.
 * 3. committed moves to a message when its last byte is returned, in order, one by one;
 *    so what was not read to its end is where the next claim starts.
 */
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

#define POP_BATCH 1

struct reader {
	struct store *store;
	struct item *group;	/* a reference */
	struct item *partition; /* a reference, or NULL: all of the queue */
	struct cursor *cursor;	/* what was claimed, pinned, or NULL */
	uint32_t epoch;		/* of the cursor when it was claimed */
	unsigned popped;	/* messages of this pop that were read to their end */
	bool ended;		/* the next read answers the end of this pop */
	/* The message that was begun, or segment is NULL. */
	struct segment *segment;
	int64_t offset;
	uint32_t at, to; /* the bytes of it that are left */
	/* For store_unread(). */
	struct item *undo_partition; /* a reference, or NULL */
	uint32_t undo_epoch;
	int64_t undo_from, undo_to;
};

/* A run of bytes of one segment, copied after the lock is gone. */
struct slice {
	struct segment *segment;
	uint32_t from, size;
};

static bool holds(const struct reader *reader)
{
	return reader->cursor && reader->cursor->holder == reader &&
	       reader->cursor->epoch == reader->epoch;
}

static void release_locked(struct reader *reader)
{
	struct cursor *cursor = reader->cursor;

	if (!cursor)
		return;
	if (holds(reader))
		cursor->holder = NULL;
	cursor->pins--;
	reader->cursor = NULL;
	cursor_ready_locked(cursor);
}

static bool claim_locked(struct reader *reader)
{
	struct group *group = group_of(reader->group);
	struct cursor *cursor;

	release_locked(reader);
	cursor = reader->partition ? cursor_locked(group, partition_of(reader->partition))
				   : TAILQ_FIRST(&group->ready);
	if (!cursor || !cursor->ready)
		return false;
	cursor->holder = reader;
	cursor->pins++;
	cursor_ready_locked(cursor);
	cursor->committed = cursor_committed_locked(cursor);
	reader->cursor = cursor;
	reader->epoch = cursor->epoch;
	return true;
}

/* A message was returned to its last byte. */
static void consume_locked(struct reader *reader, int64_t offset)
{
	struct cursor *cursor = reader->cursor;

	reader->popped++;
	if (!holds(reader))
		return;
	if (!reader->undo_partition) {
		reader->undo_partition = store_get(&cursor->partition->item);
		reader->undo_epoch = cursor->epoch;
		reader->undo_from = cursor->committed;
	}
	reader->undo_to = offset;
	cursor->committed = offset;
	cursor_dirty_locked(cursor);
}

static void end_pop_locked(struct reader *reader)
{
	release_locked(reader);
	reader->popped = 0;
}

/* ---- the next slice ------------------------------------------------------------------- */

enum next { NEXT_SLICE, NEXT_LOAD, NEXT_NONE };

/* More of the message that was begun. */
static void slice_begun_locked(struct reader *reader, size_t room, struct slice *slice)
{
	uint32_t left = reader->to - reader->at;

	slice->segment = reader->segment;
	slice->segment->refs++;
	slice->from = reader->at;
	slice->size = left < room ? left : (uint32_t)room;
	reader->at += slice->size;
	if (reader->at < reader->to)
		return;
	segment_put_locked(reader->segment);
	reader->segment = NULL;
	consume_locked(reader, reader->offset);
}

/* Whole messages of one segment while they fit; else, with nothing returned so far, the
 * beginning of one. */
static bool slice_new_locked(struct reader *reader, struct segment *segment,
			     int64_t offset, size_t room, bool first, struct slice *slice)
{
	uint32_t from, to, start;

	segment_message(segment, offset, &start, &to);
	if (to - start > room) {
		if (!first)
			return false;
		segment->refs++; /* the reader's; slice_begun takes its own */
		reader->segment = segment;
		reader->offset = offset;
		reader->at = start;
		reader->to = to;
		slice_begun_locked(reader, room, slice);
		return true;
	}
	slice->segment = segment;
	segment->refs++;
	slice->from = start;
	do {
		slice->size = to - start;
		consume_locked(reader, offset);
		if (reader->popped >= POP_BATCH || ++offset > segment->info.end_offset)
			break;
		segment_message(segment, offset, &from, &to);
	} while (to - start <= room);
	return true;
}

/* What this reader gets next. NEXT_LOAD: the segment with *offset has to be loaded first;
 * `loaded` is it, the second time. */
static enum next next_locked(struct reader *reader, size_t room, bool first,
			     struct segment *loaded, int64_t *offset, struct slice *slice)
{
	struct segment *segment;
	struct cursor *cursor;
	enum next next;

	if (reader->segment) {
		slice_begun_locked(reader, room, slice);
		return NEXT_SLICE;
	}
	if (reader->popped >= POP_BATCH)
		return NEXT_NONE;
	if (!holds(reader) && (reader->popped > 0 || !claim_locked(reader)))
		return NEXT_NONE;
	cursor = reader->cursor;
	cursor->committed = cursor_committed_locked(cursor); /* rm may have passed it */
	*offset = cursor->committed + 1;
	if (*offset > cursor->partition->last)
		return NEXT_NONE;
	segment = cache_find_locked(reader->store, cursor->partition, *offset,
				    cursor->hint);
	if (!segment && loaded && loaded->partition == cursor->partition->item.id &&
	    loaded->info.base_offset <= *offset && *offset <= loaded->info.end_offset) {
		segment = loaded;
		segment->refs++;
	}
	if (!segment)
		return NEXT_LOAD;
	cursor->hint = segment->info.base_offset;
	next = slice_new_locked(reader, segment, *offset, room, first, slice) ? NEXT_SLICE
									      : NEXT_NONE;
	segment_put_locked(segment);
	return next;
}

/* ---- reading -------------------------------------------------------------------------- */

static void undo_forget_locked(struct reader *reader)
{
	store_put(reader->undo_partition);
	reader->undo_partition = NULL;
}

ssize_t store_read(struct reader *reader, char *buffer, size_t size)
{
	struct store *store = reader->store;
	struct segment *loaded = NULL;
	struct slice slice;
	size_t copied = 0;
	int64_t offset;
	int error = 0;
	enum next next;

	pthread_mutex_lock(&store->state);
	undo_forget_locked(reader);
	if (!reader->segment && reader->group->state != ITEM_LIVE)
		error = -ESTALE;
	if (reader->ended) {
		reader->ended = false;
		pthread_mutex_unlock(&store->state);
		return 0;
	}
	while (!error && copied < size) {
		next = next_locked(reader, size - copied, copied == 0, loaded, &offset,
				   &slice);
		if (next == NEXT_NONE)
			break;
		if (next == NEXT_LOAD) {
			struct partition *partition = reader->cursor->partition;
			store_get(&partition->item);
			segment_put_locked(loaded);
			loaded = NULL;
			pthread_mutex_unlock(&store->state);
			error = segment_load(store, partition, offset, &loaded);
			pthread_mutex_lock(&store->state);
			/* Removed meanwhile: committed has moved past it, look again. */
			if (error == -ENOENT)
				error = partition->first > offset ? 0 : -EIO;
			store_put(&partition->item);
			continue;
		}
		pthread_mutex_unlock(&store->state);
		memcpy(buffer + copied, slice.segment->data + slice.from, slice.size);
		copied += slice.size;
		pthread_mutex_lock(&store->state);
		segment_put_locked(slice.segment);
	}
	segment_put_locked(loaded);
	/* The batch is done: hand the partition on now, say so at the next read. With nothing
	 * to return, this is that read. */
	if (!reader->segment && (copied == 0 || reader->popped >= POP_BATCH)) {
		reader->ended = copied > 0;
		end_pop_locked(reader);
	}
	pthread_mutex_unlock(&store->state);
	return copied > 0 ? (ssize_t)copied : error;
}

void store_unread(struct reader *reader)
{
	struct item *partition;
	struct cursor *cursor;

	pthread_mutex_lock(&reader->store->state);
	partition = reader->undo_partition;
	cursor = partition && partition->state == ITEM_LIVE
			 ? cursor_locked(group_of(reader->group), partition_of(partition))
			 : NULL;
	if (cursor && cursor->epoch == reader->undo_epoch &&
	    cursor->committed == reader->undo_to &&
	    (!cursor->holder || cursor->holder == reader)) {
		cursor->committed = reader->undo_from;
		cursor_dirty_locked(cursor);
		cursor_ready_locked(cursor);
	}
	undo_forget_locked(reader);
	pthread_mutex_unlock(&reader->store->state);
}

/* ---- opening and closing -------------------------------------------------------------- */

int store_reader_open(struct item *group, struct item *partition, struct reader **out)
{
	struct store *store = group->store;
	struct reader *reader = calloc(1, sizeof(*reader));
	int error = 0;

	if (!reader)
		return -ENOMEM;
	pthread_mutex_lock(&store->state);
	if (group->state != ITEM_LIVE || group->leaving || group->parent->leaving ||
	    (partition && (partition->state != ITEM_LIVE || partition->leaving)))
		error = -ESTALE;
	if (!error) {
		reader->store = store;
		reader->group = store_get(group);
		reader->partition = partition ? store_get(partition) : NULL;
		group_of(group)->readers++;
		if (partition)
			partition_of(partition)->readers++;
	}
	pthread_mutex_unlock(&store->state);
	if (error)
		free(reader);
	else
		*out = reader;
	return error;
}

void store_reader_close(struct reader *reader)
{
	struct store *store = reader->store;

	pthread_mutex_lock(&store->state);
	segment_put_locked(reader->segment);
	undo_forget_locked(reader);
	release_locked(reader);
	group_of(reader->group)->readers--;
	if (reader->partition)
		partition_of(reader->partition)->readers--;
	pthread_mutex_unlock(&store->state);
	store_put(reader->partition);
	store_put(reader->group);
	free(reader);
}
