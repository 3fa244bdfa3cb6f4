/* Weights of which each rank keeps only its part, in the memory of a program. */
#include "trainer/device/cuda/kernels/elementwise.h"
#include "trainer/device/cuda/ops/internal.h"

/* Y = [weights of a bucket] E, of all ranks' parts. Queued on the stream of sums. */
const struct cuda_op_def cuda_gather_op = {
	.name = "gather", .writes = ROLE(Y), .minor = true, .execute = cuda_gather};

static int execute_pad(struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct cuda_tensor *w = op->operands[CUDA_W], *to = op->operands[CUDA_W16];

	return elementwise_copy(&exec->device->kernels, &(struct elementwise_copy){
								.from = cuda_at(exec, op, CUDA_W),
								.to = cuda_at(exec, op, CUDA_W16),
								.rows = cuda_rows(w),
								.from_columns = w->shape.c,
								.to_columns = to->shape.c,
								.from_element = w->element,
								.to_element = to->element,
							});
}

/* W E, of a gathered bucket -> W16 E = W with more input channels, which are 0. */
const struct cuda_op_def cuda_pad_op = {.name = "pad",
					.reads = ROLE(W),
					.writes = ROLE(W16),
					.minor = true,
					.execute = execute_pad};
