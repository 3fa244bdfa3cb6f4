/*
 * bucket_resize: the same bytes, and steps for boxes and masks, as resize to the size that covers
 * the bucket and a crop to the bucket's, for any bucket; what it excludes.
 */
#include "format/augment/apply/geometry.h"
#include "format/augment/grammar/transforms.h"
#include "format/base/system/cpu.h"
#include "tests/unit/augment/pipeline_test.h"

enum { SIDE_MAX = 64, BUCKETS = 5 };

static const struct pipeline_size buckets[BUCKETS] = {
	{32, 32}, {48, 20}, {20, 48}, {64, 60}, {1, 3}};

static struct pipeline *parse_bucket(const char *text)
{
	struct pipeline *pipeline = parse(text);
	struct pipeline_error error;

	assert_false(pipeline_has_size(pipeline));
	if (pipeline_fix_buckets(pipeline, buckets, BUCKETS, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	assert_true(pipeline_has_size(pipeline));
	return pipeline;
}

/* The size that keeps the aspect ratio and covers the bucket; one side is the bucket's. */
static struct pipeline_size cover(uint32_t width, uint32_t height, struct pipeline_size bucket)
{
	uint32_t other = width * bucket.height / height;

	if (other >= bucket.width)
		return (struct pipeline_size){other, bucket.height};
	return (struct pipeline_size){bucket.width, height * bucket.width / width};
}

/* The same in transforms that know nothing of buckets; `before` and `behind` are around them. */
static struct pipeline *parse_plain(const char *before, const char *behind, bool random,
				    uint32_t width, uint32_t height, struct pipeline_size bucket)
{
	struct pipeline_size size = cover(width, height, bucket);
	char text[256];

	snprintf(text, sizeof(text), "%s resize(%ux%u) %s_crop(%ux%u) %s", before, size.width,
		 size.height, random ? "random" : "center", bucket.width, bucket.height, behind);
	return parse(text);
}

/* Drops crops that show everything: random_crop records none, center_crop does. */
static void drop_whole_crops(struct geometry *geometry)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < geometry->step_count; i++) {
		const struct geometry_step *step = &geometry->steps[i];

		if (step->kind != GEOMETRY_STEP_CROP || step->width != step->from_width ||
		    step->height != step->from_height)
			geometry->steps[kept++] = *step;
	}
	geometry->step_count = kept;
}

/* What masks, boxes and points follow. */
static void check_steps(const struct pipeline *pipeline, const struct pipeline *plain,
			uint32_t width, uint32_t height, struct pipeline_size bucket, uint64_t seed)
{
	const struct geometry_subject subject = {.bucket = bucket};
	struct geometry geometry, same;

	assert_int_equal(
		geometry_make(pipeline, width, height, seed, 0, 3, &subject, &geometry, NULL), 0);
	assert_int_equal(geometry_make(plain, width, height, seed, 0, 3, NULL, &same, NULL), 0);
	drop_whole_crops(&geometry);
	drop_whole_crops(&same);
	assert_int_equal(geometry.step_count, same.step_count);
	assert_int_equal(geometry.stage_count, same.stage_count);
	assert_memory_equal(geometry.steps, same.steps, same.step_count * sizeof(*same.steps));
}

static void check_image(const struct pipeline *pipeline, const struct pipeline *plain,
			uint32_t width, uint32_t height, struct pipeline_size bucket)
{
	static uint8_t made[SIDE_MAX * SIDE_MAX * 3], same[SIDE_MAX * SIDE_MAX * 3];
	uint8_t *pixels = random_pixels(width, height);
	struct packimg_sample sample = make_sample(pixels, width, height, 3);
	struct pipeline_shape shape, plain_shape;
	struct packimg_error error;

	pipeline_shape_in(pipeline, 0, bucket, &shape);
	pipeline_shape(plain, 0, &plain_shape);
	assert_int_equal(shape.sample_size, plain_shape.sample_size);
	assert_int_equal(shape.width, bucket.width);
	assert_int_equal(shape.height, bucket.height);
	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++)
		for (uint64_t seed = 0; seed < 4; seed++) {
			pipeline_scratch_bucket(scratches[isa], bucket);
			memset(made, 1, sizeof(made));
			memset(same, 1, sizeof(same));
			if (pipeline_apply(pipeline, scratches[isa], &sample, seed, 0, made, NULL,
					   &error) < 0)
				fail_msg("%s", error.text);
			assert_int_equal(pipeline_apply(plain, scratches[isa], &sample, seed, 0,
							same, NULL, &error),
					 0);
			assert_memory_equal(made, same, sizeof(made));
			if (isa == 0)
				check_steps(pipeline, plain, width, height, bucket, seed);
		}
	free(pixels);
}

