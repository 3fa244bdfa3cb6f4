/*
 * The end of each sample: converts rows of bytes to rows of the output element type and layout.
 * A struct converter is set up per sample and lives on the stack of one thread; it writes into the
 * caller's slot. Floats are byte * scale + bias in single precision with two roundings, then
 * rounded to nearest even for narrower types. All instruction sets produce the same bits.
 *
 * Large samples can be streamed with non-temporal stores: nothing reads them until many others have
 * been written, and a store that does not fetch its cache line first saves a third of the memory
 * traffic.
 */
#pragma once

#include "format/augment/pipeline.h"
#include "format/base/system/cpu.h"

#include <stdbool.h>

enum {
	/*
	 * Length of scale and bias, which repeat by channel: whole pixels of 3 and 4 channels, and
	 * whole vectors.
	 */
	CONVERTER_PERIOD = 48,
	CONVERTER_LINE = 64,
	/*
	 * Minimum sample size in bytes for streaming: smaller samples stay in the L2 cache with
	 * their batch.
	 */
	CONVERTER_STREAM_MIN = 64 << 10,
	/*
	 * Streamed rows are multiples of this many bytes: for other rows, streaming measured slower
	 * than plain stores.
	 */
	CONVERTER_STREAM_UNIT = 32,
	/* Size of the buffer for streaming: the rest of a cache line, and a row. */
	CONVERTER_STAGE_SIZE = CONVERTER_LINE + PIPELINE_SIDE_MAX * 4 * sizeof(float),
};

struct converter;

struct converter_kernels {
	/*
	 * Converts `width` pixels of converter_row_channels() bytes each. planes: the output, one
	 * pointer if interleaved, one per channel if planar.
	 */
	void (*row)(const struct converter *converter, const uint8_t *pixels,
		    uint8_t *const planes[4]);
	/*
	 * Copies `count` RGB pixels, optionally in reverse order; adds a zero channel if channels
	 * is 4.
	 */
	void (*copy)(uint8_t *output, const uint8_t *pixels, uint32_t count, uint32_t channels,
		     bool reverse);
	/* Copies whole cache lines to an aligned address with non-temporal stores. */
	void (*stream)(uint8_t *output, const uint8_t *bytes, size_t size);
	/* Orders streamed stores before later stores. */
	void (*fence)(void);
};

/* State of streaming: whole cache lines are stored at once, the rest waits for the next row. */
struct converter_stream {
	uint8_t *stage;  /* bytes not stored yet, aligned */
	uint8_t *output; /* their destination, aligned */
	/* Bytes at the start that are not part of the sample, because output was rounded down. */
	size_t begin;
	size_t end; /* bytes in stage, including `begin` */
};

struct converter {
	/* For element i of a row: the value of channel i % channels; zero for a fourth channel. */
	float scale[CONVERTER_PERIOD] __attribute__((aligned(64)));
	float bias[CONVERTER_PERIOD] __attribute__((aligned(64)));
	struct converter_stream stream;
	const struct converter_kernels *kernels;
	uint8_t *output;
	bool streaming;
	struct pipeline_shape shape;
};

extern const struct converter_kernels converter_kernels_c;
extern const struct converter_kernels converter_kernels_avx2;
extern const struct converter_kernels converter_kernels_avx512bw;
extern const struct converter_kernels converter_kernels_avx512;

/* Writes one element of any type. Bytes are rounded to nearest, halves to even. */
void converter_element(uint8_t *output, enum pipeline_element element, float value);
const struct converter_kernels *converter_kernels_get(enum cpu_isa isa);

/* mean and std have three entries each, in units of 0..1. */
void converter_init(struct converter *converter, enum cpu_isa isa,
		    const struct pipeline_shape *shape, const double mean[3], const double std[3],
		    void *output);
/*
 * Streams the sample if it is interleaved and large enough; its rows must then be written from
 * first to last. stage: CONVERTER_STAGE_SIZE bytes, aligned to a cache line.
 */
void converter_begin_stream(struct converter *converter, uint8_t *stage);
/*
 * Returns where the producer of a streamed sample's rows may store them without the converter, in
 * units of CONVERTER_STREAM_UNIT bytes. Returns NULL unless the rows are interleaved bytes and
 * suitably aligned.
 */
uint8_t *converter_bypass(const struct converter *converter);
/*
 * Returns where to write row `row` directly instead of passing it to converter_row(). Returns NULL
 * unless rows are interleaved bytes.
 */
uint8_t *converter_place(struct converter *converter, uint32_t row);
/* Accepts the row written to converter_place(). */
void converter_placed(struct converter *converter);
/* Writes row `row` of the sample from `width` pixels of converter_row_channels() interleaved bytes.
 */
void converter_row(struct converter *converter, uint32_t row, const uint8_t *pixels);
/* Writes all rows of a sample; the input must have the output's form, interleaved bytes. */
void converter_rows(struct converter *converter, const uint8_t *pixels);
/* Ends the sample: its bytes become visible to all later readers. */
void converter_finish(struct converter *converter);
/* Returns the channels of the input rows: a planar sample's zero plane is not included. */
uint32_t converter_row_channels(const struct pipeline_shape *shape);
