/*
 * y = activation(residual + s x) over tensors [n][positions][channels] of E, forward and backward.
 * s is the product of gamma [channels] fp32, gate [n][channels] E, a draw per sample and a draw per
 * element (trainer/device/dropout_rng.h), all optional. Factors per sample and channel are kept in
 * registers: a block has a tile of channels of one sample or, without a gate and with few samples,
 * of part of its positions.
 */
#ifndef TRAINER_DEVICE_CUDA_SCALE_ADD_H
#define TRAINER_DEVICE_CUDA_SCALE_ADD_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/cuda/step.h"
#include "trainer/device/dropout_rng.h"

/* NULL for absent operands. */
struct scale_add_arguments {
	const struct step_arguments *step; /* contains the seed and step of draws */
	const void *x, *residual, *gate;
	const void *dy, *dy2; /* dy2 is added to dy */
	void *y;              /* backward: needed for the slope of a ReLU */
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
	uint32_t parts; /* of a sample's positions, which blocks share */
	uint32_t share; /* positions of a part */
	struct row_grid grid;
};

/* Bytes of `partial`. */
uint64_t scale_add_workspace(uint32_t multiprocessors, uint32_t n, uint32_t channels);

/* Reads x and residual once, writes y once; y may be x or residual. */
int scale_add_forward(const struct kernel_device *device,
		      const struct scale_add_arguments *arguments);

/*
 * dz = dy + dy2, for a ReLU where y > 0; dx = s dz; dgate and dgamma = sums of dz x times the other
 * factors of s, over a sample's positions and over all samples. Each of the four may be NULL. Reads
 * dy, dy2, y of a ReLU and, for the sums, x once; writes dz and dx once; these may be dy or dy2.
 * -EINVAL if there is no output, or sums lack partial or x.
 */
int scale_add_backward(const struct kernel_device *device,
		       const struct scale_add_arguments *arguments);

#endif
