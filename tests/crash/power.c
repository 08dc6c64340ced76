/* SPDX-License-Identifier: MIT */
/*
 * power.c - power cuts and I/O errors under a store.
 *
 *   power cuts disk|os COUNT      cuts the power at that many moments of a load
 *   power errors disk|os EVERY    fails every EVERY-th write and sync of a load, and of a
 *                                 start after a crash: by EIO, ENOSPC, or half written,
 *                                 once, some times, or from then on
 *   power syncs disk|os ROUNDS    fails a sync of the store's file or of its WAL where most
 *                                 depends on it, then cuts the power
 *
 * 1. The load is one step after the other, and after each the store is asked for all that it
 *    shows. So what a cut may leave is one of few states: with durability disk the one after
 *    the last step that was answered, or the one that was under way, whole; with os also an
 *    earlier one, but none before the last store_sync(), and there a log may end later than
 *    all else.
 * 2. What is left by a cut is opened, pushed to, left as by kill -9 and opened again. One of
 *    some cuts is what the next load goes on with.
 * 3. A step that fails says EIO or ENOSPC and has changed nothing, nor after kill -9. Once
 *    the disk is well again everything works, and a new start shows what was shown before.
 * 4. Each fourth load begins with a store of format 1, so that cuts meet its conversion.
 * 5. In each third load one sync fails, and what it was for never gets to the disk.
 * 6. Now and then somebody from outside reads, so that the WAL is copied in part.
 *
 * TORTURE_SECONDS ends it earlier, SEED repeats it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "disk.h"
#include "load.h"

#define LOAD_STEPS 60
#define CUTS_EACH 50 /* of one load */
#define CHILD_SECONDS 60
#define OUTSIDER_EACH 15 /* steps somebody looks at the store */
#define OUTSIDER_STEPS 6 /* for so many */

static struct {
	bool disk, bad;
	char live[128], image[128], directory[100];
	uint64_t seed;
	time_t until;
	unsigned wrong;
} run;

static uint64_t random_next(void)
{
	run.seed ^= run.seed << 13;
	run.seed ^= run.seed >> 7;
	run.seed ^= run.seed << 17;
	return run.seed / 16;
}

static void *checked(void *pointer)
{
	if (!pointer)
		abort();
	return pointer;
}

static bool enough(void)
{
	return run.wrong > 0 || (run.until && time(NULL) >= run.until);
}

/* ---- children: a store is opened in one of its own, so that it can be left as by a crash -- */

/* Runs function in a child; what it returns, NULL when it crashed. */
static char *in_child(char *(*function)(const void *arg), const void *arg)
{
	int ends[2], status;
	size_t size = 0, room = 4096;
	char *text = checked(malloc(room + 1));
	ssize_t got;
	pid_t pid;

	fflush(stdout);
	if (pipe(ends) < 0 || (pid = fork()) < 0)
		abort();
	if (pid == 0) {
		alarm(CHILD_SECONDS);
		char *said = function(arg);
		size_t left = strlen(said);
		for (const char *at = said; left > 0; at += got, left -= (size_t)got)
			if ((got = write(ends[1], at, left)) <= 0)
				_exit(2);
		_exit(0);
	}
	close(ends[1]);
	while ((got = read(ends[0], text + size, room - size)) > 0) {
		size += (size_t)got;
		if (size == room)
			text = checked(realloc(text, (room *= 2) + 1));
	}
	close(ends[0]);
	text[size] = '\0';
	if (waitpid(pid, &status, 0) == pid && status == 0)
		return text;
	free(text);
	return NULL;
}

static char *said(const char *what, int error)
{
	char *text = checked(malloc(200));

	snprintf(text, 200, "WRONG: %s: %s\n", what, strerror(-error));
	return text;
}

/* What the store in the image shows. It is left as by kill -9. */
static char *show(const void *arg)
{
	struct load load = { .seed = 1 };
	int error = load_open(&load, run.image, run.disk);

	(void)arg;
	return error ? said("open", error) : load_state(&load);
}

/* The same after pushes. */
static char *push_and_show(const void *arg)
{
	struct load load = { .seed = 1, .number = 50000000 };
	int error = load_open(&load, run.image, run.disk);

	(void)arg;
	if (!error)
		error = load_push_all(&load);
	return error ? said("open or push", error) : load_state(&load);
}

