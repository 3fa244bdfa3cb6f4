/* Queues norms and activations, forward and backward. */
#include "trainer/device/cuda/execute.h"
#include "trainer/device/cuda/kernels/layer_norm.h"
#include "trainer/device/cuda/kernels/norm.h"

int cuda_execute_statistics(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_statistics arguments = {
		.x = cuda_at(graph, op, CUDA_X),
		.rows = cuda_rows(op->operands[CUDA_X]),
		.channels = cuda_channels(op, CUDA_X),
		.element = op->operands[CUDA_X]->element,
		.sum = cuda_at(graph, op, CUDA_SUM),
		.squares = cuda_at(graph, op, CUDA_SQUARES),
		.partial = cuda_workspace(graph, op),
	};

	return norm_statistics(&graph->device->kernels, &arguments);
}

/* What the sums of a norm are over. */
static uint64_t norm_rows(const struct cuda_graph *graph, const struct cuda_op *op)
{
	return cuda_ranks_sums(graph, op) ? op->norm.rows * device_world(&graph->device->base)
					  : op->norm.rows;
}

int cuda_execute_norm_finalize(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_finalize arguments = {
		.sum = cuda_at(graph, op, CUDA_SUM),
		.squares = cuda_at(graph, op, CUDA_SQUARES),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.beta = cuda_at(graph, op, CUDA_BETA),
		.mean = cuda_at(graph, op, CUDA_MEAN),
		.deviation = cuda_at(graph, op, CUDA_DEVIATION),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.scale16 = cuda_at(graph, op, CUDA_SCALE16),
		.bias16 = cuda_at(graph, op, CUDA_BIAS16),
		.running_mean = cuda_at(graph, op, CUDA_RUNNING_MEAN),
		.running_var = cuda_at(graph, op, CUDA_RUNNING_VAR),
		.rows = norm_rows(graph, op),
		.channels = cuda_channels(op, CUDA_SCALE),
		.element = graph->program->element,
		.epsilon = op->node->norm.epsilon,
		.momentum = op->node->norm.momentum,
	};
	int r = cuda_ranks_sums(graph, op) ? cuda_ranks_sum_norm(graph, op) : 0;

	return r < 0 ? r : norm_finalize(&graph->device->kernels, &arguments);
}

int cuda_execute_norm_running(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_running arguments = {
		.running_mean = cuda_at(graph, op, CUDA_RUNNING_MEAN),
		.running_var = cuda_at(graph, op, CUDA_RUNNING_VAR),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.beta = cuda_at(graph, op, CUDA_BETA),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.scale16 = cuda_at(graph, op, CUDA_SCALE16),
		.bias16 = cuda_at(graph, op, CUDA_BIAS16),
		.channels = cuda_channels(op, CUDA_SCALE),
		.element = graph->program->element,
		.epsilon = op->node->norm.epsilon,
	};

	return norm_running(&graph->device->kernels, &arguments);
}

int cuda_execute_apply(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_apply arguments = {
		.x = cuda_at(graph, op, CUDA_X),
		.residual = cuda_at(graph, op, CUDA_RESIDUAL),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.scale2 = cuda_at(graph, op, CUDA_SCALE2),
		.bias2 = cuda_at(graph, op, CUDA_BIAS2),
		.y = cuda_at(graph, op, CUDA_Y),
		.rows = cuda_rows(op->operands[CUDA_X]),
		.channels = cuda_channels(op, CUDA_X),
		.element = op->operands[CUDA_X]->element,
		.activation = op->norm.activation,
	};

	return norm_apply(&graph->device->kernels, &arguments);
}

/* Of an activation alone, or with a norm's sums. */
int cuda_execute_backward(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_backward arguments = {
		.dy = cuda_at(graph, op, CUDA_DY),
		.dy2 = cuda_at(graph, op, CUDA_DY2),
		.y = cuda_at(graph, op, CUDA_Y),
		.x = cuda_at(graph, op, CUDA_X),
		.residual = cuda_at(graph, op, CUDA_RESIDUAL),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.scale2 = cuda_at(graph, op, CUDA_SCALE2),
		.bias2 = cuda_at(graph, op, CUDA_BIAS2),
		.mean = cuda_at(graph, op, CUDA_MEAN),
		.deviation = cuda_at(graph, op, CUDA_DEVIATION),
		.dz = cuda_at(graph, op, CUDA_DZ),
		.sum = cuda_at(graph, op, CUDA_SUM),
		.products = cuda_at(graph, op, CUDA_SQUARES),
		.partial = cuda_workspace(graph, op),
		.rows = cuda_rows(op->operands[CUDA_DY]),
		.channels = cuda_channels(op, CUDA_DY),
		.element = op->operands[CUDA_DY]->element,
		.activation = op->norm.activation,
	};

	return norm_backward(&graph->device->kernels, &arguments);
}

