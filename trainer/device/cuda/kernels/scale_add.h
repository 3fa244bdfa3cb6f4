/*
 * y = activation(residual + s x) over tensors [n][positions][channels] of E, forward and backward.
 * s is the product of gamma [channels] in fp32, gate [n][channels] in E, a random factor per sample
 * (drop-path) and one per element (dropout; trainer/device/dropout_rng.h). All factors are
 * optional. A block handles a tile of channels of one sample, so that it keeps the factors per
 * sample and channel in registers. With few samples and no gate gradient, several blocks divide the
 * positions of a sample.
 */
#ifndef TRAINER_DEVICE_CUDA_SCALE_ADD_H
#define TRAINER_DEVICE_CUDA_SCALE_ADD_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/cuda/step.h"
#include "trainer/device/dropout_rng.h"
#include "trainer/device/ops.h"

/* NULL for absent operands. */
struct scale_add_arguments {
	const struct step_arguments *step; /* seed and step number of the random factors */
	const void *x, *residual, *gate;
	const void *dy, *dy2; /* dy2 is added to dy */
	void *y;              /* backward: for the derivative of a ReLU */
	void *dz, *dx, *dgate;
	const float *gamma;
	float *dgamma;
	float *partial; /* workspace of scale_add_workspace() bytes, for sums */
	bool add_dgamma;
	uint32_t layer;
	struct dropout_rate path, dropout; /* `below` is 0 for none */
	uint32_t n, positions, channels;
	enum cuda_element element;
	enum device_activation activation; /* identity or ReLU */
	/* set by the launchers */
	uint32_t parts; /* number of blocks that divide the positions of a sample */
	uint32_t share; /* positions per block */
	struct row_grid grid;
};

/* Bytes of `partial`. */
uint64_t scale_add_workspace(uint32_t multiprocessors, uint32_t n, uint32_t channels);

/* Reads x and residual once, writes y once; y may be x or residual. */
int scale_add_forward(const struct kernel_device *device,
		      const struct scale_add_arguments *arguments);

/*
 * - dz = dy + dy2; for a ReLU, 0 where y <= 0
 * - dx = s dz
 * - dgate: dz x times all factors but gate, summed over the positions of a sample
 * - dgamma: dz x times all factors but gamma, summed over positions and samples
 * Each of the four may be NULL. Reads dy, dy2, y (ReLU only) and x (dgate and dgamma only) once;
 * writes dz and dx once, which may alias dy or dy2. -EINVAL if there is no output, or if dgate or
 * dgamma lack partial or x.
 */
int scale_add_backward(const struct kernel_device *device,
		       const struct scale_add_arguments *arguments);

#endif
