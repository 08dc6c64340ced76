/* SPDX-License-Identifier: MIT */
/*
 * test_lease.c - sections 4, 9 and 12: leases and what is said of them, what comes back,
 * dead letters, waiting, and the settings that govern these.
 *
 * A read that a commit decides answers EALREADY; reads here go on until it has.
 */
#include "store_test.h"

#include <stdatomic.h>

#define LEASED READER_LEASED
#define FOLLOW READER_FOLLOW
#define SECOND_US INT64_C(1000000)

static const char *const abcd[] = { "a\n", "b\n", "c\n", "d\n" };

/* ---- what a reader gives ----------------------------------------------------------- */

/* What one read returns, or the name of its error. */
static const char *read_text(struct reader *reader, size_t size)
{
	static char text[4096];
	ssize_t got;

	assert_true(size < sizeof(text));
	wait_for((got = store_read(reader, text, size)) != -EALREADY);
	text[got > 0 ? got : 0] = '\0';
	return got >= 0		? text
	       : got == -EAGAIN ? "EAGAIN"
	       : got == -EBUSY	? "EBUSY"
	       : got == -ESTALE ? "ESTALE"
				: strerror((int)-got);
}

#define assert_gives(reader, expected) \
	assert_string_equal(read_text((reader), 4000), (expected))
#define assert_piece(reader, expected) \
	assert_string_equal(read_text((reader), strlen(expected)), (expected))

static struct cursor_info cursor_of(struct item *group, struct item *partition)
{
	struct cursor_info info;

	assert_int_equal(store_cursor_info(group, partition, &info), 0);
	return info;
}

static struct cursor_info cursor_own(void)
{
	return cursor_of(test.group, test.partition);
}

static int64_t committed_own(void)
{
	return committed(test.group, test.partition);
}

static size_t letters(void)
{
	struct letter_info info;
	uint64_t after = 0;
	size_t count = 0;

	while (store_letter_next(test.group, after, &info) == 0) {
		assert_true(info.id > after);
		after = info.id;
		free(info.partition);
		count++;
	}
	return count;
}

/* The letter of p at this offset; its partition's name is not for the caller. */
static struct letter_info letter_at(int64_t offset)
{
	struct letter_info info = { 0 };

	assert_int_equal(store_letter(test.group, "p", offset, &info), 0);
	assert_string_equal(info.partition, "p");
	free(info.partition);
	info.partition = NULL;
	return info;
}

/* Its lease ends now, so that another may take it. */
static void overdue(struct reader *reader, struct item *partition)
{
	struct reader *other = opened_as(test.group, partition, FOLLOW);

	assert_false(store_readable(other, NULL, NULL));
	assert_int_equal(store_extend(reader, 0), 0);
	wait_for(store_readable(other, NULL, NULL));
	closed(other);
	assert_true(cursor_of(test.group, partition).leased);
	assert_int_equal(cursor_of(test.group, partition).lease_us, 0);
}

static void again(void **state)
{
	teardown(state);
	assert_int_equal(setup(state), 0);
}

/* ---- every verb in every state ----------------------------------------------------- */

enum lease_state { FREE, BEGUN, HELD, OVERDUE, TAKEN, SOUGHT, LEASE_STATES };

/* A reader of "a b c d" in batches of three whose lease is in this state. */
static struct reader *reader_in(enum lease_state lease, struct reader **other)
{
	struct reader *reader = opened_as(test.group, test.partition, LEASED);

	assert_int_equal(set(test.group, SETTING_BATCH, "3"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\nd\n"), 0);
	*other = NULL;
	if (lease == BEGUN)
		assert_piece(reader, "a");
	if (lease >= HELD)
		assert_gives(reader, "a\nb\nc\n");
	if (lease == OVERDUE || lease == TAKEN)
		overdue(reader, test.partition);
	if (lease == TAKEN) {
		*other = opened_as(test.group, NULL, LEASED);
		assert_gives(*other, "a\n");
	}
	if (lease == SOUGHT)
		assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_START, 0),
				 0);
	return reader;
}

