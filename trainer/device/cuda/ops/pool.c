/* Pools over windows: maximum, also of a norm's result that has no tensor, and average. */
#include "trainer/device/cuda/kernels/pooling.h"
#include "trainer/device/cuda/ops/internal.h"

#include <errno.h>

#define POOL_WINDOW_MAX 16 /* the index of a position in a window must fit in a byte */

static void lower_max_pool_forward(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	struct cuda_tensor *x = lower_value(l, node->x);
	struct cuda_tensor *y = lower_result(l, node, l->options->element);

	if (node->window_h > POOL_WINDOW_MAX) {
		lower_fail(
			l, -ENOTSUP,
			"%s: a maximum over a window of %u is more than the %d that this backend "
			"has an operation for; use a smaller window or the global maximum",
			node->name, node->window_h, POOL_WINDOW_MAX);
		return;
	}
	if (node->backward)
		state->tensors[CUDA_INDEX] = lower_index(l, node, node->y->shape, 1);
	struct cuda_op *op = lower_op(l, CUDA_OP_MAX_POOL, node);
	op->operands[CUDA_X] = x;
	op->operands[CUDA_Y] = y;
	op->operands[CUDA_INDEX] = state->tensors[CUDA_INDEX];
	if (!x) {
		const struct device_node *producer = node->x->producer;

		op->operands[CUDA_X] = node_state(l, producer)->raw;
		lower_set_operands(l, op, producer, AFFINE);
		op->norm.activation = producer->activation;
	}
}

static void max_pool_gradient(struct lowering *l, const struct device_node *node)
{
	struct cuda_tensor *dx = lower_dx(l, node);
	struct cuda_op *op = lower_op(l, CUDA_OP_MAX_POOL_BACKWARD, node);

	lower_set_dy(l, op, node->y);
	op->operands[CUDA_INDEX] = node_state(l, node)->tensors[CUDA_INDEX];
	op->operands[CUDA_DX] = dx;
	lower_contribute(l, node->x, dx);
}

static void lower_max_pool_backward(struct lowering *l, const struct device_node *node)
{
	const struct device_node *norm = lower_norm_before(l, node->x);

	if (norm && !norm->residual && !value_state(l, node->x)->gradient_count) {
		node_state(l, norm)->pool = node;
		/* with keep_all, also compute the gradient between pool and norm */
		if (!l->keep_all)
			return;
	}
	max_pool_gradient(l, node);
}

const struct node_lowering lower_max_pool = {lower_max_pool_forward, lower_max_pool_backward};

const struct node_lowering lower_average_pool = {.forward_op = CUDA_OP_AVERAGE_POOL,
						 .backward_op = CUDA_OP_AVERAGE_POOL_BACKWARD};

static int execute_pool(struct cuda_exec *exec, const struct cuda_op *op)
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
		.x = cuda_at(exec, op, CUDA_X),
		.dy = cuda_at(exec, op, CUDA_DY),
		.dy2 = cuda_at(exec, op, CUDA_DY2),
		.y = cuda_at(exec, op, CUDA_Y),
		.dx = cuda_at(exec, op, CUDA_DX),
		.index = cuda_at(exec, op, CUDA_INDEX),
		.scale = cuda_at(exec, op, CUDA_SCALE),
		.bias = cuda_at(exec, op, CUDA_BIAS),
		.activation = op->norm.activation,
		.mean = cuda_at(exec, op, CUDA_MEAN),
		.deviation = cuda_at(exec, op, CUDA_DEVIATION),
		.a = cuda_at(exec, op, CUDA_A),
		.b = cuda_at(exec, op, CUDA_B),
		.c = cuda_at(exec, op, CUDA_C),
		.sum = cuda_at(exec, op, CUDA_SUM),
		.products = cuda_at(exec, op, CUDA_PRODUCTS),
		.partial = cuda_workspace(exec, op),
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

	return launchers[op->kind](&exec->device->kernels, &arguments);
}

/*
 * X -> Y [, INDEX u8 [n][p][q][c]: row-major position in the window]. With SCALE, BIAS: maximum of
 * act(SCALE X + BIAS). Windows up to 16 x 16.
 */
const struct cuda_op_def cuda_max_pool_op = {"max pool", ROLE(X), ROLE(Y), .may_write = ROLE(INDEX),
					     .execute = execute_pool};

/* DY [+ DY2], INDEX -> DX. The two operations below also accept DY2. */
const struct cuda_op_def cuda_max_pool_backward_op = {"max pool backward", ROLE(DY) | ROLE(INDEX),
						      ROLE(DX), .execute = execute_pool};

/*
 * Backward pass of MAX_POOL with SCALE. First DY, INDEX, X, MEAN, DEVIATION, SCALE, BIAS -> SUM,
 * PRODUCTS; then DY, INDEX, X, SCALE, BIAS, A, B, C -> DX. dz is never stored.
 */
const struct cuda_op_def cuda_max_pool_norm_reduce_op = {
	"max pool norm reduce", ROLE(DY) | ROLE(INDEX) | ROLE(X) | BATCH | AFFINE, SUMS,
	.execute = execute_pool, .workspace = cuda_sums_workspace};

const struct cuda_op_def cuda_max_pool_norm_apply_op = {
	"max pool norm apply", ROLE(DY) | ROLE(INDEX) | ROLE(X) | AFFINE | ABC, ROLE(DX),
	.execute = execute_pool};

const struct cuda_op_def cuda_average_pool_op = {"average pool", ROLE(X), ROLE(Y),
						 .execute = execute_pool};

/* DY -> DX, for means over the positions of a window inside x */
const struct cuda_op_def cuda_average_pool_backward_op = {"average pool backward", ROLE(DY),
							  ROLE(DX), .execute = execute_pool};
