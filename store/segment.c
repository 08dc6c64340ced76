/* SPDX-License-Identifier: MIT */
/*
 * segment.c - a segment's bytes and index: cache, load, search, read.
 *
 * 1. A segment is immutable, in the store and in memory; readers hold a reference.
 * 2. Within a partition base, created_us and position rise together, so any of them is
 *    found by halving the range of offsets: each probe is one seek on the primary key.
 * 3. Loading brings the segments that follow as well: a reader of many small ones pays one
 *    query for a run of them.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

#define CACHE_BYTES (8u << 20)
#define SEGMENT_OVERHEAD 64    /* of three allocations */
#define RUN_BYTES (256u << 10) /* how far a load reads on */
#define RUN_SEGMENTS 256
#define SEGMENT_SIZE_LIMIT (1u << 30) /* more than a commit can make */

/* ---- one segment ---------------------------------------------------------------------- */

struct segment *segment_new(uint64_t partition, const struct segment_info *info,
			    struct messages *messages)
{
	struct segment *segment = calloc(1, sizeof(*segment));

	if (!segment) {
		messages_free(messages);
		return NULL;
	}
	segment->refs = 1;
	segment->partition = partition;
	segment->info = *info;
	segment->data = messages->data;
	segment->ends = messages->ends;
	segment->meta = messages->meta;
	segment->meta_size = messages->meta_size;
	*messages = (struct messages){ 0 };
	return segment;
}

void segment_put_locked(struct segment *segment)
{
	if (!segment || --segment->refs > 0)
		return;
	free(segment->data);
	free(segment->ends);
	free(segment->meta);
	free(segment);
}

void segment_put(struct store *store, struct segment *segment)
{
	if (!segment)
		return;
	pthread_mutex_lock(&store->state);
	segment_put_locked(segment);
	pthread_mutex_unlock(&store->state);
}

void segment_message(const struct segment *segment, int64_t offset, uint32_t *from,
		     uint32_t *to)
{
	int64_t at = offset - segment->info.base_offset;

	*from = at > 0 ? segment->ends[at - 1] : 0;
	*to = segment->ends[at];
}

const char *segment_record(const struct segment *segment, int64_t offset, size_t *size)
{
	int64_t base = segment->info.base_offset;

	*size = 0;
	return segment->meta ? record_find(segment->meta,
					   (size_t)(segment->info.end_offset - base) + 1,
					   (size_t)(offset - base), size)
			     : NULL;
}

void segment_view(const struct segment *segment, int64_t offset, bool lines,
		  struct message *message)
{
	size_t size;
	const char *record = segment_record(segment, offset, &size);
	uint32_t from, to;

	segment_message(segment, offset, &from, &to);
	message->data = segment->data + from;
	message->size = to - from - (lines && to > from);
	message->offset = offset;
	message->created_us = segment->info.created_us;
	record_read(record, size, message);
}

/* ---- the cache ------------------------------------------------------------------------ */

static struct segment **bucket(struct segment_cache *cache, uint64_t partition,
			       int64_t base)
{
	uint64_t key = (partition * 0x9e3779b97f4a7c15u) ^
		       ((uint64_t)base * 0xff51afd7ed558ccdu);
	size_t count = sizeof(cache->buckets) / sizeof(*cache->buckets);

	return &cache->buckets[(key >> 32) % count];
}

static size_t weight(const struct segment *segment)
{
	int64_t count = segment->info.end_offset - segment->info.base_offset + 1;

	return sizeof(*segment) + SEGMENT_OVERHEAD + segment->info.size +
	       segment->meta_size + (size_t)count * sizeof(uint32_t);
}

static struct segment *cached_locked(struct store *store, uint64_t partition,
				     int64_t base)
{
	struct segment *segment = *bucket(&store->cache, partition, base);

	while (segment &&
	       (segment->partition != partition || segment->info.base_offset != base))
		segment = segment->hash_next;
	return segment;
}

static void evict_locked(struct store *store, struct segment *segment)
{
	struct segment **at =
		bucket(&store->cache, segment->partition, segment->info.base_offset);

	while (*at != segment)
		at = &(*at)->hash_next;
	*at = segment->hash_next;
	TAILQ_REMOVE(&store->cache.lru, segment, lru);
	store->cache.bytes -= weight(segment);
	segment_put_locked(segment);
}

void cache_add_locked(struct store *store, struct segment *segment)
{
	struct segment_cache *cache = &store->cache;
	struct segment **at =
		bucket(cache, segment->partition, segment->info.base_offset);

	if (cached_locked(store, segment->partition, segment->info.base_offset))
		return;
	segment->refs++;
	segment->hash_next = *at;
	*at = segment;
	TAILQ_INSERT_TAIL(&cache->lru, segment, lru);
	cache->bytes += weight(segment);
	while (cache->bytes > CACHE_BYTES && TAILQ_FIRST(&cache->lru) != segment)
		evict_locked(store, TAILQ_FIRST(&cache->lru));
}

