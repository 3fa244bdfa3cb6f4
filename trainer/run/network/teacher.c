#include "trainer/run/network/teacher.h"

#include "trainer/algorithms/loss.h"
#include "trainer/algorithms/resampling.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/recipe/recipe_value.h"
#include "trainer/run/hash.h"
#include "trainer/run/network/micro_batch.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool teacher_is_on(const struct teacher *teacher)
{
	return *teacher->ctx->recipe->train.teacher;
}

/* ---- identity ---- */

static int teacher_recipe_of_file(struct teacher *teacher, const struct safetensors *file)
{
	const char *path = teacher->ctx->recipe->train.teacher;
	const char *text = safetensors_metadata(file, "trainer.recipe");
	char error[RECIPE_ERROR_MAX];
	if (!text)
		return run_fail(teacher->ctx, -EINVAL,
				"train.teacher = %.600s does not record its network: set "
				"train.teacher_recipe, for example to the recipe.ini of its run",
				path);
	int r = recipe_load_text(&teacher->recipe, "recipe in the file", text, error);
	return r < 0 ? run_fail(teacher->ctx, r, "train.teacher = %.600s: %s", path, error) : 0;
}

/* Reads the recipe that train.teacher_recipe names, else the one in the teacher's checkpoint. */
static int teacher_read_recipe(struct teacher *teacher)
{
	const struct recipe_train *train = &teacher->ctx->recipe->train;
	char error[RECIPE_ERROR_MAX], problem[CHECKPOINT_ERROR_MAX];
	struct safetensors *file;
	if (*train->teacher_recipe) {
		int r = recipe_load(&teacher->recipe, train->teacher_recipe, error);
		return r < 0 ? run_fail(teacher->ctx, r, "train.teacher_recipe: %s", error) : 0;
	}
	int r = safetensors_open(train->teacher, &file, problem);
	if (r < 0)
		return run_fail(teacher->ctx, r, "train.teacher: %s", problem);
	r = teacher_recipe_of_file(teacher, file);
	safetensors_close(file);
	return r;
}

/* Rejects a recipe whose network cannot process the run's images. */
static int teacher_check_recipe(struct teacher *teacher)
{
	struct recipe *recipe = &teacher->recipe;
	char error[RECIPE_ERROR_MAX];
	char *pipeline = strdup(teacher->ctx->recipe->data.pipeline);
	if (!pipeline)
		return run_fail(teacher->ctx, -ENOMEM, "out of memory");
	free(recipe->data.pipeline);
	recipe->data.pipeline = pipeline;
	int r = recipe_check_pairs(recipe, error);
	return r < 0 ? run_fail(teacher->ctx, r, "the network of train.teacher: %s", error) : 0;
}

/* Computes the mark: a hash of everything that determines the teacher's logits. */
static int teacher_compute_mark(struct teacher *teacher)
{
	const char *path = teacher->ctx->recipe->train.teacher;
	char text[RECIPE_TEXT_MAX];
	uint64_t hash;
	int r = hash_file(path, &hash);
	if (r < 0)
		return run_fail(teacher->ctx, r, "train.teacher = %.600s: %s", path,
				r == -EBADF ? "is not a regular file; trainer --join makes one of "
					      "a sharded checkpoint"
					    : strerror(-r));
	for (size_t i = 0; i < recipe_keys_count; i++) {
		const struct recipe_key *key = &recipe_keys[i];
		if (strcmp(key->section, "model") != 0 || key->resume != RECIPE_WEIGHTS)
			continue;
		memset(text, 0, sizeof(text));
		if (recipe_key_text(&teacher->recipe, key, text, sizeof(text)) < 0)
			return run_fail(teacher->ctx, -ENOSPC,
					"train.teacher_recipe: %s.%s is too long", key->section,
					key->name);
		hash = hash_bytes(hash, text, sizeof(text));
	}
	hash = hash_bytes(hash, teacher->metadata.mean, sizeof(teacher->metadata.mean));
	hash = hash_bytes(hash, teacher->metadata.std, sizeof(teacher->metadata.std));
	teacher->mark = hash ? hash : 1;
	return 0;
}

