/*
 * Runs a fuzz target without libFuzzer: replay [-m MUTATIONS] FILE|FOLDER... feeds each file as it is, then mutated
 * in ways drawn from its own number, so that every run does the same. Fails when it finds nothing to feed.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned long mutations = 64, inputs;

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

/* Exactly as large as the input, so that a sanitizer sees every read beyond it. */
static void feed(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

/* Flips bits, plants values that break arithmetic, doubles or drops a piece, cuts the end off. */
static size_t mutate(uint8_t *data, size_t size, uint64_t *state)
{
	static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0x40, 0xd9};

	for (uint64_t count = 1 + next_random(state) % 4; count > 0 && size > 0; count--) {
		size_t at = next_random(state) % size, length = 1 + next_random(state) % 16;
		if (length > size - at)
			length = size - at;
		switch (next_random(state) % 5) {
		case 0:
			data[at] ^= (uint8_t)(1u << next_random(state) % 8);
			break;
		case 1:
			data[at] = values[next_random(state) % sizeof(values)];
			break;
		case 2:
			memset(data + at, values[next_random(state) % sizeof(values)], length);
			break;
		case 3:
			memmove(data + at, data + next_random(state) % (size - length + 1), length);
			break;
		default:
			if (next_random(state) % 4 == 0)
				size = at;
			break;
		}
	}
	return size;
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
		feed(copy, mutate(copy, size, &state));
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
