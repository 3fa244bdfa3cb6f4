/*
 * Emits operators of opset 17 (https://onnx.ai/onnx/operators), the first with layer norm. GELU is
 * expressed with Erf, and attention with matrix products; runtimes recognize and fuse these. Each
 * value has the layout that its consumers use, [n][h][w][c] or [n][c][h][w]; if they differ, it
 * exists in both.
 */
#include "trainer/device/onnx/onnx.h"

#include "trainer/device/backend.h"
#include "trainer/device/onnx/onnx.pb-c.h"
#include "trainer/device/pos_embed.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IR_VERSION = 8, OPSET = 17, DIMENSIONS_MAX = 5, OPERANDS_MAX = 8 };

typedef Loaderd__Onnx__Node Node;
typedef Loaderd__Onnx__Tensor Tensor;
typedef Loaderd__Onnx__Attribute Attribute;

/* Allocation owned by the writer. */
struct piece {
	struct piece *next;
	max_align_t data[];
};

struct list {
	void **items;
	size_t count, capacity;
};

/* Names of a value in the graph, by layout; NULL if it does not exist in that layout. */
struct layouts {
	const char *nhwc, *nchw;
};

struct writer {
	struct device_graph *graph;
	const struct onnx_options *options;
	struct piece *pieces;
	struct layouts *values; /* [graph->value_count] */
	struct list nodes, tensors;
	const char *layer; /* prefix of new names */
	unsigned names;
	int failure;
	jmp_buf failed; /* longjmp() target for `failure`: nearly every function below allocates */
};

/* ---- memory ---- */

/* Returns zeroed memory. */
static void *allocate(struct writer *writer, size_t size)
{
	struct piece *piece = calloc(1, sizeof(*piece) + size);

	if (!piece) {
		writer->failure = -ENOMEM;
		longjmp(writer->failed, 1);
	}
	piece->next = writer->pieces;
	writer->pieces = piece;
	return piece->data;
}

static void append(struct writer *writer, struct list *list, void *item)
{
	if (list->count == list->capacity) {
		size_t capacity = 2 * list->capacity + 64;
		void **items = allocate(writer, capacity * sizeof(*items));

		if (list->count)
			memcpy(items, list->items, list->count * sizeof(*items));
		list->items = items;
		list->capacity = capacity;
	}
	list->items[list->count++] = item;
}

static char *copy(struct writer *writer, const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(allocate(writer, size), text, size);
}

/* Returns the unique name LAYER/WHAT.NUMBER. */
static char *new_name(struct writer *writer, const char *what)
{
	char name[DEVICE_NAME_MAX + 48];

	snprintf(name, sizeof(name), "%s/%s.%u", writer->layer, what, writer->names++);
	return copy(writer, name);
}

/* ---- nodes, their attributes, and constants ---- */

/* Adds a node with the given inputs, a NULL-terminated list, and names its output. */
static Node *add(struct writer *writer, const char *type, ...) __attribute__((sentinel));
static Node *add(struct writer *writer, const char *type, ...)
{
	Node *node = allocate(writer, sizeof(*node));
	char *input;
	va_list inputs;

	loaderd__onnx__node__init(node);
	node->input = allocate(writer, OPERANDS_MAX * sizeof(*node->input));
	va_start(inputs, type);
	while (node->n_input < OPERANDS_MAX && (input = va_arg(inputs, char *)))
		node->input[node->n_input++] = input;
	va_end(inputs);
	node->op_type = copy(writer, type);
	node->name = new_name(writer, type);
	node->output = allocate(writer, sizeof(*node->output));
	node->output[0] = node->name;
	node->n_output = 1;
	node->attribute = allocate(writer, OPERANDS_MAX * sizeof(*node->attribute));
	append(writer, &writer->nodes, node);
	return node;
}

static const char *result(const Node *node)
{
	return node->output[0];
}

static Attribute *add_attribute(struct writer *writer, Node *node, const char *name,
				Loaderd__Onnx__Attribute__Type type)
{
	Attribute *made = allocate(writer, sizeof(*made));

	loaderd__onnx__attribute__init(made);
	made->name = copy(writer, name);
	made->type = type;
	made->has_type = true;
	node->attribute[node->n_attribute++] = made;
	return made;
}

static void set_int(struct writer *writer, Node *node, const char *name, int64_t value)
{
	Attribute *made = add_attribute(writer, node, name, LOADERD__ONNX__ATTRIBUTE__TYPE__INT);

	made->i = value;
	made->has_i = true;
}

