/* SPDX-License-Identifier: MIT */
/* load.c - see load.h. */
#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define PARTITIONS 3
#define KiB 1024u

static const struct access anyone = { .uid = 7, .gid = 8, .mode = 0777 };

/* ---- verbs that are answered ------------------------------------------------------------- */

struct answer {
	sem_t done;
	int error;
};

static void answer_done(void *arg, const struct store_result *result)
{
	struct answer *answer = arg;

	answer->error = result->error;
	sem_post(&answer->done);
}

static void answer_start(struct answer *answer)
{
	sem_init(&answer->done, 0, 0);
}

static int answer_wait(struct answer *answer)
{
	while (sem_wait(&answer->done) < 0)
		;
	sem_destroy(&answer->done);
	return answer->error;
}

static void result_add(struct load *load, int error)
{
	load->results++;
	if (!error)
		return;
	load->failures++;
	load->error = error;
}

#define ANSWERED(load, call)                            \
	do {                                            \
		struct answer answer;                   \
		answer_start(&answer);                  \
		call;                                   \
		result_add(load, answer_wait(&answer)); \
	} while (0)

static uint64_t random_of(struct load *load, uint64_t bound)
{
	load->seed ^= load->seed << 13;
	load->seed ^= load->seed >> 7;
	load->seed ^= load->seed << 17;
	return load->seed / 16 % bound;
}

/* ---- messages ---------------------------------------------------------------------------- */

static size_t pad_of(struct load *load)
{
	switch (random_of(load, 12)) {
	case 0:
		return 5000;
	case 1:
		return (size_t)40 * KiB;
	case 2:
	case 3:
		return 700;
	default:
		return 20;
	}
}

static struct messages messages_make(struct load *load, unsigned count, size_t pad)
{
	struct messages messages = { .lines = true };

	messages.data = malloc(count * (pad + 32));
	messages.ends = malloc(count * sizeof(*messages.ends));
	if (!messages.data || !messages.ends)
		abort();
	for (; messages.count < count; messages.count++) {
		messages.size +=
			(size_t)sprintf(messages.data + messages.size,
					"%08" PRIu64 " %08zu ", load->number++, pad);
		memset(messages.data + messages.size, 'x', pad);
		messages.size += pad;
		messages.data[messages.size++] = '\n';
		messages.ends[messages.count] = (uint32_t)messages.size;
	}
	return messages;
}

static struct item *partition_of_load(struct load *load, unsigned index)
{
	char name[2] = { (char)('a' + index), '\0' };
	struct item *partition;

	if (store_find(load->store, load->queue, ITEM_PARTITION, name, &partition))
		return NULL;
	return partition;
}

/* ---- steps ------------------------------------------------------------------------------- */

static void do_push(struct load *load)
{
	struct item *partition =
		partition_of_load(load, (unsigned)random_of(load, PARTITIONS));
	struct messages messages =
		messages_make(load, 1 + (unsigned)random_of(load, 3), pad_of(load));

	ANSWERED(load,
		 store_push(load->queue, partition, &messages, answer_done, &answer));
	store_put(partition);
}

/* Messages of one write, dealt to several partitions. */
static void do_spread(struct load *load)
{
	struct messages messages = messages_make(load, 3, random_of(load, 2) ? 3000 : 20);

	ANSWERED(load, store_push(load->queue, NULL, &messages, answer_done, &answer));
}

static void do_push_json(struct load *load)
{
	char text[800];
	uint64_t number = load->number;
	size_t size = 0;

	load->number += 3;
	for (unsigned i = 0; i < 3; i++) /* now and then one that was pushed before */
		size += (size_t)snprintf(
			text + size, sizeof(text) - size,
			"{\"data\":\"%08" PRIu64 " 00000000 \",\"partition\":\"%c\","
			"\"transactionId\":\"t%" PRIu64 "\"}\n",
			number + i, 'a' + (int)random_of(load, PARTITIONS),
			random_of(load, 4) ? number + i : random_of(load, number + 1));
	ANSWERED(load, store_push_json(load->queue, NULL, text, size, 1, false,
				       answer_done, &answer));
}

static void do_seek(struct load *load)
{
	struct item *partition = NULL;
	struct seek seek = { .kind = random_of(load, 2) ? SEEK_TO_START : SEEK_TO_END };

	if (random_of(load, 2)) {
		struct partition_info info;
		partition =
			partition_of_load(load, (unsigned)random_of(load, PARTITIONS));
		store_partition_info(partition, &info);
		seek.kind = SEEK_TO_OFFSET;
		seek.value = info.first_offset - 1 +
			     (int64_t)random_of(load, (uint64_t)(info.last_offset -
								 info.first_offset + 2));
	}
	ANSWERED(load, store_seek(load->group, partition, &seek, answer_done, &answer));
	store_put(partition);
}

