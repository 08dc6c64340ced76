/* SPDX-License-Identifier: MIT */
/*
 * partition.c - a partition in memory: its offsets, its place among the cursors, its birth.
 *
 * 1. first .. last are the retained offsets; empty when last < first. last + 1 is the next
 *    offset also when nothing is retained; end_position likewise.
 * 2. Every pair of partition and group has a cursor, made when the younger one is born.
 */
#include <stdlib.h>

#include "store_int.h"

struct queue *queue_of(struct item *item)
{
	return container_of(item, struct queue, item);
}

bool queue_lines_locked(struct item *queue)
{
	return queue_of(queue)->settings.values[SETTING_FRAMING].least == FRAMING_LINE;
}

void store_message_rules(struct item *queue, struct message_rules *rules)
{
	pthread_mutex_lock(&queue->store->state);
	rules->lines = queue_lines_locked(queue);
	rules->message_max = (uint32_t)queue_of(queue)
				     ->settings.values[SETTING_MAX_MESSAGE_BYTES]
				     .least;
	pthread_mutex_unlock(&queue->store->state);
}

struct partition *partition_of(struct item *item)
{
	return container_of(item, struct partition, item);
}

/* Slots are handed back in any order, so the list has room for all from the start. */
static int slot_take_locked(struct queue *queue, uint32_t *slot)
{
	uint32_t room = queue->free_room, *slots;

	if (queue->free_count > 0) {
		*slot = queue->free_slots[--queue->free_count];
		return 0;
	}
	if (queue->slots == room) {
		room = room ? room * 2 : 8;
		slots = realloc(queue->free_slots, room * sizeof(*slots));
		if (!slots)
			return -ENOMEM;
		queue->free_slots = slots;
		queue->free_room = room;
	}
	*slot = queue->slots++;
	return 0;
}

static void cursors_drop_locked(struct partition *partition)
{
	struct queue *queue = queue_of(partition->item.parent);
	struct item *group;

	names_each(&queue->groups, i, group)
		cursor_free_locked(group_of(group), partition);
	queue->free_slots[queue->free_count++] = partition->slot;
}

/* What birth needs in memory: a slot, a place in by_id, a cursor in each group. */
static int prepare_locked(struct partition *partition)
{
	struct queue *queue = queue_of(partition->item.parent);
	struct item *group;
	int error = names_reserve_locked(&queue->partitions, 1);

	if (!error)
		error = slot_take_locked(queue, &partition->slot);
	if (error)
		return error;
	names_each(&queue->groups, i, group) if (!error) error =
		cursor_make_locked(group_of(group), partition);
	if (error)
		cursors_drop_locked(partition);
	return error;
}

int partition_insert(struct store *store, struct partition *partition)
{
	char access[ACCESS_TEXT_SIZE];
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_PARTITION_INSERT);
	int error;

	pthread_mutex_lock(&store->state);
	error = prepare_locked(partition);
	pthread_mutex_unlock(&store->state);
	if (error)
		return conn_fail(store->writer, SQLITE_NOMEM);
	partition->prepared = true;
	partition->first = 0;
	partition->last = -1;
	partition->made_us = partition->modified_us = clock_us();
	access_text(partition->access, PARTITION_DIRS, access, sizeof(access));
	bind_text(stmt, 1, partition->item.name);
	bind_text(stmt, 2, access);
	bind_int(stmt, 3, (int64_t)partition->item.parent->id);
	bind_int(stmt, 4, partition->made_us);
	error = conn_run(store->writer, stmt);
	partition->item.id = (uint64_t)sqlite3_last_insert_rowid(store->writer->db);
	return error;
}

void partition_born_locked(struct partition *partition)
{
	names_born_locked(&queue_of(partition->item.parent)->partitions,
			  &partition->item);
}

void partition_undo_locked(struct partition *partition, bool applied)
{
	if (partition->item.state != ITEM_UNBORN)
		return;
	if (partition->prepared && (applied || partition->pending == 0)) {
		cursors_drop_locked(partition);
		partition->prepared = false;
	}
	if (partition->pending == 0) {
		names_remove_locked(&queue_of(partition->item.parent)->partitions,
				    &partition->item);
		store_put(&partition->item);
	}
}

