/* SPDX-License-Identifier: MIT */
/*
 * say.h - what the daemon has to tell a person: on stderr until it runs in the background,
 * in syslog from then on. (What a file operation was refused for is in the mount's `errors`.)
 */
#ifndef SAY_H
#define SAY_H

#include <fuse_log.h>
#include <stdarg.h>

/* Prints `queenfs: <text>` and a newline. Any thread. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Like say(), for libfuse: give it to fuse_set_log_func(). */
void say_fuse(enum fuse_log_level level, const char *format, va_list arguments);

/* From now on to syslog. Call it while there is one thread. */
void say_to_syslog(void);

#endif
