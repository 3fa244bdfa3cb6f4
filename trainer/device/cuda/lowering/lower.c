/* Lowers a graph to a program: the walk over its nodes. */
#include "trainer/device/cuda/lowering/lower.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

bool lower_infers(const struct lowering *l, const struct device_node *node)
{
	bool moves = node->has_norm && !node->norm.fixed;

	return !l->training || (!node->backward && !moves);
}

/* ---- nodes with one operation forward and one backward ---- */

/* True if the operation may have an operand of that role. */
static bool has_role(const struct cuda_op *op, enum cuda_role role)
{
	return cuda_op_roles(op->kind) & CUDA_BIT(role);
}

static void set_input(struct lowering *l, struct cuda_op *op, const struct device_node *node)
{
	lower_set_operands(l, op, node, cuda_op_roles(op->kind));
	if (has_role(op, CUDA_X))
		op->operands[CUDA_X] = lower_value(l, node->x);
}

struct cuda_op *lower_single_forward(struct lowering *l, const struct device_node *node,
				     enum cuda_op_kind kind)
{
	struct node_state *state = node_state(l, node);
	struct cuda_tensor *y = lower_result(l, node, l->options->element);
	struct cuda_op *op = lower_op(l, kind, node);

	if (has_role(op, CUDA_INDEX) && node->backward)
		state->tensors[CUDA_INDEX] = lower_index(l, node, node->y->shape, sizeof(uint32_t));
	if (node->mean)
		state->tensors[CUDA_MEAN] = lower_output(l, node->mean, "mean", CUDA_F32);
	if (node->deviation)
		state->tensors[CUDA_DEVIATION] =
			lower_output(l, node->deviation, "deviation", CUDA_F32);
	if (node->log_sum)
		state->tensors[CUDA_LOG_SUM] = lower_output(l, node->log_sum, "log sum", CUDA_F32);
	set_input(l, op, node);
	op->operands[CUDA_Y] = y;
	return op;
}

struct cuda_op *lower_single_backward(struct lowering *l, const struct device_node *node,
				      enum cuda_op_kind kind)
{
	const struct {
		enum cuda_role role;
		struct device_param *param;
	} gradients[] = {
		{CUDA_DGAMMA, node->gamma},
		{CUDA_DBETA, node->beta},
		{CUDA_DPOSITIONS, node->positions},
		{CUDA_DCLASS_TOKEN, node->class_token},
	};
	struct cuda_tensor *dx = node->x->active ? lower_dx(l, node) : NULL;
	struct cuda_op *op;

	lower_summed_gradient(l, node->y);
	op = lower_op(l, kind, node);
	set_input(l, op, node);
	if (has_role(op, CUDA_Y))
		op->operands[CUDA_Y] = lower_value(l, node->y);
	lower_set_dy(l, op, node->y);
	op->operands[CUDA_DX] = dx;
	for (size_t i = 0; i < sizeof(gradients) / sizeof(*gradients); i++)
		if (has_role(op, gradients[i].role) && device_param_trains(gradients[i].param))
			lower_set_param_gradient(l, op, gradients[i].role, gradients[i].param);
	return op;
}

/* ---- the walk ---- */

static const struct node_lowering *const lowerings[DEVICE_NODE_KINDS] = {
#define NODE(kind, name) [DEVICE_NODE_##kind] = &lower_##name,
	DEVICE_NODES(NODE)
#undef NODE
};

void lower_node_backward(struct lowering *l, const struct device_node *node)
{
	const struct node_lowering *lowering = lowerings[node->kind];
	struct node_state *state = node_state(l, node);

	if (state->reversed)
		return;
	state->reversed = true;
	lower_output_gradients(l, node);
	if (lowering->backward)
		lowering->backward(l, node);
	else if (lowering->backward_op)
		lower_contribute_dx(
			l, node,
			lower_single_backward(l, node, lowering->backward_op)->operands[CUDA_DX]);
}

static void node_forward(struct lowering *l, const struct device_node *node)
{
	const struct node_lowering *lowering = lowerings[node->kind];

	if (lowering->forward)
		lowering->forward(l, node);
	else
		lower_single_forward(l, node, lowering->forward_op);
}

static void walk(struct lowering *l)
{
	const struct device_graph *graph = l->graph;

	for (uint32_t i = 0; i < graph->node_count && !l->failure; i++)
		node_forward(l, graph->nodes[i]);
	l->program->backward_start = l->program->op_count;
	l->backward = true;
	for (uint32_t i = graph->node_count; i-- > 0 && !l->failure;)
		if (graph->nodes[i]->backward)
			lower_node_backward(l, graph->nodes[i]);
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
		l->values[i].kept =
			l->keep_all || (!graph->values[i]->consumers && !graph->values[i]->saved);
		l->values[i].uses_left = graph->values[i]->uses;
	}
	/* the logits are read after a step */
	if (graph->loss)
		value_state(l, graph->loss->x)->kept = true;
	return 0;
}

static void lowering_deinit(struct lowering *l)
{
	for (uint32_t i = 0; l->nodes && i < l->graph->node_count; i++)
		lower_drop_plan(l, l->graph->nodes[i]);
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
	if (r == 0 && graph->params->shards.gathers) {
		lower_gathers(l);
		r = l->failure;
	}
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
