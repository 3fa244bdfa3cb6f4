/* Queues pools, forward and backward. */
#include "trainer/device/cuda/execute.h"
#include "trainer/device/cuda/kernels/pooling.h"

static struct pool_shape pool_shape_of(const struct cuda_op *op, const struct cuda_tensor *x,
				       const struct cuda_tensor *y)
{
	return (struct pool_shape){
		.n = x->shape.n,
		.h = x->shape.h,
		.w = x->shape.w,
		.channels = x->shape.c,
		.p = y->shape.h,
		.q = y->shape.w,
		.window = op->node->window_h,
		.stride = op->node->stride,
		.pad = op->node->pad,
		.element = x->element,
	};
}

int cuda_execute_max_pool(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_max arguments = {
		.x = cuda_at(graph, op, CUDA_X),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.activation = op->norm.activation,
		.y = cuda_at(graph, op, CUDA_Y),
		.index = cuda_at(graph, op, CUDA_INDEX),
		.shape = pool_shape_of(op, op->operands[CUDA_X], op->operands[CUDA_Y]),
	};

	return pool_max(&graph->device->kernels, &arguments);
}

int cuda_execute_max_pool_backward(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_max_backward arguments = {
		.dy = cuda_at(graph, op, CUDA_DY),
		.dy2 = cuda_at(graph, op, CUDA_DY2),
		.index = cuda_at(graph, op, CUDA_INDEX),
		.dx = cuda_at(graph, op, CUDA_DX),
		.shape = pool_shape_of(op, op->operands[CUDA_DX], op->operands[CUDA_DY]),
	};

	return pool_max_backward(&graph->device->kernels, &arguments);
}

int cuda_execute_max_pool_norm_reduce(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_max_norm_reduce arguments = {
		.dy = cuda_at(graph, op, CUDA_DY),
		.dy2 = cuda_at(graph, op, CUDA_DY2),
		.index = cuda_at(graph, op, CUDA_INDEX),
		.x = cuda_at(graph, op, CUDA_X),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.mean = cuda_at(graph, op, CUDA_MEAN),
		.deviation = cuda_at(graph, op, CUDA_DEVIATION),
		.activation = op->norm.activation,
		.sum = cuda_at(graph, op, CUDA_SUM),
		.products = cuda_at(graph, op, CUDA_SQUARES),
		.partial = cuda_workspace(graph, op),
		.shape = pool_shape_of(op, op->operands[CUDA_X], op->operands[CUDA_DY]),
	};

	return pool_max_norm_reduce(&graph->device->kernels, &arguments);
}

int cuda_execute_max_pool_norm_apply(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_max_norm_apply arguments = {
		.dy = cuda_at(graph, op, CUDA_DY),
		.dy2 = cuda_at(graph, op, CUDA_DY2),
		.index = cuda_at(graph, op, CUDA_INDEX),
		.x = cuda_at(graph, op, CUDA_X),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.a = cuda_at(graph, op, CUDA_A),
		.b = cuda_at(graph, op, CUDA_B),
		.c = cuda_at(graph, op, CUDA_C),
		.activation = op->norm.activation,
		.dx = cuda_at(graph, op, CUDA_DX),
		.shape = pool_shape_of(op, op->operands[CUDA_X], op->operands[CUDA_DY]),
	};

	return pool_max_norm_apply(&graph->device->kernels, &arguments);
}

int cuda_execute_average_pool(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_average arguments = {
		.from = cuda_at(graph, op, CUDA_X),
		.to = cuda_at(graph, op, CUDA_Y),
		.shape = pool_shape_of(op, op->operands[CUDA_X], op->operands[CUDA_Y]),
	};

	return pool_average(&graph->device->kernels, &arguments);
}

int cuda_execute_average_pool_backward(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_average arguments = {
		.from = cuda_at(graph, op, CUDA_DY),
		.to = cuda_at(graph, op, CUDA_DX),
		.shape = pool_shape_of(op, op->operands[CUDA_DX], op->operands[CUDA_DY]),
	};

	return pool_average_backward(&graph->device->kernels, &arguments);
}

/* whole: the tensor of all positions; the other one has a value per image. */
static struct pool_global global_of(struct cuda_graph *graph, const struct cuda_op *op,
				    enum cuda_role from, enum cuda_role to, enum cuda_role whole)
{
	const struct cuda_tensor *x = op->operands[whole];

	return (struct pool_global){
		.from = cuda_at(graph, op, from),
		.to = cuda_at(graph, op, to),
		.index = cuda_at(graph, op, CUDA_INDEX),
		.n = x->shape.n,
		.positions = x->shape.h * x->shape.w,
		.channels = x->shape.c,
		.element = x->element,
	};
}

int cuda_execute_global(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_global forward, backward;
	bool maxima = op->kind == CUDA_OP_GLOBAL_MAX || op->kind == CUDA_OP_GLOBAL_MAX_BACKWARD;

	if (op->operands[CUDA_DX]) {
		backward = global_of(graph, op, CUDA_DY, CUDA_DX, CUDA_DX);
		return maxima ? pool_global_max_backward(&graph->device->kernels, &backward)
			      : pool_global_average_backward(&graph->device->kernels, &backward);
	}
	forward = global_of(graph, op, CUDA_X, CUDA_Y, CUDA_X);
	return maxima ? pool_global_max(&graph->device->kernels, &forward)
		      : pool_global_average(&graph->device->kernels, &forward);
}
