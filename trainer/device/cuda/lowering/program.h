/*
 * A recorded graph as the list of operations that the GPU executes, with every tensor they use and
 * its lifetime.
 *
 * program_new() lowers the nodes of a device_graph to operations, at a level of fusion, forward
 * and, for training, backward, in the order of execution. It touches no GPU: it asks the engines
 * whether a fused pattern has a plan, and lowers those without one to unfused operations. So the
 * same program serves the trainer, `trainer --plan`, and the tests on the host. Operands are named
 * by role, so that lifetimes, bytes moved and checks (read before written, two tensors in one
 * place) need to know nothing of the operations.
 *
 * Gradients of activations carry the loss scale; those of parameters too, until the update takes it
 * out.
 */
#pragma once

#include "trainer/device/arena.h"
#include "trainer/device/backend.h"
#include "trainer/device/cuda/conv.h"

/* What each of them does says operations.h. */
enum cuda_op_kind {
#define OPERATION(kind, ...) CUDA_OP_##kind,
#include "trainer/device/cuda/lowering/operations.h"
#undef OPERATION
	CUDA_OP_KINDS,
};

#define CUDA_GATHERED_MAX 16 /* weight gradients of one launch */

enum cuda_role {
	/* read */
	CUDA_X,
	CUDA_W,
	CUDA_DY,
	CUDA_DY2,
	CUDA_RESIDUAL,
	CUDA_GATE,
	CUDA_PRESCALE,
	CUDA_PREBIAS,
	CUDA_PRESCALE2,
	CUDA_PREBIAS2,
	CUDA_CHANNEL_BIAS,
	CUDA_RAW,
	CUDA_GAMMA,
	CUDA_BETA,
	CUDA_SHORTCUT,
	CUDA_RAW2,
	CUDA_MEAN2,
	CUDA_DEVIATION2,
	CUDA_GAMMA2,
	CUDA_BETA2,
	CUDA_POSITIONS,
	CUDA_CLASS_TOKEN,
	/* read or written, as the kind says */
	CUDA_Y,
	CUDA_SCALE,
	CUDA_BIAS,
	CUDA_SCALE16,
	CUDA_BIAS16,
	CUDA_SCALE2,
	CUDA_BIAS2,
	CUDA_MEAN,
	CUDA_DEVIATION,
	CUDA_SUM,
	CUDA_SQUARES,
	CUDA_RUNNING_MEAN,
	CUDA_RUNNING_VAR,
	CUDA_INDEX,
	CUDA_LOG_SUM,
	CUDA_A,
	CUDA_B,
	CUDA_C,
	CUDA_DW,
	CUDA_DZ,
	/* written */
	CUDA_DX,
	CUDA_ACTIVATED,
	CUDA_DGAMMA,
	CUDA_DBETA,
	CUDA_DBIAS,
	CUDA_DPOSITIONS,
	CUDA_DCLASS_TOKEN,
	CUDA_DGATE,
	CUDA_W16,
	CUDA_WORKSPACE,
	CUDA_SUM2,
	CUDA_SQUARES2,
	CUDA_A2,
	CUDA_B2,
	CUDA_C2,
	/*
	 * F, shaped as DW: CONV and MATMUL can store but not add. In a step that has to add to the
	 * gradient they store here instead of in DW, and the kernel of WEIGHT_GRADIENT adds this to
	 * DW.
	 */
	CUDA_ADDEND,
	CUDA_ROLES,
};

#define CUDA_BIT(role) ((uint64_t)1 << (role))

/*
 * A kind of operation, one row of operations.h; of convolutions and matrix products, one of each
 * direction.
 */
struct cuda_operation {
	const char *name;
	/* bits of roles. Read, written: never absent, but for parts of fused convolutions */
	uint64_t reads, writes;
	uint64_t may_write, may_read;
	uint64_t moves;    /* of these: read too, and updated in place */
	uint64_t sums;     /* the operand whose columns its kernel sums, in a workspace */
	bool elementwise;  /* its tensors are of one size */
	bool product;      /* a convolution or matrix product, with a plan of a library */
	unsigned passes;   /* FLOPs, as multiples of the node's: device_node_flops() */
	bool across_ranks; /* of a synchronized norm: takes SUM and SQUARES of all ranks */
	bool minor;        /* works on vectors or on a parameter's gradient: no word in --plan */
	/*
	 * evaluation: what it writes depends on the store alone, so that it is the same for every
	 * batch until that changes; it is then kept, not shared by lifetime
	 */
	bool constant;
	/*
	 * the kind of node whose whole forward or backward pass it is; 0 (inputs have functions of
	 * their own in lower.c): of none
	 */
	enum device_node_kind forward_of, backward_of;
};

