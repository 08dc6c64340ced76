/* SPDX-License-Identifier: MIT */
/*
 * A crew: processes that begin together and are counted together.
 */
#ifndef CREW_H
#define CREW_H

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

/* Both are pipes: a member that is ready closes one, the other one's end is the start. */
struct gate {
	int ready_fd, start_fd;
};

/* What one member has done, in bytes or messages. It calls gate_wait() once it is ready. */
typedef uint64_t (*crew_member)(const void *arg, int number, struct gate gate);

static inline void gate_wait(struct gate gate)
{
	char unused;

	close(gate.ready_fd);
	if (read(gate.start_fd, &unused, 1))
		die("wait for", "start");
}

/*
 * Time runs from when all members are ready to when the last is done. Returns 0, or 1 if
 * one of them failed.
 */
static inline int crew_run(int members, crew_member member, const void *arg,
			   uint64_t *total, int64_t *elapsed_us)
{
	uint64_t *done = mmap(NULL, members * sizeof(*done), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ready[2], start[2], status, failed = 0;
	int64_t began_us;
	char unused;

	if (done == MAP_FAILED || pipe(ready) || pipe(start))
		die("set up", "processes");
	for (int i = 0; i < members; i++) {
		switch (fork()) {
		case -1:
			die("fork", "process");
		case 0:
			close(ready[0]);
			close(start[1]);
			done[i] = member(arg, i, (struct gate){ ready[1], start[0] });
			_exit(0);
		}
	}
	close(ready[1]);
	if (read(ready[0], &unused, 1))
		die("wait for", "processes");
	began_us = now_us();
	close(start[1]);
	while (wait(&status) > 0)
		failed |= status != 0;
	*elapsed_us = now_us() - began_us;
	*total = 0;
	for (int i = 0; i < members; i++)
		*total += done[i];
	return failed;
}

#endif