/* The same once more; the store is closed and what SQLite says of it is added. */
static char *show_and_check(const void *arg)
{
	struct load load = { .seed = 1 };
	int error = load_open(&load, run.image, run.disk);
	sqlite3_stmt *stmt;
	char path[200], *state;
	const char *answer;
	sqlite3 *db;

	(void)arg;
	if (error)
		return said("open", error);
	state = load_state(&load);
	load_close(&load);
	snprintf(path, sizeof(path), "%s/queen.db", run.image);
	if (sqlite3_open(path, &db) ||
	    sqlite3_prepare_v2(db, "PRAGMA quick_check", -1, &stmt, NULL) ||
	    sqlite3_step(stmt) != SQLITE_ROW)
		return said("quick_check", -EIO);
	answer = (const char *)sqlite3_column_text(stmt, 0);
	if (!answer)
		return said("quick_check", -ENOMEM);
	if (strcmp(answer, "ok") == 0)
		return state;
	free(state);
	state = checked(malloc(1000));
	snprintf(state, 1000, "WRONG: quick_check: %s\n", answer);
	return state;
}

/* ---- telling ----------------------------------------------------------------------------- */

static void wrong(const char *what, const char *got, const char *wanted)
{
	run.wrong++;
	printf("WRONG: %s\n", what);
	if (got)
		printf("--- got:\n%s", got);
	if (wanted)
		printf("--- wanted:\n%s", wanted);
}

static bool same(const char *what, const char *got, const char *wanted)
{
	if (got && wanted && strcmp(got, wanted) == 0 && !strstr(got, "WRONG"))
		return true;
	wrong(what, got ? got : "(it crashed)\n", wanted);
	return false;
}

static void directory_make(char path[128], const char *name)
{
	snprintf(path, 128, "%s/%s", run.directory, name);
	if (mkdir(path, 0700) < 0)
		abort();
}

static void shell(const char *format, const char *a, const char *b)
{
	char command[600];

	snprintf(command, sizeof(command), format, a, b);
	if (system(command) != 0) /* NOLINT(cert-env33-c): names of our own */
		abort();
}

/* ---- cuts -------------------------------------------------------------------------------- */

struct moment {
	char *state; /* after the step; NULL: nothing is promised */
	size_t begin, end;
	bool synced;
	bool refused; /* it failed in the end; a cut before that may leave it done */
};

static struct moment moments[LOAD_STEPS + 2];
static size_t moment_count;

static void moment_add(struct load *load, size_t begin)
{
	moments[moment_count++] = (struct moment){ .state = load_state(load),
						   .begin = begin,
						   .end = disk_steps(),
						   .synced = load->syncs || run.disk,
						   .refused = load->failures > 0 };
}

/* Somebody from outside, say a backup, looks at the store: what was committed since is not
 * copied out of the WAL. */
static sqlite3 *outsider_begin(void)
{
	sqlite3 *db;
	char path[200];

	snprintf(path, sizeof(path), "%s/queen.db", run.live);
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) ||
	    sqlite3_exec(db, "BEGIN; SELECT count(*) FROM meta", NULL, NULL, NULL))
		wrong("an outsider cannot look", sqlite3_errmsg(db), NULL);
	return db;
}

/* A load goes on from what is in the live directory, which shows `state`. */
static void record(char *state, uint64_t generation)
{
	struct load load = { .seed = random_next() | 1, .number = generation * 100000 };
	sqlite3 *outsider = NULL;
	size_t begin;
	int error;

	for (size_t i = 0; i < moment_count; i++)
		free(moments[i].state);
	moment_count = 0;
	disk_record(run.live);
	moments[moment_count++] =
		(struct moment){ .state = state, .end = disk_steps(), .synced = true };
	begin = disk_steps();
	error = load_open(&load, run.live, run.disk);
	if (error) {
		wrong("a load cannot be opened", strerror(-error), NULL);
		return;
	}
	load.syncs = false;
	load.failures = 0;
	moment_add(&load, begin);
	if (run.bad)
		disk_fail(run.live, FAULT_SYNC, 1 + random_next() % LOAD_STEPS, 1);
	for (unsigned i = 0; i < LOAD_STEPS; i++) {
		if (i % OUTSIDER_EACH == 0) {
			sqlite3_close(outsider);
			outsider = outsider_begin();
		} else if (i % OUTSIDER_EACH == OUTSIDER_STEPS) {
			sqlite3_close(outsider);
			outsider = NULL;
		}
		begin = disk_steps();
		if (!load_step(&load) || (load.failures && !run.bad))
			wrong("a step failed", strerror(-load.error), NULL);
		moment_add(&load, begin);
	}
	sqlite3_close(outsider);
	disk_fail(run.live, FAULT_EIO, 0, 0);
	load_close(&load);
	disk_record(NULL);
}

