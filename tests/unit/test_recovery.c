/* SPDX-License-Identifier: MIT */
/*
 * test_recovery.c - what a killed process leaves behind, whose store it is, and what is
 * not a store (section 13).
 *
 * Children work on the store and say through a pipe what was answered; the parent kills
 * them at some point of it, and looks. The parent has no thread while it forks.
 */
#include "store_test.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- children ---------------------------------------------------------------------- */

enum { PUSHERS = 3, SEEK_MESSAGES = 100 };
enum { PUSHED, SOUGHT = PUSHED + PUSHERS, POPPED, MADE, WHATS };

/* `count` of these things were answered by now; pusher i counts under PUSHED + i. */
struct report {
	int64_t what; /* all of it is written */
	int64_t count;
};

static int report_fd;

static void say(int what, int64_t count)
{
	struct report report = { what, count };

	if (write(report_fd, &report, sizeof(report)) != sizeof(report))
		_exit(1);
}

/* Starts a child that runs this with the end of a pipe in report_fd. */
static pid_t child_start(void (*run)(void), int *fd)
{
	int ends[2];
	pid_t pid;

	assert_null(test.store);
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		report_fd = ends[1];
		run();
		_exit(0);
	}
	close(ends[1]);
	*fd = ends[0];
	return pid;
}

static void child_kill(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}

/* ---- everything acknowledged is there ---------------------------------------------- */

/* How far each thing had come when the child began. */
static struct {
	int64_t pushed[PUSHERS], sought, made;
} begun;

static struct item *child_find(struct item *parent, enum item_kind kind, const char *name)
{
	struct item *item;

	if (store_find(test.store, parent, kind, name, &item))
		_exit(2);
	return item;
}

/* Pushers 0 and 1 share p, the third one's go to default; 1 to 3 lines a push. */
static int child_push(int who)
{
	struct item *partition = who < 2 ? test.partition : NULL;

	for (int64_t next = begun.pushed[who];;) {
		char text[128] = "";
		for (int64_t end = next + 1 + next % 3; next < end; next++)
			snprintf(text + strlen(text), sizeof(text) - strlen(text),
				 "%d %" PRId64 "\n", who, next);
		if (push(partition, text))
			_exit(3);
		say(PUSHED + who, next);
	}
}

static int child_pop(void)
{
	struct item *group = child_find(test.queue, ITEM_GROUP, "h");
	struct reader *reader;
	char buffer[64];

	if (store_reader_open(group, test.partition, 0, &test_who, &reader))
		_exit(4);
	for (int64_t count = 0;;) {
		ssize_t got = store_read(reader, buffer, sizeof(buffer));
		if (got < 0)
			_exit(5);
		if (got > 0)
			say(POPPED, ++count);
		else
			sched_yield();
	}
}

/* Seeks g in s to one offset after the other, and makes a group now and then. */
static int child_seek(void)
{
	struct item *partition = child_find(test.queue, ITEM_PARTITION, "s");
	int64_t made = begun.made;
	char name[32];

	for (int64_t next = begun.sought;; next++) {
		if (seek_to(test.group, partition, SEEK_TO_OFFSET, next % SEEK_MESSAGES))
			_exit(6);
		say(SOUGHT, next + 1);
		if (next % 16)
			continue;
		snprintf(name, sizeof(name), "%" PRId64, made);
		if (make(test.queue, ITEM_GROUP, name))
			_exit(7);
		say(MADE, ++made);
	}
}

static int child_thread(int index)
{
	return index < PUSHERS	  ? child_push(index)
	       : index == PUSHERS ? child_pop()
				  : child_seek();
}

static void child_work(void)
{
	if (store_start())
		_exit(8);
	test.queue = child_find(NULL, ITEM_QUEUE, "q");
	test.partition = child_find(test.queue, ITEM_PARTITION, "p");
	test.group = child_find(test.queue, ITEM_GROUP, "g");
	in_threads(child_thread, PUSHERS + 2);
}

