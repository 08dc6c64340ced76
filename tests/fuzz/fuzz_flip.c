/* SPDX-License-Identifier: MIT */
/* fuzz_flip.c - a small good store of which some bytes were changed. Input: four bytes each,
 * three for the place and one to be xored there. */
#include "fuzz_store.h"

static struct fuzz_file good;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	uint8_t *copy;

	if (!good.data) {
		fuzz_dir_make();
		fuzz_store_make();
		fuzz_file_read("", &good);
	}
	copy = malloc(good.size);
	PROMISE(copy);
	memcpy(copy, good.data, good.size);
	while (input.left >= 4) {
		size_t at = fuzz_take(&input, 3) % good.size;
		copy[at] ^= (uint8_t)fuzz_take(&input, 1);
	}
	fuzz_files_drop();
	fuzz_file_write("", copy, good.size);
	free(copy);
	fuzz_store_use();
	return 0;
}
