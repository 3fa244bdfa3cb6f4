/*
 * A convolution problem as a cuDNN operation graph, in the forms that its documentation gives for
 * fused patterns (ConvBNfprop, DBARCS, ConvBNwgrad, DgradDreluBNBwdWeight, and the generic ones).
 * The unique id of a tensor in memory is the offset of its pointer in struct conv_arguments, plus
 * one; tensors internal to the graph have larger ids.
 */
#pragma once

#include "trainer/device/cuda/conv.h"

#include "trainer/device/cuda/cudnn/backend.h"

#define CONV_OPERANDS 24 /* in memory, at most */

struct conv_operands {
	int64_t ids[CONV_OPERANDS];
	int64_t count;
};

/*
 * Builds the finalized graph, owned by the backend; NULL after a failure, see backend->result and
 * backend->error. handle: of the device to run on; NULL if absent, then planning uses device
 * properties.
 */
descriptor conv_graph(struct backend *backend, cudnnHandle_t handle,
		      const struct conv_problem *problem, struct conv_operands *ret_operands);
/* Pointer with this id. */
void *conv_operand(const struct conv_arguments *arguments, int64_t id);
