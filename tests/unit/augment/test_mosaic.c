/*
 * Mosaics, against pictures of whole resized samples that are pasted pixel by pixel, with every
 * instruction set: images, rasters and coordinates, and how much of a sample is decoded.
 */
#include "format/augment/mosaic.h"
#include "format/base/system/cpu.h"
#include "tests/unit/augment/pipeline_test.h"

#include <math.h>

enum { SAMPLES = 1 + MOSAIC_OTHERS, ROUNDS = 60 };

/* Four samples and their places. */
struct scene {
	struct pipeline *pipeline;
	struct mosaic mosaic;
	struct packimg_sample samples[SAMPLES];
	struct mosaic_tile tiles[SAMPLES];
	bool shown[SAMPLES];
};

static struct pipeline *parse_mosaic(const char *text)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error;

	if (pipeline_parse_views(text, &pipeline, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	return pipeline;
}

/* Some samples have the mosaic's size, so that they are not resized. */
static void scene_init(struct scene *scene, const char *text, uint64_t index)
{
	scene->pipeline = parse_mosaic(text);
	mosaic_draw(scene->pipeline, 7, 1, index, &scene->mosaic);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		bool same = random_below(&rng, 4) == 0;
		uint32_t w = same ? scene->mosaic.width : 1 + random_below(&rng, 150);
		uint32_t h = same ? scene->mosaic.height : 1 + random_below(&rng, 150);

		scene->samples[i] = make_sample(random_pixels(w, h), w, h, index + i);
		scene->shown[i] = i < scene->mosaic.count &&
				  mosaic_place(&scene->mosaic, i, w, h, &scene->tiles[i]);
	}
}

static void scene_deinit(struct scene *scene)
{
	for (uint32_t i = 0; i < SAMPLES; i++)
		free((void *)scene->samples[i].data);
	pipeline_free(scene->pipeline);
}

static void paste(const struct scene *scene, uint32_t i, uint8_t *picture)
{
	const struct mosaic_tile *tile = &scene->tiles[i];
	char text[64];

	snprintf(text, sizeof(text), "resize(%ux%u)", tile->whole_width, tile->whole_height);
	struct pipeline *resize = parse(text);
	uint8_t *whole = apply_all(resize, &scene->samples[i], 1, 1);

	for (uint32_t y = 0; y < tile->height; y++)
		for (uint32_t x = 0; x < tile->width; x++)
			memcpy(picture + 3 * ((size_t)(tile->y + y) * scene->mosaic.width +
					      tile->x + x),
			       whole + 3 * ((size_t)(tile->from_y + y) * tile->whole_width +
					    tile->from_x + x),
			       3);
	free(whole);
	pipeline_free(resize);
}

/* Checks that the last decoding asked for what is shown, and what a resize reads around it. */
static void expect_part(uint32_t asked, uint32_t shown, uint32_t stored, uint32_t whole)
{
	double step = (double)stored / whole, around = step > 1 ? 2 * step : 2;

	assert_true(asked <= ceil(shown * step + around) + 1);
}

