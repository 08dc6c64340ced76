/* SPDX-License-Identifier: MIT */
/*
 * time.c - points in time as text: what people and tools write, and what is printed.
 *
 * Not for: clocks, the durations of settings, the words `now`, `end` and `start`.
 *
 * 1. Pure: no locale, no TZ, no floating point. The calendar is the proleptic Gregorian.
 * 2. What time_parse() accepts lies in the years 0001 to 9999; so time_print() of it is
 *    a text that time_parse() reads back to the same time.
 * 3. Rounding is up, never to the nearest: created_at is whole microseconds, so
 *    created_at >= parsed says the same as created_at >= what was written.
 * 4. A format that matches only a beginning leaves a rest that no later step accepts.
 */
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND_US INT64_C(1000000)
#define MINUTE_US (60 * SECOND_US)
#define HOUR_US (60 * MINUTE_US)
#define DAY_US (24 * HOUR_US)
#define OLDEST_US (-719162 * DAY_US) /* 0001-01-01T00:00:00Z */
#define BEYOND_US (2932897 * DAY_US) /* 10000-01-01T00:00:00Z */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, FIELDS };

/* clang-format off */

/* In a format, a field's letter stands for one digit of it. */
static const char field_letters[] = "YMDhms";

static const struct {
	int min, max;
} field_limits[FIELDS] = {
	[YEAR] = { 1, 9999 }, [MONTH] = { 1, 12 },  [DAY] = { 1, 31 },
	[HOUR] = { 0, 23 },   [MINUTE] = { 0, 59 }, [SECOND] = { 0, 60 }, /* 60: leap */
};

/* Every other character of a format stands for itself, except these. */
static const struct {
	char mark;
	const char *accepts;
} marks[] = { { 'T', "Tt" }, { '_', "Tt " }, { 'Z', "Zz" }, { '+', "+-" } };

/* A longer format comes before the one that is its beginning. */
static const struct {
	const char *format;
	bool fraction, zone; /* what may follow */
} civil_formats[] = {
	{ "YYYY-MM-DD_hh:mm:ss", true, true },
	{ "YYYY-MM-DD_hh:mm", false, true },
	{ "YYYY-MM-DD", false, false },
	{ "YYYYMMDDThhmmss", true, true },
	{ "YYYYMMDDThhmm", false, true },
};

static const char *const zone_formats[] = { "Z", "+hh:mm", "+hhmm", "+hh" };

static const struct {
	char letter;
	int64_t us;
} ago_units[] = {
	{ 's', SECOND_US }, { 'm', MINUTE_US }, { 'h', HOUR_US }, { 'd', DAY_US },
};

/* clang-format on */

/* ---- the calendar --------------------------------------------------------------- */

#define ERA_YEARS 400
#define ERA_DAYS 146097
#define EPOCH_DAYS 719468 /* from 0000-03-01 to 1970-01-01 */

static int month_days(int year, int month)
{
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

	if (month == 2)
		return leap ? 29 : 28;
	return 30 + (month + month / 8) % 2; /* July and August both have 31 */
}

/*
 * Days since 1970-01-01. Counted in years that begin in March, so that the leap day is
 * the last of its year and the months before it repeat every five: 153 days.
 */
static int64_t civil_days(int year, int month, int day)
{
	int64_t y = month > 2 ? year : year - 1;
	int64_t m = month > 2 ? month - 3 : month + 9;
	int64_t before = 365 * y + y / 4 - y / 100 + y / 400;

	return before + (153 * m + 2) / 5 + day - 1 - EPOCH_DAYS;
}

/* The inverse of civil_days(), for years before 1 too. */
static void civil_date(int64_t days, int *year, unsigned *month, unsigned *day)
{
	int64_t z = days + EPOCH_DAYS;
	int64_t era = (z >= 0 ? z : z - (ERA_DAYS - 1)) / ERA_DAYS;
	int64_t d = z - era * ERA_DAYS;
	int64_t y = (d - d / 1460 + d / 36524 - d / 146096) / 365;
	int64_t m;

	d -= 365 * y + y / 4 - y / 100;
	m = (5 * d + 2) / 153;
	*day = (unsigned)(d - (153 * m + 2) / 5 + 1);
	*month = (unsigned)(m < 10 ? m + 3 : m - 9);
	*year = (int)(era * ERA_YEARS + y + (m >= 10));
}

/* ---- reading -------------------------------------------------------------------- */

static bool digit_is(char c)
{
	return c >= '0' && c <= '9';
}

static bool mark_accepts(char mark, char c)
{
	for (size_t i = 0; i < COUNT(marks); i++)
		if (marks[i].mark == mark)
			return c && strchr(marks[i].accepts, c);
	return c == mark;
}

/* Reads the fields that format names, zero for the others. Returns the rest of text, or
 * NULL if it does not begin as format says or a field is outside its limits. */
static const char *format_match(const char *format, const char *text, int value[FIELDS])
{
	memset(value, 0, FIELDS * sizeof(value[0]));
	for (; *format; format++, text++) {
		const char *letter = strchr(field_letters, *format);
		size_t f;

		if (!letter) {
			if (!mark_accepts(*format, *text))
				return NULL;
			continue;
		}
		if (!digit_is(*text))
			return NULL;
		f = (size_t)(letter - field_letters);
		value[f] = 10 * value[f] + (*text - '0');
		if (format[1] == *format)
			continue;
		if (value[f] < field_limits[f].min || value[f] > field_limits[f].max)
			return NULL;
	}
	return text;
}

