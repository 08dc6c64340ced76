/* SPDX-License-Identifier: MIT */
/*
 * alarm.c - what happens by time: a pairing heap of alarms, the next one on top.
 *
 * An alarm is part of what it belongs to, so setting one cannot fail. Times are monotonic;
 * what depends on the clock looks again each minute, because the clock may be set.
 */
#include "store_int.h"

#define CLOCK_LOOK_US INT64_C(60000000)

static struct alarm *meld(struct alarm *a, struct alarm *b)
{
	struct alarm *top = a;

	if (!a || !b)
		return a ? a : b;
	if (b->at_us < a->at_us) {
		top = b;
		b = a;
	}
	b->prev = top;
	b->next = top->child;
	if (b->next)
		b->next->prev = b;
	top->child = b;
	return top;
}

/* Melds children, two by two from the left, and those from the right. */
static struct alarm *meld_all(struct alarm *first)
{
	struct alarm *pairs = NULL, *all = NULL;

	while (first) {
		struct alarm *a = first, *b = a->next;
		first = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct alarm *next = pairs->next;
		pairs->next = NULL;
		all = meld(all, pairs);
		pairs = next;
	}
	return all;
}

static void take_out(struct store *store, struct alarm *alarm)
{
	struct alarm *below = meld_all(alarm->child);

	if (store->alarms == alarm) {
		store->alarms = below;
	} else {
		if (alarm->prev->child == alarm)
			alarm->prev->child = alarm->next;
		else
			alarm->prev->next = alarm->next;
		if (alarm->next)
			alarm->next->prev = alarm->prev;
		store->alarms = meld(store->alarms, below);
	}
	alarm->child = alarm->next = alarm->prev = NULL;
	alarm->at_us = 0;
}

void alarm_set_locked(struct store *store, struct alarm *alarm, int64_t at_us)
{
	if (alarm->at_us)
		take_out(store, alarm);
	alarm->at_us = at_us;
	if (!at_us)
		return;
	store->alarms = meld(store->alarms, alarm);
	timer_at_locked(store, at_us);
}

void alarm_clock_locked(struct store *store, struct alarm *alarm, int64_t clock)
{
	int64_t wait = clock - now_locked(store);

	if (wait < 0)
		wait = 0;
	alarm_set_locked(store, alarm,
			 monotonic_us() + (wait < CLOCK_LOOK_US ? wait : CLOCK_LOOK_US));
}

int64_t alarm_next_locked(const struct store *store)
{
	return store->alarms ? store->alarms->at_us : INT64_MAX;
}

void alarms_ring_locked(struct store *store)
{
	int64_t now = monotonic_us();

	while (store->alarms && store->alarms->at_us <= now) {
		struct alarm *alarm = store->alarms;
		take_out(store, alarm);
		alarm->ring_locked(store, alarm);
	}
}
