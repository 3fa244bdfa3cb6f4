/*
 * Random draws of training operations, for both backends: a word of Philox4x32-10 that depends only
 * on the seed, the update number, the layer, the sample's position in the global batch and the
 * element's position in the sample. So draws are equal on every device and for any split into ranks
 * and micro-batches, and backward regenerates them instead of reading them from memory.
 * Header-only, for C and CUDA C; the includer's compiler flags apply.
 */
#ifndef TRAINER_DEVICE_DROPOUT_RNG_H
#define TRAINER_DEVICE_DROPOUT_RNG_H

#include "format/base/philox.h"
#include "trainer/device/steps.h"

/* Random key of one layer in one step. */
struct dropout_key {
	uint32_t key[2];
};

/* Dropout with some probability; kept elements are multiplied by `kept`. */
struct dropout_rate {
	uint32_t below; /* random words below this drop the element: probability * 2^32 */
	float kept;     /* 1 / (1 - probability) */
};

PHILOX_INLINE struct dropout_key dropout_key(const struct device_draws *draws, uint32_t layer)
{
	struct philox_block counter = {(uint32_t)draws->step, (uint32_t)(draws->step >> 32), layer,
				       0};
	struct philox_block block =
		philox((uint32_t)draws->seed, (uint32_t)(draws->seed >> 32), counter);
	struct dropout_key key = {{block.a, block.b}};

	return key;
}

/* Words for elements 4 * quad to 4 * quad + 3 of a sample. */
PHILOX_INLINE struct philox_block dropout_quad(struct dropout_key key, uint32_t sample,
					       uint32_t quad)
{
	struct philox_block counter = {quad, 0, sample, 0};

	return philox(key.key[0], key.key[1], counter);
}

/*
 * First quad of a query's attention weights, one word for each of t keys. Every query starts a new
 * quad, so draws do not depend on how rows of scores are split into blocks.
 */
PHILOX_INLINE uint32_t dropout_query(uint32_t head, uint32_t query, uint32_t t)
{
	return (head * t + query) * ((t + 3) / 4);
}

/* Returns the random word of drop-path, one per sample. */
PHILOX_INLINE uint32_t dropout_sample(struct dropout_key key, uint32_t sample)
{
	struct philox_block counter = {0, 0, sample, 1};

	return philox(key.key[0], key.key[1], counter).a;
}

/* probability in [0, 1). */
static inline struct dropout_rate dropout_rate(float probability)
{
	struct dropout_rate drop = {(uint32_t)((double)probability * 4294967296.0),
				    1 / (1 - probability)};

	return drop;
}

PHILOX_INLINE float dropout_factor(struct dropout_rate drop, uint32_t word)
{
	return word < drop.below ? 0 : drop.kept;
}

#endif
