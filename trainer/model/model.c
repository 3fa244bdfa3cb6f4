#include "trainer/device/graph.h"
#include "trainer/device/ops.h"
#include "trainer/device/params.h"
#include "trainer/model/layers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct row {
	struct network network;
	struct device_value *(*record)(struct builder *b, struct device_value *images);
} rows[] = {
#define ROW(family, network, ...) {{#network, __VA_ARGS__}, family##_record},
	NETWORKS(ROW)
#undef ROW
};

/* NULL if not found. */
static const struct row *find(const struct recipe_model *recipe)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].network.name, recipe->name) == 0)
			return &rows[i];
	return NULL;
}

enum recipe_stem network_stem(const struct network *network, const struct recipe_model *recipe)
{
	int stem = recipe->stem && !network->one_stem ? recipe->stem : network->stem;
	return stem ? (enum recipe_stem)stem : RECIPE_STEM_IMAGENET;
}

uint32_t network_patch(const struct network *network, const struct recipe_model *recipe)
{
	return network->patch && recipe->patch ? (uint32_t)recipe->patch : network->patch;
}

bool model_is_small(const struct recipe_model *recipe)
{
	const struct row *row = find(recipe);
	return row && network_stem(&row->network, recipe) == RECIPE_STEM_CIFAR;
}

/* Marks the parameters of the first and the last layer. Declaration order is layer order. */
static void mark_outer(struct device_params *params)
{
	struct device_param *first = NULL, *last = NULL;
	for (size_t i = 0; i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		const struct device_param_spec *spec = device_param_spec(param);
		if (spec->constant ||
		    (spec->kind != DEVICE_CONV_WEIGHT && spec->kind != DEVICE_LINEAR_WEIGHT))
			continue;
		first = first ? first : param;
		last = param;
	}
	if (first) {
		device_param_set_outer(first);
		device_param_set_outer(last);
	}
}

/* Records input and network, and returns the logits. */
static struct device_value *record_network(struct builder *b, const struct model_input *input)
{
	struct device_input_spec spec = {
		.name = "input",
		.shape = {input->count, input->height, input->width, 3},
		.resamples = input->resamples,
	};
	for (int c = 0; c < 3; c++) {
		spec.mean[c] = (float)input->mean[c];
		spec.std[c] = (float)input->std[c];
	}
	return b->model->record(b, device_input(b->graph, &spec));
}

void model_record(struct model *model, struct device_graph *graph, const struct model_input *input)
{
	char error[MODEL_ERROR_MAX];
	struct builder b = {.model = model, .graph = graph, .error = error};
	struct device_loss_spec loss = input->loss;
	loss.name = "loss";
	loss.logit_scale = model->logit_scale;
	device_loss(graph, record_network(&b, input), &loss);
}

/* Records the network once, for the smallest image, to declare its parameters. */
static int declare(struct model *model, char *error)
{
	struct device_graph_options options = {.mode = DEVICE_TRAIN};
	struct model_input input = {.count = 1, .std = {1, 1, 1}};
	struct builder b = {.model = model, .declares = true, .error = error};
	const char *text;
	int r = device_graph_new(model->store, &options, &b.graph);
	if (r) {
		snprintf(error, MODEL_ERROR_MAX, "out of memory");
		return r;
	}
	input.height = input.width = model_side_min(model);
	record_network(&b, &input);
	model->blocks = b.blocks;
	r = device_graph_failure(b.graph, &text);
	if (r)
		layer_fail(&b, r, "%s", text);
	device_graph_free(b.graph);
	return b.failed;
}

int model_new(const struct recipe_model *recipe, uint32_t classes, struct device_params *params,
	      struct model **ret_model, char *error)
{
	const struct row *row = find(recipe);
	if (!row) {
		snprintf(error, MODEL_ERROR_MAX, "model.name = \"%s\" is no network", recipe->name);
		return -EINVAL;
	}
	struct model *model = calloc(1, sizeof(*model));
	if (!model) {
		snprintf(error, MODEL_ERROR_MAX, "out of memory");
		return -ENOMEM;
	}
	model->network = &row->network;
	model->record = row->record;
	model->recipe = *recipe;
	model->classes = classes;
	model->store = params;
	model->logit_scale = recipe->logit_scale > 0    ? (float)recipe->logit_scale
			     : row->network.logit_scale ? row->network.logit_scale
							: 1;
	int r = declare(model, error);
	if (r) {
		model_free(model);
		return r;
	}
	mark_outer(params);
	*ret_model = model;
	return 0;
}

void model_free(struct model *model)
{
	if (!model)
		return;
	free(model->params);
	free(model);
}

double model_logit_scale(const struct model *model)
{
	return model->logit_scale;
}

uint32_t model_side_min(const struct model *model)
{
	uint32_t patch = network_patch(model->network, &model->recipe);
	uint32_t side = model->network->side_min;
	return patch ? patch : side ? side : 1;
}

uint32_t model_blocks_after(const struct model *model, const struct device_param *param)
{
	for (size_t i = 0; i < model->param_count; i++)
		if (model->params[i].param == param && model->params[i].block != LAYER_HEAD)
			return model->blocks - model->params[i].block + 1;
	return 0;
}
