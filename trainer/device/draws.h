/*
 * Random draws of operations in training, for both backends: a draw is a word of Philox4x32-10 that
 * depends on nothing but the seed, the number of the update, the layer, the sample's place in the
 * global batch and the element's in its sample. So it is the same on every device, however a batch
 * is divided among ranks and micro-batches, and the backward pass draws again what the forward pass
 * drew instead of reading it. Sources are compiled with the flags of those who include them.
 *
 * For C and CUDA C.
 */
#ifndef TRAINER_DEVICE_DRAWS_H
#define TRAINER_DEVICE_DRAWS_H

#include "format/base/philox.h"
#include "trainer/device/device.h"

/* Of one layer in one step. */
struct draws_key {
	uint32_t key[2];
};

/* What happens with a probability: an element or a sample is dropped, the others grow. */
struct draws_drop {
	uint32_t below; /* words below it: probability * 2^32 */
	float kept;     /* 1 / (1 - probability) */
};

PHILOX_INLINE struct draws_key draws_key(const struct device_draws *draws, uint32_t layer)
{
	struct philox_block counter = {(uint32_t)draws->step, (uint32_t)(draws->step >> 32), layer,
				       0};
	struct philox_block block =
		philox((uint32_t)draws->seed, (uint32_t)(draws->seed >> 32), counter);
	struct draws_key key = {{block.a, block.b}};

	return key;
}

/* Four elements of a sample, from 4 * quad on. */
PHILOX_INLINE struct philox_block draws_quad(struct draws_key key, uint32_t sample, uint32_t quad)
{
	struct philox_block counter = {quad, 0, sample, 0};

	return philox(key.key[0], key.key[1], counter);
}

/*
 * Where the words begin of a query of a head, one for each of t keys: every query begins a quad, so
 * that rows of scores are drawn alike wherever they are cut.
 */
PHILOX_INLINE uint32_t draws_query(uint32_t head, uint32_t query, uint32_t t)
{
	return (head * t + query) * ((t + 3) / 4);
}

/* A word for the whole sample. */
PHILOX_INLINE uint32_t draws_sample(struct draws_key key, uint32_t sample)
{
	struct philox_block counter = {0, 0, sample, 1};

	return philox(key.key[0], key.key[1], counter).a;
}

/* probability: 0 to below 1. */
static inline struct draws_drop draws_drop(float probability)
{
	struct draws_drop drop = {(uint32_t)((double)probability * 4294967296.0),
				  1 / (1 - probability)};

	return drop;
}

PHILOX_INLINE float draws_factor(struct draws_drop drop, uint32_t word)
{
	return word < drop.below ? 0 : drop.kept;
}

#endif