/* Reads a whole number, held at INT64_MAX. Returns the rest, NULL if there is none. */
static const char *count_parse(const char *text, int64_t *count)
{
	int64_t n = 0;

	if (!digit_is(*text))
		return NULL;
	for (; digit_is(*text); text++)
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, *text - '0', &n))
			n = INT64_MAX;
	*count = n;
	return text;
}

/* Reads a fraction of a second, if there is one, rounded up or down; up may come to a
 * whole second. Returns the rest. */
static const char *fraction_parse(const char *text, bool up, int64_t *fraction_us)
{
	int64_t digit_us = SECOND_US / 10;
	bool beyond = false;

	*fraction_us = 0;
	if ((*text != '.' && *text != ',') || !digit_is(text[1]))
		return text;
	for (text++; digit_is(*text); text++, digit_us /= 10) {
		*fraction_us += digit_us * (*text - '0');
		if (digit_us == 0 && *text != '0')
			beyond = true;
	}
	*fraction_us += up && beyond;
	return text;
}

static int64_t clock_us(const int value[FIELDS])
{
	return ((value[HOUR] * 60 + value[MINUTE]) * 60 + value[SECOND]) * SECOND_US;
}

/* All of text is a zone, how far its clocks are ahead of UTC; none is UTC. */
static int zone_parse(const char *text, int64_t *ahead_us)
{
	const char *zone = *text == ' ' ? text + 1 : text;
	int value[FIELDS];

	if (!*text) {
		*ahead_us = 0;
		return 0;
	}
	for (size_t i = 0; i < COUNT(zone_formats); i++) {
		const char *rest = format_match(zone_formats[i], zone, value);

		if (rest && !*rest) {
			*ahead_us = *zone == '-' ? -clock_us(value) : clock_us(value);
			return 0;
		}
	}
	return -EINVAL;
}

/* 2026-07-29T14:00:00.123456+02:00 and its kin. */
static int civil_parse(const char *text, int64_t *time_us)
{
	int64_t fraction_us = 0, ahead_us = 0;
	const char *rest = NULL;
	int value[FIELDS];
	size_t i;

	for (i = 0; i < COUNT(civil_formats); i++) {
		rest = format_match(civil_formats[i].format, text, value);
		if (rest)
			break;
	}
	if (!rest || value[DAY] > month_days(value[YEAR], value[MONTH]))
		return -EINVAL;
	if (civil_formats[i].fraction)
		rest = fraction_parse(rest, true, &fraction_us);
	if (civil_formats[i].zone ? zone_parse(rest, &ahead_us) : *rest)
		return -EINVAL;
	*time_us = civil_days(value[YEAR], value[MONTH], value[DAY]) * DAY_US +
		   clock_us(value) + fraction_us - ahead_us;
	return 0;
}

/* What follows `@`: seconds since 1970, a minus being for the whole number. */
static int unix_parse(const char *text, int64_t *time_us)
{
	bool negative = *text == '-';
	int64_t seconds, fraction_us, us;

	text = count_parse(text + negative, &seconds);
	if (!text)
		return -EINVAL;
	/* Before 1970 the later time is the smaller number. */
	text = fraction_parse(text, !negative, &fraction_us);
	if (*text || __builtin_mul_overflow(seconds, SECOND_US, &us) ||
	    __builtin_add_overflow(us, fraction_us, &us))
		return -EINVAL;
	*time_us = negative ? -us : us;
	return 0;
}

/* What follows `-`: 15m, 2h, 7d. Longer ago than all calendars is the oldest time: who
 * asks for more than there is wants everything. */
static int ago_parse(const char *text, int64_t now_us, int64_t *time_us)
{
	int64_t count, ago_us, us;
	size_t i = 0;

	text = count_parse(text, &count);
	if (!text)
		return -EINVAL;
	while (i < COUNT(ago_units) && ago_units[i].letter != (*text | 0x20))
		i++;
	if (i == COUNT(ago_units) || text[1])
		return -EINVAL;
	if (__builtin_mul_overflow(count, ago_units[i].us, &ago_us) ||
	    __builtin_sub_overflow(now_us, ago_us, &us) || us < OLDEST_US)
		us = OLDEST_US;
	*time_us = us;
	return 0;
}

int time_parse(const char *text, int64_t now_us, int64_t *time_us)
{
	int64_t us;
	int error;

	if (*text == '@')
		error = unix_parse(text + 1, &us);
	else if (*text == '-')
		error = ago_parse(text + 1, now_us, &us);
	else
		error = civil_parse(text, &us);
	if (error)
		return error;
	if (us < OLDEST_US || us >= BEYOND_US)
		return -EINVAL;
	*time_us = us;
	return 0;
}

/* ---- printing ------------------------------------------------------------------- */

void time_print(int64_t time_us, char text[TIME_TEXT_SIZE])
{
	int64_t days = time_us / DAY_US;
	int64_t us = time_us % DAY_US;
	unsigned month, day;
	int year;

	if (us < 0) {
		us += DAY_US;
		days--;
	}
	civil_date(days, &year, &month, &day);
	/* % 100 changes nothing but lets the compiler see that the text fits. The widest
	 * is INT64_MIN's: -290308-12-21T19:59:05.224192Z. */
	snprintf(text, TIME_TEXT_SIZE, "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ", year,
		 month % 100, day % 100, (int)(us / HOUR_US), (int)(us / MINUTE_US % 60),
		 (int)(us / SECOND_US % 60), (int)(us % SECOND_US));
}
