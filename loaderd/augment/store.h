/*
 * The last thing that happens to a sample: rows of bytes become rows of the finished element type and layout. A struct store is
 * set up per sample and lives on the stack of one thread; it writes into the caller's slot. Floats are computed as
 * byte * scale + bias in single precision, two roundings, then rounded to nearest even where the type is narrower; every
 * instruction set gives the same bits.
 */
#pragma once

#include "augment_isa.h"
#include "transform.h"

#include <stdbool.h>

enum {
	/* Factors repeat by channel; so many of them are whole pixels of 3 and 4 channels, and whole vectors. */
	STORE_PERIOD = 48,
};

struct store;

struct store_kernels {
	/* Writes row number row of the sample from width pixels of store_row_channels() interleaved bytes. */
	void (*row)(const struct store *store, uint32_t row, const uint8_t *pixels);
	/* Copies count pixels of RGB, in reverse order if wanted, adding a zero channel when channels is 4. */
	void (*copy)(uint8_t *output, const uint8_t *pixels, uint32_t count, uint32_t channels, bool reverse);
};

struct store {
	/* Of element i of a row: channel i modulo channels; zero for a fourth channel. */
	float scale[STORE_PERIOD] __attribute__((aligned(64)));
	float bias[STORE_PERIOD] __attribute__((aligned(64)));
	const struct store_kernels *kernels;
	uint8_t *output;
	struct transform_shape shape;
};

extern const struct store_kernels store_kernels_c;
extern const struct store_kernels store_kernels_avx2;
extern const struct store_kernels store_kernels_avx512;

const struct store_kernels *store_kernels_get(enum augment_isa isa);

/* mean and std are of 0..1, three each. */
void store_init(struct store *store, enum augment_isa isa, const struct transform_shape *shape, const double mean[3],
		const double std[3], void *output);
/* Channels of the rows that it takes: a planar sample's plane of zeros is not in them. */
uint32_t store_row_channels(const struct transform_shape *shape);

/* Single precision to the two narrow types, to nearest even; not for NaN. */
uint16_t store_f16(float value);
uint16_t store_bf16(float value);
