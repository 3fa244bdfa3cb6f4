/*
 * Convolutions: forward pass, functions shared by all directions, and execution. Asks the engines
 * for patterns in order of decreasing fusion. Only the lack of a plan for an unfused convolution is
 * an error.
 */
#include "trainer/device/cuda/ops/internal.h"

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

	*ret_plan = NULL;
	if (l->failure)
		return false;
	int r = conv->plan(conv->state, problem, ret_plan);
	if (r < 0 && r != -ENOENT) {
		conv_problem_name(problem, name, sizeof(name));
		lower_fail(l, r, "%s: planning %s failed: %s", node->name, name,
			   conv->error(conv->state));
	}
	return r == 0;
}

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
	lower_set_workspace(l, op, info.workspace_bytes);
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
		if (!plans || !l->training || !device_param_trains(node->weight))
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

		/* other operations that read the input would see the padding channels */
		if (device_node_reads(node, input) > conv)
			return input->shape.c;
	}
	if (all_plan(l, 4))
		return 4;
	return all_plan(l, 8) ? 8 : input->shape.c;
}

/* ---- forward ---- */

/* Sets the epilogue that fuses as much as possible with the convolution. */
static void choose_epilogue(const struct lowering *l, const struct device_node *node, bool early,
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
		/*
		 * the gradient of GELU needs the activation's input; no engine has a plan for the
		 * sigmoid
		 */
		if ((!infers && node->activation == DEVICE_GELU) ||
		    node->activation == DEVICE_LOGISTIC || (early && node->residual))
			return;
		p->epilogue = CONV_BIAS;
		p->activation = node->activation;
		p->residual = node->residual;
	}
}

bool lower_conv_fuses_prologue(struct lowering *l, const struct device_node *node,
			       enum conv_prologue prologue, bool early)
{
	struct node_state *state = node_state(l, node);
	struct conv_problem *p = &state->problem;

	lower_drop_plan(l, node);
	lower_conv_problem(l, node, CONV_FORWARD, p);
	p->prologue = prologue;
	choose_epilogue(l, node, early, p);
	if (lower_find_plan(l, node, p, &state->plan))
		return true;
	if (p->epilogue == CONV_STORE)
		return false;
	p->epilogue = CONV_STORE;
	p->activation = DEVICE_IDENTITY;
	p->residual = false;
	return lower_find_plan(l, node, p, &state->plan);
}

void lower_drop_plan(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);

	if (state->plan)
		l->options->conv->plan_free(state->plan);
	state->plan = NULL;
}

void lower_set_prologue(struct lowering *l, struct cuda_op *op, const struct device_node *producer)
{
	op->operands[CUDA_X] = node_state(l, producer)->raw;
	lower_set_operands(l, op, producer, ROLE(PRESCALE) | ROLE(PREBIAS));
}

static void set_epilogue(struct lowering *l, struct cuda_op *op, const struct device_node *node,
			 struct cuda_tensor *bias)
{

	if (op->conv.problem.epilogue == CONV_STATISTICS) {
		lower_set_operands(l, op, node, SUMS);
	} else if (op->conv.problem.epilogue == CONV_BIAS) {
		op->operands[CUDA_CHANNEL_BIAS] = bias;
		if (node->residual)
			op->operands[CUDA_RESIDUAL] = lower_value(l, node->residual);
	}
}

static void log_unfused_epilogue(struct lowering *l, const struct device_node *node, bool early)
{
	struct node_state *state = node_state(l, node);
	struct conv_problem chosen = state->problem;

	choose_epilogue(l, node, early, &chosen);
	if (chosen.epilogue != state->problem.epilogue)
		lower_log_fallback(l, node, &chosen,
				   chosen.epilogue == CONV_STATISTICS
					   ? "the norm's sums are taken in a pass of their own"
					   : "what follows the convolution is a pass of its own");
}

