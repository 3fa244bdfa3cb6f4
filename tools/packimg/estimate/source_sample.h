/*
 * The sample of images that `packimg advise` measures: from a folder, manifest or archive, listed
 * in the same way as by convert, or from a dataset. Reads the images into memory once. One thread.
 */
#pragma once

#include "tools/packimg/estimate/image_sample.h"
#include "tools/packimg/source/catalog.h"

struct source_sample {
	struct image_sample sample; /* short_sides are sorted in ascending order */

	struct catalog catalog;
	struct packimg *dataset;
	struct buffer bytes;
};

/*
 * Returns 0, -EINTR, -ENODATA if there are no images, or the error of the path. Call deinit also
 * after a failure.
 */
int source_sample_init(struct source_sample *source, const char *path, uint64_t wanted,
		       struct packimg_error *error);
void source_sample_deinit(struct source_sample *source);
