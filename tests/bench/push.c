/* SPDX-License-Identifier: MIT */
/*
 * Writers that push lines as fast as they are answered.
 *
 *	push [-n writers] [-b bytes] [-w bytes] {-s seconds | -c messages} PATH
 *
 * Each writer is a process with an open of its own: of PATH, in which a "%d" becomes the
 * writer's number. A message is -b bytes (100), newline included. A write is one message,
 * or with -w as many whole ones as fit in that. -c is a count for each writer.
 *
 * Time runs from when all have opened to when the last is done.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

struct job {
	const char *path;
	size_t message_bytes;
	size_t write_bytes;  /* a multiple of message_bytes */
	int64_t duration_us; /* 0: by count */
	uint64_t messages;   /* for each writer; 0: by time */
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
	     end += job->message_bytes)
		lines[end - 1] = '\n';
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

/* Opens, reports by closing ready_fd, waits for the end of start_fd, writes. */
static void writer_run(const struct job *job, int writer, int ready_fd, int start_fd,
		       uint64_t *written)
{
	char *lines = lines_make(job);
	int fd = path_open(job->path, writer);
	uint64_t bytes = 0, want = job->messages * job->message_bytes;
	int64_t until;
	char unused;

	close(ready_fd);
	if (read(start_fd, &unused, 1))
		die("wait for", "start");
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
	*written = bytes;
}

static int writers_run(const struct job *job, int writers)
{
	uint64_t bytes = 0;
	uint64_t *written = mmap(NULL, writers * sizeof(*written), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ready[2], start[2], status, failed = 0;
	int64_t began_us;
	char unused;

	if (written == MAP_FAILED || pipe(ready) || pipe(start))
		die("set up", "writers");
	for (int i = 0; i < writers; i++) {
		switch (fork()) {
		case -1:
			die("fork", "writer");
		case 0:
			close(ready[0]);
			close(start[1]);
			writer_run(job, i, ready[1], start[0], &written[i]);
			_exit(0);
		}
	}
	close(ready[1]);
	if (read(ready[0], &unused, 1))
		die("wait for", "writers");
	began_us = now_us();
	close(start[1]);
	while (wait(&status) > 0)
		failed |= status != 0;
	if (failed)
		return 1;
	for (int i = 0; i < writers; i++)
		bytes += written[i];
	rates_print(bytes / job->message_bytes, bytes, now_us() - began_us);
	return 0;
}

int main(int argc, char **argv)
{
	struct job job = { .message_bytes = 100 };
	int opt, writers = 1;

	while ((opt = getopt(argc, argv, "n:b:w:s:c:")) != -1) {
		switch (opt) {
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
	if (optind != argc - 1 || !job.duration_us == !job.messages) {
		fprintf(stderr, "usage: push [-n writers] [-b bytes] [-w bytes] "
				"{-s seconds | -c messages} PATH\n");
		return 2;
	}
	job.path = argv[optind];
	job.write_bytes -= job.write_bytes % job.message_bytes;
	if (!job.write_bytes)
		job.write_bytes = job.message_bytes;
	return writers_run(&job, writers);
}
