/* SPDX-License-Identifier: MIT */
/*
 * fuzz_tail.c - the tail of a store (store/tail.c) as a kill -9 or worse leaves it, replayed
 * at the next start.
 *
 * Input: a byte, then the file. If the byte is odd the checksums of its records are put
 * right, so that what is behind them is reached; if its second bit is set so are the numbers.
 */
#include "fuzz_store.h"

#define SUM_START 14695981039346656037u
#define SUM_FACTOR 1099511628211u

/* As in tail.c. */
struct record {
	uint64_t number, checksum, partition;
	int64_t base, created_us, segment;
	uint64_t position;
	uint32_t count, size, meta_size, more;
};

static struct fuzz_file good;

static uint64_t sum_words(uint64_t sum, const uint8_t *at, size_t size)
{
	uint64_t word;

	for (; size >= sizeof(word); size -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sum = (sum ^ word) * SUM_FACTOR;
	}
	for (; size > 0; size--, at++)
		sum = (sum ^ *at) * SUM_FACTOR;
	return sum;
}

static void repair(uint8_t *text, size_t size, bool numbers)
{
	struct record record;
	uint64_t sum, number = 0;
	size_t body;

	for (size_t at = 0; at + sizeof(record) <= size; at += sizeof(record) + body) {
		memcpy(&record, text + at, sizeof(record));
		body = record.count * sizeof(uint32_t) + (size_t)record.size +
		       record.meta_size;
		if (body > size - at - sizeof(record))
			break;
		if (numbers)
			record.number = ++number;
		record.checksum = 0;
		sum = sum_words(SUM_START, (const uint8_t *)&record, sizeof(record));
		sum = sum_words(sum, text + at + sizeof(record), body);
		record.checksum = sum ^ sum >> 32;
		memcpy(text + at, &record, sizeof(record));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	uint8_t how = (uint8_t)fuzz_take(&input, 1);
	uint8_t *text = (uint8_t *)fuzz_text(input.at, input.left);

	if (!good.data) {
		fuzz_dir_make();
		fuzz_store_make();
		fuzz_file_read("", &good);
	}
	if (how & 1)
		repair(text, input.left, how & 2);
	fuzz_files_drop();
	fuzz_file_write("", good.data, good.size);
	fuzz_file_write("-tail", text, input.left);
	free(text);
	fuzz_store_use();
	return 0;
}
