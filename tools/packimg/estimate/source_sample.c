#include "tools/packimg/estimate/source_sample.h"

#include "tools/packimg/common/command.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Adds a file. Its data pointer is an offset until all files have been read. */
static int take_file(struct image_sample *sample, uint64_t number, void *context)
{
	struct source_sample *source = context;
	const struct blob_location *location = &source->catalog.samples[number].location;
	struct buffer *bytes = &source->bytes;
	struct encoding_input image = {.data = (const uint8_t *)bytes->size};
	struct packimg_error ignored;
	struct image_info info;
	size_t offset = bytes->size;

	int r = location->kind == LOCATION_STREAM
			? blob_store_read_stream(&source->catalog.blobs, location, bytes, &ignored)
			: blob_store_read(&source->catalog.blobs, location, bytes, &ignored);
	image.size = bytes->size - offset;
	/*
	 * leaves out files of unknown formats; other damage is detected when the image is encoded
	 */
	if (!r)
		r = image_probe(bytes->data + offset, image.size, &info, &ignored);
	if (r == -ENOMEM)
		return r;
	if (r) {
		bytes->size = offset;
		sample->unread++;
		return 0;
	}
	image_sample_add(sample, &image, info.width, info.height, info.kind == IMAGE_JPEG);
	return 0;
}

static int list_images(struct source_sample *sample, struct source *source,
		       struct packimg_error *error)
{
	struct source_item item;

	for (;;) {
		int r = source_next(source, &item, error);

		if (r < 0)
			return r;
		if (r == SOURCE_END)
			return 0;
		if (command_interrupted())
			return -EINTR;
		if (!r)
			r = catalog_add(&sample->catalog, &item, error);
		if (r < 0)
			return r;
		sample->sample.unread += r == SOURCE_SKIP || r == CATALOG_SKIP;
	}
}

static int sample_source(struct source_sample *sample, const char *path, uint64_t wanted,
			 struct packimg_error *error)
{
	const struct source_options options = {.kind = SOURCE_AUTO};
	struct source *source;
	int r = source_new(&sample->catalog.blobs, path, &options, &source, error);

	if (r)
		return r;
	r = list_images(sample, source, error);
	source_free(source);
	if (r)
		return r;
	r = image_sample_choose(&sample->sample, wanted, sample->catalog.count, UINT64_MAX,
				command_interrupted, take_file, sample, error);
	if (r)
		return r;
	/* a decoder may read beyond the last image */
	if (buffer_reserve(&sample->bytes, sample->bytes.size + IMAGE_PADDING))
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (uint64_t i = 0; i < sample->sample.count; i++)
		sample->sample.images[i].data =
			sample->bytes.data + (uintptr_t)sample->sample.images[i].data;
	return 0;
}

static int sample_dataset(struct source_sample *sample, const char *path, uint64_t wanted,
			  struct packimg_error *error)
{
	int r = packimg_open(path, &sample->dataset, error);

	return r ? r
		 : image_sample_dataset(&sample->sample, sample->dataset, wanted, UINT64_MAX,
					command_interrupted, error);
}

static int compare_lengths(const void *a, const void *b)
{
	uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;

	return p < q ? -1 : p > q;
}

int source_sample_init(struct source_sample *source, const char *path, uint64_t wanted,
		       struct packimg_error *error)
{
	struct image_sample *sample = &source->sample;
	size_t size = strlen(path);

	*source = (struct source_sample){0};
	catalog_init(&source->catalog);
	int r = size > 5 && strcmp(path + size - 5, ".pimg") == 0
			? sample_dataset(source, path, wanted, error)
			: sample_source(source, path, wanted, error);
	if (r)
		return r;
	if (!sample->count)
		return packimg_fail(error, -ENODATA, "%s: found no images that can be read", path);
	qsort(sample->short_sides, sample->count, sizeof(*sample->short_sides), compare_lengths);
	return 0;
}

void source_sample_deinit(struct source_sample *source)
{
	image_sample_deinit(&source->sample);
	catalog_deinit(&source->catalog);
	packimg_close(source->dataset);
	buffer_deinit(&source->bytes);
}
