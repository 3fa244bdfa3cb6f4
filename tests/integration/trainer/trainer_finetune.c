/*
 * Fine-tuning: layers frozen for the whole run, for some epochs, or one after the other; learning
 * rates that decay by layer. Runs are also resumed, and repeated on an emulated GPU.
 */
#include "tests/integration/trainer/trainer_fixture.h"

static struct safetensors *checkpoint(const char *name, unsigned step)
{
	char file[64], error[SAFETENSORS_ERROR_MAX];
	struct safetensors *opened = NULL;
	snprintf(file, sizeof(file), "checkpoint-%08u.safetensors", step);
	if (safetensors_open(run_path(name, file), &opened, error))
		fail_msg("%s", error);
	return opened;
}

/* Returns true if a tensor is the same in a run's checkpoints after an epoch and at the end. */
static bool is_unchanged(const char *name, const char *tensor)
{
	struct safetensors *then = checkpoint(name, STEPS / 2), *now = checkpoint(name, STEPS);
	size_t size = safetensors_find(then, tensor)->size;
	bool same = memcmp(values(0, then, tensor), values(1, now, tensor), size) == 0;
	safetensors_close(then);
	safetensors_close(now);
	return same;
}

/* layer1 is frozen for an epoch, the layers before it for the whole run. */
static const char freeze[] = "train.freeze=conv1.* bn1.*, layer1.*:1",
		  keep[] = "checkpoint.keep=99", adamw[] = "optim.name=adamw",
		  lr[] = "optim.lr=0.005", begin[] = "train.freeze_start=0.1";

/* Repeats the run `whole`: killed after `step` steps, and resumed. */
static void resume_from(const char *whole, const char *name, unsigned step, const char *setting)
{
	expect(run_interrupted(name, step, setting, keep, adamw, lr, begin, NULL), 0);
	same_losses(whole, name);
	same_file(whole, name, "model.safetensors");
}

static void compare_emulated(const char *whole, const char *name, const char *setting)
{
	expect(run_emulated(name, setting, keep, adamw, lr, begin, NULL), 0);
	assert_true(max_difference(whole, name) < 1e-3);
}

TEST(frozen)
{
	static const char zeros[4096];
	expect(run("frozen", freeze, keep, adamw, lr, begin, NULL), 0);
	expect_output("step 20: training the parameters that train.freeze froze for 1 epochs");
	assert_true(is_unchanged("frozen", "conv1.weight"));
	assert_true(is_unchanged("frozen", "bn1.weight"));
	assert_true(is_unchanged("frozen", "bn1.running_mean"));
	assert_false(is_unchanged("frozen", "layer1.0.conv1.weight"));
	assert_false(is_unchanged("frozen", "layer1.0.bn1.running_var"));
	assert_false(is_unchanged("frozen", "layer2.0.conv1.weight"));
	struct safetensors *then = checkpoint("frozen", STEPS / 2);
	static const char moments[] = "optimizer.variance.layer1.0.conv1.weight";
	assert_memory_equal(values(0, then, moments), zeros, safetensors_find(then, moments)->size);
	safetensors_close(then);
	/* resume before and after the layers thaw */
	resume_from("frozen", "frozen-early", 12, freeze);
	resume_from("frozen", "frozen-late", 31, freeze);
	compare_emulated("frozen", "frozen-gpu", freeze);
	assert_true(is_unchanged("frozen-gpu", "bn1.running_mean"));
	assert_false(is_unchanged("frozen-gpu", "layer1.0.conv1.weight"));
}

/* After the first of two epochs, a fraction 0.4 / 0.9 of all layers but the last is frozen. */
TEST(layers)
{
	static const char level[] = "train.freeze_level=1";
	expect(run("layers", level, keep, adamw, lr, begin, NULL), 0);
	expect_output("step 20: the first 8 of 19 layers are now frozen");
	assert_true(is_unchanged("layers", "conv1.weight"));
	assert_true(is_unchanged("layers", "layer2.0.downsample.1.bias"));
	assert_false(is_unchanged("layers", "bn1.running_mean"));
	assert_false(is_unchanged("layers", "layer2.0.conv1.weight"));
	assert_false(is_unchanged("layers", "fc.bias"));
	resume_from("layers", "layers-early", 12, level);
	resume_from("layers", "layers-late", 31, level);
	compare_emulated("layers", "layers-gpu", level);
	assert_true(is_unchanged("layers-gpu", "layer2.0.downsample.1.bias"));
	assert_false(is_unchanged("layers-gpu", "layer2.0.conv1.weight"));
	expect(run("refused", level, freeze, NULL), 1);
	expect_output("cannot be combined: one freezes parameters by name");
}

TEST(refused)
{
	expect(run("refused", "train.freeze=bn1.* layr1.*", NULL), 1);
	expect_output("train.freeze: no parameter is named \"layr1.*\"; did you mean layer1.*?");
	expect(run("refused", "train.freeze=layer1.0.conv1.wieght", NULL), 1);
	expect_output("did you mean layer1.0.conv1.weight?");
	expect(run("refused", "train.freeze=layer1.*:soon", NULL), 1);
	expect_output("\"layer1.*:soon\": expected a number of epochs above 0 after the colon");
	expect(run("refused", "train.freeze=layr[[:digit:]].*", NULL), 1);
	expect_output("no parameter is named \"layr[[:digit:]].*\"; did you mean layer");
	expect(run("refused", "train.freeze=layer[[:digit:]].*:soon", NULL), 1);
	expect_output(
		"\"layer[[:digit:]].*:soon\": expected a number of epochs above 0 after the colon");
	expect(run("refused", "train.freeze=[[:alnum:]]*", NULL), 1);
	expect_output("train.freeze = [[:alnum:]]* freezes all parameters");
	expect(run("refused", "train.freeze=*", NULL), 1);
	expect_output("train.freeze = * freezes all parameters");
}

TEST(layer_decay)
{
	static const char decay[] = "optim.layer_decay=0.5";
	expect(run("decayed", decay, NULL), 0);
	expect(run_interrupted("decayed-killed", 17, decay, NULL), 0);
	same_losses("decayed", "decayed-killed");
	assert_true(max_difference("decayed", "unbroken") > 1e-3);
	expect(run_emulated("decayed-gpu", decay, NULL), 0);
	assert_true(max_difference("decayed", "decayed-gpu") < 1e-3);
}

TEST_MAIN(trainer_setup_unbroken, trainer_teardown)
