/*
 * The last thing that happens to a sample: rows of bytes become rows of the finished element type
 * and layout. A struct store is set up per sample and lives on the stack of one thread; it writes
 * into the caller's slot. Floats are computed as byte * scale + bias in single precision, two
 * roundings, then rounded to nearest even where the type is narrower; every instruction set gives
 * the same bits.
 *
 * Large samples can be streamed past the cache: nobody reads them before many others have been
 * written, and a store that does not fetch its line first saves a third of the memory traffic.
 */
#pragma once

#include "format/base/system/cpu.h"
#include "loaderd/augment/transform.h"

#include <stdbool.h>

enum {
	/*
	 * Factors repeat by channel; so many of them are whole pixels of 3 and 4 channels, and
	 * whole vectors.
	 */
	STORE_PERIOD = 48,
	STORE_LINE = 64,
	/*
	 * Bytes of a sample from which on streaming is worth it: less stays in the second-level
	 * cache with its batch.
	 */
	STORE_STREAM_MIN = 64 << 10,
	/*
	 * Rows that are streamed are whole multiples of this: others measured slower than plain
	 * stores.
	 */
	STORE_STREAM_UNIT = 32,
	/* What streaming needs besides: the rest of a line, and a row. */
	STORE_STAGE_SIZE = STORE_LINE + TRANSFORM_SIDE_MAX * 4 * sizeof(float),
};

struct store;

struct store_kernels {
	/*
	 * Converts width pixels of store_row_channels() bytes each. planes: where, one if
	 * interleaved, one a channel if not.
	 */
	void (*row)(const struct store *store, const uint8_t *pixels, uint8_t *const planes[4]);
	/*
	 * Copies count pixels of RGB, in reverse order if wanted, adding a zero channel when
	 * channels is 4.
	 */
	void (*copy)(uint8_t *output, const uint8_t *pixels, uint32_t count, uint32_t channels,
		     bool reverse);
	/* Copies whole lines to an aligned place, past the cache. */
	void (*stream)(uint8_t *output, const uint8_t *bytes, size_t size);
	/* Puts what was streamed before what is written after. */
	void (*fence)(void);
};

/*
 * The rows of a sample on their way past the cache: whole lines leave, the rest waits for the next
 * row.
 */
struct store_stream {
	uint8_t *stage;  /* what has not left yet, aligned */
	uint8_t *output; /* where it belongs, aligned */
	/* bytes at the start that are not ours: where output had to be rounded down */
	size_t begin;
	size_t end; /* bytes that are there, those included */
};

struct store {
	/* Of element i of a row: channel i modulo channels; zero for a fourth channel. */
	float scale[STORE_PERIOD] __attribute__((aligned(64)));
	float bias[STORE_PERIOD] __attribute__((aligned(64)));
	struct store_stream stream;
	const struct store_kernels *kernels;
	uint8_t *output;
	bool streaming;
	struct transform_shape shape;
};

extern const struct store_kernels store_kernels_c;
extern const struct store_kernels store_kernels_avx2;
extern const struct store_kernels store_kernels_avx512bw;
extern const struct store_kernels store_kernels_avx512;

/* One element of any type; bytes are rounded to nearest, halves to even. */
void store_element(uint8_t *output, enum transform_element element, float value);
const struct store_kernels *store_kernels_get(enum cpu_isa isa);

/* mean and std are of 0..1, three each. */
void store_init(struct store *store, enum cpu_isa isa, const struct transform_shape *shape,
		const double mean[3], const double std[3], void *output);
/*
 * Streams the sample, if it is interleaved and large enough: its rows must then come from the first
 * to the last. stage: STORE_STAGE_SIZE bytes, aligned to a line.
 */
void store_begin_stream(struct store *store, uint8_t *stage);
/*
 * Where whoever makes the rows of a streamed sample may stream them to without the store, in units
 * of STORE_STREAM_UNIT bytes; NULL unless they are interleaved bytes, and aligned so.
 */
uint8_t *store_bypass(const struct store *store);
/*
 * Where row number row may be written as it is instead of being given to store_row; NULL unless
 * rows are interleaved bytes.
 */
uint8_t *store_place(struct store *store, uint32_t row);
/* Takes the row that was written there. */
void store_placed(struct store *store);
/*
 * Writes row number row of the sample from width pixels of store_row_channels() interleaved bytes.
 */
void store_row(struct store *store, uint32_t row, const uint8_t *pixels);
/* Writes all rows of a sample that is interleaved bytes already. */
void store_rows(struct store *store, const uint8_t *pixels);
/* Ends the sample: all of it is visible to whoever learns of it afterwards. */
void store_finish(struct store *store);
/* Channels of the rows that it takes: a planar sample's plane of zeros is not in them. */
uint32_t store_row_channels(const struct transform_shape *shape);