int cuda_execute_bias_gradient(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_backward arguments = {
		.dy = cuda_at(graph, op, CUDA_DY),
		.sum = cuda_at(graph, op, CUDA_DBIAS),
		.add_sum = cuda_adds(graph, op, CUDA_DBIAS),
		.partial = cuda_workspace(graph, op),
		.rows = cuda_rows(op->operands[CUDA_DY]),
		.channels = cuda_channels(op, CUDA_DY),
		.element = op->operands[CUDA_DY]->element,
		.activation = DEVICE_IDENTITY,
	};

	return norm_backward(&graph->device->kernels, &arguments);
}

/*
 * Of several ranks: gamma and beta get this rank's sums, for their gradients will be added up with
 * all others; the gradient of x takes those of all.
 */
static int finalize_shared(struct cuda_graph *graph, const struct cuda_op *op,
			   const struct norm_backward_finalize *arguments)
{
	struct norm_backward_finalize own = *arguments, all = *arguments;
	int r = 0;

	own.a = own.b = own.c = NULL;
	all.dgamma = all.dbeta = NULL;
	if (own.dgamma || own.dbeta)
		r = norm_backward_finalize(&graph->device->kernels, &own);
	if (r < 0 || !all.a)
		return r;
	r = cuda_ranks_sum_norm(graph, op);
	return r < 0 ? r : norm_backward_finalize(&graph->device->kernels, &all);
}

int cuda_execute_norm_backward_finalize(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_backward_finalize arguments = {
		.sum = cuda_at(graph, op, CUDA_SUM),
		.products = cuda_at(graph, op, CUDA_SQUARES),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.mean = cuda_at(graph, op, CUDA_MEAN),
		.deviation = cuda_at(graph, op, CUDA_DEVIATION),
		.dgamma = cuda_at(graph, op, CUDA_DGAMMA),
		.dbeta = cuda_at(graph, op, CUDA_DBETA),
		.add_dgamma = cuda_adds(graph, op, CUDA_DGAMMA),
		.add_dbeta = cuda_adds(graph, op, CUDA_DBETA),
		.a = cuda_at(graph, op, CUDA_A),
		.b = cuda_at(graph, op, CUDA_B),
		.c = cuda_at(graph, op, CUDA_C),
		.rows = norm_rows(graph, op),
		.channels = cuda_channels(op, CUDA_SUM),
	};

	if (cuda_ranks_sums(graph, op))
		return finalize_shared(graph, op, &arguments);
	return norm_backward_finalize(&graph->device->kernels, &arguments);
}

int cuda_execute_norm_backward_apply(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_backward_apply arguments = {
		.dz = cuda_at(graph, op, CUDA_DZ),
		.x = cuda_at(graph, op, CUDA_X),
		.a = cuda_at(graph, op, CUDA_A),
		.b = cuda_at(graph, op, CUDA_B),
		.c = cuda_at(graph, op, CUDA_C),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.dx = cuda_at(graph, op, CUDA_DX),
		.rows = cuda_rows(op->operands[CUDA_X]),
		.channels = cuda_channels(op, CUDA_X),
		.element = op->operands[CUDA_X]->element,
		.activation = op->norm.activation,
	};

	return norm_backward_apply(&graph->device->kernels, &arguments);
}

int cuda_execute_layer_norm(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct layer_norm arguments = {
		.x = cuda_at(graph, op, CUDA_X),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.beta = cuda_at(graph, op, CUDA_BETA),
		.y = cuda_at(graph, op, CUDA_Y),
		.mean = cuda_at(graph, op, CUDA_MEAN),
		.deviation = cuda_at(graph, op, CUDA_DEVIATION),
		.rows = cuda_rows(op->operands[CUDA_X]),
		.channels = cuda_channels(op, CUDA_X),
		.element = op->operands[CUDA_X]->element,
		.epsilon = op->node->norm.epsilon,
	};

	return layer_norm_forward(&graph->device->kernels, &arguments);
}

int cuda_execute_layer_norm_backward(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct layer_norm_backward arguments = {
		.dy = cuda_at(graph, op, CUDA_DY),
		.x = cuda_at(graph, op, CUDA_X),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.mean = cuda_at(graph, op, CUDA_MEAN),
		.deviation = cuda_at(graph, op, CUDA_DEVIATION),
		.dx = cuda_at(graph, op, CUDA_DX),
		.dgamma = cuda_at(graph, op, CUDA_DGAMMA),
		.dbeta = cuda_at(graph, op, CUDA_DBETA),
		.add_dgamma = cuda_adds(graph, op, CUDA_DGAMMA),
		.add_dbeta = cuda_adds(graph, op, CUDA_DBETA),
		.partial = cuda_workspace(graph, op),
		.rows = cuda_rows(op->operands[CUDA_X]),
		.channels = cuda_channels(op, CUDA_X),
		.element = op->operands[CUDA_X]->element,
	};

	return layer_norm_backward(&graph->device->kernels, &arguments);
}
