/* Pools over all positions of an image: average and maximum. */
#include "trainer/device/cuda/kernels/pooling.h"
#include "trainer/device/cuda/ops/internal.h"

const struct node_lowering lower_global_average_pool = {
	.forward_op = CUDA_OP_GLOBAL_AVERAGE, .backward_op = CUDA_OP_GLOBAL_AVERAGE_BACKWARD};

const struct node_lowering lower_global_max_pool = {.forward_op = CUDA_OP_GLOBAL_MAX,
						    .backward_op = CUDA_OP_GLOBAL_MAX_BACKWARD};

static int execute_global_pool(struct cuda_exec *exec, const struct cuda_op *op)
{
	static int (*const launchers[CUDA_OP_KINDS])(const struct kernel_device *device,
						     const struct pool_global *arguments) = {
		[CUDA_OP_GLOBAL_AVERAGE] = pool_global_average,
		[CUDA_OP_GLOBAL_AVERAGE_BACKWARD] = pool_global_average_backward,
		[CUDA_OP_GLOBAL_MAX] = pool_global_max,
		[CUDA_OP_GLOBAL_MAX_BACKWARD] = pool_global_max_backward,
	};
	bool backward = op->operands[CUDA_DX];
	/* the tensor with all positions; the other one has one value per image */
	const struct cuda_tensor *x = op->operands[backward ? CUDA_DX : CUDA_X];
	struct pool_global arguments = {
		.from = cuda_at(exec, op, backward ? CUDA_DY : CUDA_X),
		.to = cuda_at(exec, op, backward ? CUDA_DX : CUDA_Y),
		.index = cuda_at(exec, op, CUDA_INDEX),
		.n = x->shape.n,
		.positions = x->shape.h * x->shape.w,
		.channels = x->shape.c,
		.element = x->element,
	};

	return launchers[op->kind](&exec->device->kernels, &arguments);
}

const struct cuda_op_def cuda_global_average_op = {"global average", ROLE(X), ROLE(Y),
						   .execute = execute_global_pool};

const struct cuda_op_def cuda_global_average_backward_op = {
	"global average backward", ROLE(DY), ROLE(DX), .execute = execute_global_pool};

/* X -> Y [, INDEX u32 [n][c]: position of the maximum] */
const struct cuda_op_def cuda_global_max_op = {
	"global max", ROLE(X), ROLE(Y), .may_write = ROLE(INDEX), .execute = execute_global_pool};

const struct cuda_op_def cuda_global_max_backward_op = {
	"global max backward", ROLE(DY) | ROLE(INDEX), ROLE(DX), .execute = execute_global_pool};
