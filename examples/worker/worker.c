/* SPDX-License-Identifier: MIT */
/* worker FOLLOW OUTPUT NAME - at least once: stdio asks for more, and so acks, when getline
 * has returned all that it has read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

int main(int argc, char **argv)
{
	FILE *messages = argc == 4 ? fopen(argv[1], "r") : NULL;
	FILE *done = argc == 4 ? fopen(argv[2], "a") : NULL;
	char *message = NULL;
	size_t size = 0;

	if (!messages || !done) {
		perror("worker FOLLOW OUTPUT NAME");
		return EXIT_FAILURE;
	}
	for (;;) {
		errno = 0;
		if (getline(&message, &size, messages) < 0) {
			if (errno != EINTR) /* stopped and continued */
				break;
			clearerr(messages);
			continue;
		}
		fprintf(done, "%s %s", argv[3], message); /* the work */
		if (fflush(done) != 0)
			break;
	}
	perror("worker");
	free(message);
	fclose(done);
	fclose(messages);
	return EXIT_FAILURE;
}