static void test_verbs(void **state)
{
	static const struct {
		enum ack_verb verb;
		int offset;
		int begun, held;     /* the error; free: EINVAL, lost: ESTALE */
		int passed;	     /* committed after it was held */
		unsigned letters;    /* likewise */
		unsigned attempts;   /* of the message that is next then */
		const char *next[2]; /* read on after it was begun, held */
	} cases[] = {
		{ ACK, 0, -EINVAL, 0, 2, 0, 0, { "\nb\nc\n", "d\n" } },
		{ ACK_TO, -1, 0, 0, -1, 0, 1, { "\nb\nc\n", "" } },
		{ ACK_TO, 0, -ERANGE, 0, 0, 0, 1, { "\nb\nc\n", "" } },
		{ ACK_TO, 2, -ERANGE, 0, 2, 0, 0, { "\nb\nc\n", "d\n" } },
		{ ACK_TO, 3, -ERANGE, -ERANGE, -1, 0, 1, { "\nb\nc\n", "" } },
		{ ACK_RETRY, 0, 0, 0, -1, 0, 0, { "\n", "a\nb\nc\n" } },
		{ ACK_FAIL, 0, 0, 0, -1, 0, 1, { "\n", "a\n" } },
		{ ACK_DLQ, 0, 0, 0, 0, 1, 1, { "\nb\nc\n", "" } },
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		for (int lease = FREE; lease < LEASE_STATES; lease++) {
			bool held = lease == HELD || lease == OVERDUE;
			bool lost = lease == TAKEN || lease == SOUGHT;
			int expected = lost	       ? -ESTALE
				       : held	       ? cases[i].held
				       : lease == FREE ? -EINVAL
						       : cases[i].begun;
			struct reader *other, *reader = reader_in(lease, &other);
			int error = ack(reader, cases[i].verb, cases[i].offset);
			if (error != expected)
				fail_msg("verb %zu in state %d: %d, not %d", i, lease,
					 error, expected);
			assert_int_equal(refused_why[0] != '\0', error != 0);
			if (held) {
				assert_int_equal(committed_own(), cases[i].passed);
				assert_int_equal(letters(), cases[i].letters);
				assert_int_equal(cursor_own().attempts,
						 cases[i].attempts);
				assert_gives(reader, cases[i].next[1]);
			} else if (lease == BEGUN) {
				assert_int_equal(letters(), cases[i].letters);
				assert_gives(reader, cases[i].next[0]);
			} else {
				assert_int_equal(committed_own(), -1);
				assert_int_equal(letters(), 0);
			}
			if (lease == TAKEN) {
				assert_gives(reader, "");
				assert_int_equal(ack(other, ACK, 0), 0);
				assert_int_equal(committed_own(), 0);
			} else if (lease == SOUGHT) {
				assert_gives(reader, "a\nb\nc\n");
			}
			again(state);
		}
}

static void test_extend(void **state)
{
	static const int errors[LEASE_STATES] = { -EINVAL, 0, 0, 0, -ESTALE, -ESTALE };

	for (int lease = FREE; lease < LEASE_STATES; lease++) {
		struct reader *other, *reader = reader_in(lease, &other);
		struct cursor_info info;
		assert_int_equal(store_extend(reader, 1000), errors[lease]);
		info = cursor_own();
		if (errors[lease] == 0) {
			assert_true(info.lease_us > 990 * SECOND_US);
			assert_true(info.lease_us <= 1000 * SECOND_US);
			assert_gives(opened(test.group, NULL), "");
		}
		again(state);
	}
}

static void test_unacked_stays(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED | FOLLOW);

	(void)state;
	assert_int_equal(set(test.group, SETTING_BATCH, "4"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\nd\ne\n"), 0);
	assert_piece(reader, "a\nb\n");
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_int_equal(committed_own(), 1);
	assert_int_equal(ack(reader, ACK, 0), -EINVAL); /* nothing since */
	assert_gives(reader, "c\nd\n");
	assert_gives(reader, "EBUSY");
	assert_int_equal(ack(reader, ACK_TO, 2), 0);
	assert_gives(reader, "EBUSY");
	assert_int_equal(ack(reader, ACK_DLQ, 0), 0);
	assert_int_equal(committed_own(), 3);
	assert_int_equal(letter_at(3).attempts, 1);
	assert_gives(reader, "e\n");
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_gives(reader, "EAGAIN");
}

static void test_acks_in_one_batch(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED);
	struct answer first, second, third;

	(void)state;
	assert_int_equal(set(test.group, SETTING_BATCH, "4"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\nd\ne\n"), 0);
	assert_gives(reader, "a\nb\nc\nd\n");
	hold_begin();
	store_ack(reader, ACK_TO, 2, NULL, answer_done, answer_start(&first));
	store_ack(reader, ACK_TO, 0, NULL, answer_done, answer_start(&second));
	store_ack(reader, ACK_DLQ, 0, NULL, answer_done, answer_start(&third));
	hold_end();
	assert_int_equal(answer_wait(&first), 0);
	assert_int_equal(answer_wait(&second), 0);
	assert_int_equal(answer_wait(&third), 0);
	/* it was said of the head that was known then, and that is acked */
	assert_int_equal(letters(), 0);
	assert_int_equal(committed_own(), 2);
	reopen();
	assert_int_equal(committed_own(), 2);
	assert_pop(opened(test.group, NULL), "d\n");
}

/* ---- leases that end --------------------------------------------------------------- */

static void test_holder_goes_on(void **state)
{
	struct reader *reader = opened_as(test.group, test.partition, LEASED);

	(void)state;
	assert_int_equal(set(test.group, SETTING_BATCH, "2"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\n"), 0);
	assert_piece(reader, "a\n");
	overdue(reader, test.partition);
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_gives(reader, "b\n");
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_int_equal(committed_own(), 1);
	assert_gives(reader, "c\n");
	assert_int_equal(cursor_own().attempts, 1);
}

/* Whatever a reader that has lost its lease does by reading, it acks nothing. */
static void test_lost_by_reading(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, FOLLOW), *other;

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_gives(reader, "a\nb\n");
	overdue(reader, test.partition);
	other = opened_as(test.group, NULL, LEASED);
	assert_gives(other, "a\n");
	assert_gives(reader, "EAGAIN");
	assert_int_equal(committed_own(), -1);
	assert_int_equal(ack(other, ACK, 0), 0);
	closed(other);
	other = opened(test.group, NULL);
	assert_piece(other, "b");
	overdue(other, test.partition);
	assert_gives(reader, "b\n"); /* now it takes the other's */
	assert_piece(other, "\n");
	assert_int_equal(committed_own(), 0);
	assert_gives(reader, "EAGAIN");
	assert_int_equal(committed_own(), 1);
}

static void woken(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

static int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * SECOND_US + now.tv_nsec / 1000;
}

static void wait_woken(struct reader *reader)
{
	atomic_int calls = 0;

	if (store_wait(reader, woken, &calls) == 0)
		wait_for(atomic_load(&calls) == 1);
}

static void test_lease_seconds(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED);
	struct reader *other = opened_as(test.group, NULL, LEASED | FOLLOW);
	int64_t begun_us;

	(void)state;
	assert_int_equal(set(test.group, SETTING_LEASE_SECONDS, "1"), 0);
	assert_int_equal(push(test.partition, "a\n"), 0);
	begun_us = now_us();
	assert_gives(reader, "a\n");
	assert_gives(other, "EAGAIN");
	wait_woken(other);
	assert_true(now_us() - begun_us >= SECOND_US);
	assert_gives(other, "a\n");
	assert_int_equal(cursor_own().attempts, 2);
	assert_int_equal(ack(reader, ACK, 0), -ESTALE);
	assert_int_equal(ack(other, ACK, 0), 0);
	assert_int_equal(committed_own(), 0);
	/* 0: as long as it is open */
	assert_int_equal(set(test.group, SETTING_LEASE_SECONDS, "0"), 0);
	assert_int_equal(push(test.partition, "b\n"), 0);
	assert_gives(reader, "b\n");
	assert_true(cursor_own().lease_us == INT64_MAX);
}

static void test_removed_under_lease(void **state)
{
	static const unsigned flags[] = { LEASED, LEASED | FOLLOW };

	for (size_t i = 0; i < COUNT(flags); i++)
		for (int verb = ACK; verb <= ACK_DLQ + 1; verb++) {
			struct reader *reader = opened_as(test.group, NULL, flags[i]);
			assert_int_equal(push(test.partition, "a\n"), 0);
			assert_int_equal(push(test.partition, "b\n"), 0);
			assert_gives(reader, "a\n");
			assert_int_equal(segment_drop(test.partition, 0), 0);
			if (verb <= ACK_DLQ) /* else it just reads on */
				assert_int_equal(ack(reader, (enum ack_verb)verb, 0), 0);
			assert_int_equal(committed_own(), 0);
			assert_int_equal(letters(), 0);
			assert_gives(reader, "b\n");
			assert_int_equal(cursor_own().attempts, 1);
			assert_int_equal(cursor_own().failures, 0);
			assert_int_equal(ack(reader, ACK, 0), 0);
			assert_int_equal(committed_own(), 1);
			again(state);
		}
}

static void test_removed_within_batch(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED);

	(void)state;
	assert_int_equal(set(test.group, SETTING_BATCH, "4"), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(push(test.partition, abcd[i]), 0);
	assert_piece(reader, "a\n");
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(segment_drop(test.partition, 1), 0);
	assert_piece(reader, "c\n");
	assert_int_equal(ack(reader, ACK_TO, 0), 0);
	assert_int_equal(committed_own(), 1);
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_int_equal(committed_own(), 2);
	assert_gives(reader, "d\n");
}

/* ---- what comes back --------------------------------------------------------------- */

static void test_back_alone(void **state)
{
	static const unsigned flags[] = { 0, FOLLOW, LEASED, LEASED | FOLLOW };

	for (size_t i = 0; i < COUNT(flags); i++) {
		struct reader *reader = opened_as(test.group, NULL, LEASED);
		assert_int_equal(set(test.group, SETTING_BATCH, "3"), 0);
		assert_int_equal(push(test.partition, "a\nb\nc\nd\ne\n"), 0);
		assert_gives(reader, "a\nb\nc\n");
		closed(reader);
		reader = opened_as(test.group, NULL, flags[i]);
		for (int k = 0; k < 3; k++) {
			assert_gives(reader, abcd[k]);
			assert_int_equal(cursor_own().attempts, flags[i] ? 2
								: k < 2	 ? 1
									 : 0);
			if (!(flags[i] & FOLLOW))
				assert_gives(reader, "");
			if (flags[i] & LEASED)
				assert_int_equal(ack(reader, ACK, 0), 0);
		}
		assert_gives(reader, "d\ne\n");
		again(state);
	}
}

static void test_back_after_fail(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED);

	(void)state;
	assert_int_equal(set(test.group, SETTING_BATCH, "3"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\nd\n"), 0);
	assert_gives(reader, "a\nb\nc\n");
	assert_int_equal(ack(reader, ACK_TO, 0), 0);
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_int_equal(cursor_own().failures, 1);
	assert_gives(reader, "b\n");
	assert_gives(reader, "");
	/* retry hands back what came back as what came back */
	assert_int_equal(ack(reader, ACK_RETRY, 0), 0);
	assert_gives(reader, "b\n");
	assert_int_equal(cursor_own().attempts, 2);
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_gives(reader, "c\n");
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_gives(reader, "d\n");
}

static void test_counts_last(void **state)
{
	(void)state;
	assert_int_equal(set(test.group, SETTING_BATCH, "2"), 0);
	assert_int_equal(set(test.group, SETTING_MAX_DELIVERIES, "2"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\nd\n"), 0);
	assert_gives(opened_as(test.group, NULL, LEASED), "a\nb\n");
	reopen();
	assert_int_equal(cursor_own().attempts, 1);
	assert_gives(opened_as(test.group, NULL, LEASED), "a\n");
	assert_int_equal(ack(test.readers[0], ACK_FAIL, 0), 0);
	reopen();
	assert_int_equal(cursor_own().attempts, 2);
	assert_int_equal(cursor_own().failures, 1);
	assert_gives(opened_as(test.group, NULL, LEASED), "b\n");
	assert_int_equal(letter_at(0).attempts, 2);
	assert_int_equal(cursor_own().attempts, 2);
	assert_int_equal(cursor_own().failures, 0);
	assert_int_equal(ack(test.readers[0], ACK, 0), 0);
	assert_gives(test.readers[0], "c\nd\n");
	assert_int_equal(letters(), 1);
}

static void test_retry_uncounted(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED);

	(void)state;
	assert_int_equal(set(test.group, SETTING_BATCH, "2"), 0);
	assert_int_equal(set(test.group, SETTING_MAX_DELIVERIES, "2"), 0);
	assert_int_equal(set(test.group, SETTING_RETRY_LIMIT, "0"), 0);
	assert_int_equal(set(test.group, SETTING_RETRY_DELAY_SECONDS, "7d"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\n"), 0);
	for (int i = 0; i < 10; i++) {
		assert_gives(reader, "a\nb\n"); /* also not late */
		assert_int_equal(cursor_own().attempts, 1);
		assert_int_equal(ack(reader, ACK_RETRY, 0), 0);
		assert_int_equal(cursor_own().attempts, 0);
		assert_int_equal(ack(reader, ACK_RETRY, 0), -EINVAL);
	}
	assert_gives(reader, "a\nb\n");
	assert_int_equal(ack(reader, ACK_TO, 0), 0);
	assert_int_equal(ack(reader, ACK_RETRY, 0), 0);
	assert_gives(reader, "b\nc\n");
	assert_int_equal(letters(), 0);
}

static void test_fail_charges(void **state)
{
	struct reader *reader;

	(void)state;
	assert_int_equal(set(test.group, SETTING_RETRY_LIMIT, "2"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\n"), 0);
	for (unsigned i = 1; i <= 2; i++) {
		reader = opened_as(test.group, NULL, LEASED);
		assert_gives(reader, "a\n");
		assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
		assert_int_equal(cursor_own().failures, i);
		assert_int_equal(cursor_own().attempts, i);
		assert_false(cursor_own().leased);
		reopen();
		assert_int_equal(cursor_own().failures, i);
	}
	reader = opened_as(test.group, NULL, LEASED);
	assert_gives(reader, "a\n");
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_string_equal(letter_at(0).error, "why not");
	assert_int_equal(letter_at(0).attempts, 3);
	assert_int_equal(committed_own(), 0);
	assert_int_equal(cursor_own().failures, 0);
	/* the charge ends where the cursor passes */
	assert_gives(reader, "b\n");
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_gives(reader, "b\n");
	assert_int_equal(cursor_own().failures, 1);
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_int_equal(cursor_own().failures, 0);
	/* or a seek has been */
	assert_gives(reader, "c\n");
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_OFFSET, 1), 0);
	assert_int_equal(cursor_own().failures, 0);
	assert_int_equal(cursor_own().attempts, 0);
	/* none is allowed */
	assert_int_equal(set(test.group, SETTING_RETRY_LIMIT, "0"), 0);
	assert_gives(reader, "c\n");
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_int_equal(letter_at(2).attempts, 1);
	assert_int_equal(letters(), 2);
	assert_int_equal(cursor_own().counts.dead_lettered, 2);
}

static void test_max_deliveries(void **state)
{
	static const unsigned flags[] = { 0, FOLLOW, LEASED, LEASED | FOLLOW };

	for (size_t i = 0; i < COUNT(flags); i++)
		for (unsigned most = 1; most <= 3; most++) {
			char text[16], expected[64];
			snprintf(text, sizeof(text), "%u", most);
			snprintf(expected, sizeof(expected),
				 "delivered %u times without an ack", most);
			assert_int_equal(set(test.group, SETTING_MAX_DELIVERIES, text),
					 0);
			assert_int_equal(push(test.partition, "abc\nd\n"), 0);
			for (unsigned k = 1; k <= most; k++) {
				struct reader *reader =
					opened_as(test.group, NULL, flags[i]);
				assert_piece(reader, "a");
				assert_int_equal(cursor_own().attempts, k);
				closed(reader);
				assert_int_equal(letters(), 0);
			}
			assert_gives(opened_as(test.group, NULL, flags[i]), "d\n");
			assert_int_equal(letter_at(0).attempts, most);
			assert_string_equal(letter_at(0).error, expected);
			assert_int_equal(letters(), 1);
			assert_int_equal(cursor_own().counts.dead_lettered, 1);
			again(state);
		}
}

/* Each of a batch is counted by itself, and with 1 there is no batch. */
static void test_max_deliveries_of_batch(void **state)
{
	struct reader *reader;

	assert_int_equal(set(test.group, SETTING_BATCH, "3"), 0);
	assert_int_equal(set(test.group, SETTING_MAX_DELIVERIES, "2"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\nd\n"), 0);
	reader = opened_as(test.group, NULL, LEASED);
	assert_gives(reader, "a\nb\nc\n");
	closed(reader);
	for (int i = 0; i < 3; i++) {
		reader = opened_as(test.group, NULL, LEASED);
		assert_gives(reader, abcd[i]);
		assert_int_equal(letters(), i);
		closed(reader);
	}
	assert_gives(opened_as(test.group, NULL, LEASED), "d\n");
	assert_int_equal(letters(), 3);
	again(state);
	assert_int_equal(set(test.group, SETTING_BATCH, "3"), 0);
	assert_int_equal(set(test.group, SETTING_MAX_DELIVERIES, "1"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\n"), 0);
	reader = opened_as(test.group, NULL, LEASED);
	assert_gives(reader, "a\n");
	assert_gives(reader, "");
	closed(reader);
	assert_gives(opened_as(test.group, NULL, FOLLOW), "b\n");
	assert_int_equal(letters(), 1);
}

static void test_retry_delay(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED | FOLLOW);

	(void)state;
	assert_int_equal(set(test.group, SETTING_RETRY_DELAY_SECONDS, "1:2"), 0);
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	for (int seconds = 1; seconds <= 2; seconds++) { /* doubled */
		int64_t begun_us;
		assert_gives(reader, "a\n");
		begun_us = now_us();
		assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
		assert_gives(reader, "EAGAIN");
		assert_false(store_readable(reader, NULL, NULL));
		wait_woken(reader);
		assert_true(now_us() - begun_us >= seconds * SECOND_US);
	}
	/* a seek ends the pause; what nobody gave back has none */
	assert_int_equal(set(test.group, SETTING_RETRY_DELAY_SECONDS, "7d"), 0);
	assert_gives(reader, "a\n");
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_gives(reader, "EAGAIN");
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_gives(reader, "a\n");
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_gives(reader, "b\n");
	closed(reader); /* given back by closing: a pause as well */
	assert_gives(opened_as(test.group, NULL, FOLLOW), "EAGAIN");
}

/* ---- batch and prefetch ------------------------------------------------------------ */

static void test_batch(void **state)
{
	struct item *p2 = made(test.queue, ITEM_PARTITION, "p2");
	struct reader *reader = opened(test.group, NULL);

	(void)state;
	assert_int_equal(set(test.queue, SETTING_BATCH, "3"), 0);
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_int_equal(push(test.partition, "c\nd\n"), 0);
	assert_int_equal(push(p2, "x\ny\n"), 0);
	assert_pop(reader, "a\nb\nc\n"); /* of several segments, of one partition */
	assert_int_equal(committed_own(), 2);
	assert_pop(reader, "x\ny\n");
	assert_piece(reader, "d");
	assert_int_equal(push(test.partition, "e\nf\ng\n"), 0);
	assert_piece(reader, "\n");
	assert_gives(reader, "e\nf\n"); /* in however many reads */
	assert_gives(reader, "");
	assert_pop(reader, "g\n");
	/* leased: what was there at the claim */
	reader = opened_as(test.group, NULL, LEASED);
	assert_int_equal(push(p2, "x\n"), 0);
	assert_gives(reader, "x\n");
	assert_int_equal(push(p2, "y\n"), 0);
	assert_gives(reader, "");
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_gives(reader, "y\n");
}

static void test_prefetch(void **state)
{
	struct item *p2 = made(test.queue, ITEM_PARTITION, "p2");
	struct item *empty = made(test.queue, ITEM_PARTITION, "empty");
	struct reader *reader = opened_as(test.group, NULL, FOLLOW);
	struct reader *other = opened_as(test.group, empty, FOLLOW);
	atomic_int calls = 0;

	(void)state;
	assert_int_equal(push(test.partition, "a\nb\nc\n"), 0);
	assert_int_equal(push(p2, "x\ny\n"), 0);
	assert_gives(reader, "a\nb\nc\nx\ny\n"); /* several, to fill the read */
	assert_int_equal(committed_own(), -1);
	assert_gives(reader, "EAGAIN");
	assert_int_equal(committed_own(), 2);
	assert_int_equal(committed(test.group, p2), 1);
	/* so many at most before they are acked */
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_int_equal(set(test.group, SETTING_PREFETCH, "2"), 0);
	assert_gives(reader, "a\nb\n");
	assert_gives(reader, "x\ny\n");
	assert_gives(reader, "c\n");
	assert_int_equal(set(test.group, SETTING_PREFETCH, "4"), 0);
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_gives(reader, "a\nb\nc\nx\n");
	assert_gives(reader, "y\n");
	/* one partition while somebody waits */
	assert_int_equal(set(test.group, SETTING_PREFETCH, "default"), 0);
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_int_equal(store_wait(other, woken, &calls), 0);
	assert_gives(reader, "a\nb\nc\n");
	assert_gives(reader, "x\ny\n");
	assert_true(store_wait_cancel(other));
	assert_int_equal(atomic_load(&calls), 0);
	/* what came back is alone, also beside another partition */
	closed(reader);
	reader = opened_as(test.group, NULL, FOLLOW);
	assert_int_equal(seek_to(test.group, test.partition, SEEK_TO_START, 0), 0);
	assert_gives(reader, "x\n");
	assert_gives(reader, "a\nb\nc\n");
	assert_gives(reader, "y\n");
}

static void test_members_share(void **state)
{
	struct item *p2 = made(test.queue, ITEM_PARTITION, "p2");
	struct reader *reader = opened_as(test.group, NULL, FOLLOW);
	struct reader *other = opened_as(test.group, test.partition, FOLLOW);
	atomic_int calls = 0;

	(void)state;
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_gives(reader, "a\n");
	assert_int_equal(push(p2, "x\n"), 0);
	assert_int_equal(push(test.partition, "b\n"), 0);
	assert_int_equal(store_wait(other, woken, &calls), 0);
	assert_gives(reader, "x\n"); /* it acks a, and b is for the one that waits */
	wait_for(atomic_load(&calls) == 1);
	assert_gives(other, "b\n");
}

/* ---- what happens in one batch, or while one is committed -------------------------- */

static void test_seek_and_dead(void **state)
{
	for (int dead_first = 0; dead_first < 2; dead_first++) {
		struct seek seek = { .kind = SEEK_TO_START };
		struct answer answer;
		struct reader *reader;
		char buffer[64];
		assert_int_equal(set(test.group, SETTING_MAX_DELIVERIES, "1"), 0);
		assert_int_equal(push(test.partition, "a\nb\n"), 0);
		reader = opened_as(test.group, NULL, LEASED);
		assert_gives(reader, "a\n");
		closed(reader);
		reader = opened_as(test.group, NULL, FOLLOW);
		hold_begin();
		if (dead_first)
			assert_int_equal(store_read(reader, buffer, 64), -EALREADY);
		store_seek(test.group, NULL, &seek, answer_done, answer_start(&answer));
		assert_int_equal(store_read(reader, buffer, 64), -EALREADY);
		hold_end();
		assert_int_equal(answer_wait(&answer), 0);
		assert_int_equal(committed_own(), -1);
		assert_int_equal(letters(), dead_first);
		/* the original of a dead letter, too */
		assert_gives(reader, "a\n");
		assert_gives(reader, "b\n");
		assert_int_equal(letters(), dead_first);
		again(state);
	}
}

/* The holder of an overdue lease says ack while another finds its message delivered too
 * often: whoever was first has it. */
static void test_ack_and_dead(void **state)
{
	for (int dead_first = 0; dead_first < 2; dead_first++) {
		struct reader *holder = opened_as(test.group, NULL, LEASED);
		struct reader *other = opened(test.group, NULL);
		struct answer answer;
		char buffer[64];
		assert_int_equal(set(test.group, SETTING_MAX_DELIVERIES, "1"), 0);
		assert_int_equal(push(test.partition, "a\nb\n"), 0);
		assert_gives(holder, "a\n");
		overdue(holder, test.partition);
		hold_begin();
		if (dead_first)
			assert_int_equal(store_read(other, buffer, 64), -EALREADY);
		store_ack(holder, ACK_TO, 0, NULL, answer_done, answer_start(&answer));
		assert_int_equal(store_read(other, buffer, 64), -EALREADY);
		hold_end();
		answer_wait(&answer);
		assert_int_equal(answer.error != 0 && answer.error != -ESTALE, 0);
		assert_int_equal(committed_own(), 0);
		assert_int_equal(letters(), dead_first);
		assert_pop(other, "b\n");
		assert_pop(other, "");
		assert_int_equal(letters(), dead_first);
		again(state);
	}
}

static void test_dead_and_ack(void **state)
{
	struct reader *holder = opened_as(test.group, NULL, LEASED);
	struct reader *other = opened(test.group, NULL);

	(void)state;
	assert_int_equal(set(test.group, SETTING_MAX_DELIVERIES, "1"), 0);
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_gives(holder, "a\n");
	overdue(holder, test.partition);
	assert_gives(other, "b\n");
	assert_int_equal(letters(), 1);
	for (int verb = ACK; verb <= ACK_DLQ; verb++)
		assert_int_equal(ack(holder, (enum ack_verb)verb, 0), -ESTALE);
	assert_int_equal(committed_own(), 1);
	assert_int_equal(letters(), 1);
}

/* What was said of a lease is written, and then a seek of the same batch is. */
static void test_seek_and_ack(void **state)
{
	for (int verb = ACK; verb <= ACK_DLQ; verb++)
		for (int seek_first = 0; seek_first < 2; seek_first++) {
			struct reader *reader = opened_as(test.group, NULL, LEASED);
			struct seek seek = { .kind = SEEK_TO_START };
			struct answer first, second;
			assert_int_equal(push(test.partition, "a\nb\n"), 0);
			assert_gives(reader, "a\n");
			hold_begin();
			if (seek_first)
				store_seek(test.group, NULL, &seek, answer_done,
					   answer_start(&first));
			store_ack(reader, (enum ack_verb)verb, 0, NULL, answer_done,
				  answer_start(&second));
			if (!seek_first)
				store_seek(test.group, NULL, &seek, answer_done,
					   answer_start(&first));
			hold_end();
			assert_int_equal(answer_wait(&first), 0);
			assert_int_equal(answer_wait(&second), seek_first ? -ESTALE : 0);
			assert_int_equal(committed_own(), -1);
			assert_int_equal(cursor_own().attempts, 0);
			assert_int_equal(cursor_own().failures, 0);
			assert_int_equal(letters(), verb == ACK_DLQ && !seek_first);
			assert_gives(reader, "a\n");
			again(state);
		}
}

static void test_poll_while_recorded(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED | FOLLOW);
	atomic_int calls = 0, watched = 0;
	char buffer[64];

	(void)state;
	assert_false(store_readable(reader, woken, &watched));
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(atomic_load(&watched), 1);
	hold_begin();
	assert_int_equal(store_read(reader, buffer, 64), -EALREADY);
	assert_true(store_readable(reader, woken, &watched));
	assert_int_equal(store_wait(reader, woken, &calls), 0);
	assert_int_equal(atomic_load(&calls), 0);
	hold_end();
	wait_for(atomic_load(&calls) == 1);
	assert_true(store_readable(reader, woken, &watched));
	assert_int_equal(atomic_load(&watched), 1);
	assert_gives(reader, "a\n");
	assert_int_equal(cursor_own().attempts, 1);
}

static void test_close_while_recorded(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED | FOLLOW);
	char buffer[64];

	(void)state;
	assert_int_equal(set(test.group, SETTING_MAX_DELIVERIES, "1"), 0);
	assert_int_equal(push(test.partition, "a\n"), 0);
	hold_begin();
	assert_int_equal(store_read(reader, buffer, 64), -EALREADY);
	closed(reader);
	hold_end();
	/* it reached nobody */
	assert_int_equal(cursor_own().attempts, 0);
	assert_pop(opened(test.group, NULL), "a\n");
	assert_int_equal(letters(), 0);
}

static void test_drop_before_record(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED | FOLLOW);
	struct answer answer;
	char buffer[64];

	(void)state;
	assert_int_equal(push(test.partition, "a\n"), 0);
	hold_begin();
	store_drop(test.group, answer_done, answer_start(&answer));
	assert_int_equal(store_read(reader, buffer, 64), -EALREADY);
	closed(reader);
	hold_end();
	assert_int_equal(answer_wait(&answer), -EBUSY);
	assert_pop(opened(test.group, NULL), "a\n");
	closed(test.readers[0]);
	assert_int_equal(drop(test.group), 0);
}

static void test_drop_meets_push_by_name(void **state)
{
	struct answer dropped, pushed;
	struct item *partition;

	(void)state;
	assert_int_equal(push_default(test.queue, "x\n"), 0);
	partition = found(test.queue, ITEM_PARTITION, "default");
	assert_int_equal(segment_drop(partition, 0), 0);
	hold_begin();
	store_drop(partition, answer_done, answer_start(&dropped));
	push_start(test.queue, NULL, "y\n", &pushed);
	hold_end();
	assert_int_equal(answer_wait(&dropped), -ENOTEMPTY);
	assert_int_equal(answer_wait(&pushed), 0);
	assert_string_equal(log_text(found(test.queue, ITEM_PARTITION, "default")),
			    "y\n");
	assert_int_equal(info_of(partition).last_offset, 1);
}

static void test_many_born(void **state)
{
	enum { MANY = 20000 };
	char *text = malloc((size_t)MANY * 8), *at = text, name[16], line[16];

	(void)state;
	assert_non_null(text);
	for (int i = 0; i < MANY; i++)
		at += snprintf(at, 8, "%d\n", i);
	assert_int_equal(set(test.queue, SETTING_SPREAD, "20000"), 0);
	assert_int_equal(push_default(test.queue, text), 0);
	free(text);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(children(test.queue, ITEM_PARTITION), MANY + 1);
		for (int i = round; i < MANY; i += 2500) {
			struct item *partition;
			snprintf(name, sizeof(name), "%d", i);
			snprintf(line, sizeof(line), "%d\n", i);
			partition = found(test.queue, ITEM_PARTITION, name);
			assert_string_equal(log_text(partition), line);
			assert_pop(opened(test.group, partition), line);
		}
		reopen();
	}
}

/* ---- waiting ----------------------------------------------------------------------- */

static void test_woken_one_each(void **state)
{
	struct item *p2 = made(test.queue, ITEM_PARTITION, "p2");
	atomic_int calls[3] = { 0, 0, 0 };
	struct reader *readers[3];
	struct group_stats stats;

	(void)state;
	for (int i = 0; i < 3; i++) {
		readers[i] = opened_as(test.group, NULL, LEASED | FOLLOW);
		assert_int_equal(store_wait(readers[i], woken, &calls[i]), 0);
	}
	assert_int_equal(push(test.partition, "a\n"), 0);
	wait_for(atomic_load(&calls[0]) == 1); /* first come, first served */
	assert_false(store_wait_cancel(readers[0]));
	assert_int_equal(push(test.partition, "b\n"), 0); /* the same partition */
	assert_gives(readers[0], "a\n");
	assert_int_equal(atomic_load(&calls[1]), 0);
	assert_int_equal(push(p2, "x\n"), 0);
	wait_for(atomic_load(&calls[1]) == 1);
	assert_gives(readers[1], "x\n");
	assert_int_equal(store_group_stats(test.group, &stats), 0);
	assert_int_equal(stats.readers, 3);
	assert_int_equal(stats.waiting, 1);
	assert_int_equal(atomic_load(&calls[2]), 0);
	/* what is left in p once it is acked */
	assert_int_equal(ack(readers[0], ACK, 0), 0);
	wait_for(atomic_load(&calls[2]) == 1);
	assert_gives(readers[2], "b\n");
	assert_int_equal(atomic_load(&calls[0]), 1);
	assert_int_equal(atomic_load(&calls[1]), 1);
	assert_int_equal(store_group_stats(test.group, &stats), 0);
	assert_int_equal(stats.waiting, 0);
}

static void test_wait_again(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, FOLLOW);
	atomic_int calls = 0;

	(void)state;
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(store_wait(reader, woken, &calls), 0);
		assert_int_equal(push(test.partition, "a\n"), 0);
		wait_for(atomic_load(&calls) == i);
		assert_int_equal(store_wait(reader, woken, &calls), 1); /* at once */
		assert_gives(reader, "a\n");
		assert_gives(reader, "EAGAIN");
	}
	assert_int_equal(atomic_load(&calls), 3);
}

static void test_wait_cancel(void **state)
{
	struct reader *first = opened_as(test.group, NULL, FOLLOW);
	struct reader *second = opened_as(test.group, test.partition, FOLLOW);
	atomic_int calls = 0, others = 0;

	(void)state;
	assert_false(store_wait_cancel(first)); /* does not wait */
	assert_int_equal(store_wait(first, woken, &calls), 0);
	assert_int_equal(store_wait(second, woken, &others), 0);
	assert_true(store_wait_cancel(second));
	assert_int_equal(push(test.partition, "a\n"), 0);
	wait_for(atomic_load(&calls) == 1);
	assert_gives(first, "a\n");
	assert_int_equal(atomic_load(&others), 0);
}

/* In the call that wakes one reader another partition becomes free, and the wait that is
 * woken by that is ended before it was told. */
static struct passing {
	struct reader *holder, *cancelled;
	atomic_int cancelled_calls, next_calls;
	bool was_ours;
} passing;

static void pass_on(void *arg)
{
	(void)arg;
	store_reader_close(passing.holder);
	passing.was_ours = store_wait_cancel(passing.cancelled);
}

static void test_cancel_passes_on(void **state)
{
	struct item *p2 = made(test.queue, ITEM_PARTITION, "p2");
	struct reader *first, *second, *third, *holder;

	(void)state;
	passing = (struct passing){ 0 };
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(push(p2, "x\n"), 0);
	holder = opened_as(test.group, test.partition, LEASED);
	assert_gives(holder, "a\n");
	assert_int_equal(
		store_reader_open(test.group, p2, LEASED, &test_who, &passing.holder), 0);
	assert_gives(passing.holder, "x\n");
	first = opened_as(test.group, NULL, FOLLOW);
	second = opened_as(test.group, NULL, FOLLOW);
	third = opened_as(test.group, NULL, FOLLOW);
	assert_int_equal(store_wait(first, pass_on, NULL), 0);
	assert_int_equal(store_wait(second, woken, &passing.cancelled_calls), 0);
	assert_int_equal(store_wait(third, woken, &passing.next_calls), 0);
	passing.cancelled = second;
	closed(holder);
	wait_for(atomic_load(&passing.next_calls) == 1);
	assert_true(passing.was_ours);
	assert_int_equal(atomic_load(&passing.cancelled_calls), 0);
	assert_gives(first, "a\n");
	assert_gives(third, "x\n");
}

/* p is handed back by a reader of the queue in each way there is, while another partition
 * would be the next in turn: who waits for p alone is woken. */
static void test_woken_for_own_partition(void **state)
{
	enum { CLOSES = ACK_DLQ + 1, POPS, FOLLOWS, SEEKS, WAYS };

	for (int way = ACK; way < WAYS; way++) {
		unsigned flags = way == POPS ? 0 : way == FOLLOWS ? FOLLOW : LEASED;
		struct item *p2 = made(test.queue, ITEM_PARTITION, "p2");
		struct reader *reader = opened_as(test.group, NULL, flags);
		struct reader *waiting = opened_as(test.group, test.partition, FOLLOW);
		atomic_int calls = 0;
		assert_int_equal(set(test.group, SETTING_PREFETCH, "1"), 0);
		if (way == POPS)
			assert_int_equal(set(test.group, SETTING_BATCH, "2"), 0);
		assert_int_equal(push(test.partition, "a\nb\nc\n"), 0);
		assert_piece(reader, "a\n");
		assert_int_equal(push(p2, "x\ny\nz\n"), 0);
		assert_int_equal(store_wait(waiting, woken, &calls), 0);
		if (way <= ACK_DLQ)
			assert_int_equal(ack(reader, (enum ack_verb)way, 0), 0);
		else if (way == CLOSES)
			closed(reader);
		else if (way == POPS)
			assert_piece(reader, "b\n");
		else if (way == FOLLOWS)
			assert_gives(reader, "x\n");
		else
			assert_int_equal(
				seek_to(test.group, test.partition, SEEK_TO_START, 0), 0);
		wait_for(atomic_load(&calls) == 1);
		assert_string_equal(read_text(waiting, 2),
				    way == POPS ? "c\n"
				    : way == ACK || way == ACK_TO || way == ACK_DLQ ||
						    way == FOLLOWS
					    ? "b\n"
					    : "a\n");
		again(state);
	}
}

static void test_watch(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED | FOLLOW);
	struct reader *other = opened_as(test.group, NULL, FOLLOW);
	atomic_int calls = 0, others = 0;

	(void)state;
	assert_false(store_readable(reader, woken, &calls));
	assert_false(store_readable(other, woken, &others));
	assert_int_equal(push(test.partition, "a\n"), 0);
	assert_int_equal(atomic_load(&calls),
			 1); /* a watch claims nothing: all are told */
	assert_int_equal(atomic_load(&others), 1);
	assert_true(store_readable(reader, woken, &calls));
	assert_gives(reader, "a\n");
	assert_true(store_readable(reader, woken, &calls)); /* EBUSY, at once */
	assert_false(store_readable(other, woken, &others));
	assert_false(store_readable(other, NULL, NULL)); /* ends it */
	assert_int_equal(ack(reader, ACK_RETRY, 0), 0);
	assert_int_equal(atomic_load(&others), 1);
	assert_true(store_readable(other, NULL, NULL));
	/* a pop has its end to say */
	assert_gives(other, "a\n");
	assert_true(store_readable(opened(test.group, NULL), NULL, NULL));
}

/* ---- settings ---------------------------------------------------------------------- */

static void assert_setting(struct item *item, enum setting setting, const char *expected)
{
	char text[SETTING_TEXT_SIZE];

	store_setting(item, setting, text);
	assert_string_equal(text, expected);
}

static const struct {
	const char *name, *preset;
	bool of_group;
} settings[SETTING_COUNT] = {
	[SETTING_FRAMING] = { "framing", "line", false },
	[SETTING_SPREAD] = { "spread", "1", false },
	[SETTING_BATCH] = { "batch", "1", true },
	[SETTING_PREFETCH] = { "prefetch", "0", true },
	[SETTING_LEASE_SECONDS] = { "lease_seconds", "300", true },
	[SETTING_RETRY_LIMIT] = { "retry_limit", "3", true },
	[SETTING_MAX_DELIVERIES] = { "max_deliveries", "0", true },
	[SETTING_RETRY_DELAY_SECONDS] = { "retry_delay_seconds", "0", true },
	[SETTING_DEDUP_SECONDS] = { "dedup_seconds", "3600", false },
	[SETTING_RETENTION_SECONDS] = { "retention_seconds", "0", false },
	[SETTING_COMPLETED_RETENTION_SECONDS] = { "completed_retention_seconds", "0",
						  false },
	[SETTING_RETENTION_BYTES] = { "retention_bytes", "0", false },
	[SETTING_MAX_MESSAGE_BYTES] = { "max_message_bytes", "1048576", false },
	[SETTING_SUBSCRIPTION] = { "subscription", "all", true },
	[SETTING_SNAPSHOT_SECONDS] = { "snapshot_seconds", "604800", false },
	[SETTING_FILTER] = { "filter", "", true },
};

static void test_settings(void **state)
{
	enum setting setting;

	(void)state;
	for (int i = 0; i < SETTING_COUNT; i++) {
		assert_int_equal(setting_find(settings[i].name, &setting), 0);
		assert_int_equal(setting, i);
		assert_string_equal(setting_name(setting), settings[i].name);
		assert_int_equal(setting_of_group(setting), settings[i].of_group);
		assert_int_equal(setting_of_queue(setting), i != SETTING_FILTER);
		if (setting_of_queue(setting))
			assert_setting(test.queue, setting, settings[i].preset);
		if (!setting_of_group(setting))
			continue;
		assert_setting(test.group, setting, settings[i].preset);
	}
	assert_int_equal(setting_find("Batch", &setting), -ENOENT);
	assert_int_equal(setting_find("", &setting), -ENOENT);
}

static void test_settings_parse(void **state)
{
	/* NULL: refused */
	static const struct {
		enum setting setting;
		const char *text, *shown;
	} cases[] = {
		{ SETTING_SPREAD, "1", "1" },
		{ SETTING_SPREAD, "100000", "100000" },
		{ SETTING_SPREAD, "0", NULL },
		{ SETTING_SPREAD, "100001", NULL },
		{ SETTING_BATCH, "007", "7" },
		{ SETTING_BATCH, "1000000", "1000000" },
		{ SETTING_BATCH, "1000001", NULL },
		{ SETTING_BATCH, "0", NULL },
		{ SETTING_BATCH, "", NULL },
		{ SETTING_BATCH, "-1", NULL },
		{ SETTING_BATCH, "+1", NULL },
		{ SETTING_BATCH, " 1", NULL },
		{ SETTING_BATCH, "1 ", NULL },
		{ SETTING_BATCH, "1\n", NULL },
		{ SETTING_BATCH, "1s", NULL },
		{ SETTING_BATCH, "1:2", NULL },
		{ SETTING_BATCH, "1.5", NULL },
		{ SETTING_BATCH, "0x10", NULL },
		{ SETTING_BATCH, "all", NULL },
		{ SETTING_BATCH, "Default", NULL },
		{ SETTING_BATCH, "99999999999999999999", NULL },
		{ SETTING_PREFETCH, "0", "0" },
		{ SETTING_PREFETCH, "1000000", "1000000" },
		{ SETTING_PREFETCH, "1000001", NULL },
		{ SETTING_LEASE_SECONDS, "0", "0" },
		{ SETTING_LEASE_SECONDS, "90", "90" },
		{ SETTING_LEASE_SECONDS, "90s", "90" },
		{ SETTING_LEASE_SECONDS, "15m", "900" },
		{ SETTING_LEASE_SECONDS, "2h", "7200" },
		{ SETTING_LEASE_SECONDS, "7d", "604800" },
		{ SETTING_LEASE_SECONDS, "366d", "31622400" },
		{ SETTING_LEASE_SECONDS, "367d", NULL },
		{ SETTING_LEASE_SECONDS, "s", NULL },
		{ SETTING_LEASE_SECONDS, "1w", NULL },
		{ SETTING_LEASE_SECONDS, "1H", NULL },
		{ SETTING_LEASE_SECONDS, "1h30m", NULL },
		{ SETTING_LEASE_SECONDS, "1 h", NULL },
		{ SETTING_LEASE_SECONDS, "-1h", NULL },
		{ SETTING_LEASE_SECONDS, "9223372036854775807d", NULL },
		{ SETTING_LEASE_SECONDS, "106751991167301d", NULL },
		{ SETTING_RETRY_LIMIT, "0", "0" },
		{ SETTING_RETRY_LIMIT, "1000001", NULL },
		{ SETTING_MAX_DELIVERIES, "5", "5" },
		{ SETTING_MAX_DELIVERIES, "x", NULL },
		{ SETTING_RETRY_DELAY_SECONDS, "0", "0" },
		{ SETTING_RETRY_DELAY_SECONDS, "1", "1" },
		{ SETTING_RETRY_DELAY_SECONDS, "1m", "60" },
		{ SETTING_RETRY_DELAY_SECONDS, "1:60", "1:60" },
		{ SETTING_RETRY_DELAY_SECONDS, "1s:1h", "1:3600" },
		{ SETTING_RETRY_DELAY_SECONDS, "5:5", "5:5" },
		{ SETTING_RETRY_DELAY_SECONDS, "30d", "2592000" },
		{ SETTING_RETRY_DELAY_SECONDS, "31d", NULL },
		{ SETTING_RETRY_DELAY_SECONDS, "1:31d", NULL },
		{ SETTING_RETRY_DELAY_SECONDS, "2:1", NULL },
		{ SETTING_RETRY_DELAY_SECONDS, "1:", NULL },
		{ SETTING_RETRY_DELAY_SECONDS, ":1", NULL },
		{ SETTING_RETRY_DELAY_SECONDS, "1:2:3", NULL },
		{ SETTING_RETRY_DELAY_SECONDS, "1: 2", NULL },
		{ SETTING_FRAMING, "file", "file" },
		{ SETTING_FRAMING, "LINE", "line" },
		{ SETTING_FRAMING, "lines", NULL },
		{ SETTING_FRAMING, "", NULL },
		{ SETTING_DEDUP_SECONDS, "366d", "31622400" },
		{ SETTING_DEDUP_SECONDS, "367d", NULL },
		{ SETTING_RETENTION_SECONDS, "36525d", "3155760000" },
		{ SETTING_RETENTION_SECONDS, "3155760001", NULL },
		{ SETTING_COMPLETED_RETENTION_SECONDS, "1h", "3600" },
		{ SETTING_SNAPSHOT_SECONDS, "0", "0" },
		{ SETTING_SNAPSHOT_SECONDS, "36526d", NULL },
		{ SETTING_RETENTION_BYTES, "0", "0" },
		{ SETTING_RETENTION_BYTES, "64k", "65536" },
		{ SETTING_RETENTION_BYTES, "2G", "2147483648" },
		{ SETTING_RETENTION_BYTES, "8589934591G", "9223372035781033984" },
		{ SETTING_RETENTION_BYTES, "8589934592G", NULL },
		{ SETTING_RETENTION_BYTES, "1T", NULL },
		{ SETTING_RETENTION_BYTES, "1KB", NULL },
		{ SETTING_RETENTION_BYTES, "1s", NULL },
		{ SETTING_MAX_MESSAGE_BYTES, "1", "1" },
		{ SETTING_MAX_MESSAGE_BYTES, "0", NULL },
		{ SETTING_MAX_MESSAGE_BYTES, "256M", "268435456" },
		{ SETTING_MAX_MESSAGE_BYTES, "268435457", NULL },
		{ SETTING_SUBSCRIPTION, "All", "all" },
		{ SETTING_SUBSCRIPTION, "new", "new" },
		{ SETTING_SUBSCRIPTION, "NOW", "new" },
		{ SETTING_SUBSCRIPTION, "2026-07-29 14:00",
		  "2026-07-29T14:00:00.000000Z" },
		{ SETTING_SUBSCRIPTION, "@-1", "1969-12-31T23:59:59.000000Z" },
		{ SETTING_SUBSCRIPTION, "0001-01-01", "0001-01-01T00:00:00.000000Z" },
		{ SETTING_SUBSCRIPTION, "-9999999d", "0001-01-01T00:00:00.000000Z" },
		{ SETTING_SUBSCRIPTION, "9999-12-31T23:59:59.999999",
		  "9999-12-31T23:59:59.999999Z" },
		{ SETTING_SUBSCRIPTION, "10000-01-01", NULL },
		{ SETTING_SUBSCRIPTION, "", NULL },
		{ SETTING_SUBSCRIPTION, "17", NULL },
		{ SETTING_SUBSCRIPTION, "start", NULL },
	};
	char before[SETTING_TEXT_SIZE];
	struct store_why why;

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		int expected = cases[i].shown ? 0 : -EINVAL, error;
		struct item *again = test.queue;
		store_setting(test.queue, cases[i].setting, before);
		why.text[0] = '\0';
		error = setting_check(cases[i].setting, cases[i].text, &why);
		if (error != expected)
			fail_msg("%s \"%s\": %d", settings[cases[i].setting].name,
				 cases[i].text, error);
		if (error)
			assert_non_null(
				strstr(why.text, settings[cases[i].setting].name));
		assert_int_equal(set(test.queue, cases[i].setting, cases[i].text),
				 expected);
		assert_int_equal(refused_why[0] != '\0', expected != 0);
		assert_setting(test.queue, cases[i].setting,
			       expected ? before : cases[i].shown);
		if (expected)
			continue;
		/* what is shown can be written back, and means the same */
		if (setting_of_group(cases[i].setting))
			again = test.group;
		assert_int_equal(set(again, cases[i].setting, cases[i].shown), 0);
		assert_setting(again, cases[i].setting, cases[i].shown);
	}
}

static void test_settings_last(void **state)
{
	struct item *other;

	(void)state;
	assert_int_equal(set(test.queue, SETTING_BATCH, "5"), 0);
	assert_int_equal(set(test.queue, SETTING_PREFETCH, "6"), 0);
	assert_int_equal(set(test.group, SETTING_PREFETCH, "7"), 0);
	assert_int_equal(set(test.group, SETTING_RETRY_DELAY_SECONDS, "1m:1h"), 0);
	other = made(test.queue, ITEM_GROUP, "h");
	for (int round = 0; round < 2; round++) {
		assert_setting(test.queue, SETTING_BATCH, "5");
		assert_setting(test.group, SETTING_BATCH, "5"); /* the queue's */
		assert_setting(test.group, SETTING_PREFETCH, "7");
		assert_setting(other, SETTING_PREFETCH, "6");
		assert_setting(test.group, SETTING_RETRY_DELAY_SECONDS, "60:3600");
		assert_setting(test.queue, SETTING_RETRY_DELAY_SECONDS, "0");
		reopen();
		other = found(test.queue, ITEM_GROUP, "h");
	}
	/* a group follows its queue where it has nothing of its own, also the same value */
	assert_int_equal(set(test.group, SETTING_BATCH, "5"), 0);
	assert_int_equal(set(test.queue, SETTING_BATCH, "8"), 0);
	assert_setting(test.group, SETTING_BATCH, "5");
	assert_setting(other, SETTING_BATCH, "8");
	assert_int_equal(set(test.group, SETTING_BATCH, "default"), 0);
	assert_setting(test.group, SETTING_BATCH, "8");
	assert_int_equal(set(test.group, SETTING_BATCH, "default"), 0);
	assert_int_equal(set(test.queue, SETTING_BATCH, "default"), 0);
	reopen();
	assert_setting(test.queue, SETTING_BATCH, "1");
	assert_setting(test.group, SETTING_BATCH, "1");
	/* one made again has nothing of what it was */
	assert_int_equal(drop(test.group), 0);
	assert_setting(made(test.queue, ITEM_GROUP, "g"), SETTING_PREFETCH, "6");
	assert_int_equal(set(test.group, SETTING_PREFETCH, "1"), -ESTALE);
	assert_int_equal(drop(test.partition), 0);
	assert_int_equal(drop(test.queue), 0);
	assert_setting(made(NULL, ITEM_QUEUE, "q"), SETTING_PREFETCH, "0");
	assert_int_equal(set(test.queue, SETTING_PREFETCH, "1"), -ESTALE);
	assert_int_equal(sql("SELECT count(*) FROM settings"), 0);
}

static void test_settings_subscription(void **state)
{
	struct item *time, *all, *own;

	(void)state;
	all = made(test.queue, ITEM_GROUP, "all");
	assert_int_equal(set(test.queue, SETTING_SUBSCRIPTION, "@1"), 0);
	time = made(test.queue, ITEM_GROUP, "time");
	own = made(test.queue, ITEM_GROUP, "own");
	assert_int_equal(set(own, SETTING_SUBSCRIPTION, "new"), 0);
	assert_int_equal(set(test.queue, SETTING_SUBSCRIPTION, "new"), 0);
	for (int round = 0; round < 2; round++) {
		assert_setting(all, SETTING_SUBSCRIPTION, "all");
		assert_setting(test.group, SETTING_SUBSCRIPTION, "all");
		assert_setting(time, SETTING_SUBSCRIPTION, "1970-01-01T00:00:01.000000Z");
		assert_setting(own, SETTING_SUBSCRIPTION, "new");
		reopen();
		all = found(test.queue, ITEM_GROUP, "all");
		time = found(test.queue, ITEM_GROUP, "time");
		own = found(test.queue, ITEM_GROUP, "own");
	}
	/* default is what a group would get that is made now, and stays its own */
	assert_int_equal(set(time, SETTING_SUBSCRIPTION, "default"), 0);
	assert_setting(time, SETTING_SUBSCRIPTION, "new");
	assert_int_equal(set(test.queue, SETTING_SUBSCRIPTION, "default"), 0);
	assert_int_equal(set(own, SETTING_SUBSCRIPTION, "default"), 0);
	reopen();
	assert_setting(found(test.queue, ITEM_GROUP, "time"), SETTING_SUBSCRIPTION,
		       "new");
	assert_setting(found(test.queue, ITEM_GROUP, "own"), SETTING_SUBSCRIPTION, "all");
	assert_int_equal(sql("SELECT count(*) FROM settings"), 1);
	assert_int_equal(drop(found(test.queue, ITEM_GROUP, "time")), 0);
	assert_int_equal(sql("SELECT count(*) FROM settings"), 0);
}

static void test_settings_filter(void **state)
{
	char longest[SETTING_TEXT_SIZE + 1];

	(void)state;
	memset(longest, '7', sizeof(longest));
	longest[SETTING_TEXT_SIZE] = '\0';
	assert_int_equal(set(test.group, SETTING_FILTER, longest), -EINVAL);
	assert_int_equal(set(test.group, SETTING_FILTER, "1\nOR 2"), -EINVAL);
	assert_setting(test.group, SETTING_FILTER, "");
	longest[SETTING_TEXT_SIZE - 1] = '\0';
	for (int round = 0; round < 2; round++) {
		assert_int_equal(set(test.group, SETTING_FILTER, longest), 0);
		assert_setting(test.group, SETTING_FILTER, longest);
		assert_int_equal(set(test.group, SETTING_FILTER, "data = 'x'"), 0);
		reopen();
		assert_setting(test.group, SETTING_FILTER, "data = 'x'");
		assert_int_equal(
			set(test.group, SETTING_FILTER, round == 0 ? "" : "default"), 0);
		assert_setting(test.group, SETTING_FILTER, "");
		reopen();
		assert_setting(test.group, SETTING_FILTER, "");
	}
}

static void test_settings_of_the_other(void **state)
{
	(void)state;
	assert_int_equal(set(test.queue, SETTING_FILTER, "1"), -EINVAL);
	assert_string_equal(refused_why, "a queue has no filter");
	assert_int_equal(set(test.queue, SETTING_FILTER, "default"), -EINVAL);
	assert_int_equal(set(test.group, SETTING_FRAMING, "file"), -EINVAL);
	assert_string_equal(refused_why, "a group has no framing");
	assert_int_equal(sql("SELECT count(*) FROM settings"), 0);
}

static void test_settings_of_new_queues(void **state)
{
	struct store_why why;

	(void)state;
	assert_int_equal(store_setting_default(test.store, SETTING_BATCH, "0", &why),
			 -EINVAL);
	assert_int_equal(store_setting_default(test.store, SETTING_BATCH, "9", &why), 0);
	assert_setting(test.queue, SETTING_BATCH, "1");
	made(NULL, ITEM_QUEUE, "new");
	reopen();
	assert_setting(found(NULL, ITEM_QUEUE, "new"), SETTING_BATCH, "9");
	assert_setting(made(NULL, ITEM_QUEUE, "newer"), SETTING_BATCH, "1");
}

static void test_settings_count_from_next_claim(void **state)
{
	struct reader *reader = opened(test.group, NULL);

	(void)state;
	assert_int_equal(set(test.group, SETTING_BATCH, "2"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\nd\ne\n"), 0);
	assert_piece(reader, "a\n");
	assert_int_equal(set(test.group, SETTING_BATCH, "3"), 0);
	assert_pop(reader, "b\n");
	assert_pop(reader, "c\nd\ne\n");
}

/* ---- dead letters ------------------------------------------------------------------ */

/* Makes letters of all that is in p. */
static void bury(const char *text)
{
	struct reader *reader = opened_as(test.group, test.partition, LEASED);

	assert_int_equal(push(test.partition, text), 0);
	while (read_text(reader, 4000)[0])
		assert_int_equal(ack(reader, ACK_DLQ, 0), 0);
	closed(reader);
}

static int letter_drop(uint64_t id)
{
	struct answer answer;

	store_letter_drop(test.group, id, answer_done, answer_start(&answer));
	return answer_wait(&answer);
}

static int letter_push(uint64_t id, struct item *partition)
{
	struct answer answer;

	store_letter_push(test.group, id, partition, answer_done, answer_start(&answer));
	return answer_wait(&answer);
}

static void test_letters(void **state)
{
	struct segment_info segment;
	struct letter_info info;
	char buffer[64];

	(void)state;
	bury("abc\n\nd\n");
	assert_int_equal(store_segment(test.partition, 0, &segment), 0);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(letters(), 3);
		info = letter_at(0);
		assert_int_equal(info.offset, 0);
		assert_int_equal(info.partition_number, store_id(test.partition));
		assert_int_equal(info.created_us, segment.created_us);
		assert_true(info.failed_us >= info.created_us);
		assert_int_equal(info.attempts, 1);
		assert_int_equal(info.size, 3); /* the payload, not its newline */
		assert_string_equal(info.error, "why not");
		assert_int_equal(store_letter_read(test.group, info.id, 0, buffer, 64),
				 3);
		assert_memory_equal(buffer, "abc", 3);
		assert_int_equal(store_letter_read(test.group, info.id, 1, buffer, 1), 1);
		assert_int_equal(buffer[0], 'b');
		assert_int_equal(store_letter_read(test.group, info.id, 3, buffer, 64),
				 0);
		assert_int_equal(store_letter_read(test.group, info.id, 99, buffer, 64),
				 0);
		assert_int_equal(letter_at(1).size, 0);
		assert_true(letter_at(1).id > info.id &&
			    letter_at(2).id > letter_at(1).id);
		reopen();
	}
	assert_int_equal(store_letter(test.group, "p", 3, &info), -ENOENT);
	assert_int_equal(store_letter(test.group, "q", 0, &info), -ENOENT);
	assert_int_equal(store_letter(made(test.queue, ITEM_GROUP, "h"), "p", 0, &info),
			 -ENOENT);
	/* it outlives its message and its partition, and keeps its group */
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(drop(test.partition), 0);
	assert_int_equal(letters(), 3);
	assert_int_equal(drop(test.group), -ENOTEMPTY);
	assert_int_equal(drop(test.queue), -ENOTEMPTY);
	info = letter_at(1);
	assert_int_equal(letter_drop(info.id), 0);
	assert_int_equal(letter_drop(info.id), -ENOENT);
	assert_true(store_letter_read(test.group, info.id, 0, buffer, 64) < 0);
	assert_int_equal(letters(), 2);
	assert_int_equal(letter_drop(letter_at(0).id), 0);
	assert_int_equal(letter_drop(letter_at(2).id), 0);
	assert_int_equal(drop(test.group), 0);
	assert_int_equal(letter_drop(info.id), -ESTALE);
}

static void test_letter_again(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED);

	(void)state;
	bury("a\nb\n");
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_START, 0), 0);
	assert_gives(reader, "a\n");
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_int_equal(letters(), 2); /* a failed, and is still one letter */
	assert_gives(reader, "a\n");
	assert_int_equal(ack(reader, ACK_DLQ, 0), 0);
	assert_int_equal(letters(), 2);
	assert_int_equal(letter_at(0).attempts, 2);
	assert_gives(reader, "b\n"); /* a letter stops no delivery */
}

