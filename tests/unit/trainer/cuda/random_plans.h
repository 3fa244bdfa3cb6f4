/* Engines that randomly lack plans for some patterns. */
#pragma once

#include "trainer/device/cuda/conv.h"

/*
 * True if there is no plan for the problem. Depends only on the problem's bytes and the seed, so
 * the answer does not vary; about `share` eighths of the patterns have no plan. Plain convolutions
 * always have one, weight gradients only in their own element.
 */
bool random_plans_refuse(uint64_t seed, unsigned share, const struct conv_problem *problem);
