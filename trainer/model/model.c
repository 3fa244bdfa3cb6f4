#include "trainer/model/layers.h"
#include "trainer/model/random.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int layer_fail(struct model *model, int code, const char *format, ...)
{
	if (!model->failed) {
		va_list arguments;
		va_start(arguments, format);
		vsnprintf(model->error, MODEL_ERROR_MAX, format, arguments);
		va_end(arguments);
		model->failed = code;
	}
	return -1;
}

uint32_t layer_width(double factor, uint32_t channels)
{
	uint32_t scaled = (uint32_t)lround(factor * channels / 8) * 8;
	return scaled < 8 ? 8 : scaled;
}

/* ---- describing ---- */

static struct device_param *declare(struct model *model, const char *owner, const char *leaf,
				    const struct device_param_spec *spec,
				    const struct layer_param *init)
{
	char name[DEVICE_NAME_MAX];
	if (model->failed)
		return NULL;
	snprintf(name, sizeof(name), "%s%s%s", owner, *owner ? "." : "", leaf);
	struct device_param_spec named = *spec;
	named.name = name;
	struct layer_param *entry = &model->inits[model->init_count];
	*entry = *init;
	int r = device_param_add(model->params, &named, &entry->param);
	if (r) {
		layer_fail(model, r, "parameter %s cannot be declared: %s", name, strerror(-r));
		return NULL;
	}
	model->init_count++;
	return entry->param;
}

static struct device_param *declare_filled(struct model *model, const char *owner, const char *leaf,
					   const struct device_param_spec *spec, float value)
{
	struct layer_param init = {.init = LAYER_INIT_CONSTANT, .constant = value};
	return declare(model, owner, leaf, spec, &init);
}

static void declare_norm(struct model *model, const char *name, struct layer *layer, float gamma,
			 bool frozen_gamma)
{
	struct device_param_spec buffer = {.kind = DEVICE_BUFFER, .shape = {layer->channels}};
	struct device_param_spec scale = {.kind = DEVICE_VECTOR,
					  .shape = {layer->channels},
					  .group = MODEL_SCALES,
					  .frozen = frozen_gamma};
	struct device_param_spec shift = {
		.kind = DEVICE_VECTOR, .shape = {layer->channels}, .group = MODEL_NORM_BIASES};
	layer->norm.epsilon = model->bn_epsilon;
	layer->norm.momentum = model->bn_momentum;
	layer->norm.synchronized = model->bn_sync;
	layer->norm.ghost = model->bn_ghost;
	layer->norm.gamma = declare_filled(model, name, "weight", &scale, gamma);
	layer->norm.beta = declare_filled(model, name, "bias", &shift, 0);
	layer->norm.running_mean = declare_filled(model, name, "running_mean", &buffer, 0);
	layer->norm.running_var = declare_filled(model, name, "running_var", &buffer, 1);
	layer->conv.norm = &layer->norm;
}

uint32_t layer_channels(const struct model *model, int value)
{
	return value == 0 ? 3 : model->layers[value - 1].channels;
}

/*
 * Appends a layer with as many channels as its input; NULL after a failure. Its result is number
 * layer_count.
 */
static struct layer *append(struct model *model, enum layer_kind kind, const char *name, int input)
{
	if (model->failed)
		return NULL;
	if (model->layer_count == LAYERS_MAX) {
		layer_fail(model, -E2BIG, "model of more than %d layers", LAYERS_MAX);
		return NULL;
	}
	struct layer *layer = &model->layers[model->layer_count];
	*layer = (struct layer){.kind = kind,
				.begins = model->begins,
				.input = input,
				.residual = -1,
				.gate = -1,
				.channels = layer_channels(model, input),
				.conv.name = layer->name};
	snprintf(layer->name, sizeof(layer->name), "%s", name);
	model->begins = false;
	model->layer_count++;
	return layer;
}

void layer_block(struct model *model)
{
	model->begins = true;
}

