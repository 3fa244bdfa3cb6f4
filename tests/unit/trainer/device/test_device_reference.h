/*
 * Shared code for tests of devices: naive reference implementations of the operations in double
 * precision, and helpers to open the device under test. Gradients are checked against central
 * differences of this reference, so no check shares code with the device. Tensors are small; memory
 * that the functions here do not free lives until the test ends.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/ops.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"

#include <setjmp.h>
#include <stdarg.h>

/* A dense tensor [n][h][w][c]. */
struct tensor {
	struct device_shape shape;
	double *v;
};

struct tensor tensor_new(struct device_shape shape);
void tensor_free(struct tensor *tensor);
size_t tensor_count(const struct tensor *tensor);
/* Uniform in -1..1, repeatable; exactly representable in bf16 if `coarse`. */
void tensor_fill(struct tensor *tensor, uint64_t seed, bool coarse);
void tensor_to_float(const struct tensor *tensor, float *to);

/*
 * weight is [K][R][S][C / groups], with K, R, S and C / groups in the shape's n, h, w and c.
 * `pad_extra` adds rows of zeros at the bottom and columns at the right, in addition to `pad`.
 */
struct tensor reference_conv(const struct tensor *x, const struct tensor *weight, uint32_t stride,
			     uint32_t pad, uint32_t pad_extra);
/*
 * Uses batch statistics over n, h and w. ret_mean and ret_variance (biased) are [c] and may be
 * NULL.
 */
void reference_norm(struct tensor *x, const struct tensor *gamma, const struct tensor *beta,
		    double epsilon, double *ret_mean, double *ret_variance);
void reference_affine(struct tensor *x, const struct tensor *gamma, const struct tensor *beta,
		      const struct tensor *mean, const struct tensor *variance, double epsilon);
/* Normalises each position over its channels. */
void reference_layer_norm(struct tensor *x, const struct tensor *gamma, const struct tensor *beta,
			  double epsilon);
/*
 * qkv [n][h][w][3 heads d] -> [n][h][w][heads d]. Dropout uses the draws of the layer with this
 * name.
 */
struct tensor reference_attention(const struct tensor *qkv, uint32_t heads,
				  const struct device_draws *draws, const char *layer,
				  double dropout);
/* class_token may be NULL. side: of the position embeddings if they are resized, else 0. */
struct tensor reference_tokens(const struct tensor *x, const struct tensor *positions,
			       const struct tensor *class_token, uint32_t side);
struct tensor reference_take(const struct tensor *x, uint32_t position);
void reference_add(struct tensor *x, const struct tensor *y);
void reference_bias(struct tensor *x, const struct tensor *bias);
void reference_activate(struct tensor *x, enum device_activation activation);
/* x *= gate [n][1][1][c] */
void reference_gate(struct tensor *x, const struct tensor *gate);
void reference_scale(struct tensor *x, const struct tensor *gamma);
/* x *= the factors that the layer draws for each sample and for each element */
void reference_drop(struct tensor *x, const struct device_draws *draws, const char *layer,
		    double drop_path, double dropout);
struct tensor reference_pool(const struct tensor *x, uint32_t window_h, uint32_t window_w,
			     uint32_t stride, uint32_t pad, uint32_t pad_extra, bool average);
/* Mean loss over the samples that have a label. */
double reference_loss(const struct tensor *logits, const int32_t *labels, double smoothing,
		      double scale);

/* ||a - b|| / ||b||, where a is the device's result. */
double relative_error(const float *a, const double *b, size_t count);
/* Largest |a - b|. */
double largest_error(const float *a, const double *b, size_t count);

/* A pseudo-random number from a counter (splitmix64), uniform in 0..1. */
double uniform(uint64_t seed, uint64_t counter);

/*
 * Opens the device under test; skips the test if the device does not support the precision. The
 * environment selects it: DEVICE_TEST_BACKEND (cpu), DEVICE_TEST_PRECISION (fp32 runs only fp32
 * tests; bf16 or fp16 runs the 16-bit tests in that precision; any runs all tests in the precision
 * they ask for), DEVICE_TEST_FUSION, and DEVICE_TEST_EAGER (if set, nothing is captured). Only
 * kernels that repeat bit for bit are allowed.
 */
struct device *open_device(enum device_precision precision, unsigned threads);
struct device *open_device_with(const struct device_options *options);
/*
 * Returns a tolerance set for bf16, halved if the device computes in fp16, which has three more
 * bits.
 */
double half_tolerance(const struct device *device, double tolerance);

/* Adds a parameter filled with values to a store. */
struct device_param *add_param(struct device_params *params, const char *name,
			       enum device_param_kind kind, struct device_shape shape);
