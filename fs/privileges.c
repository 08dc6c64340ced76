/* SPDX-License-Identifier: MIT */
/*
 * privileges.c - what the daemon gives up before it serves anybody (section 13).
 *
 * It holds everybody's messages, so it dumps no core. Started by root it keeps the few
 * capabilities that mounting, unmounting and a store of another user take, and whatever it
 * runs can gain none; started by a user it has none, and needs fusermount3, which is
 * setuid, to unmount at the end.
 */
#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "privileges.h"
#include "say.h"

#define BIT(capability) (UINT64_C(1) << (capability))
#define KEPT                                                                             \
	(BIT(CAP_SYS_ADMIN) |					    /* mount, unmount */ \
	 BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | /* its files */      \
	 BIT(CAP_SYS_RESOURCE) | /* what a disk keeps for root is for the store too */   \
	 BIT(CAP_SYS_PTRACE))	 /* names of processes where /proc hides them */

static int capabilities_drop(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, data))
		return -errno;
	for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		data[i].permitted &= (uint32_t)(KEPT >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &header, data) ? -errno : 0;
}

int privileges_drop(void)
{
	struct rlimit core;
	int error = 0;

	/* Who has to see one can raise it again: prlimit --core=unlimited --pid. */
	if (getrlimit(RLIMIT_CORE, &core) == 0) {
		core.rlim_cur = 0;
		setrlimit(RLIMIT_CORE, &core);
	}
	if (geteuid() != 0)
		return 0;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		error = -errno;
	if (!error)
		error = capabilities_drop();
	if (error)
		say("cannot give up what is not needed: %s", strerror(-error));
	return error;
}
