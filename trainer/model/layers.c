#include "trainer/model/layers.h"

#include "trainer/device/device.h"
#include "trainer/device/params.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *layer_fail(struct builder *b, int code, const char *format, ...)
{
	if (!b->failed) {
		va_list arguments;
		va_start(arguments, format);
		vsnprintf(b->error, MODEL_ERROR_MAX, format, arguments);
		va_end(arguments);
		b->failed = code;
	}
	return NULL;
}

void layer_scope(struct builder *b, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(b->scope, sizeof(b->scope), format, arguments);
	va_end(arguments);
}

void layer_unscope(struct builder *b)
{
	b->scope[0] = 0;
}

void layer_block(struct builder *b)
{
	device_begin_block(b->graph);
	b->blocks++;
}

void layer_head(struct builder *b)
{
	b->head = true;
}

uint32_t layer_channels(const struct device_value *value)
{
	return device_value_shape(value).c;
}

uint32_t layer_width(double factor, uint32_t channels)
{
	uint32_t scaled = (uint32_t)lround(factor * channels / 8) * 8;
	return scaled < 8 ? 8 : scaled;
}

float layer_drop_path(const struct recipe_model *recipe, uint32_t number, uint32_t count)
{
	return count > 1 ? (float)(recipe->drop_path * number / (count - 1)) : 0;
}

/* ---- names and parameters ---- */

struct name {
	char text[DEVICE_NAME_MAX];
};

/* Returns SCOPE.OWNER.LEAF, without empty components. */
static struct name join_name(const struct builder *b, const char *owner, const char *leaf)
{
	struct name name;
	snprintf(name.text, sizeof(name.text), "%s%s%s%s%s", b->scope, *b->scope ? "." : "", owner,
		 *owner ? "." : "", leaf);
	return name;
}

static struct name name_of(const struct builder *b, const char *leaf)
{
	return join_name(b, "", leaf);
}

static struct device_param *declare(struct builder *b, const char *name,
				    const struct device_param_spec *spec, enum layer_init init,
				    double value)
{
	struct model *model = b->model;
	struct device_param_spec named = *spec;
	struct device_param *param = NULL;
	if (model->param_count == model->param_capacity) {
		size_t capacity = model->param_capacity ? 2 * model->param_capacity : 64;
		struct layer_param *params = realloc(model->params, capacity * sizeof(*params));
		if (!params)
			return layer_fail(b, -ENOMEM, "out of memory");
		model->params = params;
		model->param_capacity = capacity;
	}
	named.name = name;
	int r = device_param_add(model->store, &named, &param);
	if (r)
		return layer_fail(b, r, "parameter %s cannot be declared: %s", name, strerror(-r));
	model->params[model->param_count++] =
		(struct layer_param){param, init, value, b->head ? LAYER_HEAD : b->blocks};
	return param;
}

/* Returns the parameter OWNER.LEAF, or LEAF if the owner is "". */
static struct device_param *param_of(struct builder *b, const char *owner, const char *leaf,
				     const struct device_param_spec *spec, enum layer_init init,
				     double value)
{
	if (b->failed || device_graph_failure(b->graph, NULL))
		return NULL;
	if (!b->declares)
		return b->model->params[b->param_count++].param;
	return declare(b, join_name(b, owner, leaf).text, spec, init, value);
}

/* Returns a parameter with one value per channel. */
static struct device_param *vector_of(struct builder *b, const char *owner, const char *leaf,
				      uint32_t channels, enum model_group group, float value)
{
	struct device_param_spec spec = {
		.kind = DEVICE_VECTOR, .shape = {channels}, .group = group};
	return param_of(b, owner, leaf, &spec, LAYER_INIT_CONSTANT, (double)value);
}

static struct device_norm norm_of(struct builder *b, const char *name, uint32_t channels,
				  float gamma, bool frozen_gamma)
{
	const struct recipe_model *recipe = &b->model->recipe;
	struct device_param_spec buffer = {.kind = DEVICE_BUFFER, .shape = {channels}};
	struct device_param_spec scale = {.kind = DEVICE_VECTOR,
					  .shape = {channels},
					  .group = MODEL_SCALES,
					  .frozen = frozen_gamma};
	struct device_norm norm = {
		.epsilon = (float)recipe->bn_epsilon,
		.momentum = (float)recipe->bn_momentum,
		.synchronized = recipe->bn_sync,
		.ghost = (uint32_t)recipe->ghost_batch,
	};
	norm.gamma = param_of(b, name, "weight", &scale, LAYER_INIT_CONSTANT, (double)gamma);
	norm.beta = vector_of(b, name, "bias", channels, MODEL_NORM_BIASES, 0);
	norm.running_mean = param_of(b, name, "running_mean", &buffer, LAYER_INIT_CONSTANT, 0);
	norm.running_var = param_of(b, name, "running_var", &buffer, LAYER_INIT_CONSTANT, 1);
	return norm;
}

