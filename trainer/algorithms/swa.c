#include "trainer/algorithms/swa.h"

#include <math.h>

/* Returns the first step whose weights enter the average, at least 1. */
static uint64_t first_step(const struct recipe_train *recipe, uint64_t batches_per_epoch)
{
	double steps = ceil(recipe->swa * (double)batches_per_epoch);
	return steps > 1 ? (uint64_t)steps : 1;
}

bool swa_begun(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch)
{
	return recipe->swa > 0 && step >= first_step(recipe, batches_per_epoch);
}

float swa_share(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch)
{
	double interval = round(recipe->swa_every * (double)batches_per_epoch);
	uint64_t every = interval > 1 ? (uint64_t)interval : 1;
	if (!swa_begun(recipe, step, batches_per_epoch))
		return 0;
	uint64_t since = step - first_step(recipe, batches_per_epoch);
	return since % every ? 0 : 1 / (float)(since / every + 1);
}
