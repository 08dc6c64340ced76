/* SPDX-License-Identifier: MIT */
/*
 * claim.c - readers: taking spans of a group, returning their messages, giving them back.
 *
 * The lease of one (partition, group), in struct cursor:
 *
 *            claim                     lease_seconds
 *    free ----------> held (epoch) ------------------> overdue (held, may be claimed)
 *     ^                |    |                            |            |
 *     |   all acked,   |    | seek                       | ack,       | claim by another:
 *     |   retry, fail, |    |                            | close      | epoch + 1
 *     |   close        |    v                            v            v
 *     +----------------+   sought: free, epoch + 1      free         taken: held again
 *     |
 *     +--> delayed (free, not before its alarm) if something came back and there is a
 *          retry_delay
 *
 * A span remembers the epoch of its claim; it is live while the cursor is held under it.
 *
 *                held, overdue               taken, sought (not live)
 *    read        returns what is left        drops the span, claims anew
 *    ack N, ack  passes messages             ESTALE (what reading acks: nothing)
 *    retry, fail gives the rest back         ESTALE
 *    dlq         passes the head             ESTALE
 *    close       gives the rest back         nothing
 *    rm          the next read goes on at the oldest message kept
 *
 * 1. A reader begins a message only in a live span.
 * 2. A message that was begun is finished by its reader whatever happens to the lease; its
 *    segment is kept for that.
 * 3. What is past committed and up to delivered was given to somebody and not acked: when it
 *    is free again it came back, and is given one message at a time, alone.
 * 4. What a LEASED reader gets is recorded (commit of attempts and delivered) before it is
 *    returned.
 * 5. A message that is shown as JSON, or that a filter has to see, is taken one at a time:
 *    looked at without the lock, and given only if its span is still live then. What a
 *    filter does not want is passed over as if acked; a read that passes over many hands
 *    itself to a thread of its own (wait.c), so that nobody waits behind it.
 * 6. While a JSON reader replays it takes nothing past its marks: see replay.c.
 */
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

#define SECOND_US 1000000
#define PIECE_LEAST 16384 /* below this a copy costs less than a piece */
#define TEXT_KEPT 65536	  /* of a reader's text, for the next message */
#define PASS_US 5000	  /* how long one read passes over what a filter does not want */

/* A run of bytes of one segment. */
struct slice {
	struct segment *segment;
	uint32_t from, size;
};

static int64_t setting(const struct reader *reader, enum setting name)
{
	return setting_locked(group_of(reader->group), name)->least;
}

/* ---- spans -------------------------------------------------------------------------- */

bool span_live_locked(const struct span *span)
{
	return span->cursor->held && span->cursor->epoch == span->epoch;
}

/* The pause before what came back is given again: doubles with each delivery. */
static int64_t delay_us(const struct group *group, unsigned attempts)
{
	const struct setting_value *delay =
		setting_locked(group, SETTING_RETRY_DELAY_SECONDS);
	int64_t seconds = delay->least;

	if (seconds == 0)
		return 0;
	for (unsigned i = 1; i < attempts && seconds < delay->greatest; i++)
		seconds *= 2;
	return (seconds < delay->greatest ? seconds : delay->greatest) * SECOND_US;
}

void cursor_free_lease_locked(struct cursor *cursor, bool pause)
{
	bool back = cursor->delivered > cursor_committed_locked(cursor);
	int64_t delay = back && pause ? delay_us(cursor->group, cursor->attempts) : 0;

	cursor->held = cursor->overdue = false;
	cursor->delayed = delay > 0;
	alarm_set_locked(cursor->group->item.store, &cursor->alarm,
			 delay > 0 ? monotonic_us() + delay : 0);
}

void span_release_locked(struct reader *reader, struct span *span, bool pause)
{
	struct cursor *cursor = span->cursor;

	if (span_live_locked(span))
		cursor_free_lease_locked(cursor, pause);
	cursor->pins--;
	TAILQ_REMOVE(&reader->spans, span, entry);
	if (reader->begun == span)
		reader->begun = NULL;
	free(span->passed);
	free(span);
	/* Those of the queue are woken by wait_next_locked(). */
	if (cursor_ready_locked(cursor) && !TAILQ_EMPTY(&cursor->waiting))
		wait_wake_locked(TAILQ_FIRST(&cursor->waiting));
}