static void set_float(struct writer *writer, Node *node, const char *name, float value)
{
	Attribute *made = add_attribute(writer, node, name, LOADERD__ONNX__ATTRIBUTE__TYPE__FLOAT);

	made->f = value;
	made->has_f = true;
}

static void set_ints(struct writer *writer, Node *node, const char *name, size_t count,
		     const int64_t *values)
{
	Attribute *made = add_attribute(writer, node, name, LOADERD__ONNX__ATTRIBUTE__TYPE__INTS);

	made->ints = allocate(writer, count * sizeof(*made->ints));
	memcpy(made->ints, values, count * sizeof(*made->ints));
	made->n_ints = count;
}

#define SET_INTS(writer, node, name, ...)                                                          \
	set_ints(writer, node, name, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),           \
		 (int64_t[]){__VA_ARGS__})

/* Adds a constant with `rank` dimensions. Returns its data, which the caller fills. */
static void *constant(struct writer *writer, const char *name, int32_t type, size_t rank,
		      const int64_t *dims, const char **ret_name)
{
	Tensor *tensor = allocate(writer, sizeof(*tensor));
	size_t size = type == LOADERD__ONNX__TENSOR__ELEMENT__INT64 ? 8 : 4;

	loaderd__onnx__tensor__init(tensor);
	tensor->dims = allocate(writer, DIMENSIONS_MAX * sizeof(*tensor->dims));
	tensor->n_dims = rank;
	for (size_t i = 0; i < rank; i++) {
		tensor->dims[i] = dims[i];
		size *= (size_t)dims[i];
	}
	tensor->data_type = type;
	tensor->has_data_type = tensor->has_raw_data = true;
	tensor->name = copy(writer, name);
	tensor->raw_data = (ProtobufCBinaryData){size, allocate(writer, size)};
	append(writer, &writer->tensors, tensor);
	*ret_name = tensor->name;
	return tensor->raw_data.data;
}

#define FLOATS(writer, name, ret_name, ...)                                                        \
	((float *)constant(writer, name, LOADERD__ONNX__TENSOR__ELEMENT__FLOAT,                    \
			   sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                     \
			   (int64_t[]){__VA_ARGS__}, ret_name))

static const char *number(struct writer *writer, float value)
{
	const char *name;

	*(float *)constant(writer, new_name(writer, "number"),
			   LOADERD__ONNX__TENSOR__ELEMENT__FLOAT, 0, NULL, &name) = value;
	return name;
}

static const char *add_integers(struct writer *writer, size_t count, const int64_t *values)
{
	const char *name;
	int64_t dims[] = {(int64_t)count};
	void *data = constant(writer, new_name(writer, "integers"),
			      LOADERD__ONNX__TENSOR__ELEMENT__INT64, 1, dims, &name);

	memcpy(data, values, count * sizeof(*values));
	return name;
}

#define INTEGERS(writer, ...)                                                                      \
	add_integers(writer, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                   \
		     (int64_t[]){__VA_ARGS__})

/* Reshapes all dimensions except the first, which is the number of samples. */
#define RESHAPE(writer, x, ...)                                                                    \
	result(add(writer, "Reshape", x, INTEGERS(writer, -1, __VA_ARGS__), NULL))

static const char *transpose(struct writer *writer, const char *x, size_t count,
			     const int64_t *order)
{
	Node *node = add(writer, "Transpose", x, NULL);

	set_ints(writer, node, "perm", count, order);
	return result(node);
}

#define TRANSPOSE(writer, x, ...)                                                                  \
	transpose(writer, x, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                   \
		  (int64_t[]){__VA_ARGS__})

/* ---- parameters ---- */

/* Returns the values that evaluation uses: fp32, in the host's layout. */
static float *values_of(struct writer *writer, struct device_param *param)
{
	enum device_slot slot = device_param_has(param, writer->options->weights)
					? writer->options->weights
					: DEVICE_VALUE;
	float *values = allocate(writer, param->elements * sizeof(*values));

	writer->failure = device_param_read(param, slot, values);
	if (writer->failure)
		longjmp(writer->failed, 1);
	return values;
}

static const char *vector(struct writer *writer, struct device_param *param)
{
	const char *name;
	float *data = FLOATS(writer, param->name, &name, (int64_t)param->elements);

	memcpy(data, values_of(writer, param), param->elements * sizeof(*data));
	return name;
}

