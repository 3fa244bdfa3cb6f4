/*
 * Convolutions and matrix products on the host: the plain reference of every pattern in conv.h.
 * Every problem that conv_problem_check() accepts has a plan, unless the environment says
 * otherwise. Work goes through emulation_queue(), so that it is captured and replayed like a GPU's.
 * A plan keeps memory of its own, taken when it is first executed, and asks for a workspace that it
 * scribbles over: whatever else lies there is lost, as on a GPU. A plan must live as long as what
 * was captured of it.
 */
#pragma once

#include "trainer/device/cuda/conv.h"

#define EMULATION_WORKSPACE 4096 /* bytes that every plan asks for */

/* For tests of programs: "plain" leaves plans to convolutions that have nothing fused into them. */
#define EMULATION_PLANS "LOADERD_EMULATED_PLANS"

/*
 * For tests of tuning: the time that a problem is said to take, by which devices opened from now on
 * tune and refuse plans; less than 0: tuning it fails. NULL, the initial state: nothing can be
 * tuned; what was refused is forgotten.
 */
typedef double emulation_ms(const struct conv_problem *problem);
void emulation_time_plans(emulation_ms *ms);
bool emulation_times_plans(void);
/*
 * The kind of GPU (key of struct conv_engines) of devices opened from now on; NULL, the initial
 * state: all the same.
 */
void emulation_set_kind(const char *kind);
const char *emulation_kind(void);

/* They have no state: .state is NULL. */
extern const struct conv_engines emulation_conv_engines;
extern const struct matmul_engines emulation_matmul_engines;
