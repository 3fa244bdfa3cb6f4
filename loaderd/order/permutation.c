#include "loaderd/order/permutation.h"

#include <assert.h>

/*
 * Below 2^8 points the halves of a Feistel network have too few bits for a good shuffle. Smaller
 * sets use a domain of 2^8 and cycle-walk, which costs at most 256 steps per point.
 */
enum { DOMAIN_BITS_MIN = 8 };

void permutation_init_identity(struct permutation *permutation, uint64_t count)
{
	*permutation = (struct permutation){.count = count};
}

void permutation_init(struct permutation *permutation, uint64_t count, uint64_t seed,
		      uint64_t number, uint64_t sample, enum random_purpose purpose)
{
	permutation_init_identity(permutation, count);
	if (count <= 1)
		return;
	unsigned bits = 64 - (unsigned)__builtin_clzll(count - 1);
	if (bits < DOMAIN_BITS_MIN)
		bits = DOMAIN_BITS_MIN;
	permutation->left_bits = (uint8_t)(bits / 2);
	permutation->right_bits = (uint8_t)(bits - bits / 2);
	struct random_stream stream;
	random_init(&stream, seed, number, sample, purpose);
	for (unsigned i = 0; i < PERMUTATION_ROUNDS; i++) {
		permutation->keys[i][0] = random_u32(&stream);
		permutation->keys[i][1] = random_u32(&stream);
	}
}

/*
 * Round function: the multiply-and-fold step of Philox2x32, keyed before and after the
 * multiplication.
 */
static inline uint32_t mix(uint32_t x, const uint32_t key[2])
{
	uint64_t product = (uint64_t)(x ^ key[0]) * UINT64_C(0xD256D193);
	uint32_t folded = (uint32_t)(product >> 32) ^ (uint32_t)product ^ key[1];
	product = (uint64_t)folded * UINT64_C(0x9E3779B9);
	return (uint32_t)(product >> 32) ^ (uint32_t)product;
}

static inline uint32_t low_mask(unsigned bits)
{
	return (uint32_t)((UINT64_C(1) << bits) - 1);
}

/*
 * A Feistel network on left_bits + right_bits bits. The halves may differ by one bit, so rounds
 * change the left and the right half in turn and no bit moves between them. Each round is an
 * involution for a given key, so the whole is a bijection.
 */
static inline uint64_t feistel(const struct permutation *permutation, uint64_t x)
{
	unsigned right_bits = permutation->right_bits;
	uint32_t left_mask = low_mask(permutation->left_bits), right_mask = low_mask(right_bits);
	uint32_t left = (uint32_t)(x >> right_bits), right = (uint32_t)x & right_mask;
	for (unsigned i = 0; i < PERMUTATION_ROUNDS; i += 2) {
		left ^= mix(right, permutation->keys[i]) & left_mask;
		right ^= mix(left, permutation->keys[i + 1]) & right_mask;
	}
	return (uint64_t)left << right_bits | right;
}

static inline uint64_t feistel_inverse(const struct permutation *permutation, uint64_t x)
{
	unsigned right_bits = permutation->right_bits;
	uint32_t left_mask = low_mask(permutation->left_bits), right_mask = low_mask(right_bits);
	uint32_t left = (uint32_t)(x >> right_bits), right = (uint32_t)x & right_mask;
	for (unsigned i = PERMUTATION_ROUNDS; i > 0; i -= 2) {
		right ^= mix(left, permutation->keys[i - 1]) & right_mask;
		left ^= mix(right, permutation->keys[i - 2]) & left_mask;
	}
	return (uint64_t)left << right_bits | right;
}

uint64_t permutation_at(const struct permutation *permutation, uint64_t point)
{
	assert(point < permutation->count);
	if (permutation->left_bits == 0)
		return point;
	/*
	 * Cycle walking: iterating the bijection from a point in the range returns to the range, at
	 * a different point for each start. The domain is less than twice the range, except for the
	 * smallest sets.
	 */
	do {
		point = feistel(permutation, point);
	} while (point >= permutation->count);
	return point;
}

uint64_t permutation_find(const struct permutation *permutation, uint64_t value)
{
	assert(value < permutation->count);
	if (permutation->left_bits == 0)
		return value;
	do {
		value = feistel_inverse(permutation, value);
	} while (value >= permutation->count);
	return value;
}
