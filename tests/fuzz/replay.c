/*
 * Runs a fuzz target without libFuzzer: replay [-m MUTATIONS] FILE|FOLDER... runs each file
 * unchanged, then mutated. The seed of a mutation depends only on its number and the file's size,
 * so every run gives the same inputs. Fails if there is no input.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/mutate.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned long mutations = 64, inputs;

/* Copies the input to a buffer of exactly its size, so that a sanitizer detects every overread. */
static void feed(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

static int replay_file(const char *path)
{
	struct stat status;
	FILE *file = fopen(path, "rb");

	if (!file || fstat(fileno(file), &status) < 0) {
		perror(path);
		return -1;
	}
	size_t size = (size_t)status.st_size;
	uint8_t *data = malloc(size + 1), *copy = malloc(size + 1);
	if (fread(data, 1, size, file) != size) {
		perror(path);
		return -1;
	}
	fclose(file);
	feed(data, size);
	for (unsigned long i = 0; i < mutations; i++) {
		uint64_t state = i * 0x10001 + size;
		memcpy(copy, data, size);
		feed(copy, mutate_bytes(copy, size, &state));
	}
	free(data);
	free(copy);
	return 0;
}

static int replay_folder(const char *path)
{
	char file[4096];
	struct dirent *entry;
	int r = 0;

	DIR *listing = opendir(path);
	if (!listing) {
		perror(path);
		return -1;
	}
	while (r == 0 && (entry = readdir(listing))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		r = replay_file(file);
	}
	closedir(listing);
	return r;
}

int main(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "m:")) != -1) {
		if (option != 'm')
			return 2;
		mutations = strtoul(optarg, NULL, 10);
	}
	for (int i = optind; i < argc; i++) {
		struct stat status;
		if (stat(argv[i], &status) < 0) {
			perror(argv[i]);
			return 1;
		}
		if ((S_ISDIR(status.st_mode) ? replay_folder(argv[i]) : replay_file(argv[i])) < 0)
			return 1;
	}
	printf("%lu inputs\n", inputs);
	return inputs > 0 ? 0 : 1;
}
