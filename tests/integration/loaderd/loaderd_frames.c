/*
 * Values that belong to an image are transformed with it: masks, rasters, boxes and points show the
 * same part of it, further images get the same random decisions, and rows that belong together stay
 * together. Pixels of image, mask and raster encode their position in the stored image.
 */
#include "format/packimg.h"
#include "tests/dataset.h"
#include "tests/integration/loaderd/loaderd_fixture.h"
#include "tests/test.h"

#include <signal.h>
#include <unistd.h>
#include <xxhash.h>

enum {
	SAMPLES = 64,
	SIDE = 24, /* of delivered samples */
	WIDTH_MAX = 64,
	HEIGHT_MAX = 48,
	RIGHT_COLOUR = 200, /* blue of every pixel of image "right"; blue of the first image is the
			       sample's number */
	OTHER_WIDTH = 30,
	OTHER_HEIGHT = 26,
};

/* Indices of the further images, in the order of the schema. */
enum { MASK, RIGHT, DEPTH, OTHER };

static const char schema[] = "image: image u8[h,w,3]\n"
			     "mask: mask(image) u8[h,w]\n"
			     "right: image u8[h,w,3]\n"
			     "depth: raster(image) u16[h,w] sparse\n"
			     "other: raster u8[h,w,3]\n"
			     "boxes: boxes(image) f32[*,4] xyxy\n"
			     "ids: class(boxes) i32[*]\n"
			     "points: keypoints(image) f32[2,2] xy\n"
			     "tags: class i32[*]\n"
			     "target: value f32[2]\n"
			     "small: value i16\n"
			     "ratio: value f32\n"
			     "caption: text sparse\n";
static const char *const all[] = {"mask",   "right", "depth",  "other", "boxes", "ids",
				  "points", "tags",  "target", "small", "ratio", "caption"};
enum { ALL = sizeof(all) / sizeof(*all) };

static char folder[FIXTURE_FOLDER_MAX], path[PATH_MAX];

static uint32_t width_of(uint64_t i)
{
	return 40 + (uint32_t)i % 24;
}

static uint32_t height_of(uint64_t i)
{
	return 30 + (uint32_t)i % 18;
}

static uint32_t rows_of(uint64_t i)
{
	return (uint32_t)i % 5;
}

static void fill_picture(uint8_t *pixels, uint32_t width, uint32_t height, uint8_t blue)
{
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++, pixels += 3)
			pixels[0] = (uint8_t)x, pixels[1] = (uint8_t)y, pixels[2] = blue;
}

static void add_mask(struct packimg_writer *writer, uint32_t width, uint32_t height)
{
	static uint8_t pixels[WIDTH_MAX * HEIGHT_MAX];
	struct packimg_error error;
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++)
			pixels[y * width + x] = (uint8_t)(x ^ y);
	struct packimg_item item = test_item(pixels, width, height);
	item.channels = 1;
	item.data_size = (size_t)width * height;
	assert_int_equal(packimg_writer_image(writer, MASK, &item, &error), 0);
}

static void add_picture(struct packimg_writer *writer, uint32_t image, uint32_t width,
			uint32_t height)
{
	static uint8_t pixels[WIDTH_MAX * HEIGHT_MAX * 3];
	struct packimg_error error;
	fill_picture(pixels, width, height, RIGHT_COLOUR);
	struct packimg_item item = test_item(pixels, width, height);
	if (packimg_writer_image(writer, image, &item, &error) < 0)
		fail_msg("%s", error.text);
}

static void add_depth(struct test_dataset *data, uint32_t width, uint32_t height)
{
	static uint16_t pixels[WIDTH_MAX * HEIGHT_MAX];
	const struct packimg_raster_coding coding = {.method = PACKIMG_RASTER_ZSTD, .rows_log2 = 3};
	struct packimg_error error;
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++)
			pixels[y * width + x] = (uint16_t)(y * 256 + x);
	const struct packimg_raster raster = {
		.data = (const uint8_t *)pixels,
		.step_x = 2,
		.step_y = (ptrdiff_t)width * 2,
		.width = width,
		.height = height,
		.channels = 1,
		.element = PACKIMG_ELEMENT_U16,
	};
	struct packimg_item item = test_item(NULL, width, height);
	item.codec = PACKIMG_CODEC_RASTER;
	item.channels = 1;
	assert_int_equal(packimg_encode_raster(data->encoder, &raster, &coding, &item.data,
					       &item.data_size, &error),
			 0);
	assert_int_equal(packimg_writer_image(data->writer, DEPTH, &item, &error), 0);
}

