/* SPDX-License-Identifier: MIT */
/*
 * disk.h - a disk that can be told to fail, and whose power can be cut.
 *
 * disk.c stands before the C library: what this program, the store library and SQLite do to
 * files below one directory passes through it.
 *
 * Recorded, each write, size, name and sync becomes a step of a trace. What a power cut may
 * leave is then built for any step: of a file, what was synced, and of what came after it
 * any of it: sectors of 512 bytes are written or not, each by itself, in any order; of the
 * names in the directory, those of its last sync and the next few changes in order.
 * -shm and -lock are not part of it: they mean nothing to a new start.
 */
#ifndef CRASH_DISK_H
#define CRASH_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begins a trace of what happens to files below this directory (borrowed); what is in it is
 * synced. NULL ends it. */
void disk_record(const char *directory);

/* How many steps the trace has. */
size_t disk_steps(void);

/* How much of what was not synced is left by a cut. */
enum luck {
	LUCK_NONE, /* nothing: a disk with a cache */
	LUCK_ALL,  /* everything: as after kill -9 */
	LUCK_SOME, /* each write is there, missing or torn */
	LUCK_LAST, /* everything but a few writes, missing or torn */
	LUCK_COUNT
};

/* Writes what the disk holds after a cut behind `step` steps into a directory, which is
 * emptied first. Steps may only rise from one call to the next, until disk_record(). */
void disk_image(size_t step, enum luck luck, uint64_t seed, const char *directory);

/* From now on the at-th write or sync below the directory fails, and as many in a row as
 * count says; 0: none. A full disk fails only what needs room. FAULT_SYNC fails syncs alone;
 * while it is recorded, what such a sync was to bring to the disk never gets there, nor by a
 * later one: the kernel takes it for clean (as Linux does). A sync that has nothing to bring
 * there does not fail, and does not count. */
enum fault { FAULT_EIO, FAULT_ENOSPC, FAULT_SHORT, FAULT_SYNC };
void disk_fail(const char *directory, enum fault fault, uint64_t at, uint64_t count);
/* The same for one file of the directory alone, which is recorded. */
void disk_fail_file(const char *directory, const char *name, enum fault fault,
		    uint64_t at, uint64_t count);

/* How many calls could have failed, and how many did, since disk_fail(). */
uint64_t disk_calls(void);
uint64_t disk_failed(void);

#endif
