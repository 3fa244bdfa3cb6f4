/*
 * Training on several datasets, on chosen samples and with weights of classes: each batch has what
 * the recipe says, and a resumed run continues the order bit for bit.
 */
#include "format/packimg.h"
#include "tests/integration/trainer/trainer_fixture.h"

#include <fcntl.h>
#include <math.h>

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
	expect_output("mixture  3 of every 4 samples from ");
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

/* Shares that change within epochs, of ten batches of 16. */
TEST(changing_shares)
{
	static const char epoch[] = "data.epoch_samples=160",
			  shares[] = "data.shares=3,1@0; 0,1@0.6; 1,1@1.5";
	static struct drawn drawn;
	expect(run("changing", both, epoch, shares, "log.samples=on", NULL), 0);
	expect_output("mixture  3 of every 4 samples, after step 6 none, after step 15 1 of every "
		      "2 samples from ");
	read_samples("changing", &drawn);
	assert_int_equal(drawn.count, 2 * 160);
	for (unsigned i = 0, extra = 0; i < drawn.count; i++) {
		unsigned period = i < 6 * 16 ? 4 : i < 15 * 16 ? 1 : 2;
		extra += drawn.sample[i] >= FIRST;
		if ((i + 1) % period)
			continue;
		assert_int_equal(extra, 1);
		extra = 0;
	}
	expect(run_interrupted("continued", 11, both, epoch, shares, NULL), 0);
	expect_output("resumed at step");
	same_losses("changing", "continued");
	same_file("changing", "continued", "model.safetensors");
	run_killed("changed", 9, both, epoch, shares, NULL);
	expect(run("changed", "--resume", both, epoch, "data.shares=3,1@0; 0,1@0.6", NULL), 1);
	expect_output("data.shares is \"3, 1@0; 0, 1@0.6\" but was \"3, 1@0; 0, 1@0.6; 1, 1@1.5\"");
	/* the second list waits for the first period's end, at 1000 samples, batch 63 */
	expect(run("refused", "--dry-run", both, epoch, "data.shares=995,5@0; 1,1@0.3; 0,1@0.4",
		   NULL),
	       1);
	expect_output("data.shares: stage 2 begins at batch 4, before a period of the shares of");
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

/* Changes the last digit of the order's hash in a checkpoint. */
static void change_order_hash(const char *path)
{
	static const char key[] = "\"trainer.order_hash\":\"";
	char header[1 << 16], digit;
	int fd = open(path, O_RDWR);
	assert_true(pread(fd, header, sizeof(header), 0) > 0);
	char *at = memmem(header, sizeof(header), key, strlen(key));
	assert_non_null(at);
	at = strchr(at + strlen(key), '"') - 1;
	assert_true(at[0] >= '0' && at[0] <= '9');
	digit = at[0] == '5' ? '4' : '5';
	assert_int_equal(pwrite(fd, &digit, 1, at - header), 1);
	close(fd);
}

/* The daemon orders the samples in another way, though recipe and datasets are the same. */
TEST(another_daemon)
{
	expect(run("daemon", both, "train.epochs=1", NULL), 0);
	change_order_hash(run_path("daemon", "checkpoint-00000007.safetensors"));
	expect(run("daemon", "--resume", both, "train.epochs=1", "--dry-run", NULL), 1);
	expect_output("the daemon orders the samples of data.train otherwise than when the "
		      "checkpoint was written");
	expect(run("daemon", "--resume", "--allow-changes", both, "train.epochs=1", "--dry-run",
		   NULL),
	       0);
}

/* A dataset that is replaced before the run opens its feed for the statistics of batch norms. */
TEST(replaced_dataset)
{
	char argument[4 * PATH_MAX], path[PATH_MAX + 64], other[PATH_MAX + 64];
	snprintf(path, sizeof(path), "%s",
		 fixture_dataset(&fixture, "replaced", EXTRA, FIXTURE_RAW, 17));
	snprintf(argument, sizeof(argument), "%s,%s", both, path);
	snprintf(other, sizeof(other), "%s",
		 fixture_dataset(&fixture, "other", EXTRA, FIXTURE_RAW, 18));
	pid_t pid = start("replaced", argument, "train.swa=0.5", "data.shares=1,1,2", NULL);
	wait_for_step("replaced", pid, 2);
	assert_int_equal(rename(other, path), 0);
	expect(finish(pid, "replaced"), 1);
	expect_output("replaced.pimg was replaced by another dataset");
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

/* Copies a dataset, and records statistics that its pixels do not have. */
static const char *with_statistics(const char *from, const char *name, double mean, double std)
{
	static char path[PATH_MAX + 64];
	const double means[] = {mean, mean, mean}, stds[] = {std, std, std};
	struct packimg_writer_options options = {0};
	const char *names[FIXTURE_CLASSES];
	struct packimg_writer *writer;
	struct packimg_sample sample;
	struct packimg *dataset;
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
			.label = sample.label,
			.codec = sample.codec,
			.channels = sample.channels,
			.orientation = sample.orientation,
		};
		assert_int_equal(packimg_writer_add(writer, &item, NULL), 0);
	}
	for (uint32_t i = 0; i < FIXTURE_CLASSES; i++)
		names[i] = packimg_class_name(dataset, i);
	assert_int_equal(packimg_writer_classes(writer, names, FIXTURE_CLASSES, NULL), 0);
	assert_int_equal(packimg_writer_statistics(writer, means, stds), 0);
	assert_int_equal(packimg_writer_finish(writer, NULL), 0);
	packimg_writer_free(writer);
	packimg_close(dataset);
	return path;
}

