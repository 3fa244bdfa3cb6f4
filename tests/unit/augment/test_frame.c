/*
 * Masks, rasters and coordinates through the public interface, with the real decoder: they follow
 * an image in any orientation and codec, and those that do not fit the image are refused.
 */
#include "format/augment/apply/widen.h"
#include "format/augment/frame.h"
#include "tests/test.h"
#include "tests/unit/format/images.h"

enum { WIDTH = 61, HEIGHT = 44, SIDE = 32 };

static struct pipeline_scratch *scratch;
static struct packimg_encoder *encoder;
static uint8_t *pixels; /* stored, WIDTH x HEIGHT RGB */
static struct packimg_error error;

static int setup(void **state)
{
	pixels = image_pixels(WIDTH, HEIGHT, 3, 7);
	return pipeline_scratch_new(&scratch) | packimg_encoder_new(&encoder);
}

static int teardown(void **state)
{
	pipeline_scratch_free(scratch);
	packimg_encoder_free(encoder);
	free(pixels);
	return 0;
}

static struct pipeline *parse(const char *text)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error reason;

	if (pipeline_parse(text, &pipeline, &reason) < 0)
		fail_msg("'%s': %s", text, reason.text);
	return pipeline;
}

/* Returns a raw sample of the pixels. */
static struct packimg_sample raw_sample(int orientation, uint64_t index)
{
	return (struct packimg_sample){
		.index = index,
		.data = pixels,
		.data_size = WIDTH * HEIGHT * 3,
		.codec = PACKIMG_CODEC_RAW,
		.channels = 3,
		.orientation = (uint8_t)orientation,
		.width = orientation < 5 ? WIDTH : HEIGHT,
		.height = orientation < 5 ? HEIGHT : WIDTH,
	};
}

/* Returns a raster of the pixels, valid until the next call. */
static struct packimg_sample raster_sample(int orientation, uint64_t index)
{
	const struct packimg_raster raster = {pixels, 3, WIDTH * 3,         WIDTH,
					      HEIGHT, 3, PACKIMG_ELEMENT_U8};
	const struct packimg_raster_coding coding = {PACKIMG_RASTER_ZSTD, 3, 3};
	struct packimg_sample sample = raw_sample(orientation, index);
	size_t size;

	assert_int_equal(
		packimg_encode_raster(encoder, &raster, &coding, &sample.data, &size, &error), 0);
	sample.data_size = (uint32_t)size;
	sample.codec = PACKIMG_CODEC_RASTER;
	return sample;
}

static struct frame_raster form_of(const struct packimg_sample *sample)
{
	return (struct frame_raster){sample->width, sample->height, PACKIMG_ELEMENT_U8, 3, {0}};
}

/*
 * Masks as raw pixels (codec 2) and as rasters (codec 4), in eight orientations, follow an image
 * that may be stored differently.
 */
TEST(masks_follow_stored_images)
{
	static const char *const texts[] = {
		"random_crop(32, padding=9) hflip vflip",
		"random_crop(32) hflip vflip",
		"random_affine(30, translate=0.1, scale=0.8:1.2) random_crop(32) hflip",
		"random_crop(32) color_jitter(0) hflip random_crop(32, padding=4)",
	};

	for (unsigned i = 0; i < 8 * 2 * 4 * 3; i++) {
		int orientation = (int)(1 + i % 8);
		struct packimg_sample image = raw_sample(orientation, i);
		struct packimg_sample mask = i / 8 % 2 ? raster_sample(orientation, i) : image;
		struct frame_raster form = form_of(&mask);
		struct pipeline *pipeline = parse(texts[i / 16 % 4]);
		static uint8_t expected[SIDE * SIDE * 3], got[SIDE * SIDE * 3 + 1];
		struct pipeline_times times = {0};

		assert_int_equal(pipeline_check_frame(pipeline, true, NULL), 0);
		assert_int_equal(pipeline_apply(pipeline, scratch, &image, 3, i / 64, expected,
						NULL, &error),
				 0);
		got[sizeof(expected)] = 0xee;
		assert_int_equal(pipeline_apply_raster(pipeline, scratch, &mask, &form, 3, i / 64,
						       got, &times, &error),
				 0);
		assert_memory_equal(got, expected, sizeof(expected));
		assert_int_equal(got[sizeof(expected)], 0xee);
		assert_true(times.resize > 0);
		pipeline_free(pipeline);
	}
}