static bool span_read(struct load *load)
{
	static char buffer[256 * KiB];

	return store_read(load->leased, buffer, sizeof(buffer)) > 0;
}

static void do_ack(struct load *load)
{
	if (span_read(load))
		ANSWERED(load,
			 store_ack(load->leased, ACK, 0, NULL, answer_done, &answer));
}

static void do_letter(struct load *load)
{
	if (span_read(load))
		ANSWERED(load, store_ack(load->leased, ACK_DLQ, 0, "why not", answer_done,
					 &answer));
	/* what was behind it goes back */
	store_reader_close(load->leased);
	store_reader_open(load->group, NULL, READER_FOLLOW | READER_LEASED,
			  &(struct reader_who){ 1, 0 }, &load->leased);
}

static void do_redrive(struct load *load)
{
	struct letter_info letter;

	if (store_letter_next(load->group, 0, &letter))
		return;
	free(letter.partition);
	ANSWERED(load,
		 store_letter_push(load->group, letter.id, NULL, answer_done, &answer));
}

static void do_pop(struct load *load)
{
	char buffer[64 * KiB];

	for (unsigned i = 0; i < 3; i++)
		if (store_read(load->popping, buffer, sizeof(buffer)) < 0)
			break;
}

static void do_snapshot(struct load *load)
{
	struct snapshot_info info;
	char name[32];

	if (random_of(load, 2) == 0 && store_snapshot_next(load->queue, 0, &info) == 0) {
		ANSWERED(load,
			 store_snapshot_drop(load->queue, info.id, answer_done, &answer));
		return;
	}
	snprintf(name, sizeof(name), "s%" PRIu64, load->number++);
	ANSWERED(load, store_snapshot_make(load->group, name, answer_done, &answer));
}

static void do_segment_drop(struct load *load)
{
	struct item *partition =
		partition_of_load(load, (unsigned)random_of(load, PARTITIONS));
	struct partition_info info;

	store_partition_info(partition, &info);
	if (info.first_offset <= info.last_offset)
		ANSWERED(load, store_segment_drop(partition, info.first_offset,
						  answer_done, &answer));
	if (load->error == -EBUSY) /* a snapshot holds it */
		load->error = load->failures = 0;
	store_put(partition);
}

static void do_make(struct load *load)
{
	char name[32];
	struct item *item;

	if (store_find(load->store, load->queue, ITEM_GROUP, "made", &item) == 0) {
		ANSWERED(load, store_drop(item, answer_done, &answer));
		store_put(item);
		return;
	}
	if (random_of(load, 2)) {
		ANSWERED(load, store_make(load->store, load->queue, ITEM_GROUP, "made",
					  &anyone, answer_done, &answer));
		return;
	}
	snprintf(name, sizeof(name), "q%" PRIu64, load->number++);
	ANSWERED(load, store_make(load->store, NULL, ITEM_QUEUE, name, &anyone,
				  answer_done, &answer));
}

static void do_set(struct load *load)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, 1 + random_of(load, 9));
	ANSWERED(load, store_setting_set(load->queue, SETTING_BATCH, text, answer_done,
					 &answer));
}

static void do_sync(struct load *load)
{
	ANSWERED(load, store_sync(load->store, answer_done, &answer));
	load->syncs = load->failures == 0;
}

/* Several that arrive during a commit are one transaction. */
struct burst {
	struct load *load;
	struct answer first, pushed[PARTITIONS], sought;
	struct messages messages[PARTITIONS];
	struct item *partitions[PARTITIONS];
	bool seek;
};

static void burst_done(void *arg, const struct store_result *result)
{
	struct burst *burst = arg;
	struct seek seek = { .kind = SEEK_TO_START };

	for (unsigned i = 0; i < PARTITIONS; i++)
		store_push(burst->load->queue, burst->partitions[i], &burst->messages[i],
			   answer_done, &burst->pushed[i]);
	if (burst->seek)
		store_seek(burst->load->group, NULL, &seek, answer_done, &burst->sought);
	answer_done(&burst->first, result);
}