TEST(shows_what_pasting_whole_samples_shows)
{
	struct packimg_error error;
	unsigned count = 0, hidden = 0;

	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct scene scene;

		fake_decoder.margin = round % 3;
		scene_init(&scene, "mosaic(64x48, scale=0.3:1.6, fill=1:2:3)", round);
		size_t size = (size_t)3 * scene.mosaic.width * scene.mosaic.height;
		uint8_t *expected = malloc(size), *made = malloc(size);

		assert_non_null(expected);
		assert_non_null(made);
		for (size_t at = 0; at < size; at++)
			expected[at] = (uint8_t)(1 + at % 3);
		for (uint32_t i = 0; i < SAMPLES; i++) {
			count += scene.shown[i];
			hidden += !scene.shown[i];
			if (scene.shown[i])
				paste(&scene, i, expected);
		}
		for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++) {
			mosaic_fill_image(scene.pipeline, &scene.mosaic, NULL, made);
			for (uint32_t i = 0; i < SAMPLES; i++) {
				const struct packimg_sample *sample = &scene.samples[i];
				const struct mosaic_tile *tile = &scene.tiles[i];

				if (!scene.shown[i])
					continue;
				assert_int_equal(mosaic_put_image(scene.pipeline, scratches[isa],
								  sample, &scene.mosaic, tile, made,
								  NULL, &error),
						 0);
				expect_part(fake_decoder.region.width, tile->width, sample->width,
					    tile->whole_width);
				expect_part(fake_decoder.region.height, tile->height,
					    sample->height, tile->whole_height);
			}
			assert_memory_equal(made, expected, size);
		}
		/* leaving out a sample fills its part, and no more */
		if (scene.shown[2]) {
			const struct mosaic_tile *tile = &scene.tiles[2];

			mosaic_fill_image(scene.pipeline, &scene.mosaic, tile, made);
			for (size_t at = 0; at < size; at++) {
				uint32_t x = (uint32_t)(at / 3) % 64, y = (uint32_t)(at / 3) / 64;
				bool inside =
					x - tile->x < tile->width && y - tile->y < tile->height;

				assert_int_equal(made[at],
						 inside ? (uint8_t)(1 + at % 3) : expected[at]);
			}
		}
		free(made);
		free(expected);
		scene_deinit(&scene);
	}
	fake_decoder.margin = 0;
	assert_true(count > 2 * ROUNDS && hidden > 0);
}

/* Masks are sampled as those of whole samples, which the resampler's own tests compare. */
TEST(masks_follow_their_sample)
{
	struct packimg_error error;

	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct frame_raster form = {
			.element = PACKIMG_ELEMENT_U8, .channels = 3, .fill = {9}};
		static uint8_t made[64 * 48 * 3], finished[64 * 48 * 3], expected[64 * 48 * 3];
		struct scene scene;

		scene_init(&scene, "mosaic(64x48, scale=0.3:1.6) vflip(p=1)", round);
		memset(expected, 9, sizeof(expected));
		mosaic_fill_raster(&form, &scene.mosaic, NULL, made);
		for (uint32_t i = 0; i < SAMPLES; i++) {
			const struct packimg_sample *sample = &scene.samples[i];
			const struct mosaic_tile *tile = &scene.tiles[i];

			if (!scene.shown[i])
				continue;
			for (uint32_t at = 0; at < tile->width * tile->height; at++) {
				uint32_t x = at % tile->width, y = at / tile->width;
				float u = (float)sample->width / (float)tile->whole_width;
				float v = (float)sample->height / (float)tile->whole_height;
				uint32_t from_x = (uint32_t)((float)(tile->from_x + x) * u);
				uint32_t from_y = (uint32_t)((float)(tile->from_y + y) * v);

				from_x = from_x < sample->width ? from_x : sample->width - 1;
				from_y = from_y < sample->height ? from_y : sample->height - 1;
				memcpy(expected + 3 * ((47 - tile->y - y) * 64 + tile->x + x),
				       sample->data + 3 * (from_y * sample->width + from_x), 3);
			}
			form.width = sample->width;
			form.height = sample->height;
			assert_int_equal(mosaic_put_raster(scene.pipeline, scratches[0], sample,
							   &form, &scene.mosaic, tile, made, NULL,
							   &error),
					 0);
			form.width++;
			assert_int_equal(mosaic_put_raster(scene.pipeline, scratches[0], sample,
							   &form, &scene.mosaic, tile, made, NULL,
							   &error),
					 -EBADMSG);
		}
		assert_int_equal(mosaic_finish_raster(scene.pipeline, scratches[0], &scene.mosaic,
						      &form, made, round, 7, 1, finished, NULL,
						      &error),
				 0);
		assert_memory_equal(finished, expected, sizeof(expected));
		scene_deinit(&scene);
	}
}

/* The four samples meet at one point and do not overlap; each is as large as fits, times a factor.
 */
