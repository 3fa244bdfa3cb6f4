/*
 * Attention on packed qkv, forward and backward, without a T x T matrix in memory (Dao, Fu, Ermon,
 * Rudra, Re 2022, "FlashAttention", arXiv:2205.14135): a block has a tile of queries and walks over
 * tiles of keys, keeping the largest score and the sum of exponentials of each query so far.
 *
 * 16-bit elements whose heads are whole packs of channels go through the tensor cores, with scores
 * and sums in fp32; all others through fp32 arithmetic, which is what fp32 training can have, and
 * no more than right: a multiprocessor's shared memory limits it.
 *
 * Backward computes the scores anew, twice: one kernel has the queries' gradients, walking over the
 * keys, another one the keys' and values', walking over the queries. A single one would make five
 * matrix products instead of seven, but add up the queries' gradients by atomics in any order; so
 * results repeat bit for bit.
 */
#ifndef TRAINER_DEVICE_CUDA_ATTENTION_H
#define TRAINER_DEVICE_CUDA_ATTENTION_H

#include "trainer/device/cuda/kernels/columns.h"
#include "trainer/device/cuda/step.h"
#include "trainer/device/draws.h"

#define ATTENTION_CHANNELS_MAX 64 /* of a head: what tiles have */

struct attention_arguments {
	const void *qkv; /* [n][t][3][heads][d] E */
	void *y;         /* [n][t][heads][d] E; backward reads it */
	float *log_sum;  /* [n][heads][t] of exponentials of scores; forward: or NULL */
	const void *dy;  /* [n][t][heads][d] E; backward, and the following */
	void *dqkv;      /* [n][t][3][heads][d] E */
	float *delta;    /* workspace, as log_sum */
	const struct step_arguments *step; /* has what draws depend on */
	uint32_t layer;
	struct draws_drop dropout; /* of probabilities; below 0: nothing is drawn */
	uint32_t n, t, heads, d;
	enum cuda_element element;
	float scale;    /* of scores; filled in by the launchers, as what follows */
	uint32_t tiles; /* of positions */
};

/*
 * y = softmax(q k^T / sqrt(d)) v. Reads qkv once for each tile of queries, from the caches but for
 * the first; writes y and log_sum once. -EINVAL, here and below: more than ATTENTION_CHANNELS_MAX
 * channels, or more than 2^31 blocks.
 */
int attention_forward(const struct kernel_device *device,
		      const struct attention_arguments *arguments);
/* dqkv, all of it, from what the forward pass read and wrote. Writes it once. */
int attention_backward(const struct kernel_device *device,
		       const struct attention_arguments *arguments);

#endif
