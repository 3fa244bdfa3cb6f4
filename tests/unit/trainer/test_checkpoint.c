/*
 * Checkpoints: saving and restoring the complete state, layouts, refused files, and removal of old
 * files in the folder.
 */
#include "tests/test.h"
#include "tests/unit/trainer/trainer_test.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_tensors.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/device/device.h"
#include "trainer/device/params.h"

#include <math.h>
#include <sys/stat.h>

static char folder[] = "/tmp/test_checkpoint.XXXXXX";
static char path[CHECKPOINT_PATH_MAX], error[CHECKPOINT_ERROR_MAX];
static const struct device_optimizer_spec spec = {
	.kind = DEVICE_SGD, .nesterov = true, .ema = true};
static const char settings[] =
	"model.name=resnet_cifar model.depth=8 model.width=0.5 data.train=x.pimg";

/* Weights without any metadata. */
static const struct checkpoint_about no_more;

static int setup(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static const enum device_slot slots[] = {DEVICE_VALUE, DEVICE_STATE, DEVICE_EMA};

/* Fills every slot of every parameter with distinct values. */
static void scribble(struct fixture *fixture)
{
	float next = 1;
	for (size_t i = 0; i < device_params_count(fixture->params); i++) {
		struct device_param *param = device_params_at(fixture->params, i);
		size_t count = device_param_elements(param);
		float *values = malloc(count * sizeof(float));
		for (int s = 0; s < 3; s++) {
			for (size_t k = 0; k < count; k++)
				values[k] = next += 0.25f;
			device_param_write(param, slots[s], values);
		}
		free(values);
	}
}

static void same(struct fixture *a, struct fixture *b)
{
	for (size_t i = 0; i < device_params_count(a->params); i++) {
		struct device_param *x = device_params_at(a->params, i),
				    *y = device_params_at(b->params, i);
		size_t bytes = device_param_elements(x) * sizeof(float);
		float *p = malloc(bytes), *q = malloc(bytes);
		for (int s = 0; s < 3; s++) {
			int r = device_param_read(x, slots[s], p);
			assert_int_equal(device_param_read(y, slots[s], q), r);
			if (!r)
				assert_memory_equal(p, q, bytes);
		}
		free(p);
		free(q);
	}
}

static struct checkpoint_state some_state(void)
{
	return (struct checkpoint_state){
		.step = 25,
		.epoch = 2,
		.batch = 5,
		.batches_per_epoch = 10,
		.dataset_samples = 100,
		.dataset_uuid = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255}},
		.classes = 10,
		.precision = DEVICE_FP32,
		.interval = {0.1, 2, 3, 4, 5},
		.whole = {1.0 / 3, 12, 13, 14, 15},
		.eval_metric = {0.6, 0.9, -2},
		.best_score = 0.7,
		.best_step = 20,
		.train_seconds = 1e-3,
		.images = 250,
		.plateau = {.drops = 3, .improved = 2, .best = 1.0 / 7, .bad = 5, .resting = 6},
		.device = {.updates = 25, .loss_scale = 1},
	};
}

TEST(round_trip)
{
	struct fixture a, b;
	struct checkpoint_state saved = some_state();
	fixture_init(&a, settings, 10, &spec);
	fixture_init(&b, settings, 10, &spec);
	scribble(&a);
	assert_int_equal(checkpoint_path(folder, 25, false, path), 0);
	if (checkpoint_save(path, a.params, &a.recipe, &saved, &no_more, error))
		fail_msg("%s", error);
	struct checkpoint *checkpoint;
	if (checkpoint_open(path, &checkpoint, error))
		fail_msg("%s", error);
	assert_memory_equal(&checkpoint->state, &saved, sizeof(saved));
	assert_string_equal(checkpoint->recipe.model.name, "resnet_cifar");
	assert_string_equal(checkpoint->recipe.data.train, "x.pimg");
	if (checkpoint_restore(checkpoint, b.params, error))
		fail_msg("%s", error);
	same(&a, &b);
	struct device_params_state device;
	assert_int_equal(device_params_get_state(b.params, &device), 0);
	assert_int_equal(device.updates, 25);
	checkpoint_close(checkpoint);
	fixture_deinit(&a);
	fixture_deinit(&b);
}

static void fill_slot(struct device_param *param, enum device_slot slot, float value)
{
	size_t count = device_param_elements(param);
	float *values = malloc(count * sizeof(float));
	for (size_t k = 0; k < count; k++)
		values[k] = value + (float)k;
	assert_int_equal(device_param_write(param, slot, values), 0);
	free(values);
}

/* Expects the values that fill_slot() wrote. */
static void expect_slot(struct device_param *param, enum device_slot slot, float value)
{
	size_t count = device_param_elements(param);
	float *values = malloc(count * sizeof(float));
	assert_int_equal(device_param_read(param, slot, values), 0);
	for (size_t k = 0; k < count; k++)
		assert_true(values[k] == value + (float)k);
	free(values);
}