/* Each pusher's lines in this log have to be 0, 1, 2...; sets how many there are. */
static void count_lines(const char *line, int64_t counts[PUSHERS])
{
	int64_t number;
	int who, length;

	for (; *line; line += length + 1) {
		assert_int_equal(sscanf(line, "%d %" SCNd64 "%n", &who, &number, &length),
				 2);
		assert_in_range(who, 0, PUSHERS - 1);
		if (number != counts[who])
			fail_msg("pusher %d: %" PRId64 " comes after %" PRId64, who,
				 number, counts[who] - 1);
		counts[who]++;
	}
}

static void acknowledged_expect(const int64_t said[WHATS], int64_t popped_before)
{
	int64_t counts[PUSHERS] = { 0 }, place;
	struct item *item;
	char name[32];

	count_lines(log_text(test.partition), counts);
	if (store_find(test.store, test.queue, ITEM_PARTITION, "default", &item) == 0)
		count_lines(log_text(kept(item)), counts);
	for (int who = 0; who < PUSHERS; who++) {
		assert_true(counts[who] >= said[PUSHED + who]);
		begun.pushed[who] = counts[who];
	}
	/* the last seek may have been committed and not answered */
	place = committed(test.group, found(test.queue, ITEM_PARTITION, "s"));
	begun.sought = said[SOUGHT];
	if (place == begun.sought % SEEK_MESSAGES)
		begun.sought++;
	assert_int_equal(place, (begun.sought - 1) % SEEK_MESSAGES);
	/* what was popped may come again; more than was returned is never skipped */
	place = committed(found(test.queue, ITEM_GROUP, "h"), test.partition);
	assert_in_range(place + 1, popped_before, popped_before + said[POPPED] + 1);
	for (begun.made = 0; begun.made < said[MADE]; begun.made++) {
		snprintf(name, sizeof(name), "%" PRId64, begun.made);
		assert_false(missing(test.queue, ITEM_GROUP, name));
	}
	snprintf(name, sizeof(name), "%" PRId64, begun.made);
	begun.made += !missing(test.queue, ITEM_GROUP, name);
}