/* Appends the convolution with the plan that the node keeps; the caller sets its input. */
static struct cuda_op *append_forward(struct lowering *l, const struct device_node *node,
				      bool early)
{
	struct node_state *state = node_state(l, node);
	struct conv_problem problem = state->problem;
	struct cuda_tensor *w = lower_forward_weights(l, node, conv_weight_channels(&problem));
	struct cuda_tensor *bias = state->tensors[CUDA_BIAS], *y;

	log_unfused_epilogue(l, node, early);
	state->conv_emitted = true;
	state->fully_lowered = problem.epilogue == CONV_BIAS ||
			       (!node->has_norm && !node->bias && !node->residual &&
				node->activation == DEVICE_IDENTITY);
	if (state->fully_lowered)
		y = lower_result(l, node, l->options->element);
	else
		y = state->raw = lower_tensor(l, node, "raw", node->y->shape, l->options->element);
	if (problem.epilogue == CONV_STATISTICS) {
		lower_vector(l, node, CUDA_SUM, "sum");
		lower_vector(l, node, CUDA_PRODUCTS, "squares");
	}
	if (problem.epilogue == CONV_BIAS && !node->has_norm)
		bias = lower_forward_bias(l, node, l->options->element);
	struct cuda_op *op = lower_conv_op(l, node, &problem, state->plan);
	state->plan = NULL;
	op->operands[CUDA_W] = w;
	op->operands[CUDA_Y] = y;
	set_epilogue(l, op, node, bias);
	return op;
}

static void append_convolution(struct lowering *l, const struct device_node *node)
{
	struct node_state *state = node_state(l, node);
	struct cuda_tensor *x = lower_value(l, node->x);

	if (!state->plan && !lower_conv_fuses_prologue(l, node, CONV_PLAIN, false))
		lower_need_plan(l, node, &state->problem);
	if (l->failure)
		return;
	if (!x)
		lower_prologue_vectors(l, node->x->producer);
	struct cuda_op *op = append_forward(l, node, false);
	if (x)
		op->operands[CUDA_X] = x;
	else
		lower_set_prologue(l, op, node->x->producer);
}

void lower_conv_with_sum(struct lowering *l, const struct device_node *node,
			 const struct device_node *producer)
{
	const struct device_node *second = producer->residual->producer;
	const struct node_state *other = node_state(l, second);
	struct cuda_tensor *residual = lower_value(l, producer->residual);
	struct cuda_tensor *activated = lower_result(l, producer, l->options->element);

	lower_prologue_vectors(l, producer);
	if (!residual)
		lower_prologue_vectors(l, second);
	struct cuda_op *op = append_forward(l, node, true);
	lower_set_prologue(l, op, producer);
	op->operands[CUDA_ACTIVATED] = activated;
	op->operands[CUDA_RESIDUAL] = residual ? residual : other->raw;
	if (!residual) {
		op->operands[CUDA_PRESCALE2] = other->tensors[CUDA_PRESCALE];
		op->operands[CUDA_PREBIAS2] = other->tensors[CUDA_PREBIAS];
	}
}

static void lower_conv_forward(struct lowering *l, const struct device_node *node)
{
	const struct node_state *state = node_state(l, node);

	if (!state->conv_emitted)
		append_convolution(l, node);
	if (!state->fully_lowered)
		lower_norm_act_forward(l, node);
}

static void lower_conv_node_backward(struct lowering *l, const struct device_node *node)
{
	struct cuda_tensor *dy = lower_norm_act_backward(l, node);

	if (dy)
		lower_conv_backward(l, node, dy);
}

const struct node_lowering lower_conv = {lower_conv_forward, lower_conv_node_backward};

/* ---- execution ---- */

