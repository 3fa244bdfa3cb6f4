#include "trainer/device/comm/tcp/sha256.h"

#include <endian.h>
#include <string.h>

enum { BLOCK = 64 }; /* bytes */

struct state {
	uint32_t hash[8];
	uint8_t block[BLOCK];
	uint64_t size; /* bytes so far */
};

/* FIPS 180-4, 4.2.2: fractions of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
	0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2,
};

/* 5.3.3: fractions of the square roots of the first 8 primes. */
static const struct state start = {
	{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
	 0x5be0cd19},
};

static uint32_t turn(uint32_t x, unsigned bits)
{
	return x >> bits | x << (32 - bits);
}

/* 6.2.2: the message schedule. */
static void expand(const uint8_t block[BLOCK], uint32_t w[64])
{
	for (int i = 0; i < 16; i++) {
		memcpy(&w[i], block + 4 * (size_t)i, 4);
		w[i] = be32toh(w[i]);
	}
	for (int i = 16; i < 64; i++) {
		uint32_t a = w[i - 15], b = w[i - 2];

		w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
		       (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
	}
}

static void compress(struct state *state)
{
	uint32_t w[64], v[8];

	expand(state->block, w);
	memcpy(v, state->hash, sizeof(v));
	for (int i = 0; i < 64; i++) {
		uint32_t a = v[0], e = v[4];
		uint32_t one = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
			       ((e & v[5]) ^ (~e & v[6])) + constants[i] + w[i];
		uint32_t two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
			       ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 7 * sizeof(*v));
		v[4] += one;
		v[0] = one + two;
	}
	for (int i = 0; i < 8; i++)
		state->hash[i] += v[i];
}

static void add(struct state *state, const void *bytes, size_t size)
{
	const uint8_t *from = bytes;

	while (size) {
		size_t at = state->size % BLOCK, part = size < BLOCK - at ? size : BLOCK - at;

		memcpy(state->block + at, from, part);
		state->size += part;
		from += part;
		size -= part;
		if (state->size % BLOCK == 0)
			compress(state);
	}
}

/* 5.1.1: a bit, zeroes, and the length in bits in the last 8 bytes of a block. */
static void end(struct state *state, uint8_t ret_hash[SHA256_SIZE])
{
	static const uint8_t padding[BLOCK] = {0x80};
	uint64_t bits = htobe64(state->size * 8);

	add(state, padding, (BLOCK + 55 - state->size % BLOCK) % BLOCK + 1);
	add(state, &bits, sizeof(bits));
	for (int i = 0; i < 8; i++) {
		uint32_t word = htobe32(state->hash[i]);

		memcpy(ret_hash + 4 * (size_t)i, &word, 4);
	}
}

void sha256(const void *bytes, size_t size, uint8_t ret_hash[SHA256_SIZE])
{
	struct state state = start;

	add(&state, bytes, size);
	end(&state, ret_hash);
}

void sha256_hmac(const uint8_t key[SHA256_SIZE], const void *bytes, size_t size,
		 uint8_t ret_code[SHA256_SIZE])
{
	struct state inner = start, outer = start;
	uint8_t ipad[BLOCK], opad[BLOCK];

	for (int i = 0; i < BLOCK; i++) {
		ipad[i] = (i < SHA256_SIZE ? key[i] : 0) ^ 0x36;
		opad[i] = (i < SHA256_SIZE ? key[i] : 0) ^ 0x5c;
	}
	add(&inner, ipad, BLOCK);
	add(&inner, bytes, size);
	end(&inner, ret_code);
	add(&outer, opad, BLOCK);
	add(&outer, ret_code, SHA256_SIZE);
	end(&outer, ret_code);
}
