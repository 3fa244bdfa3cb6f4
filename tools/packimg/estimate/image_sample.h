/*
 * A sample of images for the encoding benchmark, from a dataset or any other source. All images are
 * divided into as many equal ranges as images are wanted, and one image is taken from each range,
 * so that the choice depends only on these numbers. Shared by `packimg advise` and `loaderbench
 * --explain`. One thread.
 */
#pragma once

#include "tools/packimg/estimate/encoding_bench.h"

struct image_sample {
	struct encoding_input *images;
	uint64_t count;
	uint64_t of; /* number of images from which the sample was taken */
	uint64_t jpegs, unread;
	bool pixels;           /* the dataset has samples with other codecs than JPEG */
	uint32_t *short_sides; /* short side of each image */
	uint64_t bytes;        /* total size of the images, without indexes */

	struct packimg_decoder *decoder;
	struct packimg_sample *stored; /* the sample of the dataset for each image */
};

/* Adds image `number` to the sample, or counts it as unread. Returns 0 or a negative errno. */
typedef int (*image_sample_take)(struct image_sample *sample, uint64_t number, void *context);

/*
 * Calls take() for the wanted number of images, or for all if there are fewer, until they reach
 * bytes_max bytes. stop (may be NULL) returns true to end with -EINTR. Call deinit also after a
 * failure.
 */
int image_sample_choose(struct image_sample *sample, uint64_t wanted, uint64_t of,
			uint64_t bytes_max, bool (*stop)(void), image_sample_take take,
			void *context, struct packimg_error *error);
/* Same for a dataset, which must stay open. Leaves out samples that cannot be decoded. */
int image_sample_dataset(struct image_sample *sample, struct packimg *dataset, uint64_t wanted,
			 uint64_t bytes_max, bool (*stop)(void), struct packimg_error *error);
/* Adds an image; called by take(). */
void image_sample_add(struct image_sample *sample, const struct encoding_input *image,
		      uint32_t width, uint32_t height, bool jpeg);
void image_sample_deinit(struct image_sample *sample);
