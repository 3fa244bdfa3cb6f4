/*
 * Adam (Kingma and Ba, ICLR 2015, arXiv:1412.6980, algorithm 1), as torch.optim.Adam: coupled decay
 * is added to the gradient (L2). With decoupled decay it is AdamW.
 */
#ifndef TRAINER_DEVICE_ADAM_H
#define TRAINER_DEVICE_ADAM_H

#include "trainer/device/optimizers/updates.h"

UPDATE_INLINE void adam_moments(struct update_element *e, const struct update_rates *r, float g)
{
	e->state[0] = r->beta1 * e->state[0] + (1 - r->beta1) * g;
	e->state[1] = r->beta2 * e->state[1] + (1 - r->beta2) * g * g;
}

/* kept: factor of the weight, 1 - lr * decay with decoupled decay. */
UPDATE_INLINE void adam_step(struct update_element *e, const struct update_rates *r, float g,
			     float kept)
{
	adam_moments(e, r, g);
	e->w = kept * e->w - r->lr * (e->state[0] * r->correction1) /
				     (sqrtf(e->state[1] * r->correction2) + r->epsilon);
}

UPDATE_INLINE void optimizer_adam(struct update_element *e, const struct update_rates *r)
{
	adam_step(e, r, e->g * r->gradient_scale + r->l2 * e->w, r->keep);
}

#endif
