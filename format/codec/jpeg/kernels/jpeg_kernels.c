#include "format/codec/jpeg/kernels/jpeg_kernels.h"

#include <endian.h>
#include <string.h>

/* Sets the top bit of every byte of x that is FF. */
static uint64_t find_ff(uint64_t x)
{
	return ((x & UINT64_C(0x7f7f7f7f7f7f7f7f)) + UINT64_C(0x0101010101010101)) & x &
	       UINT64_C(0x8080808080808080);
}

static size_t unstuff(const uint8_t *data, size_t size, uint8_t *output, size_t *ret_read)
{
	size_t at = 0, done = 0;

	while (at < size) {
		uint64_t word, hits = 0;

		if (size - at >= sizeof(word)) {
			memcpy(&word, data + at, sizeof(word));
			memcpy(output + done, &word, sizeof(word));
			hits = htole64(find_ff(word));
			word = hits ? (uint64_t)__builtin_ctzll(hits) / 8 : sizeof(word);
			at += word;
			done += word;
		} else if (data[at] != 0xff) {
			output[done++] = data[at++];
		} else {
			hits = 1;
		}
		if (!hits)
			continue;
		if (size - at < 2 || data[at + 1] != 0)
			break;
		output[done++] = 0xff;
		at += 2;
	}
	*ret_read = at;
	return done;
}

static int32_t saturate16(int32_t value)
{
	return value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value;
}

