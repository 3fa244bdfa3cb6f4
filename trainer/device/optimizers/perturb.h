/*
 * Sharpness-aware minimization (SAM: Foret, Kleiner, Mobahi, Neyshabur, ICLR 2021,
 * arXiv:2010.01412, algorithm 1): computes the gradient for an update at w + rho g / |g|,
 * approximately the worst point within rho of w. This is the per-element perturbation (equation 2
 * with p = 2) for both backends; run/update.c runs the passes. |g| is the norm over all parameters.
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_PERTURB_H
#define TRAINER_DEVICE_PERTURB_H

#include "trainer/device/optimizers/updates.h"
#include "trainer/device/params.h"

/* Factor on unscaled gradients, whose norm after scaling is `norm`. NaN if norm is not finite. */
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
