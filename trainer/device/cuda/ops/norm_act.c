/*
 * Norm, residual and activation of a convolution or of a separate norm, as in the CPU backend's
 * norm_act.c. At level none each of them is a separate pass. At levels B and C there is one pass
 * forward, and backward one pass that computes sums and one that applies them.
 */
#include "trainer/device/cuda/ops/norm_act.h"

static uint64_t rows_of(const struct device_node *node)
{
	const struct device_shape *y = &node->y->shape;

	return (uint64_t)y->n * y->h * y->w;
}

bool lower_norm_is_whole(const struct device_node *node)
{
	uint32_t each;

	return device_node_groups(node, &each) == 1;
}

struct cuda_op *lower_norm_op(struct lowering *l, enum cuda_op_kind kind,
			      const struct device_node *node, enum device_activation activation)
{
	struct node_state *state = node_state(l, node);
	uint64_t roles = cuda_op_roles(kind);
	const struct device_node *pool = roles & ROLE(INDEX) ? state->pool : NULL;
	struct cuda_op *op = lower_op(l, kind, pool ? pool : node);

	op->norm.rows = rows_of(node);
	op->norm.activation = activation;
	lower_set_operands(l, op, node, roles);
	if (pool) {
		lower_set_operands(l, op, pool, ROLE(INDEX));
		lower_set_dy(l, op, pool->y);
	}
	return op;
}

static void batch_statistics(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);

	if (state->tensors[CUDA_SUM])
		return;
	lower_vector(l, node, CUDA_SUM, "sum");
	lower_vector(l, node, CUDA_PRODUCTS, "squares");
	struct cuda_op *op = lower_norm_op(l, CUDA_OP_STATISTICS, node, DEVICE_IDENTITY);
	op->operands[CUDA_X] = state->raw;
}

/*
 * Appends scale and bias: from batch statistics, or in evaluation and for fixed norms from running
 * statistics.
 */
static void finalize(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	bool batch = l->training && !node->norm.fixed;

	if (batch)
		batch_statistics(l, node);
	lower_vector(l, node, CUDA_SCALE, "scale");
	lower_vector(l, node, CUDA_BIAS, "bias");
	if (l->training && (batch || node->backward)) {
		lower_vector(l, node, CUDA_MEAN, "mean");
		lower_vector(l, node, CUDA_DEVIATION, "deviation");
	}
	state->finalize = l->program->op_count;
	lower_norm_op(l, batch ? CUDA_OP_NORM_FINALIZE : CUDA_OP_NORM_RUNNING, node,
		      DEVICE_IDENTITY);
}

void lower_prologue_vectors(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	struct device_shape shape = {1, 1, 1, node->y->shape.c};

	if (state->tensors[CUDA_PRESCALE] || l->failure)
		return;
	if (l->options->element == CUDA_F32) {
		state->tensors[CUDA_PRESCALE] = state->tensors[CUDA_SCALE];
		state->tensors[CUDA_PREBIAS] = state->tensors[CUDA_BIAS];
		return;
	}
	state->tensors[CUDA_PRESCALE] =
		lower_tensor(l, node, "scale 16", shape, l->options->element);
	state->tensors[CUDA_PREBIAS] = lower_tensor(l, node, "bias 16", shape, l->options->element);
	struct cuda_op *op = &l->program->ops[state->finalize];
	op->operands[CUDA_SCALE16] = state->tensors[CUDA_PRESCALE];
	op->operands[CUDA_BIAS16] = state->tensors[CUDA_PREBIAS];
}

void lower_set_residual(struct lowering *l, struct cuda_op *op, const struct device_node *node)
{
	op->operands[CUDA_RESIDUAL] = lower_value(l, node->residual);
	if (!node->residual || op->operands[CUDA_RESIDUAL])
		return;
	const struct node_state *other = node_state(l, node->residual->producer);
	op->operands[CUDA_RESIDUAL] = other->raw;
	op->operands[CUDA_SCALE2] = other->tensors[CUDA_SCALE];
	op->operands[CUDA_BIAS2] = other->tensors[CUDA_BIAS];
}

