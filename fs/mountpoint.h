/* SPDX-License-Identifier: MIT */
/* mountpoint.h - the directory that becomes the mount (section 13). */
#ifndef MOUNTPOINT_H
#define MOUNTPOINT_H

/*
 * Checks that queenfs can be mounted here, and takes away a queenfs mount that a crash left
 * dead. Gives the absolute path, freed by the caller. ENOENT, ENOTDIR, EBUSY (a live queenfs
 * is there), ENOTCONN (dead, and not ours or in the way), and what stat(2) says; already
 * said.
 */
int mountpoint_prepare(const char *path, char **absolute);

/* 0 once the filesystem mounted here has answered us; else -errno. */
int mountpoint_ask(const char *path);

/* Can this process open /dev/fuse? 0, or -errno with the reason already said. */
int fuse_device_check(void);

#endif