static void test_letter_push(void **state)
{
	struct item *p2 = made(test.queue, ITEM_PARTITION, "p2"), *gone;
	unsigned before;
	uint64_t id;

	(void)state;
	bury("a\nb\n\n");
	id = letter_at(0).id;
	before = transactions();
	assert_int_equal(letter_push(id, NULL), 0);
	assert_int_equal(transactions(), before + 1);
	assert_string_equal(log_text(test.partition), "a\nb\n\na\n");
	assert_pop(opened(test.group, test.partition), "a\n");
	assert_int_equal(letters(), 2);
	assert_int_equal(letter_push(id, NULL), -ENOENT);
	assert_int_equal(letter_push(id, p2), -ENOENT);
	assert_int_equal(letter_push(letter_at(1).id, p2), 0);
	assert_string_equal(log_text(p2), "b\n");
	/* a partition that is gone is made again, by the name it had */
	store_stop();
	assert_int_equal(store_start(), 0);
	find_own();
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(segment_drop(test.partition, 3), 0);
	gone = test.partition;
	assert_int_equal(drop(gone), 0);
	id = letter_at(2).id;
	assert_int_equal(letter_push(id, gone), -ESTALE);
	assert_int_equal(letters(), 1);
	assert_int_equal(letter_push(id, NULL), 0);
	assert_string_equal(log_text(found(test.queue, ITEM_PARTITION, "p")), "\n");
	assert_int_equal(letters(), 0);
}

