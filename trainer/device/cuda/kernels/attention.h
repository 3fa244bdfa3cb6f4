/*
 * Attention on packed qkv, forward and backward, without a T x T matrix in memory (Dao, Fu, Ermon,
 * Rudra, Re 2022, "FlashAttention", arXiv:2205.14135). A block handles a tile of queries and
 * iterates over tiles of keys, keeping the running maximum score and sum of exponentials of each
 * query.
 *
 * Tensor cores are used for 16-bit elements if the head dimension is a multiple of a pack (8
 * channels); scores and sums are fp32. All other cases use fp32 arithmetic without tensor cores, as
 * fp32 training requires; that path is not optimized and is limited by shared memory bandwidth.
 *
 * Backward has two kernels, both of which recompute the scores: one iterates over keys and computes
 * the gradients of queries, the other iterates over queries and computes those of keys and values.
 * A single kernel would need five matrix products instead of seven, but would accumulate the
 * gradients of queries by atomics in arbitrary order. Two kernels are bitwise reproducible.
 */
#ifndef TRAINER_DEVICE_CUDA_ATTENTION_H
#define TRAINER_DEVICE_CUDA_ATTENTION_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/cuda/step.h"
#include "trainer/device/dropout_rng.h"

#define ATTENTION_CHANNELS_MAX 64 /* maximum channels per head */

struct attention_arguments {
	const void *qkv; /* [n][t][3][heads][d] E */
	void *y;         /* [n][t][heads][d] E; backward reads it */
	float *log_sum;  /* [n][heads][t] log-sum-exp of scores; NULL allowed in forward */
	const void *dy;  /* [n][t][heads][d] E; backward only, like dqkv and delta */
	void *dqkv;      /* [n][t][3][heads][d] E */
	float *delta;    /* workspace, shaped as log_sum */
	const struct step_arguments *step; /* contains the seed and the step number of dropout */
	uint32_t layer;
	struct dropout_rate dropout; /* dropout of attention weights; none if `below` is 0 */
	uint32_t first_head;         /* number of the first head in the whole layer, for draws */
	uint32_t n, t, heads, d;
	enum cuda_element element;
	float scale;    /* factor on the scores; set by the launchers, like `tiles` */
	uint32_t tiles; /* number of tiles of positions */
};

/*
 * y = softmax(q k^T / sqrt(d)) v. Reads qkv once per tile of queries, mostly from caches; writes y
 * and log_sum once. Both functions return -EINVAL for more than ATTENTION_CHANNELS_MAX channels or
 * for 2^31 blocks or more.
 */
int attention_forward(const struct kernel_device *device,
		      const struct attention_arguments *arguments);
/* Computes all of dqkv from the operands of the forward pass. Writes it once. */
int attention_backward(const struct kernel_device *device,
		       const struct attention_arguments *arguments);

#endif