int teacher_find(struct teacher *teacher)
{
	char error[CHECKPOINT_ERROR_MAX];
	if (!teacher_is_on(teacher))
		return 0;
	int r = recipe_init(&teacher->recipe);
	if (r < 0)
		return run_fail(teacher->ctx, r, "out of memory");
	r = weights_read(teacher->ctx->recipe->train.teacher, &teacher->metadata, error);
	if (r < 0)
		return run_fail(teacher->ctx, r, "train.teacher: %s", error);
	r = teacher_read_recipe(teacher);
	if (r < 0)
		return r;
	r = teacher_check_recipe(teacher);
	if (r < 0)
		return r;
	/* if neither has a normalisation, teacher_normalise() uses the run's */
	weights_complete_normalisation(&teacher->metadata, &teacher->recipe.data);
	return teacher_compute_mark(teacher);
}

int teacher_check_mark(const struct teacher *teacher, uint64_t mark)
{
	uint64_t now = teacher->mark;
	if (mark == now || teacher->ctx->options.allow_changes)
		return 0;
	return run_fail(teacher->ctx, -EINVAL,
			"%s%.600s%s when the checkpoint was written, so losses would differ from "
			"those of an uninterrupted run; use --allow-changes to resume anyway",
			now ? "train.teacher = " : "train.teacher is not set",
			teacher->ctx->recipe->train.teacher,
			!now   ? ", but there was a teacher"
			: mark ? " is another teacher or network than"
			       : " was not there");
}

/* ---- weights ---- */

/* Copies rank 0's recipe, metadata and mark to all ranks. */
static int teacher_share_identity(struct teacher *teacher)
{
	struct run_context *ctx = teacher->ctx;
	int r = ctx->comm->rank ? recipe_init(&teacher->recipe) : 0;
	r = ranks_agree(ctx->comm, r < 0 ? run_fail(ctx, r, "out of memory") : 0, ctx->error);
	if (r < 0)
		return r;
	r = ranks_share_recipe(ctx->comm, &teacher->recipe, ctx->error);
	if (r < 0)
		return r;
	r = ranks_share_metadata(ctx->comm, &teacher->metadata, ctx->error);
	if (r < 0)
		return r;
	r = comm_broadcast(ctx->comm, &teacher->mark, sizeof(teacher->mark), 0);
	return r < 0 ? run_fail(ctx, r, "%s", comm_error(ctx->comm)) : 0;
}

int teacher_init(struct teacher *teacher)
{
	struct run_context *ctx = teacher->ctx;
	uint32_t classes = teacher->data->classes;
	if (!teacher_is_on(teacher))
		return 0;
	int r = teacher_share_identity(teacher);
	if (r < 0)
		return r;
	if (teacher->metadata.classes != classes)
		return run_fail(ctx, -EINVAL,
				"train.teacher = %.600s has %u classes, but the model has %u: both "
				"need the same classes",
				ctx->recipe->train.teacher, teacher->metadata.classes, classes);
	r = device_params_new(ctx->device, &teacher->params);
	if (r == 0)
		r = model_new(&teacher->recipe.model, classes, teacher->params, &teacher->model,
			      ctx->error);
	if (r < 0)
		return r == -ENOMEM ? run_fail(ctx, r, "train.teacher: out of memory") : r;
	r = device_params_allocate(teacher->params, NULL);
	if (r < 0)
		return run_fail(ctx, r, "memory for the parameters of train.teacher: %s",
				run_device_text(ctx, r));
	return 0;
}

static int teacher_import(struct teacher *teacher)
{
	struct run_context *ctx = teacher->ctx;
	const char *file = ctx->recipe->train.teacher;
	char error[CHECKPOINT_ERROR_MAX];
	struct checkpoint_import_result result;
	int r = checkpoint_import(file, teacher->data->class_names, teacher->params, &result,
				  error);
	if (r < 0)
		return run_fail(ctx, r, "train.teacher: %s", error);
	if (result.head_kept)
		return run_fail(ctx, -EINVAL,
				"train.teacher = %.600s has other classes than data.train = %.600s",
				file, ctx->recipe->data.train);
	if (result.unknown_count)
		return run_fail(ctx, -EINVAL,
				"train.teacher = %.600s does not match model.name = %s of its "
				"recipe: the model has no tensor %s%s",
				file, teacher->recipe.model.name, result.unknown,
				result.unknown_count > 1 ? " and others" : "");
	return 0;
}

