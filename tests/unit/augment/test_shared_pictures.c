/*
 * pipeline_share_decode(): views made from a shared picture have the bytes of those that decode
 * their own region, and a picture is shared only where that is less work.
 */
#include "format/augment/apply/shared_rasters.h"
#include "format/augment/frame.h"
#include "format/augment/grammar/transforms.h"
#include "tests/unit/augment/pipeline_test.h"

#include <errno.h>
#include <stdlib.h>

enum { ROUNDS = 60, VIEWS = 4, SIDE = 300 };

/* Makes all views of a sample. Returns the decoder's calls. */
static unsigned make_views(const struct packimg_sample *sample, struct pipeline *const *pipelines,
			   unsigned count, bool share, uint8_t *outputs[VIEWS])
{
	struct pipeline_scratch *scratch = scratches[0];
	struct pipeline_view_call calls[VIEWS] = {0};
	unsigned before = fake_decoder.calls;

	for (unsigned i = 0; i < count; i++)
		calls[i] = (struct pipeline_view_call){pipelines[i], i};
	pipeline_share_decode(scratch, sample, calls, share ? count : 0, 1, NULL);
	for (unsigned i = 0; i < count; i++) {
		outputs[i] = malloc(pipeline_sample_size_max(pipelines[i]));
		assert_non_null(outputs[i]);
		assert_int_equal(
			pipeline_apply(pipelines[i], scratch, sample, i, 1, outputs[i], NULL, NULL),
			0);
	}
	return fake_decoder.calls - before;
}

static struct packimg_sample new_sample(uint32_t width, uint32_t height, uint64_t index)
{
	struct packimg_sample sample =
		make_sample(random_pixels(width, height), width, height, index);

	sample.codec = PACKIMG_CODEC_JPEG; /* pixels of raw samples are never shared */
	return sample;
}

TEST(shared_pictures_change_no_byte)
{
	static const char *const texts[VIEWS] = {
		"random_resized_crop(32, scale=0.4:1) hflip",
		"random_resized_crop(24, scale=0.3:1) vflip to(f16)",
		"random_crop(40)",
		"random_resized_crop(24, scale=0.5:1, interpolation=bicubic)",
	};
	struct pipeline *pipelines[VIEWS];
	unsigned shared = 0, alone = 0;

	for (unsigned i = 0; i < VIEWS; i++)
		pipelines[i] = parse(texts[i]);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct packimg_sample sample = new_sample(60 + random_u32(&rng) % SIDE,
							  60 + random_u32(&rng) % SIDE, round);
		uint8_t *ours[VIEWS], *theirs[VIEWS];

		fake_decoder.margin = random_u32(&rng) % 4;
		fake_decoder.halve = round % 2;
		shared += make_views(&sample, pipelines, VIEWS, true, ours);
		alone += make_views(&sample, pipelines, VIEWS, false, theirs);
		for (unsigned i = 0; i < VIEWS; i++) {
			assert_memory_equal(ours[i], theirs[i],
					    pipeline_sample_size_max(pipelines[i]));
			free(ours[i]);
			free(theirs[i]);
		}
		free((void *)sample.data);
	}
	assert_int_equal(alone, ROUNDS * VIEWS);
	assert_in_range(shared, ROUNDS, ROUNDS * 2 + ROUNDS / 2);
	for (unsigned i = 0; i < VIEWS; i++)
		pipeline_free(pipelines[i]);
}

/* Two small crops at opposite ends: each is decoded by itself. */
TEST(distant_views_share_nothing)
{
	struct pipeline *pipelines[] = {parse("center_crop(200x300) center_crop(16)"),
					parse("random_crop(16)")};
	struct packimg_sample sample = new_sample(SIDE, SIDE, 0);
	uint8_t *outputs[VIEWS];
	unsigned calls = 0;

	for (sample.index = 0; sample.index < ROUNDS; sample.index++) {
		calls += make_views(&sample, pipelines, 2, true, outputs);
		free(outputs[0]);
		free(outputs[1]);
	}
	assert_in_range(calls, ROUNDS * 3 / 2, ROUNDS * 2);
	pipeline_free(pipelines[0]);
	pipeline_free(pipelines[1]);
	free((void *)sample.data);
}

