/*
 * Linear layers, forward and backward: matrix products over rows, one per sample or position. Bias
 * and residual are part of the product, which adds them before rounding. GELU is separate:
 * cuBLASLt's is the tanh approximation, and DEVICE_GELU is exact. In a divided store, a product of
 * parts includes the sum over the group; a residual comes after it, in an operation of its own.
 */
#include "trainer/device/cuda/ops/internal.h"

#include <errno.h>
#include <stdio.h>

static struct cuda_op *matmul_op(struct lowering *l, const struct device_node *node,
				 const struct matmul_problem *problem)
{
	const struct matmul_engines *matmul = l->options->matmul;
	struct cuda_op *op = lower_op(l, CUDA_OP_MATMUL, node);
	struct conv_plan_info info;
	char name[256];

	if (l->failure)
		return op;
	op->matmul.problem = *problem;
	int r = matmul->plan(matmul->state, problem, &op->matmul.plan);
	if (r < 0) {
		op->matmul.plan = NULL;
		matmul_problem_name(problem, name, sizeof(name));
		lower_fail(l, r == -ENOENT ? -ENOTSUP : r, "%s: the library has no plan for %s: %s",
			   node->name, name, matmul->error(matmul->state));
		return op;
	}
	matmul->plan_info(op->matmul.plan, &info);
	snprintf(op->engine, sizeof(op->engine), "%s", info.engine);
	lower_set_workspace(l, op, info.workspace_bytes);
	return op;
}

static void matmul_of(const struct lowering *l, const struct device_node *node, uint32_t rows,
		      uint32_t columns, uint32_t inner, struct matmul_problem *p)
{
	matmul_problem_init(p);
	p->rows = rows;
	p->columns = columns;
	p->inner = inner;
	p->element = p->result = l->options->element;
}

static uint32_t rows_of(const struct device_node *node)
{
	return node->y->shape.n * node->y->shape.h * node->y->shape.w;
}

static void lower_linear_forward(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	uint32_t inputs = node->weight->shape[1];
	bool logits = l->graph->loss && l->graph->loss->x == node->y;
	struct cuda_tensor *w = lower_forward_weights(l, node, inputs), *bias = NULL, *y;
	struct matmul_problem problem;

	matmul_of(l, node, rows_of(node), node->y->shape.c, inputs, &problem);
	problem.transposed_b = true;
	problem.bias = device_node_adds_bias(node);
	state->fully_lowered = node->activation == DEVICE_IDENTITY &&
			       (!node->residual || (l->options->fusion != DEVICE_FUSION_NONE &&
						    !device_node_sums_result(node)));
	problem.residual = state->fully_lowered && node->residual;
	if (state->fully_lowered && logits && !node->residual)
		problem.result = CUDA_F32;
	if (state->fully_lowered)
		y = lower_result(l, node, problem.result);
	else
		y = state->raw = lower_tensor(l, node, "raw", node->y->shape, problem.result);
	if (problem.bias)
		bias = lower_forward_bias(l, node, problem.result);
	struct cuda_op *op = matmul_op(l, node, &problem);
	op->matmul.sums = device_node_sums_result(node);
	op->operands[CUDA_X] = lower_value(l, node->x);
	op->operands[CUDA_W] = w;
	op->operands[CUDA_Y] = y;
	op->operands[CUDA_CHANNEL_BIAS] = bias;
	if (problem.residual)
		op->operands[CUDA_RESIDUAL] = lower_value(l, node->residual);
	if (!state->fully_lowered)
		lower_norm_act_forward(l, node);
}

static void linear_weight_gradient(struct lowering *l, const struct device_node *node,
				   struct cuda_tensor *dy)
{
	struct matmul_problem problem;

	matmul_of(l, node, node->y->shape.c, node->weight->shape[1], rows_of(node), &problem);
	problem.transposed_a = true;
	problem.result = CUDA_F32;
	struct cuda_op *op = matmul_op(l, node, &problem);
	op->operands[CUDA_DY] = dy;
	op->operands[CUDA_X] = lower_value(l, node->x);
	lower_set_weight_gradient(l, op, node, NULL);
}

static void linear_products_backward(struct lowering *l, const struct device_node *node,
				     struct cuda_tensor *dy)
{
	struct matmul_problem problem;

	if (device_param_trains(node->weight))
		linear_weight_gradient(l, node, dy);
	if (!node->x->active)
		return;
	matmul_of(l, node, rows_of(node), node->weight->shape[1], node->y->shape.c, &problem);
	struct cuda_tensor *dx =
		lower_tensor(l, node, "data gradient", node->x->shape, l->options->element);
	struct cuda_op *op = matmul_op(l, node, &problem);
	op->matmul.sums = device_node_sums_gradient(node);
	op->operands[CUDA_DY] = dy;
	op->operands[CUDA_W] = lower_weights(l, node->weight, node->weight->shape[1]);
	op->operands[CUDA_DX] = dx;
	lower_contribute(l, node->x, dx);
}

static void lower_linear_backward(struct lowering *l, const struct device_node *node)
{
	struct cuda_tensor *dy = lower_norm_act_backward(l, node);

	if (dy)
		linear_products_backward(l, node, dy);
}

const struct node_lowering lower_linear = {lower_linear_forward, lower_linear_backward};

static int execute_matmul(struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct matmul_engines *engines = &exec->device->engines.matmul;
	struct matmul_arguments arguments = {.workspace = cuda_at(exec, op, CUDA_WORKSPACE)};

	if (op->operands[CUDA_Y]) {
		arguments.a = cuda_at(exec, op, CUDA_X);
		arguments.b = cuda_at(exec, op, CUDA_W);
		arguments.bias = cuda_at(exec, op, CUDA_CHANNEL_BIAS);
		arguments.residual = cuda_at(exec, op, CUDA_RESIDUAL);
		arguments.d = cuda_at(exec, op, CUDA_Y);
	} else if (op->operands[CUDA_DX]) {
		arguments.a = cuda_at(exec, op, CUDA_DY);
		arguments.b = cuda_at(exec, op, CUDA_W);
		arguments.d = cuda_at(exec, op, CUDA_DX);
	} else {
		arguments.a = cuda_at(exec, op, CUDA_DY);
		arguments.b = cuda_at(exec, op, CUDA_X);
		arguments.d = cuda_weight_gradient(exec, op);
	}
	int r = engines->execute(engines->state, op->matmul.plan, &arguments,
				 exec->device->compute);
	if (r < 0)
		return cuda_fail_engine(exec, op, r, engines->error(engines->state));
	if (op->matmul.sums)
		return cuda_ranks_sum_product(exec, op);
	return cuda_add_weight_gradient(exec, op);
}

/*
 * X, W, [CHANNEL_BIAS], [RESIDUAL] -> Y; DY, W -> DX; DY, X -> DW, with ADDEND as in CONV. What
 * each direction reads and writes is in ops.c.
 */
const struct cuda_op_def cuda_matmul_op = {
	.name = "matmul", .product = true, .execute = execute_matmul};
