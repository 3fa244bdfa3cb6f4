/*
 * Resizing: every instruction set against the C reference. Sources lie at an inaccessible page, so
 * reading outside the image crashes.
 */
#include "tests/kernels/cpu.h"

#include "format/augment/resize/resize.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static struct resize *resizers[CPU_ISA_COUNT];

/* ---- regions ---- */

struct region {
	uint32_t width, height, source_channels, target_channels;
	struct resize_axis x, y;
	uint32_t source_gap, target_gap; /* bytes between the rows */
};

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
enum way { IN_PLACE, BY_ROWS, STREAMED };

/* Returns the output, [size] with gaps between its rows. */
static uint8_t *resize_in_way(struct resize *resize, const struct region *s, const uint8_t *source,
			      enum way way, size_t *ret_size)
{
	size_t row_size = (size_t)s->x.count * s->target_channels,
	       stride = row_size + s->target_gap, size = stride * (s->y.count - 1) + row_size;
	uint8_t *out = cpu_writes(size, size);
	struct resize_source from = {.data = source,
				     .stride =
					     (size_t)s->width * s->source_channels + s->source_gap,
				     .width = s->width,
				     .height = s->height,
				     .channels = s->source_channels};
	struct resize_target to = {.data = out,
				   .stride = (ptrdiff_t)stride,
				   .channels = s->target_channels,
				   .stream = way == STREAMED};
	struct row_check check = {.pixels = out, .stride = stride, .row_size = row_size};
	int r = 0;

	if (way == BY_ROWS)
		to = (struct resize_target){
			.channels = s->target_channels, .sink = take_row, .context = &check};
	r = resize_region(resize, &from, &s->x, &s->y, &to);
	if (r < 0 || (way == BY_ROWS && check.rows != s->y.count))
		kernels_fail("resize_region: %s", strerror(-r));
	for (size_t i = 0; i < size; i++)
		if (i % stride >= row_size && out[i] != CPU_CANARY)
			kernels_fail("byte %zu between the rows is written", i);
	*ret_size = size;
	return out;
}

static bool can_be_streamed(const struct region *s)
{
	return s->x.count * s->target_channels % RESIZE_STREAM_UNIT == 0 &&
	       s->target_gap % RESIZE_STREAM_UNIT == 0;
}

/* Checks that all ways of writing give the same output. */
static void check_region(const struct region *s, enum cpu_isa isa)
{
	size_t stride = (size_t)s->width * s->source_channels + s->source_gap, size;
	/* The last row has no gap after it: the image ends with its last pixel. */
	size_t source_size = stride * (s->height - 1) + (size_t)s->width * s->source_channels;
	uint8_t *source = cpu_reads(source_size), *first, *other;

	if (cpu_below(4) == 0)
		memset(source, 255, source_size);
	first = resize_in_way(resizers[isa], s, source, IN_PLACE, &size);
	for (int way = BY_ROWS; way <= (can_be_streamed(s) ? STREAMED : BY_ROWS); way++) {
		other = resize_in_way(resizers[isa], s, source, (enum way)way, &size);
		if (memcmp(first, other, size) != 0)
			kernels_fail("source %ux%u, %u to %u channels, x %g+%g [%u,%u) to %u%s, y "
				     "%g+%g [%u,%u) to %u%s, gaps %u %u: rows %s differ",
				     s->width, s->height, s->source_channels, s->target_channels,
				     s->x.origin, s->x.step, s->x.low, s->x.high, s->x.count,
				     s->x.reverse ? " reversed" : "", s->y.origin, s->y.step,
				     s->y.low, s->y.high, s->y.count,
				     s->y.reverse ? " reversed" : "", s->source_gap, s->target_gap,
				     way == STREAMED ? "streamed" : "one by one");
	}
}

static struct resize_axis whole_axis(uint32_t size, uint32_t count)
{
	return (struct resize_axis){.step = (double)size / count, .high = size, .count = count};
}

/* Draws a crop, or a window of a resized crop, sometimes with fractional edges. */
static struct resize_axis random_axis(uint32_t size, uint32_t count_max)
{
	struct resize_axis axis = {.reverse = cpu_random() & 1};
	uint32_t extent = cpu_between(1, size), grid = cpu_between(1, count_max);