/* Mean and deviation of a mixture are those of its samples, as often as they are drawn. */
TEST(statistics)
{
	char argument[4 * PATH_MAX], std[128], first[PATH_MAX + 64];
	snprintf(first, sizeof(first), "%s", with_statistics(validation, "dark", 100, 50));
	snprintf(argument, sizeof(argument), "data.train=%s,%s", first,
		 with_statistics(validation, "bright", 140, 30));
	double square = 0.75 * (50 * 50 + 100 * 100) + 0.25 * (30 * 30 + 140 * 140);
	snprintf(std, sizeof(std), "data.std=%.17g,%.17g,%.17g", sqrt(square - 110 * 110),
		 sqrt(square - 110 * 110), sqrt(square - 110 * 110));
	expect(run("recorded", argument, "data.shares=3,1", "train.epochs=1", NULL), 0);
	expect(run("given", argument, "data.shares=3,1", "train.epochs=1", "data.mean=110,110,110",
		   std, NULL),
	       0);
	same_losses("recorded", "given");
}

/* Balanced class weights count labels as often as the mixture draws them. */
TEST(class_weights)
{
	char argument[4 * PATH_MAX], weights[512] = "train.class_weights=";
	/* the second dataset has only five samples, of the first five classes */
	snprintf(argument, sizeof(argument), "%.*s,%s", (int)(strchr(both, ',') - both), both,
		 fixture_dataset(&fixture, "few", 5, FIXTURE_RAW, 16));
	double frequency[FIXTURE_CLASSES], sum = 0;
	for (unsigned i = 0; i < FIXTURE_CLASSES; i++) {
		/* 325 samples, whose first five classes have one more */
		frequency[i] = 3.0 / FIRST * (i < 5 ? 33 : 32) + 1.0 / 5 * (i < 5 ? 1 : 0);
		sum += frequency[i];
	}
	for (unsigned i = 0; i < FIXTURE_CLASSES; i++)
		snprintf(weights + strlen(weights), sizeof(weights) - strlen(weights), "%s%.9g",
			 i ? "," : "", (double)(float)(sum / (FIXTURE_CLASSES * frequency[i])));
	expect(run("counted", argument, "data.shares=3,1", "data.epoch_samples=64",
		   "train.class_weights=balanced", NULL),
	       0);
	expect(run("weighted", argument, "data.shares=3,1", "data.epoch_samples=64", weights, NULL),
	       0);
	same_losses("counted", "weighted");
}

/* The device makes the last transforms of the samples of a mixture. */
TEST(deferred)
{
	expect(run("daemon-last", both, "train.epochs=1", NULL), 0);
	expect(run("device-last", both, "train.epochs=1", "data.augment=device", NULL), 0);
	same_losses("daemon-last", "device-last");
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
	expect(run("refused", "--dry-run", both, "data.shares=1,100", NULL), 1);
	expect_output("extra.pimg: it has 60 samples, fewer than the 100 that it gives to each");
	expect(run("refused", "--dry-run", "data.where=number < 5", NULL), 1);
	expect_output("data.batch_size: rank 0 would never get a batch: 5 samples are fewer than");
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
