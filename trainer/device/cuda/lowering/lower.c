/* Lowers a graph to a program: the walk over its nodes, input, loss and pools. */
#include "trainer/device/cuda/lowering/lower.h"
#include "trainer/device/positions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_WINDOW_MAX        16 /* a position in the window fits a byte */
#define ATTENTION_CHANNELS_MAX 64 /* channels per head; size of the kernels' tiles */

struct lower_value *lower_value(struct lowering *l, const struct device_value *value)
{
	return value ? &l->values[value->index] : NULL;
}

struct lower_node *lower_node(struct lowering *l, const struct device_node *node)
{
	return &l->nodes[node->index];
}

bool lower_trains(const struct device_param *param)
{
	return param && !param->spec.frozen;
}

bool lower_infers(const struct lowering *l, const struct device_node *node)
{
	bool moves = node->has_norm && !node->norm.fixed;

	return !l->training || (!node->backward && !moves);
}

struct cuda_tensor *lower_output(struct lowering *l, const struct device_value *value,
				 const char *what, enum cuda_element element)
{
	struct lower_value *v = lower_value(l, value);

	v->y = lower_tensor(l, value->producer, what, value->shape, element);
	v->y->value = value;
	v->y->kept = v->kept;
	return v->y;
}

struct cuda_tensor *lower_result(struct lowering *l, const struct device_node *node,
				 enum cuda_element element)
{
	return lower_output(l, node->y, "", element);
}

/* ---- gradients of values ---- */

static struct cuda_tensor *add_gradients(struct lowering *l, const struct device_value *value,
					 struct cuda_tensor *a, struct cuda_tensor *b)
{
	struct cuda_tensor *sum =
		lower_tensor(l, value->producer, "gradient sum", a->shape, l->options->element);
	struct cuda_op *op = lower_op(l, CUDA_OP_ADD, value->producer);

	op->operands[CUDA_X] = a;
	op->operands[CUDA_RESIDUAL] = b;
	op->operands[CUDA_Y] = sum;
	return sum;
}

void lower_contribute(struct lowering *l, const struct device_value *value,
		      struct cuda_tensor *gradient)
{
	struct lower_value *v = lower_value(l, value);
	uint32_t most = l->options->fusion == DEVICE_FUSION_NONE ? 1 : 2;

	if (v->uses_left)
		v->uses_left--;
	if (v->gradient_count == most) {
		struct cuda_tensor *last = v->gradients[most - 1];

		v->gradients[0] =
			add_gradients(l, value, v->gradients[0], most == 2 ? last : gradient);
		v->gradient_count = 1;
		if (most == 1)
			return;
	}
	v->gradients[v->gradient_count++] = gradient;
}

void lower_set_gradients(struct lowering *l, struct cuda_op *op, const struct device_value *value)
{
	const struct lower_value *v = lower_value(l, value);

	op->operands[CUDA_DY] = v->gradients[0];
	if (v->gradient_count == 2)
		op->operands[CUDA_DY2] = v->gradients[1];
}

struct cuda_tensor *lower_whole_gradient(struct lowering *l, const struct device_value *value)
{
	struct lower_value *v = lower_value(l, value);

	if (v->gradient_count == 2) {
		v->gradients[0] = add_gradients(l, value, v->gradients[0], v->gradients[1]);
		v->gradient_count = 1;
	}
	return v->gradients[0];
}

/*
 * keep_all: adds the whole gradient as a readable tensor, separate from what operations do with its
 * parts.
 */
static void keep_gradient(struct lowering *l, const struct device_value *value)
{
	struct lower_value *v = lower_value(l, value);
	struct cuda_tensor *gradient = v->gradients[0];
	struct cuda_op *op;

	if (!l->keep_all || !v->gradient_count)
		return;
	if (v->gradient_count == 2) {
		gradient = add_gradients(l, value, gradient, v->gradients[1]);
	} else if (gradient->value) {
		/* it also belongs to another value, or was given */
		if (gradient->value == value)
			return;
		gradient = lower_tensor(l, value->producer, "gradient copy", gradient->shape,
					l->options->element);
		op = lower_op(l, CUDA_OP_APPLY, value->producer);
		op->operands[CUDA_X] = v->gradients[0];
		op->operands[CUDA_Y] = gradient;
	}
	gradient->value = value;
	gradient->gradient = true;
	gradient->kept = true;
}

