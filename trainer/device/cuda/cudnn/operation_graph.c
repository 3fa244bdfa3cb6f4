#include "trainer/device/cuda/cudnn/operation_graph.h"

#include "trainer/device/ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OPERATIONS 16

struct builder {
	struct backend *backend;
	const struct conv_problem *problem;
	struct conv_operands *operands;
	cudnnDataType_t element, gradient;
	int64_t inner; /* number of internal tensors so far */
	descriptor operations[OPERATIONS];
	int64_t operation_count;
};

/* Dimensions in cuDNN's order. The strides make the layout [n][h][w][c]. */
struct dims {
	int64_t n, c, h, w;
};

static cudnnDataType_t data_type(enum cuda_element element)
{
	switch (element) {
	case CUDA_F16:
		return CUDNN_DATA_HALF;
	case CUDA_BF16:
		return CUDNN_DATA_BFLOAT16;
	default:
		return CUDNN_DATA_FLOAT;
	}
}

static descriptor tensor(struct builder *builder, struct dims dims, cudnnDataType_t type,
			 int64_t id, bool inner)
{
	struct backend *backend = builder->backend;
	descriptor made = backend_new(backend, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	const int64_t sizes[] = {dims.n, dims.c, dims.h, dims.w};
	const int64_t strides[] = {dims.c * dims.h * dims.w, 1, dims.c * dims.w, dims.c};

	backend_set_int(backend, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
	backend_set(backend, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	backend_set(backend, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes);
	backend_set(backend, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	backend_set_int(backend, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CONV_ALIGNMENT);
	backend_set(backend, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
	backend_finish(backend, made, "tensor");
	return made;
}

static descriptor memory_tensor(struct builder *builder, struct dims dims, cudnnDataType_t type,
				size_t offset)
{
	int64_t id = (int64_t)offset + 1;

	builder->operands->ids[builder->operands->count++] = id;
	return tensor(builder, dims, type, id, false);
}

#define MEMORY(builder, dims, type, member)                                                        \
	memory_tensor(builder, dims, type, offsetof(struct conv_arguments, member))

static descriptor virtual_tensor(struct builder *builder, struct dims dims, cudnnDataType_t type)
{
	int64_t id = (int64_t)sizeof(struct conv_arguments) + 1 + builder->inner++;

	return tensor(builder, dims, type, id, true);
}

static struct dims dims_x(const struct conv_problem *problem)
{
	return (struct dims){problem->n, problem->c, problem->h, problem->w};
}

static struct dims dims_y(const struct conv_problem *problem)
{
	return (struct dims){problem->n, problem->k, problem->p, problem->q};
}

static struct dims dims_w(const struct conv_problem *problem)
{
	return (struct dims){problem->k, conv_weight_channels(problem), problem->r, problem->s};
}

static struct dims channels(uint32_t count)
{
	return (struct dims){1, count, 1, 1};
}

static void add(struct builder *builder, descriptor operation, const char *what)
{
	backend_finish(builder->backend, operation, what);
	builder->operations[builder->operation_count++] = operation;
}

static descriptor pointwise_mode(struct builder *builder, cudnnPointwiseMode_t mode)
{
	struct backend *backend = builder->backend;
	descriptor made = backend_new(backend, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
	cudnnDataType_t type = CUDNN_DATA_FLOAT;

	backend_set(backend, made, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	backend_set(backend, made, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
	backend_finish(backend, made, "pointwise mode");
	return made;
}

/* y = mode(x [, factor b]) */
static void pointwise(struct builder *builder, cudnnPointwiseMode_t mode, descriptor x,
		      descriptor b, float factor, descriptor y)
{
	struct backend *backend = builder->backend;
	descriptor shape = pointwise_mode(builder, mode);
	descriptor made = backend_new(backend, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, shape);
	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	if (b && factor != 1)
		backend_set(backend, made, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT,
			    1, &factor);
	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	add(builder, made, "pointwise operation");
}

/* dx = dy where x > 0 */
static void relu_backward(struct builder *builder, descriptor dy, descriptor x, descriptor dx)
{
	struct backend *backend = builder->backend;
	descriptor shape = pointwise_mode(builder, CUDNN_POINTWISE_RELU_BWD);
	descriptor made = backend_new(backend, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, shape);
	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
	add(builder, made, "derivative of ReLU");
}

static descriptor window(struct builder *builder)
{
	struct backend *backend = builder->backend;
	descriptor made = backend_new(backend, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
	const int64_t strides[] = {builder->problem->stride, builder->problem->stride};
	const int64_t before = builder->problem->pad, after = before + builder->problem->pad_extra;
	const int64_t pre_pads[] = {before, before}, post_pads[] = {after, after};
	const int64_t dilations[] = {1, 1};
	cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	cudnnDataType_t type = CUDNN_DATA_FLOAT;

	backend_set_int(backend, made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
	backend_set(backend, made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
		    &type);
	backend_set(backend, made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
		    &mode);
	backend_set(backend, made, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2,
		    pre_pads);
	backend_set(backend, made, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2,
		    post_pads);
	backend_set(backend, made, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2,
		    dilations);
	backend_set(backend, made, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2,
		    strides);
	backend_finish(backend, made, "convolution");
	return made;
}

/* Descriptor type and attribute names of each direction. */
static const struct direction {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t x, w, y, window, alpha, beta;
} directions[] = {
	[CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
	[CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
		       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
		       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
		       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
		       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
		       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
		       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
	[CONV_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static void convolve(struct builder *builder, descriptor x, descriptor w, descriptor y)
{
	struct backend *backend = builder->backend;
	const struct direction *direction = &directions[builder->problem->direction];
	descriptor shape = window(builder), made = backend_new(backend, direction->type);
	const float alpha = 1, beta = 0;

	backend_set_descriptor(backend, made, direction->x, x);
	backend_set_descriptor(backend, made, direction->w, w);
	backend_set_descriptor(backend, made, direction->y, y);
	backend_set_descriptor(backend, made, direction->window, shape);
	backend_set(backend, made, direction->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
	backend_set(backend, made, direction->beta, CUDNN_TYPE_FLOAT, 1, &beta);
	add(builder, made, "convolution operation");
}

/* Returns `from` * scale + bias. */
static descriptor affine(struct builder *builder, descriptor from, descriptor scale,
			 descriptor bias)
{
	struct dims dims = dims_x(builder->problem);
	descriptor scaled = virtual_tensor(builder, dims, CUDNN_DATA_FLOAT);
	descriptor shifted = virtual_tensor(builder, dims, CUDNN_DATA_FLOAT);

	pointwise(builder, CUDNN_POINTWISE_MUL, from, scale, 1, scaled);
	pointwise(builder, CUDNN_POINTWISE_ADD, scaled, bias, 1, shifted);
	return shifted;
}

/* Builds the prologue and returns the convolution's input x'. */
static descriptor prologue(struct builder *builder)
{
	const struct conv_problem *problem = builder->problem;
	struct dims dims = dims_x(problem);
	cudnnDataType_t element = builder->element;
	descriptor x = MEMORY(builder, dims, element, x);
	descriptor result;

	if (problem->prologue == CONV_PLAIN)
		return x;
	descriptor scale = MEMORY(builder, channels(problem->c), element, scale);
	descriptor bias = MEMORY(builder, channels(problem->c), element, bias);
	descriptor sum = affine(builder, x, scale, bias);
	if (problem->prologue == CONV_SCALE_BIAS_RELU) {
		result = virtual_tensor(builder, dims, element);
	} else {
		descriptor other = MEMORY(builder, dims, element, residual);
		descriptor added = virtual_tensor(builder, dims, CUDNN_DATA_FLOAT);

		if (problem->prologue == CONV_DUAL_SCALE_BIAS_ADD_RELU) {
			scale = MEMORY(builder, channels(problem->c), element, scale2);
			bias = MEMORY(builder, channels(problem->c), element, bias2);
			other = affine(builder, other, scale, bias);
		}
		pointwise(builder, CUDNN_POINTWISE_ADD, sum, other, 1, added);
		sum = added;
		result = MEMORY(builder, dims, element, activated);
	}
	pointwise(builder, CUDNN_POINTWISE_RELU_FWD, sum, NULL, 1, result);
	return result;
}

static void statistics(struct builder *builder, descriptor y)
{
	struct backend *backend = builder->backend;
	uint32_t width = builder->problem->k;
	descriptor sum = MEMORY(builder, channels(width), CUDNN_DATA_FLOAT, sum);
	descriptor squares = MEMORY(builder, channels(width), CUDNN_DATA_FLOAT, squares);
	descriptor made = backend_new(backend, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
	cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
	cudnnDataType_t type = CUDNN_DATA_FLOAT;

	backend_set(backend, made, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1,
		    &mode);
	backend_set(backend, made, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
		    &type);
	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
	backend_set_descriptor(backend, made, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
	add(builder, made, "statistics");
}

/* y = activation(raw [+ residual] + bias), in the order that compiled engines support. */
static void bias_epilogue(struct builder *builder, descriptor raw, descriptor y)
{
	const struct conv_problem *problem = builder->problem;
	struct dims dims = dims_y(problem);
	bool activates = problem->activation != DEVICE_IDENTITY;
	descriptor bias = MEMORY(builder, channels(problem->k), builder->element, channel_bias);
	descriptor sum = activates ? virtual_tensor(builder, dims, CUDNN_DATA_FLOAT) : y;

	if (problem->residual) {
		descriptor residual = MEMORY(builder, dims, builder->element, residual);
		descriptor added = virtual_tensor(builder, dims, CUDNN_DATA_FLOAT);

		pointwise(builder, CUDNN_POINTWISE_ADD, raw, residual, 1, added);
		raw = added;
	}
	pointwise(builder, CUDNN_POINTWISE_ADD, raw, bias, 1, sum);
	if (activates)
		pointwise(builder,
			  problem->activation == DEVICE_RELU ? CUDNN_POINTWISE_RELU_FWD
							     : CUDNN_POINTWISE_GELU_FWD,
			  sum, NULL, 1, y);
}

static void forward(struct builder *builder)
{
	const struct conv_problem *problem = builder->problem;
	descriptor x = prologue(builder);
	descriptor w = MEMORY(builder, dims_w(problem), builder->element, w);
	descriptor y = MEMORY(builder, dims_y(problem), builder->element, y);
	descriptor raw = problem->epilogue == CONV_BIAS
				 ? virtual_tensor(builder, dims_y(problem), CUDNN_DATA_FLOAT)
				 : y;

	convolve(builder, x, w, raw);
	if (problem->epilogue == CONV_STATISTICS)
		statistics(builder, y);
	if (problem->epilogue == CONV_BIAS)
		bias_epilogue(builder, raw, y);
}

/* A batch norm followed by ReLU: offsets of its pointers in struct conv_arguments. */
static const struct norm {
	size_t raw, mean, deviation, gamma, beta, dgamma, dbeta, a, b, d;
} norms[] = {
#define NORM(suffix)                                                                               \
	{                                                                                          \
		offsetof(struct conv_arguments, raw##suffix),                                      \
			offsetof(struct conv_arguments, mean##suffix),                             \
			offsetof(struct conv_arguments, deviation##suffix),                        \
			offsetof(struct conv_arguments, gamma##suffix),                            \
			offsetof(struct conv_arguments, beta##suffix),                             \
			offsetof(struct conv_arguments, dgamma##suffix),                           \
			offsetof(struct conv_arguments, dbeta##suffix),                            \
			offsetof(struct conv_arguments, a##suffix),                                \
			offsetof(struct conv_arguments, b##suffix),                                \
			offsetof(struct conv_arguments, d##suffix)                                 \
	}
	NORM(),
	NORM(2),
};

/* The norm's inputs as tensors of the graph. */
struct norm_inputs {
	descriptor raw, mean, deviation, gamma;
};

/*
 * Builds gamma (raw - mean) deviation + beta from the operations, in the order, that the fused
 * pattern requires.
 */
static descriptor norm_output(struct builder *builder, const struct norm *norm,
			      struct norm_inputs *ret_inputs)
{
	struct dims dims = dims_x(builder->problem), vector = channels(builder->problem->c);
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	descriptor raw = memory_tensor(builder, dims, builder->element, norm->raw);
	descriptor mean = memory_tensor(builder, vector, type, norm->mean);
	descriptor deviation = memory_tensor(builder, vector, type, norm->deviation);
	descriptor gamma = memory_tensor(builder, vector, type, norm->gamma);
	descriptor beta = memory_tensor(builder, vector, type, norm->beta);
	descriptor centred = virtual_tensor(builder, dims, type),
		   normal = virtual_tensor(builder, dims, type);
	descriptor scaled = virtual_tensor(builder, dims, type),
		   output = virtual_tensor(builder, dims, type);

	pointwise(builder, CUDNN_POINTWISE_ADD, raw, mean, -1, centred);
	pointwise(builder, CUDNN_POINTWISE_MUL, centred, deviation, 1, normal);
	pointwise(builder, CUDNN_POINTWISE_MUL, normal, gamma, 1, scaled);
	pointwise(builder, CUDNN_POINTWISE_ADD, scaled, beta, 1, output);
	*ret_inputs = (struct norm_inputs){raw, mean, deviation, gamma};
	return output;
}

/*
 * Adds the operation that computes the sums over dz, and from these dgamma, dbeta and the
 * coefficients a, b, c.
 */
static void norm_backward(struct builder *builder, const struct norm *norm,
			  const struct norm_inputs *inputs, descriptor dz)
{
	struct backend *backend = builder->backend;
	descriptor made = backend_new(backend, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	const struct {
		cudnnBackendAttributeName_t name;
		descriptor value;
	} attributes[] = {
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, inputs->raw},
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, dz},
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, inputs->mean},
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, inputs->deviation},
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, inputs->gamma},
	};
	const struct {
		cudnnBackendAttributeName_t name;
		size_t offset;
	} made_of_it[] = {
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, norm->dgamma},
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, norm->dbeta},
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, norm->a},
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, norm->b},
		{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, norm->d},
	};

	backend_set(backend, made, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC,
		    CUDNN_TYPE_DATA_TYPE, 1, &type);
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		backend_set_descriptor(backend, made, attributes[i].name, attributes[i].value);
	for (size_t i = 0; i < sizeof(made_of_it) / sizeof(made_of_it[0]); i++)
		backend_set_descriptor(backend, made, made_of_it[i].name,
				       memory_tensor(builder, channels(builder->problem->c), type,
						     made_of_it[i].offset));
	add(builder, made, "backward of the norm's weights");
}

/*
 * Builds dz = g [+ residual] where the input of the ReLU is positive, else 0, and then the norm's
 * backward operation.
 */
static void relu_norm(struct builder *builder, descriptor g, descriptor dz)
{
	const struct conv_problem *problem = builder->problem;
	struct dims dims = dims_x(problem);
	struct norm_inputs inputs, inputs2;
	descriptor other = NULL;

	if (problem->residual) {
		descriptor sum = virtual_tensor(builder, dims, CUDNN_DATA_FLOAT);

		pointwise(builder, CUDNN_POINTWISE_ADD, g,
			  MEMORY(builder, dims, builder->element, residual), 1, sum);
		g = sum;
	}
	descriptor output = norm_output(builder, &norms[0], &inputs);
	if (problem->shortcut == CONV_SHORTCUT)
		other = MEMORY(builder, dims, builder->element, shortcut);
	if (problem->shortcut == CONV_SHORTCUT_NORM)
		other = norm_output(builder, &norms[1], &inputs2);
	if (other) {
		descriptor sum = virtual_tensor(builder, dims, CUDNN_DATA_FLOAT);

		pointwise(builder, CUDNN_POINTWISE_ADD, output, other, 1, sum);
		output = sum;
	}
	relu_backward(builder, g, output, dz);
	norm_backward(builder, &norms[0], &inputs, dz);
	if (problem->shortcut == CONV_SHORTCUT_NORM)
		norm_backward(builder, &norms[1], &inputs2, dz);
}

static void data_gradient(struct builder *builder)
{
	const struct conv_problem *problem = builder->problem;
	struct dims dims = dims_x(problem);
	descriptor dy = MEMORY(builder, dims_y(problem), builder->element, y);
	descriptor w = MEMORY(builder, dims_w(problem), builder->element, w);
	descriptor dx = MEMORY(builder, dims, builder->element, x);
	descriptor g = problem->epilogue == CONV_STORE
			       ? dx
			       : virtual_tensor(builder, dims, CUDNN_DATA_FLOAT);

	convolve(builder, g, w, dy);
	if (problem->epilogue == CONV_ADD)
		pointwise(builder, CUDNN_POINTWISE_ADD, g,
			  MEMORY(builder, dims, builder->element, residual), 1, dx);
	if (problem->epilogue == CONV_RELU_NORM)
		relu_norm(builder, g, dx);
}

static void weight_gradient(struct builder *builder)
{
	const struct conv_problem *problem = builder->problem;
	descriptor x = prologue(builder);
	descriptor dy = MEMORY(builder, dims_y(problem), builder->element, y);
	descriptor dw = MEMORY(builder, dims_w(problem), builder->gradient, w);

	convolve(builder, x, dw, dy);
}

descriptor conv_graph(struct backend *backend, cudnnHandle_t handle,
		      const struct conv_problem *problem, struct conv_operands *ret_operands)
{
	struct builder builder = {
		.backend = backend,
		.problem = problem,
		.operands = ret_operands,
		.element = data_type(problem->element),
		.gradient = data_type(problem->gradient),
	};

	ret_operands->count = 0;
	if (problem->direction == CONV_FORWARD)
		forward(&builder);
	else if (problem->direction == CONV_DATA)
		data_gradient(&builder);
	else
		weight_gradient(&builder);
	descriptor graph = backend_new(backend, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	backend_set(backend, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
		    builder.operation_count, builder.operations);
	if (handle)
		backend_set(backend, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
			    &handle);
	backend_finish(backend, graph, "graph of operations");
	return backend->result < 0 ? NULL : graph;
}

void *conv_operand(const struct conv_arguments *arguments, int64_t id)
{
	void *pointer;

	memcpy(&pointer, (const char *)arguments + (id - 1), sizeof(pointer));
	return pointer;
}
