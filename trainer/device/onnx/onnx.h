/*
 * Exports an evaluation graph as an ONNX model, for onnxruntime and others. Input "images" has the
 * daemon's layout [n][h][w][c] with variable n. Output "logits" is [n][classes], equal to
 * device_logits(). Intermediate values are fp32.
 */
#pragma once

#include "trainer/device/graph.h"
#include "trainer/device/params.h"

#include <stdint.h>

struct onnx_options {
	enum device_slot weights; /* slot of the parameters to export, as in device_evaluate() */
	bool bytes;               /* images are u8 and the model normalizes them; otherwise fp32 */
	const char *producer_version;
	/* metadata as key, value, ..., NULL; or NULL for none */
	const char *const *entries;
};

/*
 * Encodes a planned graph whose parameters have values. The caller frees *ret_data, of *ret_size
 * bytes. -EINVAL if the graph is not for evaluation or lacks an input or a loss; -EFBIG if it
 * exceeds protobuf's 2 GiB message limit; -ENOMEM. `error` as in device_open().
 */
int onnx_encode(struct device_graph *graph, const struct onnx_options *options, void **ret_data,
		size_t *ret_size, char *error);
