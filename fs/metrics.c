/* SPDX-License-Identifier: MIT */
/*
 * metrics.c - the mount's metrics file: Prometheus' text format, version 0.0.4.
 *
 * Read it from the bottom: `families` is what there is. All figures are gathered first,
 * because the format wants a family's samples together. A partition is no label: there may
 * be hundreds of thousands.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

/* ---- gathering ---------------------------------------------------------------------------- */

struct group_row {
	struct item *group; /* a reference; its parent's name is the queue's */
	const char *queue;
	struct group_stats stats;
};

struct queue_row {
	struct item *queue; /* a reference */
	struct queue_stats stats;
};

struct figures {
	struct mount_stats {
		struct store_stats store;
		int64_t started_us;
	} mount;
	struct queue_row *queues;
	struct group_row *groups;
	size_t queue_count, group_count;
};

static int gather_groups(struct figures *figures, struct item *queue)
{
	struct group_row row = { .queue = store_name(queue) }, *rows;
	uint64_t after = 0;

	while (store_next(store_of(queue), queue, ITEM_GROUP, after, &row.group) == 0) {
		after = store_id(row.group);
		if (store_group_stats(row.group, &row.stats)) {
			store_put(row.group); /* it has just gone */
			continue;
		}
		rows = array_grown(figures->groups, figures->group_count, sizeof(row));
		if (!rows) {
			store_put(row.group);
			return -ENOMEM;
		}
		figures->groups = rows;
		rows[figures->group_count++] = row;
	}
	return 0;
}

static int gather(struct mount *mount, struct figures *figures)
{
	struct queue_row row, *rows;
	uint64_t after = 0;
	int error = 0;

	store_stats(mount->store, &figures->mount.store);
	figures->mount.started_us = mount->started_us;
	while (!error &&
	       store_next(mount->store, NULL, ITEM_QUEUE, after, &row.queue) == 0) {
		after = store_id(row.queue);
		store_queue_stats(row.queue, &row.stats);
		rows = array_grown(figures->queues, figures->queue_count, sizeof(row));
		if (!rows) {
			store_put(row.queue);
			return -ENOMEM;
		}
		figures->queues = rows;
		rows[figures->queue_count++] = row;
		error = gather_groups(figures, row.queue);
	}
	return error;
}

static void figures_free(struct figures *figures)
{
	for (size_t i = 0; i < figures->group_count; i++)
		store_put(figures->groups[i].group);
	for (size_t i = 0; i < figures->queue_count; i++)
		store_put(figures->queues[i].queue);
	free(figures->groups);
	free(figures->queues);
}

/* ---- samples ------------------------------------------------------------------------------ */

/* What a number in the store's structs is counted in. */
enum unit { ONES, MICROSECONDS };

struct family {
	const char *name, *type, *help;
	void (*print)(FILE *out, const struct family *family,
		      const struct figures *figures);
	size_t at; /* where the number is in its struct */
	enum unit unit;
};

static void print_value(FILE *out, uint64_t value, enum unit unit)
{
	if (unit == MICROSECONDS)
		fprintf(out, " %llu.%06llu\n", (unsigned long long)value / 1000000,
			(unsigned long long)value % 1000000);
	else
		fprintf(out, " %llu\n", (unsigned long long)value);
}

static uint64_t number_at(const void *stats, size_t at)
{
	uint64_t value;

	memcpy(&value, (const char *)stats + at, sizeof(value));
	return value;
}

static void print_label(FILE *out, const char *label, const char *value)
{
	fprintf(out, "%s=\"", label);
	for (; *value; value++)
		if (*value == '\n')
			fputs("\\n", out);
		else if (*value == '\\' || *value == '"')
			fprintf(out, "\\%c", *value);
		else
			fputc(*value, out);
	fputc('"', out);
}

static void print_mount(FILE *out, const struct family *family,
			const struct figures *figures)
{
	fputs(family->name, out);
	print_value(out, number_at(&figures->mount, family->at), family->unit);
}

