/* Queues norms and activations, forward and backward. */
#include "trainer/device/cuda/execute/execute.h"
#include "trainer/device/cuda/kernels/norm.h"

/* Number of rows in a norm's sums. */
static uint64_t norm_rows(const struct cuda_graph *graph, const struct cuda_op *op)
{
	return cuda_ranks_sums(graph, op) ? op->norm.rows * device_world(&graph->device->base)
					  : op->norm.rows;
}

/* Rows that share statistics: all, or those of a sample group. */
struct norm_part {
	uint32_t group, groups;
	uint64_t row, rows;
};

static struct norm_part norm_part_of(const struct cuda_op *op, uint32_t group)
{
	const struct device_shape *y = &op->node->y->shape;
	uint32_t each, groups = device_node_groups(op->node, &each), first = group * each;
	uint32_t samples = y->n - first < each ? y->n - first : each;
	uint64_t rows = (uint64_t)y->h * y->w;

	return (struct norm_part){group, groups, first * rows, samples * rows};
}

/* Address of the group's first row in a matrix. */
static void *norm_matrix(const struct cuda_graph *graph, const struct cuda_op *op,
			 enum cuda_role role, const struct norm_part *part)
{
	const struct cuda_tensor *tensor = op->operands[role];

	return tensor ? (char *)cuda_at(graph, op, role) +
				part->row * tensor->shape.c * cuda_element_size(tensor->element)
		      : NULL;
}

/* The group's part of a vector, if groups have separate ones. */
static float *norm_vector(const struct cuda_graph *graph, const struct cuda_op *op,
			  enum cuda_role role, const struct norm_part *part)
{
	const struct cuda_tensor *tensor = op->operands[role];
	size_t group = tensor && tensor->shape.w > 1 ? part->group : 0;

	return tensor ? (float *)cuda_at(graph, op, role) + group * tensor->shape.c : NULL;
}

static struct norm_arguments execute_norm_arguments(const struct cuda_graph *graph,
						    const struct cuda_op *op,
						    const struct norm_part *part)
{
	/* operand that the kernel iterates over: a matrix, or only vectors */
	const struct cuda_tensor *matrix = op->operands[op->operands[CUDA_DY] ? CUDA_DY : CUDA_X];
	const struct cuda_tensor *vector =
		op->operands[op->operands[CUDA_SUM] ? CUDA_SUM : CUDA_SCALE];
	/* a fixed norm reads running statistics and never moves them */
	bool holds = op->kind == CUDA_OP_NORM_FINALIZE && (graph->variant & CUDA_VARIANT_HOLDS);

	return (struct norm_arguments){
		.x = norm_matrix(graph, op, CUDA_X, part),
		.residual = norm_matrix(graph, op, CUDA_RESIDUAL, part),
		.dy = norm_matrix(graph, op, CUDA_DY, part),
		.dy2 = norm_matrix(graph, op, CUDA_DY2, part),
		.y = norm_matrix(graph, op, CUDA_Y, part),
		.dz = norm_matrix(graph, op, CUDA_DZ, part),
		.dx = norm_matrix(graph, op, CUDA_DX, part),
		.scale = norm_vector(graph, op, CUDA_SCALE, part),
		.bias = norm_vector(graph, op, CUDA_BIAS, part),
		.scale2 = norm_vector(graph, op, CUDA_SCALE2, part),
		.bias2 = norm_vector(graph, op, CUDA_BIAS2, part),
		.scale16 = cuda_at(graph, op, CUDA_SCALE16),
		.bias16 = cuda_at(graph, op, CUDA_BIAS16),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.beta = cuda_at(graph, op, CUDA_BETA),
		.dgamma = cuda_at(graph, op, CUDA_DGAMMA),
		.dbeta = cuda_at(graph, op, CUDA_DBETA),
		.mean = norm_vector(graph, op, CUDA_MEAN, part),
		.deviation = norm_vector(graph, op, CUDA_DEVIATION, part),
		.running_mean = holds ? NULL : cuda_at(graph, op, CUDA_RUNNING_MEAN),
		.running_var = holds ? NULL : cuda_at(graph, op, CUDA_RUNNING_VAR),
		.sum = norm_vector(graph, op, CUDA_SUM, part),
		.products = norm_vector(graph, op, CUDA_SQUARES, part),
		.a = norm_vector(graph, op, CUDA_A, part),
		.b = norm_vector(graph, op, CUDA_B, part),
		.c = norm_vector(graph, op, CUDA_C, part),
		.partial = cuda_workspace(graph, op),
		.add_dgamma = part->group || cuda_adds(graph, op, CUDA_DGAMMA),
		.add_dbeta = part->group || cuda_adds(graph, op, CUDA_DBETA),
		.fixed = op->node->norm.fixed,
		.epsilon = op->node->norm.epsilon,
		.momentum = op->node->norm.momentum / (float)part->groups,
		.rows = part->groups > 1 ? part->rows
			: matrix         ? cuda_rows(matrix)
					 : norm_rows(graph, op),
		.channels = matrix ? matrix->shape.c : vector->shape.c,
		.element = matrix ? matrix->element : graph->program->element,
		.activation = op->norm.activation,
	};
}