void cache_forget_locked(struct store *store, uint64_t partition, int64_t base)
{
	struct segment *segment = cached_locked(store, partition, base);

	if (segment)
		evict_locked(store, segment);
}

/* Who loads a segment has mostly just read the one before it. A large one goes at once: the
 * next is then read into memory that the processor still has in its own cache. */
static void passed_forget_locked(struct store *store, const struct segment *loaded)
{
	struct segment *passed = TAILQ_LAST(&store->cache.lru, segment_list);

	if (passed && passed->partition == loaded->partition &&
	    passed->info.end_offset + 1 == loaded->info.base_offset &&
	    passed->info.size >= RUN_BYTES)
		evict_locked(store, passed);
}

void cache_clear(struct store *store)
{
	pthread_mutex_lock(&store->state);
	/* The analyzer does not see that TAILQ_REMOVE takes out what is freed. */
	while (!TAILQ_EMPTY(&store->cache.lru)) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		evict_locked(store, TAILQ_FIRST(&store->cache.lru));
	}
	pthread_mutex_unlock(&store->state);
}

static bool contains(const struct segment *segment, int64_t offset)
{
	return segment && segment->info.base_offset <= offset &&
	       offset <= segment->info.end_offset;
}

struct segment *cache_find_locked(struct store *store, struct partition *partition,
				  int64_t offset, int64_t hint)
{
	uint64_t id = partition->item.id;
	struct segment *segment = cached_locked(store, id, hint);

	if (!contains(segment, offset))
		segment = cached_locked(store, id, offset);
	if (!contains(segment, offset))
		return tail_find_locked(store, partition, TAIL_OFFSET, offset);
	segment->refs++;
	TAILQ_REMOVE(&store->cache.lru, segment, lru);
	TAILQ_INSERT_TAIL(&store->cache.lru, segment, lru);
	return segment;
}

/* ---- from the store ------------------------------------------------------------------- */

int segment_info_columns(sqlite3_stmt *stmt, struct segment_info *out)
{
	struct segment_info info = {
		.base_offset = sqlite3_column_int64(stmt, 0),
		.end_offset = sqlite3_column_int64(stmt, 1),
		.created_us = sqlite3_column_int64(stmt, 2),
		.position = (uint64_t)sqlite3_column_int64(stmt, 3),
		.size = (uint64_t)sqlite3_column_int64(stmt, 4),
		.number = sqlite3_column_int64(stmt, 5),
	};

	if (info.base_offset < 0 || info.end_offset < info.base_offset ||
	    info.end_offset > COUNT_MAX || info.position > COUNT_MAX ||
	    info.size > SEGMENT_SIZE_LIMIT || info.number < 0 ||
	    info.number > COUNT_MAX || info.created_us < 0 ||
	    info.created_us > TIME_MAX_US)
		return -EIO;
	*out = info;
	return 0;
}

/* The bytes of a body straight into the buffer: a column would be copied once more. */
static int body_read(struct conn *conn, int64_t body, char *data, size_t size)
{
	sqlite3_blob *blob;
	int code = sqlite3_blob_open(conn->db, "main", "bodies", "data", body, 0, &blob);

	if (code != SQLITE_OK)
		return conn_fail(conn, code);
	if ((size_t)sqlite3_blob_bytes(blob) != size)
		code = SQLITE_CORRUPT;
	else
		code = sqlite3_blob_read(blob, data, (int)size, 0);
	if (code != SQLITE_OK)
		conn_fail(conn, code);
	sqlite3_blob_close(blob);
	return code == SQLITE_OK ? 0 : -EIO;
}

static int ends_read(const void *packed, size_t count, size_t size, uint32_t *ends)
{
	uint32_t last = 0;

	memcpy(ends, packed, count * sizeof(uint32_t));
	for (size_t i = 0; i < count; i++) {
		ends[i] = le32toh(ends[i]);
		if (ends[i] < last || ends[i] > size)
			return -EIO;
		last = ends[i];
	}
	return last == size ? 0 : -EIO;
}

/* Reads a row of STMT_SEGMENT_RUN; what does not add up was damaged on disk: EIO. */
static int segment_row(struct conn *conn, sqlite3_stmt *stmt, uint64_t partition,
		       struct segment **out)
{
	enum { BODY = 6, DATA, ENDS, META };
	bool here = sqlite3_column_type(stmt, BODY) == SQLITE_NULL;
	const void *packed = sqlite3_column_blob(stmt, ENDS);
	size_t count = (size_t)sqlite3_column_bytes(stmt, ENDS) / sizeof(uint32_t);
	const void *meta = sqlite3_column_blob(stmt, META);
	struct messages read = { .meta_size = (size_t)sqlite3_column_bytes(stmt, META) };
	struct segment_info info = { 0 };
	int error;

