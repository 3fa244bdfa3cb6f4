/*
 * patch_resize: its grids, against a walk over all of them and against the bisection of NaFlex; the
 * same bytes as a resize to the grid's pixels, cut into patches; what it excludes.
 */
#include "format/augment/grammar/patches.h"
#include "format/base/system/cpu.h"
#include "tests/unit/augment/pipeline_test.h"

#include <math.h>

static struct pipeline *parse_patches(const char *text)
{
	struct pipeline *pipeline;
	struct pipeline_error error;

	if (pipeline_parse_views(text, &pipeline, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	assert_true(pipeline_has_size(pipeline));
	return pipeline;
}

/*
 * Walks over the grids from the smallest scale to the one at which the image has `limit` rows or
 * columns. Returns the last grid that has at most `most` patches; 0 x 0 if none has.
 */
static struct pipeline_grid walk(uint32_t width, uint32_t height, uint32_t limit, uint64_t most)
{
	struct pipeline_grid grid = {1, 1}, last = {0, 0};

	while (grid.rows <= limit && grid.columns <= limit &&
	       (uint64_t)grid.rows * grid.columns <= most) {
		last = grid;
		/* The scales at which a row or a column more begins: rows / height, columns /
		 * width. */
		uint64_t row = (uint64_t)last.rows * width,
			 column = (uint64_t)last.columns * height;

		grid.rows += row <= column;
		grid.columns += column <= row;
	}
	return last;
}

/* The same choice, by trying each number of patches from the least on. */
static struct pipeline_grid grid_model(const struct transform_patches *patches, uint32_t width,
				       uint32_t height)
{
	uint32_t limit = PIPELINE_SIDE_MAX / patches->size;
	struct pipeline_grid own = {(height + patches->size - 1) / patches->size,
				    (width + patches->size - 1) / patches->size};
	struct pipeline_grid most = walk(width, height, limit, patches->tokens_max);

	if ((uint64_t)own.rows * own.columns > (uint64_t)most.rows * most.columns)
		own = most;
	for (uint64_t least = patches->tokens_min; least <= patches->tokens_max; least++) {
		struct pipeline_grid grid = walk(width, height, limit, least);

		if ((uint64_t)own.rows * own.columns >= patches->tokens_min)
			break;
		if ((uint64_t)grid.rows * grid.columns > (uint64_t)own.rows * own.columns)
			own = grid;
	}
	return own;
}

static void check_grid(const struct transform_patches *patches, uint32_t width, uint32_t height)
{
	struct pipeline_grid got = patches_grid(patches, width, height);
	struct pipeline_grid expected = grid_model(patches, width, height);

	if (got.rows != expected.rows || got.columns != expected.columns)
		fail_msg("%u x %u, patch %u, %u to %u: %u x %u instead of %u x %u", width, height,
			 patches->size, patches->tokens_min, patches->tokens_max, got.rows,
			 got.columns, expected.rows, expected.columns);
}

TEST(grids)
{
	for (unsigned i = 0; i < 20000; i++) {
		struct transform_patches patches = {.size = 1 + random_below(&rng, 40)};

		patches.tokens_max = 1 + random_below(&rng, 300);
		patches.tokens_min = 1 + random_below(&rng, patches.tokens_max);
		check_grid(&patches, 1 + random_below(&rng, i % 3 ? 700 : PACKIMG_SIDE_MAX),
			   1 + random_below(&rng, i % 5 ? 700 : PACKIMG_SIDE_MAX));
	}
	const struct transform_patches most = {256, 1, 256}, wide = {16, 65536, 65536};

	check_grid(&most, PACKIMG_SIDE_MAX, 1);
	check_grid(&most, 1, PACKIMG_SIDE_MAX);
	check_grid(&wide, PACKIMG_SIDE_MAX, 1);
	check_grid(&wide, 1, 1);
	check_grid(&wide, PACKIMG_SIDE_MAX, PACKIMG_SIDE_MAX);
}

/* get_image_size_for_seq() of timm, get_image_size_for_max_num_patches() of Transformers. */
static struct pipeline_grid bisect(uint32_t width, uint32_t height, uint32_t patch, uint32_t most)
{
	double low = 1e-6, high = 100;
	struct pipeline_grid grid = {1, 1};

	while (high - low >= 1e-5) {
		double middle = (low + high) / 2;
		struct pipeline_grid here = {(uint32_t)ceil(height * middle / patch),
					     (uint32_t)ceil(width * middle / patch)};

		if (here.rows * here.columns <= most) {
			low = middle;
			grid = here;
		} else {
			high = middle;
		}
	}
	return grid;
}

TEST(grids_are_those_of_naflex)
{
	static const uint32_t sizes[][2] = {{500, 375}, {375, 500}, {640, 480},   {1024, 768},
					    {300, 300}, {333, 500}, {1920, 1080}, {97, 641},
					    {2048, 64}, {50, 40}};
	static const uint32_t tokens[] = {128, 256, 576, 784, 1024};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (size_t j = 0; j < sizeof(tokens) / sizeof(*tokens); j++) {
			const struct transform_patches patches = {16, tokens[j], tokens[j]};
			struct pipeline_grid got = patches_grid(&patches, sizes[i][0], sizes[i][1]);
			struct pipeline_grid same = bisect(sizes[i][0], sizes[i][1], 16, tokens[j]);

			if (got.rows != same.rows || got.columns != same.columns)
				fail_msg("%u x %u, %u tokens: %u x %u, not %u x %u", sizes[i][0],
					 sizes[i][1], tokens[j], got.rows, got.columns, same.rows,
					 same.columns);
		}
}

/* Takes the patches of a whole picture one element at a time. */
static void cut(const uint8_t *picture, struct pipeline_grid grid, uint32_t patch, size_t pixel,
		uint8_t *ret_patches)
{
	size_t stride = grid.columns * patch * pixel;

	for (uint32_t token = 0; token < grid.rows * grid.columns; token++)
		for (uint32_t i = 0; i < patch * patch; i++)
			for (size_t byte = 0; byte < pixel; byte++) {
				uint32_t y = token / grid.columns * patch + i / patch;
				uint32_t x = token % grid.columns * patch + i % patch;

				*ret_patches++ = picture[y * stride + x * pixel + byte];
			}
}

static void check_bytes(const char *before, const char *behind, uint32_t patch, uint32_t most,
			size_t pixel, uint32_t width, uint32_t height)
{
	static uint8_t made[1 << 21], whole[1 << 21], expected[1 << 21];
	char text[256];

	snprintf(text, sizeof(text), "%s patch_resize(%u, %u) %s", before, patch, most, behind);
	struct pipeline *pipeline = parse_patches(text);
	struct pipeline_grid grid = pipeline_patch_grid(pipeline, width, height);
	size_t size = (size_t)grid.rows * grid.columns * patch * patch * pixel;

	assert_in_range(grid.rows * grid.columns, 1, most);
	assert_in_range(size, 1, pipeline_sample_size_max(pipeline));
	assert_true(size < sizeof(made));
	snprintf(text, sizeof(text), "%s resize(%ux%u) %s", before, grid.columns * patch,
		 grid.rows * patch, behind);
	struct pipeline *plain = parse(text);
	uint8_t *pixels = random_pixels(width, height);
	struct packimg_sample sample = make_sample(pixels, width, height, 3);
	struct packimg_error error;

	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++) {
		memset(made, 0xc3, sizeof(made));
		if (pipeline_apply(pipeline, scratches[isa], &sample, 5, 1, made, NULL, &error) < 0)
			fail_msg("%s", error.text);
		assert_int_equal(
			pipeline_apply(plain, scratches[isa], &sample, 5, 1, whole, NULL, &error),
			0);
		cut(whole, grid, patch, pixel, expected);
		assert_memory_equal(made, expected, size);
		assert_int_equal(made[size], 0xc3);
	}
	free(pixels);
	pipeline_free(pipeline);
	pipeline_free(plain);
}

TEST(bytes_are_those_of_a_resize)
{
	static const uint32_t sizes[][2] = {{90, 70}, {70, 90}, {33, 200},
					    {8, 8},   {3, 5},   {512, 512}};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint32_t width = sizes[i][0], height = sizes[i][1];

		check_bytes("", "", 16, 256, 3, width, height);
		check_bytes("hflip", "", 7, 40, 3, width, height);
		check_bytes("", "vflip(1) to(f32)", 8, 60, 12, width, height);
		check_bytes("hflip(1) color_jitter(0.4)",
			    "random_grayscale(0.5) normalize(imagenet) to(f16)", 14, 20, 6, width,
			    height);
		check_bytes("", "normalize(imagenet) to(bf16) random_erasing(1, value=random)", 16,
			    256, 6, width, height);
	}
}

