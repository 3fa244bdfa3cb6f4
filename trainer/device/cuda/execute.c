/* Queues the operations of a program: from roles to the arguments of kernels/ and of the engines. */
#include "cuda.h"
#include "kernels/elementwise.h"
#include "kernels/ends.h"
#include "kernels/norm.h"
#include "kernels/pool.h"

#include <errno.h>

/* Where an operand lies; NULL: the operation has none of that role. */
static void *at(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role)
{
	const struct cuda_tensor *tensor = op->operands[role];

	return tensor ? cuda_tensor_data(graph, tensor) : NULL;
}

/* Whether this step adds to a parameter's gradient instead of storing it. */
static bool adds(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role)
{
	bool micro_batch =
		graph->graph->options.mode == DEVICE_TRAIN && (graph->variant & CUDA_VARIANT_ADDS);

	return micro_batch || (op->adds >> role & 1);
}

static uint32_t channels(const struct cuda_op *op, enum cuda_role role)
{
	return op->operands[role]->shape.c;
}

static uint64_t rows_of(const struct cuda_tensor *tensor)
{
	return device_shape_elements(tensor->shape) / tensor->shape.c;
}

/* ---- input and loss ---- */

static int execute_input(struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct device_input_spec *input = &op->node->input;
	const struct cuda_tensor *y = op->operands[CUDA_Y];
	struct input_normalize arguments = {
		.step = graph->arguments,
		.y = at(graph, op, CUDA_Y),
		.n = y->shape.n,
		.h = y->shape.h,
		.w = y->shape.w,
		.channels = input->shape.c,
		.padded = y->shape.c,
		.element = y->element,
	};

	for (int c = 0; c < 4; c++) {
		arguments.mean[c] = input->mean[c];
		arguments.std[c] = input->std[c];
	}
	return input_normalize(&graph->device->kernels, &arguments);
}

struct loss_softmax cuda_loss_arguments(const struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct cuda_tensor *logits = op->operands[CUDA_X];
	const struct cuda_tensor *dlogits = op->operands[CUDA_DX];

	return (struct loss_softmax){
		.step = graph->arguments,
		.state = ((struct cuda_params *)graph->graph->params->backend)->state,
		.logits = at(graph, op, CUDA_X),
		.dlogits = at(graph, op, CUDA_DX),
		.results = graph->results,
		.workspace = graph->workspace,
		.n = logits->shape.n,
		.classes = op->node->x->shape.c,
		.logits_stride = logits->shape.c,
		.dlogits_stride = dlogits ? dlogits->shape.c : 0,
		.logits_element = logits->element,
		.dlogits_element = dlogits ? dlogits->element : CUDA_F32,
		.smoothing = op->node->loss.smoothing,
		.logit_scale = op->node->loss.logit_scale,
		.totals = graph->ranks.totals,
	};
}

static int execute_loss(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct loss_softmax arguments = cuda_loss_arguments(graph, op);

	return loss_softmax(&graph->device->kernels, &arguments);
}

/* ---- convolutions and matrix products ---- */

/* What stores a parameter's gradient where it should add has stored it beside. */
static int add_gradient(struct cuda_graph *graph, const struct cuda_op *op, const void *addend)
{
	const struct cuda_tensor *dw = op->operands[CUDA_DW];

	return elementwise_copy(&graph->device->kernels, &(struct elementwise_copy){
								 .from = addend,
								 .to = at(graph, op, CUDA_DW),
								 .rows = rows_of(dw),
								 .from_columns = dw->shape.c,
								 .to_columns = dw->shape.c,
								 .from_element = CUDA_F32,
								 .to_element = CUDA_F32,
								 .add = true,
							 });
}

/* Where a gradient of weights is stored: beside, if it has to be added to what is there. */
static void *gradient_place(struct cuda_graph *graph, const struct cuda_op *op, bool *ret_beside)
{
	*ret_beside =
		op->operands[CUDA_DW]->storage == CUDA_IN_PARAMETER && adds(graph, op, CUDA_DW);
	return at(graph, op, *ret_beside ? CUDA_ADDEND : CUDA_DW);
}

