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

/*
 * The words of -o. A word that ends in '=' or '-' is a prefix.
 *
 * Not here, though libfuse takes them: max_read= (INIT would refuse it after the mount is
 * up), subtype= (a mount is told to be ours by it), blkdev and the words that libfuse itself
 * writes, such as fd=.
 */
static const char *const fuse_words[] = {
	"ro",	      "rw",	      "noexec",
	"exec",	      "nosuid",	      "suid",
	"nodev",      "dev",	      "sync",
	"async",      "dirsync",      "noatime",
	"atime",      "nodiratime",   "allow_other",
	"allow_root", "auto_unmount", "default_permissions",
	"debug",      "fsname=",      "context=",
	"fscontext=", "defcontext=",  "rootcontext=",
	NULL,
};

/* They speak to mount(8), systemd or the kernel's own bookkeeping of times: they mean
 * nothing here, but an fstab line has them. */
static const char *const fstab_words[] = {
	"defaults",   "auto",	     "noauto",
	"nofail",     "_netdev",     "user",
	"nouser",     "users",	     "nousers",
	"owner",      "noowner",     "group",
	"nogroup",    "user=",	     "comment=",
	"x-",	      "X-",	     "relatime",
	"norelatime", "strictatime", "nostrictatime",
	"lazytime",   "nolazytime",  "diratime",
	"silent",     "loud",	     "mand",
	"nomand",     "iversion",    "noiversion",
	NULL,
};

#define CONFIG_WORD "config=" /* an fstab line has no -c */

void options_help(void)
{
	fputs("usage: queenfs [options] [STORE] MOUNTPOINT\n"
	      "\n"
	      "Mounts the message queues in STORE, a file that is made if missing.\n"
	      "\n"
	      "  -c FILE   settings; else /etc/queenfs.ini if there is one\n"
	      "  -s FILE   the store, if it is not an argument or in the settings\n"
	      "  -o WORDS  options of FUSE and mount(8), with commas: ro, allow_other, "
	      "nofail,\n"
	      "            config=FILE (as -c), ...\n"
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

static bool word_among(const char *const *known, const char *word, size_t length)
{
	for (; *known; known++) {
		size_t size = strlen(*known);
		bool prefix = strchr("=-", (*known)[size - 1]);

		if (length >= size && !strncmp(word, *known, size) &&
		    (prefix || length == size))
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

/* Copies a word, without the backslashes that quote. NULL: no memory. */
static char *word_copy(const char *word, size_t length)
{
	char *copy = malloc(length + 1), *to = copy;

	for (size_t i = 0; copy && i < length; i++) {
		if (word[i] == '\\' && i + 1 < length)
			i++;
		*to++ = word[i];
	}
	if (copy)
		*to = '\0';
	return copy;
}

static int config_word(struct options *options, const char *word, size_t length)
{
	char *path = word_copy(word + strlen(CONFIG_WORD), length - strlen(CONFIG_WORD));
	int error = path ? path_set(&options->config, path) : -ENOMEM;

	free(path);
	return error;
}

static int fuse_word_add(struct options *options, const char *word, size_t length)
{
	char *before = options->fuse_words, *all;

	if (asprintf(&all, "%s%s%.*s", before ? before : "", before ? "," : "",
		     (int)length, word) < 0)
		return -ENOMEM;
	free(before);
	options->fuse_words = all;
	return 0;
}

static int word_refused(const char *word, size_t length)
{
	char names[512] = "";
	size_t used = 0;

	if (length == strlen("remount") && !strncmp(word, "remount", length)) {
		say("-o remount: a mount cannot be changed; unmount it and mount it "
		    "again");
		return -EINVAL;
	}
	for (size_t i = 0; fuse_words[i] && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s, ",
					 fuse_words[i]);
	say("-o has the unknown word \"%.*s\"; allowed are %s" CONFIG_WORD
	    ", and for mount(8) nofail, _netdev, noauto, user, x-systemd.* and their "
	    "like",
	    (int)length, word, names);
	return -EINVAL;
}

static int words_add(struct options *options, const char *words)
{
	int error = 0;

	while (*words && !error) {
		size_t length = word_length(words);

		if (length >= strlen(CONFIG_WORD) &&
		    !strncmp(words, CONFIG_WORD, strlen(CONFIG_WORD)))
			error = config_word(options, words, length);
		else if (word_among(fuse_words, words, length))
			error = fuse_word_add(options, words, length);
		else if (length && !word_among(fstab_words, words, length))
			error = word_refused(words, length);
		words += length;
		words += *words == ',';
	}
	return error;
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
