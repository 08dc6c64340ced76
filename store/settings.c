/* SPDX-License-Identifier: MIT */
/*
 * settings.c - the settings of queues and groups: one typed table for files and ini.
 *
 * A queue has a value for each, a filter apart; a group may override some and follows its
 * queue in the rest. A changed value counts from the next claim, write or sweep.
 *
 * 1. What a value is written as in the store is what its file shows, so it parses to itself
 *    whenever it is loaded: no relative times, no units.
 * 2. A setting changes by a job that is alone in its transaction: what `apply` of its type
 *    found true is true when the value is published.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "store_int.h"

/* The value is: a number with a unit or without, two of them, one of some words, the time at
 * which a group starts, a text. */
enum setting_kind { COUNT, DURATION, SIZE, RANGE, WORD, START, TEXT };

/* From INHERITED on a group's value is its own, written or not. */
enum setting_scope {
	OF_QUEUE,  /* a queue's alone */
	FOLLOWED,  /* a group without a value of its own follows its queue's */
	INHERITED, /* a group gets its queue's when it is made, and keeps it */
	OF_GROUP,  /* a group's alone */
};

/* What tells messages apart cannot change under them. */
static int framing_apply(struct store *store, struct item *queue,
			 struct setting_change *change, struct store_why *why)
{
	struct item *item;

	(void)store;
	(void)change;
	names_each(&queue_of(queue)->partitions, i, item)
	{
		const struct partition *partition = partition_of(item);
		if (partition->last >= partition->first)
			return why_set(
				why, -EBUSY,
				"framing can change only while the queue is empty; "
				"partition %s holds messages",
				item->name);
	}
	return 0;
}

static void retention_publish_locked(struct store *store, struct item *queue,
				     struct setting_change *change)
{
	(void)store;
	(void)change;
	retain_queue_locked(queue);
}

static int filter_apply(struct store *store, struct item *group,
			struct setting_change *change, struct store_why *why)
{
	int error = subscription_open(group_of(group), why);

	(void)store;
	filter_free(change->filter); /* of a first try */
	change->filter = NULL;
	if (!error && *change->text)
		error = filter_compile(change->text, &change->filter, why);
	return error;
}

/* The one before goes with the job: freeing it calls SQLite. */
static void filter_publish_locked(struct store *store, struct item *group,
				  struct setting_change *change)
{
	struct filter *before = group_of(group)->filter;

	(void)store;
	group_of(group)->filter = change->filter;
	change->filter = before;
}

