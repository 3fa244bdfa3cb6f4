/*
 * Optional separate pass over gradients before an update, for both backends: clipping by value, as
 * torch.nn.utils.clip_grad_value_(), then centralization (Yong et al., ECCV 2020, arXiv:2004.01461,
 * equation 1), which subtracts from each weight gradient its mean per output.
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_GRADIENTS_H
#define TRAINER_DEVICE_GRADIENTS_H

#include "trainer/device/optimizers/updates.h"
#include "trainer/device/params.h"

/* True if the pass is needed. Host only. */
static inline bool gradients_change(const struct device_optimizer_spec *optimizer)
{
	return optimizer->clip_value > 0 || optimizer->centralize;
}

/* Clip limit for gradients before scaling by gradient_scale. */
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
