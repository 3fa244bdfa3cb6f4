/* Internal to ops/: short names of roles, and conversion of operands to kernel arguments. */
#pragma once

#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/lowering/lower.h"

#define ROLE(name) CUDA_BIT(CUDA_##name)
#define SUMS       (ROLE(SUM) | ROLE(PRODUCTS))
#define AFFINE     (ROLE(SCALE) | ROLE(BIAS))
#define BATCH      (ROLE(MEAN) | ROLE(DEVIATION))
#define RUNNING    (ROLE(RUNNING_MEAN) | ROLE(RUNNING_VAR))
#define ABC        (ROLE(A) | ROLE(B) | ROLE(C))

/* Returns the address of an operand; NULL if the operation lacks that role. */
void *cuda_at(const struct cuda_exec *exec, const struct cuda_op *op, enum cuda_role role);
/* True if this step accumulates into a parameter's gradient instead of storing it. */
bool cuda_adds(const struct cuda_exec *exec, const struct cuda_op *op, enum cuda_role role);
/*
 * Returns the operation's workspace, or NULL if its definition requests none, so that an operation
 * whose definition forgets its workspace always fails.
 */
void *cuda_workspace(const struct cuda_exec *exec, const struct cuda_op *op);
/*
 * Implements `workspace` of cuda_op_def for operations that sum over the rows of DY, or of X if
 * they have no DY.
 */
uint64_t cuda_sums_workspace(const struct cuda_exec *exec, const struct cuda_op *op);
uint64_t cuda_rows(const struct cuda_tensor *tensor);

/* ---- matrix products: convolutions (conv*.c) and linear layers (linear.c) ---- */

/* Channels of the layer's input tensor, padding included. */
uint32_t lower_x_channels(const struct lowering *l, const struct device_node *node);
/* Fills in the problem of the layer's convolution in this direction, without fusion. */
void lower_conv_problem(const struct lowering *l, const struct device_node *node,
			enum conv_direction direction, struct conv_problem *p);
/* Finds a plan. False if there is none or lowering has failed. */
bool lower_find_plan(struct lowering *l, const struct device_node *node,
		     const struct conv_problem *problem, struct conv_plan **ret_plan);
/* Finds a plan for an unfused convolution; lowering fails if there is none. */
struct conv_plan *lower_need_plan(struct lowering *l, const struct device_node *node,
				  const struct conv_problem *problem);
/* Appends the convolution; takes ownership of the plan. */
struct cuda_op *lower_conv_op(struct lowering *l, const struct device_node *node,
			      const struct conv_problem *problem, struct conv_plan *plan);
/*
 * Sets the raw result of `producer` as the operation's input, and the scale and bias of its norm as
 * prologue.
 */
void lower_set_prologue(struct lowering *l, struct cuda_op *op, const struct device_node *producer);
/* Appends the gradients of weights and input, given the gradient of raw. */
void lower_conv_backward(struct lowering *l, const struct device_node *node,
			 struct cuda_tensor *dy);
/* Sets the device's error to the engine's `text`; returns r. */
int cuda_fail_engine(struct cuda_exec *exec, const struct cuda_op *op, int r, const char *text);

/* ---- weights and their gradients (weights.c) ---- */

/*
 * Returns the weights that forward reads: the parameter's copy in training, the result of FOLD in
 * evaluation.
 */
struct cuda_tensor *lower_forward_weights(struct lowering *l, const struct device_node *node,
					  uint32_t channels);
/* Returns the bias, converted to the element type of the result that it is added to. */
struct cuda_tensor *lower_forward_bias(struct lowering *l, const struct device_node *node,
				       enum cuda_element element);
/*
 * Sets the destination of a weight gradient. With `result`, this is `result`, which
 * lower_convert_gradient() then converts. With NULL, it is the parameter's gradient itself; adds a
 * tensor (ADDEND) for steps that accumulate.
 */
void lower_set_weight_gradient(struct lowering *l, struct cuda_op *op,
			       const struct device_node *node, struct cuda_tensor *result);
/*
 * Appends the conversion of a weight gradient to the parameter's fp32 gradient, launched together
 * with others.
 */
void lower_convert_gradient(struct lowering *l, const struct device_node *node,
			    struct cuda_tensor *result);
/* Address to which this step's product stores a weight gradient: DW or ADDEND. */
void *cuda_weight_gradient(const struct cuda_exec *exec, const struct cuda_op *op);
/* Called after the product: adds ADDEND to DW if the product stored to ADDEND. */
int cuda_add_weight_gradient(struct cuda_exec *exec, const struct cuda_op *op);