static void print_queues(FILE *out, const struct family *family,
			 const struct figures *figures)
{
	for (size_t i = 0; i < figures->queue_count; i++) {
		const struct queue_row *row = &figures->queues[i];
		fprintf(out, "%s{", family->name);
		print_label(out, "queue", store_name(row->queue));
		fputc('}', out);
		print_value(out, number_at(&row->stats, family->at), family->unit);
	}
}

static void print_groups(FILE *out, const struct family *family,
			 const struct figures *figures)
{
	for (size_t i = 0; i < figures->group_count; i++) {
		const struct group_row *row = &figures->groups[i];
		fprintf(out, "%s{", family->name);
		print_label(out, "queue", row->queue);
		fputc(',', out);
		print_label(out, "group", store_name(row->group));
		fputc('}', out);
		print_value(out, number_at(&row->stats, family->at), family->unit);
	}
}

static void print_histogram(FILE *out, const struct family *family,
			    const struct figures *figures)
{
	const struct histogram *histogram =
		(const void *)((const char *)&figures->mount + family->at);
	double scale = family->unit == MICROSECONDS ? 1e-6 : 1;
	uint64_t count = 0;

	for (unsigned i = 0; i < histogram->bound_count; i++) {
		count += histogram->counts[i];
		fprintf(out, "%s_bucket{le=\"%.9g\"} %llu\n", family->name,
			(double)histogram->bounds[i] * scale, (unsigned long long)count);
	}
	count += histogram->counts[histogram->bound_count];
	fprintf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum", family->name,
		(unsigned long long)count, family->name);
	print_value(out, histogram->sum, family->unit);
	fprintf(out, "%s_count %llu\n", family->name, (unsigned long long)count);
}

static void print_build(FILE *out, const struct family *family,
			const struct figures *figures)
{
	(void)figures;
	fprintf(out, "%s{", family->name);
	print_label(out, "version", QUEENFS_VERSION);
	fputs("} 1\n", out);
}

/* ---- the families --------------------------------------------------------------------------- */

#define OF_MOUNT(field) print_mount, offsetof(struct mount_stats, field)
#define OF_QUEUE(field) print_queues, offsetof(struct queue_stats, field)
#define OF_GROUP(field) print_groups, offsetof(struct group_stats, field)
#define OF_HISTOGRAM(field) print_histogram, offsetof(struct mount_stats, field)
#define COUNTER "counter"
#define GAUGE "gauge"

