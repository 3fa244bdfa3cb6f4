/*
 * Input that is resized, reduced to selected rows and columns, and blended, against pixels from
 * torchvision and timm (tests/golden/resample/make.py); and which requests are refused.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#include <math.h>

enum { SAMPLES = 4, CHANNELS = 3 };

static const float means[4] = {120, 90.5f, 17}, deviations[4] = {58.5f, 61, 64};

struct bench {
	struct device *device;
	struct device_params *params;
	struct device_graph *graph;
	struct device_value *input;
	uint32_t height, width;
};

/* Opens an evaluation graph that consists only of its input. */
static void bench_open(struct bench *b, enum device_precision precision, uint32_t height,
		       uint32_t width, bool resamples)
{
	struct device_input_spec input = {.name = "input",
					  .shape = {SAMPLES, height, width, CHANNELS},
					  .resamples = resamples};
	struct device_graph_options options = {.mode = DEVICE_EVAL, .keep_all = true};
	char error[DEVICE_ERROR_MAX];

	memset(b, 0, sizeof(*b));
	b->height = height;
	b->width = width;
	memcpy(input.mean, means, sizeof(means));
	memcpy(input.std, deviations, sizeof(deviations));
	b->device = open_device(precision, 0);
	assert_int_equal(device_params_new(b->device, &b->params), 0);
	assert_int_equal(device_params_allocate(b->params, NULL), 0);
	assert_int_equal(device_graph_new(b->params, &options, &b->graph), 0);
	b->input = device_input(b->graph, &input);
	if (device_graph_plan(b->graph, error) < 0)
		fail_msg("%s", error);
}

static void bench_close(struct bench *b)
{
	device_graph_free(b->graph);
	device_params_free(b->params);
	device_close(b->device);
}

static size_t count_of(uint32_t height, uint32_t width)
{
	return (size_t)SAMPLES * height * width * CHANNELS;
}

/* As in make.py. */
static uint8_t *make_bytes(uint32_t height, uint32_t width)
{
	size_t count = count_of(height, width);
	uint8_t *bytes = malloc(count);

	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)(uniform(9, i) * 256);
	return bytes;
}

/* Returns the device's input values before normalisation; the caller frees them. */
static float *run(struct bench *b, const struct device_batch *batch)
{
	size_t count = count_of(b->height, b->width);
	float *values = malloc(count * sizeof(float));
	uint64_t number;

	if (device_upload(b->graph, batch, &number) < 0)
		fail_msg("%s", device_error(b->device));
	assert_int_equal(device_evaluate(b->graph, DEVICE_VALUE, &number), 0);
	assert_int_equal(device_value_read(b->graph, b->input, DEVICE_VALUE, values), 0);
	for (size_t i = 0; i < count && batch->element == DEVICE_ELEMENT_U8; i++)
		values[i] = values[i] * deviations[i % CHANNELS] + means[i % CHANNELS];
	return values;
}

static void compare(const float *values, const double *expected, size_t count, double tolerance,
		    const char *what)
{
	for (size_t i = 0; i < count; i++)
		if (!(fabs((double)values[i] - expected[i]) <= tolerance))
			fail_msg("%s: value %zu is %.9g, expected %.9g", what, i, (double)values[i],
				 expected[i]);
}

struct golden {
	char what[16];
	uint32_t height, width, to_height, to_width;
	struct device_blend blends[SAMPLES];
	double *pixels;
};

static bool read_golden(FILE *file, struct golden *g)
{
	if (fscanf(file, "%15s %u %u", g->what, &g->height, &g->width) != 3)
		return false;
	g->to_height = g->height;
	g->to_width = g->width;
	if (strcmp(g->what, "resize") == 0)
		assert_int_equal(fscanf(file, "%u %u", &g->to_height, &g->to_width), 2);
	for (unsigned i = 0; strcmp(g->what, "mix") == 0 && i < SAMPLES; i++) {
		struct device_blend *b = &g->blends[i];

		assert_int_equal(fscanf(file, "%u %f %u %u %u %u %*f", &b->partner, &b->share,
					&b->top, &b->bottom, &b->left, &b->right),
				 6);
	}
	size_t count = count_of(g->to_height, g->to_width);
	g->pixels = malloc(count * sizeof(double));
	for (size_t i = 0; i < count; i++)
		assert_int_equal(fscanf(file, "%lf", &g->pixels[i]), 1);
	return true;
}