void lower_set_affine(struct lowering *l, struct cuda_op *op, const struct device_node *node)
{
	lower_set_operands(l, op, node, AFFINE);
	if (node->bias && node->kind != DEVICE_NODE_LINEAR)
		op->operands[CUDA_BIAS] = lower_param(l, node->bias, DEVICE_VALUE);
}

void lower_apply(struct lowering *l, const struct device_node *node, struct cuda_tensor *y)
{
	struct node_state *state = node_state(l, node);
	struct cuda_op *op = lower_norm_op(l, CUDA_OP_APPLY, node, node->activation);

	op->operands[CUDA_X] = state->raw;
	op->operands[CUDA_Y] = y;
	lower_set_affine(l, op, node);
	lower_set_residual(l, op, node);
}

/*
 * Level none: appends separate operations for scale and bias, residual, and activation. The last of
 * them writes the node's result.
 */
static void apply_in_parts(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	bool affine = node->has_norm || (node->bias && node->kind != DEVICE_NODE_LINEAR);
	bool active = node->activation != DEVICE_IDENTITY;
	struct cuda_tensor *at = state->raw, *y;
	struct cuda_op *op;

	if (affine) {
		y = node->residual || active
			    ? lower_tensor(l, node, "affine", node->y->shape, l->options->element)
			    : lower_result(l, node, l->options->element);
		op = lower_norm_op(l, CUDA_OP_APPLY, node, DEVICE_IDENTITY);
		op->operands[CUDA_X] = at;
		op->operands[CUDA_Y] = y;
		lower_set_affine(l, op, node);
		at = y;
	}
	if (node->residual) {
		y = active ? lower_tensor(l, node, "sum of both", node->y->shape,
					  l->options->element)
			   : lower_result(l, node, l->options->element);
		op = lower_norm_op(l, CUDA_OP_ADD, node, DEVICE_IDENTITY);
		op->operands[CUDA_X] = at;
		op->operands[CUDA_RESIDUAL] = lower_value(l, node->residual);
		op->operands[CUDA_Y] = y;
		at = y;
	}
	state->before = at;
	if (!active)
		return;
	y = lower_result(l, node, l->options->element);
	op = lower_norm_op(l, CUDA_OP_APPLY, node, node->activation);
	op->operands[CUDA_X] = at;
	op->operands[CUDA_Y] = y;
}

void lower_norm_act_forward(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	bool folded = lower_infers(l, node) &&
		      state->tensors[CUDA_BIAS]; /* the scale is in the convolution's weights */

	if (node->has_norm && !folded)
		finalize(l, node);
	if (lower_is_fused_away(l, node)) {
		if (l->keep_all) {
			/* for the host only: fusion must not use this tensor */
			lower_apply(l, node, lower_result(l, node, l->options->element));
			value_state(l, node->y)->y = NULL;
		}
		return;
	}
	if (lower_sums_in_next(l, node))
		return;
	if (l->options->fusion == DEVICE_FUSION_NONE)
		apply_in_parts(l, node);
	else
		lower_apply(l, node, lower_result(l, node, l->options->element));
}

/* ---- a norm without a convolution ---- */

static void lower_norm_forward(struct lowering *l, const struct device_node *node)
{
	node_state(l, node)->raw = lower_value(l, node->x);
	lower_norm_act_forward(l, node);
}

static void lower_norm_backward(struct lowering *l, const struct device_node *node)
{
	lower_contribute_dx(l, node, lower_norm_act_backward(l, node));
}

const struct node_lowering lower_norm = {lower_norm_forward, lower_norm_backward};

/* ---- execution ---- */

/* Number of rows in a norm's sums. */
static uint64_t norm_rows(const struct cuda_exec *exec, const struct cuda_op *op)
{
	return cuda_ranks_sums(exec, op) ? op->norm.rows * device_world(&exec->device->base)
					 : op->norm.rows;
}

struct norm_part cuda_norm_part(const struct cuda_op *op, uint32_t group)
{
	const struct device_shape *y = &op->node->y->shape;
	uint32_t each, groups = device_node_groups(op->node, &each), first = group * each;
	uint32_t samples = y->n - first < each ? y->n - first : each;
	uint64_t rows = (uint64_t)y->h * y->w;

