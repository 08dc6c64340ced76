/* SPDX-License-Identifier: MIT */
/* disk.c - see disk.h. */
#undef _FILE_OFFSET_BITS /* the calls are defined under their own names */
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"

#define SECTOR 512
#define FILES_MAX 4096
#define FDS_MAX 4096

enum step_kind { WRITE, SIZE, SYNC, LOSE, NAME, UNNAME, RENAME, SYNC_NAMES };

struct step {
	enum step_kind kind;
	unsigned file;
	int64_t at;
	size_t size;
	char *data; /* of a write */
	char name[64], to[64];
};

/* What is on the disk for sure, while images are built. */
struct file {
	char *data;
	size_t size;
	size_t *pending; /* steps not synced */
	size_t count, room;
};

struct name {
	char name[64];
	unsigned file;
};

static struct {
	pthread_mutex_t lock;
	char directory[256]; /* "": none */
	bool recording;
	struct step *steps;
	size_t count, room;
	struct name names[64]; /* as they are now */
	size_t name_count;
	unsigned files;
	int fds[FDS_MAX]; /* the file + 1, or -1: the directory */
	/* images */
	struct file disk[FILES_MAX];
	struct name synced[64];
	size_t synced_count;
	size_t done; /* steps that disk and synced have seen */
	size_t *name_steps;
	size_t name_step_count;
	/* faults */
	enum fault fault;
	char only[64];	       /* the file, "": any */
	bool dirty[FILES_MAX]; /* written to since its last sync */
	uint64_t fail_at, fail_count, calls, failed;
} disk = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void *grown(void *array, size_t count, size_t *room, size_t size)
{
	if (count < *room)
		return array;
	*room = *room ? *room * 2 : 64;
	array = realloc(array, *room * size);
	if (!array)
		abort();
	return array;
}

/* ---- names ------------------------------------------------------------------------------- */

/* The name of a path within the directory, "" for itself; NULL: elsewhere or ignored. */
static const char *inside(const char *path)
{
	size_t length = strlen(disk.directory), whole = strlen(path);

	if (!length || strncmp(path, disk.directory, length) != 0)
		return NULL;
	if (path[length] == '\0')
		return "";
	if (path[length] != '/' || whole - length > 60)
		return NULL;
	if ((whole > 4 && strcmp(path + whole - 4, "-shm") == 0) ||
	    (whole > 5 && strcmp(path + whole - 5, "-lock") == 0))
		return NULL;
	return path + length + 1;
}

static struct name *name_find(struct name *names, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i].name, name) == 0)
			return &names[i];
	return NULL;
}

static void name_set(struct name *names, size_t *count, const char *text, unsigned file)
{
	struct name *name = name_find(names, *count, text);

	if (!name)
		name = &names[(*count)++];
	snprintf(name->name, sizeof(name->name), "%s", text);
	name->file = file;
}

static void name_remove(struct name *names, size_t *count, const char *text)
{
	struct name *name = name_find(names, *count, text);

	if (name)
		*name = names[--*count];
}

/* ---- the trace --------------------------------------------------------------------------- */

static struct step *step_add(enum step_kind kind, unsigned file)
{
	disk.steps = grown(disk.steps, disk.count, &disk.room, sizeof(*disk.steps));
	disk.steps[disk.count] = (struct step){ .kind = kind, .file = file };
	if (kind == WRITE || kind == SIZE)
		disk.dirty[file] = true;
	else if (kind == SYNC || kind == LOSE)
		disk.dirty[file] = false;
	return &disk.steps[disk.count++];
}

static void step_write(unsigned file, const void *data, size_t size, int64_t at)
{
	struct step *step = step_add(WRITE, file);

	step->data = malloc(size + 1);
	if (!step->data)
		abort();
	if (size > 0 && data)
		memcpy(step->data, data, size);
	step->size = size;
	step->at = at;
}

static unsigned file_named(const char *name)
{
	struct name *known = name_find(disk.names, disk.name_count, name);
	struct step *step;

	if (known)
		return known->file;
	if (disk.files == FILES_MAX)
		abort();
	name_set(disk.names, &disk.name_count, name, disk.files);
	step = step_add(NAME, disk.files);
	snprintf(step->name, sizeof(step->name), "%s", name);
	return disk.files++;
}

/* The file behind a descriptor while it is recorded, or -1; -2: the directory. */
static int recorded(int fd)
{
	if (!disk.recording || fd < 0 || fd >= FDS_MAX || disk.fds[fd] == 0)
		return -1;
	return disk.fds[fd] > 0 ? disk.fds[fd] - 1 : -2;
}