static void test_letter_push_once(void **state)
{
	struct item *p2 = made(test.queue, ITEM_PARTITION, "p2");
	struct answer first, second, third;
	uint64_t id;

	(void)state;
	bury("a\nb\n");
	id = letter_at(0).id;
	hold_begin();
	store_letter_push(test.group, id, p2, answer_done, answer_start(&first));
	store_letter_push(test.group, id, p2, answer_done, answer_start(&second));
	store_letter_drop(test.group, id, answer_done, answer_start(&third));
	hold_end();
	assert_int_equal(answer_wait(&first), 0);
	assert_int_equal(answer_wait(&second), -ENOENT);
	assert_int_equal(answer_wait(&third), -ENOENT);
	assert_string_equal(log_text(p2), "a\n");
	/* dropped before: nothing is pushed, and no partition made for it */
	id = letter_at(1).id;
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(drop(test.partition), 0);
	hold_begin();
	store_letter_drop(test.group, id, answer_done, answer_start(&first));
	store_letter_push(test.group, id, NULL, answer_done, answer_start(&second));
	hold_end();
	assert_int_equal(answer_wait(&first), 0);
	assert_int_equal(answer_wait(&second), -ENOENT);
	assert_true(missing(test.queue, ITEM_PARTITION, "p"));
	assert_string_equal(log_text(p2), "a\n");
}

