/* SPDX-License-Identifier: MIT */
/*
 * test_time.c - times as text: what section 5 accepts and refuses, and what is printed.
 *
 * Not for: the words `now`, `end` and `start`, which never reach time_parse().
 *
 * Expected numbers were worked out by other means than the code under test; calendars
 * are compared with the C library's, spellings with what date(1) and stat(1) print.
 */
#include "store.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SECOND_US INT64_C(1000000)
#define DAY_US (86400 * SECOND_US)
#define OLDEST_US INT64_C(-62135596800000000) /* 0001-01-01T00:00:00Z */
#define NEWEST_US INT64_C(253402300799999999) /* 9999-12-31T23:59:59.999999Z */

#define MIDNIGHT INT64_C(1785283200000000) /* 2026-07-29T00:00:00Z */
#define AT_14 INT64_C(1785333600000000)	   /* 2026-07-29T14:00:00Z */
#define NOW_US (AT_14 + 123456)		   /* what times ago are counted from */
#define UNTOUCHED 4711

/* clang-format off */
static const struct {
	const char *text;
	int64_t time_us;
} accepted[] = {
	/* what the tools print */
	{ "2026-07-29T14:00:00+00:00", AT_14 },
	{ "2026-07-29T16:00:00+02:00", AT_14 },
	{ "2026-07-29T14:00:00,123456789+00:00", AT_14 + 123457 },
	{ "2026-07-29 14:00:00.123456000+00:00", AT_14 + 123456 },
	{ "2026-07-29 16:00:00.123456000 +0200", AT_14 + 123456 },
	{ "2026-07-29T14:00:00.123456Z", AT_14 + 123456 },
	{ "2026-07-29 14:00:00", AT_14 },
	/* separators and parts that may be missing */
	{ "2026-07-29T14:00:00Z", AT_14 },
	{ "2026-07-29t14:00:00z", AT_14 },
	{ "2026-07-29 14:00:00 Z", AT_14 },
	{ "2026-07-29T14:00Z", AT_14 },
	{ "2026-07-29T14:00", AT_14 },
	{ "2026-07-29 14:00", AT_14 },
	{ "2026-07-29", MIDNIGHT },
	{ "2026-07-29T00:00", MIDNIGHT },
	{ "2026-07-29T23:59:59", MIDNIGHT + DAY_US - SECOND_US },
	/* the basic format */
	{ "20260729T1400", AT_14 },
	{ "20260729T140000", AT_14 },
	{ "20260729t140000z", AT_14 },
	{ "20260729T140000.5Z", AT_14 + 500000 },
	{ "20260729T1600+0200", AT_14 },
	{ "20260729T160000+02", AT_14 },
	{ "20260729T160000 +02:00", AT_14 },
	{ "20260729T1000-04", AT_14 },
	/* zones */
	{ "2026-07-29T16:00:00+0200", AT_14 },
	{ "2026-07-29T16:00:00+02", AT_14 },
	{ "2026-07-29T16:00+02", AT_14 },
	{ "2026-07-29T16:00 +02:00", AT_14 },
	{ "2026-07-29T10:00:00-04:00", AT_14 },
	{ "2026-07-29T10:00-0400", AT_14 },
	{ "2026-07-29T19:45:00+05:45", AT_14 },
	{ "2026-07-29T10:30:00-03:30", AT_14 },
	{ "2026-07-29T14:00:00-00:00", AT_14 },
	{ "2026-07-30T13:59:00+23:59", AT_14 },
	{ "2026-07-28T14:01:00-23:59", AT_14 },
	/* fractions, up to the microsecond */
	{ "2026-07-29T14:00:00.1Z", AT_14 + 100000 },
	{ "2026-07-29T14:00:00,1Z", AT_14 + 100000 },
	{ "2026-07-29T14:00:00.000001", AT_14 + 1 },
	{ "2026-07-29T14:00:00.0000000", AT_14 },
	{ "2026-07-29T14:00:00.0000001", AT_14 + 1 },
	{ "2026-07-29T14:00:00.1234560000", AT_14 + 123456 },
	{ "2026-07-29T14:00:00.12345600000000000000000000000000001", AT_14 + 123457 },
	{ "2026-07-29T14:00:00.9999990Z", AT_14 + 999999 },
	{ "2026-07-29T14:00:00.9999991Z", AT_14 + SECOND_US },
	{ "2026-07-29T13:59:59.999999999+00:00", AT_14 },
	{ "1969-12-31T23:59:59.9999995Z", 0 },
	{ "1969-12-31T23:59:59.9999985Z", -1 },
	/* leap seconds are the second after */
	{ "2026-07-29T13:59:60Z", AT_14 },
	{ "2016-12-31T23:59:60Z", 1483228800 * SECOND_US },
	{ "2016-12-31T23:59:60.5Z", 1483228800 * SECOND_US + 500000 },
	{ "2017-01-01T01:59:60+02:00", 1483228800 * SECOND_US },
	{ "20161231T235960Z", 1483228800 * SECOND_US },
	/* the calendar */
	{ "1970-01-01", 0 },
	{ "0001-01-01T00:00:00Z", OLDEST_US },
	{ "0001-01-01T23:59:00+23:59", OLDEST_US },
	{ "9999-12-31T23:59:59.999999Z", NEWEST_US },
	{ "2000-02-29", 951782400 * SECOND_US },
	{ "2000-03-01", 951868800 * SECOND_US },
	{ "2024-02-29T12:00Z", 1709208000 * SECOND_US },
	{ "1900-02-28", -2203977600 * SECOND_US },
	{ "1900-03-01", -2203891200 * SECOND_US },
	{ "2024-12-31T23:30-01:00", 1735691400 * SECOND_US },
	/* ago */
	{ "-0s", NOW_US },
	{ "-90s", NOW_US - 90 * SECOND_US },
	{ "-15m", NOW_US - 900 * SECOND_US },
	{ "-2h", NOW_US - 7200 * SECOND_US },
	{ "-7d", NOW_US - 7 * DAY_US },
	{ "-90S", NOW_US - 90 * SECOND_US },
	{ "-15M", NOW_US - 900 * SECOND_US },
	{ "-2H", NOW_US - 7200 * SECOND_US },
	{ "-7D", NOW_US - 7 * DAY_US },
	{ "-0000000000000000000000000015m", NOW_US - 900 * SECOND_US },
	{ "-739825d", NOW_US - 739825 * DAY_US },
	{ "-739826d", OLDEST_US },
	{ "-106751991d", OLDEST_US },
	{ "-106751992d", OLDEST_US },
	{ "-9223372036854775807s", OLDEST_US },
	{ "-9223372036854775808d", OLDEST_US },
	{ "-99999999999999999999999999999999999999h", OLDEST_US },
	/* Unix times */
	{ "@0", 0 },
	{ "@-0", 0 },
	{ "@1785333600", AT_14 },
	{ "@1785333600.123456789", AT_14 + 123457 },
	{ "@1785333600,5", AT_14 + 500000 },
	{ "@00000000000000000000000000001", SECOND_US },
	{ "@0.0000001", 1 },
	{ "@0.9999999", SECOND_US },
	{ "@-1", -SECOND_US },
	{ "@-1.5", -1500000 },
	{ "@-1.0000001", -SECOND_US },
	{ "@-0.0000009", 0 },
	{ "@-0.0000010", -1 },
	{ "@-62135596800", OLDEST_US },
	{ "@-62135596800.0000001", OLDEST_US },
	{ "@253402300799.999999", NEWEST_US },
};

