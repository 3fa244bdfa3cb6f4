/*
 * A convolution problem as cuDNN's graph of operations, in the shapes that its documentation gives the fused patterns (ConvBNfprop, DBARCS,
 * ConvBNwgrad, DgradDreluBNBwdWeight, and the generic ones). A tensor in memory has as its unique id one more than the
 * offset of its pointer in struct conv_arguments; tensors that exist only within the graph have ids beyond these.
 */
#pragma once

#include "conv.h"

#include "cudnn/backend.h"

#define CONV_OPERANDS 24 /* in memory, at most */

struct conv_operands {
	int64_t ids[CONV_OPERANDS];
	int64_t count;
};

/*
 * The finished graph, owned by the backend; NULL after a failure, which backend->result and its error tell. handle: of the device that it will run
 * on; NULL: there is none, whoever plans it says by its properties which one it is for.
 */
descriptor conv_graph(struct backend *backend, cudnnHandle_t handle,
		      const struct conv_problem *problem, struct conv_operands *ret_operands);
/* The pointer that belongs to an id. */
void *conv_operand(const struct conv_arguments *arguments, int64_t id);
