/* SPDX-License-Identifier: MIT */
/*
 * tail.c - pushes that SQLite does not have yet.
 *
 * A push needs no transaction of its own: one write(2) to a small file beside the store does
 * for durability os, since the kernel has it then, and with an fdatasync for disk. So a batch
 * of plain pushes is appended there and published. SQLite gets all of the file at once, in
 * front of whatever the next ordinary transaction does: of anything but a plain push, at the
 * latest after TAIL_US, or when the file is full. A page of each partition is then written
 * once for many messages.
 *
 * 1. Segments of the tail are newer than those of their partition in SQLite. Who looks one up
 *    asks here first (tail_find_locked) and SQLite then: what is not here any more is there.
 * 2. The committing role sees the tail in SQLite: every ordinary transaction begins with it.
 * 3. A record has a number, one more than the one before, and a checksum. At start records
 *    count from the number on that stands in the store, as long as they follow one another
 *    and the partition's last offset; so what a power loss takes is a suffix. With
 *    durability disk it takes nothing: the file is written anew only when the transaction
 *    that brought it into SQLite has been synced. The records of a batch count together or
 *    not at all, since a write may be in several of them.
 * 4. Numbers jump at each start, durably. After a power loss the file may hold, behind what
 *    counted, records that did not; what is written now must never be followed by one of
 *    those.
 * 5. What was refused is not left in the file, or else the next transaction passes its number.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store_int.h"

#define TAIL_BYTES (1u << 20) /* so much is in SQLite within a few milliseconds */
#define TAIL_US 100000
#define NUMBER_KEY "tail_number" /* of meta: the last record that SQLite has */

/* Before the ends, the bytes and the meta of a segment; of this machine, in its order. */
struct record {
	uint64_t number, checksum; /* of all but the checksum itself */
	uint64_t partition;
	int64_t base, created_us, segment; /* its number in its partition */
	uint64_t position;
	uint32_t count, size, meta_size;
	uint32_t more; /* records of its batch that follow */
};

struct tail_node {
	struct segment *segment;     /* a reference */
	struct partition *partition; /* stays while the tail has something of it */
};

struct tail {
	int fd;
	uint64_t number; /* of the last record written */
	size_t used;	 /* bytes of the file */
	bool spoilt;	 /* it holds what was refused; under state */
	int64_t since_us;
	struct buffer buffer; /* what is being written */
	struct tail_node *nodes;
	size_t count, room; /* count under state */
};

/* FNV-1a over words: a record is written whole or not, or its pages are another age's. */
static uint64_t checksum(const struct record *record, const char *body)
{
	size_t size = record->count * sizeof(uint32_t) + record->size + record->meta_size;
	uint64_t sum = 14695981039346656037u, word;
	struct record head = *record;

	head.checksum = 0;
	for (size_t i = 0; i < sizeof(head); i += sizeof(word)) {
		memcpy(&word, (const char *)&head + i, sizeof(word));
		sum = (sum ^ word) * 1099511628211u;
	}
	for (; size >= sizeof(word); size -= sizeof(word), body += sizeof(word)) {
		memcpy(&word, body, sizeof(word));
		sum = (sum ^ word) * 1099511628211u;
	}
	for (; size > 0; size--, body++)
		sum = (sum ^ (unsigned char)*body) * 1099511628211u;
	return sum ^ sum >> 32;
}

/* ---- writing --------------------------------------------------------------------------- */

static size_t record_bytes(size_t count, size_t size, size_t meta_size)
{
	return sizeof(struct record) + count * sizeof(uint32_t) + size + meta_size;
}

bool tail_fits(struct store *store, const struct messages *messages, size_t *sum)
{
	*sum += record_bytes(messages->count, messages->size, messages->meta_size);
	return store->tail && !store->tail->spoilt &&
	       store->tail->used + *sum <= TAIL_BYTES;
}

/* Has it something that SQLite should know of? */
static bool tail_holds(const struct tail *tail)
{
	return tail && (tail->count > 0 || tail->spoilt);
}

bool tail_due_locked(const struct store *store)
{
	return tail_holds(store->tail) &&
	       monotonic_us() - store->tail->since_us >= TAIL_US;
}

bool tail_empty(const struct store *store)
{
	return !tail_holds(store->tail);
}

void tail_hasten_locked(struct store *store)
{
	if (store->tail)
		store->tail->since_us = 0;
}

int64_t tail_next_locked(const struct store *store)
{
	return tail_holds(store->tail) ? store->tail->since_us + TAIL_US : INT64_MAX;
}

