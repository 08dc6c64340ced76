/* SPDX-License-Identifier: MIT */
/*
 * test_full.c - section 13: a full disk refuses pushes and nothing else.
 *
 * The disk is a small tmpfs in a mount namespace of this process; where that is not
 * permitted the tests are skipped.
 */
#include "store_test.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#define DISK_BYTES (8 * MiB)
#define LINE_BYTES 50000

static bool permitted;

static bool text_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return written;
}

/* Mounts made from now on are seen by this process alone and end with it. */
static bool namespace_enter(void)
{
	char uid_map[64], gid_map[64];

	snprintf(uid_map, sizeof(uid_map), "0 %u 1", geteuid());
	snprintf(gid_map, sizeof(gid_map), "0 %u 1", getegid());
	if (geteuid() == 0 ? unshare(CLONE_NEWNS) < 0
			   : unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
				     !text_write("/proc/self/setgroups", "deny") ||
				     !text_write("/proc/self/uid_map", uid_map) ||
				     !text_write("/proc/self/gid_map", gid_map))
		return false;
	return mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) == 0;
}

static int setup_small(void **state)
{
	char options[32];

	(void)state;
	dir_make(temporary());
	test.options.reserve_bytes = MiB;
	test.options.wal_limit_bytes = MiB;
	snprintf(options, sizeof(options), "size=%u", DISK_BYTES);
	if (!permitted || mount("tmpfs", test.dir, "tmpfs", 0, options) < 0)
		return 0;
	if (store_start())
		return -1;
	make_own();
	return 0;
}

static int teardown_small(void **state)
{
	store_stop();
	umount2(test.dir, MNT_DETACH);
	return teardown(state);
}

static void disk_require(void)
{
	if (!test.store)
		skip();
}

/* A file of somebody else takes all the room but this much. */
static void fill_disk(uint64_t left)
{
	char path[256], block[4096] = { 1 };
	struct statvfs disk;
	int fd;

	snprintf(path, sizeof(path), "%s/filler", test.dir);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	assert_true(fd >= 0);
	while (statvfs(test.dir, &disk) == 0 && disk.f_bavail * disk.f_frsize > left)
		assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
	close(fd);
}

static void empty_disk(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/filler", test.dir);
	assert_int_equal(unlink(path), 0);
}

static int push_line(unsigned number)
{
	return push_messages(test.partition, long_line(number, 'x', LINE_BYTES));
}

/* Lines first..end-1 are there, whole and in order. */
static void lines_expect(unsigned first, unsigned end)
{
	const char *text = log_text(test.partition);

	assert_int_equal(strlen(text), (size_t)LINE_BYTES * (end - first));
	for (unsigned i = first; i < end; i++, text += LINE_BYTES) {
		assert_int_equal(atoi(text), i);
		assert_int_equal(text[LINE_BYTES - 1], '\n');
	}
}

/* Until there is no room for the smallest push either; returns the number of lines. */
static unsigned fill_by_pushes(struct item *small)
{
	unsigned count = 0;
	int error, failures = 0;

	while (!(error = push_line(count)))
		count++;
	assert_int_equal(error, -ENOSPC);
	assert_true(count > 20);
	while (failures < 3) {
		error = push(small, "a\n");
		assert_true(!error || error == -ENOSPC);
		failures = error ? failures + 1 : 0;
	}
	assert_non_null(strstr(refused_why, "full"));
	return count;
}

static void test_full(void **state)
{
	struct answer *drops;
	struct item *group;
	unsigned count;

	(void)state;
	disk_require();
	count = fill_by_pushes(made(test.queue, ITEM_PARTITION, "small"));
	assert_int_equal(push_default(test.queue, "a\n"), -ENOSPC);
	assert_true(missing(test.queue, ITEM_PARTITION, "default"));
	lines_expect(0, count);
	/* reading, acks, seeks, making and dropping go on */
	for (unsigned i = 0; i < count; i++) {
		struct reader *reader = opened(test.group, test.partition);
		assert_int_equal(store_read(reader, text_room(MiB), MiB), LINE_BYTES);
		assert_int_equal(atoi(test.text), i);
		closed(reader);
		if (i % 16 == 0)
			wait_for(sql("SELECT max(committed) FROM cursors") == i);
	}
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET, 3), 0);
	group = made(test.queue, ITEM_GROUP, "h");
	assert_int_equal(seek_to(group, NULL, SEEK_TO_END, 0), 0);
	assert_int_equal(drop(group), 0);
	drops = calloc(count + 1, sizeof(*drops));
	assert_non_null(drops);
	hold_begin();
	for (unsigned i = 0; i < count / 2; i++)
		store_segment_drop(test.partition, i, answer_done,
				   answer_start(&drops[i]));
	hold_end();
	for (unsigned i = 0; i < count / 2; i++)
		assert_int_equal(answer_wait(&drops[i]), 0);
	free(drops);
	/* the room that this made comes back to pushes */
	wait_for(push_line(count) == 0);
	assert_int_equal(push_line(count + 1), 0);
	lines_expect(count / 2, count + 2);
	assert_int_equal(push_default(test.queue, "a\n"), 0);
	reopen();
	lines_expect(count / 2, count + 2);
	assert_int_equal(committed(test.group, test.partition), count / 2 - 1);
	assert_int_equal(push_line(count + 2), 0);
}