static int fail_engine(struct cuda_graph *graph, const struct cuda_op *op, int r, const char *words)
{
	return device_fail(&graph->device->base, r, "%s: %s: %s", op->node->name, op->engine,
			   words);
}

struct conv_arguments cuda_conv_arguments(const struct cuda_graph *graph, const struct cuda_op *op)
{
	bool norm = op->conv.problem.epilogue == CONV_RELU_NORM;
	struct conv_arguments arguments = {
		.scale = at(graph, op, CUDA_PRESCALE),
		.bias = at(graph, op, CUDA_PREBIAS),
		.scale2 = at(graph, op, CUDA_PRESCALE2),
		.bias2 = at(graph, op, CUDA_PREBIAS2),
		.residual = at(graph, op, CUDA_RESIDUAL),
		.activated = at(graph, op, CUDA_ACTIVATED),
		.channel_bias = at(graph, op, CUDA_CHANNEL_BIAS),
		.sum = norm ? NULL : at(graph, op, CUDA_SUM),
		.squares = norm ? NULL : at(graph, op, CUDA_SQUARES),
		.raw = at(graph, op, CUDA_RAW),
		.mean = at(graph, op, CUDA_MEAN),
		.deviation = at(graph, op, CUDA_DEVIATION),
		.gamma = at(graph, op, CUDA_GAMMA),
		.beta = at(graph, op, CUDA_BETA),
		.dbeta = norm ? at(graph, op, CUDA_SUM) : NULL,
		.dgamma = norm ? at(graph, op, CUDA_SQUARES) : NULL,
		.a = at(graph, op, CUDA_A),
		.b = at(graph, op, CUDA_B),
		.d = at(graph, op, CUDA_C),
		.shortcut = at(graph, op, CUDA_SHORTCUT),
		.raw2 = at(graph, op, CUDA_RAW2),
		.mean2 = at(graph, op, CUDA_MEAN2),
		.deviation2 = at(graph, op, CUDA_DEVIATION2),
		.gamma2 = at(graph, op, CUDA_GAMMA2),
		.beta2 = at(graph, op, CUDA_BETA2),
		.dbeta2 = at(graph, op, CUDA_SUM2),
		.dgamma2 = at(graph, op, CUDA_SQUARES2),
		.a2 = at(graph, op, CUDA_A2),
		.b2 = at(graph, op, CUDA_B2),
		.d2 = at(graph, op, CUDA_C2),
		.workspace = at(graph, op, CUDA_WORKSPACE),
	};

	switch (op->conv.problem.direction) {
	case CONV_FORWARD:
		arguments.x = at(graph, op, CUDA_X);
		arguments.w = at(graph, op, CUDA_W);
		arguments.y = at(graph, op, CUDA_Y);
		break;
	case CONV_DATA:
		arguments.x = at(graph, op, CUDA_DX);
		arguments.w = at(graph, op, CUDA_W);
		arguments.y = at(graph, op, CUDA_DY);
		break;
	case CONV_WEIGHTS:
		arguments.x = at(graph, op, CUDA_X);
		arguments.w = at(graph, op, CUDA_DW);
		arguments.y = at(graph, op, CUDA_DY);
		break;
	}
	return arguments;
}

static int execute_conv(struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct conv_engines *engines = &graph->device->engines.conv;
	struct conv_arguments arguments = cuda_conv_arguments(graph, op);
	bool beside = false;
	int r;

	if (op->conv.problem.direction == CONV_WEIGHTS)
		arguments.w = gradient_place(graph, op, &beside);
	r = engines->execute(engines->state, op->conv.plan, &arguments, graph->device->compute);
	if (r < 0)
		return fail_engine(graph, op, r, engines->error(engines->state));
	return beside ? add_gradient(graph, op, arguments.w) : 0;
}