enum cuda_storage {
	CUDA_IN_ARENA,     /* by lifetime */
	CUDA_IN_PARAMETER, /* a slot of a parameter, fp32 */
	/*
	 * a copy of a parameter's value in E, with as many channels as the tensor's shape says, 0
	 * beyond; in fp32 without further channels the value itself
	 */
	CUDA_IN_WEIGHTS,
};

struct cuda_tensor {
	char name[DEVICE_NAME_MAX]; /* "layer1.0.conv1 raw" */
	enum cuda_storage storage;
	struct device_shape shape; /* vectors are {1, 1, 1, K}; weights {K, R, S, C padded} */
	uint32_t element_bytes;
	enum cuda_element element; /* not for indices and workspaces */
	/* whose value or whole gradient this is; NULL: neither. Channels may be padded with 0 */
	const struct device_value *value;
	bool gradient; /* it is the gradient of `value` */
	/* written by device_value_write(), by no operation; zeros before */
	bool given;
	struct device_param *param; /* unless CUDA_IN_ARENA */
	enum device_slot slot;      /* CUDA_IN_PARAMETER */
	uint64_t bytes;
	uint32_t first, last; /* operations that use it; arena only */
	/* the same from when it is written anew (recompute.c); again 0: it is not */
	uint32_t again, last_again;
	uint32_t block; /* in the arena */
	bool kept;      /* readable after a step */
	/*
	 * once bound; NULL for parameters, which the store resolves at each step, as the weights in
	 * use may change
	 */
	void *data;
};

struct cuda_op {
	enum cuda_op_kind kind;
	const struct device_node *node;
	bool backward;
	bool again; /* one of forward, repeated in backward with that one's plan (recompute.c) */
	struct cuda_tensor *operands[CUDA_ROLES];
	uint64_t written; /* bits of CUDA_ROLES: see cuda_op_writes() */
	/*
	 * of these: gradients of parameters that an earlier operation of the program has written,
	 * so that this one always adds
	 */
	uint64_t adds;
	union {
		struct {
			struct conv_problem problem;
			struct conv_plan *plan;
		} conv;
		struct {
			struct matmul_problem problem;
			struct matmul_plan *plan;
		} matmul;
		struct {
			/*
			 * WEIGHT_GRADIENT: one launch does this one and those that follow, so many
			 * in all; 0: an earlier one's launch does it
			 */
			uint32_t launched;
		} gather;
		struct {
			uint64_t rows; /* n h w: of vectors' sums */
			enum device_activation activation;
		} norm; /* and everything elementwise */
	};
	char engine[96];          /* as a log names it */
	uint64_t workspace_bytes; /* that its plan asks for; all share the most */
	double flops;
	uint64_t bytes; /* least that is read and written */
};

struct cuda_program {
	const struct device_graph *graph;
	enum device_fusion fusion;
	enum cuda_element element;
	const struct conv_engines *conv; /* whose plans these are; outlive the program */
	const struct matmul_engines *matmul;
	struct cuda_op *ops; /* [op_count] */
	uint32_t op_count, op_capacity;
	uint32_t backward_start;      /* first operation of backward; op_count without one */
	struct cuda_tensor **tensors; /* [tensor_count] */
	uint32_t tensor_count, tensor_capacity;
	struct arena arena;       /* laid out */
	uint64_t workspace_bytes; /* one for all: the largest */
	uint32_t fallbacks;       /* patterns asked for at this level that had no plan */
	/* one line for each of them: layer, pattern, what is done instead; "" when none */
	char *log;
};

struct program_options {
	enum device_fusion fusion; /* not AUTO: see program_fusion() */
	enum cuda_element element;
	bool deterministic;
	const struct conv_engines *conv;
	const struct matmul_engines *matmul;
};

/* The level asked for, or, for AUTO, what pays in the element. */
enum device_fusion program_fusion(enum device_fusion asked, enum cuda_element element);
/*
 * error as in device_open. -EINVAL, -ENOMEM, -ENOTSUP: a node that the backend has no operation
 * for.
 */
int program_new(const struct device_graph *graph, const struct program_options *options,
		struct cuda_program **ret_program, char *error);
void program_free(struct cuda_program *program); /* accepts NULL; plans too */
/* What device_graph_info() tells of it: memory, FLOPs, bytes, patterns without a plan. */
void program_info(const struct cuda_program *program, struct device_graph_info *info);
const struct cuda_operation *cuda_op_operation(const struct cuda_op *op);
/* Whether the operation writes its operand of that role. */
bool cuda_op_writes(const struct cuda_op *op, enum cuda_role role);
const char *cuda_op_name(enum cuda_op_kind kind);
/* The operation that is the node's forward or backward pass; CUDA_OP_KINDS: no single one is. */
enum cuda_op_kind cuda_op_of(enum device_node_kind kind, bool backward);
/* Bits of all roles that operands of the kind can have. */
uint64_t cuda_op_roles(enum cuda_op_kind kind);