void partition_gone_locked(struct partition *partition)
{
	retain_forget_locked(partition);
	cursors_drop_locked(partition);
}

static int load_edge(struct partition *partition, enum stmt which,
		     struct segment_info *info)
{
	struct conn *writer = partition->item.store->writer;
	sqlite3_stmt *stmt = conn_stmt(writer, which);
	int got;

	bind_int(stmt, 1, (int64_t)partition->item.id);
	got = conn_step(writer, stmt);
	if (got == 1) {
		if (segment_info_columns(stmt, info))
			got = conn_damaged(writer, "segments");
		sqlite3_reset(stmt);
	}
	return got;
}

int partition_load(struct partition *partition, sqlite3_stmt *row)
{
	struct item *item = &partition->item;
	struct segment_info oldest = { 0 }, newest = { 0 };
	int got, error = prepare_locked(partition);

	if (error)
		return error;
	partition->made_us = sqlite3_column_int64(row, 4);
	partition->modified_us = sqlite3_column_int64(row, 7);
	partition->first = sqlite3_column_int64(row, 5);
	partition->last = partition->first - 1;
	partition->first_position = (uint64_t)sqlite3_column_int64(row, 6);
	partition->end_position = partition->first_position;
	names_born_locked(&queue_of(item->parent)->partitions, item);
	if (partition->first < 0 || partition->first > COUNT_MAX ||
	    partition->first_position > COUNT_MAX || partition->made_us < 0 ||
	    partition->made_us > TIME_MAX_US || partition->modified_us < 0 ||
	    partition->modified_us > TIME_MAX_US)
		return conn_damaged(item->store->writer, "partitions");
	got = load_edge(partition, STMT_SEGMENT_LAST, &newest);
	if (got <= 0)
		return got;
	got = load_edge(partition, STMT_SEGMENT_FIRST, &oldest);
	if (got <= 0)
		return got < 0 ? got : conn_damaged(item->store->writer, "segments");
	if (oldest.base_offset > newest.base_offset ||
	    oldest.position > newest.position || oldest.number > newest.number)
		return conn_damaged(item->store->writer, "segments");
	partition->first = oldest.base_offset;
	partition->first_position = oldest.position;
	partition->oldest_end = oldest.end_offset;
	partition->oldest_us = oldest.created_us;
	partition->oldest_number = oldest.number;
	partition->last = newest.end_offset;
	partition->newest_base = newest.base_offset;
	partition->newest_number = newest.number;
	partition->end_position = newest.position + newest.size;
	partition->modified_us = newest.created_us;
	if (item->store->newest_us < newest.created_us)
		item->store->newest_us = newest.created_us;
	return 0;
}

struct item *partition_or_unborn_locked(struct item *queue, const char *name, int *error)
{
	struct names *names = &queue_of(queue)->partitions;
	struct item *item;

	if (names_find_locked(names, name, &item) == 0)
		return store_get(item);
	item = item_new(queue->store, queue, ITEM_PARTITION, name,
			&queue->access[QUEUE_DIR]);
	if (item && names_add_locked(names, item) == 0)
		return store_get(item); /* one for the names, one for the caller */
	store_put(item);
	*error = -ENOMEM;
	return NULL;
}

uint64_t partition_segments_locked(const struct partition *partition)
{
	return partition->last < partition->first
		       ? 0
		       : (uint64_t)(partition->newest_number - partition->oldest_number) +
				 1;
}

void store_partition_info(struct item *item, struct partition_info *info)
{
	struct partition *partition = partition_of(item);

	pthread_mutex_lock(&item->store->state);
	*info = (struct partition_info){
		.first_offset = partition->first,
		.last_offset = partition->last,
		.first_position = partition->first_position,
		.end_position = partition->end_position,
		.segments = partition_segments_locked(partition),
		.modified_us = partition->modified_us,
		.made_us = partition->made_us,
	};
	pthread_mutex_unlock(&item->store->state);
}
