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
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

#define LINE_MAX_BYTES 512 /* a name, an offset, a TAB */

struct cursor_file {
	pthread_mutex_t lock; /* all but text */
	struct text text;     /* as it stood when it was opened */
	bool table;	      /* this handle brings a table */
	bool refused;	      /* one of its lines was bad: nothing of it counts */
	uint64_t owner;
	char line[LINE_MAX_BYTES]; /* the unfinished last line */
	size_t line_size;
	struct seek seek; /* what has been gathered */
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

/* 1 and the number, 0 if it is no run of digits, -ERANGE if it does not fit. */
static int parse_integer(const char *text, int64_t *value)
{
	const char *at = text + (*text == '-');
	char *end;

	if (!isdigit((unsigned char)*at) || at[strspn(at, "0123456789")] != '\0')
		return 0;
	errno = 0;
	*value = strtoll(text, &end, 10);
	return errno ? -ERANGE : 1;
}

static int parse_offset(const char *text, bool of_queue, struct seek *seek,
			struct store_why *why)
{
	int got = parse_integer(text, &seek->value);

	if (got < 0)
		return why_not(why, got, "%s is no offset: too large", text);
	if (got == 0)
		return 0;
	if (of_queue)
		return why_not(why, -EINVAL,
			       "an offset needs a partition: write it to "
			       "partitions/<partition>/groups/<group>/cursor, or here as "
			       "<offset><TAB><partition>");
	seek->kind = SEEK_TO_OFFSET;
	return 1;
}

static int parse_snapshot(const char *name, bool of_queue, struct seek *seek,
			  struct store_why *why)
{
	if (!of_queue)
		return why_not(why, -EINVAL,
			       "a snapshot is of all partitions: write it to "
			       "groups/<group>/cursor of the queue");
	seek->kind = SEEK_TO_SNAPSHOT;
	seek->snapshot = strdup(name);
	return seek->snapshot ? 0 : -ENOMEM;
}

static int parse_command(const char *text, bool of_queue, int64_t now_us,
			 struct seek *seek, struct store_why *why)
{
	int got;

