/*
 * A sample of somebody's images: from a folder, manifest or archive as convert reads them, or from
 * a dataset. Which ones depends on their number alone: one of each of as many equal stretches as
 * there are images wanted. Read into memory once; one thread.
 */
#pragma once

#include "tools/packimg/advise/encoding_bench.h"
#include "tools/packimg/source/catalog.h"

struct image_subset {
	struct encoding_input *images;
	uint64_t count;
	uint64_t of; /* images that there are */
	uint64_t jpegs, unread;
	bool pixels;           /* a dataset that holds others than JPEGs */
	uint32_t *short_sides; /* of all images, ascending */
	uint64_t bytes;        /* of the images read */

	struct catalog catalog;
	struct packimg *dataset;
	struct packimg_decoder *decoder;
	struct packimg_sample *stored; /* a dataset's */
	struct buffer bytes_held;
};

/*
 * 0, -EINTR, -ENODATA when there are none, or what is wrong with the path. deinit also after
 * failure.
 */
int image_subset_init(struct image_subset *sample, const char *path, uint64_t wanted,
		      struct packimg_error *error);
void image_subset_deinit(struct image_subset *sample);
