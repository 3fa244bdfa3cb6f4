/*
 * Backward pass of norm_act.c: one pass for the sums of dz, the gradient before the activation, and
 * one that applies them.
 */
#include "trainer/device/cuda/ops/norm_act.h"

bool lower_norm_differentiates(const struct device_node *node)
{
	return node->has_norm &&
	       (device_param_trains(node->gamma) || device_param_trains(node->beta) ||
		device_param_trains(node->weight) || node->x->active);
}

/* True if the input of the norm, or of bias and activation, needs a gradient. */
static bool needs_gradient(const struct device_node *node)
{
	return device_param_trains(node->weight) || node->x->active;
}

/*
 * Sets the operand that the derivative of the activation depends on: the result if it exists and
 * suffices, else the operands from which z is recomputed.
 */
static void set_activation_input(struct lowering *l, struct cuda_op *op,
				 const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	struct cuda_tensor *y = lower_value(l, node->y);
	bool from_raw = node->has_norm && !node->residual;

	if (node->activation == DEVICE_RELU && y &&
	    (!from_raw || l->options->fusion == DEVICE_FUSION_NONE)) {
		op->operands[CUDA_Y] = y;
		return;
	}
	if (state->before) {
		op->operands[CUDA_X] = state->before;
		return;
	}
	op->operands[CUDA_X] = state->raw;
	lower_set_affine(l, op, node);
	lower_set_residual(l, op, node);
}

/* Returns the gradient before the activation as a tensor. */
static struct cuda_tensor *activation_backward(struct lowering *l, const struct device_node *node)
{
	if (node->activation == DEVICE_IDENTITY)
		return lower_summed_gradient(l, node->y);
	struct cuda_tensor *dz = lower_tensor(l, node, "gradient before activation", node->y->shape,
					      l->options->element);
	struct cuda_op *op = lower_norm_op(l, CUDA_OP_ACTIVATION_BACKWARD, node, node->activation);
	lower_set_dy(l, op, node->y);
	set_activation_input(l, op, node);
	op->operands[CUDA_DZ] = dz;
	return dz;
}

/*
 * Appends the sums of dz. Also stores dz if an operation other than NORM_BACKWARD_APPLY reads it.
 */
static void reduce(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	const struct value_state *y = value_state(l, node->y);
	bool none = l->options->fusion == DEVICE_FUSION_NONE;
	bool identity = node->activation == DEVICE_IDENTITY || none;
	struct cuda_tensor *dy = none ? activation_backward(l, node) : y->gradients[0];

	bool stores = y->gradient_count == 2 || (!identity && node->residual);
	lower_vector(l, node, CUDA_SUM, "dz sum");
	lower_vector(l, node, CUDA_PRODUCTS, "dz xhat sum");
	state->recomputes_dz = !identity && !stores;
	state->dz = stores ? lower_tensor(l, node, "gradient before activation", node->y->shape,
					  l->options->element)
			   : dy;
	struct cuda_op *op = lower_norm_op(l, CUDA_OP_NORM_REDUCE, node,
					   identity ? DEVICE_IDENTITY : node->activation);
	op->operands[CUDA_DY] = dy;
	if (y->gradient_count == 2)
		op->operands[CUDA_DY2] = y->gradients[1];
	if (!identity)
		set_activation_input(l, op, node);
	op->operands[CUDA_X] = state->raw;
	op->operands[CUDA_DZ] = stores ? state->dz : NULL;
}

static void reduce_through_pool(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);

	lower_vector(l, node, CUDA_SUM, "dz sum");
	lower_vector(l, node, CUDA_PRODUCTS, "dz xhat sum");
	struct cuda_op *op = lower_norm_op(l, CUDA_OP_MAX_POOL_NORM_REDUCE, node, node->activation);
	op->operands[CUDA_X] = state->raw;
}

static void finalize_backward(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);

	state->tensors[CUDA_A] = state->tensors[CUDA_B] = state->tensors[CUDA_C] = NULL;
	if (needs_gradient(node)) {
		lower_vector(l, node, CUDA_A, "a");
		lower_vector(l, node, CUDA_B, "b");
		lower_vector(l, node, CUDA_C, "c");
	}
	struct cuda_op *op =
		lower_norm_op(l, CUDA_OP_NORM_BACKWARD_FINALIZE, node, DEVICE_IDENTITY);
	if (device_param_trains(node->gamma))
		lower_set_param_gradient(l, op, CUDA_DGAMMA, node->gamma);
	if (device_param_trains(node->beta))
		lower_set_param_gradient(l, op, CUDA_DBETA, node->beta);
}

static struct cuda_tensor *apply_backward(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	struct cuda_tensor *dx =
		lower_tensor(l, node, "raw gradient", node->y->shape, l->options->element);
	struct cuda_op *op = lower_norm_op(
		l, state->pool ? CUDA_OP_MAX_POOL_NORM_APPLY : CUDA_OP_NORM_BACKWARD_APPLY, node,
		node->activation);

	if (!state->pool)
		op->operands[CUDA_DZ] = state->dz;
	if (state->recomputes_dz)
		lower_set_operands(l, op, node, AFFINE);
	op->operands[CUDA_X] = state->raw;
	op->operands[CUDA_DX] = dx;
	return dx;
}

static struct cuda_tensor *differentiate_norm(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);

	if (state->pool)
		reduce_through_pool(l, node);
	else if (!state->dz)
		reduce(l, node);
	if (node->residual && node->residual->active)
		lower_contribute(l, node->residual, state->dz);
	finalize_backward(l, node);
	return needs_gradient(node) ? apply_backward(l, node) : NULL;
}

