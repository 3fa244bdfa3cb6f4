/* Recording of graphs, common to all backends. kinds.c describes the node kinds. */
#include "trainer/device/backend.h"
#include "trainer/device/kinds.h"
#include "trainer/device/positions.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX                                                                               \
	((uint64_t)1 << 40) /* per tensor; keeps products of shapes far from overflow */

int device_graph_new(struct device_params *params, const struct device_graph_options *options,
		     struct device_graph **ret_graph)
{
	struct device_graph *graph;

	if (options->mode != DEVICE_TRAIN && options->mode != DEVICE_EVAL)
		return device_fail(params->device, -EINVAL, "graph mode %d is not known",
				   (int)options->mode);
	graph = calloc(1, sizeof(*graph));
	if (!graph)
		return -ENOMEM;
	graph->params = params;
	graph->device = params->device;
	graph->options = *options;
	*ret_graph = graph;
	return 0;
}

void device_graph_free(struct device_graph *graph)
{
	if (!graph)
		return;
	if (graph->planned)
		graph->device->ops->graph_release(graph);
	for (uint32_t i = 0; i < graph->node_count; i++)
		free(graph->nodes[i]);
	for (uint32_t i = 0; i < graph->value_count; i++)
		free(graph->values[i]);
	free(graph->nodes);
	free(graph->values);
	free(graph->class_weights);
	free(graph);
}

void *record_failure(struct device_graph *graph, int failure, const char *format, ...)
{
	va_list arguments;

	if (graph->failure)
		return NULL;
	graph->failure = failure;
	va_start(arguments, format);
	vsnprintf(graph->error, sizeof(graph->error), format, arguments);
	va_end(arguments);
	return NULL;
}

int device_graph_failure(const struct device_graph *graph, const char **ret_text)
{
	if (ret_text)
		*ret_text = graph->error;
	return graph->failure;
}

/* Makes room for another pointer in a growing array. */
static int grow(void ***items, uint32_t count, uint32_t *capacity)
{
	uint32_t wanted = *capacity ? *capacity * 2 : 64;
	void **grown;

	if (count < *capacity)
		return 0;
	grown = realloc(*items, wanted * sizeof(void *));
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*capacity = wanted;
	return 0;
}

/* ---- appending ---- */

/* Builds the name of the kind with everything fused into the node, such as "conv+norm+add+relu". */
static void name_kind(struct device_node *node)
{
	static const char *const activations[] = {
		[DEVICE_IDENTITY] = "",
		[DEVICE_RELU] = "+relu",
		[DEVICE_GELU] = "+gelu",
		[DEVICE_LOGISTIC] = "+sigmoid",
	};
	static const char *const losses[] = {
		[DEVICE_SOFTMAX] = "softmax", [DEVICE_SIGMOID] = "sigmoid", [DEVICE_KL] = "kl"};

	bool more =
		/* unless the kind itself is a norm */
		node->has_norm && !device_kinds[node->kind].params;

	if (node->kind == DEVICE_NODE_LOSS) {
		snprintf(node->kind_name, sizeof(node->kind_name), "%s loss",
			 losses[node->loss.kind]);
		return;
	}
	snprintf(node->kind_name, sizeof(node->kind_name), "%s%s%s%s",
		 device_kinds[node->kind].name, more ? "+norm" : "", node->residual ? "+add" : "",
		 activations[node->activation]);
}

/* Adds a copy of a node described by a recording function. */
static struct device_node *node_new(struct device_graph *graph, const char *name,
				    const struct device_node *described)
{
	struct device_node *node;

	if (graph->failure)
		return NULL;
	if (graph->planned)
		return record_failure(graph, -EBUSY, "the graph is planned already");
	if (!name || !*name || strlen(name) >= DEVICE_NAME_MAX)
		return record_failure(graph, -EINVAL, "an operation's name must have 1 to %d bytes",
				      DEVICE_NAME_MAX - 1);
	if (graph->loss)
		return record_failure(graph, -EINVAL, "%s: the loss must be the last operation",
				      name);
	node = calloc(1, sizeof(*node));
	if (!node || grow((void ***)&graph->nodes, graph->node_count, &graph->node_capacity) < 0) {
		free(node);
		return record_failure(graph, -ENOMEM, "%s: out of memory", name);
	}
	*node = *described;
	node->index = graph->node_count;
	if (graph->blocks && graph->options.recompute)
		node->segment = 1 + (graph->blocks - 1) / graph->options.recompute;
	strcpy(node->name, name);
	graph->nodes[graph->node_count++] = node;
	return node;
}

