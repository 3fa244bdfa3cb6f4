#include "trainer/estimate/estimate.h"
#include "format/base/text/sentence.h"
#include "trainer/algorithms/colout.h"
#include "trainer/algorithms/freeze.h"
#include "trainer/algorithms/loss.h"
#include "trainer/algorithms/mix.h"
#include "trainer/algorithms/optim.h"
#include "trainer/algorithms/resampling.h"
#include "trainer/device/cuda/engines.h"
#include "trainer/device/cuda/lowering/planner.h"
#include "trainer/estimate/estimate_internal.h"
#include "trainer/estimate/fusion_breaks.h"
#include "trainer/estimate/meshes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- planning ---- */

static void choose(struct estimate *estimate, const struct engines *engines)
{
	static const enum cuda_element elements[] = {
		[DEVICE_AUTO] = CUDA_BF16,
		[DEVICE_FP32] = CUDA_F32,
		[DEVICE_BF16] = CUDA_BF16,
		[DEVICE_FP16] = CUDA_F16,
	};
	const struct recipe *recipe = estimate->recipe;
	bool small = model_is_small(&recipe->model);
	struct program_options *program = &estimate->program;
	program->element = elements[recipe->train.precision];
	program->fusion = program_fusion(recipe->train.fusion, program->element);
	program->deterministic = recipe->train.deterministic;
	program->conv = &engines->conv;
	program->matmul = &engines->matmul;
	estimate->pipeline_size = pipeline_side(recipe->data.pipeline);
	estimate->size = estimate->options->size   ? estimate->options->size
			 : estimate->pipeline_size ? estimate->pipeline_size
			 : small                   ? 32
						   : 224;
	estimate->classes = recipe->model.classes ? (uint32_t)recipe->model.classes
			    : small               ? 10
						  : 1000;
}

static int open_params(struct estimate *estimate, char *error)
{
	const struct recipe *recipe = estimate->recipe;
	struct device_optimizer_spec optimizer;
	struct freeze freeze = {0};
	char text[MODEL_ERROR_MAX] = "", freeze_error[FREEZE_ERROR_MAX];
	optim_spec(recipe, &optimizer);
	int r = device_params_new(estimate->planner, &estimate->params);
	if (r < 0)
		return estimate_fail(error, r, "%s", strerror(-r));
	device_params_divide(estimate->params);
	r = model_new(&recipe->model, estimate->classes, estimate->params, &estimate->model, text);
	if (r < 0)
		return estimate_fail(error, r, "%s", *text ? text : strerror(-r));
	r = freeze_init(&freeze, recipe, estimate->params, freeze_error);
	freeze_deinit(&freeze);
	if (r < 0)
		return estimate_fail(error, r, "%s", freeze_error);
	r = device_params_allocate(estimate->params, &optimizer);
	return r < 0 ? estimate_fail(error, r, "%s", strerror(-r)) : 0;
}

static int open_model(struct estimate *estimate, char *error)
{
	int r = planner_open(&estimate->program, &estimate->planner);
	if (r < 0)
		return estimate_fail(error, r, "%s", strerror(-r));
	if (estimate->group.world > 1)
		estimate->planner->options.group = &estimate->group;
	r = open_params(estimate, error);
	if (r < 0)
		return r;
	uint32_t side_min = model_side_min(estimate->model);
	if (estimate->size < side_min)
		return estimate_fail(
			error, -EINVAL, "%s%u is too small for %s, which needs at least %u",
			estimate->options->size ? "--size=" : "data.pipeline's image size of ",
			estimate->size, estimate->recipe->model.name, side_min);
	return estimate_teacher_open(&estimate->teacher, estimate->recipe, estimate->classes,
				     estimate->planner, error);
}

