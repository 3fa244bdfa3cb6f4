#include "trainer/run/network/network.h"

#include "trainer/algorithms/layer_decay.h"
#include "trainer/algorithms/loss.h"
#include "trainer/algorithms/optim.h"
#include "trainer/algorithms/resampling.h"
#include "trainer/algorithms/swa.h"
#include "trainer/device/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters and model ---- */

static int network_init_freeze(struct network *network)
{
	struct run_context *ctx = network->ctx;
	int r = freeze_init(&network->freeze, ctx->recipe, network->params, ctx->error);
	if (r < 0)
		return r;
	r = freeze_layers_init(&network->freeze_layers, &ctx->recipe->train, network->params);
	return r < 0 ? run_fail(ctx, r, "out of memory") : 0;
}

int network_init(struct network *network)
{
	struct run_context *ctx = network->ctx;
	uint32_t classes = network->data->classes;
	bool trains = !ctx->options.evaluate;
	struct device_optimizer_spec optimizer;
	optim_spec(ctx->recipe, &optimizer);
	if (!trains)
		optimizer.shard = DEVICE_SHARD_NONE;
	int r = device_params_new(ctx->device, &network->params);
	if (r < 0)
		return run_fail(ctx, r, "parameters: %s", device_error(ctx->device));
	device_params_divide(network->params);
	r = trains ? loss_check(&ctx->recipe->train, classes, ctx->error) : 0;
	if (r < 0)
		return r;
	r = model_new(&ctx->recipe->model, classes, network->params, &network->model, ctx->error);
	if (r < 0)
		return r;
	r = trains ? network_init_freeze(network) : 0;
	if (r < 0)
		return r;
	r = layer_decay_apply(ctx->recipe, network->model, network->params);
	if (r < 0)
		return run_fail(ctx, r, "optim.layer_decay: %s", device_error(ctx->device));
	r = device_params_allocate(network->params, &optimizer);
	if (r < 0)
		return run_fail(ctx, r, "memory for the parameters: %s", device_error(ctx->device));
	if (device_params_are_sharded(network->params))
		progress_line(&ctx->progress,
			      "train.shard: each of %u ranks keeps %.1f MB of weights and state",
			      ctx->data_comm->world,
			      (double)device_params_bytes(network->params) / 1e6);
	return 0;
}

void network_deinit(struct network *network)
{
	network_drop_training(network);
	run_graph_drop(&network->eval);
	freeze_deinit(&network->freeze);
	freeze_layers_deinit(&network->freeze_layers);
	model_free(network->model);
	device_params_free(network->params);
	free(network->class_weights);
}

bool network_has_batch_norms(const struct network *network)
{
	for (size_t i = 0; i < device_params_count(network->params); i++)
		if (device_param_spec(device_params_at(network->params, i))->kind == DEVICE_BUFFER)
			return true;
	return false;
}

enum device_slot network_eval_slot(const struct network *network,
				   const struct checkpoint_state *state)
{
	const struct recipe_train *recipe = &network->ctx->recipe->train;
	if (swa_begun(recipe, state->step, state->batches_per_epoch))
		return DEVICE_SWA;
	return recipe->ema > 0 && state->step ? DEVICE_EMA : DEVICE_VALUE;
}

/* ---- graphs ---- */

/*
 * Reports planning problems, once: failures, and fusion patterns that run unfused because the
 * device has no plan for them.
 */
static void network_report_planning(struct network *network, enum device_mode mode,
				    const struct run_graph *graph)
{
	struct progress *progress = &network->ctx->progress;
	struct device_graph_info info;
	device_graph_info(graph->graph, &info);
	if (*info.warning && !network->warned)
		progress_line(progress, "device: %s", info.warning);
	network->warned = network->warned || *info.warning;
	for (const char *line = info.fallback_log; *line;) {
		size_t length = strcspn(line, "\n");
		progress_line(progress, "%s, %u x %u: %.*s",
			      mode == DEVICE_TRAIN ? "training" : "evaluation", graph->width,
			      graph->height, (int)length, line);
		line += length + (line[length] == '\n');
	}
}

/* Returns a remedy for a graph that does not fit into memory, to append to the device's error. */
static const char *network_memory_remedy(const struct network *network, enum device_mode mode,
					 int code)
{
	const struct run_context *ctx = network->ctx;
	bool evaluates = mode == DEVICE_EVAL && ctx->recipe->data.val_batch_size;
	if (code != -ENOMEM || (ctx->auto_accum && !evaluates) || ctx->options.find_batch_size)
		return "";
	return mode == DEVICE_TRAIN
		       ? ". train.accumulate=auto computes each batch in as few micro-batches as "
			 "fit"
		       : ". A smaller data.val_batch_size evaluates fewer images at a time";
}

