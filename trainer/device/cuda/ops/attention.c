/* Attention, forward and backward. */
#include "trainer/device/cuda/kernels/attention.h"
#include "trainer/device/cuda/ops/internal.h"

#include <errno.h>

#define ATTENTION_CHANNELS_MAX 64 /* channels per head; size of the kernels' tiles */

static void lower_attention_forward(struct lowering *l, const struct device_node *node)
{
	uint32_t channels = node->y->shape.c / node->attention.heads;

	if (channels > ATTENTION_CHANNELS_MAX)
		lower_fail(
			l, -ENOTSUP,
			"%s: heads of %u channels, but attention on a GPU takes at most %d; make "
			"the network narrower, or compute on the CPU",
			node->name, channels, ATTENTION_CHANNELS_MAX);
	else
		lower_single_forward(l, node, CUDA_OP_ATTENTION);
}

const struct node_lowering lower_attention = {.forward = lower_attention_forward,
					      .backward_op = CUDA_OP_ATTENTION_BACKWARD};

static int execute_attention(struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct device_node *node = op->node;
	struct attention_arguments arguments = {
		.qkv = cuda_at(exec, op, CUDA_X),
		.y = cuda_at(exec, op, CUDA_Y),
		.log_sum = cuda_at(exec, op, CUDA_LOG_SUM),
		.dy = cuda_at(exec, op, CUDA_DY),
		.dqkv = cuda_at(exec, op, CUDA_DX),
		.delta = cuda_workspace(exec, op),
		.step = exec->arguments,
		.layer = node->attention.layer,
		.first_head = node->attention.first,
		.dropout = dropout_rate(node->attention.dropout),
		.n = node->x->shape.n,
		.t = node->x->shape.h * node->x->shape.w,
		.heads = node->attention.heads,
		.d = node->y->shape.c / node->attention.heads,
		.element = op->operands[CUDA_X]->element,
	};

	return op->kind == CUDA_OP_ATTENTION
		       ? attention_forward(&exec->device->kernels, &arguments)
		       : attention_backward(&exec->device->kernels, &arguments);
}

/*
 * X (qkv) -> Y. Training also writes LOG_SUM (fp32, [n][heads][h][w]), the logarithm of each
 * query's sum of exponentials.
 */
const struct cuda_op_def cuda_attention_op = {
	.name = "attention",
	.reads = ROLE(X),
	.writes = ROLE(Y),
	.may_write = ROLE(LOG_SUM),
	.passes = 1,
	.execute = execute_attention,
};

/* fp32 workspace with one element per query and head. */
static uint64_t backward_workspace(const struct cuda_exec *exec, const struct cuda_op *op)
{
	return device_shape_elements(op->operands[CUDA_LOG_SUM]->shape) * sizeof(float);
}

const struct cuda_op_def cuda_attention_backward_op = {
	.name = "attention backward",
	.reads = ROLE(DY) | ROLE(X) | ROLE(Y) | ROLE(LOG_SUM),
	.writes = ROLE(DX),
	.passes = 2,
	.execute = execute_attention,
	.workspace = backward_workspace,
};
