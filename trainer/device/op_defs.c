/*
 * The operations. Each has a recording function, which describes it as a node, and an infer
 * function, which checks the attributes and computes the shapes of the outputs.
 */
#include "trainer/device/op_defs.h"
#include "trainer/device/pos_embed.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- input ---- */

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

struct device_value *device_input(struct device_graph *graph, const struct device_input_spec *spec)
{
	if (graph->input)
		return record_failure(graph, -EINVAL, "a graph has one input");
	struct device_value *y =
		record_node(graph, spec->name,
			    &(struct device_node){.kind = DEVICE_NODE_INPUT, .input = *spec});
	if (!y)
		return NULL;
	y->needs_gradient = spec->gradient;
	graph->input = y->producer;
	return y;
}

/* ---- norms ---- */

/* Sets the norm's fields of a node; norm NULL for none. */
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

static struct device_shape infer_same(struct device_graph *graph, struct device_node *node,
				      struct device_shape *ret_further)
{
	return node->x->shape;
}

struct device_value *device_norm(struct device_graph *graph, const char *name,
				 struct device_value *x, const struct device_norm *norm,
				 struct device_value *residual, enum device_activation activation)
{
	struct device_node node = {
		.kind = DEVICE_NODE_NORM, .inputs = {x, residual}, .activation = activation};

