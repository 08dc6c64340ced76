/* SPDX-License-Identifier: MIT */
/*
 * filter.c - a group's filter: an SQL expression over one message, in a sandbox
 * (section 11).
 *
 * Not for: whose messages are tested, and what becomes of those that fail.
 *
 * A filter is one prepared statement in an empty database in memory, which is its own:
 *
 *     SELECT 1 FROM message WHERE (the expression) IS TRUE
 *
 * `message` is a virtual table of one row, the message that is being tested; its columns
 * are made when the expression asks for them and point to the message's own bytes. They
 * have types, so that `"offset" = '5'` and `partition = 5` compare as in any other table.
 *
 * 1. What is not listed is refused when the filter is compiled: authorize() lets through
 *    the one SELECT, the columns of `message` and the functions of `functions`, which are
 *    deterministic, linear in time and give no more than they get. Aggregates and window
 *    functions are no part of a WHERE.
 * 2. Without subqueries a program is a straight line, no longer than its text. SQLite asks
 *    progress handlers and heeds interrupts only where it jumps back, which is never. So
 *    each step is bounded instead: a column pays for its length when it is asked for, the
 *    functions that may work on it are few, and those of SQLite that are not linear (LIKE,
 *    GLOB, instr) are replaced.
 * 3. Work is counted in bytes, not in time: what becomes of a message depends on nothing
 *    but the message and the filter, least of all on how busy the machine is.
 * 4. Memory follows from that: a call copies a text or two, none is longer than a message
 *    and a filter together, and SQLite keeps four parsed JSON texts. The most that was found
 *    for a message of 1 MiB is 70 MiB, and 130 ms.
 * 5. After a test nothing points to the message any more.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

#define FILTER_TEXT_MAX 2000	 /* bytes */
#define CALLS_MAX 20		 /* functions, LIKE, GLOB, ||; JSON ones count twice */
#define WORK_MESSAGES 16	 /* a message may be looked at so many times */
#define MESSAGE_LEAST (1u << 20) /* a shorter one is taken for as long as that */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct filter {
	pthread_mutex_t lock; /* the connection's, and all below: one test at a time */
	sqlite3 *db;
	sqlite3_stmt *stmt;
	sqlite3_vtab table; /* `message` and its cursor */
	sqlite3_vtab_cursor cursor;
	bool row;		       /* the cursor is at the row, not past it */
	const struct message *message; /* being tested, borrowed; else NULL */
	atomic_uint refs;
	size_t room;			 /* bytes of a message, as the limits are set */
	int64_t work;			 /* bytes that may still be looked at */
	char created_at[TIME_TEXT_SIZE]; /* as a column of this message shows it */
	char transaction_id[2 * 20 + 2];
	/* While it is compiled. */
	unsigned selects, calls;
	struct store_why denied;
};

/* False: all that a test may cost is spent. */
static bool work_spend(struct filter *filter, size_t bytes)
{
	filter->work -= (int64_t)bytes;
	return filter->work >= 0;
}

static void work_fail(sqlite3_context *context)
{
	sqlite3_result_error(context, "the filter takes too long", -1);
}

/* ---- the table `message` ------------------------------------------------------------ */

/* WITHOUT ROWID, so that `rowid` is no column. */
static const char message_schema[] =
	"CREATE TABLE message(data TEXT, partition TEXT, \"offset\" INTEGER, "
	"created_at TEXT, transaction_id TEXT, attributes TEXT, "
	"PRIMARY KEY(partition, \"offset\")) WITHOUT ROWID";
enum { DATA, PARTITION, OFFSET, CREATED_AT, TRANSACTION_ID, ATTRIBUTES };
#define COLUMNS_TEXT \
	"data, partition, \"offset\", created_at, transaction_id and attributes"

static int message_connect(sqlite3 *db, void *arg, int argc, const char *const *argv,
			   sqlite3_vtab **table, char **error)
{
	struct filter *filter = arg;

	(void)argc;
	(void)argv;
	(void)error;
	*table = &filter->table;
	return sqlite3_declare_vtab(db, message_schema);
}

static int message_disconnect(sqlite3_vtab *table)
{
	(void)table;
	return SQLITE_OK;
}

static int message_plan(sqlite3_vtab *table, sqlite3_index_info *info)
{
	(void)table;
	info->estimatedCost = 1;
	info->estimatedRows = 1;
	return SQLITE_OK;
}

