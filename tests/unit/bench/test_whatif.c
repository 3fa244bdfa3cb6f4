/*
 * What-if trials of a dataset made by the test: contents of the sampled images, configurations and
 * transforms that are tried or cannot be, and explanations that follow from the costs.
 */
#include "bench/report/explain.h"
#include "bench/report/whatif.h"
#include "tests/dataset.h"
#include "tests/test.h"
#include "tools/packimg/estimate/encoding_bench.h"

#include <math.h>

enum { IMAGES = 12, SIDE = 96 };

static const struct claim_options usual = {.batch_size = 4, .workers = 2, .alone = true};
static char folder[] = "/tmp/loaderbench-whatif-XXXXXX";
static char path[64];

/*
 * Options of the last call; whether costs are simulated. If so, every configuration takes a quarter
 * of the stored one's time.
 */
static struct claim_options asked;
static int is_made_up;

int __real_encoding_bench_measure(struct encoding_run *runs, uint32_t count,
				  const struct claim_options *claim, double seconds,
				  bool (*stop)(void), struct packimg_error *error);
int __wrap_encoding_bench_measure(struct encoding_run *runs, uint32_t count,
				  const struct claim_options *claim, double seconds,
				  bool (*stop)(void), struct packimg_error *error);

int __wrap_encoding_bench_measure(struct encoding_run *runs, uint32_t count,
				  const struct claim_options *claim, double seconds,
				  bool (*stop)(void), struct packimg_error *error)
{
	asked = *claim;
	if (!is_made_up)
		return __real_encoding_bench_measure(runs, count, claim, seconds, stop, error);
	for (uint32_t i = 0; i < count; i++)
		runs[i].image_s = i == CONFIG_STORED ? 4e-4 : 1e-4;
	return 0;
}

/* Every third image is raw; every second JPEG has an index. */
static void add(struct test_dataset *data, unsigned i)
{
	static uint8_t pixels[SIDE * SIDE * 3];
	struct packimg_item item = test_item(pixels, SIDE, SIDE);

	for (size_t j = 0; j < sizeof(pixels); j++)
		pixels[j] = (uint8_t)(j * (i + 1) >> 4);
	if (i % 3)
		test_item_to_jpeg(data, &item, 90);
	if (i % 3 == 1)
		test_item_index(data, &item);
	test_dataset_add(data, &item);
}

static int set_up(void **state)
{
	struct test_dataset data;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/some.pimg", folder);
	test_dataset_begin(&data, path, 0);
	for (unsigned i = 0; i < IMAGES; i++)
		add(&data, i);
	test_dataset_finish(&data);
	return 0;
}

static int tear_down(void **state)
{
	unlink(path);
	rmdir(folder);
	return 0;
}

TEST(configs)
{
	struct whatif t;
	char error[FEED_ERROR_MAX] = "";

	assert_int_equal(whatif_measure(path, "random_resized_crop(28) hflip", &usual, &t, error),
			 0);
	assert_int_equal(t.images, IMAGES);
	assert_int_equal(t.sampled, IMAGES);
	assert_int_equal(t.jpegs, 8);
	assert_int_equal(t.unindexed, 4);
	assert_int_equal(t.unindexable, 0);
	assert_int_equal(t.short_side, 32);
	assert_true(t.side == SIDE);
	assert_int_equal(t.configs[CONFIG_STORED].changed, IMAGES);
	assert_int_equal(t.configs[CONFIG_INDEX].changed, 4);
	assert_int_equal(t.configs[CONFIG_RECODE].changed, 0);
	assert_int_equal(t.configs[CONFIG_QUALITY].changed, 8);
	assert_int_equal(t.configs[CONFIG_SMALLER].changed, IMAGES);
	assert_int_equal(t.configs[CONFIG_RAW].changed, IMAGES);
	assert_true(t.configs[CONFIG_RAW].bytes == 32 * 32 * 3);
	assert_true(t.configs[CONFIG_SMALLER].bytes < t.configs[CONFIG_RAW].bytes);
	assert_true(t.configs[CONFIG_INDEX].bytes > t.configs[CONFIG_STORED].bytes);
	for (enum config config = 0; config < CONFIG_COUNT; config++)
		assert_true(t.configs[config].image_us > 0 || config == CONFIG_RECODE);
	assert_true(whatif_resident(path) > 0 && whatif_resident(path) <= 1);
}