static void bias_gradient(struct lowering *l, const struct device_node *node,
			  struct cuda_tensor *dz)
{
	if (!device_param_trains(node->bias))
		return;
	struct cuda_op *op = lower_norm_op(l, CUDA_OP_BIAS_GRADIENT, node, DEVICE_IDENTITY);
	op->operands[CUDA_DY] = dz;
	lower_set_param_gradient(l, op, CUDA_DBIAS, node->bias);
}

struct cuda_tensor *lower_norm_act_backward(struct lowering *l, const struct device_node *node)
{
	if (lower_norm_differentiates(node))
		return differentiate_norm(l, node);
	struct cuda_tensor *dz = activation_backward(l, node);
	if (node->residual && node->residual->active)
		lower_contribute(l, node->residual, dz);
	bias_gradient(l, node, dz);
	return needs_gradient(node) ? dz : NULL;
}

/* ---- execution ---- */

/*
 * DZ = (DY [+ DY2]) act'(z). z > 0 is taken from Y; without Y, z is recomputed as in APPLY from X,
 * SCALE, BIAS [, RESIDUAL ...].
 */
const struct cuda_op_def cuda_activation_backward_op = {"activation backward", ROLE(DY), ROLE(DZ),
							.elementwise = true,
							.execute = cuda_execute_norm};

/*
 * As ACTIVATION_BACKWARD, plus SUM = sum DZ and PRODUCTS = sum DZ (X - MEAN) DEVIATION. DZ is
 * absent if NORM_BACKWARD_APPLY recomputes it.
 */
const struct cuda_op_def cuda_norm_reduce_op = {
	.name = "norm reduce",
	.reads = ROLE(DY) | ROLE(X) | BATCH,
	.writes = SUMS,
	.may_write = ROLE(DZ),
	.elementwise = true,
	.execute = cuda_execute_norm,
	.workspace = cuda_sums_workspace,
};

/*
 * With several ranks, the gradients of gamma and beta come from the sums of this rank, because they
 * are all-reduced later with all other gradients. The gradient of x comes from sums over all ranks.
 */
static int execute_finalize_shared(struct cuda_exec *exec, const struct cuda_op *op,
				   const struct norm_arguments *arguments)
{
	struct norm_arguments own = *arguments, all = *arguments;
	int r = 0;

	own.a = own.b = own.c = NULL;
	all.dgamma = all.dbeta = NULL;
	if (own.dgamma || own.dbeta)
		r = norm_backward_finalize(&exec->device->kernels, &own);
	if (r < 0 || !all.a)
		return r;
	r = cuda_ranks_sum_norm(exec, op);
	return r < 0 ? r : norm_backward_finalize(&exec->device->kernels, &all);
}

static int execute_backward_finalize(struct cuda_exec *exec, const struct cuda_op *op,
				     const struct norm_part *part)
{
	struct norm_arguments arguments = cuda_norm_arguments(exec, op, part);

	if (cuda_ranks_sums(exec, op))
		return execute_finalize_shared(exec, op, &arguments);
	return norm_backward_finalize(&exec->device->kernels, &arguments);
}

static int execute_norm_backward_finalize(struct cuda_exec *exec, const struct cuda_op *op)
{
	return cuda_execute_parts(exec, op, execute_backward_finalize);
}

/*
 * SUM (sum dz), PRODUCTS (sum dz xhat), GAMMA, MEAN, DEVIATION -> gradients of GAMMA and BETA
 * (DGAMMA, DBETA, each absent if frozen) [, A, B, C as in conv.h's CONV_RELU_NORM; B and C are 0
 * for a fixed norm]. Also follows CONV_RELU_NORM, which cannot add its sums to a gradient itself.
 */
const struct cuda_op_def cuda_norm_backward_finalize_op = {
	.name = "norm backward finalize",
	.reads = SUMS | ROLE(GAMMA) | BATCH,
	.may_write = ROLE(DGAMMA) | ROLE(DBETA) | ABC,
	.minor = true,
	.across_ranks = true,
	.execute = execute_norm_backward_finalize,
};

/* DX = A dz + B X + C, where dz is DZ, or DZ act'(SCALE X + BIAS) if SCALE and BIAS are given */
const struct cuda_op_def cuda_norm_backward_apply_op = {
	"norm backward apply", ROLE(DZ) | ROLE(X) | ABC, ROLE(DX), .elementwise = true,
	.execute = cuda_execute_norm};

static int execute_bias_gradient(struct cuda_exec *exec, const struct cuda_op *op)
{
	struct norm_part all = cuda_norm_part(op, 0);
	struct norm_arguments arguments = cuda_norm_arguments(exec, op, &all);

	arguments.sum = cuda_at(exec, op, CUDA_DBIAS);
	arguments.add_sum = cuda_adds(exec, op, CUDA_DBIAS);
	arguments.activation = DEVICE_IDENTITY;
	return norm_backward(&exec->device->kernels, &arguments);
}

/* DY [rows][K] -> DBIAS, accumulated or stored */
const struct cuda_op_def cuda_bias_gradient_op = {
	.name = "bias gradient",
	.reads = ROLE(DY),
	.writes = ROLE(DBIAS),
	.minor = true,
	.execute = execute_bias_gradient,
	.workspace = cuda_sums_workspace,
};
