/* Engines of which some patterns have no plan, at random. */
#pragma once

#include "trainer/device/cuda/conv.h"

/*
 * Whether this one has none: by the problem's bytes and the seed, so that the answer is the same
 * whenever it is asked; share of 8 have none. Plain convolutions always have one, weight gradients
 * in their own element.
 */
bool random_plans_refuse(uint64_t seed, unsigned share, const struct conv_problem *problem);