	axis.low = cpu_between(0, size - extent);
	axis.high = axis.low + extent;
	axis.step = (double)extent / grid;
	axis.count = cpu_between(1, grid);
	axis.origin = axis.low + cpu_between(0, grid - axis.count) * axis.step;
	if (extent > 2 && (cpu_random() & 3) == 0) {
		axis.step *= (extent - 1.5) / extent;
		axis.origin = axis.low + (axis.origin - axis.low) * (extent - 1.5) / extent + 0.75;
	}
	return axis;
}

static struct region random_region(uint32_t side_max, uint32_t count_max)
{
	static const uint32_t pairs[][2] = {{3, 3}, {3, 3}, {3, 4}, {3, 3}, {1, 1},
					    {1, 3}, {2, 2}, {4, 4}, {2, 4}, {1, 4}};
	const uint32_t *pair = pairs[cpu_below(10)];
	struct region s = {.width = cpu_between(1, side_max),
			   .height = cpu_between(1, side_max),
			   .source_channels = pair[0],
			   .target_channels = pair[1],
			   .source_gap = cpu_between(0, 70) / 2,
			   .target_gap = cpu_between(0, 70) / 2};

	s.x = random_axis(s.width, count_max);
	s.y = random_axis(s.height, count_max);
	return s;
}

/* Ratio of output size to input size, for a whole width. */
struct factor {
	uint32_t to, from;
};

static const struct factor factors[] = {{1, 1}, {2, 1}, {1, 2}, {3, 4},
					{4, 3}, {1, 3}, {1, 7}, {1, 15}};

static void whole_width(const struct kernel_case *k, enum cpu_isa isa)
{
	const struct factor *factor = k->settings;
	uint32_t count = k->w * factor->to / factor->from;
	struct region s = {.width = k->w,
			   .height = cpu_between(1, 20),
			   .source_channels = 3,
			   .target_channels = 3,
			   .source_gap = cpu_between(0, 5)};

	s.x = whole_axis(k->w, count ? count : 1);
	s.y = whole_axis(s.height, cpu_between(1, 20));
	s.x.reverse = (factor - factors) & 1;
	check_region(&s, isa);
}

/* Regions whose sides are at most h, resized to at most w. */
static void check_random_region(const struct kernel_case *k, enum cpu_isa isa)
{
	struct region s = random_region(k->h, k->w);

	check_region(&s, isa);
}

static void streamed_region(const struct kernel_case *k, enum cpu_isa isa)
{
	struct region s = random_region(180, 90);

	s.x = whole_axis(s.width, 32 * cpu_between(1, 6));
	s.target_gap = RESIZE_STREAM_UNIT * cpu_between(0, 2);
	check_region(&s, isa);
}

/*
 * Regions wide enough to be divided into tiles, resized to w. In all but the first two cases, an
 * output pixel is a sum over many taps, and tiles end within pixels.
 */
static void wide_region(const struct kernel_case *k, enum cpu_isa isa)
{
	struct region s = {.width = 65535, .height = 9, .source_channels = 3, .target_channels = 3};

	s.x = whole_axis(65535, k->w);
	s.y = whole_axis(9, 5);
	s.x.reverse = k->h;
	check_region(&s, isa);
}

static void tall_region(const struct kernel_case *k, enum cpu_isa isa)
{
	struct region s = {
		.width = 50, .height = 65535, .source_channels = 3, .target_channels = 4};

	s.x = whole_axis(50, 77);
	s.y = whole_axis(65535, 3);
	check_region(&s, isa);
}

/* ---- planes of a picture ---- */

static int rows_are_there(void *context, uint32_t end)
{
	return end <= *(const uint32_t *)context ? 0 : -EIO;
}

