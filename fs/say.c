/* SPDX-License-Identifier: MIT */
/*
 * say.c - one door for every text the daemon prints, so that a failure reads the same in
 * the foreground, in the background and in syslog.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include "say.h"

static bool to_syslog;

/* libfuse builds some lines from several calls; this is the line so far. */
static pthread_mutex_t fuse_line_lock = PTHREAD_MUTEX_INITIALIZER;
static char fuse_line[1024];

static void say_line(int priority, const char *text)
{
	if (to_syslog)
		syslog(priority, "%s", text);
	else
		fprintf(stderr, "queenfs: %s\n", text);
}

void say(const char *format, ...)
{
	char text[8192];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	say_line(LOG_ERR, text);
}

static void fuse_line_finish(enum fuse_log_level level)
{
	const char *text = fuse_line;

	if (!strncmp(text, "fuse: ", strlen("fuse: ")))
		text += strlen("fuse: ");
	if (*text)
		say_line((int)level, text); /* the levels are syslog's own */
	fuse_line[0] = '\0';
}

void say_fuse(enum fuse_log_level level, const char *format, va_list arguments)
{
	char text[sizeof(fuse_line)];
	char *rest = text, *line;

	if (level == FUSE_LOG_DEBUG && !to_syslog) {
		vfprintf(stderr, format, arguments);
		return;
	}
	vsnprintf(text, sizeof(text), format, arguments);
	pthread_mutex_lock(&fuse_line_lock);
	while ((line = strsep(&rest, "\n"))) {
		size_t used = strlen(fuse_line);

		snprintf(fuse_line + used, sizeof(fuse_line) - used, "%s", line);
		if (rest) /* a newline ended this piece */
			fuse_line_finish(level);
	}
	pthread_mutex_unlock(&fuse_line_lock);
}

void say_to_syslog(void)
{
	openlog("queenfs", LOG_PID, LOG_DAEMON);
	to_syslog = true;
}