/* ---- faults ------------------------------------------------------------------------------ */

/* Is it a call that may fail? */
static bool chosen(int fd)
{
	const struct name *only = name_find(disk.names, disk.name_count, disk.only);
	int file = recorded(fd);

	if (disk.only[0] && (!only || (int)only->file != file))
		return false;
	return disk.fault != FAULT_SYNC || file < 0 || disk.dirty[file];
}

/* Does this call fail? Under the lock. 2: after half of it. */
static int fails(int fd, bool needs_room)
{
	if (fd < 0 || fd >= FDS_MAX || disk.fds[fd] == 0 || disk.fail_at == 0)
		return 0;
	if (needs_room ? disk.fault == FAULT_SYNC
		       : disk.fault != FAULT_EIO && disk.fault != FAULT_SYNC)
		return 0;
	if (!chosen(fd))
		return 0;
	disk.calls++;
	if (disk.calls < disk.fail_at || disk.calls >= disk.fail_at + disk.fail_count)
		return 0;
	disk.failed++;
	errno = disk.fault == FAULT_EIO || disk.fault == FAULT_SYNC ? EIO : ENOSPC;
	return disk.fault == FAULT_SHORT ? 2 : 1;
}

void disk_fail(const char *directory, enum fault fault, uint64_t at, uint64_t count)
{
	disk_fail_file(directory, "", fault, at, count);
}

void disk_fail_file(const char *directory, const char *name, enum fault fault,
		    uint64_t at, uint64_t count)
{
	pthread_mutex_lock(&disk.lock);
	snprintf(disk.directory, sizeof(disk.directory), "%s", directory);
	snprintf(disk.only, sizeof(disk.only), "%s", name);
	disk.fault = fault;
	disk.fail_at = at;
	disk.fail_count = count;
	disk.calls = disk.failed = 0;
	pthread_mutex_unlock(&disk.lock);
}

uint64_t disk_calls(void)
{
	return disk.calls;
}

uint64_t disk_failed(void)
{
	uint64_t failed;

	pthread_mutex_lock(&disk.lock);
	failed = disk.failed;
	pthread_mutex_unlock(&disk.lock);
	return failed;
}

/* ---- the calls --------------------------------------------------------------------------- */