/* The coordinates of a box move like the box painted into the image. */
TEST(coordinates_follow_the_image)
{
	struct pipeline *pipeline = parse("random_crop(32) hflip vflip");
	const struct coordinates xyxy = {SCHEMA_BOXES, SCHEMA_XYXY, false};
	struct packimg_sample image = raw_sample(1, 0);
	static uint8_t out[SIDE * SIDE * 3];

	memset(pixels, 0, WIDTH * HEIGHT * 3);
	for (uint32_t y = 20; y < 24; y++)
		memset(pixels + (y * WIDTH + 30) * 3, 255, 3 * 5);
	for (uint64_t seed = 0; seed < 50; seed++) {
		float box[] = {30, 20, 35, 24};
		uint32_t count = 0;

		assert_int_equal(
			pipeline_apply(pipeline, scratch, &image, seed, 0, out, NULL, &error), 0);
		assert_int_equal(pipeline_apply_coordinates(pipeline, scratch, 0, WIDTH, HEIGHT,
							    &xyxy, seed, 0, box, 1, NULL, &error),
				 0);
		for (uint32_t y = 0; y < SIDE; y++)
			for (uint32_t x = 0; x < SIDE; x++) {
				bool inside = (float)x >= box[0] && (float)x < box[2] &&
					      (float)y >= box[1] && (float)y < box[3];

				assert_int_equal(out[(y * SIDE + x) * 3], inside ? 255 : 0);
				count += inside;
			}
		assert_int_equal(count, (uint32_t)((box[2] - box[0]) * (box[3] - box[1])));
	}
	free(pixels);
	pixels = image_pixels(WIDTH, HEIGHT, 3, 7);
	pipeline_free(pipeline);
}

/* Each pixel of the image says where it was. */
TEST(crop_top_left)
{
	struct pipeline *pipeline = parse("random_crop(32, padding=3, fill=255) hflip vflip");
	struct packimg_sample image = raw_sample(1, 0);
	static uint8_t out[SIDE * SIDE * 3];
	unsigned borders = 0;

	for (uint32_t i = 0; i < WIDTH * HEIGHT; i++) {
		pixels[i * 3] = (uint8_t)(i % WIDTH);
		pixels[i * 3 + 1] = (uint8_t)(i / WIDTH);
	}
	for (uint64_t seed = 0; seed < 200; seed++) {
		int32_t top_left[2];
		const uint8_t *last = out + sizeof(out) - 3;

		assert_int_equal(
			pipeline_apply(pipeline, scratch, &image, seed, 0, out, NULL, &error), 0);
		assert_int_equal(pipeline_crop_top_left(pipeline, scratch, &image, seed, 0,
							top_left, &error),
				 0);
		if (out[0] == 255 || out[1] == 255 || last[0] == 255 || last[1] == 255) {
			borders += top_left[0] < 0 || top_left[1] < 0;
			continue;
		}
		assert_int_equal(top_left[1], out[0] < last[0] ? out[0] : WIDTH - 1 - out[0]);
		assert_int_equal(top_left[0], out[1] < last[1] ? out[1] : HEIGHT - 1 - out[1]);
	}
	assert_true(borders > 0);
	pipeline_free(pipeline);
	/* The picture is the one that was resized last. */
	pipeline = parse("center_crop(40x40) resize(60x50) center_crop(32)");
	int32_t top_left[2];

	assert_int_equal(pipeline_crop_top_left(pipeline, scratch, &image, 0, 0, top_left, &error),
			 0);
	assert_int_equal(top_left[0], 9);
	assert_int_equal(top_left[1], 14);
	pipeline_free(pipeline);
	free(pixels);
	pixels = image_pixels(WIDTH, HEIGHT, 3, 7);
}

static void expect_error(const struct pipeline *pipeline, const struct packimg_sample *mask,
			 const struct frame_raster *form, int code, const char *text)
{
	static uint8_t out[SIDE * SIDE * 3];

	memset(out, 0xee, sizeof(out));
	error.text[0] = '\0';
	assert_int_equal(
		pipeline_apply_raster(pipeline, scratch, mask, form, 1, 0, out, NULL, &error),
		code);
	if (!strstr(error.text, text))
		fail_msg("\"%s\" lacks \"%s\"", error.text, text);
	for (size_t i = 0; i < sizeof(out); i++)
		assert_int_equal(out[i], 0xee);
}