/* A single launch. */
static int execute_launch(struct cuda_graph *graph, const struct cuda_op *op,
			  const struct norm_part *part)
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
	struct norm_arguments arguments = execute_norm_arguments(graph, op, part);

	return launchers[op->kind](&graph->device->kernels, &arguments);
}

/* Group by group, since running statistics and gradients build on previous groups. */
static int execute_parts(struct cuda_graph *graph, const struct cuda_op *op,
			 int (*execute)(struct cuda_graph *graph, const struct cuda_op *op,
					const struct norm_part *part))
{
	struct norm_part part = norm_part_of(op, 0);
	int r = execute(graph, op, &part);

	for (uint32_t group = 1; group < part.groups && r == 0; group++) {
		part = norm_part_of(op, group);
		r = execute(graph, op, &part);
	}
	return r;
}

int cuda_execute_norm(struct cuda_graph *graph, const struct cuda_op *op)
{
	return execute_parts(graph, op, execute_launch);
}

static int execute_finalize(struct cuda_graph *graph, const struct cuda_op *op,
			    const struct norm_part *part)
{
	struct norm_arguments arguments = execute_norm_arguments(graph, op, part);
	int r = cuda_ranks_sums(graph, op) ? cuda_ranks_sum_norm(graph, op) : 0;

	return r < 0 ? r : norm_finalize(&graph->device->kernels, &arguments);
}

int cuda_execute_norm_finalize(struct cuda_graph *graph, const struct cuda_op *op)
{
	return execute_parts(graph, op, execute_finalize);
}

int cuda_execute_bias_gradient(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_part all = norm_part_of(op, 0);
	struct norm_arguments arguments = execute_norm_arguments(graph, op, &all);

	arguments.sum = cuda_at(graph, op, CUDA_DBIAS);
	arguments.add_sum = cuda_adds(graph, op, CUDA_DBIAS);
	arguments.activation = DEVICE_IDENTITY;
	return norm_backward(&graph->device->kernels, &arguments);
}

/*
 * Several ranks: gamma and beta get this rank's sums, since their gradients are summed later with
 * all others; the gradient of x uses the sums over all ranks.
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

static int execute_backward_finalize(struct cuda_graph *graph, const struct cuda_op *op,
				     const struct norm_part *part)
{
	struct norm_arguments arguments = execute_norm_arguments(graph, op, part);

	if (cuda_ranks_sums(graph, op))
		return execute_finalize_shared(graph, op, &arguments);
	return norm_backward_finalize(&graph->device->kernels, &arguments);
}

int cuda_execute_norm_backward_finalize(struct cuda_graph *graph, const struct cuda_op *op)
{
	return execute_parts(graph, op, execute_backward_finalize);
}
