/*
 * LARS (You, Gitman, Ginsburg 2017, arXiv:1708.03888, algorithm 1), as timm.optim.Lars: SGD with a
 * per-tensor trust ratio on the gradient, decay included.
 */
#ifndef TRAINER_DEVICE_LARS_H
#define TRAINER_DEVICE_LARS_H

#include "trainer/device/optimizers/sgd.h"

UPDATE_INLINE void optimizer_lars_measure(struct update_element e, const struct update_rates *r,
					  float measured[UPDATE_NORMS])
{
	measured[0] = e.w;
	measured[1] = e.g * r->gradient_scale;
}

UPDATE_INLINE float optimizer_lars_ratio(const struct update_rates *r,
					 const float norm[UPDATE_NORMS])
{
	if (norm[0] == 0 || norm[1] == 0)
		return 1;
	return r->trust_coefficient * norm[0] / (norm[1] + r->l2 * norm[0] + r->epsilon);
}

UPDATE_INLINE void optimizer_lars(struct update_element *e, const struct update_rates *r)
{
	sgd_step(e, r, r->ratio * (e->g * r->gradient_scale + r->l2 * e->w));
}

#endif
