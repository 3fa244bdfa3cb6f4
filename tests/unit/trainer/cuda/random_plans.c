#include "tests/unit/trainer/cuda/random_plans.h"

bool random_plans_refuse(uint64_t seed, unsigned share, const struct conv_problem *problem)
{
	uint64_t hash = seed * 0x9e3779b97f4a7c15 + 1;

	if (problem->prologue == CONV_PLAIN && problem->epilogue == CONV_STORE &&
	    (problem->direction != CONV_WEIGHTS || problem->gradient == problem->element))
		return false;
	for (size_t i = 0; i < sizeof(*problem); i++)
		hash = (hash ^ ((const uint8_t *)problem)[i]) * 0x100000001b3;
	return (hash >> 32) % 8 < share;
}
