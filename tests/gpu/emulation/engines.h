/*
 * Convolutions and matrix products on the host: the reference implementation of every pattern in
 * conv.h. There is a plan for every problem that conv_problem_check() accepts, unless
 * EMULATION_PLANS restricts them. Work goes through emulation_queue(), so it is captured and
 * replayed as on a GPU. A plan allocates its own memory at its first execution. It also requests a
 * workspace and overwrites it, so stale data in a workspace is lost as on a GPU. A plan must
 * outlive the graphs that captured it.
 */
#pragma once

#include "trainer/device/cuda/conv.h"

#define EMULATION_WORKSPACE 4096 /* bytes, requested by every plan */

/*
 * Environment variable for tests of programs: with "plain" only convolutions without fused
 * operations have plans.
 */
#define EMULATION_PLANS "LOADERD_EMULATED_PLANS"

/*
 * For tests of tuning: sets a function that returns a problem's time in ms, by which devices opened
 * later tune and refuse plans. A negative time makes tuning fail. NULL, the initial state, disables
 * tuning. Each call forgets all refused problems.
 */
typedef double emulation_ms(const struct conv_problem *problem);
void emulation_time_plans(emulation_ms *ms);
bool emulation_times_plans(void);
/*
 * Sets the kind of GPU (key of struct conv_engines) of devices opened later. NULL, the initial
 * state, selects a default kind.
 */
void emulation_set_kind(const char *kind);
const char *emulation_kind(void);

/* Both are stateless: .state is NULL. */
extern const struct conv_engines emulation_conv_engines;
extern const struct matmul_engines emulation_matmul_engines;
