/* SPDX-License-Identifier: MIT */
/* config.h - queenfs.ini (section 12). */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_DEFAULT_PATH "/etc/queenfs.ini"

/* A setting of [defaults] (queue NULL) or of [queue NAME]. */
struct config_setting {
	char *queue;
	int setting; /* enum setting; -1: the section itself, which makes the queue */
	char *text;
};

struct store;
struct config {
	char *store_path; /* absolute; NULL: not named */
	bool disk;	  /* durability: true disk, false os */
	uint64_t reserve_bytes;
	uint64_t wal_limit_bytes;
	bool allow_other;
	struct config_setting *settings; /* in the order of the file */
	size_t setting_count;
};

/*
 * Reads an ini file, absolute; NULL is CONFIG_DEFAULT_PATH, which may be missing. Whatever
 * the file does not set has its default. Any failure is -errno and was already said, with
 * file and line; config_free() is right then too.
 */
int config_read(const char *path, struct config *config);
/* Makes and updates the queues that the file names. Failures were said. */
int config_apply(const struct config *config, struct store *store);
void config_free(struct config *config);

#endif