TEST(covers_the_bucket)
{
	static const struct {
		const char *before, *bucket, *behind;
		bool random;
	} cases[] = {
		{"", "bucket_resize", "", false},
		{"", "bucket_resize(crop=random)", "", true},
		{"hflip", "bucket_resize(random)", "vflip random_invert layout(nchw)", true},
		{"", "bucket_resize(center, interpolation=bicubic)", "random_erasing", false},
	};
	static const uint32_t sizes[][2] = {{64, 64}, {90, 40}, {40, 90}, {33, 21}, {7, 9},
					    {48, 20}, {1, 3},   {96, 40}, {61, 60}};

	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
		char text[256];

		snprintf(text, sizeof(text), "%s %s %s", cases[c].before, cases[c].bucket,
			 cases[c].behind);
		struct pipeline *pipeline = parse_bucket(text);

		for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
			for (size_t b = 0; b < BUCKETS; b++) {
				uint32_t width = sizes[s][0], height = sizes[s][1];
				struct pipeline *plain =
					parse_plain(cases[c].before, cases[c].behind,
						    cases[c].random, width, height, buckets[b]);

				if (strstr(cases[c].bucket, "bicubic"))
					plain->transforms[0].bicubic = true;
				check_image(pipeline, plain, width, height, buckets[b]);
				pipeline_free(plain);
			}
		pipeline_free(pipeline);
	}
}

/* Room is for the largest bucket, which is also the one without a choice. */
TEST(largest_bucket)
{
	struct pipeline *pipeline = parse_bucket("bucket_resize to(f32)");
	struct pipeline_shape shape;

	assert_int_equal(pipeline_sample_size_max(pipeline), 64 * 60 * 3 * 4);
	pipeline_shape(pipeline, 9, &shape);
	assert_int_equal(shape.width, 64);
	assert_int_equal(shape.height, 60);
	pipeline_free(pipeline);
}

/* Views that do not take buckets keep their size. */
TEST(views)
{
	struct pipeline *pipeline;
	struct pipeline_error error;
	struct pipeline_shape shape;

	assert_int_equal(pipeline_parse_views("hflip view a { bucket_resize } view b { resize(5x4) "
					      "}",
					      &pipeline, &error),
			 0);
	assert_false(pipeline_has_size(pipeline));
	assert_int_equal(pipeline_fix_size(pipeline, 30, 20, &error), -EINVAL);
	assert_int_equal(pipeline_fix_buckets(pipeline, buckets, BUCKETS, &error), 0);
	assert_true(pipeline_has_size(pipeline));
	pipeline_shape_in(pipeline_view(pipeline, 0).pipeline, 0, buckets[1], &shape);
	assert_int_equal(shape.width, 48);
	pipeline_shape_in(pipeline_view(pipeline, 1).pipeline, 0, buckets[1], &shape);
	assert_int_equal(shape.width, 5);
	pipeline_free(pipeline);
}

TEST(refused_texts)
{
	static const struct {
		const char *text, *error;
		int position;
	} cases[] = {
		{"bucket_resize center_crop(32)", "center_crop would change the size", 14},
		{"bucket_resize hflip bucket_resize", "bucket_resize would change the size", 20},
		{"bucket_resize(32)", "expected one of center|random", 14},
		{"bucket_resize(crop=random, interpolation=bicubic, chroma=fast)", "leave one", 0},
	};
	struct pipeline *pipeline;
	struct pipeline_error error;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(pipeline_parse(cases[i].text, &pipeline, &error), -EINVAL);
		if (!strstr(error.text, cases[i].error) || error.position != cases[i].position)
			fail_msg("'%s': %d, %s", cases[i].text, error.position, error.text);
	}
}

static void expect_unbucketed(struct packimg_sample *sample)
{
	struct pipeline *pipeline = parse("hflip bucket_resize");
	struct pipeline_error error;
	struct packimg_error sample_error;
	struct geometry geometry;
	uint8_t output[4];

	assert_int_equal(pipeline_fix_size(pipeline, 30, 20, &error), -EINVAL);
	assert_int_equal(error.position, 6);
	assert_non_null(strstr(error.text, "there are none here"));
	assert_int_equal(
		pipeline_apply(pipeline, scratches[0], sample, 1, 0, output, NULL, &sample_error),
		-EINVAL);
	assert_int_equal(geometry_make(pipeline, 30, 20, 1, 0, 0, NULL, &geometry, &error),
			 -EINVAL);
	assert_non_null(strstr(error.text, "has not been given a bucket"));
	pipeline_free(pipeline);
}

TEST(needs_buckets)
{
	uint8_t *pixels = random_pixels(30, 20);
	struct packimg_sample sample = make_sample(pixels, 30, 20, 0);
	const struct pipeline_size wrong[] = {{8, 8}, {4097, 8}};
	struct pipeline_error error;

	pipeline_scratch_bucket(scratches[0], (struct pipeline_size){0, 0});
	expect_unbucketed(&sample);
	struct pipeline *pipeline = parse("resize(32x32)");

	assert_int_equal(pipeline_fix_buckets(pipeline, buckets, BUCKETS, &error), -EINVAL);
	assert_non_null(strstr(error.text, "add bucket_resize"));
	pipeline_free(pipeline);
	pipeline = parse("bucket_resize");
	assert_int_equal(pipeline_fix_buckets(pipeline, wrong, 2, &error), -EINVAL);
	assert_non_null(strstr(error.text, "bucket 1 is 4097 x 8 pixels"));
	assert_int_equal(pipeline_fix_buckets(pipeline, buckets, BUCKETS, &error), 0);
	assert_int_equal(pipeline_defer(pipeline, &error), -EINVAL);
	assert_non_null(strstr(error.text, "different sizes"));
	pipeline_free(pipeline);
	free(pixels);
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
