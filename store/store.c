/* SPDX-License-Identifier: MIT */
/*
 * store.c - a store from its opening to its closing: the lock, the pragmas, the loading.
 *
 * A constructor that fails calls the ordinary destructor on what is there so far.
 */
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "store_int.h"

int why_set(struct store_why *why, int error, const char *format, ...)
{
	va_list args;

	if (why) {
		va_start(args, format);
		vsnprintf(why->text, sizeof(why->text), format, args);
		va_end(args);
	}
	return error;
}

static int64_t clock_read(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_us(void)
{
	return clock_read(CLOCK_REALTIME);
}

int64_t monotonic_us(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

int store_statvfs(struct store *store, struct statvfs *disk)
{
	return statvfs(store->path, disk) < 0 ? -errno : 0;
}

int64_t now_locked(const struct store *store)
{
	int64_t now = clock_us();

	return now < store->newest_us ? store->newest_us : now;
}

int64_t store_now(struct store *store)
{
	int64_t now;

	pthread_mutex_lock(&store->state);
	now = now_locked(store);
	pthread_mutex_unlock(&store->state);
	return now;
}

/* ---- a disk of this machine --------------------------------------------------------- */

/* SQLite's WAL is shared memory: it holds on one machine only. */
static const char *const network_types[] = {
	"nfs",	       "nfs4",	       "cifs",	       "smb3",
	"smbfs",       "9p",	       "ceph",	       "afs",
	"coda",	       "ncpfs",	       "lustre",       "glusterfs",
	"fuse.sshfs",  "fuse.rclone",  "fuse.s3fs",    "fuse.glusterfs",
	"fuse.cephfs", "fuse.gcsfuse", "fuse.queenfs",
};

/* The type of the filesystem with this device number, from a line of mountinfo. */
static bool mountinfo_type(char *line, dev_t device, char **type)
{
	unsigned major_number, minor_number;
	char *dash = strstr(line, " - ");

	if (!dash || sscanf(line, "%*u %*u %u:%u", &major_number, &minor_number) != 2 ||
	    makedev(major_number, minor_number) != device)
		return false;
	*type = dash + 3;
	(*type)[strcspn(*type, " ")] = '\0';
	return true;
}

static int local_check(const char *path, struct store_why *why)
{
	char *copy = strdup(path), *line = NULL, *type;
	size_t size = 0;
	struct stat st;
	FILE *mounts;
	int error = 0;

	if (!copy)
		return -ENOMEM;
	if (stat(dirname(copy), &st) < 0) {
		error = why_set(why, -errno, "its directory: %s", strerror(errno));
		free(copy);
		return error;
	}
	free(copy);
	mounts = fopen("/proc/self/mountinfo", "re");
	while (!error && mounts && getline(&line, &size, mounts) > 0) {
		if (!mountinfo_type(line, st.st_dev, &type))
			continue;
		for (size_t i = 0; i < sizeof(network_types) / sizeof(*network_types);
		     i++)
			if (strcmp(type, network_types[i]) == 0)
				error = why_set(why, -EREMOTE,
						"it is on %s; a store needs a disk of "
						"this machine",
						type);
	}
	free(line);
	if (mounts)
		fclose(mounts);
	return error;
}

/* ---- opening ------------------------------------------------------------------------ */

/* A POSIX lock on a file of its own: the kernel knows the holder and drops it with him,
 * and SQLite's own locks on the store are not disturbed. */
static int lock_take(struct store *store, struct store_why *why)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char *path;
	int error = 0;

	if (asprintf(&path, "%s-lock", store->path) < 0)
		return -ENOMEM;
	store->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (store->lock_fd < 0)
		error = why_set(why, -errno, "cannot make its lock file: %s",
				strerror(errno));
	free(path);
	if (error || fcntl(store->lock_fd, F_SETLK, &lock) == 0)
		return error;
	error = errno == EACCES || errno == EAGAIN ? -EBUSY : -errno;
	if (fcntl(store->lock_fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
		lock.l_pid = 0;
	return error == -EBUSY
		       ? why_set(why, error, "in use by process %d", (int)lock.l_pid)
		       : why_set(why, error, "cannot lock it: %s", strerror(-error));
}

static int on_wal(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct store *store = arg;
	uint64_t before = store->wal_bytes;

	(void)db;
	(void)name;
	store->wal_bytes = (uint64_t)pages * (store->page_bytes + WAL_FRAME_HEADER);
	if (store->wal_bytes < before) /* SQLite has begun it anew */
		store->copied_bytes = store->wal_retry_bytes = 0;
	return SQLITE_OK;
}

static int writer_open(struct store *store, struct store_why *why)
{
	int error = conn_open(store->path, SQLITE_OPEN_READWRITE, &store->writer, why);
	sqlite3_stmt *stmt;

	if (error)
		return error;
	conn_exec(store->writer,
		  "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
		  "PRAGMA wal_autocheckpoint = 0; PRAGMA cell_size_check = on;"
		  /* What is removed need not be written once more. */
		  "PRAGMA secure_delete = off;"
		  "PRAGMA trusted_schema = off");
	sqlite3_wal_hook(store->writer->db, on_wal, store);
	stmt = conn_stmt(store->writer, STMT_PAGE_BYTES);
	if (conn_step(store->writer, stmt) == 1) {
		store->page_bytes = (size_t)sqlite3_column_int64(stmt, 0);
		sqlite3_reset(stmt);
	}
	if (store->writer->error)
		return why_set(why, store->writer->error, "%s", store->writer->why.text);
	return 0;
}

int meta_find(struct store *store, const char *key, sqlite3_stmt **row)
{
	*row = conn_stmt(store->writer, STMT_META_GET);
	bind_text(*row, 1, key);
	return conn_step(store->writer, *row);
}

static int meta_load(struct store *store)
{
	sqlite3_stmt *stmt;
	int got = meta_find(store, "newest_us", &stmt);

	if (got == 1) {
		store->newest_us = sqlite3_column_int64(stmt, 0);
		sqlite3_reset(stmt);
		if (store->newest_us < 0 || store->newest_us > TIME_MAX_US)
			return conn_damaged(store->writer, "meta");
	}
	return got < 0 ? got : 0;
}

static void locks_init(struct store *store)
{
	pthread_rwlockattr_t attr;
	pthread_condattr_t monotonic;

	/* A steady stream of readers must not keep the checkpoint out. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr,
				      PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&store->gate, &attr);
	pthread_rwlockattr_destroy(&attr);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&store->timer_wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_cond_init(&store->removed, NULL);
	pthread_cond_init(&store->passing_wake, NULL);
	pthread_mutex_init(&store->state, NULL);
	pthread_mutex_init(&store->pool_lock, NULL);
	pthread_mutex_init(&store->copy_lock, NULL);
	pthread_cond_init(&store->copy_wake, NULL);
}

/* The names of the files that a start makes, which a sync of the files need not bring to the
 * disk. */
static int names_sync(const struct store *store)
{
	char *copy = strdup(store->path);
	int fd, error = 0;

	if (!copy)
		return -ENOMEM;
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(copy);
	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0 && errno != EINVAL) /* some have no such thing */
		error = -errno;
	close(fd);
	return error;
}

int store_open(const struct store_options *options, struct store **out,
	       struct store_why *why)
{
	struct store *store = calloc(1, sizeof(*store));
	int error = -ENOMEM;

	if (!store)
		return why_set(why, error, "out of memory");
	store->lock_fd = store->reserve_fd = -1;
	store->disk = options->disk;
	store->reserve_bytes = options->reserve_bytes;
	store->wal_limit_bytes = options->wal_limit_bytes;
	store->jobs_end = &store->jobs;
	store->access[ROOT_DIR] = store->access[ROOT_QUEUES] =
		(struct access){ geteuid(), getegid(), 0755 };
	TAILQ_INIT(&store->dirty);
	TAILQ_INIT(&store->cache.lru);
	TAILQ_INIT(&store->woken);
	TAILQ_INIT(&store->passing);
	TAILQ_INIT(&store->sweeps);
	TAILQ_INIT(&store->expired);
	store->seen_alarm.ring_locked = dedup_ring_locked;
	store->seen_end_us = INT64_MAX;
	settings_init(&store->defaults);
	why_set(why, 0, "%s", "");
	locks_init(store);
	stats_init(store);
	store->path = strdup(options->path);

	/* The probe comes first, so that nothing is made beside a file that is not ours,
	 * and again under the lock. */
	if (!store->path || (error = local_check(store->path, why)) ||
	    (error = schema_probe(store->path, why)) || (error = lock_take(store, why)) ||
	    (error = schema_probe(store->path, why)) ||
	    (error = schema_make(store->path, why)) ||
	    (error = writer_open(store, why)) || (error = schema_update(store, why)) ||
	    (error = reserve_open(store, why)) || (error = wal_open(store)) ||
	    (error = tail_open(store, why)) || (error = names_sync(store)) ||
	    (error = meta_load(store)) || (error = dedup_load(store)) ||
	    (error = items_load(store)) || (error = wal_prepare(store)) ||
	    (error = timer_start(store)) || (error = passing_start(store)) ||
	    (error = copy_start(store))) {
		if (why && !why->text[0])
			why_set(why, 0, "%s",
				store->writer && store->writer->error
					? store->writer->why.text
					: strerror(-error));
		store_close(store);
		return error;
	}
	*out = store;
	return 0;
}

void store_close(struct store *store)
{
	struct envelope *envelope;
	struct conn *conn;

	store_settle(store);
	while ((conn = store->pool)) {
		store->pool = conn->next;
		conn_close(conn);
	}
	if (store->page_bytes) /* the writing connection is whole */
		wal_close(store);
	tail_close(store);
	conn_close(store->writer);
	while ((envelope = envelope_idle(store)))
		envelope_close(envelope);
	cache_clear(store);
	items_free(store);
	reserve_close(store);
	if (store->lock_fd >= 0)
		close(store->lock_fd);
	pthread_cond_destroy(&store->timer_wake);
	pthread_cond_destroy(&store->removed);
	pthread_cond_destroy(&store->passing_wake);
	pthread_mutex_destroy(&store->state);
	pthread_mutex_destroy(&store->pool_lock);
	pthread_mutex_destroy(&store->copy_lock);
	pthread_cond_destroy(&store->copy_wake);
	pthread_rwlock_destroy(&store->gate);
	free(store->path);
	free(store);
}
