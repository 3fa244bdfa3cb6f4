/* Queues scale and add, forward and backward. */
#include "trainer/device/cuda/execute/execute.h"
#include "trainer/device/cuda/kernels/scale_add.h"

static struct scale_add_arguments arguments_of(const struct cuda_graph *graph,
					       const struct cuda_op *op)
{
	struct device_shape shape = op->node->y->shape;

	return (struct scale_add_arguments){
		.step = graph->arguments,
		.x = cuda_at(graph, op, CUDA_X),
		.residual = cuda_at(graph, op, CUDA_RESIDUAL),
		.gate = cuda_at(graph, op, CUDA_GATE),
		.dy = cuda_at(graph, op, CUDA_DY),
		.dy2 = cuda_at(graph, op, CUDA_DY2),
		.y = cuda_at(graph, op, CUDA_Y),
		.dz = cuda_at(graph, op, CUDA_DZ),
		.dx = cuda_at(graph, op, CUDA_DX),
		.dgate = cuda_at(graph, op, CUDA_DGATE),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.dgamma = cuda_at(graph, op, CUDA_DGAMMA),
		.partial = cuda_workspace(graph, op),
		.add_dgamma = cuda_adds(graph, op, CUDA_DGAMMA),
		.layer = op->node->scale.layer,
		.path = draws_drop(op->node->scale.drop_path),
		.dropout = draws_drop(op->node->scale.dropout),
		.n = shape.n,
		.positions = shape.h * shape.w,
		.channels = shape.c,
		.element = graph->program->element,
		.activation = op->norm.activation,
	};
}

int cuda_execute_scale_add(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct scale_add_arguments arguments = arguments_of(graph, op);

	return scale_add_forward(&graph->device->kernels, &arguments);
}

int cuda_execute_scale_add_backward(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct scale_add_arguments arguments = arguments_of(graph, op);

	return scale_add_backward(&graph->device->kernels, &arguments);
}
