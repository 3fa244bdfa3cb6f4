/*
 * Arbitrary bytes as a dataset in a store, as loaderd-fetch opens it: header, sections, records,
 * and which parts each sample has. Once as they are, and once with all checksums recomputed, which
 * mutations would otherwise not get past. An input that begins with '+' is a store that announces
 * more bytes than it has. One that begins with '3' is a set of three files: their sizes follow, 16
 * bits each, then they, and then its set file, if it has one.
 *
 * The store is a double. The cache is a folder that is emptied after each input; each dataset is
 * opened twice, so that the second time its sections are there.
 */
#include "format/set_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/whole_file.h"
#include "tests/unit/fetch/store_double.h"
#include "tools/fetch/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
	ANNOUNCED_BEYOND = 1 << 30,
	SAMPLES_MAX = 256,
	QUEUE_MAX = 4096,
	FILES = 4,
	SHARDS = 3,
	SET_HEAD = 7
};

/* ---- the fetcher's side ---- */

static bool go_on(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	return total == 0 || done <= total;
}

/* Every part lies within its file, and they do not depend on what was there before. */
static void use_sample(struct remote_dataset *dataset, uint64_t sample)
{
	struct sample_part parts[SAMPLE_PARTS_MAX];
	unsigned count = dataset_parts(dataset, sample, 1 << 16, parts);

	if (count > SAMPLE_PARTS_MAX)
		abort();
	for (unsigned i = 0; i < count; i++)
		if (parts[i].file >= dataset->file_count || parts[i].range.size == 0 ||
		    parts[i].range.size > dataset->objects[parts[i].file].size ||
		    parts[i].range.offset >
			    dataset->objects[parts[i].file].size - parts[i].range.size)
			abort();
	dataset_sample_good(dataset, sample, NULL);
	dataset_set_present(dataset, sample);
}

static void use_dataset(struct remote_dataset *dataset)
{
	uint64_t count = dataset->samples < SAMPLES_MAX ? dataset->samples : SAMPLES_MAX;

	for (uint64_t i = 0; i < count; i += 2)
		use_sample(dataset, i);
	if (dataset_count_pages(dataset))
		return;
	uint64_t used = dataset->pages->used;
	for (uint64_t i = 1; i < count; i += 2)
		use_sample(dataset, i);
	for (uint64_t i = 1; i < count; i += 2)
		dataset_evict(dataset, i);
	if (dataset->pages->used != used)
		abort();
}

static void open_twice(const struct cache *cache, const char *url)
{
	const struct dataset_progress progress = {go_on, NULL};
	struct remote_dataset *dataset;
	struct packimg_error error;

	for (int i = 0; i < 2; i++) {
		store_double->queued = 0;
		if (dataset_open(store_double, cache, url, &progress, &dataset, &error) == 0) {
			use_dataset(dataset);
			dataset_close(dataset);
		} else if (!memchr(error.text, 0, sizeof(error.text))) {
			abort();
		}
	}
}

static char folder[64];

static void remove_folder(void)
{
	rmdir(folder);
}

static void find_cache(struct cache *cache)
{
	struct packimg_error error;

	strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-cache-XXXXXX"
						     : "/tmp/fuzz-cache-XXXXXX");
	if (!mkdtemp(folder) || setenv("LOADERD_CACHE", folder, 1) ||
	    setenv("LOADERD_CACHE_SIZE", "64M", 1) || cache_init(cache, &error))
		abort();
	atexit(remove_folder);
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);

/* The bytes of an input before the files. */
static size_t head_size(const uint8_t *data, size_t size)
{
	return size && data[0] == '+' ? 1 : size >= SET_HEAD && data[0] == '3' ? SET_HEAD : 0;
}

/* Mutates the file, or one of them, and nothing before it. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
	size_t head = head_size(data, size);

	if (size == head || size_max <= head)
		return size;
	if (head == SET_HEAD) /* of the same size, or the others would be shifted */
		size_max = size;
	return head +
	       whole_file_mutate(data + head, size - head, size_max - head, seed, LLVMFuzzerMutate);
}

/* Splits what follows the head into files. */
static void split(uint8_t *bytes, size_t size, const uint8_t *sizes)
{
	for (unsigned i = 0; i < STORE_DOUBLE_FILES; i++) {
		size_t want =
			sizes && i < SHARDS ? sizes[2 * i] | (size_t)sizes[2 * i + 1] << 8 : size;

		store_double->bytes[i] = bytes;
		store_double->sizes[i] = want < size ? want : size;
		bytes += store_double->sizes[i];
		size -= store_double->sizes[i];
	}
}

/* Recomputes all checksums. */
static void repair(void)
{
	uint8_t *set = store_double->bytes[SHARDS];
	size_t size = store_double->sizes[SHARDS];

	for (unsigned i = 0; i < SHARDS; i++)
		whole_file_repair(store_double->bytes[i], store_double->sizes[i]);
	for (size_t at = SET_FILE_HEAD; at + SET_FILE_ENTRY + SET_FILE_TAIL <= size;
	     at += SET_FILE_ENTRY)
		whole_file_repair(set + at + offsetof(struct set_file_entry, header),
				  sizeof(struct pimg_header));
	if (size > SET_FILE_TAIL) {
		const uint64_t xxh3 = XXH3_64bits(set, size - SET_FILE_TAIL);

		memcpy(set + size - SET_FILE_TAIL, &xxh3, sizeof(xxh3));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cache cache;
	size_t head = head_size(data, size);
	bool set = head == SET_HEAD;
	const char *url = set ? "s3://bucket/a-00000-of-00003.pimg" : "s3://bucket/a.pimg";
	uint8_t *copy = malloc(size + 1);
	uint64_t bytes;
	uint32_t removed, busy;

	if (!copy)
		abort();
	if (!cache.limit)
		find_cache(&cache);
	memcpy(copy, data, size);
	split(copy + head, size - head, set ? data + 1 : NULL);
	store_double->beyond = head == 1 ? ANNOUNCED_BEYOND : 0;
	open_twice(&cache, url);
	repair();
	if (memcmp(copy, data, size) != 0) {
		cache_clear(&cache, NULL, &bytes, &removed, &busy);
		open_twice(&cache, url);
	}
	cache_clear(&cache, NULL, &bytes, &removed, &busy);
	free(copy);
	return 0;
}