TEST(samples_meet_at_a_point_in_the_middle)
{
	unsigned quarters[SAMPLES] = {0};

	for (uint64_t round = 0; round < 200; round++) {
		struct scene scene;

		scene_init(&scene, "mosaic(60x40, scale=0.5:1.5)", round);
		const struct mosaic *mosaic = &scene.mosaic;

		assert_int_equal(mosaic->count, SAMPLES);
		assert_true(mosaic->factor >= 0.5 && mosaic->factor < 1.5);
		assert_true(fabs(mosaic->x - 30.0) <= 30 * mosaic->factor + 0.5);
		assert_true(fabs(mosaic->y - 20.0) <= 20 * mosaic->factor + 0.5);
		quarters[mosaic->quarter]++;
		for (uint32_t i = 0; i < SAMPLES; i++) {
			const struct mosaic_tile *tile = &scene.tiles[i];
			uint32_t quarter = (mosaic->quarter + i) % SAMPLES;
			double across = 60.0 / scene.samples[i].width;
			double down = 40.0 / scene.samples[i].height;
			double factor = mosaic->factor * fmin(across, down);

			if (!scene.shown[i])
				continue;
			assert_true(fabs(tile->whole_width - scene.samples[i].width * factor) < 1);
			assert_true(fabs(tile->whole_height - scene.samples[i].height * factor) <
				    1);
			int64_t left = (int64_t)tile->x - tile->from_x;
			int64_t top = (int64_t)tile->y - tile->from_y;

			assert_int_equal(quarter % 2 ? left : left + tile->whole_width, mosaic->x);
			assert_int_equal(quarter / 2 ? top : top + tile->whole_height, mosaic->y);
		}
		scene_deinit(&scene);
	}
	for (unsigned i = 0; i < SAMPLES; i++)
		assert_in_range(quarters[i], 25, 75);
}

TEST(draws_follow_from_seed_epoch_and_sample)
{
	struct pipeline *pipeline = parse_mosaic("mosaic(64, p=0.25)");
	struct mosaic first, same, other;
	unsigned joined = 0;

	mosaic_draw(pipeline, 1, 2, 3, &first);
	mosaic_draw(pipeline, 1, 2, 3, &same);
	assert_memory_equal(&first, &same, sizeof(first));
	for (int changed = 0; changed < 3; changed++) {
		mosaic_draw(pipeline, 1 + (changed == 0), 2 + (changed == 1), 3 + (changed == 2),
			    &other);
		assert_true(memcmp(first.others, other.others, sizeof(first.others)) != 0);
	}
	for (uint64_t i = 0; i < 1000; i++) {
		mosaic_draw(pipeline, 1, 0, i, &other);
		joined += other.count == SAMPLES;
	}
	assert_in_range(joined, 200, 300);
	pipeline_free(pipeline);
	pipeline = parse_mosaic("mosaic(64@0;96x32@5)");
	mosaic_draw(pipeline, 1, 4, 3, &first);
	mosaic_draw(pipeline, 1, 5, 3, &other);
	assert_int_equal(first.width, 64);
	assert_int_equal(other.width, 96);
	assert_int_equal(other.height, 32);
	pipeline_free(pipeline);
}

static double clip(double value, double high)
{
	return value < 0 ? 0 : value > high ? high : value;
}

/* Boxes of fractions and of pixels are where their sample is; those that are hardly seen are
 * dropped. */
