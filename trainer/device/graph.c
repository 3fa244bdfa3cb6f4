/* Recording a graph: what every backend shares. Shapes are inferred and checked here. */
#include "trainer/device/backend.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
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

static struct device_node *node_new(struct device_graph *graph, enum device_node_kind kind,
				    const char *name)
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
	node->kind = kind;
	node->index = graph->node_count;
	strcpy(node->name, name);
	graph->nodes[graph->node_count++] = node;
	return node;
}

/* The result of a node, which is complete but for it. */
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
	node->y = value;
	return value;
}

static bool trainable(const struct device_param *param)
{
	return param && !param->spec.frozen && param->spec.kind != DEVICE_BUFFER;
}

/* Links a node to what it reads and says whether its result needs a gradient. */
static void connect(struct device_node *node, struct device_value *x, struct device_value *residual)
{
	struct device_value *y = node->y;

	node->x = x;
	node->residual = residual;
	x->consumers++;
	y->needs_gradient = x->needs_gradient;
	if (residual) {
		residual->consumers++;
		y->needs_gradient |= residual->needs_gradient;
	}
	y->needs_gradient |= trainable(node->weight) || trainable(node->bias);
	if (node->has_norm)
		y->needs_gradient |= trainable(node->norm.gamma) || trainable(node->norm.beta);
}

static bool usable(struct device_graph *graph, const struct device_value *x)
{
	if (!x)
		record_failure(graph, -EINVAL, "an operation was recorded on a missing value");
	else if (x->graph != graph)
		record_failure(graph, -EINVAL, "a value of another graph was used");
	return !graph->failure;
}

/* A vector parameter of `length` elements, of this store. */
static bool check_vector(struct device_graph *graph, const char *name, const char *role,
			 const struct device_param *param, enum device_param_kind kind,
			 uint32_t length)
{
	if (!param)
		record_failure(graph, -EINVAL, "%s: %s is missing", name, role);
	else if (param->store != graph->params)
		record_failure(graph, -EINVAL, "%s: %s is of another store", name, role);
	else if (param->spec.kind != kind)
		record_failure(graph, -EINVAL, "%s: %s must be a %s", name, role,
			       kind == DEVICE_BUFFER ? "buffer" : "vector");
	else if (param->spec.shape[0] != length)
		record_failure(graph, -EINVAL, "%s: %s has %u elements, the result has %u channels",
			       name, role, param->spec.shape[0], length);
	return !graph->failure;
}

static bool check_norm(struct device_graph *graph, const char *name, const struct device_norm *norm,
		       uint32_t channels)
{
	if (!check_vector(graph, name, "gamma", norm->gamma, DEVICE_VECTOR, channels) ||
	    !check_vector(graph, name, "beta", norm->beta, DEVICE_VECTOR, channels) ||
	    !check_vector(graph, name, "running mean", norm->running_mean, DEVICE_BUFFER,
			  channels) ||
	    !check_vector(graph, name, "running variance", norm->running_var, DEVICE_BUFFER,
			  channels))
		return false;
	if (!(norm->epsilon > 0) || !(norm->momentum >= 0 && norm->momentum <= 1))
		record_failure(graph, -EINVAL,
			       "%s: epsilon %g must be above 0 and momentum %g in 0..1", name,
			       (double)norm->epsilon, (double)norm->momentum);
	return !graph->failure;
}

static bool check_rest(struct device_graph *graph, const char *name, struct device_shape shape,
		       const struct device_value *residual, enum device_activation activation)
{
	if (residual) {
		const struct device_shape *r = &residual->shape;

		if (!usable(graph, residual))
			return false;
		if (r->n != shape.n || r->h != shape.h || r->w != shape.w || r->c != shape.c)
			record_failure(
				graph, -EINVAL,
				"%s: residual is %u x %u x %u x %u, the result %u x %u x %u x %u",
				name, r->n, r->h, r->w, r->c, shape.n, shape.h, shape.w, shape.c);
	}
	if (activation < DEVICE_IDENTITY || activation > DEVICE_GELU)
		record_failure(graph, -EINVAL, "%s: activation %d is not known", name,
			       (int)activation);
	return !graph->failure;
}

struct device_shape device_value_shape(const struct device_value *value)
{
	return value ? value->shape : (struct device_shape){0};
}

struct device_value *device_input(struct device_graph *graph, const struct device_input_spec *spec)
{
	struct device_node *node;
	struct device_value *value;

