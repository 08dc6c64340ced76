/* SPDX-License-Identifier: MIT */
/*
 * settings.c - the settings of queues and groups: one typed table for files and ini.
 *
 * A queue has a value for each; a group may override some and follows its queue in the
 * rest. A changed value counts from the next claim or write.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

enum setting_kind { COUNT, DURATION, RANGE };

static const struct setting_type {
	const char *name;
	enum setting_kind kind;
	bool of_group;
	struct setting_value preset;
	int64_t least, greatest;
	const char *allowed;
} types[SETTING_COUNT] = {
#define DURATION_TEXT "a duration like 90, 90s, 15m, 2h or 7d"
	[SETTING_SPREAD] = { "spread",
			     COUNT,
			     false,
			     { 1, 1 },
			     1,
			     100000,
			     "a number of partitions from 1 to 100000" },
	[SETTING_BATCH] = { "batch",
			    COUNT,
			    true,
			    { 1, 1 },
			    1,
			    1000000,
			    "a number of messages from 1 to 1000000" },
	[SETTING_PREFETCH] = { "prefetch",
			       COUNT,
			       true,
			       { 0, 0 },
			       0,
			       1000000,
			       "a number of messages up to 1000000, or 0 for what fits" },
	[SETTING_LEASE_SECONDS] = { "lease_seconds",
				    DURATION,
				    true,
				    { 300, 300 },
				    0,
				    366LL * 86400,
				    DURATION_TEXT ", or 0 for while the file is open" },
	[SETTING_RETRY_LIMIT] = { "retry_limit",
				  COUNT,
				  true,
				  { 3, 3 },
				  0,
				  1000000,
				  "a number of times up to 1000000" },
	[SETTING_MAX_DELIVERIES] = { "max_deliveries",
				     COUNT,
				     true,
				     { 0, 0 },
				     0,
				     1000000,
				     "a number of deliveries up to 1000000, or 0 for "
				     "any" },
	[SETTING_RETRY_DELAY_SECONDS] = { "retry_delay_seconds",
					  RANGE,
					  true,
					  { 0, 0 },
					  0,
					  30LL * 86400,
					  DURATION_TEXT ", or two as least:greatest" },
};

const char *setting_name(enum setting setting)
{
	return types[setting].name;
}

bool setting_of_group(enum setting setting)
{
	return types[setting].of_group;
}

int setting_find(const char *name, enum setting *setting)
{
	for (int i = 0; i < SETTING_COUNT; i++)
		if (strcmp(types[i].name, name) == 0) {
			*setting = (enum setting)i;
			return 0;
		}
	return -ENOENT;
}

/* ---- text and value ---------------------------------------------------------------- */

/* Digits and for a duration a unit; moves *text past them. */
static int parse_number(const char **text, bool duration, int64_t *value)
{
	static const struct {
		char unit;
		int64_t seconds;
	} units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
	char *end;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	errno = 0;
	*value = strtoll(*text, &end, 10);
	if (errno)
		return -EINVAL;
	for (size_t i = 0; duration && i < sizeof(units) / sizeof(*units); i++)
		if (*end == units[i].unit) {
			if (*value > INT64_MAX / units[i].seconds)
				return -EINVAL;
			*value *= units[i].seconds;
			end++;
			break;
		}
	*text = end;
	return 0;
}

static int setting_parse(enum setting setting, const char *text,
			 struct setting_value *out, struct store_why *why)
{
	const struct setting_type *type = &types[setting];
	const char *at = text;
	struct setting_value value = { 0, 0 };
	int error = parse_number(&at, type->kind != COUNT, &value.least);

	value.greatest = value.least;
	if (!error && type->kind == RANGE) {
		value.greatest = type->greatest;
		if (*at == ':') {
			at++;
			error = parse_number(&at, true, &value.greatest);
		}
	}
	if (error || *at != '\0' || value.least < type->least ||
	    value.greatest > type->greatest || value.least > value.greatest)
		return why_set(why, -EINVAL, "%s cannot be \"%.40s\"; allowed is %s",
			       type->name, text, type->allowed);
	*out = value;
	return 0;
}

int setting_check(enum setting setting, const char *text, struct store_why *why)
{
	struct setting_value value;

	return setting_parse(setting, text, &value, why);
}

static void setting_print(enum setting setting, const struct setting_value *value,
			  char text[SETTING_TEXT_SIZE])
{
	const struct setting_type *type = &types[setting];

	if (type->kind == RANGE && value->least > 0 && value->greatest < type->greatest)
		snprintf(text, SETTING_TEXT_SIZE, "%lld:%lld", (long long)value->least,
			 (long long)value->greatest);
	else
		snprintf(text, SETTING_TEXT_SIZE, "%lld", (long long)value->least);
}

/* ---- in memory --------------------------------------------------------------------- */

void settings_init(struct settings *settings)
{
	for (int i = 0; i < SETTING_COUNT; i++)
		settings->values[i] = types[i].preset;
}

