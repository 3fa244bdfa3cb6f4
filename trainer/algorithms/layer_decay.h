/*
 * Layer-wise learning rate decay for fine-tuning: multiplies a parameter's rate by
 * pow(optim.layer_decay, n), where n is the number of blocks from the parameter to the head (Clark,
 * Luong, Le, Manning 2020, arXiv:2003.10555, appendix B; for vision transformers Bao, Dong, Piao,
 * Wei 2021, arXiv:2106.08254, section 3.3), as in timm's param_groups_layer_decay. Weight decay is
 * multiplied by the learning rate, so it decays as well.
 */
#pragma once

#include "trainer/model/model.h"

/* Call before the parameter store is allocated. -EINVAL if a factor is too small for a float. */
int layer_decay_apply(const struct recipe *recipe, const struct model *model,
		      struct device_params *params);
