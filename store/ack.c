/* SPDX-License-Identifier: MIT */
/*
 * ack.c - what moves a leased cursor durably: recording a delivery, the verbs of a LEASED
 * reader, dead-lettering what was delivered too often.
 *
 * Each is the same kind of job: from the cursor's state and the verb it computes the state
 * that comes after, writes it, and publishes it. It counts only under the epoch in which it
 * was asked for; a seek that is being committed has already ended that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

enum lease_verb {
	LEASE_RECORD, /* the span is about to be returned */
	LEASE_PASS,   /* ack */
	LEASE_RETRY,
	LEASE_FAIL,
	LEASE_DLQ,
	LEASE_DEAD, /* max_deliveries is reached: nobody holds it */
};

struct lease_job {
	struct job job;
	enum lease_verb verb;
	struct item *group, *partition; /* references */
	struct cursor *cursor;		/* pinned: neither can be dropped */
	int64_t head;			/* committed + 1 when it was asked for */
	struct reader *reader;		/* NULL: it has closed, or LEASE_DEAD */
	uint32_t epoch;
	bool single;
	int64_t to;  /* LEASE_PASS: up to here; LEASE_RECORD: the span's end */
	bool stale;  /* the epoch had passed: nothing was written */
	bool failed; /* LEASE_FAIL: it counts */
	bool letter; /* the head becomes a dead letter */
	struct cursor_state state;
	char why[200];
};

/* ---- the state that comes after ------------------------------------------------------ */

static void after_locked(struct lease_job *job, const struct cursor *cursor)
{
	struct cursor_state *state = &job->state;
	int64_t limit = setting_locked(cursor->group, SETTING_RETRY_LIMIT)->least;

	bool gone = cursor->partition->first > job->head; /* rm was quicker */

	*state = cursor->applied ? *cursor->applied : cursor_state_locked(cursor);
	job->failed = job->letter = false;
	switch (job->verb) {
	case LEASE_RECORD:
		state->attempts++;
		if (state->delivered < job->to)
			state->delivered = job->to;
		break;
	case LEASE_PASS:
		cursor_pass(state, job->to);
		break;
	case LEASE_RETRY:
		if (state->attempts > 0)
			state->attempts--; /* it is not counted as a delivery */
		if (!job->single)
			state->delivered = state->committed;
		break;
	case LEASE_FAIL:
		if (state->committed >= job->head || gone)
			break;
		state->failures++;
		job->failed = true;
		job->letter = state->failures > limit;
		break;
	case LEASE_DLQ:
	case LEASE_DEAD:
		job->letter = state->committed < job->head && !gone;
		break;
	}
}

static int lease_apply(struct store *store, struct job *base)
{
	struct lease_job *job = container_of(base, struct lease_job, job);
	struct cursor *cursor = job->cursor;
	unsigned attempts;
	int error = 0;

	pthread_mutex_lock(&store->state);
	job->stale = cursor->epoch != job->epoch || cursor->seeking ||
		     (job->verb == LEASE_RECORD && !job->reader);
	if (!job->stale)
		after_locked(job, cursor);
	attempts = job->state.attempts;
	pthread_mutex_unlock(&store->state);
	if (job->stale)
		return job->verb == LEASE_RECORD || job->verb == LEASE_DEAD ? 0 : -ESTALE;
	if (job->letter) {
		error = letter_write(store, cursor, job->state.committed + 1, attempts,
				     job->why);
		cursor_pass(&job->state, job->state.committed + 1);
	}
	if (!error)
		error = cursor_write(store, cursor, &job->state);
	if (error)
		return error;
	pthread_mutex_lock(&store->state);
	cursor->applied = &job->state;
	cursor_ready_locked(cursor);
	pthread_mutex_unlock(&store->state);
	return 0;
}

static void applied_end_locked(struct lease_job *job)
{
	if (job->cursor->applied == &job->state)
		job->cursor->applied = NULL;
}

/* ---- publishing ----------------------------------------------------------------------- */

static struct span *job_span_locked(const struct lease_job *job)
{
	struct span *span;

	if (!job->reader)
		return NULL;
	TAILQ_FOREACH(span, &job->reader->spans, entry)
	if (span->epoch == job->epoch && span->cursor == job->cursor)
		break;
	return span;
}

static void dying_end_locked(struct cursor *cursor)
{
	cursor->busy = false;
	if (cursor_ready_locked(cursor)) /* a seek may have come in between */
		wait_ready_locked(cursor);
	/* A pop that waits for this may now have its end to say. */
	if (--cursor->group->dying == 0)
		wait_all_locked(cursor->group);
}

