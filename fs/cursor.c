/* SPDX-License-Identifier: MIT */
/*
 * cursor.c - where a group stands, and the words that move it (section 5).
 *
 * 1. A write is one command and one seek, answered after its commit.
 * 2. Lines with a TAB are a table: each is checked as it arrives, however the writes cut
 *    it, and all of them are one seek when the process that wrote them closes. A bad line
 *    refuses its write and the whole table.
 * 3. An open that writes nothing moves nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cursor_text.h"
#include "fs.h"

struct cursor_file {
	pthread_mutex_t lock; /* all but text */
	struct text text;     /* as it stood when it was opened */
	bool brings_table;
	bool refused; /* one of its lines was bad: nothing of it counts */
	uint64_t owner;
	struct table table;
};

/* ---- reading ------------------------------------------------------------------------------ */

static int text_of_queue(struct item *group, FILE *out)
{
	struct committed_row *rows;
	size_t count;
	int error = store_committed_all(group, &rows, &count);

	if (error)
		return error;
	for (size_t i = 0; i < count; i++) {
		fprintf(out, "%lld\t%s\n", (long long)rows[i].committed,
			store_name(rows[i].partition));
		store_put(rows[i].partition);
	}
	free(rows);
	return 0;
}

static int text_of_partition(const struct place *place, FILE *out)
{
	int64_t committed;
	int error = store_committed(place->group, place->partition, &committed);

	if (!error)
		fprintf(out, "%lld\n", (long long)committed);
	return error;
}

static int cursor_text(const struct node *node, FILE *out)
{
	const struct place *place = &node->place;

	return place->partition ? text_of_partition(place, out)
				: text_of_queue(place->group, out);
}

static int cursor_open(struct handle *handle, struct call *call)
{
	struct cursor_file *file = calloc(1, sizeof(*file));
	int error = file ? 0 : -ENOMEM;

	(void)call;
	if (!error && (handle->flags & O_ACCMODE) != O_WRONLY)
		error = text_make(handle->node, &file->text);
	if (error) {
		free(file);
		return error;
	}
	pthread_mutex_init(&file->lock, NULL);
	handle->state = file;
	return 0;
}

static ssize_t cursor_read(struct handle *handle, char *buffer, size_t size, off_t offset)
{
	return text_copy(&((struct cursor_file *)handle->state)->text, buffer, size,
			 offset);
}

/* ---- a command ---------------------------------------------------------------------------- */

static ssize_t command_write(struct handle *handle, struct call *call, const char *data,
			     size_t size)
{
	const struct place *place = &handle->node->place;
	char copy[CURSOR_LINE_MAX + 1], *text = NULL;
	struct seek seek = { 0 };
	int error;

	if (size <= CURSOR_LINE_MAX) {
		memcpy(copy, data, size);
		text = text_line(copy, size);
	}
	if (!text)
		return why_not(&call->why, -EINVAL,
			       "a write to cursor is one command, one line");
	error = command_parse(text, !place->partition, store_now(call->mount->store),
			      &seek, &call->why);
	if (!error && seek.kind == SEEK_TO_SNAPSHOT &&
	    !call_may(call, place->queue, QUEUE_SNAPSHOTS, 5))
		error = why_not(&call->why, -EACCES,
				"seeking to a snapshot takes r and x of snapshots/");
	if (error) {
		seek_free(&seek);
		return error;
	}
	store_seek(place->group, place->partition, &seek, call_finish, call);
	return PARKED;
}

/* ---- a table ------------------------------------------------------------------------------ */

static int row_allowed(void *arg, const struct seek_row *row, struct store_why *why)
{
	const struct handle *handle = arg;
	const struct cursor_file *file = handle->state;

	return store_seek_check(handle->node->place.group, row, file->table.seek.count,
				why);
}

static ssize_t table_write_locked(struct handle *handle, struct call *call,
				  const char *data, size_t size, uint64_t owner)
{
	struct cursor_file *file = handle->state;
	int error;

	if (handle->node->place.partition)
		return why_not(
			&call->why, -EINVAL,
			"a table of offsets goes to the queue's groups/<group>/cursor");
	if (file->refused)
		return why_not(
			&call->why, -EINVAL,
			"an earlier line of this table was refused, and the table with "
			"it; open the cursor again");
	file->brings_table = true;
	file->owner = owner;
	error = table_add(&file->table, data, size, row_allowed, handle, &call->why);
	file->refused = error;
	return error ? error : (ssize_t)size;
}

static ssize_t cursor_write(struct handle *handle, struct call *call, const char *data,
			    size_t size, uint64_t owner)
{
	struct cursor_file *file = handle->state;
	ssize_t got = 0;
	bool table;

	if (size == 0)
		return 0;
	pthread_mutex_lock(&file->lock);
	table = file->brings_table ||
		begins_table(data, size, !handle->node->place.partition);
	if (table)
		got = table_write_locked(handle, call, data, size, owner);
	pthread_mutex_unlock(&file->lock);
	return table ? got : command_write(handle, call, data, size);
}

/* The process that wrote the table closes it: now it counts. */
static int table_end_locked(struct handle *handle, struct cursor_file *file,
			    struct store_why *why, struct seek *seek)
{
	int error = table_end(&file->table, row_allowed, handle, seek, why);

	file->refused = error;
	file->brings_table = error;
	return error;
}

static int cursor_flush(struct handle *handle, struct call *call, uint64_t owner)
{
	struct cursor_file *file = handle->state;
	struct seek seek = { 0 };
	int error = 0;

	pthread_mutex_lock(&file->lock);
	if (file->brings_table && file->owner == owner)
		error = table_end_locked(handle, file, &call->why, &seek);
	pthread_mutex_unlock(&file->lock);
	if (error || seek.count == 0)
		return error;
	store_seek(handle->node->place.group, NULL, &seek, call_finish, call);
	return PARKED;
}

static void cursor_close(struct handle *handle)
{
	struct cursor_file *file = handle->state;

	table_clear(&file->table);
	free(file->text.data);
	pthread_mutex_destroy(&file->lock);
	free(file);
}

const struct file_ops cursor_file = {
	.flags = FILE_GROWS | FILE_NAMES,
	.stat = text_stat, /* its true size: people cmp and tar cursors that they keep */
	.text = cursor_text,
	.open = cursor_open,
	.read = cursor_read,
	.write = cursor_write,
	.flush = cursor_flush,
	.close = cursor_close,
};
