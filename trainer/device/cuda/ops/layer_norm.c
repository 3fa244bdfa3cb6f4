/* Layer norm, forward and backward. */
#include "trainer/device/cuda/kernels/norm.h"
#include "trainer/device/cuda/ops/internal.h"

const struct node_lowering lower_layer_norm = {.forward_op = CUDA_OP_LAYER_NORM,
					       .backward_op = CUDA_OP_LAYER_NORM_BACKWARD};

static int execute_layer_norm(struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct cuda_tensor *x = op->operands[CUDA_X];
	struct norm_arguments arguments = {
		.x = cuda_at(exec, op, CUDA_X),
		.dy = cuda_at(exec, op, CUDA_DY),
		.y = cuda_at(exec, op, CUDA_Y),
		.dx = cuda_at(exec, op, CUDA_DX),
		.gamma = cuda_at(exec, op, CUDA_GAMMA),
		.beta = cuda_at(exec, op, CUDA_BETA),
		.dgamma = cuda_at(exec, op, CUDA_DGAMMA),
		.dbeta = cuda_at(exec, op, CUDA_DBETA),
		.mean = cuda_at(exec, op, CUDA_MEAN),
		.deviation = cuda_at(exec, op, CUDA_DEVIATION),
		.partial = cuda_workspace(exec, op),
		.add_dgamma = cuda_adds(exec, op, CUDA_DGAMMA),
		.add_dbeta = cuda_adds(exec, op, CUDA_DBETA),
		.epsilon = op->node->norm.epsilon,
		.rows = cuda_rows(x),
		.channels = x->shape.c,
		.element = x->element,
	};

	return op->kind == CUDA_OP_LAYER_NORM
		       ? layer_norm_forward(&exec->device->kernels, &arguments)
		       : layer_norm_backward(&exec->device->kernels, &arguments);
}

/* X, GAMMA, BETA -> Y. Training: [MEAN, DEVIATION F [n][h][w]], one per row of channels. */
const struct cuda_op_def cuda_layer_norm_op = {"layer norm", ROLE(X) | ROLE(GAMMA) | ROLE(BETA),
					       ROLE(Y), .may_write = BATCH,
					       .execute = execute_layer_norm};

/*
 * DY, X, MEAN, DEVIATION, GAMMA -> [DX] and the gradients of GAMMA and BETA (DGAMMA, DBETA, each
 * absent if frozen)
 */
const struct cuda_op_def cuda_layer_norm_backward_op = {
	.name = "layer norm backward",
	.reads = ROLE(DY) | ROLE(X) | BATCH | ROLE(GAMMA),
	.may_write = ROLE(DX) | ROLE(DGAMMA) | ROLE(DBETA),
	.execute = execute_layer_norm,
	.workspace = cuda_sums_workspace,
};