static int nodes_reserve(struct tail *tail, const struct segment_list *made)
{
	const struct segment *segment;
	size_t count = tail->count, room = tail->room ? tail->room : 64;
	struct tail_node *nodes;

	TAILQ_FOREACH(segment, made, lru) count++;
	while (room < count)
		room *= 2;
	if (room == tail->room)
		return 0;
	nodes = realloc(tail->nodes, room * sizeof(*nodes));
	if (!nodes)
		return -ENOMEM;
	tail->nodes = nodes;
	tail->room = room;
	return 0;
}

static int record_add(struct tail *tail, const struct segment *segment, uint64_t number,
		      uint32_t more)
{
	const struct segment_info *info = &segment->info;
	struct record record = {
		.number = number,
		.partition = segment->partition,
		.base = info->base_offset,
		.created_us = info->created_us,
		.segment = info->number,
		.position = info->position,
		.count = (uint32_t)(info->end_offset - info->base_offset) + 1,
		.size = (uint32_t)info->size,
		.meta_size = (uint32_t)segment->meta_size,
		.more = more,
	};
	size_t at = tail->buffer.size;
	int error = buffer_add(&tail->buffer, (const char *)&record, sizeof(record));

	if (!error)
		error = buffer_add(&tail->buffer, (const char *)segment->ends,
				   record.count * sizeof(uint32_t));
	if (!error)
		error = buffer_add(&tail->buffer, segment->data, record.size);
	if (!error)
		error = buffer_add(&tail->buffer, segment->meta, record.meta_size);
	if (error)
		return error;
	record.checksum = checksum(&record, tail->buffer.data + at + sizeof(record));
	memcpy(tail->buffer.data + at, &record, sizeof(record));
	return 0;
}

static void refused_remove(struct store *store, uint64_t number)
{
	struct tail *tail = store->tail;

	/* What was not synced may be on the disk even so. */
	if (ftruncate(tail->fd, (off_t)tail->used) == 0 && !store->disk)
		return;
	pthread_mutex_lock(&store->state);
	tail->spoilt = true;
	tail->number = number;
	pthread_mutex_unlock(&store->state);
}

int tail_write(struct store *store, const struct segment_list *made)
{
	struct tail *tail = store->tail;
	const struct segment *segment;
	uint64_t number = tail->number;
	uint32_t more = 0;
	ssize_t put;
	int error = nodes_reserve(tail, made);

	tail->buffer.size = 0;
	TAILQ_FOREACH(segment, made, lru) more++;
	TAILQ_FOREACH(segment, made, lru)
	if (!error)
		error = record_add(tail, segment, ++number, --more);
	if (error)
		return conn_fail(store->writer, SQLITE_NOMEM);
	put = pwrite(tail->fd, tail->buffer.data, tail->buffer.size, (off_t)tail->used);
	if (put != (ssize_t)tail->buffer.size)
		error = put < 0 ? errno : EIO;
	else if (store->disk && fdatasync(tail->fd) < 0)
		error = errno;
	if (error) {
		error = conn_fail_errno(store->writer, error);
		refused_remove(store, number);
		return error;
	}
	tail->used += tail->buffer.size;
	tail->number = number;
	return 0;
}

void tail_publish_locked(struct store *store, struct partition *partition,
			 struct segment *segment)
{
	struct tail *tail = store->tail;

	if (tail->count == 0) {
		tail->since_us = monotonic_us();
		timer_at_locked(store, tail->since_us + TAIL_US);
	}
	segment->refs++;
	tail->nodes[tail->count++] = (struct tail_node){ segment, partition };
	if (partition->tail_base == INT64_MAX)
		partition->tail_base = segment->info.base_offset;
}

/* ---- finding ----------------------------------------------------------------------------- */

struct segment *tail_find_locked(struct store *store, const struct partition *partition,
				 enum tail_key key, int64_t value)
{
	const struct tail *tail = store->tail;

	if (partition->tail_base == INT64_MAX ||
	    (key == TAIL_OFFSET && value < partition->tail_base))
		return NULL;
	for (size_t i = 0; i < tail->count; i++) {
		struct segment *segment = tail->nodes[i].segment;
		const struct segment_info *info = &segment->info;
		if (tail->nodes[i].partition != partition)
			continue;
		if (key == TAIL_OFFSET
			    ? info->base_offset <= value && value <= info->end_offset
		    : key == TAIL_NEXT
			    ? info->base_offset >= value
			    : info->position <= (uint64_t)value &&
				      (uint64_t)value < info->position + info->size) {
			segment->refs++;
			return segment;
		}
	}
	return NULL;
}

