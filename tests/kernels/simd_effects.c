/* Effect kernels: every instruction set against the C reference. Lengths run from 1 up. */
#include "tests/kernels/cpu.h"

#include "format/augment/kernels/effect_kernels.h"

#include <stdlib.h>
#include <string.h>

enum { PIXELS_MAX = 8192 };

static const struct effect_kernels *kernels[CPU_ISA_COUNT];

/* Returns the number of pixels of the row, random if the case does not set it. */
static uint32_t count_of(const struct kernel_case *k)
{
	return k->w ? k->h * k->w : cpu_between(1, PIXELS_MAX);
}

/* Noise, greys, two levels, or few levels. */
static uint32_t *new_pixels(uint32_t count)
{
	uint32_t *pixels = cpu_updates((size_t)4 * count), kind = cpu_below(4);

	for (uint32_t i = 0; i < count; i++) {
		uint32_t value = cpu_random();

		pixels[i] = kind == 0   ? value & 0xffffff
			    : kind == 1 ? (value & 255) * 0x010101
			    : kind == 2 ? (value & 0x010101) * 255
					: (value & 0x030303) * 60 + 3;
	}
	return pixels;
}

static void draw_table(struct effect_table *table)
{
	for (int c = 0; c < 3; c++)
		for (int i = 0; i < 256; i++)
			table->of[c][i] = (uint8_t)cpu_random();
}

static void table(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count = count_of(k), *pixels = new_pixels(count);
	struct effect_table values;

	draw_table(&values);
	CPU_RUN(kernels[isa]->table(pixels, count, &values));
}

static void histogram(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count = count_of(k), *pixels = new_pixels(count);
	uint32_t(*bins)[256] = cpu_updates(3 * sizeof(*bins));

	memset(bins, 0, 3 * sizeof(*bins));
	CPU_RUN(kernels[isa]->histogram(pixels, count, bins));
}

static void luma_sum(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count = count_of(k), *pixels = new_pixels(count);
	uint64_t sum = 0;

	CPU_RUN(sum = kernels[isa]->luma_sum(pixels, count));
	cpu_result(&sum, sizeof(sum));
}

static void grayscale(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count = count_of(k), *pixels = new_pixels(count);

	CPU_RUN(kernels[isa]->grayscale(pixels, count));
}

static void saturation(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count = count_of(k), *pixels = new_pixels(count);
	float factor, rest;

	effect_blend(cpu_uniform(0, 3), &factor, &rest);
	CPU_RUN(kernels[isa]->saturation(pixels, count, factor, rest));
}

static void hue(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count = count_of(k), *pixels = new_pixels(count);
	float turns = (float)cpu_uniform(-0.5, 0.5);

	CPU_RUN(kernels[isa]->hue(pixels, count, turns));
}

/*
 * Returns a map for a picture with `count` pixels or slightly fewer; while timed, a small rotation
 * of the whole picture.
 */
static struct effect_map draw_map(const struct kernel_case *k, uint32_t count)
{
	struct effect_map map = {.x = {0.9f / 112, 0.3f / 112, 0.01f},
				 .y = {-0.3f / 112, 0.9f / 112, 0.02f},
				 .width = k->w,
				 .height = k->h,
				 .masked = true};

	if (k->h > 1)
		return map;
	map.width = cpu_between(1, count < 300 ? count : 300);
	map.height = count / map.width;
	map.masked = cpu_random() & 1;
	map.fill = cpu_random() & 0xffffff;
	for (int i = 0; i < 3; i++) {
		map.x[i] = (float)(cpu_uniform(-1.5, 1.5) / (i < 2 ? 0.5 * map.width : 1));
		map.y[i] = (float)(cpu_uniform(-1.5, 1.5) / (i < 2 ? 0.5 * map.height : 1));
	}
	return map;
}

/* Warps out of place. The source has the pixel for positions outside the picture at its end. */
static void warp(const struct kernel_case *k, bool bilinear, enum cpu_isa isa)
{
	uint32_t count = count_of(k);
	struct effect_map map = draw_map(k, count);
	size_t size = (size_t)4 * map.width * map.height;
	uint32_t *from = new_pixels(map.width * map.height + 1), *to = cpu_writes(size, size);

	from[map.width * map.height] = bilinear ? 0 : map.fill;
	CPU_RUN((bilinear ? kernels[isa]->warp_bilinear : kernels[isa]->warp_nearest)(&map, from,
										      to));
}

static void nearest(const struct kernel_case *k, enum cpu_isa isa)
{
	warp(k, false, isa);
}

static void bilinear(const struct kernel_case *k, enum cpu_isa isa)
{
	warp(k, true, isa);
}

static void sharpen_rows(const struct effect_kernels *kernel, const struct effect_map *map,
			 const uint8_t *from, uint8_t *to, float rest)
{
	size_t stride = (size_t)map->width * 4;

	for (uint32_t y = 1; stride > 8 && y + 1 < map->height; y++)
		kernel->sharpen(from + y * stride + 4, to + y * stride + 4, stride, stride - 8,
				rest);
}

