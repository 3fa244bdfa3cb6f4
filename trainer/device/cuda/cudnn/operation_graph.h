/*
 * Builds the cuDNN operation graph of a convolution problem, in the form that cuDNN's documentation
 * gives for each fused pattern (ConvBNfprop, DBARCS, ConvBNwgrad, DgradDreluBNBwdWeight, and the
 * generic ones). The unique id of a tensor in memory is the offset of its pointer in struct
 * conv_arguments, plus one. Tensors internal to the graph have larger ids.
 */
#pragma once

#include "trainer/device/cuda/conv.h"

#include "trainer/device/cuda/cudnn/backend.h"

#define CONV_OPERANDS 24 /* maximum number of operands in memory */

struct conv_operands {
	int64_t ids[CONV_OPERANDS];
	int64_t count;
};

/*
 * Builds and finalizes the graph, which the backend owns. Returns NULL after a failure; see
 * backend->result and backend->error. `handle` belongs to the device to run on; without a device it
 * is NULL, and planning uses device properties.
 */
descriptor conv_graph(struct backend *backend, cudnnHandle_t handle,
		      const struct conv_problem *problem, struct conv_operands *ret_operands);
/* Returns the pointer with this id. */
void *conv_operand(const struct conv_arguments *arguments, int64_t id);
