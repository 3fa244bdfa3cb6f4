/* Recording a graph: what every backend shares. Shapes are inferred and checked here. */
#include "trainer/device/backend.h"
#include "trainer/device/positions.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX                                                                               \
	((uint64_t)1 << 40) /* of one tensor; keeps products of shapes far from overflow */

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

/* Keeps the first failure. Always NULL. */
static void *record_failure(struct device_graph *graph, int failure, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void *record_failure(struct device_graph *graph, int failure, const char *format, ...)
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

/* Room for one more pointer in a growing array of them. */
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

/* ---- what the kinds are ---- */

static struct device_shape infer_input(struct device_graph *graph, struct device_node *node,
				       struct device_shape *ret_further)
{
	const struct device_input_spec *spec = &node->input;

	if (!device_shape_elements(spec->shape))
		record_failure(graph, -EINVAL, "%s: an input of %u x %u x %u x %u is empty",
			       node->name, spec->shape.n, spec->shape.h, spec->shape.w,
			       spec->shape.c);
	for (uint32_t c = 0; c < spec->shape.c && c < 4; c++)
		if (!(spec->std[c] > 0) || !isfinite(spec->mean[c]))
			record_failure(graph, -EINVAL,
				       "%s: channel %u has mean %g and standard deviation %g",
				       node->name, c, (double)spec->mean[c], (double)spec->std[c]);
	node->input.name = node->name;
	return spec->shape;
}

static bool window_fits(const struct device_node *node)
{
	uint64_t pads = 2 * (uint64_t)node->pad + node->pad_extra;

	return node->stride && node->x->shape.h + pads >= node->window_h &&
	       node->x->shape.w + pads >= node->window_w;
}

/* One position of the result for each of a window that fits. */
static struct device_shape window_shape(const struct device_node *node, uint32_t channels)
{
	struct device_shape x = node->x->shape;
	uint32_t pads = 2 * node->pad + node->pad_extra;

	return (struct device_shape){x.n, (x.h + pads - node->window_h) / node->stride + 1,
				     (x.w + pads - node->window_w) / node->stride + 1, channels};
}

static struct device_shape infer_conv(struct device_graph *graph, struct device_node *node,
				      struct device_shape *ret_further)
{
	const uint32_t *weight = node->weight->spec.shape;
	struct device_shape x = node->x->shape;

	node->window_h = weight[1];
	node->window_w = weight[2];
	node->groups = weight[3] ? x.c / weight[3] : 0;
	if (!node->groups || x.c % weight[3] || weight[0] % node->groups)
		record_failure(graph, -EINVAL,
			       "%s: weight has %u input channels, its input %u; in groups, these "
			       "are a multiple of those, and the %u outputs one of the groups",
			       node->name, weight[3], x.c, weight[0]);
	if (!window_fits(node) || (uint64_t)node->pad + node->pad_extra > weight[1] ||
	    (uint64_t)node->pad + node->pad_extra > weight[2])
		record_failure(graph, -EINVAL,
			       "%s: a %u x %u kernel with stride %u, padding %u and %u more at the "
			       "end does not fit %u x %u",
			       node->name, weight[1], weight[2], node->stride, node->pad,
			       node->pad_extra, x.h, x.w);
	return graph->failure ? x : window_shape(node, weight[0]);
}

static struct device_shape infer_linear(struct device_graph *graph, struct device_node *node,
					struct device_shape *ret_further)
{
	const uint32_t *weight = node->weight->spec.shape;
	struct device_shape x = node->x->shape;

	if (weight[1] != (node->by_position ? x.c : device_shape_elements(x) / x.n))
		record_failure(graph, -EINVAL, "%s: weight has %u inputs, its input %u x %u x %u%s",
			       node->name, weight[1], x.h, x.w, x.c,
			       node->by_position ? ", by position" : "");
	node->window_h = node->window_w = node->stride = node->groups = 1;
	return node->by_position ? (struct device_shape){x.n, x.h, x.w, weight[0]}
				 : (struct device_shape){x.n, 1, 1, weight[0]};
}

static struct device_shape infer_same(struct device_graph *graph, struct device_node *node,
				      struct device_shape *ret_further)
{
	return node->x->shape;
}

static struct device_shape infer_pool(struct device_graph *graph, struct device_node *node,
				      struct device_shape *ret_further)
{
	uint32_t window = node->window_h;
	struct device_shape x = node->x->shape;

	if (!window || (uint64_t)node->pad + node->pad_extra >= window || !window_fits(node))
		record_failure(
			graph, -EINVAL,
			"%s: a window of %u with stride %u, padding %u and %u more at the end "
			"does not fit %u x %u",
			node->name, window, node->stride, node->pad, node->pad_extra, x.h, x.w);
	return graph->failure ? x : window_shape(node, x.c);
}

static struct device_shape infer_global(struct device_graph *graph, struct device_node *node,
					struct device_shape *ret_further)
{
	struct device_shape x = node->x->shape;

	node->window_h = x.h;
	node->window_w = x.w;
	node->stride = 1;
	return (struct device_shape){x.n, 1, 1, x.c};
}

/* Keeps a copy, as the caller's may be gone by the first step. */
static void take_class_weights(struct device_graph *graph, struct device_node *node)
{
	struct device_loss_spec *loss = &node->loss;
	uint32_t classes = node->x->shape.c;

	if (!loss->class_weights)
		return;
	if (loss->kind == DEVICE_KL)
		record_failure(graph, -EINVAL,
			       "%s: a divergence of distributions has no class weights",
			       node->name);
	for (uint32_t i = 0; i < classes; i++)
		if (!(loss->class_weights[i] >= 0) || !isfinite(loss->class_weights[i]))
			record_failure(graph, -EINVAL, "%s: class %u has weight %g", node->name, i,
				       (double)loss->class_weights[i]);
	graph->class_weights = malloc(classes * sizeof(float));
	if (!graph->class_weights) {
		record_failure(graph, -ENOMEM, "%s: out of memory", node->name);
		return;
	}
	memcpy(graph->class_weights, loss->class_weights, classes * sizeof(float));
	loss->class_weights = graph->class_weights;
}

static struct device_shape infer_loss(struct device_graph *graph, struct device_node *node,
				      struct device_shape *ret_further)
{
	struct device_loss_spec *loss = &node->loss;
	struct device_shape x = node->x->shape;

	if (x.h != 1 || x.w != 1 || x.c < 2 || node->x->consumers)
		record_failure(graph, -EINVAL,
			       "%s: logits are %u x %u x %u; one position, at least two "
			       "classes and no other use are wanted",
			       node->name, x.h, x.w, x.c);
	if (!(loss->smoothing >= 0 && loss->smoothing < 1) || !isfinite(loss->logit_scale))
		record_failure(graph, -EINVAL, "%s: smoothing %g must be in 0..1", node->name,
			       (double)loss->smoothing);
	if (loss->kind < DEVICE_SOFTMAX || loss->kind > DEVICE_KL ||
	    loss->targets < DEVICE_LABELS || loss->targets > DEVICE_DENSE)
		record_failure(graph, -EINVAL, "%s: loss %d of targets %d is not known", node->name,
			       (int)loss->kind, (int)loss->targets);
	if (!(loss->temperature >= 0) || !isfinite(loss->temperature) ||
	    (loss->temperature != 0 && loss->kind != DEVICE_KL))
		record_failure(graph, -EINVAL,
			       "%s: temperature %g must be above 0, and is a divergence's alone",
			       node->name, (double)loss->temperature);
	loss->name = node->name;
	if (loss->logit_scale == 0)
		loss->logit_scale = 1;
	if (loss->temperature == 0)
		loss->temperature = 1;
	if (!graph->failure)
		take_class_weights(graph, node);
	return x;
}

#define BIT(index) (1u << (index))
/* Where what has that role is in the node's array. */
#define PARAM(role)                                                                                \
	((offsetof(struct device_node, role) - offsetof(struct device_node, params)) /             \
	 sizeof(struct device_param *))
#define INPUT(role)                                                                                \
	((offsetof(struct device_node, role) - offsetof(struct device_node, inputs)) /             \
	 sizeof(struct device_value *))
#define OUTPUT(role)                                                                               \
	((offsetof(struct device_node, role) - offsetof(struct device_node, outputs)) /            \
	 sizeof(struct device_value *))

#define NORM_PARAMS                                                                                \
	(BIT(PARAM(gamma)) | BIT(PARAM(beta)) | BIT(PARAM(running_mean)) | BIT(PARAM(running_var)))

static struct device_shape infer_layer_norm(struct device_graph *graph, struct device_node *node,
					    struct device_shape *ret_further)
{
	struct device_shape x = node->x->shape;

	if (node->norm.epsilon == 0)
		node->norm.epsilon = 1e-6f;
	if (!(node->norm.epsilon > 0))
		record_failure(graph, -EINVAL, "%s: epsilon %g must be above 0", node->name,
			       (double)node->norm.epsilon);
	ret_further[OUTPUT(mean)] = ret_further[OUTPUT(deviation)] =
		(struct device_shape){x.n, x.h, x.w, 1};
	return x;
}

/* FNV-1a of 32 bits: a layer draws the same in whatever graph of a net it is. */
static uint32_t layer_of(const char *name)
{
	uint32_t hash = 0x811c9dc5;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x01000193;
	return hash;
}

static bool is_probability(float p)
{
	return p >= 0 && p < 1;
}

static struct device_shape infer_attention(struct device_graph *graph, struct device_node *node,
					   struct device_shape *ret_further)
{
	uint32_t heads = node->attention.heads;
	struct device_shape x = node->x->shape;

	if (!heads || x.c % 3 || x.c / 3 % heads) {
		record_failure(graph, -EINVAL,
			       "%s: attention of %u heads takes 3 x %u x D channels, its input has "
			       "%u",
			       node->name, heads, heads, x.c);
		return x;
	}
	if (!is_probability(node->attention.dropout))
		record_failure(graph, -EINVAL, "%s: dropout %g must be at least 0 and below 1",
			       node->name, (double)node->attention.dropout);
	if (graph->options.mode != DEVICE_TRAIN)
		node->attention.dropout = 0;
	node->attention.layer = layer_of(node->name);
	ret_further[OUTPUT(log_sum)] = (struct device_shape){x.n, heads, x.h, x.w};
	return (struct device_shape){x.n, x.h, x.w, x.c / 3};
}

static struct device_shape infer_tokens(struct device_graph *graph, struct device_node *node,
					struct device_shape *ret_further)
{
	struct device_shape x = node->x->shape;
	uint32_t first = node->class_token != NULL, tokens = x.h * x.w + first;
	uint64_t wanted = node->side ? (uint64_t)node->side * node->side + first : tokens;

	if (node->positions && node->positions->spec.shape[0] != wanted)
		record_failure(
			graph, -EINVAL, "%s: there are embeddings of %u positions for %llu tokens",
			node->name, node->positions->spec.shape[0], (unsigned long long)wanted);
	if (node->class_token && node->class_token->spec.shape[0] != 1)
		record_failure(graph, -EINVAL, "%s: there are %u class tokens", node->name,
			       node->class_token->spec.shape[0]);
	return (struct device_shape){x.n, 1, tokens, x.c};
}

static struct device_shape infer_take(struct device_graph *graph, struct device_node *node,
				      struct device_shape *ret_further)
{
	struct device_shape x = node->x->shape;

	if (node->position >= (uint64_t)x.h * x.w)
		record_failure(graph, -EINVAL, "%s: there is no position %u among %u x %u",
			       node->name, node->position, x.h, x.w);
	return (struct device_shape){x.n, 1, 1, x.c};
}

static struct device_shape infer_scale_add(struct device_graph *graph, struct device_node *node,
					   struct device_shape *ret_further)
{
	struct device_shape x = node->x->shape;
	struct device_shape g =
		node->gate ? node->gate->shape : (struct device_shape){x.n, 1, 1, x.c};

	if (g.n != x.n || g.h != 1 || g.w != 1 || g.c != x.c)
		record_failure(graph, -EINVAL,
			       "%s: gate is %u x %u x %u x %u, one for each sample and channel of "
			       "%u x %u x %u x %u is wanted",
			       node->name, g.n, g.h, g.w, g.c, x.n, x.h, x.w, x.c);
	if (!is_probability(node->scale.drop_path) || !is_probability(node->scale.dropout))
		record_failure(graph, -EINVAL,
			       "%s: probabilities %g and %g must be at least 0 and below 1",
			       node->name, (double)node->scale.drop_path,
			       (double)node->scale.dropout);
	if (node->activation != DEVICE_IDENTITY && node->activation != DEVICE_RELU)
		record_failure(graph, -EINVAL, "%s: the activation must be ReLU or none",
			       node->name);
	if (graph->options.mode != DEVICE_TRAIN)
		node->scale.drop_path = node->scale.dropout = 0;
	node->scale.layer = layer_of(node->name);
	return x;
}

struct kind {
	const char *name;
	/*
	 * checks and completes the attributes, and says the shape of the result; ret_further, by
	 * role among the outputs: those of others, which are zeros as long as there are none
	 */
	struct device_shape (*infer)(struct device_graph *graph, struct device_node *node,
				     struct device_shape *ret_further);
	unsigned inputs, params; /* that may not be missing; a norm's may not where there is one */
	unsigned saved;          /* outputs that are for the backward pass alone */
	bool no_result;          /* its y is its x */
	enum device_param_kind weight; /* 0: it takes none */
};

static const struct kind kinds[DEVICE_NODE_KINDS] = {
	[DEVICE_NODE_INPUT] = {"input", infer_input},
	[DEVICE_NODE_CONV] = {"conv", infer_conv, BIT(INPUT(x)), .weight = DEVICE_CONV_WEIGHT},
	[DEVICE_NODE_LINEAR] = {"linear", infer_linear, BIT(INPUT(x)),
				.weight = DEVICE_LINEAR_WEIGHT},
	[DEVICE_NODE_NORM] = {"norm", infer_same, BIT(INPUT(x)), NORM_PARAMS},
	[DEVICE_NODE_LAYER_NORM] = {"layer norm", infer_layer_norm, BIT(INPUT(x)),
				    BIT(PARAM(gamma)) | BIT(PARAM(beta)),
				    BIT(OUTPUT(mean)) | BIT(OUTPUT(deviation))},
	[DEVICE_NODE_ATTENTION] = {"attention", infer_attention, BIT(INPUT(x)),
				   .saved = BIT(OUTPUT(log_sum))},
	[DEVICE_NODE_TOKENS] = {"tokens", infer_tokens, BIT(INPUT(x)), BIT(PARAM(positions))},
	[DEVICE_NODE_TAKE] = {"take", infer_take, BIT(INPUT(x))},
	[DEVICE_NODE_SCALE_ADD] = {"scale", infer_scale_add, BIT(INPUT(x))},
	[DEVICE_NODE_MAX_POOL] = {"max pool", infer_pool, BIT(INPUT(x))},
	[DEVICE_NODE_AVERAGE_POOL] = {"average pool", infer_pool, BIT(INPUT(x))},
	[DEVICE_NODE_GLOBAL_AVERAGE_POOL] = {"global average pool", infer_global, BIT(INPUT(x))},
	[DEVICE_NODE_GLOBAL_MAX_POOL] = {"global max pool", infer_global, BIT(INPUT(x))},
	[DEVICE_NODE_LOSS] = {"loss", infer_loss, BIT(INPUT(x)), .no_result = true},
};

/* ---- appending ---- */

/* The words of the node's row and of what else it does, as in "conv+norm+add+relu". */
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

	bool more = node->has_norm && !kinds[node->kind].params; /* than the kind is itself */

	if (node->kind == DEVICE_NODE_LOSS) {
		snprintf(node->kind_name, sizeof(node->kind_name), "%s loss",
			 losses[node->loss.kind]);
		return;
	}
	snprintf(node->kind_name, sizeof(node->kind_name), "%s%s%s%s", kinds[node->kind].name,
		 more ? "+norm" : "", node->residual ? "+add" : "", activations[node->activation]);
}

