/* Activation functions of one value and their derivatives, for kernels. */
#ifndef TRAINER_DEVICE_CUDA_SLOPE_H
#define TRAINER_DEVICE_CUDA_SLOPE_H

#include "trainer/device/cuda/kernels/common/kernel.h"

/* NaN propagates. */
DEVICE float slope_relu(float z)
{
	return z < 0 ? 0 : z;
}

/*
 * GELU with a single exponential; erff() and expf() would take longer than the memory traffic.
 * Abramowitz and Stegun, 7.1.26, whose error of erf is below 1.5e-7.
 *
 * phi and Phi are the density and distribution function of the normal distribution. GELU is max(z,
 * 0) - |z| Phi(-|z|); its derivative is 1/2 + sign(z) (1/2 + |z| phi(z) - Phi(-|z|)). The constants
 * are in terms of r = |z| sqrt(log2(e) / 2), so exp(-z^2 / 2) is 2^(-r^2). NaN propagates; an
 * infinity becomes NaN.
 */
struct slope_normal {
	float r;
	float e;    /* 2^(-r^2) */
	float tail; /* Phi(-|z|) / e */
};

DEVICE struct slope_normal slope_normal(float z)
{
	struct slope_normal normal;
	float t;

	normal.r = 0.84932180f * fabsf(z);
	normal.e = kernel_exp2(-normal.r * normal.r);
	/* p / sqrt(2) |z|, and a1 .. a5 divided by 2 */
	t = kernel_reciprocal(1 + 0.27273748f * normal.r);
	normal.tail =
		t *
		(0.127414796f +
		 t * (-0.142248368f + t * (0.710706870f + t * (-0.726576014f + t * 0.530702715f))));
	return normal;
}

DEVICE float slope_gelu(float z)
{
	struct slope_normal normal = slope_normal(z);

	return fmaxf(z, 0) - fabsf(z) * normal.e * normal.tail;
}

DEVICE float slope_of_gelu(float z)
{
	struct slope_normal normal = slope_normal(z);

	/* |z| phi(z) = 0.46971864 r e */
	return 0.5f + copysignf(0.5f + normal.e * (0.46971864f * normal.r - normal.tail), z);
}

DEVICE float slope_sigmoid(float z)
{
	return kernel_reciprocal(1 + kernel_exp2(-1.44269504f * z));
}

DEVICE float slope_of_sigmoid(float z)
{
	float s = slope_sigmoid(z);

	return s * (1 - s);
}

#endif
