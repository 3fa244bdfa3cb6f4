#include "advise_sample.h"

#include "command.h"
#include "image.h"
#include "shuffle.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which image stands for stretch i of n. */
static uint64_t choose(uint64_t i, uint64_t n, uint64_t of)
{
	uint64_t first = (uint64_t)((unsigned __int128)of * i / n);
	uint64_t end = (uint64_t)((unsigned __int128)of * (i + 1) / n);

	return first + shuffle_hash(&i, sizeof(i), of) % (end - first);
}

static int reserve(struct advise_sample *sample, uint64_t wanted, uint64_t of)
{
	uint64_t count = wanted < of ? wanted : of;

	sample->of = of;
	sample->images = calloc(count + 1, sizeof(*sample->images));
	sample->stored = calloc(count + 1, sizeof(*sample->stored));
	sample->short_sides = calloc(count + 1, sizeof(*sample->short_sides));
	if (!sample->images || !sample->stored || !sample->short_sides)
		return -ENOMEM;
	return (int)(count > INT32_MAX ? INT32_MAX : count);
}

/* Adds the image that lies in held from offset on; its data are an offset until all are read. */
static void add(struct advise_sample *sample, const char *name, size_t offset,
		const struct packimg_sample *stored)
{
	struct trial_image *image = &sample->images[sample->count];
	size_t size = sample->bytes_held.size - offset;
	struct packimg_error error;
	struct image_info info;

	/* formats that are none are no images; what is damaged deeper shows when it is stored */
	if (image_probe(sample->bytes_held.data + offset, size, &info, &error)) {
		sample->bytes_held.size = offset;
		sample->unread++;
		return;
	}
	*image = (struct trial_image){.name = name, .data = (const uint8_t *)offset, .size = size};
	if (stored) {
		sample->stored[sample->count] = *stored;
		image->stored = &sample->stored[sample->count];
	}
	sample->short_sides[sample->count] = info.width < info.height ? info.width : info.height;
	sample->jpegs += info.kind == IMAGE_JPEG;
	sample->bytes += size;
	sample->count++;
}

static int list(struct advise_sample *sample, const char *path, struct packimg_error *error)
{
	const struct source_options options = {.kind = SOURCE_AUTO};
	struct source_item item;
	struct source *source;
	int r = source_new(&sample->catalog.store, path, &options, &source, error);

	if (r)
		return r;
	while (!(r = source_next(source, &item, error)) || r == SOURCE_SKIP) {
		if (command_interrupted())
			r = -EINTR;
		else if (r == SOURCE_SKIP)
			sample->unread++;
		else
			r = catalog_add(&sample->catalog, &item, error);
		if (r < 0)
			break;
	}
	source_free(source);
	return r == SOURCE_END ? 0 : r;
}

static int read_source(struct advise_sample *sample, const char *path, uint64_t wanted,
		       struct packimg_error *error)
{
	struct buffer *held = &sample->bytes_held;
	int count, r;

	r = list(sample, path, error);
	if (r)
		return r;
	count = reserve(sample, wanted, sample->catalog.count);
	if (count < 0)
		return text_error(error, count, "out of memory");
	for (int i = 0; i < count; i++) {
		const struct catalog_sample *chosen =
			&sample->catalog.samples[choose((uint64_t)i, (uint64_t)count, sample->of)];
		struct packimg_error ignored;
		size_t offset = held->size;

		if (command_interrupted())
			return -EINTR;
		r = chosen->place.kind == PLACE_STREAM
			    ? store_read_stream(&sample->catalog.store, &chosen->place, held,
						&ignored)
			    : store_read(&sample->catalog.store, &chosen->place, held, &ignored);
		if (r == -ENOMEM)
			return text_error(error, r, "out of memory");
		if (r)
			held->size = offset, sample->unread++;
		else
			add(sample, chosen->name, offset, NULL);
	}
	return 0;
}

/* A sample's image as a file: a JPEG's own bytes, pixels as PNG. */
static int append_file(struct packimg_decoder *decoder, const struct packimg_sample *stored,
		       struct buffer *held, struct packimg_error *error)
{
	struct packimg_region region = {.width = stored->width, .height = stored->height};
	uint32_t channels = stored->channels == 1 ? 1 : 3;
	struct packimg_pixels pixels;
	struct buffer png = {0};
	uint8_t *packed, *to;
	int r;