/* A copy of what a recording function describes, in the graph. */
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
	strcpy(node->name, name);
	graph->nodes[graph->node_count++] = node;
	return node;
}

/* An output of a node. */
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

/* The outputs of a node, which is complete but for them. */
static void add_outputs(struct device_graph *graph, struct device_node *node,
			const struct device_shape *shapes)
{
	for (unsigned i = 0; i < DEVICE_NODE_OUTPUTS && !graph->failure; i++) {
		bool saved = kinds[node->kind].saved & BIT(i);

		if (!shapes[i].n || (saved && graph->options.mode != DEVICE_TRAIN))
			continue;
		node->outputs[i] = value_new(graph, node, shapes[i]);
		if (node->outputs[i])
			node->outputs[i]->saved = saved;
	}
}

/* Counts the node among the readers of its inputs and says whether its outputs need gradients. */
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
		if (!node->inputs[i] && (kinds[node->kind].inputs & BIT(i)))
			record_failure(graph, -EINVAL,
				       "an operation was recorded on a missing value");
		else if (node->inputs[i] && node->inputs[i]->graph != graph)
			record_failure(graph, -EINVAL, "a value of another graph was used");
	}
	return !graph->failure;
}

static bool check_weight(struct device_graph *graph, const struct device_node *node)
{
	enum device_param_kind kind = kinds[node->kind].weight;
	const struct device_param *weight = node->weight;

	if (kind && (!weight || weight->store != graph->params || weight->spec.kind != kind))
		record_failure(graph, -EINVAL, "%s: weight must be a %s of the graph's store",
			       node->name,
			       kind == DEVICE_LINEAR_WEIGHT ? "linear one" : "convolution's");
	return !graph->failure;
}

