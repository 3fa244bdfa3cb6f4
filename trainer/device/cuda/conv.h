/*
 * Fused convolutions, as problems and plans. cudnn/ plans them with cuDNN's backend graph API;
 * tests/gpu/emulation/conv.c computes them directly on the host, as the reference for every
 * pattern.
 *
 * Layouts: activations NHWC, weights KRSC, dense. x [n][h][w][c], w [k][r][s][c / groups], y
 * [n][p][q][k]. Arithmetic is fp32, except that some of cuDNN's unfused engines accumulate in lower
 * precision (cudnn/README.md). A prologue's result is rounded to the problem's element, as tensor
 * cores need it, and is zero in the padding. An epilogue works on the unrounded result; what it
 * stores is rounded once, to its element.
 */
#ifndef TRAINER_DEVICE_CUDA_CONV_H
#define TRAINER_DEVICE_CUDA_CONV_H

#include "trainer/device/cuda/gpu.h"
#include "trainer/device/device.h"

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
 * x' of CONV_FORWARD and CONV_WEIGHTS: how x is transformed when loaded. Per channel c of x;
 * vectors have the problem's element.
 */
enum conv_prologue {
	CONV_PLAIN,           /* x */
	CONV_SCALE_BIAS_RELU, /* relu(scale x + bias) */
	/* relu(scale x + bias + residual); also written to `activated` (forward only) */
	CONV_SCALE_BIAS_ADD_RELU,
	/*
	 * relu(scale x + bias + scale2 residual + bias2); also written to `activated` (forward
	 * only)
	 */
	CONV_DUAL_SCALE_BIAS_ADD_RELU,
};

/* How the result is transformed before it is stored. */
enum conv_epilogue {
	CONV_STORE,
	/*
	 * forward: sum[k], squares[k] of y in fp32, before or after rounding, depending on the
	 * engine
	 */
	CONV_STATISTICS,
	CONV_BIAS, /* forward: y = activation(y [+ residual_y] + bias_k); for evaluation */
	CONV_ADD,  /* data: dx + residual */
	/*
	 * data: with g = dx [+ residual], the gradient of relu(batch norm(raw) [+ shortcut]): dz =
	 * g where gamma (raw - mean) deviation + beta
	 * [+ shortcut] > 0, else 0, is stored instead of dx; with M = n h w, dbeta = sum dz, dgamma
	 * = sum dz (raw - mean) deviation, and the gradient of raw is a dz + b raw + c for a =
	 * gamma deviation, b = -a deviation dgamma / M, c = -a dbeta / M - b mean. All vectors fp32
	 * [c]. cuDNN 9.19 has it in fp16, with a residual or shortcut for stride 1 alone.
	 */
	CONV_RELU_NORM,
};

/*
 * CONV_RELU_NORM at the end of a residual block: what was added to the norm before its ReLU. dz is
 * also its gradient.
 */
enum conv_shortcut {
	CONV_NO_SHORTCUT,
	CONV_SHORTCUT, /* shortcut, as it was added */
	/*
	 * the norm of raw2: gamma2 (raw2 - mean2) deviation2 + beta2; also computes dgamma2,
	 * dbeta2, a2, b2, d2 for it
	 */
	CONV_SHORTCUT_NORM,
};

/* All parameters of a plan; comparable with memcmp after conv_problem_init(). */
struct conv_problem {
	enum conv_direction direction;
	enum conv_prologue prologue;
	enum conv_epilogue epilogue;
	enum device_activation activation; /* of CONV_BIAS; no sigmoid */
	/*
	 * CONV_BIAS adds a residual to the result, CONV_RELU_NORM to the gradient before the ReLU
	 */
	bool residual;
	enum conv_shortcut shortcut; /* of CONV_RELU_NORM */
	bool deterministic;          /* use only bitwise reproducible engines */
	enum cuda_element element;   /* of x, w, y, dx, dy and the prologue's vectors */
	enum cuda_element gradient;  /* of dw; cuDNN computes it in `element` only */
	uint32_t n, h, w, c;         /* of x */
	uint32_t k, r, s;
	uint32_t groups; /* divides c and k */
	uint32_t stride, pad;
	uint32_t pad_extra; /* extra padding at the bottom and right */
	uint32_t p, q;      /* of y */
};

