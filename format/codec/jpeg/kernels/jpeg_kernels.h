/*
 * Pixel kernels of the baseline JPEG decoder: dequantisation and inverse DCT, chroma upsampling,
 * colour conversion. One table of function pointers per instruction set. All tables compute the
 * same bits, those of libjpeg-turbo's accurate path (JDCT_ISLOW, fancy upsampling). Pure functions
 * on plain arrays; rows need no alignment. Kernels have no tail code: they round counts up to the
 * multiples below, and read and write garbage past the end.
 */
#pragma once

#include "format/base/system/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	JPEG_KERNEL_BLOCKS = 4,   /* the inverse DCT rounds its blocks up to a multiple of this */
	JPEG_KERNEL_SAMPLES = 64, /* other kernels round samples or pixels up to a multiple of it */
	JPEG_KERNEL_SCALES = 4,
};

struct jpeg_lane;

/*
 * Runs lanes (jpeg_streams.h) side by side until one is done or past its limit. -EBADMSG for an
 * unknown code. Element [i] of the arrays below runs i + 1 lanes. The array's name says whether
 * coefficients are in natural or zigzag order; zigzag is faster.
 */
typedef int (*jpeg_lanes_run)(struct jpeg_lane *lanes);
extern const jpeg_lanes_run jpeg_lanes_c[]; /* natural order; the reference */
extern const jpeg_lanes_run jpeg_lanes_natural[], jpeg_lanes_zigzag[]; /* x86-64 */
/* for lanes with `checked` set; jpeg_lanes_c handles both kinds */
extern const jpeg_lanes_run jpeg_lanes_natural_checked[], jpeg_lanes_zigzag_checked[];

/* Two rows of a component. */
struct jpeg_rows_pair {
	const uint8_t *near, *far;
};

struct jpeg_kernels {
	const char *name;
	/*
	 * Copies size bytes without the zeros stuffed after FF. Stops at the first FF followed by
	 * another byte or by nothing. Returns the number of bytes written; *ret_read is the number
	 * consumed. May write 64 bytes past the output; reads nothing past size. data may be in a
	 * file that is changing: a loaded byte decides only how far to go, at most to size, never
	 * where to read or write, and a byte loaded twice may differ.
	 */
	size_t (*unstuff)(const uint8_t *data, size_t size, uint8_t *output, size_t *ret_read);
	/* idct expects coefficients in zigzag order; in natural order if false */
	bool zigzag;
	/* Lane functions that produce coefficients in that order. */
	const jpeg_lanes_run *runs, *checked_runs;
	/* Natural-order index of each entry of idct's quant; NULL if quant is in natural order. */
	const uint8_t *quant_order;
	/*
	 * idct[k] transforms blocks to samples at a scale of 2^k / 8. Block i consists of the 64
	 * coefficients at coefficients + 64 * block_indexes[i] (128-byte aligned), which idct[k]
	 * multiplies by quant (in quant_order) modulo 2^16. The result is 2^k rows of 2^k * blocks
	 * samples, blocks side by side.
	 *
	 * The inverse DCT is that of Loeffler, Ligtenberg and Moschytz (ICASSP 1989) with 13-bit
	 * constants and 2 extra bits between the passes, as in libjpeg's "islow". Between the
	 * passes values saturate to 16 bits. The reduced sizes equal libjpeg's at 1/2, 1/4 and 1/8:
	 * the sum of each group of 2, 4 or 8 outputs replaces the group. 4 x 4 uses all frequencies
	 * except the fourth; 2 x 2 uses frequency 0 and the odd ones (the sums of the others are
	 * 0); 1 x 1 uses frequency 0.
	 */
	void (*idct[JPEG_KERNEL_SCALES])(const int16_t *coefficients, const uint32_t *block_indexes,
					 uint32_t blocks, const int16_t quant[64], uint8_t *output,
					 size_t stride);
	/* Upsampling of chroma halved only vertically: sums[i] = 3 * near[i] + far[i], */
	void (*column_sums)(const uint8_t *near, const uint8_t *far, uint16_t *sums,
			    uint32_t count);
	/* then output[i] = (sums[i] + bias) >> 2. */
	void (*upsample_v)(const uint16_t *sums, uint8_t *output, uint32_t count, uint32_t bias);
	/*
	 * Upsampling of chroma halved only horizontally: input[-1] .. input[count] to 2 * count
	 * samples. Sample s[i] gives (3 s[i] + s[i-1] + 1) >> 2 and (3 s[i] + s[i+1] + 2) >> 2.
	 */
	void (*upsample_h)(const uint8_t *input, uint8_t *output, uint32_t count);
	/*
	 * YCbCr to interleaved RGB: JFIF 1.02, 16-bit constants, rounded. count pixels of 3 bytes.
	 */
	void (*rgb)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *output,
		    uint32_t count);
	/*
	 * Like rgb, with chroma of half the width and height. The near and the far chroma row give
	 * column sums s[i] = 3 * near[i] + far[i]. Each s[i] gives two samples:
	 *
	 *   (3 s[i] + s[i-1] + 8) >> 4
	 *   (3 s[i] + s[i+1] + 7) >> 4
	 *
	 * The first pixel uses the first sample of s[0] or, if odd is set, the second. Chroma
	 * samples [-1 .. (count + odd + 1) / 2] contribute; 64 bytes after them may be read. y[1]
	 * (may be NULL) and output[1] belong to a second row of pixels, nearer to far.
	 */
	void (*rgb_hv)(const uint8_t *const y[2], const struct jpeg_rows_pair *cb,
		       const struct jpeg_rows_pair *cr, bool odd, uint8_t *const output[2],
		       uint32_t count);
	/* grey to interleaved RGB */
	void (*grey)(const uint8_t *y, uint8_t *output, uint32_t count);
};

/*
 * idct[0] of every instruction set. Like libjpeg, wraps at 10 bits; no valid image has such values.
 */
void jpeg_idct_1(const int16_t *coefficients, const uint32_t *block_indexes, uint32_t blocks,
		 const int16_t quant[64], uint8_t *output, size_t stride);

extern const struct jpeg_kernels jpeg_kernels_c;
extern const struct jpeg_kernels jpeg_kernels_avx2;
extern const struct jpeg_kernels jpeg_kernels_avx512bw;
extern const struct jpeg_kernels jpeg_kernels_avx512;

/* Returns the kernels of an instruction set that this CPU supports. */
const struct jpeg_kernels *jpeg_kernels_of(enum cpu_isa isa);
/* Returns the kernels of cpu_isa_chosen(), as of the first call. */
const struct jpeg_kernels *jpeg_kernels_get(void);