/* What else than its weight a node may take, by role; all are of the result's channels. */
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
	unsigned needed = kinds[node->kind].params | (node->has_norm ? NORM_PARAMS : 0);

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

/* Norm, residual and activation, which several kinds end in. */
static bool check_post(struct device_graph *graph, const struct device_node *node,
		       struct device_shape shape)
{
	float epsilon = node->norm.epsilon, momentum = node->norm.momentum;

	if (node->bias && node->has_norm)
		record_failure(graph, -EINVAL,
			       "%s: a bias before a norm has no effect; leave it out", node->name);
	if (!check_vectors(graph, node, shape.c))
		return false;
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
 * What every recording function ends in: appends the node that it describes, checked by the row of
 * its kind, with its outputs, and connects it to its inputs.
 */
static struct device_value *record(struct device_graph *graph, const char *name,
				   const struct device_node *described)
{
	const struct kind *kind = &kinds[described->kind];
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

/* Sets what a norm brings, which is NULL where there is none. */
static void set_norm(struct device_node *node, const struct device_norm *norm)
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

	set_norm(&node, spec->norm);
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

	set_norm(&node, norm);
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

/* ---- losses ---- */

bool device_loss_is_plain(const struct device_loss_spec *loss)
{
	return loss->kind == DEVICE_SOFTMAX && loss->targets == DEVICE_LABELS &&
	       !loss->class_weights;
}

bool device_loss_is_weighted(const struct device_loss_spec *loss)
{
	return loss->kind == DEVICE_SOFTMAX && loss->targets != DEVICE_DENSE && loss->class_weights;
}

size_t device_target_words(const struct device_graph *graph)
{
	enum device_targets targets = graph->loss ? graph->loss->loss.targets : DEVICE_LABELS;

	return targets == DEVICE_DENSE ? 1 + graph->loss->x->shape.c
				       : (targets == DEVICE_TWO_LABELS ? 3 : 1);
}

struct device_target_arrays device_target_arrays(const struct device_graph *graph, void *words)
{
	enum device_targets targets = graph->loss ? graph->loss->loss.targets : DEVICE_LABELS;
	struct device_target_arrays arrays = {.labels = words};
	size_t n = graph->input->y->shape.n;

	if (words && targets == DEVICE_TWO_LABELS) {
		arrays.labels2 = arrays.labels + n;
		arrays.shares = (float *)(arrays.labels2 + n);
	} else if (words && targets == DEVICE_DENSE) {
		arrays.targets = (float *)(arrays.labels + n);
	}
	return arrays;
}

/* The first of the largest. */
static int32_t largest_of(const float *values, uint32_t count)
{
	uint32_t largest = 0;

	for (uint32_t i = 1; i < count; i++)
		if (values[i] > values[largest])
			largest = i;
	return (int32_t)largest;
}

static bool is_class(const struct device_graph *graph, int32_t label)
{
	return label >= 0 && label < (int32_t)graph->loss->x->shape.c;
}

static void fill_dense(const struct device_graph *graph, const struct device_batch *batch,
		       const struct device_target_arrays *to)
{
	size_t n = graph->input->y->shape.n, classes = graph->loss->x->shape.c;

	memset(to->targets, 0, n * classes * sizeof(float));
	memcpy(to->targets, batch->targets, batch->count * classes * sizeof(float));
	for (size_t i = 0; i < batch->count; i++)
		if (!is_class(graph, to->labels[i]))
			to->labels[i] = largest_of(to->targets + i * classes, (uint32_t)classes);
}

/* The label with the larger share becomes the first. */
static void fill_second(const struct device_graph *graph, const struct device_batch *batch,
			const struct device_target_arrays *to)
{
	for (uint32_t i = 0; i < graph->input->y->shape.n; i++) {
		int32_t label = to->labels[i];
		int32_t second = batch->labels2 && i < batch->count ? batch->labels2[i] : -1;

		to->labels2[i] = label;
		to->shares[i] = 1;
		if (!is_class(graph, label) || !is_class(graph, second))
			continue;
		to->shares[i] = batch->shares[i];
		to->labels2[i] = second;
		if (to->shares[i] >= 0.5f)
			continue;
		to->shares[i] = 1 - to->shares[i];
		to->labels[i] = second;
		to->labels2[i] = label;
	}
}

void device_targets_fill(const struct device_graph *graph, const struct device_batch *batch,
			 void *ret_words)
{
	struct device_target_arrays to = device_target_arrays(graph, ret_words);

	for (uint32_t i = 0; i < graph->input->y->shape.n; i++)
		to.labels[i] = batch->labels && i < batch->count ? batch->labels[i] : -1;
	if (to.targets)
		fill_dense(graph, batch, &to);
	if (to.labels2)
		fill_second(graph, batch, &to);
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
 * A value is active when what is differentiated depends on it and it depends on something that
 * wants a gradient.
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
