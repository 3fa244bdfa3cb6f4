/*
 * What follows a convolution, or stands alone: norm, residual, activation, as the CPU backend's
 * post.c has them. Level none runs each by itself; B and C run them in one pass forward, and
 * backward in one that sums and one that applies.
 */
#include "trainer/device/cuda/lowering/lower.h"

/* ---- forward ---- */

static uint64_t rows_of(const struct device_node *node)
{
	const struct device_shape *y = &node->y->shape;

	return (uint64_t)y->n * y->h * y->w;
}

static struct cuda_op *norm_op(struct lowering *l, enum cuda_op_kind kind,
			       const struct device_node *node, enum device_activation activation)
{
	struct cuda_op *op = lower_op(l, kind, node);

	op->norm.rows = rows_of(node);
	op->norm.activation = activation;
	return op;
}

static void batch_statistics(struct lowering *l, struct lower_node *n)
{
	struct cuda_op *op;

	if (n->norm.sum)
		return;
	n->norm.sum = lower_vector(l, n->node, "sum", n->node->y->shape.c);
	n->norm.squares = lower_vector(l, n->node, "squares", n->node->y->shape.c);
	op = norm_op(l, CUDA_OP_STATISTICS, n->node, DEVICE_IDENTITY);
	op->operands[CUDA_X] = n->raw;
	op->operands[CUDA_SUM] = n->norm.sum;
	op->operands[CUDA_SQUARES] = n->norm.squares;
}

static void scale_and_bias(struct lowering *l, struct lower_node *n)
{
	n->norm.scale = lower_vector(l, n->node, "scale", n->node->y->shape.c);
	n->norm.bias = lower_vector(l, n->node, "bias", n->node->y->shape.c);
}

/* Scale and bias from the batch, or in evaluation from the running statistics. */
static void finalize(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct cuda_op *op;

	if (l->training)
		batch_statistics(l, n);
	scale_and_bias(l, n);
	if (l->training) {
		n->norm.mean = lower_vector(l, n->node, "mean", n->node->y->shape.c);
		n->norm.deviation = lower_vector(l, n->node, "deviation", n->node->y->shape.c);
	}
	n->norm.finalize = l->program->op_count;
	op = norm_op(l, l->training ? CUDA_OP_NORM_FINALIZE : CUDA_OP_NORM_RUNNING, n->node,
		     DEVICE_IDENTITY);
	op->operands[CUDA_SUM] = n->norm.sum;
	op->operands[CUDA_SQUARES] = n->norm.squares;
	op->operands[CUDA_GAMMA] = lower_param(l, node->gamma, DEVICE_VALUE);
	op->operands[CUDA_BETA] = lower_param(l, node->beta, DEVICE_VALUE);
	op->operands[CUDA_RUNNING_MEAN] = lower_param(l, node->running_mean, DEVICE_VALUE);
	op->operands[CUDA_RUNNING_VAR] = lower_param(l, node->running_var, DEVICE_VALUE);
	op->operands[CUDA_MEAN] = n->norm.mean;
	op->operands[CUDA_DEVIATION] = n->norm.deviation;
	op->operands[CUDA_SCALE] = n->norm.scale;
	op->operands[CUDA_BIAS] = n->norm.bias;
}

void lower_prologue_vectors(struct lowering *l, struct lower_node *n)
{
	struct device_shape shape = {1, 1, 1, n->node->y->shape.c};
	struct cuda_op *op;

	if (n->norm.prescale || l->failure)
		return;
	if (l->options->element == CUDA_F32) {
		n->norm.prescale = n->norm.scale;
		n->norm.prebias = n->norm.bias;
		return;
	}
	n->norm.prescale = lower_tensor(l, n->node, "scale 16", shape, l->options->element);
	n->norm.prebias = lower_tensor(l, n->node, "bias 16", shape, l->options->element);
	op = &l->program->ops[n->norm.finalize];
	op->operands[CUDA_SCALE16] = n->norm.prescale;
	op->operands[CUDA_BIAS16] = n->norm.prebias;
}

/*
 * The residual of APPLY, or of what takes its z anew: a tensor, or another norm's raw with its
 * scale and bias.
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
	op->operands[CUDA_SCALE2] = producer->norm.scale;
	op->operands[CUDA_BIAS2] = producer->norm.bias;
}

/*
 * What raw is multiplied by and what is added: the norm's, or the convolution's bias. Linear layers
 * have added theirs.
 */
static void set_affine(struct lowering *l, struct cuda_op *op, struct lower_node *n)
{
	const struct device_node *node = n->node;

	op->operands[CUDA_SCALE] = n->norm.scale;
	op->operands[CUDA_BIAS] = n->norm.bias;
	if (node->bias && node->kind != DEVICE_NODE_LINEAR)
		op->operands[CUDA_BIAS] = lower_param(l, node->bias, DEVICE_VALUE);
}