static void release_all_locked(struct reader *reader)
{
	/* The analyzer does not see that TAILQ_REMOVE takes out what is freed. */
	while (!TAILQ_EMPTY(&reader->spans)) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		span_release_locked(reader, TAILQ_FIRST(&reader->spans), true);
	}
	reader->given = 0;
}

static struct span *span_last(struct reader *reader)
{
	return TAILQ_LAST(&reader->spans, span_list);
}

static bool came_back(const struct cursor *cursor)
{
	return cursor->delivered > cursor_committed_locked(cursor);
}

/* ---- claiming ------------------------------------------------------------------------- */

/* The cursor that this reader would claim now, or NULL. */
struct cursor *candidate_locked(const struct reader *reader)
{
	struct group *group = group_of(reader->group);
	struct cursor *cursor;

	if (!reader->partition)
		return reader->replaying ? replay_candidate_locked(reader)
					 : TAILQ_FIRST(&group->ready);
	cursor = cursor_locked(group, partition_of(reader->partition));
	if (!cursor->ready ||
	    (reader->replaying &&
	     !replays_locked(reader, cursor, cursor_committed_locked(cursor) + 1)))
		return NULL;
	return cursor;
}

/* Its head was delivered too often: it is set aside until it is a dead letter. */
static bool dead_locked(struct reader *reader, struct cursor *cursor)
{
	int64_t most = setting(reader, SETTING_MAX_DELIVERIES);

	return most > 0 && came_back(cursor) && cursor->attempts >= most;
}

static struct span *claim_locked(struct reader *reader, struct cursor *cursor)
{
	struct span *span = calloc(1, sizeof(*span));
	int64_t lease = setting(reader, SETTING_LEASE_SECONDS), batch;
	int64_t next;

	if (!span)
		return NULL;
	next = cursor->delivered > cursor->committed ? cursor->delivered
						     : cursor->committed;
	if (gap_locked(reader, cursor, next + 1)) {
		free(span);
		return NULL;
	}
	cursor->held = true;
	cursor->holder = reader;
	cursor->overdue = false;
	cursor->epoch++;
	cursor->pins++;
	alarm_set_locked(reader->store, &cursor->alarm,
			 lease > 0 ? monotonic_us() + lease * SECOND_US +
					     delay_us(cursor->group, cursor->attempts + 1)
				   : 0);
	cursor_ready_locked(cursor);
	span->cursor = cursor;
	span->epoch = cursor->epoch;
	span->next = cursor->committed + 1;
	/* What may be delivered once only has to be alone the first time. */
	span->single = cursor->delivered > cursor->committed ||
		       setting(reader, SETTING_MAX_DELIVERIES) == 1;
	/* Without newlines between them messages must come alone. */
	batch = span->single || (!reader->json &&
				 !queue_lines_locked(reader->group->parent))
			? 1
			: setting(reader, SETTING_BATCH);
	span->wanted = -1;
	span->end = cursor->committed + batch;
	if (reader->flags == READER_FOLLOW && !span->single)
		span->end = INT64_MAX;
	if ((reader->flags & READER_LEASED) && span->end > limit_locked(reader, cursor))
		span->end = limit_locked(reader, cursor);
	TAILQ_INSERT_TAIL(&reader->spans, span, entry);
	return span;
}

/* ---- messages given and passed ------------------------------------------------------ */

/* Messages from..to of a span go out. */
static void give_locked(struct reader *reader, struct span *span, int64_t from,
			int64_t to)
{
	struct cursor *cursor = span->cursor;
	uint64_t count = (uint64_t)(to - from) + 1, again = 0;

	reader->given += (int64_t)count;
	if (!span_live_locked(span) || (reader->flags & READER_LEASED))
		return; /* a LEASED one's was counted when it was recorded */
	if (from == cursor->committed + 1)
		cursor->attempts++;
	if (from <= cursor->delivered)
		again = (uint64_t)((to < cursor->delivered ? to : cursor->delivered) -
				   from) +
			1;
	if (to > cursor->delivered)
		cursor->delivered = to;
	cursor_count(cursor, redelivered, again);
	cursor_count(cursor, delivered, count - again);
}

static void pass_locked(struct cursor *cursor, int64_t offset)
{
	struct cursor_state state = cursor_state_locked(cursor);

	if (offset <= state.committed)
		return;
	cursor_count(cursor, acked, (uint64_t)(offset - state.committed));
	cursor_pass(&state, offset);
	cursor_set_locked(cursor, &state);
	cursor_dirty_locked(cursor);
}