static void do_burst(struct load *load)
{
	struct burst burst = { .load = load, .seek = random_of(load, 2) };

	answer_start(&burst.first);
	answer_start(&burst.sought);
	for (unsigned i = 0; i < PARTITIONS; i++) {
		answer_start(&burst.pushed[i]);
		burst.partitions[i] = partition_of_load(load, i);
		burst.messages[i] = messages_make(load, 2, random_of(load, 2) ? 900 : 20);
	}
	store_setting_set(load->queue, SETTING_PREFETCH, "7", burst_done, &burst);
	answer_wait(&burst.first);
	for (unsigned i = 0; i < PARTITIONS; i++) {
		result_add(load, answer_wait(&burst.pushed[i]));
		store_put(burst.partitions[i]);
	}
	if (burst.seek)
		result_add(load, answer_wait(&burst.sought));
}

static const struct {
	void (*run)(struct load *load);
	unsigned weight;
} steps[] = {
	{ do_push, 12 },    { do_spread, 3 },	    { do_push_json, 4 }, { do_seek, 2 },
	{ do_ack, 5 },	    { do_letter, 2 },	    { do_redrive, 2 },	 { do_pop, 3 },
	{ do_snapshot, 2 }, { do_segment_drop, 3 }, { do_make, 2 },	 { do_set, 1 },
	{ do_sync, 2 },	    { do_burst, 3 },
};
#define STEPS (sizeof(steps) / sizeof(*steps))

bool load_step(struct load *load)
{
	unsigned all = 0, which;
	size_t i = 0;

	for (size_t j = 0; j < STEPS; j++)
		all += steps[j].weight;
	which = (unsigned)random_of(load, all);
	while (which >= steps[i].weight)
		which -= steps[i++].weight;
	load->failures = load->results = load->error = 0;
	load->syncs = false;
	steps[i].run(load);
	return load->failures == 0 || load->error == -EIO || load->error == -ENOSPC;
}

int load_push_all(struct load *load)
{
	load->failures = load->results = load->error = 0;
	for (unsigned i = 0; i < PARTITIONS; i++) {
		struct item *partition = partition_of_load(load, i);
		struct messages messages = messages_make(load, 1, 20);
		if (!partition)
			abort();
		ANSWERED(load, store_push(load->queue, partition, &messages, answer_done,
					  &answer));
		store_put(partition);
	}
	return load->error;
}

int load_commit(struct load *load)
{
	struct item *partition = partition_of_load(load, 0);
	struct messages messages = messages_make(load, 3, (size_t)400 * KiB);

	load->failures = load->results = load->error = 0;
	ANSWERED(load,
		 store_push(load->queue, partition, &messages, answer_done, &answer));
	store_put(partition);
	return load->error;
}

int load_sync(struct load *load)
{
	load->failures = load->results = load->error = 0;
	do_sync(load);
	return load->error;
}

/* ---- opening ----------------------------------------------------------------------------- */

static int made(struct load *load, struct item *parent, enum item_kind kind,
		const char *name, struct item **item)
{
	if (store_find(load->store, parent, kind, name, item) == 0)
		return 0;
	load->failures = load->error = 0;
	ANSWERED(load, store_make(load->store, parent, kind, name, &anyone, answer_done,
				  &answer));
	return load->error ? load->error
			   : store_find(load->store, parent, kind, name, item);
}

int load_open(struct load *load, const char *directory, bool disk)
{
	char path[300];
	struct store_options options = { .path = path,
					 .disk = disk,
					 .reserve_bytes = (uint64_t)64 * KiB,
					 .wal_limit_bytes = load->wal_limit_bytes };
	struct store_why why = { "" };
	int error;

	snprintf(path, sizeof(path), "%s/queen.db", directory);
	if (!options.wal_limit_bytes)
		options.wal_limit_bytes = (uint64_t)256 * KiB;
	load->store = NULL;
	load->queue = load->group = load->other = NULL;
	load->leased = load->popping = NULL;
	error = store_open(&options, &load->store, &why);
	if (!error)
		error = made(load, NULL, ITEM_QUEUE, "q", &load->queue);
	for (unsigned i = 0; i < PARTITIONS && !error; i++) {
		char name[2] = { (char)('a' + i), '\0' };
		struct item *partition = NULL;
		error = made(load, load->queue, ITEM_PARTITION, name, &partition);
		store_put(partition);
	}
	if (!error)
		error = made(load, load->queue, ITEM_GROUP, "g", &load->group);
	if (!error)
		error = made(load, load->queue, ITEM_GROUP, "popping", &load->other);
	if (!error) {
		load->failures = load->error = 0;
		ANSWERED(load, store_setting_set(load->queue, SETTING_SPREAD, "3",
						 answer_done, &answer));
		error = load->error;
	}
	if (!error)
		error = store_reader_open(load->group, NULL,
					  READER_FOLLOW | READER_LEASED,
					  &(struct reader_who){ 1, 0 }, &load->leased);
	if (!error)
		error = store_reader_open(load->other, NULL, 0,
					  &(struct reader_who){ 1, 0 }, &load->popping);
	return error;
}

