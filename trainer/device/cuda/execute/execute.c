/*
 * Queues the operations of a program: translates roles to arguments of kernels/ and of the engines.
 */
#include "trainer/device/cuda/execute/execute.h"
#include "trainer/device/cuda/kernels/elementwise.h"
#include "trainer/device/cuda/kernels/input.h"
#include "trainer/device/cuda/kernels/scale_add.h"

#include <errno.h>

void *cuda_at(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role)
{
	const struct cuda_tensor *tensor = op->operands[role];

	return tensor ? cuda_tensor_data(graph, tensor) : NULL;
}

bool cuda_adds(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role)
{
	bool micro_batch =
		graph->graph->options.mode == DEVICE_TRAIN && (graph->variant & CUDA_VARIANT_ADDS);

	return micro_batch || (op->adds >> role & 1);
}

void *cuda_workspace(const struct cuda_graph *graph, const struct cuda_op *op)
{
	return cuda_kernel_workspace(graph, op) ? graph->workspace : NULL;
}

uint64_t cuda_rows(const struct cuda_tensor *tensor)
{
	return device_shape_elements(tensor->shape) / tensor->shape.c;
}

/* ---- input ---- */

int cuda_execute_input(struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct device_input_spec *input = &op->node->input;
	const struct cuda_tensor *y = op->operands[CUDA_Y];
	struct input_normalize arguments = {
		.step = graph->arguments,
		.y = cuda_at(graph, op, CUDA_Y),
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
	return input->resamples ? input_resample(&graph->device->kernels, &arguments)
				: input_normalize(&graph->device->kernels, &arguments);
}

/* ---- convolutions and matrix products ---- */

/* The same shape except for padded channels on either side. */
static struct elementwise_copy execute_conversion(const struct cuda_graph *graph,
						  const struct cuda_op *op, enum cuda_role from,
						  enum cuda_role to, bool add)
{
	const struct cuda_tensor *a = op->operands[from], *b = op->operands[to];

	return (struct elementwise_copy){
		.from = cuda_at(graph, op, from),
		.to = cuda_at(graph, op, to),
		.rows = cuda_rows(a),
		.from_columns = a->shape.c,
		.to_columns = b->shape.c,
		.from_element = a->element,
		.to_element = b->element,
		.add = add,
	};
}

/* Adds a parameter gradient that was stored separately to the accumulated one. */
static int execute_add_gradient(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct elementwise_copy copy = execute_conversion(graph, op, CUDA_ADDEND, CUDA_DW, true);

	return elementwise_copy(&graph->device->kernels, &copy);
}

/* Destination of a weight gradient: a separate tensor if it must be added to existing values. */
static void *execute_gradient_place(struct cuda_graph *graph, const struct cuda_op *op,
				    bool *ret_beside)
{
	*ret_beside = op->operands[CUDA_DW]->storage == CUDA_IN_PARAMETER &&
		      cuda_adds(graph, op, CUDA_DW);
	return cuda_at(graph, op, *ret_beside ? CUDA_ADDEND : CUDA_DW);
}

static int execute_fail_engine(struct cuda_graph *graph, const struct cuda_op *op, int r,
			       const char *words)
{
	return device_fail(&graph->device->base, r, "%s: %s: %s", op->node->name, op->engine,
			   words);
}

struct conv_arguments cuda_conv_arguments(const struct cuda_graph *graph, const struct cuda_op *op)
{
	bool norm = op->conv.problem.epilogue == CONV_RELU_NORM;
	struct conv_arguments arguments = {
		.scale = cuda_at(graph, op, CUDA_PRESCALE),
		.bias = cuda_at(graph, op, CUDA_PREBIAS),
		.scale2 = cuda_at(graph, op, CUDA_PRESCALE2),
		.bias2 = cuda_at(graph, op, CUDA_PREBIAS2),
		.residual = cuda_at(graph, op, CUDA_RESIDUAL),
		.activated = cuda_at(graph, op, CUDA_ACTIVATED),
		.channel_bias = cuda_at(graph, op, CUDA_CHANNEL_BIAS),
		.sum = norm ? NULL : cuda_at(graph, op, CUDA_SUM),
		.squares = norm ? NULL : cuda_at(graph, op, CUDA_SQUARES),
		.raw = cuda_at(graph, op, CUDA_RAW),
		.mean = cuda_at(graph, op, CUDA_MEAN),
		.deviation = cuda_at(graph, op, CUDA_DEVIATION),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.beta = cuda_at(graph, op, CUDA_BETA),
		.dbeta = norm ? cuda_at(graph, op, CUDA_SUM) : NULL,
		.dgamma = norm ? cuda_at(graph, op, CUDA_SQUARES) : NULL,
		.a = cuda_at(graph, op, CUDA_A),
		.b = cuda_at(graph, op, CUDA_B),
		.d = cuda_at(graph, op, CUDA_C),
		.shortcut = cuda_at(graph, op, CUDA_SHORTCUT),
		.raw2 = cuda_at(graph, op, CUDA_RAW2),
		.mean2 = cuda_at(graph, op, CUDA_MEAN2),
		.deviation2 = cuda_at(graph, op, CUDA_DEVIATION2),
		.gamma2 = cuda_at(graph, op, CUDA_GAMMA2),
		.beta2 = cuda_at(graph, op, CUDA_BETA2),
		.dbeta2 = cuda_at(graph, op, CUDA_SUM2),
		.dgamma2 = cuda_at(graph, op, CUDA_SQUARES2),
		.a2 = cuda_at(graph, op, CUDA_A2),
		.b2 = cuda_at(graph, op, CUDA_B2),
		.d2 = cuda_at(graph, op, CUDA_C2),
		.workspace = cuda_at(graph, op, CUDA_WORKSPACE),
	};

	switch (op->conv.problem.direction) {
	case CONV_FORWARD:
		arguments.x = cuda_at(graph, op, CUDA_X);
		arguments.w = cuda_at(graph, op, CUDA_W);
		arguments.y = cuda_at(graph, op, CUDA_Y);
		break;
	case CONV_DATA:
		arguments.x = cuda_at(graph, op, CUDA_DX);
		arguments.w = cuda_at(graph, op, CUDA_W);
		arguments.y = cuda_at(graph, op, CUDA_DY);
		break;
	case CONV_WEIGHTS:
		arguments.x = cuda_at(graph, op, CUDA_X);
		arguments.w = cuda_at(graph, op, CUDA_DW);
		arguments.y = cuda_at(graph, op, CUDA_DY);
		break;
	}
	return arguments;
}

int cuda_execute_conv(struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct conv_engines *engines = &graph->device->engines.conv;
	struct conv_arguments arguments = cuda_conv_arguments(graph, op);
	bool beside = false;
	int r;

	if (op->conv.problem.direction == CONV_WEIGHTS)
		arguments.w = execute_gradient_place(graph, op, &beside);
	r = engines->execute(engines->state, op->conv.plan, &arguments, graph->device->compute);
	if (r < 0)
		return execute_fail_engine(graph, op, r, engines->error(engines->state));
	return beside ? execute_add_gradient(graph, op) : 0;
}

int cuda_execute_matmul(struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct matmul_engines *engines = &graph->device->engines.matmul;
	struct matmul_arguments arguments = {.workspace = cuda_at(graph, op, CUDA_WORKSPACE)};
	bool beside = false;
	int r;

	if (op->operands[CUDA_Y]) {
		arguments.a = cuda_at(graph, op, CUDA_X);
		arguments.b = cuda_at(graph, op, CUDA_W);
		arguments.bias = cuda_at(graph, op, CUDA_CHANNEL_BIAS);
		arguments.residual = cuda_at(graph, op, CUDA_RESIDUAL);
		arguments.d = cuda_at(graph, op, CUDA_Y);
	} else if (op->operands[CUDA_DX]) {
		arguments.a = cuda_at(graph, op, CUDA_DY);
		arguments.b = cuda_at(graph, op, CUDA_W);
		arguments.d = cuda_at(graph, op, CUDA_DX);
	} else {
		arguments.a = cuda_at(graph, op, CUDA_DY);
		arguments.b = cuda_at(graph, op, CUDA_X);
		arguments.d = execute_gradient_place(graph, op, &beside);
	}
	r = engines->execute(engines->state, op->matmul.plan, &arguments, graph->device->compute);
	if (r < 0)
		return execute_fail_engine(graph, op, r, engines->error(engines->state));
	return beside ? execute_add_gradient(graph, op) : 0;
}

_Static_assert(CUDA_GATHERED_MAX == ELEMENTWISE_COPIES_MAX, "what is gathered is one launch");

int cuda_execute_weight_gradient(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct elementwise_copies copies = {.count = op->gather.launched};

	for (uint32_t i = 0; i < copies.count; i++)
		copies.list[i] = execute_conversion(graph, &op[i], CUDA_X, CUDA_DW,
						    cuda_adds(graph, &op[i], CUDA_DW));
	if (copies.count == 1)
		return elementwise_copy(&graph->device->kernels, &copies.list[0]);
	return copies.count ? elementwise_copies(&graph->device->kernels, &copies) : 0;
}

int cuda_execute_fold(struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct cuda_tensor *w = op->operands[CUDA_W], *to = op->operands[CUDA_W16];
	struct elementwise_fold arguments = {
		.w = cuda_at(graph, op, CUDA_W),
		.gamma = cuda_at(graph, op, CUDA_GAMMA),
		.beta = cuda_at(graph, op, CUDA_BETA),
		.running_mean = cuda_at(graph, op, CUDA_RUNNING_MEAN),
		.running_var = cuda_at(graph, op, CUDA_RUNNING_VAR),
		.epsilon = op->node->norm.epsilon,
		.to = cuda_at(graph, op, CUDA_W16),
		.bias = cuda_at(graph, op, CUDA_BIAS),
		.k = w->shape.n,
		.positions = w->shape.h * w->shape.w,
		.from_columns = w->shape.c,
		.to_columns = to->shape.c,
		.to_element = to->element,
		.bias_element =
			op->operands[CUDA_BIAS] ? op->operands[CUDA_BIAS]->element : CUDA_F32,
	};

	if (!arguments.gamma) {
		struct elementwise_copy copy =
			execute_conversion(graph, op, CUDA_W, CUDA_W16, false);

		return elementwise_copy(&graph->device->kernels, &copy);
	}
	return elementwise_fold(&graph->device->kernels, &arguments);
}

int cuda_execute_add(struct cuda_graph *graph, const struct cuda_op *op)
{
	struct elementwise_add arguments = {
		.a = cuda_at(graph, op, CUDA_X),
		.b = cuda_at(graph, op, CUDA_RESIDUAL),
		.y = cuda_at(graph, op, CUDA_Y),
		.count = device_shape_elements(op->operands[CUDA_Y]->shape),
		.element = op->operands[CUDA_Y]->element,
	};

	return elementwise_add(&graph->device->kernels, &arguments);
}

static int (*const executors[CUDA_OP_KINDS])(struct cuda_graph *graph, const struct cuda_op *op) = {
#define OPERATION(kind, executor, ...) [CUDA_OP_##kind] = cuda_execute_##executor,
#include "trainer/device/cuda/ops/ops.h"
#undef OPERATION
};

uint64_t cuda_kernel_workspace(const struct cuda_graph *graph, const struct cuda_op *op)
{
	const struct cuda_tensor *summed;
	uint64_t sums = cuda_op_def(op)->sums;

	if (op->kind == CUDA_OP_LOSS)
		return loss_workspace(op->operands[CUDA_X]->shape.n);
	if (op->kind == CUDA_OP_ATTENTION_BACKWARD)
		return device_shape_elements(op->operands[CUDA_LOG_SUM]->shape) * sizeof(float);
	if (op->kind == CUDA_OP_SCALE_ADD_BACKWARD &&
	    (op->operands[CUDA_DGATE] || op->operands[CUDA_DGAMMA]))
		return scale_add_workspace(graph->device->gpu.multiprocessors, op->node->y->shape.n,
					   op->node->y->shape.c);
	if (!sums)
		return 0;
	summed = op->operands[sums & CUDA_BIT(CUDA_X) ? CUDA_X : CUDA_DY];
	return columns_workspace(graph->device->gpu.multiprocessors, cuda_rows(summed),
				 summed->shape.c);
}

int cuda_execute(struct cuda_graph *graph, const struct cuda_op *op)
{
	return executors[op->kind](graph, op);
}
