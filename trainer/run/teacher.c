/*
 * Knowledge distillation (Hinton, Vinyals, Dean 2015: "Distilling the Knowledge in a Neural
 * Network", arXiv:1503.02531, section 2): a trained network, the teacher, sees each batch as the
 * model does, blended, thinned out and resized; its logits become targets in addition to the labels
 * (struct device_loss_spec). It has a separate store and evaluation graph on the run's device.
 * Checkpoints only contain a mark that identifies it.
 *
 * Its logits are computed once per update. They stay in device memory if that is separate, and pass
 * through the host otherwise; perturbed passes (train.sam) reuse them.
 */
#include "trainer/algorithms/loss.h"
#include "trainer/recipe/recipe_value.h"
#include "trainer/run/hash.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool teacher_is_on(const struct run *run)
{
	return *run->recipe->train.teacher;
}

/* ---- identity ---- */

/* Reads the recipe given by name, or the teacher checkpoint's. */
static int teacher_read_recipe(struct run *run)
{
	const struct recipe_train *train = &run->recipe->train;
	struct recipe *recipe = &run->teacher.recipe;
	char error[RECIPE_ERROR_MAX], problem[CHECKPOINT_ERROR_MAX];
	struct safetensors *file;
	if (*train->teacher_recipe) {
		int r = recipe_load(recipe, train->teacher_recipe, error);
		return r ? run_fail(run, r, "train.teacher_recipe: %s", error) : 0;
	}
	int r = safetensors_open(train->teacher, &file, problem);
	if (r)
		return run_fail(run, r, "train.teacher: %s", problem);
	const char *text = safetensors_metadata(file, "trainer.recipe");
	if (!text)
		r = run_fail(run, -EINVAL,
			     "train.teacher = %.600s does not say what network it is: give "
			     "train.teacher_recipe, such as the recipe.ini of its run",
			     train->teacher);
	else if ((r = recipe_load_text(recipe, "recipe in the file", text, error)))
		run_fail(run, r, "train.teacher = %.600s: %s", train->teacher, error);
	safetensors_close(file);
	return r;
}

/* Refuses recipes whose network cannot take the run's images. */
static int teacher_check_recipe(struct run *run)
{
	struct recipe *recipe = &run->teacher.recipe;
	char error[RECIPE_ERROR_MAX];
	char *pipeline = strdup(run->recipe->data.pipeline);
	if (!pipeline)
		return run_fail(run, -ENOMEM, "out of memory");
	free(recipe->data.pipeline);
	recipe->data.pipeline = pipeline;
	int r = recipe_check_pairs(recipe, error);
	return r ? run_fail(run, r, "the network of train.teacher: %s", error) : 0;
}

/* Takes the normalisation from the file, else from its recipe, else the run's. */
static void teacher_take_normalisation(struct teacher *teacher)
{
	struct weights_metadata *metadata = &teacher->metadata;
	const struct recipe_data *data = &teacher->recipe.data;
	if (metadata->normalised || metadata->named || data->mean.count != 3 ||
	    data->std.count != 3)
		return;
	memcpy(metadata->mean, data->mean.value, sizeof(metadata->mean));
	memcpy(metadata->std, data->std.value, sizeof(metadata->std));
}

/* Hash of everything that determines its logits. */
static int teacher_mark(struct run *run)
{
	struct teacher *teacher = &run->teacher;
	char text[RECIPE_TEXT_MAX];
	uint64_t hash;
	int r = hash_file(run->recipe->train.teacher, &hash);
	if (r)
		return run_fail(run, r, "train.teacher = %.600s: %s", run->recipe->train.teacher,
				r == -EBADF ? "is not a regular file" : strerror(-r));
	for (size_t i = 0; i < recipe_keys_count; i++) {
		const struct recipe_key *key = &recipe_keys[i];
		if (strcmp(key->section, "model") != 0 || key->resume != RECIPE_WEIGHTS)
			continue;
		memset(text, 0, sizeof(text));
		if (recipe_key_text(&teacher->recipe, key, text, sizeof(text)) < 0)
			return run_fail(run, -ENOSPC, "train.teacher_recipe: %s.%s is too long",
					key->section, key->name);
		hash = hash_bytes(hash, text, sizeof(text));
	}
	hash = hash_bytes(hash, teacher->metadata.mean, sizeof(teacher->metadata.mean));
	hash = hash_bytes(hash, teacher->metadata.std, sizeof(teacher->metadata.std));
	teacher->mark = hash ? hash : 1;
	return 0;
}

