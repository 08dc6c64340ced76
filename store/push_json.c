/* SPDX-License-Identifier: MIT */
/*
 * push_json.c - lines of push.json on their way into pushes.
 *
 * Each line is parsed (envelope.c) and its message put behind those for the same partition;
 * all partitions of one write make one push, which is all or none.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

/* What the lines add to one partition. */
struct lane {
	char *name; /* NULL: the file's own partition */
	struct maker maker;
	uint32_t *order; /* which lines these are; has room like the maker */
};

struct sorter {
	struct item *queue, *partition; /* of the file; partition may be NULL */
	struct message_rules rules;
	struct lane *lanes;
	uint32_t count;
	uint32_t *slots, slot_count; /* by name: 0, or the number of a lane + 1 */
	uint32_t lines;
};

static void sorter_free(struct sorter *sorter)
{
	for (uint32_t i = 0; i < sorter->count; i++) {
		free(sorter->lanes[i].name);
		free(sorter->lanes[i].order);
		maker_free(&sorter->lanes[i].maker);
	}
	free(sorter->lanes);
	free(sorter->slots);
}

/* ---- lanes by name -------------------------------------------------------------------- */

static uint32_t *slot_find(const struct sorter *sorter, const char *name)
{
	uint32_t at = (uint32_t)name_hash(name);

	for (;; at++) {
		uint32_t *slot = &sorter->slots[at & (sorter->slot_count - 1)];
		if (*slot == 0 || strcmp(sorter->lanes[*slot - 1].name, name) == 0)
			return slot;
	}
}

/* At most half of the slots are taken; lanes have as much room. */
static int slots_grow(struct sorter *sorter)
{
	uint32_t count = sorter->slot_count ? sorter->slot_count * 2 : 8;
	struct lane *lanes = realloc(sorter->lanes, count / 2 * sizeof(*lanes));
	uint32_t *slots = calloc(count, sizeof(*slots));

	if (lanes)
		sorter->lanes = lanes;
	if (!lanes || !slots) {
		free(slots);
		return -ENOMEM;
	}
	free(sorter->slots);
	sorter->slots = slots;
	sorter->slot_count = count;
	for (uint32_t i = 0; i < sorter->count; i++)
		*slot_find(sorter, lanes[i].name) = i + 1;
	return 0;
}

static struct lane *lane_of(struct sorter *sorter, const char *name)
{
	uint32_t *slot;

	if (sorter->count * 2 == sorter->slot_count && slots_grow(sorter))
		return NULL;
	slot = slot_find(sorter, name);
	if (*slot == 0) {
		char *copy = strdup(name);
		if (!copy)
			return NULL;
		sorter->lanes[sorter->count++] = (struct lane){ .name = copy };
		*slot = sorter->count;
	}
	return &sorter->lanes[*slot - 1];
}

/* ---- a line ----------------------------------------------------------------------------- */

static int lane_add(struct sorter *sorter, struct lane *lane,
		    const struct message *message)
{
	uint32_t count = lane->maker.count;
	uint32_t *order = array_grown(lane->order, count, sizeof(*order));

	if (!order)
		return -ENOMEM;
	lane->order = order;
	order[count] = sorter->lines;
	return maker_add(&lane->maker, message, sorter->rules.lines);
}

static int line_check(const struct sorter *sorter, const struct message *message,
		      const char *partition, struct store_why *why)
{
	if (message->size + message->attributes_size > sorter->rules.message_max)
		return why_set(why, -EMSGSIZE,
			       "data and attributes are longer than max_message_bytes, "
			       "which is %u",
			       sorter->rules.message_max);
	if (sorter->rules.lines && memchr(message->data, '\n', message->size))
		return why_set(
			why, -EINVAL,
			"data holds a newline, which ends a message in this queue; "
			"config/framing file allows it");
	if (sorter->partition && partition &&
	    strcmp(partition, sorter->partition->name) != 0)
		return why_set(why, -EINVAL,
			       "it names another partition than the one whose push.json "
			       "this is");
	return 0;
}

static int line_add(struct sorter *sorter, struct envelope *envelope, const char *line,
		    size_t size, struct store_why *why)
{
	struct message message = { 0 };
	const char *partition = NULL;
	uint64_t spread, turn;
	char dealt[24];
	struct lane *lane;
	int error = envelope_parse(envelope, line, size, &message, &partition, why);

	if (!error)
		error = line_check(sorter, &message, partition, why);
	if (error)
		return error;
	if (sorter->partition)
		partition = sorter->partition->name;
	if (!partition && (spread = push_deal(sorter->queue, 1, &turn)) > 1) {
		push_dealt_name(turn, spread, dealt);
		partition = dealt;
	}
	lane = lane_of(sorter, partition ? partition : STORE_DEFAULT_NAME);
	return lane ? lane_add(sorter, lane, &message) : -ENOMEM;
}

/* ---- all lines of a write ---------------------------------------------------------------- */

static int sort_lines(struct sorter *sorter, const char *at, size_t size,
		      uint64_t first_line, struct store_why *why)
{
	struct store *store = sorter->queue->store;
	const char *end = at + size, *newline;
	struct envelope *envelope;
	struct store_why words = { "" };
	int error = envelope_take(store, &envelope);

	if (error)
		return error;
	for (; at < end && !error; at = newline + 1) {
		newline = memchr(at, '\n', (size_t)(end - at));
		error = line_add(sorter, envelope, at, (size_t)(newline - at), &words);
		if (error && words.text[0])
			why_set(why, error, "line %" PRIu64 ": %.200s",
				first_line + sorter->lines, words.text);
		sorter->lines++;
	}
	envelope_give(store, envelope);
	return error;
}

static int part_add(struct push_job *push, struct sorter *sorter, struct lane *lane)
{
	struct store *store = sorter->queue->store;
	struct messages messages = { 0 };
	int error = maker_take(&lane->maker, sorter->rules.lines, &messages);

	if (error)
		return error;
	pthread_mutex_lock(&store->state);
	error = push_add_locked(push, sorter->queue, sorter->partition, lane->name,
				&messages);
	pthread_mutex_unlock(&store->state);
	messages_free(&messages);
	if (error)
		return error;
	push->parts[push->part_count - 1].order = lane->order;
	lane->order = NULL;
	return 0;
}

void store_push_json(struct item *queue, struct item *partition, const char *lines,
		     size_t size, uint64_t first_line, bool verdicts, store_done done,
		     void *arg)
{
	struct sorter sorter = { .queue = queue, .partition = partition };
	struct store_result result = { .why = "" };
	struct store_why why = { "" };
	struct push_job *push = NULL;
	int error;

	store_message_rules(queue, &sorter.rules);
	error = sort_lines(&sorter, lines, size, first_line, &why);
	if (!error) {
		push = push_new(sorter.count, done, arg);
		error = push ? 0 : -ENOMEM;
	}
	if (push && verdicts) {
		push->verdicts = calloc(sorter.lines, sizeof(*push->verdicts));
		push->job.verdicts = push->verdicts;
		push->job.verdict_count = sorter.lines;
		error = push->verdicts ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; i < sorter.count && !error; i++)
		error = part_add(push, &sorter, &sorter.lanes[i]);
	sorter_free(&sorter);
	if (push) {
		push_submit(queue->store, push, error);
		return;
	}
	result.error = error;
	result.why = why.text;
	done(arg, &result);
}
