/* Activations of one value and their slopes, in kernels. */
#ifndef TRAINER_DEVICE_CUDA_SLOPE_H
#define TRAINER_DEVICE_CUDA_SLOPE_H

#include "kernels/kernel.h"

#ifndef __CUDACC__
#include <math.h>
#endif

/* A NaN passes. */
DEVICE float slope_relu(float z)
{
	return z < 0 ? 0 : z;
}

/* Phi, the normal distribution's integral. */
DEVICE float slope_normal(float z)
{
	return 0.5f + 0.5f * erff(z * 0.70710678f);
}

DEVICE float slope_gelu(float z)
{
	return z * slope_normal(z);
}

/* Phi(z) + z phi(z) */
DEVICE float slope_of_gelu(float z)
{
	return slope_normal(z) + z * 0.39894228f * expf(-0.5f * z * z);
}

#endif