	set_norm(graph, &node, norm);
	return record_node(graph, name, &node);
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

struct device_value *device_layer_norm(struct device_graph *graph, struct device_value *x,
				       const struct device_layer_norm_spec *spec)
{
	return record_node(graph, spec->name,
			   &(struct device_node){.kind = DEVICE_NODE_LAYER_NORM,
						 .inputs = {x},
						 .gamma = spec->gamma,
						 .beta = spec->beta,
						 .norm.epsilon = spec->epsilon});
}

/* ---- convolutions and pools ---- */

static bool window_fits(const struct device_node *node)
{
	uint64_t pads = 2 * (uint64_t)node->pad + node->pad_extra;

	return node->stride && node->x->shape.h + pads >= node->window_h &&
	       node->x->shape.w + pads >= node->window_w;
}

/* Shape of the result, which has a position for each window that fits. */
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
	const uint32_t *weight = node->weight->shape;
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
	return record_node(graph, spec->name, &node);
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

static struct device_value *record_pool(struct device_graph *graph, enum device_node_kind kind,
					struct device_value *x, const struct device_pool_spec *spec)
{
	return record_node(graph, spec->name,
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

static struct device_shape infer_global(struct device_graph *graph, struct device_node *node,
					struct device_shape *ret_further)
{
	struct device_shape x = node->x->shape;

	node->window_h = x.h;
	node->window_w = x.w;
	node->stride = 1;
	return (struct device_shape){x.n, 1, 1, x.c};
}

struct device_value *device_global_average_pool(struct device_graph *graph, const char *name,
						struct device_value *x)
{
	return record_node(
		graph, name,
		&(struct device_node){.kind = DEVICE_NODE_GLOBAL_AVERAGE_POOL, .inputs = {x}});
}

struct device_value *device_global_max_pool(struct device_graph *graph, const char *name,
					    struct device_value *x)
{
	return record_node(
		graph, name,
		&(struct device_node){.kind = DEVICE_NODE_GLOBAL_MAX_POOL, .inputs = {x}});
}

/* ---- linear layers ---- */

static struct device_shape infer_linear(struct device_graph *graph, struct device_node *node,
					struct device_shape *ret_further)
{
	const uint32_t *weight = node->weight->shape;
	struct device_shape x = node->x->shape;

	if (weight[1] != (node->by_position ? x.c : device_shape_elements(x) / x.n))
		record_failure(graph, -EINVAL, "%s: weight has %u inputs, its input %u x %u x %u%s",
			       node->name, weight[1], x.h, x.w, x.c,
			       node->by_position ? ", by position" : "");
	if (device_node_sums_result(node) && node->activation != DEVICE_IDENTITY)
		record_failure(graph, -EINVAL,
			       "%s: a layer split by inputs has no activation, which would precede "
			       "the sum",
			       node->name);
	node->window_h = node->window_w = node->stride = node->groups = 1;
	return node->by_position ? (struct device_shape){x.n, x.h, x.w, weight[0]}
				 : (struct device_shape){x.n, 1, 1, weight[0]};
}

struct device_value *device_linear(struct device_graph *graph, struct device_value *x,
				   const struct device_linear_spec *spec)
{
	return record_node(graph, spec->name,
			   &(struct device_node){.kind = DEVICE_NODE_LINEAR,
						 .inputs = {x, spec->residual},
						 .params = {spec->weight, spec->bias},
						 .by_position = spec->by_position,
						 .activation = spec->activation});
}

/* ---- tokens and attention ---- */

static struct device_shape infer_pos_embed(struct device_graph *graph, struct device_node *node,
					   struct device_shape *ret_further)
{
	struct device_shape x = node->x->shape;
	uint32_t first = node->class_token != NULL, tokens = x.h * x.w + first;
	uint64_t wanted =
		node->grid_side ? (uint64_t)node->grid_side * node->grid_side + first : tokens;

	if (node->positions && node->positions->shape[0] != wanted)
		record_failure(graph, -EINVAL,
			       "%s: there are embeddings of %u positions for %llu tokens",
			       node->name, node->positions->shape[0], (unsigned long long)wanted);
	if (node->class_token && node->class_token->shape[0] != 1)
		record_failure(graph, -EINVAL, "%s: there are %u class tokens", node->name,
			       node->class_token->shape[0]);
	return (struct device_shape){x.n, 1, tokens, x.c};
}

struct device_value *device_pos_embed(struct device_graph *graph, struct device_value *x,
				      const struct device_pos_embed_spec *spec)
{
	return record_node(graph, spec->name,
			   &(struct device_node){.kind = DEVICE_NODE_POS_EMBED,
						 .inputs = {x},
						 .positions = spec->positions,
						 .grid_side = spec->grid_side,
						 .class_token = spec->class_token});
}

bool device_node_resizes(const struct device_node *node, struct pos_embed_size *ret_size)
{
	struct device_shape x = node->x->shape;

	if (!node->grid_side || (node->grid_side == x.h && node->grid_side == x.w))
		return false;
	*ret_size =
		(struct pos_embed_size){node->class_token != NULL, node->grid_side, x.h, x.w, x.c};
	return true;
}

static struct device_shape infer_select_token(struct device_graph *graph, struct device_node *node,
					      struct device_shape *ret_further)
{
	struct device_shape x = node->x->shape;

	if (node->position >= (uint64_t)x.h * x.w)
		record_failure(graph, -EINVAL, "%s: there is no position %u among %u x %u",
			       node->name, node->position, x.h, x.w);
	return (struct device_shape){x.n, 1, 1, x.c};
}

struct device_value *device_select_token(struct device_graph *graph, const char *name,
					 struct device_value *x, uint32_t position)
{
	return record_node(graph, name,
			   &(struct device_node){.kind = DEVICE_NODE_SELECT_TOKEN,
						 .inputs = {x},
						 .position = position});
}

/*
 * 32-bit FNV-1a hash of the name, so that a layer's draws are the same in every graph of a network.
 */
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
	node->attention.first = graph->params->group ? graph->params->group->rank * heads : 0;
	ret_further[OUTPUT(log_sum)] = (struct device_shape){x.n, heads, x.h, x.w};
	return (struct device_shape){x.n, x.h, x.w, x.c / 3};
}

struct device_value *device_attention(struct device_graph *graph, struct device_value *qkv,
				      const struct device_attention_spec *spec)
{
	return record_node(graph, spec->name,
			   &(struct device_node){.kind = DEVICE_NODE_ATTENTION,
						 .inputs = {qkv},
						 .attention = {spec->heads, spec->dropout}});
}

/* ---- sums ---- */

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

struct device_value *device_scale_add(struct device_graph *graph, struct device_value *x,
				      const struct device_scale_add_spec *spec)
{
	struct device_node node = {.kind = DEVICE_NODE_SCALE_ADD,
				   .inputs = {x, spec->residual, spec->gate},
				   .gamma = spec->gamma,
				   .scale = {spec->drop_path, spec->dropout},
				   .activation = spec->activation};

	return record_node(graph, spec->name, &node);
}

/* ---- loss ---- */

/* Copies the class weights, since the caller's array may not live until the first step. */
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

/* Regression has no classes whose targets could be smoothed, weighted or compared. */
static void check_regression(struct device_graph *graph, const struct device_node *node)
{
	const struct device_loss_spec *loss = &node->loss;

	if (!device_loss_is_regression(loss))
		return;
	if (loss->targets != DEVICE_DENSE)
		record_failure(graph, -EINVAL, "%s: regression needs dense targets", node->name);
	if (loss->smoothing != 0 || loss->class_weights || loss->teacher_weight != 0)
		record_failure(graph, -EINVAL,
			       "%s: regression has no label smoothing, class weights or teacher",
			       node->name);
}

static struct device_shape infer_loss(struct device_graph *graph, struct device_node *node,
				      struct device_shape *ret_further)
{
	struct device_loss_spec *loss = &node->loss;
	struct device_shape x = node->x->shape;
	uint32_t least = loss->kind == DEVICE_SOFTMAX || loss->kind == DEVICE_KL ? 2 : 1;