static void lease_done_locked(struct lease_job *job)
{
	if (job->verb == LEASE_RECORD && job->reader) {
		job->reader->recording = NULL;
		wait_wake_locked(job->reader);
	}
}

static void count_acked_locked(struct lease_job *job)
{
	int64_t from = cursor_committed_locked(job->cursor);

	if (job->state.committed > from)
		cursor_count(job->cursor, acked, (uint64_t)(job->state.committed - from));
}

static uint64_t span_left(const struct span *span)
{
	return (uint64_t)(span->end - span->next) + 1;
}

static void lease_publish_locked(struct store *store, struct job *base)
{
	struct lease_job *job = container_of(base, struct lease_job, job);
	struct span *span = job_span_locked(job);
	struct cursor *cursor = job->cursor;
	bool again;

	(void)store;
	applied_end_locked(job);
	lease_done_locked(job);
	if (job->verb == LEASE_DEAD)
		dying_end_locked(cursor);
	if (job->stale)
		return;
	again = span && cursor->delivered >= span->next;
	if (job->verb == LEASE_PASS)
		count_acked_locked(job);
	cursor_count(cursor, failed, job->failed);
	cursor_count(cursor, dead_lettered, job->letter);
	cursor_set_locked(cursor, &job->state);
	if (job->verb == LEASE_DEAD) { /* whoever held it, overdue, has lost it */
		cursor->epoch++;
		cursor_free_lease_locked(cursor, false);
	}
	if (span && job->verb == LEASE_RECORD) {
		span->recorded = true;
		if (again)
			cursor_count(cursor, redelivered, span_left(span));
		else
			cursor_count(cursor, delivered, span_left(span));
	}
	if (span && span->next <= job->state.committed)
		span->next = job->state.committed + 1;
	if (span)
		span_settle_locked(span);
	/* Given back, or acked to its end: the lease is over. */
	if (span && (job->verb == LEASE_RETRY || job->verb == LEASE_FAIL ||
		     cursor->committed >= span->end))
		span_release_locked(job->reader, span, job->verb != LEASE_RETRY);
	cursor_ready_locked(cursor);
	wait_ready_locked(cursor);
}

static void lease_undo_locked(struct store *store, struct job *base)
{
	struct lease_job *job = container_of(base, struct lease_job, job);
	struct span *span = job_span_locked(job);
	struct cursor *cursor = job->cursor;

	applied_end_locked(job);
	if (job->verb == LEASE_RECORD && job->reader && job->job.error) {
		job->reader->record_error = job->job.error;
		if (span)
			span_release_locked(job->reader, span, true);
		lease_done_locked(job);
	}
	if (job->verb == LEASE_DEAD && job->job.error) {
		dying_end_locked(cursor);
		/* Not at once again, while the disk is full. */
		cursor->delayed = true;
		alarm_set_locked(store, &cursor->alarm, monotonic_us() + 1000000);
	}
	if (cursor_ready_locked(cursor))
		wait_ready_locked(cursor);
}

static void lease_job_free(struct job *base)
{
	struct lease_job *job = container_of(base, struct lease_job, job);
	struct store *store = job->group->store;

	pthread_mutex_lock(&store->state);
	job->cursor->pins--;
	job->cursor->group->jobs--;
	pthread_mutex_unlock(&store->state);
	store_put(job->partition);
	store_put(job->group);
	free(job);
}

static const struct job_type record_type = {
	.lazy = true,
	.apply = lease_apply,
	.publish_locked = lease_publish_locked,
	.undo_locked = lease_undo_locked,
	.free = lease_job_free,
};
static const struct job_type verb_type = {
	.apply = lease_apply,
	.publish_locked = lease_publish_locked,
	.undo_locked = lease_undo_locked,
	.free = lease_job_free,
};

/* ---- asking for it ---------------------------------------------------------------------- */

static struct lease_job *lease_job_new(struct cursor *cursor, enum lease_verb verb,
				       store_done done, void *arg)
{
	struct lease_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->job = (struct job){ .type = verb == LEASE_RECORD || verb == LEASE_DEAD
						 ? &record_type
						 : &verb_type,
				 .done = done,
				 .arg = arg };
	job->verb = verb;
	job->group = store_get(&cursor->group->item);
	job->partition = store_get(&cursor->partition->item);
	job->epoch = cursor->epoch;
	job->cursor = cursor;
	job->head = cursor->committed + 1;
	cursor->pins++;
	cursor->group->jobs++;
	return job;
}

/* With `state`, which is given up while it commits. */
static void submit_and_lock(struct store *store, struct lease_job *job)
{
	pthread_mutex_unlock(&store->state);
	commit_submit(store, &job->job);
	pthread_mutex_lock(&store->state);
}

