/* SPDX-License-Identifier: MIT */
/*
 * cursor_text.c - what people write to a cursor, as a seek (section 5).
 *
 * Not for: the file and its handles (cursor.c), what the store says to a seek.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cursor_text.h"
#include "fs.h"

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

int command_parse(const char *text, bool of_queue, int64_t now_us, struct seek *seek,
		  struct store_why *why)
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

/* ---- a table ------------------------------------------------------------------------------ */

bool begins_table(const char *data, size_t size, bool of_queue)
{
	size_t at = *data == '-';

	if (*data == '#' || memchr(data, '\t', size))
		return true;
	while (at < size && isdigit((unsigned char)data[at]))
		at++;
	return at == size && of_queue;
}

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

static int row_add(struct table *table, const struct seek_row *row)
{
	struct seek *seek = &table->seek;
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
static int line_end(struct table *table, row_check check, void *arg,
		    struct store_why *why)
{
	struct seek_row row = { 0 };
	int error;

	table->line[table->line_size] = '\0';
	if (strlen(table->line) != table->line_size)
		return why_not(why, -EINVAL, "a line of the table holds a NUL");
	table->line_size = 0;
	if (table->line[0] == '#')
		return 0;
	error = row_parse(table->line, &row, why);
	if (!error)
		error = check(arg, &row, why);
	return error ? error : row_add(table, &row);
}

int table_add(struct table *table, const char *data, size_t size, row_check check,
	      void *arg, struct store_why *why)
{
	int error = 0;

	for (size_t i = 0; i < size && !error; i++) {
		if (data[i] == '\n')
			error = line_end(table, check, arg, why);
		else if (table->line_size == CURSOR_LINE_MAX - 1)
			error = why_not(why, -EINVAL, "a line of the table is too long");
		else
			table->line[table->line_size++] = data[i];
	}
	if (error)
		table_clear(table);
	return error;
}

int table_end(struct table *table, row_check check, void *arg, struct seek *seek,
	      struct store_why *why)
{
	int error = table->line_size ? line_end(table, check, arg, why) : 0;

	if (error) {
		table_clear(table);
		return error;
	}
	*seek = table->seek;
	seek->kind = SEEK_TO_TABLE;
	table->seek = (struct seek){ 0 };
	return 0;
}

void table_clear(struct table *table)
{
	seek_free(&table->seek);
	table->line_size = 0;
}
