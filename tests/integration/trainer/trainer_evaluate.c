/*
 * Evaluation without training: with weights that record all needed settings except data.val, with
 * weights that record fewer, and the errors for missing settings.
 */
#include "tests/integration/trainer/trainer_fixture.h"

#include <math.h>

static char pretrained[PATH_MAX + 400], bare[PATH_MAX + 400];

/*
 * Writes a run's weights without metadata and without the tensor named left_out, like a file of
 * another program.
 */
static void strip(const char *run_name, const char *left_out, const char *path)
{
	char error[SAFETENSORS_ERROR_MAX];
	struct safetensors *file;
	struct safetensors_tensor tensors[256];
	size_t count = 0;
	assert_int_equal(safetensors_open(run_path(run_name, "model.safetensors"), &file, error),
			 0);
	assert_true(safetensors_count(file) <= 256);
	for (size_t i = 0; i < safetensors_count(file); i++) {
		const struct safetensors_tensor *tensor = safetensors_at(file, i);
		if (strcmp(tensor->name, left_out) == 0)
			continue;
		tensors[count] = *tensor;
		tensors[count].data = values((unsigned)count, file, tensor->name);
		count++;
	}
	struct safetensors_writer writer = {tensors, count, NULL, 0, NULL, NULL};
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	safetensors_close(file);
}

static int setup(void **state)
{
	int r = trainer_setup_unbroken(state);
	snprintf(pretrained, sizeof(pretrained), "model.pretrained=%s",
		 run_path("unbroken", "model.safetensors"));
	snprintf(bare, sizeof(bare), "model.pretrained=%s/bare.safetensors", fixture.folder);
	if (r == 0)
		strip("unbroken", "", strchr(bare, '=') + 1);
	return r;
}

/* Asserts that the result equals the one found in training. */
static void expect_result_of(const char *run_name)
{
	json_t *summary = json_load_file(run_path(run_name, "summary.json"), 0, NULL), *value;
	const char *key, *line = strrchr(said, '{');
	assert_non_null(line);
	json_t *result = json_loads(line, 0, NULL);
	assert_int_equal(json_object_size(result), 4);
	json_object_foreach(result, key, value)
		assert_true(json_equal(value, json_object_get(summary, key)));
	json_decref(result);
	json_decref(summary);
}

static void expect_same_result(void)
{
	expect_result_of("unbroken");
}

/* The training set may be missing or unnamed; batch size and order of training have no effect. */
TEST(without_training_set)
{
	static const char *const trains[] = {"data.train=", "data.train=/nonexistent.pimg"};
	for (int i = 0; i < 2; i++) {
		expect(run("unbroken", "--evaluate", trains[i], pretrained, NULL), 0);
		expect_same_result();
		expect(run("unbroken", "--evaluate", trains[i], "--resume", NULL), 0);
		expect_same_result();
		expect_output("weights from ");
		expect_output("checkpoint-00000040.safetensors");
	}
	expect(run("unbroken", "--evaluate", "--resume", "data.train=", "data.shuffle=no",
		   "data.batch_size=400", "data.val_batch_size=16", NULL),
	       0);
	expect_same_result();
	expect(run("unbroken", "--evaluate", "--resume", "data.train=", "model.width=1", NULL), 1);
	expect_output("model.width is \"1\" but was \"0.5\" in the checkpoint");
	expect(run("unbroken", "--resume", "--dry-run", "data.train=", NULL), 1);
	expect_output("data.train is not set");
}

/* A whitening convolution, computed from training images, is stored like any other. */
TEST(whitened)
{
	const char *const train = "train.epochs=0.3";
	expect(run("white", "model.name=speednet", "model.width=0.25", train, NULL), 0);
	expect(run("white", "--evaluate", "--resume", "model.name=speednet", "model.width=0.25",
		   "data.train=", NULL),
	       0);
}

/*
 * Weights of another program: the recipe or the training set supplies what the weights do not
 * record.
 */
TEST(bare_weights)
{
	char argument[PATH_MAX + 400];
	/* normalised with the statistics of data.train */
	expect(run("bare", "--evaluate", bare, NULL), 0);
	expect_same_result();
	expect(run("bare", "--evaluate", bare, "data.train=", NULL), 1);
	expect_output("bare.safetensors has no normalisation: set data.mean and data.std, or "
		      "data.train, whose dataset records them");
	expect(run("bare", "--evaluate", bare, "data.train=", "data.mean=1,2,3", "data.std=4,5,6",
		   NULL),
	       0);
	expect(run("bare", "--evaluate", bare, "data.train=/nonexistent.pimg", NULL), 1);
	expect_output("bare.safetensors has no class names, so they are read from data.train: set "
		      "data.train= to skip it");
	snprintf(argument, sizeof(argument), "model.pretrained=%s/headless.safetensors",
		 fixture.folder);
	strip("unbroken", "fc.weight", strchr(argument, '=') + 1);
	expect(run("bare", "--evaluate", argument, "data.train=", NULL), 1);
	expect_output("headless.safetensors has no last layer, fc.weight: fine-tune it first");
}

