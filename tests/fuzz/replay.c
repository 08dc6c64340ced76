/* SPDX-License-Identifier: MIT */
/*
 * replay.c - feeds a target what is in its corpus, or the files named, and prints TAP.
 *
 * Not for libFuzzer, which brings a main() of its own.
 */
#include <dirent.h>
#include <libgen.h>

#include "fuzz.h"

static unsigned fed;

static int feed(const char *path)
{
	static uint8_t room[1 << 20];
	FILE *file = fopen(path, "re");
	uint8_t *data;
	size_t size;

	if (!file) {
		printf("# %s: %s\n", path, strerror(errno));
		return -1;
	}
	size = fread(room, 1, sizeof(room), file);
	fclose(file);
	printf("# %s\n", path); /* so that it is named if it is the last one */
	fflush(stdout);
	data = malloc(size + !size); /* so that what is read past its end is found */
	PROMISE(data);
	memcpy(data, room, size);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	fed++;
	return 0;
}

static int feed_all(const char *directory)
{
	struct dirent **entries;
	char path[512];
	int count = scandir(directory, &entries, NULL, alphasort), failed = count < 0;

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.' && feed(path))
			failed = 1;
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	return failed;
}

int main(int argc, char **argv)
{
	const char *name = basename(argv[0]);
	char directory[256];
	int failed = 0;

	snprintf(directory, sizeof(directory), "tests/fuzz/corpus/%s",
		 strncmp(name, "fuzz_", 5) ? name : name + 5);
	printf("1..1\n");
	for (int i = 1; i < argc; i++)
		failed |= feed(argv[i]);
	if (argc == 1)
		failed = feed_all(directory);
	failed |= fed == 0;
	printf("%sok 1 - %s takes all of its corpus\n", failed ? "not " : "", name);
	return failed;
}