#define REAL(call)                     \
	static __typeof__(call) *real; \
	if (!real)                     \
	*(void **)(&real) = dlsym(RTLD_NEXT, #call)

int open64(const char *path, int flags, ...)
{
	const char *name;
	mode_t mode = 0;
	int fd;
	REAL(open64);

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_list args;
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	pthread_mutex_lock(&disk.lock);
	fd = real(path, flags, mode);
	name = inside(path);
	if (fd >= 0 && fd < FDS_MAX && name)
		disk.fds[fd] = !name[0]		? -1
			       : disk.recording ? (int)file_named(name) + 1
						: 1;
	pthread_mutex_unlock(&disk.lock);
	return fd;
}

int close(int fd)
{
	REAL(close);

	pthread_mutex_lock(&disk.lock);
	if (fd >= 0 && fd < FDS_MAX)
		disk.fds[fd] = 0;
	pthread_mutex_unlock(&disk.lock);
	return real(fd);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
	ssize_t put = -1;
	int file, fail;
	REAL(pwrite64);

	pthread_mutex_lock(&disk.lock);
	fail = fails(fd, true);
	file = recorded(fd);
	if (fail != 1)
		put = real(fd, data, fail ? size / 2 : size, at);
	if (put > 0 && file >= 0)
		step_write((unsigned)file, data, (size_t)put, at);
	pthread_mutex_unlock(&disk.lock);
	return put;
}

int ftruncate64(int fd, off64_t size)
{
	int error = -1, file;
	REAL(ftruncate64);

	pthread_mutex_lock(&disk.lock);
	file = recorded(fd);
	if (disk.fault == FAULT_SYNC || !fails(fd, false))
		error = real(fd, size);
	if (!error && file >= 0)
		step_add(SIZE, (unsigned)file)->at = size;
	pthread_mutex_unlock(&disk.lock);
	return error;
}

static int allocated(int fd, off64_t from, off64_t size)
{
	struct stat64 st;
	int file = recorded(fd);

	if (file >= 0 && fstat64(fd, &st) == 0 && from + size >= st.st_size)
		step_add(SIZE, (unsigned)file)->at = st.st_size;
	return 0;
}

int fallocate64(int fd, int mode, off64_t from, off64_t size)
{
	int error = -1;
	REAL(fallocate64);

	pthread_mutex_lock(&disk.lock);
	if (!fails(fd, true))
		error = real(fd, mode, from, size);
	if (!error)
		allocated(fd, from, size);
	pthread_mutex_unlock(&disk.lock);
	return error;
}

int posix_fallocate64(int fd, off64_t from, off64_t size)
{
	int error;
	REAL(posix_fallocate64);

	pthread_mutex_lock(&disk.lock);
	error = fails(fd, true) ? errno : real(fd, from, size);
	if (!error)
		allocated(fd, from, size);
	pthread_mutex_unlock(&disk.lock);
	return error;
}

/* The disk of a trace is as good as its word: nothing is to be waited for. */
static int synced(int fd)
{
	int file;

	pthread_mutex_lock(&disk.lock);
	file = recorded(fd);
	if (fails(fd, false)) {
		if (file >= 0)
			step_add(LOSE, (unsigned)file);
		pthread_mutex_unlock(&disk.lock);
		return -1;
	}
	if (file == -2)
		step_add(SYNC_NAMES, 0);
	else if (file >= 0)
		step_add(SYNC, (unsigned)file);
	pthread_mutex_unlock(&disk.lock);
	return 0;
}

int fdatasync(int fd)
{
	return synced(fd);
}

int fsync(int fd)
{
	return synced(fd);
}

int rename(const char *from, const char *to)
{
	int error;
	REAL(rename);

	pthread_mutex_lock(&disk.lock);
	error = real(from, to);
	if (!error && disk.recording && inside(from) && inside(to)) {
		unsigned file = file_named(inside(from));
		struct step *step = step_add(RENAME, file);
		snprintf(step->name, sizeof(step->name), "%s", inside(from));
		snprintf(step->to, sizeof(step->to), "%s", inside(to));
		name_remove(disk.names, &disk.name_count, step->name);
		name_set(disk.names, &disk.name_count, step->to, file);
	}
	pthread_mutex_unlock(&disk.lock);
	return error;
}

int unlink(const char *path)
{
	int error;
	REAL(unlink);

	pthread_mutex_lock(&disk.lock);
	error = real(path);
	if (!error && disk.recording && inside(path)) {
		struct step *step = step_add(UNNAME, 0);
		snprintf(step->name, sizeof(step->name), "%s", inside(path));
		name_remove(disk.names, &disk.name_count, step->name);
	}
	pthread_mutex_unlock(&disk.lock);
	return error;
}

/* ---- images ------------------------------------------------------------------------------ */

static void file_size(struct file *file, size_t size)
{
	char *data = realloc(file->data, size + 1);

	if (!data)
		abort();
	if (size > file->size)
		memset(data + file->size, 0, size - file->size);
	file->data = data;
	file->size = size;
}

static void file_write(struct file *file, const char *data, size_t size, size_t at)
{
	if (at + size > file->size)
		file_size(file, at + size);
	if (size > 0 && file->data)
		memcpy(file->data + at, data, size);
}

static void step_apply(struct file *file, const struct step *step)
{
	if (step->kind == WRITE)
		file_write(file, step->data, step->size, (size_t)step->at);
	else
		file_size(file, (size_t)step->at);
}

static void names_apply(struct name *names, size_t *count, const struct step *step)
{
	if (step->kind == NAME) {
		name_set(names, count, step->name, step->file);
	} else {
		name_remove(names, count, step->name);
		if (step->kind == RENAME)
			name_set(names, count, step->to, step->file);
	}
}

/* What is synced up to a step. */
static void disk_advance(size_t end)
{
	static size_t name_room;

	for (; disk.done < end; disk.done++) {
		const struct step *step = &disk.steps[disk.done];
		struct file *file = &disk.disk[step->file];
		switch (step->kind) {
		case WRITE:
		case SIZE:
			file->pending = grown(file->pending, file->count, &file->room,
					      sizeof(*file->pending));
			file->pending[file->count++] = disk.done;
			break;
		case SYNC:
			for (size_t i = 0; i < file->count; i++)
				step_apply(file, &disk.steps[file->pending[i]]);
			file->count = 0;
			break;
		case LOSE:
			file->count = 0;
			break;
		case SYNC_NAMES:
			for (size_t i = 0; i < disk.name_step_count; i++)
				names_apply(disk.synced, &disk.synced_count,
					    &disk.steps[disk.name_steps[i]]);
			disk.name_step_count = 0;
			break;
		default:
			disk.name_steps = grown(disk.name_steps, disk.name_step_count,
						&name_room, sizeof(*disk.name_steps));
			disk.name_steps[disk.name_step_count++] = disk.done;
		}
	}
}

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* Some of a write that was not synced. */
static void step_tear(struct file *file, const struct step *step, uint64_t *seed)
{
	size_t end = (size_t)step->at + step->size, next;

	for (size_t at = (size_t)step->at; at < end; at = next) {
		next = at / SECTOR * SECTOR + SECTOR;
		next = next < end ? next : end;
		if (random_next(seed) & 8)
			file_write(file, step->data + (at - (size_t)step->at), next - at,
				   at);
	}
}

static void file_image(const struct file *file, enum luck luck, uint64_t *seed,
		       struct file *image)
{
	unsigned keep = luck == LUCK_LAST ? 14 : 1 + (unsigned)(random_next(seed) % 14);

	*image = (struct file){ 0 };
	file_write(image, file->data ? file->data : "", file->size, 0);
	for (size_t i = 0; luck != LUCK_NONE && i < file->count; i++) {
		const struct step *step = &disk.steps[file->pending[i]];
		unsigned fate = (unsigned)(random_next(seed) >> 8) % 16;
		if (luck == LUCK_ALL || fate < keep)
			step_apply(image, step);
		else if (fate == 15 && step->kind == WRITE)
			step_tear(image, step, seed);
	}
}

static void directory_empty(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char file[512];

	/* cppcheck-suppress readdirCalled */
	while (dir && (entry = readdir(dir))) {
		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		if (entry->d_name[0] != '.')
			unlink(file);
	}
	if (dir)
		closedir(dir);
}

static void file_put(const char *path, const struct file *file)
{
	int fd = open64(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || pwrite64(fd, file->data, file->size, 0) != (ssize_t)file->size)
		abort();
	close(fd);
}

void disk_image(size_t step, enum luck luck, uint64_t seed, const char *directory)
{
	struct name names[64];
	size_t count, more;
	char path[512];

	seed = seed * 2 + 1;
	disk_advance(step);
	directory_empty(directory);
	memcpy(names, disk.synced, sizeof(names));
	count = disk.synced_count;
	more = luck == LUCK_NONE  ? 0
	       : luck == LUCK_ALL ? disk.name_step_count
				  : random_next(&seed) % (disk.name_step_count + 1);
	for (size_t i = 0; i < more; i++)
		names_apply(names, &count, &disk.steps[disk.name_steps[i]]);
	for (size_t i = 0; i < count; i++) {
		struct file image;
		file_image(&disk.disk[names[i].file], luck, &seed, &image);
		snprintf(path, sizeof(path), "%.255s/%.60s", directory, names[i].name);
		file_put(path, &image);
		free(image.data);
	}
}

/* ---- beginning and end ------------------------------------------------------------------- */

static void trace_clear(void)
{
	for (size_t i = 0; i < disk.count; i++)
		free(disk.steps[i].data);
	for (unsigned i = 0; i < disk.files; i++) {
		free(disk.disk[i].data);
		free(disk.disk[i].pending);
		disk.disk[i] = (struct file){ 0 };
	}
	disk.count = disk.done = disk.name_count = disk.synced_count =
		disk.name_step_count = 0;
	disk.files = 0;
}

/* What is there when a trace begins counts as synced. */
static void file_begin(const char *name)
{
	char path[512], *data;
	struct stat64 st;
	unsigned file = file_named(name);
	int fd;

	snprintf(path, sizeof(path), "%s/%s", disk.directory, name);
	fd = open64(path, O_RDONLY);
	if (fd < 0 || fstat64(fd, &st) < 0 || !(data = malloc((size_t)st.st_size + 1)) ||
	    pread64(fd, data, (size_t)st.st_size, 0) != st.st_size)
		abort();
	close(fd);
	step_write(file, data, (size_t)st.st_size, 0);
	step_add(SYNC, file);
	free(data);
}

void disk_record(const char *directory)
{
	DIR *dir;
	struct dirent *entry;
	char path[512];

	if (!directory) {
		disk.recording = false;
		disk.directory[0] = '\0';
		return;
	}
	trace_clear();
	snprintf(disk.directory, sizeof(disk.directory), "%s", directory);
	dir = opendir(directory);
	disk.recording = true;
	/* cppcheck-suppress readdirCalled */
	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		if (entry->d_name[0] != '.' && inside(path))
			file_begin(entry->d_name);
	}
	if (dir)
		closedir(dir);
	step_add(SYNC_NAMES, 0);
	disk_advance(disk.count);
}

size_t disk_steps(void)
{
	size_t count;

	pthread_mutex_lock(&disk.lock);
	count = disk.count;
	pthread_mutex_unlock(&disk.lock);
	return count;
}