	return (struct norm_part){group, groups, first * rows, samples * rows};
}

/* Address of the group's first row in a matrix. */
static void *norm_matrix(const struct cuda_exec *exec, const struct cuda_op *op,
			 enum cuda_role role, const struct norm_part *part)
{
	const struct cuda_tensor *tensor = op->operands[role];

	return tensor ? (char *)cuda_at(exec, op, role) +
				part->row * tensor->shape.c * cuda_element_size(tensor->element)
		      : NULL;
}

/* Returns the group's part of a vector, or the vector if it is shared by all groups. */
static float *norm_vector(const struct cuda_exec *exec, const struct cuda_op *op,
			  enum cuda_role role, const struct norm_part *part)
{
	const struct cuda_tensor *tensor = op->operands[role];
	size_t group = tensor && tensor->shape.w > 1 ? part->group : 0;

	return tensor ? (float *)cuda_at(exec, op, role) + group * tensor->shape.c : NULL;
}

struct norm_arguments cuda_norm_arguments(const struct cuda_exec *exec, const struct cuda_op *op,
					  const struct norm_part *part)
{
	/* the operand that the kernel iterates over: a matrix, or only vectors */
	const struct cuda_tensor *matrix = op->operands[op->operands[CUDA_DY] ? CUDA_DY : CUDA_X];
	const struct cuda_tensor *vector =
		op->operands[op->operands[CUDA_SUM] ? CUDA_SUM : CUDA_SCALE];
	/* only NORM_FINALIZE updates running statistics; fixed norms do not have one */
	bool holds = op->kind == CUDA_OP_NORM_FINALIZE && (exec->variant & CUDA_VARIANT_HOLDS);

	return (struct norm_arguments){
		.x = norm_matrix(exec, op, CUDA_X, part),
		.residual = norm_matrix(exec, op, CUDA_RESIDUAL, part),
		.dy = norm_matrix(exec, op, CUDA_DY, part),
		.dy2 = norm_matrix(exec, op, CUDA_DY2, part),
		.y = norm_matrix(exec, op, CUDA_Y, part),
		.dz = norm_matrix(exec, op, CUDA_DZ, part),
		.dx = norm_matrix(exec, op, CUDA_DX, part),
		.scale = norm_vector(exec, op, CUDA_SCALE, part),
		.bias = norm_vector(exec, op, CUDA_BIAS, part),
		.scale2 = norm_vector(exec, op, CUDA_SCALE2, part),
		.bias2 = norm_vector(exec, op, CUDA_BIAS2, part),
		.scale16 = cuda_at(exec, op, CUDA_SCALE16),
		.bias16 = cuda_at(exec, op, CUDA_BIAS16),
		.gamma = cuda_at(exec, op, CUDA_GAMMA),
		.beta = cuda_at(exec, op, CUDA_BETA),
		.dgamma = cuda_at(exec, op, CUDA_DGAMMA),
		.dbeta = cuda_at(exec, op, CUDA_DBETA),
		.mean = norm_vector(exec, op, CUDA_MEAN, part),
		.deviation = norm_vector(exec, op, CUDA_DEVIATION, part),
		.running_mean = holds ? NULL : cuda_at(exec, op, CUDA_RUNNING_MEAN),
		.running_var = holds ? NULL : cuda_at(exec, op, CUDA_RUNNING_VAR),
		.sum = norm_vector(exec, op, CUDA_SUM, part),
		.products = norm_vector(exec, op, CUDA_PRODUCTS, part),
		.a = norm_vector(exec, op, CUDA_A, part),
		.b = norm_vector(exec, op, CUDA_B, part),
		.c = norm_vector(exec, op, CUDA_C, part),
		.partial = cuda_workspace(exec, op),
		.add_dgamma = part->group || cuda_adds(exec, op, CUDA_DGAMMA),
		.add_dbeta = part->group || cuda_adds(exec, op, CUDA_DBETA),
		.fixed = op->node->norm.fixed,
		.epsilon = op->node->norm.epsilon,
		.momentum = op->node->norm.momentum / (float)part->groups,
		.rows = part->groups > 1 ? part->rows
			: matrix         ? cuda_rows(matrix)
					 : norm_rows(exec, op),
		.channels = matrix ? matrix->shape.c : vector->shape.c,
		.element = matrix ? matrix->element : exec->program->element,
		.activation = op->norm.activation,
	};
}

