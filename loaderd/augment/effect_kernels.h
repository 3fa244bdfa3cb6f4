/*
 * Inside of effects: what the driver (effects.c) and the kernels of one instruction set share. A pixel is a uint32_t: red in the
 * lowest byte, then green, blue, and a byte that stays zero. Kernels have no state; in and out do not overlap.
 */
#pragma once

#include "effects.h"

/* A function of a byte, for each channel. */
struct effect_table {
	uint8_t of[3][256] __attribute__((aligned(64)));
};

struct effect_kernels {
	void (*table)(uint32_t *pixels, size_t count, const struct effect_table *table);
	void (*histogram)(const uint32_t *pixels, size_t count, uint32_t histogram[3][256]);
	/* Sum of the luma of all pixels, each rounded down. */
	uint64_t (*luma_sum)(const uint32_t *pixels, size_t count);
	void (*grayscale)(uint32_t *pixels, size_t count);
	/* factor of the pixel and rest = 1 - factor of its luma. */
	void (*saturation)(uint32_t *pixels, size_t count, float factor, float rest);
	void (*hue)(uint32_t *pixels, size_t count, float turns);
	/* count pixels to 3 bytes each; output may be where pixels are. */
	void (*pack)(uint8_t *output, const uint32_t *pixels, size_t count);
};

extern const struct effect_kernels effect_kernels_c;
extern const struct effect_kernels effect_kernels_avx2;
extern const struct effect_kernels effect_kernels_avx512;

const struct effect_kernels *effect_kernels_get(enum augment_isa isa);

/* The tables of the effects that have one. They are made the same way for all instruction sets. */
void effect_table_brightness(struct effect_table *table, double factor);
/* luma_mean: mean of the picture's luma. */
void effect_table_contrast(struct effect_table *table, double factor, float luma_mean);
void effect_table_invert(struct effect_table *table);
void effect_table_solarize(struct effect_table *table, double threshold);
void effect_table_posterize(struct effect_table *table, unsigned bits);
void effect_table_autocontrast(struct effect_table *table, const uint32_t histogram[3][256]);
void effect_table_equalize(struct effect_table *table, const uint32_t histogram[3][256]);
/* The weights of a blend: *ret_factor of one picture and *ret_rest of the other, in the precision that kernels can keep. */
void effect_blend(double factor, float *ret_factor, float *ret_rest);