/* ---- layers ---- */

static struct device_param *conv_bias(struct builder *b, const struct layer_conv *conv,
				      double bound)
{
	struct device_param_spec spec = {
		.kind = DEVICE_VECTOR,
		.shape = {conv->channels},
		.group = conv->init == LAYER_INIT_WHITEN ? MODEL_WHITEN_BIAS : MODEL_BIASES,
	};
	/* PyTorch's initial values for weight and bias */
	bool drawn = conv->init == LAYER_INIT_FAN_IN || conv->init == LAYER_INIT_FAN_OUT;
	return param_of(b, conv->name, "bias", &spec,
			drawn ? LAYER_INIT_FAN_IN : LAYER_INIT_CONSTANT, drawn ? bound : 0);
}

struct device_value *layer_conv(struct builder *b, struct device_value *x,
				const struct layer_conv *conv)
{
	struct name name = name_of(b, conv->name);
	uint32_t window = conv->window;
	struct device_param_spec weight = {
		.kind = DEVICE_CONV_WEIGHT,
		.shape = {conv->channels, window, window,
			  layer_channels(x) / (conv->groups ? conv->groups : 1)},
		.group = MODEL_WEIGHTS,
		.frozen = conv->init == LAYER_INIT_WHITEN,
	};
	double bound = 1 / sqrt((double)weight.shape[3] * window * window);
	struct device_norm norm;
	struct device_conv_spec spec = {
		.name = name.text,
		.weight = param_of(b, conv->name, "weight", &weight, conv->init,
				   conv->init == LAYER_INIT_NORMAL ? 0.02 : bound),
		.stride = conv->stride ? conv->stride : 1,
		.pad = conv->pad,
		.residual = conv->residual,
		.activation = conv->activation,
	};
	if (conv->norm) {
		norm = norm_of(b, conv->norm, conv->channels, conv->zero_gamma ? 0 : 1, false);
		spec.norm = &norm;
	} else if (conv->bias) {
		spec.bias = conv_bias(b, conv, bound);
	}
	return device_conv(b->graph, x, &spec);
}

struct device_value *layer_blur(struct builder *b, struct device_value *x, const char *owner,
				uint32_t stride)
{
	struct name name = join_name(b, owner, "blur");
	struct device_param_spec filter = {
		.kind = DEVICE_CONV_WEIGHT,
		.shape = {layer_channels(x), 3, 3, 1},
		.group = MODEL_WEIGHTS,
		.frozen = true,
		.constant = true,
	};
	struct device_conv_spec spec = {
		.name = name.text,
		.weight = param_of(b, owner, "blur_filter", &filter, LAYER_INIT_BLUR, 0),
		.stride = stride,
		.pad = 1,
	};
	return device_conv(b->graph, x, &spec);
}

struct device_value *layer_batch_norm(struct builder *b, struct device_value *x, const char *name,
				      enum device_activation activation)
{
	struct device_norm norm = norm_of(b, name, layer_channels(x), 1, true);
	return device_norm(b->graph, name_of(b, name).text, x, &norm, NULL, activation);
}

struct device_value *layer_layer_norm(struct builder *b, struct device_value *x, const char *name)
{
	struct name full = name_of(b, name);
	struct device_layer_norm_spec spec = {.name = full.text};
	spec.gamma = vector_of(b, name, "weight", layer_channels(x), MODEL_SCALES, 1);
	spec.beta = vector_of(b, name, "bias", layer_channels(x), MODEL_NORM_BIASES, 0);
	return device_layer_norm(b->graph, x, &spec);
}

struct device_value *layer_max_pool(struct builder *b, struct device_value *x, const char *name,
				    const struct device_pool_spec *spec)
{
	struct name full = name_of(b, name);
	struct device_pool_spec named = *spec;
	named.name = full.text;
	return device_max_pool(b->graph, x, &named);
}

struct device_value *layer_average_pool(struct builder *b, struct device_value *x, const char *name,
					const struct device_pool_spec *spec)
{
	struct name full = name_of(b, name);
	struct device_pool_spec named = *spec;
	named.name = full.text;
	return device_average_pool(b->graph, x, &named);
}

struct device_value *layer_global_average(struct builder *b, struct device_value *x,
					  const char *name)
{
	return device_global_average_pool(b->graph, name_of(b, name).text, x);
}