static const struct setting_type {
	const char *name;
	enum setting_kind kind;
	enum setting_scope scope;
	struct setting_value preset;
	int64_t least, greatest;
	const char *const *words; /* of a WORD: value i is words[i] */
	const char *allowed;
	/* May be NULL. The committing role: may item get this value? -errno and why refuse it,
	 * before it is written. Asked for a group also when it has that value, for a queue only
	 * when it changes: an ini says it at each start. */
	int (*apply)(struct store *store, struct item *item,
		     struct setting_change *change, struct store_why *why);
	/* May be NULL. The value is committed and has become the current one. */
	void (*publish_locked)(struct store *store, struct item *item,
			       struct setting_change *change);
} types[SETTING_COUNT] = {
#define DAYS(n) ((n)*INT64_C(86400))
#define DURATION_TEXT "a duration like 90, 90s, 15m, 2h or 7d"
#define SIZE_TEXT "a size like 65536, 64K, 1M or 2G"
#define FOR_EVER DAYS(36525) /* a hundred years */
	[SETTING_FRAMING] = {
		.name = "framing",
		.apply = framing_apply,
		.kind = WORD,
		.words = (const char *const[]){ "line", "file", NULL },
		.preset = { FRAMING_LINE, FRAMING_LINE },
		.allowed = "line or file",
	},
	[SETTING_SPREAD] = {
		.name = "spread",
		.preset = { 1, 1 },
		.least = 1,
		.greatest = 100000,
		.allowed = "a number of partitions from 1 to 100000",
	},
	[SETTING_BATCH] = {
		.name = "batch",
		.scope = FOLLOWED,
		.preset = { 1, 1 },
		.least = 1,
		.greatest = 1000000,
		.allowed = "a number of messages from 1 to 1000000",
	},
	[SETTING_PREFETCH] = {
		.name = "prefetch",
		.scope = FOLLOWED,
		.greatest = 1000000,
		.allowed = "a number of messages up to 1000000, or 0 for what fits",
	},
	[SETTING_LEASE_SECONDS] = {
		.name = "lease_seconds",
		.kind = DURATION,
		.scope = FOLLOWED,
		.preset = { 300, 300 },
		.greatest = DAYS(366),
		.allowed = DURATION_TEXT ", or 0 for while the file is open",
	},
	[SETTING_RETRY_LIMIT] = {
		.name = "retry_limit",
		.scope = FOLLOWED,
		.preset = { 3, 3 },
		.greatest = 1000000,
		.allowed = "a number of times up to 1000000",
	},
	[SETTING_MAX_DELIVERIES] = {
		.name = "max_deliveries",
		.scope = FOLLOWED,
		.greatest = 1000000,
		.allowed = "a number of deliveries up to 1000000, or 0 for any",
	},
	[SETTING_RETRY_DELAY_SECONDS] = {
		.name = "retry_delay_seconds",
		.kind = RANGE,
		.scope = FOLLOWED,
		.greatest = DAYS(30),
		.allowed = DURATION_TEXT ", or two as least:greatest",
	},
	[SETTING_DEDUP_SECONDS] = {
		.name = "dedup_seconds",
		.kind = DURATION,
		.preset = { 3600, 3600 },
		.greatest = DAYS(366),
		.allowed = DURATION_TEXT ", up to 366d, or 0 for no de-duplication",
	},
	[SETTING_RETENTION_SECONDS] = {
		.name = "retention_seconds",
		.publish_locked = retention_publish_locked,
		.kind = DURATION,
		.greatest = FOR_EVER,
		.allowed = DURATION_TEXT ", up to 36525d, or 0 for whatever age",
	},
	[SETTING_COMPLETED_RETENTION_SECONDS] = {
		.name = "completed_retention_seconds",
		.publish_locked = retention_publish_locked,
		.kind = DURATION,
		.greatest = FOR_EVER,
		.allowed = DURATION_TEXT ", up to 36525d, or 0 for whatever age",
	},
	[SETTING_RETENTION_BYTES] = {
		.name = "retention_bytes",
		.publish_locked = retention_publish_locked,
		.kind = SIZE,
		.greatest = INT64_MAX,
		.allowed = SIZE_TEXT ", or 0 for any",
	},
	[SETTING_MAX_MESSAGE_BYTES] = {
		.name = "max_message_bytes",
		.kind = SIZE,
		.preset = { 1 << 20, 1 << 20 },
		.least = 1,
		.greatest = 256 << 20,
		.allowed = SIZE_TEXT ", from 1 to 256M",
	},
	[SETTING_SUBSCRIPTION] = {
		.name = "subscription",
		.apply = subscription_apply,
		.publish_locked = subscription_publish_locked,
		.kind = START,
		.scope = INHERITED,
		.preset = { START_ALL, START_ALL },
		.least = INT64_MIN,
		.greatest = INT64_MAX,
		.allowed = "all, new, or a time like 2026-07-29T14:00Z, -2h or @1785333600",
	},
	[SETTING_SNAPSHOT_SECONDS] = {
		.name = "snapshot_seconds",
		.kind = DURATION,
		.preset = { DAYS(7), DAYS(7) },
		.greatest = FOR_EVER,
		.allowed = DURATION_TEXT ", up to 36525d, or 0 for ever",
	},
	[SETTING_FILTER] = {
		.name = "filter",
		.apply = filter_apply,
		.publish_locked = filter_publish_locked,
		.kind = TEXT,
		.scope = OF_GROUP,
		.allowed = "a line of at most 2000 bytes, an empty one for no filter",
	},
};

const char *setting_name(enum setting setting)
{
	return types[setting].name;
}

bool setting_of_queue(enum setting setting)
{
	return types[setting].scope != OF_GROUP;
}

bool setting_of_group(enum setting setting)
{
	return types[setting].scope != OF_QUEUE;
}