struct conv_arguments cuda_conv_arguments(const struct cuda_exec *exec, const struct cuda_op *op)
{
	bool norm = op->conv.problem.epilogue == CONV_RELU_NORM;
	struct conv_arguments arguments = {.scale = cuda_at(exec, op, CUDA_PRESCALE),
					   .bias = cuda_at(exec, op, CUDA_PREBIAS),
					   .scale2 = cuda_at(exec, op, CUDA_PRESCALE2),
					   .bias2 = cuda_at(exec, op, CUDA_PREBIAS2),
					   .residual = cuda_at(exec, op, CUDA_RESIDUAL),
					   .activated = cuda_at(exec, op, CUDA_ACTIVATED),
					   .channel_bias = cuda_at(exec, op, CUDA_CHANNEL_BIAS),
					   .sum = norm ? NULL : cuda_at(exec, op, CUDA_SUM),
					   .squares =
						   norm ? NULL : cuda_at(exec, op, CUDA_PRODUCTS),
					   .raw = cuda_at(exec, op, CUDA_RAW),
					   .mean = cuda_at(exec, op, CUDA_MEAN),
					   .deviation = cuda_at(exec, op, CUDA_DEVIATION),
					   .gamma = cuda_at(exec, op, CUDA_GAMMA),
					   .beta = cuda_at(exec, op, CUDA_BETA),
					   .dbeta = norm ? cuda_at(exec, op, CUDA_SUM) : NULL,
					   .dgamma = norm ? cuda_at(exec, op, CUDA_PRODUCTS) : NULL,
					   .a = cuda_at(exec, op, CUDA_A),
					   .b = cuda_at(exec, op, CUDA_B),
					   .d = cuda_at(exec, op, CUDA_C),
					   .shortcut = cuda_at(exec, op, CUDA_SHORTCUT),
					   .raw2 = cuda_at(exec, op, CUDA_RAW2),
					   .mean2 = cuda_at(exec, op, CUDA_MEAN2),
					   .deviation2 = cuda_at(exec, op, CUDA_DEVIATION2),
					   .gamma2 = cuda_at(exec, op, CUDA_GAMMA2),
					   .beta2 = cuda_at(exec, op, CUDA_BETA2),
					   .dbeta2 = cuda_at(exec, op, CUDA_SUM2),
					   .dgamma2 = cuda_at(exec, op, CUDA_PRODUCTS2),
					   .a2 = cuda_at(exec, op, CUDA_A2),
					   .b2 = cuda_at(exec, op, CUDA_B2),
					   .d2 = cuda_at(exec, op, CUDA_C2),
					   .workspace = cuda_at(exec, op, CUDA_WORKSPACE)};

	switch (op->conv.problem.direction) {
	case CONV_FORWARD:
		arguments.x = cuda_at(exec, op, CUDA_X);
		arguments.w = cuda_at(exec, op, CUDA_W);
		arguments.y = cuda_at(exec, op, CUDA_Y);
		break;
	case CONV_DATA:
		arguments.x = cuda_at(exec, op, CUDA_DX);
		arguments.w = cuda_at(exec, op, CUDA_W);
		arguments.y = cuda_at(exec, op, CUDA_DY);
		break;
	case CONV_WEIGHTS:
		arguments.x = cuda_at(exec, op, CUDA_X);
		arguments.w = cuda_at(exec, op, CUDA_DW);
		arguments.y = cuda_at(exec, op, CUDA_DY);
		break;
	}
	return arguments;
}

static int execute_conv(struct cuda_exec *exec, const struct cuda_op *op)
{
	const struct conv_engines *engines = &exec->device->engines.conv;
	struct conv_arguments arguments = cuda_conv_arguments(exec, op);

	if (op->conv.problem.direction == CONV_WEIGHTS)
		arguments.w = cuda_weight_gradient(exec, op);
	int r = engines->execute(engines->state, op->conv.plan, &arguments, exec->device->compute);
	if (r < 0)
		return cuda_fail_engine(exec, op, r, engines->error(engines->state));
	return cuda_add_weight_gradient(exec, op);
}

/*
 * All three directions of conv.h. Forward: X, W -> Y; data: DY, W -> DX; weights: X, DY -> DW.
 * Prologues: PRESCALE, PREBIAS, PRESCALE2, PREBIAS2, RESIDUAL -> ACTIVATED. Epilogues:
 * CONV_STATISTICS -> SUM, PRODUCTS; CONV_BIAS: CHANNEL_BIAS, RESIDUAL; CONV_ADD: RESIDUAL;
 * CONV_RELU_NORM: RAW, MEAN, DEVIATION, GAMMA, BETA [, RESIDUAL] [, SHORTCUT or RAW2, MEAN2 ..] ->
 * DX (dz), SUM (dbeta), PRODUCTS (dgamma), A, B, C [, SUM2 ..]. DW may be a parameter's gradient
 * itself: see ADDEND. What each direction reads and writes is in ops.c.
 */
const struct cuda_op_def cuda_conv_op = {.name = "conv", .product = true, .execute = execute_conv};
