/*
 * Table of optimizers; parameter stores, checkpoints, --plan, the recipe and both backends are
 * derived from it. To add one, add a row here and its update in a separate header (sgd.h, adamw.h),
 * included by updates.h.
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_OPTIMIZERS_H
#define TRAINER_DEVICE_OPTIMIZERS_H

/*
 * Columns: the constant; the name in the recipe (optim.name) and of the update (optimizer_NAME);
 * its type: plain updates need one element, by_tensor also norms of the whole tensor, by_matrix
 * orthogonalises matrices (both in updates.h); then the names of its state slots in checkpoints
 * ("optimizer.momentum."), preceded by their number, at most DEVICE_STATES_MAX. State starts at
 * zero. With by_matrix, matrices have only the first DEVICE_MATRIX_STATES slots.
 */
/* clang-format off */
#define DEVICE_OPTIMIZERS(X)                                                                       \
	X(SGD, sgd, plain, 1, "momentum")                                                          \
	X(ADAM, adam, plain, 2, "momentum", "variance")                                            \
	X(ADAMW, adamw, plain, 2, "momentum", "variance")                                          \
	X(LARS, lars, by_tensor, 1, "momentum")                                                    \
	X(LAMB, lamb, by_tensor, 2, "momentum", "variance")                                        \
	X(MUON, muon, by_matrix, 2, "momentum", "variance")
#define DEVICE_OPTIMIZERS_HELP                                                                     \
	"Optimizer: SGD with momentum, Adam, AdamW; LARS (SGD) and LAMB (Adam) for large batches, "\
	"which scale steps to the norm of each tensor, except for biases and batch norms; Muon, "  \
	"which orthogonalises the steps of weight matrices, and uses AdamW for all other parameters "\
	"and for the first and the last layer."

/*
 * Optimizer parameters besides learning rate and decay: keys of the recipe's section optim, with
 * default, bounds and meaning. A number becomes a field of struct device_hyper, which may change at
 * every step; a boolean or a count becomes a field of struct device_optimizer_spec.
 */
#define DEVICE_OPTIMIZER_KEYS(NUMBER, BOOLEAN, COUNT)                                              \
	NUMBER(momentum, "0.9", 0, 1, "Momentum of SGD, LARS and Muon (for Muon, 0.95 is usual).") \
	BOOLEAN(nesterov, "true", "sgd, lars, muon: use Nesterov momentum.")                       \
	NUMBER(trust_coefficient, "0.001", 1e-9, 1000,                                             \
	       "lars: norm of the scaled gradient, as a share of the norm of its tensor.")         \
	NUMBER(beta1, "0.9", 0, 0.999999,                                                          \
	       "adam, adamw, lamb, muon: decay of the running mean of the gradient.")              \
	NUMBER(beta2, "0.999", 0, 0.999999,                                                        \
	       "adam, adamw, lamb, muon: decay of the running mean of the squared gradient.")      \
	NUMBER(epsilon, "1e-8", 1e-12, 1,                                                          \
	       "adam, adamw, lamb, muon: value added to the square root that divides the step; "   \
	       "lars: to the norm that divides the gradient.")                                     \
	COUNT(ns_steps, "5", 1, 20,                                                                \
	      "muon: Newton-Schulz iterations to orthogonalise a matrix.")                         \
	BOOLEAN(match_rms, "false",                                                                \
		"muon: scale steps of weights to the length of AdamW's, so that its rates and "    \
		"decay apply: 0.2 sqrt(max(rows, columns)) times optim.lr (Liu et al. 2025); "     \
		"otherwise sqrt(max(1, rows / columns)) times.")                                   \
	NUMBER(adamw_lr, "0.015", 0, 1000,                                                         \
	       "muon: factor on the learning rate of parameters that AdamW updates: 0.015 for a "  \
	       "rate of 0.02, 1 with match_rms.")
/* clang-format on */
#define DEVICE_NO_KEY(...) /* placeholder for an unused argument of DEVICE_OPTIMIZER_KEYS */

enum { DEVICE_STATES_MAX = 2, DEVICE_MATRIX_STATES = 1 };

enum device_optimizer_kind {
#define KIND(constant, ...) DEVICE_##constant,
	DEVICE_OPTIMIZERS(KIND)
#undef KIND
		DEVICE_OPTIMIZER_COUNT
};

/* Bit masks of the by_tensor and by_matrix optimizers. */
enum {
#define DEVICE_TENSOR_plain             0
#define DEVICE_TENSOR_by_tensor         1
#define DEVICE_TENSOR_by_matrix         0
#define DEVICE_MATRIX_plain             0
#define DEVICE_MATRIX_by_tensor         0
#define DEVICE_MATRIX_by_matrix         1
#define TENSOR(constant, name, by, ...) | DEVICE_TENSOR_##by << DEVICE_##constant
#define MATRIX(constant, name, by, ...) | DEVICE_MATRIX_##by << DEVICE_##constant
	DEVICE_OPTIMIZERS_BY_TENSOR = 0 DEVICE_OPTIMIZERS(TENSOR),
	DEVICE_OPTIMIZERS_BY_MATRIX = 0 DEVICE_OPTIMIZERS(MATRIX),
#undef TENSOR
#undef MATRIX
};

struct device_optimizer {
	const char *name;
	unsigned states;
	const char *state[DEVICE_STATES_MAX]; /* names */
};

extern const struct device_optimizer device_optimizers[DEVICE_OPTIMIZER_COUNT];

#endif