static void test_letter_push_fails(void **state)
{
	(void)state;
	bury("a\n");
	store_stop();
	sql("CREATE TRIGGER poison BEFORE INSERT ON segments BEGIN "
	    "SELECT raise(ABORT, 'poisoned'); END");
	assert_int_equal(store_start(), 0);
	find_own();
	assert_int_not_equal(letter_push(letter_at(0).id, NULL), 0);
	assert_int_equal(letters(), 1);
	assert_string_equal(log_text(test.partition), "a\n");
	sql("DROP TRIGGER poison");
	assert_int_equal(letter_push(letter_at(0).id, NULL), 0);
	assert_int_equal(letters(), 0);
	assert_string_equal(log_text(test.partition), "a\na\n");
}

/* ---- members and stats ------------------------------------------------------------- */

static void test_members(void **state)
{
	struct item *p2 = made(test.queue, ITEM_PARTITION, "p2");
	struct item *p3 = made(test.queue, ITEM_PARTITION, "p3");
	struct reader *leased, *follow;
	struct member *rows;
	size_t count;

	(void)state;
	assert_int_equal(store_members(test.group, &rows, &count), 0);
	assert_int_equal(count, 0);
	free(rows);
	assert_int_equal(set(test.group, SETTING_BATCH, "3"), 0);
	assert_int_equal(push(test.partition, "a\nb\nc\nd\n"), 0);
	opened(test.group, test.partition);
	leased = opened_as(test.group, test.partition, LEASED);
	follow = opened_as(test.group, NULL, FOLLOW);
	assert_gives(leased, "a\nb\nc\n");
	assert_int_equal(ack(leased, ACK_TO, 0), 0);
	assert_int_equal(push(p2, "x\ny\n"), 0);
	assert_int_equal(push(p3, "z\n"), 0);
	assert_gives(follow, "x\ny\nz\n");
	assert_int_equal(store_members(test.group, &rows, &count), 0);
	assert_int_equal(count, 4);
	assert_int_equal(rows[0].flags, 0);
	assert_false(rows[0].whole_queue);
	assert_null(rows[0].partition);
	assert_int_equal(rows[1].flags, LEASED);
	assert_int_equal(rows[1].who.pid, test_who.pid);
	assert_ptr_equal(rows[1].partition, test.partition);
	assert_int_equal(rows[1].from, 1);
	assert_int_equal(rows[1].to, 2);
	assert_true(rows[1].lease_us > 0 && rows[1].lease_us <= 300 * SECOND_US);
	assert_true(rows[2].whole_queue && rows[3].whole_queue);
	assert_ptr_equal(rows[2].partition, p2);
	assert_int_equal(rows[2].from, 0);
	assert_int_equal(rows[2].to, 1);
	assert_ptr_equal(rows[3].partition, p3);
	assert_int_equal(rows[3].to, 0);
	for (size_t i = 0; i < count; i++)
		store_put(rows[i].partition);
	free(rows);
	/* who has lost its lease is a member without one */
	assert_int_equal(seek_to(test.group, NULL, SEEK_TO_END, 0), 0);
	assert_int_equal(store_members(test.group, &rows, &count), 0);
	assert_int_equal(count, 3);
	for (size_t i = 0; i < count; i++)
		assert_null(rows[i].partition);
	free(rows);
}