int layer_conv(struct model *model, const struct layer_conv *conv)
{
	struct layer *layer = append(model, LAYER_CONV, conv->name, conv->input);
	if (!layer)
		return -1;
	struct device_param_spec spec = {
		.kind = DEVICE_CONV_WEIGHT,
		.shape = {conv->channels, conv->window, conv->window,
			  layer->channels / (conv->groups ? conv->groups : 1)},
		.group = MODEL_WEIGHTS,
		.frozen = conv->init == LAYER_INIT_WHITEN,
	};
	struct layer_param init = {.init = conv->init, .deviation = 0.02};
	layer->channels = conv->channels;
	layer->residual = conv->residual ? conv->residual : -1;
	layer->conv.stride = conv->stride;
	layer->conv.pad = conv->pad;
	layer->conv.activation = conv->activation;
	layer->conv.weight = declare(model, conv->name, "weight", &spec, &init);
	if (conv->norm) {
		declare_norm(model, conv->norm, layer, conv->gamma, false);
	} else if (conv->bias) {
		struct device_param_spec bias = {
			.kind = DEVICE_VECTOR,
			.shape = {conv->channels},
			.group = conv->init == LAYER_INIT_WHITEN ? MODEL_WHITEN_BIAS : MODEL_BIASES,
		};
		/* PyTorch's initial values for weight and bias */
		struct layer_param uniform = {
			.init = LAYER_INIT_FAN_IN,
			.bound = 1 / sqrt((double)spec.shape[3] * conv->window * conv->window)};
		bool drawn = conv->init == LAYER_INIT_FAN_IN || conv->init == LAYER_INIT_FAN_OUT;
		layer->conv.bias = drawn ? declare(model, conv->name, "bias", &bias, &uniform)
					 : declare_filled(model, conv->name, "bias", &bias, 0);
	}
	return model->failed ? -1 : model->layer_count;
}

int layer_scale(struct model *model, const struct layer_scale *scale)
{
	struct layer *layer = append(model, LAYER_SCALE_ADD, scale->name, scale->input);
	if (!layer)
		return -1;
	struct device_param_spec gamma = {
		.kind = DEVICE_VECTOR, .shape = {layer->channels}, .group = MODEL_SCALES};
	layer->residual = scale->residual ? scale->residual : -1;
	layer->gate = scale->gate ? scale->gate : -1;
	layer->drop_path = scale->drop_path;
	layer->dropout = scale->dropout;
	layer->conv.activation = scale->activation;
	if (scale->gamma)
		layer->gamma = declare_filled(model, "", scale->gamma, &gamma, scale->gamma_init);
	return model->failed ? -1 : model->layer_count;
}

int layer_dropped(struct model *model, int input)
{
	return model->dropout > 0
		       ? layer_scale(model, &(struct layer_scale){.name = "head_drop",
								  .input = input,
								  .dropout = model->dropout})
		       : input;
}

float layer_drop_path(const struct recipe_model *recipe, uint32_t number, uint32_t count)
{
	return count > 1 ? (float)(recipe->drop_path * number / (count - 1)) : 0;
}

int layer_blur(struct model *model, const char *owner, int input, uint32_t stride)
{
	char name[DEVICE_NAME_MAX];
	snprintf(name, sizeof(name), "%.100s.blur", owner);
	struct layer *layer = append(model, LAYER_CONV, name, input);
	if (!layer)
		return -1;
	struct device_param_spec spec = {
		.kind = DEVICE_CONV_WEIGHT,
		.shape = {layer->channels, 3, 3, 1},
		.group = MODEL_WEIGHTS,
		.frozen = true,
		.constant = true,
	};
	struct layer_param init = {.init = LAYER_INIT_BLUR};
	layer->conv.stride = stride;
	layer->conv.pad = 1;
	layer->conv.weight = declare(model, owner, "blur_filter", &spec, &init);
	return model->failed ? -1 : model->layer_count;
}

int layer_norm(struct model *model, const char *name, int input, bool frozen_gamma,
	       enum device_activation activation)
{
	struct layer *layer = append(model, LAYER_NORM, name, input);
	if (!layer)
		return -1;
	layer->conv.activation = activation;
	declare_norm(model, name, layer, 1, frozen_gamma);
	return model->failed ? -1 : model->layer_count;
}

int layer_layer_norm(struct model *model, const char *name, int input)
{
	struct layer *layer = append(model, LAYER_LAYER_NORM, name, input);
	if (!layer)
		return -1;
	struct device_param_spec scale = {
		.kind = DEVICE_VECTOR, .shape = {layer->channels}, .group = MODEL_SCALES};
	struct device_param_spec shift = {
		.kind = DEVICE_VECTOR, .shape = {layer->channels}, .group = MODEL_NORM_BIASES};
	layer->norm.gamma = declare_filled(model, name, "weight", &scale, 1);
	layer->norm.beta = declare_filled(model, name, "bias", &shift, 0);
	return model->failed ? -1 : model->layer_count;
}