static void add_value(struct packimg_writer *writer, const char *name, struct packimg_value value)
{
	struct packimg_error error;
	uint32_t field;
	const enum packimg_field_type type = strcmp(name, "small") == 0     ? PACKIMG_FIELD_INT64
					     : strcmp(name, "ratio") == 0   ? PACKIMG_FIELD_FLOAT64
					     : strcmp(name, "caption") == 0 ? PACKIMG_FIELD_TEXT
									    : PACKIMG_FIELD_BYTES;
	value.present = true;
	assert_int_equal(packimg_writer_field(writer, name, type, &field, &error), 0);
	if (packimg_writer_value(writer, field, &value, &error) < 0)
		fail_msg("%s", error.text);
}

static void add_bytes(struct packimg_writer *writer, const char *name, const void *bytes,
		      size_t size)
{
	add_value(writer, name, (struct packimg_value){.bytes = bytes, .size = size});
}

/* Box k of sample i spans pixels (5 + k, 6) to (15 + k, 18) and has the id 100 i + k. */
static void add_rows(struct packimg_writer *writer, uint64_t i)
{
	float boxes[5][4];
	int32_t ids[5];
	for (uint32_t k = 0; k < rows_of(i); k++) {
		const float box[4] = {5 + (float)k, 6, 15 + (float)k, 18};
		memcpy(boxes[k], box, sizeof(box));
		ids[k] = (int32_t)(100 * i + k);
	}
	const float points[2][2] = {{20, 15}, {21, 16}};
	const float target[2] = {(float)i, -(float)i};
	const int32_t tags[3] = {1, 2, (int32_t)i};
	add_bytes(writer, "boxes", boxes, rows_of(i) * sizeof(boxes[0]));
	add_bytes(writer, "ids", ids, rows_of(i) * sizeof(ids[0]));
	add_bytes(writer, "points", points, sizeof(points));
	add_bytes(writer, "target", target, sizeof(target));
	add_bytes(writer, "tags", tags, i % 4 * sizeof(tags[0]));
	add_value(writer, "small", (struct packimg_value){.int64 = -(int64_t)i});
	add_value(writer, "ratio", (struct packimg_value){.float64 = (double)i / 8});
	if (i % 2 == 0)
		add_bytes(writer, "caption", "even", 4);
}

static void write_dataset(bool jpeg)
{
	static uint8_t pixels[WIDTH_MAX * HEIGHT_MAX * 3];
	struct packimg_error error;
	struct test_dataset data;
	snprintf(path, sizeof(path), "%s/%s.pimg", folder, jpeg ? "jpeg" : "raw");
	test_dataset_begin(&data, path, 0);
	if (packimg_writer_schema(data.writer, schema, &error) < 0)
		fail_msg("%s", error.text);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		fill_picture(pixels, width_of(i), height_of(i), (uint8_t)i);
		struct packimg_item item = test_item(pixels, width_of(i), height_of(i));
		if (jpeg)
			test_item_to_jpeg(&data, &item, 90);
		test_dataset_add(&data, &item);
		add_mask(data.writer, width_of(i), height_of(i));
		add_picture(data.writer, RIGHT, width_of(i), height_of(i));
		if (i % 3 != 0)
			add_depth(&data, width_of(i), height_of(i));
		add_picture(data.writer, OTHER, OTHER_WIDTH, OTHER_HEIGHT);
		add_rows(data.writer, i);
	}
	test_dataset_finish(&data);
}

static struct feed_options options_of(const struct fixture *fixture, const char *pipeline)
{
	struct feed_options options = fixture_options(fixture, path, pipeline);
	options.values = all;
	options.value_count = ALL;
	options.epoch_end = 2;
	return options;
}

/* Returns the picture of this name of sample i of a batch. */
static const void *picture(struct feed *feed, const struct feed_batch *batch, const char *name,
			   uint32_t i)
{
	struct feed_section section = fixture_section(feed, batch, name);
	assert_int_equal(section.kind, FEED_DENSE);
	assert_int_equal(section.shape[0], SIDE);
	assert_int_equal(section.shape[1], SIDE);
	return (const char *)section.data + i * (section.bytes / batch->count);
}

static const void *rows(struct feed *feed, const struct feed_batch *batch, const char *name,
			uint32_t i, int64_t expected)
{
	struct feed_section section = fixture_section(feed, batch, name);
	const void *found;
	assert_int_equal(feed_rows(&section, i, &found), expected);
	return found;
}