TEST(boxes_follow_their_sample)
{
	unsigned dropped = 0, kept = 0;
	struct packimg_error error;

	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct scene scene;

		scene_init(&scene, "mosaic(64x48, min_visibility=0.3) hflip(p=1)", round);
		for (uint32_t i = 0; i < SAMPLES; i++) {
			const struct mosaic_tile *tile = &scene.tiles[i];
			const struct packimg_sample *sample = &scene.samples[i];
			bool normalized = i % 2;
			const struct coordinates form = {SCHEMA_BOXES, SCHEMA_XYXY, normalized, 0};
			float u = random_float(&rng) * 0.7f, v = random_float(&rng) * 0.7f;
			float row[4] = {u, v, u + 0.3f, v + 0.3f};
			double sx = normalized ? 1 : sample->width,
			       sy = normalized ? 1 : sample->height;
			uint8_t keep = 2;

			if (!scene.shown[i])
				continue;
			double corners[4] = {row[0] * tile->whole_width - tile->from_x,
					     row[1] * tile->whole_height - tile->from_y,
					     row[2] * tile->whole_width - tile->from_x,
					     row[3] * tile->whole_height - tile->from_y};
			double all = (corners[2] - corners[0]) * (corners[3] - corners[1]);
			for (int k = 0; k < 4; k++) {
				row[k] *= (float)(k % 2 ? sy : sx);
				corners[k] = clip(corners[k], k % 2 ? tile->height : tile->width);
			}
			double seen = (corners[2] - corners[0]) * (corners[3] - corners[1]) / all;

			pipeline_scratch_tile(scratches[0], tile);
			assert_int_equal(pipeline_apply_coordinates(scene.pipeline, scratches[0],
								    round, sample->width,
								    sample->height, &form, 7, 1,
								    row, 1, &keep, &error),
					 0);
			pipeline_scratch_tile(scratches[0], NULL);
			if (fabs(seen - 0.3) > 1e-3)
				assert_int_equal(keep, seen > 0.3);
			kept += keep;
			dropped += !keep;
			const double expected[4] = {64 - tile->x - corners[2], tile->y + corners[1],
						    64 - tile->x - corners[0],
						    tile->y + corners[3]};
			for (int k = 0; k < 4; k++)
				assert_true(fabs(row[k] * (!normalized ? 1
							   : k % 2     ? 48
								       : 64) -
						 expected[k]) < 1e-2);
		}
		scene_deinit(&scene);
	}
	assert_true(kept > 30 && dropped > 30);
}

TEST(finished_images_are_made_from_the_joined_picture)
{
	struct pipeline *pipeline = parse_mosaic("mosaic(32x24) resize(16x12) hflip");
	struct pipeline *rest = parse("resize(16x12) hflip");
	uint8_t *picture = random_pixels(32, 24);
	struct packimg_sample joined = make_sample(picture, 32, 24, 5);
	uint8_t *expected = apply_all(rest, &joined, 7, 1), made[16 * 12 * 3];
	struct packimg_error error;
	struct mosaic mosaic;

	mosaic_draw(pipeline, 7, 1, 5, &mosaic);
	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++) {
		memset(made, 0, sizeof(made));
		assert_int_equal(mosaic_finish_image(pipeline, scratches[isa], &mosaic, picture, 5,
						     7, 1, made, NULL, &error),
				 0);
		assert_memory_equal(made, expected, sizeof(made));
	}
	free(expected);
	free(picture);
	pipeline_free(rest);
	pipeline_free(pipeline);
}

static void expect_refused(const char *text, int position, const char *words)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error = {0};

	assert_int_equal(pipeline_parse_views(text, &pipeline, &error), -EINVAL);
	assert_int_equal(error.position, position);
	if (!strstr(error.text, words))
		fail_msg("'%s': %s", text, error.text);
}

TEST(what_cannot_be_joined_is_refused)
{
	struct pipeline_error error = {0};
	struct pipeline *pipeline = NULL;

	expect_refused("hflip mosaic(64)", 6, "put it before all other steps");
	expect_refused("mosaic(64) hflip mosaic(64)", 17, "mosaic is given twice");
	expect_refused("mosaic(64) random_iou_crop", 11, "random_iou_crop chooses by the boxes");
	expect_refused("mosaic(64) bucket_resize", 11, "bucket_resize chooses by the boxes");
	expect_refused("mosaic(64) view a { hflip }", 0, "leave it or the views out");
	expect_refused("view a { mosaic(64) }", 9, "leave it or the views out");
	expect_refused("mosaic(64) cutmix", 11, "mixup and cutmix blend images of two samples");
	expect_refused("mosaic(64, scale=0:1)", 17, "scale is from 0.1 to 2");
	assert_int_equal(pipeline_parse("mosaic(64)", &pipeline, &error), -EINVAL);
	assert_non_null(strstr(error.text, "put resize or random_resized_crop in its place"));
	pipeline = parse_mosaic("mosaic(64) hflip");
	assert_true(pipeline_joins(pipeline));
	assert_int_equal(pipeline_defer(pipeline, &error), -EINVAL);
	assert_non_null(strstr(error.text, "ask for finished samples"));
	pipeline_free(pipeline);
	pipeline = parse_mosaic("resize(64)");
	assert_false(pipeline_joins(pipeline));
	pipeline_free(pipeline);
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
