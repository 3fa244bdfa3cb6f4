/*
 * What may happen to gradients before an update, in a pass of its own, for both backends: clipping
 * by value, as torch.nn.utils.clip_grad_value_(), and then centralization (Yong et al., ECCV 2020,
 * arXiv:2004.01461, equation 1), which takes the mean of each output's row from a weight's
 * gradient.
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_GRADIENTS_H
#define TRAINER_DEVICE_GRADIENTS_H

#include "trainer/device/optimizers/updates.h"

/* Whether there is such a pass. */
UPDATE_INLINE bool gradients_change(const struct device_optimizer_spec *optimizer)
{
	return optimizer->clip_value > 0 || optimizer->centralize;
}

/* For gradients that are yet to be scaled as decided. */
UPDATE_INLINE float gradients_limit(const struct device_optimizer_spec *optimizer,
				    const struct update_decision *decision)
{
	return optimizer->clip_value > 0 ? optimizer->clip_value / fabsf(decision->gradient_scale)
					 : INFINITY;
}

UPDATE_INLINE float gradients_clip(float g, float limit)
{
	return g > limit ? limit : g < -limit ? -limit : g;
}

#endif
