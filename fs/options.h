/* SPDX-License-Identifier: MIT */
/* options.h - the command line (section 13). */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>

struct options {
	char *config;		/* -c, absolute; NULL: the default one */
	char *store_path;	/* STORE or -s, absolute; NULL: not named */
	const char *mountpoint; /* as it was given */
	char *fuse_words;	/* what of -o is libfuse's, with commas; NULL: nothing */
	bool foreground;
	bool debug;
	bool help;
	bool version;
};

/*
 * Reads the command line; options point into argv, and options_free() frees the rest, also
 * after a failure. EINVAL, ENOMEM and what getcwd(3) says, with the reason already said.
 */
int options_parse(int argc, char **argv, struct options *options);
void options_free(struct options *options);

/* Is `word` one of the words for libfuse? */
bool options_fuse_word(const struct options *options, const char *word);

void options_help(void);

/* Writes the absolute form of a path that counts from `base` (NULL: from the working
 * directory); the caller frees it. Directories that exist lose their symbolic links. */
int path_absolute(const char *base, const char *path, char **absolute);

#endif
