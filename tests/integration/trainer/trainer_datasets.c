/*
 * Datasets that were moved, replaced or damaged since a run began: the run trains on the same data,
 * or reports why it cannot.
 */
#include "format/packimg.h"
#include "tests/integration/trainer/trainer_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

/*
 * A dataset is identified by its content: a moved one is accepted, another one of the same size is
 * not.
 */
TEST(another_dataset)
{
	char moved[PATH_MAX + 100], train[PATH_MAX + 100], val[PATH_MAX + 100];
	snprintf(moved, sizeof(moved), "data.train=%s",
		 fixture_dataset(&fixture, "moved", 325, FIXTURE_RAW, 16));
	snprintf(train, sizeof(train), "data.train=%s",
		 fixture_dataset(&fixture, "other", 325, FIXTURE_RAW, 17));
	snprintf(val, sizeof(val), "data.val=%s",
		 fixture_dataset(&fixture, "other-val", 50, FIXTURE_JPEG, 0));
	pid_t pid = start("datasets", NULL);
	wait_for_step("datasets", pid, 8);
	kill(pid, SIGTERM);
	expect(finish(pid, "datasets"), STOPPED);
	expect(run("datasets", "--resume", train, NULL), 1);
	expect_output("other.pimg contains another dataset (");
	expect_output("train.pimg did (");
	expect_output("use --allow-changes to resume anyway");
	expect(run("datasets", "--resume", val, "data.val_pipeline=resize(16)", NULL), 1);
	expect_output("data.val = ");
	/* a checkpoint may be evaluated on a dataset other than the run's */
	expect(run("datasets", "--resume", "--evaluate", val, "data.val_pipeline=resize(16x16)",
		   NULL),
	       0);
	expect(run("datasets", "--resume", "--dry-run", "--allow-changes", train, NULL), 0);
	expect(run("datasets", "--resume", moved, NULL), 0);
	same_losses("unbroken", "datasets");
}

/* If an evaluation finds a replaced dataset, the run saves its training state before it ends. */
TEST(replaced_dataset)
{
	char val[PATH_MAX + 100], other[PATH_MAX + 100];
	snprintf(other, sizeof(other), "%s",
		 fixture_dataset(&fixture, "other", 50, FIXTURE_RAW, 17));
	snprintf(val, sizeof(val), "data.val=%s",
		 fixture_dataset(&fixture, "replaced", 50, FIXTURE_RAW, 16));
	pid_t pid = start("replaced", val, NULL);
	wait_for_step("replaced", pid, 8);
	assert_int_equal(rename(other, strchr(val, '/')), 0);
	expect(finish(pid, "replaced"), 1);
	expect_output("replaced.pimg was replaced by another dataset");
	/* the checkpoint is saved at the first evaluation after the replacement */
	assert_true(exists("replaced", "checkpoint-00000020.safetensors") ||
		    exists("replaced", "checkpoint-00000040.safetensors"));
	fixture_dataset(&fixture, "replaced", 50, FIXTURE_RAW, 16);
	expect(run("replaced", "--resume", val, NULL), 0);
	same_losses("unbroken", "replaced");
}

