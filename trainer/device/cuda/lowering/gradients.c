/* Tensors of values, and the gradients of values as sums of the contributions of consumers. */
#include "trainer/device/cuda/lowering/lower.h"

struct cuda_tensor *lower_value(struct lowering *l, const struct device_value *value)
{
	return value ? value_state(l, value)->y : NULL;
}

struct cuda_tensor *lower_output(struct lowering *l, const struct device_value *value,
				 const char *what, enum cuda_element element)
{
	struct value_state *v = value_state(l, value);

	v->y = lower_tensor(l, value->producer, what, value->shape, element);
	v->y->value = value;
	v->y->kept = v->kept;
	return v->y;
}

struct cuda_tensor *lower_result(struct lowering *l, const struct device_node *node,
				 enum cuda_element element)
{
	return lower_output(l, node->y, "", element);
}

struct cuda_tensor *lower_dx(struct lowering *l, const struct device_node *node)
{
	return lower_tensor(l, node, "gradient", node->x->shape, l->options->element);
}

static struct cuda_tensor *add_gradients(struct lowering *l, const struct device_value *value,
					 struct cuda_tensor *a, struct cuda_tensor *b)
{
	struct cuda_tensor *sum =
		lower_tensor(l, value->producer, "gradient sum", a->shape, l->options->element);
	struct cuda_op *op = lower_op(l, CUDA_OP_ADD, value->producer);

	op->operands[CUDA_X] = a;
	op->operands[CUDA_RESIDUAL] = b;
	op->operands[CUDA_Y] = sum;
	return sum;
}

void lower_contribute(struct lowering *l, const struct device_value *value,
		      struct cuda_tensor *gradient)
{
	struct value_state *v = value_state(l, value);
	uint32_t max = l->options->fusion == DEVICE_FUSION_NONE ? 1 : 2;

	if (v->uses_left)
		v->uses_left--;
	if (v->gradient_count == max) {
		struct cuda_tensor *last = v->gradients[max - 1];

		v->gradients[0] =
			add_gradients(l, value, v->gradients[0], max == 2 ? last : gradient);
		v->gradient_count = 1;
		if (max == 1)
			return;
	}
	v->gradients[v->gradient_count++] = gradient;
}

void lower_contribute_dx(struct lowering *l, const struct device_node *node, struct cuda_tensor *dx)
{
	if (dx)
		lower_contribute(l, node->x, dx);
}

void lower_set_dy(struct lowering *l, struct cuda_op *op, const struct device_value *value)
{
	const struct value_state *v = value_state(l, value);

	op->operands[CUDA_DY] = v->gradients[0];
	if (v->gradient_count == 2)
		op->operands[CUDA_DY2] = v->gradients[1];
}

struct cuda_tensor *lower_summed_gradient(struct lowering *l, const struct device_value *value)
{
	struct value_state *v = value_state(l, value);

	if (v->gradient_count == 2) {
		v->gradients[0] = add_gradients(l, value, v->gradients[0], v->gradients[1]);
		v->gradient_count = 1;
	}
	return v->gradients[0];
}

/*
 * With keep_all, adds a readable tensor with the complete gradient. Operations may overwrite the
 * contributions, but not this tensor.
 */
static void keep_gradient(struct lowering *l, const struct device_value *value)
{
	struct value_state *v = value_state(l, value);
	struct cuda_tensor *gradient = v->gradients[0];
	struct cuda_op *op;

	if (!l->keep_all || !v->gradient_count)
		return;
	if (v->gradient_count == 2) {
		gradient = add_gradients(l, value, gradient, v->gradients[1]);
	} else if (gradient->value) {
		/* the tensor is also the gradient of another value, or the caller writes it */
		if (gradient->value == value)
			return;
		gradient = lower_tensor(l, value->producer, "gradient copy", gradient->shape,
					l->options->element);
		op = lower_op(l, CUDA_OP_APPLY, value->producer);
		op->operands[CUDA_X] = v->gradients[0];
		op->operands[CUDA_Y] = gradient;
	}
	gradient->value = value;
	gradient->gradient = true;
	gradient->kept = true;
}

/* Adds the tensor for the gradient of a result without consumers, which the caller writes. */
static void add_grad_output(struct lowering *l, const struct device_value *value)
{
	struct cuda_tensor *gradient =
		lower_tensor(l, value->producer, "gradient", value->shape, l->options->element);

	gradient->value = value;
	gradient->gradient = gradient->grad_output = gradient->kept = true;
	lower_contribute(l, value, gradient);
}

void lower_output_gradients(struct lowering *l, const struct device_node *node)
{
	for (int i = 0; i < DEVICE_NODE_OUTPUTS; i++) {
		const struct device_value *output = node->outputs[i];

		/* the y of a loss is the y of another node */
		if (!output || !output->active || output->producer != node)
			continue;
		if (device_value_grad_is_input(output))
			add_grad_output(l, output);
		keep_gradient(l, output);
	}
}
