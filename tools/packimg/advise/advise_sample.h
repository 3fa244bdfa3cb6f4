/*
 * A sample of somebody's images: from a folder, manifest or archive as convert reads them, or from
 * a dataset. Which ones depends on their number alone: one of each of as many equal stretches as
 * there are images wanted. Read into memory once; one thread.
 */
#pragma once

#include "tools/packimg/advise/trial.h"
#include "tools/packimg/source/catalog.h"

struct advise_sample {
	struct trial_image *images;
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
int advise_sample_init(struct advise_sample *sample, const char *path, uint64_t wanted,
		       struct packimg_error *error);
void advise_sample_deinit(struct advise_sample *sample);
