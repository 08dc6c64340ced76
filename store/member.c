/* SPDX-License-Identifier: MIT */
/* member.c - what members shows: who reads. */
#include <stdlib.h>

#include "store_int.h"

int64_t lease_left_locked(const struct cursor *cursor)
{
	return cursor->alarm.at_us ? cursor->alarm.at_us - monotonic_us()
	       : cursor->overdue   ? 0
				   : INT64_MAX;
}

static size_t member_rows_locked(struct reader *reader, struct member *rows)
{
	struct member row = { .who = reader->who,
			      .flags = reader->flags | (reader->json ? READER_JSON : 0),
			      .whole_queue = !reader->partition,
			      .from = -1,
			      .to = -1 };
	size_t count = 0;
	struct span *span;

	TAILQ_FOREACH(span, &reader->spans, entry)
	{
		struct cursor *cursor = span->cursor;
		int64_t committed = cursor_committed_locked(cursor);
		if (!span_live_locked(span))
			continue;
		rows[count] = row;
		rows[count].partition = store_get(&cursor->partition->item);
		rows[count].from = committed + 1;
		rows[count].to =
			reader->flags & READER_LEASED ? span->end : span->next - 1;
		if (rows[count].to <=
		    committed) /* the first is not read to its end yet */
			rows[count].to = committed + 1;
		rows[count].lease_us = lease_left_locked(cursor);
		count++;
	}
	if (count == 0)
		rows[count++] = row;
	return count;
}

int store_members(struct item *item, struct member **out, size_t *out_count)
{
	struct store *store = item->store;
	struct group *group = group_of(item);
	struct member *rows = NULL;
	struct reader *reader;
	struct span *span;
	size_t room = 1, count = 0;
	int error = 0;

	pthread_mutex_lock(&store->state);
	TAILQ_FOREACH(reader, &group->readers, group_entry)
	{
		room++;
		TAILQ_FOREACH(span, &reader->spans, entry) room++;
	}
	rows = malloc(room * sizeof(*rows));
	if (!rows)
		error = -ENOMEM;
	else
		TAILQ_FOREACH(reader, &group->readers, group_entry)
	count += member_rows_locked(reader, rows + count);
	pthread_mutex_unlock(&store->state);
	if (error)
		return error;
	*out = rows;
	*out_count = count;
	return 0;
}
