/* SPDX-License-Identifier: MIT */
/* config_dir.c - config/<setting>: one value a file; cat reads it, echo sets it. */
#include <errno.h>
#include <string.h>

#include "fs.h"

/* More than any value may have, so that the refusal says what is allowed. */
#define VALUE_MAX 4000

static struct item *setting_item(const struct place *place)
{
	return place->group ? place->group : place->queue;
}

static int setting_text(const struct node *node, FILE *out)
{
	char text[SETTING_TEXT_SIZE];

	store_setting(setting_item(&node->place), node->place.setting, text);
	fprintf(out, "%s\n", text);
	return 0;
}

static ssize_t setting_write(struct handle *handle, struct call *call, const char *data,
			     size_t size, uint64_t owner)
{
	const struct place *place = &handle->node->place;
	char copy[VALUE_MAX + 1], *text = NULL;

	(void)owner;
	if (size <= VALUE_MAX) {
		memcpy(copy, data, size);
		text = text_line(copy, size);
	}
	if (!text)
		return why_not(&call->why, -EINVAL,
			       "a write here is one value, one line");
	store_setting_set(setting_item(place), place->setting, text, call_finish, call);
	return PARKED;
}

const struct file_ops setting_file = {
	TEXT_FILE,
	.text = setting_text,
	.write = setting_write,
};