int run_find_teacher(struct run *run)
{
	struct teacher *teacher = &run->teacher;
	char error[CHECKPOINT_ERROR_MAX];
	if (!teacher_is_on(run))
		return 0;
	int r = recipe_init(&teacher->recipe);
	if (r)
		return run_fail(run, r, "out of memory");
	r = weights_read(run->recipe->train.teacher, &teacher->metadata, error);
	if (r)
		return run_fail(run, r, "train.teacher: %s", error);
	r = teacher_read_recipe(run);
	if (!r)
		r = teacher_check_recipe(run);
	if (r)
		return r;
	teacher_take_normalisation(teacher);
	return teacher_mark(run);
}

int run_check_teacher(struct run *run)
{
	uint64_t then = run->checkpoint->state.teacher, now = run->teacher.mark;
	if (then == now || run->options.allow_changes)
		return 0;
	return run_fail(run, -EINVAL,
			"%s%.600s%s when the checkpoint was written: the losses would differ from "
			"an unbroken run; --allow-changes goes on all the same",
			now ? "train.teacher = " : "train.teacher is not set",
			run->recipe->train.teacher,
			!now   ? ", but a teacher was there"
			: then ? " is another teacher, or of another network, than"
			       : " was not there");
}

/* ---- weights ---- */

int run_make_teacher(struct run *run)
{
	struct teacher *teacher = &run->teacher;
	if (!teacher_is_on(run))
		return 0;
	int r = run->comm->rank ? recipe_init(&teacher->recipe) : 0;
	r = ranks_agree(run->comm, r ? run_fail(run, r, "out of memory") : 0, run->error);
	if (!r)
		r = ranks_share_recipe(run->comm, &teacher->recipe, run->error);
	if (r)
		return r;
	struct weights_metadata metadata = teacher->metadata;
	if (comm_broadcast(run->comm, &metadata, sizeof(metadata), 0) ||
	    comm_broadcast(run->comm, &teacher->mark, sizeof(teacher->mark), 0))
		return run_fail(run, -ECOMM, "%s", comm_error(run->comm));
	metadata.class_names = teacher->metadata.class_names; /* only on rank 0 */
	teacher->metadata = metadata;
	if (metadata.classes != run->data.classes)
		return run_fail(run, -EINVAL,
				"train.teacher = %.600s has %u classes, the model %u: a teacher "
				"knows the same ones",
				run->recipe->train.teacher, metadata.classes, run->data.classes);
	r = device_params_new(run->device, &teacher->params);
	if (!r)
		r = model_new(&teacher->recipe.model, run->data.classes, teacher->params,
			      &teacher->model, run->error);
	if (r)
		return r == -ENOMEM ? run_fail(run, r, "train.teacher: out of memory") : r;
	r = device_params_allocate(teacher->params, NULL);
	return r ? run_fail(run, r, "memory for the parameters of train.teacher: %s",
			    run_device_text(run, r))
		 : 0;
}