/* Draws a plane of w x h samples, which represents width x height of them. */
static void draw_plane(struct resize_plane *plane, uint32_t w, uint32_t h, double width,
		       double height, uint32_t count_x, uint32_t count_y, bool reverse_x,
		       bool reverse_y)
{
	uint8_t *samples = cpu_reads((size_t)w * h);
	uint32_t ring = 32;

	while (ring < h)
		ring *= 2;
	plane->x = (struct resize_axis){
		.step = width / count_x, .high = w, .count = count_x, .reverse = reverse_x};
	plane->y = (struct resize_axis){
		.step = height / count_y, .high = h, .count = count_y, .reverse = reverse_y};
	plane->source = (struct resize_source){.data = samples,
					       .stride = w,
					       .ring = ring,
					       .rows = rows_are_there,
					       .width = w,
					       .height = h,
					       .channels = 1};
	plane->source.context = &plane->source.height;
}

/* Chroma is a fraction of luma's size, all three have the same output size. */
static void planes(const struct kernel_case *k, enum cpu_isa isa)
{
	uint32_t count_x = cpu_between(1, 200), count_y = cpu_between(1, 40),
		 channels = cpu_between(3, 4), factor_x = cpu_between(1, 4),
		 factor_y = cpu_between(1, 2), width = cpu_between(1, 300),
		 height = cpu_between(1, 60);
	size_t row = (size_t)count_x * channels, size = row * count_y;
	bool white = cpu_below(3) == 0;
	struct resize_target target = {.stride = (ptrdiff_t)row, .channels = channels};
	struct resize_plane all[3];

	for (int i = 0; i < 3; i++) {
		uint32_t over_x = i ? factor_x : 1, over_y = i ? factor_y : 1,
			 w = (width + over_x - 1) / over_x, h = (height + over_y - 1) / over_y;

		draw_plane(&all[i], w, h, (double)width / over_x, (double)height / over_y, count_x,
			   count_y, width & 1, height & 1);
		if (white)
			memset((uint8_t *)(uintptr_t)all[i].source.data, 255, (size_t)w * h);
	}
	target.data = cpu_writes(size, size);
	if (resize_planes(resizers[isa], all, &target) < 0)
		kernels_fail("resize_planes: %ux%u, chroma 1/%u x 1/%u, to %ux%u, %u channels",
			     width, height, factor_x, factor_y, count_x, count_y, channels);
}

static void refused(void)
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
	for (unsigned i = 0; i < COUNT_OF(bad); i++) {
		assert_int_equal(resize_region(resizers[0], &source, &bad[i], &good, &target),
				 -EINVAL);
		assert_int_equal(resize_region(resizers[0], &source, &good, &bad[i], &target),
				 -EINVAL);
	}
	target.channels = 1;
	assert_int_equal(resize_region(resizers[0], &source, &good, &good, &target), -EINVAL);
}

/* maximum sides (h) and maximum numbers of pixels (w) */
static const struct kernel_shape limits[] = {
	{1, 24, 240, 1},  {1, 180, 90, 1}, {1, 180, 90, 1}, {1, 24, 90, 1},  {1, 180, 90, 1},
	{1, 180, 240, 1}, {1, 24, 90, 1},  {1, 180, 90, 1}, {1, 180, 90, 1}, {1, 24, 90, 1},
	{1, 180, 240, 1}, {1, 180, 90, 1}, {1, 24, 90, 1},  {1, 180, 90, 1}, {1, 180, 90, 1},
};
static const struct kernel_shape large_limits[] = {{1, 900, 700, 1}};
static const struct kernel_shape any[] = {{1, 1, 1, 1}};
/* h: 1 if reversed */
static const struct kernel_shape wide[] = {
	{1, 0, 40001, 1}, {1, 0, 7, 1},    {1, 0, 3001, 1}, {1, 1, 4097, 1},
	{1, 0, 5461, 1},  {1, 1, 6007, 1}, {1, 0, 8191, 1}, {1, 1, 13107, 1},
};

static const struct kernel_test tests[] = {
	CHECK_WIDTHS_EACH(whole_width, 200, 1, factors),
	CHECK_TIMES(check_random_region, limits, 100),
	CHECK_TIMES(check_random_region, large_limits, 12),
	CHECK_TIMES(streamed_region, any, 300),
	CHECK(wide_region, wide),
	CHECK(tall_region, any),
	CHECK_TIMES(planes, any, 1500),
	ONCE(refused),
};

/* ---- timed ---- */

