/* SPDX-License-Identifier: MIT */
/*
 * notify.h - tells systemd how far the daemon is (section 13), as sd_notify(3) describes it:
 * a datagram of lines NAME=VALUE to the socket that $NOTIFY_SOCKET names. Only a daemon in
 * the foreground has something to tell: one in the background says it by its parent's exit.
 */
#ifndef NOTIFY_H
#define NOTIFY_H

#include <stdbool.h>

/* Takes $NOTIFY_SOCKET out of the environment. Without it, or with one that is no socket's
 * name (which is said), notify() does nothing. Call it while there is one thread. */
void notify_begin(void);

/* Does somebody listen? */
bool notify_wanted(void);

/* Sends lines NAME=VALUE, the last without its newline. Any thread. Never waits for long
 * and never fails: that nobody listens is no reason to stop. */
void notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