int run_fill_teacher(struct run *run)
{
	struct teacher *teacher = &run->teacher;
	const char *file = run->recipe->train.teacher;
	char error[CHECKPOINT_ERROR_MAX];
	struct checkpoint_import_result result;
	if (!teacher_is_on(run))
		return 0;
	int r = model_initialize_constants(teacher->model);
	if (r)
		return run_fail(run, r, "train.teacher: %s", run_device_text(run, r));
	r = checkpoint_import(file, run->data.class_names, teacher->params, &result, error);
	if (r)
		return run_fail(run, r, "train.teacher: %s", error);
	if (result.head_kept)
		return run_fail(run, -EINVAL,
				"train.teacher = %.600s has other classes than data.train = %.600s",
				file, run->recipe->data.train);
	if (result.unknown_count)
		return run_fail(run, -EINVAL,
				"train.teacher = %.600s is of another network than its recipe's "
				"model.name = %s: it has tensor %s%s that this one has not",
				file, teacher->recipe.model.name, result.unknown,
				result.unknown_count > 1 ? " and others" : "");
	uint64_t found = teacher->mark;
	r = teacher_mark(run);
	if (r)
		return r;
	if (teacher->mark != found)
		return run_fail(run, -ESTALE,
				"train.teacher = %.600s changed while it was read: start again",
				file);
	progress_line(&run->progress, "teacher: %s from %s", teacher->recipe.model.name, file);
	return 0;
}

int run_share_teacher(struct run *run)
{
	return teacher_is_on(run)
		       ? ranks_share_params(run->comm, run->teacher.params, false, run->error)
		       : 0;
}

/* ---- graph ---- */

void run_drop_teacher(struct run *run)
{
	device_graph_free(run->teacher.graph.graph);
	run->teacher.graph = (struct run_graph){0};
}

static void teacher_free_logits(struct run *run)
{
	struct teacher *teacher = &run->teacher;
	if (teacher->kept)
		device_memory_free(run->device, teacher->logits);
	else
		free(teacher->logits);
	teacher->logits = NULL;
}

void run_close_teacher(struct run *run)
{
	struct teacher *teacher = &run->teacher;
	run_drop_teacher(run);
	model_free(teacher->model);
	device_params_free(teacher->params);
	weights_deinit(&teacher->metadata);
	recipe_deinit(&teacher->recipe);
	teacher_free_logits(run);
}

/* Normalisation of the run's images for the teacher. */
static int teacher_normalise(struct run *run, struct model_input *input)
{
	const struct weights_metadata *metadata = &run->teacher.metadata;
	const char *file = run->recipe->train.teacher;
	bool bytes = run->batch.element == FEED_U8;
	if (bytes && metadata->named && !metadata->normalised)
		return run_fail(run, -EINVAL,
				"train.teacher = %.600s was trained on floats, which are taken as "
				"they are; data.pipeline delivers u8",
				file);
	if (!bytes && metadata->normalised)
		return run_fail(run, -EINVAL,
				"train.teacher = %.600s was trained on u8, which is normalised by "
				"its trainer.mean and trainer.std; data.pipeline delivers floats, "
				"which are taken as they are: leave to() and normalize() out of it",
				file);
	bool known = metadata->std[0] > 0;
	memcpy(input->mean, known ? metadata->mean : run->data.mean, sizeof(input->mean));
	memcpy(input->std, known ? metadata->std : run->data.std, sizeof(input->std));
	return 0;
}

static size_t teacher_values(const struct run *run)
{
	return (size_t)data_train_share(&run->data) * run->data.classes;
}

/* Allocates logits for this rank's share of a batch. */
static int teacher_make_room(struct run *run)
{
	struct teacher *teacher = &run->teacher;
	size_t values = teacher_values(run);
	teacher_free_logits(run);
	int r = device_memory_new(run->device, values, &teacher->logits);
	teacher->kept = !r;
	if (r == -ENOTSUP) {
		teacher->logits = calloc(values, sizeof(*teacher->logits));
		r = teacher->logits ? 0 : -ENOMEM;
	}
	return r ? run_fail(run, r, "memory for the logits of train.teacher: %s",
			    run_device_text(run, r))
		 : 0;
}