bool run_graph_fits(const struct run_graph *graph, uint32_t count, uint32_t height, uint32_t width)
{
	return graph->graph && graph->count == count && graph->height == height &&
	       graph->width == width;
}

void run_graph_drop(struct run_graph *graph)
{
	device_graph_free(graph->graph);
	*graph = (struct run_graph){0};
}

void run_graph_release(struct run_graph *graph)
{
	device_graph_free(graph->graph);
	graph->graph = NULL;
}

static void network_record(struct network *network, enum device_mode mode,
			   const struct run_graph *graph)
{
	const struct recipe *recipe = network->ctx->recipe;
	struct model_input input = {
		.count = graph->count,
		.height = graph->height,
		.width = graph->width,
		.resamples = mode == DEVICE_TRAIN && resampling_is_on(recipe),
	};
	struct loss loss;
	loss_of(recipe, mode, network->class_weights, &loss);
	input.loss = loss.spec;
	memcpy(input.mean, network->data->mean, sizeof(input.mean));
	memcpy(input.std, network->data->std, sizeof(input.std));
	model_record(network->model, graph->graph, &input);
}

int network_plan(struct network *network, struct run_graph *graph, enum device_mode mode,
		 uint32_t count, uint32_t height, uint32_t width)
{
	struct run_context *ctx = network->ctx;
	const struct recipe *recipe = ctx->recipe;
	uint32_t side = height < width ? height : width, min = model_side_min(network->model);
	if (run_graph_fits(graph, count, height, width))
		return 0;
	if (side < min)
		return run_fail(ctx, -EINVAL,
				"images of %u x %u are too small for model.name = %s, which needs "
				"at least %u",
				width, height, recipe->model.name, min);
	run_graph_drop(graph);
	*graph = (struct run_graph){.count = count, .height = height, .width = width};
	struct device_graph_options options = {.mode = mode,
					       .recompute = (uint32_t)recipe->train.recompute};
	int r = device_graph_new(network->params, &options, &graph->graph);
	if (r < 0)
		return run_fail(ctx, r, "graph: %s", device_error(ctx->device));
	network_record(network, mode, graph);
	char error[DEVICE_ERROR_MAX] = "";
	r = device_graph_plan(graph->graph, error);
	if (r < 0) {
		run_graph_drop(graph);
		return run_fail(
			ctx, r,
			"planning model.name = %s with model.width = %g for %u image%s of %u x "
			"%u: %s%s",
			recipe->model.name, recipe->model.width, count, count == 1 ? "" : "s",
			width, height, error, network_memory_remedy(network, mode, r));
	}
	network_report_planning(network, mode, graph);
	return 0;
}

void network_drop_training(struct network *network)
{
	run_graph_drop(&network->train);
	run_graph_drop(&network->selected);
}

/* ---- freezing ---- */

/* Returns the number of layers that train.freeze_level freezes at the state's step. */
static uint32_t network_freeze_depth(const struct network *network,
				     const struct checkpoint_state *state, uint64_t steps)
{
	return freeze_layers_depth(&network->ctx->recipe->train, state->step, steps,
				   state->batches_per_epoch, network->freeze_layers.count);
}

bool network_freeze_is_due(const struct network *network, const struct checkpoint_state *state,
			   uint64_t steps)
{
	return freeze_is_due(&network->freeze, state->step, state->batches_per_epoch) ||
	       network_freeze_depth(network, state, steps) > network->freeze_layers.depth;
}

static int network_thaw(struct network *network, struct checkpoint_state *state)
{
	struct freeze *freeze = &network->freeze;
	struct device_params_state counters = {0};
	int r = freeze->thaw_count ? device_params_get_state(network->params, &counters) : 0;
	if (r < 0)
		return run_fail(network->ctx, r, "state of the device: %s",
				run_device_text(network->ctx, r));
	bool due = freeze_is_due(freeze, state->step, state->batches_per_epoch);
	freeze_thaw(freeze, network->params, state->step, state->batches_per_epoch,
		    counters.updates, state->begun);
	if (due)
		progress_line(
			&network->ctx->progress,
			"step %llu: training the parameters that train.freeze froze for %g epochs",
			(unsigned long long)state->step, freeze->thaws[freeze->thawed - 1]);
	return 0;
}

int network_move_freeze(struct network *network, struct checkpoint_state *state, uint64_t steps)
{
	struct freeze_layers *layers = &network->freeze_layers;
	int r = network_thaw(network, state);
	if (r < 0)
		return r;
	uint32_t depth = network_freeze_depth(network, state, steps);
	if (depth <= layers->depth)
		return 0;
	freeze_layers_apply(layers, network->params, depth);
	progress_line(&network->ctx->progress,
		      "step %llu: the first %u of %u layers are now frozen",
		      (unsigned long long)state->step, depth, layers->count);
	return 0;
}
