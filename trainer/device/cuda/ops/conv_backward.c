/*
 * Backward pass of convolutions: weight gradients, and data gradients whose epilogue may continue
 * into the preceding norm.
 */
#include "trainer/device/cuda/ops/internal.h"

/* Finds a plan for weight gradients in fp32, else in the program's element type. */
static bool plan_weights(struct lowering *l, const struct device_node *node,
			 enum conv_prologue prologue, struct conv_problem *problem,
			 struct conv_plan **ret_plan)
{
	lower_conv_problem(l, node, CONV_WEIGHTS, problem);
	problem->prologue = prologue;
	problem->gradient = CUDA_F32;
	if (lower_find_plan(l, node, problem, ret_plan))
		return true;
	problem->gradient = problem->element;
	return problem->element != CUDA_F32 && lower_find_plan(l, node, problem, ret_plan);
}

/*
 * Appends the computation of an input that was fused away, for a weight gradient without a
 * prologue.
 */
static struct cuda_tensor *recompute_input(struct lowering *l, const struct device_node *producer)
{
	struct cuda_tensor *x =
		lower_tensor(l, producer, "again", producer->y->shape, l->options->element);

	lower_apply(l, producer, x);
	return x;
}

static void weight_gradient(struct lowering *l, const struct device_node *node,
			    struct cuda_tensor *dy)
{
	const struct device_node *producer = node->x->producer;
	struct cuda_tensor *x = lower_value(l, node->x), *result = NULL;
	struct conv_problem problem;
	struct conv_plan *plan = NULL;
	bool recomputes = !x;

	if (recomputes && !plan_weights(l, node, CONV_SCALE_BIAS_RELU, &problem, &plan)) {
		lower_log_fallback(l, node, &problem,
				   "its input is computed again for a plain one");
		x = recompute_input(l, producer);
		recomputes = false;
	}
	if (!plan && !plan_weights(l, node, CONV_PLAIN, &problem, &plan))
		lower_need_plan(l, node, &problem);
	if (l->failure)
		return;
	struct device_shape shape = {problem.k, problem.r, problem.s,
				     conv_weight_channels(&problem)};
	if (problem.gradient != CUDA_F32 || shape.c != node->weight->shape[3])
		result = lower_tensor(l, node, "weight gradient", shape, problem.gradient);
	struct cuda_op *op = lower_conv_op(l, node, &problem, plan);
	if (recomputes)
		lower_set_prologue(l, op, producer);
	else
		op->operands[CUDA_X] = x;
	op->operands[CUDA_DY] = dy;
	lower_set_weight_gradient(l, op, node, result);
	if (result)
		lower_convert_gradient(l, node, result);
}

static struct cuda_tensor *gradient_of_x(struct lowering *l, const struct device_node *node,
					 const char *what)
{
	struct device_shape shape = node->x->shape;

	shape.c = lower_x_channels(l, node);
	return lower_tensor(l, node, what, shape, l->options->element);
}

/*
 * Operands of CONV_RELU_NORM for a norm. Each entry has the operation's role for the norm itself,
 * its role for the norm of the shortcut, and the role in which the node has the tensor. Tensors
 * with a name are created here.
 */
static const struct {
	enum cuda_role own, shortcut;
	const char *made;
} norm_roles[] = {
	{CUDA_MEAN, CUDA_MEAN2, NULL},   {CUDA_DEVIATION, CUDA_DEVIATION2, NULL},
	{CUDA_GAMMA, CUDA_GAMMA2, NULL}, {CUDA_BETA, CUDA_BETA2, NULL},
	{CUDA_SUM, CUDA_SUM2, "dz sum"}, {CUDA_PRODUCTS, CUDA_PRODUCTS2, "dz xhat sum"},
	{CUDA_A, CUDA_A2, "dz a"},       {CUDA_B, CUDA_B2, "dz b"},
	{CUDA_C, CUDA_C2, "dz c"},
};

/*
 * Sets the operands of a norm, of which the operation computes the sums. dz is the gradient before
 * the activation.
 */
static void set_norm(struct lowering *l, struct cuda_op *op, const struct device_node *node,
		     struct cuda_tensor *dz, bool shortcut)
{
	struct node_state *state = node_state(l, node);