	if (*text == '\0' && of_queue)
		return why_not(why, -EINVAL, "must specify end or a time");
	if (*text == '\0' || strcasecmp(text, "end") == 0 ||
	    strcasecmp(text, "now") == 0) {
		seek->kind = SEEK_TO_END;
		return 0;
	}
	if (strcasecmp(text, "start") == 0) {
		seek->kind = SEEK_TO_START;
		return 0;
	}
	if (strncasecmp(text, "snapshot", 8) == 0 && (text[8] == ' ' || text[8] == '\t'))
		return parse_snapshot(text + 9 + strspn(text + 9, " \t"), of_queue, seek,
				      why);
	got = parse_offset(text, of_queue, seek, why);
	if (got)
		return got < 0 ? got : 0;
	if (time_parse(text, now_us, &seek->value) == 0) {
		seek->kind = SEEK_TO_TIME;
		return 0;
	}
	return why_not(
		why, -EINVAL,
		"\"%.60s\" is no position; allowed are end, now, start, a time like "
		"2026-07-29T14:00Z, -15m, @<seconds>, %s",
		text,
		of_queue ? "snapshot <name>, lines of <offset><TAB><partition>"
			 : "an offset");
}

static ssize_t command_write(struct handle *handle, struct call *call, const char *data,
			     size_t size)
{
	const struct place *place = &handle->node->place;
	char copy[LINE_MAX_BYTES + 1], *text = NULL;
	struct seek seek = { 0 };
	int error;

	if (size <= LINE_MAX_BYTES) {
		memcpy(copy, data, size);
		text = text_line(copy, size);
	}
	if (!text)
		return why_not(&call->why, -EINVAL,
			       "a write to cursor is one command, one line");
	error = parse_command(text, !place->partition, store_now(call->mount->store),
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

static int row_parse(char *line, struct seek_row *row, struct store_why *why)
{
	char *tab = strchr(line, '\t');

	row->partition = tab ? tab + 1 : line;
	if (!tab)
		return why_not(why, -EINVAL, "\"%.60s\" is no <offset><TAB><partition>",
			       line);
	*tab = '\0';
	if (parse_integer(line, &row->committed) != 1)
		return why_not(why, -EINVAL, "\"%.60s\" before the TAB is no offset",
			       line);
	if (strcmp(row->partition, "*") == 0 && row->committed != -1)
		return why_not(why, -EINVAL, "only -1 goes with *");
	return 0;
}

static int row_add_locked(struct cursor_file *file, const struct seek_row *row)
{
	struct seek *seek = &file->seek;
	char *name = strdup(row->partition);
	struct seek_row *rows = array_grown(seek->rows, seek->count, sizeof(*rows));

	if (rows)
		seek->rows = rows;
	if (!name || !rows) {
		free(name);
		return -ENOMEM;
	}
	rows[seek->count++] = (struct seek_row){ name, row->committed };
	/* cppcheck-suppress memleak; the row has it */
	return 0;
}

/* The gathered line is whole. */
static int table_line_locked(struct handle *handle, struct cursor_file *file,
			     struct store_why *why)
{
	struct seek_row row = { 0 };
	int error;

	file->line[file->line_size] = '\0';
	if (strlen(file->line) != file->line_size)
		return why_not(why, -EINVAL, "a line of the table holds a NUL");
	file->line_size = 0;
	if (file->line[0] == '#')
		return 0;
	error = row_parse(file->line, &row, why);
	if (!error)
		error = store_seek_check(handle->node->place.group, &row, why);
	return error ? error : row_add_locked(file, &row);
}

static int table_bytes_locked(struct handle *handle, struct cursor_file *file,
			      const char *data, size_t size, struct store_why *why)
{
	int error = 0;

	for (size_t i = 0; i < size && !error; i++) {
		if (data[i] == '\n')
			error = table_line_locked(handle, file, why);
		else if (file->line_size == LINE_MAX_BYTES - 1)
			error = why_not(why, -EINVAL, "a line of the table is too long");
		else
			file->line[file->line_size++] = data[i];
	}
	return error;
}

static void table_refuse_locked(struct cursor_file *file)
{
	seek_free(&file->seek);
	file->line_size = 0;
	file->refused = true;
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
	file->table = true;
	file->owner = owner;
	error = table_bytes_locked(handle, file, data, size, &call->why);
	if (!error)
		return (ssize_t)size;
	table_refuse_locked(file);
	return error;
}

/* A TAB or a comment; or digits without a newline, which are no command for a queue: the
 * writer has cut its first line. */
static bool begins_table(const struct handle *handle, const char *data, size_t size)
{
	size_t at = *data == '-';

	if (*data == '#' || memchr(data, '\t', size))
		return true;
	while (at < size && isdigit((unsigned char)data[at]))
		at++;
	return at == size && !handle->node->place.partition;
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
	table = file->table || begins_table(handle, data, size);
	if (table)
		got = table_write_locked(handle, call, data, size, owner);
	pthread_mutex_unlock(&file->lock);
	return table ? got : command_write(handle, call, data, size);
}

/* The process that wrote the table closes it: now it counts. */
static int table_end_locked(struct handle *handle, struct cursor_file *file,
			    struct store_why *why, struct seek *seek)
{
	int error = 0;

	if (file->line_size > 0)
		error = table_line_locked(handle, file, why);
	if (error) {
		table_refuse_locked(file);
		return error;
	}
	file->table = file->refused = false;
	*seek = file->seek;
	seek->kind = SEEK_TO_TABLE;
	file->seek = (struct seek){ 0 };
	return 0;
}

static int cursor_flush(struct handle *handle, struct call *call, uint64_t owner)
{
	struct cursor_file *file = handle->state;
	struct seek seek = { 0 };
	int error = 0;

	pthread_mutex_lock(&file->lock);
	if (file->table && file->owner == owner)
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

	seek_free(&file->seek);
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