static int message_open(sqlite3_vtab *table, sqlite3_vtab_cursor **cursor)
{
	*cursor = &container_of(table, struct filter, table)->cursor;
	return SQLITE_OK;
}

static int message_close(sqlite3_vtab_cursor *cursor)
{
	(void)cursor;
	return SQLITE_OK;
}

static int message_first(sqlite3_vtab_cursor *cursor, int plan, const char *plan_text,
			 int argc, sqlite3_value **argv)
{
	(void)plan;
	(void)plan_text;
	(void)argc;
	(void)argv;
	container_of(cursor, struct filter, cursor)->row = true;
	return SQLITE_OK;
}

static int message_next(sqlite3_vtab_cursor *cursor)
{
	container_of(cursor, struct filter, cursor)->row = false;
	return SQLITE_OK;
}

static int message_eof(sqlite3_vtab_cursor *cursor)
{
	return !container_of(cursor, struct filter, cursor)->row;
}

/* Whatever is done next with a column costs time by its length: it is paid here. */
static void give_text(struct filter *filter, sqlite3_context *context, const char *text,
		      size_t size)
{
	if (work_spend(filter, size))
		sqlite3_result_text64(context, text ? text : "", size, SQLITE_STATIC,
				      SQLITE_UTF8);
	else
		work_fail(context);
}

static void give_transaction(struct filter *filter, sqlite3_context *context,
			     const struct message *message)
{
	const char *text = message->transaction;
	size_t size = message->transaction_size;

	if (!text) {
		text = filter->transaction_id;
		size = (size_t)snprintf(filter->transaction_id,
					sizeof(filter->transaction_id),
					"%" PRIu64 "-%" PRId64, message->partition_number,
					message->offset);
	}
	give_text(filter, context, text, size);
}

static int message_column(sqlite3_vtab_cursor *cursor, sqlite3_context *context,
			  int column)
{
	struct filter *filter = container_of(cursor, struct filter, cursor);
	const struct message *message = filter->message;

	switch (column) {
	case DATA:
		give_text(filter, context, message->data, message->size);
		break;
	case PARTITION:
		give_text(filter, context, message->partition,
			  strlen(message->partition));
		break;
	case OFFSET:
		sqlite3_result_int64(context, message->offset);
		break;
	case CREATED_AT:
		time_print(message->created_us, filter->created_at);
		give_text(filter, context, filter->created_at,
			  strlen(filter->created_at));
		break;
	case TRANSACTION_ID:
		give_transaction(filter, context, message);
		break;
	case ATTRIBUTES:
		if (message->attributes)
			give_text(filter, context, message->attributes,
				  message->attributes_size);
		else
			give_text(filter, context, "{}", 2);
		break;
	}
	return SQLITE_OK;
}

/* Without xCreate it is there without being created. */
static const sqlite3_module message_module = {
	.xConnect = message_connect,
	.xDisconnect = message_disconnect,
	.xBestIndex = message_plan,
	.xOpen = message_open,
	.xClose = message_close,
	.xFilter = message_first,
	.xNext = message_next,
	.xEof = message_eof,
	.xColumn = message_column,
};

/* ---- LIKE, GLOB and instr() ---------------------------------------------------------- */

/* A text's bytes are asked for as a blob: as a text SQLite would copy them to put a NUL
 * behind. */
static struct text text_of(sqlite3_value *value)
{
	int type = sqlite3_value_type(value);
	const unsigned char *at = type == SQLITE_TEXT || type == SQLITE_BLOB
					  ? sqlite3_value_blob(value)
					  : sqlite3_value_text(value);
	struct text text = { at, at };

	if (at)
		text.end += sqlite3_value_bytes(value);
	else
		text.at = text.end = (const unsigned char *)"";
	return text;
}

/* Is one of them NULL? So is the answer then, of itself. */
static bool any_null(int argc, sqlite3_value **argv)
{
	for (int i = 0; i < argc; i++)
		if (sqlite3_value_type(argv[i]) == SQLITE_NULL)
			return true;
	return false;
}

static void give_match(sqlite3_context *context, int matched)
{
	if (matched >= 0)
		sqlite3_result_int(context, matched);
	else if (matched == -EINVAL)
		sqlite3_result_error(context, "ESCAPE is one character", -1);
	else
		work_fail(context);
}

