/* SPDX-License-Identifier: MIT */
/*
 * utf8.c - is it UTF-8? The strict kind: no character in more bytes than it needs, no
 * surrogates, nothing past U+10FFFF. A NUL byte is a character like others.
 */
#include <string.h>

#include "store_int.h"

size_t utf8_length(const char *text, size_t left)
{
	const unsigned char *at = (const unsigned char *)text;
	unsigned char lead = at[0], low, high;
	size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;

	if (lead < 0x80)
		return 1;
	if (lead < 0xc2 || lead > 0xf4 || length > left)
		return 0;
	/* All that is forbidden besides shows in the second byte. */
	low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
	if (at[1] < low || at[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

bool utf8_valid(const char *text, size_t size)
{
	while (size > 0) {
		uint64_t eight;
		size_t length;

		if (size >= sizeof(eight)) {
			memcpy(&eight, text, sizeof(eight));
			if (!(eight & UINT64_C(0x8080808080808080))) {
				text += sizeof(eight);
				size -= sizeof(eight);
				continue;
			}
		}
		length = utf8_length(text, size);
		if (!length)
			return false;
		text += length;
		size -= length;
	}
	return true;
}
