/*
 * The size to which patch_resize resizes an image: a grid of whole patches. All of it is integer
 * arithmetic on the size of the image, so that a grid is known from an index of sizes, and is the
 * same on every machine.
 *
 * The rule is that of NaFlex (SigLIP 2: Tschannen et al. 2025; in big_vision, timm and Transformers
 * a search by bisection): a scale makes a grid of ceil(side * scale / patch) patches in each
 * direction, and the largest scale is taken whose grid has at most max_tokens. It differs in that
 * images are not enlarged beyond their own scale, 1, but for min_tokens.
 */
#pragma once

#include "format/augment/grammar/transforms.h"

/* width, height: of the image, at least 1. */
struct pipeline_grid patches_grid(const struct transform_patches *patches, uint32_t width,
				  uint32_t height);
/* Returns the pipeline's patch_resize, of which there is at most one, or NULL. */
const struct transform *pipeline_patch_step(const struct pipeline *pipeline);
/*
 * Returns the pixels of an image's finished picture, before it is divided into patches; 0 x 0 for a
 * pipeline without patch_resize.
 */
struct pipeline_size patches_size(const struct pipeline *pipeline, uint32_t width, uint32_t height);
/* Returns -EINVAL with the step that cannot stand beside patch_resize. error may be NULL. */
int patches_check(const struct pipeline *pipeline, struct pipeline_error *error);
