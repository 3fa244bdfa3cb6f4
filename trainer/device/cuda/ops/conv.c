/*
 * Forward convolutions, and code common to all passes. Asks the engines for patterns, the most
 * fused first; only a plain convolution without a plan is an error.
 */
#include "trainer/device/cuda/ops/conv_lowering.h"

#include <errno.h>
#include <stdio.h>

uint32_t lower_x_channels(const struct lowering *l, const struct device_node *node)
{
	return node->x->producer == l->graph->input ? l->input_channels : node->x->shape.c;
}

void lower_conv_problem(const struct lowering *l, const struct device_node *node,
			enum conv_direction direction, struct conv_problem *p)
{
	conv_problem_init(p);
	p->direction = direction;
	p->deterministic = l->options->deterministic;
	p->element = l->options->element;
	p->n = node->x->shape.n;
	p->h = node->x->shape.h;
	p->w = node->x->shape.w;
	p->c = lower_x_channels(l, node);
	p->k = node->y->shape.c;
	p->r = node->window_h;
	p->s = node->window_w;
	p->stride = node->stride;
	p->groups = node->groups;
	p->pad = node->pad;
	p->pad_extra = node->pad_extra;
	p->p = node->y->shape.h;
	p->q = node->y->shape.w;
}

bool lower_find_plan(struct lowering *l, const struct device_node *node,
		     const struct conv_problem *problem, struct conv_plan **ret_plan)
{
	const struct conv_engines *conv = l->options->conv;
	char name[256];
	int r;

	*ret_plan = NULL;
	if (l->failure)
		return false;
	r = conv->plan(conv->state, problem, ret_plan);
	if (r < 0 && r != -ENOENT) {
		conv_problem_name(problem, name, sizeof(name));
		lower_fail(l, r, "%s: planning %s failed: %s", node->name, name,
			   conv->error(conv->state));
	}
	return r == 0;
}

/* A plain convolution, which must have a plan. */
struct conv_plan *lower_need_plan(struct lowering *l, const struct device_node *node,
				  const struct conv_problem *problem)
{
	struct conv_plan *plan;
	char name[256];

	if (!lower_find_plan(l, node, problem, &plan)) {
		conv_problem_name(problem, name, sizeof(name));
		lower_fail(l, -ENOTSUP,
			   "%s: the library has no plan for %s; use channels that are multiples "
			   "of 8, or fp32",
			   node->name, name);
	}
	return plan;
}

struct cuda_op *lower_conv_op(struct lowering *l, const struct device_node *node,
			      const struct conv_problem *problem, struct conv_plan *plan)
{
	struct cuda_op *op = lower_op(l, CUDA_OP_CONV, node);
	struct conv_plan_info info;

	if (l->failure) {
		l->options->conv->plan_free(plan);
		return op;
	}
	l->options->conv->plan_info(plan, &info);
	op->conv.problem = *problem;
	op->conv.plan = plan;
	snprintf(op->engine, sizeof(op->engine), "%s", info.engine);
	lower_workspace(l, op, info.workspace_bytes);
	return op;
}

/* ---- the input's channels ---- */

static bool all_plan(struct lowering *l, uint32_t channels)
{
	const struct device_graph *graph = l->graph;
	bool plans = true;

	l->input_channels = channels;
	for (uint32_t i = 0; i < graph->node_count && plans; i++) {
		const struct device_node *node = graph->nodes[i];
		struct conv_problem problem;
		struct conv_plan *plan;

		if (node->x != graph->input->y)
			continue;
		lower_conv_problem(l, node, CONV_FORWARD, &problem);
		plans = lower_find_plan(l, node, &problem, &plan);
		l->options->conv->plan_free(plan);
		if (!plans || !l->training || !lower_trains(node->weight))
			continue;
		problem.direction = CONV_WEIGHTS;
		plans = lower_find_plan(l, node, &problem, &plan);
		if (!plans) {
			problem.gradient = problem.element;
			plans = lower_find_plan(l, node, &problem, &plan);
		}
		l->options->conv->plan_free(plan);
	}
	return plans;
}

uint32_t lower_choose_input_channels(struct lowering *l)
{
	const struct device_graph *graph = l->graph;
	const struct device_value *input = graph->input->y;

	if (input->shape.c >= 4 || l->options->element == CUDA_F32 || !input->consumers)
		return input->shape.c;
	for (uint32_t i = 0; i < graph->node_count; i++) {
		const struct device_node *node = graph->nodes[i];
		bool conv = node->kind == DEVICE_NODE_CONV && node->x == input && node->groups == 1;

		/* other consumers would see the additional channels */
		if (device_node_reads(node, input) > conv)
			return input->shape.c;
	}
	if (all_plan(l, 4))
		return 4;
	return all_plan(l, 8) ? 8 : input->shape.c;
}

