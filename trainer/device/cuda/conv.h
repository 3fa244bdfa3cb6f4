/*
 * Interface to engines for fused convolutions and for matrix products: a problem describes an
 * operation, a plan executes it. cudnn/ plans convolutions with cuDNN's backend graph API;
 * tests/gpu/emulation/conv.c computes every pattern directly on the host, as the reference.
 *
 * All tensors are dense: activations in NHWC, weights in KRSC. x is [n][h][w][c], w is [k][r][s][c
 * / groups], y is [n][p][q][k]. Arithmetic is fp32, except that some of cuDNN's unfused engines
 * accumulate in lower precision (cudnn/README.md). A prologue's result is rounded to the problem's
 * element type, as tensor cores require, and is zero in the padding. An epilogue uses the unrounded
 * result; each tensor that it stores is rounded once, to that tensor's element type.
 */
#ifndef TRAINER_DEVICE_CUDA_CONV_H
#define TRAINER_DEVICE_CUDA_CONV_H

#include "trainer/device/cuda/gpu.h"
#include "trainer/device/ops.h"

enum cuda_element { CUDA_F32 = 0, CUDA_F16 = 1, CUDA_BF16 = 2 };

static inline uint32_t cuda_element_size(enum cuda_element element)
{
	return element == CUDA_F32 ? 4 : 2;
}

enum conv_direction {
	CONV_FORWARD, /* y = conv(x', w) */
	CONV_DATA,    /* dx = conv transposed(dy, w) */
	CONV_WEIGHTS, /* dw = sum over positions of dy x' */
};

/*
 * How x is transformed into x', the operand of CONV_FORWARD and CONV_WEIGHTS, while it is loaded.
 * All vectors are per channel of x and have the problem's element type.
 */
enum conv_prologue {
	CONV_PLAIN,           /* x */
	CONV_SCALE_BIAS_RELU, /* relu(scale x + bias) */
	/* relu(scale x + bias + residual); forward only; also stored in `activated` */
	CONV_SCALE_BIAS_ADD_RELU,
	/*
	 * relu(scale x + bias + scale2 residual + bias2); forward only; also stored in `activated`
	 */
	CONV_DUAL_SCALE_BIAS_ADD_RELU,
};

/* How the result is transformed before it is stored. */
enum conv_epilogue {
	CONV_STORE,
	/*
	 * forward: also the sums of y and of y^2 per channel, sum[k] and squares[k], in fp32; the
	 * engine decides whether y is rounded first
	 */
	CONV_STATISTICS,
	CONV_BIAS, /* forward: y = activation(y [+ residual_y] + bias_k); for evaluation */
	CONV_ADD,  /* data: dx + residual */
	/*
	 * data: continues into the gradient of relu(batch norm(raw) [+ shortcut]), which produced
	 * x. With g = dx [+ residual] and M = n h w, stores instead of dx
	 * - dz = g where gamma (raw - mean) deviation + beta [+ shortcut] > 0, else 0
	 * and computes, in fp32 [c],
	 * - dbeta = sum of dz; dgamma = sum of dz (raw - mean) deviation
	 * - a = gamma deviation
	 * - b = -a deviation dgamma / M
	 * - c = -a dbeta / M - b mean
	 * The gradient of raw is then a dz + b raw + c. cuDNN 9.19 has this in fp16 only, and with
	 * a residual or shortcut only for stride 1.
	 */
	CONV_RELU_NORM,
};

/*
 * CONV_RELU_NORM at the end of a residual block: the tensor that was added to the norm before the
 * ReLU. Its gradient is also dz.
 */
enum conv_shortcut {
	CONV_NO_SHORTCUT,
	CONV_SHORTCUT, /* the tensor `shortcut` */
	/*
	 * the norm of raw2, gamma2 (raw2 - mean2) deviation2 + beta2, for which dgamma2, dbeta2,
	 * a2, b2 and d2 are computed, too
	 */
	CONV_SHORTCUT_NORM,
};

/* All parameters of a plan; comparable with memcmp after conv_problem_init(). */
struct conv_problem {
	enum conv_direction direction;
	enum conv_prologue prologue;
	enum conv_epilogue epilogue;
	enum device_activation activation; /* activation of CONV_BIAS; sigmoid is not supported */
	/*
	 * CONV_BIAS adds a residual to the result, CONV_RELU_NORM to the gradient before the ReLU.
	 * CONV_ADD always adds one, without this flag
	 */
	bool residual;
	enum conv_shortcut shortcut; /* of CONV_RELU_NORM */
	bool deterministic;          /* use only bitwise reproducible engines */
	enum cuda_element element;   /* element type of x, w, y, dx, dy and prologue vectors */
	enum cuda_element gradient;  /* element type of dw; cuDNN only has `element` */
	uint32_t n, h, w, c;         /* shape of x */
	uint32_t k, r, s;
	uint32_t groups; /* divides c and k */
	uint32_t stride, pad;
	uint32_t pad_extra; /* additional padding at the bottom and right */
	uint32_t p, q;      /* height and width of y */
};

/* Zeroes the structure, including its padding bytes, and sets groups to 1. */
void conv_problem_init(struct conv_problem *problem);
/* Channels of w in each group. */
uint32_t conv_weight_channels(const struct conv_problem *problem);
/* -EINVAL if sizes are inconsistent or the direction lacks the prologue or epilogue. */
int conv_problem_check(const struct conv_problem *problem);
/*
 * Writes a name such as "forward 3x3/2 64>128 56x56 n256 f16 scale-bias-relu statistics" to
 * ret_text [size].
 */
void conv_problem_name(const struct conv_problem *problem, char *ret_text, size_t size);
double conv_problem_flops(const struct conv_problem *problem); /* multiply and add count as two */
/* Lower bound of bytes moved: every operand once. */
uint64_t conv_problem_bytes(const struct conv_problem *problem);