static const char *const refused[] = {
	/* not times at all, or not here */
	"", " ", "now", "end", "start", "NOW", "all", "yesterday", "2 hours ago", "Z",
	"T", "14:00", "14:00:00", "Wed Jul 29 14:00:00 UTC 2026", "29.07.2026",
	"07/29/2026", "Wed, 29 Jul 2026 14:00:00 +0000", "2026-W31-3", "2026-210", "P7D",
	"snapshot x",
	/* runs of digits are offsets */
	"0", "17", "2026", "20260729", "20260729140000", "1785333600", "1785333600.5",
	/* missing parts */
	"2026-07", "2026-07-", "2026-07-2", "2026-7-29", "26-07-29", "-07-29",
	"02026-07-29", "2026-07-29T", "2026-07-29 ", "2026-07-29T14", "2026-07-29T14Z",
	"2026-07-29T14+02", "2026-07-29T14:", "2026-07-29T14:0", "2026-07-29T4:00",
	"2026-07-29T14:00:", "2026-07-29T14:00:0", "2026-07-29T14:00:0Z", "T14:00:00",
	"2026-07-29T14:00:00.", "2026-07-29T14:00:00.Z", "2026-07-29T14:00:00,+00:00",
	"2026-07-29T14:00:00..5", "2026-07-29T14:00.5", "2026-07-29T14:00:00.5.5",
	"2026-07-29T14:00:00.5,5", "20260729T", "20260729T14", "20260729T140",
	"20260729T14000", "20260729T1400000",
	/* a date alone has no zone */
	"2026-07-29Z", "2026-07-29 Z", "2026-07-29+02:00", "2026-07-29 +02:00",
	/* extended and basic mixed, the basic format without its T */
	"2026-07-29T1400", "2026-07-29T140000", "20260729T14:00", "20260729T14:00:00",
	"202607-29T14:00", "2026-0729T14:00", "20260729 1400", "20260729 140000Z",
	"2026-07-29T14:0000", "2026-07-29T1400:00", "2026-07-2914:00",
	/* blanks */
	"2026-07-29  14:00", "2026-07-29T 14:00", "2026-07-29 T14:00",
	"2026-07-29\t14:00", "2026-07-29T14:00:00  Z", "2026-07-29T14:00:00\tZ",
	"2026-07-29T14:00:00Z ", "2026-07-29T14:00:00 ", " 2026-07-29", "2026-07-29\n",
	"2026 -07-29", "2026-07-29T14:00:00 .5", "2026-07-29T14:00:00+ 02:00",
	"2026-07-29T14:00:00Z\n",
	/* outside the limits */
	"0000-01-01", "0000-12-31T23:59:59Z", "2026-00-29", "2026-13-29", "2026-07-00",
	"2026-07-32", "2026-06-31", "2026-02-29", "1900-02-29", "2100-02-29",
	"2000-02-30", "2026-07-29T24:00", "2026-07-29T24:00:00Z", "2026-07-29T25:00",
	"2026-07-29T14:60", "2026-07-29T14:00:61Z", "2026-07-29T14:00:99",
	"20260729T140061Z", "20260729T2400", "20260229T1400", "10000-01-01",
	"+2026-07-29", "-2026-07-29", "99999-12-31T00:00Z", "0001-01-01T00:00+00:01",
	"9999-12-31T23:59-00:01", "9999-12-31T23:59:60Z", "9999-12-31T23:59:59.9999991Z",
	/* zones */
	"2026-07-29T14:00:00+", "2026-07-29T14:00:00+2", "2026-07-29T14:00:00+020",
	"2026-07-29T14:00:00+02:0", "2026-07-29T14:00:00+02:",
	"2026-07-29T14:00:00+02:60", "2026-07-29T14:00:00+24:00",
	"2026-07-29T14:00:00-2400", "2026-07-29T14:00:00+99", "2026-07-29T14:00:00+2:00",
	"2026-07-29T14:00:00+02:00:00", "2026-07-29T14:00 UTC", "2026-07-29T14:00:00GMT",
	"2026-07-29T14:00:00CEST", "2026-07-29T14:00:00ZZ", "2026-07-29T14:00:00Z+02:00",
	"2026-07-29T14:00:00+-02", "2026-07-29T14:00:00*02", "2026-07-29T14:00:00+02Z",
	"2026-07-29T14:00:00+0260", "2026-07-29T14:00:0002:00",
	/* garbage behind, digits and signs that are not ASCII */
	"2026-07-29x", "2026-07-29T14:00x", "2026-07-29T14:00:00x",
	"2026-07-29T14:00:00.5x", "2026-07-29T14:00:00Zx", "2026-07-29T14:00:00+02:00x",
	"20260729T1400x", "2026-07-29_14:00", "2026-07-29+14:00", "2026/07/29",
	"2026-07-29T14-00", "2026-07-29T14:00\xc2\xa0Z", "\357\274\222026-07-29",
	"2026-07-2\xd9\xa9", "2026-07-29T14:00:00\342\210\22202:00",
	"2026-07-29T14:00:00.\xd9\xa1", "\xff", "YYYY-MM-DD", "2026-+7-29", "2026-07--9",
	"0x7ea-07-29",
	/* ago */
	"-", "--", "-15", "-0", "-m", "-m15", "-15w", "-15y", "-15ms", "-15min", "-15mm",
	"-1.5h", "-1,5h", "-1h30m", "-1h ", "- 1h", "-1 h", "--1h", "-+1h", "+15m", "15m",
	"-15\xc2\xb5s", "-1\x13", "-1\xf3", "-0x1h", "-1e3s", "-\xd9\xa1h",
	"-9999999999999999999",
	/* Unix times */
	"@", "@-", "@+1", "@--1", "@ 1", "@1 ", "@.5", "@-.5", "@5.", "@5.x", "@1x",
	"@1.5.5", "@1e9", "@0x10", "@1Z", "@now", "@@1", "@1s", "1@", "-@1", "@1.5-",
	"@\xd9\xa1", "@253402300800", "@253402300799.9999991", "@-62135596800.000001",
	"@-62135596801", "@9223372036854", "@9223372036854.775807",
	"@9223372036854.775808", "@9223372036855", "@-9223372036854.775808",
	"@-9223372036855", "@9223372036854775807", "@9223372036854775808",
	"@-9223372036854775808", "@18446744073709551617",
	"@99999999999999999999999999999999999999",
};
/* clang-format on */