void lower_apply(struct lowering *l, struct lower_node *n, struct cuda_tensor *y)
{
	struct cuda_op *op = norm_op(l, CUDA_OP_APPLY, n->node, n->node->activation);

	op->operands[CUDA_X] = n->raw;
	op->operands[CUDA_Y] = y;
	set_affine(l, op, n);
	set_residual(l, op, n->node);
}

/*
 * Level none: scale and bias, residual and activation one after the other; the last writes the
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
		op = norm_op(l, CUDA_OP_APPLY, node, DEVICE_IDENTITY);
		op->operands[CUDA_X] = at;
		op->operands[CUDA_Y] = y;
		set_affine(l, op, n);
		at = y;
	}
	if (node->residual) {
		y = active ? lower_tensor(l, node, "sum of both", node->y->shape,
					  l->options->element)
			   : lower_result(l, node, l->options->element);
		op = norm_op(l, CUDA_OP_ADD, node, DEVICE_IDENTITY);
		op->operands[CUDA_X] = at;
		op->operands[CUDA_RESIDUAL] = lower_value(l, node->residual)->y;
		op->operands[CUDA_Y] = y;
		at = y;
	}
	n->before = at;
	if (!active)
		return;
	y = lower_result(l, node, l->options->element);
	op = norm_op(l, CUDA_OP_APPLY, node, node->activation);
	op->operands[CUDA_X] = at;
	op->operands[CUDA_Y] = y;
}

void lower_post_forward(struct lowering *l, struct lower_node *n)
{
	bool folded =
		!l->training && n->norm.bias; /* the convolution has the scale in its weights */

	if (n->node->has_norm && !folded)
		finalize(l, n);
	if (lower_stays_virtual(l, n)) {
		if (l->keep_all) {
			/* for readers alone: what follows must not find it */
			lower_apply(l, n, lower_result(l, n->node, l->options->element));
			lower_value(l, n->node->y)->y = NULL;
		}
		return;
	}
	if (lower_sums_in_next(l, n))
		return;
	if (l->options->fusion == CUDA_FUSION_NONE)
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

/* Whether anything before the norm, or before bias and activation, wants a gradient. */
static bool goes_on(struct lowering *l, struct lower_node *n)
{
	return lower_trains(n->node->weight) || n->node->x->active;
}

/*
 * What the activation's slope follows from: the result where it says all and is at hand, else z
 * taken anew.
 */
