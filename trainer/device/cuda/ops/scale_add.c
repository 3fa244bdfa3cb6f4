/* Scale and add: one operation forward and one backward, with the operands that the node has. */
#include "trainer/device/cuda/kernels/scale_add.h"
#include "trainer/device/cuda/ops/internal.h"

static bool is_active(const struct device_value *value)
{
	return value && value->active;
}

static void lower_scale_add_forward(struct lowering *l, const struct device_node *node)
{
	struct cuda_tensor *y = lower_result(l, node, l->options->element);
	struct cuda_op *op = lower_op(l, CUDA_OP_SCALE_ADD, node);

	op->norm.activation = node->activation;
	op->operands[CUDA_X] = lower_value(l, node->x);
	op->operands[CUDA_RESIDUAL] = lower_value(l, node->residual);
	op->operands[CUDA_GATE] = lower_value(l, node->gate);
	op->operands[CUDA_Y] = y;
	lower_set_operands(l, op, node, ROLE(GAMMA));
}

/*
 * Returns the gradient before the activation, which is the gradient of the residual: the gradient
 * of y if both are equal, else a new tensor.
 */
static struct cuda_tensor *residual_gradient(struct lowering *l, const struct device_node *node)
{
	const struct value_state *y = value_state(l, node->y);

	if (node->activation == DEVICE_IDENTITY && y->gradient_count == 1)
		return y->gradients[0];
	return lower_tensor(l, node, "gradient before activation", node->y->shape,
			    l->options->element);
}

static void lower_scale_add_backward(struct lowering *l, const struct device_node *node)
{
	const struct value_state *y = value_state(l, node->y);
	struct cuda_tensor *dz = NULL, *dx = NULL, *dgate = NULL;
	bool sums = is_active(node->gate) || device_param_trains(node->gamma);
	struct cuda_op *op;

	if (is_active(node->residual))
		dz = residual_gradient(l, node);
	if (node->x->active)
		dx = lower_dx(l, node);
	if (is_active(node->gate))
		dgate = lower_tensor(l, node, "gate gradient", node->gate->shape,
				     l->options->element);
	if (dx || sums || (dz && dz != y->gradients[0])) {
		op = lower_op(l, CUDA_OP_SCALE_ADD_BACKWARD, node);
		op->norm.activation = node->activation;
		lower_set_dy(l, op, node->y);
		op->operands[CUDA_X] = sums ? lower_value(l, node->x) : NULL;
		op->operands[CUDA_Y] = node->activation == DEVICE_RELU ? y->y : NULL;
		op->operands[CUDA_GATE] = lower_value(l, node->gate);
		op->operands[CUDA_DZ] = dz == y->gradients[0] ? NULL : dz;
		op->operands[CUDA_DX] = dx;
		op->operands[CUDA_DGATE] = dgate;
		lower_set_operands(l, op, node, ROLE(GAMMA));
		if (device_param_trains(node->gamma))
			lower_set_param_gradient(l, op, CUDA_DGAMMA, node->gamma);
	}
	if (dz)
		lower_contribute(l, node->residual, dz);
	if (dx)
		lower_contribute(l, node->x, dx);
	if (dgate)
		lower_contribute(l, node->gate, dgate);
}

const struct node_lowering lower_scale_add = {lower_scale_add_forward, lower_scale_add_backward};

static int execute_scale_add(struct cuda_exec *exec, const struct cuda_op *op)
{
	struct device_shape shape = op->node->y->shape;
	struct scale_add_arguments arguments = {
		.step = exec->arguments,
		.x = cuda_at(exec, op, CUDA_X),
		.residual = cuda_at(exec, op, CUDA_RESIDUAL),
		.gate = cuda_at(exec, op, CUDA_GATE),
		.dy = cuda_at(exec, op, CUDA_DY),
		.dy2 = cuda_at(exec, op, CUDA_DY2),
		.y = cuda_at(exec, op, CUDA_Y),
		.dz = cuda_at(exec, op, CUDA_DZ),
		.dx = cuda_at(exec, op, CUDA_DX),
		.dgate = cuda_at(exec, op, CUDA_DGATE),
		.gamma = cuda_at(exec, op, CUDA_GAMMA),
		.dgamma = cuda_at(exec, op, CUDA_DGAMMA),
		.partial = cuda_workspace(exec, op),
		.add_dgamma = cuda_adds(exec, op, CUDA_DGAMMA),
		.layer = op->node->scale.layer,
		.path = dropout_rate(op->node->scale.drop_path),
		.dropout = dropout_rate(op->node->scale.dropout),
		.n = shape.n,
		.positions = shape.h * shape.w,
		.channels = shape.c,
		.element = exec->program->element,
		.activation = op->norm.activation,
	};

	return op->kind == CUDA_OP_SCALE_ADD
		       ? scale_add_forward(&exec->device->kernels, &arguments)
		       : scale_add_backward(&exec->device->kernels, &arguments);
}

/*
 * Y = act([RESIDUAL +] s X). s is the product of [GAMMA], [GATE E [n][1][1][K]] and, in training,
 * the node's random factors (dropout, drop-path).
 */
const struct cuda_op_def cuda_scale_add_op = {"scale add", ROLE(X), ROLE(Y),
					      .execute = execute_scale_add};

static uint64_t backward_workspace(const struct cuda_exec *exec, const struct cuda_op *op)
{
	if (!op->operands[CUDA_DGATE] && !op->operands[CUDA_DGAMMA])
		return 0;
	return scale_add_workspace(exec->device->gpu.multiprocessors, op->node->y->shape.n,
				   op->node->y->shape.c);
}

/*
 * DY [+ DY2] [, Y of a ReLU] -> [DZ, the residual's gradient], [DX]; with X also [DGATE], [DGAMMA]
 */
const struct cuda_op_def cuda_scale_add_backward_op = {
	.name = "scale add backward",
	.reads = ROLE(DY),
	.may_write = ROLE(DX) | ROLE(DZ) | ROLE(DGATE) | ROLE(DGAMMA),
	.execute = execute_scale_add,
	.workspace = backward_workspace,
};