static const struct {
	int64_t time_us;
	const char *text;
} printed[] = {
	{ 0, "1970-01-01T00:00:00.000000Z" },
	{ 1, "1970-01-01T00:00:00.000001Z" },
	{ -1, "1969-12-31T23:59:59.999999Z" },
	{ NOW_US, "2026-07-29T14:00:00.123456Z" },
	{ AT_14, "2026-07-29T14:00:00.000000Z" },
	{ 951782400 * SECOND_US, "2000-02-29T00:00:00.000000Z" },
	{ 951868799 * SECOND_US, "2000-02-29T23:59:59.000000Z" },
	{ -2203891200 * SECOND_US - 1, "1900-02-28T23:59:59.999999Z" },
	{ OLDEST_US, "0001-01-01T00:00:00.000000Z" },
	{ NEWEST_US, "9999-12-31T23:59:59.999999Z" },
	{ INT64_MAX, "294247-01-10T04:00:54.775807Z" },
	{ INT64_MIN, "-290308-12-21T19:59:05.224192Z" },
};

/* splitmix64: the same times in every run. */
static uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static void parse_expect(const char *text, int64_t expected_us)
{
	int64_t time_us = UNTOUCHED;
	int error = time_parse(text, NOW_US, &time_us);

	if (error || time_us != expected_us)
		fail_msg("\"%s\": got %d, %" PRId64 ", not %" PRId64, text, error,
			 time_us, expected_us);
}