static void like_call(sqlite3_context *context, int argc, sqlite3_value **argv)
{
	struct filter *filter = sqlite3_user_data(context);
	struct text escape;

	if (any_null(argc, argv))
		return;
	escape = text_of(argv[argc - 1]);
	give_match(context, wild_like(text_of(argv[0]), text_of(argv[1]),
				      argc == 3 ? &escape : NULL, &filter->work));
}

static void glob_call(sqlite3_context *context, int argc, sqlite3_value **argv)
{
	struct filter *filter = sqlite3_user_data(context);

	if (!any_null(argc, argv))
		give_match(context,
			   wild_glob(text_of(argv[0]), text_of(argv[1]), &filter->work));
}

/* Where the second begins in the first, in characters from 1; in bytes for blobs. */
static void instr_call(sqlite3_context *context, int argc, sqlite3_value **argv)
{
	struct text text, part;
	const unsigned char *found;
	bool bytes;
	int64_t place = 1;

	if (any_null(argc, argv))
		return;
	bytes = sqlite3_value_type(argv[0]) == SQLITE_BLOB &&
		sqlite3_value_type(argv[1]) == SQLITE_BLOB;
	text = text_of(argv[0]);
	part = text_of(argv[1]);
	found = memmem(text.at, (size_t)(text.end - text.at), part.at,
		       (size_t)(part.end - part.at));
	if (found)
		for (; text.at < found; text.at++)
			place += bytes || (*text.at >> 6) != 2;
	sqlite3_result_int64(context, found ? place : 0);
}

/* ---- the sandbox --------------------------------------------------------------------- */

/* By name: max() and min() of one argument are aggregates, which a WHERE refuses. What
 * reads JSON costs twice: it parses all of a text and keeps what it parsed. */
static const struct {
	const char *name;
	unsigned calls;
} functions[] = {
	{ "->", 2 },	       { "->>", 2 },	   { "abs", 1 },
	{ "coalesce", 1 },     { "glob", 1 },	   { "ifnull", 1 },
	{ "iif", 1 },	       { "instr", 1 },	   { "json_array_length", 2 },
	{ "json_extract", 2 }, { "json_type", 2 }, { "json_valid", 2 },
	{ "length", 1 },       { "like", 1 },	   { "lower", 1 },
	{ "max", 1 },	       { "min", 1 },	   { "nullif", 1 },
	{ "round", 1 },	       { "sign", 1 },	   { "substr", 1 },
	{ "substring", 1 },    { "typeof", 1 },	   { "unicode", 1 },
	{ "upper", 1 },
};
#define FUNCTIONS_TEXT                                                            \
	"abs coalesce ifnull iif instr json_array_length json_extract json_type " \
	"json_valid length lower max min nullif round sign substr typeof unicode upper"

static bool calls_add(struct filter *filter, unsigned calls)
{
	filter->calls += calls;
	if (filter->calls <= CALLS_MAX)
		return true;
	why_set(&filter->denied, 0,
		"a filter is too long with more than %d functions, LIKE, GLOB and ||, of "
		"which ->, ->> and json functions count twice",
		CALLS_MAX);
	return false;
}

static bool function_allowed(struct filter *filter, const char *name)
{
	for (size_t i = 0; i < COUNT(functions); i++)
		if (strcmp(functions[i].name, name) == 0)
			return calls_add(filter, functions[i].calls);
	why_set(&filter->denied, 0, "a filter cannot use %s(), only " FUNCTIONS_TEXT,
		name);
	return false;
}

static int authorize(void *arg, int action, const char *first, const char *second,
		     const char *database, const char *trigger)
{
	struct filter *filter = arg;

	(void)database;
	(void)trigger;
	switch (action) {
	case SQLITE_SELECT:
		if (++filter->selects == 1)
			return SQLITE_OK;
		break;
	case SQLITE_READ:
		if (strcmp(first, "message") == 0)
			return SQLITE_OK;
		break;
	case SQLITE_FUNCTION:
		return function_allowed(filter, second) ? SQLITE_OK : SQLITE_DENY;
	}
	why_set(&filter->denied, 0,
		"a filter cannot use tables or subqueries, only "
		"the columns " COLUMNS_TEXT);
	return SQLITE_DENY;
}