/* ---- input and loss ---- */

static void input_forward(struct lowering *l, struct lower_node *n)
{
	struct cuda_tensor *y = lower_result(l, n->node, l->options->element);
	struct cuda_op *op;

	y->shape.c = l->input_channels;
	y->bytes = device_shape_elements(y->shape) * y->element_bytes;
	op = lower_op(l, CUDA_OP_INPUT, n->node);
	op->operands[CUDA_Y] = y;
}

static void loss_forward(struct lowering *l, struct lower_node *n)
{
	struct lower_value *logits = lower_value(l, n->node->x);
	struct cuda_op *op = lower_op(l, CUDA_OP_LOSS, n->node);
	struct cuda_tensor *dx;

	op->operands[CUDA_X] = logits->y;
	if (!n->node->x->active)
		return;
	/* all inputs of the gradient are available here */
	dx = lower_tensor(l, n->node, "gradient", n->node->x->shape, l->options->element);
	op->operands[CUDA_DX] = dx;
	lower_contribute(l, n->node->x, dx);
}

/* ---- pools ---- */

static void max_pool_forward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct lower_value *x = lower_value(l, node->x);
	struct cuda_tensor *y = lower_result(l, node, l->options->element);
	struct cuda_op *op;

	if (node->window_h > POOL_WINDOW_MAX) {
		lower_fail(
			l, -ENOTSUP,
			"%s: a maximum over a window of %u is more than the %d that this backend "
			"has an operation for; use a smaller window or the global maximum",
			node->name, node->window_h, POOL_WINDOW_MAX);
		return;
	}
	if (node->backward)
		n->has[CUDA_INDEX] = lower_index(l, node, node->y->shape, 1);
	op = lower_op(l, CUDA_OP_MAX_POOL, node);
	op->operands[CUDA_X] = x->y;
	op->operands[CUDA_Y] = y;
	op->operands[CUDA_INDEX] = n->has[CUDA_INDEX];
	if (!x->y) {
		struct lower_node *producer = lower_node(l, node->x->producer);

		op->operands[CUDA_X] = producer->raw;
		lower_take(l, op, producer, CUDA_BIT(CUDA_SCALE) | CUDA_BIT(CUDA_BIAS));
		op->norm.activation = producer->node->activation;
	}
}

static void max_pool_gradient(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct cuda_tensor *dx =
		lower_tensor(l, node, "gradient", node->x->shape, l->options->element);
	struct cuda_op *op = lower_op(l, CUDA_OP_MAX_POOL_BACKWARD, node);

	lower_set_gradients(l, op, node->y);
	op->operands[CUDA_INDEX] = n->has[CUDA_INDEX];
	op->operands[CUDA_DX] = dx;
	lower_contribute(l, node->x, dx);
}

static void max_pool_backward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct lower_node *producer;

	if (lower_norm_before(l, node->x, &producer) && !producer->node->residual &&
	    !lower_value(l, node->x)->gradient_count) {
		producer->pool = n;
		/* with keep_all, also compute the gradient between pool and norm */
		if (!l->keep_all)
			return;
	}
	max_pool_gradient(l, n);
}

/* ---- convolutions, linear layers, norms ---- */

static void conv_forward(struct lowering *l, struct lower_node *n)
{
	if (!n->convolved)
		lower_conv_forward(l, n);
	if (!n->complete)
		lower_post_forward(l, n);
}

static void conv_backward(struct lowering *l, struct lower_node *n)
{
	struct cuda_tensor *dx = lower_post_backward(l, n);

	if (dx)
		lower_conv_backward(l, n, dx);
}