/* Pushes and a seek that meet the full disk in one transaction. */
static void test_full_together(void **state)
{
	struct answer pushed[2], sought;
	struct messages line = long_line(0, 'x', (size_t)3 * MiB);
	struct seek seek = { .kind = SEEK_TO_END };

	(void)state;
	disk_require();
	assert_int_equal(push(test.partition, "a\n"), 0);
	fill_disk(MiB / 4);
	hold_begin();
	store_push(test.queue, test.partition, &line, answer_done,
		   answer_start(&pushed[0]));
	store_seek(test.group, NULL, &seek, answer_done, answer_start(&sought));
	push_start(test.queue, NULL, "b\n", &pushed[1]);
	hold_end();
	assert_int_equal(answer_wait(&pushed[0]), -ENOSPC);
	assert_int_equal(answer_wait(&pushed[1]), -ENOSPC);
	assert_int_equal(answer_wait(&sought), 0);
	assert_int_equal(committed(test.group, test.partition), 0);
	assert_true(missing(test.queue, ITEM_PARTITION, "default"));
	assert_string_equal(log_text(test.partition), "a\n");
	empty_disk();
	assert_int_equal(push_default(test.queue, "c\n"), 0);
	assert_int_equal(push(test.partition, "d\n"), 0);
	reopen();
	assert_int_equal(committed(test.group, test.partition), 0);
	assert_string_equal(log_text(test.partition), "a\nd\n");
}

static void test_full_at_start(void **state)
{
	char reserve[256];

	(void)state;
	disk_require();
	assert_int_equal(push(test.partition, "a\n"), 0);
	store_stop();
	snprintf(reserve, sizeof(reserve), "%s-reserve", test.path);
	assert_int_equal(unlink(reserve), 0);
	fill_disk(MiB / 2);
	assert_int_equal(store_start(), 0);
	find_own();
	assert_int_equal(push(test.partition, "b\n"), -ENOSPC);
	assert_pop(opened(test.group, NULL), "a\n");
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	empty_disk();
	assert_int_equal(push(test.partition, "c\n"), 0);
	assert_string_equal(log_text(test.partition), "a\nc\n");
}

static const struct {
	enum item_kind kind;
	const char *name;
} items[] = {
	{ ITEM_QUEUE, "x" },
	{ ITEM_GROUP, "x" },
	{ ITEM_PARTITION, "x" },
	{ ITEM_PARTITION, "default" },
};

static struct item *parent_of(size_t i)
{
	return items[i].kind == ITEM_QUEUE ? NULL : test.queue;
}

/* Without a reserve everything is refused. */
static void test_no_reserve(void **state)
{
	int64_t standing;

	(void)state;
	disk_require();
	assert_int_equal(push(test.partition, "a\n"), 0);
	test.options.reserve_bytes = 0;
	reopen();
	fill_disk(65536);
	/* the last room goes to the smallest commit there is */
	while (seek_to(test.group, test.partition, SEEK_TO_OFFSET, 0) == 0 &&
	       seek_to(test.group, test.partition, SEEK_TO_OFFSET, -1) == 0)
		;
	standing = committed(test.group, test.partition);
	for (size_t i = 0; i < COUNT(items); i++) {
		assert_int_equal(make(parent_of(i), items[i].kind, items[i].name),
				 -ENOSPC);
		assert_true(missing(parent_of(i), items[i].kind, items[i].name));
		assert_int_equal(push_default(test.queue, "b\n"), -ENOSPC);
		assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET,
					 -1 - standing),
				 -ENOSPC);
		assert_int_equal(drop(test.group), -ENOSPC);
		assert_int_equal(segment_drop(test.partition, 0), -ENOSPC);
	}
	assert_int_equal(committed(test.group, test.partition), standing);
	assert_string_equal(log_text(test.partition), "a\n");
	empty_disk();
	assert_int_equal(push_default(test.queue, "c\n"), 0);
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), 0);
	assert_int_equal(segment_drop(test.partition, 0), 0);
	reopen();
	assert_string_equal(log_text(found(test.queue, ITEM_PARTITION, "default")),
			    "c\n");
	assert_int_equal(committed(test.group, test.partition), 0);
	assert_int_equal(children(NULL, ITEM_QUEUE), 1);
	assert_int_equal(children(test.queue, ITEM_GROUP), 1);
	assert_int_equal(children(test.queue, ITEM_PARTITION), 2);
}

/* The first commit that meets the full disk is tried twice. */
static void test_made_later(void **state)
{
	(void)state;
	disk_require();
	test.options.reserve_bytes = 0;
	for (size_t i = 0; i < COUNT(items); i++) {
		reopen();
		fill_disk(0);
		for (int round = 0; round < 2; round++) {
			assert_int_equal(make(parent_of(i), items[i].kind, items[i].name),
					 -ENOSPC);
			assert_true(missing(parent_of(i), items[i].kind, items[i].name));
		}
		empty_disk();
		if (strcmp(items[i].name, "default") == 0)
			assert_int_equal(push_default(test.queue, "a\n"), 0);
		else
			made(parent_of(i), items[i].kind, items[i].name);
	}
	assert_int_equal(children(test.queue, ITEM_PARTITION), 3);
	assert_int_equal(push(found(test.queue, ITEM_PARTITION, "x"), "b\n"), 0);
	assert_string_equal(drain(opened(found(test.queue, ITEM_GROUP, "x"), NULL)),
			    "a\nb\n");
}

#define SMALL(text, function)                                                       \
	{                                                                           \
		.name = (text), .test_func = (function), .setup_func = setup_small, \
		.teardown_func = teardown_small                                     \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SMALL("a full disk refuses pushes; reading, acks, seeks and rm go on, "
		      "and "
		      "rm lets pushes go on",
		      test_full),
		SMALL("a commit that meets the full disk is repeated without its pushes",
		      test_full_together),
		SMALL("a store starts without room for its reserve, and then takes no "
		      "push",
		      test_full_at_start),
		SMALL("without a reserve all is refused and nothing has changed",
		      test_no_reserve),
		SMALL("what could not be made for want of room can be made later",
		      test_made_later),
	};

	permitted = namespace_enter();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("full", tests, NULL, NULL);
}
