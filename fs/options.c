/* SPDX-License-Identifier: MIT */
/*
 * options.c - the command line: `queenfs [options] [STORE] MOUNTPOINT`, in any order,
 * because mount(8) puts its options last.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"
#include "say.h"

/* Words that speak to mount(8), systemd or the kernel's own bookkeeping of times: they mean
 * nothing here, but an fstab line has them. A word that ends in '=' or '-' is a prefix. */
static const char *const fstab_words[] = {
	"defaults",   "auto",	     "noauto",
	"nofail",     "_netdev",     "user",
	"nouser",     "users",	     "owner",
	"group",      "user=",	     "comment=",
	"x-",	      "X-",	     "relatime",
	"norelatime", "strictatime", "nostrictatime",
	"lazytime",   "nolazytime",  "diratime",
	"nodiratime", "silent",	     "loud",
	"mand",	      "nomand",	     "iversion",
	"noiversion",
};

void options_help(void)
{
	fputs("usage: queenfs [options] [STORE] MOUNTPOINT\n"
	      "\n"
	      "Mounts the message queues in STORE, a file that is made if missing.\n"
	      "\n"
	      "  -c FILE   settings; else /etc/queenfs.ini if there is one\n"
	      "  -s FILE   the store, if it is not an argument or in the settings\n"
	      "  -o WORDS  options of FUSE and mount(8), with commas: allow_other, ro, "
	      "...\n"
	      "  -f        stay in the foreground\n"
	      "  -d        print every request (and stay in the foreground)\n"
	      "  -V        print the version\n"
	      "  -h        print this\n"
	      "\n"
	      "`fusermount3 -u MOUNTPOINT` or SIGTERM ends it.\n",
	      stdout);
}

/* NULL: no memory. The caller frees it. */
static char *path_join(const char *directory, const char *name)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s", directory, strcmp(directory, "/") ? "/" : "",
		     name) < 0)
		return NULL;
	return joined;
}

int path_absolute(const char *base, const char *path, char **absolute)
{
	char *here = NULL, *joined, *directory, *slash, *resolved;

	if (path[0] != '/' && !base) {
		here = getcwd(NULL, 0);
		if (!here)
			return -errno;
		base = here;
	}
	joined = path[0] == '/' ? strdup(path) : path_join(base, path);
	free(here);
	if (!joined)
		return -ENOMEM;

	/* The file itself may be missing, so its directory is what is resolved. */
	slash = strrchr(joined, '/');
	*slash = '\0';
	directory = realpath(slash == joined ? "/" : joined, NULL);
	*slash = '/';
	if (directory) {
		resolved = path_join(directory, slash + 1);
		free(directory);
		free(joined);
		joined = resolved;
	}
	*absolute = joined;
	return joined ? 0 : -ENOMEM;
}

static bool fstab_word(const char *word, size_t length)
{
	for (size_t i = 0; i < sizeof(fstab_words) / sizeof(fstab_words[0]); i++) {
		size_t known = strlen(fstab_words[i]);
		char last = fstab_words[i][known - 1];
		bool prefix = last == '=' || last == '-';

		if (!strncmp(word, fstab_words[i], known) && (prefix || length == known))
			return true;
	}
	return false;
}

/* The length of the first of several words; a backslash quotes a comma, as in libfuse. */
static size_t word_length(const char *words)
{
	size_t length = 0;

	while (words[length] && words[length] != ',')
		length += words[length] == '\\' && words[length + 1] ? 2 : 1;
	return length;
}

static int words_add(struct options *options, const char *words)
{
	while (*words) {
		size_t length = word_length(words);

		if (length && !fstab_word(words, length)) {
			char *more;
			int printed = asprintf(
				&more, "%s%s%.*s",
				options->fuse_words ? options->fuse_words : "",
				options->fuse_words ? "," : "", (int)length, words);

			if (printed < 0)
				return -ENOMEM;
			free(options->fuse_words);
			options->fuse_words = more;
		}
		words += length;
		words += *words == ',';
	}
	return 0;
}

bool options_fuse_word(const struct options *options, const char *word)
{
	const char *words = options->fuse_words;

	while (words && *words) {
		size_t length = word_length(words);

		if (length == strlen(word) && !strncmp(words, word, length))
			return true;
		words += length;
		words += *words == ',';
	}
	return false;
}

static int usage_refused(const char *why)
{
	say("%s; queenfs -h shows how it is called", why);
	return -EINVAL;
}

static int path_set(char **field, const char *path)
{
	if (!*path)
		return usage_refused("an empty file name");
	free(*field);
	*field = NULL;
	return path_absolute(NULL, path, field);
}

/* STORE and MOUNTPOINT, or MOUNTPOINT alone. */
static int arguments_take(int count, char **arguments, struct options *options)
{
	if (count == 0)
		return usage_refused("the mount point is missing");
	if (count > 2)
		return usage_refused("more than a store and a mount point");
	options->mountpoint = arguments[count - 1];
	if (count == 1)
		return 0;
	if (options->store_path)
		return usage_refused(
			"the store is named twice, by -s and as an argument");
	return path_set(&options->store_path, arguments[0]);
}

int options_parse(int argc, char **argv, struct options *options)
{
	static const struct option words[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	char wrong[64];
	int letter, error = 0;

	*options = (struct options){ 0 };
	opterr = 0; /* the texts below begin with "queenfs:" whatever argv[0] is */
	while (!error &&
	       (letter = getopt_long(argc, argv, ":c:s:o:fdVh", words, NULL)) != -1) {
		switch (letter) {
		case 'c':
			error = path_set(&options->config, optarg);
			break;
		case 's':
			error = path_set(&options->store_path, optarg);
			break;
		case 'o':
			error = words_add(options, optarg);
			break;
		case 'd':
			options->debug = true;
			options->foreground = true;
			break;
		case 'f':
			options->foreground = true;
			break;
		case 'V':
			options->version = true;
			return 0;
		case 'h':
			options->help = true;
			return 0;
		case ':':
			snprintf(wrong, sizeof(wrong), "option -%c needs a value",
				 optopt);
			return usage_refused(wrong);
		default:
			if (optopt) /* a letter, maybe amid others as in -fx */
				snprintf(wrong, sizeof(wrong), "unknown option -%c",
					 optopt);
			else
				snprintf(wrong, sizeof(wrong), "unknown option %.40s",
					 argv[optind - 1]);
			return usage_refused(wrong);
		}
	}
	if (!error)
		error = arguments_take(argc - optind, argv + optind, options);
	if (error && error != -EINVAL)
		say("%s", strerror(-error));
	return error;
}

void options_free(struct options *options)
{
	free(options->config);
	free(options->store_path);
	free(options->fuse_words);
}