int lease_record_locked(struct reader *reader)
{
	struct span *span = TAILQ_FIRST(&reader->spans);
	struct lease_job *job = lease_job_new(span->cursor, LEASE_RECORD, nobody, NULL);
	int error;

	if (!job) {
		span_release_locked(reader, span, false);
		return -ENOMEM;
	}
	job->reader = reader;
	job->to = span->end;
	reader->recording = job;
	submit_and_lock(reader->store, job);
	error = reader->record_error;
	reader->record_error = 0;
	return error;
}

int lease_dead_locked(struct reader *reader, struct cursor *cursor)
{
	struct lease_job *job = lease_job_new(cursor, LEASE_DEAD, nobody, NULL);

	if (!job)
		return -ENOMEM;
	snprintf(job->why, sizeof(job->why), "delivered %u times without an ack",
		 cursor->attempts);
	cursor->busy = true;
	cursor->group->dying++;
	cursor_ready_locked(cursor);
	submit_and_lock(reader->store, job);
	return 0;
}

void lease_forget_locked(struct reader *reader)
{
	if (reader->recording)
		reader->recording->reader = NULL;
}

/* What a verb may be said of: 0 and the span, or why not. */
static int verb_check_locked(struct reader *reader, enum ack_verb verb, int64_t offset,
			     struct span **out, struct store_why *why)
{
	struct span *span = TAILQ_FIRST(&reader->spans);
	int64_t committed, returned;

	if (!span)
		return why_set(why, -EINVAL, "nothing is leased here; read first");
	if (!span_live_locked(span))
		return why_set(
			why, -ESTALE,
			"the lease was lost, to a seek or because it had ended; what "
			"was read here is not acked; read on to claim anew");
	committed = span->cursor->committed; /* rm may have passed what was returned */
	returned = span->next - 1;
	if (verb == ACK_TO && offset > returned)
		return why_set(why, -ERANGE,
			       "%lld was not returned yet, allowed is up to %lld",
			       (long long)offset, (long long)returned);
	/* What was begun can be failed or given up, but is not read. */
	if (returned <= committed &&
	    (verb == ACK ||
	     ((verb == ACK_FAIL || verb == ACK_DLQ) && reader->begun != span)))
		return why_set(why, -EINVAL,
			       "no message that is not acked was returned; read "
			       "first");
	*out = span;
	return 0;
}

/* A text that was cut ends with a whole character. */
static void trim_character(char *text, size_t size, const char *whole)
{
	if (!whole || !whole[size])
		return;
	while (size > 0 && ((unsigned char)whole[size] & 0xc0) == 0x80)
		size--;
	text[size] = '\0';
}

void store_ack(struct reader *reader, enum ack_verb verb, int64_t offset, const char *why,
	       store_done done, void *arg)
{
	static const enum lease_verb verbs[] = { [ACK] = LEASE_PASS,
						 [ACK_TO] = LEASE_PASS,
						 [ACK_RETRY] = LEASE_RETRY,
						 [ACK_FAIL] = LEASE_FAIL,
						 [ACK_DLQ] = LEASE_DLQ };
	struct store *store = reader->store;
	struct store_result result = { .why = "" };
	struct store_why text = { "" };
	struct lease_job *job = NULL;
	struct span *span = NULL;

	pthread_mutex_lock(&store->state);
	result.error = verb_check_locked(reader, verb, offset, &span, &text);
	if (!result.error && span) {
		job = lease_job_new(span->cursor, verbs[verb], done, arg);
		result.error = job ? 0 : -ENOMEM;
	}
	if (job) {
		job->reader = reader;
		job->single = span->single;
		job->to = verb == ACK_TO ? span_past(span, offset) : span->next - 1;
		snprintf(job->why, sizeof(job->why), "%s", why ? why : "");
		trim_character(job->why, strlen(job->why), why);
	}
	pthread_mutex_unlock(&store->state);
	if (job) {
		commit_submit(store, &job->job);
		return;
	}
	result.why = text.text;
	done(arg, &result);
}

int store_extend(struct reader *reader, int64_t seconds)
{
	struct store *store = reader->store;
	struct span *span;
	int error = 0;

	pthread_mutex_lock(&store->state);
	span = TAILQ_FIRST(&reader->spans);
	if (!span)
		error = -EINVAL;
	else if (!span_live_locked(span))
		error = -ESTALE;
	if (!error) {
		span->cursor->overdue = false;
		alarm_set_locked(store, &span->cursor->alarm,
				 monotonic_us() + seconds * 1000000);
		cursor_ready_locked(span->cursor);
	}
	pthread_mutex_unlock(&store->state);
	return error;
}