/* ---- into SQLite --------------------------------------------------------------------------- */

static int number_write(struct store *store, uint64_t number)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_META_SET);

	bind_text(stmt, 1, NUMBER_KEY);
	bind_int(stmt, 2, (int64_t)number);
	return conn_run(store->writer, stmt);
}

void tail_fold(struct store *store)
{
	struct tail *tail = store->tail;

	if (!tail_holds(tail))
		return;
	for (size_t i = 0; i < tail->count && !store->writer->error; i++)
		segment_write(store, tail->nodes[i].segment);
	if (!store->writer->error)
		number_write(store, tail->number);
}

void tail_folded(struct store *store, bool committed)
{
	struct tail *tail = store->tail;

	if (!tail_holds(tail))
		return;
	pthread_mutex_lock(&store->state);
	tail->since_us = monotonic_us(); /* what could not be written is tried again */
	for (size_t i = 0; committed && i < tail->count; i++) {
		tail->nodes[i].partition->tail_base = INT64_MAX;
		segment_put_locked(tail->nodes[i].segment);
	}
	if (committed) {
		tail->count = tail->used = 0;
		tail->spoilt = false;
	}
	pthread_mutex_unlock(&store->state);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Ends and records are read without a look once they are in a segment. */
static bool body_valid(const struct record *record, const char *body)
{
	size_t ends = record->count * sizeof(uint32_t);
	uint32_t end, last = 0;

	for (size_t i = 0; i < record->count; i++, last = end) {
		memcpy(&end, body + i * sizeof(end), sizeof(end));
		if (end < last)
			return false;
	}
	return last == record->size && record->base <= COUNT_MAX &&
	       record->position <= COUNT_MAX && record->segment >= 0 &&
	       record->segment <= COUNT_MAX && record->created_us >= 0 &&
	       record->created_us <= TIME_MAX_US &&
	       (!record->meta_size ||
		meta_valid(body + ends + record->size, record->meta_size, record->count));
}

/* 1 the record's segment follows what the store has, 0 it does not, -errno. */
static int follows(struct store *store, const struct record *record)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_PARTITION_END);
	int got;

	bind_int(stmt, 1, (int64_t)record->partition);
	got = conn_step(store->writer, stmt);
	if (got != 1)
		return got;
	got = sqlite3_column_int64(stmt, 0) == record->base;
	sqlite3_reset(stmt);
	return got;
}

static int record_replay(struct store *store, const struct record *record,
			 const char *body)
{
	size_t ends = record->count * sizeof(uint32_t);
	struct segment_info info = { .base_offset = record->base,
				     .end_offset = record->base + record->count - 1,
				     .created_us = record->created_us,
				     .number = record->segment,
				     .position = record->position,
				     .size = record->size };
	struct messages messages = { .ends = malloc(ends + 1),
				     .data = malloc(record->size + 1u),
				     .meta = record->meta_size ? malloc(record->meta_size)
							       : NULL,
				     .meta_size = record->meta_size };
	struct segment *segment = NULL;

	if (messages.ends && messages.data && (messages.meta || !messages.meta_size)) {
		memcpy(messages.ends, body, ends);
		memcpy(messages.data, body + ends, record->size);
		if (messages.meta)
			memcpy(messages.meta, body + ends + record->size,
			       record->meta_size);
		segment = segment_new(record->partition, &info, &messages);
	}
	messages_free(&messages);
	if (!segment)
		return conn_fail(store->writer, SQLITE_NOMEM);
	segment_write(store, segment);
	segment_put(store, segment);
	return store->writer->error;
}

/* Bytes of the record at a position, if it is whole and has this number; else 0. */
static size_t record_whole(const char *text, size_t size, size_t at, uint64_t number,
			   struct record *record)
{
	size_t bytes;

	if (at > size || size - at < sizeof(*record))
		return 0;
	memcpy(record, text + at, sizeof(*record));
	bytes = record_bytes(record->count, record->size, record->meta_size);
	if (record->number != number || record->count == 0 || bytes > size - at ||
	    checksum(record, text + at + sizeof(*record)) != record->checksum ||
	    !body_valid(record, text + at + sizeof(*record)))
		return 0;
	return bytes;
}

/* How many records the batch at a position has, the first with this number; 0: not whole. */
static uint32_t batch_whole(const char *text, size_t size, size_t at, uint64_t number)
{
	struct record record = { .more = 1 };
	uint32_t count = 0;

	for (size_t bytes; record.more > 0; at += bytes, count++) {
		bytes = record_whole(text, size, at, number + count, &record);
		if (bytes == 0)
			return 0;
	}
	return count;
}

