/*
 * Progressive layer freezing, from the first layer on: after train.freeze_start, the number of
 * frozen layers grows from epoch to epoch and reaches the fraction train.freeze_level of all layers
 * at the end of the run (FreezeOut, Brock et al. 2017, arXiv:1706.04983; schedule and rounding as
 * in MosaicML Composer's LayerFreezing). Frozen layers need no backward pass and no update; their
 * norms still use batch statistics, as in Composer. The number depends only on the step, so a
 * resume needs no state.
 */
#pragma once

#include "trainer/device/params.h"
#include "trainer/recipe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

/* All zero without train.freeze_level. */
struct freeze_layers {
	/* [parameters] layer number of each parameter, from 1; 0 for running statistics */
	uint32_t *layer;
	uint32_t count; /* number of layers that have parameters */
	uint32_t depth; /* number of frozen layers */
};

/* Returns how many of `layers` are frozen in the step after `step` of `steps`. */
uint32_t freeze_layers_depth(const struct recipe_train *recipe, uint64_t step, uint64_t steps,
			     uint64_t batches_per_epoch, uint32_t layers);
/*
 * Numbers the layers of a network whose parameters are declared. Consecutive parameters whose names
 * are equal up to the last component form a layer. -ENOMEM.
 */
int freeze_layers_init(struct freeze_layers *freeze, const struct recipe_train *recipe,
		       const struct device_params *params);
void freeze_layers_deinit(struct freeze_layers *freeze);
/* Freezes the first `depth` layers. Plan training graphs again afterwards. */
void freeze_layers_apply(struct freeze_layers *freeze, struct device_params *params,
			 uint32_t depth);
