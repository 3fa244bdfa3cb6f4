/*
 * Muon (Keller Jordan et al. 2024, https://kellerjordan.github.io/posts/muon), as torch.optim.Muon:
 * SGD with momentum; each matrix step is replaced by one with the same singular vectors and
 * singular values near 1. All other parameters use AdamW (adamw.h) with a separate rate. match_rms:
 * Liu et al. 2025, arXiv:2502.16982, section 2.2.
 */
#ifndef TRAINER_DEVICE_MUON_H
#define TRAINER_DEVICE_MUON_H

#include "trainer/device/optimizers/adam.h"

/* Unlike in SGD, the momentum buffer is a running mean, not a sum. */
UPDATE_INLINE float optimizer_muon_direction(struct update_element *e, const struct update_rates *r)
{
	float g = (1 - r->momentum) * (e->g * r->gradient_scale);

	e->state[0] = r->momentum * e->state[0] + g;
	return r->from_gradient * g + r->from_moment * e->state[0];
}

/*
 * Coefficients with the largest derivative at 0 for which singular values converge to about
 * 0.7..1.2.
 */
UPDATE_INLINE struct update_polynomial optimizer_muon_polynomial(void)
{
	struct update_polynomial p = {3.4445f, -4.7750f, 2.0315f};

	return p;
}

UPDATE_INLINE float optimizer_muon_length(const struct update_rates *r, uint32_t rows,
					  uint32_t columns)
{
	if (r->match_rms)
		return 0.2f * sqrtf((float)(rows > columns ? rows : columns));
	return rows > columns ? sqrtf((float)rows / (float)columns) : 1;
}

UPDATE_INLINE void optimizer_muon(struct update_element *e, const struct update_rates *r)
{
	struct update_rates own = *r;

	if (r->matrix) {
		e->w = r->decayed * e->w - r->lr * r->ratio * e->g;
		return;
	}
	own.lr = r->lr * r->adamw_lr;
	adam_step(e, &own, e->g * r->gradient_scale, 1 - own.lr * r->decay);
}

#endif