/* Executes an operation that is a single launch. */
static int execute_launch(struct cuda_exec *exec, const struct cuda_op *op,
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
	};
	struct norm_arguments arguments = cuda_norm_arguments(exec, op, part);

	return launchers[op->kind](&exec->device->kernels, &arguments);
}

int cuda_execute_parts(struct cuda_exec *exec, const struct cuda_op *op,
		       int (*execute)(struct cuda_exec *exec, const struct cuda_op *op,
				      const struct norm_part *part))
{
	struct norm_part part = cuda_norm_part(op, 0);
	int r = execute(exec, op, &part);

	for (uint32_t group = 1; group < part.groups && r == 0; group++) {
		part = cuda_norm_part(op, group);
		r = execute(exec, op, &part);
	}
	return r;
}

int cuda_execute_norm(struct cuda_exec *exec, const struct cuda_op *op)
{
	return cuda_execute_parts(exec, op, execute_launch);
}

/* X E -> SUM, PRODUCTS over n h w */
const struct cuda_op_def cuda_statistics_op = {"statistics", ROLE(X), SUMS,
					       .execute = cuda_execute_norm,
					       .workspace = cuda_sums_workspace};

static int execute_finalize(struct cuda_exec *exec, const struct cuda_op *op,
			    const struct norm_part *part)
{
	struct norm_arguments arguments = cuda_norm_arguments(exec, op, part);
	int r = cuda_ranks_sums(exec, op) ? cuda_ranks_sum_norm(exec, op) : 0;

	return r < 0 ? r : norm_finalize(&exec->device->kernels, &arguments);
}

static int execute_norm_finalize(struct cuda_exec *exec, const struct cuda_op *op)
{
	return cuda_execute_parts(exec, op, execute_finalize);
}

/*
 * SUM, PRODUCTS, GAMMA, BETA -> MEAN, DEVIATION (1 / sqrt(biased variance + epsilon)), SCALE =
 * GAMMA DEVIATION, BIAS = BETA - MEAN SCALE [, SCALE16, BIAS16: the same in E]. Updates
 * RUNNING_MEAN and RUNNING_VAR with the node's momentum (unbiased variance).
 */
const struct cuda_op_def cuda_norm_finalize_op = {
	.name = "norm finalize",
	.reads = SUMS | ROLE(GAMMA) | ROLE(BETA),
	.writes = BATCH | AFFINE | RUNNING,
	.may_write = ROLE(SCALE16) | ROLE(BIAS16),
	.moves = RUNNING,
	.minor = true,
	.across_ranks = true,
	.execute = execute_norm_finalize,
};

/*
 * For evaluation, and for fixed norms: RUNNING_MEAN, RUNNING_VAR, GAMMA, BETA -> SCALE, BIAS [,
 * SCALE16, BIAS16] [, MEAN, DEVIATION for the backward pass]
 */
const struct cuda_op_def cuda_norm_running_op = {
	.name = "norm running",
	.reads = RUNNING | ROLE(GAMMA) | ROLE(BETA),
	.writes = AFFINE,
	.may_write = ROLE(SCALE16) | ROLE(BIAS16) | BATCH,
	.minor = true,
	.constant = true,
	.execute = cuda_execute_norm,
};

/*
 * Y = act(SCALE X + BIAS [+ RESIDUAL | + SCALE2 RESIDUAL + BIAS2]). Without SCALE: act(X [+ BIAS]
 * [+ RESIDUAL]); without any of these, a copy.
 */
const struct cuda_op_def cuda_apply_op = {"apply", ROLE(X), ROLE(Y), .elementwise = true,
					  .execute = cuda_execute_norm};
