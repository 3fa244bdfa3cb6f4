/* AdamW: Adam with decoupled decay (Loshchilov and Hutter, ICLR 2019), as torch.optim.AdamW. */
#ifndef TRAINER_DEVICE_ADAMW_H
#define TRAINER_DEVICE_ADAMW_H

#include "trainer/device/optimizers/updates.h"

UPDATE_INLINE void optimizer_adamw(struct update_element *e, const struct update_rates *r)
{
	float g = e->g * r->gradient_scale;

	e->state[0] = r->beta1 * e->state[0] + (1 - r->beta1) * g;
	e->state[1] = r->beta2 * e->state[1] + (1 - r->beta2) * g * g;
	e->w = r->decayed * e->w - r->lr * (e->state[0] * r->correction1) /
					   (sqrtf(e->state[1] * r->correction2) + r->epsilon);
}

#endif
