/*
 * The part after a convolution, or a separate norm: norm, residual, activation, as in the CPU
 * backend's post.c. Level none runs each separately; B and C use one pass forward, and backward one
 * pass for sums and one to apply them.
 */
#include "trainer/device/cuda/lowering/lower.h"

/* ---- forward ---- */

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

/*
 * Appends an operation with all tensors that the node has for it. An operation that includes the
 * max pool after the norm belongs to the pool's node and takes its gradient.
 */
static struct cuda_op *norm_op(struct lowering *l, enum cuda_op_kind kind,
			       const struct lower_node *n, enum device_activation activation)
{
	uint64_t roles = cuda_op_roles(kind);
	const struct lower_node *pool = roles & CUDA_BIT(CUDA_INDEX) ? n->pool : NULL;
	struct cuda_op *op = lower_op(l, kind, pool ? pool->node : n->node);

	op->norm.rows = rows_of(n->node);
	op->norm.activation = activation;
	lower_take(l, op, n, roles);
	if (pool) {
		lower_take(l, op, pool, CUDA_BIT(CUDA_INDEX));
		lower_set_gradients(l, op, pool->node->y);
	}
	return op;
}

static void batch_statistics(struct lowering *l, struct lower_node *n)
{
	struct cuda_op *op;

	if (n->has[CUDA_SUM])
		return;
	lower_vector(l, n, CUDA_SUM, "sum");
	lower_vector(l, n, CUDA_SQUARES, "squares");
	op = norm_op(l, CUDA_OP_STATISTICS, n, DEVICE_IDENTITY);
	op->operands[CUDA_X] = n->raw;
}

/* Scale and bias from the batch, or from running statistics in evaluation and for fixed norms. */
static void finalize(struct lowering *l, struct lower_node *n)
{
	bool batch = l->training && !n->node->norm.fixed;

	if (batch)
		batch_statistics(l, n);
	lower_vector(l, n, CUDA_SCALE, "scale");
	lower_vector(l, n, CUDA_BIAS, "bias");
	if (l->training && (batch || n->node->backward)) {
		lower_vector(l, n, CUDA_MEAN, "mean");
		lower_vector(l, n, CUDA_DEVIATION, "deviation");
	}
	n->finalize = l->program->op_count;
	norm_op(l, batch ? CUDA_OP_NORM_FINALIZE : CUDA_OP_NORM_RUNNING, n, DEVICE_IDENTITY);
}

void lower_prologue_vectors(struct lowering *l, struct lower_node *n)
{
	struct device_shape shape = {1, 1, 1, n->node->y->shape.c};
	struct cuda_op *op;

	if (n->has[CUDA_PRESCALE] || l->failure)
		return;
	if (l->options->element == CUDA_F32) {
		n->has[CUDA_PRESCALE] = n->has[CUDA_SCALE];
		n->has[CUDA_PREBIAS] = n->has[CUDA_BIAS];
		return;
	}
	n->has[CUDA_PRESCALE] = lower_tensor(l, n->node, "scale 16", shape, l->options->element);
	n->has[CUDA_PREBIAS] = lower_tensor(l, n->node, "bias 16", shape, l->options->element);
	op = &l->program->ops[n->finalize];
	op->operands[CUDA_SCALE16] = n->has[CUDA_PRESCALE];
	op->operands[CUDA_BIAS16] = n->has[CUDA_PREBIAS];
}

/*
 * The residual of APPLY, or of an operation that recomputes z: a tensor, or another norm's raw with
 * its scale and bias.
 */
static void set_residual(struct lowering *l, struct cuda_op *op, const struct device_node *node)
{
	const struct lower_value *residual = lower_value(l, node->residual);
	struct lower_node *producer;

	if (!residual)
		return;
	op->operands[CUDA_RESIDUAL] = residual->y;
	if (residual->y)
		return;
	producer = lower_node(l, node->residual->producer);
	op->operands[CUDA_RESIDUAL] = producer->raw;
	op->operands[CUDA_SCALE2] = producer->has[CUDA_SCALE];
	op->operands[CUDA_BIAS2] = producer->has[CUDA_BIAS];
}

/*
 * Scale and bias of raw: the norm's, or the convolution's bias. Linear layers have already added
 * theirs.
 */
static void set_affine(struct lowering *l, struct cuda_op *op, struct lower_node *n)
{
	const struct device_node *node = n->node;

	lower_take(l, op, n, CUDA_BIT(CUDA_SCALE) | CUDA_BIT(CUDA_BIAS));
	if (node->bias && node->kind != DEVICE_NODE_LINEAR)
		op->operands[CUDA_BIAS] = lower_param(l, node->bias, DEVICE_VALUE);
}