TEST(masks_that_do_not_fit_are_refused)
{
	struct pipeline *pipeline = parse("resize(32x32)");
	struct packimg_sample mask = raster_sample(6, 5), damaged = mask;
	struct frame_raster form = form_of(&mask), other = form;

	other.width--;
	expect_error(pipeline, &mask, &other, -EBADMSG,
		     "sample 5: has a mask or raster of 44 x 61 pixels, but an image of 43 x 61");
	other = form;
	other.height++;
	expect_error(pipeline, &mask, &other, -EBADMSG, "but an image of 44 x 62");
	other = form;
	other.channels = 1;
	expect_error(
		pipeline, &mask, &other, -EBADMSG,
		"sample 5: has a mask or raster of 3 channels and element 1, but the schema says "
		"1 channels and element 1");
	other = form;
	other.element = PACKIMG_ELEMENT_U16;
	expect_error(pipeline, &mask, &other, -EBADMSG, "and element 5");
	damaged.data_size--;
	expect_error(pipeline, &damaged, &form, -EBADMSG, "sample 5: band");
	damaged = mask;
	damaged.codec = PACKIMG_CODEC_JPEG;
	expect_error(pipeline, &damaged, &form, -ENOTSUP, "sample 5: codec 1 stores no raster");
	pipeline_free(pipeline);
	/* A sample whose size is not the pipeline's fixed size would not fit the output. */
	pipeline = parse("hflip");
	assert_int_equal(pipeline_fix_size(pipeline, 44, 32, NULL), 0);
	expect_error(pipeline, &mask, &form, -EINVAL, "but finished samples are 44 x 32; add");
	assert_int_equal(pipeline_fix_size(pipeline, 32, 61, NULL), 0);
	expect_error(pipeline, &mask, &form, -EINVAL,
		     "sample 5: is 44 x 61 pixels, which this pipeline makes 44 x 61, but finished "
		     "samples are 32 x 61; add");
	float box[4] = {0};

	assert_int_equal(
		pipeline_apply_coordinates(pipeline, scratch, 5, 44, 61,
					   &(struct coordinates){SCHEMA_BOXES, SCHEMA_XYXY, false},
					   1, 0, box, 1, NULL, &error),
		-EINVAL);
	pipeline_free(pipeline);
}

/* Rasters of measurements can be interpolated between pixels; masks of classes are not. */
TEST(rasters_are_computed_on_request)
{
	struct packimg_sample depth = raster_sample(3, 1);
	struct frame_raster form = form_of(&depth);
	struct pipeline *pipeline = parse("resize(122x88) center_crop(32)");
	static uint8_t nearest[SIDE * SIDE * 3], computed[SIDE * SIDE * 3];
	unsigned differ = 0;

	assert_int_equal(pipeline_apply_raster(pipeline, scratch, &depth, &form, 1, 0, nearest,
					       NULL, &error),
			 0);
	form.filter = PIPELINE_BILINEAR;
	assert_int_equal(pipeline_apply_raster(pipeline, scratch, &depth, &form, 1, 0, computed,
					       NULL, &error),
			 0);
	for (size_t i = 0; i < sizeof(nearest); i++)
		differ += nearest[i] != computed[i];
	assert_in_range(differ, sizeof(nearest) / 2, sizeof(nearest));
	pipeline_free(pipeline);
	pipeline = parse("pad(200x0) resize(4096) resize(32x32)");
	expect_error(pipeline, &depth, &form, -EINVAL,
		     "sample 1: would be resized to more than 33554432 pixels: resize it");
	pipeline_free(pipeline);
}

struct element_range {
	enum schema_element element;
	int64_t least, most;
};

/* The first two numbers are the ends of the range. */
static int64_t number_of(const struct element_range *range, size_t i)
{
	uint64_t span = (uint64_t)(range->most - range->least);

	return range->least + (int64_t)(i == 1 ? span : i * 2654435761u % (span + 1));
}

