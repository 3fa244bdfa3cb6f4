/*
 * Compares every instruction set of resize with the C reference, byte for byte. With --bench [SET
 * [CASE]], measures all sets, or only the given one.
 *
 * Sources lie between two inaccessible pages, so reading outside the image crashes. Outputs are
 * surrounded by canaries.
 */
#include "format/augment/resize/resize.h"
#include "format/base/random.h"
#include "tests/kernels/guarded.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CANARY = 0xa5, CANARY_SIZE = 96 };

static struct resize *resizers[CPU_ISA_COUNT];
static int isa_max, bench_only = -1;
static const char *bench_case = "";
static struct random_stream rng;

static uint32_t between(uint32_t low, uint32_t high)
{
	return low + random_below(&rng, high - low + 1);
}

struct shape {
	uint32_t width, height, source_channels, target_channels;
	struct resize_axis x, y;
	uint32_t source_gap, target_gap; /* bytes of stride beyond the row */
};

static void describe(const struct shape *s)
{
	fprintf(stderr,
		"source %ux%u, %u to %u channels, x %g+%g [%u,%u) to %u%s, y %g+%g [%u,%u) to "
		"%u%s, gaps %u %u\n",
		s->width, s->height, s->source_channels, s->target_channels, s->x.origin, s->x.step,
		s->x.low, s->x.high, s->x.count, s->x.reverse ? " reversed" : "", s->y.origin,
		s->y.step, s->y.low, s->y.high, s->y.count, s->y.reverse ? " reversed" : "",
		s->source_gap, s->target_gap);
}

struct row_check {
	uint8_t *pixels;
	size_t stride, row_size;
	uint32_t rows;
};

static void take_row(void *context, uint32_t row, const uint8_t *pixels)
{
	struct row_check *check = context;

	memcpy(check->pixels + row * check->stride, pixels, check->row_size);
	check->rows++;
}

/* How output rows are written. */
enum way { IN_PLACE, BY_ROWS, STREAMED, WAYS };

static const char *const way_names[WAYS] = {"", " by rows", " streamed"};

static bool can_be_streamed(const struct shape *s)
{
	return s->x.count * s->target_channels % RESIZE_STREAM_UNIT == 0 &&
	       s->target_gap % RESIZE_STREAM_UNIT == 0;
}

/*
 * Runs one shape. The returned block has canaries before, after and in the gaps, and the output
 * does not start at a cache line.
 */
static uint8_t *run(struct resize *resize, const struct shape *s, const uint8_t *source,
		    enum way way, size_t *ret_size)
{
	size_t row_size = (size_t)s->x.count * s->target_channels,
	       stride = row_size + s->target_gap;
	size_t size = stride * s->y.count + 2 * CANARY_SIZE;
	uint8_t *block = aligned_alloc(64, (size + 63) / 64 * 64);
	struct resize_source from = {.data = source,
				     .stride =
					     (size_t)s->width * s->source_channels + s->source_gap,
				     .width = s->width,
				     .height = s->height,
				     .channels = s->source_channels};
	struct resize_target to = {.data = block + CANARY_SIZE,
				   .stride = (ptrdiff_t)stride,
				   .channels = s->target_channels,
				   .stream = way == STREAMED};
	struct row_check check = {.pixels = to.data, .stride = stride, .row_size = row_size};

	if (!block)
		exit(1);
	memset(block, CANARY, size);
	if (way == BY_ROWS)
		to = (struct resize_target){
			.channels = s->target_channels, .sink = take_row, .context = &check};
	int r = resize_region(resize, &from, &s->x, &s->y, &to);

	if (r < 0 || (way == BY_ROWS && check.rows != s->y.count)) {
		fprintf(stderr, "resize_region: %s\n", strerror(-r));
		describe(s);
		exit(1);
	}
	*ret_size = size;
	return block;
}

