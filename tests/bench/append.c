/* SPDX-License-Identifier: MIT */
/*
 * The floor of a durable push: append to a plain file, fdatasync, again.
 *
 *	append [-b bytes] -s seconds PATH
 *
 * PATH is made empty first and left behind. A message is -b bytes (100).
 */
#include <fcntl.h>
#include <unistd.h>

#include "bench.h"

int main(int argc, char **argv)
{
	size_t size = 100;
	int64_t duration_us = 0, began_us;
	uint64_t messages = 0;
	char *bytes;
	int fd, opt;

	while ((opt = getopt(argc, argv, "b:s:")) != -1) {
		switch (opt) {
		case 'b':
			size = number(optarg);
			break;
		case 's':
			duration_us = number(optarg) * 1e6;
			break;
		default:
			return 2;
		}
	}
	if (optind != argc - 1 || !duration_us) {
		fprintf(stderr, "usage: append [-b bytes] -s seconds PATH\n");
		return 2;
	}
	fd = open(argv[optind], O_WRONLY | O_APPEND | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		die("open", argv[optind]);
	if ((errno = posix_memalign((void **)&bytes, 4096, size)))
		die("allocate", "message");
	memset(bytes, 'x', size);

	began_us = now_us();
	while (now_us() < began_us + duration_us) {
		if (write(fd, bytes, size) != (ssize_t)size)
			die("write", argv[optind]);
		if (fdatasync(fd))
			die("fdatasync", argv[optind]);
		messages++;
	}
	rates_print(messages, messages * size, now_us() - began_us);
	return 0;
}