static void test_accepted(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(accepted); i++)
		parse_expect(accepted[i].text, accepted[i].time_us);
}

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(refused); i++) {
		int64_t time_us = UNTOUCHED;
		int error = time_parse(refused[i], NOW_US, &time_us);

		if (error != -EINVAL || time_us != UNTOUCHED)
			fail_msg("\"%s\": got %d, %" PRId64, refused[i], error, time_us);
	}
}

/* Each copy ends where its allocation does, so that a sanitizer sees a step too far. */
static void test_beginnings(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(accepted); i++) {
		size_t length = strlen(accepted[i].text);

		for (size_t n = 0; n < length; n++) {
			char *text = strndup(accepted[i].text, n);
			int64_t time_us = UNTOUCHED;
			int error;

			assert_non_null(text);
			error = time_parse(text, NOW_US, &time_us);
			assert_true(error ? error == -EINVAL && time_us == UNTOUCHED
					  : time_us >= OLDEST_US && time_us <= NEWEST_US);
			free(text);
		}
	}
}

static void test_ago_of_any_now(void **state)
{
	int64_t time_us;

	(void)state;
	assert_int_equal(time_parse("-1s", INT64_MIN, &time_us), 0);
	assert_true(time_us == OLDEST_US);
	assert_int_equal(time_parse("-1s", OLDEST_US + SECOND_US + 1, &time_us), 0);
	assert_true(time_us == OLDEST_US + 1);
	assert_int_equal(time_parse("-106751991d", INT64_MAX, &time_us), 0);
	assert_true(time_us == 14454775807);
	assert_int_equal(time_parse("-1s", INT64_MAX, &time_us), -EINVAL);
}

