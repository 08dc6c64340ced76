/* SPDX-License-Identifier: MIT */
/* fuzz_ini.c - queenfs.ini (section 12): any file is read or refused, and what is read is
 * whole. */
#include <sys/mman.h>
#include <unistd.h>

#include "config.h"
#include "fuzz.h"
#include "store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config config;
	struct store_why why;
	char path[40];
	int fd = memfd_create("ini", MFD_CLOEXEC), error;

	PROMISE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	error = config_read(path, &config);
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
