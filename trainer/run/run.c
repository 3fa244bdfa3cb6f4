#include "trainer/run/run.h"

#include "trainer/run/evaluate/predictions.h"
#include "trainer/run/run_internal.h"

#include "format/base/text/printable.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"

#include <stdlib.h>

void run_close(struct run *run)
{
	progress_end(&run->ctx.progress);
	teacher_deinit(&run->teacher);
	network_deinit(&run->network);
	input_close(&run->input);
	device_close(run->ctx.device);
	data_close(&run->data);
	weights_deinit(&run->evaluation.weights);
	predictions_free(run->evaluation.predictions);
	target_scores_deinit(&run->evaluation.scores);
	output_close(&run->output);
	augment_close(&run->augment);
	selection_close(&run->selection);
	run_close_mesh(&run->ctx);
}

static const char *plural(unsigned long long count, const char *ending)
{
	return count == 1 ? "" : ending;
}

static void describe_model(const struct run *run, FILE *file)
{
	const struct run_graph *train = &run->network.train;
	const struct device_params *params = run->network.params;
	struct device_graph_info graph;
	uint64_t elements = 0;
	for (size_t i = 0; i < device_params_count(params); i++) {
		const struct device_param *param = device_params_at(params, i);
		if (device_param_spec(param)->kind != DEVICE_BUFFER)
			elements += device_param_elements(param);
	}
	device_graph_info(train->graph, &graph);
	fprintf(file, "model    %s: %.3f M parameters, input %u x %u, %u layers\n",
		run->ctx.recipe->model.name, (double)elements * 1e-6, train->width, train->height,
		graph.layers);
}

static void describe_device(const struct run *run, FILE *file)
{
	const struct device_info *device = device_info(run->ctx.device);
	const struct comm *comm = run->ctx.comm;
	uint32_t share = data_train_share(&run->data);
	fprintf(file, "device   %s, %s", device->name, run_precision(run));
	if (device->threads)
		fprintf(file, ", %u thread%s", device->threads, plural(device->threads, "s"));
	fputc('\n', file);
	if (run->ctx.group_comm)
		fprintf(file,
			"ranks    %u, in groups of %u (train.tensor), each with %u image%s per "
			"batch\n",
			comm->world, run->ctx.group_comm->world, share, plural(share, "s"));
	else if (comm->world > 1)
		fprintf(file, "ranks    %u, each with %u image%s per batch\n", comm->world, share,
			plural(share, "s"));
	if (run->ctx.recipe->train.accumulate > 1)
		fprintf(file, "parts    %u micro-batches of %u%s\n",
			recipe_accumulate(run->ctx.recipe), run->network.train.count,
			run->ctx.auto_accum ? " (train.accumulate = auto)" : "");
}

static void describe_step(const struct run *run, FILE *file)
{
	const struct run_graph *train = &run->network.train;
	struct device_graph_info graph, teacher;
	device_graph_info(train->graph, &graph);
	fprintf(file,
		"step     %.3f GFLOP per image forward and backward; %.1f MiB of activations and "
		"workspace (%.1f MiB without sharing)\n",
		(graph.flops_forward + graph.flops_backward) / train->count * 1e-9,
		(double)graph.arena_bytes / (1 << 20), (double)graph.unshared_bytes / (1 << 20));
	if (!run->teacher.graph.graph)
		return;
	device_graph_info(run->teacher.graph.graph, &teacher);
	fprintf(file, "teacher  %s: %.3f GFLOP per image; %.1f MiB of activations and workspace\n",
		run->teacher.recipe.model.name, teacher.flops_forward / train->count * 1e-9,
		(double)teacher.arena_bytes / (1 << 20));
}

/* Appends the share of a dataset in a stage to a line. */
static void describe_share(const struct train_order *order, uint32_t stage, uint32_t dataset,
			   FILE *line)
{
	const uint32_t *shares = order->stages[stage].shares;
	unsigned long long sum = 0;
	for (uint32_t i = 0; i < order->count; i++)
		sum += shares[i];
	if (shares[dataset])
		fprintf(line, "%u of every %llu samples", shares[dataset], sum);
	else
		fputs("none", line);
}

/* Prints the shares, which the recipe may have in other numbers, and the steps they begin at. */
static void describe_mixture(const struct train_order *order, FILE *file)
{
	for (uint32_t i = 0; order->count > 1 && i < order->count; i++) {
		char *text = NULL;
		size_t size;
		FILE *line = open_memstream(&text, &size);
		if (!line)
			return;
		for (uint32_t s = 0; s < order->feed.stage_count; s++) {
			if (s > 0)
				fprintf(line, ", after step %llu ",
					(unsigned long long)order->stages[s].from);
			describe_share(order, s, i, line);
		}
		if (fclose(line) == 0)
			printable_line(file, "mixture  %s from %s", text, order->datasets[i].path);
		free(text);
	}
}

void run_describe(const struct run *run, FILE *file)
{
	const struct recipe *recipe = run->ctx.recipe;
	unsigned long long samples = run->data.samples, batches = run->state.batches_per_epoch;
	bool labels = !run->data.target.outputs;
	printable_line(file, "data     %s: %llu sample%s, %u %s%s, %llu batch%s of %u per epoch",
		       recipe->data.train, samples, plural(samples, "s"), run->data.classes,
		       labels ? "class" : "output", plural(run->data.classes, labels ? "es" : "s"),
		       batches, plural(batches, "es"), (unsigned)recipe->data.batch_size);
	describe_mixture(run->data.order, file);
	describe_model(run, file);
	describe_device(run, file);
	describe_step(run, file);
	printable_line(file, "run      %llu step%s (%.6g epoch%s) into %s",
		       (unsigned long long)run->length.steps, plural(run->length.steps, "s"),
		       recipe->train.epochs, recipe->train.epochs == 1 ? "" : "s",
		       run->ctx.options.output);
}