static void test_printed(void **state)
{
	char text[TIME_TEXT_SIZE];

	(void)state;
	for (size_t i = 0; i < COUNT(printed); i++) {
		time_print(printed[i].time_us, text);
		assert_string_equal(text, printed[i].text);
	}
}

static void test_round_trip(void **state)
{
	uint64_t seed = 1;
	char text[TIME_TEXT_SIZE];

	(void)state;
	for (int i = 0; i < 200000; i++) {
		uint64_t range = (uint64_t)(NEWEST_US - OLDEST_US) + 1;
		int64_t time_us = OLDEST_US + (int64_t)(random_next(&seed) % range);

		time_print(time_us, text);
		parse_expect(text, time_us);
	}
}

static void test_every_day(void **state)
{
	char text[TIME_TEXT_SIZE];

	(void)state;
	for (int64_t time_us = OLDEST_US; time_us <= NEWEST_US; time_us += DAY_US) {
		time_print(time_us, text);
		text[strlen("YYYY-MM-DD")] = '\0';
		parse_expect(text, time_us);
	}
}

static void test_any_number(void **state)
{
	uint64_t seed = 2;
	char text[TIME_TEXT_SIZE], expected[TIME_TEXT_SIZE + 64];

	(void)state;
	for (int i = 0; i < 200000; i++) {
		int64_t time_us = (int64_t)random_next(&seed);
		int64_t us = (time_us % SECOND_US + SECOND_US) % SECOND_US;
		time_t seconds =
			(time_t)(time_us / SECOND_US - (time_us % SECOND_US < 0));
		struct tm tm;

		assert_non_null(gmtime_r(&seconds, &tm));
		snprintf(expected, sizeof(expected),
			 "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", tm.tm_year + 1900,
			 tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
			 (int)us);
		time_print(time_us, text);
		assert_string_equal(text, expected);
	}
}

static void test_zone_of_the_process(void **state)
{
	(void)state;
	assert_int_equal(setenv("TZ", "XXX-9:30", 1), 0);
	tzset();
	test_accepted(state);
	test_printed(state);
	assert_int_equal(unsetenv("TZ"), 0);
	tzset();
}

/* ---- what the tools really print -------------------------------------------------- */

#define LINE_SIZE 128

/* Prints lines `<seconds>[.<nanoseconds>] <text>`: one instant as a number and as the
 * tool spells it. Before 1970 the number is a floor and what to add to it. */
static const char spellings_script[] =
	"set -e\n"
	"file=$(mktemp)\n"
	"trap 'rm -f \"$file\"' EXIT\n"
	"export TZ\n"
	"for TZ in UTC0 CET-1CEST,M3.5.0,M10.5.0/3 EST5EDT,M3.2.0,M11.1.0 \\\n"
	"	NPT-5:45 NST3:30 '<+13>-13' '<-1130>11:30'; do\n"
	"	for at in 0 1785333600 1785333600.123456789 951782399.999999 -1.5 \\\n"
	"		1709251199.999999999 -2203891200 -62135510400.000001 \\\n"
	"		253402214400.5; do\n"
	"		seconds=$(date -d @$at +%s)\n"
	"		exact=$(date -d @$at +%s.%N)\n"
	"		echo \"$seconds $(date -d @$at -Is)\"\n"
	"		echo \"$exact $(date -d @$at -Ins)\"\n"
	"		echo \"$exact $(date -d @$at --rfc-3339=ns)\"\n"
	"		date -d @$at '+%s %Y%m%dT%H%M%S%z'\n"
	"	done\n"
	"	for at in 0 1785333600.000000001 1785333600.123456789 \\\n"
	"		951782399.999999; do\n"
	"		touch -d @$at \"$file\"\n"
	"		stat -c '%.9Y %y' \"$file\"\n"
	"		stat -c '%.9Y @%.9Y' \"$file\"\n"
	"	done\n"
	"done\n";