int layer_pool(struct model *model, enum layer_kind kind, const char *name, int input,
	       const struct device_pool_spec *pool)
{
	struct layer *layer = append(model, kind, name, input);
	if (!layer)
		return -1;
	layer->pool = *pool;
	layer->pool.name = layer->name;
	return model->layer_count;
}

int layer_global(struct model *model, const char *name, int input, enum layer_kind kind)
{
	return append(model, kind, name, input) ? model->layer_count : -1;
}

int layer_linear(struct model *model, const char *name, int input, uint32_t outputs, bool bias)
{
	struct layer *layer = append(model, LAYER_LINEAR, name, input);
	if (!layer)
		return -1;
	struct device_param_spec spec = {.kind = DEVICE_LINEAR_WEIGHT,
					 .shape = {outputs, layer->channels},
					 .group = MODEL_WEIGHTS};
	struct device_param_spec vector = {
		.kind = DEVICE_VECTOR, .shape = {outputs}, .group = MODEL_BIASES};
	struct layer_param init = {.init = LAYER_INIT_FAN_IN, .bound = 1 / sqrt(layer->channels)};
	layer->channels = outputs;
	layer->conv.weight = declare(model, name, "weight", &spec, &init);
	if (bias)
		layer->conv.bias = declare(model, name, "bias", &vector, &init);
	return model->failed ? -1 : model->layer_count;
}

int layer_dense(struct model *model, const struct layer_dense *dense)
{
	struct layer *layer = append(model, LAYER_DENSE, dense->name, dense->input);
	if (!layer)
		return -1;
	struct device_param_spec weight = {.kind = DEVICE_LINEAR_WEIGHT,
					   .shape = {dense->outputs, layer->channels},
					   .group = MODEL_WEIGHTS};
	struct device_param_spec bias = {
		.kind = DEVICE_VECTOR, .shape = {dense->outputs}, .group = MODEL_BIASES};
	struct layer_param init = {.init = LAYER_INIT_NORMAL,
				   .deviation = dense->deviation > 0 ? dense->deviation : 0.02};
	layer->channels = dense->outputs;
	layer->residual = dense->residual ? dense->residual : -1;
	layer->conv.activation = dense->activation;
	layer->conv.weight = declare(model, dense->name, "weight", &weight, &init);
	layer->conv.bias = declare_filled(model, dense->name, "bias", &bias, 0);
	return model->failed ? -1 : model->layer_count;
}

int layer_attention(struct model *model, const char *name, int input, uint32_t heads, float dropout)
{
	struct layer *layer = append(model, LAYER_ATTENTION, name, input);
	if (!layer)
		return -1;
	layer->channels /= 3;
	layer->heads = heads;
	layer->dropout = dropout;
	return model->layer_count;
}

int layer_tokens(struct model *model, const char *name, int input, uint32_t side, bool class_token)
{
	struct layer *layer = append(model, LAYER_TOKENS, name, input);
	if (!layer)
		return -1;
	struct device_param_spec spec = {
		.kind = DEVICE_EMBEDDING, .shape = {1, layer->channels}, .group = MODEL_BIASES};
	struct layer_param init = {.init = LAYER_INIT_NORMAL, .deviation = 1e-6};
	if (class_token)
		layer->class_token = declare(model, "", "cls_token", &spec, &init);
	layer->side = side;
	spec.shape[0] = side * side + class_token;
	init.deviation = 0.02;
	layer->positions = declare(model, "", "pos_embed", &spec, &init);
	return model->failed ? -1 : model->layer_count;
}

int layer_take(struct model *model, const char *name, int input, uint32_t position)
{
	struct layer *layer = append(model, LAYER_TAKE, name, input);
	if (!layer)
		return -1;
	layer->position = position;
	return model->layer_count;
}

int layer_head(struct model *model, const char *name, int input, uint32_t outputs)
{
	return layer_dense(model,
			   &(struct layer_dense){.name = name, .input = input, .outputs = outputs});
}

/* ---- making and recording ---- */