int teacher_load(struct teacher *teacher)
{
	struct run_context *ctx = teacher->ctx;
	const char *file = ctx->recipe->train.teacher;
	if (!teacher_is_on(teacher))
		return 0;
	int r = model_initialize_constants(teacher->model);
	if (r < 0)
		return run_fail(ctx, r, "train.teacher: %s", run_device_text(ctx, r));
	r = teacher_import(teacher);
	if (r < 0)
		return r;
	uint64_t found = teacher->mark;
	r = teacher_compute_mark(teacher);
	if (r < 0)
		return r;
	if (teacher->mark != found)
		return run_fail(
			ctx, -ESTALE,
			"train.teacher = %.600s changed while the trainer read it: start again",
			file);
	progress_line(&ctx->progress, "teacher: %s from %s", teacher->recipe.model.name, file);
	return 0;
}

int teacher_share(struct teacher *teacher)
{
	if (!teacher_is_on(teacher))
		return 0;
	return ranks_share_params(teacher->ctx->comm, teacher->params, false, teacher->ctx->error);
}

/* ---- graph ---- */

void teacher_drop_graph(struct teacher *teacher)
{
	run_graph_drop(&teacher->graph);
}

static void teacher_free_logits(struct teacher *teacher)
{
	if (teacher->on_device)
		device_memory_free(teacher->ctx->device, teacher->logits);
	else
		free(teacher->logits);
	teacher->logits = NULL;
}

void teacher_deinit(struct teacher *teacher)
{
	teacher_drop_graph(teacher);
	model_free(teacher->model);
	device_params_free(teacher->params);
	weights_deinit(&teacher->metadata);
	recipe_deinit(&teacher->recipe);
	teacher_free_logits(teacher);
}

/* Sets the normalisation of the run's images for the teacher. */
static int teacher_normalise(struct teacher *teacher, enum device_element element,
			     struct model_input *input)
{
	const struct weights_metadata *metadata = &teacher->metadata;
	const char *file = teacher->ctx->recipe->train.teacher;
	bool bytes = element == DEVICE_ELEMENT_U8;
	if (bytes && metadata->named && !metadata->normalised)
		return run_fail(teacher->ctx, -EINVAL,
				"train.teacher = %.600s was trained on floats, which are not "
				"normalised, but data.pipeline delivers u8",
				file);
	if (!bytes && metadata->normalised)
		return run_fail(teacher->ctx, -EINVAL,
				"train.teacher = %.600s was trained on u8, normalised by its "
				"trainer.mean and trainer.std, but data.pipeline delivers floats, "
				"which are not normalised again: remove to() and normalize()",
				file);
	bool known = metadata->std[0] > 0;
	memcpy(input->mean, known ? metadata->mean : teacher->data->mean, sizeof(input->mean));
	memcpy(input->std, known ? metadata->std : teacher->data->std, sizeof(input->std));
	return 0;
}

static size_t teacher_logit_count(const struct teacher *teacher)
{
	return (size_t)data_train_share(teacher->data) * teacher->data->classes;
}

/* Allocates the logits for this rank's part of a batch. */
static int teacher_allocate_logits(struct teacher *teacher)
{
	size_t count = teacher_logit_count(teacher);
	teacher_free_logits(teacher);
	int r = device_memory_new(teacher->ctx->device, count, &teacher->logits);
	teacher->on_device = r == 0;
	if (r == -ENOTSUP) {
		teacher->logits = calloc(count, sizeof(*teacher->logits));
		r = teacher->logits ? 0 : -ENOMEM;
	}
	if (r < 0)
		return run_fail(teacher->ctx, r, "memory for the logits of train.teacher: %s",
				run_device_text(teacher->ctx, r));
	return 0;
}

static int teacher_fail_plan(struct teacher *teacher, int code, const char *error)
{
	const struct run_graph *train = &teacher->student->train;
	return run_fail(teacher->ctx, code,
			"planning train.teacher, a %s, for %u image%s of %u x %u: %s%s",
			teacher->recipe.model.name, train->count, train->count == 1 ? "" : "s",
			train->width, train->height, error,
			code == -ENOMEM && !teacher->ctx->auto_accum
				? ". train.accumulate=auto computes each batch in micro-batches"
				: "");
}