static void test_cursor_info(void **state)
{
	struct reader *reader = opened_as(test.group, NULL, LEASED);
	struct segment_info segments[3];
	struct cursor_info info = cursor_own();

	(void)state;
	assert_int_equal(info.committed, -1);
	assert_int_equal(info.last_offset, -1);
	assert_int_equal(info.oldest_us, 0);
	assert_false(info.leased);
	assert_int_equal(set(test.group, SETTING_BATCH, "2"), 0);
	assert_int_equal(push(test.partition, "a\nb\n"), 0);
	assert_int_equal(push(test.partition, "c\nd\n"), 0);
	assert_int_equal(push(test.partition, "e\n"), 0);
	assert_int_equal(segments_of(test.partition, segments, 3), 3);
	assert_int_equal(cursor_own().oldest_us, segments[0].created_us);
	assert_gives(reader, "a\nb\n");
	info = cursor_own();
	assert_true(info.leased);
	assert_int_equal(info.holder.pid, test_who.pid);
	assert_int_equal(info.holder.uid, test_who.uid);
	assert_true(info.lease_us > 0 && info.lease_us <= 300 * SECOND_US);
	assert_int_equal(info.attempts, 1);
	assert_int_equal(info.counts.delivered, 2);
	assert_int_equal(info.counts.redelivered, 0);
	assert_int_equal(ack(reader, ACK_FAIL, 0), 0);
	assert_gives(reader, "a\n");
	assert_int_equal(ack(reader, ACK_DLQ, 0), 0);
	assert_gives(reader, "b\n");
	assert_int_equal(ack(reader, ACK, 0), 0);
	info = cursor_own();
	assert_false(info.leased);
	assert_int_equal(info.committed, 1);
	assert_int_equal(info.last_offset, 4);
	assert_int_equal(info.oldest_us, segments[1].created_us);
	assert_int_equal(info.counts.delivered, 2);
	assert_int_equal(info.counts.redelivered, 2);
	assert_int_equal(info.counts.dead_lettered, 1);
	assert_int_equal(info.counts.skipped, 0);
	/* removed unread */
	assert_int_equal(segment_drop(test.partition, 0), 0);
	assert_int_equal(segment_drop(test.partition, 2), 0);
	assert_gives(reader, "e\n");
	assert_int_equal(cursor_own().counts.skipped, 2);
	assert_int_equal(ack(reader, ACK, 0), 0);
	assert_int_equal(cursor_own().oldest_us, 0);
	closed(reader);
	assert_int_equal(letter_drop(letter_at(0).id), 0);
	assert_int_equal(drop(test.group), 0);
	assert_int_equal(store_cursor_info(test.group, test.partition, &info), -ESTALE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("each verb does what it says while the lease is held or overdue, "
		     "and is refused when it is free or lost",
		     test_verbs),
		TEST("a lease is extended while it is held or overdue", test_extend),
		TEST("what an ack does not name stays leased", test_unacked_stays),
		TEST("acks of one span in one batch add up, and none moves back",
		     test_acks_in_one_batch),
		TEST("past its time the holder acks and reads on until it is taken",
		     test_holder_goes_on),
		TEST("what was lost is not acked by reading on", test_lost_by_reading),
		TEST("after lease_seconds another takes the span, with 0 never",
		     test_lease_seconds),
		TEST("after an rm of a leased message each verb is without effect and "
		     "the reader goes on",
		     test_removed_under_lease),
		TEST("an rm within a leased batch leaves the rest leased",
		     test_removed_within_batch),
		TEST("what came back is given one message at a time to every reader",
		     test_back_alone),
		TEST("what failed comes back alone, also after a retry",
		     test_back_after_fail),
		TEST("attempts, charges and what was delivered survive a reopen",
		     test_counts_last),
		TEST("a retry is not counted as a delivery", test_retry_uncounted),
		TEST("fail charges a message until it is passed; past retry_limit it is "
		     "a dead letter",
		     test_fail_charges),
		TEST("max_deliveries N gives exactly N deliveries", test_max_deliveries),
		TEST("max_deliveries counts each message of a batch",
		     test_max_deliveries_of_batch),
		TEST("retry_delay_seconds holds back what failed, and doubles",
		     test_retry_delay),
		TEST("a pop takes up to a batch of one partition", test_batch),
		TEST("a follow holds several partitions up to prefetch, and one while "
		     "another waits",
		     test_prefetch),
		TEST("what a follow acks is for the member that waits for it",
		     test_members_share),
		TEST("a seek and a dead-lettering in one batch", test_seek_and_dead),
		TEST("an ack of an overdue lease and a dead-lettering in one batch",
		     test_ack_and_dead),
		TEST("a lease whose message was dead-lettered is lost",
		     test_dead_and_ack),
		TEST("a verb and a seek in one batch count in their order",
		     test_seek_and_ack),
		TEST("poll says readable while a delivery is recorded",
		     test_poll_while_recorded),
		TEST("a reader closed while its delivery is recorded was given nothing",
		     test_close_while_recorded),
		TEST("a group is not dropped under a delivery that is being recorded",
		     test_drop_before_record),
		TEST("a push by name keeps the partition that is being dropped",
		     test_drop_meets_push_by_name),
		TEST("20000 partitions are born by one commit", test_many_born),
		TEST("one waiting reader is woken per partition that becomes ready",
		     test_woken_one_each),
		TEST("a reader can wait again after it was woken", test_wait_again),
		TEST("who ends its wait is not woken", test_wait_cancel),
		TEST("ending a wait that was woken passes the wake on",
		     test_cancel_passes_on),
		TEST("who waits for one partition is woken however it is handed back",
		     test_woken_for_own_partition),
		TEST("poll is told once when a read may find something", test_watch),
		TEST("each setting has its name and its value without a setting",
		     test_settings),
		TEST("settings take what is allowed and refuse the rest in words",
		     test_settings_parse),
		TEST("settings last, groups override them, default returns to the queue",
		     test_settings_last),
		TEST("a group keeps the subscription that its queue had when it was made",
		     test_settings_subscription),
		TEST("a filter is one line of up to 2000 bytes", test_settings_filter),
		TEST("a queue's setting is not a group's, nor a group's a queue's",
		     test_settings_of_the_other),
		TEST("defaults are for queues made from then on",
		     test_settings_of_new_queues),
		TEST("a changed setting counts from the next claim",
		     test_settings_count_from_next_claim),
		TEST("a dead letter is found, listed, read and dropped", test_letters),
		TEST("a message that fails again has one letter", test_letter_again),
		TEST("a letter is pushed again and dropped in one transaction",
		     test_letter_push),
		TEST("a letter is pushed again once; one that is gone pushes nothing",
		     test_letter_push_once),
		TEST("a letter whose push fails stays", test_letter_push_fails),
		TEST("members shows who reads and what is leased", test_members),
		TEST("a cursor's info says where it stands and what it came to",
		     test_cursor_info),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
