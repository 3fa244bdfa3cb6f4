/*
 * Convolutions and matrix products on the host: the plain reference of every pattern in conv.h. Every problem that conv_problem_check() accepts
 * has a plan, unless the environment says otherwise. Work goes through emulation_queue(), so that it is captured and replayed like a GPU's. A plan
 * keeps memory of its own, taken when it is first executed, and asks for a workspace that it scribbles over: whatever else
 * lies there is lost, as on a GPU. A plan must live as long as what was captured of it.
 */
#ifndef TRAINER_DEVICE_CUDA_EMULATION_ENGINES_H
#define TRAINER_DEVICE_CUDA_EMULATION_ENGINES_H

#include "conv.h"

#define EMULATION_WORKSPACE 4096 /* bytes that every plan asks for */

/* For tests of programs: "plain" leaves plans to convolutions that have nothing fused into them. */
#define EMULATION_PLANS "LOADERD_EMULATED_PLANS"

/* They have no state: .state is NULL. */
extern const struct conv_engines emulation_conv_engines;
extern const struct matmul_engines emulation_matmul_engines;

#endif
