/*
 * What copy_paste is made of: the pixels of polygons against a slow test of each pixel, finished
 * parts of pictures against the whole with every instruction set, numbers, draws and boxes.
 */
#include "format/augment/paste.h"
#include "format/base/system/cpu.h"
#include "tests/unit/augment/pipeline_test.h"

#include <float.h>
#include <math.h>

enum { SIDE = 24, ROUNDS = 400, VERTICES = 12 };

/* Rows that end a polygon and an object. */
static const float end_row[2] = {NAN, INFINITY};

static bool is_inside(const float *polygon, size_t vertices, double x, double y)
{
	bool inside = false;

	for (size_t i = 0; i < vertices && vertices >= 3; i++) {
		const float *a = polygon + 2 * i, *b = polygon + 2 * ((i + 1) % vertices);
		const float *upper = a[1] <= b[1] ? a : b, *lower = a[1] <= b[1] ? b : a;

		if (upper[1] <= y && y < lower[1])
			inside ^= x >= upper[0] + (y - upper[1]) * ((double)lower[0] - upper[0]) /
							  ((double)lower[1] - upper[1]);
	}
	return inside;
}

static float random_coordinate(void)
{
	switch (random_below(&rng, 8)) {
	case 0: /* on centres and edges of pixels */
		return (float)random_below(&rng, 2 * SIDE + 2) / 2 - 0.5f;
	case 1:
		return random_below(&rng, 2) ? FLT_MAX : -FLT_MAX;
	case 2:
		return (float)random_below(&rng, SIDE);
	default:
		return (random_float(&rng) * 1.5f - 0.25f) * SIDE;
	}
}

static struct polygon_mask new_mask(uint32_t width, uint32_t height)
{
	uint8_t *inside = calloc(1, polygon_mask_size(width, height));

	assert_non_null(inside);
	return (struct polygon_mask){.width = width,
				     .height = height,
				     .scale_x = 1,
				     .scale_y = 1,
				     .inside = inside,
				     .starts = inside + (size_t)width * height,
				     .steps = UINT64_MAX};
}

static void expect_zeros(const struct polygon_mask *mask)
{
	for (size_t i = 0; i < polygon_mask_size(mask->width, mask->height); i++)
		assert_int_equal(mask->inside[i], 0);
}

TEST(polygons_have_the_pixels_whose_centres_they_contain)
{
	struct polygon_mask mask = new_mask(SIDE, SIDE - 5);
	unsigned shown = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		float rows[3 * (VERTICES + 1) * 2], *at = rows;
		size_t lengths[3];
		struct pixel_box box;

		for (unsigned i = 0; i < 3; i++) {
			lengths[i] = random_below(&rng, VERTICES);
			for (size_t k = 0; k < 2 * lengths[i]; k++)
				*at++ = random_coordinate();
			memcpy(at, end_row, sizeof(end_row));
			at += 2;
		}
		assert_true(polygon_mask_add(&mask, rows, (size_t)(at - rows) / 2, &box));
		for (uint32_t y = 0; y < mask.height; y++)
			for (uint32_t x = 0; x < mask.width; x++) {
				const float *polygon = rows;
				bool expected = false;

				for (unsigned i = 0; i < 3; i++) {
					expected |=
						is_inside(polygon, lengths[i], x + 0.5, y + 0.5);
					polygon += 2 * (lengths[i] + 1);
				}
				assert_int_equal(mask.inside[y * mask.width + x], expected);
				if (expected)
					assert_true(box.left <= x && x < box.right &&
						    box.top <= y && y < box.bottom);
				shown += expected;
			}
		polygon_mask_clear(&mask, &box);
		expect_zeros(&mask);
	}
	assert_true(shown > 10000);
	free(mask.inside);
}

/* Neighbours share an edge, and no pixel. */
TEST(polygons_that_share_an_edge_share_no_pixel)
{
	struct polygon_mask mask = new_mask(SIDE, SIDE);

	for (unsigned round = 0; round < ROUNDS; round++) {
		float a = random_float(&rng) * SIDE, b = random_float(&rng) * SIDE;
		const float left[] = {0, 0, a, 0, b, SIDE, 0, SIDE};
		const float right[] = {SIDE, SIDE, b, SIDE, a, 0, SIDE, 0};
		struct pixel_box box;
		unsigned pixels = 0;

		for (unsigned i = 0; i < 2; i++) {
			assert_true(polygon_mask_add(&mask, i ? right : left, 4, &box));
			for (size_t p = 0; p < SIDE * SIDE; p++)
				pixels += mask.inside[p];
			polygon_mask_clear(&mask, &box);
		}
		assert_int_equal(pixels, SIDE * SIDE);
	}
	free(mask.inside);
}