static void set_slope(struct lowering *l, struct cuda_op *op, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct cuda_tensor *y = lower_value(l, node->y)->y;
	bool from_raw = node->has_norm && !node->residual;

	if (node->activation == DEVICE_RELU && y &&
	    (!from_raw || l->options->fusion == CUDA_FUSION_NONE)) {
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
	op = norm_op(l, CUDA_OP_ACTIVATION_BACKWARD, n->node, n->node->activation);
	lower_set_gradients(l, op, n->node->y);
	set_slope(l, op, n);
	op->operands[CUDA_DZ] = dz;
	return dz;
}

/* How far the gradient of a norm's result has come. */
struct sums {
	struct cuda_tensor *sum, *squares;
	struct cuda_tensor *dz; /* before the activation; or, with `anew`, after it */
	bool anew;
};

static struct sums reduce(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	const struct lower_value *y = lower_value(l, node->y);
	bool none = l->options->fusion == CUDA_FUSION_NONE;
	bool identity = node->activation == DEVICE_IDENTITY || none, stores;
	struct sums sums = {0};
	struct cuda_tensor *dy;
	struct cuda_op *op;

	if (none)
		dy = activation_backward(l, n);
	else
		dy = y->gradients[0];
	stores = y->gradient_count == 2 || (!identity && node->residual);
	sums.sum = lower_vector(l, node, "dz sum", node->y->shape.c);
	sums.squares = lower_vector(l, node, "dz xhat sum", node->y->shape.c);
	sums.anew = !identity && !stores;
	sums.dz = stores ? lower_tensor(l, node, "gradient before activation", node->y->shape,
					l->options->element)
			 : dy;
	op = norm_op(l, CUDA_OP_NORM_REDUCE, node, identity ? DEVICE_IDENTITY : node->activation);
	op->operands[CUDA_DY] = dy;
	if (y->gradient_count == 2)
		op->operands[CUDA_DY2] = y->gradients[1];
	if (!identity)
		set_slope(l, op, n);
	op->operands[CUDA_X] = n->raw;
	op->operands[CUDA_MEAN] = n->norm.mean;
	op->operands[CUDA_DEVIATION] = n->norm.deviation;
	op->operands[CUDA_DZ] = stores ? sums.dz : NULL;
	op->operands[CUDA_SUM] = sums.sum;
	op->operands[CUDA_SQUARES] = sums.squares;
	return sums;
}

static struct sums reduce_through_pool(struct lowering *l, struct lower_node *n)
{
	struct sums sums = {0};
	struct cuda_op *op;

	sums.sum = lower_vector(l, n->node, "dz sum", n->node->y->shape.c);
	sums.squares = lower_vector(l, n->node, "dz xhat sum", n->node->y->shape.c);
	op = norm_op(l, CUDA_OP_MAX_POOL_NORM_REDUCE, n->pool->node, n->node->activation);
	op->norm.rows = rows_of(n->node);
	lower_set_gradients(l, op, n->pool->node->y);
	op->operands[CUDA_INDEX] = n->pool->index;
	op->operands[CUDA_X] = n->raw;
	op->operands[CUDA_MEAN] = n->norm.mean;
	op->operands[CUDA_DEVIATION] = n->norm.deviation;
	op->operands[CUDA_SCALE] = n->norm.scale;
	op->operands[CUDA_BIAS] = n->norm.bias;
	op->operands[CUDA_SUM] = sums.sum;
	op->operands[CUDA_SQUARES] = sums.squares;
	return sums;
}

struct factors {
	struct cuda_tensor *a, *b, *c;
};

static struct factors finalize_backward(struct lowering *l, struct lower_node *n,
					const struct sums *sums)
{
	const struct device_node *node = n->node;
	struct factors factors = {0};
	struct cuda_op *op;

	if (goes_on(l, n)) {
		factors.a = lower_vector(l, node, "a", node->y->shape.c);
		factors.b = lower_vector(l, node, "b", node->y->shape.c);
		factors.c = lower_vector(l, node, "c", node->y->shape.c);
	}
	op = norm_op(l, CUDA_OP_NORM_BACKWARD_FINALIZE, node, DEVICE_IDENTITY);
	op->operands[CUDA_SUM] = sums->sum;
	op->operands[CUDA_SQUARES] = sums->squares;
	op->operands[CUDA_GAMMA] = lower_param(l, node->gamma, DEVICE_VALUE);
	op->operands[CUDA_MEAN] = n->norm.mean;
	op->operands[CUDA_DEVIATION] = n->norm.deviation;
	op->operands[CUDA_A] = factors.a;
	op->operands[CUDA_B] = factors.b;
	op->operands[CUDA_C] = factors.c;
	if (lower_trains(node->gamma))
		lower_gradient_slot(l, op, CUDA_DGAMMA, node->gamma);
	if (lower_trains(node->beta))
		lower_gradient_slot(l, op, CUDA_DBETA, node->beta);
	return factors;
}

static struct cuda_tensor *apply_backward(struct lowering *l, struct lower_node *n,
					  const struct sums *sums, const struct factors *factors)
{
	struct cuda_tensor *dx =
		lower_tensor(l, n->node, "raw gradient", n->node->y->shape, l->options->element);
	struct cuda_op *op;

	if (n->pool) {
		op = norm_op(l, CUDA_OP_MAX_POOL_NORM_APPLY, n->pool->node, n->node->activation);
		op->norm.rows = rows_of(n->node);
		lower_set_gradients(l, op, n->pool->node->y);
		op->operands[CUDA_INDEX] = n->pool->index;
	} else {
		op = norm_op(l, CUDA_OP_NORM_BACKWARD_APPLY, n->node, n->node->activation);
		op->operands[CUDA_DZ] = sums->dz;
	}
	if (n->pool || sums->anew) {
		op->operands[CUDA_SCALE] = n->norm.scale;
		op->operands[CUDA_BIAS] = n->norm.bias;
	}
	op->operands[CUDA_X] = n->raw;
	op->operands[CUDA_A] = factors->a;
	op->operands[CUDA_B] = factors->b;
	op->operands[CUDA_C] = factors->c;
	op->operands[CUDA_DX] = dx;
	return dx;
}

static struct cuda_tensor *norm_backward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct factors factors;
	struct sums sums;

	if (n->pool)
		sums = reduce_through_pool(l, n);
	else if (n->dz)
		sums = (struct sums){n->dz_sum, n->dz_squares, n->dz, false};
	else
		sums = reduce(l, n);
	if (node->residual && node->residual->active)
		lower_contribute(l, node->residual, sums.dz);
	factors = finalize_backward(l, n, &sums);
	return goes_on(l, n) ? apply_backward(l, n, &sums, &factors) : NULL;
}

static void bias_gradient(struct lowering *l, struct lower_node *n, struct cuda_tensor *dz)
{
	struct cuda_op *op;

	if (!lower_trains(n->node->bias))
		return;
	op = norm_op(l, CUDA_OP_BIAS_GRADIENT, n->node, DEVICE_IDENTITY);
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
