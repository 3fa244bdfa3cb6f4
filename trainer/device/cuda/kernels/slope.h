/* Activations of one value and their slopes, in kernels. */
#ifndef TRAINER_DEVICE_CUDA_SLOPE_H
#define TRAINER_DEVICE_CUDA_SLOPE_H

#include "kernels/kernel.h"


/* A NaN passes. */
DEVICE float slope_relu(float z)
{
	return z < 0 ? 0 : z;
}

/*
 * phi and Phi, the normal distribution's density and integral, from one exponential: Abramowitz and Stegun, 7.1.26, whose error of erf is
 * below 1.5e-7, since erff() and expf() would take longer than a GELU's memory traffic.
 */
struct slope_normal {
	float density, integral;
};

DEVICE struct slope_normal slope_normal(float z)
{
	float t = kernel_reciprocal(1 + 0.3275911f * 0.70710678f * fabsf(z));
	float e = kernel_exp2(-0.5f * 1.44269504f * z * z), tail;
	struct slope_normal normal;

	tail = 0.5f * e * t *
	       (0.254829592f +
		t * (-0.284496736f +
		     t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
	normal.density = 0.39894228f * e;
	normal.integral = z < 0 ? tail : 1 - tail;
	return normal;
}

DEVICE float slope_gelu(float z)
{
	return z * slope_normal(z).integral;
}

/* Phi(z) + z phi(z) */
DEVICE float slope_of_gelu(float z)
{
	struct slope_normal normal = slope_normal(z);

	return normal.integral + z * normal.density;
}

#endif
