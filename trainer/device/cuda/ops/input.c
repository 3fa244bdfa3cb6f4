/* The input: a batch as the network's first activations. */
#include "trainer/device/cuda/kernels/input.h"
#include "trainer/device/cuda/ops/internal.h"

static void lower_input_forward(struct lowering *l, const struct device_node *node)
{
	struct cuda_tensor *y = lower_result(l, node, l->options->element);

	y->shape.c = l->input_channels;
	y->bytes = device_shape_elements(y->shape) * y->element_bytes;
	lower_op(l, CUDA_OP_INPUT, node)->operands[CUDA_Y] = y;
}

const struct node_lowering lower_input = {.forward = lower_input_forward};

static int execute_input(struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct device_input_spec *input = &op->node->input;
	const struct cuda_tensor *y = op->operands[CUDA_Y];
	struct input_normalize arguments = {
		.step = exec->arguments,
		.y = cuda_at(exec, op, CUDA_Y),
		.n = y->shape.n,
		.h = y->shape.h,
		.w = y->shape.w,
		.channels = input->shape.c,
		.padded = y->shape.c,
		.element = y->element,
	};

	for (int c = 0; c < 4; c++) {
		arguments.mean[c] = input->mean[c];
		arguments.std[c] = input->std[c];
	}
	return input->resamples ? input_resample(&exec->device->kernels, &arguments)
				: input_normalize(&exec->device->kernels, &arguments);
}

/*
 * Y [n][h][w][c padded] E = the batch in the step's arguments; u8 batches are normalized, (batch -
 * mean) / std, wider ones are not. Padding channels are 0. Flipped horizontally if the batch says
 * so.
 */
const struct cuda_op_def cuda_input_op = {"input", 0, ROLE(Y), .execute = execute_input};
