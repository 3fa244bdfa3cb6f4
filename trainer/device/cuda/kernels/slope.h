/* Activations and their slopes, in kernels. */
#ifndef TRAINER_DEVICE_CUDA_SLOPE_H
#define TRAINER_DEVICE_CUDA_SLOPE_H

#include "kernels/kernel.h"

#ifndef __CUDACC__
#include <math.h>
#endif

/* Phi, the normal distribution's integral. */
DEVICE float norm_normal(float z)
{
	return 0.5f + 0.5f * erff(z * 0.70710678f);
}

/* A NaN passes. */
DEVICE float norm_activate(float z, enum device_activation activation)
{
	if (activation == DEVICE_RELU)
		return z < 0 ? 0 : z;
	return activation == DEVICE_GELU ? z * norm_normal(z) : z;
}

/* g activation'(z); GELU'(z) = Phi(z) + z phi(z). What is not finite does not pass a ReLU that is shut. */
DEVICE float norm_through(float g, float z, enum device_activation activation)
{
	if (activation == DEVICE_RELU)
		return z > 0 ? g : 0;
	return activation == DEVICE_GELU ? g * (norm_normal(z) + z * 0.39894228f * expf(-0.5f * z * z)) : g;
}

#endif
