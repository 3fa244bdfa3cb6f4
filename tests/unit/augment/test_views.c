/*
 * Views of a pipeline: how they are read, that steps before them decide alike for all copies, and
 * that each copy has the decisions of a pipeline of its own.
 */
#include "format/augment/apply/geometry.h"
#include "format/augment/grammar/transforms.h"
#include "tests/test.h"

enum { WIDTH = 64, HEIGHT = 48, SAMPLES = 64 };

static struct pipeline *parse_views(const char *text)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error;

	if (pipeline_parse_views(text, &pipeline, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	return pipeline;
}

static void expect_error(const char *text, int result, int position, const char *words)
{
	struct pipeline *pipeline = (struct pipeline *)1;
	struct pipeline_error error = {.position = -2};
	int r = pipeline_parse_views(text, &pipeline, &error);

	if (r != result || error.position != position || !strstr(error.text, words))
		fail_msg("'%s': got %d at %d, \"%s\"; expected %d at %d, \"%s\"", text, r,
			 error.position, error.text, result, position, words);
	assert_ptr_equal(pipeline, (struct pipeline *)1);
}

TEST(views_are_read)
{
	struct pipeline *pipeline =
		parse_views("hflip view global(2) { random_resized_crop(24) hflip }\n"
			    "view local ( 3 ){random_resized_crop(10x8)}view whole{resize(16x12)}");
	static const struct {
		const char *name;
		unsigned copy, transforms;
		uint32_t width, height;
	} expected[] = {
		{"global", 0, 3, 24, 24}, {"global", 1, 3, 24, 24}, {"local", 0, 2, 10, 8},
		{"local", 1, 2, 10, 8},   {"local", 2, 2, 10, 8},   {"whole", 0, 2, 16, 12},
	};
	const unsigned count = sizeof(expected) / sizeof(*expected);

	assert_int_equal(pipeline_view_count(pipeline), count);
	for (unsigned i = 0; i < count; i++) {
		struct pipeline_view view = pipeline_view(pipeline, i);
		struct pipeline_shape shape;

		pipeline_shape(view.pipeline, 0, &shape);
		assert_string_equal(view.name, expected[i].name);
		assert_int_equal(view.copy, expected[i].copy);
		assert_int_equal(view.pipeline->transform_count, expected[i].transforms);
		assert_int_equal(view.pipeline->shared_transforms, 1);
		assert_int_equal(shape.width, expected[i].width);
		assert_int_equal(shape.height, expected[i].height);
	}
	assert_true(pipeline_has_size(pipeline));
	pipeline_free(pipeline);
}

TEST(a_pipeline_without_views_is_its_only_one)
{
	struct pipeline *pipeline =
		parse_views("view: fill(1) resize(8x8) view , mask: filter(nearest)");
	struct pipeline_view view = pipeline_view(pipeline, 0);

	assert_int_equal(pipeline_view_count(pipeline), 1);
	assert_ptr_equal(view.pipeline, pipeline);
	assert_string_equal(view.name, "");
	assert_non_null(pipeline_value(pipeline, "view"));
	pipeline_free(pipeline);
}

TEST(format_steps_may_be_in_views_or_before)
{
	struct pipeline *pipeline =
		parse_views("normalize(imagenet) view a { to(f16) } view b { to(f16) }");

	assert_int_equal(pipeline_view(pipeline, 1).pipeline->element, PIPELINE_F16);
	pipeline_free(pipeline);
	expect_error("normalize(imagenet) view a { hflip }", -EINVAL, 29, "must stand before");
	expect_error("view a { normalize(imagenet) }", -EINVAL, 9, "needs a float output");
	expect_error("view a { to(f16) } view b { }", -EINVAL, 19, "differ in to, layout");
}

TEST(errors_say_where)
{
	expect_error("view { hflip }", -EINVAL, 5, "expected a name after 'view'");
	expect_error("view 2 { hflip }", -EINVAL, 5, "expected a name after 'view'");
	expect_error("view a(x) { }", -EINVAL, 7, "expected the number of copies");
	expect_error("view a(0) { }", -EINVAL, 7, "at least 1 copy");
	expect_error("view a(17) { }", -E2BIG, 7, "at most 16");
	expect_error("view a(9) { } view b(8) { }", -E2BIG, 21, "at most 16");
	expect_error("view a(99999999999999999999) { }", -E2BIG, 7, "at most 16");
	expect_error("view a(2 { }", -EINVAL, 9, "expected ')'");
	expect_error("view a hflip", -EINVAL, 7, "expected '{'");
	expect_error("view a { hflip", -EINVAL, 14, "'}' in view a, found the end");
	expect_error("view a { view b { } }", -EINVAL, 9, "contains no other views");
	expect_error("view a { } hflip", -EINVAL, 11, "only views may follow");
	expect_error("view a { } view a { }", -EINVAL, 16, "two views a");
	expect_error("view a { sideways }", -EINVAL, 9, "");
	expect_error("hflip }", -EINVAL, 6, "expected the name of a transform");
}

TEST(programs_that_make_one_image_refuse_views)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error;

	assert_int_equal(pipeline_parse("view a { }", &pipeline, &error), -EINVAL);
	assert_non_null(strstr(error.text, "has views"));
	assert_null(pipeline);
}