/* Converts [K][R][S][C] to [K][C][R][S]. */
static const char *conv_weight(struct writer *writer, struct device_param *param)
{
	const uint32_t *s = param->shape;
	const float *from = values_of(writer, param);
	const char *name;
	float *to = FLOATS(writer, param->name, &name, s[0], s[3], s[1], s[2]);

	for (uint32_t k = 0; k < s[0]; k++)
		for (uint32_t at = 0; at < s[1] * s[2]; at++)
			for (uint32_t c = 0; c < s[3]; c++)
				to[((size_t)k * s[3] + c) * s[1] * s[2] + at] = *from++;
	return name;
}

/* Converts [O][I] to [I][O], for matrix products with tokens on the left. */
static const char *linear_weight(struct writer *writer, struct device_param *param)
{
	const uint32_t *s = param->shape;
	const float *from = values_of(writer, param);
	const char *name;
	float *to = FLOATS(writer, param->name, &name, s[1], s[0]);

	for (uint32_t o = 0; o < s[0]; o++)
		for (uint32_t i = 0; i < s[1]; i++)
			to[(size_t)i * s[0] + o] = *from++;
	return name;
}

/* ---- values ---- */

static const char *nhwc(struct writer *writer, const struct device_value *value)
{
	struct layouts *names = &writer->values[value->index];

	if (!names->nhwc)
		names->nhwc = TRANSPOSE(writer, names->nchw, 0, 2, 3, 1);
	return names->nhwc;
}

static const char *nchw(struct writer *writer, const struct device_value *value)
{
	struct layouts *names = &writer->values[value->index];

	if (!names->nchw)
		names->nchw = TRANSPOSE(writer, names->nhwc, 0, 3, 1, 2);
	return names->nchw;
}

static const char *activate(struct writer *writer, enum device_activation activation, const char *x)
{
	const char *scaled;

	switch (activation) {
	case DEVICE_RELU:
		return result(add(writer, "Relu", x, NULL));
	case DEVICE_LOGISTIC:
		return result(add(writer, "Sigmoid", x, NULL));
	case DEVICE_GELU:
		scaled = result(add(writer, "Div", x, number(writer, (float)M_SQRT2), NULL));
		scaled = result(add(writer, "Erf", scaled, NULL));
		scaled = result(add(writer, "Add", scaled, number(writer, 1), NULL));
		scaled = result(add(writer, "Mul", x, scaled, NULL));
		return result(add(writer, "Mul", scaled, number(writer, 0.5f), NULL));
	default:
		return x;
	}
}

static const char *normalize(struct writer *writer, const struct device_node *node, const char *x)
{
	Node *norm = add(writer, "BatchNormalization", x, vector(writer, node->gamma),
			 vector(writer, node->beta), vector(writer, node->running_mean),
			 vector(writer, node->running_var), NULL);

	set_float(writer, norm, "epsilon", node->norm.epsilon);
	return result(norm);
}

/* Adds the residual and the activation, as at the end of most nodes. */
static void finish(struct writer *writer, const struct device_node *node, const char *x,
		   bool channels_last)
{
	struct layouts *names = &writer->values[node->y->index];

	if (node->residual)
		x = result(add(writer, "Add", x,
			       channels_last ? nhwc(writer, node->residual)
					     : nchw(writer, node->residual),
			       NULL));
	x = activate(writer, node->activation, x);
	if (channels_last)
		names->nhwc = x;
	else
		names->nchw = x;
}

/* ---- kinds of nodes ---- */

static void write_input(struct writer *writer, const struct device_node *node)
{
	const char *x = "images", *mean, *std;
	uint32_t channels = node->y->shape.c;

	if (writer->options->bytes) {
		float *means = FLOATS(writer, "mean", &mean, channels);
		float *stds = FLOATS(writer, "std", &std, channels);
		Node *cast = add(writer, "Cast", x, NULL);

		memcpy(means, node->input.mean, channels * sizeof(*means));
		memcpy(stds, node->input.std, channels * sizeof(*stds));
		set_int(writer, cast, "to", LOADERD__ONNX__TENSOR__ELEMENT__FLOAT);
		x = result(add(writer, "Sub", result(cast), mean, NULL));
		x = result(add(writer, "Div", x, std, NULL));
	}
	writer->values[node->y->index].nhwc = x;
}

static void set_window(struct writer *writer, Node *made, const struct device_node *node)
{
	int64_t before = node->pad, after = before + node->pad_extra;

	SET_INTS(writer, made, "kernel_shape", node->window_h, node->window_w);
	SET_INTS(writer, made, "strides", node->stride, node->stride);
	SET_INTS(writer, made, "pads", before, before, after, after);
}

