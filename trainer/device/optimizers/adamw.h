/* AdamW: Adam with decoupled decay (Loshchilov and Hutter, ICLR 2019), as torch.optim.AdamW. */
#ifndef TRAINER_DEVICE_ADAMW_H
#define TRAINER_DEVICE_ADAMW_H

#include "trainer/device/optimizers/adam.h"

UPDATE_INLINE void optimizer_adamw(struct update_element *e, const struct update_rates *r)
{
	adam_step(e, r, e->g * r->gradient_scale, r->decayed);
}

#endif