/* Removes keys from a file's metadata by renaming them. */
static void remove_metadata(const char *path, const char *const *keys)
{
	static char bytes[1 << 20];
	FILE *file = fopen(path, "r+");
	size_t size = fread(bytes, 1, sizeof(bytes), file);
	for (; *keys; keys++) {
		char *key = memmem(bytes, size, *keys, strlen(*keys));
		assert_non_null(key);
		*key = 'x';
	}
	rewind(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

/* Checkpoints of earlier versions, which lack some metadata. */
TEST(older_checkpoint)
{
	static const char *const later[] = {"trainer.mean", "trainer.std", "trainer.class_names",
					    NULL};
	expect(run("older", "data.mean=100,110,120", "data.std=50,60,70", NULL), 0);
	remove_metadata(run_path("older", "checkpoint-00000040.safetensors"), later);
	expect(run("older", "--evaluate", "--resume", NULL), 0);
	expect_result_of("older");
	expect(run("older", "--evaluate", "--resume", "data.train=", NULL), 0);
	expect_result_of("older");
	expect(run("older", "--resume", "data.mean=100,110,120", "data.std=50,60,70", NULL), 0);
}

/*
 * A larger network's weights contain all tensors of a smaller one, but were not trained as that
 * network.
 */
TEST(larger_network)
{
	char argument[PATH_MAX + 400];
	expect(run("larger", "model.depth=14", "train.epochs=0.3", NULL), 0);
	snprintf(argument, sizeof(argument), "model.pretrained=%s",
		 run_path("larger", "model.safetensors"));
	expect(run("larger", "--evaluate", argument, NULL), 1);
	expect_output(
		"model.safetensors does not match model.name = resnet_cifar: the model has no "
		"tensor layer1.1.");
	expect(run("begun", argument, "train.epochs=0", "schedule.warmup=0", NULL), 0);
	expect_output("model.safetensors: ignored tensors that the model does not have: layer1.1.");
	expect_output(" and others\n");
}

/*
 * Weights with 12 outputs and no class names are refused for data with 10 classes, unless
 * model.classes = 12 confirms the numbering.
 */
TEST(other_counts)
{
	char argument[PATH_MAX + 400];
	static const char *const statistics[] = {"data.mean=1,2,3", "data.std=4,5,6"};
	expect(run("twelve", "model.classes=12", "train.epochs=0.3", NULL), 0);
	snprintf(argument, sizeof(argument), "model.pretrained=%s/twelve.safetensors",
		 fixture.folder);
	strip("twelve", "", strchr(argument, '=') + 1);
	expect(run("bare", "--evaluate", argument, "data.train=", statistics[0], statistics[1],
		   NULL),
	       1);
	expect_output("val.pimg has 10 classes, but ");
	expect_output("twelve.safetensors has 12, without names: set model.classes=12 to evaluate "
		      "its labels as numbers of these classes");
	expect(run("bare", "--evaluate", argument, "data.train=", "model.classes=12", statistics[0],
		   statistics[1], NULL),
	       0);
}

/* Labels are numbers: in data.val they must mean the same classes as in training. */
TEST(other_names)
{
	static const char *const swapped[FIXTURE_CLASSES] = {
		"one", "zero", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
	char val[PATH_MAX + 100];
	snprintf(val, sizeof(val), "data.val=%s",
		 fixture_dataset_of(&fixture, "swapped", 50, FIXTURE_RAW, 16, swapped));
	expect(run("unbroken", "--evaluate", pretrained, "data.train=", val, NULL), 1);
	expect_output("swapped.pimg: class 0 is \"one\", but \"zero\" in trainer.class_names of ");
	expect_output("model.safetensors: pack it with the same names in the same order (packimg "
		      "convert --classes FILE)");
	expect(run("unbroken", "--evaluate", "--resume", "data.train=", val, NULL), 1);
	expect_output("but \"zero\" in trainer.class_names of ");
	expect_output("checkpoint-00000040.safetensors");
	/* further training keeps the last layer unless the classes differ */
	char train[PATH_MAX + 100];
	snprintf(train, sizeof(train), "data.train=%s", strchr(val, '=') + 1);
	expect(run("further", pretrained, "train.epochs=0.3", NULL), 0);
	assert_null(strstr(said, "afresh"));
	expect(run("swapped", pretrained, train, val, "train.epochs=1", NULL), 0);
	expect_output(
		"model.safetensors; the last layer has other classes and is initialised anew");
}

/*
 * The trainer normalises bytes but not floats: evaluation must use the element type of the
 * training.
 */
TEST(other_elements)
{
	static const char floats[] = "data.val_pipeline=to(f32)";
	expect(run("unbroken", "--evaluate", pretrained, "data.train=", floats, NULL), 1);
	expect_output("model.safetensors was trained on u8, normalised by its trainer.mean");
	expect(run("floats", "data.pipeline=to(f32)", floats, "train.epochs=0.3", NULL), 0);
	expect(run("floats", "--evaluate", "--resume", "data.train=", floats, NULL), 0);
	expect(run("floats", "--evaluate", "--resume", NULL), 1);
	expect_output("set data.mean and data.std, or deliver floats as in training");
}

/* Returns the loss that an evaluation printed. */
static double printed_loss(void)
{
	const char *line = strrchr(said, '{');
	assert_non_null(line);
	json_t *result = json_loads(line, 0, NULL);
	double loss = json_number_value(json_object_get(result, "val_loss"));
	json_decref(result);
	assert_true(loss > 0 && isfinite(loss));
	return loss;
}

/*
 * Images of another size than in training. A vision transformer resizes its position embeddings in
 * each step, with the same result as loading the weights for that size, also on a GPU.
 */
TEST(other_sizes)
{
	static const char size[] = "data.val_pipeline=resize(24)";
	static const char *const vit[] = {"model.name=vit_tiny_patch16", "model.width=0.25",
					  "model.patch=4"};
	char weights[PATH_MAX + 400];
	double trained, other, read;
	expect(run("unbroken", "--evaluate", pretrained, "data.train=", NULL), 0);
	trained = printed_loss();
	expect(run("unbroken", "--evaluate", pretrained, "data.train=", size, NULL), 0);
	assert_true(fabs(printed_loss() - trained) > 1e-4);
	expect(run("vit", vit[0], vit[1], vit[2], "model.image_size=16", "train.epochs=0.3",
		   "optim.lr=0.02", NULL),
	       0);
	snprintf(weights, sizeof(weights), "model.pretrained=%s",
		 run_path("vit", "model.safetensors"));
	expect(run("vit", "--evaluate", weights, "data.train=", vit[0], vit[1], vit[2],
		   "model.image_size=16", NULL),
	       0);
	trained = printed_loss();
	expect(run("vit", "--evaluate", weights, "data.train=", vit[0], vit[1], vit[2],
		   "model.image_size=16", size, NULL),
	       0);
	other = printed_loss();
	expect(run("vit", "--evaluate", weights, "data.train=", vit[0], vit[1], vit[2],
		   "model.image_size=24", size, NULL),
	       0);
	read = printed_loss();
	expect(run_emulated("vit", "--evaluate", weights, "data.train=", vit[0], vit[1], vit[2],
			    "model.image_size=16", size, NULL),
	       0);
	assert_true(fabs(other - trained) > 1e-5);
	assert_true(fabs(other - read) < 1e-5);
	assert_true(fabs(other - printed_loss()) < 1e-4);
	expect(run("vit", "--evaluate", weights, "data.train=", vit[0], vit[1], vit[2],
		   "model.image_size=16", "data.val_pipeline=resize(3)", NULL),
	       1);
	expect_output("images of 3 x 3 are too small for model.name = vit_tiny_patch16, which "
		      "needs at least 4");
}

/*
 * A run that reaches its target ends as finished, ends again if it is resumed with the same target,
 * and continues without one.
 */
TEST(good_enough)
{
	static const char often[] = "train.eval_every=0.5", at[] = "train.stop_at=0.001";
	expect(run("patient", often, "train.stop_after=9", NULL), 0);
	expect(run("enough", often, at, NULL), 0);
	expect_output("stopping at epoch 0.5: top-1 of ");
	expect_end("enough", "finished", NULL);
	assert_true(exists("enough", "model.safetensors"));
	assert_true(exists("enough", "checkpoint-00000010.safetensors"));
	expect(run("enough", "--resume", often, at, NULL), 0);
	expect_output("reached train.stop_at = 0.001");
	assert_false(exists("enough", "checkpoint-00000020.safetensors"));
	expect(run("enough", "--resume", often, NULL), 0);
	same_losses("enough", "patient");
	same_file("enough", "patient", "model.safetensors");
}

/* Weights that do not change are best at the first evaluation. */
TEST(in_vain)
{
	static const char still[] = "optim.lr=0", often[] = "train.eval_every=0.25",
			  statistics[] = "model.bn_momentum=0";
	expect(run("vain", still, often, statistics, "train.ema=0", "train.stop_after=2", NULL), 0);
	expect_output("stopping at epoch 0.75: top-1 has not improved on ");
	expect_output("at step 5 for train.stop_after = 2 evaluations");
	/* if the run stops early, the averaged weights are final */
	expect(run("vain-mean", still, often, "train.ema=0", "train.swa=0.25",
		   "train.swa_every=0.25", "train.stop_at=0.001", NULL),
	       0);
	struct losses losses;
	read_log("vain-mean", &losses);
	assert_in_range(losses.evals, 2, 3);
	assert_string_not_equal(losses.eval[losses.evals - 2], losses.eval[losses.evals - 1]);
	expect(run("blind", "train.stop_after=2", "train.eval_every=0", NULL), 1);
	expect_output("train.eval_every = 0 leaves only the one at the end");
	expect(run("blind", "train.stop_at=0.5", "data.val=", "data.val_pipeline=", NULL), 1);
	expect_output("train.stop_at depends on evaluations, but data.val is not set");
}

TEST_MAIN(setup, trainer_teardown)
