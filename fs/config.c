/* SPDX-License-Identifier: MIT */
/*
 * config.c - queenfs.ini: one typed table says which keys there are.
 *
 * inih reads the lines, but it cuts names, takes the tail of a long line for a setting of
 * its own and an indented line for more of the value above, all without an error. So it
 * gets its lines from line_read(), which refuses what inih would misunderstand.
 */
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <libgen.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "options.h"
#include "say.h"
#include "store.h"

#define SECTION_MAX 49 /* bytes of a section name that inih keeps */
#define BOM "\xef\xbb\xbf"

struct parse {
	const char *path;
	char *directory; /* what relative paths in the file count from */
	FILE *file;
	struct config *config;
	char *line; /* getline(3)'s */
	size_t line_size;
	int number; /* of the line inih looks at */
	int error;  /* the first one; it was said */
};

struct key {
	const char *section, *name;
	/* 0, EINVAL for a bad value, or ENOMEM */
	int (*set)(const struct key *key, const char *text, const struct parse *parse);
	size_t offset;	  /* of the field in struct config */
	uint64_t minimum; /* of a size */
	const char *allowed;
};

/* ---- values --------------------------------------------------------------------- */

static void *field(const struct key *key, const struct parse *parse)
{
	return (char *)parse->config + key->offset;
}

static int path_set(const struct key *key, const char *text, const struct parse *parse)
{
	char **path = field(key, parse);

	if (!*text)
		return -EINVAL;
	free(*path);
	*path = NULL;
	return path_absolute(parse->directory, text, path);
}

static int durability_set(const struct key *key, const char *text,
			  const struct parse *parse)
{
	bool *disk = field(key, parse);

	if (strcmp(text, "disk") && strcmp(text, "os"))
		return -EINVAL;
	*disk = !strcmp(text, "disk");
	return 0;
}

static int yes_no_set(const struct key *key, const char *text, const struct parse *parse)
{
	static const char *const words[] = { "no", "yes", "false", "true", "0", "1" };
	bool *yes = field(key, parse);

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (!strcmp(text, words[i])) {
			*yes = i % 2;
			return 0;
		}
	}
	return -EINVAL;
}

static int size_set(const struct key *key, const char *text, const struct parse *parse)
{
	static const char units[] = "KMG";
	uint64_t *size = field(key, parse);
	unsigned long long number;
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (!isdigit((unsigned char)text[0])) /* strtoull would take a sign */
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (*end || number > (uint64_t)INT64_MAX >> shift ||
	    number << shift < key->minimum)
		return -EINVAL;
	*size = number << shift;
	return 0;
}

