#include "tools/packimg/estimate/image_subset.h"

#include "tools/packimg/common/command.h"
#include "tools/packimg/common/shuffle.h"
#include "tools/packimg/common/text.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Returns the image that represents range i of n. */
static uint64_t subset_choose(uint64_t i, uint64_t n, uint64_t of)
{
	uint64_t first = (uint64_t)((unsigned __int128)of * i / n);
	uint64_t end = (uint64_t)((unsigned __int128)of * (i + 1) / n);

	return first + shuffle_hash(&i, sizeof(i), of) % (end - first);
}

static void subset_add(struct image_subset *sample, const struct encoding_input *image,
		       uint32_t width, uint32_t height, bool jpeg)
{
	sample->images[sample->count] = *image;
	sample->short_sides[sample->count] = width < height ? width : height;
	sample->jpegs += jpeg;
	sample->bytes += image->stored ? image->stored->data_size : image->size;
	sample->count++;
}

/* Adds a file; its data pointer is an offset until all files are read. */
static int subset_take_file(struct image_subset *sample, uint64_t number)
{
	const struct blob_location *location = &sample->catalog.samples[number].location;
	struct buffer *held = &sample->bytes_held;
	struct encoding_input image = {.data = (const uint8_t *)held->size};
	struct packimg_error ignored;
	struct image_info info;
	size_t offset = held->size;

	int r = location->kind == LOCATION_STREAM
			? blob_store_read_stream(&sample->catalog.blobs, location, held, &ignored)
			: blob_store_read(&sample->catalog.blobs, location, held, &ignored);
	image.size = held->size - offset;
	/* unknown formats are not images; deeper damage shows when the image is encoded */
	if (!r)
		r = image_probe(held->data + offset, image.size, &info, &ignored);
	if (!r) {
		subset_add(sample, &image, info.width, info.height, info.kind == IMAGE_JPEG);
	} else {
		held->size = offset;
		sample->unread++;
	}
	return r == -ENOMEM ? r : 0;
}

static int subset_take_stored(struct image_subset *sample, uint64_t number)
{
	struct packimg_sample *kept = &sample->stored[sample->count];
	const struct encoding_input image = {.stored = kept};

	if (packimg_sample(sample->dataset, number, kept) ||
	    !encoding_bench_can_use(sample->decoder, kept)) {
		sample->unread++;
		return 0;
	}
	bool jpeg = kept->codec == PACKIMG_CODEC_JPEG;
	sample->pixels |= !jpeg;
	subset_add(sample, &image, kept->width, kept->height, jpeg);
	return 0;
}

/* Takes the wanted number of images, or all if there are fewer. */
static int subset_take_some(struct image_subset *sample, uint64_t wanted, uint64_t of,
			    int (*take)(struct image_subset *sample, uint64_t number),
			    struct packimg_error *error)
{
	uint64_t count = wanted < of ? wanted : of;
	int r = 0;

	sample->of = of;
	sample->images = calloc(count + 1, sizeof(*sample->images));
	sample->stored = calloc(count + 1, sizeof(*sample->stored));
	sample->short_sides = calloc(count + 1, sizeof(*sample->short_sides));
	if (!sample->images || !sample->stored || !sample->short_sides)
		r = -ENOMEM;
	for (uint64_t i = 0; i < count && !r; i++)
		r = command_interrupted() ? -EINTR : take(sample, subset_choose(i, count, of));
	return r == -ENOMEM ? packimg_fail(error, r, "out of memory") : r;
}

static int subset_list(struct image_subset *sample, const char *path, struct packimg_error *error)
{
	const struct source_options options = {.kind = SOURCE_AUTO};
	struct source_item item;
	struct source *source;
	int r = source_new(&sample->catalog.blobs, path, &options, &source, error);

	if (r)
		return r;
	while ((r = source_next(source, &item, error)) >= 0 && r != SOURCE_END) {
		if (command_interrupted())
			r = -EINTR;
		if (!r)
			r = catalog_add(&sample->catalog, &item, error);
		if (r == SOURCE_SKIP || r == CATALOG_SKIP)
			sample->unread++;
		if (r < 0)
			break;
	}
	source_free(source);
	return r == SOURCE_END ? 0 : r;
}

static int subset_read_source(struct image_subset *sample, const char *path, uint64_t wanted,
			      struct packimg_error *error)
{
	int r = subset_list(sample, path, error);

	return r ? r
		 : subset_take_some(sample, wanted, sample->catalog.count, subset_take_file, error);
}

static int subset_read_dataset(struct image_subset *sample, const char *path, uint64_t wanted,
			       struct packimg_error *error)
{
	int r = packimg_open(path, &sample->dataset, error);
	if (r)
		return r;
	if (image_decoder_new(&sample->decoder))
		return packimg_fail(error, -ENOMEM, "out of memory");
	return subset_take_some(sample, wanted, packimg_count(sample->dataset), subset_take_stored,
				error);
}

static int compare_sides(const void *a, const void *b)
{
	uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;

	return p < q ? -1 : p > q;
}

int image_subset_init(struct image_subset *sample, const char *path, uint64_t wanted,
		      struct packimg_error *error)
{
	size_t size = strlen(path);

	*sample = (struct image_subset){0};
	catalog_init(&sample->catalog);
	int r = size > 5 && strcmp(path + size - 5, ".pimg") == 0
			? subset_read_dataset(sample, path, wanted, error)
			: subset_read_source(sample, path, wanted, error);
	if (!r && !sample->count)
		return packimg_fail(error, -ENODATA, "%s: no images that can be read were found",
				    path);
	/* a decoder may read past the last image */
	if (!r && buffer_reserve(&sample->bytes_held, sample->bytes_held.size + IMAGE_PADDING))
		return packimg_fail(error, -ENOMEM, "out of memory");
	if (r)
		return r;
	for (uint64_t i = 0; i < sample->count && !sample->dataset; i++)
		sample->images[i].data =
			sample->bytes_held.data + (uintptr_t)sample->images[i].data;
	qsort(sample->short_sides, sample->count, sizeof(*sample->short_sides), compare_sides);
	return 0;
}

void image_subset_deinit(struct image_subset *sample)
{
	catalog_deinit(&sample->catalog);
	packimg_decoder_free(sample->decoder);
	packimg_close(sample->dataset);
	free(sample->images);
	free(sample->stored);
	free(sample->short_sides);
	buffer_deinit(&sample->bytes_held);
}