static bool setting_of(const struct item *item, enum setting setting)
{
	return item->kind == ITEM_GROUP ? setting_of_group(setting)
					: setting_of_queue(setting);
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

struct unit {
	char letter;
	int64_t factor;
};
static const struct unit seconds[] = {
	{ 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 }, { 0, 0 }
};
static const struct unit bytes[] = { { 'K', 1 << 10 }, { 'k', 1 << 10 }, { 'M', 1 << 20 },
				     { 'm', 1 << 20 }, { 'G', 1 << 30 }, { 'g', 1 << 30 },
				     { 0, 0 } };
static const struct unit *const units[] = {
	[DURATION] = seconds,
	[SIZE] = bytes,
	[RANGE] = seconds,
};

/* Digits and what unit the kind allows; moves *text past them. */
static int number_take(enum setting_kind kind, const char **text, int64_t *out)
{
	int64_t value;
	char *end;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	errno = 0;
	value = strtoll(*text, &end, 10);
	if (errno)
		return -EINVAL;
	for (const struct unit *unit = units[kind]; unit && unit->letter; unit++)
		if (*end == unit->letter) {
			if (__builtin_mul_overflow(value, unit->factor, &value))
				return -EINVAL;
			end++;
			break;
		}
	*text = end;
	*out = value;
	return 0;
}

static int number_parse(const struct setting_type *type, const char *text, int64_t now_us,
			struct setting_value *value)
{
	int error = number_take(type->kind, &text, &value->least);

	(void)now_us;
	value->greatest = value->least;
	return error || *text ? -EINVAL : 0;
}

static int range_parse(const struct setting_type *type, const char *text, int64_t now_us,
		       struct setting_value *value)
{
	int error = number_take(type->kind, &text, &value->least);

	(void)now_us;
	value->greatest = type->greatest;
	if (!error && *text == ':') {
		text++;
		error = number_take(type->kind, &text, &value->greatest);
	}
	return error || *text ? -EINVAL : 0;
}

static int word_parse(const struct setting_type *type, const char *text, int64_t now_us,
		      struct setting_value *value)
{
	(void)now_us;
	for (int i = 0; type->words[i]; i++)
		if (strcasecmp(type->words[i], text) == 0) {
			*value = (struct setting_value){ i, i };
			return 0;
		}
	return -EINVAL;
}

static int start_parse(const struct setting_type *type, const char *text, int64_t now_us,
		       struct setting_value *value)
{
	int64_t start_us;

	(void)type;
	if (strcasecmp(text, "all") == 0)
		start_us = START_ALL;
	else if (strcasecmp(text, "new") == 0 || strcasecmp(text, "now") == 0)
		start_us = START_NEW;
	else if (time_parse(text, now_us, &start_us))
		return -EINVAL;
	*value = (struct setting_value){ start_us, start_us };
	return 0;
}

static int text_parse(const struct setting_type *type, const char *text, int64_t now_us,
		      struct setting_value *value)
{
	(void)type;
	(void)now_us;
	*value = (struct setting_value){ 0, 0 };
	return strlen(text) >= SETTING_TEXT_SIZE || strchr(text, '\n') ? -EINVAL : 0;
}

static void number_print(const struct setting_type *type,
			 const struct setting_value *value, char text[SETTING_TEXT_SIZE])
{
	(void)type;
	snprintf(text, SETTING_TEXT_SIZE, "%lld", (long long)value->least);
}

static void range_print(const struct setting_type *type,
			const struct setting_value *value, char text[SETTING_TEXT_SIZE])
{
	if (value->least > 0 && value->greatest < type->greatest)
		snprintf(text, SETTING_TEXT_SIZE, "%lld:%lld", (long long)value->least,
			 (long long)value->greatest);
	else
		number_print(type, value, text);
}

static void word_print(const struct setting_type *type, const struct setting_value *value,
		       char text[SETTING_TEXT_SIZE])
{
	snprintf(text, SETTING_TEXT_SIZE, "%s", type->words[value->least]);
}

static void start_print(const struct setting_type *type,
			const struct setting_value *value, char text[SETTING_TEXT_SIZE])
{
	(void)type;
	if (value->least == START_ALL || value->least == START_NEW)
		snprintf(text, SETTING_TEXT_SIZE, "%s",
			 value->least == START_ALL ? "all" : "new");
	else
		time_print(value->least, text);
}

static const struct {
	int (*parse)(const struct setting_type *type, const char *text, int64_t now_us,
		     struct setting_value *value);
	/* NULL: the text stands beside the value. */
	void (*print)(const struct setting_type *type, const struct setting_value *value,
		      char text[SETTING_TEXT_SIZE]);
} kinds[] = {
	[COUNT] = { number_parse, number_print },
	[DURATION] = { number_parse, number_print },
	[SIZE] = { number_parse, number_print },
	[RANGE] = { range_parse, range_print },
	[WORD] = { word_parse, word_print },
	[START] = { start_parse, start_print },
	[TEXT] = { text_parse, NULL },
};

/* What is longer is no value, whatever it may come to: but for a TEXT. */
#define VALUE_TEXT_MAX 200

static int setting_parse(enum setting setting, const char *text, int64_t now_us,
			 struct setting_value *out, struct store_why *why)
{
	const struct setting_type *type = &types[setting];
	struct setting_value value;
	int error = type->kind != TEXT && strlen(text) > VALUE_TEXT_MAX ? -EINVAL : 0;

	if (!error)
		error = kinds[type->kind].parse(type, text, now_us, &value);
	if (!error && type->kind != WORD && type->kind != TEXT &&
	    (value.least < type->least || value.greatest > type->greatest ||
	     value.least > value.greatest))
		error = -EINVAL;
	if (error)
		return why_set(why, error, "%s cannot be \"%.40s\"; allowed is %s",
			       type->name, text, type->allowed);
	*out = value;
	return 0;
}

int setting_check(enum setting setting, const char *text, struct store_why *why)
{
	struct setting_value value;

	return setting_parse(setting, text, clock_us(), &value, why);
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
	bool own = group->settings.set[setting] || types[setting].scope >= INHERITED;

	return own ? &group->settings.values[setting]
		   : &queue_of(group->item.parent)->settings.values[setting];
}

static struct settings *settings_of(struct item *item)
{
	return item->kind == ITEM_GROUP ? &group_of(item)->settings
					: &queue_of(item)->settings;
}

void store_setting(struct item *item, enum setting setting, char text[SETTING_TEXT_SIZE])
{
	const struct setting_type *type = &types[setting];
	const struct setting_value *value;
	const char *filter;

	pthread_mutex_lock(&item->store->state);
	if (type->kind == TEXT) {
		filter = item->kind == ITEM_GROUP ? group_of(item)->filter_text : NULL;
		snprintf(text, SETTING_TEXT_SIZE, "%s", filter ? filter : "");
	} else {
		value = item->kind == ITEM_GROUP
				? setting_locked(group_of(item), setting)
				: &queue_of(item)->settings.values[setting];
		kinds[type->kind].print(type, value, text);
	}
	pthread_mutex_unlock(&item->store->state);
}

int store_setting_default(struct store *store, enum setting setting, const char *text,
			  struct store_why *why)
{
	struct setting_value value;
	int error = setting_parse(setting, text, store_now(store), &value, why);

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
			 enum setting setting, const char *text)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_SETTING_SET);

	bind_key(stmt, item, setting);
	bind_text(stmt, 4, text);
	return conn_run(store->writer, stmt);
}

