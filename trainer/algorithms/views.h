/*
 * Test-time augmentation: the views of an image that an evaluation takes instead of the image
 * alone, and how they are made. Their logits are averaged (He et al. 2015; the six of
 * train.eval_shift and train.eval_flip are those of Jordan's airbench, 2024). Plain functions.
 */
#pragma once

#include "trainer/recipe/recipe.h"

enum { VIEWS_MAX = 6 };

struct view {
	int32_t shift; /* pixels that it is moved left and up; negative: right and down */
	bool flip;     /* mirrored left to right */
	float weight;  /* of its logits; those of all views sum to 1 */
};

/*
 * Views in the order in which they are taken: of equal shift one after the other. Returns how many;
 * one: the image as it is.
 */
unsigned views_of(const struct recipe_train *recipe, struct view ret_views[VIEWS_MAX]);

/* Images side by side in memory: [count][height][width] pixels of so many bytes. */
struct views_images {
	const void *pixels;
	uint32_t count, height, width;
	size_t pixel_size;
};
/*
 * Moves all of them by shift, less than their sides, into `to`, as large. What comes in is the
 * image reflected at its outermost pixels.
 */
void views_move(const struct views_images *images, int32_t shift, void *to);