enum { CROPS = 400 };

static void resize_crops(struct resize *resize, const struct resize_source *from,
			 struct resize_axis axes[CROPS][2], const struct resize_target *to)
{
	for (int i = 0; i < CROPS; i++)
		resize_region(resize, from, &axes[i][0], &axes[i][1], to);
}

static struct resize_axis crop_axis(uint32_t size, uint32_t extent, uint32_t count)
{
	uint32_t low = cpu_between(0, size - extent);

	return (struct resize_axis){.step = (double)extent / count,
				    .count = count,
				    .low = low,
				    .high = low + extent,
				    .origin = low};
}

/* Random-resized crops (scale 0.08:1, ratio 3:4 to 4:3) of w x h, to more[0]. */
static void crops(const struct kernel_case *k, enum cpu_isa isa)
{
	static struct resize_axis axes[CROPS][2];
	uint32_t size = k->more[0];
	uint8_t *source = cpu_reads((size_t)k->w * k->h * 3),
		*output = cpu_writes(0, (size_t)size * size * 3);
	const struct resize_source from = {.data = source,
					   .stride = (size_t)k->w * 3,
					   .width = k->w,
					   .height = k->h,
					   .channels = 3};
	const struct resize_target to = {
		.data = output, .stride = (ptrdiff_t)size * 3, .channels = 3};
	double pixels = 0;

	for (int i = 0; i < CROPS;) {
		double area = (double)k->w * k->h * cpu_uniform(0.08, 1),
		       ratio = exp(cpu_uniform(-1, 1) * log(4.0 / 3));
		uint32_t w = (uint32_t)lrint(sqrt(area * ratio)),
			 h = (uint32_t)lrint(sqrt(area / ratio));

		if (w > k->w || h > k->h)
			continue;
		axes[i][0] = crop_axis(k->w, w, size);
		axes[i][1] = crop_axis(k->h, h, size);
		axes[i][0].reverse = i & 1;
		pixels += (double)w * h;
		i++;
	}
	cpu_units(pixels);
	CPU_RUN(resize_crops(resizers[isa], &from, axes, &to));
}

/* A whole image of w x h to more[0] x more[1]. */
static void image(const struct kernel_case *k, enum cpu_isa isa)
{
	uint8_t *source = cpu_reads((size_t)k->w * k->h * 3),
		*output = cpu_writes(0, (size_t)k->more[0] * k->more[1] * 3);
	const struct resize_picture from = {.data = source,
					    .stride = (size_t)k->w * 3,
					    .width = k->w,
					    .height = k->h,
					    .channels = 3,
					    .extent_width = k->w,
					    .extent_height = k->h};

	CPU_RUN(resize_image(resizers[isa], &from, k->more[0], k->more[1], output,
			     (size_t)k->more[0] * 3));
}

/* clang-format off */
#define TIMED(name, check, w_, h_, ...) \
	{"resize", name, check, .n = 1, .h = h_, .w = w_, .c = 1, .more = {__VA_ARGS__}, .unit = "source pixel"}

static const struct kernel_case timed[] = {
	TIMED("crops of 341x256 to 224", crops, 341, 256, 224),
	TIMED("crops of 468x401 to 224", crops, 468, 401, 224),
	TIMED("crops of 341x256 to 128", crops, 341, 256, 128),
	TIMED("crops of 500x375 to 64", crops, 500, 375, 64),
	TIMED("500x375 to 341x256", image, 500, 375, 341, 256),
	TIMED("4000x3000 to 341x256", image, 4000, 3000, 341, 256),
	TIMED("32x32 to 32x24", image, 32, 32, 32, 24),
};
/* clang-format on */

int main(int argc, char **argv)
{
	int r = 1, isa = 0;

	while (isa <= (int)cpu_isa_supported() &&
	       resize_new_isa((enum cpu_isa)isa, &resizers[isa]) == 0)
		isa++;
	if (isa > (int)cpu_isa_supported())
		r = kernels_main(argc, argv, &cpu_kernels, tests, COUNT_OF(tests), timed,
				 COUNT_OF(timed));
	while (isa--)
		resize_free(resizers[isa]);
	return r;
}
