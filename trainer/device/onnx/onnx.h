/*
 * A graph for evaluation as a model in ONNX, for onnxruntime and others. It takes images as they
 * come from the daemon, [n][h][w][c] with any n, and returns "logits", [n][classes], those of
 * device_logits(); what it computes in between is fp32.
 */
#pragma once

#include "trainer/device/device.h"

#include <stdint.h>

struct onnx_options {
	enum device_slot weights; /* as device_evaluate() takes them */
	bool bytes;               /* images are u8, which the model normalises; else fp32 */
	const char *producer_version;
	/* texts that say more of the model: key, value, key, value, ..., NULL; or NULL */
	const char *const *entries;
};

/*
 * Encodes a planned graph whose parameters have values. *ret_data: [*ret_size], to be freed by the
 * caller. -EINVAL: not for evaluation, or nothing to end with; -EFBIG: more than the 2 GiB that a
 * message may have; -ENOMEM. error as in device_open().
 */
int onnx_encode(struct device_graph *graph, const struct onnx_options *options, void **ret_data,
		size_t *ret_size, char *error);