/* A picture belongs to one sample: equal numbers of another dataset find nothing. */
TEST(pictures_are_of_one_sample)
{
	struct pipeline *pipelines[] = {parse("resize(32x32)"), parse("resize(24x24)")};
	struct packimg_sample one = new_sample(90, 80, 5), other = new_sample(90, 80, 5);
	struct pipeline_view_call calls[] = {{pipelines[0], 0}, {pipelines[1], 1}};
	uint8_t *mine[VIEWS], *expected[VIEWS];

	make_views(&other, pipelines, 2, false, expected);
	pipeline_share_decode(scratches[0], &one, calls, 2, 1, NULL);
	for (unsigned i = 0; i < 2; i++) {
		size_t size = pipeline_sample_size_max(pipelines[i]);

		mine[i] = malloc(size);
		assert_int_equal(pipeline_apply(pipelines[i], scratches[0], &other, i, 1, mine[i],
						NULL, NULL),
				 0);
		assert_memory_equal(mine[i], expected[i], size);
		free(mine[i]);
		free(expected[i]);
		pipeline_free(pipelines[i]);
	}
	free((void *)one.data);
	free((void *)other.data);
}

/* Further images have the sample's number, and in a damaged file perhaps its bytes. */
TEST(pictures_are_of_one_image)
{
	struct pipeline *pipelines[] = {parse("resize(32x32)"), parse("resize(24x24)")};
	struct packimg_sample one = new_sample(90, 80, 5), other = one;
	struct pipeline_view_call calls[] = {{pipelines[0], 0}, {pipelines[1], 1}};
	uint8_t *expected[VIEWS], output[32 * 32 * 3];

	other.width = 60;
	make_views(&other, pipelines, 2, false, expected);
	pipeline_share_decode(scratches[0], &one, calls, 2, 1, NULL);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pipeline_apply(pipelines[i], scratches[0], &other, i, 1, output,
						NULL, NULL),
				 0);
		assert_memory_equal(output, expected[i], pipeline_sample_size_max(pipelines[i]));
		free(expected[i]);
		pipeline_free(pipelines[i]);
	}
	free((void *)one.data);
}

/* All decoders of shared pictures together are limited to half of what the sample's own may use. */
TEST(memory_is_limited)
{
	struct pipeline *pipelines[] = {parse("resize(8x8)"), parse("resize(9x9)"),
					parse("random_resized_crop(60)"),
					parse("random_resized_crop(61)")};
	struct packimg_sample sample = new_sample(SIDE, SIDE, 0);
	struct pipeline_scratch *scratch;
	struct pipeline_view_call calls[VIEWS] = {0};

	for (unsigned i = 0; i < VIEWS; i++)
		calls[i] = (struct pipeline_view_call){pipelines[i], i};
	assert_int_equal(pipeline_scratch_new(&scratch), 0);
	pipeline_scratch_limit(scratch, 10 << 20);
	fake_decoder.halve = true;
	fake_decoder.limits = fake_decoder.calls = 0;
	for (unsigned i = 0; i < ROUNDS; i++, sample.index++)
		pipeline_share_decode(scratch, &sample, calls, VIEWS, 1, NULL);
	/* of the scales 1 and 2, and of their coefficients */
	assert_in_range(fake_decoder.limit, 1, (10 << 20) / 2 / 5);
	assert_in_range(fake_decoder.limits, 3, 3 * ROUNDS);
	assert_in_range(fake_decoder.calls, ROUNDS, 2 * ROUNDS);
	/* What cannot fit is not begun. The views decode rows, which take less memory. */
	pipeline_scratch_limit(scratch, 10 << 10);
	fake_decoder.calls = 0;
	pipeline_share_decode(scratch, &sample, calls, VIEWS, 1, NULL);
	assert_int_equal(fake_decoder.calls, 0);
	pipeline_scratch_free(scratch);
	for (unsigned i = 0; i < VIEWS; i++)
		pipeline_free(pipelines[i]);
	free((void *)sample.data);
}

