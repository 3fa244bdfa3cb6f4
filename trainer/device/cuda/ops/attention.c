/* Queues attention, forward and backward. */
#include "trainer/device/cuda/kernels/attention.h"
#include "trainer/device/cuda/execute/execute.h"

int cuda_execute_attention(struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct device_node *node = op->node;
	struct attention_arguments arguments = {
		.qkv = cuda_at(graph, op, CUDA_X),
		.y = cuda_at(graph, op, CUDA_Y),
		.log_sum = cuda_at(graph, op, CUDA_LOG_SUM),
		.dy = cuda_at(graph, op, CUDA_DY),
		.dqkv = cuda_at(graph, op, CUDA_DX),
		.delta = cuda_workspace(graph, op),
		.step = graph->arguments,
		.layer = node->attention.layer,
		.dropout = draws_drop(node->attention.dropout),
		.n = node->x->shape.n,
		.t = node->x->shape.h * node->x->shape.w,
		.heads = node->attention.heads,
		.d = node->y->shape.c / node->attention.heads,
		.element = op->operands[CUDA_X]->element,
	};

	return op->kind == CUDA_OP_ATTENTION
		       ? attention_forward(&graph->device->kernels, &arguments)
		       : attention_backward(&graph->device->kernels, &arguments);
}