static void check_canaries(const struct shape *s, const uint8_t *block, size_t size)
{
	size_t row_size = (size_t)s->x.count * s->target_channels,
	       stride = row_size + s->target_gap;

	for (size_t i = 0; i < size; i++) {
		bool inside = i >= CANARY_SIZE && i < size - CANARY_SIZE &&
			      (i - CANARY_SIZE) % stride < row_size;

		if (!inside && block[i] != CANARY) {
			fprintf(stderr, "byte %zu outside the output was written\n", i);
			describe(s);
			exit(1);
		}
	}
}

static void compare(const struct shape *s)
{
	struct guarded guarded;
	size_t stride = (size_t)s->width * s->source_channels + s->source_gap;
	/* The last row has no gap after it: the image ends with its last pixel. */
	size_t source_size = stride * (s->height - 1) + (size_t)s->width * s->source_channels, size;
	uint8_t *source = guarded_new(&guarded, source_size);
	uint32_t kind = random_below(&rng, 4);

	for (size_t i = 0; i < source_size; i++)
		source[i] = kind == 0   ? 255
			    : kind == 1 ? (uint8_t)(random_u32(&rng) & 1 ? 255 : 0)
					: (uint8_t)random_u32(&rng);
	uint8_t *reference = run(resizers[0], s, source, IN_PLACE, &size);

	check_canaries(s, reference, size);
	for (int isa = 0; isa <= isa_max; isa++)
		for (int way = isa == 0; way < (can_be_streamed(s) ? WAYS : STREAMED); way++) {
			uint8_t *block = run(resizers[isa], s, source, (enum way)way, &size);

			for (size_t i = 0; i < size; i++)
				if (block[i] != reference[i]) {
					fprintf(stderr,
						"%s%s: byte %zu is %u, the reference says %u\n",
						cpu_isa_name((enum cpu_isa)isa), way_names[way],
						i - CANARY_SIZE, block[i], reference[i]);
					describe(s);
					exit(1);
				}
			free(block);
		}
	free(reference);
	guarded_free(&guarded);
}

static struct resize_axis whole_axis(uint32_t size, uint32_t count)
{
	return (struct resize_axis){.step = (double)size / count, .high = size, .count = count};
}

/* Draws a crop, or a window of a resized crop, sometimes with fractional edges. */
static struct resize_axis random_axis(uint32_t size, uint32_t count_max)
{
	struct resize_axis axis = {.reverse = random_u32(&rng) & 1};
	uint32_t extent = between(1, size), grid = between(1, count_max);

	axis.low = between(0, size - extent);
	axis.high = axis.low + extent;
	axis.step = (double)extent / grid;
	axis.count = between(1, grid);
	axis.origin = axis.low + between(0, grid - axis.count) * axis.step;
	if (extent > 2 && (random_u32(&rng) & 3) == 0) {
		axis.step *= (extent - 1.5) / extent;
		axis.origin = axis.low + (axis.origin - axis.low) * (extent - 1.5) / extent + 0.75;
	}
	return axis;
}

static struct shape random_shape(uint32_t side_max, uint32_t count_max)
{
	static const uint32_t pairs[][2] = {{3, 3}, {3, 3}, {3, 4}, {3, 3}, {1, 1},
					    {1, 3}, {2, 2}, {4, 4}, {2, 4}, {1, 4}};
	const uint32_t *pair = pairs[random_below(&rng, 10)];
	struct shape s = {.width = between(1, side_max),
			  .height = between(1, side_max),
			  .source_channels = pair[0],
			  .target_channels = pair[1],
			  .source_gap = between(0, 70) / 2,
			  .target_gap = between(0, 70) / 2};

	s.x = random_axis(s.width, count_max);
	s.y = random_axis(s.height, count_max);
	return s;
}