TEST(shapes)
{
	struct pipeline *pipeline = parse_patches("patch_resize(14, max_tokens=64) to(f16)");
	struct pipeline_shape shape;
	struct pipeline_error error;

	pipeline_shape(pipeline, 7, &shape);
	assert_int_equal(shape.sample_size, 14 * 14 * 3 * 2);
	assert_int_equal(pipeline_sample_size_max(pipeline), 64 * 14 * 14 * 3 * 2);
	assert_int_equal(pipeline_patches_max(pipeline), 64);
	assert_int_equal(pipeline_patch_grid(pipeline, 0, 9).rows, 0);
	assert_int_equal(pipeline_defer(pipeline, &error), -EINVAL);
	assert_non_null(strstr(error.text, "patches leave nothing to the client"));
	pipeline_free(pipeline);
	pipeline = parse_patches("resize(8x8)");
	assert_int_equal(pipeline_patches_max(pipeline), 0);
	assert_int_equal(pipeline_patch_grid(pipeline, 9, 9).rows, 0);
	pipeline_free(pipeline);
}

TEST(refusals)
{
	static const struct {
		const char *text, *error;
		int position;
	} cases[] = {
		{"resize(64) patch_resize", "resize changes the size of an image", 0},
		{"patch_resize center_crop(32)", "center_crop changes the size", 13},
		{"bucket_resize patch_resize", "bucket_resize changes the size", 0},
		{"patch_resize hflip patch_resize", "patch_resize changes the size", 19},
		{"view a { patch_resize }", "leave it or the views out", 9},
		{"patch_resize mixup", "leave one of them out", 13},
		{"patch_resize copy_paste", "copy_paste pastes pixels of whole images", 13},
		{"hflip patch_resize layout(nchw)", "leave layout and channels out", 6},
		{"patch_resize channels(4)", "leave layout and channels out", 0},
		{"patch_resize(16, 10, min_tokens=11)", "min_tokens of 11 is above", 32},
		{"patch_resize(256, 257)", "at most 256 patches of 256 x 256", 18},
		{"patch_resize(0)", "patch is from 1 to 256", 13},
		{"patch_resize(interpolation=bicubic, chroma=fast)", "leave one", 0},
	};
	struct pipeline *pipeline;
	struct pipeline_error error;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int r = pipeline_parse_views(cases[i].text, &pipeline, &error);
		if (r >= 0 || !strstr(error.text, cases[i].error) ||
		    error.position != cases[i].position)
			fail_msg("'%s': %d, %s", cases[i].text, error.position, error.text);
	}
	assert_int_equal(pipeline_parse("hflip patch_resize", &pipeline, &error), -EINVAL);
	assert_int_equal(error.position, 6);
	assert_non_null(strstr(error.text, "whole pictures are made here"));
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
