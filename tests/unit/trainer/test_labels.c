/* Labels as the trainer reads them from a dataset's index. */
#include "tests/dataset.h"
#include "tests/test.h"
#include "trainer/run/input/labels.h"

enum { CLASSES = 3, SAMPLES = 400, SIDE = 16 };

static char folder[] = "/tmp/test_labels_XXXXXX", path[64];

/* Labels 0, 1, 2 and none, repeated. */
static int setup(void **state)
{
	static const char *const names[CLASSES] = {"a", "b", "c"};
	static const uint8_t pixels[SIDE * SIDE * 3];
	struct packimg_item item = test_item(pixels, SIDE, SIDE);
	struct test_dataset data;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/data.pimg", folder);
	test_dataset_begin(&data, path, 0);
	for (int i = 0; i < SAMPLES; i++) {
		item.label = i % 4 == 3 ? PACKIMG_LABEL_NONE : i % 4;
		test_dataset_add(&data, &item);
	}
	assert_int_equal(packimg_writer_classes(data.writer, names, CLASSES, NULL), 0);
	test_dataset_finish(&data);
	return 0;
}

static int teardown(void **state)
{
	unlink(path);
	return rmdir(folder);
}

static struct packimg *opened(void)
{
	struct packimg *dataset;
	struct packimg_error error = {{0}};
	if (labels_open(path, &dataset, &error))
		fail_msg("%s", error.text);
	return dataset;
}

TEST(counted)
{
	struct packimg *dataset = opened();
	uint64_t counts[CLASSES] = {0};
	struct labels labels;
	labels_count(dataset, CLASSES, counts, &labels);
	assert_int_equal(labels.samples, SAMPLES);
	assert_int_equal(labels.unlabelled, SAMPLES / 4);
	assert_int_equal(labels.out_of_range, 0);
	for (int i = 0; i < CLASSES; i++)
		assert_int_equal(counts[i], SAMPLES / 4);
	labels_count(dataset, CLASSES - 1, NULL, &labels);
	assert_int_equal(labels.unlabelled, SAMPLES / 4);
	assert_int_equal(labels.out_of_range, SAMPLES / 4);
	packimg_close(dataset);
}

/* The file is truncated while open. Runs last because it damages the dataset. */
TEST(cut_short)
{
	struct packimg *dataset = opened();
	uint64_t counts[CLASSES] = {0};
	struct labels labels;
	assert_int_equal(truncate(path, 4096), 0);
	labels_count(dataset, CLASSES, counts, &labels);
	assert_int_equal(labels.unlabelled, 0);
	assert_int_equal(counts[0] + counts[1] + counts[2], 0);
	packimg_close(dataset);
}

TEST_MAIN(setup, teardown)