static void write_conv(struct writer *writer, const struct device_node *node)
{
	Node *conv = add(writer, "Conv", nchw(writer, node->x), conv_weight(writer, node->weight),
			 node->bias ? vector(writer, node->bias) : NULL, NULL);
	const char *x = result(conv);

	set_window(writer, conv, node);
	set_int(writer, conv, "group", node->groups);
	if (node->has_norm)
		x = normalize(writer, node, x);
	finish(writer, node, x, false);
}

static void write_linear(struct writer *writer, const struct device_node *node)
{
	const char *x = nhwc(writer, node->x);

	if (!node->by_position)
		x = RESHAPE(writer, x, 1, 1, node->weight->shape[1]);
	x = result(add(writer, "MatMul", x, linear_weight(writer, node->weight), NULL));
	if (node->bias)
		x = result(add(writer, "Add", x, vector(writer, node->bias), NULL));
	finish(writer, node, x, true);
}

static void write_norm(struct writer *writer, const struct device_node *node)
{
	finish(writer, node, normalize(writer, node, nchw(writer, node->x)), false);
}

static void write_layer_norm(struct writer *writer, const struct device_node *node)
{
	Node *norm = add(writer, "LayerNormalization", nhwc(writer, node->x),
			 vector(writer, node->gamma), vector(writer, node->beta), NULL);

	set_int(writer, norm, "axis", -1);
	set_float(writer, norm, "epsilon", node->norm.epsilon);
	finish(writer, node, result(norm), true);
}

static void write_attention(struct writer *writer, const struct device_node *node)
{
	struct device_shape y = node->y->shape;
	int64_t heads = node->attention.heads, width = y.c / heads, tokens = (int64_t)y.h * y.w;
	const char *qkv = RESHAPE(writer, nhwc(writer, node->x), tokens, 3, heads, width);
	const char *part[3];
	Node *softmax;

	for (int i = 0; i < 3; i++) {
		int64_t index = i;
		Node *take = add(writer, "Gather", qkv, add_integers(writer, 1, &index), NULL);

		set_int(writer, take, "axis", 2);
		part[i] = RESHAPE(writer, result(take), tokens, heads, width);
	}
	part[0] = TRANSPOSE(writer, part[0], 0, 2, 1, 3);
	part[1] = TRANSPOSE(writer, part[1], 0, 2, 3, 1);
	part[2] = TRANSPOSE(writer, part[2], 0, 2, 1, 3);
	part[0] =
		result(add(writer, "Mul", part[0], number(writer, 1 / sqrtf((float)width)), NULL));
	const char *scores = result(add(writer, "MatMul", part[0], part[1], NULL));
	softmax = add(writer, "Softmax", scores, NULL);
	set_int(writer, softmax, "axis", -1);
	const char *x = result(add(writer, "MatMul", result(softmax), part[2], NULL));
	x = TRANSPOSE(writer, x, 0, 2, 1, 3);
	finish(writer, node, RESHAPE(writer, x, y.h, y.w, y.c), true);
}

/* Returns the position embeddings, resized to x. */
static const char *positions(struct writer *writer, const struct device_node *node)
{
	struct device_shape y = node->y->shape;
	const float *from = values_of(writer, node->positions);
	struct pos_embed_size size;
	const char *name;
	float *to = FLOATS(writer, node->positions->name, &name, 1, 1, y.w, y.c);

	if (device_node_resizes(node, &size))
		pos_embed_resize(&size, from, to);
	else
		memcpy(to, from, node->positions->elements * sizeof(*to));
	return name;
}

static void write_pos_embed(struct writer *writer, const struct device_node *node)
{
	struct device_shape x = node->x->shape;
	const char *tokens = RESHAPE(writer, nhwc(writer, node->x), 1, (int64_t)x.h * x.w, x.c);

	if (node->class_token) {
		const char *samples = result(add(writer, "Shape", tokens, NULL));
		Node *concat;

		samples = result(add(writer, "Gather", samples, INTEGERS(writer, 0), NULL));
		concat = add(writer, "Concat", samples, INTEGERS(writer, 1, 1, x.c), NULL);
		set_int(writer, concat, "axis", 0);
		const char *shape = result(concat);
		const char *token = result(
			add(writer, "Expand", vector(writer, node->class_token), shape, NULL));
		concat = add(writer, "Concat", token, tokens, NULL);
		set_int(writer, concat, "axis", 2);
		tokens = result(concat);
	}
	finish(writer, node, result(add(writer, "Add", tokens, positions(writer, node), NULL)),
	       true);
}

