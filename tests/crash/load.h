/* SPDX-License-Identifier: MIT */
/*
 * load.h - a load of every verb of the store, step by step, and all that the store shows as
 * text, by which one state is told from another.
 */
#ifndef CRASH_LOAD_H
#define CRASH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "store.h"

struct load {
	struct store *store;
	struct item *queue, *group, *other;
	struct reader *leased, *popping;
	uint64_t seed, number;	  /* of messages and names */
	uint64_t wal_limit_bytes; /* 0: a small one */
	int failures,
		results; /* of the last step: how many verbs failed, were answered */
	int error;	 /* one of theirs */
	bool syncs;	 /* the last step was a store_sync(), or closed the store */
};

/* Opens the store in a directory, and makes what the load needs if it is not there: 0 or
 * -errno. */
int load_open(struct load *load, const char *directory, bool disk);
void load_close(struct load *load);

/* One step: one verb, or several that are one transaction. False: a verb said something
 * that it must not. */
bool load_step(struct load *load);

/* Pushes a message to every partition; 0 or -errno. */
int load_push_all(struct load *load);

/* Pushes more than the tail takes, so that SQLite commits it, in pages that nobody writes to
 * later; 0 or -errno. */
int load_commit(struct load *load);
/* store_sync(); 0 or -errno. */
int load_sync(struct load *load);

/* Everything that is durable and not lazy, as text: the caller frees it. What is wrong in
 * itself is said in it with WRONG. */
char *load_state(struct load *load);

#endif
