/* SPDX-License-Identifier: MIT */
/* fuzz_ini.c - queenfs.ini (section 12): any file is read or refused, and what is read is
 * whole. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config.h"
#include "fuzz.h"
#include "store.h"

/* What it says of each is not for us. */
static int quiet_read(const char *path, struct config *config)
{
	static int null = -1, own = -1;
	int error;

	if (null < 0) {
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		own = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	}
	dup2(null, STDERR_FILENO);
	error = config_read(path, config);
	dup2(own, STDERR_FILENO);
	return error;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config config;
	struct store_why why;
	char path[40];
	int fd = memfd_create("ini", MFD_CLOEXEC), error;

	PROMISE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	error = quiet_read(path, &config);
	PROMISE(error == 0 || error == -EINVAL);
	for (size_t i = 0; i < config.setting_count; i++) {
		const struct config_setting *one = &config.settings[i];
		PROMISE(!one->queue || store_name_check(one->queue, &why) == 0);
		PROMISE(one->setting < 0 ||
			setting_check((enum setting)one->setting, one->text, &why) == 0);
	}
	PROMISE(error || config.wal_limit_bytes >= 64 << 10);
	PROMISE(!config.store_path || *config.store_path == '/');
	config_free(&config);
	close(fd);
	return 0;
}
