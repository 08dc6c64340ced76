/* SPDX-License-Identifier: MIT */
/*
 * fuzz_rows.c - a good store of which some values in its tables were changed: what bytes
 * changed at random (fuzz_flip.c) seldom reach. Types and constraints are no obstacle, as they
 * are none for a damaged disk.
 *
 * Input, again and again: a byte for the table, one for the column, one for the row, one for
 * what is done, then what that takes. Names and row numbers are counted, not spelt.
 */
#include "fuzz_store.h"

static struct fuzz_file good;

static const char *const tables[] = { "segments", "cursors",  "partitions", "groups",
				      "queues",	  "settings", "letters",    "snapshots",
				      "bodies",	  "seen",     "meta" };

static void sql(sqlite3 *db, const char *text)
{
	char *said = NULL;

	if (sqlite3_exec(db, text, NULL, NULL, &said) != SQLITE_OK)
		fprintf(stderr, "%s: %s\n", text, said);
	PROMISE(!said);
}

/* Takes the constraints off and puts them on again: only the texts change, not the pages. */
static void constraints(sqlite3 *db, bool on)
{
	sql(db, "PRAGMA writable_schema = on");
	sql(db, on ? "UPDATE sqlite_master SET sql = "
		     "(SELECT o.sql FROM temp.kept o WHERE o.name = sqlite_master.name) "
		     "WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
		   : "CREATE TEMP TABLE kept AS SELECT name, sql FROM sqlite_master;"
		     "UPDATE sqlite_master SET sql = replace(replace(replace(sql, "
		     "' NOT NULL', ''), 'STRICT, ', ''), ' STRICT', '') "
		     "WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
	sql(db, "PRAGMA writable_schema = reset");
}

static void bind_value(sqlite3_stmt *stmt, unsigned what, struct fuzz_input *input)
{
	static const int64_t edges[] = { 0,	    -1,		1,	   2,
					 7,	    INT64_MAX,	INT64_MIN, INT64_MAX - 1,
					 INT32_MAX, UINT32_MAX, 1 << 30,   -2 };
	size_t length;

	switch (what % 6) {
	case 0:
		sqlite3_bind_int64(stmt, 1,
				   edges[fuzz_take(input, 1) % FUZZ_COUNT(edges)]);
		break;
	case 1:
		sqlite3_bind_int64(stmt, 1, (int64_t)fuzz_take(input, 8));
		break;
	case 2:
		sqlite3_bind_null(stmt, 1);
		break;
	case 3:
	case 4:
		length = fuzz_take(input, 1);
		length = length < input->left ? length : input->left;
		if (what % 6 == 3)
			sqlite3_bind_blob(stmt, 1, input->at, (int)length, SQLITE_STATIC);
		else
			sqlite3_bind_text(stmt, 1, (const char *)input->at, (int)length,
					  SQLITE_STATIC);
		input->at += length;
		input->left -= length;
		break;
	default:
		sqlite3_bind_double(stmt, 1, (double)fuzz_take(input, 2) / 3);
	}
}

/* The name of a table's column with this number. */
static void column(sqlite3 *db, const char *table, uint64_t which, char name[64])
{
	sqlite3_stmt *stmt;
	char *text = sqlite3_mprintf("SELECT name, count(*) OVER () FROM "
				     "pragma_table_info(%Q)",
				     table);

	PROMISE(sqlite3_prepare_v2(db, text, -1, &stmt, NULL) == SQLITE_OK);
	sqlite3_free(text);
	PROMISE(sqlite3_step(stmt) == SQLITE_ROW);
	which %= (uint64_t)sqlite3_column_int64(stmt, 1);
	while (which-- > 0)
		PROMISE(sqlite3_step(stmt) == SQLITE_ROW);
	snprintf(name, 64, "%s", (const char *)sqlite3_column_text(stmt, 0));
	sqlite3_finalize(stmt);
}

/* Keys stay unique: what would not be is left as it is. */
static void change(sqlite3 *db, struct fuzz_input *input)
{
	const char *table = tables[fuzz_take(input, 1) % FUZZ_COUNT(tables)];
	uint64_t which = fuzz_take(input, 1);
	unsigned row = (unsigned)fuzz_take(input, 1) % 8;
	unsigned what = (unsigned)fuzz_take(input, 1);
	char name[64], first[64], second[64], set[80], *text;
	bool drop = what % 16 == 15;
	sqlite3_stmt *stmt;

	column(db, table, which, name);
	column(db, table, 0, first);
	column(db, table, 1, second);
	snprintf(set, sizeof(set), "SET \"%s\" = ?1", name);
	text = sqlite3_mprintf("%s \"%w\" %s WHERE (\"%w\", \"%w\") IN (SELECT \"%w\", "
			       "\"%w\" FROM \"%w\" LIMIT 1 OFFSET %u)",
			       drop ? "DELETE FROM" : "UPDATE OR IGNORE", table,
			       drop ? "" : set, first, second, first, second, table, row);
	PROMISE(text);
	PROMISE(sqlite3_prepare_v2(db, text, -1, &stmt, NULL) == SQLITE_OK);
	sqlite3_free(text);
	bind_value(stmt, what, input);
	sqlite3_step(stmt);
	sqlite3_finalize(stmt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	sqlite3 *db;

	if (!good.data) {
		fuzz_dir_make();
		fuzz_store_make();
		fuzz_file_read("", &good);
	}
	fuzz_files_drop();
	fuzz_file_write("", good.data, good.size);
	PROMISE(sqlite3_open(fuzz_path, &db) == SQLITE_OK);
	sql(db, "PRAGMA synchronous = off");
	constraints(db, false);
	for (int i = 0; i < 8 && input.left > 0; i++)
		change(db, &input);
	constraints(db, true);
	sqlite3_close(db);
	fuzz_store_use();
	return 0;
}
