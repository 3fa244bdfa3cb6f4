/*
 * Last step of each sample: converts rows of bytes to rows of the output's element type and layout.
 * A struct converter is initialised per sample, lives on the stack of one thread and writes into
 * the caller's slot. Floats are byte * scale + bias in single precision with two roundings, then
 * rounded to nearest even for narrower types. All instruction sets produce the same bits.
 *
 * Large samples are streamed with non-temporal stores: many other samples are written before they
 * are read, and a store that does not fetch its cache line first saves a third of the memory
 * traffic.
 */
#pragma once

#include "format/augment/pipeline.h"
#include "format/base/system/cpu.h"

#include <stdbool.h>

enum {
	/*
	 * Length of the scale and bias arrays, which repeat by channel: a multiple of 3 and 4
	 * channels and of the elements of a vector.
	 */
	CONVERTER_PERIOD = 48,
	CONVERTER_LINE = 64,
	/*
	 * Minimum sample size in bytes for streaming: smaller samples stay in the L2 cache until
	 * their batch is complete.
	 */
	CONVERTER_STREAM_MIN = 64 << 10,
	/*
	 * Rows are streamed if their size is a multiple of this many bytes. For other sizes
	 * streaming was measured to be slower than plain stores.
	 */
	CONVERTER_STREAM_UNIT = 32,
	/* Size of the stage buffer: an incomplete cache line, and a row. */
	CONVERTER_STAGE_SIZE = CONVERTER_LINE + PIPELINE_SIDE_MAX * 4 * sizeof(float),
};

struct converter;

struct converter_kernels {
	/*
	 * Converts `width` pixels of converter_row_channels() bytes each. planes: addresses of the
	 * output, one if interleaved, one per channel if planar.
	 */
	void (*row)(const struct converter *converter, const uint8_t *pixels,
		    uint8_t *const planes[4]);
	/*
	 * Copies `count` RGB pixels, optionally in reverse order. Adds a zero channel if channels
	 * is 4.
	 */
	void (*copy)(uint8_t *output, const uint8_t *pixels, uint32_t count, uint32_t channels,
		     bool reverse);
	/* Copies whole cache lines to an aligned address with non-temporal stores. */
	void (*stream)(uint8_t *output, const uint8_t *bytes, size_t size);
	/* Orders streamed stores before later stores. */
	void (*fence)(void);
};

/*
 * State of streaming. Whole cache lines are stored at once; the remaining bytes wait for the next
 * row.
 */
struct converter_stream {
	uint8_t *stage;  /* bytes not stored yet, aligned */
	uint8_t *output; /* their destination, aligned */
	/*
	 * Bytes at the start of stage that are not part of the sample, because output was rounded
	 * down.
	 */
	size_t begin;
	size_t end; /* bytes in stage, including `begin` */
};

struct converter {
	/* Entry i applies to channel i % channels; it is zero for a fourth channel. */
	float scale[CONVERTER_PERIOD] __attribute__((aligned(64)));
	float bias[CONVERTER_PERIOD] __attribute__((aligned(64)));
	struct converter_stream stream;
	const struct converter_kernels *kernels;
	uint8_t *output;
	bool streaming;
	bool read_again; /* the caller reads the output at once: it is never streamed */
	struct pipeline_shape shape;
};

extern const struct converter_kernels converter_kernels_c;
extern const struct converter_kernels converter_kernels_avx2;
extern const struct converter_kernels converter_kernels_avx512bw;
extern const struct converter_kernels converter_kernels_avx512;

/* Writes one element of any type. Bytes are rounded to nearest even. */
void converter_element(uint8_t *output, enum pipeline_element element, float value);
const struct converter_kernels *converter_kernels_get(enum cpu_isa isa);

/* mean and std have three entries each, in units of 0..1. */
void converter_init(struct converter *converter, enum cpu_isa isa,
		    const struct pipeline_shape *shape, const double mean[3], const double std[3],
		    void *output);
/*
 * Streams the sample if it is interleaved and large enough; write its rows from first to last then.
 * stage: CONVERTER_STAGE_SIZE bytes, aligned to a cache line.
 */
void converter_begin_stream(struct converter *converter, uint8_t *stage);
/*
 * Returns the output of a streamed sample if the caller may store its rows there directly, in units
 * of CONVERTER_STREAM_UNIT bytes. Returns NULL unless the rows are interleaved bytes and suitably
 * aligned.
 */
uint8_t *converter_bypass(const struct converter *converter);
/*
 * Returns the address to which the caller may write row `row` directly instead of passing it to
 * converter_row(); call converter_row_written() then. Returns NULL unless rows are interleaved
 * bytes.
 */
uint8_t *converter_row_address(struct converter *converter, uint32_t row);
/* Accepts the row written to the address that converter_row_address() returned. */
void converter_row_written(struct converter *converter);
/*
 * Writes row `row` of the sample. The input is `width` pixels of converter_row_channels()
 * interleaved bytes.
 */
void converter_row(struct converter *converter, uint32_t row, const uint8_t *pixels);
/*
 * Writes all rows of a sample. The input has the output's format, which must be interleaved bytes.
 */
void converter_rows(struct converter *converter, const uint8_t *pixels);
/* Ends the sample and makes its bytes visible to all later readers. */
void converter_finish(struct converter *converter);
/* Returns the channels of the input rows. They lack the zero channel of planar output. */
uint32_t converter_row_channels(const struct pipeline_shape *shape);
