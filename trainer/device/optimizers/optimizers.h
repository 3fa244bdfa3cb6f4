/*
 * The optimizers, a row each, from which parameter stores, checkpoints, --plan, the recipe and both
 * backends take what they need. An optimizer is a row here and its update in a file of its own
 * (sgd.h, adamw.h), which updates.h includes.
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_OPTIMIZERS_H
#define TRAINER_DEVICE_OPTIMIZERS_H

/*
 * A row is: the constant, the name in the recipe (optim.name) and of the update (optimizer_NAME),
 * whether its update sees one element alone (plain) or norms of the whole tensor besides
 * (by_tensor, see updates.h), how many slots of state each parameter has, DEVICE_STATES_MAX at
 * most, which begin at zero, and what checkpoints call them ("optimizer.momentum.").
 */
/* clang-format off */
#define DEVICE_OPTIMIZERS(X)                                                                       \
	X(SGD, sgd, plain, 1, "momentum")                                                          \
	X(ADAM, adam, plain, 2, "momentum", "variance")                                            \
	X(ADAMW, adamw, plain, 2, "momentum", "variance")                                          \
	X(LARS, lars, by_tensor, 1, "momentum")                                                    \
	X(LAMB, lamb, by_tensor, 2, "momentum", "variance")
#define DEVICE_OPTIMIZERS_HELP                                                                     \
	"Optimizer: SGD with momentum, Adam, AdamW; for large batches LARS, which is SGD, and "    \
	"LAMB, which is Adam, with steps in proportion to each tensor's norm (not of biases and "  \
	"batch norms)."

/*
 * What they are told beside learning rate and decay: keys of the recipe's section optim, with
 * default, bounds and meaning. A number is one of struct device_hyper, and may change at every
 * step; a boolean is one of struct device_optimizer_spec.
 */
#define DEVICE_OPTIMIZER_KEYS(NUMBER, BOOLEAN)                                                     \
	NUMBER(momentum, "0.9", 0, 1, "Momentum of SGD and LARS.")                                 \
	BOOLEAN(nesterov, "true", "sgd, lars: Nesterov's form of momentum.")                       \
	NUMBER(trust_coefficient, "0.001", 1e-9, 1000,                                             \
	       "lars: share of a tensor's norm that its gradient is scaled to.")                   \
	NUMBER(beta1, "0.9", 0, 0.999999,                                                          \
	       "adam, adamw, lamb: decay of the gradient's running mean.")                         \
	NUMBER(beta2, "0.999", 0, 0.999999,                                                        \
	       "adam, adamw, lamb: decay of the running mean of the gradient's square.")           \
	NUMBER(epsilon, "1e-8", 1e-12, 1,                                                          \
	       "adam, adamw, lamb: added to the square root that the step is divided by; lars: "   \
	       "to the norm that the gradient is divided by.")
/* clang-format on */
#define DEVICE_NO_KEY(...) /* for either of the two, where it is not wanted */

enum { DEVICE_STATES_MAX = 2 };

enum device_optimizer_kind {
#define KIND(constant, ...) DEVICE_##constant,
	DEVICE_OPTIMIZERS(KIND)
#undef KIND
		DEVICE_OPTIMIZER_COUNT
};

/* A bit for each optimizer that is told norms of tensors. */
enum {
#define DEVICE_NORMS_plain              0
#define DEVICE_NORMS_by_tensor          1
#define BIT(constant, name, norms, ...) | DEVICE_NORMS_##norms << DEVICE_##constant
	DEVICE_OPTIMIZERS_BY_TENSOR = 0 DEVICE_OPTIMIZERS(BIT)
#undef BIT
};

struct device_optimizer {
	const char *name;
	unsigned states;
	const char *state[DEVICE_STATES_MAX]; /* names */
};

extern const struct device_optimizer device_optimizers[DEVICE_OPTIMIZER_COUNT];

#endif