static void test_kill(void **state)
{
	unsigned seed = 1;

	(void)state;
	memset(&begun, 0, sizeof(begun));
	made(test.queue, ITEM_GROUP, "h");
	for (int i = 0; i < SEEK_MESSAGES / 10; i++) {
		struct item *s = i ? test.items[test.item_count - 1]
				   : made(test.queue, ITEM_PARTITION, "s");
		assert_int_equal(push(s, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"), 0);
	}
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	for (int round = 0; round < 8; round++) {
		int64_t said[WHATS] = { [SOUGHT] = begun.sought, [MADE] = begun.made };
		int64_t popped =
			committed(found(test.queue, ITEM_GROUP, "h"), test.partition) + 1;
		int reports = rand_r(&seed) % 800, fd;
		struct report report;
		pid_t pid;
		store_stop();
		test.options.disk = round % 2;
		test.options.wal_limit_bytes = MiB;
		pid = child_start(child_work, &fd);
		for (int i = 0;
		     read(fd, &report, sizeof(report)) == (ssize_t)sizeof(report); i++) {
			assert_in_range(report.what, 0, WHATS - 1);
			said[report.what] = report.count;
			if (i == reports)
				child_kill(pid);
		}
		close(fd);
		assert_int_equal(waitpid(pid, NULL, WNOHANG), -1); /* it was killed */
		reopen();
		acknowledged_expect(said, popped);
	}
}

/* ---- a store that was being made --------------------------------------------------- */

static void child_make(void)
{
	say(0, 0);
	if (store_start() == 0)
		store_stop();
}

static void test_kill_while_making(void **state)
{
	(void)state;
	for (int round = 0; round < 12; round++) {
		struct report report;
		pid_t pid;
		int fd;
		store_stop();
		dir_remove();
		dir_make(temporary());
		pid = child_start(child_make, &fd);
		assert_int_equal(read(fd, &report, sizeof(report)), sizeof(report));
		for (int i = 0; i < round * round * 4; i++)
			sched_yield();
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		close(fd);
		assert_int_equal(store_start(), 0);
		make_own();
	}
}

/* ---- the lock ---------------------------------------------------------------------- */

static void child_hold(void)
{
	if (store_start() == 0)
		say(getpid(), 0);
	for (;;)
		pause();
}

static void test_lock(void **state)
{
	struct report report;
	char name[32];
	pid_t pid;
	int fd;

	(void)state;
	store_stop();
	pid = child_start(child_hold, &fd);
	assert_int_equal(read(fd, &report, sizeof(report)), sizeof(report));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(store_start(), -EBUSY);
		snprintf(name, sizeof(name), "process %d", (int)pid);
		assert_non_null(strstr(refused_why, name));
	}
	child_kill(pid);
	close(fd);
	assert_int_equal(store_start(), 0);
	find_own();
	assert_int_equal(push(test.partition, "a\n"), 0);
}

/* ---- what is not a store ----------------------------------------------------------- */

/* All that is in the directory and what it holds, as a text to compare. */
static void directory_text(char *text, size_t size)
{
	struct dirent **entries;
	int count = scandir(test.dir, &entries, NULL, alphasort);
	size_t used = 0;

	assert_true(count >= 0);
	for (int i = 0; i < count; i++) {
		char path[512];
		struct stat st;
		uint64_t hash = 14695981039346656037u;
		int byte;
		FILE *file;
		snprintf(path, sizeof(path), "%s/%s", test.dir, entries[i]->d_name);
		assert_int_equal(lstat(path, &st), 0);
		file = S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
		while (file && (byte = getc(file)) != EOF)
			hash = (hash ^ (unsigned)byte) * 1099511628211u;
		if (file)
			fclose(file);
		if (entries[i]->d_name[0] != '.')
			used += (size_t)snprintf(
				text + used, size - used,
				"%s %o %lld %lld.%ld %" PRIx64 "\n", entries[i]->d_name,
				st.st_mode, (long long)st.st_size,
				(long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, hash);
		assert_true(used < size);
		free(entries[i]);
	}
	free(entries);
}

/* error 0: any will do. */
static void refused_expect(int error, const char *word)
{
	char before[2048], after[2048];
	int got;

	directory_text(before, sizeof(before));
	got = store_start();
	assert_true(error ? got == error : got < 0);
	assert_non_null(strstr(refused_why, word));
	directory_text(after, sizeof(after));
	assert_string_equal(before, after);
}

static void file_write(const char *path, const void *data, size_t size, long at)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, data, size, at), size);
	close(fd);
}

static void fresh_dir(void)
{
	store_stop();
	dir_remove();
	dir_make(temporary());
}