/* Adds an output of a node. */
static struct device_value *value_new(struct device_graph *graph, struct device_node *node,
				      struct device_shape shape)
{
	struct device_value *value;

	if (device_shape_elements(shape) > ELEMENTS_MAX)
		return record_failure(graph, -EINVAL,
				      "%s: a result of %u x %u x %u x %u is too large", node->name,
				      shape.n, shape.h, shape.w, shape.c);
	value = calloc(1, sizeof(*value));
	if (!value ||
	    grow((void ***)&graph->values, graph->value_count, &graph->value_capacity) < 0) {
		free(value);
		return record_failure(graph, -ENOMEM, "%s: out of memory", node->name);
	}
	value->graph = graph;
	value->index = graph->value_count;
	value->shape = shape;
	value->producer = node;
	graph->values[graph->value_count++] = value;
	return value;
}

/* Adds the outputs of an otherwise complete node. */
static void add_outputs(struct device_graph *graph, struct device_node *node,
			const struct device_shape *shapes)
{
	for (unsigned i = 0; i < DEVICE_NODE_OUTPUTS && !graph->failure; i++) {
		bool saved = device_kinds[node->kind].saved & BIT(i);

		if (!shapes[i].n || (saved && graph->options.mode != DEVICE_TRAIN))
			continue;
		node->outputs[i] = value_new(graph, node, shapes[i]);
		if (node->outputs[i])
			node->outputs[i]->saved = saved;
	}
}

/* Counts the node as a consumer of its inputs, and derives whether its outputs need gradients. */
static void connect(struct device_node *node)
{
	bool needs_gradient = false;

	for (int i = 0; i < DEVICE_NODE_INPUTS; i++) {
		if (!node->inputs[i])
			continue;
		node->inputs[i]->consumers++;
		needs_gradient |= node->inputs[i]->needs_gradient;
	}
	for (int i = 0; i < DEVICE_NODE_PARAMS; i++)
		needs_gradient |= device_param_trains(node->params[i]);
	for (int i = 0; i < DEVICE_NODE_OUTPUTS; i++)
		if (node->outputs[i] && !node->outputs[i]->saved)
			node->outputs[i]->needs_gradient |= needs_gradient;
}

static bool check_inputs(struct device_graph *graph, const struct device_node *node)
{
	for (int i = 0; i < DEVICE_NODE_INPUTS; i++) {
		if (!node->inputs[i] && (device_kinds[node->kind].inputs & BIT(i)))
			record_failure(graph, -EINVAL,
				       "an operation was recorded on a missing value");
		else if (node->inputs[i] && node->inputs[i]->graph != graph)
			record_failure(graph, -EINVAL, "a value of another graph was used");
	}
	return !graph->failure;
}

static bool check_weight(struct device_graph *graph, const struct device_node *node)
{
	enum device_param_kind kind = device_kinds[node->kind].weight;
	const struct device_param *weight = node->weight;

	if (kind && (!weight || weight->store != graph->params || weight->spec.kind != kind))
		record_failure(graph, -EINVAL, "%s: weight must be a %s of the graph's store",
			       node->name,
			       kind == DEVICE_LINEAR_WEIGHT ? "linear one" : "convolution's");
	return !graph->failure;
}

/*
 * Optional parameters other than the weight, by role; all have as many elements as the result's
 * channels.
 */
static const struct {
	const char *name;
	enum device_param_kind kind;
} roles[DEVICE_NODE_PARAMS] = {
	[PARAM(bias)] = {"bias", DEVICE_VECTOR},
	[PARAM(gamma)] = {"gamma", DEVICE_VECTOR},
	[PARAM(beta)] = {"beta", DEVICE_VECTOR},
	[PARAM(running_mean)] = {"running mean", DEVICE_BUFFER},
	[PARAM(running_var)] = {"running variance", DEVICE_BUFFER},
	[PARAM(positions)] = {"position embedding", DEVICE_EMBEDDING},
	[PARAM(class_token)] = {"class token", DEVICE_EMBEDDING},
};