TEST(polygons_end_when_their_steps_do)
{
	struct polygon_mask mask = new_mask(SIDE, SIDE);
	const float square[] = {-FLT_MAX, -FLT_MAX, FLT_MAX,  -FLT_MAX,
				FLT_MAX,  FLT_MAX,  -FLT_MAX, FLT_MAX};
	struct pixel_box box;

	/* two edges that cross all rows, and all pixels, of the polygon and of the object */
	enum { NEEDED = 2 * SIDE + 2 * SIDE * SIDE };

	for (uint64_t steps = 0; steps <= NEEDED; steps++) {
		mask.steps = steps;
		assert_int_equal(polygon_mask_add(&mask, square, 4, &box), steps == NEEDED);
		assert_int_equal(mask.steps, 0);
		polygon_mask_clear(&mask, &box);
		expect_zeros(&mask);
	}
	free(mask.inside);
}

static struct pipeline *parse_paste(const char *text)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error;

	if (pipeline_parse_views(text, &pipeline, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	return pipeline;
}

static struct pipeline_window random_window(const struct pipeline_shape *shape)
{
	struct pipeline_window window = {.width = 1 + random_below(&rng, shape->width),
					 .height = 1 + random_below(&rng, shape->height)};

	window.x = random_below(&rng, shape->width - window.width + 1);
	window.y = random_below(&rng, shape->height - window.height + 1);
	return window;
}

/* Compares a part of `planes` planes with the whole. pixel: bytes. */
static void expect_window(const struct pipeline_shape *shape, const struct pipeline_window *window,
			  size_t pixel, uint32_t planes, const uint8_t *part, const uint8_t *whole)
{
	for (uint32_t plane = 0; plane < planes; plane++)
		for (uint32_t y = 0; y < window->height; y++)
			assert_memory_equal(
				part + pixel * window->width * (plane * window->height + y),
				whole + pixel * ((size_t)shape->width *
							 (plane * shape->height + window->y + y) +
						 window->x),
				pixel * window->width);
}

static const char *const steps[] = {
	"resize(40x30)",
	"random_resized_crop(33x21) hflip vflip to(f16)",
	"resize(20) random_crop(20x20, padding=3) normalize(imagenet) to(f32) layout(nchw)",
	"pad(5, fill=reflect) random_resized_crop(24x24, chroma=fast) channels(4)",
	"random_zoom_out(p=1) resize(31x17, interpolation=bicubic) hflip layout(nchw)",
	"resize(40x30) color_jitter(0.4) random_affine(20) gaussian_blur(3)",
	"color_jitter(0.4) resize(25x25) center_crop(30)",
};

TEST(a_part_of_a_finished_picture_has_the_pixels_of_the_whole)
{
	struct packimg_error error;
	uint64_t decoded = 0, all = 0;

	for (uint64_t round = 0; round < ROUNDS; round++) {
		const unsigned which = round % (sizeof(steps) / sizeof(steps[0]));
		uint32_t w = 20 + random_below(&rng, 90), h = 20 + random_below(&rng, 90);
		struct pipeline *pipeline = parse(steps[which]);
		struct packimg_sample sample = make_sample(random_pixels(w, h), w, h, round);
		struct frame_raster form = {.width = w,
					    .height = h,
					    .element = PACKIMG_ELEMENT_U8,
					    .channels = 3,
					    .filter = round % 3,
					    .fill = {7}};
		struct pipeline_shape shape;

		fake_decoder.margin = round % 3;
		fake_decoder.halve = round % 2;
		pipeline_shape(pipeline, 1, &shape);
		uint8_t *whole = apply_all(pipeline, &sample, 3, 1);
		uint8_t *part = malloc(shape.sample_size);
		struct pipeline_window window = random_window(&shape);
		uint32_t planes = shape.layout == PIPELINE_NCHW ? shape.channels : 1;

		assert_non_null(part);
		for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++) {
			pipeline_scratch_window(scratches[isa], window);
			fake_decoder.region = (struct packimg_region){0};
			assert_int_equal(pipeline_apply(pipeline, scratches[isa], &sample, 3, 1,
							part, NULL, &error),
					 0);
			pipeline_scratch_window(scratches[isa], (struct pipeline_window){0});
			expect_window(&shape, &window,
				      shape.sample_size / shape.width / shape.height / planes,
				      planes, part, whole);
		}
		if (which == 0) {
			decoded += (uint64_t)fake_decoder.region.width * fake_decoder.region.height;
			all += (uint64_t)w * h;
		}
		fake_decoder.halve = false;
		uint8_t *rasters[2] = {malloc((size_t)shape.width * shape.height * 3),
				       malloc((size_t)shape.width * shape.height * 3)};
		for (int i = 0; i < 2; i++) {
			assert_non_null(rasters[i]);
			pipeline_scratch_window(scratches[0],
						i ? window : (struct pipeline_window){0});
			assert_int_equal(pipeline_apply_raster(pipeline, scratches[0], &sample,
							       &form, 3, 1, rasters[i], NULL,
							       &error),
					 0);
		}
		pipeline_scratch_window(scratches[0], (struct pipeline_window){0});
		expect_window(&shape, &window, 3, 1, rasters[1], rasters[0]);
		free(rasters[0]);
		free(rasters[1]);
		free(part);
		free(whole);
		free((void *)sample.data);
		pipeline_free(pipeline);
	}
	fake_decoder.margin = 0;
	assert_true(decoded < all / 2);
}