/* A pop acks a message by itself; what it was before is kept for store_unread(). */
static void pop_locked(struct reader *reader, struct cursor *cursor, int64_t offset)
{
	if (!reader->undo_partition) {
		reader->undo_partition = store_get(&cursor->partition->item);
		reader->undo_epoch = cursor->epoch;
		reader->undo_from = cursor_state_locked(cursor);
	}
	reader->undo_to = offset;
	pass_locked(cursor, offset);
}

/* The last byte of a message was returned. */
static void returned_locked(struct reader *reader, struct span *span, int64_t offset)
{
	if (!span)
		return; /* it was finished after its lease was dropped */
	if (span->next <= offset)
		span->next = offset + 1;
	if (reader->flags == 0 && span_live_locked(span))
		pop_locked(reader, span->cursor, offset);
}

/* Notes that a LEASED reader was not given this one; they come in order. */
static int passed_add(struct span *span, int64_t offset)
{
	uint32_t count = span->passed_count;
	struct range *passed = span->passed;

	if (count > 0 && passed[count - 1].to == offset - 1) {
		passed[count - 1].to = offset;
		return 0;
	}
	passed = array_grown(passed, count, sizeof(*passed));
	if (!passed)
		return -ENOMEM;
	span->passed = passed;
	passed[span->passed_count++] = (struct range){ offset, offset };
	return 0;
}

int64_t span_past(const struct span *span, int64_t offset)
{
	uint32_t low = 0, high = span->passed_count;

	/* The first that ends past it; no two of them touch. */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (span->passed[middle].to > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low < span->passed_count && span->passed[low].from <= offset + 1
		       ? span->passed[low].to
		       : offset;
}

void span_settle_locked(struct span *span)
{
	struct cursor *cursor = span->cursor;

	if (span_live_locked(span) && !cursor->applied)
		pass_locked(cursor, span_past(span, cursor_committed_locked(cursor)));
}

/* The filter does not want the next message of this span. */
static int pass_over_locked(struct reader *reader, struct span *span)
{
	struct cursor *cursor = span->cursor;
	int64_t offset = span->next;

	cursor_count(cursor, filtered, 1);
	if (span->recorded) {
		int error = passed_add(span, offset);
		if (error)
			return error;
		span->next++;
		span_settle_locked(span);
		return 0;
	}
	span->next++;
	/* It takes no place in the batch. */
	if (span->end != INT64_MAX && (!(reader->flags & READER_LEASED) ||
				       span->end < limit_locked(reader, cursor)))
		span->end++;
	if (offset != cursor->committed + 1)
		return 0; /* the ack of what was given before passes it too */
	pass_locked(cursor, offset);
	if (reader->undo_partition)
		reader->undo_to = offset;
	return 0;
}

/* Reading on acks all that was returned before. */
static void ack_returned_locked(struct reader *reader)
{
	struct span *span;

	TAILQ_FOREACH(span, &reader->spans, entry)
	if (span_live_locked(span))
		pass_locked(span->cursor, span->next - 1);
	release_all_locked(reader);
}

/* ---- the next slice ----------------------------------------------------------------- */

enum next {
	NEXT_SLICE,
	NEXT_TEXT,    /* what stands in reader->text */
	NEXT_MESSAGE, /* a message to look at first */
	NEXT_LOAD,
	NEXT_RECORD,
	NEXT_DEAD,
	NEXT_NONE
};

/* What next_locked() found. */
struct found {
	struct slice slice;	 /* NEXT_SLICE, with a reference */
	struct cursor *cursor;	 /* NEXT_LOAD, NEXT_DEAD */
	int64_t offset;		 /* NEXT_LOAD, NEXT_MESSAGE */
	struct span *span;	 /* NEXT_MESSAGE */
	struct segment *segment; /* NEXT_MESSAGE, with a reference */
	struct message message;	 /* NEXT_MESSAGE: what the lock is needed for */
};

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
	returned_locked(reader, reader->begun, reader->offset);
	reader->begun = NULL;
}

static bool may_give(const struct reader *reader, const struct span *span,
		     int64_t prefetch)
{
	return span->next <= span->end && span->next <= span->cursor->partition->last &&
	       (prefetch == 0 || reader->given < prefetch) &&
	       (!reader->replaying || replays_locked(reader, span->cursor, span->next));
}

/* The last message of this segment that this reader may be given now and that ends by this
 * byte; the next one does. */