static void compare_all(void)
{
	/* Every width, enlarged and reduced, and both directions at their smallest. */
	for (uint32_t width = 1; width <= 200; width++)
		for (unsigned i = 0; i < 8; i++) {
			static const uint32_t factors[8][2] = {{1, 1}, {2, 1}, {1, 2}, {3, 4},
							       {4, 3}, {1, 3}, {1, 7}, {1, 15}};
			uint32_t count = width * factors[i][0] / factors[i][1];
			struct shape s = {.width = width,
					  .height = between(1, 20),
					  .source_channels = 3,
					  .target_channels = 3,
					  .source_gap = between(0, 5)};

			s.x = whole_axis(width, count ? count : 1);
			s.y = whole_axis(s.height, between(1, 20));
			s.x.reverse = i & 1;
			compare(&s);
		}
	for (int i = 0; i < 1500; i++) {
		struct shape s = random_shape(i % 3 == 0 ? 24 : 180, i % 5 == 0 ? 240 : 90);

		compare(&s);
	}
	for (int i = 0; i < 12; i++) {
		struct shape s = random_shape(900, 700);

		compare(&s);
	}
	for (int i = 0; i < 300; i++) {
		struct shape s = random_shape(180, 90);

		s.x = whole_axis(s.width, 32 * between(1, 6));
		s.target_gap = RESIZE_STREAM_UNIT * between(0, 2);
		compare(&s);
	}
	/* Wide enough to be cut into tiles; and extremely tall and thin. */
	struct shape wide = {
		.width = 65535, .height = 9, .source_channels = 3, .target_channels = 3};

	wide.x = whole_axis(65535, 40001);
	wide.y = whole_axis(9, 5);
	compare(&wide);
	wide.x = whole_axis(65535, 7);
	compare(&wide);
	/* Reduced by sums over many taps, with tile boundaries within pixels. */
	for (unsigned i = 0; i < 6; i++) {
		static const uint32_t counts[] = {3001, 4097, 5461, 6007, 8191, 13107};

		wide.x = whole_axis(65535, counts[i]);
		wide.x.reverse = i & 1;
		compare(&wide);
	}
	struct shape tall = {
		.width = 50, .height = 65535, .source_channels = 3, .target_channels = 4};

	tall.x = whole_axis(50, 77);
	tall.y = whole_axis(65535, 3);
	compare(&tall);
}

static int rows_are_there(void *context, uint32_t end)
{
	return end <= *(const uint32_t *)context ? 0 : -EIO;
}

/* Planes of a picture: chroma is a fraction of luma's size, all three have the same output size. */
static void compare_planes(void)
{
	uint32_t count_x = between(1, 200), count_y = between(1, 40), channels = between(3, 4);
	uint32_t factor_x = between(1, 4), factor_y = between(1, 2), kind = random_below(&rng, 3);
	uint32_t width = between(1, 300), height = between(1, 60);
	size_t row = (size_t)count_x * channels, size = row * count_y + 2 * CANARY_SIZE;
	struct resize_plane planes[3];
	struct guarded guards[3];
	uint8_t *reference = NULL;

	for (int i = 0; i < 3; i++) {
		struct resize_plane *plane = &planes[i];
		uint32_t w = i ? (width + factor_x - 1) / factor_x : width;
		uint32_t h = i ? (height + factor_y - 1) / factor_y : height, ring = 32;
		uint8_t *samples = guarded_new(&guards[i], (size_t)w * h);

		while (ring < h)
			ring *= 2;
		for (size_t j = 0; j < (size_t)w * h; j++)
			samples[j] = kind == 0   ? (uint8_t)(random_u32(&rng) & 1 ? 255 : 0)
				     : kind == 1 ? 255
						 : (uint8_t)random_u32(&rng);
		plane->x =
			(struct resize_axis){.step = (double)width / (i ? factor_x : 1) / count_x,
					     .high = w,
					     .count = count_x,
					     .reverse = width & 1};
		plane->y =
			(struct resize_axis){.step = (double)height / (i ? factor_y : 1) / count_y,
					     .high = h,
					     .count = count_y,
					     .reverse = height & 1};
		plane->source = (struct resize_source){.data = samples,
						       .stride = w,
						       .ring = ring,
						       .rows = rows_are_there,
						       .width = w,
						       .height = h,
						       .channels = 1};
	}
	for (int i = 0; i < 3; i++)
		planes[i].source.context = &planes[i].source.height;
	for (int isa = 0; isa <= isa_max; isa++) {
		uint8_t *block = malloc(size);
		struct resize_target target = {.data = block + CANARY_SIZE,
					       .stride = (ptrdiff_t)row,
					       .channels = channels};

		memset(block, CANARY, size);
		if (resize_planes(resizers[isa], planes, &target) < 0 ||
		    (reference && memcmp(block, reference, size) != 0) ||
		    block[CANARY_SIZE - 1] != CANARY || block[size - CANARY_SIZE] != CANARY) {
			fprintf(stderr,
				"%s: planes of %ux%u, chroma 1/%u x 1/%u, to %ux%u, %u channels\n",
				cpu_isa_name((enum cpu_isa)isa), width, height, factor_x, factor_y,
				count_x, count_y, channels);
			exit(1);
		}
		if (reference)
			free(block);
		else
			reference = block;
	}
	free(reference);
	for (int i = 0; i < 3; i++)
		guarded_free(&guards[i]);
}