/* Any notation of a pipeline is accepted. The transform that fixes the size cannot be left out. */
TEST(transforms)
{
	struct whatif t;
	char error[FEED_ERROR_MAX] = "";

	assert_int_equal(
		whatif_measure(path,
			       "  random_resized_crop ( 32 , scale = 0.5:1 )  hflip\n"
			       "random_solarize(threshold=128) normalize (imagenet)  to( f32 )",
			       &usual, &t, error),
		0);
	assert_int_equal(t.transform_count, 4);
	assert_string_equal(t.transforms[0].text, "normalize (imagenet) to( f32 )");
	assert_string_equal(t.transforms[1].text, "hflip");
	assert_string_equal(t.transforms[2].text, "random_solarize(threshold=128)");
	assert_string_equal(t.transforms[3].text, "normalize (imagenet)");
	for (unsigned i = 0; i < t.transform_count; i++)
		assert_true(t.transforms[i].image_us > 0);

	/* Names of values belong to their step. */
	assert_int_equal(whatif_measure(path,
					"random_resized_crop(32) mask , m.2: fill(3) m.2 :to(i64) "
					"hflip b:clamp_boxes to(f32)",
					&usual, &t, error),
			 0);
	assert_int_equal(t.transform_count, 6);
	assert_string_equal(t.transforms[0].text, "to(f32)");
	assert_string_equal(t.transforms[1].text, "mask , m.2: fill(3)");
	assert_string_equal(t.transforms[2].text, "m.2 :to(i64)");
	assert_string_equal(t.transforms[3].text, "hflip");
	assert_string_equal(t.transforms[4].text, "b:clamp_boxes");

	/*
	 * A dataset of raw pixels has no transform that could be left out, and cannot be made
	 * smaller.
	 */
	assert_int_equal(whatif_measure(path, "", &usual, &t, error), 0);
	assert_int_equal(t.transform_count, 0);
	assert_int_equal(t.configs[CONFIG_SMALLER].changed, 0);
	assert_int_equal(t.configs[CONFIG_RAW].changed, 8);
	assert_true(t.configs[CONFIG_RAW].bytes == SIDE * SIDE * 3);
}

TEST(errors)
{
	struct whatif t;
	char error[FEED_ERROR_MAX] = "";

	assert_true(whatif_measure("/nowhere.pimg", "", &usual, &t, error) < 0);
	assert_non_null(strstr(error, "/nowhere.pimg"));
	assert_true(whatif_resident("/nowhere.pimg") == 0);
	assert_true(whatif_measure(path, "nonsense(3)", &usual, &t, error) < 0);
	assert_non_null(strstr(error, "nonsense"));
}

/* Trials use the settings of the measured daemon, and results are scaled to its measurements. */
TEST(predictions)
{
	const struct settings settings = {.socket = "a daemon that is not asked again"};
	const struct measurement measured = {.images_per_s = 1000,
					     .stage_us[STAGE_READ] = 50,
					     .stage_us[STAGE_DECODE] = 300,
					     .stage_us[STAGE_RESIZE] = 70,
					     .stage_us[STAGE_AUGMENT] = 20,
					     .stage_us[STAGE_STORE] = 10,
					     .stage_us[STAGE_OTHER] = 150,
					     .threads = 3,
					     .limit = LIMIT_DECODE};
	struct point point = {.dataset = path,
			      .pipeline = "random_resized_crop(28) hflip",
			      .batch_size = 24,
			      .clients = 1};
	struct explanation e;
	char error[FEED_ERROR_MAX] = "";
	unsigned found = 0;

	is_made_up = 1;
	assert_int_equal(explanation_make(&settings, &point, 1, &measured, &e, error), 0);
	assert_int_equal(asked.batch_size, 24);
	assert_int_equal(asked.workers, 3);
	assert_true(asked.alone);
	for (unsigned i = 0; i < e.change_count; i++) {
		if (strcmp(e.changes[i].what, "an index") != 0)
			continue;
		assert_true(fabs(e.changes[i].gain - 600. / (200 + 400. / 4)) < 1e-9);
		found++;
	}
	assert_int_equal(found, 1);
	point.clients = 2;
	assert_int_equal(explanation_make(&settings, &point, 1, &measured, &e, error), 0);
	assert_false(asked.alone);
	is_made_up = 0;
}

TEST_MAIN(set_up, tear_down)