static int execute_matmul(struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct matmul_engines *engines = &graph->device->engines.matmul;
	struct matmul_arguments arguments = {.workspace = at(graph, op, CUDA_WORKSPACE)};
	bool beside = false;
	int r;

	if (op->operands[CUDA_Y]) {
		arguments.a = at(graph, op, CUDA_X);
		arguments.b = at(graph, op, CUDA_W);
		arguments.bias = at(graph, op, CUDA_CHANNEL_BIAS);
		arguments.d = at(graph, op, CUDA_Y);
	} else if (op->operands[CUDA_DX]) {
		arguments.a = at(graph, op, CUDA_DY);
		arguments.b = at(graph, op, CUDA_W);
		arguments.d = at(graph, op, CUDA_DX);
	} else {
		arguments.a = at(graph, op, CUDA_DY);
		arguments.b = at(graph, op, CUDA_X);
		arguments.d = gradient_place(graph, op, &beside);
	}
	r = engines->execute(engines->state, op->matmul.plan, &arguments, graph->device->compute);
	if (r < 0)
		return fail_engine(graph, op, r, engines->error(engines->state));
	return beside ? add_gradient(graph, op, arguments.d) : 0;
}

/* The same shape but for channels, which the one or the other may have more of. */
static int convert(struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role from,
		   enum cuda_role to, bool add)
{
	const struct cuda_tensor *a = op->operands[from], *b = op->operands[to];

	return elementwise_copy(&graph->device->kernels, &(struct elementwise_copy){
								 .from = at(graph, op, from),
								 .to = at(graph, op, to),
								 .rows = rows_of(a),
								 .from_columns = a->shape.c,
								 .to_columns = b->shape.c,
								 .from_element = a->element,
								 .to_element = b->element,
								 .add = add,
							 });
}

static int execute_weight_gradient(struct cuda_graph *graph, const struct cuda_op *op)
{
	return convert(graph, op, CUDA_X, CUDA_DW, adds(graph, op, CUDA_DW));
}

static int execute_fold(struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct cuda_tensor *w = op->operands[CUDA_W], *to = op->operands[CUDA_W16];
	struct elementwise_fold arguments = {
		.w = at(graph, op, CUDA_W),
		.gamma = at(graph, op, CUDA_GAMMA),
		.beta = at(graph, op, CUDA_BETA),
		.running_mean = at(graph, op, CUDA_RUNNING_MEAN),
		.running_var = at(graph, op, CUDA_RUNNING_VAR),
		.epsilon = op->node->norm.epsilon,
		.to = at(graph, op, CUDA_W16),
		.bias = at(graph, op, CUDA_BIAS),
		.k = w->shape.n,
		.positions = w->shape.h * w->shape.w,
		.from_columns = w->shape.c,
		.to_columns = to->shape.c,
		.to_element = to->element,
	};

	if (!arguments.gamma)
		return convert(graph, op, CUDA_W, CUDA_W16, false);
	return elementwise_fold(&graph->device->kernels, &arguments);
}

/* ---- norms ---- */

static int execute_statistics(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_statistics arguments = {
		.x = at(graph, op, CUDA_X),
		.rows = rows_of(op->operands[CUDA_X]),
		.channels = channels(op, CUDA_X),
		.element = op->operands[CUDA_X]->element,
		.sum = at(graph, op, CUDA_SUM),
		.squares = at(graph, op, CUDA_SQUARES),
		.partial = graph->workspace,
	};

	return norm_statistics(&graph->device->kernels, &arguments);
}

/* What the sums of a norm are over. */
static uint64_t norm_rows(const struct cuda_graph *graph, const struct cuda_op *op)
{
	return cuda_ranks_sums(graph, op) ? op->norm.rows * device_world(&graph->device->base)
					  : op->norm.rows;
}

