/*
 * Attention on packed qkv, forward and backward, without a T x T matrix in memory (Dao, Fu, Ermon,
 * Rudra, Re 2022, "FlashAttention", arXiv:2205.14135): a block handles a tile of queries and
 * iterates over tiles of keys, keeping each query's running maximum score and sum of exponentials.
 *
 * 16-bit elements whose heads are whole packs of channels use tensor cores, with scores and sums in
 * fp32. All others use plain fp32 arithmetic, as fp32 training requires; that path aims only at
 * correctness, and shared memory limits its speed.
 *
 * Backward recomputes the scores twice: one kernel iterates over keys for the queries' gradients,
 * another over queries for those of keys and values. A single kernel would need five matrix
 * products instead of seven, but would add up the queries' gradients with atomics in arbitrary
 * order; this way results are bitwise reproducible.
 */
#ifndef TRAINER_DEVICE_CUDA_ATTENTION_H
#define TRAINER_DEVICE_CUDA_ATTENTION_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/cuda/step.h"
#include "trainer/device/dropout_rng.h"

#define ATTENTION_CHANNELS_MAX 64 /* channels per head; size of the tiles */

struct attention_arguments {
	const void *qkv; /* [n][t][3][heads][d] E */
	void *y;         /* [n][t][heads][d] E; backward reads it */
	float *log_sum;  /* [n][heads][t] log-sum-exp of scores; NULL allowed in forward */
	const void *dy;  /* [n][t][heads][d] E; this and the following for backward */
	void *dqkv;      /* [n][t][3][heads][d] E */
	float *delta;    /* workspace, shaped as log_sum */
	const struct step_arguments *step; /* contains the seed and step of draws */
	uint32_t layer;
	struct dropout_rate dropout; /* dropout of attention weights; `below` is 0 for none */
	uint32_t n, t, heads, d;
	enum cuda_element element;
	float scale;    /* scale of the scores; set by the launchers, like `tiles` */
	uint32_t tiles; /* tiles of positions */
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