/* ---- forward ---- */

/* Most complete epilogue for the convolution. */
static void wish_epilogue(const struct lowering *l, const struct device_node *node, bool early,
			  struct conv_problem *p)
{
	bool infers = lower_infers(l, node);
	bool fused = l->options->fusion == DEVICE_FUSION_C ||
		     (infers && l->options->fusion == DEVICE_FUSION_B);

	if (!fused)
		return;
	if (!infers && node->has_norm) {
		p->epilogue = node->norm.fixed || !lower_norm_is_whole(node) ? CONV_STORE
									     : CONV_STATISTICS;
	} else if (node->has_norm || node->bias) {
		/* the gradient of GELU needs its input; the sigmoid has no plan */
		if ((!infers && node->activation == DEVICE_GELU) ||
		    node->activation == DEVICE_LOGISTIC || (early && node->residual))
			return;
		p->epilogue = CONV_BIAS;
		p->activation = node->activation;
		p->residual = node->residual;
	}
}

bool lower_conv_takes(struct lowering *l, struct lower_node *n, enum conv_prologue prologue,
		      bool early)
{
	struct conv_problem *p = &n->problem;

	lower_forget_plan(l, n);
	lower_conv_problem(l, n->node, CONV_FORWARD, p);
	p->prologue = prologue;
	wish_epilogue(l, n->node, early, p);
	if (lower_find_plan(l, n->node, p, &n->plan))
		return true;
	if (p->epilogue == CONV_STORE)
		return false;
	p->epilogue = CONV_STORE;
	p->activation = DEVICE_IDENTITY;
	p->residual = false;
	return lower_find_plan(l, n->node, p, &n->plan);
}

void lower_forget_plan(struct lowering *l, struct lower_node *n)
{
	if (n->plan)
		l->options->conv->plan_free(n->plan);
	n->plan = NULL;
}

/*
 * Evaluation: the weights in the program's element, scaled by the norm if it is folded in;
 * has[CUDA_BIAS] is the norm's bias, in the element of the operation that adds it.
 */
static struct cuda_tensor *evaluation_weights(struct lowering *l, struct lower_node *n,
					      uint32_t channels)
{
	const struct device_node *node = n->node;
	struct cuda_tensor *master = lower_param(l, node->weight, DEVICE_VALUE), *folded;
	bool folds = node->has_norm && l->options->fusion != DEVICE_FUSION_NONE;
	struct device_shape shape = master->shape;
	struct cuda_op *op;

	if (!folds && l->options->element == CUDA_F32 && shape.c == channels)
		return master;
	shape.c = channels;
	folded = lower_tensor(l, node, "weights", shape, l->options->element);
	if (folds)
		n->has[CUDA_BIAS] = lower_tensor(
			l, node, "bias", (struct device_shape){1, 1, 1, node->y->shape.c},
			n->problem.epilogue == CONV_BIAS ? l->options->element : CUDA_F32);
	op = lower_op(l, CUDA_OP_FOLD, node);
	op->operands[CUDA_W] = master;
	op->operands[CUDA_W16] = folded;
	if (folds)
		lower_take(l, op, n, cuda_op_roles(CUDA_OP_NORM_RUNNING));
	return folded;
}

struct cuda_tensor *lower_forward_weights(struct lowering *l, struct lower_node *n,
					  uint32_t channels)
{
	bool folds = lower_infers(l, n->node) && (!l->training || n->node->has_norm);

	return folds ? evaluation_weights(l, n, channels)
		     : lower_weights(l, n->node->weight, channels);
}

/*
 * The bias in the element of the result it is added to. Evaluation may read different slots of a
 * store, so it converts the bias as it does weights.
 */
struct cuda_tensor *lower_forward_bias(struct lowering *l, const struct device_node *node,
				       enum cuda_element element)
{
	struct cuda_tensor *master = lower_param(l, node->bias, DEVICE_VALUE), *bias;
	struct cuda_op *op;

	if (element == CUDA_F32)
		return master;
	if (l->training)
		return lower_weights(l, node->bias, node->y->shape.c);
	bias = lower_tensor(l, node, "bias", master->shape, element);
	op = lower_op(l, CUDA_OP_FOLD, node);
	op->operands[CUDA_W] = master;
	op->operands[CUDA_W16] = bias;
	return bias;
}