static bool check_vectors(struct device_graph *graph, const struct device_node *node,
			  uint32_t channels)
{
	static const char *const words[] = {[DEVICE_VECTOR] = "vector",
					    [DEVICE_BUFFER] = "buffer",
					    [DEVICE_EMBEDDING] = "embedding"};
	unsigned needed = device_kinds[node->kind].params | (node->has_norm ? NORM_PARAMS : 0);

	for (unsigned i = PARAM(bias); i < DEVICE_NODE_PARAMS && !graph->failure; i++) {
		const struct device_param *param = node->params[i];
		enum device_param_kind kind = roles[i].kind;

		if (!param && !(needed & BIT(i)))
			continue;
		if (!param)
			record_failure(graph, -EINVAL, "%s: %s is missing", node->name,
				       roles[i].name);
		else if (param->store != graph->params)
			record_failure(graph, -EINVAL, "%s: %s is of another store", node->name,
				       roles[i].name);
		else if (param->spec.kind != kind)
			record_failure(graph, -EINVAL, "%s: %s must be a %s", node->name,
				       roles[i].name, words[kind]);
		else if (param->spec.shape[kind == DEVICE_EMBEDDING] != channels)
			record_failure(graph, -EINVAL,
				       "%s: %s has %u elements, the result has %u channels",
				       node->name, roles[i].name,
				       param->spec.shape[kind == DEVICE_EMBEDDING], channels);
	}
	return !graph->failure;
}

/* Checks norm, residual and activation, which several kinds share. */
static bool check_post(struct device_graph *graph, const struct device_node *node,
		       struct device_shape shape)
{
	float epsilon = node->norm.epsilon, momentum = node->norm.momentum;

	if (node->bias && node->has_norm)
		record_failure(graph, -EINVAL,
			       "%s: a bias before a norm has no effect; leave it out", node->name);
	if (!check_vectors(graph, node, shape.c))
		return false;
	if (node->norm.ghost && node->norm.synchronized)
		record_failure(
			graph, -EINVAL,
			"%s: statistics of groups of %u samples cannot be those of all ranks",
			node->name, node->norm.ghost);
	if (node->has_norm && (!(epsilon > 0) || !(momentum >= 0 && momentum <= 1)))
		record_failure(graph, -EINVAL,
			       "%s: epsilon %g must be above 0 and momentum %g in 0..1", node->name,
			       (double)epsilon, (double)momentum);
	if (node->residual && memcmp(&node->residual->shape, &shape, sizeof(shape)) != 0) {
		const struct device_shape *r = &node->residual->shape;

		record_failure(graph, -EINVAL,
			       "%s: residual is %u x %u x %u x %u, the result %u x %u x %u x %u",
			       node->name, r->n, r->h, r->w, r->c, shape.n, shape.h, shape.w,
			       shape.c);
	}
	if (node->activation < DEVICE_IDENTITY || node->activation >= DEVICE_ACTIVATIONS)
		record_failure(graph, -EINVAL, "%s: activation %d is not known", node->name,
			       (int)node->activation);
	return !graph->failure;
}

/*
 * Common end of all recording functions: validates the described node against its kind's row,
 * appends it with its outputs, and connects it to its inputs.
 */
static struct device_value *record(struct device_graph *graph, const char *name,
				   const struct device_node *described)
{
	const struct device_kind *kind = &device_kinds[described->kind];
	struct device_shape shapes[DEVICE_NODE_OUTPUTS] = {0};
	struct device_node *node;

	if (!check_inputs(graph, described))
		return NULL;
	node = node_new(graph, name, described);
	if (!node || !check_weight(graph, node))
		return NULL;
	shapes[OUTPUT(y)] = kind->infer(graph, node, shapes);
	if (graph->failure || !check_post(graph, node, shapes[OUTPUT(y)]))
		return NULL;
	name_kind(node);
	if (kind->no_result)
		node->y = node->x;
	else
		add_outputs(graph, node, shapes);
	if (graph->failure)
		return NULL;
	connect(node);
	return node->y;
}

/* Sets the parameters of a norm; NULL without one. */
static void set_norm(const struct device_graph *graph, struct device_node *node,
		     const struct device_norm *norm)
{
	if (!norm)
		return;
	node->has_norm = true;
	node->gamma = norm->gamma;
	node->beta = norm->beta;
	node->running_mean = norm->running_mean;
	node->running_var = norm->running_var;
	node->norm.epsilon = norm->epsilon;
	node->norm.momentum = norm->momentum;
	node->norm.fixed = norm->running_mean && norm->running_mean->spec.frozen &&
			   norm->running_var && norm->running_var->spec.frozen;
	node->norm.synchronized = norm->synchronized && !node->norm.fixed;
	if (graph->options.mode == DEVICE_TRAIN && !node->norm.fixed)
		node->norm.ghost = norm->ghost;
}

struct device_shape device_value_shape(const struct device_value *value)
{
	return value ? value->shape : (struct device_shape){0};
}

struct device_value *device_input(struct device_graph *graph, const struct device_input_spec *spec)
{
	struct device_value *y;