int run_plan_teacher(struct run *run)
{
	struct teacher *teacher = &run->teacher;
	const struct run_graph *train = &run->train;
	struct run_graph *graph = &teacher->graph;
	struct device_graph_options options = {.mode = DEVICE_EVAL};
	struct model_input input = {.count = train->count,
				    .height = train->height,
				    .width = train->width,
				    .resamples = run_resamples(run)};
	struct loss loss;
	char error[DEVICE_ERROR_MAX] = "";
	uint32_t side = train->height < train->width ? train->height : train->width;
	if (!teacher_is_on(run))
		return 0;
	int r = teacher_make_room(run);
	if (r || (graph->graph && graph->count == train->count && graph->height == train->height &&
		  graph->width == train->width))
		return r;
	run_drop_teacher(run);
	if (side < model_side_min(teacher->model))
		return run_fail(run, -EINVAL,
				"images of %u x %u are too small for train.teacher, a %s, which "
				"needs %u",
				train->width, train->height, teacher->recipe.model.name,
				model_side_min(teacher->model));
	r = teacher_normalise(run, &input);
	if (r)
		return r;
	loss_of(&run->recipe->train, DEVICE_EVAL, NULL, &loss);
	input.loss = loss.spec;
	*graph = *train;
	graph->graph = NULL;
	r = device_graph_new(teacher->params, &options, &graph->graph);
	if (r)
		return run_fail(run, r, "graph of train.teacher: %s", run_device_text(run, r));
	model_record(teacher->model, graph->graph, &input);
	r = device_graph_plan(graph->graph, error);
	if (!r)
		return 0;
	run_drop_teacher(run);
	return run_fail(run, r, "planning train.teacher, a %s, for %u image%s of %u x %u: %s%s",
			teacher->recipe.model.name, train->count, train->count == 1 ? "" : "s",
			train->width, train->height, error,
			r == -ENOMEM && !run->auto_accum
				? ". train.accumulate=auto computes each batch in micro-batches"
				: "");
}

/* Runs the teacher on a micro-batch. */
static int teacher_forward(struct run *run, const struct device_batch *slice, float *ret_logits)
{
	struct device_graph *graph = run->teacher.graph.graph;
	struct device_batch images = *slice;
	uint64_t ticket, step;
	/* the teacher needs no labels */
	images.labels = images.labels2 = NULL;
	images.shares = NULL;
	int r = device_feed(graph, &images, &ticket);
	if (r)
		return r;
	r = device_evaluate(graph, DEVICE_VALUE, &step);
	if (!r)
		r = run->teacher.kept ? device_logits_keep(graph, ret_logits)
				      : device_logits(graph, ret_logits);
	int fed = device_fed(graph, ticket, true);
	return r ? r : fed;
}

int run_teacher_forward(struct run *run, struct device_batch *batch)
{
	struct teacher *teacher = &run->teacher;
	size_t values = (size_t)run->train.count * run->data.classes;
	if (!teacher_is_on(run))
		return 0;
	float scale = (float)model_logit_scale(teacher->model);
	batch->teacher = NULL;
	for (uint32_t part = 0; part < recipe_accumulate(run->recipe); part++) {
		struct device_batch slice = run_slice(run, batch, part);
		float *logits = teacher->logits + part * values;
		int r = teacher_forward(run, &slice, logits);
		if (r)
			return run_fail_step(run, r, "the logits of train.teacher");
		for (size_t i = 0; i < values && scale != 1 && !teacher->kept; i++)
			logits[i] *= scale;
	}
	run_attach_teacher_logits(run, batch);
	return 0;
}

void run_attach_teacher_logits(const struct run *run, struct device_batch *batch)
{
	const struct teacher *teacher = &run->teacher;
	batch->teacher = teacher->logits;
	batch->teacher_kept = teacher->kept;
	batch->teacher_scale = teacher->kept ? (float)model_logit_scale(teacher->model) : 0;
}

void run_diagnose_teacher(const struct run *run, char *ret_text)
{
	const struct teacher *teacher = &run->teacher;
	size_t count = teacher_values(run), i = 0;
	float *logits = teacher->kept ? malloc(count * sizeof(*logits)) : NULL;
	*ret_text = 0;
	if (logits && !device_memory_read(run->device, teacher->logits, count, logits))
		while (i < count && isfinite(logits[i]))
			i++;
	else
		i = count;
	if (i < count)
		snprintf(ret_text, RUN_DIAGNOSIS_TEXT,
			 " (train.teacher has the logit %g for class %zu of a sample)",
			 (double)logits[i], i % run->data.classes);
	free(logits);
}
