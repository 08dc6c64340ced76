/* SPDX-License-Identifier: MIT */
/* cursor_text.h - what people write to a cursor, as a seek (section 5). No mount is needed. */
#ifndef CURSOR_TEXT_H
#define CURSOR_TEXT_H

#include "store.h"

#define CURSOR_LINE_MAX 512 /* a name, an offset, a TAB */

/* One command, a line without its newline; seek_free() is right after an error too. EINVAL,
 * ERANGE, ENOMEM. */
int command_parse(const char *text, bool of_queue, int64_t now_us, struct seek *seek,
		  struct store_why *why);

/* Lines of <offset><TAB><partition>, gathered however they are cut. */
struct table {
	char line[CURSOR_LINE_MAX]; /* the unfinished last line */
	size_t line_size;
	struct seek seek; /* the rows so far */
};
typedef int (*row_check)(void *arg, const struct seek_row *row, struct store_why *why);

/* Is this, of one byte or more, the beginning of one? A TAB or a comment; or digits without a
 * newline, which are no command for a queue: the writer has cut its first line. */
bool begins_table(const char *data, size_t size, bool of_queue);
/* Both ask `check` about each row, and forget the whole table after an error. EINVAL, ENOMEM,
 * what check says. */
int table_add(struct table *table, const char *data, size_t size, row_check check,
	      void *arg, struct store_why *why);
int table_end(struct table *table, row_check check, void *arg, struct seek *seek,
	      struct store_why *why);
void table_clear(struct table *table);

#endif
