/* SPDX-License-Identifier: MIT */
/*
 * messages.c - messages side by side, as they are pushed and as a segment holds them.
 *
 * What a message has besides its bytes stands in meta, which is NULL where none of them has
 * anything: for each message the place where its record ends, counted from the end of these
 * numbers (32-bit little-endian), then the records. A record is empty, or a byte of flags, a
 * byte with the length of the transactionId, that, and the attributes.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

void messages_free(struct messages *messages)
{
	free(messages->data);
	free(messages->ends);
	free(messages->meta);
	*messages = (struct messages){ 0 };
}

/* ---- records ----------------------------------------------------------------------------- */

enum { META_JSON = 1, META_HEAD = 2 };

static uint32_t meta_end(const char *meta, size_t at)
{
	uint32_t end;

	memcpy(&end, meta + at * sizeof(end), sizeof(end));
	return le32toh(end);
}

static void meta_end_set(char *meta, size_t at, uint32_t end)
{
	end = htole32(end);
	memcpy(meta + at * sizeof(end), &end, sizeof(end));
}

const char *record_find(const char *meta, size_t count, size_t at, size_t *size)
{
	uint32_t from = at > 0 ? meta_end(meta, at - 1) : 0;

	*size = meta_end(meta, at) - from;
	return meta + count * sizeof(uint32_t) + from;
}

bool record_fits(const unsigned char *record, size_t size)
{
	return size >= META_HEAD && size - META_HEAD >= record[1];
}

void record_read(const char *record, size_t size, struct message *message)
{
	message->json = false;
	message->transaction = message->attributes = NULL;
	message->transaction_size = message->attributes_size = 0;
	if (size == 0)
		return;
	message->json = record[0] & META_JSON;
	message->transaction_size = (unsigned char)record[1];
	if (message->transaction_size)
		message->transaction = record + META_HEAD;
	message->attributes_size = size - META_HEAD - message->transaction_size;
	if (message->attributes_size)
		message->attributes = record + META_HEAD + message->transaction_size;
}

static int meta_add(const struct message *message, struct buffer *records)
{
	const char head[META_HEAD] = { message->json ? META_JSON : 0,
				       (char)message->transaction_size };
	int error;

	if (!message->json && !message->transaction_size && !message->attributes_size)
		return 0;
	error = buffer_add(records, head, sizeof(head));
	if (!error)
		error = buffer_add(records, message->transaction,
				   message->transaction_size);
	if (!error)
		error = buffer_add(records, message->attributes,
				   message->attributes_size);
	return error;
}

bool meta_valid(const char *meta, size_t size, size_t count)
{
	size_t head = count * sizeof(uint32_t), from = 0, end;

	if (size < head)
		return false;
	for (size_t i = 0; i < count; i++, from = end) {
		const unsigned char *record = (const unsigned char *)meta + head + from;
		end = meta_end(meta, i);
		if (end < from || end > size - head)
			return false;
		if (end > from && !record_fits(record, end - from))
			return false;
	}
	return from == size - head;
}

/* ---- making -------------------------------------------------------------------------------- */

static int grow(uint32_t **numbers, uint32_t count)
{
	uint32_t *more = array_grown(*numbers, count, sizeof(*more));

	if (!more)
		return -ENOMEM;
	*numbers = more;
	return 0;
}

int maker_add(struct maker *maker, const struct message *message, bool lines)
{
	int error = grow(&maker->ends, maker->count);

	if (!error)
		error = grow(&maker->record_ends, maker->count);
	if (!error)
		error = buffer_add(&maker->data, message->data, message->size);
	if (!error && lines)
		error = buffer_add(&maker->data, "\n", 1);
	if (!error)
		error = meta_add(message, &maker->records);
	if (error)
		return error;
	maker->ends[maker->count] = (uint32_t)maker->data.size;
	maker->record_ends[maker->count++] = (uint32_t)maker->records.size;
	return 0;
}

