/* Queues tokens and taking a token, forward and backward. */
#include "trainer/device/cuda/kernels/tokens.h"
#include "trainer/device/cuda/execute/execute.h"

int cuda_execute_tokens(struct cuda_graph *graph, const struct cuda_op *op)
{
	static int (*const launchers[CUDA_OP_KINDS])(const struct kernel_device *device,
						     const struct tokens_arguments *arguments) = {
		[CUDA_OP_TOKENS] = tokens_forward,
		[CUDA_OP_TOKENS_BACKWARD] = tokens_backward,
		[CUDA_OP_TAKE] = tokens_take,
		[CUDA_OP_TAKE_BACKWARD] = tokens_take_backward,
	};
	const struct device_node *node = op->node;
	const struct device_shape *x = &node->x->shape;
	const struct cuda_tensor *y = op->operands[op->operands[CUDA_Y] ? CUDA_Y : CUDA_DY];
	struct tokens_arguments arguments = {
		.x = cuda_at(graph, op, CUDA_X),
		.dy = cuda_at(graph, op, CUDA_DY),
		.y = cuda_at(graph, op, CUDA_Y),
		.dx = cuda_at(graph, op, CUDA_DX),
		.positions = cuda_at(graph, op, CUDA_POSITIONS),
		.class_token = cuda_at(graph, op, CUDA_CLASS_TOKEN),
		.dpositions = cuda_at(graph, op, CUDA_DPOSITIONS),
		.dclass_token = cuda_at(graph, op, CUDA_DCLASS_TOKEN),
		/* the intermediate tensor of resized positions is not an accumulated gradient */
		.add_positions = op->operands[CUDA_DPOSITIONS] &&
				 op->operands[CUDA_DPOSITIONS]->param &&
				 cuda_adds(graph, op, CUDA_DPOSITIONS),
		.add_class_token = cuda_adds(graph, op, CUDA_DCLASS_TOKEN),
		.n = x->n,
		.places = x->h * x->w,
		.tokens = node->y->shape.h * node->y->shape.w,
		.channels = x->c,
		.taken = node->position,
		.element = y->element,
	};

	return launchers[op->kind](&graph->device->kernels, &arguments);
}

int cuda_execute_resize_positions(struct cuda_graph *graph, const struct cuda_op *op)
{
	bool backward = op->operands[CUDA_DY];
	struct tokens_resize arguments = {
		.from = cuda_at(graph, op, backward ? CUDA_DY : CUDA_POSITIONS),
		.to = cuda_at(graph, op, backward ? CUDA_DPOSITIONS : CUDA_Y),
		.add = backward && cuda_adds(graph, op, CUDA_DPOSITIONS),
	};

	device_node_resizes(op->node, &arguments.size);
	return (backward ? tokens_resize_backward : tokens_resize)(&graph->device->kernels,
								   &arguments);
}
