/*
 * Makes the seeds of fuzz_checkpoint, fuzz_checkpoint_index and fuzz_recipe:
 * make_trainer_corpus tests/fuzz/corpus
 */
#include "tests/fuzz/support/checkpoint_case.h"
#include "tests/fuzz/support/sharded_case.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/device.h"
#include "trainer/device/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char path[4096], error[CHECKPOINT_ERROR_MAX];

static const char *place(const char *root, const char *folder, const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", root, folder);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%s/%s", root, folder, name);
	return path;
}

static void check(int r)
{
	if (r == 0)
		return;
	fprintf(stderr, "%s: %s\n", path, error);
	exit(1);
}

static void checkpoints(const char *root, struct device_params *params, const struct recipe *recipe)
{
	struct checkpoint_state state = {
		.step = 25,
		.epoch = 2,
		.batch = 5,
		.batches_per_epoch = 10,
		.dataset_samples = 100,
		.classes = 3,
		.precision = DEVICE_FP32,
		.best_score = -INFINITY,
		.device = {.updates = 25, .loss_scale = 1},
	};
	static const double colour[3] = {124, 116.5, 104};
	struct checkpoint_about about = {.evaluation = "step 25, top-1 0.5, top-5 0.75",
					 .mean = colour,
					 .std = colour,
					 .class_names = "[\"cat\",\"dog\",\"\u00e9l\u00e9phant\"]"};
	check(checkpoint_save(place(root, "checkpoint", "whole"), params, recipe, &state, &about,
			      error));
	check(checkpoint_export(place(root, "checkpoint", "weights"), params, DEVICE_EMA, &about,
				error));
}

/*
 * Resembles a file of another program: narrow element types, other classes, a tensor that the store
 * does not have.
 */
static void foreign(const char *root)
{
	static const uint16_t data[16] = {0x3c00, 0x8001, 0x7c01};
	struct safetensors_tensor tensors[] = {
		{"conv1.weight", SAFETENSORS_F16, 4, {2, 2, 1, 3}, data, 24},
		{"bn1.weight", SAFETENSORS_BF16, 1, {2}, data, 4},
		{"bn1.running_mean", SAFETENSORS_F16, 1, {2}, data, 4},
		{"bn1.num_batches_tracked", SAFETENSORS_I64, 0, {0}, data, 8},
		{"fc.weight", SAFETENSORS_F16, 2, {5, 2}, data, 20},
		{"empty", SAFETENSORS_BOOL, 2, {0, 7}, data, 0},
	};
	struct safetensors_writer writer = {tensors, 6, NULL, 0, NULL, NULL};
	check(safetensors_write(place(root, "checkpoint", "foreign"), &writer, error));
}

/* With the metadata of the whole checkpoint. */
static void sharded(const char *root)
{
	struct safetensors *whole;
	size_t count;
	check(safetensors_open(place(root, "checkpoint", "whole"), &whole, error));
	struct safetensors_entry *metadata = safetensors_entries(whole, &count);
	FILE *file = fopen(place(root, "checkpoint_index", "whole"), "w");
	if (!file || !metadata)
		check(-1);
	sharded_case_print(file, metadata, count);
	if (fclose(file))
		check(-1);
	free(metadata);
	safetensors_close(whole);
}

static void recipes(const char *root, const struct recipe *recipe)
{
	static const char words[] =
		"; words\n[data]\ntrain = a b.pimg\npipeline = random_resized_crop(\n"
		"\tsize=128@0;160@6,\n\tscale=0.35:1) hflip(0.5)\nshuffle = off\nmean = 1, 2.5 ,3\n"
		"[schedule]\nname = multi_step\nmilestones = 1,\n\t2.5\n[optim]\nlr = 1e-2\n";
	static const char word[] = "[data]\nval = /folder/of/a/long/na\\\n\tme\\\n # or ;2\n";
	FILE *file = fopen(place(root, "recipe", "whole"), "w");
	if (!file || recipe_write(recipe, file) || fclose(file))
		check(-1);
	file = fopen(place(root, "recipe", "words"), "w");
	if (!file || fputs(words, file) < 0 || fclose(file))
		check(-1);
	file = fopen(place(root, "recipe", "word"), "w");
	if (!file || fputs(word, file) < 0 || fclose(file))
		check(-1);
}

int main(int argc, char **argv)
{
	struct device *device;
	struct device_params *params;
	struct recipe recipe;
	if (argc != 2 || checkpoint_case_open(&device, &params) < 0 || recipe_init(&recipe))
		return 2;
	checkpoints(argv[1], params, &recipe);
	foreign(argv[1]);
	sharded(argv[1]);
	recipes(argv[1], &recipe);
	recipe_deinit(&recipe);
	device_params_free(params);
	device_close(device);
	return 0;
}