static int make_graph(struct estimate *estimate, enum device_mode mode, uint32_t count,
		      uint32_t recompute, struct device_graph **ret_graph, char *error)
{
	struct device_graph_options options = {.mode = mode, .recompute = recompute};
	struct model_input input = {.count = count,
				    .height = estimate->size,
				    .width = estimate->size,
				    .std = {1, 1, 1}};
	if (mode == DEVICE_TRAIN)
		input.height = input.width =
			colout_kept(estimate->recipe->data.colout, estimate->size);
	struct device_graph *graph;
	struct loss loss;
	char text[DEVICE_ERROR_MAX] = "";
	int r = mode == DEVICE_TRAIN ? loss_check(&estimate->recipe->train, estimate->classes, text)
				     : 0;
	if (r < 0)
		return estimate_fail(error, r, "%s", text);
	loss_of(estimate->recipe, mode, NULL, &loss);
	input.loss = loss.spec;
	input.resamples = mode == DEVICE_TRAIN && resampling_is_on(estimate->recipe);
	r = device_graph_new(estimate->params, &options, &graph);
	if (r < 0)
		return estimate_fail(error, r, "%s", device_error(estimate->planner));
	model_record(estimate->model, graph, &input);
	r = device_graph_plan(graph, text);
	if (r < 0) {
		device_graph_free(graph);
		return estimate_fail(
			error, r,
			"planning model.name = %s with model.width = %g for %u image%s of %u x "
			"%u: %s",
			estimate->recipe->model.name, estimate->recipe->model.width, count,
			count == 1 ? "" : "s", estimate->size, estimate->size, text);
	}
	*ret_graph = graph;
	return mode == DEVICE_TRAIN ? estimate_teacher_plan(&estimate->teacher, &input, error) : 0;
}

/* Number of images per micro-batch. */
static uint32_t micro_batch(const struct recipe *recipe)
{
	uint64_t count = recipe->data.batch_size / recipe_accumulate(recipe);
	return count ? (uint32_t)count : 1;
}

/* Number of images per evaluation batch; 0 if the recipe does not evaluate. */
static uint32_t eval_batch(const struct recipe *recipe)
{
	if (!*recipe->data.val)
		return 0;
	return recipe->data.val_batch_size ? (uint32_t)recipe->data.val_batch_size
					   : micro_batch(recipe);
}

/* Number of images per step. */
static double images_of(const struct estimate *estimate)
{
	return (double)recipe_accumulate(estimate->recipe) * micro_batch(estimate->recipe);
}

/* Number of runs of the graph per step. */
static double passes_of(const struct estimate *estimate)
{
	return recipe_accumulate(estimate->recipe) * optim_passes(estimate->recipe);
}

/* ---- printing ---- */

/* Returns the text for an operation in its layer's row; "" for minor operations between passes. */
static void operation_name(const struct cuda_op *op, char *ret_text, size_t size)
{
	static const char *const directions[] = {"conv", "data", "weights"};
	static const char *const prologues[] = {"", "scale-bias-relu > ", "scale-bias-add-relu > ",
						"dual-scale-bias-add-relu > "};
	static const char *const epilogues[] = {"", " > statistics", " > bias", " > add",
						" > relu-norm"};
	static const char *const shortcuts[] = {"", "-shortcut", "-shortcut-norm"};
	const struct conv_problem *problem = &op->conv.problem;
	*ret_text = 0;
	if (op->kind == CUDA_OP_CONV)
		snprintf(ret_text, size, "%s%s%s%s%s", prologues[problem->prologue],
			 directions[problem->direction], epilogues[problem->epilogue],
			 problem->residual ? "-add" : "", shortcuts[problem->shortcut]);
	else if (!cuda_op_def(op)->minor)
		snprintf(ret_text, size, "%s", cuda_op_name(op->kind));
}

static void append(char *text, size_t size, const char *word, const char *separator)
{
	size_t length = strlen(text);
	if (*word && length + strlen(word) + strlen(separator) < size)
		sprintf(text + length, "%s%s", length ? separator : "", word);
}

