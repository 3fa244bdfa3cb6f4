/*
 * Table of learning rate schedules, one row each: the constant's suffix, and the name of both the
 * recipe value (schedule.name) and the function in schedule.c. The recipe table defines their keys.
 */
#pragma once

/* clang-format off */
#define SCHEDULES(X)                                                                               \
	X(CONSTANT, constant)                                                                      \
	X(COSINE, cosine)           /* with restarts (Loshchilov and Hutter 2017, SGDR, 3) */      \
	X(LINEAR, linear)                                                                          \
	X(ONE_CYCLE, one_cycle)     /* Smith and Topin 2018, Super-Convergence, 4 */               \
	X(STEP, step)                                                                              \
	X(MULTI_STEP, multi_step)                                                                  \
	X(EXPONENTIAL, exponential)                                                                \
	X(POLYNOMIAL, polynomial)                                                                  \
	X(TRIANGULAR, triangular)   /* Smith 2017, Cyclical Learning Rates, 3.1 */                 \
	X(TRIANGULAR2, triangular2) /* the same; halves the amplitude each period */               \
	X(EXP_RANGE, exp_range)     /* the same; decays the amplitude exponentially */             \
	X(TRAPEZOID, trapezoid)     /* Haegele et al. 2024, Scaling Laws ... Fixed Durations, 3 */ \
	X(PLATEAU, plateau)         /* see plateau.h */
/* clang-format on */

enum schedule_kind {
#define KIND(constant, ...) SCHEDULE_##constant,
	SCHEDULES(KIND)
#undef KIND
};
