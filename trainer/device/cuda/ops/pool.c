/* Queues pools, forward and backward. */
#include "trainer/device/cuda/execute/execute.h"
#include "trainer/device/cuda/kernels/pooling.h"

int cuda_execute_pool(struct cuda_graph *graph, const struct cuda_op *op)
{
	static int (*const launchers[CUDA_OP_KINDS])(const struct kernel_device *device,
						     const struct pool_arguments *arguments) = {
		[CUDA_OP_MAX_POOL] = pool_max,
		[CUDA_OP_MAX_POOL_BACKWARD] = pool_max_backward,
		[CUDA_OP_MAX_POOL_NORM_REDUCE] = pool_max_norm_reduce,
		[CUDA_OP_MAX_POOL_NORM_APPLY] = pool_max_norm_apply,
		[CUDA_OP_AVERAGE_POOL] = pool_average,
		[CUDA_OP_AVERAGE_POOL_BACKWARD] = pool_average_backward,
	};
	const struct cuda_tensor *x = op->operands[op->operands[CUDA_X] ? CUDA_X : CUDA_DX];
	const struct cuda_tensor *y = op->operands[op->operands[CUDA_Y] ? CUDA_Y : CUDA_DY];
	struct pool_arguments arguments = {
		.x = cuda_at(graph, op, CUDA_X),
		.dy = cuda_at(graph, op, CUDA_DY),
		.dy2 = cuda_at(graph, op, CUDA_DY2),
		.y = cuda_at(graph, op, CUDA_Y),
		.dx = cuda_at(graph, op, CUDA_DX),
		.index = cuda_at(graph, op, CUDA_INDEX),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.activation = op->norm.activation,
		.mean = cuda_at(graph, op, CUDA_MEAN),
		.deviation = cuda_at(graph, op, CUDA_DEVIATION),
		.a = cuda_at(graph, op, CUDA_A),
		.b = cuda_at(graph, op, CUDA_B),
		.c = cuda_at(graph, op, CUDA_C),
		.sum = cuda_at(graph, op, CUDA_SUM),
		.products = cuda_at(graph, op, CUDA_SQUARES),
		.partial = cuda_workspace(graph, op),
		.shape = {.n = x->shape.n,
			  .h = x->shape.h,
			  .w = x->shape.w,
			  .channels = x->shape.c,
			  .p = y->shape.h,
			  .q = y->shape.w,
			  .window = op->node->window_h,
			  .stride = op->node->stride,
			  .pad = op->node->pad,
			  .element = x->element},
	};

	return launchers[op->kind](&graph->device->kernels, &arguments);
}

int cuda_execute_global(struct cuda_graph *graph, const struct cuda_op *op)
{
	static int (*const launchers[CUDA_OP_KINDS])(const struct kernel_device *device,
						     const struct pool_global *arguments) = {
		[CUDA_OP_GLOBAL_AVERAGE] = pool_global_average,
		[CUDA_OP_GLOBAL_AVERAGE_BACKWARD] = pool_global_average_backward,
		[CUDA_OP_GLOBAL_MAX] = pool_global_max,
		[CUDA_OP_GLOBAL_MAX_BACKWARD] = pool_global_max_backward,
	};
	bool backward = op->operands[CUDA_DX];
	/* the tensor with all positions; the other one has one value per image */
	const struct cuda_tensor *x = op->operands[backward ? CUDA_DX : CUDA_X];
	struct pool_global arguments = {
		.from = cuda_at(graph, op, backward ? CUDA_DY : CUDA_X),
		.to = cuda_at(graph, op, backward ? CUDA_DX : CUDA_Y),
		.index = cuda_at(graph, op, CUDA_INDEX),
		.n = x->shape.n,
		.positions = x->shape.h * x->shape.w,
		.channels = x->shape.c,
		.element = x->element,
	};

	return launchers[op->kind](&graph->device->kernels, &arguments);
}
