/*
 * Interface between the resize driver (resize.c) and the kernels of each instruction set.
 *
 * A job runs in bands of rows. The horizontal kernel turns source rows into rows of elements in 8.6
 * fixed point; an element is one channel of one output pixel. Two element rows are interleaved in
 * one int32 row (a pair): the even row in the low halves, the odd row in the high halves. The
 * vertical kernel makes one finished row from the pairs that the filter covers. Element rows have
 * room for whole blocks, with arbitrary contents after the last element, so only a kernel's last
 * store needs tail code.
 */
#pragma once

#include "format/augment/resize/resize.h"
#include "format/packimg.h"

enum {
	RESIZE_WEIGHT_BITS = 14,
	RESIZE_WEIGHT_ONE = 1 << RESIZE_WEIGHT_BITS,
	RESIZE_BETWEEN_BITS = 6, /* fractional bits of values between the passes */
	VERTICAL_SHIFT = RESIZE_WEIGHT_BITS + RESIZE_BETWEEN_BITS,
	RESIZE_LANES = 16, /* tables are padded to a multiple of this many outputs */
	RESIZE_BLOCK = 64, /* element rows are padded to a multiple of this many elements */
	RESIZE_BAND = RESIZE_ROWS_HELD, /* maximum number of source rows per horizontal call */
	/* For the bicubic filter (resize_cubic.h). */
	CUBIC_WEIGHT_BITS = 22,
	CUBIC_BAND = RESIZE_ROWS_HELD,
};

/* Filter of one axis. */
struct resize_table {
	uint32_t count;  /* number of outputs */
	uint32_t padded; /* count rounded up to RESIZE_LANES; padding repeats the last output */
	uint32_t taps;   /* taps per output, the same for all outputs */
	/* [padded] source pixel of the first tap; all taps are within low .. high of the axis */
	int32_t *start;
	int16_t *weight; /* [taps][padded]; sums to RESIZE_WEIGHT_ONE over the taps */
};

/* Horizontal filter of one job, with the data that the kernel prepares. */
struct resize_pass {
	const struct resize_table *table;
	uint32_t source_channels, target_channels;
	uint32_t row_size; /* readable bytes of a source row */
	uint32_t elements; /* count * target_channels */
	/* Minimum of row_size: shorter rows are copied to a buffer of this size. */
	uint32_t row_size_min;
	uint32_t mode; /* method that the kernel has chosen */
	void *packed;  /* data of the kernel, of the size that prepare returned, 64-byte aligned */
};

/* Vertical filter of one output row. */
struct resize_terms {
	const int32_t *const *pairs;
	const int32_t *weights;
	uint32_t count;
};

enum {
	RESIZE_COLOUR_BITS = 7, /* fractional bits of Y, Cb and Cr */
	/*
	 * JFIF's factors less an integer, with 15 fractional bits: 1.402 - 1, 1 - 0.714136,
	 * -0.344136, 1.772 - 2.
	 */
	RESIZE_RED_CR = 13173,
	RESIZE_GREEN_CR = 9367,
	RESIZE_GREEN_CB = -11277,
	RESIZE_BLUE_CB = -7471,
};

struct cubic_table;  /* resize_cubic.h */
struct float_filter; /* resize_float.h */