static void restore_file(struct device_params *params)
{
	struct checkpoint *checkpoint;
	if (checkpoint_open(path, &checkpoint, error))
		fail_msg("%s", error);
	if (checkpoint_restore(checkpoint, params, error))
		fail_msg("%s", error);
	checkpoint_close(checkpoint);
}

/*
 * Earlier versions stored a variance for Muon's matrices too, as AdamW does for all parameters. A
 * run can resume from such a checkpoint; its next checkpoint lacks the variance.
 */
TEST(matrices_without_variance)
{
	static const struct device_optimizer_spec adamw = {.kind = DEVICE_ADAMW},
						  muon = {.kind = DEVICE_MUON, .ns_steps = 5};
	const enum device_slot variance = DEVICE_STATE + 1;
	struct fixture older, a;
	struct checkpoint_state saved = some_state();
	fixture_init(&older, settings, 10, &adamw);
	fixture_init(&a, settings, 10, &muon);
	size_t count = device_params_count(a.params), matrices = 0;
	for (size_t i = 0; i < count; i++) {
		struct device_param *param = device_params_at(older.params, i);
		fill_slot(param, DEVICE_VALUE, (float)i);
		if (!device_param_has(param, DEVICE_STATE))
			continue;
		fill_slot(param, DEVICE_STATE, (float)i + 0.25f);
		fill_slot(param, variance, (float)i + 0.5f);
	}
	snprintf(path, sizeof(path), "%s/muon.safetensors", folder);
	assert_int_equal(
		checkpoint_save(path, older.params, &older.recipe, &saved, &no_more, error), 0);
	restore_file(a.params);
	assert_int_equal(checkpoint_save(path, a.params, &a.recipe, &saved, &no_more, error), 0);
	fixture_deinit(&a);
	fixture_init(&a, settings, 10, &muon);
	restore_file(a.params);
	struct safetensors *file;
	assert_int_equal(safetensors_open(path, &file, error), 0);
	for (size_t i = 0; i < count; i++) {
		struct device_param *param = device_params_at(a.params, i);
		const struct device_param_spec *own = device_param_spec(param);
		char name[2 * DEVICE_NAME_MAX];
		expect_slot(param, DEVICE_VALUE, (float)i);
		if (!device_param_has(param, DEVICE_STATE))
			continue;
		expect_slot(param, DEVICE_STATE, (float)i + 0.25f);
		bool matrix = own->kind == DEVICE_CONV_WEIGHT && !own->outer;
		matrices += matrix;
		snprintf(name, sizeof(name), "optimizer.variance.%s", own->name);
		assert_int_equal(!safetensors_find(file, name), matrix);
		if (!matrix)
			expect_slot(param, variance, (float)i + 0.5f);
	}
	assert_true(matrices > 0);
	safetensors_close(file);
	unlink(path);
	fixture_deinit(&older);
	fixture_deinit(&a);
}

/*
 * Checkpoints of versions that did not record the datasets' UUIDs are accepted; the UUIDs are
 * unknown.
 */
TEST(without_uuids)
{
	struct fixture a;
	struct checkpoint *checkpoint;
	struct checkpoint_state saved = some_state();
	static char bytes[1 << 20];
	fixture_init(&a, settings, 10, &spec);
	snprintf(path, sizeof(path), "%s/old.safetensors", folder);
	assert_int_equal(checkpoint_save(path, a.params, &a.recipe, &saved, &no_more, error), 0);
	FILE *file = fopen(path, "r+");
	size_t size = fread(bytes, 1, sizeof(bytes), file);
	char *key = memmem(bytes, size, "trainer.dataset_uuid", 20);
	char *value = memmem(bytes, size, "01020304-", 9);
	*value = 'g';
	rewind(file);
	fwrite(bytes, 1, size, file);
	fflush(file);
	assert_int_equal(checkpoint_open(path, &checkpoint, error), -EBADMSG);
	assert_non_null(strstr(error, "trainer.dataset_uuid is not a UUID: g1020304-0506-"));
	memcpy(key, "another", 7);
	rewind(file);
	fwrite(bytes, 1, size, file);
	fclose(file);
	if (checkpoint_open(path, &checkpoint, error))
		fail_msg("%s", error);
	assert_false(uuid_known(&checkpoint->state.dataset_uuid));
	checkpoint_close(checkpoint);
	unlink(path);
	fixture_deinit(&a);
}

/* Writes a key of earlier versions, which is shorter, over one of this version. */
static void rename_key(char *bytes, size_t size, const char *key, const char *older)
{
	char *at = memmem(bytes, size, key, strlen(key));
	assert_non_null(at);
	memset(at, ' ', strlen(key));
	memcpy(at, older, strlen(older));
}