static void make(const struct pipeline *pipeline, uint64_t seed, uint64_t shared_seed,
		 uint64_t sample, struct geometry *geometry)
{
	const struct geometry_subject subject = {.shared_seed = shared_seed};

	assert_int_equal(
		geometry_make(pipeline, WIDTH, HEIGHT, seed, 2, sample, &subject, geometry, NULL),
		0);
}

/* hflip before the views mirrors all copies or none; in a view, each by itself. */
TEST(steps_before_the_views_decide_alike)
{
	static const char *const texts[] = {"hflip view a(2) { random_resized_crop(24) }",
					    "view a(2) { hflip random_resized_crop(24) }"};
	struct geometry first, second;

	for (unsigned t = 0; t < 2; t++) {
		struct pipeline *pipeline = parse_views(texts[t]);
		unsigned mirrored = 0, differ = 0, crops_differ = 0;

		for (uint64_t sample = 0; sample < SAMPLES; sample++) {
			make(pipeline_view(pipeline, 0).pipeline, 7, 7, sample, &first);
			make(pipeline_view(pipeline, 1).pipeline, 8, 7, sample, &second);
			mirrored += first.stages[0].x.reverse;
			differ += first.stages[0].x.reverse != second.stages[0].x.reverse;
			crops_differ += first.stages[0].x.low != second.stages[0].x.low;
		}
		assert_in_range(mirrored, SAMPLES / 8, SAMPLES - SAMPLES / 8);
		assert_in_range(crops_differ, SAMPLES / 2, SAMPLES);
		if (t == 0)
			assert_int_equal(differ, 0);
		else
			assert_in_range(differ, SAMPLES / 8, SAMPLES - SAMPLES / 8);
		pipeline_free(pipeline);
	}
}

/* Where the steps before draw nothing, a copy is what a pipeline without views makes of its seed.
 */
TEST(a_copy_is_a_pipeline_of_its_own)
{
	struct pipeline *views = parse_views("resize(40x32) view a(2) { random_crop(24) hflip }");
	struct pipeline *plain = parse_views("resize(40x32) random_crop(24) hflip");
	struct geometry one = {0}, other = {0};

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		make(pipeline_view(views, 1).pipeline, 8, 7, sample, &one);
		make(plain, 8, 0, sample, &other);
		assert_int_equal(one.stage_count, other.stage_count);
		assert_memory_equal(&one.stages[0].x, &other.stages[0].x, sizeof(one.stages[0].x));
		assert_memory_equal(&one.stages[0].y, &other.stages[0].y, sizeof(one.stages[0].y));
	}
	pipeline_free(views);
	pipeline_free(plain);
}

/* Views that set a size take samples of any; the others need all to be of one. */
TEST(sizes_are_fixed_where_views_need_it)
{
	struct pipeline *pipeline = parse_views("view a { resize(8x6) } view b { hflip }");
	struct pipeline_shape shape;

	assert_false(pipeline_has_size(pipeline));
	assert_int_equal(pipeline_fix_size(pipeline, 20, 10, NULL), 0);
	pipeline_shape(pipeline_view(pipeline, 1).pipeline, 0, &shape);
	assert_int_equal(shape.width, 20);
	assert_int_equal(pipeline_view(pipeline, 0).pipeline->fixed_width, 0);
	pipeline_free(pipeline);
}

TEST(statistics_reach_all_views)
{
	const double mean[3] = {51, 102, 153}, std[3] = {25.5, 51, 102};
	struct pipeline *pipeline =
		parse_views("view a { normalize(dataset) to(f32) } view b { to(f32) }");

	assert_true(pipeline_needs_statistics(pipeline));
	assert_int_equal(pipeline_fix_statistics(pipeline, mean, std, NULL), 0);
	assert_false(pipeline_needs_statistics(pipeline));
	assert_true(pipeline_view(pipeline, 0).pipeline->mean[1] == 0.4);
	pipeline_free(pipeline);
}