/* `tolerance` applies to pixels of up to 255. */
static void check_golden(const struct golden *g, enum device_precision precision, bool floats,
			 double tolerance)
{
	uint8_t *bytes = make_bytes(g->height, g->width);
	size_t count = count_of(g->height, g->width);
	float *numbers = malloc(count * sizeof(float)), *values;
	struct device_batch batch = {
		.images = floats ? (const void *)numbers : bytes,
		.count = SAMPLES,
		.channels = CHANNELS,
		.element = floats ? DEVICE_ELEMENT_F32 : DEVICE_ELEMENT_U8,
		.height = g->height,
		.width = g->width,
		.blends = strcmp(g->what, "mix") == 0 ? g->blends : NULL,
	};
	struct bench b;

	for (size_t i = 0; i < count; i++)
		numbers[i] = bytes[i];
	bench_open(&b, precision, g->to_height, g->to_width, true);
	/* devices that capture steps replay the second and third evaluation */
	for (unsigned i = 0; i < 3; i++) {
		values = run(&b, &batch);
		compare(values, g->pixels, count_of(g->to_height, g->to_width), tolerance, g->what);
		free(values);
	}
	bench_close(&b);
	free(bytes);
	free(numbers);
}

static void check_all(enum device_precision precision, double tolerance)
{
	FILE *file = fopen(GOLDEN_RESAMPLE, "r");
	char first[128];
	struct golden g;
	unsigned cases = 0;

	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	while (read_golden(file, &g)) {
		check_golden(&g, precision, cases % 2, tolerance);
		if (precision == DEVICE_FP32)
			check_golden(&g, precision, !(cases % 2), tolerance);
		free(g.pixels);
		cases++;
	}
	fclose(file);
	assert_int_equal(cases, 13);
}

/* The golden file has six digits. */
TEST(as_torchvision_and_timm)
{
	check_all(DEVICE_FP32, 6e-4);
}

TEST(in_16_bits)
{
	struct bench b;

	/* skips the test if the device does not support the precision */
	bench_open(&b, DEVICE_BF16, 8, 8, true);
	bench_close(&b);
	check_all(DEVICE_BF16, 1);
}

/* Successive steps of one graph request different resampling, captured or not. */
TEST(changing)
{
	static const uint32_t rows[6] = {0, 1, 3, 4, 6, 7}, columns[5] = {1, 2, 3, 7, 8};
	uint8_t *large = make_bytes(8, 9), *small = make_bytes(6, 5);
	struct device_batch plain = {.images = small,
				     .count = SAMPLES,
				     .channels = CHANNELS,
				     .element = DEVICE_ELEMENT_U8},
			    thinned = plain, flipped = plain;
	double expected[SAMPLES * 6 * 5 * CHANNELS];
	struct bench b;

	thinned.images = large;
	thinned.height = 8;
	thinned.width = 9;
	thinned.rows = rows;
	thinned.columns = columns;
	flipped.flip = true;
	bench_open(&b, DEVICE_FP32, 6, 5, true);
	for (unsigned turn = 0; turn < 9; turn++) {
		const struct device_batch *batch = turn % 3 == 0   ? &plain
						   : turn % 3 == 1 ? &thinned
								   : &flipped;
		float *values = run(&b, batch);

		for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
			size_t c = i % CHANNELS, x = i / CHANNELS % 5, y = i / CHANNELS / 5 % 6,
			       n = i / CHANNELS / 5 / 6;

			if (batch == &thinned)
				expected[i] =
					large[((n * 8 + rows[y]) * 9 + columns[x]) * CHANNELS + c];
			else
				expected[i] = small[((n * 6 + y) * 5 + (batch->flip ? 4 - x : x)) *
							    CHANNELS +
						    c];
		}
		compare(values, expected, sizeof(expected) / sizeof(*expected), 1e-4, "turn");
		free(values);
	}
	bench_close(&b);
	free(large);
	free(small);
}