static void print_layer(const struct estimate *estimate, const struct cuda_program *program,
			const struct device_node *node, bool backward, FILE *file)
{
	char operations[160] = "", engines[160] = "", word[96];
	struct roofline_sums sums;
	roofline_sum(&estimate->device.roofline, program, node, backward, &sums);
	if (!(sums.bytes > 0))
		return;
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];
		if (op->node != node || op->backward != backward)
			continue;
		operation_name(op, word, sizeof(word));
		append(operations, sizeof(operations), word, "; ");
		if (cuda_op_def(op)->product)
			append(engines, sizeof(engines), op->engine, "; ");
	}
	fprintf(file, "%-24s %-8s %8.1f %9.2f %8.1f %8.1f  %-48s %s\n", node->name,
		backward ? "backward" : "forward", (double)sums.workspace_bytes / 1e6,
		sums.flops * 1e-9, sums.bytes * 1e-6, sums.seconds * 1e6, operations,
		*engines ? engines : "own");
}

static void print_layers(const struct estimate *estimate, const struct cuda_program *program,
			 FILE *file)
{
	fprintf(file, "\n%-24s %-8s %8s %9s %8s %8s  %-48s %s\n", "layer", "", "space MB", "GFLOP",
		"MB", "us", "operations", "engines");
	for (uint32_t i = 0; i < program->graph->node_count; i++)
		for (int backward = 0; backward < 2; backward++)
			print_layer(estimate, program, program->graph->nodes[i], backward, file);
}

struct estimate_memory estimate_memory(const struct estimate *estimate,
				       const struct cuda_program *train,
				       const struct cuda_program *eval)
{
	/* a batch has u8 pixels with up to 4 channels; one is in use while the next one arrives */
	double pixels = (double)estimate->size * estimate->size;
	struct estimate_memory m = {
		.staging = 2 * 4 * pixels *
			   ((double)micro_batch(estimate->recipe) + eval_batch(estimate->recipe))};
	roofline_store(estimate->params, estimate->program.element, &m.store);
	roofline_matrices(&estimate->device.roofline, estimate->params, estimate->program.element,
			  &m.matrices);
	if (estimate->teacher.graph) {
		struct roofline_store store;
		roofline_store(estimate->teacher.params, estimate->program.element, &store);
		m.teacher = (double)(planner_program(estimate->teacher.graph)->arena.size +
				     store.slot_bytes + store.copy_bytes);
		m.staging += 2 * 4 * pixels * micro_batch(estimate->recipe);
	}
	m.total = (double)(train->arena.size + (eval ? eval->arena.size : 0) + m.store.slot_bytes +
			   m.store.copy_bytes + m.matrices.workspace_bytes) +
		  m.teacher + m.staging;
	return m;
}

/*
 * True if each program respects train.memory_limit and all memory fits the device. Ignores the
 * driver's memory.
 */
static bool fits(const struct estimate *estimate, const struct cuda_program *train,
		 const struct cuda_program *eval)
{
	double limit = estimate->recipe->train.memory_limit * (1 << 30);
	const struct device_graph *teacher = estimate->teacher.graph;
	if (limit > 0 &&
	    ((double)train->arena.size > limit || (eval && (double)eval->arena.size > limit) ||
	     (teacher && (double)planner_program(teacher)->arena.size > limit)))
		return false;
	return estimate_memory(estimate, train, eval).total <=
	       (double)estimate->device.memory_bytes;
}

