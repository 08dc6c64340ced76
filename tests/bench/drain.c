/* SPDX-License-Identifier: MIT */
/*
 * One consumer that pops as fast as it is answered.
 *
 *	drain {-o | -k} -s seconds PATH
 *
 * -o opens, reads once and closes for each message, as a shell loop does; -k keeps one
 * descriptor and reads on past each end of file. Ends early when nothing is left. A
 * message is a line. Also prints how long one pop takes.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "bench.h"

enum { TIMES_MAX = 1 << 20 };

static char buffer[64 << 10];
static int64_t times_ns[TIMES_MAX];

static int pop_open(const char *path)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		die("open", path);
	return fd;
}

static size_t pop_read(int fd, const char *path)
{
	ssize_t n = read(fd, buffer, sizeof(buffer));

	if (n < 0)
		die("read", path);
	return n;
}

static uint64_t lines_count(size_t size)
{
	uint64_t lines = 0;

	for (size_t i = 0; i < size; i++)
		lines += buffer[i] == '\n';
	return lines;
}

/* The next message or messages; 0 when nothing is left. */
static size_t pop_by_open(const char *path)
{
	int fd = pop_open(path);
	size_t n = pop_read(fd, path);

	close(fd);
	return n;
}

/* Each pop ends with an end of file; two in a row mean that nothing is left. */
static size_t pop_by_fd(int fd, const char *path)
{
	size_t n = pop_read(fd, path);

	return n ? n : pop_read(fd, path);
}

int main(int argc, char **argv)
{
	uint64_t messages = 0, bytes = 0;
	int64_t duration_us = 0, began_us, began_ns;
	size_t pops = 0;
	bool reopen = false, keep = false;
	const char *path;
	size_t n;
	int opt, fd = -1;

	while ((opt = getopt(argc, argv, "oks:")) != -1) {
		switch (opt) {
		case 'o':
			reopen = true;
			break;
		case 'k':
			keep = true;
			break;
		case 's':
			duration_us = number(optarg) * 1e6;
			break;
		default:
			return 2;
		}
	}
	if (optind != argc - 1 || reopen == keep || !duration_us) {
		fprintf(stderr, "usage: drain {-o | -k} -s seconds PATH\n");
		return 2;
	}
	path = argv[optind];
	if (keep)
		fd = pop_open(path);

	began_us = now_us();
	while (now_us() < began_us + duration_us) {
		began_ns = now_ns();
		n = keep ? pop_by_fd(fd, path) : pop_by_open(path);
		if (!n)
			break;
		if (pops < TIMES_MAX)
			times_ns[pops++] = now_ns() - began_ns;
		messages += lines_count(n);
		bytes += n;
	}
	rates_print(messages, bytes, now_us() - began_us);
	if (pops)
		percentiles_print(times_ns, pops);
	return 0;
}
