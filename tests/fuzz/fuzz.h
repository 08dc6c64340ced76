/* SPDX-License-Identifier: MIT */
/*
 * fuzz.h - what the targets in tests/fuzz share. A target is one file, fuzz_<name>.c: a
 * function that takes any bytes at all and may not crash, hang, leak or break a promise.
 *
 * `make fuzz` builds them with libFuzzer and lets it look for bytes; `make test` feeds the
 * bytes in corpus/<name>/ to the same functions (replay.c).
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A promise. Also where NDEBUG is set. */
#define PROMISE(condition)                                                         \
	do {                                                                       \
		if (!(condition)) {                                                \
			fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, \
				#condition);                                       \
			abort();                                                   \
		}                                                                  \
	} while (0)

#define FUZZ_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A copy with a NUL behind, in memory of just that size. The caller frees it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	PROMISE(text);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

/* Takes bytes from the front of an input; zeros where it ends. */
struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

static inline uint64_t fuzz_take(struct fuzz_input *input, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes && input->left > 0; i++) {
		value |= (uint64_t)*input->at++ << 8 * i;
		input->left--;
	}
	return value;
}

#endif
