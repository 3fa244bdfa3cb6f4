/*
 * Training on several datasets, on chosen samples and with weights of classes: each batch has what
 * the recipe says, and a resumed run continues the order bit for bit.
 */
#include "tests/integration/trainer/trainer_fixture.h"

#include <signal.h>

enum { FIRST = 325, EXTRA = 60, SAMPLES_MAX = 4096 };

static char both[2 * PATH_MAX]; /* data.train=, of two datasets */

/* Samples in the order of the run, as it logged them. */
struct drawn {
	unsigned count;
	uint64_t sample[SAMPLES_MAX];
};

static void read_samples(const char *run, struct drawn *drawn)
{
	FILE *file = fopen(run_path(run, "samples.jsonl"), "r");
	json_t *line, *value;
	size_t i;
	assert_non_null(file);
	drawn->count = 0;
	while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL))) {
		json_array_foreach(json_object_get(line, "samples"), i, value)
		{
			assert_true(drawn->count < SAMPLES_MAX);
			drawn->sample[drawn->count++] = (uint64_t)json_integer_value(value);
		}
		json_decref(line);
	}
	fclose(file);
}

/* Three samples of the first dataset and one of the second in every period of four. */
TEST(mixture)
{
	static struct drawn drawn;
	expect(run("mixture", both, "data.shares=3,1", "log.samples=on", NULL), 0);
	read_samples("mixture", &drawn);
	/* an epoch ends before the second dataset would begin anew: after 15 batches of 16 */
	assert_int_equal(drawn.count, 2 * 15 * 16);
	for (unsigned i = 0; i < drawn.count; i += 4) {
		unsigned extra = 0;
		for (unsigned k = 0; k < 4; k++) {
			assert_true(drawn.sample[i + k] < FIRST + EXTRA);
			extra += drawn.sample[i + k] >= FIRST;
		}
		assert_int_equal(extra, 1);
	}
	expect(run_interrupted("broken", 11, both, "data.shares=3,1", NULL), 0);
	expect_output("resumed at step");
	same_losses("mixture", "broken");
	same_file("mixture", "broken", "model.safetensors");
	/* fractions in the same proportion */
	expect(run("fractions", both, "data.shares=0.75, 0.25", NULL), 0);
	same_losses("mixture", "fractions");
}

/* A run cannot go on with another order, and says what differs. */
TEST(another_order)
{
	char swapped[2 * PATH_MAX], *comma = strchr(both, ',');
	snprintf(swapped, sizeof(swapped), "data.train=%s,%.*s", comma + 1,
		 (int)(comma - strchr(both, '/')), strchr(both, '/'));
	run_killed("order", 9, both, "data.shares=3,1", NULL);
	expect(run("order", "--resume", both, "data.shares=1,1", NULL), 1);
	expect_output("data.shares is \"1, 1\" but was \"3, 1\" in the checkpoint");
	expect(run("order", "--resume", both, "data.shares=3,1", "data.where=label < 5", NULL), 1);
	expect_output("data.where is \"label < 5\" but was \"\" in the checkpoint");
	expect(run("order", "--resume", both, "data.shares=3,1", "data.ends=last", NULL), 1);
	expect_output("data.ends is \"last\" but was \"first\" in the checkpoint: the run cannot "
		      "continue");
	expect(run("order", "--resume", swapped, "data.shares=3,1", NULL), 1);
	expect_output("contains another dataset (");
	expect(run("order", "--resume", "--allow-changes", both, "data.shares=1,1", NULL), 1);
	expect_output("an epoch has 7 batches, but had 15 when the checkpoint was written");
}

/* Balanced draws from a filtered dataset in which two classes have most samples. */
TEST(class_sampling)
{
	static const char where[] = "data.where=label in (0, 1) or number < 30";
	static struct drawn drawn;
	unsigned counts[2][FIXTURE_CLASSES] = {{0}};
	static const char *const sampling[] = {"data.class_sampling=",
					       "data.class_sampling=balanced"};
	for (int balanced = 0; balanced < 2; balanced++) {
		const char *name = balanced ? "balanced" : "filtered";
		expect(run(name, where, sampling[balanced], "log.samples=on",
			   "data.epoch_samples=320", "train.epochs=1", NULL),
		       0);
		read_samples(name, &drawn);
		assert_int_equal(drawn.count, 320);
		for (unsigned i = 0; i < drawn.count; i++) {
			uint64_t sample = drawn.sample[i];
			assert_true(sample % 10 < 2 || sample < 30);
			counts[balanced][sample % 10]++;
		}
	}
	/* 66 of the 90 samples are of the first two classes */
	assert_true(counts[0][0] + counts[0][1] > 220);
	for (unsigned i = 0; i < FIXTURE_CLASSES; i++)
		if (counts[1][i] < 16 || counts[1][i] > 50)
			fail_msg("%u of 320 draws are of class %u", counts[1][i], i);
	expect(run("weights", "data.class_sampling=0,0,0,1,0,0,0,0,0,0", "log.samples=on",
		   "train.epochs=0.5", NULL),
	       0);
	read_samples("weights", &drawn);
	for (unsigned i = 0; i < drawn.count; i++)
		assert_int_equal(drawn.sample[i] % 10, 3);
}

/* What does not fit together is refused before the first step. */
TEST(refused)
{
	static const char *const swapped[FIXTURE_CLASSES] = {
		"one", "zero", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
	char argument[4 * PATH_MAX];
	snprintf(argument, sizeof(argument), "%s,%s", both,
		 fixture_dataset_of(&fixture, "swapped", 50, FIXTURE_RAW, 16, swapped));
	expect(run("refused", "--dry-run", argument, NULL), 1);
	expect_output("data.train: class 0 is \"one\" in ");
	expect_output("swapped.pimg, but \"zero\" in ");
	expect(run("refused", "--dry-run", both, "data.class_sampling=1,2", NULL), 1);
	expect_output("data.class_sampling has 2 numbers, but data.train = ");
	expect(run("refused", "--dry-run", both, "data.where=width >", NULL), 1);
	expect_output("data.where: ");
	expect(run("refused", "--dry-run", "data.where=number < 0", NULL), 1);
	expect_output("data.where: the filter holds for none of the samples");
	expect(run("refused", "--dry-run", "data.where=label < 5",
		   "data.class_sampling=0,0,0,0,0,0,0,0,0,1", NULL),
	       1);
	expect_output("data.class_sampling: all classes that have samples have the weight 0");
	expect(run("refused", "--dry-run", "data.where=number < 5", NULL), 1);
	expect_output("batch_size: rank 0 would never get a batch: 5 samples are fewer than");
}

static int setup(void **state)
{
	trainer_setup(state);
	int length = snprintf(both, sizeof(both), "data.train=%s,",
			      fixture_dataset(&fixture, "first", FIRST, FIXTURE_RAW, 16));
	snprintf(both + length, sizeof(both) - (size_t)length, "%s",
		 fixture_dataset(&fixture, "extra", EXTRA, FIXTURE_RAW, 17));
	return 0;
}

TEST_MAIN(setup, trainer_teardown)
