/* SPDX-License-Identifier: MIT */
/* fuzz_setting.c - values of settings (section 12), written to a queue or a group: what is
 * accepted reads back as a text that is accepted too and reads back as itself. Input: a byte
 * for the setting, then the text. */
#include "fuzz_store.h"

static struct store *store;
static struct item *queue, *group;

static void begin(void)
{
	const struct access anyone = { 0, 0, 0777 };

	PROMISE(fuzz_store_open(&store) == 0);
	PROMISE(fuzz_make(store, NULL, ITEM_QUEUE, "q", &anyone, &queue) == 0);
	PROMISE(fuzz_make(store, queue, ITEM_GROUP, "g", &anyone, &group) == 0);
}

static void write_and_read(struct item *item, enum setting setting, const char *text)
{
	char shown[SETTING_TEXT_SIZE], again[SETTING_TEXT_SIZE];
	struct store_why why = { "" };
	int error = fuzz_setting_set(item, setting, text);

	PROMISE(error == 0 || error == -EINVAL);
	if (error)
		return;
	PROMISE(strcasecmp(text, "default") == 0 ||
		setting_check(setting, text, &why) == 0);
	store_setting(item, setting, shown);
	PROMISE(setting_check(setting, shown, &why) == 0);
	PROMISE(fuzz_setting_set(item, setting, shown) == 0);
	store_setting(item, setting, again);
	PROMISE(strcmp(shown, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = { data, size };
	enum setting setting = (enum setting)(fuzz_take(&input, 1) % SETTING_COUNT);
	char *text = fuzz_text(input.at, input.left);

	if (!store)
		begin();
	if (setting_of_queue(setting))
		write_and_read(queue, setting, text);
	if (setting_of_group(setting))
		write_and_read(group, setting, text);
	free(text);
	return 0;
}
