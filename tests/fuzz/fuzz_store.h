/* SPDX-License-Identifier: MIT */
/*
 * fuzz_store.h - for the targets that damage a store: a good one to begin with, its files as
 * bytes, and all that can be done with one.
 *
 * Whatever is in the files, an errno is a fine answer; a crash, a hang, a listing without an
 * end or bytes out of bounds are not.
 */
#ifndef FUZZ_STORE_H
#define FUZZ_STORE_H

#include <dirent.h>
#include <fcntl.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "fuzz.h"
#include "store.h"

/* ---- files ------------------------------------------------------------------------------ */

static char fuzz_dir[64], fuzz_path[80];

static inline void fuzz_dir_remove(void)
{
	struct dirent **entries = NULL;
	int dir = open(fuzz_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int count = scandir(fuzz_dir, &entries, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		unlinkat(dir, entries[i]->d_name, 0);
		free(entries[i]);
	}
	free(entries);
	close(dir);
	rmdir(fuzz_dir);
}

/* A directory of this process, in memory where there is one. */
static inline void fuzz_dir_make(void)
{
	if (fuzz_dir[0])
		return;
	snprintf(fuzz_dir, sizeof(fuzz_dir), "%s/queenfs-fuzz.XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	PROMISE(mkdtemp(fuzz_dir));
	snprintf(fuzz_path, sizeof(fuzz_path), "%s/queen.db", fuzz_dir);
	atexit(fuzz_dir_remove);
}

struct fuzz_file {
	uint8_t *data;
	size_t size;
};

static inline const char *fuzz_beside(const char *ending)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s%s", fuzz_path, ending);
	return path;
}

static inline void fuzz_file_read(const char *ending, struct fuzz_file *file)
{
	int fd = open(fuzz_beside(ending), O_RDONLY | O_CLOEXEC);
	struct stat st;

	PROMISE(fd >= 0 && fstat(fd, &st) == 0);
	file->size = (size_t)st.st_size;
	file->data = malloc(file->size + 1);
	PROMISE(file->data && read(fd, file->data, file->size) == (ssize_t)file->size);
	close(fd);
}

static inline void fuzz_file_write(const char *ending, const uint8_t *data, size_t size)
{
	int fd =
		open(fuzz_beside(ending), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	PROMISE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	close(fd);
}

static inline void fuzz_files_drop(void)
{
	static const char *const endings[] = { "", "-wal", "-shm", "-tail", "-new" };

	for (size_t i = 0; i < FUZZ_COUNT(endings); i++)
		unlink(fuzz_beside(endings[i]));
}

/* ---- verbs that are answered ------------------------------------------------------------ */

struct fuzz_answer {
	sem_t given;
	int error;
	struct item *item;
};

static inline void fuzz_answered(void *arg, const struct store_result *result)
{
	struct fuzz_answer *answer = arg;

	answer->error = result->error;
	PROMISE(result->error <= 0 && result->why);
	answer->item = result->item ? store_get(result->item) : NULL;
	sem_post(&answer->given);
}

/* Says a verb and waits for its answer: `call` ends in fuzz_answered, &answer. */
#define FUZZ_ASK(call)                                         \
	__extension__({                                        \
		struct fuzz_answer answer = { .error = 0 };    \
		sem_init(&answer.given, 0, 0);                 \
		call;                                          \
		while (sem_wait(&answer.given) < 0)            \
			;                                      \
		sem_destroy(&answer.given);                    \
		store_put(fuzz_item_set ? NULL : answer.item); \
		if (fuzz_item_set)                             \
			*fuzz_item_set = answer.item;          \
		answer.error;                                  \
	})

static inline int fuzz_store_open(struct store **store)
{
	struct store_options options = { .wal_limit_bytes = 1 << 20 };
	struct store_why why = { "" };
	int error;

	fuzz_dir_make();
	options.path = fuzz_path;
	error = store_open(&options, store, &why);
	PROMISE(error <= 0);
	PROMISE(!error || why.text[0]);
	return error;
}

static inline int fuzz_make(struct store *store, struct item *parent, enum item_kind kind,
			    const char *name, const struct access *access,
			    struct item **fuzz_item_set)
{
	return FUZZ_ASK(
		store_make(store, parent, kind, name, access, fuzz_answered, &answer));
}

static struct item **const fuzz_item_set = NULL; /* the verbs below make none */

static inline int fuzz_setting_set(struct item *item, enum setting setting,
				   const char *text)
{
	return FUZZ_ASK(store_setting_set(item, setting, text, fuzz_answered, &answer));
}

static inline int fuzz_push(struct item *queue, struct item *partition, const char *text)
{
	struct messages messages = { .size = strlen(text), .lines = true };

	messages.data = strdup(text);
	messages.ends = malloc((messages.size + 1) * sizeof(*messages.ends));
	PROMISE(messages.data && messages.ends);
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		messages.ends[messages.count++] = (uint32_t)(at - text) + 1;
	return FUZZ_ASK(store_push(queue, partition, &messages, fuzz_answered, &answer));
}

static inline int fuzz_push_json(struct item *queue, struct item *partition,
				 const char *text)
{
	return FUZZ_ASK(store_push_json(queue, partition, text, strlen(text), 1, true,
					fuzz_answered, &answer));
}

static inline int fuzz_seek(struct item *group, struct item *partition,
			    enum seek_kind kind, int64_t value, const char *snapshot)
{
	struct seek seek = { .kind = kind,
			     .value = value,
			     .snapshot = snapshot ? strdup(snapshot) : NULL };

	return FUZZ_ASK(store_seek(group, partition, &seek, fuzz_answered, &answer));
}

/* ---- the good store ---------------------------------------------------------------------- */

/* One of everything: short and long segments, records, a dead letter, a snapshot, a filter,
 * cursors that are behind. */
static inline void fuzz_store_make(void)
{
	static const struct access anyone = { 0, 0, 0777 };
	static const struct reader_who who = { 1, 0 };
	struct store *store;
	struct item *queue, *partition, *group, *other;
	struct reader *reader;
	char text[4096], buffer[8192];

	PROMISE(fuzz_store_open(&store) == 0);
	PROMISE(fuzz_make(store, NULL, ITEM_QUEUE, "q", &anyone, &queue) == 0);
	PROMISE(fuzz_make(store, queue, ITEM_PARTITION, "p", &anyone, &partition) == 0);
	PROMISE(fuzz_make(store, queue, ITEM_GROUP, "g", &anyone, &group) == 0);
	PROMISE(fuzz_make(store, queue, ITEM_GROUP, "filtered", &anyone, &other) == 0);
	PROMISE(fuzz_setting_set(other, SETTING_FILTER, "data LIKE '%e%'") == 0);
	PROMISE(fuzz_setting_set(group, SETTING_BATCH, "2") == 0);
	PROMISE(fuzz_setting_set(queue, SETTING_RETRY_DELAY_SECONDS, "1:5") == 0);
	PROMISE(fuzz_push(queue, partition, "one\ntwo\nthree\n") == 0);
	memset(text, 'x', sizeof(text) - 2);
	memcpy(text + sizeof(text) - 2, "\n", 2);
	PROMISE(fuzz_push(queue, partition, text) == 0);
	PROMISE(fuzz_push_json(queue, partition,
			       "{\"data\":{\"n\":1},\"transactionId\":\"t-1\","
			       "\"attributes\":{\"k\":\"v\"}}\n{\"data\":\"plain\"}\n") ==
		0);
	PROMISE(fuzz_push(queue, NULL, "a\n\nb\n") == 0);
	PROMISE(store_reader_open(group, partition, READER_LEASED, &who, &reader) == 0);
	PROMISE(store_read(reader, buffer, sizeof(buffer)) > 0);
	PROMISE(FUZZ_ASK(store_ack(reader, ACK_DLQ, 0, "no", fuzz_answered, &answer)) ==
		0);
	store_reader_close(reader);
	PROMISE(FUZZ_ASK(store_snapshot_make(group, "s", fuzz_answered, &answer)) == 0);
	store_put(other);
	store_put(group);
	store_put(partition);
	store_put(queue);
	store_close(store);
}

/* ---- all that can be done with one ------------------------------------------------------- */

#define FUZZ_MANY 100000 /* more than any listing of these stores has */

static inline void fuzz_read_partition(struct item *partition)
{
	static char buffer[70000];
	struct partition_info info;
	struct segment_info segment = { .base_offset = -1 }, same;
	_Atomic int64_t hint = 0;
	uint64_t position;
	ssize_t got = 1;
	unsigned count = 0;

	store_partition_info(partition, &info);
	PROMISE(info.first_offset >= 0 && info.last_offset >= info.first_offset - 1);
	while (store_segment_next(partition, segment.base_offset, &segment) == 0 &&
	       count < FUZZ_MANY) {
		store_segment(partition, segment.base_offset, &same);
		store_segment_of(partition, segment.end_offset, &same);
		count++;
	}
	PROMISE(count < FUZZ_MANY);
	for (position = info.first_position; got > 0 && count < FUZZ_MANY; count++) {
		got = store_log_read(partition, position, &hint, buffer, sizeof(buffer));
		PROMISE(got <= (ssize_t)sizeof(buffer));
		if (got > 0)
			position += (uint64_t)got;
	}
	PROMISE(count < FUZZ_MANY);
	store_log_read(partition, info.end_position / 2, &hint, buffer, 7);
}

static inline void fuzz_read_as(struct item *group, struct item *partition,
				unsigned flags)
{
	static const struct reader_who who = { 1, 0 };
	static char buffer[70000];
	struct reader *reader;
	struct member *members;
	size_t count;
	ssize_t got = 1;

	if (store_reader_open(group, partition, flags, &who, &reader))
		return;
	for (unsigned i = 0; i < 20 && got > 0; i++) {
		got = store_read(reader, buffer, i % 2 ? sizeof(buffer) : 300);
		PROMISE(got <= (ssize_t)sizeof(buffer));
		if (flags & READER_LEASED && got > 0)
			FUZZ_ASK(store_ack(reader, i % 3 ? ACK : ACK_FAIL, 0, NULL,
					   fuzz_answered, &answer));
	}
	store_readable(reader, NULL, NULL);
	if (store_members(group, &members, &count) == 0) {
		for (size_t i = 0; i < count; i++)
			store_put(members[i].partition);
		free(members);
	}
	store_reader_close(reader);
}

static inline void fuzz_use_letters(struct item *group)
{
	struct letter_info letter = { .id = 0 };
	char buffer[100];
	uint64_t last = 0;
	unsigned count = 0;

	while (store_letter_next(group, last, &letter) == 0 && count++ < FUZZ_MANY) {
		char *name = letter.partition;
		PROMISE(letter.id > last);
		last = letter.id;
		store_letter(group, name, letter.offset, &letter);
		if (letter.partition != name)
			free(letter.partition);
		free(name);
		store_letter_read(group, last, 1, buffer, sizeof(buffer));
		if (count % 2)
			FUZZ_ASK(store_letter_push(group, last, NULL, fuzz_answered,
						   &answer));
		else
			FUZZ_ASK(store_letter_drop(group, last, fuzz_answered, &answer));
	}
	PROMISE(count < FUZZ_MANY);
}

static inline void fuzz_use_snapshots(struct item *queue, struct item *group)
{
	struct snapshot_info info = { .id = 0 };
	char buffer[100];
	uint64_t last = 0;

	while (store_snapshot_next(queue, last, &info) == 0) {
		PROMISE(info.id > last);
		last = info.id;
		store_snapshot_read(queue, last, 0, buffer, sizeof(buffer));
		if (group)
			fuzz_seek(group, NULL, SEEK_TO_SNAPSHOT, 0, info.name);
		FUZZ_ASK(store_snapshot_drop(queue, last, fuzz_answered, &answer));
	}
}

static inline void fuzz_use_group(struct item *queue, struct item *group)
{
	struct committed_row *rows;
	struct cursor_info cursor;
	struct group_stats stats;
	char text[SETTING_TEXT_SIZE];
	size_t count;

	for (int i = 0; i < SETTING_COUNT; i++)
		if (setting_of_group((enum setting)i))
			store_setting(group, (enum setting)i, text);
	store_group_stats(group, &stats);
	fuzz_read_as(group, NULL, READER_JSON | READER_FOLLOW);
	fuzz_use_snapshots(queue, group);
	fuzz_seek(group, NULL, SEEK_TO_TIME, INT64_C(1785333600000000), NULL);
	fuzz_read_as(group, NULL, READER_LEASED);
	fuzz_seek(group, NULL, SEEK_TO_START, 0, NULL);
	if (store_committed_all(group, &rows, &count) == 0) {
		for (size_t i = 0; i < count; i++) {
			store_cursor_info(group, rows[i].partition, &cursor);
			fuzz_read_as(group, rows[i].partition, 0);
			fuzz_seek(group, rows[i].partition, SEEK_TO_OFFSET,
				  rows[i].committed, NULL);
			store_put(rows[i].partition);
		}
		free(rows);
	}
	FUZZ_ASK(store_snapshot_make(group, "mine", fuzz_answered, &answer));
	fuzz_use_letters(group);
}

/* Children must have names that the kernel can take, and come to an end. */
#define FUZZ_EACH(store, parent, kind, item)                           \
	for (uint64_t fuzz_id = 0;                                     \
	     store_next(store, parent, kind, fuzz_id, &(item)) == 0 && \
	     fuzz_child(item, &fuzz_id);                               \
	     store_put(item))

static inline bool fuzz_child(struct item *item, uint64_t *id)
{
	struct store_why why;

	PROMISE(store_id(item) > *id);
	PROMISE(store_name_check(store_name(item), &why) == 0);
	*id = store_id(item);
	return true;
}

static inline void fuzz_use_queue(struct store *store, struct item *queue)
{
	struct item *partition, *group;
	struct partition_info info;
	struct queue_stats stats;
	char text[SETTING_TEXT_SIZE];

	for (int i = 0; i < SETTING_COUNT; i++)
		if (setting_of_queue((enum setting)i))
			store_setting(queue, (enum setting)i, text);
	store_queue_stats(queue, &stats);
	FUZZ_EACH(store, queue, ITEM_PARTITION, partition)
	{
		fuzz_read_partition(partition);
		fuzz_push(queue, partition, "new\n");
		fuzz_push_json(queue, partition,
			       "{\"data\":1,\"transactionId\":\"t-1\"}\n");
	}
	FUZZ_EACH(store, queue, ITEM_GROUP, group)
	{
		fuzz_use_group(queue, group);
	}
	fuzz_use_snapshots(queue, NULL);
	FUZZ_EACH(store, queue, ITEM_PARTITION, partition)
	{
		store_partition_info(partition, &info);
		FUZZ_ASK(store_segment_drop(partition, info.first_offset, fuzz_answered,
					    &answer));
		FUZZ_ASK(store_drop(partition, fuzz_answered, &answer));
	}
	fuzz_setting_set(queue, SETTING_RETENTION_BYTES, "1");
	fuzz_push(queue, NULL, "last\n");
	FUZZ_EACH(store, queue, ITEM_GROUP, group)
	{
		FUZZ_ASK(store_drop(group, fuzz_answered, &answer));
	}
	FUZZ_ASK(store_drop(queue, fuzz_answered, &answer));
}

/* Opens what lies at fuzz_path, uses all of it, closes it and opens it again. */
static inline void fuzz_store_use(void)
{
	static const struct access anyone = { 0, 0, 0777 };
	struct store *store;
	struct item *queue;
	struct store_stats stats;

	if (fuzz_store_open(&store))
		return;
	FUZZ_EACH(store, NULL, ITEM_QUEUE, queue)
	{
		fuzz_use_queue(store, queue);
	}
	if (fuzz_make(store, NULL, ITEM_QUEUE, "another", &anyone, &queue) == 0) {
		fuzz_push(queue, NULL, "hello\n");
		store_put(queue);
	}
	store_stats(store, &stats);
	FUZZ_ASK(store_sync(store, fuzz_answered, &answer));
	store_close(store);
	if (fuzz_store_open(&store) == 0)
		store_close(store);
}

#endif
