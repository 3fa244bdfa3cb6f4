/*
 * The last thing that happens to a sample: rows of bytes become rows of the finished element type and layout. A struct store is
 * set up per sample and lives on the stack of one thread; it writes into the caller's slot. Floats are computed as
 * byte * scale + bias in single precision, two roundings, then rounded to nearest even where the type is narrower; every
 * instruction set gives the same bits.
 */
#pragma once

#include "augment_isa.h"
#include "transform.h"

struct store;

struct store_kernels {
	/* Writes a row of width * channels bytes, interleaved, as row number row of the sample. */
	void (*row)(const struct store *store, uint32_t row, const uint8_t *pixels);
	/* Copies count pixels of RGB, in reverse order if wanted, adding a zero channel when channels is 4. */
	void (*copy)(uint8_t *output, const uint8_t *pixels, uint32_t count, uint32_t channels, int reverse);
};

struct store {
	const struct store_kernels *kernels;
	uint8_t *output;
	struct transform_shape shape;
	float scale[4], bias[4]; /* per channel; zero for a fourth */
};

const struct store_kernels *store_kernels_get(enum augment_isa isa);
extern const struct store_kernels store_kernels_c;
extern const struct store_kernels store_kernels_avx2;
extern const struct store_kernels store_kernels_avx512;

/* Single precision to the two narrow types, to nearest even. */
uint16_t store_f16(float value);
uint16_t store_bf16(float value);
