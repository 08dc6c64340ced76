/* SPDX-License-Identifier: MIT */
/* fuzz_cursor.c - what is written to a cursor (section 5). A command parses the same
 * each time; a table comes to the same in whatever pieces it is written. Input: a byte that
 * says how, then the text. */
#include "cursor_text.h"
#include "fuzz.h"

#define NOW_US INT64_C(1785333600000000)

static void command(const char *text, bool of_queue)
{
	struct seek seek = { 0 };
	struct store_why why = { "" };
	int error = command_parse(text, of_queue, NOW_US, &seek, &why);

	PROMISE(error == 0 || error == -EINVAL || error == -ERANGE);
	PROMISE(!error || why.text[0]);
	PROMISE(error || seek.kind != SEEK_TO_TABLE);
	PROMISE(error || !of_queue || seek.kind != SEEK_TO_OFFSET);
	PROMISE(error || of_queue || seek.kind != SEEK_TO_SNAPSHOT);
	PROMISE(error || (seek.kind == SEEK_TO_SNAPSHOT) == (seek.snapshot != NULL));
	seek_free(&seek);
}

/* The store would say more. */
static int any_row(void *arg, const struct seek_row *row, struct store_why *why)
{
	(void)arg;
	(void)why;
	return *row->partition ? 0 : -ENOENT;
}

static int table_parse(const char *text, size_t size, size_t piece, struct seek *seek)
{
	struct table table = { .line_size = 0 };
	struct store_why why = { "" };
	int error = 0;

	for (size_t at = 0; at < size && !error; at += piece)
		error = table_add(&table, text + at,
				  size - at < piece ? size - at : piece, any_row, NULL,
				  &why);
	if (!error)
		error = table_end(&table, any_row, NULL, seek, &why);
	PROMISE(!table.seek.rows && table.line_size == 0);
	return error;
}

static void table(const char *text, size_t size, size_t piece)
{
	struct seek whole = { 0 }, pieces = { 0 }, printed = { 0 };
	int error = table_parse(text, size, size + 1, &whole);
	FILE *out;
	char *copy;
	size_t length;

	PROMISE(table_parse(text, size, piece, &pieces) == error);
	PROMISE(whole.count == pieces.count);
	for (size_t i = 0; i < whole.count; i++)
		PROMISE(whole.rows[i].committed == pieces.rows[i].committed &&
			strcmp(whole.rows[i].partition, pieces.rows[i].partition) == 0);
	if (!error) { /* printed and read again */
		out = open_memstream(&copy, &length);
		PROMISE(out);
		for (size_t i = 0; i < whole.count; i++)
			fprintf(out, "%lld\t%s\n", (long long)whole.rows[i].committed,
				whole.rows[i].partition);
		fclose(out);
		/* A number was perhaps written longer than it is printed, never shorter. */
		PROMISE(table_parse(copy, length, length + 1, &printed) == 0);
		PROMISE(printed.count == whole.count);
		free(copy);
	}
	seek_free(&printed);
	seek_free(&whole);
	seek_free(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	uint8_t how = (uint8_t)fuzz_take(&input, 1);
	char *text = fuzz_text(input.at, input.left);

	command(text, how & 1);
	if (input.left > 0) {
		begins_table((const char *)input.at, input.left, how & 1);
		table(text, input.left, 1 + how / 2);
	}
	free(text);
	return 0;
}
