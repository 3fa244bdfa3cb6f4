/*
 * A program: a recorded graph as a list of operations for the GPU, with all tensors that they use
 * and the lifetimes of these.
 *
 * program_new() lowers the nodes of a device_graph to operations in execution order, forward and,
 * for training, backward. The fusion level decides which patterns it tries. It does not access a
 * GPU: it asks the engines whether a fused pattern has a plan, and lowers a pattern without a plan
 * to unfused operations. So the trainer, `trainer --plan` and tests on the host get the same
 * program. Operands are named by role, so that one implementation derives lifetimes, bytes moved
 * and checks (read before written, overlapping tensors) for all kinds of operations.
 *
 * Gradients of activations are multiplied by the loss scale. So are those of parameters, until the
 * update divides by it.
 */
#pragma once

#include "trainer/device/arena.h"
#include "trainer/device/backend.h"
#include "trainer/device/cuda/conv.h"
#include "trainer/device/cuda/ops/ops.h"

enum cuda_op_kind {
#define OP(kind, name) CUDA_OP_##kind,
	CUDA_OPS(OP) CUDA_OP_KINDS,
#undef OP
};

#define CUDA_GRADIENT_BATCH_MAX 16 /* weight gradients per launch */

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
	/* read or written, depending on the kind */
	CUDA_Y,
	CUDA_SCALE,
	CUDA_BIAS,
	CUDA_SCALE16,
	CUDA_BIAS16,
	CUDA_SCALE2,
	CUDA_BIAS2,
	CUDA_MEAN,
	CUDA_DEVIATION,
	/*
	 * per channel. Forward: sum of x, sum of x x; backward: sum of dz, which is dbeta, sum of
	 * dz xhat, which is dgamma
	 */
	CUDA_SUM,
	CUDA_PRODUCTS,
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
	CUDA_PRODUCTS2,
	CUDA_A2,
	CUDA_B2,
	CUDA_C2,
	/*
	 * fp32, with the shape of DW. Libraries' plans for CONV and MATMUL store but do not
	 * accumulate. In a step that accumulates, they store here instead of in DW, and the kernel
	 * of WEIGHT_GRADIENT then adds this tensor to DW.
	 */
	CUDA_ADDEND,
	CUDA_ROLES,
};

#define CUDA_BIT(role) ((uint64_t)1 << (role))

struct cuda_exec;
struct cuda_op;

/*
 * The definition of a kind of operation: the object cuda_NAME_op in the kind's file of ops/. For
 * convolutions and matrix products, cuda_op_def() returns a definition that also has the operands
 * of their direction.
 */
struct cuda_op_def {
	const char *name;
	/*
	 * bit masks of roles. reads, writes: operands that are always present (in fused
	 * convolutions, unless the fused part is absent); may_read, may_write: optional operands
	 */
	uint64_t reads, writes;
	uint64_t may_read, may_write;
	uint64_t moves;    /* written roles that are also read: updated in place */
	bool elementwise;  /* all tensors have the same size */
	bool product;      /* a convolution or matrix product, with a library's plan */
	unsigned passes;   /* FLOPs of the operation divided by device_node_flops() */
	bool across_ranks; /* reads SUM and PRODUCTS, which a synchronized norm all-reduces before
			    */
	bool minor;        /* works on vectors or a parameter's gradient: not shown in --plan */
	/*
	 * evaluation: the result depends only on the store, so it is computed once and kept until
	 * the store changes; it shares no memory with other tensors
	 */
	bool constant;
	/* Queues the operation. */
	int (*execute)(struct cuda_exec *exec, const struct cuda_op *op);
	/* Bytes of exec->workspace that its kernels need; NULL if they need none. */
	uint64_t (*workspace)(const struct cuda_exec *exec, const struct cuda_op *op);
};

#define OP(kind, name) extern const struct cuda_op_def cuda_##name##_op;
CUDA_OPS(OP)
#undef OP

enum cuda_storage {
	CUDA_IN_ARENA,     /* tensors with disjoint lifetimes share memory */
	CUDA_IN_PARAMETER, /* a slot of a parameter, fp32 */
	/*
	 * a copy of a parameter's value in the program's element type, zero-padded to the channels
	 * of the tensor's shape; in fp32 without padding, the value itself
	 */
	CUDA_IN_WEIGHTS,
	/* a weight in its bucket, which GATHER fills; in the program's element type, not padded */
	CUDA_IN_BUCKET,
};