static int teacher_plan_graph(struct teacher *teacher, enum device_element element)
{
	const struct run_graph *train = &teacher->student->train;
	const struct recipe *recipe = teacher->ctx->recipe;
	struct device_graph_options options = {.mode = DEVICE_EVAL};
	struct model_input input = {.count = train->count,
				    .height = train->height,
				    .width = train->width,
				    .resamples = resampling_is_on(recipe)};
	struct loss loss;
	char error[DEVICE_ERROR_MAX] = "";
	uint32_t side = train->height < train->width ? train->height : train->width;
	if (side < model_side_min(teacher->model))
		return run_fail(teacher->ctx, -EINVAL,
				"images of %u x %u are too small for train.teacher, a %s, which "
				"needs at least %u",
				train->width, train->height, teacher->recipe.model.name,
				model_side_min(teacher->model));
	int r = teacher_normalise(teacher, element, &input);
	if (r < 0)
		return r;
	loss_of(recipe, DEVICE_EVAL, NULL, &loss);
	input.loss = loss.spec;
	teacher->graph = *train;
	teacher->graph.graph = NULL;
	r = device_graph_new(teacher->params, &options, &teacher->graph.graph);
	if (r < 0)
		return run_fail(teacher->ctx, r, "graph of train.teacher: %s",
				run_device_text(teacher->ctx, r));
	model_record(teacher->model, teacher->graph.graph, &input);
	r = device_graph_plan(teacher->graph.graph, error);
	return r < 0 ? teacher_fail_plan(teacher, r, error) : 0;
}

int teacher_plan(struct teacher *teacher, enum device_element element)
{
	const struct run_graph *train = &teacher->student->train;
	if (!teacher_is_on(teacher))
		return 0;
	int r = teacher_allocate_logits(teacher);
	if (r < 0 || run_graph_fits(&teacher->graph, train->count, train->height, train->width))
		return r;
	teacher_drop_graph(teacher);
	r = teacher_plan_graph(teacher, element);
	if (r < 0)
		teacher_drop_graph(teacher);
	return r;
}

/* Runs the teacher on a micro-batch. */
static int teacher_forward_slice(struct teacher *teacher, const struct device_batch *slice,
				 float *ret_logits)
{
	struct device_graph *graph = teacher->graph.graph;
	struct device_batch images = *slice;
	uint64_t ticket, step;
	/* the teacher needs no labels */
	images.labels = images.labels2 = NULL;
	images.shares = NULL;
	int r = device_upload(graph, &images, &ticket);
	if (r < 0)
		return r;
	r = device_evaluate(graph, DEVICE_VALUE, &step);
	if (r == 0)
		r = teacher->on_device ? device_logits_keep(graph, ret_logits)
				       : device_logits(graph, ret_logits);
	int fed = device_upload_done(graph, ticket, true);
	return r < 0 ? r : fed;
}

int teacher_forward(struct teacher *teacher, struct device_batch *batch)
{
	uint32_t count = teacher->student->train.count, classes = teacher->data->classes;
	size_t values = (size_t)count * classes;
	if (!teacher_is_on(teacher))
		return 0;
	float scale = (float)model_logit_scale(teacher->model);
	batch->teacher = NULL;
	for (uint32_t part = 0; part < recipe_accumulate(teacher->ctx->recipe); part++) {
		struct device_batch slice = micro_batch(batch, classes, count, part);
		float *logits = teacher->logits + part * values;
		int r = teacher_forward_slice(teacher, &slice, logits);
		if (r < 0)
			return r;
		for (size_t i = 0; i < values && scale != 1 && !teacher->on_device; i++)
			logits[i] *= scale;
	}
	teacher_attach_logits(teacher, batch);
	return 0;
}

void teacher_attach_logits(const struct teacher *teacher, struct device_batch *batch)
{
	if (!teacher_is_on(teacher))
		return;
	batch->teacher = teacher->logits;
	batch->teacher_kept = teacher->on_device;
	batch->teacher_scale = teacher->on_device ? (float)model_logit_scale(teacher->model) : 0;
}

void teacher_diagnose(const struct teacher *teacher, char ret_text[TEACHER_DIAGNOSIS_MAX])
{
	size_t count = teacher_logit_count(teacher), i = 0;
	*ret_text = '\0';
	if (!teacher->on_device)
		return;
	float *logits = malloc(count * sizeof(*logits));
	if (!logits)
		return;
	if (device_memory_read(teacher->ctx->device, teacher->logits, count, logits) == 0) {
		while (i < count && isfinite(logits[i]))
			i++;
		if (i < count)
			snprintf(ret_text, TEACHER_DIAGNOSIS_MAX,
				 " (train.teacher gave the logit %g for class %zu of a sample)",
				 (double)logits[i], i % teacher->data->classes);
	}
	free(logits);
}
