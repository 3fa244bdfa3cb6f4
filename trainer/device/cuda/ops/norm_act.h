/*
 * Internal to norm_act.c and norm_act_backward.c: operations of the part after a convolution, or of
 * a separate norm.
 */
#pragma once

#include "trainer/device/cuda/kernels/norm.h"
#include "trainer/device/cuda/ops/internal.h"

/*
 * Appends an operation with all tensors that the node has for it. An operation that includes the
 * max pool after the norm belongs to the pool's node and takes its gradient.
 */
struct cuda_op *lower_norm_op(struct lowering *l, enum cuda_op_kind kind,
			      const struct device_node *node, enum device_activation activation);
/*
 * Scale and bias of raw: the norm's, or the convolution's bias. Linear layers have already added
 * theirs.
 */
void lower_set_affine(struct lowering *l, struct cuda_op *op, const struct device_node *node);
/*
 * The residual of APPLY, or of an operation that recomputes z: a tensor, or another norm's raw with
 * its scale and bias.
 */
void lower_set_residual(struct lowering *l, struct cuda_op *op, const struct device_node *node);

/* Rows that share statistics: all, or those of a sample group. */
struct norm_part {
	uint32_t group, groups;
	uint64_t row, rows;
};

struct norm_part cuda_norm_part(const struct cuda_op *op, uint32_t group);
struct norm_arguments cuda_norm_arguments(const struct cuda_graph *graph, const struct cuda_op *op,
					  const struct norm_part *part);
/* Calls `execute` group by group, since running statistics and gradients build on previous groups.
 */
int cuda_execute_parts(struct cuda_graph *graph, const struct cuda_op *op,
		       int (*execute)(struct cuda_graph *graph, const struct cuda_op *op,
				      const struct norm_part *part));
/* `execute` of operations that are a single launch for each group. */
int cuda_execute_norm(struct cuda_graph *graph, const struct cuda_op *op);