static void write_select_token(struct writer *writer, const struct device_node *node)
{
	struct device_shape x = node->x->shape;
	int64_t position = node->position;
	Node *take = add(writer, "Gather",
			 RESHAPE(writer, nhwc(writer, node->x), 1, (int64_t)x.h * x.w, x.c),
			 add_integers(writer, 1, &position), NULL);

	set_int(writer, take, "axis", 2);
	finish(writer, node, result(take), true);
}

static void write_scale_add(struct writer *writer, const struct device_node *node)
{
	/* gates and gamma have one value per channel, so channels must be the last dimension */
	const char *x = nhwc(writer, node->x);

	if (node->gamma)
		x = result(add(writer, "Mul", x, vector(writer, node->gamma), NULL));
	if (node->gate)
		x = result(add(writer, "Mul", x, nhwc(writer, node->gate), NULL));
	finish(writer, node, x, true);
}

static void write_max_pool(struct writer *writer, const struct device_node *node)
{
	Node *pool = add(writer, "MaxPool", nchw(writer, node->x), NULL);

	set_window(writer, pool, node);
	finish(writer, node, result(pool), false);
}

static void write_average_pool(struct writer *writer, const struct device_node *node)
{
	Node *pool = add(writer, "AveragePool", nchw(writer, node->x), NULL);

	set_window(writer, pool, node);
	set_int(writer, pool, "count_include_pad", 0);
	finish(writer, node, result(pool), false);
}

static void write_global_average_pool(struct writer *writer, const struct device_node *node)
{
	finish(writer, node, result(add(writer, "GlobalAveragePool", nchw(writer, node->x), NULL)),
	       false);
}

static void write_global_max_pool(struct writer *writer, const struct device_node *node)
{
	finish(writer, node, result(add(writer, "GlobalMaxPool", nchw(writer, node->x), NULL)),
	       false);
}

/* The logits are the model's output. */
static void write_loss(struct writer *writer, const struct device_node *node)
{
	Node *logits = add(writer, "Reshape", nhwc(writer, node->x),
			   INTEGERS(writer, -1, node->x->shape.c), NULL);

	logits->output[0] = copy(writer, "logits");
}

/* ---- the model ---- */

/*
 * Describes an input or output with the given dimensions; a negative one becomes the variable "n".
 */
static Loaderd__Onnx__ValueInfo *value_info(struct writer *writer, const char *name, int32_t type,
					    size_t rank, const int64_t *dims)
{
	Loaderd__Onnx__ValueInfo *info = allocate(writer, sizeof(*info));

	loaderd__onnx__value_info__init(info);
	info->name = copy(writer, name);
	loaderd__onnx__type__init(info->type = allocate(writer, sizeof(*info->type)));
	info->type->tensor_type = allocate(writer, sizeof(*info->type->tensor_type));
	loaderd__onnx__type__of_tensor__init(info->type->tensor_type);
	info->type->tensor_type->elem_type = type;
	info->type->tensor_type->has_elem_type = true;
	info->type->tensor_type->shape = allocate(writer, sizeof(Loaderd__Onnx__Shape));
	loaderd__onnx__shape__init(info->type->tensor_type->shape);
	info->type->tensor_type->shape->n_dim = rank;
	info->type->tensor_type->shape->dim = allocate(writer, rank * sizeof(void *));
	for (size_t i = 0; i < rank; i++) {
		Loaderd__Onnx__Dimension *dim = allocate(writer, sizeof(*dim));

		loaderd__onnx__dimension__init(dim);
		info->type->tensor_type->shape->dim[i] = dim;
		if (dims[i] < 0) {
			dim->value_case = LOADERD__ONNX__DIMENSION__VALUE_DIM_PARAM;
			dim->dim_param = copy(writer, "n");
		} else {
			dim->value_case = LOADERD__ONNX__DIMENSION__VALUE_DIM_VALUE;
			dim->dim_value = dims[i];
		}
	}
	return info;
}

