/* SPDX-License-Identifier: MIT */
/*
 * Readers that are blocked: many in one process, each with an open of its own.
 *
 *	hold PATH
 *
 * Reads numbers from its input, a line each: opens PATH that many times more, and a thread
 * each reads there. Says how many there are now; they may be on their way to the daemon
 * still. Ends with its input. A read that returns is an error.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"

static const char *path;
static char buffer[128 << 10]; /* of all: nothing comes */

static void *reader_main(void *arg)
{
	if (read((int)(intptr_t)arg, buffer, sizeof(buffer)) < 0)
		die("read", path);
	fprintf(stderr, "%s: a read returned\n", path);
	exit(1);
}

static void reader_start(void)
{
	intptr_t fd = open(path, O_RDONLY);
	pthread_attr_t attr;
	pthread_t thread;

	if (fd < 0)
		die("open", path);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + (16 << 10));
	if ((errno = pthread_create(&thread, &attr, reader_main, (void *)fd)))
		die("start a thread for", path);
	pthread_attr_destroy(&attr);
}

/* Descriptors: as many as may be had. */
static void limit_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		die("ask for", "RLIMIT_NOFILE");
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("raise", "RLIMIT_NOFILE");
}

int main(int argc, char **argv)
{
	unsigned readers = 0;
	char line[32];

	if (argc != 2) {
		fprintf(stderr, "usage: hold PATH\n");
		return 2;
	}
	path = argv[1];
	limit_raise();
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		for (unsigned more = number(line); more; more--, readers++)
			reader_start();
		printf("%u\n", readers);
		fflush(stdout);
	}
	_exit(0);
}