static void flip_byte(const char *path, off_t at)
{
	uint8_t byte;
	int fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0xff;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/*
 * A failed feed loses no training: once the file is repaired, the run continues from the last step
 * before the failure.
 */
TEST(failed_feed)
{
	struct stat status;
	char train[PATH_MAX + 100], name[64];
	snprintf(train, sizeof(train), "data.train=%s",
		 fixture_dataset(&fixture, "spoilt", 325, FIXTURE_RAW, 16));
	const char *path = strchr(train, '/');
	assert_int_equal(stat(path, &status), 0);
	flip_byte(path, status.st_size / 3);
	expect(run("spoilt", train, "data.bad=fail", NULL), 1);
	expect_output("feed: ");
	const char *at = strstr(said, "trainer: step ");
	assert_non_null(at);
	unsigned steps = (unsigned)strtoul(at + 14, NULL, 10) - 1;
	assert_true(steps % 7 && steps % 20); /* no checkpoint was due */
	snprintf(name, sizeof(name), "checkpoint-%08u.safetensors", steps);
	assert_true(exists("spoilt", name));
	snprintf(name, sizeof(name), "--resume continues from step %u", steps);
	expect_output(name);
	flip_byte(path, status.st_size / 3);
	expect(run("spoilt", "--resume", train, "data.bad=fail", NULL), 0);
	same_losses("unbroken", "spoilt");
}

/* Class names are arbitrary text and must be safe for a terminal. */
TEST(hostile_names)
{
	static const char *const names[FIXTURE_CLASSES] = {
		"\x1b[2Jzero\xc2\x9b\u202e\ntrainer: all is well",
		"b",
		"c",
		"d",
		"e",
		"f",
		"g",
		"h",
		"i",
		"j"};
	char val[PATH_MAX + 100];
	snprintf(val, sizeof(val), "data.val=%s",
		 fixture_dataset_of(&fixture, "hostile", 50, FIXTURE_RAW, 16, names));
	expect(run("hostile", "--dry-run", val, NULL), 1);
	expect_output("class 0 is \"\\x1b[2Jzero\\u009b\\u202e\\x0atrainer: all is well\", but");
	assert_null(strchr(said, 0x1b));
}

/* Labels are numbers; evaluation and training must have the same class for each number. */
TEST(other_classes)
{
	static const char *const swapped[FIXTURE_CLASSES] = {
		"one", "zero", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
	static const char *const numbers[FIXTURE_CLASSES] = {"0", "1", "2", "3", "4",
							     "5", "6", "7", "8", "9"};
	static const char *const sorted[FIXTURE_CLASSES] = {"0", "1", "10", "2", "3",
							    "4", "5", "6",  "7", "8"};
	char val[PATH_MAX + 100], train[PATH_MAX + 100];
	snprintf(val, sizeof(val), "data.val=%s",
		 fixture_dataset_of(&fixture, "swapped", 50, FIXTURE_RAW, 16, swapped));
	expect(run("classes", "--dry-run", val, NULL), 1);
	expect_output("data.val = ");
	expect_output("swapped.pimg: class 0 is \"one\", but \"zero\" in data.train = ");
	expect_output("packimg convert --classes FILE");
	snprintf(val, sizeof(val), "data.val=%s",
		 fixture_dataset_of(&fixture, "numbers", 50, FIXTURE_RAW, 16, numbers));
	expect(run("classes", "--dry-run", val, NULL), 0);
	/*
	 * Classes come from directories named by numbers. A dataset without the directory "10"
	 * assigns other labels from class 2 on.
	 */
	snprintf(train, sizeof(train), "data.train=%s",
		 fixture_dataset_of(&fixture, "sorted", 325, FIXTURE_RAW, 16, sorted));
	expect(run("classes", "--dry-run", train, val, NULL), 1);
	expect_output("class 2 is \"2\", but \"10\" in data.train = ");
	snprintf(val, sizeof(val), "data.val=%s",
		 fixture_dataset_of(&fixture, "same", 50, FIXTURE_RAW, 16, sorted));
	expect(run("classes", "--dry-run", train, val, NULL), 0);
}

/*
 * Copies the first `classes` classes of a dataset. Samples of other classes, and every `every`th
 * sample, get no label.
 */
static const char *relabelled(const char *from, const char *name, uint32_t classes, uint64_t every)
{
	static char path[PATH_MAX + 64];
	struct packimg_writer_options options = {0};
	struct packimg_writer *writer;
	struct packimg *dataset;
	struct packimg_sample sample;
	const char *names[FIXTURE_CLASSES];
	snprintf(path, sizeof(path), "%s/%s.pimg", fixture.folder, name);
	assert_int_equal(packimg_open(from, &dataset, NULL), 0);
	assert_int_equal(packimg_writer_new(path, &options, &writer, NULL), 0);
	for (uint64_t i = 0; i < packimg_count(dataset); i++) {
		assert_int_equal(packimg_sample(dataset, i, &sample), 0);
		struct packimg_item item = {
			.data = sample.data,
			.data_size = sample.data_size,
			.width = sample.width,
			.height = sample.height,
			.label = i % every && sample.label < (int32_t)classes ? sample.label
									      : PACKIMG_LABEL_NONE,
			.codec = sample.codec,
			.channels = sample.channels,
			.orientation = sample.orientation,
		};
		assert_int_equal(packimg_writer_add(writer, &item, NULL), 0);
	}
	for (uint32_t i = 0; i < classes; i++)
		names[i] = packimg_class_name(dataset, i);
	assert_int_equal(packimg_writer_classes(writer, names, classes, NULL), 0);
	assert_int_equal(packimg_writer_finish(writer, NULL), 0);
	packimg_writer_free(writer);
	packimg_close(dataset);
	return path;
}

/*
 * Unlabelled samples are neither trained on nor evaluated. The run reports them before its first
 * step.
 */
TEST(unlabelled)
{
	char train[PATH_MAX + 100], val[PATH_MAX + 100], none[PATH_MAX + 100];
	snprintf(none, sizeof(none), "data.val=%s",
		 relabelled(validation, "none", FIXTURE_CLASSES, 1));
	snprintf(val, sizeof(val), "data.val=%s",
		 relabelled(validation, "some-val", FIXTURE_CLASSES, 5));
	snprintf(train, sizeof(train), "data.train=%s",
		 relabelled(fixture_dataset(&fixture, "all", 325, FIXTURE_RAW, 16), "some",
			    FIXTURE_CLASSES, 5));
	expect(run("unlabelled", "--dry-run", NULL), 0);
	assert_int_equal(count_output("no label"), 0);
	expect(run("unlabelled", "--dry-run", train, val, NULL), 0);
	expect_output(
		"some.pimg: 65 of 325 samples have no label: they are part of batches, but do "
		"not contribute to the loss");
	expect_output("some-val.pimg: 10 of 50 samples have no label: evaluation ignores them");
	expect(run("unlabelled", "--dry-run", train, val, "data.class_sampling=balanced", NULL), 0);
	expect_output("some.pimg: 65 of 325 samples have no label: data.class_sampling never draws "
		      "them");
	expect(run("unbroken", "--resume", "--evaluate", "--allow-changes", val, NULL), 0);
	expect_output("some-val.pimg: 10 of 50 samples have no label: evaluation ignores them");
	assert_int_equal(count_output("data.train"), 0);
	expect(run("unlabelled", "--dry-run", none, NULL), 1);
	expect_output("none.pimg: no sample has a label: pack it again, with labels");
}

/* A classifier needs at least two classes. */
TEST(one_class)
{
	char train[PATH_MAX + 100];
	snprintf(train, sizeof(train), "data.train=%s", relabelled(validation, "single", 1, 50));
	expect(run("single", "--dry-run", train, NULL), 1);
	expect_output(
		"single.pimg has one class, but a classifier needs at least 2: pack images of "
		"other classes too, one folder per class");
	/* evaluates the weights without a training set */
	static const float zeros[8];
	struct safetensors_tensor head = {.name = "fc.weight",
					  .type = SAFETENSORS_F32,
					  .rank = 2,
					  .shape = {1, 8},
					  .data = zeros,
					  .size = sizeof(zeros)};
	struct safetensors_writer writer = {.tensors = &head, .count = 1};
	char pretrained[PATH_MAX + 100], error[SAFETENSORS_ERROR_MAX];
	snprintf(pretrained, sizeof(pretrained), "model.pretrained=%s/one.safetensors",
		 fixture.folder);
	assert_int_equal(safetensors_write(strchr(pretrained, '/'), &writer, error), 0);
	expect(run("single", "--evaluate", "data.train=", pretrained, NULL), 1);
	expect_output("one.safetensors has one output, but a classifier needs at least 2 classes: "
		      "use the weights of a classifier");
	expect(run("single", "--dry-run", "model.classes=1", NULL), 1);
	expect_output("model.classes = 1, but a classifier needs at least 2");
}

TEST_MAIN(trainer_setup_unbroken, trainer_teardown)
