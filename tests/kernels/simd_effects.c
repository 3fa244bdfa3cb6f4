/*
 * Compares every instruction set's effect kernels with the C reference, byte for byte. With
 * --bench, measures each.
 *
 * Pictures end at an inaccessible page, so a kernel that accesses bytes beyond them crashes.
 * Lengths run from 1 up.
 */
#include "format/augment/kernels/effect_kernels.h"
#include "format/base/random.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PIXELS_MAX = 8192 };

static const struct effect_kernels *kernels[CPU_ISA_COUNT];
static struct random_stream rng;
static int isa_max;

/* A buffer that ends at an inaccessible page. */
struct guarded {
	uint8_t *end;
};

static struct guarded guarded_new(void)
{
	size_t size = (size_t)PIXELS_MAX * 4, page = 4096;
	uint8_t *map =
		mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED || mprotect(map + size, page, PROT_NONE) < 0) {
		perror("mmap");
		exit(1);
	}
	return (struct guarded){map + size};
}

static uint32_t *last_pixels(const struct guarded *guarded, size_t count)
{
	return (uint32_t *)(void *)(guarded->end - 4 * count);
}

static double uniform(double low, double high)
{
	return low + (high - low) * (double)random_float(&rng);
}

/* Random parameters of an operation. */
struct chance {
	struct effect_table table;
	float factor, rest, turns;
	struct effect_map map; /* of a picture with count pixels or slightly fewer */
	int16_t weights[EFFECT_BLUR_TAPS_MAX];
	unsigned taps;
};

static void draw_chance(struct chance *chance, size_t count)
{
	for (int c = 0; c < 3; c++)
		for (int i = 0; i < 256; i++)
			chance->table.of[c][i] = (uint8_t)random_u32(&rng);
	effect_blend(uniform(0, 3), &chance->factor, &chance->rest);
	chance->turns = (float)uniform(-0.5, 0.5);
	chance->map = (struct effect_map){
		.width = 1 + random_below(&rng, (uint32_t)(count < 300 ? count : 300)),
		.masked = random_u32(&rng) & 1,
		.fill = random_u32(&rng) & 0xffffff};
	chance->map.height = (uint32_t)count / chance->map.width;
	for (int i = 0; i < 3; i++) {
		chance->map.x[i] =
			(float)(uniform(-1.5, 1.5) / (i < 2 ? 0.5 * chance->map.width : 1));
		chance->map.y[i] =
			(float)(uniform(-1.5, 1.5) / (i < 2 ? 0.5 * chance->map.height : 1));
	}
	chance->taps = random_below(&rng, 12);
	effect_gauss_weights(uniform(0.1, 5), chance->taps, chance->weights);
}

enum operation {
	TABLE,
	HISTOGRAM,
	LUMA_SUM,
	GRAYSCALE,
	SATURATION,
	HUE,
	NEAREST,
	BILINEAR,
	SHARPEN,
	BLUR,
	MIX,
	PACK,
	OPERATIONS,
};

static const char *const operation_names[OPERATIONS] = {
	"table",   "histogram", "luma_sum", "grayscale", "saturation", "hue",
	"nearest", "bilinear",  "sharpen",  "blur",      "mix",        "pack"};

/* Runs out of place, from a copy followed by the outside pixel. */
static void run_warp(const struct effect_kernels *k, const struct chance *chance, bool bilinear,
		     uint32_t *pixels)
{
	size_t count = (size_t)chance->map.width * chance->map.height;
	uint32_t *copy = malloc((count + 1) * sizeof(*copy));

	if (!copy)
		exit(1);
	memcpy(copy, pixels, 4 * count);
	copy[count] = bilinear ? 0 : chance->map.fill;
	(bilinear ? k->warp_bilinear : k->warp_nearest)(&chance->map, copy, pixels);
	free(copy);
}

static void run_sharpen(const struct effect_kernels *k, const struct chance *chance,
			uint32_t *pixels)
{
	size_t stride = (size_t)chance->map.width * 4, size = stride * chance->map.height;
	uint8_t *copy = malloc(size);

	if (!copy)
		exit(1);
	memcpy(copy, pixels, size);
	for (uint32_t y = 1; stride > 8 && y + 1 < chance->map.height; y++)
		k->sharpen(copy + y * stride + 4, (uint8_t *)pixels + y * stride + 4, stride,
			   stride - 8, chance->rest);
	free(copy);
}

/* Treats the pixels as one line with enough margin for the taps; converts to 16 bits and back. */
static void run_blur(const struct effect_kernels *k, const struct chance *chance, uint32_t *pixels,
		     size_t count)
{
	size_t margin = 4 * (size_t)chance->taps, size = 4 * count;
	int16_t *line = calloc(size, 2), *out;
	struct effect_blur blur = {.taps = chance->taps};

	if (!line || size <= 2 * margin) {
		free(line);
		return;
	}
	size -= 2 * margin;
	out = malloc(size * 2);
	if (!out)
		exit(1);
	memcpy(blur.weights, chance->weights, sizeof(blur.weights));
	k->widen((const uint8_t *)pixels, line, 4 * count);
	blur.middle = line + margin;
	for (unsigned t = 0; t < blur.taps; t++) {
		blur.before[t] = blur.middle - 4 * (t + 1);
		blur.after[t] = blur.middle + 4 * (t + 1);
	}
	k->blur(&blur, size, out);
	k->narrow(out, (uint8_t *)pixels, size);
	free(line);
	free(out);
}

