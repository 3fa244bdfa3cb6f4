/*
 * What an update does to one element, for both backends: the CPU's loops (cpu/kernels.c) and the
 * GPU's kernel (cuda/kernels/cu/update.cu) are made of these. Before it, once for all parameters,
 * comes the decision. Sources are compiled with the flags of those who include them.
 *
 * optimizer_NAME() updates an element. An optimizer by_tensor has two more functions:
 * optimizer_NAME_measure() says numbers of each element as it is before the update, and
 * optimizer_NAME_ratio() what follows for the tensor from the L2 norms of these. The tensors are
 * those of more than one dimension; others have the ratio 1.
 *
 * An optimizer by_matrix has three more: optimizer_NAME_direction() moves an element's state and
 * says what becomes of its gradient. The matrix of these, X, scaled to a Frobenius norm of 1, goes
 * through as many steps as the spec says of X <- (a + b X X' + c (X X')^2) X, with the coefficients
 * of optimizer_NAME_polynomial(); optimizer_NAME() then finds it in place of the gradient, in
 * elements with rates.matrix, and what optimizer_NAME_length() makes of the matrix's sides in
 * rates.ratio. Matrices are weights, [outputs][all else], but those of the first and the last layer
 * (device_param_matrix()).
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_UPDATES_H
#define TRAINER_DEVICE_UPDATES_H

#include "trainer/device/device.h"

#include <math.h>

#ifdef __CUDACC__
#define UPDATE_INLINE static __device__ __forceinline__
#else
#define UPDATE_INLINE static inline __attribute__((always_inline))
#endif

#define UPDATE_NORMS 2 /* numbers that are measured of an element */

/* Of one update, for all parameters. */
struct update_decision {
	float gradient_scale;           /* grad_scale / loss scale, clipped */
	float correction1, correction2; /* 1 / (1 - beta^t), for bias-corrected means */
	/* the same by start, of those that began later */
	float later1[DEVICE_STARTS_MAX], later2[DEVICE_STARTS_MAX];
	float ema_decay; /* of device_hyper; 0 at the first update that is made */
	uint32_t made;   /* 0: gradients are not finite, nothing is updated */
};

/* Coefficients of a parameter. */
struct update_rates {
	float gradient_scale, lr, decay;
	float ratio;    /* the tensor's, of an optimizer by_tensor; the matrix's length */
	bool matrix;    /* of an optimizer by_matrix: gradients are elements of that */
	float decayed;  /* what decoupled decay leaves of a weight */
	float keep, l2; /* the same if decay is decoupled, else 1; if not, share of it in g */
	float from_gradient,
		from_moment; /* with momentum: step = from_gradient g + from_moment m */
	float correction1, correction2;
#define RATE(name, ...)   float name;
#define OPTION(name, ...) bool name;
	DEVICE_OPTIMIZER_KEYS(RATE, OPTION, DEVICE_NO_KEY)
#undef OPTION
#undef RATE
};

/* Of a step of an optimizer by_matrix, X <- (a + b X X' + c (X X')^2) X. */
struct update_polynomial {
	float a, b, c;
};

#define UPDATE_MATRIX_NORM_MIN 1e-7f /* what matrices of a smaller norm are divided by */

/* One element, in registers. */
struct update_element {
	float w, g;
	float state[DEVICE_STATES_MAX];
};

UPDATE_INLINE float update_correction(float beta, uint64_t updates)
{
	return (float)(1 / (1 - pow((double)beta, (double)updates)));
}

/* Of gradients that are finite, whose norm times `scale` is `norm`. Counts the update. */
UPDATE_INLINE void update_decide_finite(const struct device_hyper *hyper, double scale, double norm,
					struct device_params_state *state,
					struct update_decision *decision)
{
	if (hyper->clip_norm > 0 && norm > (double)hyper->clip_norm)
		scale *= (double)hyper->clip_norm / norm;
	state->updates++;
	state->scale_age++;
	decision->gradient_scale = (float)scale;
	decision->correction1 = update_correction(hyper->beta1, state->updates);
	decision->correction2 = update_correction(hyper->beta2, state->updates);
	for (uint32_t i = 0; i < DEVICE_STARTS_MAX; i++) {
		if (!hyper->begun[i])
			continue;
		decision->later1[i] =
			update_correction(hyper->beta1, state->updates - hyper->begun[i]);
		decision->later2[i] =
			update_correction(hyper->beta2, state->updates - hyper->begun[i]);
	}
	decision->ema_decay = state->updates == 1 ? 0 : hyper->ema_decay;
}

UPDATE_INLINE struct update_rates update_rates_of(const struct device_hyper *hyper,
						  const struct device_optimizer_spec *optimizer,
						  const struct update_decision *decision,
						  uint32_t group, float lr_factor, uint32_t start)
{
	float decay = hyper->weight_decay[group];
	struct update_rates r;

	r.gradient_scale = decision->gradient_scale;
	r.lr = hyper->lr[group] * lr_factor;
	r.decay = decay;
	r.ratio = 1;
	r.matrix = false;
	r.decayed = 1 - r.lr * decay;
	r.keep = optimizer->coupled_decay ? 1 : r.decayed;
	r.l2 = optimizer->coupled_decay ? decay : 0;
	r.from_gradient = optimizer->nesterov ? 1 : 0;
	r.from_moment = optimizer->nesterov ? hyper->momentum : 1;
	r.correction1 = hyper->begun[start] ? decision->later1[start] : decision->correction1;
	r.correction2 = hyper->begun[start] ? decision->later2[start] : decision->correction2;
#define RATE(name, ...)   r.name = hyper->name;
#define OPTION(name, ...) r.name = optimizer->name;
	DEVICE_OPTIMIZER_KEYS(RATE, OPTION, DEVICE_NO_KEY)
#undef OPTION
#undef RATE
	return r;
}

#include "trainer/device/optimizers/adam.h"
#include "trainer/device/optimizers/adamw.h"
#include "trainer/device/optimizers/lamb.h"
#include "trainer/device/optimizers/lars.h"
#include "trainer/device/optimizers/muon.h"
#include "trainer/device/optimizers/sgd.h"

/* Of an optimizer by_matrix; zeros for others. */
UPDATE_INLINE struct update_polynomial update_polynomial_of(enum device_optimizer_kind kind)
{
	struct update_polynomial none = {0, 0, 0};

	switch (kind) {
#define POLYNOMIAL_plain(name)     break;
#define POLYNOMIAL_by_tensor(name) break;
#define POLYNOMIAL_by_matrix(name) return optimizer_##name##_polynomial();
#define POLYNOMIAL(constant, name, by, ...)                                                        \
	case DEVICE_##constant:                                                                    \
		POLYNOMIAL_##by(name)
		DEVICE_OPTIMIZERS(POLYNOMIAL)
#undef POLYNOMIAL
	case DEVICE_OPTIMIZER_COUNT:
		break;
	}
	return none;
}

#endif
