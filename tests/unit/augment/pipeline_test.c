#include "tests/unit/augment/pipeline_test.h"

#include "format/base/system/cpu.h"
#include "tests/unit/augment/reference.h"

#include <math.h>

enum {
	CANARY = 64,    /* bytes, one cache line */
	EXTRA_MAX = 24, /* maximum number of pixels by which regions for planes exceed the region */
};

struct random_stream rng;
struct pipeline_scratch *scratches[CPU_ISA_COUNT];
size_t misalignment;

int pipeline_setup(void **state)
{
	random_init(&rng, 5, 0, 0, RANDOM_AUGMENT);
	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++) {
		setenv("LOADERD_ISA", cpu_isa_name((enum cpu_isa)isa), 1);
		if (pipeline_scratch_new(&scratches[isa]) < 0)
			return -1;
	}
	unsetenv("LOADERD_ISA");
	return 0;
}

int pipeline_teardown(void **state)
{
	for (int isa = 0; isa < CPU_ISA_COUNT; isa++)
		pipeline_scratch_free(scratches[isa]);
	return 0;
}

struct pipeline *parse(const char *text)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error;

	if (pipeline_parse(text, &pipeline, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	return pipeline;
}

uint8_t *random_pixels(uint32_t width, uint32_t height)
{
	uint8_t *pixels = malloc((size_t)width * height * 3);

	assert_non_null(pixels);
	for (size_t i = 0; i < (size_t)width * height * 3; i++)
		pixels[i] = (uint8_t)random_u32(&rng);
	return pixels;
}

struct packimg_sample make_sample(uint8_t *pixels, uint32_t width, uint32_t height, uint64_t index)
{
	return (struct packimg_sample){.index = index,
				       .data = pixels,
				       .data_size = width * height * 3,
				       .width = width,
				       .height = height,
				       .codec = PACKIMG_CODEC_RAW,
				       .channels = 3,
				       .orientation = 1};
}

/*
 * Checks that pipeline_batched_decode() announced two samples per decode call, with the decoded
 * region, or a slightly larger one if it considered planes.
 */
static void expect_ahead(unsigned calls)
{
	const struct packimg_region *said = &fake_decoder.ahead.region,
				    *asked = &fake_decoder.region;

	assert_int_equal(fake_decoder.ahead_count, 2 * calls);
	if (calls == 0)
		return;
	assert_int_equal(fake_decoder.ahead.size_hint_width == 0, fake_decoder.hint_width == 0);
	assert_in_range(asked->x - said->x, 0, EXTRA_MAX);
	assert_in_range(asked->y - said->y, 0, EXTRA_MAX);
	assert_in_range(said->x + said->width - asked->x - asked->width, 0, EXTRA_MAX);
	assert_in_range(said->y + said->height - asked->y - asked->height, 0, EXTRA_MAX);
}

/*
 * Applies the pipeline with one instruction set, checks the canaries around the output, and returns
 * the sample.
 */
static uint8_t *apply(const struct pipeline *pipeline, int isa, const struct packimg_sample *sample,
		      uint64_t seed, uint64_t epoch)
{
	struct pipeline_shape shape;
	struct packimg_error error;
	struct pipeline_times times = {0};
	struct packimg_sample next[] = {*sample, *sample, *sample};

	next[1].codec = next[2].codec =
		PACKIMG_CODEC_JPEG; /* only JPEGs are announced for decoding ahead */
	pipeline_shape(pipeline, epoch, &shape);
	size_t size = (shape.sample_size + 3 * CANARY) / CANARY * CANARY;
	uint8_t *block = aligned_alloc(CANARY, size), *output = block + CANARY + misalignment;

	assert_non_null(block);
	memset(block, 0xc3, size);
	assert_int_equal(pipeline_batched_decode(pipeline, scratches[isa], next, 2, seed, epoch),
			 1);
	assert_int_equal(fake_decoder.ahead_count, 0); /* a single sample is not decoded ahead */
	assert_int_equal(pipeline_batched_decode(pipeline, scratches[isa], next, 3, seed, epoch),
			 2);
	unsigned calls = fake_decoder.calls;
	int r = pipeline_apply(pipeline, scratches[isa], sample, seed, epoch, output, &times,
			       &error);

	if (r < 0)
		fail_msg("pipeline_apply: %d, %s", r, error.text);
	expect_ahead(fake_decoder.calls - calls);
	for (uint8_t *byte = block; byte < block + size; byte++)
		if ((byte < output || byte >= output + shape.sample_size) && *byte != 0xc3)
			fail_msg("pipeline_apply wrote outside the sample");
	memmove(block, output, shape.sample_size);
	return block;
}

uint8_t *apply_all(const struct pipeline *pipeline, const struct packimg_sample *sample,
		   uint64_t seed, uint64_t epoch)
{
	struct pipeline_shape shape;
	uint8_t *first = apply(pipeline, 0, sample, seed, epoch);

	pipeline_shape(pipeline, epoch, &shape);
	for (int isa = 1; isa <= (int)cpu_isa_supported(); isa++) {
		uint8_t *other = apply(pipeline, isa, sample, seed, epoch);

		if (memcmp(first, other, shape.sample_size) != 0)
			fail_msg("%s differs from c", cpu_isa_name((enum cpu_isa)isa));
		free(other);
	}
	return first;
}

void compare(const char *text, const struct pipeline *pipeline, uint32_t width, uint32_t height,
	     uint64_t epoch)
{
	uint64_t seed = random_u32(&rng), index = random_u32(&rng);
	uint8_t *pixels = random_pixels(width, height);
	struct packimg_sample sample = make_sample(pixels, width, height, index);
	struct pipeline_shape shape;
	struct reference expected;
	uint64_t sum = 0;

	assert_int_equal(
		reference_run(pipeline, pixels, width, height, seed, epoch, index, &expected), 0);
	pipeline_shape(pipeline, epoch, &shape);
	assert_int_equal(shape.width, expected.width);
	assert_int_equal(shape.height, expected.height);
	uint8_t *got = apply_all(pipeline, &sample, seed, epoch);

	for (size_t i = 0; i < shape.sample_size; i++) {
		int difference = abs(got[i] - expected.pixels[i]);

		if (difference > (int)expected.resizes)
			fail_msg("'%s' on %ux%u: byte %zu is %u, step by step it is %u", text,
				 width, height, i, got[i], expected.pixels[i]);
		sum += (uint64_t)difference;
	}
	/*
	 * Tolerance on noise: the 6 fraction bits between the passes cause a mean error of 0.02,
	 * and 14-bit weights one of up to 0.08 for filters of 900 taps. In addition, three input
	 * values may be wrong, each as often as upscaling repeats it.
	 */
	uint64_t values = (uint64_t)(width < shape.width ? width : shape.width) *
			  (height < shape.height ? height : shape.height) * 3;
	double repeats = fmax(1, (double)shape.sample_size / (double)values);

	if ((double)sum > 0.1 * expected.resizes * (double)shape.sample_size + 3 * repeats)
		fail_msg("'%s' on %ux%u: mean difference %g", text, width, height,
			 (double)sum / (double)shape.sample_size);
	free(got);
	free(expected.pixels);
	free(pixels);
}
