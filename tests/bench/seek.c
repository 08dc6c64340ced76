/* SPDX-License-Identifier: MIT */
/*
 * How long a group takes to go to a time and get the first message after it.
 *
 *	seek [-n rounds] -m messages -t microseconds CURSOR POP
 *
 * Message i of the log was pushed i milliseconds after -t (a Unix time) and is the number i.
 * Each round picks one, writes its time to CURSOR as a shell does (open, write, close),
 * opens POP and reads; anything but that message is an error.
 */
#include <fcntl.h>
#include <unistd.h>

#include "bench.h"

static void cursor_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die("seek", path);
	if (close(fd))
		die("close", path);
}

static unsigned long message_read(const char *path)
{
	int fd = open(path, O_RDONLY);
	char text[64];
	ssize_t n;

	if (fd < 0)
		die("open", path);
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		die("read", path);
	close(fd);
	text[n] = '\0';
	return n ? strtoul(text, NULL, 10) : ~0UL;
}

int main(int argc, char **argv)
{
	int64_t first_us = 0, began_ns, *times_ns;
	uint64_t state =
		88172645463325252ULL; /* xorshift: the same places in every run */
	unsigned long messages = 0, to;
	unsigned rounds = 500, i;
	char text[64];
	int opt;

	while ((opt = getopt(argc, argv, "n:m:t:")) != -1) {
		switch (opt) {
		case 'n':
			rounds = number(optarg);
			break;
		case 'm':
			messages = number(optarg);
			break;
		case 't':
			first_us = number(optarg);
			break;
		default:
			return 2;
		}
	}
	if (optind != argc - 2 || !rounds || !messages || !first_us) {
		fprintf(stderr, "usage: seek [-n rounds] -m messages -t microseconds "
				"CURSOR POP\n");
		return 2;
	}
	times_ns = calloc(rounds, sizeof(*times_ns));
	if (!times_ns)
		die("allocate", "rounds");
	for (i = 0; i < rounds; i++) {
		unsigned long got;
		int64_t us;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		to = state % messages;
		us = first_us + (int64_t)to * 1000;
		snprintf(text, sizeof(text), "@%lld.%06lld\n", (long long)us / 1000000,
			 (long long)us % 1000000);
		began_ns = now_ns();
		cursor_write(argv[optind], text);
		got = message_read(argv[optind + 1]);
		times_ns[i] = now_ns() - began_ns;
		if (got != to) {
			fprintf(stderr, "%s gave message %ld, not %lu\n",
				argv[optind + 1], (long)got, to);
			break;
		}
	}
	if (i == rounds)
		percentiles_print(times_ns, rounds);
	free(times_ns);
	return i < rounds;
}