/* Makes views of rasters of one sample, all at the same address. number: of the first. */
static void make_rasters(struct pipeline *const *pipelines, struct packimg_sample *sample,
			 uint32_t number, uint32_t rasters, bool share)
{
	struct pipeline_view_call calls[VIEWS] = {0};
	static uint8_t made[40 * 40 * 3], expected[40 * 40 * 3];

	for (unsigned i = 0; i < VIEWS; i++)
		calls[i] = (struct pipeline_view_call){pipelines[i], i};
	pipeline_share_decode(scratches[0], sample, calls, share ? VIEWS : 1, 1, NULL);
	fake_decoder.begun = fake_decoder.followed = fake_decoder.calls = 0;
	for (unsigned i = 0; i < VIEWS; i++)
		for (uint32_t k = 0; k < rasters; k++) {
			struct frame_raster form = {.width = sample->width,
						    .height = sample->height,
						    .element = PACKIMG_ELEMENT_U8,
						    .channels = 3,
						    .number = number ? number + k : 0};

			assert_int_equal(pipeline_apply_raster(pipelines[i], scratches[0], sample,
							       &form, i, 1, made, NULL, NULL),
					 0);
			form.number = 0;
			assert_int_equal(pipeline_apply_raster(pipelines[i], scratches[0], sample,
							       &form, i, 1, expected, NULL, NULL),
					 0);
			assert_memory_equal(made, expected, sizeof(made));
		}
	assert_int_equal(fake_decoder.calls, 2 * VIEWS * rasters);
}

TEST(bands_of_rasters_are_kept_for_all_views)
{
	struct pipeline *pipelines[] = {parse("random_resized_crop(40)"),
					parse("random_resized_crop(40, scale=0.1:0.4) hflip"),
					parse("random_crop(40)"), parse("resize(40x40) vflip")};
	struct packimg_sample sample = new_sample(60, 50, 3);

	sample.codec = PACKIMG_CODEC_RASTER;
	make_rasters(pipelines, &sample, 1, 2, true);
	assert_int_equal(fake_decoder.begun, 2);
	assert_int_equal(fake_decoder.followed, 2 * (VIEWS - 1));
	/* the next sample may have the same memory */
	sample.index++;
	make_rasters(pipelines, &sample, 1, 6, true);
	assert_int_equal(fake_decoder.begun, SHARED_RASTERS_MAX);
	assert_int_equal(fake_decoder.followed, SHARED_RASTERS_MAX * (VIEWS - 1));
	make_rasters(pipelines, &sample, 0, 2, true);
	assert_int_equal(fake_decoder.begun, 0);
	make_rasters(pipelines, &sample, 1, 2, false);
	assert_int_equal(fake_decoder.begun, 0);
	sample.codec = PACKIMG_CODEC_RAW;
	make_rasters(pipelines, &sample, 1, 2, true);
	assert_int_equal(fake_decoder.begun, 0);
	for (unsigned i = 0; i < VIEWS; i++)
		pipeline_free(pipelines[i]);
	free((void *)sample.data);
}

/* The part of a view's only copy that is decoded ahead is the one that will be requested. */
TEST(a_view_is_decoded_ahead)
{
	struct pipeline *pipeline;
	struct pipeline_error error;
	struct packimg_sample samples[] = {new_sample(SIDE, SIDE, 0), new_sample(SIDE, SIDE, 1)};
	uint8_t output[24 * 24 * 3];

	assert_int_equal(pipeline_parse_views("random_crop(200) view a { random_crop(24) }",
					      &pipeline, &error),
			 0);
	const struct pipeline *view = pipeline_view(pipeline, 0).pipeline;

	pipeline_scratch_shared_seed(scratches[0], 7);
	assert_int_equal(pipeline_batched_decode(view, scratches[0], samples, 2, 8, 1), 2);
	assert_int_equal(fake_decoder.ahead_count, 2);
	assert_int_equal(pipeline_apply(view, scratches[0], &samples[1], 8, 1, output, NULL, NULL),
			 0);
	assert_memory_equal(&fake_decoder.ahead.region, &fake_decoder.region,
			    sizeof(fake_decoder.region));
	pipeline_free(pipeline);
	free((void *)samples[0].data);
	free((void *)samples[1].data);
}

/* What cannot be decoded is left to the views, which report it. */
TEST(errors_are_those_of_the_views)
{
	struct pipeline *pipelines[] = {parse("resize(32x32)"), parse("resize(24x24)")};
	struct packimg_sample sample = new_sample(90, 80, 5);
	struct pipeline_view_call calls[] = {{pipelines[0], 0}, {pipelines[1], 1}};
	uint8_t output[32 * 32 * 3];

	fake_decoder.fail = -EBADMSG;
	pipeline_share_decode(scratches[0], &sample, calls, 2, 1, NULL);
	assert_int_equal(
		pipeline_apply(pipelines[0], scratches[0], &sample, 0, 1, output, NULL, NULL),
		-EBADMSG);
	fake_decoder.fail = 0;
	assert_int_equal(
		pipeline_apply(pipelines[0], scratches[0], &sample, 0, 1, output, NULL, NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		pipeline_free(pipelines[i]);
	free((void *)sample.data);
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
