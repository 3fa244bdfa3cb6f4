/* What each kind of operation is: its name, what it reads and writes, and what sets it apart. */
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

static const struct cuda_operation operations[CUDA_OP_KINDS] = {
	[CUDA_OP_INPUT] = {"input", 0, Y},
	[CUDA_OP_CONV] = {"conv", .product = true},
	[CUDA_OP_STATISTICS] = {"statistics", X, SUMS, .sums = CUDA_BIT(CUDA_X)},
	[CUDA_OP_NORM_FINALIZE] = {"norm finalize", SUMS | GAMMA | BETA, BATCH | AFFINE | RUNNING,
				   AFFINE16, .moves = RUNNING, .minor = true},
	[CUDA_OP_NORM_RUNNING] = {"norm running", RUNNING | GAMMA | BETA, AFFINE, AFFINE16,
				  .minor = true, .constant = true},
	[CUDA_OP_FOLD] = {"fold", W, CUDA_BIT(CUDA_W16), CUDA_BIT(CUDA_BIAS), .constant = true},
	[CUDA_OP_APPLY] = {"apply", X, Y, .elementwise = true},
	[CUDA_OP_ACTIVATION_BACKWARD] = {"activation backward", DY, DZ, .elementwise = true},
	[CUDA_OP_NORM_REDUCE] = {"norm reduce", DY | X | BATCH, SUMS, DZ, .sums = DY,
				 .elementwise = true},
	[CUDA_OP_NORM_BACKWARD_FINALIZE] = {"norm backward finalize", SUMS | GAMMA | BATCH, 0,
					    CUDA_BIT(CUDA_DGAMMA) | CUDA_BIT(CUDA_DBETA) | ABC,
					    .minor = true},
	[CUDA_OP_NORM_BACKWARD_APPLY] = {"norm backward apply", DZ | X | ABC, DX,
					 .elementwise = true},
	[CUDA_OP_ADD] = {"add", X | CUDA_BIT(CUDA_RESIDUAL), Y, .elementwise = true},
	[CUDA_OP_BIAS_GRADIENT] = {"bias gradient", DY, CUDA_BIT(CUDA_DBIAS), .sums = DY,
				   .minor = true},
	[CUDA_OP_WEIGHT_GRADIENT] = {"weight gradient", X, DW, .minor = true},
	[CUDA_OP_MAX_POOL] = {"max pool", X, Y, INDEX},
	[CUDA_OP_MAX_POOL_BACKWARD] = {"max pool backward", DY | INDEX, DX},
	[CUDA_OP_MAX_POOL_NORM_REDUCE] = {"max pool norm reduce", DY | INDEX | X | BATCH | AFFINE,
					  SUMS, .sums = DY},
	[CUDA_OP_MAX_POOL_NORM_APPLY] = {"max pool norm apply", DY | INDEX | X | AFFINE | ABC, DX},
	[CUDA_OP_AVERAGE_POOL] = {"average pool", X, Y},
	[CUDA_OP_AVERAGE_POOL_BACKWARD] = {"average pool backward", DY, DX},
	[CUDA_OP_GLOBAL_AVERAGE] = {"global average", X, Y},
	[CUDA_OP_GLOBAL_AVERAGE_BACKWARD] = {"global average backward", DY, DX},
	[CUDA_OP_GLOBAL_MAX] = {"global max", X, Y, INDEX},
	[CUDA_OP_GLOBAL_MAX_BACKWARD] = {"global max backward", DY | INDEX, DX},
	[CUDA_OP_MATMUL] = {"matmul", .product = true},
	[CUDA_OP_LOSS] = {"loss", X, 0, DX},
};

/* Convolutions and matrix products share the roles of their operands, by direction. */
static const struct cuda_operation forward = {"", X | W, Y, BESIDE | SUMS, .product = true};
static const struct cuda_operation data = {"", DY | W, DX, BESIDE | SUMS | ABC | SUMS2 | ABC2,
					   .product = true};
static const struct cuda_operation weights = {"", DY, DW, BESIDE, .product = true};

const char *cuda_op_name(enum cuda_op_kind kind)
{
	return operations[kind].name;
}

const struct cuda_operation *cuda_op_operation(const struct cuda_op *op)
{
	if (!operations[op->kind].product)
		return &operations[op->kind];
	return op->operands[CUDA_DW] ? &weights : op->operands[CUDA_DX] ? &data : &forward;
}

bool cuda_op_writes(const struct cuda_op *op, enum cuda_role role)
{
	const struct cuda_operation *operation = cuda_op_operation(op);

	return op->operands[role] && ((operation->writes | operation->may_write) & CUDA_BIT(role));
}