/* Fills with zeros, padding included; groups is 1. */
void conv_problem_init(struct conv_problem *problem);
/* Channels of w in each group. */
uint32_t conv_weight_channels(const struct conv_problem *problem);
/* -EINVAL if sizes are inconsistent, or a part is not available in the direction. */
int conv_problem_check(const struct conv_problem *problem);
/* "forward 3x3/2 64>128 56x56 n256 f16 scale-bias-relu statistics"; ret_text of size bytes */
void conv_problem_name(const struct conv_problem *problem, char *ret_text, size_t size);
double conv_problem_flops(const struct conv_problem *problem); /* multiply and add count as two */
/* lower bound of bytes moved: every operand once */
uint64_t conv_problem_bytes(const struct conv_problem *problem);

/* Device pointers of one execution; the problem decides which are used, the others are NULL. */
struct conv_arguments {
	void *x, *w, *y;            /* or dx, dw, dy: of the direction */
	const void *scale, *bias;   /* [c] of element: prologue */
	const void *scale2, *bias2; /* [c] of element: dual prologue */
	const void *residual;       /* shape of x for prologues, of the result for epilogues */
	void *activated;            /* [n][h][w][c] x', if the prologue writes it */
	/*
	 * [k] of element, for CONV_BIAS; for fp32 biases cuDNN only has run-time compiled engines
	 */
	const void *channel_bias;
	float *sum, *squares; /* [k] CONV_STATISTICS */
	const void *raw;      /* [n][h][w][c] CONV_RELU_NORM */
	/* [c] CONV_RELU_NORM; deviation = 1 / sqrt(variance + epsilon) */
	const float *mean, *deviation, *gamma, *beta;
	float *dgamma, *dbeta, *a, *b, *d; /* [c] CONV_RELU_NORM; d is c in its formula */
	const void *shortcut;              /* [n][h][w][c] CONV_SHORTCUT */
	const void *raw2;                  /* [n][h][w][c] CONV_SHORTCUT_NORM, and the following */
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

struct conv_plan; /* of an engine */

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
	 * Unless the cache has a plan, times all plans on the device and caches the fastest, which
	 * plan() then returns. NULL if not supported.
	 */
	int (*tune)(void *state, const struct conv_problem *problem,
		    const struct conv_arguments *arguments, uint64_t workspace_bytes,
		    gpu_stream stream);
	/*
	 * Makes plan() return -ENOENT for the problem from now on, since the unfused version, which
	 * takes `ms`, is faster. Cached as well. NULL if not supported.
	 */
	int (*refuse)(void *state, const struct conv_problem *problem, float ms);
	/*
	 * Why the last result could not be written to the cache file (this process still uses it);
	 * "" if it was written. NULL if there is no cache.
	 */
	const char *(*cache_error)(void *state);
	/* GPU type and library versions for which results of tune() are valid. */
	const char *key;
	/*
	 * Serialises all results of tune() and refuse() for import_tuning(); free the bytes.
	 * -ENOMEM.
	 */
	int (*export_tuning)(void *state, char **ret_bytes, size_t *ret_size);
	/*
	 * Takes over export_tuning() of another process with the same key: they replace own results
	 * for the same problems, and refusals not contained in them are dropped. -EBADMSG, -ENOMEM.
	 */
	int (*import_tuning)(void *state, const char *bytes, size_t size);
	const char *(*error)(void *state); /* text of the last failure */
};

/*
 * Matrix products for linear layers, row-major: d [rows][columns] = a [rows][inner] b. b is
 * [columns][inner] with transposed_b (a layer's weights in forward), else [inner][columns]; a is
 * [inner][rows] with transposed_a (weight gradients).
 */
struct matmul_problem {
	uint32_t rows, columns, inner;
	bool transposed_a, transposed_b;
	/* add a bias [columns] of the result's element, the only type that cuBLASLt accepts */
	bool bias;
	bool residual;             /* add a residual [rows][columns] of the result's element */
	enum cuda_element element; /* of a and b */
	enum cuda_element result;  /* of d */
};

/* Fills with zeros, padding included. */
void matmul_problem_init(struct matmul_problem *problem);
/* "matmul 256x1000 of 2048 f16 transposed-b bias"; ret_text of size bytes */
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