static const struct row {
	struct network network;
	void (*describe)(struct model *model, const struct network *network,
			 const struct recipe_model *recipe, uint32_t classes);
	int32_t (*depth)(const char *name);
} rows[] = {
#define ROW(family, network, ...) {{#network, __VA_ARGS__}, family##_describe, family##_depth},
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

bool model_is_small(const struct recipe_model *recipe)
{
	const struct row *row = find(recipe);
	return row && network_stem(&row->network, recipe) == RECIPE_STEM_CIFAR;
}

/* Marks the first and last layer, in declaration order, which is layer order. */
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

int model_new(const struct recipe_model *recipe, uint32_t classes, struct device_params *params,
	      struct model **ret_model, char *error)
{
	const struct row *row = find(recipe);
	struct model *model = calloc(1, sizeof(*model));
	if (model) {
		model->layers = calloc(LAYERS_MAX, sizeof(*model->layers));
		model->inits = calloc(LAYERS_MAX * LAYER_PARAMS_MAX, sizeof(*model->inits));
	}
	if (!model || !model->layers || !model->inits) {
		model_free(model);
		snprintf(error, MODEL_ERROR_MAX, "out of memory");
		return -ENOMEM;
	}
	model->params = params;
	model->error = error;
	model->bn_epsilon = (float)recipe->bn_epsilon;
	model->bn_momentum = (float)recipe->bn_momentum;
	model->bn_sync = recipe->bn_sync;
	model->bn_ghost = (uint32_t)recipe->ghost_batch;
	model->logit_scale = 1;
	model->dropout = (float)recipe->dropout;
	model->side_min = 1;
	model->depth = row ? row->depth : NULL;
	if (row)
		row->describe(model, &row->network, recipe, classes);
	else
		layer_fail(model, -EINVAL, "model.name = \"%s\" is no network", recipe->name);
	if (recipe->logit_scale > 0)
		model->logit_scale = (float)recipe->logit_scale;
	if (model->failed) {
		int r = model->failed;
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
	free(model->layers);
	free(model->inits);
	free(model);
}

double model_logit_scale(const struct model *model)
{
	return model->logit_scale;
}

uint32_t model_side_min(const struct model *model)
{
	return model->side_min;
}

/* Smallest depth above `least`; DEPTH_LAST does not count as one. */
static int32_t next_depth(const struct model *model, int32_t least)
{
	int32_t next = DEPTH_HEAD;
	for (size_t i = 0; i < model->init_count; i++) {
		int32_t depth = model->depth(device_param_spec(model->inits[i].param)->name);
		if (depth > least && depth < next && depth != DEPTH_LAST)
			next = depth;
	}
	return next;
}

uint32_t model_blocks_behind(const struct model *model, const struct device_param *param)
{
	int32_t depth = model->depth(device_param_spec(param)->name);
	uint32_t count = depth == DEPTH_LAST;
	while (depth < DEPTH_LAST) {
		depth = next_depth(model, depth);
		count++;
	}
	return count;
}

static struct device_value *record_layer(struct device_graph *graph, const struct layer *layer,
					 struct device_value **values)
{
	struct device_value *x = values[layer->input];
	struct device_conv_spec conv = layer->conv;
	struct device_linear_spec linear = {
		.name = conv.name,
		.weight = conv.weight,
		.bias = conv.bias,
		.by_position = layer->kind == LAYER_DENSE,
		.residual = layer->residual >= 0 ? values[layer->residual] : NULL,
		.activation = conv.activation,
	};
	struct device_attention_spec attention = {conv.name, layer->heads, layer->dropout};
	struct device_tokens_spec tokens = {conv.name, layer->positions, layer->side,
					    layer->class_token};
	struct device_scale_add_spec scale = {
		.name = conv.name,
		.residual = linear.residual,
		.gamma = layer->gamma,
		.gate = layer->gate >= 0 ? values[layer->gate] : NULL,
		.drop_path = layer->drop_path,
		.dropout = layer->dropout,
		.activation = conv.activation,
	};
	struct device_layer_norm_spec layer_norm = {conv.name, layer->norm.gamma, layer->norm.beta};
	switch (layer->kind) {
	case LAYER_CONV:
		conv.residual = linear.residual;
		return device_conv(graph, x, &conv);
	case LAYER_NORM:
		return device_norm(graph, conv.name, x, conv.norm, NULL, conv.activation);
	case LAYER_LAYER_NORM:
		return device_layer_norm(graph, x, &layer_norm);
	case LAYER_ATTENTION:
		return device_attention(graph, x, &attention);
	case LAYER_TOKENS:
		return device_tokens(graph, x, &tokens);
	case LAYER_TAKE:
		return device_take(graph, conv.name, x, layer->position);
	case LAYER_SCALE_ADD:
		return device_scale_add(graph, x, &scale);
	case LAYER_MAX_POOL:
		return device_max_pool(graph, x, &layer->pool);
	case LAYER_AVERAGE_POOL:
		return device_average_pool(graph, x, &layer->pool);
	case LAYER_GLOBAL_AVERAGE:
		return device_global_average_pool(graph, conv.name, x);
	case LAYER_GLOBAL_MAX:
		return device_global_max_pool(graph, conv.name, x);
	case LAYER_LINEAR:
	case LAYER_DENSE:
		return device_linear(graph, x, &linear);
	}
	return NULL;
}

void model_record(const struct model *model, struct device_graph *graph,
		  const struct model_input *input)
{
	struct device_value *values[LAYERS_MAX + 1];
	struct device_input_spec spec = {
		.name = "input",
		.shape = {input->count, input->height, input->width, 3},
		.resamples = input->resamples,
	};
	for (int c = 0; c < 3; c++) {
		spec.mean[c] = (float)input->mean[c];
		spec.std[c] = (float)input->std[c];
	}
	values[0] = device_input(graph, &spec);
	for (int i = 0; i < model->layer_count; i++) {
		if (model->layers[i].begins)
			device_block(graph);
		values[i + 1] = record_layer(graph, &model->layers[i], values);
	}
	struct device_loss_spec loss = input->loss;
	loss.name = "loss";
	loss.logit_scale = model->logit_scale;
	device_loss(graph, values[model->layer_count], &loss);
}

/* ---- initial weights ---- */

bool model_wants_images(const struct model *model)
{
	for (size_t i = 0; i < model->init_count; i++)
		if (model->inits[i].init == LAYER_INIT_WHITEN)
			return true;
	return false;
}

static int initialize_param(const struct layer_param *entry, uint64_t seed,
			    const struct model_images *images, float *values)
{
	static const float blur[] = {0.25f, 0.5f, 0.25f};
	const struct device_param_spec *spec = device_param_spec(entry->param);
	size_t count = device_param_elements(entry->param);
	uint64_t key = random_key(seed, spec->name);
	double fan_in = (double)spec->shape[1] * spec->shape[2] * spec->shape[3];
	double bound = entry->bound > 0 ? entry->bound : 1 / sqrt(fan_in);
	switch (entry->init) {
	case LAYER_INIT_CONSTANT:
		for (size_t i = 0; i < count; i++)
			values[i] = entry->constant;
		return 0;
	case LAYER_INIT_BLUR:
		for (size_t i = 0; i < count; i++)
			values[i] = blur[i / 3 % 3] * blur[i % 3];
		return 0;
	case LAYER_INIT_WHITEN:
		return images ? whiten_weights(images, spec->shape[1], values) : -EINVAL;
	case LAYER_INIT_FAN_OUT: {
		double deviation =
			sqrt(2.0 / ((double)spec->shape[0] * spec->shape[1] * spec->shape[2]));
		for (size_t i = 0; i < count; i++)
			values[i] = (float)(deviation * random_normal(key, i));
		return 0;
	}
	case LAYER_INIT_NORMAL:
		for (size_t i = 0; i < count; i++)
			values[i] = (float)(entry->deviation * random_normal(key, i));
		return 0;
	case LAYER_INIT_FAN_IN:
	case LAYER_INIT_DIRAC:
		for (size_t i = 0; i < count; i++)
			values[i] = (float)(bound * random_uniform(key, i));
		break;
	}
	if (entry->init == LAYER_INIT_DIRAC) {
		uint32_t k = spec->shape[0], window = spec->shape[1], c = spec->shape[3];
		size_t filter = (size_t)window * window * c, centre = (window / 2) * (window + 1);
		for (uint32_t i = 0; i < (k < c ? k : c); i++) {
			memset(values + i * filter, 0, filter * sizeof(float));
			values[i * filter + centre * c + i] = 1;
		}
	}
	return 0;
}

static int initialize(struct model *model, bool constants, uint64_t seed,
		      const struct model_images *images)
{
	for (size_t i = 0; i < model->init_count; i++) {
		const struct layer_param *entry = &model->inits[i];
		if (constants && !device_param_spec(entry->param)->constant)
			continue;
		float *values = malloc(device_param_elements(entry->param) * sizeof(float));
		if (!values)
			return -ENOMEM;
		int r = initialize_param(entry, seed, images, values);
		if (!r)
			r = device_param_write(entry->param, DEVICE_VALUE, values);
		free(values);
		if (r)
			return r;
	}
	return 0;
}

int model_initialize(struct model *model, uint64_t seed, const struct model_images *images)
{
	return initialize(model, false, seed, images);
}

int model_initialize_constants(struct model *model)
{
	return initialize(model, true, 0, NULL);
}