static void test_foreign(void **state)
{
	static const struct {
		const char *bytes;
		size_t size;
	} files[] = {
		{ "\n", 1 },
		{ "SQLite format 3", 16 },
		{ "some notes of mine\n", 19 },
		{ "0123456789012345678901234567890123456789012345678901234567890123456789"
		  "012345678901234567890123456789012345678901234567890123456789012345678"
		  "9",
		  140 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(files); i++) {
		fresh_dir();
		file_write(test.path, files[i].bytes, files[i].size, 0);
		refused_expect(-EMEDIUMTYPE, "not a queenfs store");
	}
	fresh_dir();
	sql("CREATE TABLE queues(id INTEGER PRIMARY KEY, name TEXT)");
	refused_expect(-EMEDIUMTYPE, "not a queenfs store");
	/* in WAL mode, with a WAL beside it that was not copied back */
	fresh_dir();
	sql("PRAGMA journal_mode = WAL; CREATE TABLE notes(text)");
	refused_expect(-EMEDIUMTYPE, "not a queenfs store");
}

static void test_not_a_file(void **state)
{
	(void)state;
	fresh_dir();
	assert_int_equal(mkdir(test.path, 0700), 0);
	refused_expect(0, "");
	fresh_dir();
	assert_int_equal(mkfifo(test.path, 0600), 0);
	refused_expect(-EMEDIUMTYPE, "not a queenfs store");
}

static void test_newer(void **state)
{
	static const unsigned char newer[] = { 0, 0, 0, 100 };

	(void)state;
	assert_int_equal(push(test.partition, "a\n"), 0);
	store_stop();
	file_write(test.path, newer, sizeof(newer), 60);
	refused_expect(-EMEDIUMTYPE, "newer");
}

/* What formats 2 and 3 have added is taken away again. */
static const char to_format_1[] =
	"ALTER TABLE groups DROP COLUMN started;"
	"ALTER TABLE groups ADD COLUMN start_us INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE cursors DROP COLUMN sought; ALTER TABLE letters DROP COLUMN meta;"
	"ALTER TABLE segments DROP COLUMN meta; ALTER TABLE bodies DROP COLUMN meta;"
	"ALTER TABLE segments DROP COLUMN number;"
	"DROP TABLE snapshots; DROP TABLE seen; PRAGMA user_version = 1;"
	"PRAGMA wal_checkpoint(TRUNCATE)";

static void test_older(void **state)
{
	sqlite3 *db;
	struct reader *reader;

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_int_equal(push_messages(test.partition, long_line(1, 'y', 5000)), 0);
	reader = opened(test.group, test.partition);
	assert_pop(reader, "a\n");
	closed(reader);
	store_stop();
	assert_int_equal(sqlite3_open(test.path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, to_format_1, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(store_start(), 0);
		find_own();
		assert_int_equal(sql("PRAGMA user_version"), 3);
		assert_int_equal(committed(test.group, test.partition), round);
		/* where it started was decided, for it has read */
		assert_int_equal(set(test.group, SETTING_SUBSCRIPTION, "new"), -EBUSY);
		reader = opened(test.group, test.partition);
		if (round == 0)
			assert_pop(reader, "b\n");
		else
			assert_int_equal(strlen(drain(reader)), 5000 + 2);
		closed(reader);
		assert_int_equal(push(test.partition, "c\n"), 0);
		assert_int_equal(info_of(test.partition).segments, 2 + round);
		store_stop();
	}
	assert_int_equal(store_start(), 0);
	find_own();
}

static void test_wal_alone(void **state)
{
	char wal[256], copy[256];
	struct stat st;

	(void)state;
	snprintf(wal, sizeof(wal), "%s-wal", test.path);
	snprintf(copy, sizeof(copy), "%s-kept", test.path);
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(link(wal, copy), 0);
	assert_int_equal(unlink(wal), 0);
	store_stop();
	/* a WAL with its last words in it, and no store, or an empty one */
	assert_int_equal(unlink(test.path), 0);
	file_write(copy, "WAL", 3, 0);
	assert_int_equal(rename(copy, wal), 0);
	refused_expect(-EEXIST, "-wal");
	assert_int_equal(stat(test.path, &st), -1);
	file_write(test.path, "", 0, 0);
	refused_expect(-EEXIST, "-wal");
	/* nobody needs an empty one */
	assert_int_equal(truncate(wal, 0), 0);
	assert_int_equal(store_start(), 0);
	make_own();
}

static void test_empty_file(void **state)
{
	(void)state;
	fresh_dir();
	file_write(test.path, "", 0, 0);
	assert_int_equal(store_start(), 0);
	make_own();
	reopen();
}

static void test_no_directory(void **state)
{
	(void)state;
	store_stop();
	dir_remove();
	assert_int_equal(store_start(), -ENOENT);
	assert_int_not_equal(refused_why[0], '\0');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("what was answered before a kill -9 is there, in order", test_kill),
		TEST("a store whose making was killed is made", test_kill_while_making),
		TEST("a store in use is EBUSY and names the process, until that ends",
		     test_lock),
		TEST("a file of somebody else is refused and left untouched",
		     test_foreign),
		TEST("what is not a file is refused and left untouched", test_not_a_file),
		TEST("a store of a newer version is refused and left untouched",
		     test_newer),
		TEST("a store of format 1 is brought to format 2, with all it has",
		     test_older),
		TEST("a WAL that lost its store is refused and left untouched",
		     test_wal_alone),
		TEST("an empty file becomes a store", test_empty_file),
		TEST("without its directory there is no store", test_no_directory),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
}
