#include "loaderd/io/dataset.h"

#include "format/join.h"

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

/* Names a joined dataset by its first parts: "a.pimg + b.pimg + 3 more". */
static char *joined_path(const struct dataset_files *parts, uint32_t count)
{
	enum { PARTS_NAMED = 3 };
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);
	if (!stream)
		return NULL;
	for (uint32_t p = 0; p < count && p < PARTS_NAMED; p++)
		fprintf(stream, "%s%s", p ? " + " : "", parts[p].path);
	if (count > PARTS_NAMED)
		fprintf(stream, " + %u more", count - PARTS_NAMED);
	if (fclose(stream) == 0)
		return text;
	free(text);
	return NULL;
}

static int copy_paths(struct dataset *dataset, const struct dataset_files *parts, uint32_t count)
{
	dataset->path = count == 1 ? strdup(parts[0].path) : joined_path(parts, count);
	if (count == 1)
		return dataset->path ? 0 : -ENOMEM;
	dataset->part_paths = calloc(count, sizeof(*dataset->part_paths));
	if (!dataset->path || !dataset->part_paths)
		return -ENOMEM;
	for (; dataset->part_path_count < count; dataset->part_path_count++) {
		char *copy = strdup(parts[dataset->part_path_count].path);
		if (!copy)
			return -ENOMEM;
		dataset->part_paths[dataset->part_path_count] = copy;
	}
	return 0;
}

static int dataset_prepare(struct dataset *dataset)
{
	dataset->count = packimg_count(dataset->image);
	/* calloc() takes large arrays from mmap, so untouched parts use no memory. */
	size_t words = dataset->count / 64 + 1;
	dataset->checked = calloc(words, sizeof(*dataset->checked));
	dataset->images_checked =
		calloc(dataset->count * packimg_image_count(dataset->image) / 64 + 1,
		       sizeof(*dataset->images_checked));
	dataset->damaged = calloc(words, sizeof(*dataset->damaged));
	dataset->reported = calloc(words, sizeof(*dataset->reported));
	if (!dataset->checked || !dataset->images_checked || !dataset->damaged ||
	    !dataset->reported)
		return -ENOMEM;
	return map_regions(dataset);
}

static int open_part(const struct dataset_files *part, bool mapped, struct packimg **ret_image,
		     struct packimg_error *error)
{
	int r = mapped ? packimg_open_fds(part->path, part->fds, part->count, ret_image, error)
		       : packimg_open_unmapped(part->path, part->fds, part->count, ret_image,
					       error);
	for (uint32_t i = 0; r == 0 && i < part->count; i++)
		part->fds[i] = -1;
	return r;
}

static int open_parts(struct dataset *dataset, const struct dataset_files *parts, uint32_t count,
		      struct packimg_error *error)
{
	uint32_t opened = 0;
	struct packimg **images = calloc(count, sizeof(struct packimg *));
	int r = images ? 0 : -ENOMEM;
	while (r == 0 && opened < count) {
		r = open_part(&parts[opened], dataset->mapped, &images[opened], error);
		opened += r == 0;
	}
	if (r == 0)
		r = packimg_join(images, count, &dataset->image, error);
	for (uint32_t p = 0; r < 0 && p < opened; p++)
		packimg_close(images[p]);
	free(images);
	return r;
}

int dataset_open(const struct dataset_files *parts, uint32_t part_count, bool mapped,
		 struct dataset **ret_dataset, struct packimg_error *error)
{
	struct dataset *dataset = calloc(1, sizeof(*dataset));
	if (!dataset)
		return -ENOMEM;
	dataset->mapped = mapped;
	sigbus_guard_enter(NULL);
	int r = copy_paths(dataset, parts, part_count);
	r = r ?: open_parts(dataset, parts, part_count, error);
	if (r == 0)
		r = dataset_prepare(dataset);
	if (sigbus_guard_leave() && r == 0) {
		snprintf(error->text, sizeof(error->text),
			 "%s: the file became shorter while it was being opened, or cannot be read",
			 dataset->path);
		r = -EBADMSG;
	} else if (r == -ENOMEM) {
		snprintf(error->text, sizeof(error->text), "%s: out of memory", parts[0].path);
	}
	if (r < 0) {
		dataset_free(dataset);
		return r;
	}
	*ret_dataset = dataset;
	return 0;
}

const char *dataset_locate(const struct dataset *dataset, uint64_t index, uint64_t *ret_number)
{
	uint32_t part = packimg_part_of(dataset->image, index, ret_number);
	return dataset->part_paths ? dataset->part_paths[part] : dataset->path;
}

uint64_t dataset_number(const struct dataset *dataset, uint64_t index)
{
	uint64_t number;
	packimg_part_of(dataset->image, index, &number);
	return number;
}

static void free_paths(struct dataset *dataset)
{
	for (uint32_t p = 0; p < dataset->part_path_count; p++)
		free(dataset->part_paths[p]);
	free(dataset->part_paths);
	free(dataset->path);
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
	free_paths(dataset);
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
			 (unsigned long long)dataset_number(dataset, sample->index));
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
		 (unsigned long long)dataset_number(dataset, index));
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
			 "sample %llu: its index record is damaged%s",
			 (unsigned long long)dataset_number(dataset, index),
			 dataset->filling ? ", or the index is incomplete" : "");
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
			 (unsigned long long)dataset_number(dataset, index), image);
		return -EBADMSG;
	}
	return r;
}

int dataset_verify_image(struct dataset *dataset, const struct packimg_sample *sample,
			 uint32_t image, struct packimg_error *error)
{
	uint64_t bit = sample->index * packimg_image_count(dataset->image) + image;
	bool suspect = atomic_load_explicit(&dataset->suspect, memory_order_relaxed);
	if (!suspect && !dataset->filling && bit_test(dataset->images_checked, bit))
		return 0;
	if (packimg_sample_check(sample) < 0) {
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: stored bytes of its further image %u do not match their "
			 "checksum; the file is damaged",
			 (unsigned long long)dataset_number(dataset, sample->index), image);
		return dataset->filling ? -EUCLEAN : -EBADMSG;
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
