/* Activation functions and their gradients: of one value, and of the channels of a thread. */
#ifndef TRAINER_DEVICE_CUDA_ACTIVATION_GRAD_H
#define TRAINER_DEVICE_CUDA_ACTIVATION_GRAD_H

#include "trainer/device/cuda/kernels/common/kernel.h"
#include "trainer/device/ops.h"

/* NaN propagates. */
DEVICE float relu(float z)
{
	return z < 0 ? 0 : z;
}

/*
 * GELU and its derivative with a single exponential; erff() and expf() would take longer than the
 * memory traffic. Source: Abramowitz and Stegun, 7.1.26, whose error of erf is below 1.5e-7. With
 * the density phi and the distribution function Phi of the normal distribution:
 * - GELU(z) = max(z, 0) - |z| Phi(-|z|)
 * - GELU'(z) = 1/2 + sign(z) (1/2 + |z| phi(z) - Phi(-|z|))
 * The constants are those of a polynomial in r = |z| sqrt(log2(e) / 2), so that exp(-z^2 / 2) is
 * 2^(-r^2). NaN propagates; an infinity becomes NaN.
 */
struct normal_terms {
	float r;
	float e;    /* 2^(-r^2) */
	float tail; /* Phi(-|z|) / e */
};

DEVICE struct normal_terms normal_terms(float z)
{
	struct normal_terms normal;

	normal.r = 0.84932180f * fabsf(z);
	normal.e = kernel_exp2(-normal.r * normal.r);
	/* p / sqrt(2) |z|, and a1 .. a5 divided by 2 */
	float t = kernel_reciprocal(1 + 0.27273748f * normal.r);
	normal.tail =
		t *
		(0.127414796f +
		 t * (-0.142248368f + t * (0.710706870f + t * (-0.726576014f + t * 0.530702715f))));
	return normal;
}

DEVICE float gelu(float z)
{
	struct normal_terms normal = normal_terms(z);

	return fmaxf(z, 0) - fabsf(z) * normal.e * normal.tail;
}

DEVICE float gelu_grad(float z)
{
	struct normal_terms normal = normal_terms(z);

	/* |z| phi(z) = 0.46971864 r e */
	return 0.5f + copysignf(0.5f + normal.e * (0.46971864f * normal.r - normal.tail), z);
}

DEVICE float sigmoid(float z)
{
	return kernel_reciprocal(1 + kernel_exp2(-1.44269504f * z));
}

DEVICE float sigmoid_grad(float z)
{
	float s = sigmoid(z);

	return s * (1 - s);
}

/*
 * z = activation(z). `curved` is a compile-time constant: true for GELU and sigmoid, which need
 * registers that ReLU and identity do not. NaN propagates.
 */
template <uint32_t LANES>
DEVICE void activate(float (&z)[LANES], enum device_activation activation, bool curved)
{
	if (curved && activation == DEVICE_LOGISTIC) {
		EACH(i, LANES)
			z[i] = sigmoid(z[i]);
	} else if (curved) {
		EACH(i, LANES)
			z[i] = gelu(z[i]);
	} else if (activation == DEVICE_RELU) {
		EACH(i, LANES)
			z[i] = relu(z[i]);
	}
}

/* g *= activation'(z). For ReLU with z <= 0 the result is 0, even for non-finite g. */
template <uint32_t LANES>
DEVICE void activate_backward(float (&g)[LANES], const float (&z)[LANES],
			      enum device_activation activation, bool curved)
{
	if (curved && activation == DEVICE_LOGISTIC) {
		EACH(i, LANES)
			g[i] *= sigmoid_grad(z[i]);
	} else if (curved) {
		EACH(i, LANES)
			g[i] *= gelu_grad(z[i]);
	} else if (activation == DEVICE_RELU) {
		EACH(i, LANES)
			g[i] = z[i] > 0 ? g[i] : 0;
	}
}

#endif
