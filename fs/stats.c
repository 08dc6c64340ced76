/* SPDX-License-Identifier: MIT */
/* stats.c - stats and members: numbers for people and scripts, a line each (section 12). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

static void print_age(FILE *out, const char *key, int64_t age_us)
{
	if (age_us)
		fprintf(out, "%s %.3f\n", key, (double)age_us / 1e6);
	else
		fprintf(out, "%s 0\n", key);
}

static void print_time(FILE *out, const char *key, int64_t time_us)
{
	char text[TIME_TEXT_SIZE];

	time_print(time_us, text);
	fprintf(out, "%s %s\n", key, text);
}

/* ---- a partition and a queue ------------------------------------------------------------- */

static int partition_stats(const struct node *node, FILE *out)
{
	struct partition_info info;

	store_partition_info(node->place.partition, &info);
	fprintf(out,
		"first_offset %lld\nlast_offset %lld\nmessages %lld\nbytes %llu\n"
		"segments %llu\n",
		(long long)info.first_offset, (long long)info.last_offset,
		(long long)info.last_offset - (long long)info.first_offset + 1,
		(unsigned long long)(info.end_position - info.first_position),
		(unsigned long long)info.segments);
	print_time(out, "modified_at", info.modified_us);
	print_time(out, "made_at", info.made_us);
	return 0;
}

static void print_number(FILE *out, const char *key, uint64_t number)
{
	fprintf(out, "%s %llu\n", key, (unsigned long long)number);
}

static int queue_stats(const struct node *node, FILE *out)
{
	struct queue_stats stats;

	store_queue_stats(node->place.queue, &stats);
	print_number(out, "partitions", stats.partitions);
	print_number(out, "groups", stats.groups);
	print_number(out, "pushed", stats.offsets);
	print_number(out, "messages", stats.messages);
	print_number(out, "bytes", stats.bytes);
	print_number(out, "segments", stats.segments);
	return 0;
}

/* ---- a group, in a partition and in all ---------------------------------------------------- */

static void print_counts(FILE *out, const struct counts *counts)
{
	print_number(out, "delivered", counts->delivered);
	print_number(out, "redelivered", counts->redelivered);
	print_number(out, "acked", counts->acked);
	print_number(out, "failed", counts->failed);
	print_number(out, "dead_lettered", counts->dead_lettered);
	print_number(out, "skipped", counts->skipped);
	print_number(out, "filtered", counts->filtered);
	print_number(out, "filter_errors", counts->filter_errors);
}

static int lane_stats(const struct node *node, FILE *out)
{
	struct item *group = node->place.group;
	struct cursor_info info;
	int error = store_cursor_info(group, node->place.partition, &info);
	int64_t now = store_now(store_of(group));

	if (error)
		return error;
	fprintf(out, "committed %lld\nlag %lld\n", (long long)info.committed,
		(long long)(info.last_offset - info.committed));
	print_age(out, "oldest_unread_seconds",
		  info.oldest_us ? now - info.oldest_us : 0);
	fprintf(out, "lease_pid %d\nlease_uid %d\n", (int)info.holder.pid,
		info.leased ? (int)info.holder.uid : -1);
	if (info.leased && info.lease_us != INT64_MAX)
		print_time(out, "lease_end", now + info.lease_us);
	else
		fprintf(out, "lease_end -\n");
	fprintf(out, "attempts %u\nretries %u\n", info.attempts, info.failures);
	print_counts(out, &info.counts);
	return 0;
}

static int group_stats(const struct node *node, FILE *out)
{
	struct group_stats stats;
	int error = store_group_stats(node->place.group, &stats);

	if (error)
		return error;
	print_number(out, "partitions", stats.partitions);
	print_number(out, "lag", stats.lag);
	print_age(out, "oldest_unread_seconds", stats.age_us);
	print_number(out, "members", stats.readers);
	print_number(out, "waiting", stats.waiting);
	print_number(out, "leased", stats.leased);
	print_counts(out, &stats.counts);
	return 0;
}

/* ---- members ------------------------------------------------------------------------------ */

static void print_command(FILE *out, pid_t pid)
{
	char path[40], name[64] = "-";
	FILE *comm;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	comm = fopen(path, "re");
	if (comm && fgets(name, sizeof(name), comm))
		name[strcspn(name, "\n")] = '\0';
	if (comm)
		fclose(comm);
	for (char *at = name; *at; at++)
		if ((unsigned char)*at < 0x20)
			*at = '?'; /* a row stays a row */
	fputs(name, out);
}

static void print_member(FILE *out, struct item *group, const struct member *member)
{
	char until[TIME_TEXT_SIZE] = "-", span[64] = "-";

	if (member->partition) {
		snprintf(span, sizeof(span), "%lld-%lld", (long long)member->from,
			 (long long)member->to);
		if (member->lease_us != INT64_MAX)
			time_print(store_now(store_of(group)) + member->lease_us, until);
	}
	fprintf(out, "%d\t%u\t", (int)member->who.pid, member->who.uid);
	print_command(out, member->who.pid);
	fprintf(out, "\t%s%s%s\t%s\t%s\t%s\n",
		member->flags & READER_FOLLOW ? "follow" : "pop",
		member->flags & READER_JSON ? ".json" : "",
		member->flags & READER_LEASED ? " rw" : "",
		member->partition ? store_name(member->partition) : "-", span, until);
}

static int members_text(const struct node *node, FILE *out)
{
	struct item *group = node->place.group;
	struct member *rows;
	size_t count;
	int error = store_members(group, &rows, &count);

	if (error)
		return error;
	fputs("# pid\tuid\tcommand\tfile\tpartition\tfrom-to\tlease-end\n", out);
	for (size_t i = 0; i < count; i++) {
		print_member(out, group, &rows[i]);
		store_put(rows[i].partition);
	}
	free(rows);
	return 0;
}

/* Without a size, like the files of /proc: a stat must not count all partitions or look at
 * all members. */
#define STATS_FILE .open = text_open, .read = text_read, .close = text_close

const struct file_ops queue_stats_file = { STATS_FILE, .text = queue_stats };
const struct file_ops partition_stats_file = { STATS_FILE, .text = partition_stats };
const struct file_ops lane_stats_file = { STATS_FILE, .text = lane_stats };
const struct file_ops group_stats_file = { STATS_FILE, .text = group_stats };
const struct file_ops members_file = { STATS_FILE, .text = members_text };