/* Checkpoints of versions that only knew classes have other keys of their evaluation. */
TEST(evaluations_of_classes)
{
	struct fixture a;
	struct checkpoint *checkpoint;
	struct checkpoint_state saved = some_state();
	static char bytes[1 << 20];
	saved.eval_metric[2] = 0;
	fixture_init(&a, settings, 10, &spec);
	snprintf(path, sizeof(path), "%s/classes.safetensors", folder);
	assert_int_equal(checkpoint_save(path, a.params, &a.recipe, &saved, &no_more, error), 0);
	FILE *file = fopen(path, "r+");
	size_t size = fread(bytes, 1, sizeof(bytes), file);
	rename_key(bytes, size, "\"trainer.eval_metric[0]\"", "\"trainer.eval_top1\"");
	rename_key(bytes, size, "\"trainer.eval_metric[1]\"", "\"trainer.eval_top5\"");
	rename_key(bytes, size, "\"trainer.eval_metric[2]\"", "\"trainer.unused\"");
	rename_key(bytes, size, "\"trainer.best_score\"", "\"trainer.best_top1\"");
	rewind(file);
	fwrite(bytes, 1, size, file);
	fclose(file);
	if (checkpoint_open(path, &checkpoint, error))
		fail_msg("%s", error);
	assert_memory_equal(&checkpoint->state, &saved, sizeof(saved));
	checkpoint_close(checkpoint);
	unlink(path);
	fixture_deinit(&a);
}

/* A network with a non-finite loss may recover, so its checkpoints must be readable. */
TEST(losses_that_are_not_finite)
{
	static const double losses[] = {NAN, INFINITY, -INFINITY};
	struct fixture a;
	struct checkpoint *checkpoint;
	fixture_init(&a, settings, 10, &spec);
	snprintf(path, sizeof(path), "%s/odd.safetensors", folder);
	for (int i = 0; i < 3; i++) {
		struct checkpoint_state saved = some_state();
		saved.eval_loss = losses[i];
		assert_int_equal(
			checkpoint_save(path, a.params, &a.recipe, &saved, &no_more, error), 0);
		if (checkpoint_open(path, &checkpoint, error))
			fail_msg("%s", error);
		double loss = checkpoint->state.eval_loss;
		assert_true(i ? loss == losses[i] : isnan(loss));
		checkpoint_close(checkpoint);
	}
	struct checkpoint_state saved = some_state();
	saved.train_seconds = NAN;
	assert_int_equal(checkpoint_save(path, a.params, &a.recipe, &saved, &no_more, error), 0);
	assert_int_equal(checkpoint_open(path, &checkpoint, error), -EBADMSG);
	assert_non_null(strstr(error, "trainer.train_seconds is not a number"));
	saved = some_state();
	saved.device.loss_scale = 0;
	assert_int_equal(checkpoint_save(path, a.params, &a.recipe, &saved, &no_more, error), 0);
	assert_int_equal(checkpoint_open(path, &checkpoint, error), -EBADMSG);
	assert_non_null(strstr(error, "trainer.device.loss_scale is 0, expected a number above 0"));
	fixture_deinit(&a);
}

/* Files store convolutions as [O][I][H][W]. */
TEST(layout)
{
	struct fixture a;
	fixture_init(&a, settings, 10, NULL);
	struct device_param *conv = device_params_find(a.params, "layer1.0.conv1.weight");
	float host[8 * 3 * 3 * 8];
	for (int i = 0; i < 8 * 9 * 8; i++)
		host[i] = (float)i;
	assert_int_equal(device_param_write(conv, DEVICE_VALUE, host), 0);
	snprintf(path, sizeof(path), "%s/weights.safetensors", folder);
	const double mean[] = {123.675, 116.28, 103.53}, std[] = {58.395, 57.12, 57.375};
	struct checkpoint_about about = {"top-1 0.5", mean, std, "[\"cat\",\"dog\"]"};
	if (checkpoint_export(path, a.params, DEVICE_VALUE, &about, error))
		fail_msg("%s", error);
	struct safetensors *file;
	assert_int_equal(safetensors_open(path, &file, error), 0);
	const struct safetensors_tensor *tensor = safetensors_find(file, "layer1.0.conv1.weight");
	assert_int_equal(tensor->rank, 4);
	static float values[8 * 8 * 9];
	assert_int_equal(tensor->size, sizeof(values));
	assert_int_equal(safetensors_read(file, tensor, values, error), 0);
	for (int k = 0; k < 8; k++)
		for (int c = 0; c < 8; c++)
			for (int rs = 0; rs < 9; rs++)
				assert_true(values[(k * 8 + c) * 9 + rs] ==
					    (float)((k * 9 + rs) * 8 + c));
	assert_string_equal(safetensors_metadata(file, "trainer.evaluation"), "top-1 0.5");
	assert_string_equal(safetensors_metadata(file, "trainer.mean"), "123.675, 116.28, 103.53");
	assert_string_equal(safetensors_metadata(file, "trainer.std"), "58.395, 57.12, 57.375");
	assert_string_equal(safetensors_metadata(file, "trainer.class_names"), about.class_names);
	assert_null(safetensors_find(file, "ema.fc.weight"));
	safetensors_close(file);
	struct checkpoint *checkpoint;
	assert_int_equal(checkpoint_open(path, &checkpoint, error), -EBADMSG);
	assert_non_null(strstr(error, "model.pretrained"));
	fixture_deinit(&a);
}

