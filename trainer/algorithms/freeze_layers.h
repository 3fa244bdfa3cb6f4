/*
 * Layers that learn no more, the first of the network first: between epochs, from a share of the
 * run on, until at its end a share of all layers would be frozen (train.freeze_level; FreezeOut,
 * Brock et al. 2017, arXiv:1706.04983; schedule and rounding are those of MosaicML Composer's
 * LayerFreezing). What is frozen costs no backward pass and no update; norms go on normalising by
 * their batches, as they do there. How many are frozen depends on the step alone, so that a resumed
 * run has the same.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing is frozen this way. */
struct freeze_layers {
	uint32_t *layer; /* [parameters] number of the layer of each, from 1 */
	uint32_t count;  /* layers that have parameters */
	uint32_t depth;  /* how many of them are frozen */
};

/* Of so many layers how many are frozen in the step that follows `step` of `steps`. */
uint32_t freeze_layers_depth(const struct recipe_train *recipe, uint64_t step, uint64_t steps,
			     uint64_t batches_per_epoch, uint32_t layers);
/*
 * Finds the layers of a network, whose parameters are there: those that share all of their names
 * but the last part, in their order. -ENOMEM.
 */
int freeze_layers_init(struct freeze_layers *freeze, const struct recipe_train *recipe,
		       const struct device_params *params);
void freeze_layers_deinit(struct freeze_layers *freeze);
/* Freezes layers up to this depth. Training graphs are to be planned anew. */
void freeze_layers_apply(struct freeze_layers *freeze, struct device_params *params,
			 uint32_t depth);