struct device_value *layer_global_max(struct builder *b, struct device_value *x, const char *name)
{
	return device_global_max_pool(b->graph, name_of(b, name).text, x);
}

struct device_value *layer_linear(struct builder *b, struct device_value *x, const char *name,
				  uint32_t outputs, bool bias)
{
	struct name full = name_of(b, name);
	uint32_t inputs = layer_channels(x);
	double bound = 1 / sqrt(inputs);
	struct device_param_spec weight = {
		.kind = DEVICE_LINEAR_WEIGHT, .shape = {outputs, inputs}, .group = MODEL_WEIGHTS};
	struct device_param_spec vector = {
		.kind = DEVICE_VECTOR, .shape = {outputs}, .group = MODEL_BIASES};
	struct device_linear_spec spec = {
		.name = full.text,
		.weight = param_of(b, name, "weight", &weight, LAYER_INIT_FAN_IN, bound),
	};
	if (bias)
		spec.bias = param_of(b, name, "bias", &vector, LAYER_INIT_FAN_IN, bound);
	return device_linear(b->graph, x, &spec);
}

struct device_value *layer_dense(struct builder *b, struct device_value *x,
				 const struct layer_dense *dense)
{
	struct name name = name_of(b, dense->name);
	uint32_t inputs = layer_channels(x);
	bool by_inputs = dense->split == LAYER_SPLIT_INPUTS;
	struct device_param_spec weight = {
		.kind = DEVICE_LINEAR_WEIGHT,
		.shape = {dense->outputs,
			  by_inputs ? inputs * device_params_group(b->model->store) : inputs},
		.split_dimension = dense->split,
		.split_ranges = dense->ranges,
		.group = MODEL_WEIGHTS};
	struct device_param_spec bias = {.kind = DEVICE_VECTOR,
					 .shape = {dense->outputs},
					 .split_dimension = by_inputs ? 0 : dense->split,
					 .split_ranges = dense->ranges,
					 .group = MODEL_BIASES};
	struct device_linear_spec spec = {
		.name = name.text,
		.weight = param_of(b, dense->name, "weight", &weight, LAYER_INIT_NORMAL, 0.02),
		.by_position = true,
		.residual = dense->residual,
		.activation = dense->activation,
	};
	spec.bias = param_of(b, dense->name, "bias", &bias, LAYER_INIT_CONSTANT, 0);
	return device_linear(b->graph, x, &spec);
}

struct device_value *layer_attention(struct builder *b, struct device_value *qkv, const char *name,
				     uint32_t heads, float dropout)
{
	struct name full = name_of(b, name);
	struct device_attention_spec spec = {full.text,
					     heads / device_params_group(b->model->store), dropout};
	return device_attention(b->graph, qkv, &spec);
}

struct device_value *layer_pos_embed(struct builder *b, struct device_value *x, const char *name,
				     uint32_t side, bool class_token)
{
	struct name full = name_of(b, name);
	struct device_pos_embed_spec spec = {.name = full.text, .grid_side = side};
	struct device_param_spec embedding = {
		.kind = DEVICE_EMBEDDING, .shape = {1, layer_channels(x)}, .group = MODEL_BIASES};
	if (class_token)
		spec.class_token =
			param_of(b, "", "cls_token", &embedding, LAYER_INIT_NORMAL, 1e-6);
	embedding.shape[0] = side * side + class_token;
	spec.positions = param_of(b, "", "pos_embed", &embedding, LAYER_INIT_NORMAL, 0.02);
	return device_pos_embed(b->graph, x, &spec);
}

struct device_value *layer_select_token(struct builder *b, struct device_value *x, const char *name,
					uint32_t position)
{
	return device_select_token(b->graph, name_of(b, name).text, x, position);
}

struct device_value *layer_scale(struct builder *b, struct device_value *x,
				 const struct layer_scale *scale)
{
	struct name name = name_of(b, scale->name);
	struct device_scale_add_spec spec = {
		.name = name.text,
		.residual = scale->residual,
		.gate = scale->gate,
		.drop_path = scale->drop_path,
		.activation = scale->activation,
	};
	if (scale->gamma_init > 0)
		spec.gamma = vector_of(b, "", scale->gamma, layer_channels(x), MODEL_SCALES,
				       scale->gamma_init);
	return device_scale_add(b->graph, x, &spec);
}

struct device_value *layer_dropout(struct builder *b, struct device_value *x)
{
	struct device_scale_add_spec spec = {.name = "head_drop",
					     .dropout = (float)b->model->recipe.dropout};
	return spec.dropout > 0 ? device_scale_add(b->graph, x, &spec) : x;
}