/* Behind the records at the head of the file that SQLite has. */
static size_t known_skip(const char *text, size_t size, uint64_t number)
{
	struct record record;
	size_t at = 0, bytes;

	for (; size - at >= sizeof(record); at += bytes) {
		memcpy(&record, text + at, sizeof(record));
		bytes = record_bytes(record.count, record.size, record.meta_size);
		if (record.number == 0 || record.number > number || bytes > size - at)
			break;
	}
	return at;
}

/* Brings in what follows the record with this number, in a transaction; the file is `text`. */
static int replay(struct store *store, const char *text, size_t size, uint64_t number)
{
	struct conn *writer = store->writer;
	struct record record = { 0 };
	size_t at = known_skip(text, size, number);
	uint32_t count;
	int got = 1;

	conn_run(writer, conn_stmt(writer, STMT_BEGIN));
	while (!writer->error && got == 1 &&
	       (count = batch_whole(text, size, at, number + 1)) > 0)
		for (; count > 0 && got == 1 && !writer->error; count--) {
			size_t bytes = record_whole(text, size, at, ++number, &record);
			got = bytes > 0 ? follows(store, &record) : 0;
			if (got == 1)
				record_replay(store, &record, text + at + sizeof(record));
			at += bytes;
		}
	store->tail->number = number + TAIL_BYTES; /* more than a file has records */
	if (!writer->error)
		number_write(store, store->tail->number);
	if (!writer->error)
		conn_run(writer, conn_stmt(writer, STMT_COMMIT));
	if (writer->error && !sqlite3_get_autocommit(writer->db))
		conn_run(writer, conn_stmt(writer, STMT_ROLLBACK));
	/* Before the file is written over: what a power loss has left is not lost by the next,
	 * and no later start jumps to a number that was given out. */
	if (!writer->error)
		wal_sync(store);
	return writer->error;
}

static int file_read(int fd, char **text, size_t *size)
{
	ssize_t got;

	*text = malloc(TAIL_BYTES);
	if (!*text)
		return -ENOMEM;
	got = pread(fd, *text, TAIL_BYTES, 0);
	*size = got > 0 ? (size_t)got : 0;
	return got < 0 ? -errno : 0;
}

static int number_read(struct store *store, uint64_t *number)
{
	sqlite3_stmt *row;
	int got = meta_find(store, NUMBER_KEY, &row);

	*number = got == 1 ? (uint64_t)sqlite3_column_int64(row, 0) : 0;
	if (got == 1)
		sqlite3_reset(row);
	return got < 0 ? got : 0;
}

/* Its room is there before it is needed; and for syncs written once, so that they need write
 * no more than the bytes. */
static int room_take(const struct store *store)
{
	int fd = store->tail->fd;

	if (!store->disk)
		return posix_fallocate(fd, 0, TAIL_BYTES);
	return zeros_write(fd, 0, TAIL_BYTES) || fsync(fd) < 0;
}

int tail_open(struct store *store, struct store_why *why)
{
	uint64_t number = 0;
	char *path, *text = NULL;
	size_t size = 0;
	int error = number_read(store, &number);

	if (error)
		return error;
	store->tail = calloc(1, sizeof(*store->tail));
	if (!store->tail || asprintf(&path, "%s-tail", store->path) < 0)
		return -ENOMEM;
	store->tail->number = number;
	store->tail->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (store->tail->fd < 0)
		error = why_set(why, -errno, "%s: %s", path, strerror(errno));
	if (!error)
		error = file_read(store->tail->fd, &text, &size);
	if (!error && size > 0)
		error = replay(store, text, size, number);
	if (error == -ENOSPC && store->writer->error && !store->full) {
		reserve_free(store);
		store->full = true;
		conn_error_clear(store->writer);
		error = replay(store, text, size, number);
	}
	free(text);
	if (error)
		why_set(why, error, "%s: %s", path,
			store->writer->error ? store->writer->why.text
					     : strerror(-error));
	free(path);
	if (!error && room_take(store))
		tail_close(store); /* the disk is full, and pushes wait anyway */
	return error;
}

void tail_close(struct store *store)
{
	struct tail *tail = store->tail;

	if (!tail)
		return;
	for (size_t i = 0; i < tail->count; i++) /* the next start brings them in */
		segment_put(store, tail->nodes[i].segment);
	if (tail->fd >= 0)
		close(tail->fd);
	free(tail->buffer.data);
	free(tail->nodes);
	free(tail);
	store->tail = NULL;
}
