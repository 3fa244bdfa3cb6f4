#include "tools/packimg/estimate/image_sample.h"

#include "tools/packimg/common/shuffle.h"
#include "tools/packimg/image/image.h"

#include <errno.h>
#include <stdlib.h>

/* Returns the image that represents range i of n. */
static uint64_t image_of_range(uint64_t i, uint64_t n, uint64_t of)
{
	uint64_t first = (uint64_t)((unsigned __int128)of * i / n);
	uint64_t end = (uint64_t)((unsigned __int128)of * (i + 1) / n);

	return first + shuffle_hash(&i, sizeof(i), of) % (end - first);
}

void image_sample_add(struct image_sample *sample, const struct encoding_input *image,
		      uint32_t width, uint32_t height, bool jpeg)
{
	sample->images[sample->count] = *image;
	sample->short_sides[sample->count] = width < height ? width : height;
	sample->jpegs += jpeg;
	sample->bytes += image->stored ? image->stored->data_size : image->size;
	sample->count++;
}

int image_sample_choose(struct image_sample *sample, uint64_t wanted, uint64_t of,
			uint64_t bytes_max, bool (*stop)(void), image_sample_take take,
			void *context, struct packimg_error *error)
{
	uint64_t count = wanted < of ? wanted : of;

	sample->of = of;
	sample->images = calloc(count + 1, sizeof(*sample->images));
	sample->stored = calloc(count + 1, sizeof(*sample->stored));
	sample->short_sides = calloc(count + 1, sizeof(*sample->short_sides));
	if (!sample->images || !sample->stored || !sample->short_sides)
		return packimg_fail(error, -ENOMEM, "out of memory");
	for (uint64_t i = 0; i < count && sample->bytes < bytes_max; i++) {
		if (stop && stop())
			return -EINTR;
		int r = take(sample, image_of_range(i, count, of), context);
		if (r < 0)
			return r == -ENOMEM ? packimg_fail(error, r, "out of memory") : r;
	}
	return 0;
}

static int take_stored(struct image_sample *sample, uint64_t number, void *context)
{
	struct packimg_sample *stored = &sample->stored[sample->count];
	const struct encoding_input image = {.stored = stored};

	if (packimg_sample(context, number, stored) ||
	    !encoding_bench_can_use(sample->decoder, stored)) {
		sample->unread++;
		return 0;
	}
	bool jpeg = stored->codec == PACKIMG_CODEC_JPEG;
	sample->pixels |= !jpeg;
	image_sample_add(sample, &image, stored->width, stored->height, jpeg);
	return 0;
}

int image_sample_dataset(struct image_sample *sample, struct packimg *dataset, uint64_t wanted,
			 uint64_t bytes_max, bool (*stop)(void), struct packimg_error *error)
{
	if (image_decoder_new(&sample->decoder))
		return packimg_fail(error, -ENOMEM, "out of memory");
	return image_sample_choose(sample, wanted, packimg_count(dataset), bytes_max, stop,
				   take_stored, dataset, error);
}

void image_sample_deinit(struct image_sample *sample)
{
	packimg_decoder_free(sample->decoder);
	free(sample->images);
	free(sample->stored);
	free(sample->short_sides);
}