	/* JPEGs, too: what does not decode must not end a measurement */
	r = packimg_decode(decoder, stored, &region, 0, 0, &pixels, error);
	if (r)
		return r;
	if (stored->codec == PACKIMG_CODEC_JPEG)
		return buffer_append(held, stored->data, stored->data_size);
	packed = to = malloc((size_t)pixels.width * pixels.height * channels);
	if (!packed)
		return -ENOMEM;
	for (uint32_t y = 0; y < pixels.height; y++)
		for (uint32_t x = 0; x < pixels.width; x++, to += channels)
			memcpy(to, pixels.data + y * pixels.stride + (size_t)x * 3, channels);
	r = png_write(packed, pixels.width, pixels.height, channels, &png, error);
	if (!r)
		r = buffer_append(held, png.data, png.size);
	buffer_deinit(&png);
	free(packed);
	return r;
}

static int read_dataset(struct advise_sample *sample, const char *path, uint64_t wanted,
			struct packimg_error *error)
{
	struct packimg_decoder *decoder = NULL;
	char name[32];
	int count, r;

	r = packimg_open(path, &sample->dataset, error);
	if (r)
		return r;
	count = reserve(sample, wanted, packimg_count(sample->dataset));
	if (count < 0 || packimg_decoder_new(&decoder))
		return text_error(error, -ENOMEM, "out of memory");
	for (int i = 0; i < count && !r; i++) {
		uint64_t number = choose((uint64_t)i, (uint64_t)count, sample->of);
		struct packimg_error ignored;
		struct packimg_sample stored;
		size_t offset = sample->bytes_held.size;

		if (command_interrupted()) {
			r = -EINTR;
			break;
		}
		r = packimg_sample(sample->dataset, number, &stored) ?:
			    packimg_sample_check(&stored) ?:
			    append_file(decoder, &stored, &sample->bytes_held, &ignored);
		if (r == -ENOMEM) {
			text_error(error, r, "out of memory");
		} else if (r) {
			sample->bytes_held.size = offset;
			sample->unread++;
			r = 0;
		} else {
			snprintf(name, sizeof(name), "%" PRIu64, number);
			sample->pixels |= stored.codec != PACKIMG_CODEC_JPEG;
			add(sample, arena_copy(&sample->arena, name, strlen(name)), offset,
			    &stored);
		}
	}
	packimg_decoder_free(decoder);
	return r;
}

static int compare_sides(const void *a, const void *b)
{
	uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;

	return p < q ? -1 : p > q;
}

int advise_sample_init(struct advise_sample *sample, const char *path, uint64_t wanted,
		       struct packimg_error *error)
{
	size_t size = strlen(path);
	int r;

	*sample = (struct advise_sample){0};
	r = catalog_init(&sample->catalog);
	if (r)
		return text_error(error, r, "%s", strerror(-r));
	r = size > 5 && !strcmp(path + size - 5, ".pimg")
		    ? read_dataset(sample, path, wanted, error)
		    : read_source(sample, path, wanted, error);
	if (!r && !sample->count)
		return text_error(error, -ENODATA, "%s: no images that can be read were found",
				  path);
	/* a decoder may look beyond the last one */
	if (!r && buffer_reserve(&sample->bytes_held, sample->bytes_held.size + IMAGE_PADDING))
		return text_error(error, -ENOMEM, "out of memory");
	if (r)
		return r;
	for (uint64_t i = 0; i < sample->count; i++)
		sample->images[i].data =
			sample->bytes_held.data + (uintptr_t)sample->images[i].data;
	qsort(sample->short_sides, sample->count, sizeof(*sample->short_sides), compare_sides);
	return 0;
}

void advise_sample_deinit(struct advise_sample *sample)
{
	catalog_deinit(&sample->catalog);
	packimg_close(sample->dataset);
	free(sample->images);
	free(sample->stored);
	free(sample->short_sides);
	buffer_deinit(&sample->bytes_held);
	arena_deinit(&sample->arena);
}