void load_close(struct load *load)
{
	if (load->leased)
		store_reader_close(load->leased);
	if (load->popping)
		store_reader_close(load->popping);
	store_put(load->queue);
	store_put(load->group);
	store_put(load->other);
	if (load->store)
		store_close(load->store);
	load->store = NULL;
	load->queue = load->group = load->other = NULL;
	load->leased = load->popping = NULL;
}

/* ---- what the store shows ---------------------------------------------------------------- */

static uint64_t hash(const char *data, size_t size)
{
	uint64_t sum = 14695981039346656037u;

	for (size_t i = 0; i < size; i++)
		sum = (sum ^ (unsigned char)data[i]) * 1099511628211u;
	return sum;
}

static void state_partition(struct item *partition, FILE *out)
{
	struct partition_info info;
	_Atomic int64_t hint = 0;
	size_t size;
	char *text;
	int64_t lines = 0;

	store_partition_info(partition, &info);
	size = (size_t)(info.end_position - info.first_position);
	text = malloc(size + 1);
	if (!text)
		abort();
	if (store_log_read(partition, info.first_position, &hint, text, size) !=
	    (ssize_t)size)
		fprintf(out, "WRONG: the log cannot be read\n");
	text[size] = '\0';
	fprintf(out, "partition %s\n", store_name(partition));
	for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1)
		fprintf(out, "log %s@%" PRId64 " %.8s %" PRIx64 "\n",
			store_name(partition), info.first_offset + lines++, at,
			hash(at, (size_t)(end - at)));
	if (lines != info.last_offset - info.first_offset + 1)
		fprintf(out, "WRONG: %" PRId64 " messages in the log\n", lines);
	free(text);
}

static void state_group(struct load *load, struct item *group, FILE *out)
{
	struct committed_row *rows;
	struct letter_info letter;
	char text[128 * KiB];
	size_t count;
	ssize_t got;

	fprintf(out, "group %s\n", store_name(group));
	if (strcmp(store_name(group), "popping") != 0 &&
	    store_committed_all(group, &rows, &count) == 0) {
		for (size_t i = 0; i < count; i++) {
			fprintf(out, " %s %" PRId64 "\n", store_name(rows[i].partition),
				rows[i].committed);
			store_put(rows[i].partition);
		}
		free(rows);
	}
	for (uint64_t id = 0; store_letter_next(group, id, &letter) == 0;
	     id = letter.id) {
		got = store_letter_read(group, letter.id, 0, text, sizeof(text));
		fprintf(out, " letter %s@%" PRId64 " %" PRIx64 "\n", letter.partition,
			letter.offset, got < 0 ? 0 : hash(text, (size_t)got));
		free(letter.partition);
	}
	(void)load;
}

static void state_queue(struct load *load, struct item *queue, FILE *out)
{
	struct item *item;
	struct snapshot_info snapshot;
	char text[SETTING_TEXT_SIZE > 4096 ? SETTING_TEXT_SIZE : 4096];
	ssize_t got;

	store_setting(queue, SETTING_BATCH, text);
	fprintf(out, "queue %s batch %s\n", store_name(queue), text);
	for (uint64_t id = 0;
	     store_next(load->store, queue, ITEM_PARTITION, id, &item) == 0;) {
		state_partition(item, out);
		id = store_id(item);
		store_put(item);
	}
	for (uint64_t id = 0;
	     store_next(load->store, queue, ITEM_GROUP, id, &item) == 0;) {
		state_group(load, item, out);
		id = store_id(item);
		store_put(item);
	}
	for (uint64_t id = 0; store_snapshot_next(queue, id, &snapshot) == 0;
	     id = snapshot.id) {
		got = store_snapshot_read(queue, snapshot.id, 0, text, sizeof(text));
		fprintf(out, "snapshot %s %" PRIx64 "\n", snapshot.name,
			got < 0 ? 0 : hash(text, (size_t)got));
	}
}

char *load_state(struct load *load)
{
	struct item *queue;
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		abort();
	for (uint64_t id = 0;
	     store_next(load->store, NULL, ITEM_QUEUE, id, &queue) == 0;) {
		state_queue(load, queue, out);
		id = store_id(queue);
		store_put(queue);
	}
	fclose(out);
	return text;
}
