/*
 * For the tests of the device: what it computes, written down naively in double precision, and a
 * fixture of one operation with random inputs. Gradients are checked against central differences of
 * this reference, so neither shares code with the device. Everything is small; nothing is freed
 * before a test ends but through the functions here.
 */
#pragma once

#include "trainer/device/device.h"

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
/* Uniform in -1..1, repeatable, and exactly representable in bf16 if `coarse`. */
void tensor_fill(struct tensor *tensor, uint64_t seed, bool coarse);
void tensor_to_float(const struct tensor *tensor, float *to);

/*
 * weight is [K][R][S][C / groups] in shape n, h, w, c; pad_extra: zeros below and to the right
 * beyond pad
 */
struct tensor reference_conv(const struct tensor *x, const struct tensor *weight, uint32_t stride,
			     uint32_t pad, uint32_t pad_extra);
/* Batch statistics over all but c; ret_mean and ret_variance (biased) may be NULL, [c]. */
void reference_norm(struct tensor *x, const struct tensor *gamma, const struct tensor *beta,
		    double epsilon, double *ret_mean, double *ret_variance);
void reference_affine(struct tensor *x, const struct tensor *gamma, const struct tensor *beta,
		      const struct tensor *mean, const struct tensor *variance, double epsilon);
/* Of each position by its own channels. */
void reference_layer_norm(struct tensor *x, const struct tensor *gamma, const struct tensor *beta,
			  double epsilon);
/* qkv [n][h][w][3 heads d] -> [n][h][w][heads d]; drawn as a layer of that name does */
struct tensor reference_attention(const struct tensor *qkv, uint32_t heads,
				  const struct device_draws *draws, const char *layer,
				  double dropout);
/* class_token may be NULL; side: of positions that are resized, 0: they are not. */
struct tensor reference_tokens(const struct tensor *x, const struct tensor *positions,
			       const struct tensor *class_token, uint32_t side);
struct tensor reference_take(const struct tensor *x, uint32_t position);
void reference_add(struct tensor *x, const struct tensor *y);
void reference_bias(struct tensor *x, const struct tensor *bias);
void reference_activate(struct tensor *x, enum device_activation activation);
/* x *= gate [n][1][1][c] */
void reference_gate(struct tensor *x, const struct tensor *gate);
void reference_scale(struct tensor *x, const struct tensor *gamma);
/* x *= what the layer draws for each sample, and for each element */
void reference_drop(struct tensor *x, const struct device_draws *draws, const char *layer,
		    double drop_path, double dropout);
struct tensor reference_pool(const struct tensor *x, uint32_t window_h, uint32_t window_w,
			     uint32_t stride, uint32_t pad, uint32_t pad_extra, bool average);
/* Mean loss over samples with a label. */
double reference_loss(const struct tensor *logits, const int32_t *labels, double smoothing,
		      double scale);

/* ||a - b|| / ||b||, where a is what the device says. */
double relative_error(const float *a, const double *b, size_t count);
/* Largest |a - b|. */
double largest_error(const float *a, const double *b, size_t count);

/* A pseudo-random number from a counter (splitmix64), uniform in 0..1. */
double uniform(uint64_t seed, uint64_t counter);

/*
 * Opens the device under test; skips the test when that has not got the precision. The environment
 * chooses: DEVICE_TEST_BACKEND (cpu), DEVICE_TEST_PRECISION (fp32: only tests of fp32; bf16 or
 * fp16: those of 16 bits, in it; any: all, as they ask for), DEVICE_TEST_FUSION, and
 * DEVICE_TEST_EAGER (set: nothing is captured). Only kernels that repeat bit for bit are admitted.
 */
struct device *open_device(enum device_precision precision, unsigned threads);
struct device *open_device_with(const struct device_options *options);
/* A tolerance that was set for bf16: fp16, with three more bits, must do better. */
double half_tolerance(const struct device *device, double tolerance);

/* A store's parameter filled with values. */
struct device_param *add_param(struct device_params *params, const char *name,
			       enum device_param_kind kind, struct device_shape shape);