void lower_apply(struct lowering *l, struct lower_node *n, struct cuda_tensor *y)
{
	struct cuda_op *op = norm_op(l, CUDA_OP_APPLY, n, n->node->activation);

	op->operands[CUDA_X] = n->raw;
	op->operands[CUDA_Y] = y;
	set_affine(l, op, n);
	set_residual(l, op, n->node);
}

/*
 * Level none: separate operations for scale and bias, residual, and activation; the last writes the
 * result.
 */
static void apply_in_parts(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	bool affine = node->has_norm || (node->bias && node->kind != DEVICE_NODE_LINEAR);
	bool active = node->activation != DEVICE_IDENTITY;
	struct cuda_tensor *at = n->raw, *y;
	struct cuda_op *op;

	if (affine) {
		y = node->residual || active
			    ? lower_tensor(l, node, "affine", node->y->shape, l->options->element)
			    : lower_result(l, node, l->options->element);
		op = norm_op(l, CUDA_OP_APPLY, n, DEVICE_IDENTITY);
		op->operands[CUDA_X] = at;
		op->operands[CUDA_Y] = y;
		set_affine(l, op, n);
		at = y;
	}
	if (node->residual) {
		y = active ? lower_tensor(l, node, "sum of both", node->y->shape,
					  l->options->element)
			   : lower_result(l, node, l->options->element);
		op = norm_op(l, CUDA_OP_ADD, n, DEVICE_IDENTITY);
		op->operands[CUDA_X] = at;
		op->operands[CUDA_RESIDUAL] = lower_value(l, node->residual)->y;
		op->operands[CUDA_Y] = y;
		at = y;
	}
	n->before = at;
	if (!active)
		return;
	y = lower_result(l, node, l->options->element);
	op = norm_op(l, CUDA_OP_APPLY, n, node->activation);
	op->operands[CUDA_X] = at;
	op->operands[CUDA_Y] = y;
}

void lower_post_forward(struct lowering *l, struct lower_node *n)
{
	bool folded = lower_infers(l, n->node) &&
		      n->has[CUDA_BIAS]; /* the scale is in the convolution's weights */

	if (n->node->has_norm && !folded)
		finalize(l, n);
	if (lower_stays_virtual(l, n)) {
		if (l->keep_all) {
			/* only for reading the value: fusion must not use it */
			lower_apply(l, n, lower_result(l, n->node, l->options->element));
			lower_value(l, n->node->y)->y = NULL;
		}
		return;
	}
	if (lower_sums_in_next(l, n))
		return;
	if (l->options->fusion == DEVICE_FUSION_NONE)
		apply_in_parts(l, n);
	else
		lower_apply(l, n, lower_result(l, n->node, l->options->element));
}

/* ---- backward ---- */

bool lower_norm_differentiates(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;

	return node->has_norm && (lower_trains(node->gamma) || lower_trains(node->beta) ||
				  lower_trains(node->weight) || node->x->active);
}

/* True if the input of the norm, or of bias and activation, needs a gradient. */
static bool goes_on(struct lowering *l, struct lower_node *n)
{
	return lower_trains(n->node->weight) || n->node->x->active;
}

/* Input for the activation's slope: the result if it suffices and exists, else recomputes z. */
static void set_slope(struct lowering *l, struct cuda_op *op, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct cuda_tensor *y = lower_value(l, node->y)->y;
	bool from_raw = node->has_norm && !node->residual;

	if (node->activation == DEVICE_RELU && y &&
	    (!from_raw || l->options->fusion == DEVICE_FUSION_NONE)) {
		op->operands[CUDA_Y] = y;
		return;
	}
	if (n->before) {
		op->operands[CUDA_X] = n->before;
		return;
	}
	op->operands[CUDA_X] = n->raw;
	set_affine(l, op, n);
	set_residual(l, op, node);
}

/* The gradient before the activation, as a tensor. */
static struct cuda_tensor *activation_backward(struct lowering *l, struct lower_node *n)
{
	struct cuda_tensor *dz;
	struct cuda_op *op;

	if (n->node->activation == DEVICE_IDENTITY)
		return lower_whole_gradient(l, n->node->y);
	dz = lower_tensor(l, n->node, "gradient before activation", n->node->y->shape,
			  l->options->element);
	op = norm_op(l, CUDA_OP_ACTIVATION_BACKWARD, n, n->node->activation);
	lower_set_gradients(l, op, n->node->y);
	set_slope(l, op, n);
	op->operands[CUDA_DZ] = dz;
	return dz;
}