	if (graph->input)
		return record_failure(graph, -EINVAL, "a graph has one input");
	y = record(graph, spec->name,
		   &(struct device_node){.kind = DEVICE_NODE_INPUT, .input = *spec});
	if (!y)
		return NULL;
	y->needs_gradient = spec->gradient;
	graph->input = y->producer;
	return y;
}

void device_block(struct device_graph *graph)
{
	graph->blocks++;
}

struct device_value *device_conv(struct device_graph *graph, struct device_value *x,
				 const struct device_conv_spec *spec)
{
	struct device_node node = {.kind = DEVICE_NODE_CONV,
				   .inputs = {x, spec->residual},
				   .params = {spec->weight, spec->bias},
				   .stride = spec->stride,
				   .pad = spec->pad,
				   .pad_extra = spec->pad_extra,
				   .activation = spec->activation};

	set_norm(graph, &node, spec->norm);
	return record(graph, spec->name, &node);
}

struct device_value *device_linear(struct device_graph *graph, struct device_value *x,
				   const struct device_linear_spec *spec)
{
	return record(graph, spec->name,
		      &(struct device_node){.kind = DEVICE_NODE_LINEAR,
					    .inputs = {x, spec->residual},
					    .params = {spec->weight, spec->bias},
					    .by_position = spec->by_position,
					    .activation = spec->activation});
}

struct device_value *device_norm(struct device_graph *graph, const char *name,
				 struct device_value *x, const struct device_norm *norm,
				 struct device_value *residual, enum device_activation activation)
{
	struct device_node node = {
		.kind = DEVICE_NODE_NORM, .inputs = {x, residual}, .activation = activation};

	set_norm(graph, &node, norm);
	return record(graph, name, &node);
}

struct device_value *device_layer_norm(struct device_graph *graph, struct device_value *x,
				       const struct device_layer_norm_spec *spec)
{
	return record(graph, spec->name,
		      &(struct device_node){.kind = DEVICE_NODE_LAYER_NORM,
					    .inputs = {x},
					    .gamma = spec->gamma,
					    .beta = spec->beta,
					    .norm.epsilon = spec->epsilon});
}

struct device_value *device_attention(struct device_graph *graph, struct device_value *qkv,
				      const struct device_attention_spec *spec)
{
	return record(graph, spec->name,
		      &(struct device_node){.kind = DEVICE_NODE_ATTENTION,
					    .inputs = {qkv},
					    .attention = {spec->heads, spec->dropout}});
}

struct device_value *device_tokens(struct device_graph *graph, struct device_value *x,
				   const struct device_tokens_spec *spec)
{
	return record(graph, spec->name,
		      &(struct device_node){.kind = DEVICE_NODE_TOKENS,
					    .inputs = {x},
					    .positions = spec->positions,
					    .side = spec->side,
					    .class_token = spec->class_token});
}

struct device_value *device_take(struct device_graph *graph, const char *name,
				 struct device_value *x, uint32_t position)
{
	return record(graph, name,
		      &(struct device_node){
			      .kind = DEVICE_NODE_TAKE, .inputs = {x}, .position = position});
}

struct device_value *device_scale_add(struct device_graph *graph, struct device_value *x,
				      const struct device_scale_add_spec *spec)
{
	struct device_node node = {.kind = DEVICE_NODE_SCALE_ADD,
				   .inputs = {x, spec->residual, spec->gate},
				   .gamma = spec->gamma,
				   .scale = {spec->drop_path, spec->dropout},
				   .activation = spec->activation};

	return record(graph, spec->name, &node);
}

static struct device_value *record_pool(struct device_graph *graph, enum device_node_kind kind,
					struct device_value *x, const struct device_pool_spec *spec)
{
	return record(graph, spec->name,
		      &(struct device_node){.kind = kind,
					    .inputs = {x},
					    .window_h = spec->window,
					    .window_w = spec->window,
					    .stride = spec->stride,
					    .pad = spec->pad,
					    .pad_extra = spec->pad_extra});
}

struct device_value *device_max_pool(struct device_graph *graph, struct device_value *x,
				     const struct device_pool_spec *spec)
{
	return record_pool(graph, DEVICE_NODE_MAX_POOL, x, spec);
}

struct device_value *device_average_pool(struct device_graph *graph, struct device_value *x,
					 const struct device_pool_spec *spec)
{
	return record_pool(graph, DEVICE_NODE_AVERAGE_POOL, x, spec);
}

struct device_value *device_global_average_pool(struct device_graph *graph, const char *name,
						struct device_value *x)
{
	return record(
		graph, name,
		&(struct device_node){.kind = DEVICE_NODE_GLOBAL_AVERAGE_POOL, .inputs = {x}});
}

