/* SPDX-License-Identifier: MIT */
/*
 * wild.c - LIKE and GLOB as SQLite means them, with the work counted.
 *
 * Not for: NULLs, numbers, values of SQLite at all.
 *
 * SQLite's own are quadratic where nobody can stop them: 1 MiB of `a` that is LIKE
 * '%aaaa...ab' takes seconds. These pay for each step and give up when the purse is empty.
 *
 * 1. Texts are UTF-8 and may hold NULs; a byte that is no part of a character is one of its
 *    own. LIKE takes ASCII letters of both cases for the same, GLOB does not.
 * 2. What is skipped to find where a search may begin is free: all in all it is once the
 *    text, which whoever hands it over has paid for.
 */
#include "store_int.h"

#define NO_CHAR UINT32_MAX

/* The next character, as a number that has the order of code points: the bytes of its
 * UTF-8. */
static uint32_t char_next(struct text *text)
{
	uint32_t c = *text->at++;

	if (c >= 0xc0)
		for (int i = 0; i < 3 && text->at < text->end && (*text->at >> 6) == 2;
		     i++)
			c = c << 8 | *text->at++;
	return c;
}

/* The other case of an ASCII letter; what is none stays. */
static uint32_t char_other(uint32_t c)
{
	uint32_t lower = c | 0x20;

	return lower >= 'a' && lower <= 'z' ? c ^ 0x20 : c;
}

struct wildcards {
	uint32_t any, one, set, escape; /* NO_CHAR: there is none */
	bool fold;			/* ASCII letters match their other case */
};

/* Is c in the set of which `[` has been read? Reads on past the set's end. */
static bool set_has(struct text *pattern, uint32_t c)
{
	uint32_t member, before = NO_CHAR;
	bool invert = false, found = false, first = true;

	if (pattern->at < pattern->end && *pattern->at == '^') {
		invert = true;
		pattern->at++;
	}
	for (; pattern->at < pattern->end; first = false) {
		member = char_next(pattern);
		if (member == ']' && !first)
			return found != invert;
		if (member == '-' && before != NO_CHAR && pattern->at < pattern->end &&
		    *pattern->at != ']') {
			member = char_next(pattern);
			found = found || (c >= before && c <= member);
			before = NO_CHAR;
		} else {
			found = found || c == member;
			before = first && member == ']' ? NO_CHAR : member;
		}
	}
	return false; /* without its end it matches nothing */
}

/* Does the next of pattern, which is not `any`, match the next of text? Moves both on. */
static bool char_match(const struct wildcards *wildcards, struct text *pattern,
		       struct text *text)
{
	uint32_t wanted = char_next(pattern);
	uint32_t c = char_next(text);

	if (wanted == wildcards->one)
		return true;
	if (wanted == wildcards->set)
		return set_has(pattern, c);
	if (wanted == wildcards->escape) {
		if (pattern->at == pattern->end)
			return false;
		wanted = char_next(pattern);
	}
	return wanted == c || (wildcards->fold && char_other(wanted) == c);
}

/* After `any`, which may match anything: moves text to where pattern can match at all. */
static void any_skip(const struct wildcards *wildcards, struct text pattern,
		     struct text *text)
{
	uint32_t c = *pattern.at;
	uint32_t other = wildcards->fold ? char_other(c) : c;

	if (c >= 0x80 || c == wildcards->any || c == wildcards->one ||
	    c == wildcards->set || c == wildcards->escape)
		return;
	while (text->at < text->end && *text->at != c && *text->at != other)
		text->at++;
}

/*
 * Greedy from the left: what stands between two `any` is best found as early as it can be,
 * so only the last `any` is ever gone back to. Quadratic at worst, without recursion.
 */
static int wild_match(const struct wildcards *wildcards, struct text pattern,
		      struct text text, int64_t *work)
{
	struct text any_pattern = { NULL, NULL }, any_text = text;

	for (;;) {
		const unsigned char *before = pattern.at;

		if (before < pattern.end && *before == wildcards->any) {
			pattern.at++;
			if (pattern.at == pattern.end)
				return 1;
			any_pattern = pattern;
		} else if (text.at == text.end) {
			return before == pattern.end;
		} else {
			bool matched = before < pattern.end &&
				       char_match(wildcards, &pattern, &text);

			*work -= pattern.at - before;
			if (*work < 0)
				return -ETIME;
			if (matched)
				continue;
			if (!any_pattern.at)
				return 0;
			pattern = any_pattern;
			text = any_text;
			char_next(&text);
		}
		any_skip(wildcards, pattern, &text);
		any_text = text;
	}
}

int wild_like(struct text pattern, struct text text, const struct text *escape,
	      int64_t *work)
{
	struct wildcards wildcards = { '%', '_', NO_CHAR, NO_CHAR, true };

	if (escape) {
		struct text rest = *escape;

		if (rest.at < rest.end)
			wildcards.escape = char_next(&rest);
		if (wildcards.escape == NO_CHAR || rest.at < rest.end)
			return -EINVAL;
		if (wildcards.escape == wildcards.any)
			wildcards.any = NO_CHAR;
		if (wildcards.escape == wildcards.one)
			wildcards.one = NO_CHAR;
	}
	return wild_match(&wildcards, pattern, text, work);
}

int wild_glob(struct text pattern, struct text text, int64_t *work)
{
	static const struct wildcards wildcards = { '*', '?', '[', NO_CHAR, false };

	return wild_match(&wildcards, pattern, text, work);
}