struct cuda_tensor {
	char name[DEVICE_NAME_MAX]; /* "layer1.0.conv1 raw" */
	enum cuda_storage storage;
	struct device_shape shape; /* vectors are {1, 1, 1, K}; weights {K, R, S, C padded} */
	uint32_t element_bytes;
	enum cuda_element element; /* not for indices and workspaces */
	/*
	 * the value whose data or, with `gradient`, whose complete gradient this tensor holds; NULL
	 * for other tensors. Channels may be zero-padded
	 */
	const struct device_value *value;
	bool gradient; /* the tensor holds the gradient of `value` */
	/*
	 * gradient of an output of the graph, set by device_value_write() instead of by an
	 * operation; initially zeros
	 */
	bool grad_output;
	struct device_param *param; /* unless CUDA_IN_ARENA, but for a padded weight (below) */
	enum device_slot slot;      /* CUDA_IN_PARAMETER */
	uint64_t bytes;
	uint32_t first, last; /* first and last operation that use it; only in the arena */
	/* second lifetime of a recomputed tensor (recompute.c); second_first is 0 if there is none
	 */
	uint32_t second_first, second_last;
	uint32_t block;             /* index of its block in the arena */
	bool kept;                  /* readable after a step */
	struct cuda_tensor *bucket; /* CUDA_IN_BUCKET: that bucket, which is in the arena */
	/* PAD's result: the weight, CUDA_IN_BUCKET, of which this is a copy with more channels */
	struct cuda_tensor *unpadded;
	/*
	 * address, set when the graph is planned; NULL for parameters, whose address is looked up
	 * at each step, because evaluation may read other slots
	 */
	void *data;
};

struct cuda_op {
	enum cuda_op_kind kind;
	const struct device_node *node;
	bool backward;
	bool recomputed; /* a forward operation repeated in backward, with the same plan
			    (recompute.c) */
	struct cuda_tensor *operands[CUDA_ROLES];
	uint64_t written; /* bit mask of roles; see cuda_op_writes() */
	/*
	 * subset of `written`: gradients of parameters that an earlier operation of the program has
	 * written, so that this operation always accumulates
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
			bool sums; /* the result, of this rank's part, is summed over the group */
		} matmul;
		struct {
			/*
			 * WEIGHT_GRADIENT: number of consecutive operations that are launched
			 * together, counted from this one; 0 if the launch of an earlier operation
			 * includes this one
			 */
			uint32_t launched;
		} batch;
		struct {
			uint32_t bucket; /* index into device_shards.buckets */
		} gather;
		struct {
			uint64_t rows; /* n h w, for sums over rows */
			enum device_activation activation;
		} norm; /* also for elementwise operations */
	};
	char engine[96];          /* name for logs */
	uint64_t workspace_bytes; /* required by the plan; all operations share one workspace */
	double flops;
	uint64_t bytes; /* lower bound of bytes moved */
};

struct cuda_program {
	const struct device_graph *graph;
	enum device_fusion fusion;
	enum cuda_element element;
	const struct conv_engines *conv; /* source of the plans; must outlive the program */
	const struct matmul_engines *matmul;
	struct cuda_op *ops; /* [op_count] */
	uint32_t op_count, op_capacity;
	uint32_t backward_start;      /* first backward operation; op_count if none */
	struct cuda_tensor **tensors; /* [tensor_count] */
	uint32_t tensor_count, tensor_capacity;
	struct arena arena;       /* laid out */
	uint64_t workspace_bytes; /* largest requirement of any operation */
	uint32_t fallbacks;       /* patterns of this level without a plan */
	/* one line per fallback: layer, pattern, replacement; "" if none */
	char *log;
};

struct program_options {
	enum device_fusion fusion; /* not AUTO; see program_fusion() */
	enum cuda_element element;
	bool deterministic;
	const struct conv_engines *conv;
	const struct matmul_engines *matmul;
};

/* Resolves AUTO to the level that pays off for the element. */
enum device_fusion program_fusion(enum device_fusion requested, enum cuda_element element);
/*
 * error as in device_open(). -EINVAL, -ENOMEM; -ENOTSUP for a node that the backend cannot lower.
 */
int program_new(const struct device_graph *graph, const struct program_options *options,
		struct cuda_program **ret_program, char *error);
void program_free(struct cuda_program *program); /* also frees plans; accepts NULL */
/* Fills in memory, FLOPs, bytes and fallbacks for device_graph_info(). */
void program_info(const struct cuda_program *program, struct device_graph_info *info);
/*
 * Returns the definition of the operation's kind; for convolutions and matrix products, of kind and
 * direction.
 */
const struct cuda_op_def *cuda_op_def(const struct cuda_op *op);
/* True if evaluation may skip it (cuda_op_def.constant): not if it reads a gathered weight. */
bool cuda_op_is_constant(const struct cuda_op *op);
/* True if the operation writes its operand of that role. */
bool cuda_op_writes(const struct cuda_op *op, enum cuda_role role);
const char *cuda_op_name(enum cuda_op_kind kind);
/* Bit mask of the roles that the kind may have. */
uint64_t cuda_op_roles(enum cuda_op_kind kind);