static void sharpen(const struct kernel_case *k, enum cpu_isa isa)
{
	struct effect_map map = draw_map(k, count_of(k));
	uint32_t count = map.width * map.height;
	uint8_t *from = (uint8_t *)new_pixels(count), *to = cpu_updates((size_t)4 * count);
	float factor, rest;

	effect_blend(cpu_uniform(0, 3), &factor, &rest);
	CPU_RUN(sharpen_rows(kernels[isa], &map, from, to, rest));
}

/* Bytes to 16 bits, blurred as one line with enough margin for the taps, and back. */
static void blur_line(const struct effect_kernels *kernel, struct effect_blur *blur,
		      uint8_t *pixels, size_t size, int16_t *line, int16_t *out)
{
	size_t margin = 4 * (size_t)blur->taps;

	kernel->widen(pixels, line, size);
	blur->middle = line + margin;
	for (unsigned t = 0; t < blur->taps; t++) {
		blur->before[t] = blur->middle - 4 * (t + 1);
		blur->after[t] = blur->middle + 4 * (t + 1);
	}
	kernel->blur(blur, size - 2 * margin, out);
	kernel->narrow(out, pixels, size - 2 * margin);
}

static void blur(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count = count_of(k);
	struct effect_blur blur = {.taps = k->h > 1 ? 11 : cpu_below(12)};
	size_t size = (size_t)4 * count, margin = 4 * (size_t)blur.taps;
	uint8_t *pixels = (uint8_t *)new_pixels(count);

	effect_gauss_weights(k->h > 1 ? 2 : cpu_uniform(0.1, 5), blur.taps, blur.weights);
	if (size <= 2 * margin)
		return;
	int16_t *line = cpu_writes(2 * size, 2 * size);
	int16_t *out = cpu_writes(2 * (size - 2 * margin), 2 * (size - 2 * margin));
	CPU_RUN(blur_line(kernels[isa], &blur, pixels, size, line, out));
}

static void mix_one(const struct effect_kernels *kernel, float *sum, uint32_t *pixels,
		    uint32_t count, const struct effect_table *values, float share)
{
	kernel->mix_begin(sum, pixels, count, 0.3f);
	kernel->table(pixels, count, values);
	kernel->mix_add(sum, pixels, count, share);
	kernel->mix_end(pixels, sum, count);
}

static void mix(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count = count_of(k), *pixels = new_pixels(count);
	float *sum = cpu_writes(0, (size_t)16 * count), factor, rest;
	struct effect_table values;

	draw_table(&values);
	effect_blend(cpu_uniform(0, 3), &factor, &rest);
	CPU_RUN(mix_one(kernels[isa], sum, pixels, count, &values, factor * 0.3f));
}

/* Packs pixels in place; the kernel leaves the remaining bytes undefined. */
static void pack(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count = count_of(k), *pixels = new_pixels(count);

	CPU_RUN(kernels[isa]->pack((uint8_t *)pixels, pixels, count));
	memset((uint8_t *)pixels + (size_t)3 * count, 0, count);
}

/* Bytes in random order, each within 48 bytes of its block's first. */
static void arrange(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t size = EFFECT_BLOCK + count_of(k), per_block = cpu_between(1, 3);
	uint32_t blocks = (size + EFFECT_BLOCK - 1) / EFFECT_BLOCK, room = size + 64;
	const uint8_t *in = cpu_reads(room);
	struct effect_part *parts = calloc((size_t)blocks * per_block, sizeof(*parts));

	for (uint32_t b = 0; b < blocks; b++) {
		uint32_t first = cpu_below(room - EFFECT_BLOCK * per_block + 1);

		for (uint32_t i = 0; i < EFFECT_BLOCK; i++) {
			uint32_t from = cpu_below(per_block);

			for (uint32_t p = 0; p < per_block; p++) {
				struct effect_part *part = &parts[b * per_block + p];

				part->at = first + p * EFFECT_BLOCK;
				part->select[i] = p == from ? (uint8_t)cpu_below(EFFECT_BLOCK)
							    : EFFECT_ELSEWHERE;
			}
		}
	}
	uint8_t *out = cpu_writes(size, size);

	CPU_RUN(kernels[isa]->arrange(parts, per_block, in, out, size));
	free(parts);
}

/* Tests every length up to 150 four times, and 60 random lengths. */
static const struct kernel_shape any[1];

#define OPERATIONS(X)                                                                              \
	X(table)                                                                                   \
	X(histogram)                                                                               \
	X(luma_sum)                                                                                \
	X(grayscale)                                                                               \
	X(saturation)                                                                              \
	X(hue)                                                                                     \
	X(nearest)                                                                                 \
	X(bilinear)                                                                                \
	X(sharpen)                                                                                 \
	X(blur)                                                                                    \
	X(mix)                                                                                     \
	X(arrange)                                                                                 \
	X(pack)

#define TESTS(effect) CHECK_WIDTHS(effect, 150, 4), CHECK_TIMES(effect, any, 60),
static const struct kernel_test tests[] = {OPERATIONS(TESTS)};

#define TIMED(effect) {#effect, NULL, effect, .n = 1, .h = 224, .w = 224, .c = 1, .unit = "pixel"},
static const struct kernel_case timed[] = {OPERATIONS(TIMED)};

__attribute__((constructor)) static void find_kernels(void)
{
	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++)
		kernels[isa] = effect_kernels_get((enum cpu_isa)isa);
}

KERNELS_MAIN(&cpu_kernels, tests, timed)