static void linear_forward(struct lowering *l, struct lower_node *n)
{
	lower_linear_forward(l, n);
	if (!n->complete)
		lower_post_forward(l, n);
}

static void linear_backward(struct lowering *l, struct lower_node *n)
{
	struct cuda_tensor *dx = lower_post_backward(l, n);

	if (dx)
		lower_linear_backward(l, n, dx);
}

static void norm_forward(struct lowering *l, struct lower_node *n)
{
	n->raw = lower_value(l, n->node->x)->y;
	lower_post_forward(l, n);
}

static void norm_backward(struct lowering *l, struct lower_node *n)
{
	struct cuda_tensor *dx = lower_post_backward(l, n);

	if (dx)
		lower_contribute(l, n->node->x, dx);
}

/* ---- kinds with one operation forward and one backward, by table row ---- */

/* True if the operation may have an operand of that role. */
static bool takes(const struct cuda_op *op, enum cuda_role role)
{
	return cuda_op_roles(op->kind) & CUDA_BIT(role);
}

static void set_input(struct lowering *l, struct cuda_op *op, const struct lower_node *n)
{
	lower_take(l, op, n, cuda_op_roles(op->kind));
	if (takes(op, CUDA_X))
		op->operands[CUDA_X] = lower_value(l, n->node->x)->y;
}

static void single_forward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct cuda_tensor *y = lower_result(l, node, l->options->element);
	struct cuda_op *op = lower_op(l, cuda_op_of(node->kind, false), node);

	if (takes(op, CUDA_INDEX) && node->backward)
		n->has[CUDA_INDEX] = lower_index(l, node, node->y->shape, sizeof(uint32_t));
	if (node->mean)
		n->has[CUDA_MEAN] = lower_output(l, node->mean, "mean", CUDA_F32);
	if (node->deviation)
		n->has[CUDA_DEVIATION] = lower_output(l, node->deviation, "deviation", CUDA_F32);
	if (node->log_sum)
		n->has[CUDA_LOG_SUM] = lower_output(l, node->log_sum, "log sum", CUDA_F32);
	set_input(l, op, n);
	op->operands[CUDA_Y] = y;
}

static void single_backward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	const struct {
		enum cuda_role role;
		struct device_param *param;
	} gradients[] = {
		{CUDA_DGAMMA, node->gamma},
		{CUDA_DBETA, node->beta},
		{CUDA_DPOSITIONS, node->positions},
		{CUDA_DCLASS_TOKEN, node->class_token},
	};
	struct cuda_tensor *dx = NULL;
	struct cuda_op *op;

	if (node->x->active)
		dx = lower_tensor(l, node, "gradient", node->x->shape, l->options->element);
	lower_whole_gradient(l, node->y);
	op = lower_op(l, cuda_op_of(node->kind, true), node);
	set_input(l, op, n);
	if (takes(op, CUDA_Y))
		op->operands[CUDA_Y] = lower_value(l, node->y)->y;
	lower_set_gradients(l, op, node->y);
	op->operands[CUDA_DX] = dx;
	for (size_t i = 0; i < sizeof(gradients) / sizeof(*gradients); i++)
		if (takes(op, gradients[i].role) && lower_trains(gradients[i].param))
			lower_gradient_slot(l, op, gradients[i].role, gradients[i].param);
	if (dx)
		lower_contribute(l, node->x, dx);
}

static void attention_forward_pass(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	uint32_t channels = node->y->shape.c / node->attention.heads;

	if (channels > ATTENTION_CHANNELS_MAX)
		lower_fail(
			l, -ENOTSUP,
			"%s: heads of %u channels, but attention on a GPU takes at most %d; make "
			"the network narrower, or compute on the CPU",
			node->name, channels, ATTENTION_CHANNELS_MAX);
	else
		single_forward(l, n);
}

/* ---- tokens: single operations, unless position embeddings are resized ---- */

