/* Addition of two tensors: gradients of a value with several consumers, and unfused residuals. */
#include "trainer/device/cuda/kernels/elementwise.h"
#include "trainer/device/cuda/ops/internal.h"

static int execute_add(struct cuda_exec *exec, const struct cuda_op *op)
{
	struct elementwise_add arguments = {
		.a = cuda_at(exec, op, CUDA_X),
		.b = cuda_at(exec, op, CUDA_RESIDUAL),
		.y = cuda_at(exec, op, CUDA_Y),
		.count = device_shape_elements(op->operands[CUDA_Y]->shape),
		.element = op->operands[CUDA_Y]->element,
	};

	return elementwise_add(&exec->device->kernels, &arguments);
}

/* Y = X + RESIDUAL, both E */
const struct cuda_op_def cuda_add_op = {"add", ROLE(X) | ROLE(RESIDUAL), ROLE(Y),
					.elementwise = true, .execute = execute_add};