static void refuse_metadata(const struct safetensors_entry *metadata, size_t count,
			    const char *words)
{
	struct safetensors_writer writer = {NULL, 0, metadata, count, NULL, NULL};
	struct weights_metadata found;
	snprintf(path, sizeof(path), "%s/odd.safetensors", folder);
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	assert_int_equal(weights_read(path, &found, error), -EBADMSG);
	if (!strstr(error, words))
		fail_msg("\"%s\" does not say \"%s\"", error, words);
}

/* Metadata of weights reads back as written, or fails with an error. */
TEST(metadata_of_weights)
{
	const double mean[] = {123.675, 0, 103.5}, std[] = {58.395, 57.12, 0.001};
	struct checkpoint_about about = {NULL, mean, std, "[\"cat\",\"dog\"]"};
	struct checkpoint_state saved = some_state();
	struct weights_metadata metadata;
	struct fixture a;
	fixture_init(&a, settings, 10, &spec);
	snprintf(path, sizeof(path), "%s/metadata.safetensors", folder);
	for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
		int r = checkpoint
				? checkpoint_save(path, a.params, &a.recipe, &saved, &about, error)
				: checkpoint_export(path, a.params, DEVICE_VALUE, &about, error);
		assert_int_equal(r, 0);
		if (weights_read(path, &metadata, error))
			fail_msg("%s", error);
		assert_string_equal(metadata.file, path);
		assert_int_equal(metadata.classes, 10);
		assert_true(metadata.normalised && metadata.named);
		assert_memory_equal(metadata.mean, mean, sizeof(mean));
		assert_memory_equal(metadata.std, std, sizeof(std));
		assert_int_equal(metadata.class_names.count, 2);
		assert_string_equal(metadata.class_names.name[1], "dog");
		weights_deinit(&metadata);
	}
	assert_int_equal(checkpoint_export(path, a.params, DEVICE_VALUE, &no_more, error), 0);
	assert_int_equal(weights_read(path, &metadata, error), 0);
	assert_false(metadata.normalised || metadata.named);
	weights_deinit(&metadata);
	fixture_deinit(&a);
	static const char *const odd[] = {"1, 2", "1, 2, 3, 4", "1, 2, x",    "1, 2, nan",
					  "",     "1, 2, 3 ",   "1, 2, 1e39", "1, 2, -1e300"};
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		refuse_metadata((struct safetensors_entry[]){{"trainer.mean", odd[i]},
							     {"trainer.std", "1, 2, 3"}},
				2, "expected three numbers each");
	refuse_metadata((struct safetensors_entry[]){{"trainer.mean", "1, 2, 3"},
						     {"trainer.std", "1, 0, 3"}},
			2, "odd.safetensors: metadata trainer.mean = \"1, 2, 3\" and");
	/* means and deviations that are zero or infinite as floats */
	refuse_metadata((struct safetensors_entry[]){{"trainer.mean", "1, 2, 3"},
						     {"trainer.std", "1, 1e-320, 3"}},
			2, "deviations above 0");
	refuse_metadata((struct safetensors_entry[]){{"trainer.mean", "1, 2, 3"},
						     {"trainer.std", "1, 1e300, 3"}},
			2, "expected three numbers each");
	refuse_metadata((struct safetensors_entry[]){{"trainer.mean", "1, 2, 3"}}, 1,
			"trainer.std = \"\"");
	refuse_metadata((struct safetensors_entry[]){{"trainer.class_names", "cat, dog"}}, 1,
			"trainer.class_names: expected a JSON array of texts");
	/* a last layer without elements */
	struct safetensors_tensor head = {
		"fc.weight", SAFETENSORS_F32, 2, {4000000000, 0}, "", 0, 0};
	struct safetensors_writer writer = {.tensors = &head, .count = 1};
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	assert_int_equal(weights_read(path, &metadata, error), -EBADMSG);
	assert_non_null(
		strstr(error, "its last layer has 4000000000 classes, but at most 1000000"));
}

/*
 * Position embeddings larger than any network's are not read, so a sparse file cannot exhaust
 * memory.
 */