static void print_memory(const struct estimate *estimate, const struct cuda_program *train,
			 const struct cuda_program *eval, FILE *file)
{
	uint32_t eval_count = eval_batch(estimate->recipe);
	struct estimate_memory m = estimate_memory(estimate, train, eval);
	fprintf(file, "memory      %10.1f MB activations and workspace (%.1f without sharing)\n",
		(double)train->arena.size / 1e6, (double)train->arena.unshared / 1e6);
	if (eval)
		fprintf(file,
			"            %10.1f MB activations and workspace of evaluation, %u image%s "
			"at a time\n",
			(double)eval->arena.size / 1e6, eval_count, eval_count == 1 ? "" : "s");
	fprintf(file, "            %10.1f MB parameters, gradients and optimizer state\n",
		(double)m.store.slot_bytes / 1e6);
	fprintf(file, "            %10.1f MB copies of weights for the convolutions\n",
		(double)m.store.copy_bytes / 1e6);
	if (estimate->teacher.graph)
		fprintf(file, "            %10.1f MB train.teacher, a %s\n", m.teacher / 1e6,
			estimate->teacher.recipe.model.name);
	if (m.matrices.workspace_bytes)
		fprintf(file, "            %10.1f MB matrix products of the update\n",
			(double)m.matrices.workspace_bytes / 1e6);
	fprintf(file, "            %10.1f MB batches in flight\n", m.staging / 1e6);
	fprintf(file, "            %10.1f MB total, %.0f %% of the device's %.1f GB\n",
		m.total / 1e6, m.total * 100 / (double)estimate->device.memory_bytes,
		(double)estimate->device.memory_bytes / 1e9);
}

struct step_time estimate_step_time(const struct estimate *estimate,
				    const struct cuda_program *train)
{
	const struct roofline_device *roofline = &estimate->device.roofline;
	double times = passes_of(estimate);
	struct roofline_store store;
	struct step_time t;
	for (int backward = 0; backward < 2; backward++) {
		roofline_sum(roofline, train, NULL, backward, &t.passes[backward]);
		t.passes[backward].seconds *= times;
		t.passes[backward].flops *= times;
		t.passes[backward].bytes *= times;
	}
	roofline_store(estimate->params, estimate->program.element, &store);
	roofline_matrices(roofline, estimate->params, estimate->program.element, &t.matrices);
	t.update_bytes = store.update_bytes + t.matrices.bytes;
	t.update = store.update_bytes / roofline->bytes_per_second + t.matrices.seconds;
	t.teacher = 0;
	if (estimate->teacher.graph) {
		struct roofline_sums sums;
		roofline_sum(roofline, planner_program(estimate->teacher.graph), NULL, false,
			     &sums);
		t.teacher = sums.seconds * recipe_accumulate(estimate->recipe);
	}
	t.all = t.passes[0].seconds + t.passes[1].seconds + t.update + t.teacher;
	t.images_per_second = images_of(estimate) / t.all;
	return t;
}

static void print_time(const struct estimate *estimate, const struct cuda_program *train,
		       FILE *file)
{
	struct step_time t = estimate_step_time(estimate, train);
	const struct roofline_sums *sums = t.passes;
	double images = images_of(estimate);
	for (int backward = 0; backward < 2; backward++)
		fprintf(file, "%-12s%10.3f ms, %.2f GFLOP and %.1f MB per image\n",
			backward ? "backward" : "forward", sums[backward].seconds * 1e3,
			sums[backward].flops / images * 1e-9, sums[backward].bytes / images * 1e-6);
	if (estimate->teacher.graph)
		fprintf(file, "teacher     %10.3f ms\n", t.teacher * 1e3);
	else if (*estimate->recipe->train.teacher)
		fprintf(file, "teacher     not counted: set train.teacher_recipe to include it\n");
	fprintf(file, "update      %10.3f ms, %.1f MB", t.update * 1e3, t.update_bytes * 1e-6);
	if (t.matrices.flops > 0)
		fprintf(file, ", %.2f GFLOP", t.matrices.flops * 1e-9);
	fprintf(file, "\n");
	fprintf(file,
		"step        %10.3f ms at the roofline: %.0f images/s; launches not counted\n",
		t.all * 1e3, t.images_per_second);
	fusion_breaks_print(&estimate->device.roofline, train, passes_of(estimate), t.all, file);
}