/* Counters begin at 0 when the daemon starts, as Prometheus expects it. */
static const struct family families[] = {
	{ "queenfs_build_info", GAUGE, "The version of the daemon; always 1.",
	  print_build, 0, ONES },
	{ "queenfs_start_time_seconds", GAUGE,
	  "When the daemon started, as a Unix time; all counters count from there.",
	  OF_MOUNT(started_us), MICROSECONDS },

	{ "queenfs_pushed_messages_total", COUNTER,
	  "Messages pushed, without those that were de-duplicated.", OF_QUEUE(pushed),
	  ONES },
	{ "queenfs_pushed_bytes_total", COUNTER,
	  "Bytes pushed, as log shows them: with newlines.", OF_QUEUE(pushed_bytes),
	  ONES },
	{ "queenfs_queue_partitions", GAUGE, "Partitions that exist.",
	  OF_QUEUE(partitions), ONES },
	{ "queenfs_queue_messages", GAUGE, "Messages retained.", OF_QUEUE(messages),
	  ONES },
	{ "queenfs_queue_bytes", GAUGE, "Bytes retained, as log shows them.",
	  OF_QUEUE(bytes), ONES },
	{ "queenfs_queue_segments", GAUGE,
	  "Segments retained. Those made before format 3 of the store count as one in "
	  "each partition.",
	  OF_QUEUE(segments), ONES },

	{ "queenfs_popped_messages_total", COUNTER,
	  "Messages given to a reader, by pop or follow, for the first time or the first "
	  "since a seek.",
	  OF_GROUP(counts.delivered), ONES },
	{ "queenfs_redelivered_messages_total", COUNTER,
	  "Messages given to a reader again, because they were lost or failed.",
	  OF_GROUP(counts.redelivered), ONES },
	{ "queenfs_acked_messages_total", COUNTER,
	  "Messages acked, and those that the filter passed over as if acked.",
	  OF_GROUP(counts.acked), ONES },
	{ "queenfs_failed_messages_total", COUNTER,
	  "Failures that readers reported by fail.", OF_GROUP(counts.failed), ONES },
	{ "queenfs_dead_lettered_messages_total", COUNTER,
	  "Messages given up: they became dead letters.", OF_GROUP(counts.dead_lettered),
	  ONES },
	{ "queenfs_skipped_messages_total", COUNTER,
	  "Messages removed before the group had read them; counted when a reader gets "
	  "there.",
	  OF_GROUP(counts.skipped), ONES },
	{ "queenfs_filtered_messages_total", COUNTER,
	  "Messages that the group's filter did not want.", OF_GROUP(counts.filtered),
	  ONES },
	{ "queenfs_filter_errors_total", COUNTER,
	  "Messages for which the group's filter failed, and which were delivered.",
	  OF_GROUP(counts.filter_errors), ONES },
	{ "queenfs_group_lag_messages", GAUGE, "Messages not acked, leased or not.",
	  OF_GROUP(lag), ONES },
	{ "queenfs_group_oldest_unread_seconds", GAUGE,
	  "Age of the oldest message not acked; 0 if there is none. At least so old: in "
	  "a group that is behind in thousands of partitions it may take some readings "
	  "after a start until the oldest is found.",
	  OF_GROUP(age_us), MICROSECONDS },
	{ "queenfs_group_readers", GAUGE, "Open files of pop and follow.",
	  OF_GROUP(readers), ONES },
	{ "queenfs_group_waiting_readers", GAUGE, "Those in which a read waits.",
	  OF_GROUP(waiting), ONES },
	{ "queenfs_group_leased_partitions", GAUGE, "Partitions that a reader holds.",
	  OF_GROUP(leased), ONES },

	{ "queenfs_commits_total", COUNTER, "Transactions committed.",
	  OF_MOUNT(store.commits), ONES },
	{ "queenfs_commit_failures_total", COUNTER,
	  "Transactions that failed, and changed nothing.",
	  OF_MOUNT(store.commit_failures), ONES },
	{ "queenfs_commit_seconds", "histogram",
	  "How long a commit took, its writes and its sync.",
	  OF_HISTOGRAM(store.commit_us), MICROSECONDS },
	{ "queenfs_commit_messages", "histogram",
	  "Messages that a commit stored, of those that stored any.",
	  OF_HISTOGRAM(store.commit_messages), ONES },
	{ "queenfs_store_bytes", GAUGE, "Size of the store's file.",
	  OF_MOUNT(store.store_bytes), ONES },
	{ "queenfs_wal_bytes", GAUGE,
	  "Bytes of the write-ahead log in use since it was last emptied.",
	  OF_MOUNT(store.wal_bytes), ONES },
	{ "queenfs_store_full", GAUGE,
	  "1 while pushes are refused because the disk is full.", OF_MOUNT(store.full),
	  ONES },
};

static int metrics_text(const struct node *node, FILE *out)
{
	struct figures figures = { 0 };
	int error = gather(node->mount, &figures);

	for (size_t i = 0; !error && i < sizeof(families) / sizeof(*families); i++) {
		const struct family *family = &families[i];
		fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help,
			family->name, family->type);
		family->print(out, family, &figures);
	}
	figures_free(&figures);
	return error;
}

/* No size, like stats; and nothing for others, however open the mount's root is. */
const struct file_ops metrics_file = {
	.open = text_open,
	.read = text_read,
	.close = text_close,
	.text = metrics_text,
	.withheld = 0007,
};
