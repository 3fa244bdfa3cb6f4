/*
 * Layer norm (Ba, Kiros, Hinton 2016, arXiv:1607.06450) of matrices [rows][channels] of E: each row
 * by its own mean and biased variance, then gamma and beta [channels] in fp32. Arithmetic is fp32;
 * the variance is taken about the mean, in a second pass over the row. E is `element`.
 *
 * A row of up to LAYER_NORM_WARP_MAX channels is a warp's, a longer one a block's. What a thread
 * has of it stays in registers as long as there are at most four packs, which are four channels
 * where their number is no multiple of a pack's; what is more is read again, from the caches. Sums
 * over rows are columns.h's.
 */
#ifndef TRAINER_DEVICE_CUDA_LAYER_NORM_H
#define TRAINER_DEVICE_CUDA_LAYER_NORM_H

#include "trainer/device/cuda/kernels/columns.h"

#define LAYER_NORM_WARP_MAX 4096

/* y = (x - mean) deviation gamma + beta. Reads x once, writes y once; y may be x. */
struct layer_norm {
	const void *x; /* [rows][channels] E */
	const float *gamma, *beta;
	void *y; /* [rows][channels] E */
	/* [rows], deviation = 1 / sqrt(variance + epsilon); or both NULL */
	float *mean, *deviation;
	uint64_t rows; /* below 2^31 */
	uint32_t channels;
	enum cuda_element element;
	float epsilon;
};
int layer_norm_forward(const struct kernel_device *device, const struct layer_norm *arguments);

/*
 * With g = dy gamma and xhat = (x - mean) deviation: dx = deviation (g - mean of g - xhat mean of g
 * xhat), the means over a row's channels; dgamma = sum of dy xhat and dbeta = sum of dy over rows.
 * Reads dy and x once for dx and once more for the sums, writes dx once; dx may be neither.
 */
struct layer_norm_backward {
	const void *dy, *x;                    /* [rows][channels] E */
	const float *gamma, *mean, *deviation; /* the latter two [rows], of layer_norm_forward() */
	void *dx;                              /* [rows][channels] E, or NULL */
	float *dgamma, *dbeta;                 /* each or NULL */
	bool add_dgamma, add_dbeta;            /* += instead of = */
	float *partial; /* workspace of columns_workspace() bytes, with dgamma or dbeta */
	uint64_t rows;  /* below 2^31 */
	uint32_t channels;
	enum cuda_element element;
	struct columns columns; /* filled in by the launcher */
};
int layer_norm_backward(const struct kernel_device *device,
			const struct layer_norm_backward *arguments);

#endif