static const struct {
	int id, value;
} limits[] = {
	{ SQLITE_LIMIT_SQL_LENGTH, FILTER_TEXT_MAX + 100 },
	{ SQLITE_LIMIT_EXPR_DEPTH, 100 },
	{ SQLITE_LIMIT_FUNCTION_ARG, 8 },
	{ SQLITE_LIMIT_COMPOUND_SELECT, 1 },
	{ SQLITE_LIMIT_ATTACHED, 0 },
	{ SQLITE_LIMIT_TRIGGER_DEPTH, 0 },
	{ SQLITE_LIMIT_WORKER_THREADS, 0 },
};

/* DQS off: "eu" is a column that does not exist, not a text. */
static const struct {
	int id, value;
} settings[] = {
	{ SQLITE_DBCONFIG_DQS_DML, 0 },
	{ SQLITE_DBCONFIG_DQS_DDL, 0 },
	{ SQLITE_DBCONFIG_DEFENSIVE, 1 },
	{ SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0 },
	{ SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0 },
	{ SQLITE_DBCONFIG_ENABLE_VIEW, 0 },
	{ SQLITE_DBCONFIG_ENABLE_TRIGGER, 0 },
};

static const struct {
	const char *name;
	int args;
	void (*call)(sqlite3_context *context, int argc, sqlite3_value **argv);
} replaced[] = {
	{ "like", 2, like_call },
	{ "like", 3, like_call },
	{ "glob", 2, glob_call },
	{ "instr", 2, instr_call },
};

/* How large a message may be, and so each value; what work it may be follows. */
static void room_set(struct filter *filter, size_t size)
{
	if (size < MESSAGE_LEAST)
		size = MESSAGE_LEAST;
	if (size == filter->room)
		return;
	filter->room = size;
	sqlite3_limit(filter->db, SQLITE_LIMIT_LENGTH, (int)size + FILTER_TEXT_MAX);
}

/* Opens the connection and closes it off. An SQLite code. */
static int sandbox_open(struct filter *filter)
{
	int code = sqlite3_open_v2(":memory:", &filter->db,
				   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
					   SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX,
				   NULL);

	/* Without its own small heap a connection takes 20 KiB: there may be many. */
	if (code == SQLITE_OK)
		sqlite3_db_config(filter->db, SQLITE_DBCONFIG_LOOKASIDE, NULL, 0, 0);
	for (size_t i = 0; i < COUNT(settings) && code == SQLITE_OK; i++)
		code = sqlite3_db_config(filter->db, settings[i].id, settings[i].value,
					 NULL);
	for (size_t i = 0; i < COUNT(replaced) && code == SQLITE_OK; i++)
		code = sqlite3_create_function_v2(
			filter->db, replaced[i].name, replaced[i].args,
			SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, filter,
			replaced[i].call, NULL, NULL, NULL);
	if (code == SQLITE_OK)
		code = sqlite3_create_module_v2(filter->db, "message", &message_module,
						filter, NULL);
	/* Connects the table, which asks for more than authorize() would allow. */
	if (code == SQLITE_OK)
		code = sqlite3_exec(filter->db, "SELECT 1 FROM message", NULL, NULL,
				    NULL);
	if (code != SQLITE_OK)
		return code;
	for (size_t i = 0; i < COUNT(limits); i++)
		sqlite3_limit(filter->db, limits[i].id, limits[i].value);
	room_set(filter, MESSAGE_LEAST);
	return sqlite3_set_authorizer(filter->db, authorize, filter);
}

/* ---- compiling ----------------------------------------------------------------------- */

static unsigned concats_count(const char *text)
{
	unsigned count = 0;

	while ((text = strstr(text, "||")) != NULL) {
		text += 2;
		count++;
	}
	return count;
}

/* Prepares the text between two others. An SQLite code; *early: it ended too soon. */
static int prepare(struct filter *filter, const char *before, const char *text,
		   const char *after, sqlite3_stmt **stmt, bool *early)
{
	char sql[FILTER_TEXT_MAX + 100];
	size_t end = strlen(before) + strlen(text);
	int code;

	filter->selects = 0;
	filter->calls = 0;
	*early = false;
	if (!calls_add(filter, concats_count(text)))
		return SQLITE_AUTH;
	snprintf(sql, sizeof(sql), "%s%s%s", before, text, after);
	code = sqlite3_prepare_v3(filter->db, sql, -1, SQLITE_PREPARE_PERSISTENT, stmt,
				  NULL);
	*early = sqlite3_error_offset(filter->db) >= (int)end;
	return code;
}