static int execute_norm_finalize(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_finalize arguments = {
		.sum = at(graph, op, CUDA_SUM),
		.squares = at(graph, op, CUDA_SQUARES),
		.gamma = at(graph, op, CUDA_GAMMA),
		.beta = at(graph, op, CUDA_BETA),
		.mean = at(graph, op, CUDA_MEAN),
		.deviation = at(graph, op, CUDA_DEVIATION),
		.scale = at(graph, op, CUDA_SCALE),
		.bias = at(graph, op, CUDA_BIAS),
		.scale16 = at(graph, op, CUDA_SCALE16),
		.bias16 = at(graph, op, CUDA_BIAS16),
		.running_mean = at(graph, op, CUDA_RUNNING_MEAN),
		.running_var = at(graph, op, CUDA_RUNNING_VAR),
		.rows = norm_rows(graph, op),
		.channels = channels(op, CUDA_SCALE),
		.element = graph->program->element,
		.epsilon = op->node->norm.epsilon,
		.momentum = op->node->norm.momentum,
	};
	int r = cuda_ranks_sums(graph, op) ? cuda_ranks_sum_norm(graph, op) : 0;

	return r < 0 ? r : norm_finalize(&graph->device->kernels, &arguments);
}

static int execute_norm_running(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_running arguments = {
		.running_mean = at(graph, op, CUDA_RUNNING_MEAN),
		.running_var = at(graph, op, CUDA_RUNNING_VAR),
		.gamma = at(graph, op, CUDA_GAMMA),
		.beta = at(graph, op, CUDA_BETA),
		.scale = at(graph, op, CUDA_SCALE),
		.bias = at(graph, op, CUDA_BIAS),
		.scale16 = at(graph, op, CUDA_SCALE16),
		.bias16 = at(graph, op, CUDA_BIAS16),
		.channels = channels(op, CUDA_SCALE),
		.element = graph->program->element,
		.epsilon = op->node->norm.epsilon,
	};

	return norm_running(&graph->device->kernels, &arguments);
}

static int execute_apply(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_apply arguments = {
		.x = at(graph, op, CUDA_X),
		.residual = at(graph, op, CUDA_RESIDUAL),
		.scale = at(graph, op, CUDA_SCALE),
		.bias = at(graph, op, CUDA_BIAS),
		.scale2 = at(graph, op, CUDA_SCALE2),
		.bias2 = at(graph, op, CUDA_BIAS2),
		.y = at(graph, op, CUDA_Y),
		.rows = rows_of(op->operands[CUDA_X]),
		.channels = channels(op, CUDA_X),
		.element = op->operands[CUDA_X]->element,
		.activation = op->norm.activation,
	};

	return norm_apply(&graph->device->kernels, &arguments);
}

/* Of an activation alone, or with a norm's sums. */
static int execute_backward(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_backward arguments = {
		.dy = at(graph, op, CUDA_DY),
		.dy2 = at(graph, op, CUDA_DY2),
		.y = at(graph, op, CUDA_Y),
		.x = at(graph, op, CUDA_X),
		.residual = at(graph, op, CUDA_RESIDUAL),
		.scale = at(graph, op, CUDA_SCALE),
		.bias = at(graph, op, CUDA_BIAS),
		.scale2 = at(graph, op, CUDA_SCALE2),
		.bias2 = at(graph, op, CUDA_BIAS2),
		.mean = at(graph, op, CUDA_MEAN),
		.deviation = at(graph, op, CUDA_DEVIATION),
		.dz = at(graph, op, CUDA_DZ),
		.sum = at(graph, op, CUDA_SUM),
		.products = at(graph, op, CUDA_SQUARES),
		.partial = graph->workspace,
		.rows = rows_of(op->operands[CUDA_DY]),
		.channels = channels(op, CUDA_DY),
		.element = op->operands[CUDA_DY]->element,
		.activation = op->norm.activation,
	};

	return norm_backward(&graph->device->kernels, &arguments);
}