/* How much of two texts is the same from the beginning on. */
static size_t alike(const char *a, const char *b)
{
	size_t i = 0;

	while (a[i] && a[i] == b[i])
		i++;
	return i;
}

/* The next line, and is it of a log? */
static const char *line_next(const char *at)
{
	const char *end = strchr(at, '\n');

	return end ? end + 1 : at + strlen(at);
}

static bool of_log(const char *at)
{
	return strncmp(at, "log ", 4) == 0;
}

static const char *not_of_log(const char *at)
{
	while (of_log(at))
		at = line_next(at);
	return at;
}

static bool line_of(const char *line, const char *text)
{
	size_t size = (size_t)(line_next(line) - line);

	for (; *text; text = line_next(text))
		if (strncmp(line, text, size) == 0)
			return true;
	return false;
}

/* Durability os: is it the state after step i, but for messages of later ones behind? That
 * offsets leave nothing out was seen to when the state was written down. */
static bool mixed(const char *state, size_t i, size_t last)
{
	const char *a = not_of_log(state), *b = not_of_log(moments[i].state);

	while (*a && *b && strncmp(a, b, (size_t)(line_next(a) - a)) == 0) {
		a = not_of_log(line_next(a));
		b = not_of_log(line_next(b));
	}
	if (*a || *b)
		return false;
	for (b = moments[i].state; *b; b = line_next(b))
		if (of_log(b) && !line_of(b, state))
			return false;
	for (a = state; *a; a = line_next(a)) {
		size_t later = i;
		while (of_log(a) && later <= last && !line_of(a, moments[later].state))
			later++;
		if (later > last)
			return false;
	}
	return true;
}

/* Is the state one that a cut at this step may leave? */
static bool allowed(const char *state, size_t step)
{
	size_t done = 0, first = 0, last, nearest;

	for (size_t i = 0; i < moment_count; i++)
		if (moments[i].end <= step) {
			done = i;
			first = moments[i].synced ? i : first;
		}
	last = done + 1 < moment_count && moments[done + 1].begin < step ? done + 1
									 : done;
	if (last > done && moments[last].refused)
		return true;
	for (size_t i = first; i <= last; i++)
		if (!moments[i].state || strcmp(moments[i].state, state) == 0 ||
		    (!run.disk && mixed(state, i, last)))
			return true;
	for (size_t i = nearest = first; i <= last; i++)
		if (alike(moments[i].state, state) > alike(moments[nearest].state, state))
			nearest = i;
	printf("a cut behind step %zu: what steps %zu to %zu of the load show may be "
	       "left, "
	       "nearest is %zu\n",
	       step, first, last, nearest);
	wrong("none of them is", state, moments[nearest].state);
	if (last < moment_count && getenv("VERBOSE"))
		for (size_t i = first; i <= last; i++)
			printf("--- %zu (steps %zu to %zu):\n%s", i, moments[i].begin,
			       moments[i].end, moments[i].state);
	return false;
}

static int step_compare(const void *a, const void *b)
{
	size_t left = *(const size_t *)a, right = *(const size_t *)b;

	return left < right ? -1 : left > right;
}