/*
 * Checks that every pixel of mask and raster comes from the same position of the stored image as
 * the image's pixel.
 */
static void check_pictures(struct feed *feed, const struct feed_batch *batch, uint32_t i)
{
	const uint8_t *image = (const uint8_t *)batch->images + i * SIDE * SIDE * 3;
	const uint8_t *right = picture(feed, batch, "right", i);
	const uint8_t *mask = picture(feed, batch, "mask", i);
	const uint16_t *depth = picture(feed, batch, "depth", i);
	const bool has_depth = batch->samples[i] % 3 != 0;
	for (uint32_t p = 0; p < SIDE * SIDE; p++) {
		const uint8_t x = image[3 * p], y = image[3 * p + 1];
		assert_int_equal(image[3 * p + 2], batch->samples[i]);
		assert_int_equal(mask[p], x ^ y);
		assert_int_equal(depth[p], has_depth ? y * 256 + x : 0);
		assert_int_equal(right[3 * p], x);
		assert_int_equal(right[3 * p + 1], y);
		assert_int_equal(right[3 * p + 2], RIGHT_COLOUR);
	}
}

/*
 * Returns the position of coordinate `at` of the stored image in the crop, clipped to it. `first`
 * and `second` are the coordinates of the crop's first two pixels; a flipped crop has them in
 * descending order.
 */
static float shown(float at, uint8_t first, uint8_t second)
{
	float place = second > first ? at - (float)first : (float)first + 1 - at;
	return place < 0 ? 0 : place > SIDE ? SIDE : place;
}

static void check_rows(struct feed *feed, const struct feed_batch *batch, uint32_t i)
{
	const uint8_t *image = (const uint8_t *)batch->images + i * SIDE * SIDE * 3;
	const uint64_t sample = batch->samples[i];
	const uint8_t x = image[0], next_x = image[3], y = image[1], next_y = image[3 * SIDE + 1];
	const float(*boxes)[4] = rows(feed, batch, "boxes", i, rows_of(sample));
	const int32_t *ids = rows(feed, batch, "ids", i, rows_of(sample));
	for (uint32_t k = 0; k < rows_of(sample); k++) {
		const float left = shown(5 + (float)k, x, next_x);
		const float right = shown(15 + (float)k, x, next_x);
		const float top = shown(6, y, next_y), bottom = shown(18, y, next_y);
		assert_true(boxes[k][0] == (left < right ? left : right));
		assert_true(boxes[k][2] == (left < right ? right : left));
		assert_true(boxes[k][1] == (top < bottom ? top : bottom));
		assert_true(boxes[k][3] == (top < bottom ? bottom : top));
		assert_int_equal(ids[k], 100 * sample + k);
	}
	struct feed_section points = fixture_section(feed, batch, "points");
	const float *point = (const float *)points.data + 4 * i;
	assert_int_equal(points.dims, 2);
	/* Points refer to the centres of pixels, and are not clipped. */
	assert_true(point[0] == (next_x > x ? 20 - (float)x : (float)x - 20));
	assert_true(point[3] == (next_y > y ? 16 - (float)y : (float)y - 16));
}

static void check_types(struct feed *feed, const struct feed_batch *batch, uint32_t i)
{
	const uint64_t sample = batch->samples[i];
	struct feed_section target = fixture_section(feed, batch, "target");
	struct feed_section small = fixture_section(feed, batch, "small");
	struct feed_section ratio = fixture_section(feed, batch, "ratio");
	const int32_t *tags = rows(feed, batch, "tags", i, (int64_t)(sample % 4));
	assert_true(sample % 4 == 0 || tags[0] == 1);
	rows(feed, batch, "caption", i, sample % 2 == 0 ? 4 : 0);
	assert_int_equal(target.element, FEED_F32);
	assert_int_equal(small.element, FEED_I16);
	assert_int_equal(ratio.element, FEED_F32);
	assert_true(((const float *)target.data)[2 * i + 1] == -(float)sample);
	assert_int_equal(((const int16_t *)small.data)[i], -(int16_t)sample);
	assert_true(((const float *)ratio.data)[i] == (float)sample / 8);
	assert_int_equal(batch->flags[i],
			 sample % 2 == 0 && sample % 3 != 0 ? 0 : FEED_SAMPLE_FIELD_MISSING);
}

