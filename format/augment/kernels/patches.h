/* Division of a finished picture into patches, as models of ragged images take them. */
#pragma once

#include "format/augment/pipeline.h"

/*
 * Copies a picture of whole patches, interleaved elements, patch by patch: patches in rows from the
 * top left, and the pixels of a patch the same, each with its channels. (The order of
 * convert_image_to_patches() in Transformers and of Patchify in timm.) size: pixels of a patch's
 * side. The two must not overlap.
 */
void patches_cut(const struct pipeline_shape *shape, uint32_t size, const void *picture,
		 void *output);
