/*
 * The schedules of the learning rate, a row each: the constant, and the name in the recipe
 * (schedule.name) and of the function in schedule.c. Keys of their own are rows of the recipe.
 */
#pragma once

/* clang-format off */
#define SCHEDULES(X)                                                                               \
	X(CONSTANT, constant)                                                                      \
	X(COSINE, cosine)           /* restarted every period (Loshchilov and Hutter, SGDR) */     \
	X(LINEAR, linear)                                                                          \
	X(ONE_CYCLE, one_cycle)     /* Smith and Topin, Super-Convergence */                       \
	X(STEP, step)                                                                              \
	X(MULTI_STEP, multi_step)                                                                  \
	X(EXPONENTIAL, exponential)                                                                \
	X(POLYNOMIAL, polynomial)                                                                  \
	X(TRIANGULAR, triangular)   /* Smith: Cyclical Learning Rates */
/* clang-format on */

enum schedule_kind {
#define KIND(constant, ...) SCHEDULE_##constant,
	SCHEDULES(KIND)
#undef KIND
};