TEST(the_window_is_what_chosen_objects_need)
{
	struct pipeline *plain = parse_paste("resize(40x30) copy_paste");
	struct pipeline *erases = parse_paste("resize(40x30) to(f32) random_erasing copy_paste");
	const struct paste_objects objects = {.width = 40, .height = 30, .count = 4};
	const struct paste_area areas[] = {
		{{3, 4, 9, 6}, 5}, {{0, 0, 40, 30}, 9}, {{7, 5, 12, 20}, 2}, {{0}, 0}};
	const uint8_t chosen[] = {1, 0, 1, 1}, none[] = {0, 0, 0, 1};
	struct pipeline_window window;

	assert_true(paste_window(plain, &objects, areas, chosen, &window));
	assert_memory_equal(&window, (&(struct pipeline_window){3, 4, 9, 16}), sizeof(window));
	assert_true(paste_window(erases, &objects, areas, chosen, &window));
	assert_memory_equal(&window, (&(struct pipeline_window){0, 0, 40, 30}), sizeof(window));
	assert_false(paste_window(plain, &objects, areas, none, &window));
	pipeline_free(plain);
	pipeline_free(erases);
}

TEST(numbers_are_read_from_every_element)
{
	static const struct {
		enum schema_element element;
		int64_t stored;
		int32_t read;
	} cases[] = {
		{SCHEMA_U8, 255, 255},
		{SCHEMA_U16, 65535, 65535},
		{SCHEMA_I16, -1, -1},
		{SCHEMA_I32, INT32_MIN, INT32_MIN},
		{SCHEMA_I64, INT32_MAX, INT32_MAX},
		{SCHEMA_I64, (int64_t)INT32_MAX + 1, 0},
		{SCHEMA_I64, INT64_MIN, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct paste_number number;

		assert_true(paste_takes_numbers(cases[i].element));
		paste_numbers_load(cases[i].element, &cases[i].stored, 1, &number);
		assert_int_equal(number.number, cases[i].read);
	}
	assert_false(paste_takes_numbers(SCHEMA_F32));
	assert_int_equal(paste_largest_number(SCHEMA_U8), 255);
	assert_int_equal(paste_largest_number(SCHEMA_I16), 32767);
	assert_int_equal(paste_largest_number(SCHEMA_I64), 65535);
}

/* Objects of one sample over those of another, of 4 x 2 pixels. */
TEST(pasted_objects_get_numbers_that_are_free)
{
	uint8_t below[8] = {1, 1, 0, 3, 3, 2, 2, 255};
	const uint8_t above[8] = {7, 7, 9, 9, 0, 9, 8, 8};
	struct paste_number numbers[2][4];
	const int32_t rows[2][4] = {{1, 3, 5, 0}, {9, 7, 9, 8}};
	struct paste_objects objects[2];
	uint8_t chosen[4] = {0, 1, 1, 0}, cover[8] = {0};
	struct paste_area areas[4];
	int32_t given[4];

	for (int i = 0; i < 2; i++) {
		paste_numbers_load(SCHEMA_I32, rows[i], 4, numbers[i]);
		paste_numbers_sort(numbers[i], 4);
		objects[i] = (struct paste_objects){.width = 4,
						    .height = 2,
						    .count = 4,
						    .mask = i ? above : below,
						    .element = SCHEMA_U8,
						    .most = 255,
						    .numbers = numbers[i]};
	}
	paste_measure(&objects[1], NULL, areas, NULL);
	assert_int_equal(areas[0].pixels, 3);
	assert_memory_equal(&areas[0], &areas[2], sizeof(areas[0]));
	assert_memory_equal(&areas[0].box, (&(struct pixel_box){1, 0, 4, 2}), sizeof(areas[0].box));
	paste_renumber(&objects[0], &objects[1], chosen, given);
	/* 1, 2, 3, 5 and 255 are taken */
	assert_memory_equal(given, ((int32_t[]){6, 4, 6, 0}), sizeof(given));
	assert_memory_equal(chosen, ((uint8_t[]){1, 1, 1, 0}), sizeof(chosen));
	paste_cover(&objects[1], chosen, cover);
	assert_memory_equal(cover, ((uint8_t[]){1, 1, 1, 1, 0, 1, 0, 0}), sizeof(cover));
	paste_mask(&objects[1], given, cover, below);
	assert_memory_equal(below, ((uint8_t[]){4, 4, 6, 6, 3, 6, 2, 255}), sizeof(below));
	objects[0].most = 4; /* 4 is now taken, and nothing is left */
	paste_renumber(&objects[0], &objects[1], chosen, given);
	assert_memory_equal(chosen, ((uint8_t[]){0, 0, 0, 0}), sizeof(chosen));
	assert_memory_equal(given, ((int32_t[]){0, 0, 0, 0}), sizeof(given));
}

TEST(hidden_objects_go_and_boxes_shrink)
{
	struct pipeline *pipeline =
		parse_paste("resize(99x99) copy_paste(bbox_occluded_thr=5, mask_occluded_thr=50)");
	const struct paste_objects objects = {.width = 100, .height = 50};
	const struct paste_area whole = {{10, 10, 30, 20}, 150}, left = {{16, 10, 30, 20}, 50};
	const struct paste_area more = {{16, 10, 30, 20}, 51}, near = {{15, 10, 25, 20}, 3};
	static const struct {
		struct coordinates form;
		float box[5], shrunk[5];
	} cases[] = {
		{{SCHEMA_BOXES, SCHEMA_XYXY}, {9.5f, 9, 31, 20}, {15, 9, 25, 20}},
		{{SCHEMA_BOXES, SCHEMA_XYWH}, {9.5f, 9, 21.5f, 11}, {15, 9, 10, 11}},
		{{SCHEMA_BOXES, SCHEMA_CXCYWH}, {20, 15, 20, 10}, {20, 15, 10, 10}},
		{{SCHEMA_BOXES, SCHEMA_XYXY, true},
		 {0.125f, 0.25f, 0.5f, 1},
		 {0.15f, 0.25f, 0.25f, 1}},
		{{SCHEMA_BOXES, SCHEMA_CXCYWHR}, {20, 15, 20, 10, 30}, {20, 15, 20, 10, 30}},
		{{SCHEMA_BOXES, SCHEMA_XYXY}, {40, 9, 50, 20}, {40, 9, 40, 20}},
		{{SCHEMA_BOXES, SCHEMA_XYXY}, {NAN, 9, 50, 20}, {15, 0, 15, 0}},
	};

	assert_true(paste_keeps(pipeline, &whole, &whole));
	assert_true(paste_keeps(pipeline, &whole, &more));
	assert_true(paste_keeps(pipeline, &whole, &near));
	assert_false(paste_keeps(pipeline, &whole, &left));
	assert_false(paste_keeps(pipeline, &whole, &(struct paste_area){0}));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		float row[5];

		memcpy(row, cases[i].box, sizeof(row));
		paste_shrink_box(&cases[i].form, &objects, &whole, &whole, row);
		assert_memory_equal(row, cases[i].box, sizeof(row));
		paste_shrink_box(&cases[i].form, &objects, &whole, &near, row);
		for (int k = 0; k < 5; k++)
			assert_true(fabsf(row[k] - cases[i].shrunk[k]) < 1e-5f);
	}
	pipeline_free(pipeline);
}