/* Position embeddings, or their gradient, at the size of the node's x. */
static struct cuda_tensor *resized_positions(struct lowering *l, const struct device_node *node,
					     const char *what)
{
	const struct device_shape *y = &node->y->shape;

	return lower_tensor(l, node, what, (struct device_shape){1, 1, y->w, y->c}, CUDA_F32);
}

static struct cuda_op *last_op(struct lowering *l)
{
	return l->failure ? &l->scratch_op : &l->program->ops[l->program->op_count - 1];
}

static void tokens_forward(struct lowering *l, struct lower_node *n)
{
	struct positions_size size;
	struct cuda_tensor *resized = NULL;
	struct cuda_op *op;

	if (device_node_resizes(n->node, &size)) {
		resized = resized_positions(l, n->node, "positions");
		op = lower_op(l, CUDA_OP_RESIZE_POSITIONS, n->node);
		op->operands[CUDA_POSITIONS] = lower_param(l, n->node->positions, DEVICE_VALUE);
		op->operands[CUDA_Y] = resized;
	}
	single_forward(l, n);
	if (resized)
		last_op(l)->operands[CUDA_POSITIONS] = resized;
}

static void tokens_backward(struct lowering *l, struct lower_node *n)
{
	struct positions_size size;
	struct cuda_tensor *gradient, *slot;
	struct cuda_op *op;
	uint64_t adds;

	single_backward(l, n);
	op = last_op(l);
	/* skip additions of contributions to the gradient of x that may follow */
	while (!l->failure && op->kind != CUDA_OP_TOKENS_BACKWARD)
		op--;
	slot = op->operands[CUDA_DPOSITIONS];
	if (!slot || !device_node_resizes(n->node, &size))
		return;
	gradient = resized_positions(l, n->node, "positions' gradient");
	adds = op->adds & CUDA_BIT(CUDA_DPOSITIONS);
	op->adds &= ~adds;
	op->operands[CUDA_DPOSITIONS] = gradient;
	op = lower_op(l, CUDA_OP_RESIZE_POSITIONS_BACKWARD, n->node);
	op->operands[CUDA_DY] = gradient;
	op->operands[CUDA_DPOSITIONS] = slot;
	op->adds = adds;
}

/* ---- the walk ---- */

/* Kinds that need more, or less, than a single operation. */
static const struct {
	void (*forward)(struct lowering *l, struct lower_node *n);
	void (*backward)(struct lowering *l, struct lower_node *n); /* may be NULL */
} lowerings[DEVICE_NODE_KINDS] = {
	[DEVICE_NODE_INPUT] = {input_forward, NULL},
	[DEVICE_NODE_CONV] = {conv_forward, conv_backward},
	[DEVICE_NODE_LINEAR] = {linear_forward, linear_backward},
	[DEVICE_NODE_NORM] = {norm_forward, norm_backward},
	[DEVICE_NODE_ATTENTION] = {attention_forward_pass, single_backward},
	[DEVICE_NODE_SCALE_ADD] = {lower_scale_add_forward, lower_scale_add_backward},
	[DEVICE_NODE_TOKENS] = {tokens_forward, tokens_backward},
	[DEVICE_NODE_MAX_POOL] = {max_pool_forward, max_pool_backward},
	[DEVICE_NODE_LOSS] = {loss_forward, NULL}, /* forward also makes the gradient */
};

/* Adds the tensor for a gradient that the caller writes, of a result without consumers. */
static void give_gradient(struct lowering *l, const struct device_value *value)
{
	struct cuda_tensor *gradient =
		lower_tensor(l, value->producer, "gradient", value->shape, l->options->element);

	gradient->value = value;
	gradient->gradient = gradient->given = gradient->kept = true;
	lower_contribute(l, value, gradient);
}

