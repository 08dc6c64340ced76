/* SPDX-License-Identifier: MIT */
/*
 * How long a message takes to a reader that is blocked.
 *
 *	wake [-b bytes] [-n rounds] PUSH FOLLOW
 *
 * A process reads FOLLOW, another one writes lines of -b bytes (100) to PUSH, each once the
 * reader is blocked again. A round is from just before the write to the return of the read,
 * by the clock that both share. Prints the median and the 99th percentile.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum {
	PAUSE_US = 200, /* from asleep to surely put aside by the daemon */
	POLL_US = 50,	/* asks whether the reader is as far */
	LOST_US = 5000000,
	WARM_UP = 50,
};

/* Between the two processes. */
struct shared {
	atomic_bool last;	  /* the next read is the last one */
	atomic_uint returned;	  /* reads so far; written after returned_ns */
	atomic_llong returned_ns; /* when the latest did */
};

static int file_open(const char *path, int flags)
{
	int fd = open(path, flags);

	if (fd < 0)
		die("open", path);
	return fd;
}

static void follower_run(struct shared *shared, const char *path)
{
	static char buffer[128 << 10];
	int fd = file_open(path, O_RDONLY);

	do {
		if (read(fd, buffer, sizeof(buffer)) <= 0)
			die("read", path);
		shared->returned_ns = now_ns();
		shared->returned++;
	} while (!shared->last);
}

static pid_t follower_start(struct shared *shared, const char *path)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		die("fork", "follower");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		follower_run(shared, path);
	_exit(0);
}

static bool asleep(pid_t pid)
{
	char path[32], line[512] = "";
	const char *name_end;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	stat = fopen(path, "r");
	if (!stat || !fgets(line, sizeof(line), stat))
		die("read", path);
	fclose(stat);
	name_end = strrchr(line, ')');
	return name_end && name_end[2] == 'S';
}

/* Waits until it has returned from so many reads and is blocked in the next. */
static void follower_await(struct shared *shared, pid_t pid, unsigned reads)
{
	int64_t until = now_us() + LOST_US;

	while (shared->returned < reads || !asleep(pid)) {
		if (now_us() > until) {
			fprintf(stderr, "the follower is not woken\n");
			exit(1);
		}
		usleep(POLL_US);
	}
	usleep(PAUSE_US);
}

static void line_write(int fd, const char *line, size_t size)
{
	if (write(fd, line, size) != (ssize_t)size)
		die("write", "line");
}

int main(int argc, char **argv)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned rounds = 2000;
	size_t size = 100;
	int opt, fd, status, failed;
	int64_t *ns;
	char *line;
	pid_t pid;

	while ((opt = getopt(argc, argv, "b:n:")) != -1) {
		switch (opt) {
		case 'b':
			size = number(optarg);
			break;
		case 'n':
			rounds = number(optarg);
			break;
		default:
			return 2;
		}
	}
	if (optind != argc - 2 || !size || !rounds) {
		fprintf(stderr, "usage: wake [-b bytes] [-n rounds] PUSH FOLLOW\n");
		return 2;
	}
	line = malloc(size);
	ns = calloc(rounds, sizeof(*ns));
	if (shared == MAP_FAILED || !line || !ns)
		die("set up", "rounds");
	memset(line, 'x', size);
	line[size - 1] = '\n';
	fd = file_open(argv[optind], O_WRONLY | O_APPEND);
	pid = follower_start(shared, argv[optind + 1]);

	follower_await(shared, pid, 0);
	for (unsigned i = 0; i < WARM_UP + rounds; i++) {
		int64_t began_ns = now_ns();

		line_write(fd, line, size);
		follower_await(shared, pid, i + 1);
		if (i >= WARM_UP)
			ns[i - WARM_UP] = shared->returned_ns - began_ns;
	}
	shared->last = true;
	line_write(fd, line, size);
	failed = waitpid(pid, &status, 0) != pid || status;
	if (!failed)
		percentiles_print(ns, rounds);
	free(line);
	free(ns);
	return failed;
}