	if (segment_info_columns(stmt, &info) || !packed ||
	    (uint64_t)(info.end_offset - info.base_offset) + 1 != count ||
	    (here && (uint64_t)sqlite3_column_bytes(stmt, DATA) != info.size) ||
	    (meta && !meta_valid(meta, read.meta_size, count)))
		return -EIO;
	read.ends = malloc(count * sizeof(uint32_t));
	read.data = malloc(info.size + 1);
	read.meta = meta ? malloc(read.meta_size) : NULL;
	error = read.ends && read.data && (read.meta || !meta)
			? ends_read(packed, count, info.size, read.ends)
			: -ENOMEM;
	if (!error && meta)
		memcpy(read.meta, meta, read.meta_size);
	if (!error && !here)
		error = body_read(conn, sqlite3_column_int64(stmt, BODY), read.data,
				  info.size);
	else if (!error && info.size)
		memcpy(read.data, sqlite3_column_blob(stmt, DATA), info.size);
	if (error) {
		messages_free(&read);
		return error;
	}
	*out = segment_new(partition, &info, &read);
	return *out ? 0 : -ENOMEM;
}

int segment_load_from(struct store *store, struct conn *conn, struct partition *partition,
		      int64_t offset, struct segment **out)
{
	struct segment *first = NULL, *segment;
	sqlite3_stmt *stmt;
	size_t bytes = 0;
	int got, error = 0;

	stmt = conn_stmt(conn, STMT_SEGMENT_RUN);
	bind_int(stmt, 1, (int64_t)partition->item.id);
	bind_int(stmt, 2, offset);
	for (int i = 0; i < RUN_SEGMENTS && bytes < RUN_BYTES; i++) {
		got = conn_step(conn, stmt);
		error = got == 1 ? segment_row(conn, stmt, partition->item.id, &segment)
				 : got;
		if (got != 1 || error)
			break;
		bytes += segment->info.size + segment->meta_size;
		pthread_mutex_lock(&store->state);
		if (!first)
			passed_forget_locked(store, segment);
		cache_add_locked(store, segment);
		if (first)
			segment_put_locked(segment);
		else
			first = segment;
		pthread_mutex_unlock(&store->state);
	}
	sqlite3_reset(stmt);
	if (first && !contains(first, offset)) {
		segment_put(store, first);
		first = NULL;
	}
	if (!first)
		return error ? error : -ENOENT;
	*out = first;
	return 0;
}

int segment_load(struct store *store, struct partition *partition, int64_t offset,
		 struct segment **out)
{
	struct conn *conn;
	int error = db_read_begin(store, &conn);

	if (error)
		return error;
	error = segment_load_from(store, conn, partition, offset, out);
	db_read_end(store, conn);
	return error;
}

/* ---- search --------------------------------------------------------------------------- */

int segment_at(struct conn *conn, enum stmt which, uint64_t partition, int64_t offset,
	       struct segment_info *info)
{
	sqlite3_stmt *stmt = conn_stmt(conn, which);
	int got;

	bind_int(stmt, 1, (int64_t)partition);
	bind_int(stmt, 2, offset);
	got = conn_step(conn, stmt);
	if (got == 1) {
		if (segment_info_columns(stmt, info))
			got = -EIO;
		sqlite3_reset(stmt);
	}
	return got;
}

static bool reaches(const struct segment_info *info, enum segment_key key, int64_t value)
{
	return key == BY_TIME ? info->created_us >= value
			      : info->position + info->size > (uint64_t)value;
}

int segment_search(struct conn *conn, uint64_t partition, int64_t low, int64_t high,
		   enum segment_key key, int64_t value, struct segment_info *found)
{
	struct segment_info info = { 0 };
	int got, any = 0;

	while (low <= high) {
		got = segment_at(conn, STMT_SEGMENT_AT, partition, low + (high - low) / 2,
				 &info);
		if (got < 0)
			return got;
		if (got == 0 || info.end_offset < low)
			break; /* removed meanwhile */
		if (info.base_offset > high)
			return -EIO; /* none that was asked for */
		if (reaches(&info, key, value)) {
			*found = info;
			any = 1;
			high = info.base_offset - 1;
		} else {
			low = info.end_offset + 1;
		}
	}
	return any;
}

static int lookup(struct item *item, enum stmt which, int64_t offset,
		  struct segment_info *info)
{
	struct store *store = item->store;
	struct partition_info now;
	struct segment_info found = { 0 };
	struct segment *segment;
	struct conn *conn;
	int got, error;

