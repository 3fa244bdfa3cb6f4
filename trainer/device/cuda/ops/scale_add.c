/*
 * Scale and add: lowers to one operation forward and one backward, with the operands that the node
 * has.
 */
#include "trainer/device/cuda/lowering/lower.h"

static struct cuda_tensor *tensor_of(struct lowering *l, const struct device_value *value)
{
	return value ? lower_value(l, value)->y : NULL;
}

static bool is_active(const struct device_value *value)
{
	return value && value->active;
}

void lower_scale_add_forward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct cuda_tensor *y = lower_result(l, node, l->options->element);
	struct cuda_op *op = lower_op(l, CUDA_OP_SCALE_ADD, node);

	op->norm.activation = node->activation;
	op->operands[CUDA_X] = tensor_of(l, node->x);
	op->operands[CUDA_RESIDUAL] = tensor_of(l, node->residual);
	op->operands[CUDA_GATE] = tensor_of(l, node->gate);
	op->operands[CUDA_Y] = y;
	lower_take(l, op, n, CUDA_BIT(CUDA_GAMMA));
}

/*
 * The gradient before the activation, which is the residual's: a separate tensor unless it equals
 * y's gradient. Only created for the residual.
 */
static struct cuda_tensor *residual_gradient(struct lowering *l, const struct device_node *node)
{
	const struct lower_value *y = lower_value(l, node->y);

	if (node->activation == DEVICE_IDENTITY && y->gradient_count == 1)
		return y->gradients[0];
	return lower_tensor(l, node, "gradient before activation", node->y->shape,
			    l->options->element);
}

void lower_scale_add_backward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	const struct lower_value *y = lower_value(l, node->y);
	struct cuda_tensor *dz = NULL, *dx = NULL, *dgate = NULL;
	bool sums = is_active(node->gate) || lower_trains(node->gamma);
	struct cuda_op *op;

	if (is_active(node->residual))
		dz = residual_gradient(l, node);
	if (node->x->active)
		dx = lower_tensor(l, node, "gradient", node->x->shape, l->options->element);
	if (is_active(node->gate))
		dgate = lower_tensor(l, node, "gate gradient", node->gate->shape,
				     l->options->element);
	if (dx || sums || (dz && dz != y->gradients[0])) {
		op = lower_op(l, CUDA_OP_SCALE_ADD_BACKWARD, node);
		op->norm.activation = node->activation;
		lower_set_gradients(l, op, node->y);
		op->operands[CUDA_X] = sums ? tensor_of(l, node->x) : NULL;
		op->operands[CUDA_Y] = node->activation == DEVICE_RELU ? y->y : NULL;
		op->operands[CUDA_GATE] = tensor_of(l, node->gate);
		op->operands[CUDA_DZ] = dz == y->gradients[0] ? NULL : dz;
		op->operands[CUDA_DX] = dx;
		op->operands[CUDA_DGATE] = dgate;
		lower_take(l, op, n, CUDA_BIT(CUDA_GAMMA));
		if (lower_trains(node->gamma))
			lower_gradient_slot(l, op, CUDA_DGAMMA, node->gamma);
	}
	if (dz)
		lower_contribute(l, node->residual, dz);
	if (dx)
		lower_contribute(l, node->x, dx);
	if (dgate)
		lower_contribute(l, node->gate, dgate);
}