	state->dz = dz;
	op->operands[shortcut ? CUDA_RAW2 : CUDA_RAW] = state->raw;
	for (size_t i = 0; i < sizeof(norm_roles) / sizeof(*norm_roles); i++) {
		enum cuda_role own = norm_roles[i].own;

		if (norm_roles[i].made)
			lower_vector(l, node, own, norm_roles[i].made);
		op->operands[shortcut ? norm_roles[i].shortcut : own] = lower_operand(l, node, own);
	}
}

/*
 * Appends a data gradient that continues through the ReLU into the norm that produces x, and into
 * the norm of its shortcut.
 */
static bool data_gradient_into_norm(struct lowering *l, const struct device_node *node,
				    const struct device_node *producer, struct cuda_tensor *dy)
{
	const struct device_value *shortcut = producer->residual;
	const struct value_state *x = value_state(l, node->x);
	struct cuda_tensor *other = lower_value(l, shortcut);
	struct conv_problem problem;
	struct conv_plan *plan;

	lower_conv_problem(l, node, CONV_DATA, &problem);
	problem.epilogue = CONV_RELU_NORM;
	problem.residual = x->gradient_count;
	if (shortcut)
		problem.shortcut = other ? CONV_SHORTCUT : CONV_SHORTCUT_NORM;
	if (!lower_find_plan(l, node, &problem, &plan)) {
		lower_log_fallback(
			l, node, &problem,
			"ReLU and the norm's sums are differentiated in a pass of their own");
		return false;
	}
	struct cuda_op *op = lower_conv_op(l, node, &problem, plan);
	op->operands[CUDA_DY] = dy;
	op->operands[CUDA_W] = lower_weights(l, node->weight, conv_weight_channels(&problem));
	op->operands[CUDA_DX] = gradient_of_x(l, node, "gradient before relu");
	if (problem.residual)
		op->operands[CUDA_RESIDUAL] = x->gradients[0];
	set_norm(l, op, producer, op->operands[CUDA_DX], false);
	if (problem.shortcut == CONV_SHORTCUT)
		op->operands[CUDA_SHORTCUT] = other;
	else if (problem.shortcut == CONV_SHORTCUT_NORM)
		set_norm(l, op, shortcut->producer, op->operands[CUDA_DX], true);
	return true;
}

static void data_gradient(struct lowering *l, const struct device_node *node,
			  struct cuda_tensor *dy)
{
	struct value_state *x = value_state(l, node->x);
	struct cuda_tensor *other = NULL;
	struct conv_problem problem;
	struct conv_plan *plan = NULL;

	lower_strided_readers_first(l, node);
	const struct device_node *norm = lower_norm_before(l, node->x);
	if (norm && data_gradient_into_norm(l, node, norm, dy) && !l->keep_all)
		return;
	lower_conv_problem(l, node, CONV_DATA, &problem);
	if (l->options->fusion == DEVICE_FUSION_C && x->gradient_count) {
		problem.epilogue = CONV_ADD;
		if (lower_find_plan(l, node, &problem, &plan)) {
			other = x->gradients[--x->gradient_count];
		} else {
			lower_log_fallback(l, node, &problem,
					   "gradients are added by what reads them");
			problem.epilogue = CONV_STORE;
		}
	}
	if (!plan)
		plan = lower_need_plan(l, node, &problem);
	if (l->failure)
		return;
	struct cuda_tensor *dx = gradient_of_x(l, node, "data gradient");
	struct cuda_op *op = lower_conv_op(l, node, &problem, plan);
	op->operands[CUDA_DY] = dy;
	op->operands[CUDA_W] = lower_weights(l, node->weight, conv_weight_channels(&problem));
	op->operands[CUDA_RESIDUAL] = other;
	op->operands[CUDA_DX] = dx;
	lower_contribute(l, node->x, dx);
}

void lower_conv_backward(struct lowering *l, const struct device_node *node, struct cuda_tensor *dy)
{
	if (device_param_trains(node->weight))
		weight_gradient(l, node, dy);
	if (node->x->active)
		data_gradient(l, node, dy);
}