struct resize_kernels {
	/* Fills start and weight. */
	void (*build)(const struct resize_axis *axis, struct resize_table *table);
	/*
	 * Call in this order: prepare chooses mode and row_size_min and returns the size of packed;
	 * the driver sets row_size; pack fills packed.
	 */
	size_t (*prepare)(struct resize_pass *pass);
	void (*pack)(struct resize_pass *pass);
	/*
	 * Computes blocks block .. block + block_count - 1 of 2 * pair_count rows. Each pairs[]
	 * pointer points to element 64 * block.
	 */
	void (*horizontal)(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
			   const uint8_t *const rows[RESIZE_BAND], unsigned pair_count,
			   int32_t *const pairs[RESIZE_BAND / 2]);
	/*
	 * Makes `size` bytes of output from elements. An entry of weights holds two 16-bit weights,
	 * the even row's in the low half. stream: use non-temporal stores; output is then aligned
	 * to RESIZE_STREAM_UNIT, and size is a multiple of it.
	 */
	void (*vertical)(const struct resize_terms *terms, uint32_t size, uint8_t *output,
			 bool stream);
	/*
	 * Filters Y, Cb and Cr (Cb and Cr with equal weights) to 8.7 fixed point and converts them
	 * to `count` RGB pixels with 3 or 4 channels, the fourth zero. JFIF 1.02: each product with
	 * a constant of 15 fractional bits is rounded, sums saturate, and the pixel is rounded.
	 */
	void (*colour)(const struct resize_terms planes[3], uint32_t count, uint32_t channels,
		       uint8_t *output);
	/*
	 * The bicubic filter, rounded to bytes. cubic_across filters a band of CUBIC_BAND source
	 * rows and writes `rows` rows; its input is transposed to [pixel][channel][row] and starts
	 * at pixel `first`. cubic_down makes `size` bytes from `taps` rows.
	 */
	void (*cubic_across)(const struct cubic_table *table, const uint8_t *transposed,
			     uint32_t first, uint8_t *output, size_t stride, uint32_t rows);
	void (*cubic_down)(const uint8_t *const *rows, const int32_t *weights, uint32_t taps,
			   size_t size, uint8_t *output);
	/*
	 * For resize_float.h. float_down makes `size` floats from `taps` rows of that size.
	 * float_across makes `row_count` rows without padding, at most float_rows, from rows of
	 * `stride` floats, of which there are always float_rows; stride is a multiple of
	 * RESIZE_LANES, `rows` and `turned`, scratch memory of the same size, are aligned to 64
	 * bytes.
	 */
	uint32_t float_rows;
	void (*float_down)(const float *weights, uint32_t taps, const float *rows, size_t size,
			   float *output);
	void (*float_across)(const struct float_filter *filter, uint32_t channels,
			     const float *rows, size_t stride, float *turned, float *output,
			     uint32_t row_count);
	/*
	 * Convert `count` pixels of some channels from elements to floats without padding and back.
	 * Integers are rounded to nearest, halves to even, and clamped. i32 keeps 24 bits.
	 */
	void (*float_load)(enum packimg_element element, const uint8_t *row, ptrdiff_t step,
			   uint32_t count, uint32_t channels, float *output);
	void (*float_store)(enum packimg_element element, const float *values, size_t count,
			    uint32_t channels, size_t pixel_size, uint8_t *output);
};

/* Initialiser of a kernel set from static functions, which the file of every set defines. */
#define RESIZE_KERNELS                                                                             \
	{                                                                                          \
		.build = resize_table_build, .prepare = resize_prepare, .pack = resize_pack,       \
		.horizontal = resize_horizontal, .vertical = resize_vertical,                      \
		.colour = resize_colour, .cubic_across = resize_cubic_across,                      \
		.cubic_down = resize_cubic_down, .float_rows = FLOAT_WIDTH,                        \
		.float_down = resize_float_down, .float_across = resize_float_across,              \
		.float_load = resize_float_load, .float_store = resize_float_store,                \
	}

extern const struct resize_kernels resize_kernels_c;
extern const struct resize_kernels resize_kernels_avx2;
extern const struct resize_kernels resize_kernels_avx512bw;
extern const struct resize_kernels resize_kernels_avx512;

const struct resize_kernels *resize_kernels_get(enum cpu_isa isa);

/* Returns the source channel of a target channel; -1 for a channel that is zero. */
static inline int resize_channel(uint32_t source_channels, uint32_t channel)
{
	if (source_channels == 1)
		return channel < 3 ? 0 : -1;
	return channel < source_channels ? (int)channel : -1;
}