	if (graph->input)
		return record_failure(graph, -EINVAL, "a graph has one input");
	node = node_new(graph, DEVICE_NODE_INPUT, spec->name);
	if (!node)
		return NULL;
	if (!device_shape_elements(spec->shape))
		return record_failure(graph, -EINVAL, "%s: an input of %u x %u x %u x %u is empty",
				      node->name, spec->shape.n, spec->shape.h, spec->shape.w,
				      spec->shape.c);
	for (uint32_t c = 0; c < spec->shape.c && c < 4; c++)
		if (!(spec->std[c] > 0) || !isfinite(spec->mean[c]))
			return record_failure(
				graph, -EINVAL,
				"%s: channel %u has mean %g and standard deviation %g", node->name,
				c, (double)spec->mean[c], (double)spec->std[c]);
	node->input = *spec;
	node->input.name = node->name;
	value = value_new(graph, node, spec->shape);
	if (!value)
		return NULL;
	value->needs_gradient = spec->gradient;
	graph->input = node;
	return value;
}

struct device_value *device_conv(struct device_graph *graph, struct device_value *x,
				 const struct device_conv_spec *spec)
{
	struct device_node *node;
	struct device_shape y;
	const uint32_t *weight;

	if (!usable(graph, x))
		return NULL;
	node = node_new(graph, DEVICE_NODE_CONV, spec->name);
	if (!node)
		return NULL;
	if (!spec->weight || spec->weight->store != graph->params ||
	    spec->weight->spec.kind != DEVICE_CONV_WEIGHT)
		return record_failure(graph, -EINVAL,
				      "%s: weight must be a convolution's of the graph's store",
				      node->name);
	weight = spec->weight->spec.shape;
	if (weight[3] != x->shape.c)
		return record_failure(graph, -EINVAL,
				      "%s: weight has %u input channels, its input %u", node->name,
				      weight[3], x->shape.c);
	if (!spec->stride || spec->pad > weight[1] || spec->pad > weight[2] ||
	    (uint64_t)x->shape.h + 2 * spec->pad < weight[1] ||
	    (uint64_t)x->shape.w + 2 * spec->pad < weight[2])
		return record_failure(
			graph, -EINVAL,
			"%s: a %u x %u kernel with stride %u and padding %u does not fit %u x %u",
			node->name, weight[1], weight[2], spec->stride, spec->pad, x->shape.h,
			x->shape.w);
	y = (struct device_shape){
		x->shape.n, (x->shape.h + 2 * spec->pad - weight[1]) / spec->stride + 1,
		(x->shape.w + 2 * spec->pad - weight[2]) / spec->stride + 1, weight[0]};
	if (spec->bias && spec->norm)
		return record_failure(graph, -EINVAL,
				      "%s: a bias before a norm has no effect; leave it out",
				      node->name);
	if (spec->bias && !check_vector(graph, node->name, "bias", spec->bias, DEVICE_VECTOR, y.c))
		return NULL;
	if (spec->norm && !check_norm(graph, node->name, spec->norm, y.c))
		return NULL;
	if (!check_rest(graph, node->name, y, spec->residual, spec->activation) ||
	    !value_new(graph, node, y))
		return NULL;
	node->weight = spec->weight;
	node->bias = spec->bias;
	node->has_norm = spec->norm;
	if (spec->norm)
		node->norm = *spec->norm;
	node->window_h = weight[1];
	node->window_w = weight[2];
	node->stride = spec->stride;
	node->pad = spec->pad;
	node->activation = spec->activation;
	connect(node, x, spec->residual);
	return node->y;
}

struct device_value *device_linear(struct device_graph *graph, struct device_value *x,
				   const struct device_linear_spec *spec)
{
	struct device_node *node;
	struct device_shape y;

	if (!usable(graph, x))
		return NULL;
	node = node_new(graph, DEVICE_NODE_CONV, spec->name);
	if (!node)
		return NULL;
	if (!spec->weight || spec->weight->store != graph->params ||
	    spec->weight->spec.kind != DEVICE_LINEAR_WEIGHT)
		return record_failure(graph, -EINVAL,
				      "%s: weight must be a linear one of the graph's store",
				      node->name);
	if (spec->weight->spec.shape[1] != device_shape_elements(x->shape) / x->shape.n)
		return record_failure(graph, -EINVAL,
				      "%s: weight has %u inputs, its input %u x %u x %u",
				      node->name, spec->weight->spec.shape[1], x->shape.h,
				      x->shape.w, x->shape.c);
	y = (struct device_shape){x->shape.n, 1, 1, spec->weight->spec.shape[0]};
	if (spec->bias && !check_vector(graph, node->name, "bias", spec->bias, DEVICE_VECTOR, y.c))
		return NULL;
	if (!check_rest(graph, node->name, y, NULL, spec->activation) || !value_new(graph, node, y))
		return NULL;
	node->linear = true;
	node->weight = spec->weight;
	node->bias = spec->bias;
	node->window_h = node->window_w = node->stride = 1;
	node->activation = spec->activation;
	connect(node, x, NULL);
	return node->y;
}