	pthread_mutex_lock(&store->state);
	segment = tail_find_locked(store, partition_of(item),
				   which == STMT_SEGMENT_AT ? TAIL_OFFSET : TAIL_NEXT,
				   offset);
	if (segment)
		found = segment->info;
	segment_put_locked(segment);
	pthread_mutex_unlock(&store->state);
	if (segment && which == STMT_SEGMENT_AT) {
		*info = found;
		return 0;
	}
	error = db_read_begin(store, &conn);
	if (error)
		return error;
	got = segment_at(conn, which, item->id, offset, &found);
	db_read_end(store, conn);
	if (got < 0)
		return got;
	if (got == 1 && which == STMT_SEGMENT_FROM && found.base_offset < offset)
		return -EIO;  /* none that was asked for: a listing would not end */
	got = got || segment; /* what SQLite has is older than what the tail had */
	/* What a commit under way has written is not there yet, nor what one has removed. */
	store_partition_info(item, &now);
	if (got == 0 || found.base_offset > now.last_offset ||
	    found.base_offset < now.first_offset)
		return -ENOENT;
	*info = found;
	return 0;
}

int store_segment(struct item *partition, int64_t base, struct segment_info *info)
{
	struct segment_info found = { 0 };
	int error = lookup(partition, STMT_SEGMENT_FROM, base, &found);

	if (error)
		return error;
	if (found.base_offset != base)
		return -ENOENT;
	*info = found;
	return 0;
}

int store_segment_of(struct item *partition, int64_t offset, struct segment_info *info)
{
	return lookup(partition, STMT_SEGMENT_AT, offset, info);
}

int store_segment_next(struct item *partition, int64_t after, struct segment_info *info)
{
	return lookup(partition, STMT_SEGMENT_FROM, after + 1, info);
}

/* ---- the log -------------------------------------------------------------------------- */

/* The segment that holds a byte position between first and end, with a reference. */
static int segment_of_position(struct store *store, struct partition *partition,
			       const struct partition_info *now, uint64_t position,
			       int64_t hint, struct segment **out)
{
	struct segment *segment;
	struct segment_info info = { 0 };
	struct conn *conn;
	int64_t last = now->last_offset; /* that SQLite has */
	int got;

	pthread_mutex_lock(&store->state);
	segment = cached_locked(store, partition->item.id, hint);
	if (segment && segment->info.position + segment->info.size == position)
		segment = cached_locked(store, partition->item.id,
					segment->info.end_offset + 1);
	if (segment && segment->info.position <= position &&
	    position < segment->info.position + segment->info.size)
		segment->refs++;
	else
		segment = tail_find_locked(store, partition, TAIL_POSITION,
					   (int64_t)position);
	if (partition->tail_base != INT64_MAX && partition->tail_base <= last)
		last = partition->tail_base - 1;
	pthread_mutex_unlock(&store->state);
	if (segment) {
		*out = segment;
		return 0;
	}
	got = db_read_begin(store, &conn);
	if (got)
		return got;
	got = segment_search(conn, partition->item.id, now->first_offset, last,
			     BY_POSITION, (int64_t)position, &info);
	db_read_end(store, conn);
	if (got <= 0 || info.position > position) /* one that follows: it has just gone */
		return got < 0 ? got : -ENOENT;
	return segment_load(store, partition, info.base_offset, out);
}

int segment_missing_locked(struct store *store, const struct partition *partition,
			   int64_t offset)
{
	while (partition->removing)
		pthread_cond_wait(&store->removed, &store->state);
	return partition->first > offset ? 0 : -EIO;
}

ssize_t store_log_read(struct item *item, uint64_t position, _Atomic int64_t *hint,
		       char *buffer, size_t size)
{
	struct partition *partition = partition_of(item);
	struct partition_info now;
	struct segment *segment;
	size_t copied = 0;
	int error = store_dropped(item) ? -ESTALE : 0;

	while (!error && copied < size) {
		size_t from, piece;
		store_partition_info(item, &now);
		if (position < now.first_position)
			error = -ESTALE;
		if (error || position >= now.end_position)
			break;
		error = segment_of_position(item->store, partition, &now, position, *hint,
					    &segment);
		if (error == -ENOENT) { /* removed between looking and loading */
			pthread_mutex_lock(&item->store->state);
			error = segment_missing_locked(item->store, partition,
						       now.first_offset);
			pthread_mutex_unlock(&item->store->state);
			if (!error)
				continue; /* and ESTALE if it was this part */
		}
		if (error)
			break;
		from = (size_t)(position - segment->info.position);
		piece = (size_t)segment->info.size - from;
		if (piece > size - copied)
			piece = size - copied;
		memcpy(buffer + copied, segment->data + from, piece);
		copied += piece;
		position += piece;
		*hint = segment->info.base_offset;
		segment_put(item->store, segment);
	}
	return copied > 0 ? (ssize_t)copied : error;
}
