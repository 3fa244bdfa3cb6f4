#include "trainer/algorithms/progressive.h"

#include <math.h>

enum { SHRINK_MAX = 4 }; /* DEVICE_SHRINK_MAX */

bool progressive_is_on(const struct recipe_data *recipe)
{
	return recipe->initial_scale < 1;
}

/* Progress from the initial scale to the full size, 0..1. */
static double growth_progress(const struct recipe_data *recipe, double elapsed)
{
	double since = elapsed - recipe->delay_fraction;
	double over = 1 - recipe->finetune_fraction - recipe->delay_fraction;
	if (since < 0)
		return 0;
	return since < over ? since / over : 1;
}

static uint32_t clamp_side(double side, uint32_t whole)
{
	uint32_t side_min = (whole + SHRINK_MAX - 1) / SHRINK_MAX;
	return side > side_min ? (uint32_t)side : side_min;
}

void progressive_size(const struct recipe_data *recipe, uint64_t step, uint64_t steps,
		      uint32_t *height, uint32_t *width)
{
	double share = steps ? growth_progress(recipe, (double)step / (double)steps) : 1;
	double scale = recipe->initial_scale + (1 - recipe->initial_scale) * share;
	double each = (double)recipe->size_increment, whole = *width;
	/* round half to even, as Python does */
	double pinned = rint(whole * scale / each) * each;
	if (!progressive_is_on(recipe) || share >= 1 || pinned >= whole)
		return;
	*height = clamp_side(floor(*height * (pinned / whole)), *height);
	*width = clamp_side(pinned, *width);
}
