/*
 * LAMB (You et al., ICLR 2020, arXiv:1904.00962, algorithm 2), as timm.optim.Lamb without its
 * gradient clipping: Adam's direction with decay, scaled per tensor to the norm of its weights.
 */
#ifndef TRAINER_DEVICE_LAMB_H
#define TRAINER_DEVICE_LAMB_H

#include "trainer/device/optimizers/adam.h"

UPDATE_INLINE float lamb_direction(struct update_element *e, const struct update_rates *r)
{
	adam_moments(e, r, e->g * r->gradient_scale);
	return e->state[0] * r->correction1 / (sqrtf(e->state[1] * r->correction2) + r->epsilon) +
	       r->decay * e->w;
}

UPDATE_INLINE void optimizer_lamb_measure(struct update_element e, const struct update_rates *r,
					  float measured[UPDATE_NORMS])
{
	measured[0] = e.w;
	measured[1] = lamb_direction(&e, r);
}

UPDATE_INLINE float optimizer_lamb_ratio(const struct update_rates *r,
					 const float norm[UPDATE_NORMS])
{
	return norm[0] == 0 || norm[1] == 0 ? 1 : norm[0] / norm[1];
}

UPDATE_INLINE void optimizer_lamb(struct update_element *e, const struct update_rates *r)
{
	e->w -= r->lr * r->ratio * lamb_direction(e, r);
}

#endif
