/*
 * Kernels of norm.h. Kernels over rows partition the matrix as in columns.h. The finalizing kernels
 * use one thread per channel and double precision.
 */
#include "trainer/device/cuda/kernels/norm.h"

#include "trainer/device/cuda/kernels/common/kernel.h"
#include "trainer/device/cuda/kernels/tables.h"

#define KERNEL_BODY "trainer/device/cuda/kernels/common/norm_kernels.h"
#include "trainer/device/cuda/kernels/common/instances.h"

#define CHANNEL (blockIdx.x * KERNEL_THREADS + threadIdx.x)

DEVICE void store_affine(const struct norm_arguments *a, uint32_t channel, float s, float b)
{
	a->scale[channel] = s;
	a->bias[channel] = b;
	if (a->scale16) {
		kernel_store(a->scale16, channel, a->element, s);
		kernel_store(a->bias16, channel, a->element, b);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	finalize(const __grid_constant__ struct norm_arguments a)
{
	uint32_t c = CHANNEL;
	double rows = (double)a.rows, mean, variance, unbiased;
	float deviation, scale;

	if (c >= a.channels)
		return;
	mean = (double)a.sum[c] / rows;
	variance = (double)a.products[c] / rows - mean * mean;
	/* this form propagates NaN */
	variance = variance < 0 ? 0 : variance;
	deviation = (float)(1 / sqrt(variance + (double)a.epsilon));
	scale = a.gamma[c] * deviation;
	a.mean[c] = (float)mean;
	a.deviation[c] = deviation;
	store_affine(&a, c, scale, a.beta[c] - (float)mean * scale);
	if (!a.running_mean)
		return;
	unbiased = a.rows > 1 ? variance * rows / (rows - 1) : variance;
	a.running_mean[c] += a.momentum * ((float)mean - a.running_mean[c]);
	a.running_var[c] += a.momentum * ((float)unbiased - a.running_var[c]);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	running(const __grid_constant__ struct norm_arguments a)
{
	uint32_t c = CHANNEL;
	float scale;

	if (c >= a.channels)
		return;
	scale = a.gamma[c] / sqrtf(a.running_var[c] + a.epsilon);
	store_affine(&a, c, scale, a.beta[c] - a.running_mean[c] * scale);
	if (!a.mean)
		return;
	a.mean[c] = a.running_mean[c];
	a.deviation[c] = 1 / sqrtf(a.running_var[c] + a.epsilon);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	backward_finalize(const __grid_constant__ struct norm_arguments k)
{
	uint32_t c = CHANNEL;
	double rows = (double)k.rows, a, b;

	if (c >= k.channels)
		return;
	if (k.dgamma)
		k.dgamma[c] = k.products[c] + (k.add_dgamma ? k.dgamma[c] : 0);
	if (k.dbeta)
		k.dbeta[c] = k.sum[c] + (k.add_dbeta ? k.dbeta[c] : 0);
	if (!k.a)
		return;
	a = (double)k.gamma[c] * (double)k.deviation[c];
	b = -a * (double)k.deviation[c] * (double)k.products[c] / rows;
	k.a[c] = (float)a;
	k.b[c] = k.fixed ? 0 : (float)b;
	k.c[c] = k.fixed ? 0 : (float)(-a * (double)k.sum[c] / rows - b * (double)k.mean[c]);
}

NORM_KERNELS(INSTANCES)
KERNEL_TABLE norm_finalize_kernel = KERNEL(finalize);
KERNEL_TABLE norm_running_kernel = KERNEL(running);
KERNEL_TABLE norm_backward_finalize_kernel = KERNEL(backward_finalize);