TEST(hostile_positions)
{
	enum { SIDE = 257, CHANNELS = 24 };
	struct safetensors_tensor positions = {
		"pos_embed", SAFETENSORS_F32, 3, {1, SIDE * SIDE + 1, CHANNELS}, NULL, 0, 0};
	struct safetensors *source;
	struct fixture a;
	positions.size = (SIDE * SIDE + 1) * CHANNELS * sizeof(float);
	void *data = calloc(positions.size, 1);
	positions.data = data;
	struct safetensors_writer writer = {.tensors = &positions, .count = 1};
	snprintf(path, sizeof(path), "%s/holes.safetensors", folder);
	fixture_init(&a, "model.name=vit_tiny_patch16 model.width=0.125 model.image_size=64", 10,
		     NULL);
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	assert_int_equal(safetensors_open(path, &source, error), 0);
	struct device_param *param = device_params_find(a.params, "pos_embed");
	assert_int_equal(
		checkpoint_import_pos_embed(source, path, safetensors_at(source, 0), param, error),
		-ENOENT);
	safetensors_close(source);
	/* the size of some networks, but with NaN values */
	positions.shape[1] = 5 * 5 + 1;
	positions.size = (5 * 5 + 1) * CHANNELS * sizeof(float);
	memset(data, 0xff, positions.size);
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	assert_int_equal(safetensors_open(path, &source, error), 0);
	assert_int_equal(
		checkpoint_import_pos_embed(source, path, safetensors_at(source, 0), param, error),
		-EBADMSG);
	assert_non_null(strstr(error, "/holes.safetensors: tensor pos_embed has a value that is"));
	safetensors_close(source);
	fixture_deinit(&a);
	free(data);
}

TEST(another_model_is_refused)
{
	struct fixture b;
	struct checkpoint *checkpoint;
	checkpoint_path(folder, 25, false, path);
	assert_int_equal(checkpoint_open(path, &checkpoint, error), 0);
	fixture_init(&b, "model.name=resnet_cifar model.depth=14 model.width=0.5", 10, &spec);
	assert_int_equal(checkpoint_restore(checkpoint, b.params, error), -EBADMSG);
	assert_non_null(strstr(error, "layer1.1.conv1.weight is missing"));
	fixture_deinit(&b);
	fixture_init(&b, "model.name=resnet_cifar model.depth=8 model.width=1", 10, &spec);
	assert_int_equal(checkpoint_restore(checkpoint, b.params, error), -EBADMSG);
	assert_non_null(strstr(
		error,
		"tensor conv1.weight has shape [8, 3, 3, 3], but the model needs [16, 3, 3, 3]"));
	fixture_deinit(&b);
	checkpoint_close(checkpoint);
}

/*
 * Import of another program's weights: F16 and BF16, unknown tensors, and another number of
 * classes.
 */
TEST(import)
{
	struct fixture a, b;
	struct checkpoint_import_result result;
	fixture_init(&a, settings, 10, NULL);
	fixture_init(&b, settings, 7, NULL);
	scribble(&a);
	snprintf(path, sizeof(path), "%s/weights.safetensors", folder);
	assert_int_equal(checkpoint_export(path, a.params, DEVICE_VALUE, &no_more, error), 0);
	if (checkpoint_import(path, NULL, b.params, &result, error))
		fail_msg("%s", error);
	assert_true(result.head_kept);
	float x[16], y[16];
	device_param_read(device_params_find(a.params, "layer2.0.bn1.bias"), DEVICE_VALUE, x);
	device_param_read(device_params_find(b.params, "layer2.0.bn1.bias"), DEVICE_VALUE, y);
	assert_memory_equal(x, y, sizeof(x));
	fixture_deinit(&b);
	/* the file may lack constants, which keep the network's values */
	char blurring[256];
	snprintf(blurring, sizeof(blurring), "%s model.blur=convs", settings);
	fixture_init(&b, blurring, 10, NULL);
	assert_int_equal(model_initialize_constants(b.model), 0);
	assert_int_equal(checkpoint_import(path, NULL, b.params, &result, error), 0);
	struct device_param *filter = device_params_find(b.params, "layer3.0.conv1.blur_filter");
	assert_int_equal(device_param_elements(filter), 16 * 9);
	float line[16 * 9];
	device_param_read(filter, DEVICE_VALUE, line);
	assert_true(line[0] == 0.0625f && line[1] == 0.125f && line[4] == 0.25f);
	fixture_deinit(&b);
	fixture_init(&b, "model.name=resnet_cifar model.depth=14 model.width=0.5", 10, NULL);
	assert_int_equal(checkpoint_import(path, NULL, b.params, &result, error), -EBADMSG);
	assert_non_null(strstr(error, "probably trained with another model.name, model.depth"));
	/* the reverse: the file has all needed tensors, and more */
	assert_int_equal(checkpoint_export(path, b.params, DEVICE_VALUE, &no_more, error), 0);
	assert_int_equal(checkpoint_import(path, NULL, a.params, &result, error), 0);
	assert_false(result.head_kept);
	assert_int_equal(result.unknown_count, 3 * 10); /* one block per stage: two convolutions,
						     and two norms of four tensors each */
	assert_non_null(strstr(result.unknown, "layer1.1."));
	fixture_deinit(&b);
	/* a checkpoint also contains the optimizer's state and the average */
	struct checkpoint_state saved = some_state();
	fixture_init(&b, settings, 10, &spec);
	assert_int_equal(checkpoint_save(path, b.params, &b.recipe, &saved, &no_more, error), 0);
	assert_int_equal(checkpoint_import(path, NULL, a.params, &result, error), 0);
	assert_int_equal(result.unknown_count, 0);
	fixture_deinit(&b);
	fixture_deinit(&a);
}

