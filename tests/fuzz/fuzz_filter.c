/* SPDX-License-Identifier: MIT */
/* fuzz_filter.c - filters (section 11): any text compiles or is refused in words; a message
 * is answered twice in the same way. Input: the filter, a newline, the message. */
#include "fuzz.h"
#include "store_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
	size_t text_size = newline ? (size_t)(newline - data) : size;
	char *text = fuzz_text(data, text_size);
	size_t left = newline ? size - text_size - 1 : 0;
	char *payload = malloc(left ? left : 1);
	struct message message = {
		.data = payload,
		.size = left,
		.attributes = "{\"region\":\"eu\",\"n\":17}",
		.attributes_size = strlen("{\"region\":\"eu\",\"n\":17}"),
		.queue = "q",
		.partition = "customer-7",
		.partition_number = 3,
		.offset = 17,
		.created_us = INT64_C(1785333600000000),
	};
	struct store_why why = { "" };
	struct filter *filter;
	int error, got;

	PROMISE(payload);
	if (left)
		memcpy(payload, newline + 1, left);
	error = filter_compile(text, &filter, &why);
	PROMISE(error == 0 || error == -EINVAL);
	PROMISE(!error || why.text[0]);
	if (!error) {
		got = filter_test(filter, &message);
		PROMISE(got >= -1 && got <= 1);
		PROMISE(filter_test(filter, &message) == got);
		filter_free(filter);
	}
	free(payload);
	free(text);
	return 0;
}