/* Appends the sums of dz, and stores dz if an operation other than the norm's own needs it. */
static void reduce(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	const struct lower_value *y = lower_value(l, node->y);
	bool none = l->options->fusion == DEVICE_FUSION_NONE;
	bool identity = node->activation == DEVICE_IDENTITY || none, stores;
	struct cuda_tensor *dy = none ? activation_backward(l, n) : y->gradients[0];
	struct cuda_op *op;

	stores = y->gradient_count == 2 || (!identity && node->residual);
	lower_vector(l, n, CUDA_SUM, "dz sum");
	lower_vector(l, n, CUDA_SQUARES, "dz xhat sum");
	n->anew = !identity && !stores;
	n->dz = stores ? lower_tensor(l, node, "gradient before activation", node->y->shape,
				      l->options->element)
		       : dy;
	op = norm_op(l, CUDA_OP_NORM_REDUCE, n, identity ? DEVICE_IDENTITY : node->activation);
	op->operands[CUDA_DY] = dy;
	if (y->gradient_count == 2)
		op->operands[CUDA_DY2] = y->gradients[1];
	if (!identity)
		set_slope(l, op, n);
	op->operands[CUDA_X] = n->raw;
	op->operands[CUDA_DZ] = stores ? n->dz : NULL;
}

static void reduce_through_pool(struct lowering *l, struct lower_node *n)
{
	struct cuda_op *op;

	lower_vector(l, n, CUDA_SUM, "dz sum");
	lower_vector(l, n, CUDA_SQUARES, "dz xhat sum");
	op = norm_op(l, CUDA_OP_MAX_POOL_NORM_REDUCE, n, n->node->activation);
	op->operands[CUDA_X] = n->raw;
}

static void finalize_backward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct cuda_op *op;

	n->has[CUDA_A] = n->has[CUDA_B] = n->has[CUDA_C] = NULL;
	if (goes_on(l, n)) {
		lower_vector(l, n, CUDA_A, "a");
		lower_vector(l, n, CUDA_B, "b");
		lower_vector(l, n, CUDA_C, "c");
	}
	op = norm_op(l, CUDA_OP_NORM_BACKWARD_FINALIZE, n, DEVICE_IDENTITY);
	if (lower_trains(node->gamma))
		lower_gradient_slot(l, op, CUDA_DGAMMA, node->gamma);
	if (lower_trains(node->beta))
		lower_gradient_slot(l, op, CUDA_DBETA, node->beta);
}

static struct cuda_tensor *apply_backward(struct lowering *l, struct lower_node *n)
{
	struct cuda_tensor *dx =
		lower_tensor(l, n->node, "raw gradient", n->node->y->shape, l->options->element);
	struct cuda_op *op =
		norm_op(l, n->pool ? CUDA_OP_MAX_POOL_NORM_APPLY : CUDA_OP_NORM_BACKWARD_APPLY, n,
			n->node->activation);

	if (!n->pool)
		op->operands[CUDA_DZ] = n->dz;
	if (n->anew)
		lower_take(l, op, n, CUDA_BIT(CUDA_SCALE) | CUDA_BIT(CUDA_BIAS));
	op->operands[CUDA_X] = n->raw;
	op->operands[CUDA_DX] = dx;
	return dx;
}

static struct cuda_tensor *norm_backward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;

	if (n->pool)
		reduce_through_pool(l, n);
	else if (!n->dz)
		reduce(l, n);
	if (node->residual && node->residual->active)
		lower_contribute(l, node->residual, n->dz);
	finalize_backward(l, n);
	return goes_on(l, n) ? apply_backward(l, n) : NULL;
}

static void bias_gradient(struct lowering *l, struct lower_node *n, struct cuda_tensor *dz)
{
	struct cuda_op *op;

	if (!lower_trains(n->node->bias))
		return;
	op = norm_op(l, CUDA_OP_BIAS_GRADIENT, n, DEVICE_IDENTITY);
	op->operands[CUDA_DY] = dz;
	lower_gradient_slot(l, op, CUDA_DBIAS, n->node->bias);
}

struct cuda_tensor *lower_post_backward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct cuda_tensor *dz;

	if (lower_norm_differentiates(l, n))
		return norm_backward(l, n);
	dz = activation_backward(l, n);
	if (node->residual && node->residual->active)
		lower_contribute(l, node->residual, dz);
	bias_gradient(l, n, dz);
	return goes_on(l, n) ? dz : NULL;
}
