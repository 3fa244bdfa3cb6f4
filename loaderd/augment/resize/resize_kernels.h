/*
 * Inside of resize: what the driver (resize.c) and the kernels of one instruction set share.
 *
 * A job runs in bands of rows. The horizontal kernel turns source rows into rows of elements (an
 * element is one channel of one output pixel) of 8.6 fixed point, two rows interleaved in one int32
 * row: low half the even row, high half the odd one. The vertical kernel makes one finished row of
 * as many such pairs as the filter covers. Element rows have room for whole blocks, whatever lies
 * there beyond the elements, so kernels need no tails but for the last store.
 */
#pragma once

#include "loaderd/augment/resize/resize.h"

enum {
	RESIZE_WEIGHT_BITS = 14,
	RESIZE_WEIGHT_ONE = 1 << RESIZE_WEIGHT_BITS,
	RESIZE_BETWEEN_BITS = 6, /* fraction of the value between the passes */
	VERTICAL_SHIFT = RESIZE_WEIGHT_BITS + RESIZE_BETWEEN_BITS,
	RESIZE_LANES = 16,              /* tables are padded to multiples of this many outputs */
	RESIZE_BLOCK = 64,              /* and element rows to multiples of this */
	RESIZE_BAND = RESIZE_ROWS_HELD, /* source rows per horizontal call, at most */
	/* of the bicubic filter (resize_cubic.h) */
	CUBIC_WEIGHT_BITS = 22,
	CUBIC_BAND = RESIZE_ROWS_HELD,
};

/* Filter of one direction. */
struct resize_table {
	uint32_t count;  /* outputs */
	uint32_t padded; /* the same, to whole lanes; the rest repeats the last output */
	uint32_t taps;   /* per output, the same for all */
	/* [padded] source pixel of the first tap; start + taps stays within low .. high */
	int32_t *start;
	int16_t *weight; /* [taps][padded], sums to RESIZE_WEIGHT_ONE over the taps */
};

/* Horizontal filter of one job, in the form that a kernel wants. */
struct resize_pass {
	const struct resize_table *table;
	uint32_t source_channels, target_channels;
	uint32_t row_size; /* bytes of a source row that may be read */
	uint32_t elements; /* count * target_channels */
	/* shorter rows are copied to a place where so many bytes can be read */
	uint32_t row_size_min;
	uint32_t mode; /* the kernel's own choice of method */
	void *packed;  /* as many bytes as prepare asked for, 64-byte aligned */
};

/* Vertical filter of one finished row, as vertical takes it. */
struct resize_terms {
	const int32_t *const *pairs;
	const int32_t *weights;
	uint32_t count;
};

enum {
	RESIZE_COLOUR_BITS = 7, /* fraction of what colours are made of */
	/*
	 * JFIF's factors less whole numbers, of 15 fractional bits: 1.402 - 1, 1 - 0.714136,
	 * -0.344136, 1.772 - 2.
	 */
	RESIZE_RED_CR = 13173,
	RESIZE_GREEN_CR = 9367,
	RESIZE_GREEN_CB = -11277,
	RESIZE_BLUE_CB = -7471,
};

struct cubic_table; /* resize_cubic.h */

struct resize_kernels {
	/* Fills start and weight. */
	void (*build)(const struct resize_axis *axis, struct resize_table *table);
	/*
	 * Chooses mode and row_size_min; returns the bytes that packed needs. Then row_size is set,
	 * then pack fills packed.
	 */
	size_t (*prepare)(struct resize_pass *pass);
	void (*pack)(struct resize_pass *pass);
	/*
	 * Blocks block .. block + block_count - 1 of 2 * pair_count rows, to pairs[] (which begin
	 * with element 64 * block).
	 */
	void (*horizontal)(const struct resize_pass *pass, uint32_t block, uint32_t block_count,
			   const uint8_t *const rows[RESIZE_BAND], unsigned pair_count,
			   int32_t *const pairs[RESIZE_BAND / 2]);
	/*
	 * size elements to bytes. A weight is two of 16 bits, the low half for the even row.
	 * stream: past the cache; then output is aligned to, and size a multiple of,
	 * RESIZE_STREAM_UNIT.
	 */
	void (*vertical)(const struct resize_terms *terms, uint32_t size, uint8_t *output,
			 bool stream);
	/*
	 * The same for Y, Cb and Cr (these two with equal weights) to 8.7 fixed point, and on to
	 * count pixels of RGB with channels 3 or 4, the fourth zero. JFIF 1.02: each product with a
	 * constant of 15 fractional bits is rounded, sums saturate, the pixel is rounded.
	 */
	void (*colour)(const struct resize_terms planes[3], uint32_t count, uint32_t channels,
		       uint8_t *output);
	/*
	 * The bicubic filter, rounded to bytes. Across: a band of CUBIC_BAND source rows, of which
	 * `rows` are wanted; they are transposed, [pixel][channel][row], from pixel `first` on.
	 * Down: size bytes, from taps rows of them.
	 */
	void (*cubic_across)(const struct cubic_table *table, const uint8_t *transposed,
			     uint32_t first, uint8_t *output, size_t stride, uint32_t rows);
	void (*cubic_down)(const uint8_t *const *rows, const int32_t *weights, uint32_t taps,
			   size_t size, uint8_t *output);
};

/* A set, of static functions that every set's file has. */
#define RESIZE_KERNELS                                                                             \
	{                                                                                          \
		.build = resize_table_build, .prepare = resize_prepare, .pack = resize_pack,       \
		.horizontal = resize_horizontal, .vertical = resize_vertical,                      \
		.colour = resize_colour, .cubic_across = resize_cubic_across,                      \
		.cubic_down = resize_cubic_down,                                                   \
	}

extern const struct resize_kernels resize_kernels_c;
extern const struct resize_kernels resize_kernels_avx2;
extern const struct resize_kernels resize_kernels_avx512bw;
extern const struct resize_kernels resize_kernels_avx512;

/* Source channel of a target channel, -1 for the one that is zero. */
static inline int resize_channel(uint32_t source_channels, uint32_t channel)
{
	if (source_channels == 1)
		return channel < 3 ? 0 : -1;
	return channel < source_channels ? (int)channel : -1;
}
