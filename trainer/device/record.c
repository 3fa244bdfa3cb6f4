/*
 * Appends operations to a graph: the code common to all operations. op_defs.c describes what
 * differs.
 */
#include "trainer/device/op_defs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX                                                                               \
	((uint64_t)1 << 40) /* per tensor; keeps products of shapes far from overflow */

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

/* Grows an array of pointers to hold one more. */
static int grow_array(void ***items, uint32_t count, uint32_t *capacity)
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

/* Builds the name of the kind with everything fused into the node, such as "conv+norm+add+relu". */
static void name_kind(struct device_node *node)
{
	static const char *const activations[] = {
		[DEVICE_IDENTITY] = "",
		[DEVICE_RELU] = "+relu",
		[DEVICE_GELU] = "+gelu",
		[DEVICE_LOGISTIC] = "+sigmoid",
	};
	static const char *const losses[] = {[DEVICE_SOFTMAX] = "softmax",
					     [DEVICE_SIGMOID] = "sigmoid",
					     [DEVICE_KL] = "kl",
					     [DEVICE_SQUARED] = "squared",
					     [DEVICE_HUBER] = "huber"};

	bool more =
		/* unless the kind itself is a norm */
		node->has_norm && !op_defs[node->kind].params;

	if (node->kind == DEVICE_NODE_LOSS) {
		snprintf(node->kind_name, sizeof(node->kind_name), "%s loss",
			 losses[node->loss.kind]);
		return;
	}
	snprintf(node->kind_name, sizeof(node->kind_name), "%s%s%s%s", op_defs[node->kind].name,
		 more ? "+norm" : "", node->residual ? "+add" : "", activations[node->activation]);
}

/* Adds a copy of a node described by a recording function. */
static struct device_node *node_new(struct device_graph *graph, const char *name,
				    const struct device_node *described)
{
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
	struct device_node *node = calloc(1, sizeof(*node));
	if (!node ||
	    grow_array((void ***)&graph->nodes, graph->node_count, &graph->node_capacity) < 0) {
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

static struct device_value *value_new(struct device_graph *graph, struct device_node *node,
				      struct device_shape shape)
{
	if (device_shape_elements(shape) > ELEMENTS_MAX)
		return record_failure(graph, -EINVAL,
				      "%s: a result of %u x %u x %u x %u is too large", node->name,
				      shape.n, shape.h, shape.w, shape.c);
	struct device_value *value = calloc(1, sizeof(*value));
	if (!value ||
	    grow_array((void ***)&graph->values, graph->value_count, &graph->value_capacity) < 0) {
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
		bool saved = op_defs[node->kind].saved & BIT(i);

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
		if (!node->inputs[i] && (op_defs[node->kind].inputs & BIT(i)))
			record_failure(graph, -EINVAL,
				       "an operation was recorded on a missing value");
		else if (node->inputs[i] && node->inputs[i]->graph != graph)
			record_failure(graph, -EINVAL, "a value of another graph was used");
	}
	return !graph->failure;
}

static bool check_weight(struct device_graph *graph, const struct device_node *node)
{
	enum device_param_kind kind = op_defs[node->kind].weight;
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
	unsigned needed = op_defs[node->kind].params | (node->has_norm ? NORM_PARAMS : 0);

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
		else if (param->shape[kind == DEVICE_EMBEDDING] != channels)
			record_failure(graph, -EINVAL,
				       "%s: %s has %u elements, the result has %u channels",
				       node->name, roles[i].name,
				       param->shape[kind == DEVICE_EMBEDDING], channels);
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

struct device_value *record_node(struct device_graph *graph, const char *name,
				 const struct device_node *described)
{
	const struct op_def *kind = &op_defs[described->kind];
	struct device_shape shapes[DEVICE_NODE_OUTPUTS] = {0};

	if (!check_inputs(graph, described))
		return NULL;
	struct device_node *node = node_new(graph, name, described);
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
