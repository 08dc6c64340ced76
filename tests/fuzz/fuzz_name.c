/* SPDX-License-Identifier: MIT */
/* fuzz_name.c - names, and UTF-8, against a second reading of their rules (section 1). */
#include <wchar.h>

#include "fuzz.h"
#include "store_int.h"

/* The character that begins at text and its length, by decoding it; 0: there is none. */
static size_t decode(const uint8_t *text, size_t left, uint32_t *character)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t length = text[0] < 0x80	     ? 1
			: text[0] >> 5 == 6  ? 2
			: text[0] >> 4 == 14 ? 3
			: text[0] >> 3 == 30 ? 4
					     : 0;

	if (length == 0 || length > left)
		return 0;
	*character = length == 1 ? text[0] : text[0] & (0xffu >> (length + 1));
	for (size_t i = 1; i < length; i++) {
		if (text[i] >> 6 != 2)
			return 0;
		*character = *character << 6 | (text[i] & 0x3f);
	}
	if (*character < least[length] || *character > 0x10ffff ||
	    (*character >= 0xd800 && *character < 0xe000))
		return 0;
	return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	size_t length = strlen(text), step;
	bool valid = true, allowed;
	struct store_why why = { "" };
	uint32_t character;
	int error;

	for (size_t at = 0; at < size && valid; at += step) {
		step = decode(data + at, size - at, &character);
		PROMISE(utf8_length((const char *)data + at, size - at) == step);
		valid = step > 0;
	}
	PROMISE(utf8_valid((const char *)data, size) == valid);

	allowed = length > 0 && *text != '.' && strcmp(text, "*") != 0;
	for (size_t at = 0; at < length && allowed; at += step) {
		step = decode(data + at, length - at, &character);
		allowed = step > 0 && character >= 0x20 && character != '/' &&
			  !(character >= 0x7f && character < 0xa0);
	}
	error = store_name_check(text, &why);
	PROMISE(error == (length > STORE_NAME_MAX ? -ENAMETOOLONG
			  : allowed		  ? 0
						  : -EINVAL));
	PROMISE(!error || why.text[0]);
	free(text);
	return 0;
}