static int execute_bias_gradient(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_backward arguments = {
		.dy = at(graph, op, CUDA_DY),
		.sum = at(graph, op, CUDA_DBIAS),
		.add_sum = adds(graph, op, CUDA_DBIAS),
		.partial = graph->workspace,
		.rows = rows_of(op->operands[CUDA_DY]),
		.channels = channels(op, CUDA_DY),
		.element = op->operands[CUDA_DY]->element,
		.activation = DEVICE_IDENTITY,
	};

	return norm_backward(&graph->device->kernels, &arguments);
}

/*
 * Of several ranks: gamma and beta get this rank's sums, for their gradients will be added up with all others; the gradient of x takes those of
 * all.
 */
static int finalize_shared(struct cuda_graph *graph, const struct cuda_op *op,
			   const struct norm_backward_finalize *arguments)
{
	struct norm_backward_finalize own = *arguments, all = *arguments;
	int r = 0;

	own.a = own.b = own.c = NULL;
	all.dgamma = all.dbeta = NULL;
	if (own.dgamma || own.dbeta)
		r = norm_backward_finalize(&graph->device->kernels, &own);
	if (r < 0 || !all.a)
		return r;
	r = cuda_ranks_sum_norm(graph, op);
	return r < 0 ? r : norm_backward_finalize(&graph->device->kernels, &all);
}

static int execute_norm_backward_finalize(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_backward_finalize arguments = {
		.sum = at(graph, op, CUDA_SUM),
		.products = at(graph, op, CUDA_SQUARES),
		.gamma = at(graph, op, CUDA_GAMMA),
		.mean = at(graph, op, CUDA_MEAN),
		.deviation = at(graph, op, CUDA_DEVIATION),
		.dgamma = at(graph, op, CUDA_DGAMMA),
		.dbeta = at(graph, op, CUDA_DBETA),
		.add_dgamma = adds(graph, op, CUDA_DGAMMA),
		.add_dbeta = adds(graph, op, CUDA_DBETA),
		.a = at(graph, op, CUDA_A),
		.b = at(graph, op, CUDA_B),
		.c = at(graph, op, CUDA_C),
		.rows = norm_rows(graph, op),
		.channels = channels(op, CUDA_SUM),
	};

	if (cuda_ranks_sums(graph, op))
		return finalize_shared(graph, op, &arguments);
	return norm_backward_finalize(&graph->device->kernels, &arguments);
}

static int execute_norm_backward_apply(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct norm_backward_apply arguments = {
		.dz = at(graph, op, CUDA_DZ),
		.x = at(graph, op, CUDA_X),
		.a = at(graph, op, CUDA_A),
		.b = at(graph, op, CUDA_B),
		.c = at(graph, op, CUDA_C),
		.scale = at(graph, op, CUDA_SCALE),
		.bias = at(graph, op, CUDA_BIAS),
		.dx = at(graph, op, CUDA_DX),
		.rows = rows_of(op->operands[CUDA_X]),
		.channels = channels(op, CUDA_X),
		.element = op->operands[CUDA_X]->element,
		.activation = op->norm.activation,
	};

	return norm_backward_apply(&graph->device->kernels, &arguments);
}

static int execute_add(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct elementwise_add arguments = {
		.a = at(graph, op, CUDA_X),
		.b = at(graph, op, CUDA_RESIDUAL),
		.y = at(graph, op, CUDA_Y),
		.count = device_shape_elements(op->operands[CUDA_Y]->shape),
		.element = op->operands[CUDA_Y]->element,
	};

	return elementwise_add(&graph->device->kernels, &arguments);
}

/* ---- pools ---- */

static struct pool_shape pool_shape_of(const struct cuda_op *op, const struct cuda_tensor *x,
				       const struct cuda_tensor *y)
{
	return (struct pool_shape){
		.n = x->shape.n,
		.h = x->shape.h,
		.w = x->shape.w,
		.channels = x->shape.c,
		.p = y->shape.h,
		.q = y->shape.w,
		.window = op->node->window_h,
		.stride = op->node->stride,
		.pad = op->node->pad,
		.element = x->element,
	};
}