/* Without a request, an input that can resample equals one that cannot, up to rounding. */
TEST(fewer_samples)
{
	uint8_t *bytes = make_bytes(6, 5);
	struct device_batch batch = {.images = bytes,
				     .count = SAMPLES - 2,
				     .channels = CHANNELS,
				     .element = DEVICE_ELEMENT_U8};
	struct bench a, b;
	size_t count = count_of(6, 5);

	bench_open(&a, DEVICE_FP32, 6, 5, false);
	bench_open(&b, DEVICE_FP32, 6, 5, true);
	float *one = run(&a, &batch);
	float *other = run(&b, &batch);
	for (size_t i = 0; i < count; i++)
		assert_float_equal(one[i], other[i], 1e-4);
	free(one);
	free(other);
	bench_close(&a);
	bench_close(&b);
	free(bytes);
}

static void refused(struct bench *b, const struct device_batch *batch, const char *text)
{
	uint64_t ticket;

	assert_int_equal(device_upload(b->graph, batch, &ticket), -EINVAL);
	if (!strstr(device_error(b->device), text))
		fail_msg("'%s' does not say '%s'", device_error(b->device), text);
}

TEST(refused)
{
	static const uint32_t rows[6] = {0, 1, 2, 3, 4, 8}, columns[5] = {9, 0, 0, 0, 0};
	static const struct device_blend wrong[] = {{.partner = SAMPLES, .share = 1},
						    {.share = 1.5f},
						    {.share = NAN},
						    {.share = 1, .top = 2, .bottom = 1},
						    {.share = 1, .bottom = 7},
						    {.share = 1, .right = 6},
						    {.share = 1, .left = 4, .right = 3}};
	struct device_blend blends[SAMPLES] = {{.share = 1}, {.share = 1}, {.share = 1}};
	const struct deferred deferred[SAMPLES] = {
		{.width = 5, .height = 6}, {.width = 5, .height = 6}, {.width = 6, .height = 6}};
	uint8_t *bytes = make_bytes(8, 9);
	struct device_batch plain = {.images = bytes,
				     .count = SAMPLES,
				     .channels = CHANNELS,
				     .element = DEVICE_ELEMENT_U8},
			    batch;
	struct bench b;

	bench_open(&b, DEVICE_FP32, 6, 5, false);
	batch = plain;
	batch.deferred = deferred;
	batch.height = 6;
	batch.width = 5;
	batch.delivered_height = batch.delivered_width = 5000;
	refused(&b, &batch, "the batch's images are 5000 x 5000, before what was deferred");
	batch.delivered_height = batch.delivered_width = 8;
	refused(&b, &batch, "sample 2 becomes 6 x 6, others of its batch 6 x 5");
	batch.element = DEVICE_ELEMENT_F32;
	refused(&b, &batch, "steps were deferred of a batch that is not of bytes");
	batch = plain;
	batch.height = 8;
	refused(&b, &batch, "the batch is of 8 x 5 and to be resized");
	batch = plain;
	batch.blends = blends;
	refused(&b, &batch, "takes batches as they are");
	bench_close(&b);
	bench_open(&b, DEVICE_FP32, 6, 5, true);
	batch = plain;
	batch.height = 25;
	refused(&b, &batch, "25 x 5, more than 4 times the graph's input of 6 x 5");
	batch.height = 8;
	batch.rows = rows;
	refused(&b, &batch, "row 8 of its images, which have 8");
	batch = plain;
	batch.columns = columns;
	refused(&b, &batch, "column 9 of its images, which have 5");
	batch = plain;
	batch.blends = blends;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		blends[3] = wrong[i];
		refused(&b, &batch, "sample 3 of the batch cannot be blended");
	}
	bench_close(&b);
	free(bytes);
}