static int setting_delete(struct store *store, const struct item *item,
			  enum setting setting)
{
	sqlite3_stmt *stmt = conn_stmt(store->writer, STMT_SETTING_DELETE);

	bind_key(stmt, item, setting);
	return conn_run(store->writer, stmt);
}

static int value_write(struct store *store, const struct item *item, enum setting setting,
		       const struct setting_value *value)
{
	char text[SETTING_TEXT_SIZE];

	kinds[types[setting].kind].print(&types[setting], value, text);
	return setting_write(store, item, setting, text);
}

static bool value_equal(const struct setting_value *a, const struct setting_value *b)
{
	return a->least == b->least && a->greatest == b->greatest;
}

int settings_write(struct store *store, const struct item *queue)
{
	int error = 0;

	for (int i = 0; i < SETTING_COUNT && !error; i++)
		if (store->defaults.set[i])
			error = value_write(store, queue, (enum setting)i,
					    &store->defaults.values[i]);
	return error;
}

int settings_inherit(struct store *store, struct group *group)
{
	const struct settings *from = &queue_of(group->item.parent)->settings;
	int error = 0;

	for (int i = 0; i < SETTING_COUNT && !error; i++) {
		if (types[i].scope != INHERITED)
			continue;
		group->settings.values[i] = from->values[i];
		if (!value_equal(&from->values[i], &types[i].preset))
			error = value_write(store, &group->item, (enum setting)i,
					    &from->values[i]);
	}
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
	    !setting_of(item, setting) || setting_parse(setting, text, 0, &value, NULL) ||
	    settings_of(item)->set[setting])
		return conn_damaged(store->writer, "settings");
	settings_of(item)->values[setting] = value;
	settings_of(item)->set[setting] = true;
	if (types[setting].kind == TEXT && *text) {
		group_of(item)->filter_text = strdup(text);
		if (!group_of(item)->filter_text)
			return -ENOMEM;
		if (filter_compile(text, &group_of(item)->filter, NULL))
			return conn_damaged(store->writer, "settings");
	}
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

