/* Engines that randomly lack plans for some patterns. */
#pragma once

#include "trainer/device/cuda/conv.h"

/*
 * True if the problem has no plan. Depends only on the bytes of the problem and on the seed. About
 * `share` eighths of the patterns have no plan; unfused convolutions always have one, but weight
 * gradients only in the problem's element type.
 */
bool random_plans_refuse(uint64_t seed, unsigned share, const struct conv_problem *problem);
