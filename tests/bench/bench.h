/* SPDX-License-Identifier: MIT */
/*
 * What the drivers share: a clock, an end with a message, numbers on the command line.
 */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The monotonic clock, the same for all processes. */
static inline int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static inline int64_t now_us(void)
{
	return now_ns() / 1000;
}

/* Prints what failed, on what, with errno's text, and exits 1. */
static inline void __attribute__((noreturn)) die(const char *what, const char *on)
{
	fprintf(stderr, "%s %s: %s\n", what, on, strerror(errno));
	exit(1);
}

/* A positive number, fractions allowed; anything else exits 2. */
static inline double number(const char *text)
{
	char *end;
	double n = strtod(text, &end);

	if (end == text || *end || !(n > 0)) {
		fprintf(stderr, "%s: not a positive number\n", text);
		exit(2);
	}
	return n;
}

static inline int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* The lines that `run` reads: the median and the 99th percentile of at least one time. */
static inline void percentiles_print(int64_t *ns, size_t count)
{
	qsort(ns, count, sizeof(*ns), by_size);
	printf("p50_us %.2f\n", (double)ns[count / 2] / 1e3);
	printf("p99_us %.2f\n", (double)ns[count * 99 / 100] / 1e3);
}

/* The lines that `run` reads. */
static inline void rates_print(uint64_t messages, uint64_t bytes, int64_t elapsed_us)
{
	double seconds = (elapsed_us > 0 ? elapsed_us : 1) / 1e6;

	printf("messages %llu\n", (unsigned long long)messages);
	printf("bytes %llu\n", (unsigned long long)bytes);
	printf("seconds %.6f\n", seconds);
	printf("messages_per_s %.1f\n", messages / seconds);
	printf("bytes_per_s %.1f\n", bytes / seconds);
}

#endif