/* Device pointers of one execution. Those that the problem does not use are NULL. */
struct conv_arguments {
	void *x, *w, *y;            /* dx, dw or dy where the direction has these */
	const void *scale, *bias;   /* [c] of element: prologue */
	const void *scale2, *bias2; /* [c] of element: dual prologue */
	const void *residual;       /* shape of x for prologues, of the result for epilogues */
	void *activated;            /* [n][h][w][c]: x', if the prologue stores it */
	/* [k] of element: CONV_BIAS; fp32 would restrict cuDNN to engines compiled at run time */
	const void *channel_bias;
	float *sum, *squares; /* [k] CONV_STATISTICS */
	const void *raw;      /* [n][h][w][c] CONV_RELU_NORM */
	/* [c] CONV_RELU_NORM; deviation = 1 / sqrt(variance + epsilon) */
	const float *mean, *deviation, *gamma, *beta;
	float *dgamma, *dbeta, *a, *b, *d; /* [c] CONV_RELU_NORM; d is the c of its formula */
	const void *shortcut;              /* [n][h][w][c] CONV_SHORTCUT */
	const void *raw2;                  /* [n][h][w][c] CONV_SHORTCUT_NORM, as all below */
	const float *mean2, *deviation2, *gamma2, *beta2;
	float *dgamma2, *dbeta2, *a2, *b2, *d2;
	void *workspace;
};

#define CONV_ALIGNMENT 16 /* bytes; plans assume this alignment of every pointer */

/*
 * Returns the name of the first pointer that the problem needs and `arguments` lacks or has
 * misaligned; NULL if none. Does not check the workspace.
 */
const char *conv_arguments_missing(const struct conv_problem *problem,
				   const struct conv_arguments *arguments);

struct conv_plan; /* defined by each implementation */

struct conv_plan_info {
	char engine[64]; /* name for logs: "cudnn 57 (compiled at run time)" */
	uint64_t workspace_bytes;
	bool deterministic;
	float tuned_ms; /* time measured by autotuning; 0 if not timed */
};

/* An implementation. */
struct conv_engines {
	void *state;
	/*
	 * Returns the best plan. -ENOENT if the pattern has none at this shape or was refused; the
	 * caller then runs it unfused.
	 */
	int (*plan)(void *state, const struct conv_problem *problem, struct conv_plan **ret_plan);
	void (*plan_info)(const struct conv_plan *plan, struct conv_plan_info *ret_info);
	void (*plan_free)(struct conv_plan *plan); /* accepts NULL */
	/* Queues an execution; can be captured. */
	int (*execute)(void *state, struct conv_plan *plan, const struct conv_arguments *arguments,
		       gpu_stream stream);
	/*
	 * Times all plans on the device, unless the cache already has a result, and caches the
	 * fastest, which plan() then returns. NULL if not supported.
	 */
	int (*tune)(void *state, const struct conv_problem *problem,
		    const struct conv_arguments *arguments, uint64_t workspace_bytes,
		    gpu_stream stream);
	/*
	 * Makes plan() return -ENOENT for the problem from now on, because its unfused parts, which
	 * take `ms`, are faster. The result is cached as well. NULL if not supported.
	 */
	int (*refuse)(void *state, const struct conv_problem *problem, float ms);
	/*
	 * Returns the reason why the last result could not be written to the cache file (this
	 * process still uses the result), or "" if it was written. NULL if there is no cache.
	 */
	const char *(*cache_error)(void *state);
	/* GPU model and library versions for which results of tune() are valid. */
	const char *key;
	/*
	 * Serializes all results of tune() and refuse() for import_tuning(). The caller frees the
	 * bytes. -ENOMEM.
	 */
	int (*export_tuning)(void *state, char **ret_bytes, size_t *ret_size);
	/*
	 * Imports export_tuning() of another process with the same key. Its results replace this
	 * process's for the same problems; refusals that it lacks are dropped. -EBADMSG, -ENOMEM.
	 */
	int (*import_tuning)(void *state, const char *bytes, size_t size);
	const char *(*error)(void *state); /* text of the last failure */
};

/*
 * Matrix products for linear layers, row-major: d [rows][columns] = a b.
 * - a is [rows][inner], or [inner][rows] with transposed_a (weight gradients)
 * - b is [inner][columns], or [columns][inner] with transposed_b (a layer's weights, forward)
 */
struct matmul_problem {
	uint32_t rows, columns, inner;
	bool transposed_a, transposed_b;
	/* add a bias [columns] of the type of d, the only one that cuBLASLt accepts */
	bool bias;
	bool residual;             /* add a residual [rows][columns] of the type of d */
	enum cuda_element element; /* element type of a and b */
	enum cuda_element result;  /* element type of d */
};

/* Zeroes the structure, including its padding bytes. */
void matmul_problem_init(struct matmul_problem *problem);
/* Writes a name such as "matmul 256x1000 of 2048 f16 transposed-b bias" to ret_text [size]. */
void matmul_problem_name(const struct matmul_problem *problem, char *ret_text, size_t size);

struct matmul_arguments {
	const void *a, *b, *bias;
	const void *residual; /* may be d */
	void *d;
	void *workspace;
};

struct matmul_plan;

struct matmul_engines {
	void *state;
	int (*plan)(void *state, const struct matmul_problem *problem,
		    struct matmul_plan **ret_plan);
	void (*plan_info)(const struct matmul_plan *plan, struct conv_plan_info *ret_info);
	void (*plan_free)(struct matmul_plan *plan);
	int (*execute)(void *state, struct matmul_plan *plan,
		       const struct matmul_arguments *arguments, gpu_stream stream);
	const char *(*error)(void *state);
};

#endif
