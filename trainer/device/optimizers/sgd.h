/*
 * SGD with momentum, as torch.optim.SGD; Nesterov momentum after Sutskever, Martens, Dahl and
 * Hinton (ICML 2013), decoupled decay after Loshchilov and Hutter (SGDW, ICLR 2019).
 */
#ifndef TRAINER_DEVICE_SGD_H
#define TRAINER_DEVICE_SGD_H

#include "trainer/device/optimizers/updates.h"

UPDATE_INLINE void sgd_step(struct update_element *e, const struct update_rates *r, float g)
{
	e->state[0] = r->momentum * e->state[0] + g;
	e->w = r->keep * e->w - r->lr * (r->from_gradient * g + r->from_moment * e->state[0]);
}

UPDATE_INLINE void optimizer_sgd(struct update_element *e, const struct update_rates *r)
{
	sgd_step(e, r, e->g * r->gradient_scale + r->l2 * e->w);
}

#endif