/* ---- setting one ------------------------------------------------------------------- */

struct setting_job {
	struct job job;
	struct item *item; /* a reference */
	enum setting setting;
	bool reset;   /* to what it would be without */
	bool set;     /* it has a row */
	char *filter; /* of a TEXT: a copy, NULL for none */
	struct setting_change change;
};

static struct setting_value value_without(struct item *item, enum setting setting)
{
	bool from_queue = item->kind == ITEM_GROUP && setting_of_queue(setting);

	return from_queue ? queue_of(item->parent)->settings.values[setting]
			  : types[setting].preset;
}

static int setting_apply(struct store *store, struct job *base)
{
	struct setting_job *job = container_of(base, struct setting_job, job);
	const struct setting_type *type = &types[job->setting];
	const struct setting_value *old = &settings_of(job->item)->values[job->setting];
	struct setting_change *change = &job->change;
	int error = 0;

	if (job->item->state != ITEM_LIVE)
		return -ESTALE;
	if (job->reset)
		change->value = value_without(job->item, job->setting);
	if (type->kind != TEXT)
		kinds[type->kind].print(type, &change->value, change->text);
	if (type->apply &&
	    !(job->item->kind == ITEM_QUEUE && value_equal(&change->value, old)))
		error = type->apply(store, job->item, change, &base->why);
	if (error)
		return error;
	/* What a group has inherited is its own: no row would mean the preset. */
	job->set = !job->reset ||
		   (job->item->kind == ITEM_GROUP && type->scope == INHERITED &&
		    !value_equal(&change->value, &type->preset));
	return job->set ? setting_write(store, job->item, job->setting, change->text)
			: setting_delete(store, job->item, job->setting);
}

static void setting_publish_locked(struct store *store, struct job *base)
{
	struct setting_job *job = container_of(base, struct setting_job, job);
	const struct setting_type *type = &types[job->setting];
	struct settings *settings = settings_of(job->item);

	settings->values[job->setting] = job->change.value;
	settings->set[job->setting] = job->set;
	if (type->kind == TEXT) {
		char *old = group_of(job->item)->filter_text;
		group_of(job->item)->filter_text = job->filter;
		job->filter = old;
	}
	if (type->publish_locked)
		type->publish_locked(store, job->item, &job->change);
}

static void setting_job_free(struct job *base)
{
	struct setting_job *job = container_of(base, struct setting_job, job);

	store_put(job->item);
	free(job->filter);
	free(job->change.moves);
	filter_free(job->change.filter);
	free(job);
}

static const struct job_type setting_type = {
	.alone = true,
	.apply = setting_apply,
	.publish_locked = setting_publish_locked,
	.free = setting_job_free,
};

/* What the job has to know of the text; "default" it knows. */
static int setting_take(struct setting_job *job, const char *text)
{
	struct store_why *why = &job->job.why;
	int error = setting_parse(job->setting, text, store_now(job->item->store),
				  &job->change.value, why);

	if (error || types[job->setting].kind != TEXT)
		return error;
	snprintf(job->change.text, sizeof(job->change.text), "%s", text);
	job->filter = *text ? strdup(text) : NULL;
	return *text && !job->filter ? -ENOMEM : 0;
}

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
	if (!setting_of(item, setting))
		error = why_set(&job->job.why, -EINVAL, "a %s has no %s",
				item->kind == ITEM_GROUP ? "group" : "queue",
				types[setting].name);
	else if (!job->reset)
		error = setting_take(job, text);
	if (error)
		commit_refuse(&job->job, error);
	else
		commit_submit(item->store, &job->job);
}
