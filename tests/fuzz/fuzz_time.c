/* SPDX-License-Identifier: MIT */
/* fuzz_time.c - times as text: what is accepted lies in its years, and printed it reads back
 * to the same time, wherever and whenever it is read. */
#include "fuzz.h"
#include "store.h"

#define OLDEST_US INT64_C(-62135596800000000) /* 0001-01-01 */
#define BEYOND_US INT64_C(253402300800000000) /* 10000-01-01 */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	int64_t now = (int64_t)fuzz_take(&input, 8), us, again;
	char *text = fuzz_text(input.at, input.left), printed[TIME_TEXT_SIZE];
	int error;

	time_print(now, printed); /* any number at all */
	PROMISE(strlen(printed) < TIME_TEXT_SIZE);
	/* The store's clock is in its years. */
	now = OLDEST_US + (int64_t)((uint64_t)now % (uint64_t)(BEYOND_US - OLDEST_US));
	time_print(now, printed);
	PROMISE(time_parse(printed, 0, &again) == 0 && again == now);
	error = time_parse(text, now, &us);
	PROMISE(error == 0 || error == -EINVAL);
	if (!error) {
		PROMISE(us >= OLDEST_US && us < BEYOND_US);
		time_print(us, printed);
		PROMISE(time_parse(printed, 0, &again) == 0 && again == us);
		PROMISE(*text != '-' || us <= now);
	}
	free(text);
	return 0;
}
