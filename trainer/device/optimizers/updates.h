/*
 * Per-element updates for both backends: used by the CPU's loops (cpu/kernels.c) and the GPU's
 * kernel (cuda/kernels/update.cu). The decision, common to all parameters, comes first.
 * Header-only; the includer's compiler flags apply.
 *
 * optimizer_NAME() updates an element. A by_tensor optimizer has two more functions:
 * optimizer_NAME_measure() returns UPDATE_NORMS numbers for each element before the update, and
 * optimizer_NAME_ratio() computes the tensor's trust ratio from their L2 norms over the tensor.
 * Tensors of one dimension have ratio 1.
 *
 * A by_matrix optimizer has three more functions. The backend updates a matrix in these steps:
 * 1. optimizer_NAME_direction() updates each element's state and returns its element of X.
 * 2. X is divided by its Frobenius norm.
 * 3. ns_steps times: X <- (a + b X X' + c (X X')^2) X, with optimizer_NAME_polynomial().
 * 4. optimizer_NAME() updates each element, with X in place of the gradient, rates.matrix set, and
 *    rates.ratio = optimizer_NAME_length() of the matrix's sides.
 *
 * Matrices are weights, [outputs][rest], except those of the first and the last layer
 * (device_param_matrix()).
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_UPDATES_H
#define TRAINER_DEVICE_UPDATES_H

#include "trainer/device/params.h"

#include <math.h>

#ifdef __CUDACC__
#define UPDATE_INLINE static __device__ __forceinline__
#else
#define UPDATE_INLINE static inline __attribute__((always_inline))
#endif

#define UPDATE_NORMS 2 /* numbers measured per element */

/* Common to all parameters of one update. */
struct update_decision {
	float gradient_scale;           /* grad_scale / loss scale, clipped */
	float correction1, correction2; /* 1 / (1 - beta^t), for bias-corrected means */
	/* the same, indexed by device_param_spec.start, for parameters that began to train later */
	float later1[DEVICE_STARTS_MAX], later2[DEVICE_STARTS_MAX];
	float ema_decay; /* device_hyper.ema_decay; 0 for the first update */
	uint32_t made;   /* 1; 0 if the update is skipped because a gradient is not finite */
};

/* Coefficients for one parameter. */
struct update_rates {
	float gradient_scale, lr, decay;
	/* by_tensor: optimizer_NAME_ratio(); by_matrix: optimizer_NAME_length(); else 1 */
	float ratio;
	bool matrix;   /* by_matrix: gradients are elements of the orthogonalised matrix */
	float decayed; /* 1 - lr * decay, the factor of decoupled decay */
	/* keep: `decayed` if decay is decoupled, else 1; l2: decay if coupled, else 0 */
	float keep, l2;
	float from_gradient,
		from_moment; /* with momentum: step = from_gradient g + from_moment m */
	float correction1, correction2;
#define RATE(name, ...)   float name;
#define OPTION(name, ...) bool name;
	DEVICE_OPTIMIZER_KEYS(RATE, OPTION, DEVICE_NO_KEY)
#undef OPTION
#undef RATE
};

/*
 * Coefficients of a Newton-Schulz iteration of a by_matrix optimizer:
 * X <- (a + b X X' + c (X X')^2) X.
 */
struct update_polynomial {
	float a, b, c;
};

#define UPDATE_MATRIX_NORM_MIN 1e-7f /* lower limit of the norm that matrices are divided by */

/* One element, in registers. */
struct update_element {
	float w, g;
	float state[DEVICE_STATES_MAX];
};

UPDATE_INLINE float update_correction(float beta, uint64_t updates)
{
	return (float)(1 / (1 - pow((double)beta, (double)updates)));
}

/*
 * Fills the decision for finite gradients, whose L2 norm is `norm` after scaling by `scale`, and
 * counts the update in state.
 */
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

/* Coefficients of a by_matrix optimizer; zeros for others. */
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
