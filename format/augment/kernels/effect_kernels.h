/*
 * Interface between the effects driver (effects.c) and the kernels of each instruction set. A pixel
 * is a uint32_t: red in the lowest byte, then green, blue, and a byte that stays zero. Kernels have
 * no state; in and out must not overlap.
 */
#pragma once

#include "format/augment/kernels/effects.h"

/* A byte-to-byte function for each channel. */
struct effect_table {
	uint8_t of[3][256] __attribute__((aligned(64)));
};

/*
 * An affine map from output to input positions. x and y are relative to the middle, in units of
 * half a side, as in torchvision's grid.
 */
struct effect_map {
	float x[3], y[3];
	uint32_t width, height;
	bool masked;   /* for bilinear: pixels from outside the picture are fill; black if false */
	uint32_t fill; /* one pixel */
};

/* Computes the map of a warp for a picture of width x height. */
void effect_map_init(const struct effect_warp *warp, uint32_t width, uint32_t height,
		     struct effect_map *ret_map);

enum { EFFECT_BLUR_TAPS_MAX = EFFECT_BLUR_SIDE_MAX / 2 }; /* on each side of the middle */

/*
 * One line of a symmetric blur: middle + sum over k of weights[k] * (before[k] + after[k] - 2 *
 * middle). Values are 10.6 fixed point, weights 0.15. Each product is rounded to nearest, halves
 * up.
 */
struct effect_blur {
	const int16_t *middle, *before[EFFECT_BLUR_TAPS_MAX], *after[EFFECT_BLUR_TAPS_MAX];
	int16_t weights[EFFECT_BLUR_TAPS_MAX];
	unsigned taps;
};

enum {
	EFFECT_BLOCK = 16, /* bytes */
	EFFECT_ELSEWHERE = 0x80,
};

/*
 * Byte i of a block is in[at + select[i]], with select[i] < EFFECT_BLOCK, or comes from another
 * part of the block if select[i] is EFFECT_ELSEWHERE.
 */
struct effect_part {
	uint32_t at;
	uint8_t select[EFFECT_BLOCK];
};

/*
 * Returns the first byte of the block at `at` of `size` bytes: the last block ends with the output.
 */
static inline uint32_t effect_block_offset(uint32_t at, uint32_t size)
{
	return size - at < EFFECT_BLOCK ? size - EFFECT_BLOCK : at;
}

struct effect_kernels {
	void (*table)(uint32_t *pixels, size_t count, const struct effect_table *table);
	void (*histogram)(const uint32_t *pixels, size_t count, uint32_t histogram[3][256]);
	/* Returns the sum of the luma of all pixels, each rounded down. */
	uint64_t (*luma_sum)(const uint32_t *pixels, size_t count);
	void (*grayscale)(uint32_t *pixels, size_t count);
	/* Blends factor * pixel and rest * its luma; rest = 1 - factor. */
	void (*saturation)(uint32_t *pixels, size_t count, float factor, float rest);
	void (*hue)(uint32_t *pixels, size_t count, float turns);
	/*
	 * `in` has one extra pixel at the end, which stands for all pixels outside the picture:
	 * fill for nearest, zero for bilinear.
	 */
	void (*warp_nearest)(const struct effect_map *map, const uint32_t *in, uint32_t *out);
	void (*warp_bilinear)(const struct effect_map *map, const uint32_t *in, uint32_t *out);
	/*
	 * Sharpens `count` bytes of a row. The row has a pixel before and after these bytes; the
	 * rows above and below are `stride` bytes away. rest = 1 - factor.
	 */
	void (*sharpen)(const uint8_t *in, uint8_t *out, size_t stride, size_t count, float rest);
	/* widen converts bytes to 10.6 fixed point; narrow converts back, rounding to nearest. */
	void (*widen)(const uint8_t *in, int16_t *out, size_t count);
	void (*narrow)(const int16_t *in, uint8_t *out, size_t count);
	void (*blur)(const struct effect_blur *blur, size_t count, int16_t *out);
	/* `sum` has 4 floats per pixel. mix_end rounds down. */
	void (*mix_begin)(float *sum, const uint32_t *pixels, size_t count, float weight);
	void (*mix_add)(float *sum, const uint32_t *pixels, size_t count, float weight);
	void (*mix_end)(uint32_t *pixels, const float *sum, size_t count);
	/*
	 * Writes `size` bytes, at least EFFECT_BLOCK, in blocks of which each has per_block parts;
	 * the last block overlaps the one before so that it ends with the output. Each byte comes
	 * from exactly one part. Reads EFFECT_BLOCK bytes from `at` on, of every part.
	 */
	void (*arrange)(const struct effect_part *parts, uint32_t per_block, const uint8_t *in,
			uint8_t *out, uint32_t size);
	/* Packs `count` pixels to 3 bytes each. output may equal pixels. */
	void (*pack)(uint8_t *output, const uint32_t *pixels, size_t count);
};

extern const struct effect_kernels effect_kernels_c;
extern const struct effect_kernels effect_kernels_avx2;
extern const struct effect_kernels effect_kernels_avx512bw;
extern const struct effect_kernels effect_kernels_avx512;

/*
 * Initialiser of a kernel set: the compiled common loops (the .inc files), and the kernels that a
 * set may replace with hand-written ones.
 */
#define EFFECT_KERNELS(table_of, blur_of, arrange_of, pack_of)                                     \
	{                                                                                          \
		.table = table_of, .histogram = effect_histogram, .luma_sum = effect_luma_sum,     \
		.grayscale = effect_grayscale, .saturation = effect_saturation, .hue = effect_hue, \
		.warp_nearest = effect_warp_nearest, .warp_bilinear = effect_warp_bilinear,        \
		.sharpen = effect_sharpen, .widen = effect_widen, .narrow = effect_narrow,         \
		.blur = blur_of, .mix_begin = effect_mix_begin, .mix_add = effect_mix_add,         \
		.mix_end = effect_mix_end, .arrange = arrange_of, .pack = pack_of,                 \
	}

const struct effect_kernels *effect_kernels_get(enum cpu_isa isa);

/* Picture from which an effect's table is made. */
struct effect_picture {
	const struct effect_kernels *kernels;
	uint32_t *pixels;
	size_t count;
};

/* Makes the table of an effect. The result is the same for all instruction sets. */
typedef void (*effect_table_make)(const struct effect_picture *picture, double factor,
				  struct effect_table *ret_table);
#define TABLE(name)                                                                                \
	void effect_table_##name(const struct effect_picture *picture, double factor,              \
				 struct effect_table *ret_table);
#define PIXELS(name)
#define EFFECT(constant, how, ...) how
EFFECTS(EFFECT)
#undef EFFECT
#undef PIXELS
#undef TABLE

/*
 * Computes a Gaussian kernel of 2 * taps + 1 pixels. weights[k] is the weight of the pixels at
 * distance k + 1.
 */
void effect_gauss_weights(double sigma, unsigned taps, int16_t weights[]);
/* Computes the weights of a blend of two pictures, in the precision of the kernels. */
void effect_blend(double factor, float *ret_factor, float *ret_rest);
