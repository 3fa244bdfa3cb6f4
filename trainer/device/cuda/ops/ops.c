/* The table of ops.h. */
#include "trainer/device/cuda/lowering/program.h"

#define X        CUDA_BIT(CUDA_X)
#define W        CUDA_BIT(CUDA_W)
#define Y        CUDA_BIT(CUDA_Y)
#define DX       CUDA_BIT(CUDA_DX)
#define DY       CUDA_BIT(CUDA_DY)
#define DZ       CUDA_BIT(CUDA_DZ)
#define DW       CUDA_BIT(CUDA_DW)
#define INDEX    CUDA_BIT(CUDA_INDEX)
#define SUMS     (CUDA_BIT(CUDA_SUM) | CUDA_BIT(CUDA_SQUARES))
#define SUMS2    (CUDA_BIT(CUDA_SUM2) | CUDA_BIT(CUDA_SQUARES2))
#define AFFINE   (CUDA_BIT(CUDA_SCALE) | CUDA_BIT(CUDA_BIAS))
#define AFFINE16 (CUDA_BIT(CUDA_SCALE16) | CUDA_BIT(CUDA_BIAS16))
#define BATCH    (CUDA_BIT(CUDA_MEAN) | CUDA_BIT(CUDA_DEVIATION))
#define RUNNING  (CUDA_BIT(CUDA_RUNNING_MEAN) | CUDA_BIT(CUDA_RUNNING_VAR))
#define GAMMA    CUDA_BIT(CUDA_GAMMA)
#define BETA     CUDA_BIT(CUDA_BETA)
#define ABC      (CUDA_BIT(CUDA_A) | CUDA_BIT(CUDA_B) | CUDA_BIT(CUDA_C))
#define ABC2     (CUDA_BIT(CUDA_A2) | CUDA_BIT(CUDA_B2) | CUDA_BIT(CUDA_C2))
#define BESIDE   (CUDA_BIT(CUDA_WORKSPACE) | CUDA_BIT(CUDA_ADDEND) | CUDA_BIT(CUDA_ACTIVATED))

static const struct cuda_op_def operations[CUDA_OP_KINDS] = {
#define OPERATION(kind, executor, ...) [CUDA_OP_##kind] = {__VA_ARGS__},
#include "trainer/device/cuda/ops/ops.h"
#undef OPERATION
};

/* Convolutions and matrix products have the same operand roles, by direction. */
static const struct cuda_op_def forward = {"",         X | W, Y, BESIDE | SUMS, .product = true,
					   .passes = 1};
static const struct cuda_op_def data = {
	"", DY | W, DX, BESIDE | SUMS | ABC | SUMS2 | ABC2, .product = true, .passes = 1};
static const struct cuda_op_def weights = {"", DY, DW, BESIDE, .product = true, .passes = 1};

const char *cuda_op_name(enum cuda_op_kind kind)
{
	return operations[kind].name;
}

enum cuda_op_kind cuda_op_of(enum device_node_kind kind, bool backward)
{
	int i = 0;

	while (i < CUDA_OP_KINDS &&
	       (backward ? operations[i].backward_of : operations[i].forward_of) != kind)
		i++;
	return (enum cuda_op_kind)i;
}

uint64_t cuda_op_roles(enum cuda_op_kind kind)
{
	return operations[kind].reads | operations[kind].may_read | operations[kind].writes |
	       operations[kind].may_write;
}

const struct cuda_op_def *cuda_op_def(const struct cuda_op *op)
{
	if (!operations[op->kind].product)
		return &operations[op->kind];
	return op->operands[CUDA_DW] ? &weights : op->operands[CUDA_DX] ? &data : &forward;
}

bool cuda_op_writes(const struct cuda_op *op, enum cuda_role role)
{
	const struct cuda_op_def *operation = cuda_op_def(op);

	return op->operands[role] && ((operation->writes | operation->may_write) & CUDA_BIT(role));
}