static void check_feed(const struct feed_options *options)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	unsigned samples = 0;
	int r;
	struct feed *feed = fixture_open(options);
	while ((r = feed_next(feed, 60000, &batch)) == 0) {
		for (uint32_t i = 0; i < batch.count; i++) {
			check_pictures(feed, &batch, i);
			check_rows(feed, &batch, i);
			check_types(feed, &batch, i);
		}
		samples += batch.count;
		feed_release(feed, &batch);
	}
	if (r != FEED_END)
		fail_msg("%d: %s", r, feed_error(feed));
	assert_int_equal(samples, 2 * SAMPLES);
	feed_close(feed);
}

static const char flips[] = "random_crop(24) hflip(0.5) vflip(0.5)";

TEST(values_in_the_frame_follow_the_image)
{
	struct fixture *fixture = *state;
	write_dataset(false);
	struct feed_options options = options_of(fixture, flips);
	fixture_start(fixture, NULL, NULL);
	check_feed(&options);
	options.batch_size = 1;
	check_feed(&options);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Hashes all sections of the batches, sample by sample, or only the images. */
static uint64_t hash_of(const struct feed_options *options, unsigned batches, bool images_alone)
{
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed_info info = {.size = sizeof(info)};
	XXH3_state_t *state = XXH3_createState();
	struct feed *feed = fixture_open(options);
	feed_info(feed, &info);
	XXH3_64bits_reset(state);
	for (unsigned b = 0; b < batches; b++) {
		assert_int_equal(feed_next(feed, 60000, &batch), 0);
		for (uint32_t i = 0; i < batch.count; i++)
			for (uint32_t s = 0; s < (images_alone ? 1 : info.section_count); s++) {
				struct feed_section section = {.size = sizeof(section)};
				assert_int_equal(feed_section(feed, &batch, s, &section), 0);
				size_t size = section.bytes / batch.count;
				const void *value = (const char *)section.data + i * size;
				if (section.kind == FEED_RAGGED)
					size = (size_t)feed_rows(&section, i, &value) * section.row;
				XXH3_64bits_update(state, value, size);
			}
		feed_release(feed, &batch);
	}
	feed_close(feed);
	uint64_t hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return hash;
}

/*
 * The images have the same bytes with and without other values, with every instruction set, and
 * after resuming.
 */
TEST(images_do_not_depend_on_what_comes_with_them)
{
	static const char rich[] = "random_resized_crop(24) hflip(0.5) random_affine(10) "
				   "color_jitter(0.4) normalize(imagenet) to(f16)";
	enum { BATCHES = 4 };
	struct fixture *fixture = *state;
	for (unsigned jpeg = 0; jpeg < 2; jpeg++) {
		write_dataset(jpeg);
		struct feed_options options = options_of(fixture, rich);
		fixture_start(fixture, NULL, "--threads", "1", NULL);
		uint64_t images = hash_of(&options, BATCHES, true);
		uint64_t whole = hash_of(&options, BATCHES, false);
		options.epoch = 1;
		uint64_t rest = hash_of(&options, BATCHES / 2, false);
		options.epoch = options.value_count = 0;
		assert_int_equal(hash_of(&options, BATCHES, true), images);
		assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
		fixture_start(fixture, "LOADERD_ISA=c", "--threads", "4", NULL);
		options = options_of(fixture, rich);
		assert_int_equal(hash_of(&options, BATCHES, false), whole);
		options.epoch = 1;
		assert_int_equal(hash_of(&options, BATCHES / 2, false), rest);
		options.batch_size = 8;
		assert_int_equal(hash_of(&options, BATCHES / 2 * 4, false), rest);
		assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	}
}

static const void *rows_of_batch(struct feed *feed, const struct feed_batch *batch,
				 const char *name, uint32_t i, int64_t *ret_count)
{
	struct feed_section section = fixture_section(feed, batch, name);
	const void *found;
	*ret_count = feed_rows(&section, i, &found);
	assert_true(*ret_count >= 0);
	return found;
}

/*
 * Compares with the same feed without sanitize_boxes: the remaining boxes are exactly those that
 * satisfy its condition, in order, with their ids. Returns the number of dropped boxes.
 */
static unsigned compare_boxes(struct feed *feed, const struct feed_batch *batch,
			      struct feed *whole_feed, const struct feed_batch *whole, uint32_t i)
{
	int64_t all_count, count, id_count, at = 0;
	const float(*boxes)[4] = rows_of_batch(whole_feed, whole, "boxes", i, &all_count);
	const float(*left)[4] = rows_of_batch(feed, batch, "boxes", i, &count);
	const int32_t *ids = rows_of_batch(feed, batch, "ids", i, &id_count);
	assert_int_equal(id_count, count);
	for (int64_t k = 0; k < all_count; k++) {
		if (boxes[k][2] - boxes[k][0] < 8 || boxes[k][3] - boxes[k][1] < 8)
			continue;
		assert_true(at < count);
		assert_memory_equal(left[at], boxes[k], sizeof(boxes[k]));
		assert_int_equal(ids[at], 100 * (int64_t)batch->samples[i] + k);
		at++;
	}
	assert_int_equal(at, count);
	return (unsigned)(all_count - count);
}

TEST(rows_go_with_the_boxes_that_sanitize_boxes_drops)
{
	static const char crop[] = "random_crop(24) hflip(0.5)";
	static const char *const ids[] = {"ids"}, *const values[] = {"ids", "mask", "boxes",
								     "tags"};
	struct fixture *fixture = *state;
	unsigned dropped = 0;
	write_dataset(false);
	struct feed_options options = options_of(fixture, crop);
	fixture_start(fixture, NULL, "--threads", "1", NULL);
	options.values = values;
	options.value_count = 4;
	struct feed *whole_feed = fixture_open(&options);
	options.pipeline = "random_crop(24) hflip(0.5) sanitize_boxes(min_size=8)";
	struct feed *feed = fixture_open(&options);
	for (unsigned b = 0; b < 2 * SAMPLES / options.batch_size; b++) {
		struct feed_batch whole = {.size = sizeof(whole)}, batch = {.size = sizeof(batch)};
		assert_int_equal(feed_next(whole_feed, 60000, &whole), 0);
		if (feed_next(feed, 60000, &batch) != 0)
			fail_msg("%s", feed_error(feed));
		assert_memory_equal(batch.images, whole.images, batch.image_bytes);
		for (uint32_t i = 0; i < batch.count; i++)
			dropped += compare_boxes(feed, &batch, whole_feed, &whole, i);
		feed_release(whole_feed, &whole);
		feed_release(feed, &batch);
	}
	feed_close(whole_feed);
	feed_close(feed);
	assert_in_range(dropped, 50, 200);
	uint64_t hash = hash_of(&options, 4, false);
	/* The ids are the same if the boxes are not delivered. */
	options.values = ids;
	options.value_count = 1;
	uint64_t alone = hash_of(&options, 4, false);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	fixture_start(fixture, "LOADERD_ISA=c", "--threads", "3", NULL);
	assert_int_equal(hash_of(&options, 4, false), alone);
	options.values = values;
	options.value_count = 4;
	assert_int_equal(hash_of(&options, 4, false), hash);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/*
 * The image has a border of 9 as in the pipeline, the mask one of 255 and depth one of 7. A missing
 * depth is 7 everywhere.
 */
TEST(values_have_separate_fills)
{
	static const char *const pictures[] = {"mask", "depth", "right"};
	struct fixture *fixture = *state;
	unsigned between = 0;
	write_dataset(false);
	struct feed_options options = options_of(
		fixture, "random_crop(20) resize(16x16) pad(4, fill=9) mask: fill(255) depth: "
			 "fill(7) depth: filter(bilinear)");
	options.values = pictures;
	options.value_count = 3;
	fixture_start(fixture, NULL, NULL);
	struct feed *feed = fixture_open(&options);
	for (unsigned b = 0; b < 2 * SAMPLES / options.batch_size; b++) {
		struct feed_batch batch = {.size = sizeof(batch)};
		if (feed_next(feed, 60000, &batch) != 0)
			fail_msg("%s", feed_error(feed));
		for (uint32_t i = 0; i < batch.count; i++) {
			const uint8_t *image = (const uint8_t *)batch.images + i * SIDE * SIDE * 3;
			const uint8_t *mask = picture(feed, &batch, "mask", i);
			const uint8_t *right = picture(feed, &batch, "right", i);
			const uint16_t *depth = picture(feed, &batch, "depth", i);
			const uint32_t middle = SIDE * SIDE / 2 + SIDE / 2;
			assert_true(image[0] == 9 && right[0] == 9);
			assert_true(mask[0] == 255 && mask[middle] < 64);
			assert_int_equal(depth[0], 7);
			assert_true((depth[middle] == 7) == (batch.samples[i] % 3 == 0));
			/*
			 * with the nearest pixel, both bytes would be coordinates below WIDTH_MAX
			 */
			between += depth[middle] != 7 && depth[middle] % 256 >= WIDTH_MAX;
		}
		feed_release(feed, &batch);
	}
	feed_close(feed);
	assert_true(between > 10);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Steps with a name change only that image; the others keep their bytes. */
TEST(named_steps_change_only_their_image)
{
	static const char *const right[] = {"right"};
	struct fixture *fixture = *state;
	write_dataset(false);
	struct feed_options options = options_of(fixture, "random_crop(24) hflip");
	options.values = right;
	options.value_count = 1;
	fixture_start(fixture, NULL, NULL);
	const uint64_t images = hash_of(&options, 4, true);
	struct feed *plain_feed = fixture_open(&options);
	options.pipeline = "right: random_invert(p=1) random_crop(24) hflip";
	assert_int_equal(hash_of(&options, 4, true), images);
	struct feed *feed = fixture_open(&options);
	for (unsigned b = 0; b < 2 * SAMPLES / options.batch_size; b++) {
		struct feed_batch plain = {.size = sizeof(plain)}, batch = {.size = sizeof(batch)};
		assert_int_equal(feed_next(plain_feed, 60000, &plain), 0);
		if (feed_next(feed, 60000, &batch) != 0)
			fail_msg("%s", feed_error(feed));
		for (uint32_t i = 0; i < batch.count; i++) {
			const uint8_t *before = picture(plain_feed, &plain, "right", i);
			const uint8_t *after = picture(feed, &batch, "right", i);
			for (uint32_t p = 0; p < SIDE * SIDE * 3; p++)
				assert_int_equal(after[p], 255 - before[p]);
		}
		feed_release(plain_feed, &plain);
		feed_release(feed, &batch);
	}
	feed_close(plain_feed);
	feed_close(feed);
	/* The first image has a name too, whether or not values are requested. */
	options.pipeline = "image: random_invert(p=1) random_crop(24) hflip";
	const uint64_t inverted = hash_of(&options, 4, true);
	options.value_count = 0;
	assert_int_equal(hash_of(&options, 4, true), inverted);
	options.pipeline = "random_invert(p=1) random_crop(24) hflip";
	options.value_count = 1;
	/* without the name, random_invert draws first, so hflip draws another number */
	assert_true(hash_of(&options, 4, true) != inverted && inverted != images);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Masks and rasters have the same numbers in wider elements, also if they are missing. */
TEST(masks_and_rasters_are_widened)
{
	static const char *const pictures[] = {"mask", "depth"};
	static const char plain[] = "random_crop(16) pad(4) depth: fill(7)";
	struct fixture *fixture = *state;
	write_dataset(false);
	struct feed_options options = options_of(fixture, plain);
	options.values = pictures;
	options.value_count = 2;
	fixture_start(fixture, NULL, NULL);
	struct feed *stored_feed = fixture_open(&options);
	options.pipeline = "random_crop(16) pad(4) depth: fill(7) mask: to(i64) to(f32) "
			   "depth: to(f32)";
	struct feed *feed = fixture_open(&options);
	for (unsigned b = 0; b < 2 * SAMPLES / options.batch_size; b++) {
		struct feed_batch stored = {.size = sizeof(stored)},
				  batch = {.size = sizeof(batch)};
		assert_int_equal(feed_next(stored_feed, 60000, &stored), 0);
		if (feed_next(feed, 60000, &batch) != 0)
			fail_msg("%s", feed_error(feed));
		assert_int_equal(fixture_section(feed, &batch, "mask").element, FEED_I64);
		assert_int_equal(fixture_section(feed, &batch, "depth").element, FEED_F32);
		for (uint32_t i = 0; i < batch.count; i++) {
			const uint8_t *mask = picture(stored_feed, &stored, "mask", i);
			const uint16_t *depth = picture(stored_feed, &stored, "depth", i);
			const int64_t *numbers = picture(feed, &batch, "mask", i);
			const float *measures = picture(feed, &batch, "depth", i);
			for (uint32_t p = 0; p < SIDE * SIDE; p++) {
				assert_int_equal(numbers[p], mask[p]);
				assert_true(measures[p] == (float)depth[p]);
			}
		}
		feed_release(stored_feed, &stored);
		feed_release(feed, &batch);
	}
	feed_close(stored_feed);
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(unsuitable_steps_for_values_are_refused)
{
	static const struct {
		const char *pipeline, *text;
	} cases[] = {
		{"resize(24x24) maks: fill(1)",
		 "at byte 14: the dataset has no value \"maks\"; did you mean \"mask\"?"},
		{"resize(24x24) mask: fill(256)",
		 "at byte 20: \"mask\" cannot hold a fill of 256: its element is u8; give it a "
		 "whole number from 0 to 255"},
		{"resize(24x24) mask: fill(0.5)", "cannot hold a fill of 0.5: its element is u8"},
		{"resize(24x24) right: fill(1)",
		 "at byte 21: fill is for masks and rasters, and \"right\" has the role image"},
		{"resize(24x24) mask: filter(bilinear)",
		 "at byte 20: filter(bilinear) is for rasters, and \"mask\" has the role mask"},
		{"resize(24x24) mask: filter(bicubic)",
		 "at byte 20: filter(bicubic) is for rasters"},
		{"resize(24x24) boxes: filter(nearest)", "and \"boxes\" has the role boxes"},
		{"resize(24x24) mask: color_jitter(0.4)",
		 "at byte 20: the step changes the pixels of images, and \"mask\" has the role "
		 "mask"},
		{"resize(24x24) depth: to(i16)", "at byte 21: i16 cannot hold every number of "
						 "\"depth\", which is u16: choose a wider type"},
		{"resize(24x24) boxes: to(i64)",
		 "at byte 21: to with names is for masks and rasters, and \"boxes\" has the role "
		 "boxes"},
		{"resize(24x24) tags: random_iou_crop resize(24x24)",
		 "at byte 20: the step is for boxes, and \"tags\" has the role class"},
		{"random_iou_crop resize(24x24)", "value \"right\": random_iou_crop crops by the "
						  "boxes \"boxes\" of the first image"},
		{"resize(24x24) boxes, ids: sanitize_boxes",
		 "at byte 26: the step is for boxes, and \"ids\" has the role class"},
	};
	struct fixture *fixture = *state;
	char error[FEED_ERROR_MAX];
	struct feed *feed;
	write_dataset(false);
	fixture_start(fixture, NULL, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct feed_options options = options_of(fixture, cases[i].pipeline);
		assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
		if (!strstr(error, cases[i].text))
			fail_msg("expected \"%s\", got \"%s\"", cases[i].text, error);
	}
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

static const char *const beside_boxes[] = {"boxes", "ids", "mask", "points", "depth"};

/*
 * Checks that the values show the same part as the image, and that only boxes whose centre is
 * visible remain. Returns their number.
 */
static unsigned check_crop(struct feed *feed, const struct feed_batch *batch, uint32_t i)
{
	const uint8_t *image = (const uint8_t *)batch->images + i * SIDE * SIDE * 3;
	const uint8_t *mask = picture(feed, batch, "mask", i);
	int64_t count, id_count;
	const float(*boxes)[4] = rows_of_batch(feed, batch, "boxes", i, &count);
	const int32_t *ids = rows_of_batch(feed, batch, "ids", i, &id_count);
	for (uint32_t p = 0; p < SIDE * SIDE; p++)
		assert_int_equal(mask[p], image[3 * p] ^ image[3 * p + 1]);
	assert_int_equal(id_count, count);
	for (int64_t b = 0; b < count; b++) {
		const uint32_t k = (uint32_t)ids[b] - 100 * (uint32_t)batch->samples[i];
		const uint32_t x = (uint32_t)(boxes[b][0] + boxes[b][2]) / 2,
			       y = (uint32_t)(boxes[b][1] + boxes[b][3]) / 2;
		const uint8_t *middle = image + (y * SIDE + x) * 3;
		assert_in_range(middle[0], 5 + k, 15 + k);
		assert_in_range(middle[1], 6, 18);
	}
	return (unsigned)count;
}

TEST(random_iou_crop_crops_by_boxes)
{
	static const char crop[] =
		"random_iou_crop(max_scale=0.5, sampler_options=0.1:0.3) center_crop(24) "
		"sanitize_boxes";
	struct fixture *fixture = *state;
	unsigned left = 0;
	for (unsigned jpeg = 0; jpeg < 2; jpeg++) {
		write_dataset(jpeg);
		struct feed_options options = options_of(fixture, crop);
		fixture_start(fixture, NULL, "--threads", "1", NULL);
		options.values = beside_boxes;
		options.value_count = sizeof(beside_boxes) / sizeof(*beside_boxes);
		struct feed *feed = fixture_open(&options);
		for (unsigned b = 0; b < 2 * SAMPLES / options.batch_size && !jpeg; b++) {
			struct feed_batch batch = {.size = sizeof(batch)};
			if (feed_next(feed, 60000, &batch) != 0)
				fail_msg("%s", feed_error(feed));
			for (uint32_t i = 0; i < batch.count; i++)
				left += check_crop(feed, &batch, i);
			feed_release(feed, &batch);
		}
		feed_close(feed);
		uint64_t whole = hash_of(&options, 4, false), images = hash_of(&options, 4, true);
		assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
		/* The crop is the same if the boxes are not delivered. */
		fixture_start(fixture, "LOADERD_ISA=c", "--threads", "4", NULL);
		assert_int_equal(hash_of(&options, 4, false), whole);
		options.value_count = 2;
		options.pipeline = "boxes: random_iou_crop(max_scale=0.5, sampler_options=0.1:0.3) "
				   "center_crop(24)";
		assert_int_equal(hash_of(&options, 4, true), images);
		options.value_count = 0;
		assert_int_equal(hash_of(&options, 4, true), images);
		assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
	}
	/* of 252 boxes in two epochs */
	assert_in_range(left, 100, 240);
}

TEST(steps_for_boxes_need_boxes)
{
	static const char *const mask[] = {"mask"};
	struct fixture *fixture = *state;
	write_dataset(false);
	char error[FEED_ERROR_MAX];
	struct feed *feed;
	fixture_start(fixture, NULL, NULL);
	for (unsigned count = 0; count < 2; count++) {
		struct feed_options options =
			options_of(fixture, "resize(24x24) to(f32) sanitize_boxes");
		options.values = mask;
		options.value_count = count;
		assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
		if (!strstr(error, "at byte 22: sanitize_boxes acts on boxes, but none are "
				   "delivered: request a value of role boxes, or leave it out"))
			fail_msg("%s", error);
	}
	struct feed_options options =
		fixture_options(fixture, fixture_dataset(fixture, "plain", 64, FIXTURE_RAW, 8),
				"hflip random_iou_crop resize(24x24)");
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	if (!strstr(error, "at byte 6: random_iou_crop chooses by boxes, and the dataset has none"))
		fail_msg("%s", error);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

TEST(pipelines_that_move_images_alone_are_refused)
{
	static const char *const mask[] = {"mask"}, *const tags[] = {"tags"};
	struct fixture *fixture = *state;
	write_dataset(false);
	struct feed_options options = options_of(fixture, "resize(24x24) rand_augment(2)");
	char error[FEED_ERROR_MAX];
	struct feed *feed;
	fixture_start(fixture, NULL, NULL);
	options.values = mask;
	options.value_count = 1;
	assert_int_equal(feed_open(&options, &feed, error), -EINVAL);
	if (!strstr(error, "value \"mask\": at byte 14: rand_augment"))
		fail_msg("%s", error);
	options.values = tags;
	feed_close(fixture_open(&options));
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

/* Delivered images have three or four channels, also if the stored image is grey. */
TEST(grey_images_come_as_rgb)
{
	static const char *const name[] = {"grey"};
	struct fixture *fixture = *state;
	struct packimg_error error;
	struct test_dataset data;
	uint8_t pixels[SIDE * SIDE * 3];
	memset(pixels, 7, sizeof(pixels));
	snprintf(path, sizeof(path), "%s/grey.pimg", folder);
	test_dataset_begin(&data, path, 0);
	assert_int_equal(packimg_writer_schema(data.writer,
					       "image: image u8[h,w,3]\ngrey: image u8[h,w]\n",
					       &error),
			 0);
	struct packimg_item item = test_item(pixels, SIDE, SIDE);
	test_dataset_add(&data, &item);
	item.channels = 1;
	item.data_size = SIDE * SIDE;
	assert_int_equal(packimg_writer_image(data.writer, 0, &item, &error), 0);
	test_dataset_finish(&data);
	struct feed_options options = fixture_options(fixture, path, "");
	options.values = name;
	options.value_count = options.batch_size = 1;
	fixture_start(fixture, NULL, NULL);
	struct feed_batch batch = {.size = sizeof(batch)};
	struct feed *feed = fixture_open(&options);
	if (feed_next(feed, 60000, &batch) != 0)
		fail_msg("%s", feed_error(feed));
	const uint8_t *grey = picture(feed, &batch, name[0], 0);
	assert_int_equal(fixture_section(feed, &batch, name[0]).shape[2], 3);
	assert_memory_equal(grey, pixels, sizeof(pixels));
	feed_close(feed);
	assert_int_equal(fixture_stop(fixture, SIGTERM), 0);
}

int main(void)
{
	return fixture_main("frames", folder);
}
