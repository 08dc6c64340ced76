/* SPDX-License-Identifier: MIT */
/*
 * mountpoint.c - what is at the mount point before we are, from /proc/self/mountinfo.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mountpoint.h"
#include "options.h"
#include "say.h"

#define DEAD_MOUNTS_MAX 16 /* one above the other; a limit against a loop, not a rule */

struct mounted {
	char type[64];
	char source[PATH_MAX];
};

/* Undoes the octal escapes (\040 for a blank) of /proc/self/mountinfo, in place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from;) {
		unsigned byte;

		if (*from == '\\' && sscanf(from + 1, "%3o", &byte) == 1) {
			*to++ = (char)byte;
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
}

/*
 * One line is: id parent device root MOUNTPOINT options [tag ...] - TYPE SOURCE options.
 * Is it about `path`?
 */
static bool mountinfo_line(char *line, const char *path, struct mounted *mounted)
{
	char *rest = line, *word = NULL, *type, *source;

	for (int i = 0; i < 5; i++)
		word = strsep(&rest, " ");
	if (!word || !rest)
		return false;
	unescape(word);
	if (strcmp(word, path))
		return false;
	do {
		word = strsep(&rest, " ");
	} while (word && strcmp(word, "-"));
	type = strsep(&rest, " ");
	source = strsep(&rest, " ");
	if (!type || !source)
		return false;
	unescape(source);
	snprintf(mounted->type, sizeof(mounted->type), "%s", type);
	snprintf(mounted->source, sizeof(mounted->source), "%s", source);
	return true;
}

/* What is mounted exactly at path? The last line about it is the topmost mount. */
static bool mounted_find(const char *path, struct mounted *mounted)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t size = 0;
	bool found = false;

	if (!file)
		return false;
	while (getline(&line, &size, file) > 0)
		found = mountinfo_line(line, path, mounted) || found;
	free(line);
	fclose(file);
	return found;
}

/* Asks the filesystem itself: what the kernel remembers outlives a dead daemon. */
static int status_ask(const char *path, struct statx *status)
{
	if (statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, status))
		return -errno;
	return 0;
}

int mountpoint_ask(const char *path)
{
	struct statx status;

	return status_ask(path, &status);
}

static int lazy_unmount(const char *path)
{
	char *arguments[] = { "fusermount3", "-u", "-z", "--", (char *)path, NULL };
	int error, status;
	pid_t child;

	if (geteuid() == 0)
		return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) ? -errno : 0;
	error = posix_spawnp(&child, arguments[0], NULL, NULL, arguments, environ);
	if (error)
		return -error;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

static int dead_mount_take_away(const char *path)
{
	struct mounted dead;
	int error;

	if (!mounted_find(path, &dead) || strcmp(dead.type, "fuse.queenfs")) {
		say("%s: a filesystem whose daemon died is in the way; unmount it first",
		    path);
		return -ENOTCONN;
	}
	error = lazy_unmount(path);
	if (error) {
		say("%s: cannot unmount the queenfs that died here: %s", path,
		    strerror(-error));
		return error;
	}
	say("%s: replaced the mount of a queenfs that died (its store was %s)", path,
	    dead.source);
	return 0;
}

static int directory_check(const char *path)
{
	struct mounted mounted;
	struct statx status;
	int error = status_ask(path, &status);

	for (int i = 0; error == -ENOTCONN && i < DEAD_MOUNTS_MAX; i++) {
		error = dead_mount_take_away(path);
		if (error)
			return error;
		error = status_ask(path, &status);
	}
	if (error == -ENOENT) {
		say("%s: no such directory; make the mount point first", path);
		return error;
	}
	if (error) {
		say("%s: %s", path, strerror(-error));
		return error;
	}
	if (!S_ISDIR(status.stx_mode)) {
		say("%s: not a directory; a mount point has to be one", path);
		return -ENOTDIR;
	}
	if (mounted_find(path, &mounted) && !strcmp(mounted.type, "fuse.queenfs")) {
		say("%s: already a queenfs mount, of %s; unmount it or use another "
		    "directory",
		    path, mounted.source);
		return -EBUSY;
	}
	return 0;
}

int mountpoint_prepare(const char *path, char **absolute)
{
	char *given = strdup(path), *whole = NULL;
	int error = given ? 0 : -ENOMEM;
	size_t length = strlen(path);

	while (!error && length > 1 && given[length - 1] == '/')
		given[--length] = '\0';
	if (!error) {
		/* realpath(3) fails where nothing is, and may where a dead mount is */
		whole = realpath(given, NULL);
		if (!whole)
			error = path_absolute(NULL, given, &whole);
	}
	free(given);
	if (error) {
		say("%s: %s", path, strerror(-error));
		return error;
	}
	error = directory_check(whole);
	if (error)
		free(whole);
	else
		*absolute = whole;
	return error;
}

int fuse_device_check(void)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	int error = -errno;

	if (fd >= 0) {
		close(fd);
		return 0;
	}
	say("/dev/fuse cannot be opened: %s; it takes the kernel's fuse module, and in a "
	    "container the device and the right to mount",
	    strerror(-error));
	return error;
}
