/*
 * Internal to conv.c, conv_backward.c and linear.c: problems, plans and
 * operations of a layer. See lower.h.
 */
#pragma once

#include "trainer/device/cuda/lowering/lower.h"

/* Channels of the layer's input tensor, padding included. */
uint32_t lower_x_channels(const struct lowering *l, const struct device_node *node);
/* The layer's convolution in this direction, without fusion. */
void lower_conv_problem(const struct lowering *l, const struct device_node *node,
			enum conv_direction direction, struct conv_problem *p);
/* False if there is no plan or lowering has failed. */
bool lower_find_plan(struct lowering *l, const struct device_node *node,
		     const struct conv_problem *problem, struct conv_plan **ret_plan);
/* A plain convolution, which must have a plan. */
struct conv_plan *lower_need_plan(struct lowering *l, const struct device_node *node,
				  const struct conv_problem *problem);
/* Takes ownership of the plan. */
struct cuda_op *lower_conv_op(struct lowering *l, const struct device_node *node,
			      const struct conv_problem *problem, struct conv_plan *plan);

/* In training the parameter's copy, in evaluation the result of CUDA_OP_FOLD. */
struct cuda_tensor *lower_forward_weights(struct lowering *l, struct lower_node *n,
					  uint32_t channels);
/* The bias, in the element of the result it is added to. */
struct cuda_tensor *lower_forward_bias(struct lowering *l, const struct device_node *node,
				       enum cuda_element element);
/* Sets the operation's input to the producer's raw result, with its norm's scale and bias. */
void lower_set_prologue(struct lowering *l, struct cuda_op *op, struct lower_node *producer);
/*
 * Sets the destination of a weight gradient: `result`, to be converted later; or if NULL the
 * parameter's gradient, with a tensor (ADDEND) for steps that must accumulate.
 */
void lower_set_weights_result(struct lowering *l, struct cuda_op *op,
			      const struct device_node *node, struct cuda_tensor *result);