/* Cuts the power behind a step; returns what is left. */
static char *cut(size_t step, enum luck luck, uint64_t seed, bool whole)
{
	char *state, *pushed, *again;

	disk_image(step, luck, seed, run.image);
	state = in_child(show, NULL);
	if (!state || strstr(state, "WRONG")) {
		wrong("a cut", state ? state : "(it crashed)\n", NULL);
		return state;
	}
	if (!allowed(state, step) || !whole)
		return state;
	pushed = in_child(push_and_show, NULL);
	again = in_child(show_and_check, NULL);
	same("after a cut, pushes and kill -9", again, pushed);
	free(pushed);
	free(again);
	return state;
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

/* The live store becomes one of an older program, which the next load brings up to date;
 * returns what it shows. */
static char *make_older(void)
{
	char path[200];
	sqlite3 *db;

	/* A first start, since the cut may have left no store yet. */
	shell("rm -rf '%s'/* # %s", run.image, "");
	shell("cp '%s'/* '%s'/ 2>/dev/null || :", run.live, run.image);
	free(in_child(show, NULL));
	shell("rm -rf '%s'/* # %s", run.live, "");
	shell("cp '%s'/* '%s'/", run.image, run.live);
	snprintf(path, sizeof(path), "%s/queen.db", run.live);
	if (sqlite3_open(path, &db) || sqlite3_exec(db, to_format_1, NULL, NULL, NULL))
		wrong("a store cannot be made older", sqlite3_errmsg(db), NULL);
	sqlite3_close(db);
	shell("rm -rf '%s'/* # %s", run.image, "");
	shell("cp '%s'/* '%s'/", run.live, run.image);
	return in_child(show, NULL);
}

static unsigned cuts(unsigned count)
{
	unsigned done = 0;
	char *state = NULL;

	for (uint64_t generation = 1; done < count && !enough(); generation++) {
		size_t steps[CUTS_EACH], base;
		unsigned keep = (unsigned)(random_next() % CUTS_EACH);
		char *next = NULL;
		uint64_t began = run.seed;
		run.bad = generation % 3 == 0;
		record(state, generation);
		base = moments[0].end;
		for (unsigned i = 0; i < CUTS_EACH; i++)
			steps[i] = base + random_next() % (disk_steps() - base + 1);
		qsort(steps, CUTS_EACH, sizeof(*steps), step_compare);
		for (unsigned i = 0; i < CUTS_EACH && done < count && !enough(); i++) {
			enum luck luck = (enum luck)(random_next() % LUCK_COUNT);
			uint64_t seed = random_next();
			char *left = cut(steps[i], luck, seed, i % 4 == 0 || i == keep);
			done++;
			if (run.wrong)
				printf("luck %d, load %" PRIu64 " of SEED=%" PRIu64 "\n",
				       luck, generation, began);
			if (i == keep) {
				disk_image(steps[i], luck, seed, run.live);
				next = left;
			} else {
				free(left);
			}
		}
		state = next;
		if (!next)
			break;
		if (generation % 4 == 1 && !run.wrong) {
			free(state);
			state = make_older();
		}
	}
	return done;
}

/* ---- errors ------------------------------------------------------------------------------ */

struct injection {
	enum fault fault;
	uint64_t at, count;
	uint64_t seed;
	enum { CLOSED, KILLED, KILLED_AT_ONCE } end;
};

static char *tell(const char *what, const char *got, const char *wanted)
{
	size_t size = strlen(got) + strlen(wanted) + 300;
	char *text = checked(malloc(size));

	snprintf(text, size, "WRONG: %s\n--- got:\n%s--- wanted:\n%s", what, got, wanted);
	return text;
}

/* A load on a disk that fails, in a fresh store: what it shows in the end, the number of
 * calls and of failures in its first line. */
static char *fail_load(const void *arg)
{
	const struct injection *injection = arg;
	struct load load = { .seed = injection->seed };
	char *before, *after, *text;
	uint64_t calls, failed;
	int error;

	disk_fail(run.image, FAULT_EIO, UINT64_MAX,
		  0); /* it watches from the opening on */
	error = load_open(&load, run.image, run.disk);
	if (error)
		return said("open", error);
	disk_fail(run.image, injection->fault, injection->at, injection->count);
	after = load_state(&load);
	for (unsigned i = 0; i < LOAD_STEPS; i++) {
		before = after;
		if (!load_step(&load))
			return said("a step", load.error);
		after = load_state(&load);
		if (load.failures > 0 && load.failures == load.results &&
		    strcmp(before, after) != 0)
			return tell("a step that failed changed something", after,
				    before);
		if (load.failures > 0 && load.failures == load.results &&
		    injection->end == KILLED_AT_ONCE)
			break;
		free(before);
	}
	calls = disk_calls();
	failed = disk_failed();
	disk_fail(run.image, FAULT_EIO, 0, 0);
	error = injection->end == KILLED_AT_ONCE ? 0 : load_push_all(&load);
	if (error)
		return said("a push on a disk that is well again", error);
	for (unsigned i = 0; i < LOAD_STEPS / 2 && injection->end != KILLED_AT_ONCE; i++)
		if (!load_step(&load) || load.failures)
			return said("a step on a disk that is well again", load.error);
	free(after);
	after = load_state(&load);
	text = checked(malloc(strlen(after) + 100));
	sprintf(text, "%" PRIu64 " %" PRIu64 "\n%s", calls, failed, after);
	if (injection->end == CLOSED)
		load_close(&load);
	return text;
}

/* Starts on a disk that fails; says only what is wrong, and how many calls failed. */
static char *fail_start(const void *arg)
{
	const struct injection *injection = arg;
	struct load load = { .seed = 1 };
	char *text = checked(malloc(100));
	int error;

	disk_fail(run.image, injection->fault, injection->at, injection->count);
	error = load_open(&load, run.image, run.disk);
	sprintf(text, "%" PRIu64 " %" PRIu64 "\n", disk_calls(), disk_failed());
	disk_fail(run.image, FAULT_EIO, 0, 0);
	if (error && error != -EIO && error != -ENOSPC)
		return said("a start on a bad disk", error);
	return text;
}

static const struct {
	enum fault fault;
	uint64_t count;
} kinds[] = {
	{ FAULT_EIO, 1 },    { FAULT_ENOSPC, 1 }, { FAULT_SHORT, 1 },
	{ FAULT_ENOSPC, 9 }, { FAULT_EIO, 5 },	  { FAULT_ENOSPC, UINT64_MAX / 2 },
	{ FAULT_SHORT, 50 }, { FAULT_EIO, 50 },
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* With the injection; how many calls there were. */
static uint64_t error_load(const struct injection *injection, uint64_t *failed)
{
	uint64_t calls = 0;
	char *shown, *state, *again;

	shell("rm -rf '%s'/* # %s", run.image, "");
	shown = in_child(fail_load, injection);
	if (!shown || strstr(shown, "WRONG") ||
	    sscanf(shown, "%" SCNu64 " %" SCNu64, &calls, failed) != 2) {
		wrong("a load on a bad disk", shown ? shown : "(it crashed)\n", NULL);
	} else {
		state = strchr(shown, '\n') + 1;
		again = in_child(show_and_check, NULL);
		same("a start after a load on a bad disk", again, state);
		free(again);
	}
	free(shown);
	return calls;
}

static char *load_and_crash(const void *arg)
{
	const struct injection *injection = arg;
	struct load load = { .seed = injection->seed };
	int error = load_open(&load, run.image, run.disk);

	if (error)
		return said("open", error);
	for (unsigned i = 0; i < LOAD_STEPS / 2; i++)
		load_step(&load);
	for (unsigned i = 0; i < 4; i++) /* something is in the tail */
		load_push_all(&load);
	return load_state(&load);
}

static uint64_t error_start(const struct injection *injection, const char *state,
			    uint64_t *failed)
{
	uint64_t calls = 0;
	char *shown, *again;

	shell("rm -rf '%s'/* # %s", run.image, "");
	shell("cp '%s'/* '%s'/", run.live, run.image);
	shown = in_child(fail_start, injection);
	if (!shown || strstr(shown, "WRONG") ||
	    sscanf(shown, "%" SCNu64 " %" SCNu64, &calls, failed) != 2)
		wrong("a start on a bad disk", shown ? shown : "(it crashed)\n", NULL);
	again = in_child(show_and_check, NULL);
	same("a start after one on a bad disk", again, state);
	free(again);
	free(shown);
	return calls;
}

static void error_told(const struct injection *injection)
{
	if (run.wrong)
		printf("fault %d, %" PRIu64 " times from call %" PRIu64
		       " on, load of seed %" PRIu64 ", %s\n",
		       injection->fault, injection->count, injection->at, injection->seed,
		       injection->end == CLOSED ? "closed" : "killed");
}

static unsigned errors(unsigned every, unsigned *starts)
{
	struct injection injection = { .seed = random_next() | 1, .at = UINT64_MAX };
	unsigned done = 0;
	uint64_t calls = error_load(&injection, &(uint64_t){ 0 }), failed;
	char *state;

	for (uint64_t at = 1; at <= calls && !enough(); at += every)
		for (size_t i = 0; i < KINDS && !enough(); i++) {
			injection =
				(struct injection){ kinds[i].fault, at, kinds[i].count,
						    injection.seed, at / every % 2 };
			if (injection.count == 1 && at / every % 4 < 2)
				injection.end = KILLED_AT_ONCE;
			failed = 0;
			error_load(&injection, &failed);
			done += failed > 0;
			error_told(&injection);
		}

	shell("rm -rf '%s'/* # %s", run.image, "");
	state = in_child(load_and_crash, &injection);
	if (!state)
		wrong("a load that is left by a crash", "(it crashed)\n", NULL);
	shell("cp '%s'/* '%s'/", run.image, run.live);
	injection.at = UINT64_MAX;
	calls = state && !enough() ? error_start(&injection, state, &failed) : 0;
	for (uint64_t at = 1; at <= calls && !enough(); at += every > 10 ? every / 10 : 1)
		for (size_t i = 0; i < KINDS && !enough(); i++) {
			injection.fault = kinds[i].fault;
			injection.count = kinds[i].count;
			injection.at = at;
			failed = 0;
			error_start(&injection, state, &failed);
			*starts += failed > 0;
			error_told(&injection);
		}
	free(state);
	return done;
}

/* ---- syncs ------------------------------------------------------------------------------- */

#define COMMITS_MOST 5000 /* before what is waited for counts as never coming */

static void must(const char *what, int error)
{
	if (error && !run.wrong)
		wrong(what, strerror(-error), NULL);
}

static uint64_t wal_bytes(struct load *load)
{
	struct store_stats stats;

	store_stats(load->store, &stats);
	return stats.wal_bytes;
}

/* Commits until the WAL is written from its start again. */
static void until_anew(struct load *load)
{
	uint64_t before = 0;

	for (unsigned i = 0; i < COMMITS_MOST && wal_bytes(load) >= before; i++) {
		before = wal_bytes(load);
		must("a commit", load_commit(load));
	}
	must("the WAL does not begin anew", wal_bytes(load) < before ? 0 : -ETIME);
	must("a commit", load_commit(load));
}

/* The one who looks gives way to one who sees all that is committed by now; there is always
 * one of them, so the WAL is never copied whole. */
static void outsider_next(sqlite3 **outsider)
{
	sqlite3 *before = *outsider;

	*outsider = outsider_begin();
	sqlite3_close(before);
}

/* A part of the WAL is copied, and the sync of the file fails that was for it. */
static void part_lost(struct load *load)
{
	sqlite3 *outsider = outsider_begin();

	disk_fail_file(run.live, "queen.db", FAULT_SYNC, 1, 1);
	for (unsigned i = 0; i < COMMITS_MOST && !disk_failed(); i++) {
		must("a commit", load_commit(load));
		outsider_next(&outsider);
	}
	must("nobody copies the WAL", disk_failed() ? 0 : -ETIME);
	sqlite3_close(outsider);
	until_anew(load);
}

/* The same, but it is the committing role that copies, and nobody syncs the part until the
 * store is closed. */
static void part_lost_closing(struct load *load)
{
	sqlite3 *outsider = outsider_begin();

	must("a commit", load_commit(load));
	outsider_next(&outsider);
	must("a commit", load_commit(load));
	sqlite3_close(outsider);
	disk_fail_file(run.live, "queen.db", FAULT_SYNC, 1, 1);
}

/* The WAL cannot be synced, and the store is closed so; the next one promises what it finds. */
static void wal_lost_closing(struct load *load)
{
	uint64_t limit = load->wal_limit_bytes;

	must("a sync", load_sync(load));
	must("a push", load_push_all(load)); /* the close has a tail to bring in */
	disk_fail(run.live, FAULT_SYNC, 1, UINT64_MAX / 2);
	load_commit(load);
	load_sync(load);
	load_close(load);
	disk_fail(run.live, FAULT_EIO, 0, 0);
	*load = (struct load){ .seed = 1, .number = 500000, .wal_limit_bytes = limit };
	must("a start after syncs that failed", load_open(load, run.live, run.disk));
	must("a commit", load_commit(load));
}

static const struct {
	const char *name;
	void (*play)(struct load *load);
	uint64_t wal_limit_bytes;
	bool close;
} plays[] = {
	/* The thread copies, so that it is the one who syncs. */
	{ "a part of the WAL is lost while it is copied", part_lost, 8u << 20, false },
	/* The limit is passed at once, so that only the committing role copies. */
	{ "a part of the WAL is lost at the close", part_lost_closing, 1u << 16, true },
	{ "the WAL is lost, and a new start finds it", wal_lost_closing, 4u << 20,
	  false },
};
#define PLAYS (sizeof(plays) / sizeof(*plays))

static void play(size_t which)
{
	struct load load = { .seed = random_next() | 1,
			     .wal_limit_bytes = plays[which].wal_limit_bytes };
	char *state, *shown;
	size_t end;

	shell("rm -rf '%s'/* '%s'/*", run.live, run.image);
	disk_record(run.live);
	must("open", load_open(&load, run.live, run.disk));
	plays[which].play(&load);
	if (!plays[which].close)
		must("a sync", load_sync(&load));
	state = load_state(&load);
	if (plays[which].close)
		load_close(&load);
	disk_fail(run.live, FAULT_EIO, 0, 0);
	end = disk_steps();
	/* At once, and when all that was not lost has got to the disk by itself. */
	for (enum luck luck = LUCK_NONE; luck <= LUCK_ALL; luck++) {
		disk_image(end, luck, 1, run.image);
		shown = in_child(show_and_check, NULL);
		same(plays[which].name, shown, state);
		free(shown);
	}
	load_close(&load);
	disk_record(NULL);
	free(state);
}

static unsigned syncs(unsigned rounds)
{
	unsigned done = 0;

	for (unsigned i = 0; i < rounds; i++)
		for (size_t which = 0; which < PLAYS && !enough(); which++, done++)
			play(which);
	return done;
}

/* ---- main -------------------------------------------------------------------------------- */

int main(int count, char **words)
{
	const char *temporary = getenv("TMPDIR"), *seed = getenv("SEED"),
		   *seconds = getenv("TORTURE_SECONDS");
	unsigned number, starts = 0, done;
	bool of_cuts, of_syncs;

	if (count != 4 ||
	    (strcmp(words[1], "cuts") != 0 && strcmp(words[1], "errors") != 0 &&
	     strcmp(words[1], "syncs") != 0)) {
		fprintf(stderr, "power cuts|errors|syncs disk|os NUMBER\n");
		return 2;
	}
	of_cuts = strcmp(words[1], "cuts") == 0;
	of_syncs = strcmp(words[1], "syncs") == 0;
	run.disk = strcmp(words[2], "disk") == 0;
	number = (unsigned)strtoul(words[3], NULL, 10);
	run.seed = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) * 2654435761u;
	run.seed |= 1;
	run.until = seconds ? time(NULL) + strtol(seconds, NULL, 10) : 0;
	snprintf(run.directory, sizeof(run.directory), "%.60s/queenfs-power.XXXXXX",
		 temporary ? temporary : "/tmp");
	if (!mkdtemp(run.directory))
		return 2;
	directory_make(run.live, "live");
	directory_make(run.image, "image");
	printf("SEED=%" PRIu64 "\n", run.seed);
	done = of_cuts	  ? cuts(number)
	       : of_syncs ? syncs(number)
			  : errors(number ? number : 1, &starts);
	shell("rm -rf '%s' # %s", run.directory, "");
	if (of_cuts)
		printf("%u power cuts survived, durability %s\n", done - !!run.wrong,
		       words[2]);
	else if (of_syncs)
		printf("%u syncs lost and survived, durability %s\n", done - !!run.wrong,
		       words[2]);
	else
		printf("%u I/O errors under load and %u at start survived, durability "
		       "%s\n",
		       done, starts, words[2]);
	return run.wrong ? 1 : 0;
}