/* Class names show that an equal number of classes is of different classes. */
TEST(import_of_other_classes)
{
	static const struct {
		const char *theirs, *ours;
		bool head_kept;
	} cases[] = {
		{"[\"cat\",\"dog\"]", "[\"cat\",\"dog\"]", false},
		{"[\"cat\",\"dog\"]", "[\"dog\",\"cat\"]", true},
		{"[\"cat\",\"dog\"]", "[\"cat\",\"truck\"]", true},
		{"[\"cat\",\"dog\"]", "[\"0\",\"1\"]", false},
		{"[\"cat\",\"dog\"]", NULL, false},
		{NULL, "[\"cat\",\"dog\"]", false},
	};
	struct checkpoint_import_result result;
	struct fixture a, b;
	fixture_init(&a, settings, 2, NULL);
	scribble(&a);
	snprintf(path, sizeof(path), "%s/named.safetensors", folder);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		float x[2], y[2];
		struct checkpoint_about about = {.class_names = cases[i].theirs};
		assert_int_equal(checkpoint_export(path, a.params, DEVICE_VALUE, &about, error), 0);
		fixture_init(&b, settings, 2, NULL);
		assert_int_equal(checkpoint_import(path, cases[i].ours, b.params, &result, error),
				 0);
		assert_int_equal(result.head_kept, cases[i].head_kept);
		device_param_read(device_params_find(a.params, "fc.bias"), DEVICE_VALUE, x);
		device_param_read(device_params_find(b.params, "fc.bias"), DEVICE_VALUE, y);
		assert_int_equal(memcmp(x, y, sizeof(x)) != 0, cases[i].head_kept);
		fixture_deinit(&b);
	}
	struct checkpoint_about about = {.class_names = "[3]"};
	assert_int_equal(checkpoint_export(path, a.params, DEVICE_VALUE, &about, error), 0);
	assert_int_equal(checkpoint_import(path, NULL, a.params, &result, error), -EBADMSG);
	assert_non_null(strstr(error, "trainer.class_names: expected a JSON array of texts"));
	fixture_deinit(&a);
}

/*
 * Writes tensors with the names of a model's parameters, except the first few, and `prefix` before
 * each name.
 */
static void write_names(const struct device_params *params, size_t first, const char *prefix)
{
	enum { NAMES_MAX = 64 };
	static char names[NAMES_MAX][128];
	static const float value;
	struct safetensors_tensor tensors[NAMES_MAX];
	struct safetensors_writer writer = {tensors, 0, NULL, 0, NULL, NULL};
	assert_true(device_params_count(params) <= NAMES_MAX);
	for (size_t i = first; i < device_params_count(params); i++, writer.count++) {
		snprintf(names[i], sizeof(names[i]), "%s%s", prefix,
			 device_param_spec(device_params_at(params, i))->name);
		tensors[writer.count] = (struct safetensors_tensor){.name = names[i],
								    .type = SAFETENSORS_F32,
								    .rank = 1,
								    .shape = {1},
								    .data = &value,
								    .size = sizeof(value)};
	}
	if (safetensors_write(path, &writer, error))
		fail_msg("%s", error);
}

/*
 * Weights that import refuses: of a wrapped module (recognised by the names), of another stem, and
 * with NaN values.
 */