TEST(draws_follow_from_seed_epoch_and_sample)
{
	struct pipeline *pipeline = parse_paste("resize(8x8) copy_paste(p=0.25)");
	struct paste first, same, other;
	uint8_t chosen[64], again[64];
	unsigned on = 0, count = 0;

	paste_draw(pipeline, 1, 2, 3, &first);
	paste_draw(pipeline, 1, 2, 3, &same);
	assert_int_equal(first.other, same.other);
	for (int changed = 0; changed < 3; changed++) {
		paste_draw(pipeline, 1 + (changed == 0), 2 + (changed == 1), 3 + (changed == 2),
			   &other);
		assert_int_not_equal(first.other, other.other);
	}
	for (uint64_t i = 0; i < 1000; i++) {
		paste_draw(pipeline, 1, 0, i, &other);
		on += other.on;
		paste_choose(&other, chosen, sizeof(chosen));
		paste_choose(&other, again, sizeof(again));
		assert_memory_equal(chosen, again, sizeof(chosen));
		for (size_t k = 0; k < sizeof(chosen); k++)
			count += chosen[k];
	}
	assert_in_range(on, 200, 300);
	/* 1 - (1 - 1/64)^64 of all */
	assert_in_range(count, 0.625 * 64000, 0.645 * 64000);
	pipeline_free(pipeline);
	pipeline = parse_paste("resize(8x8)");
	paste_draw(pipeline, 1, 2, 3, &other);
	assert_false(other.on);
	pipeline_free(pipeline);
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
