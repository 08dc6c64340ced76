/* SPDX-License-Identifier: MIT */
/*
 * replay.c - replay marks: what a reader of JSON is told besides messages (section 8).
 *
 * A reader marks where each partition ends when it first reads and after a seek back. What is
 * at or below a mark is a replay, is given first, and stands between two events. A mark is an
 * offset by the slot of its partition; a partition that is born later has none.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

/* ---- marks ------------------------------------------------------------------------------- */

static int64_t mark_locked(const struct reader *reader, const struct partition *partition)
{
	if (reader->partition)
		return reader->mark;
	return partition->slot < reader->mark_count &&
			       partition->item.id <= reader->marks_until
		       ? reader->marks[partition->slot]
		       : -1;
}

bool replays_locked(const struct reader *reader, const struct cursor *cursor,
		    int64_t next)
{
	return next <= mark_locked(reader, cursor->partition);
}

/* The last that this reader may claim now: what is past its mark waits for the end of the
 * replay. */
int64_t limit_locked(const struct reader *reader, const struct cursor *cursor)
{
	int64_t last = cursor->partition->last;
	int64_t mark = mark_locked(reader, cursor->partition);

	return reader->replaying && mark < last ? mark : last;
}

/* The first of the ready cursors with something below its mark. */
struct cursor *replay_candidate_locked(const struct reader *reader)
{
	struct group *group = group_of(reader->group);
	struct cursor *cursor;

	TAILQ_FOREACH(cursor, &group->ready, ready_entry)
	if (replays_locked(reader, cursor, cursor_committed_locked(cursor) + 1))
		break;
	return cursor;
}

/* Is there something below a mark that this reader has, or can claim? */
static bool replay_left_locked(const struct reader *reader)
{
	const struct span *span;

	TAILQ_FOREACH(span, &reader->spans, entry)
	if (span_live_locked(span) && replays_locked(reader, span->cursor, span->next))
		return true;
	return candidate_locked(reader) != NULL;
}

static const struct seeks *seeks_locked(const struct reader *reader)
{
	struct group *group = group_of(reader->group);

	return reader->partition
		       ? &cursor_locked(group, partition_of(reader->partition))->seeks
		       : &group->seeks;
}

/* Marks the end of each partition that this reader sees; count: what is before the marks. */
static int marks_set_locked(struct reader *reader, uint64_t *count)
{
	struct group *group = group_of(reader->group);
	struct queue *queue = queue_of(reader->group->parent);
	struct item *partition;
	int64_t *marks;

	*count = 0;
	if (reader->partition) {
		struct cursor *cursor =
			cursor_locked(group, partition_of(reader->partition));
		reader->mark = cursor->partition->last;
		*count = (uint64_t)(reader->mark - cursor_committed_locked(cursor));
		return 0;
	}
	marks = realloc(reader->marks, (queue->slots + 1) * sizeof(*marks));
	if (!marks)
		return -ENOMEM;
	reader->marks = marks;
	reader->mark_count = queue->slots;
	for (uint32_t i = 0; i < queue->slots; i++)
		marks[i] = -1;
	names_each(&queue->partitions, i, partition)
	{
		struct cursor *cursor = cursor_locked(group, partition_of(partition));
		marks[cursor->partition->slot] = cursor->partition->last;
		*count += (uint64_t)(cursor->partition->last -
				     cursor_committed_locked(cursor));
		reader->marks_until = partition->id;
	}
	return 0;
}

/* An event is a line of follow.json, and a gap one of pop.json too. */
__attribute__((format(printf, 2, 3))) static int event_locked(struct reader *reader,
							      const char *format, ...)
{
	char line[160];
	va_list args;
	int size;

	va_start(args, format);
	size = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return buffer_add(&reader->text, line, (size_t)size);
}

static int replay_end_locked(struct reader *reader)
{
	reader->replaying = false;
	return reader->flags & READER_FOLLOW
		       ? event_locked(reader,
				      "{\"event\":\"replayEnd\",\"replayed\":%llu}\n",
				      (unsigned long long)reader->replayed)
		       : 0;
}

/* A seek that ends a replay begins another if it leaves something to replay. */
bool marks_due_locked(const struct reader *reader)
{
	const struct seeks *seeks = seeks_locked(reader);

	return reader->json && (!reader->marked || seeks->back != reader->seeks.back ||
				(reader->replaying && seeks->all != reader->seeks.all &&
				 replay_left_locked(reader)));
}

bool replay_ended_locked(const struct reader *reader)
{
	return reader->replaying && (seeks_locked(reader)->all != reader->seeks.all ||
				     !replay_left_locked(reader));
}

/* Between messages: a replay begins and ends where it has to. */
int replay_locked(struct reader *reader)
{
	bool due = marks_due_locked(reader);
	uint64_t count;
	int error = 0;

	if (replay_ended_locked(reader))
		error = replay_end_locked(reader);
	if (!error && due) {
		error = marks_set_locked(reader, &count);
		if (!error && (reader->flags & READER_FOLLOW))
			error = event_locked(
				reader, "{\"event\":\"replayStart\",\"count\":%llu}\n",
				(unsigned long long)count);
		reader->marked = reader->replaying = !error;
		reader->replayed = 0;
	}
	reader->seeks = *seeks_locked(reader);
	if (!error && replay_ended_locked(reader))
		error = replay_end_locked(reader);
	return error;
}

static int gap_event_locked(struct reader *reader, const struct partition *partition,
			    int64_t next)
{
	const char *name = partition->item.name;
	int error = event_locked(reader, "{\"event\":\"gap\",\"partition\":");

	if (!error)
		error = envelope_quote(name, strlen(name), &reader->text);
	if (!error)
		error = event_locked(reader, ",\"from\":%lld,\"to\":%lld}\n",
				     (long long)next, (long long)partition->first - 1);
	return error;
}

/* Retention or rm may have passed this cursor. From `next` on the group has not been given
 * anything: what of that is gone it never will be, and that is said. */
int gap_locked(struct reader *reader, struct cursor *cursor, int64_t next)
{
	const struct partition *partition = cursor->partition;
	struct cursor_state state = cursor_state_locked(cursor);
	int error = 0;

	if (state.committed >= partition->first - 1)
		return 0;
	if (next < partition->first) {
		cursor_count(cursor, skipped, (uint64_t)(partition->first - next));
		if (reader->json)
			error = gap_event_locked(reader, partition, next);
	}
	state.committed = partition->first - 1;
	/* The message that they counted is gone. */
	state.attempts = state.committed < state.delivered;
	state.failures = 0;
	if (state.delivered < state.committed)
		state.delivered = state.committed;
	cursor_set_locked(cursor, &state);
	return error;
}