struct device_value *device_norm(struct device_graph *graph, const char *name,
				 struct device_value *x, const struct device_norm *norm,
				 struct device_value *residual, enum device_activation activation)
{
	struct device_node *node;

	if (!usable(graph, x))
		return NULL;
	node = node_new(graph, DEVICE_NODE_NORM, name);
	if (!node)
		return NULL;
	if (!norm)
		return record_failure(graph, -EINVAL, "%s: the norm is missing", node->name);
	if (!check_norm(graph, node->name, norm, x->shape.c) ||
	    !check_rest(graph, node->name, x->shape, residual, activation) ||
	    !value_new(graph, node, x->shape))
		return NULL;
	node->has_norm = true;
	node->norm = *norm;
	node->activation = activation;
	connect(node, x, residual);
	return node->y;
}

static struct device_value *record_pool(struct device_graph *graph, enum device_node_kind kind,
					struct device_value *x, const struct device_pool_spec *spec)
{
	struct device_node *node;
	struct device_shape y;

	if (!usable(graph, x))
		return NULL;
	node = node_new(graph, kind, spec->name);
	if (!node)
		return NULL;
	if (!spec->window || !spec->stride || spec->pad >= spec->window ||
	    (uint64_t)x->shape.h + 2 * spec->pad < spec->window ||
	    (uint64_t)x->shape.w + 2 * spec->pad < spec->window)
		return record_failure(
			graph, -EINVAL,
			"%s: a window of %u with stride %u and padding %u does not fit %u x %u",
			node->name, spec->window, spec->stride, spec->pad, x->shape.h, x->shape.w);
	y = (struct device_shape){
		x->shape.n, (x->shape.h + 2 * spec->pad - spec->window) / spec->stride + 1,
		(x->shape.w + 2 * spec->pad - spec->window) / spec->stride + 1, x->shape.c};
	if (!value_new(graph, node, y))
		return NULL;
	node->window_h = node->window_w = spec->window;
	node->stride = spec->stride;
	node->pad = spec->pad;
	connect(node, x, NULL);
	return node->y;
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

static struct device_value *record_global(struct device_graph *graph, enum device_node_kind kind,
					  const char *name, struct device_value *x)
{
	struct device_node *node;

	if (!usable(graph, x))
		return NULL;
	node = node_new(graph, kind, name);
	if (!node || !value_new(graph, node, (struct device_shape){x->shape.n, 1, 1, x->shape.c}))
		return NULL;
	connect(node, x, NULL);
	return node->y;
}

struct device_value *device_global_average_pool(struct device_graph *graph, const char *name,
						struct device_value *x)
{
	return record_global(graph, DEVICE_NODE_GLOBAL_AVERAGE_POOL, name, x);
}

struct device_value *device_global_max_pool(struct device_graph *graph, const char *name,
					    struct device_value *x)
{
	return record_global(graph, DEVICE_NODE_GLOBAL_MAX_POOL, name, x);
}

struct device_value *device_softmax_loss(struct device_graph *graph, struct device_value *logits,
					 const struct device_loss_spec *spec)
{
	struct device_node *node;

	if (!usable(graph, logits))
		return NULL;
	node = node_new(graph, DEVICE_NODE_LOSS, spec->name);
	if (!node)
		return NULL;
	if (logits->shape.h != 1 || logits->shape.w != 1 || logits->shape.c < 2 ||
	    logits->consumers)
		return record_failure(graph, -EINVAL,
				      "%s: logits are %u x %u x %u; one position, at least two "
				      "classes and no other use are wanted",
				      node->name, logits->shape.h, logits->shape.w,
				      logits->shape.c);
	if (!(spec->smoothing >= 0 && spec->smoothing < 1) || !isfinite(spec->logit_scale))
		return record_failure(graph, -EINVAL, "%s: smoothing %g must be in 0..1",
				      node->name, (double)spec->smoothing);
	node->loss = *spec;
	node->loss.name = node->name;
	if (node->loss.logit_scale == 0)
		node->loss.logit_scale = 1;
	node->x = node->y = logits;
	logits->consumers++;
	graph->loss = node;
	return logits;
}

int device_graph_plan(struct device_graph *graph, char *error)
{
	char scratch[DEVICE_ERROR_MAX];
	int r;

	if (!error)
		error = scratch;
	if (graph->planned)
		return snprintf(error, DEVICE_ERROR_MAX, "the graph is planned already"), -EBUSY;
	if (!graph->failure && !graph->params->allocated)
		record_failure(graph, -EINVAL, "the parameters are not allocated yet");
	if (!graph->failure && !graph->input)
		record_failure(graph, -EINVAL, "the graph has no input");
	if (graph->failure)
		return snprintf(error, DEVICE_ERROR_MAX, "%s", graph->error), graph->failure;
	r = graph->device->ops->graph_plan(graph, error);
	graph->planned = r == 0;
	return r;
}