static void check_refusals(void)
{
	uint8_t pixels[12] = {0}, output[64];
	struct resize_source source = {
		.data = pixels, .stride = 6, .width = 2, .height = 2, .channels = 3};
	struct resize_target target = {.data = output, .stride = 6, .channels = 3};
	const struct resize_axis good = whole_axis(2, 2);
	struct resize_axis bad[] = {good, good, good, good, good, good};

	bad[0].high = 3;
	bad[1].low = 2;
	bad[2].count = 0;
	bad[3].step = 0;
	bad[4].origin = 2;
	bad[5].step = NAN;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (resize_region(resizers[0], &source, &bad[i], &good, &target) != -EINVAL ||
		    resize_region(resizers[0], &source, &good, &bad[i], &target) != -EINVAL) {
			fprintf(stderr, "bad axis %u is not refused\n", i);
			exit(1);
		}
	target.channels = 1;
	if (resize_region(resizers[0], &source, &good, &good, &target) != -EINVAL) {
		fprintf(stderr, "three channels to one is not refused\n");
		exit(1);
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Random-resized crops (scale 0.08:1, ratio 3:4 to 4:3) of width x height. */
static void bench_crops(const char *name, uint32_t width, uint32_t height, uint32_t size)
{
	enum { CROPS = 400 };
	uint8_t *source = malloc((size_t)width * height * 3);
	uint8_t *output = malloc((size_t)size * size * 3);
	struct resize_axis axes[CROPS][2];
	struct resize_source from = {.data = source,
				     .stride = (size_t)width * 3,
				     .width = width,
				     .height = height,
				     .channels = 3};
	struct resize_target to = {.data = output, .stride = (ptrdiff_t)size * 3, .channels = 3};
	double pixels = 0;

	if (!strstr(name, bench_case)) {
		free(source);
		free(output);
		return;
	}
	if (!source || !output)
		exit(1);
	for (size_t i = 0; i < (size_t)width * height * 3; i++)
		source[i] = (uint8_t)random_u32(&rng);
	for (int i = 0; i < CROPS;) {
		double area = (double)width * height * (0.08 + 0.92 * random_float(&rng));
		double ratio = exp((random_float(&rng) * 2 - 1) * log(4.0 / 3));
		uint32_t w = (uint32_t)lrint(sqrt(area * ratio)),
			 h = (uint32_t)lrint(sqrt(area / ratio));

		if (w > width || h > height)
			continue;
		axes[i][0] = (struct resize_axis){.step = (double)w / size, .count = size};
		axes[i][0].low = between(0, width - w);
		axes[i][0].high = axes[i][0].low + w;
		axes[i][0].origin = axes[i][0].low;
		axes[i][0].reverse = i & 1;
		axes[i][1] = (struct resize_axis){.step = (double)h / size, .count = size};
		axes[i][1].low = between(0, height - h);
		axes[i][1].high = axes[i][1].low + h;
		axes[i][1].origin = axes[i][1].low;
		pixels += (double)w * h;
		i++;
	}
	for (int isa = 0; isa <= isa_max; isa++) {
		double best = 1e9;

		if (bench_only >= 0 && isa != bench_only)
			continue;

		for (int round = 0; round < (isa ? 24 : 2); round++) {
			double start = seconds();

			for (int i = 0; i < CROPS; i++)
				resize_region(resizers[isa], &from, &axes[i][0], &axes[i][1], &to);
			double time = (seconds() - start) / CROPS;

			best = time < best ? time : best;
		}
		printf("%-34s %-8s %8.2f us a crop %7.3f ns a source pixel\n", name,
		       cpu_isa_name((enum cpu_isa)isa), best * 1e6, best * 1e9 * CROPS / pixels);
	}
	free(source);
	free(output);
}

static void bench_image(const char *name, uint32_t width, uint32_t height, uint32_t to_width,
			uint32_t to_height)
{
	uint8_t *source = malloc((size_t)width * height * 3);
	uint8_t *output = malloc((size_t)to_width * to_height * 3);
	struct resize_picture from = {.data = source,
				      .stride = (size_t)width * 3,
				      .width = width,
				      .height = height,
				      .channels = 3,
				      .extent_width = width,
				      .extent_height = height};

	if (!strstr(name, bench_case)) {
		free(source);
		free(output);
		return;
	}
	if (!source || !output)
		exit(1);
	for (size_t i = 0; i < (size_t)width * height * 3; i++)
		source[i] = (uint8_t)random_u32(&rng);
	for (int isa = 0; isa <= isa_max; isa++) {
		double best = 1e9;

		if (bench_only >= 0 && isa != bench_only)
			continue;

		for (int round = 0; round < (isa ? 24 : 2); round++) {
			double start = seconds();

			resize_image(resizers[isa], &from, to_width, to_height, output,
				     (size_t)to_width * 3);
			double time = seconds() - start;

			best = time < best ? time : best;
		}
		printf("%-34s %-8s %8.2f us          %7.3f ns a source pixel\n", name,
		       cpu_isa_name((enum cpu_isa)isa), best * 1e6,
		       best * 1e9 / ((double)width * height));
	}
	free(source);
	free(output);
}

int main(int argc, char **argv)
{
	isa_max = (int)cpu_isa_supported();
	for (int isa = 0; isa <= isa_max; isa++)
		if (resize_new_isa((enum cpu_isa)isa, &resizers[isa]) < 0)
			return 1;
	random_init(&rng, 3, 0, 0, RANDOM_AUGMENT);
	if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
		for (int isa = 0; argc > 2 && isa <= isa_max; isa++)
			if (strcmp(argv[2], cpu_isa_name((enum cpu_isa)isa)) == 0)
				bench_only = isa;
		if (argc > 3)
			bench_case = argv[3];
		bench_crops("crops of 341x256 to 224", 341, 256, 224);
		bench_crops("crops of 468x401 to 224", 468, 401, 224);
		bench_crops("crops of 341x256 to 128", 341, 256, 128);
		bench_crops("crops of 500x375 to 64", 500, 375, 64);
		bench_image("500x375 to 341x256", 500, 375, 341, 256);
		bench_image("4000x3000 to 341x256", 4000, 3000, 341, 256);
		bench_image("32x32 to 32x24", 32, 32, 32, 24);
	} else {
		compare_all();
		for (int i = 0; i < 1500; i++)
			compare_planes();
		check_refusals();
		printf("every set up to %s equals the reference\n",
		       cpu_isa_name((enum cpu_isa)isa_max));
	}
	for (int isa = 0; isa <= isa_max; isa++)
		resize_free(resizers[isa]);
	return 0;
}