/* Compares the step's time and memory with and without recomputation. */
static int print_recompute(struct estimate *estimate, const struct cuda_program *train, FILE *file,
			   char *error)
{
	uint32_t own = (uint32_t)estimate->recipe->train.recompute, other = own ? 0 : 1;
	struct device_graph *graph = NULL;
	int r = make_graph(estimate, DEVICE_TRAIN, micro_batch(estimate->recipe), other, &graph,
			   error);
	if (r < 0) {
		device_graph_free(graph);
		return r;
	}
	const struct cuda_program *programs[] = {train, planner_program(graph)};
	for (int i = 0; i < 2; i++)
		fprintf(file,
			"%-12s%10.1f MB activations and workspace, %.0f images/s with "
			"train.recompute = %u%s\n",
			i ? "" : "recompute", (double)programs[i]->arena.size / 1e6,
			estimate_step_time(estimate, programs[i]).images_per_second,
			i ? other : own, i ? "" : ", as it is");
	device_graph_free(graph);
	return 0;
}

static void print_head(const struct estimate *estimate, const struct engines *engines, FILE *file)
{
	const char *const elements[] = {estimate->recipe->train.tf32 ? "tf32" : "fp32", "fp16",
					"bf16"};
	static const char *const fusions[] = {"", "none", "b", "c"};
	enum cuda_element element = estimate->program.element;
	fprintf(file, "device   %s: %.2f TB/s, %.0f TFLOP/s in %s; %s\n", estimate->device.name,
		estimate->device.roofline.bytes_per_second * 1e-12,
		estimate->device.roofline.flops_per_second[element] * 1e-12, elements[element],
		estimate->device.source);
	fprintf(file, "plans    %s, fusion %s\n", engines->name, fusions[estimate->program.fusion]);
	if (estimate->recipe->train.shard != RECIPE_SHARD_NONE && estimate->options->ranks <= 1)
		fprintf(file, "ranks    one, for which train.shard changes nothing; --ranks=N "
			      "plans for N\n");
	char parts[96] = "";
	uint32_t count = recipe_accumulate(estimate->recipe);
	bool meshes = estimate->options->ranks > 1; /* each has its own micro-batches */
	if (estimate->auto_accum && !meshes)
		snprintf(parts, sizeof(parts),
			 ", in %u micro-batch%s of %u (train.accumulate = auto)", count,
			 count == 1 ? "" : "es", micro_batch(estimate->recipe));
	else if (count > 1 && !meshes)
		snprintf(parts, sizeof(parts), ", in micro-batches of %u",
			 micro_batch(estimate->recipe));
	fprintf(file, "model    %s, %u class%s%s, batches of %llu image%s of %u x %u%s%s\n",
		estimate->recipe->model.name, estimate->classes, estimate->classes == 1 ? "" : "es",
		estimate->recipe->model.classes ? "" : " (assumed: model.classes is not set)",
		(unsigned long long)estimate->recipe->data.batch_size,
		estimate->recipe->data.batch_size == 1 ? "" : "s", estimate->size, estimate->size,
		estimate->options->size   ? ""
		: estimate->pipeline_size ? " (the size that data.pipeline produces)"
					  : " (assumed: --size is not given)",
		parts);
}

static void print_program(const struct estimate *estimate, const struct cuda_program *train,
			  FILE *file)
{
	print_layers(estimate, train, file);
	fprintf(file, "\n%u operations; patterns of this level without a plan: %u\n%s",
		train->op_count, train->fallbacks, train->log);
}

/* ---- report ---- */

int estimate_make_graphs(struct estimate *estimate, struct device_graph **ret_train,
			 struct device_graph **ret_eval, char *error)
{
	uint32_t count = eval_batch(estimate->recipe);
	int r = make_graph(estimate, DEVICE_TRAIN, micro_batch(estimate->recipe),
			   (uint32_t)estimate->recipe->train.recompute, ret_train, error);
	return r < 0 || !count ? r : make_graph(estimate, DEVICE_EVAL, count, 0, ret_eval, error);
}

