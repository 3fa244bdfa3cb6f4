/* Queues norms and activations, forward and backward. */
#include "trainer/device/cuda/execute/execute.h"
#include "trainer/device/cuda/kernels/norm.h"

/* What the sums of a norm are over. */
static uint64_t norm_rows(const struct cuda_graph *graph, const struct cuda_op *op)
{
	return cuda_ranks_sums(graph, op) ? op->norm.rows * device_world(&graph->device->base)
					  : op->norm.rows;
}

static struct norm_arguments execute_norm_arguments(const struct cuda_graph *graph,
						    const struct cuda_op *op)
{
	/* what the kernel goes over: a matrix, or vectors alone */
	const struct cuda_tensor *matrix = op->operands[op->operands[CUDA_DY] ? CUDA_DY : CUDA_X];
	const struct cuda_tensor *vector =
		op->operands[op->operands[CUDA_SUM] ? CUDA_SUM : CUDA_SCALE];
	/* a norm that is fixed reads them, and never moves them */
	bool holds = op->kind == CUDA_OP_NORM_FINALIZE && (graph->variant & CUDA_VARIANT_HOLDS);

	return (struct norm_arguments){
		.x = cuda_at(graph, op, CUDA_X),
		.residual = cuda_at(graph, op, CUDA_RESIDUAL),
		.dy = cuda_at(graph, op, CUDA_DY),
		.dy2 = cuda_at(graph, op, CUDA_DY2),
		.y = cuda_at(graph, op, CUDA_Y),
		.dz = cuda_at(graph, op, CUDA_DZ),
		.dx = cuda_at(graph, op, CUDA_DX),
		.scale = cuda_at(graph, op, CUDA_SCALE),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.scale2 = cuda_at(graph, op, CUDA_SCALE2),
		.bias2 = cuda_at(graph, op, CUDA_BIAS2),
		.scale16 = cuda_at(graph, op, CUDA_SCALE16),
		.bias16 = cuda_at(graph, op, CUDA_BIAS16),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.beta = cuda_at(graph, op, CUDA_BETA),
		.dgamma = cuda_at(graph, op, CUDA_DGAMMA),
		.dbeta = cuda_at(graph, op, CUDA_DBETA),
		.mean = cuda_at(graph, op, CUDA_MEAN),
		.deviation = cuda_at(graph, op, CUDA_DEVIATION),
		.running_mean = holds ? NULL : cuda_at(graph, op, CUDA_RUNNING_MEAN),
		.running_var = holds ? NULL : cuda_at(graph, op, CUDA_RUNNING_VAR),
		.sum = cuda_at(graph, op, CUDA_SUM),
		.products = cuda_at(graph, op, CUDA_SQUARES),
		.a = cuda_at(graph, op, CUDA_A),
		.b = cuda_at(graph, op, CUDA_B),
		.c = cuda_at(graph, op, CUDA_C),
		.partial = cuda_workspace(graph, op),
		.add_dgamma = cuda_adds(graph, op, CUDA_DGAMMA),
		.add_dbeta = cuda_adds(graph, op, CUDA_DBETA),
		.fixed = op->node->norm.fixed,
		.epsilon = op->node->norm.epsilon,
		.momentum = op->node->norm.momentum,
		.rows = matrix ? cuda_rows(matrix) : norm_rows(graph, op),
		.channels = matrix ? matrix->shape.c : vector->shape.c,
		.element = matrix ? matrix->element : graph->program->element,
		.activation = op->norm.activation,
	};
}

/* What is one launch. */
int cuda_execute_norm(struct cuda_graph *graph, const struct cuda_op *op)
{
	static int (*const launchers[CUDA_OP_KINDS])(const struct kernel_device *device,
						     const struct norm_arguments *arguments) = {
		[CUDA_OP_STATISTICS] = norm_statistics,
		[CUDA_OP_APPLY] = norm_apply,
		[CUDA_OP_ACTIVATION_BACKWARD] = norm_backward,
		[CUDA_OP_NORM_REDUCE] = norm_backward,
		[CUDA_OP_NORM_RUNNING] = norm_running,
		[CUDA_OP_NORM_BACKWARD_APPLY] = norm_backward_apply,
		[CUDA_OP_LAYER_NORM] = layer_norm_forward,
		[CUDA_OP_LAYER_NORM_BACKWARD] = layer_norm_backward,
	};
	struct norm_arguments arguments = execute_norm_arguments(graph, op);

	return launchers[op->kind](&graph->device->kernels, &arguments);
}

int cuda_execute_norm_finalize(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_arguments arguments = execute_norm_arguments(graph, op);
	int r = cuda_ranks_sums(graph, op) ? cuda_ranks_sum_norm(graph, op) : 0;

	return r < 0 ? r : norm_finalize(&graph->device->kernels, &arguments);
}

int cuda_execute_bias_gradient(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_arguments arguments = execute_norm_arguments(graph, op);

	arguments.sum = cuda_at(graph, op, CUDA_DBIAS);
	arguments.add_sum = cuda_adds(graph, op, CUDA_DBIAS);
	arguments.activation = DEVICE_IDENTITY;
	return norm_backward(&graph->device->kernels, &arguments);
}

/*
 * Of several ranks: gamma and beta get this rank's sums, for their gradients will be added up with
 * all others; the gradient of x takes those of all.
 */
static int execute_finalize_shared(struct cuda_graph *graph, const struct cuda_op *op,
				   const struct norm_arguments *arguments)
{
	struct norm_arguments own = *arguments, all = *arguments;
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
	struct norm_arguments arguments = execute_norm_arguments(graph, op);

	if (cuda_ranks_sums(graph, op))
		return execute_finalize_shared(graph, op, &arguments);
	return norm_backward_finalize(&graph->device->kernels, &arguments);
}
