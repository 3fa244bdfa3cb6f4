/*
 * Masks, boxes and keypoints compared with torchvision, and further properties of boxes. The
 * argument is the data file made by tests/golden/frame/make.py, which describes the format.
 */
#include "format/augment/apply/coordinates.h"
#include "format/augment/apply/raster_resampler.h"
#include "format/base/random.h"
#include "tests/test.h"
#include "tests/unit/augment/golden_file.h"

#include <math.h>

enum { ROWS_MAX = 16 };

static const char *golden_path;
static unsigned long differ_max; /* differing pixels per million */
static unsigned long warped_pixels, differing_pixels;
static uint32_t box_count, point_count; /* per case in the file */

static const struct coordinates xyxy = {SCHEMA_BOXES, SCHEMA_XYXY, false};
static const struct coordinates rotated_form = {SCHEMA_BOXES, SCHEMA_CXCYWHR, false};

static void make_geometry(const char *text, uint32_t width, uint32_t height, uint64_t seed,
			  uint64_t sample, struct geometry *geometry)
{
	struct pipeline *pipeline = golden_pipeline(text);
	struct pipeline_error error;

	if (geometry_make(pipeline, width, height, seed, 0, sample, NULL, geometry, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	pipeline_free(pipeline);
}

/* Moves a raster of bytes or f32 through the geometry. The caller frees the result. */
static void *move_raster(const struct geometry *geometry, const void *pixels, size_t size,
			 uint32_t width, uint32_t height, uint32_t *ret_width, uint32_t *ret_height)
{
	const struct geometry_stage *last = &geometry->stages[geometry->stage_count - 1];
	void *output = malloc((size_t)last->x.count * last->y.count * size);
	enum pipeline_filter filter = size > 1 ? PIPELINE_BILINEAR : PIPELINE_NEAREST;
	struct packimg_region region;
	struct raster_resampler resampler;
	const uint32_t fill = 0;

	raster_resampler_init(&resampler, cpu_isa_chosen());
	assert_int_equal(
		raster_resampler_begin(&resampler, geometry, width, height, filter, &region), 0);
	struct packimg_raster raster = {(const uint8_t *)pixels +
						((size_t)region.y * width + region.x) * size,
					(ptrdiff_t)size,
					(ptrdiff_t)(width * size),
					region.width,
					region.height,
					1,
					filter ? PACKIMG_ELEMENT_F32 : PACKIMG_ELEMENT_U8};

	assert_int_equal(raster_resampler_run(&resampler, &raster, &fill, output), 0);
	raster_resampler_deinit(&resampler);
	*ret_width = last->x.count;
	*ret_height = last->y.count;
	return output;
}

/* ---- torchvision ---- */

static void take_rows(struct golden *golden, size_t count, float *rows)
{
	memcpy(rows, golden_take(golden, count * sizeof(*rows)), count * sizeof(*rows));
}

/* The input of a case. */
struct golden_case {
	char text[PIPELINE_TEXT_MAX + sizeof(" sanitize_boxes")];
	uint32_t width, height;
	uint64_t seed, sample;
	float boxes[ROWS_MAX * 4], points[ROWS_MAX * 2], rotated[ROWS_MAX * 5];
};

static void take_case(struct golden *golden, struct golden_case *given)
{
	given->width = (uint32_t)golden_take_number(golden, 4);
	given->height = (uint32_t)golden_take_number(golden, 4);
	given->seed = golden_take_number(golden, 8);
	given->sample = golden_take_number(golden, 8);
	size_t size = golden_take_number(golden, 4);

	assert_true(size <= PIPELINE_TEXT_MAX);
	memcpy(given->text, golden_take(golden, size), size);
	given->text[size] = '\0';
	take_rows(golden, box_count * 4, given->boxes);
	take_rows(golden, point_count * 2, given->points);
	take_rows(golden, box_count * 5, given->rotated);
}

/*
 * Compares with torchvision: differences may be 1e-4, or 4 units in the last place for points far
 * outside the frame. Returns the largest one.
 */
static double compare_rows(const struct golden_case *given, const char *what, const float *got,
			   const float *expected, size_t count)
{
	double max = 0;

	for (size_t i = 0; i < count; i++) {
		double off = fabs((double)got[i] - (double)expected[i]);

		if (!(off <= fmax(1e-4, fabs((double)expected[i]) * 0x1p-21)))
			fail_msg("'%s', %ux%u, seed %llu: %s %zu is %.9g, torchvision's %.9g",
				 given->text, given->width, given->height,
				 (unsigned long long)given->seed, what, i, (double)got[i],
				 (double)expected[i]);
		max = off > max ? off : max;
	}
	return max;
}

static void compare_mask(struct golden *golden, const struct golden_case *given,
			 const struct geometry *geometry, uint32_t *ret_width, uint32_t *ret_height)
{
	uint8_t *mask = malloc((size_t)given->width * given->height);

	for (uint32_t i = 0; i < given->width * given->height; i++)
		mask[i] = (uint8_t)((7 * (i % given->width) + 13 * (i / given->width)) % 251);
	uint8_t *got =
		move_raster(geometry, mask, 1, given->width, given->height, ret_width, ret_height);

	assert_int_equal(golden_take_number(golden, 4), *ret_width);
	assert_int_equal(golden_take_number(golden, 4), *ret_height);
	const uint8_t *expected = golden_take(golden, (size_t)*ret_width * *ret_height);
	bool warps = false;

	for (unsigned i = 0; i < geometry->step_count; i++)
		warps |= geometry->steps[i].kind == GEOMETRY_STEP_WARP;
	for (uint32_t i = 0; i < *ret_width * *ret_height; i++) {
		warped_pixels += warps;
		if (got[i] == expected[i])
			continue;
		if (!warps || differ_max == 0)
			fail_msg("'%s', %ux%u, seed %llu: pixel %u,%u of the mask is %u, "
				 "torchvision's %u",
				 given->text, given->width, given->height,
				 (unsigned long long)given->seed, i % *ret_width, i / *ret_width,
				 got[i], expected[i]);
		differing_pixels++;
	}
	free(got);
	free(mask);
}

/*
 * Compares a raster of f32, resized bilinearly, with torchvision's, which is rounded to steps of 1
 * /
 * 64. Its positions are in f32, ours in f64.
 */
static void compare_depth(struct golden *golden, const struct golden_case *given,
			  const struct geometry *geometry)
{
	float *depth = malloc((size_t)given->width * given->height * sizeof(*depth));
	uint32_t width, height;

	for (uint32_t i = 0; i < given->width * given->height; i++)
		depth[i] = (float)((7 * (i % given->width) + 13 * (i / given->width)) % 251);
	float *got = move_raster(geometry, depth, sizeof(*depth), given->width, given->height,
				 &width, &height);

	for (uint32_t i = 0; i < width * height; i++) {
		double steps = (double)golden_take_number(golden, 2);

		if (!(fabs((double)got[i] * 64 - steps) <= 0.6))
			fail_msg("'%s', %ux%u, seed %llu: pixel %u,%u of the raster is %.9g, "
				 "torchvision's about %.9g",
				 given->text, given->width, given->height,
				 (unsigned long long)given->seed, i % width, i / width,
				 (double)got[i], steps / 64);
	}
	free(got);
	free(depth);
}

/* Replaces angles that say the same as torchvision's by these. */
static void accept_turns(float *rows, const float *expected, size_t count)
{
	for (size_t i = 4; i < 5 * count; i += 5)
		if (fabs(remainder((double)rows[i] - (double)expected[i], 360)) < 1e-4)
			rows[i] = expected[i];
}

/* The geometry ends with sanitize_boxes. */
static double compare_rotated(struct golden *golden, struct golden_case *given,
			      const struct geometry *geometry)
{
	float expected[ROWS_MAX * 5];
	uint8_t keep[ROWS_MAX];

	coordinates_apply(geometry, given->width, given->height, &rotated_form, given->rotated,
			  box_count, keep);
	take_rows(golden, box_count * 5, expected);
	accept_turns(given->rotated, expected, box_count);
	double max = compare_rows(given, "number of rotated boxes", given->rotated, expected,
				  box_count * 5);
	const uint8_t *inside = golden_take(golden, box_count);

	for (uint32_t i = 0; i < box_count; i++) {
		const float *row = expected + i * 5;
		bool large = row[2] >= 1 && row[3] >= 1 && row[2] * row[3] >= 1;

		if (inside[i] != 2 && keep[i] != (large && inside[i]))
			fail_msg("'%s', seed %llu: rotated box %u", given->text,
				 (unsigned long long)given->seed, i);
	}
	return max;
}

/* Converts boxes from xyxy, as torchvision's convert_bounding_box_format(). */
static void convert(enum schema_format format, float *boxes, size_t count)
{
	for (size_t i = 0; i < count && format != SCHEMA_XYXY; i++, boxes += 4)
		for (int k = 0; k < 2; k++) {
			boxes[2 + k] -= boxes[k];
			if (format == SCHEMA_CXCYWH)
				boxes[k] = (boxes[k] * 2 + boxes[2 + k]) / 2;
		}
}

TEST(masks_boxes_and_points_equal_torchvision)
{
	size_t size;
	uint8_t *data = golden_read(golden_path, &size);
	struct golden golden = {.at = data, .end = data + size};
	double max = 0;

	assert_memory_equal(golden_take(&golden, 8), "FRMGOLD2", 8);
	uint32_t cases = (uint32_t)golden_take_number(&golden, 4);

	box_count = (uint32_t)golden_take_number(&golden, 4);
	point_count = (uint32_t)golden_take_number(&golden, 4);
	assert_true(box_count <= ROWS_MAX && point_count <= ROWS_MAX);
	for (uint32_t i = 0; i < cases; i++) {
		float expected[ROWS_MAX * 4], boxes[ROWS_MAX * 4];
		static struct geometry geometry;
		struct golden_case given;
		uint8_t keep[ROWS_MAX];
		uint32_t width, height;

		take_case(&golden, &given);
		make_geometry(given.text, given.width, given.height, given.seed, given.sample,
			      &geometry);
		compare_mask(&golden, &given, &geometry, &width, &height);
		for (enum schema_format format = SCHEMA_XYXY; format <= SCHEMA_CXCYWH; format++) {
			struct coordinates in = {SCHEMA_BOXES, format, false};

			memcpy(boxes, given.boxes, sizeof(boxes));
			convert(format, boxes, box_count);
			coordinates_apply(&geometry, given.width, given.height, &in, boxes,
					  box_count, NULL);
			take_rows(&golden, box_count * 4, expected);
			max = fmax(max, compare_rows(&given, "number of boxes", boxes, expected,
						     box_count * 4));
		}
		strcat(given.text, " sanitize_boxes");
		make_geometry(given.text, given.width, given.height, given.seed, given.sample,
			      &geometry);
		coordinates_apply(&geometry, given.width, given.height, &xyxy, given.boxes,
				  box_count, keep);
		coordinates_apply(&geometry, given.width, given.height,
				  &(struct coordinates){SCHEMA_KEYPOINTS, SCHEMA_XY, false},
				  given.points, point_count, NULL);
		take_rows(&golden, point_count * 2, expected);
		max = fmax(max, compare_rows(&given, "coordinate of points", given.points, expected,
					     point_count * 2));
		assert_memory_equal(keep, golden_take(&golden, box_count), box_count);
		max = fmax(max, compare_rotated(&golden, &given, &geometry));
		if (golden_take_number(&golden, 1))
			compare_depth(&golden, &given, &geometry);
	}
	assert_ptr_equal(golden.at, golden.end);
	assert_true(cases >= 50);
	print_message(
		"%u cases: coordinates differ by at most %.2g, %lu of %lu pixels of warped masks "
		"differ\n",
		cases, max, differing_pixels, warped_pixels);
	assert_true(differing_pixels * 1000000 <= differ_max * warped_pixels);
	free(data);
}

/* ---- properties ---- */

/* Moving a box gives the bounding box of the equally moved mask, within a pixel of the output. */
TEST(boxes_follow_their_masks)
{
	static const char *const texts[] = {
		"hflip random_resized_crop(60x44, scale=0.2:1) vflip",
		"pad(7) resize(90x70) random_crop(50) hflip",
		"random_affine(25, translate=0.2:0.2, scale=0.6:1.6, shear=12) hflip",
		"random_resized_crop(64) random_rotation(90:90) vflip random_crop(50)",
	};
	enum { WIDTH = 80, HEIGHT = 64 };
	static uint8_t mask[HEIGHT][WIDTH];
	struct random_stream random;
	unsigned compared = 0;

	random_init(&random, 3, 0, 0, RANDOM_AUGMENT);
	for (unsigned i = 0; i < 400; i++) {
		uint32_t x = random_below(&random, WIDTH - 8),
			 y = random_below(&random, HEIGHT - 8);
		uint32_t w = 8 + random_below(&random, WIDTH - 8 - x),
			 h = 8 + random_below(&random, HEIGHT - 8 - y), width, height;
		float box[4] = {(float)x, (float)y, (float)(x + w), (float)(y + h)};
		static struct geometry geometry;

		memset(mask, 0, sizeof(mask));
		for (uint32_t v = y; v < y + h; v++)
			memset(&mask[v][x], 1, w);
		make_geometry(texts[i % 4], WIDTH, HEIGHT, i, i, &geometry);
		uint8_t *got = move_raster(&geometry, mask[0], 1, WIDTH, HEIGHT, &width, &height);
		float seen[4] = {(float)width, (float)height, 0, 0};

		for (uint32_t v = 0; v < height; v++)
			for (uint32_t u = 0; u < width; u++)
				if (got[v * width + u]) {
					seen[0] = fminf(seen[0], (float)u);
					seen[1] = fminf(seen[1], (float)v);
					seen[2] = fmaxf(seen[2], (float)u + 1);
					seen[3] = fmaxf(seen[3], (float)v + 1);
				}
		coordinates_apply(&geometry, WIDTH, HEIGHT, &xyxy, box, 1, NULL);
		/* if the frame cuts a corner, its tip may fall between pixels */
		bool cut = box[0] <= 0 || box[1] <= 0 || box[2] >= (float)width ||
			   box[3] >= (float)height;
		float off = cut && i % 4 == 2 ? 1000 : i % 4 == 2 ? 3.5f : 2;

		for (int k = 0; k < 4 && seen[2] > 0 && off < 1000; k++)
			if (fabsf(seen[k] - box[k]) > off)
				fail_msg("'%s', seed %u: side %d of the box is %g, of the mask %g",
					 texts[i % 4], i, k, (double)box[k], (double)seen[k]);
		compared += seen[2] > 0 && off < 1000;
		free(got);
	}
	assert_true(compared > 200);
}

/* Runs steps without random draws on boxes of a picture of 60 x 50 pixels. */
static void run_step(const char *text, const struct coordinates *coordinates, float *boxes,
		     size_t count, uint8_t *keep)
{
	static struct geometry geometry;

	make_geometry(text, 60, 50, 1, 1, &geometry);
	coordinates_apply(&geometry, 60, 50, coordinates, boxes, count, keep);
}

/*
 * Boxes of arbitrary bytes end inside the frame and are never reversed. sanitize_boxes drops those
 * without a valid area.
 */
TEST(impossible_boxes_become_empty)
{
	const float huge = 3e38f;
	float boxes[][4] = {
		{NAN, 0, 10, 10},   {0, 0, INFINITY, 10},      {-INFINITY, 0, 10, INFINITY},
		{20, 5, 10, 30},    {5, 30, 20, 10},           {-huge, -huge, huge, huge},
		{huge, 0, huge, 1}, {1e-42f, 0, 1e-42f, 1e9f}, {-1.6e38f, 0, 3.3e38f, 10},
		{10, 10, 20, 20},
	};
	enum { COUNT = sizeof(boxes) / sizeof(*boxes) };
	/*
	 * for the steps that do not clip, width or centre may be infinite although the edges are
	 * finite
	 */
	static const char *const texts[] = {"pad(3)",
					    "resize(300)",
					    "random_rotation(20)",
					    "hflip(1)",
					    "resize(120x100)",
					    "random_resized_crop(20) hflip",
					    "resize(4096x4096) random_affine(10, scale=2:2)"};

	for (enum schema_format format = SCHEMA_XYXY; format <= SCHEMA_CXCYWH; format++)
		for (unsigned t = 0; t < sizeof(texts) / sizeof(*texts); t++)
			for (unsigned normalized = 0; normalized < 2; normalized++) {
				struct coordinates in = {SCHEMA_BOXES, format, normalized};
				static struct geometry geometry;
				float moved[COUNT][4];

				memcpy(moved, boxes, sizeof(moved));
				make_geometry(texts[t], 60, 50, 1, 1, &geometry);
				coordinates_apply(&geometry, 60, 50, &in, moved[0], COUNT, NULL);
				for (unsigned i = 0; i < COUNT; i++) {
					for (int k = 0; k < 4; k++)
						assert_true(isfinite(moved[i][k]));
					if (format == SCHEMA_XYXY)
						assert_true(moved[i][0] <= moved[i][2] &&
							    moved[i][1] <= moved[i][3]);
					else
						assert_true(moved[i][2] >= 0 && moved[i][3] >= 0);
				}
			}
	uint8_t keep[COUNT], expected[COUNT] = {[COUNT - 1] = 1};

	run_step("sanitize_boxes", &xyxy, boxes[0], COUNT, keep);
	assert_memory_equal(keep, expected, COUNT);
	assert_true(boxes[3][0] == 20 && boxes[3][2] == 20 && boxes[4][1] == 30 &&
		    boxes[4][3] == 30);
	for (int k = 0; k < 4; k++)
		assert_true(boxes[0][k] == 0 && boxes[1][k] == 0);
}

/* Bounds of sanitize_bounding_boxes(): both sides, the area, and the frame. */
TEST(sanitize_has_torchvisions_bounds)
{
	float boxes[][4] = {
		{0, 0, 1, 1},       {0, 0, 0.99f, 5},  {0, 0, 5, 0.99f},    {0, 0, 60, 50},
		{0, 0, 60.01f, 50}, {0, 0, 60, 50.1f}, {-0.01f, 0, 10, 10}, {10, 10, 12, 12},
		{10, 10, 13, 13},   {10, 10, 20, 13},  {NAN, 10, 20, 13},   {10, -0.01f, 20, 13},
	};
	enum { COUNT = sizeof(boxes) / sizeof(*boxes) };
	const uint8_t usual[COUNT] = {1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0};
	const uint8_t larger[COUNT] = {0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0};
	const uint8_t clamped[COUNT] = {1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1};
	float before[COUNT][4];
	uint8_t keep[COUNT];

	memcpy(before, boxes, sizeof(before));
	run_step("sanitize_boxes", &xyxy, boxes[0], COUNT, keep);
	assert_memory_equal(keep, usual, COUNT);
	run_step("sanitize_boxes(min_size=3, min_area=10)", &xyxy, boxes[0], COUNT, keep);
	assert_memory_equal(keep, larger, COUNT);
	/* valid boxes keep their bytes */
	assert_memory_equal(boxes, before, (COUNT - 2) * sizeof(boxes[0]));
	run_step("clamp_boxes sanitize_boxes", &xyxy, boxes[0], COUNT, keep);
	assert_memory_equal(keep, clamped, COUNT);
	/* each step sees the picture as it is at that point of the pipeline */
	run_step("center_crop(4) sanitize_boxes resize(60x50)", &xyxy, before[3], 1, keep);
	assert_int_equal(keep[0], 1);
	run_step("resize(4x4) sanitize_boxes(min_size=5) resize(60x50)", &xyxy, before[3], 1, keep);
	assert_int_equal(keep[0], 0);
}

/*
 * Dropped rows are dropped from every value that refers to the boxes; the other rows keep their
 * order.
 */
TEST(rows_stay_together)
{
	enum { COUNT = 200 };
	static struct geometry geometry;
	struct random_stream random;
	float boxes[COUNT][4], area[COUNT];
	uint8_t keep[COUNT];
	int32_t ids[COUNT];

	random_init(&random, 7, 0, 0, RANDOM_AUGMENT);
	for (int i = 0; i < COUNT; i++) {
		float x = 100 * random_float(&random), y = 80 * random_float(&random);

		/* the width identifies the box */
		ids[i] = i;
		area[i] = (float)i / 2;
		memcpy(boxes[i], (float[]){x, y, x + 1 + (float)i / 16, y + 3}, sizeof(boxes[i]));
	}
	make_geometry("center_crop(60x50) sanitize_boxes", 100, 80, 1, 1, &geometry);
	coordinates_apply(&geometry, 100, 80, &xyxy, boxes[0], COUNT, keep);
	size_t kept = rows_keep(boxes, sizeof(boxes[0]), keep, COUNT);

	assert_in_range(kept, 20, COUNT - 20);
	assert_int_equal(rows_keep(ids, sizeof(ids[0]), keep, COUNT), kept);
	assert_int_equal(rows_keep(area, sizeof(area[0]), keep, COUNT), kept);
	for (size_t i = 0; i < kept; i++) {
		assert_true(keep[ids[i]] && area[i] == (float)ids[i] / 2);
		assert_true(i == 0 || ids[i] > ids[i - 1]);
		if (boxes[i][0] > 0 && boxes[i][2] < 60)
			assert_true(fabsf(boxes[i][2] - boxes[i][0] - 1 - (float)ids[i] / 16) <
				    1e-4f);
	}
}

TEST(clamped_boxes_lie_in_the_frame)
{
	float boxes[][4] = {{-5, -5, 10, 10}, {50, 40, 90, 90}, {70, 60, 80, 90}, {1, 2, 3, 4}};
	const float expected[][4] = {
		{0, 0, 10, 10}, {50, 40, 60, 50}, {60, 50, 60, 50}, {1, 2, 3, 4}};
	float centred[] = {0, 0, 20, 10}, fractions[] = {-0.5f, 0.5f, 0.7f, 1.5f};

	run_step("clamp_boxes", &xyxy, boxes[0], 4, NULL);
	assert_memory_equal(boxes, expected, sizeof(boxes));
	run_step("clamp_boxes", &(struct coordinates){SCHEMA_BOXES, SCHEMA_CXCYWH, false}, centred,
		 1, NULL);
	assert_memory_equal(centred, ((const float[]){5, 2.5f, 10, 5}), sizeof(centred));
	run_step("clamp_boxes", &(struct coordinates){SCHEMA_BOXES, SCHEMA_XYXY, true}, fractions,
		 1, NULL);
	for (int k = 0; k < 4; k++)
		assert_true(fabsf(fractions[k] - ((const float[]){0, 0.5f, 0.7f, 1})[k]) < 1e-6f);
}

/* What follows from the definition, apart from torchvision: format/SPEC.md. */
TEST(rotated_boxes_turn_with_the_picture)
{
	float flipped[] = {10, 20, 8, 4, 30}, turned[] = {10, 20, 8, 4, 0};
	float fractions[] = {0.5f, 0.5f, 0.2f, 0.1f, 90}, cut[] = {0, 25, 10, 10, 90};
	float still[] = {10, 20, 8, 4, 720}, gone[] = {-20, 25, 10, 10, 90};
	const struct coordinates normalized = {SCHEMA_BOXES, SCHEMA_CXCYWHR, true};

	run_step("hflip(p=1)", &rotated_form, flipped, 1, NULL);
	assert_memory_equal(flipped, ((const float[]){50, 20, 8, 4, -30}), sizeof(flipped));
	run_step("vflip(p=1)", &rotated_form, flipped, 1, NULL);
	assert_memory_equal(flipped, ((const float[]){50, 30, 8, 4, 210}), sizeof(flipped));
	/* Counterclockwise, like the angle of the step. */
	run_step("random_rotation(20:20)", &rotated_form, turned, 1, NULL);
	assert_true(fabsf(turned[4] - 20) < 1e-4f && fabsf(turned[2] - 8) < 1e-4f);
	/* Sides are fractions of width and height before the rotation. */
	run_step("resize(120x100)", &normalized, fractions, 1, NULL);
	for (int k = 0; k < 5; k++)
		assert_true(fabsf(fractions[k] - ((const float[]){0.5f, 0.5f, 0.2f, 0.1f, 90})[k]) <
			    1e-4f);
	run_step("clamp_boxes", &rotated_form, cut, 1, NULL);
	for (int k = 0; k < 5; k++)
		assert_true(fabsf(cut[k] - ((const float[]){2.5f, 25, 10, 5, 90})[k]) < 1e-4f);
	run_step("sanitize_boxes", &rotated_form, still, 1, NULL);
	assert_memory_equal(still, ((const float[]){10, 20, 8, 4, 720}), sizeof(still));
	run_step("clamp_boxes", &rotated_form, gone, 1, NULL);
	assert_memory_equal(gone, ((const float[]){0, 50, 0, 0, 0}), sizeof(gone));
}

/* torchvision's sanitize_bounding_boxes() drops the second, of 90 degrees. */
TEST(rotated_boxes_are_sanitized_by_their_sides)
{
	float boxes[][5] = {
		{30, 25, 20, 10, 0},    {30, 25, 20, 10, 90}, {30, 25, 20, 0.9f, 45},
		{30, 25, 0.9f, 20, 45}, {7, 25, 12, 12, 0},   {7, 25, 12, 12, 45},
		{30, 6, 8, 30, 90},     {NAN, 25, 20, 10, 0}, {30, 25, -20, 10, 0},
	};
	enum { COUNT = sizeof(boxes) / sizeof(*boxes) };
	const uint8_t expected[COUNT] = {1, 1, 0, 0, 1, 0, 1, 0, 0};
	uint8_t keep[COUNT];

	run_step("sanitize_boxes", &rotated_form, boxes[0], COUNT, keep);
	assert_memory_equal(keep, expected, COUNT);
	run_step("sanitize_boxes(min_area=201)", &rotated_form, boxes[0], 1, keep);
	assert_int_equal(keep[0], 0);
}

/* Rotated boxes of any bytes stay finite, with sides that are not negative. */
TEST(impossible_rotated_boxes_become_empty)
{
	static const float extremes[] = {0,      -0.0f, 1,     -1,       30,        1e-45f, 3e38f,
					 -3e38f, NAN,   65535, INFINITY, -INFINITY, 90};
	static const char *const texts[] = {
		"pad(3)",
		"resize(300x20)",
		"random_rotation(20)",
		"hflip(1) vflip(1)",
		"center_crop(20) clamp_boxes",
		"resize(4096x4096) random_affine(10, scale=2:2, shear=30)"};
	enum { EXTREMES = sizeof(extremes) / sizeof(*extremes), COUNT = 400 };
	struct random_stream random;

	random_init(&random, 9, 0, 0, RANDOM_AUGMENT);
	for (unsigned t = 0; t < 2 * sizeof(texts) / sizeof(*texts); t++) {
		const struct coordinates form = {SCHEMA_BOXES, SCHEMA_CXCYWHR, t % 2};
		static float rows[COUNT][5];

		for (unsigned i = 0; i < COUNT * 5; i++)
			rows[i / 5][i % 5] = extremes[random_below(&random, EXTREMES)];
		run_step(texts[t / 2], &form, rows[0], COUNT, NULL);
		for (unsigned i = 0; i < COUNT; i++) {
			for (int k = 0; k < 5; k++)
				assert_true(isfinite(rows[i][k]));
			assert_true(rows[i][2] >= 0 && rows[i][3] >= 0);
		}
	}
}

/* Named steps for boxes act only on the values named. */
TEST(named_steps_are_for_their_boxes)
{
	static const char text[] = "a, b: sanitize_boxes(min_size=20) b: clamp_boxes";
	static const uint8_t kept[] = {0, 0, 1, 1};
	static const float right[] = {70, 60, 70, 70};
	struct pipeline *pipeline = golden_pipeline(text);
	static const char *const names[] = {"a", "b", "c", "image"};

	for (unsigned i = 0; i < 4; i++) {
		float box[] = {50, 40, 70, 45};
		struct coordinates coordinates = xyxy;
		uint8_t keep[1];

		coordinates.value = pipeline_value_bit(pipeline, names[i]);
		assert_int_equal(coordinates.value, i < 2 ? 1u << i : 0);
		run_step(text, &coordinates, box, 1, keep);
		assert_int_equal(keep[0], kept[i]);
		assert_true(box[2] == right[i]);
	}
	pipeline_free(pipeline);
}

/*
 * Visibility does not change. Keypoints flip like pixels, polygons like edges. Fractions refer to
 * the new frame.
 */
TEST(points_keep_what_is_theirs)
{
	static struct geometry geometry;
	float keypoints[] = {0, 10, 2, 99, 20, 0, NAN, 5, 1}, polygon[] = {0, 10, 100, 20};
	float fractions[] = {0.25f, 0.5f}, box[] = {0.25f, 0.5f, 0.75f, 1};
	const struct coordinates xyv = {SCHEMA_KEYPOINTS, SCHEMA_XYV, false};

	make_geometry("hflip(p=1)", 100, 80, 1, 1, &geometry);
	coordinates_apply(&geometry, 100, 80, &xyv, keypoints, 3, NULL);
	assert_memory_equal(keypoints, ((const float[]){99, 10, 2, 0, 20, 0}), 6 * sizeof(float));
	assert_true(isnan(keypoints[6]) && isnan(keypoints[7]) && keypoints[8] == 1);
	coordinates_apply(&geometry, 100, 80,
			  &(struct coordinates){SCHEMA_POLYGONS, SCHEMA_XY, false}, polygon, 2,
			  NULL);
	assert_memory_equal(polygon, ((const float[]){100, 10, 0, 20}), sizeof(polygon));
	make_geometry("center_crop(50x40)", 100, 80, 1, 1, &geometry);
	coordinates_apply(&geometry, 100, 80,
			  &(struct coordinates){SCHEMA_POLYGONS, SCHEMA_XY, true}, fractions, 1,
			  NULL);
	assert_memory_equal(fractions, ((const float[]){0, 0.5f}), sizeof(fractions));
	coordinates_apply(&geometry, 100, 80,
			  &(struct coordinates){SCHEMA_BOXES, SCHEMA_XYXY, true}, box, 1, NULL);
	assert_memory_equal(box, ((const float[]){0, 0.5f, 1, 1}), sizeof(box));
	assert_int_equal(coordinates_row(&xyv), 3);
	assert_int_equal(coordinates_row(&xyxy), 4);
	assert_int_equal(coordinates_row(&rotated_form), 5);
	assert_int_equal(coordinates_row(&(struct coordinates){SCHEMA_CLASS, SCHEMA_XY, false}), 0);
}

/*
 * Points that no step moves keep their bytes, except points that are not finite. Converting
 * fractions to pixels and back would change their last bits.
 */
TEST(points_that_do_not_move_keep_their_bytes)
{
	static const enum schema_role roles[] = {SCHEMA_KEYPOINTS, SCHEMA_POLYGONS};
	enum { COUNT = 200 };
	static struct geometry still;
	struct random_stream random;
	float points[COUNT][2], moved[COUNT][2];

	random_init(&random, 11, 0, 0, RANDOM_AUGMENT);
	for (int i = 0; i < COUNT; i++)
		for (int k = 0; k < 2; k++)
			points[i][k] = random_float(&random);
	points[0][0] = INFINITY;
	make_geometry("clamp_boxes sanitize_boxes", 97, 61, 1, 1, &still);
	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++) {
		memcpy(moved, points, sizeof(moved));
		coordinates_apply(&still, 97, 61, &(struct coordinates){roles[i], SCHEMA_XY, true},
				  moved[0], COUNT, NULL);
		assert_true(isnan(moved[0][0]) && isnan(moved[0][1]));
		assert_memory_equal(moved[1], points[1], sizeof(moved) - sizeof(moved[0]));
	}
}

/* Rows that are not finite end polygons: no other row becomes one. */
TEST(vertices_that_overflow_stay_finite)
{
	static struct geometry geometry;
	float vertices[][2] = {{3e38F, -3e38F}, {NAN, 1}, {1, 2}};

	make_geometry("resize(1000x1000) random_rotation(40)", 10, 10, 1, 1, &geometry);
	coordinates_apply(&geometry, 10, 10, &(struct coordinates){SCHEMA_POLYGONS, SCHEMA_XY},
			  vertices[0], 3, NULL);
	assert_true(isfinite(vertices[0][0]) && isfinite(vertices[0][1]));
	assert_true(isnan(vertices[1][0]) && isnan(vertices[1][1]));
	assert_true(isfinite(vertices[2][0]) && isfinite(vertices[2][1]));
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: %s frame.bin.zst [DIFFERING-PIXELS-IN-A-MILLION]\n",
			argv[0]);
		return 2;
	}
	golden_path = argv[1];
	differ_max = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	return test_run(NULL, NULL);
}
