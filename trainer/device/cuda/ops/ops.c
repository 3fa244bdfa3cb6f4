/* Queries on operations, by the table of ops.h. */
#include "trainer/device/cuda/ops/internal.h"

static const struct cuda_op_def *const ops[CUDA_OP_KINDS] = {
#define OP(kind, name) [CUDA_OP_##kind] = &cuda_##name##_op,
	CUDA_OPS(OP)
#undef OP
};

/* Convolutions and matrix products have the same operand roles, by direction. */
#define BESIDE (ROLE(WORKSPACE) | ROLE(ADDEND) | ROLE(ACTIVATED))
#define SUMS2  (ROLE(SUM2) | ROLE(PRODUCTS2))
#define ABC2   (ROLE(A2) | ROLE(B2) | ROLE(C2))

static const struct cuda_op_def product_forward = {
	.reads = ROLE(X) | ROLE(W),
	.writes = ROLE(Y),
	.may_write = BESIDE | SUMS,
	.product = true,
	.passes = 1,
};
static const struct cuda_op_def product_data = {
	.reads = ROLE(DY) | ROLE(W),
	.writes = ROLE(DX),
	.may_write = BESIDE | SUMS | ABC | SUMS2 | ABC2,
	.product = true,
	.passes = 1,
};
static const struct cuda_op_def product_weights = {
	.reads = ROLE(DY), .writes = ROLE(DW), .may_write = BESIDE, .product = true, .passes = 1};

const char *cuda_op_name(enum cuda_op_kind kind)
{
	return ops[kind]->name;
}

uint64_t cuda_op_roles(enum cuda_op_kind kind)
{
	const struct cuda_op_def *def = ops[kind];

	return def->reads | def->may_read | def->writes | def->may_write;
}

const struct cuda_op_def *cuda_op_def(const struct cuda_op *op)
{
	if (!ops[op->kind]->product)
		return ops[op->kind];
	return op->operands[CUDA_DW]   ? &product_weights
	       : op->operands[CUDA_DX] ? &product_data
				       : &product_forward;
}

bool cuda_op_is_constant(const struct cuda_op *op)
{
	const struct cuda_tensor *w = op->operands[CUDA_W];

	return cuda_op_def(op)->constant && !(w && (w->bucket || w->unpadded));
}

bool cuda_op_writes(const struct cuda_op *op, enum cuda_role role)
{
	const struct cuda_op_def *def = cuda_op_def(op);

	return op->operands[role] && ((def->writes | def->may_write) & CUDA_BIT(role));
}

/* ---- execution ---- */

void *cuda_at(const struct cuda_exec *exec, const struct cuda_op *op, enum cuda_role role)
{
	const struct cuda_tensor *tensor = op->operands[role];

	return tensor ? cuda_tensor_data(exec, tensor) : NULL;
}

bool cuda_adds(const struct cuda_exec *exec, const struct cuda_op *op, enum cuda_role role)
{
	const struct cuda_tensor *tensor = op->operands[role];
	/* gradients of which the store keeps parts are added to these when they are summed */
	bool divided = tensor && tensor->param && cuda_ranks_gradient(exec, tensor->param);
	bool micro_batch = exec->graph->options.mode == DEVICE_TRAIN &&
			   (exec->variant & CUDA_VARIANT_ADDS) && !divided;

	return micro_batch || (op->adds >> role & 1);
}

uint64_t cuda_rows(const struct cuda_tensor *tensor)
{
	return device_shape_elements(tensor->shape) / tensor->shape.c;
}

uint64_t cuda_sums_workspace(const struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct cuda_tensor *summed = op->operands[op->operands[CUDA_DY] ? CUDA_DY : CUDA_X];

	return row_reduce_workspace(exec->device->gpu.multiprocessors, cuda_rows(summed),
				    summed->shape.c);
}

uint64_t cuda_kernel_workspace(const struct cuda_exec *exec, const struct cuda_op *op)
{
	return ops[op->kind]->workspace ? ops[op->kind]->workspace(exec, op) : 0;
}

void *cuda_workspace(const struct cuda_exec *exec, const struct cuda_op *op)
{
	return cuda_kernel_workspace(exec, op) ? exec->workspace : NULL;
}

int cuda_execute(struct cuda_exec *exec, const struct cuda_op *op)
{
	return ops[op->kind]->execute(exec, op);
}

int cuda_fail_engine(struct cuda_exec *exec, const struct cuda_op *op, int r, const char *text)
{
	return device_fail(&exec->device->base, r, "%s: %s: %s", op->node->name, op->engine, text);
}