static const struct key keys[] = {
	{ "store", "path", path_set, offsetof(struct config, store_path), 0,
	  "a file name" },
	{ "store", "durability", durability_set, offsetof(struct config, disk), 0,
	  "disk or os" },
	{ "store", "reserve", size_set, offsetof(struct config, reserve_bytes), 0,
	  "a size such as 65536, 64K, 32M or 2G, or 0" },
	{ "store", "wal_limit", size_set, offsetof(struct config, wal_limit_bytes),
	  64 << 10, "a size such as 65536, 64K, 16M or 2G, at least 64K" },
	{ "mount", "allow_other", yes_no_set, offsetof(struct config, allow_other), 0,
	  "yes or no" },
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* ---- settings of queues ---------------------------------------------------------- */

#define DEFAULTS "defaults"
#define QUEUE "queue "

/* Is this a section of settings? Then *queue is the name in it, NULL for [defaults]. */
static bool settings_section(const char *section, const char **queue)
{
	bool of_queue = !strncmp(section, QUEUE, strlen(QUEUE));

	*queue = of_queue ? section + strlen(QUEUE) +
				    strspn(section + strlen(QUEUE), " \t")
			  : NULL;
	return of_queue || !strcmp(section, DEFAULTS);
}

static int setting_add(struct config *config, const char *queue, int setting,
		       const char *text)
{
	struct config_setting one = { queue ? strdup(queue) : NULL, setting,
				      text ? strdup(text) : NULL };
	struct config_setting *all =
		realloc(config->settings, (config->setting_count + 1) * sizeof(*all));

	if (all)
		config->settings = all;
	if (!all || (queue && !one.queue) || (text && !one.text)) {
		free(one.queue);
		free(one.text);
		return -ENOMEM;
	}
	all[config->setting_count++] = one;
	return 0;
}

static const char *setting_names(char *names, size_t size)
{
	size_t used = 0;

	for (int i = 0; i < SETTING_COUNT && used < size; i++)
		if (setting_of_queue((enum setting)i))
			used += (size_t)snprintf(names + used, size - used, "%s%s",
						 used ? ", " : "",
						 setting_name((enum setting)i));
	return names;
}

/* ---- refusals ------------------------------------------------------------------- */

/* Says what is wrong with the line that is being read; only the first such text counts. */
__attribute__((format(printf, 2, 3))) static void line_refuse(struct parse *parse,
							      const char *format, ...)
{
	char text[1024];
	va_list arguments;

	if (parse->error)
		return;
	parse->error = -EINVAL;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	say("%s:%d: %s", parse->path, parse->number, text);
}

/* Lists the sections (section NULL) or a section's keys, as "a, b, c". */
static const char *allowed_names(const char *section, char *names, size_t size)
{
	size_t used = 0;

	names[0] = '\0';
	for (size_t i = 0; i < KEYS && used < size; i++) {
		bool again = i > 0 && !strcmp(keys[i].section, keys[i - 1].section);

		if (section ? strcmp(keys[i].section, section) : again)
			continue;
		used += (size_t)snprintf(names + used, size - used,
					 section ? "%s%s" : "%s[%s]", used ? ", " : "",
					 section ? keys[i].name : keys[i].section);
	}
	return names;
}

static bool section_known(const char *section)
{
	for (size_t i = 0; i < KEYS; i++)
		if (!strcmp(keys[i].section, section))
			return true;
	return false;
}

/* ---- lines ---------------------------------------------------------------------- */

static const char *blanks_skip(const char *text)
{
	return text + strspn(text, " \t\r\n\v\f");
}

/* A line that begins with '['. */
static bool section_fits(struct parse *parse, const char *line)
{
	const char *end = strchr(line, ']');
	char section[SECTION_MAX + 1], names[256];
	struct store_why why;
	const char *queue;
	size_t length;

	if (!end) {
		line_refuse(parse, "a section without its closing ]");
		return false;
	}
	length = (size_t)(end - line) - 1;
	if (length > SECTION_MAX) {
		line_refuse(parse, "a section name longer than %d bytes", SECTION_MAX);
		return false;
	}
	memcpy(section, line + 1, length);
	section[length] = '\0';
	if (settings_section(section, &queue)) {
		if (queue && store_name_check(queue, &why)) {
			line_refuse(parse, "[%s]: %s", section, why.text);
			return false;
		}
		if (queue && setting_add(parse->config, queue, -1, NULL)) {
			parse->error = -ENOMEM;
			return false;
		}
	} else if (!section_known(section)) {
		line_refuse(parse,
			    "unknown section [%s]; allowed are %s, [" DEFAULTS "], "
			    "[" QUEUE "NAME]",
			    section, allowed_names(NULL, names, sizeof(names)));
		return false;
	}
	end = blanks_skip(end + 1);
	if (*end && !strchr(INI_START_COMMENT_PREFIXES, *end)) {
		line_refuse(parse, "text after [%s]; a setting has a line of its own",
			    section);
		return false;
	}
	return true;
}

/* Will inih understand this line as its writer did? limit: what it holds of a line. */
static bool line_fits(struct parse *parse, const char *line, size_t length, size_t limit)
{
	const char *text = blanks_skip(line);

	if (memchr(line, '\0', length)) {
		line_refuse(parse, "a NUL byte");
		return false;
	}
	if (length > limit) {
		line_refuse(parse, "the line is longer than %zu bytes", limit);
		return false;
	}
	if (!*text || strchr(INI_START_COMMENT_PREFIXES, *text))
		return true;
	if (text != line) {
		line_refuse(
			parse,
			"an indented line; begin every setting at the start of its line");
		return false;
	}
	if (*line == '[')
		return section_fits(parse, line);
	if (!strpbrk(line, "=:")) {
		line_refuse(parse,
			    "neither a [section] nor a setting such as key = value");
		return false;
	}
	return true;
}

/* inih's fgets(3): the next line, or NULL at the end of the file and after an error. */
static char *line_read(char *buffer, int size, void *stream)
{
	struct parse *parse = stream;
	ssize_t length;
	char *line;

	if (parse->error)
		return NULL;
	errno = 0;
	length = getline(&parse->line, &parse->line_size, parse->file);
	if (length < 0) {
		if (!feof(parse->file)) {
			parse->error = errno ? -errno : -EIO;
			say("%s: %s", parse->path, strerror(-parse->error));
		}
		return NULL;
	}
	line = parse->line;
	if (parse->number++ == 0 && !strncmp(line, BOM, strlen(BOM))) {
		line += strlen(BOM);
		length -= (ssize_t)strlen(BOM);
	}
	while (length && (line[length - 1] == '\n' || line[length - 1] == '\r'))
		line[--length] = '\0';
	/* inih's buffer also has to hold our newline and NUL */
	if (!line_fits(parse, line, (size_t)length, (size_t)size - 2))
		return NULL;
	snprintf(buffer, (size_t)size, "%s\n", line);
	return buffer;
}

/* A line of [defaults] or [queue NAME]. */
static int queue_setting_take(struct parse *parse, const char *section, const char *queue,
			      const char *name, const char *value)
{
	char names[512];
	struct store_why why;
	enum setting setting;

	if (setting_find(name, &setting))
		line_refuse(parse, "unknown key \"%s\" in [%s]; allowed are %s", name,
			    section, setting_names(names, sizeof(names)));
	else if (!setting_of_queue(setting))
		line_refuse(parse,
			    "unknown key \"%s\" in [%s]: only a group has it, in its "
			    "config/%s; allowed are %s",
			    name, section, name, setting_names(names, sizeof(names)));
	else if (setting_check(setting, value, &why))
		line_refuse(parse, "%s", why.text);
	else if (setting_add(parse->config, queue, (int)setting, value))
		parse->error = -ENOMEM;
	return !parse->error;
}

/* inih's handler: 1 goes on, 0 is an error. */
static int setting_take(void *user, const char *section, const char *name,
			const char *value)
{
	struct parse *parse = user;
	char names[256];
	const char *queue;
	int error;

	if (settings_section(section, &queue))
		return queue_setting_take(parse, section, queue, name, value);
	if (!*section) {
		line_refuse(parse, "\"%s\" stands before any section; allowed are %s",
			    name, allowed_names(NULL, names, sizeof(names)));
		return 0;
	}
	for (size_t i = 0; i < KEYS; i++) {
		if (strcmp(keys[i].section, section) || strcmp(keys[i].name, name))
			continue;
		error = keys[i].set(&keys[i], value, parse);
		if (error == -EINVAL)
			line_refuse(parse, "bad value \"%s\" for %s; allowed is %s",
				    value, name, keys[i].allowed);
		else if (error)
			line_refuse(parse, "%s: %s", name, strerror(-error));
		return !error;
	}
	line_refuse(parse, "unknown key \"%s\" in [%s]; allowed are %s", name, section,
		    allowed_names(section, names, sizeof(names)));
	return 0;
}

/* ---- the file ------------------------------------------------------------------- */

static int parse_run(struct parse *parse)
{
	char *copy = strdup(parse->path);
	int rc;

	parse->directory = copy ? strdup(dirname(copy)) : NULL;
	free(copy);
	if (!parse->directory)
		return -ENOMEM;
	rc = ini_parse_stream(line_read, parse, setting_take, parse);
	if (rc > 0) { /* without effect if it was a refusal of ours */
		parse->number = rc;
		line_refuse(parse, "not a setting such as key = value");
	}
	free(parse->line);
	free(parse->directory);
	return rc < 0 && !parse->error ? -ENOMEM : parse->error;
}

int config_read(const char *path, struct config *config)
{
	struct parse parse = { .path = path ? path : CONFIG_DEFAULT_PATH,
			       .config = config };
	int error;

	*config = (struct config){
		.disk = true,
		.reserve_bytes = 32 << 20,
		.wal_limit_bytes = 16 << 20,
	};
	parse.file = fopen(parse.path, "re");
	if (!parse.file) {
		if (errno == ENOENT && !path)
			return 0;
		error = -errno;
		say("%s: %s", parse.path, strerror(-error));
		return error;
	}
	error = parse_run(&parse);
	if (error == -ENOMEM)
		say("%s: %s", parse.path, strerror(-error));
	fclose(parse.file);
	return error;
}

/* ---- in the store ---------------------------------------------------------------- */

struct answer {
	sem_t given;
	int error;
	char why[240];
};

static void answered(void *arg, const struct store_result *result)
{
	struct answer *answer = arg;

	answer->error = result->error;
	snprintf(answer->why, sizeof(answer->why), "%s",
		 *result->why ? result->why : strerror(-result->error));
	sem_post(&answer->given);
}

static int answer_await(struct answer *answer)
{
	while (sem_wait(&answer->given) < 0 && errno == EINTR)
		;
	return answer->error;
}

static int queue_apply(struct store *store, const struct config_setting *setting,
		       struct answer *answer)
{
	const struct access access = { geteuid(), getegid(), 0755 };
	struct item *queue;
	int error;

	if (setting->setting < 0) {
		store_make(store, NULL, ITEM_QUEUE, setting->queue, &access, answered,
			   answer);
		error = answer_await(answer);
		return error == -EEXIST ? 0 : error;
	}
	error = store_find(store, NULL, ITEM_QUEUE, setting->queue, &queue);
	if (error)
		return error;
	store_setting_set(queue, (enum setting)setting->setting, setting->text, answered,
			  answer);
	error = answer_await(answer);
	store_put(queue);
	return error;
}

int config_apply(const struct config *config, struct store *store)
{
	struct answer answer = { .why = "" };
	int error = 0;

	sem_init(&answer.given, 0, 0);
	/* The defaults first, whatever their place in the file: they are for new queues. */
	for (size_t i = 0; i < config->setting_count && !error; i++)
		if (!config->settings[i].queue)
			error = store_setting_default(
				store, (enum setting)config->settings[i].setting,
				config->settings[i].text, NULL);
	for (size_t i = 0; i < config->setting_count && !error; i++) {
		if (!config->settings[i].queue)
			continue;
		error = queue_apply(store, &config->settings[i], &answer);
		if (error)
			say("[" QUEUE "%s]: %s", config->settings[i].queue, answer.why);
	}
	sem_destroy(&answer.given);
	return error;
}

void config_free(struct config *config)
{
	for (size_t i = 0; i < config->setting_count; i++) {
		free(config->settings[i].queue);
		free(config->settings[i].text);
	}
	free(config->settings);
	free(config->store_path);
}
