#include "format/base/random.h"

#include <assert.h>

/*
 * Constants of Philox4x32 (table 2 of the paper): two multipliers, and the Weyl sequence that
 * changes the key each round.
 */
static const uint32_t multiplier[2] = {0xD2511F53, 0xCD9E8D57};
static const uint32_t weyl[2] = {0x9E3779B9, 0xBB67AE85};

void random_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t ret_block[4])
{
	uint32_t k0 = key[0], k1 = key[1];
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];

	for (int round = 0; round < 10; round++) {
		uint64_t product0 = (uint64_t)multiplier[0] * c0;
		uint64_t product1 = (uint64_t)multiplier[1] * c2;

		c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)product1;
		c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)product0;
		k0 += weyl[0];
		k1 += weyl[1];
	}
	ret_block[0] = c0;
	ret_block[1] = c1;
	ret_block[2] = c2;
	ret_block[3] = c3;
}

void random_init(struct random_stream *stream, uint64_t seed, uint64_t epoch, uint64_t sample,
		 enum random_purpose purpose)
{
	/*
	 * Seed, epoch, sample and purpose are wider than a Philox counter. So the seed keys a first
	 * block, whose counter is epoch and purpose; two words of it key the stream, whose counter
	 * is sample and block number.
	 */
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	uint32_t name[4] = {(uint32_t)epoch, (uint32_t)(epoch >> 32), (uint32_t)purpose, 0};
	uint32_t block[4];

	random_philox(key, name, block);
	stream->key[0] = block[0];
	stream->key[1] = block[1];
	stream->counter[0] = 0;
	stream->counter[1] = 0;
	stream->counter[2] = (uint32_t)sample;
	stream->counter[3] = (uint32_t)(sample >> 32);
	stream->used = 4;
}

uint32_t random_u32(struct random_stream *stream)
{
	if (stream->used == 4) {
		random_philox(stream->key, stream->counter, stream->block);
		stream->used = 0;
		if (++stream->counter[0] == 0)
			stream->counter[1]++;
	}
	return stream->block[stream->used++];
}

float random_float(struct random_stream *stream)
{
	return (float)(random_u32(stream) >> 8) * 0x1p-24f;
}

uint32_t random_below(struct random_stream *stream, uint32_t bound)
{
	assert(bound > 0);
	/*
	 * Lemire, "Fast Random Integer Generation in an Interval" (2019): reject the few products
	 * that would bias.
	 */
	uint64_t product = (uint64_t)random_u32(stream) * bound;

	if ((uint32_t)product < bound) {
		uint32_t threshold = (0 - bound) % bound;

		while ((uint32_t)product < threshold)
			product = (uint64_t)random_u32(stream) * bound;
	}
	return (uint32_t)(product >> 32);
}