struct device_value *device_global_max_pool(struct device_graph *graph, const char *name,
					    struct device_value *x)
{
	return record(graph, name,
		      &(struct device_node){.kind = DEVICE_NODE_GLOBAL_MAX_POOL, .inputs = {x}});
}

struct device_value *device_loss(struct device_graph *graph, struct device_value *logits,
				 const struct device_loss_spec *spec)
{
	struct device_value *y = record(
		graph, spec->name,
		&(struct device_node){.kind = DEVICE_NODE_LOSS, .inputs = {logits}, .loss = *spec});

	if (y)
		graph->loss = graph->nodes[graph->node_count - 1];
	return y;
}

/* ---- planning ---- */

bool device_value_is_given(const struct device_value *value)
{
	return !value->graph->loss && !value->consumers && !value->saved;
}

unsigned device_node_reads(const struct device_node *node, const struct device_value *value)
{
	unsigned count = 0;

	for (int i = 0; i < DEVICE_NODE_INPUTS; i++)
		count += node->inputs[i] == value;
	return count;
}

bool device_node_recomputes(const struct device_graph *graph, const struct device_node *node)
{
	return graph->options.mode == DEVICE_TRAIN && !graph->options.keep_all &&
	       node->kind != DEVICE_NODE_INPUT &&
	       node->segment < graph->nodes[graph->node_count - 1]->segment;
}

uint32_t device_norm_groups(uint32_t samples, uint32_t ghost, uint32_t *ret_each)
{
	uint32_t groups = ghost && ghost < samples ? (samples - 1) / ghost + 1 : 1;

	/* so that no group is empty and groups have at most `ghost` samples */
	*ret_each = (samples + groups - 1) / groups;
	return groups;
}

uint32_t device_node_groups(const struct device_node *node, uint32_t *ret_each)
{
	return device_norm_groups(node->y->shape.n, node->norm.ghost, ret_each);
}

bool device_node_resizes(const struct device_node *node, struct positions_size *ret_size)
{
	struct device_shape x = node->x->shape;

	if (!node->side || (node->side == x.h && node->side == x.w))
		return false;
	*ret_size = (struct positions_size){node->class_token != NULL, node->side, x.h, x.w, x.c};
	return true;
}

double device_node_flops(const struct device_node *node)
{
	const struct device_param *weight = node->weight;

	if (node->kind == DEVICE_NODE_ATTENTION)
		return 4.0 * (double)device_shape_elements(node->y->shape) * node->y->shape.h *
		       node->y->shape.w;
	return weight ? 2.0 * (double)device_shape_elements(node->y->shape) *
				(double)(weight->elements / node->y->shape.c)
		      : 0;
}

/*
 * A value is active if the differentiated result depends on it and it depends on something that
 * needs a gradient.
 */
static void mark_active(struct device_graph *graph)
{
	for (uint32_t i = 0; i < graph->value_count; i++) {
		graph->values[i]->active = false;
		graph->values[i]->uses = 0;
	}
	for (uint32_t i = graph->node_count; i-- > 0;) {
		struct device_node *node = graph->nodes[i];

		node->backward = false;
		for (int j = 0; j < DEVICE_NODE_OUTPUTS; j++) {
			struct device_value *output = node->outputs[j];

			if (!output)
				continue;
			if (node == graph->loss || device_value_is_given(output))
				output->active = output->needs_gradient;
			node->backward |= output->active;
		}
		for (int j = 0; j < DEVICE_NODE_INPUTS && node->backward; j++) {
			if (!node->inputs[j] || !node->inputs[j]->needs_gradient)
				continue;
			node->inputs[j]->active = true;
			node->inputs[j]->uses++;
		}
	}
}

int device_graph_plan(struct device_graph *graph, char *error)
{
	char scratch[DEVICE_ERROR_MAX];
	int r;

	if (!error)
		error = scratch;
	if (graph->planned)
		return sentence_fail(error, DEVICE_ERROR_MAX, -EBUSY,
				     "the graph is planned already");
	if (!graph->failure && !graph->params->allocated)
		record_failure(graph, -EINVAL, "the parameters are not allocated yet");
	if (!graph->failure && !graph->input)
		record_failure(graph, -EINVAL, "the graph has no input");
	if (graph->failure)
		return sentence_fail(error, DEVICE_ERROR_MAX, graph->failure, "%s", graph->error);
	if (graph->options.mode == DEVICE_TRAIN)
		mark_active(graph);
	r = graph->device->ops->graph_plan(graph, error);
	graph->planned = r == 0;
	return r;
}
