#include "format/base/random.h"
#include "format/base/philox.h"

#include <assert.h>

void random_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t ret_block[4])
{
	struct philox_block block =
		philox(key[0], key[1],
		       (struct philox_block){counter[0], counter[1], counter[2], counter[3]});

	ret_block[0] = block.a;
	ret_block[1] = block.b;
	ret_block[2] = block.c;
	ret_block[3] = block.d;
}

void random_init(struct random_stream *stream, uint64_t seed, uint64_t epoch, uint64_t sample,
		 enum random_purpose purpose)
{
	/*
	 * Seed, epoch, sample and purpose do not fit a Philox counter. So a first block has the
	 * seed as key, and epoch and purpose as counter. Two of its words are the key of the
	 * stream, whose counter is sample and block number.
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
	 * Lemire, "Fast Random Integer Generation in an Interval" (2019): rejects the few products
	 * that would cause a bias.
	 */
	uint64_t product = (uint64_t)random_u32(stream) * bound;

	if ((uint32_t)product < bound) {
		uint32_t threshold = (0 - bound) % bound;

		while ((uint32_t)product < threshold)
			product = (uint64_t)random_u32(stream) * bound;
	}
	return (uint32_t)(product >> 32);
}
