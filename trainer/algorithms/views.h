/*
 * Test-time augmentation: the views of an image that an evaluation uses, and how to make them. The
 * evaluation averages their logits (He et al. 2015; the six views of train.eval_shift and
 * train.eval_flip are those of Jordan's airbench, 2024). Pure functions.
 */
#pragma once

#include "trainer/recipe/recipe.h"

enum { VIEWS_MAX = 6 };

struct view {
	int32_t shift; /* shift left and up in pixels; negative for right and down */
	bool flip;     /* mirrored left to right */
	float weight;  /* weight of the view's logits; the weights of all views sum to 1 */
};

/*
 * Fills the views in evaluation order, with equal shifts adjacent, and returns their number: 1 if
 * only the unchanged image is used.
 */
unsigned views_of(const struct recipe_train *recipe, struct view ret_views[VIEWS_MAX]);

/* A dense array of images: [count][height][width] pixels of pixel_size bytes. */
struct views_images {
	const void *pixels;
	uint32_t count, height, width;
	size_t pixel_size;
};
/*
 * Shifts all images into `to`, an array of the same size, and fills uncovered pixels by reflection
 * at the outermost pixels. |shift| is less than the images' sides.
 */
void views_move(const struct views_images *images, int32_t shift, void *to);
