/* SPDX-License-Identifier: MIT */
/* stats.c - stats and members: numbers for people and scripts, a line each (section 12). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

/* Of the items of one kind in a queue, for each: 0, or what `each` answered. */
static int items_each(struct item *queue, enum item_kind kind,
		      int (*each)(struct item *item, void *arg), void *arg)
{
	struct item *item;
	uint64_t after = 0;
	int error = 0;

	while (!error && store_next(store_of(queue), queue, kind, after, &item) == 0) {
		after = store_id(item);
		error = each(item, arg);
		store_put(item);
	}
	return error;
}

static void print_age(FILE *out, const char *key, struct item *item, int64_t since_us)
{
	if (since_us)
		fprintf(out, "%s %.3f\n", key,
			(double)(store_now(store_of(item)) - since_us) / 1e6);
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

static int partition_stats(const struct place *place, FILE *out)
{
	struct partition_info info;

	store_partition_info(place->partition, &info);
	fprintf(out, "first_offset %lld\nlast_offset %lld\nmessages %lld\nbytes %llu\n",
		(long long)info.first_offset, (long long)info.last_offset,
		(long long)info.last_offset - (long long)info.first_offset + 1,
		(unsigned long long)(info.end_position - info.first_position));
	print_time(out, "modified_at", info.modified_us);
	print_time(out, "made_at", info.made_us);
	return 0;
}

struct queue_sum {
	long long partitions, groups, pushed, messages;
	unsigned long long bytes;
};

static int sum_partition(struct item *partition, void *arg)
{
	struct queue_sum *sum = arg;
	struct partition_info info;

	store_partition_info(partition, &info);
	sum->partitions++;
	sum->pushed += info.last_offset + 1;
	sum->messages += info.last_offset - info.first_offset + 1;
	sum->bytes += info.end_position - info.first_position;
	return 0;
}

static int count_group(struct item *group, void *arg)
{
	(void)group;
	((struct queue_sum *)arg)->groups++;
	return 0;
}

static int queue_stats(const struct place *place, FILE *out)
{
	struct queue_sum sum = { 0 };
	int error = items_each(place->queue, ITEM_PARTITION, sum_partition, &sum);

	if (!error)
		error = items_each(place->queue, ITEM_GROUP, count_group, &sum);
	fprintf(out,
		"partitions %lld\ngroups %lld\npushed %lld\nmessages %lld\nbytes %llu\n",
		sum.partitions, sum.groups, sum.pushed, sum.messages, sum.bytes);
	return error;
}

/* ---- a group, in a partition and in all ---------------------------------------------------- */

static void print_counts(FILE *out, const struct cursor_info *info)
{
	fprintf(out,
		"delivered %llu\nredelivered %llu\ndead_lettered %llu\nskipped %llu\n"
		"filter_errors %llu\n",
		(unsigned long long)info->delivered,
		(unsigned long long)info->redelivered, (unsigned long long)info->dead,
		(unsigned long long)info->skipped,
		(unsigned long long)info->filter_errors);
}

static int lane_stats(const struct place *place, FILE *out)
{
	struct cursor_info info;
	int error = store_cursor_info(place->group, place->partition, &info);

	if (error)
		return error;
	fprintf(out, "committed %lld\nlag %lld\n", (long long)info.committed,
		(long long)(info.last_offset - info.committed));
	print_age(out, "oldest_unread_seconds", place->group, info.oldest_us);
	fprintf(out, "lease_pid %d\nlease_uid %d\n", (int)info.holder.pid,
		info.leased ? (int)info.holder.uid : -1);
	if (info.leased && info.lease_us != INT64_MAX)
		print_time(out, "lease_end",
			   store_now(store_of(place->group)) + info.lease_us);
	else
		fprintf(out, "lease_end -\n");
	fprintf(out, "attempts %u\nretries %u\n", info.attempts, info.failures);
	print_counts(out, &info);
	return 0;
}

struct group_sum {
	struct item *group;
	struct cursor_info sum;
	long long lag, leased, partitions;
};

static int sum_lane(struct item *partition, void *arg)
{
	struct group_sum *sum = arg;
	struct cursor_info info;
	int error = store_cursor_info(sum->group, partition, &info);

	if (error == -ESTALE)
		return 0; /* the partition has just gone */
	if (error)
		return error;
	sum->partitions++;
	sum->lag += info.last_offset - info.committed;
	sum->leased += info.leased;
	sum->sum.delivered += info.delivered;
	sum->sum.redelivered += info.redelivered;
	sum->sum.dead += info.dead;
	sum->sum.skipped += info.skipped;
	sum->sum.filter_errors += info.filter_errors;
	if (info.oldest_us &&
	    (!sum->sum.oldest_us || info.oldest_us < sum->sum.oldest_us))
		sum->sum.oldest_us = info.oldest_us;
	return 0;
}

static int group_stats(const struct place *place, FILE *out)
{
	struct group_sum sum = { .group = place->group };
	struct group_info info;
	int error = items_each(place->queue, ITEM_PARTITION, sum_lane, &sum);

	if (error)
		return error;
	store_group_info(place->group, &info);
	fprintf(out, "partitions %lld\nlag %lld\n", sum.partitions, sum.lag);
	print_age(out, "oldest_unread_seconds", place->group, sum.sum.oldest_us);
	fprintf(out, "members %u\nwaiting %u\nleased %lld\n", info.readers, info.waiting,
		sum.leased);
	print_counts(out, &sum.sum);
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

static int members_text(const struct place *place, FILE *out)
{
	struct member *rows;
	size_t count;
	int error = store_members(place->group, &rows, &count);

	if (error)
		return error;
	fputs("# pid\tuid\tcommand\tfile\tpartition\tfrom-to\tlease-end\n", out);
	for (size_t i = 0; i < count; i++) {
		print_member(out, place->group, &rows[i]);
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