void maker_free(struct maker *maker)
{
	free(maker->data.data);
	free(maker->records.data);
	free(maker->ends);
	free(maker->record_ends);
	*maker = (struct maker){ 0 };
}

int maker_take(struct maker *maker, bool lines, struct messages *out)
{
	struct messages made = { .size = maker->data.size,
				 .count = maker->count,
				 .lines = lines };
	size_t head = maker->count * sizeof(uint32_t);

	if (maker->records.size > 0) {
		made.meta_size = head + maker->records.size;
		made.meta = malloc(made.meta_size);
		if (!made.meta)
			return -ENOMEM;
		for (uint32_t i = 0; i < maker->count; i++)
			meta_end_set(made.meta, i, maker->record_ends[i]);
		memcpy(made.meta + head, maker->records.data, maker->records.size);
	}
	made.data = maker->data.data;
	made.ends = maker->ends;
	maker->data.data = NULL;
	maker->ends = NULL;
	maker_free(maker);
	if (!made.data) /* nothing but empty ones of file framing */
		made.data = calloc(1, 1);
	*out = made;
	if (made.data)
		return 0;
	messages_free(out);
	return -ENOMEM;
}

int messages_pick(const struct messages *all, const uint32_t *which, uint32_t count,
		  struct messages *picked)
{
	struct maker maker = { 0 };
	int error = 0;

	for (uint32_t i = 0; i < count && !error; i++) {
		uint32_t at = which[i], from = at ? all->ends[at - 1] : 0;
		struct message message = { .data = all->data + from,
					   .size = all->ends[at] - from };
		const char *record = NULL;
		size_t size = 0;
		if (all->meta)
			record = record_find(all->meta, all->count, at, &size);
		record_read(record, size, &message);
		error = maker_add(&maker, &message, false); /* has its newline */
	}
	if (!error)
		error = maker_take(&maker, all->lines, picked);
	maker_free(&maker);
	return error;
}

/* ---- joining -------------------------------------------------------------------------------- */

/* Puts the records of one behind those of the `at` messages before. */
static size_t meta_put(char *meta, size_t total, size_t at, size_t records,
		       const struct messages *one)
{
	size_t head = one->count * sizeof(uint32_t);

	for (uint32_t i = 0; i < one->count; i++)
		meta_end_set(meta, at + i,
			     (uint32_t)records +
				     (one->meta ? meta_end(one->meta, i) : 0));
	if (!one->meta)
		return records;
	memcpy(meta + total * sizeof(uint32_t) + records, one->meta + head,
	       one->meta_size - head);
	return records + one->meta_size - head;
}

int messages_join(struct push_part *first, const struct push_part *end,
		  struct messages *joined)
{
	struct messages all = { 0 };
	size_t count = 0, records = 0, at = 0;
	bool meta = false;

	if (first->next == end) {
		*joined = first->messages;
		first->messages = (struct messages){ 0 };
		return 0;
	}
	for (struct push_part *part = first; part != end; part = part->next) {
		const struct messages *one = &part->messages;
		all.size += one->size;
		count += one->count;
		meta |= one->meta != NULL;
		records += one->meta ? one->meta_size - one->count * sizeof(uint32_t) : 0;
	}
	all.data = malloc(all.size ? all.size : 1);
	all.ends = malloc((count + 1) * sizeof(*all.ends));
	all.meta_size = meta ? count * sizeof(uint32_t) + records : 0;
	all.meta = meta ? malloc(all.meta_size) : NULL;
	if (!all.data || !all.ends || (meta && !all.meta)) {
		messages_free(&all);
		return -ENOMEM;
	}
	all.size = records = 0;
	for (struct push_part *part = first; part != end; part = part->next) {
		const struct messages *one = &part->messages;
		if (meta)
			records = meta_put(all.meta, count, at, records, one);
		memcpy(all.data + all.size, one->data, one->size);
		for (uint32_t i = 0; i < one->count; i++)
			all.ends[at++] = (uint32_t)all.size + one->ends[i];
		all.size += one->size;
	}
	all.count = (uint32_t)count;
	*joined = all;
	return 0;
}