static uint8_t saturate8(int32_t value)
{
	return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

/*
 * One dimension of the inverse DCT, on in[0], in[step] .. in[7 * step]. The constants are products
 * of libjpeg's FIX() values, so every output is a single sum of products: exact in 32 bits, hence
 * equal in any order of evaluation.
 */
static void idct_line(const int32_t *in, int32_t *out, unsigned step, int shift)
{
	int32_t a = in[step], b = in[3 * step], c = in[5 * step], d = in[7 * step];
	int32_t round = 1 << (shift - 1);
	int32_t p0 = (in[0] + in[4 * step]) * 8192 + round;
	int32_t p1 = (in[0] - in[4 * step]) * 8192 + round;
	int32_t p2 = 4433 * in[2 * step] - 10704 * in[6 * step];
	int32_t p3 = 10703 * in[2 * step] + 4433 * in[6 * step];
	int32_t even[4] = {p0 + p3, p1 + p2, p1 - p2, p0 - p3};
	int32_t odd[4] = {
		11363 * a + 9633 * b + 6437 * c + 2260 * d,
		9633 * a - 2259 * b - 11362 * c - 6436 * d,
		6437 * a - 11362 * b + 2261 * c + 9633 * d,
		2260 * a - 6436 * b + 9633 * c - 11363 * d,
	};

	for (unsigned i = 0; i < 4; i++) {
		out[i * step] = saturate16((even[i] + odd[i]) >> shift);
		out[(7 - i) * step] = saturate16((even[i] - odd[i]) >> shift);
	}
}

/* Like idct_line(), to four outputs. Does not use in[4 * step]. */
static void idct_line_4(const int32_t *in, int32_t *out, unsigned step, int shift)
{
	int32_t a = in[step], b = in[3 * step], c = in[5 * step], d = in[7 * step];
	int32_t p0 = in[0] * 16384 + (1 << (shift - 1));
	int32_t p1 = 15137 * in[2 * step] - 6270 * in[6 * step];
	int32_t outer = 20995 * a + 7373 * b - 4926 * c - 4176 * d;
	int32_t inner = 8697 * a - 17799 * b + 11893 * c - 1730 * d;

	out[0] = saturate16((p0 + p1 + outer) >> shift);
	out[step] = saturate16((p0 - p1 + inner) >> shift);
	out[2 * step] = saturate16((p0 - p1 - inner) >> shift);
	out[3 * step] = saturate16((p0 + p1 - outer) >> shift);
}

typedef void idct_dimension(const int32_t *in, int32_t *out, unsigned step, int shift);

/* Transforms columns, then lines. Lines are shifted by 7 more bits. */
static inline __attribute__((always_inline)) void
idct_blocks(idct_dimension *line, unsigned size, int shift, const int16_t *coefficients,
	    const uint32_t *block_indexes, uint32_t blocks, const int16_t quant[64],
	    uint8_t *output, size_t stride)
{
	for (uint32_t i = 0; i < blocks; i++, output += size) {
		const int16_t *block = coefficients + 64 * (size_t)block_indexes[i];
		int32_t work[64];

		for (unsigned k = 0; k < 64; k++)
			work[k] = (int16_t)(block[k] * quant[k]);
		for (unsigned x = 0; x < 8; x++)
			line(work + x, work + x, 8, shift);
		for (unsigned y = 0; y < size; y++) {
			line(work + 8 * y, work + 8 * y, 1, shift + 7);
			for (unsigned x = 0; x < size; x++)
				output[y * stride + x] = saturate8(work[8 * y + x] + 128);
		}
	}
}

static void idct_8(const int16_t *coefficients, const uint32_t *block_indexes, uint32_t blocks,
		   const int16_t quant[64], uint8_t *output, size_t stride)
{
	idct_blocks(idct_line, 8, 11, coefficients, block_indexes, blocks, quant, output, stride);
}

static void idct_4(const int16_t *coefficients, const uint32_t *block_indexes, uint32_t blocks,
		   const int16_t quant[64], uint8_t *output, size_t stride)
{
	idct_blocks(idct_line_4, 4, 12, coefficients, block_indexes, blocks, quant, output, stride);
}

/* Like idct_line(), to two outputs. Uses only inputs 0, 1, 3, 5 and 7. */
static void idct_line_2(const int32_t *in, int32_t *out, unsigned step, int shift)
{
	int32_t even = in[0] * 32768 + (1 << (shift - 1));
	int32_t odd =
		29692 * in[step] - 10426 * in[3 * step] + 6967 * in[5 * step] - 5906 * in[7 * step];

	out[0] = (even + odd) >> shift;
	out[step] = (even - odd) >> shift;
}

static void idct_2(const int16_t *coefficients, const uint32_t *block_indexes, uint32_t blocks,
		   const int16_t quant[64], uint8_t *output, size_t stride)
{
	for (uint32_t i = 0; i < blocks; i++, output += 2) {
		const int16_t *block = coefficients + 64 * (size_t)block_indexes[i];
		int32_t work[64];

		for (unsigned k = 0; k < 64; k++)
			work[k] = (int16_t)(block[k] * quant[k]);
		idct_line_2(work, work, 8, 13); /* column 0, the only one that does not saturate */
		for (unsigned x = 1; x < 8; x += 2) {
			idct_line_2(work + x, work + x, 8, 13);
			work[x] = saturate16(work[x]);
			work[8 + x] = saturate16(work[8 + x]);
		}
		for (unsigned y = 0; y < 2; y++) {
			idct_line_2(work + 8 * y, work + 8 * y, 1, 20);
			for (unsigned x = 0; x < 2; x++)
				output[y * stride + x] = saturate8(work[8 * y + x] + 128);
		}
	}
}

void jpeg_idct_1(const int16_t *coefficients, const uint32_t *block_indexes, uint32_t blocks,
		 const int16_t quant[64], uint8_t *output, size_t stride)
{
	for (uint32_t i = 0; i < blocks; i++) {
		int32_t sum = coefficients[64 * (size_t)block_indexes[i]] * quant[0];

		output[i] = saturate8(((int16_t)((sum + 4) * 8) >> 6) + 128);
	}
}

static void column_sums(const uint8_t *near, const uint8_t *far, uint16_t *sums, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		sums[i] = (uint16_t)(3 * near[i] + far[i]);
}

static void upsample_v(const uint16_t *sums, uint8_t *output, uint32_t count, uint32_t bias)
{
	for (uint32_t i = 0; i < count; i++)
		output[i] = (uint8_t)((sums[i] + bias) >> 2);
}

static void upsample_h(const uint8_t *input, uint8_t *output, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		output[2 * i] = (uint8_t)((3 * input[i] + input[(int32_t)i - 1] + 1) >> 2);
		output[2 * i + 1] = (uint8_t)((3 * input[i] + input[i + 1] + 2) >> 2);
	}
}