static Loaderd__Onnx__Graph *write_graph(struct writer *writer)
{
	static void (*const write[DEVICE_NODE_KINDS])(struct writer * writer,
						      const struct device_node *node) = {
#define NODE(kind, name) [DEVICE_NODE_##kind] = write_##name,
		DEVICE_NODES(NODE)
#undef NODE
	};
	struct device_graph *graph = writer->graph;
	struct device_shape images = graph->input->y->shape;
	const int64_t in[] = {-1, images.h, images.w, images.c};
	const int64_t out[] = {-1, graph->loss->x->shape.c};
	Loaderd__Onnx__Graph *made = allocate(writer, sizeof(*made));

	writer->values = allocate(writer, graph->value_count * sizeof(*writer->values));
	for (uint32_t i = 0; i < graph->node_count; i++) {
		writer->layer = graph->nodes[i]->name;
		write[graph->nodes[i]->kind](writer, graph->nodes[i]);
	}
	loaderd__onnx__graph__init(made);
	made->name = copy(writer, "trainer");
	made->node = (Node **)writer->nodes.items;
	made->n_node = writer->nodes.count;
	made->initializer = (Tensor **)writer->tensors.items;
	made->n_initializer = writer->tensors.count;
	made->input = allocate(writer, sizeof(*made->input));
	made->input[0] = value_info(writer, "images",
				    writer->options->bytes ? LOADERD__ONNX__TENSOR__ELEMENT__UINT8
							   : LOADERD__ONNX__TENSOR__ELEMENT__FLOAT,
				    4, in);
	made->n_input = 1;
	made->output = allocate(writer, sizeof(*made->output));
	made->output[0] =
		value_info(writer, "logits", LOADERD__ONNX__TENSOR__ELEMENT__FLOAT, 2, out);
	made->n_output = 1;
	return made;
}

static void write_entries(struct writer *writer, Loaderd__Onnx__Model *model)
{
	const char *const *text = writer->options->entries;
	struct list list = {0};

	for (; text && *text; text += 2) {
		Loaderd__Onnx__Entry *entry = allocate(writer, sizeof(*entry));

		loaderd__onnx__entry__init(entry);
		entry->key = copy(writer, text[0]);
		entry->value = copy(writer, text[1]);
		append(writer, &list, entry);
	}
	model->metadata_props = (Loaderd__Onnx__Entry **)list.items;
	model->n_metadata_props = list.count;
}

static Loaderd__Onnx__Model *write_model(struct writer *writer)
{
	Loaderd__Onnx__Model *model = allocate(writer, sizeof(*model));
	Loaderd__Onnx__OperatorSet *set = allocate(writer, sizeof(*set));

	loaderd__onnx__model__init(model);
	loaderd__onnx__operator_set__init(set);
	model->ir_version = IR_VERSION;
	model->has_ir_version = true;
	model->producer_name = copy(writer, "loaderd trainer");
	model->producer_version = copy(writer, writer->options->producer_version);
	set->domain = copy(writer, "");
	set->version = OPSET;
	set->has_version = true;
	model->opset_import = allocate(writer, sizeof(*model->opset_import));
	model->opset_import[0] = set;
	model->n_opset_import = 1;
	model->graph = write_graph(writer);
	write_entries(writer, model);
	return model;
}

static int encode(struct writer *writer, void **ret_data, size_t *ret_size)
{
	if (setjmp(writer->failed))
		return writer->failure;
	Loaderd__Onnx__Model *model = write_model(writer);
	size_t size = loaderd__onnx__model__get_packed_size(model);
	if (size > INT32_MAX)
		return -EFBIG;
	*ret_data = malloc(size);
	if (!*ret_data)
		return -ENOMEM;
	*ret_size = loaderd__onnx__model__pack(model, *ret_data);
	return 0;
}

int onnx_encode(struct device_graph *graph, const struct onnx_options *options, void **ret_data,
		size_t *ret_size, char *error)
{
	struct writer writer = {.graph = graph, .options = options};

	if (graph->options.mode != DEVICE_EVAL || !graph->planned || !graph->loss || !graph->input)
		return sentence_fail(error, DEVICE_ERROR_MAX, -EINVAL,
				     "a model in ONNX is made of a planned graph for evaluation, "
				     "with its input and its loss");
	int r = encode(&writer, ret_data, ret_size);
	while (writer.pieces) {
		struct piece *piece = writer.pieces;

		writer.pieces = piece->next;
		free(piece);
	}
	if (r == -EFBIG)
		return sentence_fail(
			error, DEVICE_ERROR_MAX, r,
			"the network has more than the 2 GiB that a model in ONNX may have in "
			"one file");
	return r ? sentence_fail(error, DEVICE_ERROR_MAX, r, "%s",
				 r == -ENOMEM ? "out of memory" : device_error(graph->device))
		 : 0;
}