TEST(unfit_weights)
{
	struct fixture a;
	struct checkpoint_import_result result;
	float nan_bias[16] = {[5] = NAN};
	fixture_init(&a, settings, 10, NULL);
	snprintf(path, sizeof(path), "%s/unfit.safetensors", folder);
	write_names(a.params, 0, "module.");
	assert_int_equal(checkpoint_import(path, NULL, a.params, &result, error), -EBADMSG);
	assert_non_null(
		strstr(error, "but there is module.conv1.weight: remove the prefix \"module.\""));
	/* layer1.0.conv1.weight is not the conv1.weight of a wrapped module */
	write_names(a.params, 1, "");
	assert_int_equal(checkpoint_import(path, NULL, a.params, &result, error), -EBADMSG);
	assert_non_null(strstr(error, "conv1.weight of the model is missing"));
	assert_null(strstr(error, "remove "));
	scribble(&a);
	struct device_param *bias = device_params_find(a.params, "layer2.0.bn1.bias");
	assert_int_equal(device_param_elements(bias), 16);
	device_param_write(bias, DEVICE_VALUE, nan_bias);
	assert_int_equal(checkpoint_export(path, a.params, DEVICE_VALUE, &no_more, error), 0);
	assert_int_equal(checkpoint_import(path, NULL, a.params, &result, error), -EBADMSG);
	assert_non_null(strstr(error, "tensor layer2.0.bn1.bias has a value that is not finite"));
	fixture_deinit(&a);
}

TEST(narrow_types)
{
	struct fixture a;
	struct checkpoint_import_result result;
	fixture_init(&a, settings, 10, NULL);
	size_t count = device_params_count(a.params);
	struct safetensors_tensor *tensors = calloc(count + 1, sizeof(*tensors));
	uint16_t *data = malloc(65536 * sizeof(*data));
	for (int i = 0; i < 65536; i++)
		data[i] = i % 2 ? 0x3c00 : 0x8001; /* F16 values 1 and -2^-24 */
	for (size_t i = 0; i < count; i++) {
		struct device_param *param = device_params_at(a.params, i);
		const struct device_param_spec *s = device_param_spec(param);
		struct safetensors_tensor *t = &tensors[i];
		*t = (struct safetensors_tensor){
			.name = s->name, .type = SAFETENSORS_F16, .data = data};
		t->size = 2 * device_param_elements(param);
		t->rank = s->kind == DEVICE_CONV_WEIGHT     ? 4
			  : s->kind == DEVICE_LINEAR_WEIGHT ? 2
							    : 1;
		t->shape[0] = s->shape[0];
		t->shape[1] = t->rank == 4 ? s->shape[3] : s->shape[1];
		t->shape[2] = s->shape[1];
		t->shape[3] = s->shape[2];
	}
	tensors[count] = (struct safetensors_tensor){
		"bn1.num_batches_tracked", SAFETENSORS_I64, 0, {0}, data, 8};
	snprintf(path, sizeof(path), "%s/half.safetensors", folder);
	struct safetensors_writer writer = {tensors, count + 1, NULL, 0, NULL, NULL};
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	if (checkpoint_import(path, NULL, a.params, &result, error))
		fail_msg("%s", error);
	assert_false(result.head_kept || result.unknown_count);
	float bias[10];
	device_param_read(device_params_find(a.params, "fc.bias"), DEVICE_VALUE, bias);
	assert_true(bias[0] == -0x1p-24f && bias[1] == 1);
	for (size_t i = 0; i < count; i++)
		tensors[i].type = SAFETENSORS_BF16;
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	assert_int_equal(checkpoint_import(path, NULL, a.params, &result, error), 0);
	device_param_read(device_params_find(a.params, "fc.bias"), DEVICE_VALUE, bias);
	assert_true(bias[1] == 0.0078125f); /* 0x3c00 in BF16 */
	tensors[0].type = SAFETENSORS_I16;
	assert_int_equal(safetensors_write(path, &writer, error), 0);
	assert_int_equal(checkpoint_import(path, NULL, a.params, &result, error), -EBADMSG);
	assert_non_null(strstr(error, "expected F32, F16 or BF16"));
	free(tensors);
	free(data);
	fixture_deinit(&a);
}

/* The file is truncated between opening and restoring, which may happen minutes later. */
TEST(cut_while_open)
{
	struct fixture a;
	struct checkpoint *checkpoint;
	struct checkpoint_state saved = some_state();
	fixture_init(&a, settings, 10, &spec);
	snprintf(path, sizeof(path), "%s/cut.safetensors", folder);
	assert_int_equal(checkpoint_save(path, a.params, &a.recipe, &saved, &no_more, error), 0);
	assert_int_equal(checkpoint_open(path, &checkpoint, error), 0);
	assert_int_equal(truncate(path, 4096), 0);
	assert_int_equal(checkpoint_restore(checkpoint, a.params, error), -EBADMSG);
	assert_non_null(strstr(error, path));
	checkpoint_close(checkpoint);
	fixture_deinit(&a);
}

/*
 * Every truncation of a checkpoint is refused, so that a run never resumes from a file cut short by
 * a crash.
 */