/* Prints lines `<second> <second> <text>`: the tool's now lies between. */
static const char now_script[] =
	"set -e\n"
	"for option in -Is -Ins --rfc-3339=ns --rfc-3339=seconds +@%s.%N; do\n"
	"	before=$(date +%s)\n"
	"	text=$(date $option)\n"
	"	echo \"$before $(date +%s) $text\"\n"
	"done\n";

static void tools_require(void)
{
	if (system("{ date -d @0 -Ins && date -d @0 --rfc-3339=ns && stat -c %.9Y / &&"
		   " mktemp -u; } >/dev/null 2>&1") != 0)
		skip();
}

/* The next line of a script, without its newline; false at the end. */
static bool line_read(FILE *pipe, char line[LINE_SIZE])
{
	if (!fgets(line, LINE_SIZE, pipe))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

/* The number at the beginning of a line, rounded up to the microsecond. */
static int64_t number_read(char *line, char **rest)
{
	int64_t time_us = strtoll(line, rest, 10) * SECOND_US;

	if (**rest == '.')
		time_us += (strtoll(*rest + 1, rest, 10) + 999) / 1000;
	assert_int_equal(**rest, ' ');
	++*rest;
	return time_us;
}

static void test_tools_spell_an_instant(void **state)
{
	char line[LINE_SIZE], *text;
	unsigned lines = 0;
	FILE *pipe;

	(void)state;
	tools_require();
	pipe = popen(spellings_script, "r");
	assert_non_null(pipe);
	for (; line_read(pipe, line); lines++) {
		int64_t expected_us = number_read(line, &text);

		parse_expect(text, expected_us);
	}
	assert_int_equal(pclose(pipe), 0);
	assert_int_equal(lines, 7 * (9 * 4 + 4 * 2));
}

static void test_tools_spell_now(void **state)
{
	char line[LINE_SIZE], *text;
	unsigned lines = 0;
	FILE *pipe;

	(void)state;
	tools_require();
	pipe = popen(now_script, "r");
	assert_non_null(pipe);
	for (; line_read(pipe, line); lines++) {
		int64_t before_us = number_read(line, &text);
		int64_t after_us = number_read(text, &text);
		int64_t time_us;

		assert_int_equal(time_parse(text, NOW_US, &time_us), 0);
		assert_true(time_us >= before_us && time_us <= after_us + SECOND_US);
	}
	assert_int_equal(pclose(pipe), 0);
	assert_int_equal(lines, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ .name = "what section 5 accepts means exactly this microsecond",
		  .test_func = test_accepted },
		{ .name = "all else is EINVAL and leaves the result alone",
		  .test_func = test_refused },
		{ .name = "a text cut short anywhere is read no further than its end",
		  .test_func = test_beginnings },
		{ .name = "ago is counted from any now and stops at the oldest time",
		  .test_func = test_ago_of_any_now },
		{ .name = "a time is printed in UTC with six digits",
		  .test_func = test_printed },
		{ .name = "what is printed is read back to the same time",
		  .test_func = test_round_trip },
		{ .name = "every day from 0001 to 9999 is where it belongs",
		  .test_func = test_every_day },
		{ .name = "any number fits and agrees with the C library's calendar",
		  .test_func = test_any_number },
		{ .name = "the zone of the process does not matter",
		  .test_func = test_zone_of_the_process },
		{ .name = "what date and stat print for an instant is that instant",
		  .test_func = test_tools_spell_an_instant },
		{ .name = "what date prints for now is now",
		  .test_func = test_tools_spell_now },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("time", tests, NULL, NULL);
}
