/* SPDX-License-Identifier: MIT */
/* privileges.h - what the daemon gives up before it serves anybody. */
#ifndef PRIVILEGES_H
#define PRIVILEGES_H

/* While there is one thread: others inherit it. Failures were said. */
int privileges_drop(void);

#endif
