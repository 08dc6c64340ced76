/* SPDX-License-Identifier: MIT */
/*
 * One reader that reads as fast as it is answered, until it has so many bytes.
 *
 *	stream [-al] [-b bytes] [-r bytes] -c messages PATH
 *
 * It asks for -r bytes (128 KiB, as cat does). A message is -b bytes (100), newline
 * included; with -l it is a line of any length. -a opens read-write and writes `ack`
 * after each read.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "bench.h"

static const char ACK[] = "ack\n";

static uint64_t lines_count(const char *bytes, size_t size)
{
	const char *end = bytes + size;
	uint64_t lines = 0;

	while ((bytes = memchr(bytes, '\n', end - bytes))) {
		lines++;
		bytes++;
	}
	return lines;
}

int main(int argc, char **argv)
{
	size_t message_bytes = 100, request_bytes = 128 << 10;
	uint64_t want = 0, bytes = 0, lines = 0;
	const char *path;
	int64_t began_us;
	bool ack = false, by_line = false;
	char *buffer;
	int opt, fd;

	while ((opt = getopt(argc, argv, "alb:r:c:")) != -1) {
		switch (opt) {
		case 'a':
			ack = true;
			break;
		case 'l':
			by_line = true;
			break;
		case 'b':
			message_bytes = number(optarg);
			break;
		case 'r':
			request_bytes = number(optarg);
			break;
		case 'c':
			want = number(optarg);
			break;
		default:
			return 2;
		}
	}
	if (optind != argc - 1 || !want) {
		fprintf(stderr,
			"usage: stream [-al] [-b bytes] [-r bytes] -c messages PATH\n");
		return 2;
	}
	path = argv[optind];
	if ((errno = posix_memalign((void **)&buffer, 4096, request_bytes)))
		die("allocate", "buffer");
	memset(buffer, 0, request_bytes); /* its pages are there before the clock runs */
	fd = open(path, ack ? O_RDWR : O_RDONLY);
	if (fd < 0)
		die("open", path);

	began_us = now_us();
	while ((by_line ? lines : bytes / message_bytes) < want) {
		ssize_t n = read(fd, buffer, request_bytes);

		if (n < 0)
			die("read", path);
		if (n == 0) {
			fprintf(stderr, "%s: ends after %llu bytes\n", path,
				(unsigned long long)bytes);
			return 1;
		}
		bytes += n;
		if (by_line)
			lines += lines_count(buffer, n);
		if (ack && write(fd, ACK, sizeof(ACK) - 1) < 0)
			die("ack", path);
	}
	rates_print(by_line ? lines : bytes / message_bytes, bytes, now_us() - began_us);
	return 0;
}