	if (x.h != 1 || x.w != 1 || x.c < least || node->x->consumers)
		record_failure(graph, -EINVAL,
			       "%s: logits are %u x %u x %u; one position, at least %u "
			       "class%s and no other use are wanted",
			       node->name, x.h, x.w, x.c, least, least == 1 ? "" : "es");
	if (!isfinite(loss->logit_scale))
		record_failure(graph, -EINVAL, "%s: logit_scale %g must be finite", node->name,
			       (double)loss->logit_scale);
	if (!(loss->smoothing >= 0 && loss->smoothing < 1))
		record_failure(graph, -EINVAL, "%s: smoothing %g must be in 0..1", node->name,
			       (double)loss->smoothing);
	if (loss->kind < DEVICE_SOFTMAX || loss->kind > DEVICE_HUBER ||
	    loss->targets < DEVICE_LABELS || loss->targets > DEVICE_DENSE)
		record_failure(graph, -EINVAL, "%s: loss %d of targets %d is not known", node->name,
			       (int)loss->kind, (int)loss->targets);
	if (!(loss->temperature >= 0) || !isfinite(loss->temperature) ||
	    (loss->temperature != 0 && loss->kind != DEVICE_KL))
		record_failure(graph, -EINVAL,
			       "%s: temperature %g must be above 0, and is a divergence's alone",
			       node->name, (double)loss->temperature);
	if (!(loss->teacher_weight >= 0 && loss->teacher_weight <= 1))
		record_failure(graph, -EINVAL, "%s: the teacher's weight %g must be in 0..1",
			       node->name, (double)loss->teacher_weight);
	if (!(loss->teacher_temperature >= 0) || !isfinite(loss->teacher_temperature))
		record_failure(graph, -EINVAL, "%s: the teacher's temperature %g must be above 0",
			       node->name, (double)loss->teacher_temperature);
	check_regression(graph, node);
	loss->name = node->name;
	if (loss->teacher_temperature == 0)
		loss->teacher_temperature = 1;
	if (loss->logit_scale == 0)
		loss->logit_scale = 1;
	if (loss->temperature == 0)
		loss->temperature = 1;
	if (!graph->failure)
		take_class_weights(graph, node);
	return x;
}

struct device_value *device_loss(struct device_graph *graph, struct device_value *logits,
				 const struct device_loss_spec *spec)
{
	struct device_value *y = record_node(
		graph, spec->name,
		&(struct device_node){.kind = DEVICE_NODE_LOSS, .inputs = {logits}, .loss = *spec});

	if (y)
		graph->loss = graph->nodes[graph->node_count - 1];
	return y;
}

/* ---- all of them ---- */

static bool is_split_by(const struct device_node *node, uint32_t dimension)
{
	const struct device_param *weight = node->weight;

	return node->kind == DEVICE_NODE_LINEAR && device_param_is_split(weight) &&
	       weight->spec.split_dimension == dimension;
}

bool device_node_sums_result(const struct device_node *node)
{
	return is_split_by(node, 2);
}

bool device_node_sums_gradient(const struct device_node *node)
{
	return is_split_by(node, 1);
}

bool device_node_adds_bias(const struct device_node *node)
{
	return node->bias &&
	       (!device_node_sums_result(node) || node->bias->store->group->rank == 0);
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

const struct op_def op_defs[DEVICE_NODE_KINDS] = {
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
	[DEVICE_NODE_POS_EMBED] = {"tokens", infer_pos_embed, BIT(INPUT(x)), BIT(PARAM(positions))},
	[DEVICE_NODE_SELECT_TOKEN] = {"take", infer_select_token, BIT(INPUT(x))},
	[DEVICE_NODE_SCALE_ADD] = {"scale", infer_scale_add, BIT(INPUT(x))},
	[DEVICE_NODE_MAX_POOL] = {"max pool", infer_pool, BIT(INPUT(x))},
	[DEVICE_NODE_AVERAGE_POOL] = {"average pool", infer_pool, BIT(INPUT(x))},
	[DEVICE_NODE_GLOBAL_AVERAGE_POOL] = {"global average pool", infer_global, BIT(INPUT(x))},
	[DEVICE_NODE_GLOBAL_MAX_POOL] = {"global max pool", infer_global, BIT(INPUT(x))},
	[DEVICE_NODE_LOSS] = {"loss", infer_loss, BIT(INPUT(x)), .no_result = true},
};
