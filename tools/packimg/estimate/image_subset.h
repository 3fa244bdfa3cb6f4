/*
 * A sample of a user's images: from a folder, manifest or archive as convert reads them, or from a
 * dataset. Takes one image from each of as many equal ranges as images are wanted, so the choice
 * depends only on their number. Reads them into memory once; one thread.
 */
#pragma once

#include "tools/packimg/estimate/encoding_bench.h"
#include "tools/packimg/source/catalog.h"

struct image_subset {
	struct encoding_input *images;
	uint64_t count;
	uint64_t of; /* images that exist in total */
	uint64_t jpegs, unread;
	bool pixels;           /* a dataset that holds other codecs than JPEG */
	uint32_t *short_sides; /* of all images, ascending */
	uint64_t bytes;        /* of the images read */

	struct catalog catalog;
	struct packimg *dataset;
	struct packimg_decoder *decoder;
	struct packimg_sample *stored; /* samples of a dataset */
	struct buffer bytes_held;
};

/*
 * Returns 0, -EINTR, -ENODATA if there are no images, or the error of the path. Call deinit also
 * after failure.
 */
int image_subset_init(struct image_subset *sample, const char *path, uint64_t wanted,
		      struct packimg_error *error);
void image_subset_deinit(struct image_subset *sample);