static void check_widened(const struct element_range *range, enum schema_element to, size_t count)
{
	enum { COUNT_MAX = 1000 };
	static uint8_t buffer[1 + COUNT_MAX * 8 + 1];
	uint8_t *room = buffer + 1;
	size_t narrow = schema_element_size(range->element), wide = schema_element_size(to);

	memset(buffer, 0xee, sizeof(buffer));
	for (size_t i = 0; i < count; i++) {
		int64_t number = number_of(range, i);

		memcpy(room + count * (wide - narrow) + i * narrow, &number, narrow);
	}
	widen(range->element, to, room, count);
	for (size_t i = 0; i < count; i++) {
		const int64_t number = number_of(range, i);
		const float single = (float)number;

		assert_memory_equal(room + i * wide,
				    to == SCHEMA_F32 ? (const void *)&single : &number, wide);
	}
	assert_int_equal(buffer[0], 0xee);
	assert_int_equal(room[count * wide], 0xee);
}

TEST(elements_are_widened_in_place)
{
	static const struct element_range elements[] = {
		{SCHEMA_U8, 0, UINT8_MAX},          {SCHEMA_U16, 0, UINT16_MAX},
		{SCHEMA_I16, INT16_MIN, INT16_MAX}, {SCHEMA_I32, INT32_MIN, INT32_MAX},
		{SCHEMA_I64, INT64_MIN, INT64_MAX}, {SCHEMA_F32, -(1 << 24), 1 << 24},
	};
	enum { KINDS = sizeof(elements) / sizeof(*elements), STORED = 4 };

	for (unsigned f = 0; f < STORED; f++)
		for (unsigned t = 0; t < KINDS; t++) {
			bool holds = elements[f].least >= elements[t].least &&
				     elements[f].most <= elements[t].most;

			assert_int_equal(widen_can(elements[f].element, elements[t].element),
					 holds);
			for (size_t count = 0; holds && count <= 1000; count += 1 + count / 3)
				check_widened(&elements[f], elements[t].element, count);
		}
	assert_true(widen_can(SCHEMA_F32, SCHEMA_F32));
	assert_false(widen_can(SCHEMA_F32, SCHEMA_I64));
	assert_false(widen_can(SCHEMA_U8, SCHEMA_BF16));
}

/* A mask has the same numbers in any element type in which it can be delivered. */
TEST(masks_have_the_requested_element)
{
	struct pipeline *pipeline = parse("pad(9) random_crop(32) hflip");
	struct packimg_sample mask = raster_sample(1, 3);
	struct frame_raster form = form_of(&mask);
	static uint8_t bytes[SIDE * SIDE * 3];
	static int64_t numbers[SIDE * SIDE * 3 + 1];

	form.fill[0] = 77;
	assert_int_equal(
		pipeline_apply_raster(pipeline, scratch, &mask, &form, 4, 0, bytes, NULL, &error),
		0);
	form.output = SCHEMA_I64;
	numbers[SIDE * SIDE * 3] = -1;
	assert_int_equal(
		pipeline_apply_raster(pipeline, scratch, &mask, &form, 4, 0, numbers, NULL, &error),
		0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		assert_int_equal(numbers[i], bytes[i]);
	assert_int_equal(numbers[SIDE * SIDE * 3], -1);
	pipeline_free(pipeline);
}

TEST(pipelines_that_move_images_alone_are_refused)
{
	static const struct {
		const char *text;
		bool coordinates;
		int position; /* position of the error; -2 if none is expected */
	} cases[] = {
		{"random_resized_crop(32) hflip color_jitter(0.4) random_erasing", true, -2},
		{"resize(32x32) rand_augment", false, 14},
		{"resize(32x32) hflip trivial_augment_wide", false, 20},
		{"auto_augment resize(32x32)", true, 0},
		{"aug_mix resize(32x32)", false, 0},
		{"resize(32x32) pad(2, fill=reflect)", true, 14},
		{"resize(32x32) pad(2, fill=reflect)", false, -2},
		{"random_crop(32, fill=reflect)", true, -2},
		{"random_crop(32, padding=4, fill=reflect)", true, 0},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pipeline *pipeline = parse(cases[i].text);
		struct pipeline_error reason = {.position = -2};
		int r = pipeline_check_frame(pipeline, cases[i].coordinates, &reason);

		assert_int_equal(r, cases[i].position == -2 ? 0 : -EINVAL);
		assert_int_equal(reason.position, cases[i].position);
		pipeline_free(pipeline);
	}
	struct pipeline *pipeline = parse("resize(32x32) hflip");

	assert_int_equal(pipeline_defer(pipeline, NULL), 0);
	assert_int_equal(pipeline_check_frame(pipeline, false, NULL), -EINVAL);
	pipeline_free(pipeline);
}

TEST_MAIN(setup, teardown)
