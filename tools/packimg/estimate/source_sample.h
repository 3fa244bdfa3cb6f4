/*
 * The sample of images that `packimg advise` measures: of a folder, manifest or archive, listed as
 * convert lists it, or of a dataset. Reads the images into memory once; one thread.
 */
#pragma once

#include "tools/packimg/estimate/image_sample.h"
#include "tools/packimg/source/catalog.h"

struct source_sample {
	struct image_sample sample; /* short_sides ascend */

	struct catalog catalog;
	struct packimg *dataset;
	struct buffer bytes;
};

/*
 * Returns 0, -EINTR, -ENODATA if there are no images, or the error of the path. Call deinit also
 * after failure.
 */
int source_sample_init(struct source_sample *source, const char *path, uint64_t wanted,
		       struct packimg_error *error);
void source_sample_deinit(struct source_sample *source);
