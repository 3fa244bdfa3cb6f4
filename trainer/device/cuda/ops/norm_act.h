/*
 * Internal to norm_act.c and norm_act_backward.c: operations for the norm, residual and activation
 * of a convolution or of a separate norm.
 */
#pragma once

#include "trainer/device/cuda/kernels/norm.h"
#include "trainer/device/cuda/ops/internal.h"

/*
 * Appends an operation with those of the node's tensors that its definition names. An operation
 * that combines the backward pass of a norm with that of the max pool after it belongs to the
 * pool's node, and reads the gradient of the pool's result.
 */
struct cuda_op *lower_norm_op(struct lowering *l, enum cuda_op_kind kind,
			      const struct device_node *node, enum device_activation activation);
/*
 * Sets scale and bias applied to raw: those of the norm, or the convolution's bias. Linear layers
 * have already added their bias.
 */
void lower_set_affine(struct lowering *l, struct cuda_op *op, const struct device_node *node);
/*
 * Sets the residual of APPLY, or of an operation that recomputes z: a tensor, or the raw input of
 * another norm with that norm's scale and bias.
 */
void lower_set_residual(struct lowering *l, struct cuda_op *op, const struct device_node *node);

/* Rows that share statistics: all rows, or those of one sample group. */
struct norm_part {
	uint32_t group, groups;
	uint64_t row, rows;
};

struct norm_part cuda_norm_part(const struct cuda_op *op, uint32_t group);
struct norm_arguments cuda_norm_arguments(const struct cuda_exec *exec, const struct cuda_op *op,
					  const struct norm_part *part);
/*
 * Calls `execute` once per sample group, in order, because each call adds to the running statistics
 * and gradients of the previous one.
 */
int cuda_execute_parts(struct cuda_exec *exec, const struct cuda_op *op,
		       int (*execute)(struct cuda_exec *exec, const struct cuda_op *op,
				      const struct norm_part *part));
/* Implements `execute` of cuda_op_def for operations with one launch per group. */
int cuda_execute_norm(struct cuda_exec *exec, const struct cuda_op *op);