static void rgb_pixel(int32_t y, int32_t cb, int32_t cr, uint8_t output[3])
{
	int32_t blue = cb - 128, red = cr - 128;

	output[0] = saturate8(y + ((91881 * red + 32768) >> 16));
	output[1] = saturate8(y + ((-22554 * blue - 46802 * red + 32768) >> 16));
	output[2] = saturate8(y + ((116130 * blue + 32768) >> 16));
}

static void rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *output,
		uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		rgb_pixel(y[i], cb[i], cr[i], output + 3 * (size_t)i);
}

static int32_t column_sum(const struct jpeg_rows_pair *rows, int64_t at)
{
	return 3 * rows->near[at] + rows->far[at];
}

/* Returns upsampled sample `at`. Each column sum gives two samples. */
static int32_t triangle(const struct jpeg_rows_pair *rows, int64_t at)
{
	int32_t thrice = 3 * column_sum(rows, at / 2);

	return at & 1 ? (thrice + column_sum(rows, at / 2 + 1) + 7) >> 4
		      : (thrice + column_sum(rows, at / 2 - 1) + 8) >> 4;
}

static void rgb_hv(const uint8_t *const y[2], const struct jpeg_rows_pair *cb,
		   const struct jpeg_rows_pair *cr, bool odd, uint8_t *const output[2],
		   uint32_t count)
{
	struct jpeg_rows_pair other_cb = {cb->far, cb->near}, other_cr = {cr->far, cr->near};

	for (uint32_t i = 0; i < count; i++)
		rgb_pixel(y[0][i], triangle(cb, (int64_t)i + odd), triangle(cr, (int64_t)i + odd),
			  output[0] + 3 * (size_t)i);
	for (uint32_t i = 0; y[1] && i < count; i++)
		rgb_pixel(y[1][i], triangle(&other_cb, (int64_t)i + odd),
			  triangle(&other_cr, (int64_t)i + odd), output[1] + 3 * (size_t)i);
}

static void grey(const uint8_t *y, uint8_t *output, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		output[3 * i] = output[3 * i + 1] = output[3 * i + 2] = y[i];
}

const struct jpeg_kernels jpeg_kernels_c = {
	.name = "c",
	.runs = jpeg_lanes_c,
	.checked_runs = jpeg_lanes_c,
	.unstuff = unstuff,
	.idct = {jpeg_idct_1, idct_2, idct_4, idct_8},
	.column_sums = column_sums,
	.upsample_v = upsample_v,
	.upsample_h = upsample_h,
	.rgb = rgb,
	.rgb_hv = rgb_hv,
	.grey = grey,
};

const struct jpeg_kernels *jpeg_kernels_of(enum cpu_isa isa)
{
	static const struct jpeg_kernels *const sets[CPU_ISA_COUNT] = CPU_ISA_EACH(jpeg_kernels);

	return sets[isa];
}

const struct jpeg_kernels *jpeg_kernels_get(void)
{
	static const struct jpeg_kernels
		*chosen; /* needs no lock: every thread stores the same value */
	const struct jpeg_kernels *kernels = __atomic_load_n(&chosen, __ATOMIC_RELAXED);

	if (kernels)
		return kernels;
	kernels = jpeg_kernels_of(cpu_isa_chosen());
	__atomic_store_n(&chosen, kernels, __ATOMIC_RELAXED);
	return kernels;
}