#define WHOLE_BEFORE "SELECT 1 FROM message WHERE ("
#define WHOLE_AFTER "\n) IS TRUE"

/* What SQLite said, and what would have been right. */
static int refuse(struct filter *filter, bool early, struct store_why *why)
{
	static const struct {
		const char *begin, *hint;
	} hints[] = {
		{ "no such column",
		  "; columns are " COLUMNS_TEXT ", and a text is 'quoted' like this" },
		{ "no such function", "; functions are " FUNCTIONS_TEXT },
	};
	const char *said = sqlite3_errmsg(filter->db), *hint = "";

	if (filter->denied.text[0])
		return why_set(why, -EINVAL, "%s", filter->denied.text);
	if (strstr(said, WHOLE_AFTER))
		return why_set(why, -EINVAL, "a quote is not closed");
	if (early || strcmp(said, "incomplete input") == 0)
		return why_set(why, -EINVAL, "the expression is empty or ends too early");
	for (size_t i = 0; i < COUNT(hints); i++)
		if (strncmp(said, hints[i].begin, strlen(hints[i].begin)) == 0)
			hint = hints[i].hint;
	return why_set(why, -EINVAL, "%s%s", said, hint);
}

/*
 * A text that is right inside our parentheses may have closed them and opened its own:
 * `1) OR (1`. One that is right without them too closes none but its own: it is an
 * expression.
 */
static int statement_make(struct filter *filter, const char *text, struct store_why *why)
{
	sqlite3_stmt *bare = NULL;
	bool early;
	int code =
		prepare(filter, WHOLE_BEFORE, text, WHOLE_AFTER, &filter->stmt, &early);

	if (code == SQLITE_OK) {
		code = prepare(filter, "SELECT ", text, "\nFROM message", &bare, &early);
		sqlite3_finalize(bare);
	}
	if (code == SQLITE_NOMEM)
		return -ENOMEM;
	if (code != SQLITE_OK)
		return refuse(filter, early, why);
	if (sqlite3_bind_parameter_count(filter->stmt) > 0)
		return why_set(why, -EINVAL,
			       "a filter has no parameters like ? or :name");
	return 0;
}

int filter_compile(const char *text, struct filter **out, struct store_why *why)
{
	struct filter *filter;
	int error;

	if (strlen(text) > FILTER_TEXT_MAX)
		return why_set(why, -EINVAL, "a filter has at most %d bytes",
			       FILTER_TEXT_MAX);
	filter = calloc(1, sizeof(*filter));
	if (!filter)
		return -ENOMEM;
	atomic_init(&filter->refs, 1);
	pthread_mutex_init(&filter->lock, NULL);
	/* There is nothing there that could fail for want of anything but memory. */
	error = sandbox_open(filter) == SQLITE_OK ? statement_make(filter, text, why)
						  : -ENOMEM;
	if (error)
		filter_free(filter);
	else
		*out = filter;
	return error;
}

struct filter *filter_get(struct filter *filter)
{
	atomic_fetch_add(&filter->refs, 1);
	return filter;
}

void filter_free(struct filter *filter)
{
	if (!filter || atomic_fetch_sub(&filter->refs, 1) > 1)
		return;
	sqlite3_finalize(filter->stmt);
	sqlite3_close(filter->db);
	pthread_mutex_destroy(&filter->lock);
	free(filter);
}

/* ---- testing ------------------------------------------------------------------------- */

int filter_test(struct filter *filter, const struct message *message)
{
	int code;

	pthread_mutex_lock(&filter->lock);
	filter->message = message;
	room_set(filter, message->size + message->attributes_size);
	filter->work = WORK_MESSAGES * (int64_t)filter->room;
	code = sqlite3_step(filter->stmt);
	sqlite3_reset(filter->stmt);
	filter->message = NULL;
	/* SQLite keeps the last error's text, which may quote a whole message, until another
	 * takes its place. */
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		sqlite3_exec(filter->db, "?", NULL, NULL, NULL);
	pthread_mutex_unlock(&filter->lock);
	return code == SQLITE_ROW ? 1 : code == SQLITE_DONE ? 0 : -1;
}
