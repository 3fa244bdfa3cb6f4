#include "loaderd/io/dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool bit_test(const _Atomic uint64_t *bits, uint64_t index)
{
	return atomic_load_explicit(&bits[index / 64], memory_order_relaxed) >> (index % 64) & 1;
}

static bool bit_set(_Atomic uint64_t *bits, uint64_t index)
{
	uint64_t mask = UINT64_C(1) << (index % 64);
	return atomic_fetch_or_explicit(&bits[index / 64], mask, memory_order_relaxed) & mask;
}

static int map_regions(struct dataset *dataset)
{
	uint32_t shards = packimg_shard_count(dataset->image);
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	dataset->regions = calloc(shards, sizeof(*dataset->regions));
	if (!dataset->regions)
		return -ENOMEM;
	for (uint32_t i = 0; i < shards; i++) {
		struct packimg_shard shard;
		int r = packimg_shard(dataset->image, i, &shard);
		if (r < 0)
			return r;
		uintptr_t begin = (uintptr_t)shard.map;
		dataset->regions[i].begin = begin;
		dataset->regions[i].end = (begin + shard.size + page - 1) & ~(page - 1);
		dataset->bytes += shard.size;
	}
	dataset->guard.regions = dataset->regions;
	dataset->guard.count = shards;
	return 0;
}

static int dataset_prepare(struct dataset *dataset, const char *path)
{
	dataset->path = strdup(path);
	dataset->count = packimg_count(dataset->image);
	/* calloc() takes large arrays from mmap, so untouched parts use no memory. */
	size_t words = dataset->count / 64 + 1;
	dataset->checked = calloc(words, sizeof(*dataset->checked));
	dataset->images_checked =
		calloc(dataset->count * packimg_image_count(dataset->image) / 64 + 1,
		       sizeof(*dataset->images_checked));
	dataset->damaged = calloc(words, sizeof(*dataset->damaged));
	dataset->reported = calloc(words, sizeof(*dataset->reported));
	if (!dataset->path || !dataset->checked || !dataset->images_checked || !dataset->damaged ||
	    !dataset->reported)
		return -ENOMEM;
	return map_regions(dataset);
}

int dataset_open(const char *path, const int *fds, uint32_t count, bool mapped,
		 struct dataset **ret_dataset, struct packimg_error *error)
{
	struct dataset *dataset = calloc(1, sizeof(*dataset));
	if (!dataset)
		return -ENOMEM;
	dataset->mapped = mapped;
	sigbus_guard_enter(NULL);
	int r = mapped ? packimg_open_fds(path, fds, count, &dataset->image, error)
		       : packimg_open_unmapped(path, fds, count, &dataset->image, error);
	if (r == 0)
		r = dataset_prepare(dataset, path);
	if (sigbus_guard_leave() && r == 0) {
		snprintf(error->text, sizeof(error->text),
			 "%s: the file became shorter while it was being opened, or cannot be read",
			 path);
		r = -EBADMSG;
	} else if (r == -ENOMEM) {
		snprintf(error->text, sizeof(error->text), "%s: out of memory", path);
	}
	if (r < 0) {
		dataset_free(dataset);
		return r;
	}
	*ret_dataset = dataset;
	return 0;
}

void dataset_free(struct dataset *dataset)
{
	if (!dataset)
		return;
	if (dataset->image)
		packimg_close(dataset->image);
	free(dataset->regions);
	free(dataset->checked);
	free(dataset->images_checked);
	free(dataset->damaged);
	free(dataset->reported);
	free(dataset->path);
	free(dataset);
}

int dataset_verify(struct dataset *dataset, const struct packimg_sample *sample,
		   struct packimg_error *error)
{
	bool suspect = atomic_load_explicit(&dataset->suspect, memory_order_relaxed);
	if (!suspect && bit_test(dataset->checked, sample->index))
		return 0;
	if (packimg_sample_check(sample) < 0) {
		bit_set(dataset->damaged, sample->index);
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: stored bytes do not match their checksum; the file is "
			 "damaged",
			 (unsigned long long)sample->index);
		return -EBADMSG;
	}
	bit_set(dataset->checked, sample->index);
	return 0;
}

int dataset_known(struct dataset *dataset, uint64_t index, struct packimg_error *error)
{
	if (!bit_test(dataset->damaged, index))
		return 0;
	snprintf(error->text, sizeof(error->text), "sample %llu: was found to be damaged before",
		 (unsigned long long)index);
	return -EBADMSG;
}

int dataset_sample(struct dataset *dataset, uint64_t index, bool verify,
		   struct packimg_sample *ret_sample, struct packimg_error *error)
{
	struct packimg_sample sample;
	int r = dataset_known(dataset, index, error);
	if (r < 0)
		return r;
	r = packimg_sample(dataset->image, index, &sample);
	if (r < 0) {
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: its index record is damaged", (unsigned long long)index);
		return r;
	}
	if (verify) {
		r = dataset_verify(dataset, &sample, error);
		if (r < 0)
			return r;
	}
	*ret_sample = sample;
	return 0;
}

int dataset_image(struct dataset *dataset, uint64_t index, uint32_t image,
		  struct packimg_sample *ret_image, struct packimg_error *error)
{
	int r = packimg_image(dataset->image, index, image, ret_image);
	if (r < 0 && r != -ENODATA) {
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: the record of its further image %u is damaged, or has "
			 "another size than the image to which it belongs",
			 (unsigned long long)index, image);
		return -EBADMSG;
	}
	return r;
}

int dataset_verify_image(struct dataset *dataset, const struct packimg_sample *sample,
			 uint32_t image, struct packimg_error *error)
{
	uint64_t bit = sample->index * packimg_image_count(dataset->image) + image;
	bool suspect = atomic_load_explicit(&dataset->suspect, memory_order_relaxed);
	if (!suspect && bit_test(dataset->images_checked, bit))
		return 0;
	if (packimg_sample_check(sample) < 0) {
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: stored bytes of its further image %u do not match their "
			 "checksum; the file is damaged",
			 (unsigned long long)sample->index, image);
		return -EBADMSG;
	}
	bit_set(dataset->images_checked, bit);
	return 0;
}

void dataset_condemn(struct dataset *dataset, uint64_t index)
{
	bit_set(dataset->damaged, index);
}

bool dataset_first_report(struct dataset *dataset, uint64_t index)
{
	return !bit_set(dataset->reported, index);
}
