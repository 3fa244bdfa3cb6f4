/*
 * Resizing against Pillow. The arguments are the data files made by tests/golden/resize/make.py,
 * which describes the format: first bilinear, then bicubic, which must be byte-exact.
 */
#include "format/augment/resize/resize.h"
#include "format/augment/resize/resize_cubic.h"
#include "tests/test.h"

struct image {
	uint32_t width, height;
	const uint8_t *pixels;
};

static const char *golden_path, *cubic_path;

static uint8_t *read_file(const char *path, size_t *ret_size)
{
	FILE *file = fopen(path, "rb");

	assert_non_null(file);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	long size = ftell(file);
	uint8_t *data = malloc((size_t)size);

	assert_true(size > 0 && data);
	rewind(file);
	assert_int_equal(fread(data, 1, (size_t)size, file), size);
	fclose(file);
	*ret_size = (size_t)size;
	return data;
}

static uint32_t take_u32(const uint8_t **at)
{
	const uint8_t *p = *at;

	*at += 4;
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static struct resize_axis make_axis(uint32_t crop, uint32_t size, uint32_t grid, uint32_t window,
				    uint32_t count, bool reverse)
{
	double step = (double)size / grid;

	return (struct resize_axis){.origin = crop + window * step,
				    .step = step,
				    .low = crop,
				    .high = crop + size,
				    .count = count,
				    .reverse = reverse};
}

static struct cubic_axis make_cubic(uint32_t crop, uint32_t size, uint32_t grid, uint32_t window,
				    uint32_t count, bool reverse)
{
	return (struct cubic_axis){.size = size,
				   .grid = grid,
				   .first = window,
				   .count = count,
				   .origin = crop,
				   .reverse = reverse};
}

/* Delivers the rows of a source like a decoder: a few at a time, overwriting earlier ones. */
struct ring {
	const struct image *image;
	uint8_t *rows;
	uint32_t made;
};

enum { RING = 2 * RESIZE_ROWS_HELD };

static int ring_fill_rows(void *context, uint32_t end)
{
	struct ring *ring = context;
	size_t stride = (size_t)ring->image->width * 3;

	for (; ring->made < end; ring->made++)
		memcpy(ring->rows + ring->made % RING * stride,
		       ring->image->pixels + ring->made * stride, stride);
	return 0;
}

/* Resizes the whole image at once, then again from a ring of rows with a fourth channel. */
static void run_cubic(struct resize *resize, const struct image *image, const uint32_t v[12],
		      const uint8_t *expected, unsigned number)
{
	struct ring ring = {image, calloc(RING, (size_t)image->width * 3), 0};
	struct resize_source source = {.data = image->pixels,
				       .stride = (size_t)image->width * 3,
				       .width = image->width,
				       .height = image->height,
				       .channels = 3};
	struct cubic_axis x = make_cubic(v[1], v[3], v[5], v[7], v[9], v[11] & 1);
	struct cubic_axis y = make_cubic(v[2], v[4], v[6], v[8], v[10], v[11] & 2);
	size_t pixels = (size_t)v[9] * v[10];
	uint8_t *output = malloc(pixels * 4);

	for (uint32_t channels = 3; channels <= 4; channels++) {
		struct resize_target target = {
			.data = output, .stride = (ptrdiff_t)v[9] * channels, .channels = channels};

		if (channels == 4) {
			source.data = ring.rows;
			source.ring = RING;
			source.rows = ring_fill_rows;
			source.context = &ring;
		}
		assert_int_equal(resize_cubic(resize, &source, &x, &y, &target), 0);
		for (size_t i = 0; i < pixels * channels; i++) {
			uint8_t own =
				i % channels < 3 ? expected[i / channels * 3 + i % channels] : 0;

			if (output[i] != own)
				fail_msg("bicubic case %u, %ux%u to %ux%u: byte %zu of %u channels "
					 "is %u, Pillow's is %u",
					 number, v[3], v[4], v[5], v[6], i, channels, output[i],
					 own);
		}
	}
	free(output);
	free(ring.rows);
}

/*
 * Runs a case, compares the result, and adds the differences to the sum. Returns the start of the
 * next case.
 */
static const uint8_t *run_case(struct resize *resize, const struct image *images, const uint8_t *at,
			       unsigned number, uint64_t *sum, uint64_t *count)
{
	uint32_t v[12];

	for (int i = 0; i < 12; i++)
		v[i] = take_u32(&at);
	const struct image *image = &images[v[0]];
	struct resize_source source = {.data = image->pixels,
				       .stride = (size_t)image->width * 3,
				       .width = image->width,
				       .height = image->height,
				       .channels = 3};
	struct resize_axis x = make_axis(v[1], v[3], v[5], v[7], v[9], v[11] & 1);
	struct resize_axis y = make_axis(v[2], v[4], v[6], v[8], v[10], v[11] & 2);
	size_t size = (size_t)v[9] * v[10] * 3;
	uint8_t *output = malloc(size);
	struct resize_target target = {
		.data = output, .stride = (ptrdiff_t)v[9] * 3, .channels = 3};

	assert_non_null(output);
	assert_int_equal(resize_region(resize, &source, &x, &y, &target), 0);
	for (size_t i = 0; i < size; i++) {
		int difference = abs(output[i] - at[i]);

		if (difference > 1)
			fail_msg("case %u, %ux%u to %ux%u: byte %zu is %u, Pillow's is %u", number,
				 v[3], v[4], v[5], v[6], i, output[i], at[i]);
		*sum += (uint64_t)difference;
	}
	*count += size;
	free(output);
	return at + size;
}

static void check_isa(enum cpu_isa isa, bool cubic)
{
	size_t size;
	uint8_t *data = read_file(cubic ? cubic_path : golden_path, &size);
	const uint8_t *at = data + 8;
	struct resize *resize;
	uint64_t sum = 0, count = 0;

	assert_memory_equal(data, "RSZGOLD1", 8);
	uint32_t image_count = take_u32(&at), case_count = take_u32(&at);
	struct image *images = calloc(image_count, sizeof(*images));

	assert_non_null(images);
	for (uint32_t i = 0; i < image_count; i++) {
		images[i].width = take_u32(&at);
		images[i].height = take_u32(&at);
		images[i].pixels = at;
		at += (size_t)images[i].width * images[i].height * 3;
	}
	assert_int_equal(resize_new_isa(isa, &resize), 0);
	for (uint32_t i = 0; i < case_count && !cubic; i++)
		at = run_case(resize, images, at, i, &sum, &count);
	for (uint32_t i = 0; i < case_count && cubic; i++) {
		uint32_t v[12];

		for (int k = 0; k < 12; k++)
			v[k] = take_u32(&at);
		run_cubic(resize, &images[v[0]], v, at, i);
		at += (size_t)v[9] * v[10] * 3;
		count++;
	}
	assert_ptr_equal(at, data + size);
	assert_true(case_count > (cubic ? 60 : 100));
	print_message("%s: mean difference %.4f over %llu bytes\n", cpu_isa_name(isa),
		      (double)sum / (double)count, (unsigned long long)count);
	assert_true((double)sum < 0.2 * (double)count);
	resize_free(resize);
	free(images);
	free(data);
}

TEST(golden_equals_pillow)
{
	for (int isa = CPU_ISA_C; isa <= (int)cpu_isa_supported(); isa++)
		check_isa((enum cpu_isa)isa, false);
}

TEST(cubic_equals_pillow)
{
	for (int isa = CPU_ISA_C; isa <= (int)cpu_isa_supported(); isa++)
		check_isa((enum cpu_isa)isa, true);
}

/* A tall, narrow picture must not need memory for all of its rows at the width of the output. */
TEST(tall_picture_takes_few_rows)
{
	enum { TALL = 65535, SIDE = 256 };
	uint8_t *pixels = calloc(TALL, 3), *output = malloc((size_t)SIDE * SIDE * 3);
	struct resize_source source = {
		.data = pixels, .stride = 3, .width = 1, .height = TALL, .channels = 3};
	struct resize_target target = {.data = output, .stride = SIDE * 3, .channels = 3};
	struct cubic_axis x = make_cubic(0, 1, SIDE, 0, SIDE, false);
	struct cubic_axis y = make_cubic(0, TALL, SIDE, 0, SIDE, false);
	struct cubic cubic = {0};

	(void)state;
	memset(pixels, 77, (size_t)TALL * 3);
	assert_int_equal(cubic_run(&cubic, &resize_kernels_c, &source, &x, &y, &target), 0);
	for (size_t i = 0; i < SIDE * SIDE * 3; i++)
		assert_int_equal(output[i], 77);
	assert_true(cubic.between.size < 4 << 20);
	x = make_cubic(0, 1, TALL, 0, TALL, false);
	y = make_cubic(0, TALL, 1, 0, 1, false);
	assert_int_equal(cubic_run(&cubic, &resize_kernels_c, &source, &x, &y, &target), -EFBIG);
	y.origin = -1;
	assert_int_equal(cubic_run(&cubic, &resize_kernels_c, &source, &x, &y, &target), -EINVAL);
	cubic_deinit(&cubic);
	free(output);
	free(pixels);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s golden.bin cubic.bin\n", argv[0]);
		return 2;
	}
	golden_path = argv[1];
	cubic_path = argv[2];
	return test_run(NULL, NULL);
}