static void run_mix(const struct effect_kernels *k, const struct chance *chance, uint32_t *pixels,
		    size_t count)
{
	float *sum = malloc(count * 4 * sizeof(*sum));

	if (!sum)
		exit(1);
	k->mix_begin(sum, pixels, count, 0.3f);
	k->table(pixels, count, &chance->table);
	k->mix_add(sum, pixels, count, chance->factor * 0.3f);
	k->mix_end(pixels, sum, count);
	free(sum);
}

/* Runs in place on pixels. Results other than pixels go to extra. */
static void run(int isa, enum operation operation, const struct chance *chance, uint32_t *pixels,
		size_t count, uint64_t extra[3 * 256])
{
	const struct effect_kernels *k = kernels[isa];

	switch (operation) {
	case TABLE:
		k->table(pixels, count, &chance->table);
		return;
	case HISTOGRAM:
		k->histogram(pixels, count, (uint32_t(*)[256])(void *)extra);
		return;
	case LUMA_SUM:
		extra[0] = k->luma_sum(pixels, count);
		return;
	case GRAYSCALE:
		k->grayscale(pixels, count);
		return;
	case SATURATION:
		k->saturation(pixels, count, chance->factor, chance->rest);
		return;
	case HUE:
		k->hue(pixels, count, chance->turns);
		return;
	case NEAREST:
	case BILINEAR:
		run_warp(k, chance, operation == BILINEAR, pixels);
		return;
	case SHARPEN:
		run_sharpen(k, chance, pixels);
		return;
	case BLUR:
		run_blur(k, chance, pixels, count);
		return;
	case MIX:
		run_mix(k, chance, pixels, count);
		return;
	case PACK:
		k->pack((uint8_t *)pixels, pixels, count);
		/* The kernel does not define the rest of the buffer. */
		memset((uint8_t *)pixels + 3 * count, 0, count);
		return;
	default:
		return;
	}
}

static void draw_pixels(uint32_t *pixels, size_t count)
{
	uint32_t kind = random_below(&rng, 4);

	for (size_t i = 0; i < count; i++) {
		uint32_t value = random_u32(&rng);

		/* noise, greys, two levels, few levels */
		pixels[i] = kind == 0   ? value & 0xffffff
			    : kind == 1 ? (value & 255) * 0x010101
			    : kind == 2 ? (value & 0x010101) * 255
					: (value & 0x030303) * 60 + 3;
	}
}

static void compare(enum operation operation, size_t count,
		    const struct guarded places[CPU_ISA_COUNT])
{
	static uint64_t extra[CPU_ISA_COUNT][3 * 256];
	struct chance chance;

	draw_chance(&chance, count);
	draw_pixels(last_pixels(&places[0], count), count);
	for (int isa = 1; isa <= isa_max; isa++)
		memcpy(last_pixels(&places[isa], count), last_pixels(&places[0], count), 4 * count);
	for (int isa = 0; isa <= isa_max; isa++) {
		run(isa, operation, &chance, last_pixels(&places[isa], count), count, extra[isa]);
		if (memcmp(extra[isa], extra[0], sizeof(extra[0])) != 0 ||
		    memcmp(last_pixels(&places[isa], count), last_pixels(&places[0], count),
			   4 * count) != 0) {
			fprintf(stderr, "%s of %zu pixels: %s differs from the reference\n",
				operation_names[operation], count, cpu_isa_name((enum cpu_isa)isa));
			exit(1);
		}
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Measures repeated runs on one picture of 224 x 224. */
static void bench(void)
{
	enum { COUNT = 224 * 224 };
	static uint32_t pixels[COUNT], noise[COUNT];
	static uint64_t extra[3 * 256];
	struct chance chance;

	/* Otherwise part of the time would be page faults on new memory. */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	draw_chance(&chance, COUNT);
	chance.map = (struct effect_map){.x = {0.9f / 112, 0.3f / 112, 0.01f},
					 .y = {-0.3f / 112, 0.9f / 112, 0.02f},
					 .width = 224,
					 .height = 224,
					 .masked = true};
	chance.taps = 11;
	effect_gauss_weights(2, chance.taps, chance.weights);
	for (size_t i = 0; i < COUNT; i++)
		noise[i] = random_u32(&rng) & 0xffffff;
	for (int operation = 0; operation < OPERATIONS; operation++)
		for (int isa = 0; isa <= isa_max; isa++) {
			double best = 1;

			for (int round = 0; round < 60; round++) {
				memcpy(pixels, noise, sizeof(pixels));
				double start = seconds();

				run(isa, (enum operation)operation, &chance, pixels, COUNT, extra);
				double time = seconds() - start;

				best = time < best ? time : best;
			}
			printf("%-12s %-8s %8.2f us a picture of 224x224, %6.3f ns a pixel\n",
			       operation_names[operation], cpu_isa_name((enum cpu_isa)isa),
			       best * 1e6, best * 1e9 / COUNT);
		}
}

int main(int argc, char **argv)
{
	struct guarded places[CPU_ISA_COUNT];

	isa_max = (int)cpu_isa_supported();
	for (int isa = 0; isa <= isa_max; isa++) {
		kernels[isa] = effect_kernels_get((enum cpu_isa)isa);
		places[isa] = guarded_new();
	}
	random_init(&rng, 7, 0, 0, RANDOM_AUGMENT);
	if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
		bench();
		return 0;
	}
	for (int operation = 0; operation < OPERATIONS; operation++) {
		for (size_t count = 1; count <= 150; count++)
			for (int i = 0; i < 4; i++)
				compare((enum operation)operation, count, places);
		for (int i = 0; i < 60; i++)
			compare((enum operation)operation, 1 + random_below(&rng, PIXELS_MAX),
				places);
	}
	printf("every set up to %s equals the reference\n", cpu_isa_name((enum cpu_isa)isa_max));
	return 0;
}
