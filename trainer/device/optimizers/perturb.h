/*
 * Sharpness-aware minimization (SAM: Foret, Kleiner, Mobahi, Neyshabur, ICLR 2021,
 * arXiv:2010.01412, algorithm 1): the gradient of an update is taken at w + rho g / |g|, where the
 * loss is nearly the highest within rho of w. Here is the step there (equation 2 with p = 2) of one
 * element, for both backends; run/update.c has the passes. The norm is that of the gradients of all
 * parameters.
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_PERTURB_H
#define TRAINER_DEVICE_PERTURB_H

#include "trainer/device/optimizers/updates.h"

/* On gradients that are yet to be scaled, whose scaled norm is `norm`. NaN where that is none. */
UPDATE_INLINE float perturb_scale(const struct device_hyper *hyper, double scale, double norm)
{
	return (float)((double)hyper->perturb * scale / (norm + 1e-12)) +
	       (norm - norm == 0 ? 0 : NAN);
}

UPDATE_INLINE float perturb_element(float w, float g, float scale)
{
	return w + scale * g;
}

#endif