static const struct cuda_program *program_or_null(const struct device_graph *graph)
{
	return graph ? planner_program(graph) : NULL;
}

/*
 * Plans the graphs. With train.accumulate = auto on one rank, uses the smallest number of
 * micro-batches that fits, as a run does.
 */
static int find_graphs(struct estimate *estimate, struct device_graph **ret_train,
		       struct device_graph **ret_eval, char *error)
{
	for (;;) {
		int r = estimate_make_graphs(estimate, ret_train, ret_eval, error);
		if (r < 0 || !estimate->auto_accum ||
		    fits(estimate, planner_program(*ret_train), program_or_null(*ret_eval)))
			return r;
		uint32_t next = mix_parts_after(&estimate->recipe->train,
						recipe_accumulate(estimate->recipe),
						(uint32_t)estimate->recipe->data.batch_size);
		if (!next)
			return estimate_fail(
				error, -ENOMEM,
				"data.batch_size = %llu does not fit into the memory of %s even "
				"with the smallest micro-batches, of %u (train.accumulate = auto)",
				(unsigned long long)estimate->recipe->data.batch_size,
				estimate->device.name, micro_batch(estimate->recipe));
		device_graph_free(*ret_train);
		device_graph_free(*ret_eval);
		*ret_train = *ret_eval = NULL;
		estimate->recipe_copy.train.accumulate = next;
	}
}

static int report(struct estimate *estimate, const struct engines *engines, FILE *file, char *error)
{
	struct device_graph *train = NULL, *eval = NULL;
	int r = find_graphs(estimate, &train, &eval, error);
	if (r == 0) {
		print_head(estimate, engines, file);
		print_program(estimate, planner_program(train), file);
		print_memory(estimate, planner_program(train), program_or_null(eval), file);
		print_time(estimate, planner_program(train), file);
		r = print_recompute(estimate, planner_program(train), file, error);
	}
	device_graph_free(train);
	device_graph_free(eval);
	return r;
}

static void close_model(struct estimate *estimate)
{
	estimate_teacher_close(&estimate->teacher);
	model_free(estimate->model);
	device_params_free(estimate->params);
	device_close(estimate->planner);
	estimate->teacher = (struct estimate_teacher){0};
	estimate->model = NULL;
	estimate->params = NULL;
	estimate->planner = NULL;
}

int estimate_divide(struct estimate *estimate, uint32_t tensor, char *error)
{
	close_model(estimate);
	estimate->group = (struct comm){.world = tensor};
	return open_model(estimate, error);
}

static int estimate_on(struct estimate *estimate, const struct engines *engines, FILE *file,
		       char *error)
{
	choose(estimate, engines);
	uint32_t tensor = (uint32_t)estimate->recipe->train.tensor;
	if (tensor > 1 && estimate->options->ranks <= 1)
		return estimate_fail(
			error, -EINVAL,
			"train.tensor = %u divides the network over ranks, but this plan "
			"is of one GPU: add --ranks=%u, or a multiple, or set train.tensor=1",
			tensor, tensor);
	int r = open_model(estimate, error);
	if (r == 0 && estimate->options->ranks > 1) {
		print_head(estimate, engines, file);
		r = meshes_report(estimate, file, error);
	} else if (r == 0) {
		r = report(estimate, engines, file, error);
	}
	close_model(estimate);
	return r;
}

int estimate_with(const struct recipe *recipe, const struct estimate_options *options,
		  const struct engines *engines, FILE *file, char *error)
{
	struct estimate estimate = {.recipe_copy = *recipe, .options = options};
	estimate.recipe = &estimate.recipe_copy;
	estimate.auto_accum = !recipe->train.accumulate;
	estimate.recipe_copy.train.accumulate = recipe_accumulate(recipe);
	int r = estimate_device_init(&estimate.device, options->device, recipe->train.tf32, error);
	if (r < 0)
		return r;
	r = estimate_on(&estimate, engines, file, error);
	estimate_device_deinit(&estimate.device);
	return r;
}