static int execute_max_pool(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_max arguments = {
		.x = at(graph, op, CUDA_X),
		.scale = at(graph, op, CUDA_SCALE),
		.bias = at(graph, op, CUDA_BIAS),
		.activation = op->norm.activation,
		.y = at(graph, op, CUDA_Y),
		.index = at(graph, op, CUDA_INDEX),
		.shape = pool_shape_of(op, op->operands[CUDA_X], op->operands[CUDA_Y]),
	};

	return pool_max(&graph->device->kernels, &arguments);
}

static int execute_max_pool_backward(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_max_backward arguments = {
		.dy = at(graph, op, CUDA_DY),
		.dy2 = at(graph, op, CUDA_DY2),
		.index = at(graph, op, CUDA_INDEX),
		.dx = at(graph, op, CUDA_DX),
		.shape = pool_shape_of(op, op->operands[CUDA_DX], op->operands[CUDA_DY]),
	};

	return pool_max_backward(&graph->device->kernels, &arguments);
}

static int execute_max_pool_norm_reduce(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_max_norm_reduce arguments = {
		.dy = at(graph, op, CUDA_DY),
		.dy2 = at(graph, op, CUDA_DY2),
		.index = at(graph, op, CUDA_INDEX),
		.x = at(graph, op, CUDA_X),
		.scale = at(graph, op, CUDA_SCALE),
		.bias = at(graph, op, CUDA_BIAS),
		.mean = at(graph, op, CUDA_MEAN),
		.deviation = at(graph, op, CUDA_DEVIATION),
		.activation = op->norm.activation,
		.sum = at(graph, op, CUDA_SUM),
		.products = at(graph, op, CUDA_SQUARES),
		.partial = graph->workspace,
		.shape = pool_shape_of(op, op->operands[CUDA_X], op->operands[CUDA_DY]),
	};

	return pool_max_norm_reduce(&graph->device->kernels, &arguments);
}

static int execute_max_pool_norm_apply(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_max_norm_apply arguments = {
		.dy = at(graph, op, CUDA_DY),
		.dy2 = at(graph, op, CUDA_DY2),
		.index = at(graph, op, CUDA_INDEX),
		.x = at(graph, op, CUDA_X),
		.scale = at(graph, op, CUDA_SCALE),
		.bias = at(graph, op, CUDA_BIAS),
		.a = at(graph, op, CUDA_A),
		.b = at(graph, op, CUDA_B),
		.c = at(graph, op, CUDA_C),
		.activation = op->norm.activation,
		.dx = at(graph, op, CUDA_DX),
		.shape = pool_shape_of(op, op->operands[CUDA_X], op->operands[CUDA_DY]),
	};

	return pool_max_norm_apply(&graph->device->kernels, &arguments);
}

static int execute_average_pool(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_average arguments = {
		.from = at(graph, op, CUDA_X),
		.to = at(graph, op, CUDA_Y),
		.shape = pool_shape_of(op, op->operands[CUDA_X], op->operands[CUDA_Y]),
	};

	return pool_average(&graph->device->kernels, &arguments);
}

static int execute_average_pool_backward(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_average arguments = {
		.from = at(graph, op, CUDA_DY),
		.to = at(graph, op, CUDA_DX),
		.shape = pool_shape_of(op, op->operands[CUDA_DX], op->operands[CUDA_DY]),
	};

	return pool_average_backward(&graph->device->kernels, &arguments);
}

/* whole: the tensor of all positions; the other one has a value per image. */
static struct pool_global global_of(struct cuda_graph *graph, const struct cuda_op *op,
				    enum cuda_role from, enum cuda_role to, enum cuda_role whole)
{
	const struct cuda_tensor *x = op->operands[whole];

