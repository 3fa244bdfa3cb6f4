/* Internal to ops/: roles by short names, and the way from roles to arguments of kernels. */
#pragma once

#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/lowering/lower.h"

#define ROLE(name) CUDA_BIT(CUDA_##name)
#define SUMS       (ROLE(SUM) | ROLE(SQUARES))
#define AFFINE     (ROLE(SCALE) | ROLE(BIAS))
#define BATCH      (ROLE(MEAN) | ROLE(DEVIATION))
#define RUNNING    (ROLE(RUNNING_MEAN) | ROLE(RUNNING_VAR))
#define ABC        (ROLE(A) | ROLE(B) | ROLE(C))

/* Address of an operand; NULL if the operation has none of that role. */
void *cuda_at(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role);
/* True if this step adds to a parameter's gradient instead of storing it. */
bool cuda_adds(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role);
/*
 * Workspace of the operation; NULL unless its definition asks for one, so that a definition that
 * forgets it fails whenever the operation runs.
 */
void *cuda_workspace(const struct cuda_graph *graph, const struct cuda_op *op);
/* `workspace` of operations that sum the columns of DY, or without DY those of X. */
uint64_t cuda_sums_workspace(const struct cuda_graph *graph, const struct cuda_op *op);
uint64_t cuda_rows(const struct cuda_tensor *tensor);

/* ---- matrix products: convolutions (conv*.c) and linear layers (linear.c) ---- */

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
/* Sets the operation's input to the producer's raw result, with its norm's scale and bias. */
void lower_set_prologue(struct lowering *l, struct cuda_op *op, const struct device_node *producer);
/* From the gradient of raw: computes those of weights and input. */
void lower_conv_backward(struct lowering *l, const struct device_node *node,
			 struct cuda_tensor *dy);
/* Sets the device's error to the engine's `text`; returns r. */
int cuda_fail_engine(struct cuda_graph *graph, const struct cuda_op *op, int r, const char *text);

/* ---- weights and their gradients (weights.c) ---- */

/* In training the parameter's copy, in evaluation the result of FOLD. */
struct cuda_tensor *lower_forward_weights(struct lowering *l, const struct device_node *node,
					  uint32_t channels);
/* The bias, in the element of the result it is added to. */
struct cuda_tensor *lower_forward_bias(struct lowering *l, const struct device_node *node,
				       enum cuda_element element);
/*
 * Sets the destination of a weight gradient: `result`, for lower_convert_gradient(); or if NULL the
 * parameter's gradient, with a tensor (ADDEND) for steps that must accumulate.
 */
void lower_set_weight_gradient(struct lowering *l, struct cuda_op *op,
			       const struct device_node *node, struct cuda_tensor *result);
/* Converts a weight gradient to the parameter's, in one launch with others. */
void lower_convert_gradient(struct lowering *l, const struct device_node *node,
			    struct cuda_tensor *result);
/* Address to which this step's product stores a weight gradient: DW or ADDEND. */
void *cuda_weight_gradient(const struct cuda_graph *graph, const struct cuda_op *op);
/* After the product: adds ADDEND to DW if that is where it was stored. */
int cuda_add_weight_gradient(struct cuda_graph *graph, const struct cuda_op *op);