TEST(truncated)
{
	struct checkpoint *checkpoint;
	struct stat status;
	checkpoint_path(folder, 25, false, path);
	assert_int_equal(stat(path, &status), 0);
	for (off_t size = status.st_size - 1; size >= 0; size -= 997) {
		assert_int_equal(truncate(path, size), 0);
		assert_int_equal(checkpoint_open(path, &checkpoint, error), -EBADMSG);
	}
	unlink(path);
}

static void touch(const char *name)
{
	char full[512];
	snprintf(full, sizeof(full), "%s/%s", folder, name);
	FILE *file = fopen(full, "w");
	fclose(file);
}

static bool exists(const char *name)
{
	char full[512];
	snprintf(full, sizeof(full), "%s/%s", folder, name);
	return access(full, F_OK) == 0;
}

TEST(housekeeping)
{
	uint64_t step;
	assert_int_equal(checkpoint_newest(folder, UINT64_MAX, &step, path), -ENOENT);
	touch("checkpoint-00000005.safetensors");
	touch("checkpoint-00000010.safetensors");
	touch("checkpoint-100000000.safetensors");
	touch("checkpoint-00000020.safetensors.123.tmp");
	touch("summary.json.123.tmp");
	touch("notes.123.tmp");
	touch("checkpoint-notes.safetensors");
	touch("checkpoint-999999999999.safetensors ");
	touch("checkpoint-0000000200000000.safetensors");
	touch("checkpoint-+0000300.safetensors");
	touch("best.safetensors");
	assert_int_equal(checkpoint_newest(folder, UINT64_MAX, &step, path), 0);
	assert_int_equal(step, 100000000);
	assert_int_equal(checkpoint_newest(folder, 100000000, &step, path), 0);
	assert_int_equal(step, 10);
	assert_int_equal(checkpoint_prune(folder, 5), 0);
	assert_true(exists("checkpoint-00000005.safetensors"));
	assert_false(exists("checkpoint-00000020.safetensors.123.tmp"));
	assert_false(exists("summary.json.123.tmp"));
	assert_true(exists("notes.123.tmp"));
	assert_int_equal(checkpoint_prune(folder, 2), 0);
	assert_false(exists("checkpoint-00000005.safetensors"));
	assert_true(exists("checkpoint-00000010.safetensors"));
	assert_true(exists("checkpoint-100000000.safetensors"));
	assert_true(exists("checkpoint-notes.safetensors"));
	assert_true(exists("best.safetensors"));
	assert_int_equal(checkpoint_newest("/nonexistent", UINT64_MAX, &step, path), -ENOENT);
}

static const char vit[] = "model.name=vit_tiny_patch16 model.width=0.125 model.image_size";

/* Position embeddings are resized as in timm if the image sizes differ. */
TEST(positions)
{
	struct fixture a, b;
	struct checkpoint_import_result result;
	char network[128];
	float values[82 * 24];
	unsigned side, token, channel, compared = 0, made = 0;
	double expected;
	FILE *file = fopen(GOLDEN_FINETUNE "/positions.txt", "r");
	assert_non_null(file);
	assert_non_null(fgets(network, sizeof(network), file));
	snprintf(network, sizeof(network), "%s=64", vit);
	fixture_init(&a, network, 10, NULL);
	golden_fill(&a, 1);
	for (unsigned i = 0; i < 17 * 24; i++)
		values[i] = (float)sin(0.7 * (i / 24) + 0.3 * (i % 24));
	assert_int_equal(
		device_param_write(device_params_find(a.params, "pos_embed"), DEVICE_VALUE, values),
		0);
	snprintf(path, sizeof(path), "%s/weights.safetensors", folder);
	assert_int_equal(checkpoint_export(path, a.params, DEVICE_VALUE, &no_more, error), 0);
	while (fscanf(file, "%u %u %u %lf", &side, &token, &channel, &expected) == 4) {
		if (side != made) {
			snprintf(network, sizeof(network), "%s=%u", vit, 16 * side);
			fixture_init(&b, network, 10, NULL);
			if (checkpoint_import(path, NULL, b.params, &result, error))
				fail_msg("%s", error);
			assert_true(result.resized);
			device_param_read(device_params_find(b.params, "pos_embed"), DEVICE_VALUE,
					  values);
			fixture_deinit(&b);
			made = side;
		}
		if (!(fabs((double)values[token * 24 + channel] - expected) <= 2e-6))
			fail_msg("side %u, token %u, channel %u: %g, expected %g", side, token,
				 channel, (double)values[token * 24 + channel], expected);
		compared++;
	}
	assert_true(compared > 200);
	fclose(file);
	/* refused: a network without class token is another network */
	snprintf(network, sizeof(network), "%s=96 model.pool=average", vit);
	fixture_init(&b, network, 10, NULL);
	assert_int_equal(checkpoint_import(path, NULL, b.params, &result, error), -EBADMSG);
	fixture_deinit(&b);
	fixture_deinit(&a);
}

TEST_MAIN(setup, teardown)
