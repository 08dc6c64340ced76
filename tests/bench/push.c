/* SPDX-License-Identifier: MIT */
/*
 * Writers that push lines as fast as they are answered.
 *
 *	push [-j] [-n writers] [-b bytes] [-w bytes] {-s seconds | -c messages} PATH
 *
 * Each writer is a process with an open of its own: of PATH, in which a "%d" becomes the
 * writer's number. A message is -b bytes (100), newline included. A write is one message,
 * or with -w as many whole ones as fit in that. -c is a count for each writer. With -j a
 * line is an object for push.json.
 *
 * Time runs from when all have opened to when the last is done.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "bench.h"
#include "crew.h"

#define JSON_HEAD "{\"data\":\""
#define JSON_TAIL "\"}"

struct job {
	const char *path;
	size_t message_bytes;
	size_t write_bytes;  /* a multiple of message_bytes */
	int64_t duration_us; /* 0: by count */
	uint64_t messages;   /* for each writer; 0: by time */
	bool json;
};

static int path_open(const char *pattern, int writer)
{
	const char *mark = strstr(pattern, "%d");
	char path[4096];
	int fd;

	if (mark)
		snprintf(path, sizeof(path), "%.*s%d%s", (int)(mark - pattern), pattern,
			 writer, mark + 2);
	else
		snprintf(path, sizeof(path), "%s", pattern);
	fd = open(path, O_WRONLY | O_APPEND);
	if (fd < 0)
		die("open", path);
	return fd;
}

/*
 * On a page boundary: a request holds 256 pages, so that a write of up to 1 MiB reaches
 * the daemon in one piece.
 */
static char *lines_make(const struct job *job)
{
	char *lines;

	if ((errno = posix_memalign((void **)&lines, 4096, job->write_bytes)))
		die("allocate", "lines");
	memset(lines, 'x', job->write_bytes);
	for (size_t end = job->message_bytes; end <= job->write_bytes;
	     end += job->message_bytes) {
		lines[end - 1] = '\n';
		if (!job->json)
			continue;
		memcpy(lines + end - job->message_bytes, JSON_HEAD,
		       sizeof(JSON_HEAD) - 1);
		memcpy(lines + end - sizeof(JSON_TAIL), JSON_TAIL, sizeof(JSON_TAIL) - 1);
	}
	return lines;
}

static void all_write(int fd, const char *bytes, size_t size, const char *path)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die("write", path);
		bytes += n;
		size -= n;
	}
}

static uint64_t writer_run(const void *arg, int writer, struct gate gate)
{
	const struct job *job = arg;
	char *lines = lines_make(job);
	int fd = path_open(job->path, writer);
	uint64_t bytes = 0, want = job->messages * job->message_bytes;
	int64_t until;

	gate_wait(gate);
	until = now_us() + job->duration_us;
	while (want ? bytes < want : now_us() < until) {
		size_t size = job->write_bytes;

		if (want && size > want - bytes)
			size = want - bytes;
		all_write(fd, lines, size, job->path);
		bytes += size;
	}
	if (close(fd))
		die("close", job->path);
	free(lines);
	return bytes;
}

int main(int argc, char **argv)
{
	struct job job = { .message_bytes = 100 };
	int64_t elapsed_us;
	int opt, writers = 1;
	uint64_t bytes;

	while ((opt = getopt(argc, argv, "jn:b:w:s:c:")) != -1) {
		switch (opt) {
		case 'j':
			job.json = true;
			break;
		case 'n':
			writers = number(optarg);
			break;
		case 'b':
			job.message_bytes = number(optarg);
			break;
		case 'w':
			job.write_bytes = number(optarg);
			break;
		case 's':
			job.duration_us = number(optarg) * 1e6;
			break;
		case 'c':
			job.messages = number(optarg);
			break;
		default:
			return 2;
		}
	}
	if (optind != argc - 1 || !job.duration_us == !job.messages ||
	    (job.json && job.message_bytes < sizeof(JSON_HEAD JSON_TAIL))) {
		fprintf(stderr, "usage: push [-j] [-n writers] [-b bytes] [-w bytes] "
				"{-s seconds | -c messages} PATH\n");
		return 2;
	}
	job.path = argv[optind];
	job.write_bytes -= job.write_bytes % job.message_bytes;
	if (!job.write_bytes)
		job.write_bytes = job.message_bytes;
	if (crew_run(writers, writer_run, &job, &bytes, &elapsed_us))
		return 1;
	rates_print(bytes / job.message_bytes, bytes, elapsed_us);
	return 0;
}