void lower_node_backward(struct lowering *l, struct lower_node *n)
{
	if (n->reversed)
		return;
	n->reversed = true;
	for (int i = 0; i < DEVICE_NODE_OUTPUTS; i++) {
		const struct device_value *output = n->node->outputs[i];

		/* the loss's y belongs to another node */
		if (!output || !output->active || output->producer != n->node)
			continue;
		if (device_value_is_given(output))
			give_gradient(l, output);
		keep_gradient(l, output);
	}
	if (lowerings[n->node->kind].backward)
		lowerings[n->node->kind].backward(l, n);
	else if (!lowerings[n->node->kind].forward)
		single_backward(l, n);
}

static void node_forward(struct lowering *l, struct lower_node *n)
{
	if (lowerings[n->node->kind].forward)
		lowerings[n->node->kind].forward(l, n);
	else if (cuda_op_of(n->node->kind, false) != CUDA_OP_KINDS)
		single_forward(l, n);
	else
		lower_fail(l, -ENOTSUP, "%s: this backend has no operation for it", n->node->name);
}

static void walk(struct lowering *l)
{
	const struct device_graph *graph = l->graph;

	for (uint32_t i = 0; i < graph->node_count && !l->failure; i++)
		node_forward(l, &l->nodes[i]);
	l->program->backward_start = l->program->op_count;
	l->backward = true;
	for (uint32_t i = graph->node_count; i-- > 0 && !l->failure;)
		if (graph->nodes[i]->backward)
			lower_node_backward(l, &l->nodes[i]);
	lower_flush_gradients(l);
}

static int lowering_init(struct lowering *l, const struct device_graph *graph)
{
	l->values = calloc(graph->value_count + 1, sizeof(*l->values));
	l->nodes = calloc(graph->node_count + 1, sizeof(*l->nodes));
	l->gradient_written = calloc(graph->params->count + 1, sizeof(*l->gradient_written));
	l->program->log = calloc(1, 1);
	if (!l->values || !l->nodes || !l->gradient_written || !l->program->log)
		return lower_fail(l, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < graph->value_count; i++) {
		l->values[i].value = graph->values[i];
		l->values[i].kept =
			l->keep_all || (!graph->values[i]->consumers && !graph->values[i]->saved);
		l->values[i].uses_left = graph->values[i]->uses;
	}
	/* the logits are read after a step */
	if (graph->loss)
		lower_value(l, graph->loss->x)->kept = true;
	for (uint32_t i = 0; i < graph->node_count; i++)
		l->nodes[i].node = graph->nodes[i];
	return 0;
}

static void lowering_deinit(struct lowering *l)
{
	for (uint32_t i = 0; l->nodes && i < l->graph->node_count; i++)
		lower_forget_plan(l, &l->nodes[i]);
	free(l->values);
	free(l->nodes);
	free(l->gradient_written);
}

int program_new(const struct device_graph *graph, const struct program_options *options,
		struct cuda_program **ret_program, char *error)
{
	struct lowering *l = calloc(1, sizeof(*l));
	struct cuda_program *program = calloc(1, sizeof(*program));
	int r = -ENOMEM;

	snprintf(error, DEVICE_ERROR_MAX, "out of memory");
	if (!l || !program)
		goto out;
	l->graph = program->graph = graph;
	l->options = options;
	l->program = program;
	l->error = error;
	l->training = graph->options.mode == DEVICE_TRAIN;
	l->keep_all = graph->options.keep_all;
	program->fusion = options->fusion;
	program->element = options->element;
	program->conv = options->conv;
	program->matmul = options->matmul;
	arena_init(&program->arena);
	r = lowering_init(l, graph);
	if (r == 0) {
		l->input_channels = lower_choose_input_channels(l);
		walk(l);
		r = l->failure;
	}
	if (r == 0 && graph->options.recompute)
		r = program_recompute(program);
	if (r == 0)
		r = program_finish(program, l->keep_all);
	if (r == 0) {
		*error = 0;
		*ret_program = program;
		program = NULL;
	}
	lowering_deinit(l);
out:
	program_free(program);
	free(l);
	return r;
}
