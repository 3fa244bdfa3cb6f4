/*
 * Convolutions and linear layers. Which pattern a convolution runs as is asked of the engines, the most fused first; a plain convolution
 * without a plan is the only one that nothing can replace.
 */
#include "lower.h"

#include <errno.h>
#include <stdio.h>

static uint32_t x_channels(const struct lowering *l, const struct device_node *node)
{
	return node->x->producer == l->graph->input ? l->input_channels : node->x->shape.c;
}

static void problem_of(const struct lowering *l, const struct device_node *node,
		       enum conv_direction direction, struct conv_problem *p)
{
	conv_problem_init(p);
	p->direction = direction;
	p->deterministic = l->options->deterministic;
	p->element = l->options->element;
	p->n = node->x->shape.n;
	p->h = node->x->shape.h;
	p->w = node->x->shape.w;
	p->c = x_channels(l, node);
	p->k = node->y->shape.c;
	p->r = node->window_h;
	p->s = node->window_w;
	p->stride = node->stride;
	p->pad = node->pad;
	p->p = node->y->shape.h;
	p->q = node->y->shape.w;
}

static bool find_plan(struct lowering *l, const struct device_node *node,
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
static struct conv_plan *need_plan(struct lowering *l, const struct device_node *node,
				   const struct conv_problem *problem)
{
	struct conv_plan *plan;
	char name[256];

	if (!find_plan(l, node, problem, &plan)) {
		conv_problem_name(problem, name, sizeof(name));
		lower_fail(l, -ENOTSUP,
			   "%s: the library has no plan for %s; use channels that are multiples "
			   "of 8, or fp32",
			   node->name, name);
	}
	return plan;
}

static double layer_flops(const struct device_node *node)
{
	return 2.0 * (double)device_shape_elements(node->y->shape) *
	       (double)(node->weight->elements / node->y->shape.c);
}

static struct cuda_op *conv_op(struct lowering *l, const struct device_node *node,
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
	op->flops = layer_flops(node);
	snprintf(op->engine, sizeof(op->engine), "%s", info.engine);
	lower_workspace(l, op, info.workspace_bytes);
	return op;
}

static struct cuda_op *matmul_op(struct lowering *l, const struct device_node *node,
				 const struct matmul_problem *problem)
{
	const struct matmul_engines *matmul = l->options->matmul;
	struct cuda_op *op = lower_op(l, CUDA_OP_MATMUL, node);
	struct conv_plan_info info;
	char name[256];
	int r;

	if (l->failure)
		return op;
	op->matmul.problem = *problem;
	op->flops = layer_flops(node);
	r = matmul->plan(matmul->state, problem, &op->matmul.plan);
	if (r < 0) {
		op->matmul.plan = NULL;
		matmul_problem_name(problem, name, sizeof(name));
		lower_fail(l, r == -ENOENT ? -ENOTSUP : r, "%s: the library has no plan for %s: %s",
			   node->name, name, matmul->error(matmul->state));
		return op;
	}
	matmul->plan_info(op->matmul.plan, &info);
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
		problem_of(l, node, CONV_FORWARD, &problem);
		plans = find_plan(l, node, &problem, &plan);
		l->options->conv->plan_free(plan);
		if (!plans || !l->training || !lower_trains(node->weight))
			continue;
		problem.direction = CONV_WEIGHTS;
		plans = find_plan(l, node, &problem, &plan);
		if (!plans) {
			problem.gradient = problem.element;
			plans = find_plan(l, node, &problem, &plan);
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

		/* what is no convolution would see the further channels */
		if (node->residual == input ||
		    (node->x == input && (node->linear || node->kind != DEVICE_NODE_CONV)))
			return input->shape.c;
	}
	if (all_plan(l, 4))
		return 4;
	return all_plan(l, 8) ? 8 : input->shape.c;
}

/* ---- forward ---- */

/* What would best follow the convolution inside the same operation. */
static void wish_epilogue(const struct lowering *l, const struct device_node *node, bool early,
			  struct conv_problem *p)
{
	bool fused = l->options->fusion == CUDA_FUSION_C ||
		     (!l->training && l->options->fusion == CUDA_FUSION_B);

	if (!fused)
		return;
	if (l->training && node->has_norm) {
		p->epilogue = CONV_STATISTICS;
	} else if (node->has_norm || node->bias) {
		/* the gradient of GELU wants what came before it */
		if ((l->training && node->activation == DEVICE_GELU) || (early && node->residual))
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
	problem_of(l, n->node, CONV_FORWARD, p);
	p->prologue = prologue;
	wish_epilogue(l, n->node, early, p);
	if (find_plan(l, n->node, p, &n->plan))
		return true;
	if (p->epilogue == CONV_STORE)
		return false;
	p->epilogue = CONV_STORE;
	p->activation = DEVICE_IDENTITY;
	p->residual = false;
	return find_plan(l, n->node, p, &n->plan);
}

void lower_forget_plan(struct lowering *l, struct lower_node *n)
{
	if (n->plan)
		l->options->conv->plan_free(n->plan);
	n->plan = NULL;
}

/*
 * Evaluation: the weights in the program's element, times the norm's scale where it is folded in; norm.bias is the norm's part of the bias, in the
 * element of what adds it.
 */
static struct cuda_tensor *evaluation_weights(struct lowering *l, struct lower_node *n,
					      uint32_t channels)
{
	const struct device_node *node = n->node;
	const struct device_norm *norm = &node->norm;
	struct cuda_tensor *master = lower_param(l, node->weight, DEVICE_VALUE), *folded;
	bool folds = node->has_norm && l->options->fusion != CUDA_FUSION_NONE;
	struct device_shape shape = master->shape;
	struct cuda_op *op;

	if (!folds && l->options->element == CUDA_F32 && shape.c == channels)
		return master;
	shape.c = channels;
	folded = lower_tensor(l, node, "weights", shape, l->options->element);
	if (folds)
		n->norm.bias = lower_tensor(
			l, node, "bias", (struct device_shape){1, 1, 1, node->y->shape.c},
			n->problem.epilogue == CONV_BIAS ? l->options->element : CUDA_F32);
	op = lower_op(l, CUDA_OP_FOLD, node);
	op->operands[CUDA_W] = master;
	op->operands[CUDA_W16] = folded;
	if (!folds)
		return folded;
	op->operands[CUDA_GAMMA] = lower_param(l, norm->gamma, DEVICE_VALUE);
	op->operands[CUDA_BETA] = lower_param(l, norm->beta, DEVICE_VALUE);
	op->operands[CUDA_RUNNING_MEAN] = lower_param(l, norm->running_mean, DEVICE_VALUE);
	op->operands[CUDA_RUNNING_VAR] = lower_param(l, norm->running_var, DEVICE_VALUE);
	op->operands[CUDA_BIAS] = n->norm.bias;
	return folded;
}

static struct cuda_tensor *forward_weights(struct lowering *l, struct lower_node *n,
					   uint32_t channels)
{
	return l->training ? lower_weights(l, n->node->weight, channels)
			   : evaluation_weights(l, n, channels);
}

/* In the element of what it is added to. Evaluation reads a store's values, of which there may be several, and converts them as it does weights. */
static struct cuda_tensor *forward_bias(struct lowering *l, const struct device_node *node,
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

static void set_prologue(struct lowering *l, struct cuda_op *op, struct lower_node *producer)
{
	op->operands[CUDA_X] = producer->raw;
	op->operands[CUDA_PRESCALE] = producer->norm.prescale;
	op->operands[CUDA_PREBIAS] = producer->norm.prebias;
}

static void set_epilogue(struct lowering *l, struct cuda_op *op, struct lower_node *n,
			 struct cuda_tensor *bias)
{
	const struct device_node *node = n->node;

	if (op->conv.problem.epilogue == CONV_STATISTICS) {
		op->operands[CUDA_SUM] = n->norm.sum;
		op->operands[CUDA_SQUARES] = n->norm.squares;
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

/* Appends the convolution that n->plan waits for; its input is the caller's to set. */
static struct cuda_op *append_forward(struct lowering *l, struct lower_node *n, bool early)
{
	const struct device_node *node = n->node;
	struct conv_problem problem = n->problem;
	struct cuda_tensor *w = forward_weights(l, n, problem.c), *bias = n->norm.bias, *y;
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
		n->norm.sum = lower_vector(l, node, "sum", node->y->shape.c);
		n->norm.squares = lower_vector(l, node, "squares", node->y->shape.c);
	}
	if (problem.epilogue == CONV_BIAS && !node->has_norm)
		bias = forward_bias(l, node, l->options->element);
	op = conv_op(l, node, &problem, n->plan);
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
		need_plan(l, n->node, &n->problem);
	if (l->failure)
		return;
	if (!x->y)
		lower_prologue_vectors(l, producer);
	op = append_forward(l, n, false);
	if (x->y)
		op->operands[CUDA_X] = x->y;
	else
		set_prologue(l, op, producer);
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
	set_prologue(l, op, producer);
	op->operands[CUDA_ACTIVATED] = activated;
	op->operands[CUDA_RESIDUAL] = residual->y ? residual->y : second->raw;
	if (!residual->y) {
		op->operands[CUDA_PRESCALE2] = second->norm.prescale;
		op->operands[CUDA_PREBIAS2] = second->norm.prebias;
	}
}

/* ---- backward ---- */

/* Weight gradients in fp32 if there is a plan, else in the program's element. */
static bool plan_weights(struct lowering *l, struct lower_node *n, enum conv_prologue prologue,
			 struct conv_problem *problem, struct conv_plan **ret_plan)
{
	problem_of(l, n->node, CONV_WEIGHTS, problem);
	problem->prologue = prologue;
	problem->gradient = CUDA_F32;
	if (find_plan(l, n->node, problem, ret_plan))
		return true;
	problem->gradient = problem->element;
	return problem->element != CUDA_F32 && find_plan(l, n->node, problem, ret_plan);
}

/* The parameter's gradient itself, where the product can be stored there; else a tensor that collect_weights() takes on. */
static void set_weights_result(struct lowering *l, struct cuda_op *op,
			       const struct device_node *node, struct cuda_tensor *result)
{
	if (result) {
		op->operands[CUDA_DW] = result;
		return;
	}
	lower_gradient_slot(l, op, CUDA_DW, node->weight);
	op->operands[CUDA_ADDEND] = lower_tensor(l, node, "weight gradient to add",
						 op->operands[CUDA_DW]->shape, CUDA_F32);
}

/*
 * What waits at most, for it keeps memory, and other ranks wait for it. In 16 bits these are 2 Mi elements, fewer than are added up over ranks at
 * a time; one tensor of that size is worth a launch of its own.
 */
#define GATHERED_BYTES_MAX (4u << 20)

/* In one launch. What has padding to leave out goes by itself. */
void lower_flush_gradients(struct lowering *l)
{
	uint32_t count = l->gathered_count;

	for (uint32_t i = 0; i < count; i++) {
		struct cuda_op *op = lower_op(l, CUDA_OP_WEIGHT_GRADIENT, l->gathered[i].node);

		op->operands[CUDA_X] = l->gathered[i].result;
		op->gather.launched = i ? 0 : count;
		lower_gradient_slot(l, op, CUDA_DW, l->gathered[i].node->weight);
	}
	l->gathered_count = 0;
	l->gathered_bytes = 0;
}

static bool is_gathered(const struct lowering *l, const struct device_param *weight)
{
	for (uint32_t i = 0; i < l->gathered_count; i++)
		if (l->gathered[i].node->weight == weight)
			return true;
	return false;
}

static void collect_weights(struct lowering *l, const struct device_node *node,
			    struct cuda_tensor *result)
{
	bool padded = result->shape.c != node->weight->spec.shape[3];

	/* the parameter is another layer's too: one after the other */
	if (padded || is_gathered(l, node->weight))
		lower_flush_gradients(l);
	l->gathered[l->gathered_count++] = (struct lower_gathered){node, result};
	l->gathered_bytes += result->bytes;
	if (padded || l->gathered_count == CUDA_GATHERED_MAX ||
	    l->gathered_bytes >= GATHERED_BYTES_MAX)
		lower_flush_gradients(l);
}

/* A virtual input, for a weight gradient that has no prologue. */
static struct cuda_tensor *compute_again(struct lowering *l, struct lower_node *producer)
{
	struct cuda_tensor *x = lower_tensor(l, producer->node, "again", producer->node->y->shape,
					     l->options->element);

	lower_apply(l, producer, x);
	return x;
}

static void weight_gradient(struct lowering *l, struct lower_node *n, struct cuda_tensor *dy)
{
	const struct device_node *node = n->node;
	struct lower_node *producer = lower_node(l, node->x->producer);
	struct cuda_tensor *x = lower_value(l, node->x)->y, *result = NULL;
	struct conv_problem problem;
	struct conv_plan *plan = NULL;
	struct device_shape shape;
	bool recomputes = !x;
	struct cuda_op *op;

	if (recomputes && !plan_weights(l, n, CONV_SCALE_BIAS_RELU, &problem, &plan)) {
		lower_note(l, node, &problem, "its input is computed again for a plain one");
		x = compute_again(l, producer);
		recomputes = false;
	}
	if (!plan && !plan_weights(l, n, CONV_PLAIN, &problem, &plan))
		need_plan(l, node, &problem);
	if (l->failure)
		return;
	shape = (struct device_shape){problem.k, problem.r, problem.s, problem.c};
	if (problem.gradient != CUDA_F32 || problem.c != node->weight->spec.shape[3])
		result = lower_tensor(l, node, "weight gradient", shape, problem.gradient);
	op = conv_op(l, node, &problem, plan);
	if (recomputes)
		set_prologue(l, op, producer);
	else
		op->operands[CUDA_X] = x;
	op->operands[CUDA_DY] = dy;
	set_weights_result(l, op, node, result);
	if (result)
		collect_weights(l, node, result);
}

static struct cuda_tensor *gradient_of_x(struct lowering *l, const struct device_node *node,
					 const char *what)
{
	struct device_shape shape = node->x->shape;

	shape.c = x_channels(l, node);
	return lower_tensor(l, node, what, shape, l->options->element);
}

/* What CONV_RELU_NORM reads and writes of one norm: its own roles, or those of the one in the shortcut. */
struct norm_roles {
	enum cuda_role raw, mean, deviation, gamma, beta, sum, squares, a, b, c;
};

static const struct norm_roles first_norm = {CUDA_RAW,	CUDA_MEAN, CUDA_DEVIATION, CUDA_GAMMA,
					     CUDA_BETA, CUDA_SUM,  CUDA_SQUARES,   CUDA_A,
					     CUDA_B,	CUDA_C};
static const struct norm_roles second_norm = {CUDA_RAW2,  CUDA_MEAN2, CUDA_DEVIATION2, CUDA_GAMMA2,
					      CUDA_BETA2, CUDA_SUM2,  CUDA_SQUARES2,   CUDA_A2,
					      CUDA_B2,	  CUDA_C2};

/* dz is the gradient before the norm `n`; its sums come out of the operation. */
static void set_norm(struct lowering *l, struct cuda_op *op, struct lower_node *n,
		     struct cuda_tensor *dz, const struct norm_roles *roles)
{
	uint32_t channels = n->node->y->shape.c;

	n->dz = dz;
	n->dz_sum = lower_vector(l, n->node, "dz sum", channels);
	n->dz_squares = lower_vector(l, n->node, "dz xhat sum", channels);
	op->operands[roles->raw] = n->raw;
	op->operands[roles->mean] = n->norm.mean;
	op->operands[roles->deviation] = n->norm.deviation;
	op->operands[roles->gamma] = lower_param(l, n->node->norm.gamma, DEVICE_VALUE);
	op->operands[roles->beta] = lower_param(l, n->node->norm.beta, DEVICE_VALUE);
	op->operands[roles->sum] = n->dz_sum;
	op->operands[roles->squares] = n->dz_squares;
	op->operands[roles->a] = lower_vector(l, n->node, "dz a", channels);
	op->operands[roles->b] = lower_vector(l, n->node, "dz b", channels);
	op->operands[roles->c] = lower_vector(l, n->node, "dz c", channels);
}

/* On through the ReLU into the norm that made x, and that of its shortcut. */
static bool data_gradient_into_norm(struct lowering *l, struct lower_node *n,
				    struct lower_node *producer, struct cuda_tensor *dy)
{
	const struct device_node *node = n->node;
	const struct device_value *shortcut = producer->node->residual;
	const struct lower_value *x = lower_value(l, node->x), *other = lower_value(l, shortcut);
	struct conv_problem problem;
	struct conv_plan *plan;
	struct cuda_op *op;

	problem_of(l, node, CONV_DATA, &problem);
	problem.epilogue = CONV_RELU_NORM;
	problem.residual = x->gradient_count;
	if (shortcut)
		problem.shortcut = other->y ? CONV_SHORTCUT : CONV_SHORTCUT_NORM;
	if (!find_plan(l, node, &problem, &plan)) {
		lower_note(l, node, &problem,
			   "ReLU and the norm's sums are differentiated in a pass of their own");
		return false;
	}
	op = conv_op(l, node, &problem, plan);
	op->operands[CUDA_DY] = dy;
	op->operands[CUDA_W] = lower_weights(l, node->weight, problem.c);
	op->operands[CUDA_DX] = gradient_of_x(l, node, "gradient before relu");
	if (problem.residual)
		op->operands[CUDA_RESIDUAL] = x->gradients[0];
	set_norm(l, op, producer, op->operands[CUDA_DX], &first_norm);
	if (problem.shortcut == CONV_SHORTCUT)
		op->operands[CUDA_SHORTCUT] = other->y;
	else if (problem.shortcut == CONV_SHORTCUT_NORM)
		set_norm(l, op, lower_node(l, shortcut->producer), op->operands[CUDA_DX],
			 &second_norm);
	return true;
}

static void data_gradient(struct lowering *l, struct lower_node *n, struct cuda_tensor *dy)
{
	const struct device_node *node = n->node;
	struct lower_value *x = lower_value(l, node->x);
	struct cuda_tensor *dx, *other = NULL;
	struct lower_node *producer;
	struct conv_problem problem;
	struct conv_plan *plan = NULL;
	struct cuda_op *op;

	lower_let_others_first(l, n);
	if (lower_norm_before(l, node->x, &producer) &&
	    data_gradient_into_norm(l, n, producer, dy) && !l->keep_all)
		return;
	problem_of(l, node, CONV_DATA, &problem);
	if (l->options->fusion == CUDA_FUSION_C && x->gradient_count) {
		problem.epilogue = CONV_ADD;
		if (find_plan(l, node, &problem, &plan)) {
			other = x->gradients[--x->gradient_count];
		} else {
			lower_note(l, node, &problem, "gradients are added by what reads them");
			problem.epilogue = CONV_STORE;
		}
	}
	if (!plan)
		plan = need_plan(l, node, &problem);
	if (l->failure)
		return;
	dx = gradient_of_x(l, node, "data gradient");
	op = conv_op(l, node, &problem, plan);
	op->operands[CUDA_DY] = dy;
	op->operands[CUDA_W] = lower_weights(l, node->weight, problem.c);
	op->operands[CUDA_RESIDUAL] = other;
	op->operands[CUDA_DX] = dx;
	lower_contribute(l, node->x, dx);
}

void lower_conv_backward(struct lowering *l, struct lower_node *n, struct cuda_tensor *dy)
{
	if (lower_trains(n->node->weight))
		weight_gradient(l, n, dy);
	if (lower_value(l, n->node->x)->active)
		data_gradient(l, n, dy);
}

/* ---- linear layers ---- */

static void matmul_of(const struct lowering *l, const struct device_node *node, uint32_t rows,
		      uint32_t columns, uint32_t inner, struct matmul_problem *p)
{
	matmul_problem_init(p);
	p->rows = rows;
	p->columns = columns;
	p->inner = inner;
	p->element = p->result = l->options->element;
}

void lower_linear_forward(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	uint32_t inputs = node->weight->spec.shape[1];
	bool logits = l->graph->loss && l->graph->loss->x == node->y;
	struct cuda_tensor *w = forward_weights(l, n, inputs), *bias = NULL, *y;
	struct matmul_problem problem;
	struct cuda_op *op;

	matmul_of(l, node, node->x->shape.n, node->y->shape.c, inputs, &problem);
	problem.transposed_b = true;
	problem.bias = node->bias;
	n->complete = node->activation == DEVICE_IDENTITY;
	if (n->complete && logits)
		problem.result = CUDA_F32;
	if (n->complete)
		y = lower_result(l, node, problem.result);
	else
		y = n->raw = lower_tensor(l, node, "raw", node->y->shape, problem.result);
	if (node->bias)
		bias = forward_bias(l, node, problem.result);
	op = matmul_op(l, node, &problem);
	op->operands[CUDA_X] = lower_value(l, node->x)->y;
	op->operands[CUDA_W] = w;
	op->operands[CUDA_Y] = y;
	op->operands[CUDA_CHANNEL_BIAS] = bias;
}

static void linear_weight_gradient(struct lowering *l, const struct device_node *node,
				   struct cuda_tensor *dy)
{
	struct matmul_problem problem;
	struct cuda_op *op;

	matmul_of(l, node, node->y->shape.c, node->weight->spec.shape[1], node->x->shape.n,
		  &problem);
	problem.transposed_a = true;
	problem.result = CUDA_F32;
	op = matmul_op(l, node, &problem);
	op->operands[CUDA_DY] = dy;
	op->operands[CUDA_X] = lower_value(l, node->x)->y;
	set_weights_result(l, op, node, NULL);
}

void lower_linear_backward(struct lowering *l, struct lower_node *n, struct cuda_tensor *dy)
{
	const struct device_node *node = n->node;
	struct matmul_problem problem;
	struct cuda_tensor *dx;
	struct cuda_op *op;

	if (lower_trains(node->weight))
		linear_weight_gradient(l, node, dy);
	if (!lower_value(l, node->x)->active)
		return;
	matmul_of(l, node, node->x->shape.n, node->weight->spec.shape[1], node->y->shape.c,
		  &problem);
	dx = lower_tensor(l, node, "data gradient", node->x->shape, l->options->element);
	op = matmul_op(l, node, &problem);
	op->operands[CUDA_DY] = dy;
	op->operands[CUDA_W] = lower_weights(l, node->weight, node->weight->spec.shape[1]);
	op->operands[CUDA_DX] = dx;
	lower_contribute(l, node->x, dx);
}