static int64_t fit_locked(const struct reader *reader, const struct span *span,
			  const struct segment *segment, size_t end, int64_t prefetch)
{
	int64_t low = span->next, high = span->end;
	int64_t limit = limit_locked(reader, span->cursor);

	high = high < limit ? high : limit;
	high = high < segment->info.end_offset ? high : segment->info.end_offset;
	if (prefetch > 0 && high - low >= prefetch - reader->given)
		high = low + prefetch - reader->given - 1;
	if (reader->filter)
		return low; /* it has looked at this one only */
	while (low < high) {
		int64_t middle = high - (high - low) / 2;
		if (segment->ends[middle - segment->info.base_offset] <= end)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* Whole messages of one segment while they fit; else, with nothing returned so far, the
 * beginning of one. */
static bool slice_new_locked(struct reader *reader, struct span *span,
			     struct segment *segment, size_t room, bool first,
			     struct slice *slice)
{
	int64_t prefetch =
		reader->flags == READER_FOLLOW ? setting(reader, SETTING_PREFETCH) : 0;
	uint32_t from, to, start;
	int64_t last;

	segment_message(segment, span->next, &start, &to);
	if (to - start > room) {
		if (!first)
			return false;
		segment->refs++; /* the reader's; slice_begun takes its own */
		reader->segment = segment;
		reader->begun = span;
		reader->offset = span->next;
		reader->at = start;
		reader->to = to;
		give_locked(reader, span, span->next, span->next);
		slice_begun_locked(reader, room, slice);
		return true;
	}
	last = fit_locked(reader, span, segment, start + room, prefetch);
	segment_message(segment, last, &from, &to);
	slice->segment = segment;
	segment->refs++;
	slice->from = start;
	slice->size = to - start;
	give_locked(reader, span, span->next, last);
	returned_locked(reader, span, last);
	return true;
}

/* The span to go on with: the last one, or one more if this reader may have it. */
static enum next span_locked(struct reader *reader, struct span **out,
			     struct cursor **dead)
{
	int64_t prefetch =
		reader->flags == READER_FOLLOW ? setting(reader, SETTING_PREFETCH) : 0;
	struct span *span = span_last(reader);
	struct cursor *cursor;

	if (span && span_live_locked(span) && may_give(reader, span, prefetch)) {
		*out = span;
		return NEXT_SLICE;
	}
	if (span && reader->given == 0 && !span->recorded) {
		/* All of it was passed over. */
		span_release_locked(reader, span, false);
		span = NULL;
	}
	if (span && (reader->flags != READER_FOLLOW || span->single || reader->shares ||
		     group_of(reader->group)->waiting_count > 0 ||
		     (prefetch > 0 && reader->given >= prefetch)))
		return NEXT_NONE;
	cursor = candidate_locked(reader);
	if (!cursor || (span && came_back(cursor)))
		return NEXT_NONE; /* what came back is given alone */
	if (dead_locked(reader, cursor)) {
		*dead = cursor;
		return NEXT_DEAD;
	}
	*out = claim_locked(reader, cursor);
	return *out ? NEXT_SLICE : NEXT_NONE;
}

/* Is a message to be looked at before it is given? */
static bool looks(const struct reader *reader)
{
	return reader->json || reader->filter;
}

static enum next look_locked(struct reader *reader, struct span *span,
			     struct segment *segment, struct found *found)
{
	const struct cursor *cursor = span->cursor;
	bool head = span->next == cursor->committed + 1;

	found->span = span;
	found->segment = segment;
	found->offset = span->next;
	found->message = (struct message){
		.queue = reader->group->parent->name,
		.partition = cursor->partition->item.name,
		.partition_number = cursor->partition->item.id,
		.attempt = head ? cursor->attempts + !(reader->flags & READER_LEASED) : 1,
		.replay = replays_locked(reader, cursor, span->next),
	};
	return NEXT_MESSAGE;
}

/* The segment with the next message of a span, with a reference, or NULL. */
static struct segment *segment_of_span_locked(struct reader *reader, struct span *span,
					      struct segment *loaded)
{
	struct cursor *cursor = span->cursor;
	struct segment *segment = cache_find_locked(reader->store, cursor->partition,
						    span->next, cursor->hint);

	if (!segment && loaded && loaded->partition == cursor->partition->item.id &&
	    loaded->info.base_offset <= span->next &&
	    span->next <= loaded->info.end_offset) {
		segment = loaded;
		segment->refs++;
	}
	if (segment)
		cursor->hint = segment->info.base_offset;
	return segment;
}

/* What this reader gets next. NEXT_LOAD: the segment with found->offset has to be loaded
 * first; `loaded` is it, the second time. */
static enum next next_locked(struct reader *reader, size_t room, bool first,
			     struct segment *loaded, struct found *found)
{
	struct segment *segment;
	struct span *span;
	enum next next;

	if (reader->segment) {
		slice_begun_locked(reader, room, &found->slice);
		return NEXT_SLICE;
	}
	if (reader->text.size == 0 && reader->json && replay_locked(reader))
		return NEXT_NONE;
	next = reader->text.size ? NEXT_TEXT : span_locked(reader, &span, &found->cursor);
	if (next != NEXT_SLICE)
		return next;
	if ((reader->flags & READER_LEASED) && !span->recorded &&
	    (!reader->filter || span->wanted == span->next))
		return reader->recording ? NEXT_NONE : NEXT_RECORD;
	if (span->next < span->cursor->partition->first) {
		if (gap_locked(reader, span->cursor, span->next))
			return NEXT_NONE;
		span->next = span->cursor->partition->first;
	}
	if (reader->text.size)
		return NEXT_TEXT; /* a gap was met */
	if (span->next > span->end || span->next > span->cursor->partition->last)
		return NEXT_NONE;
	segment = segment_of_span_locked(reader, span, loaded);
	if (!segment) {
		found->cursor = span->cursor;
		found->offset = span->next;
		return NEXT_LOAD;
	}
	if (looks(reader))
		return look_locked(reader, span, segment, found);
	next = slice_new_locked(reader, span, segment, room, first, &found->slice)
		       ? NEXT_SLICE
		       : NEXT_NONE;
	segment_put_locked(segment);
	return next;
}

/* ---- a message that is looked at first ------------------------------------------------ */

/* Where a read puts its bytes. */
struct target {
	char *buffer;
	size_t size;
	size_t used;	       /* of the buffer */
	size_t copied;	       /* in all */
	struct pieces *pieces; /* or NULL: all of it goes to the buffer */
	bool gave;	       /* a message, if only an empty one */
	int64_t passed_us;     /* since when it has been passing over messages, or 0 */
};

static size_t room(const struct target *target)
{
	return target->size - target->copied;
}

static void piece_add(struct pieces *pieces, char *at, size_t size)
{
	struct iovec *last = pieces->count ? &pieces->iov[pieces->count - 1] : NULL;

	if (last && (char *)last->iov_base + last->iov_len == at)
		last->iov_len += size;
	else
		pieces->iov[pieces->count++] = (struct iovec){ at, size };
}

/* Copies bytes to the buffer; without the lock. */
static void target_copy(struct target *target, const char *data, size_t size)
{
	memcpy(target->buffer + target->used, data, size);
	if (target->pieces)
		piece_add(target->pieces, target->buffer + target->used, size);
	target->used += size;
	target->copied += size;
}

static void slice_take(struct store *store, const struct slice *slice,
		       struct target *target)
{
	struct pieces *pieces = target->pieces;
	char *data = slice->segment->data + slice->from;

	target->gave = true;
	/* There must be a piece left for what is copied after it. */
	if (pieces && slice->size >= PIECE_LEAST && pieces->count + 2 <= STORE_PIECES) {
		piece_add(pieces, data, slice->size);
		pieces->held[pieces->held_count++] = slice->segment;
		target->copied += slice->size;
		return;
	}
	pthread_mutex_unlock(&store->state);
	target_copy(target, data, slice->size);
	pthread_mutex_lock(&store->state);
	segment_put_locked(slice->segment);
}

/* Copies of reader->text what fits; at the end of a message's line that is returned. */
static void text_copy(struct reader *reader, struct target *target)
{
	struct buffer *text = &reader->text;
	size_t left = text->size - reader->text_at;
	size_t piece = left < room(target) ? left : room(target);

	pthread_mutex_unlock(&reader->store->state);
	target_copy(target, text->data + reader->text_at, piece);
	pthread_mutex_lock(&reader->store->state);
	reader->text_at += piece;
	if (reader->text_at < text->size)
		return;
	text->size = reader->text_at = 0;
	if (text->room > TEXT_KEPT) {
		free(text->data);
		*text = (struct buffer){ 0 };
	}
	if (reader->text_message)
		returned_locked(reader, reader->begun, reader->offset);
	reader->text_message = false;
	reader->begun = NULL;
}

/* Is it time to let others run? */
static bool passed_enough(struct target *target)
{
	if (target->passed_us == 0)
		target->passed_us = monotonic_us();
	return monotonic_us() - target->passed_us > PASS_US;
}

/* The message is wanted and its span is live: 0 go on, 1 it does not fit any more. */
static int give_found_locked(struct reader *reader, const struct found *found,
			     struct target *target)
{
	struct span *span = found->span;
	struct slice slice;

	if ((reader->flags & READER_LEASED) && !span->recorded) {
		span->wanted = found->offset;
		return 0;
	}
	if (!reader->json) {
		if (!slice_new_locked(reader, span, found->segment, room(target),
				      target->copied == 0, &slice))
			return 1;
		slice_take(reader->store, &slice, target);
		return 0;
	}
	if (reader->text.size > room(target) && target->copied > 0) {
		reader->text.size = 0;
		return 1;
	}
	reader->replayed += found->message.replay && reader->replaying;
	reader->begun = span;
	reader->offset = found->offset;
	reader->text_message = true;
	give_locked(reader, span, found->offset, found->offset);
	text_copy(reader, target);
	target->gave = true;
	return 0;
}

/* Has nothing come in between: no seek, no other reader, no verb that ended the lease? */
static bool found_still_locked(const struct reader *reader, const struct found *found)
{
	const struct span *span;

	TAILQ_FOREACH(span, &reader->spans, entry)
	if (span == found->span)
		return span_live_locked(span) && span->next == found->offset;
	return false;
}

/* Looks at the message without the lock, then gives it or passes over it: 0 go on, 1 enough
 * for this read, -EALREADY for this turn, -errno. */
static int look(struct reader *reader, struct found *found, struct target *target)
{
	struct store *store = reader->store;
	bool lines = queue_lines_locked(reader->group->parent);
	/* What is only asked for before it is recorded is looked at once more. */
	bool print = reader->json &&
		     (!(reader->flags & READER_LEASED) || found->span->recorded);
	/* A verb may end the span meanwhile, and then the partition may go. */
	struct item *partition = store_get(&found->span->cursor->partition->item);
	struct buffer text = reader->text; /* poll looks at the reader's */
	int wanted = 1, stop = 0;

	reader->text = (struct buffer){ 0 };
	pthread_mutex_unlock(&store->state);
	segment_view(found->segment, found->offset, lines, &found->message);
	if (reader->filter)
		wanted = filter_test(reader->filter, &found->message);
	if (wanted != 0 && print)
		stop = envelope_print(&found->message, &text);
	pthread_mutex_lock(&store->state);
	reader->text = text;
	store_put(partition);
	if (stop || !found_still_locked(reader, found)) {
		reader->text.size = 0; /* what comes next is decided anew */
	} else if (wanted == 0) {
		stop = pass_over_locked(reader, found->span);
		if (!stop && passed_enough(target)) {
			reader->passing = target->copied == 0;
			stop = reader->passing ? -EALREADY : 1;
		}
	} else {
		cursor_count(found->span->cursor, filter_errors, wanted < 0);
		stop = give_found_locked(reader, found, target);
	}
	segment_put_locked(found->segment);
	return stop;
}

/* ---- reading ------------------------------------------------------------------------ */

static void undo_forget_locked(struct reader *reader)
{
	store_put(reader->undo_partition);
	reader->undo_partition = NULL;
}

/* Between messages, before anything new is given: 0 go on, 1 answer nothing, -errno. */
static int begin_locked(struct reader *reader)
{
	struct span *span;
	int error = reader->record_error;

	reader->record_error = 0;
	if (error)
		return error;
	if ((reader->flags & READER_FOLLOW) && !reader->json &&
	    !queue_lines_locked(reader->group->parent))
		return -EINVAL; /* nothing would tell its messages apart */
	/* Whom this wakes has not had its turn when more is claimed. */
	reader->shares = group_of(reader->group)->waiting_count > 0;
	if (reader->flags == READER_FOLLOW)
		ack_returned_locked(reader);
	span = TAILQ_FIRST(&reader->spans);
	if (span)
		span_settle_locked(span);
	if (reader->flags == 0 && reader->ended)
		return 1;
	if (span && (!span_live_locked(span) ||
		     cursor_committed_locked(span->cursor) >= span->end)) {
		release_all_locked(reader); /* lost, or passed by rm: claims anew */
		return 0;
	}
	if (!(reader->flags & READER_LEASED) || !span || span->next <= span->end)
		return 0;
	return reader->flags & READER_FOLLOW ? -EBUSY : 1;
}

/* Nothing could be returned, and what was claimed for it is free again. */
static int nothing_locked(struct reader *reader, int stop)
{
	const struct group *group = group_of(reader->group);
	const struct span *span = TAILQ_FIRST(&reader->spans);

	if (span && !span->recorded && !reader->recording)
		release_all_locked(reader);
	if (stop < 0)
		return stop;
	if (reader->recording || group->dying > 0)
		return -EALREADY;
	return reader->flags & READER_FOLLOW ? -EAGAIN : 0;
}

/* A pop's batch was given: the partition is handed on now, the end is said by the next
 * read. */
static void end_pop_locked(struct reader *reader)
{
	struct span *span = span_last(reader);

	if (reader->flags != 0 || reader->segment || reader->text.size)
		return;
	if (span && span_live_locked(span) && span->next <= span->end)
		return;
	release_all_locked(reader);
	reader->ended = true;
}

/* Does what next_locked() asked for; `state` is given up meanwhile. */
static int prepare(struct reader *reader, enum next next, const struct found *found,
		   struct segment **loaded)
{
	struct store *store = reader->store;
	struct partition *partition = found->cursor ? found->cursor->partition : NULL;
	int error = 0;

	if (next == NEXT_RECORD)
		return lease_record_locked(reader);
	if (next == NEXT_DEAD)
		return lease_dead_locked(reader, found->cursor);
	store_get(&partition->item);
	segment_put_locked(*loaded);
	*loaded = NULL;
	pthread_mutex_unlock(&store->state);
	error = segment_load(store, partition, found->offset, loaded);
	pthread_mutex_lock(&store->state);
	if (error == -ENOENT) /* removed meanwhile: look again */
		error = segment_missing_locked(store, partition, found->offset);
	store_put(&partition->item);
	return error;
}

/* The first read decides where the group has started; nobody waits for the row. */
static void group_start(struct reader *reader)
{
	struct group *group = group_of(reader->group);
	struct filter *before = NULL;
	bool first;

	pthread_mutex_lock(&reader->store->state);
	first = !group->started;
	group->started = true;
	/* One that was being committed when the first read began is met by the next. */
	if (reader->filter != group->filter) {
		before = reader->filter;
		reader->filter = group->filter ? filter_get(group->filter) : NULL;
	}
	pthread_mutex_unlock(&reader->store->state);
	filter_free(before);
	if (first)
		subscription_decided(group);
}

/* One step of a read: 0 go on, 1 enough, -errno. */
static int step_locked(struct reader *reader, struct target *target,
		       struct segment **loaded)
{
	struct found found = { 0 };
	enum next next =
		next_locked(reader, room(target), target->copied == 0, *loaded, &found);

	switch (next) {
	case NEXT_NONE:
		return 1;
	case NEXT_SLICE:
		slice_take(reader->store, &found.slice, target);
		return 0;
	case NEXT_TEXT:
		if (reader->text_at == 0 && target->copied > 0 &&
		    reader->text.size > room(target))
			return 1; /* an event is whole as well, in the next read */
		text_copy(reader, target);
		return 0;
	case NEXT_MESSAGE:
		return look(reader, &found, target);
	case NEXT_RECORD:
	case NEXT_DEAD:
		if (target->copied > 0)
			return 1;
		break;
	case NEXT_LOAD:
		break;
	}
	return prepare(reader, next, &found, loaded);
}

ssize_t store_read(struct reader *reader, char *buffer, size_t size)
{
	return store_read_pieces(reader, buffer, size, NULL);
}

void store_pieces_put(struct store *store, struct pieces *pieces)
{
	if (pieces->held_count == 0)
		return;
	pthread_mutex_lock(&store->state);
	while (pieces->held_count > 0)
		segment_put_locked(pieces->held[--pieces->held_count]);
	pthread_mutex_unlock(&store->state);
}

ssize_t store_read_pieces(struct reader *reader, char *buffer, size_t size,
			  struct pieces *pieces)
{
	struct store *store = reader->store;
	struct target target = { .buffer = buffer, .size = size, .pieces = pieces };
	struct segment *loaded = NULL;
	int stop = 0;
	bool end, woken;

	group_start(reader);
	pthread_mutex_lock(&store->state);
	undo_forget_locked(reader);
	reader->passing = false;
	if (!reader->segment && !reader->text_message)
		stop = begin_locked(reader);
	end = stop == 1;
	while (!stop && target.copied < size)
		stop = step_locked(reader, &target, &loaded);
	segment_put_locked(loaded);
	if (target.gave || target.copied > 0)
		end_pop_locked(reader);
	else if (!end && size > 0)
		stop = nothing_locked(reader, stop);
	if (target.copied == 0)
		reader->ended = false; /* an empty message was its own end */
	wait_next_locked(group_of(reader->group));
	woken = !TAILQ_EMPTY(&store->woken);
	pthread_mutex_unlock(&store->state);
	if (woken)
		wait_run(store);
	return target.copied > 0 ? (ssize_t)target.copied : stop < 0 ? stop : 0;
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
	    cursor->committed == reader->undo_to && !cursor->busy) {
		reader->ended = false; /* that pop was none */
		cursor_set_locked(cursor, &reader->undo_from);
		cursor_dirty_locked(cursor);
		if (cursor_ready_locked(cursor))
			wait_ready_locked(cursor);
	}
	undo_forget_locked(reader);
	wait_next_locked(group_of(reader->group));
	pthread_mutex_unlock(&reader->store->state);
	wait_run(reader->store);
}

bool reader_ready_locked(struct reader *reader)
{
	const struct span *span = TAILQ_FIRST(&reader->spans);

	if (reader->segment || reader->text.size || reader->record_error || reader->ended)
		return true;
	if (reader->recording || reader->passing)
		return false;
	if ((reader->flags & READER_FOLLOW) &&
	    (marks_due_locked(reader) || replay_ended_locked(reader)))
		return true; /* there is an event to tell */
	if ((reader->flags & READER_LEASED) && span && span_live_locked(span))
		return true; /* more of it, or a refusal at once */
	TAILQ_FOREACH(span, &reader->spans, entry)
	if (span_live_locked(span) && span->next <= span->cursor->partition->last)
		return true; /* behind what the next read acks */
	if (candidate_locked(reader))
		return true;
	/* A pop answers its end at once, unless a dead letter is being made first. */
	return !(reader->flags & READER_FOLLOW) && group_of(reader->group)->dying == 0;
}

/* ---- opening and closing ------------------------------------------------------------ */

int store_reader_open(struct item *group, struct item *partition, unsigned flags,
		      const struct reader_who *who, struct reader **out)
{
	struct store *store = group->store;
	struct reader *reader = calloc(1, sizeof(*reader));
	int error = 0;

	if (!reader)
		return -ENOMEM;
	TAILQ_INIT(&reader->spans);
	reader->flags = flags & ~(unsigned)READER_JSON;
	reader->json = flags & READER_JSON;
	reader->who = *who;
	pthread_mutex_lock(&store->state);
	if (group->state != ITEM_LIVE || group->leaving || group->parent->leaving ||
	    (partition && (partition->state != ITEM_LIVE || partition->leaving)))
		error = -ESTALE;
	if (!error) {
		reader->store = store;
		reader->group = store_get(group);
		reader->partition = partition ? store_get(partition) : NULL;
		TAILQ_INSERT_TAIL(&group_of(group)->readers, reader, group_entry);
		group_of(group)->reader_count++;
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
	struct group *group = group_of(reader->group);

	pthread_mutex_lock(&store->state);
	segment_put_locked(reader->segment);
	undo_forget_locked(reader);
	wait_forget_locked(reader);
	lease_forget_locked(reader);
	while (!TAILQ_EMPTY(&reader->spans)) {
		struct cursor *cursor = TAILQ_FIRST(&reader->spans)->cursor;
		span_release_locked(reader, TAILQ_FIRST(&reader->spans), true);
		wait_ready_locked(cursor);
	}
	TAILQ_REMOVE(&group->readers, reader, group_entry);
	group->reader_count--;
	if (reader->partition)
		partition_of(reader->partition)->readers--;
	pthread_mutex_unlock(&store->state);
	wait_run(store);
	store_put(reader->partition);
	store_put(reader->group);
	filter_free(reader->filter);
	free(reader->text.data);
	free(reader->marks);
	free(reader);
}