	return (struct pool_global){
		.from = at(graph, op, from),
		.to = at(graph, op, to),
		.index = at(graph, op, CUDA_INDEX),
		.n = x->shape.n,
		.positions = x->shape.h * x->shape.w,
		.channels = x->shape.c,
		.element = x->element,
	};
}

static int execute_global(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct pool_global forward, backward;
	bool maxima = op->kind == CUDA_OP_GLOBAL_MAX || op->kind == CUDA_OP_GLOBAL_MAX_BACKWARD;

	if (op->operands[CUDA_DX]) {
		backward = global_of(graph, op, CUDA_DY, CUDA_DX, CUDA_DX);
		return maxima ? pool_global_max_backward(&graph->device->kernels, &backward)
			      : pool_global_average_backward(&graph->device->kernels, &backward);
	}
	forward = global_of(graph, op, CUDA_X, CUDA_Y, CUDA_X);
	return maxima ? pool_global_max(&graph->device->kernels, &forward)
		      : pool_global_average(&graph->device->kernels, &forward);
}

static int (*const executors[CUDA_OP_KINDS])(struct cuda_graph *, const struct cuda_op *) = {
	[CUDA_OP_INPUT] = execute_input,
	[CUDA_OP_CONV] = execute_conv,
	[CUDA_OP_STATISTICS] = execute_statistics,
	[CUDA_OP_NORM_FINALIZE] = execute_norm_finalize,
	[CUDA_OP_NORM_RUNNING] = execute_norm_running,
	[CUDA_OP_FOLD] = execute_fold,
	[CUDA_OP_APPLY] = execute_apply,
	[CUDA_OP_ACTIVATION_BACKWARD] = execute_backward,
	[CUDA_OP_NORM_REDUCE] = execute_backward,
	[CUDA_OP_NORM_BACKWARD_FINALIZE] = execute_norm_backward_finalize,
	[CUDA_OP_NORM_BACKWARD_APPLY] = execute_norm_backward_apply,
	[CUDA_OP_ADD] = execute_add,
	[CUDA_OP_BIAS_GRADIENT] = execute_bias_gradient,
	[CUDA_OP_WEIGHT_GRADIENT] = execute_weight_gradient,
	[CUDA_OP_MAX_POOL] = execute_max_pool,
	[CUDA_OP_MAX_POOL_BACKWARD] = execute_max_pool_backward,
	[CUDA_OP_MAX_POOL_NORM_REDUCE] = execute_max_pool_norm_reduce,
	[CUDA_OP_MAX_POOL_NORM_APPLY] = execute_max_pool_norm_apply,
	[CUDA_OP_AVERAGE_POOL] = execute_average_pool,
	[CUDA_OP_AVERAGE_POOL_BACKWARD] = execute_average_pool_backward,
	[CUDA_OP_GLOBAL_AVERAGE] = execute_global,
	[CUDA_OP_GLOBAL_AVERAGE_BACKWARD] = execute_global,
	[CUDA_OP_GLOBAL_MAX] = execute_global,
	[CUDA_OP_GLOBAL_MAX_BACKWARD] = execute_global,
	[CUDA_OP_MATMUL] = execute_matmul,
	[CUDA_OP_LOSS] = execute_loss,
};

uint64_t cuda_kernel_workspace(const struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct cuda_tensor *summed = NULL;

	switch (op->kind) {
	case CUDA_OP_LOSS:
		return loss_workspace(op->operands[CUDA_X]->shape.n);
	case CUDA_OP_STATISTICS:
		summed = op->operands[CUDA_X];
		break;
	case CUDA_OP_NORM_REDUCE:
	case CUDA_OP_BIAS_GRADIENT:
	case CUDA_OP_MAX_POOL_NORM_REDUCE:
		summed = op->operands[CUDA_DY];
		break;
	default:
		return 0;
	}
	return columns_workspace(graph->device->gpu.multiprocessors, rows_of(summed),
				 summed->shape.c);
}

int cuda_execute(struct cuda_graph *graph, const struct cuda_op *op)
{
	return executors[op->kind](graph, op);
}