void lower_set_prologue(struct lowering *l, struct cuda_op *op, struct lower_node *producer)
{
	op->operands[CUDA_X] = producer->raw;
	lower_take(l, op, producer, CUDA_BIT(CUDA_PRESCALE) | CUDA_BIT(CUDA_PREBIAS));
}

static void set_epilogue(struct lowering *l, struct cuda_op *op, struct lower_node *n,
			 struct cuda_tensor *bias)
{
	const struct device_node *node = n->node;

	if (op->conv.problem.epilogue == CONV_STATISTICS) {
		lower_take(l, op, n, CUDA_BIT(CUDA_SUM) | CUDA_BIT(CUDA_SQUARES));
	} else if (op->conv.problem.epilogue == CONV_BIAS) {
		op->operands[CUDA_CHANNEL_BIAS] = bias;
		if (node->residual)
			op->operands[CUDA_RESIDUAL] = lower_value(l, node->residual)->y;
	}
}

static void note_epilogue(struct lowering *l, struct lower_node *n, bool early)
{
	struct conv_problem wished = n->problem;

	wish_epilogue(l, n->node, early, &wished);
	if (wished.epilogue != n->problem.epilogue)
		lower_note(l, n->node, &wished,
			   wished.epilogue == CONV_STATISTICS
				   ? "the norm's sums are taken in a pass of their own"
				   : "what follows the convolution is a pass of its own");
}

/* Appends the convolution of n->plan; the caller sets its input. */
static struct cuda_op *append_forward(struct lowering *l, struct lower_node *n, bool early)
{
	const struct device_node *node = n->node;
	struct conv_problem problem = n->problem;
	struct cuda_tensor *w = lower_forward_weights(l, n, conv_weight_channels(&problem));
	struct cuda_tensor *bias = n->has[CUDA_BIAS], *y;
	struct cuda_op *op;

	note_epilogue(l, n, early);
	n->convolved = true;
	n->complete = problem.epilogue == CONV_BIAS ||
		      (!node->has_norm && !node->bias && !node->residual &&
		       node->activation == DEVICE_IDENTITY);
	if (n->complete)
		y = lower_result(l, node, l->options->element);
	else
		y = n->raw = lower_tensor(l, node, "raw", node->y->shape, l->options->element);
	if (problem.epilogue == CONV_STATISTICS) {
		lower_vector(l, n, CUDA_SUM, "sum");
		lower_vector(l, n, CUDA_SQUARES, "squares");
	}
	if (problem.epilogue == CONV_BIAS && !node->has_norm)
		bias = lower_forward_bias(l, node, l->options->element);
	op = lower_conv_op(l, node, &problem, n->plan);
	n->plan = NULL;
	op->operands[CUDA_W] = w;
	op->operands[CUDA_Y] = y;
	set_epilogue(l, op, n, bias);
	return op;
}

void lower_conv_forward(struct lowering *l, struct lower_node *n)
{
	struct lower_value *x = lower_value(l, n->node->x);
	struct lower_node *producer = lower_node(l, n->node->x->producer);
	struct cuda_op *op;

	if (!n->plan && !lower_conv_takes(l, n, CONV_PLAIN, false))
		lower_need_plan(l, n->node, &n->problem);
	if (l->failure)
		return;
	if (!x->y)
		lower_prologue_vectors(l, producer);
	op = append_forward(l, n, false);
	if (x->y)
		op->operands[CUDA_X] = x->y;
	else
		lower_set_prologue(l, op, producer);
}

void lower_conv_with_sum(struct lowering *l, struct lower_node *n, struct lower_node *producer)
{
	const struct lower_value *residual = lower_value(l, producer->node->residual);
	struct lower_node *second = lower_node(l, producer->node->residual->producer);
	struct cuda_tensor *activated = lower_result(l, producer->node, l->options->element);
	struct cuda_op *op;

	lower_prologue_vectors(l, producer);
	if (!residual->y)
		lower_prologue_vectors(l, second);
	op = append_forward(l, n, true);
	lower_set_prologue(l, op, producer);
	op->operands[CUDA_ACTIVATED] = activated;
	op->operands[CUDA_RESIDUAL] = residual->y ? residual->y : second->raw;
	if (!residual->y) {
		op->operands[CUDA_PRESCALE2] = second->has[CUDA_PRESCALE];
		op->operands[CUDA_PREBIAS2] = second->has[CUDA_PREBIAS];
	}
}