const struct setting_value *setting_locked(const struct group *group,
					   enum setting setting)
{
	return group->settings.set[setting]
		       ? &group->settings.values[setting]
		       : &queue_of(group->item.parent)->settings.values[setting];
}

static struct settings *settings_of(struct item *item)
{
	return item->kind == ITEM_GROUP ? &group_of(item)->settings
					: &queue_of(item)->settings;
}

void store_setting(struct item *item, enum setting setting, char text[SETTING_TEXT_SIZE])
{
	struct setting_value value;

	pthread_mutex_lock(&item->store->state);
	value = item->kind == ITEM_GROUP ? *setting_locked(group_of(item), setting)
					 : queue_of(item)->settings.values[setting];
	pthread_mutex_unlock(&item->store->state);
	setting_print(setting, &value, text);
}

int store_setting_default(struct store *store, enum setting setting, const char *text,
			  struct store_why *why)
{
	struct setting_value value;
	int error = setting_parse(setting, text, &value, why);

	if (error)
		return error;
	pthread_mutex_lock(&store->state);
	store->defaults.values[setting] = value;
	store->defaults.set[setting] = true;
	pthread_mutex_unlock(&store->state);
	return 0;
}

/* ---- in the store ------------------------------------------------------------------ */

static void bind_key(sqlite3_stmt *stmt, const struct item *item, enum setting setting)
{
	bool group = item->kind == ITEM_GROUP;

	bind_int(stmt, 1, (int64_t)(group ? item->parent->id : item->id));
	bind_int(stmt, 2, group ? (int64_t)item->id : 0);
	bind_text(stmt, 3, types[setting].name);
}

static int setting_write(struct store *store, const struct item *item,
			 enum setting setting, const struct setting_value *value)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_SETTING_SET);
	char text[SETTING_TEXT_SIZE];

	setting_print(setting, value, text);
	bind_key(stmt, item, setting);
	bind_text(stmt, 4, text);
	return conn_run(store->writer, stmt);
}

int settings_write(struct store *store, const struct item *queue)
{
	int error = 0;

	for (int i = 0; i < SETTING_COUNT && !error; i++)
		if (store->defaults.set[i])
			error = setting_write(store, queue, (enum setting)i,
					      &store->defaults.values[i]);
	return error;
}

static int load_row(struct store *store, sqlite3_stmt *stmt)
{
	struct item *item = item_by_ids(store, (uint64_t)sqlite3_column_int64(stmt, 0),
					(uint64_t)sqlite3_column_int64(stmt, 1));
	const char *key = (const char *)sqlite3_column_text(stmt, 2);
	const char *text = (const char *)sqlite3_column_text(stmt, 3);
	struct setting_value value;
	enum setting setting;

	if (!item || !key || !text || setting_find(key, &setting) ||
	    setting_parse(setting, text, &value, NULL))
		return -EIO;
	settings_of(item)->values[setting] = value;
	settings_of(item)->set[setting] = true;
	return 0;
}

int settings_load(struct store *store)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_SETTING_ALL);
	int got;

	while ((got = conn_step(store->writer, stmt)) == 1)
		if ((got = load_row(store, stmt)))
			break;
	sqlite3_reset(stmt);
	return got;
}

struct setting_job {
	struct job job;
	struct item *item; /* a reference */
	enum setting setting;
	bool reset;
	struct setting_value value;
};

static int setting_apply(struct store *store, struct job *base)
{
	struct setting_job *job = container_of(base, struct setting_job, job);
	sqlite3_stmt *stmt;

	if (job->item->state != ITEM_LIVE)
		return -ESTALE;
	if (!job->reset)
		return setting_write(store, job->item, job->setting, &job->value);
	stmt = conn_stmt(store->writer, STMT_SETTING_DELETE);
	bind_key(stmt, job->item, job->setting);
	return conn_run(store->writer, stmt);
}

static void setting_publish_locked(struct store *store, struct job *base)
{
	struct setting_job *job = container_of(base, struct setting_job, job);
	struct settings *settings = settings_of(job->item);

	(void)store;
	settings->values[job->setting] = job->value;
	settings->set[job->setting] = !job->reset;
}

static void setting_job_free(struct job *base)
{
	struct setting_job *job = container_of(base, struct setting_job, job);

	store_put(job->item);
	free(job);
}

static const struct job_type setting_type = {
	.apply = setting_apply,
	.publish_locked = setting_publish_locked,
	.free = setting_job_free,
};

void store_setting_set(struct item *item, enum setting setting, const char *text,
		       store_done done, void *arg)
{
	struct setting_job *job = calloc(1, sizeof(*job));
	int error = 0;

	if (!job) {
		job_refuse(done, arg, -ENOMEM);
		return;
	}
	job->job = (struct job){ .type = &setting_type, .done = done, .arg = arg };
	job->item = store_get(item);
	job->setting = setting;
	job->reset = strcmp(text, "default") == 0;
	job->value = types[setting].preset;
	if (!job->reset)
		error = setting_parse(setting, text, &job->value, &job->job.why);
	if (error)
		commit_refuse(&job->job, error);
	else
		commit_submit(item->store, &job->job);
}
