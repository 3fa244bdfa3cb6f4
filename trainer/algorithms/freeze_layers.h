/*
 * Progressive freezing, from the first layer on: from a position in the run, the number of frozen
 * layers grows between epochs towards a share of all layers at the end (train.freeze_level;
 * FreezeOut, Brock et al. 2017, arXiv:1706.04983; schedule and rounding as in MosaicML Composer's
 * LayerFreezing). Frozen layers need no backward pass and no update; their norms still use batch
 * statistics, as in Composer. The number depends only on the step, so a resume needs no state.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

/* All zero if unused. */
struct freeze_layers {
	uint32_t *layer; /* [parameters] layer number of each parameter, from 1 */
	uint32_t count;  /* number of layers that have parameters */
	uint32_t depth;  /* number of frozen layers */
};

/* Number of frozen layers, out of `layers`, in the step after `step` of `steps`. */
uint32_t freeze_layers_depth(const struct recipe_train *recipe, uint64_t step, uint64_t steps,
			     uint64_t batches_per_epoch, uint32_t layers);
/*
 * Finds the layers of a network whose parameters are declared: parameters of a layer have equal
 * names up to the last component. -ENOMEM.
 */
int freeze_layers_init(struct freeze_layers *freeze, const struct recipe_train *recipe,
		       const struct device_params *params);
void freeze_layers_deinit(struct freeze_layers *freeze);
/* Freezes the first `depth` layers. Plan training graphs again afterwards. */
void freeze_layers_apply(struct freeze_layers *freeze, struct device_params *params,
			 uint32_t depth);
