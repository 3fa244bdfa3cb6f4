/* Functions with which a lowering builds a program: tensors, operations, operands. */
#include "trainer/device/cuda/lowering/lower.h"
#include "trainer/device/shards.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node_state *node_state(struct lowering *l, const struct device_node *node)
{
	return &l->nodes[node->index];
}

struct value_state *value_state(struct lowering *l, const struct device_value *value)
{
	return &l->values[value->index];
}

int lower_fail(struct lowering *l, int result, const char *format, ...)
{
	va_list arguments;

	if (l->failure)
		return l->failure;
	l->failure = result;
	va_start(arguments, format);
	vsnprintf(l->error, DEVICE_ERROR_MAX, format, arguments);
	va_end(arguments);
	return result;
}

static int grow_array(void **items, uint32_t count, uint32_t *capacity, size_t size)
{
	uint32_t wanted = *capacity ? *capacity * 2 : 256;
	void *grown;

	if (count < *capacity)
		return 0;
	grown = realloc(*items, wanted * size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*capacity = wanted;
	return 0;
}

static struct cuda_tensor *tensor_new(struct lowering *l)
{
	struct cuda_program *program = l->program;
	struct cuda_tensor *tensor = NULL;
	void *items = program->tensors;

	memset(&l->scratch_tensor, 0, sizeof(l->scratch_tensor));
	if (l->failure)
		return &l->scratch_tensor;
	if (grow_array(&items, program->tensor_count, &program->tensor_capacity, sizeof(void *)) ==
	    0) {
		program->tensors = items;
		tensor = calloc(1, sizeof(*tensor));
	}
	if (!tensor) {
		lower_fail(l, -ENOMEM, "out of memory");
		return &l->scratch_tensor;
	}
	program->tensors[program->tensor_count++] = tensor;
	return tensor;
}

static struct cuda_tensor *arena_tensor(struct lowering *l, const char *owner, const char *what,
					struct device_shape shape, uint32_t element_bytes)
{
	struct cuda_tensor *tensor = tensor_new(l);

	snprintf(tensor->name, sizeof(tensor->name), "%.96s%s%s", owner, *what ? " " : "", what);
	tensor->storage = CUDA_IN_ARENA;
	tensor->shape = shape;
	tensor->element_bytes = element_bytes;
	tensor->bytes = device_shape_elements(shape) * element_bytes;
	return tensor;
}

struct cuda_tensor *lower_tensor(struct lowering *l, const struct device_node *node,
				 const char *what, struct device_shape shape,
				 enum cuda_element element)
{
	struct cuda_tensor *tensor =
		arena_tensor(l, node->name, what, shape, cuda_element_size(element));

	tensor->element = element;
	return tensor;
}

struct cuda_tensor *lower_vector(struct lowering *l, const struct device_node *node,
				 enum cuda_role role, const char *what)
{
	struct device_shape shape = {1, 1, 1, node->y->shape.c};
	uint32_t each;

	shape.w = device_node_groups(node, &each);
	return node_state(l, node)->tensors[role] = lower_tensor(l, node, what, shape, CUDA_F32);
}

struct cuda_tensor *lower_index(struct lowering *l, const struct device_node *node,
				struct device_shape shape, uint32_t element_bytes)
{
	return arena_tensor(l, node->name, "index", shape, element_bytes);
}

static struct device_shape param_shape(const struct device_param *param, uint32_t channels)
{
	const uint32_t *shape = param->shape;

	switch (param->spec.kind) {
	case DEVICE_CONV_WEIGHT:
		return (struct device_shape){shape[0], shape[1], shape[2], channels};
	case DEVICE_LINEAR_WEIGHT:
	case DEVICE_EMBEDDING:
		return (struct device_shape){shape[0], 1, 1, channels};
	case DEVICE_VECTOR:
	case DEVICE_BUFFER:
		break;
	}
	return (struct device_shape){1, 1, 1, channels};
}

static uint32_t param_channels(const struct device_param *param)
{
	const uint32_t *shape = param->shape;

	switch (param->spec.kind) {
	case DEVICE_CONV_WEIGHT:
		return shape[3];
	case DEVICE_LINEAR_WEIGHT:
	case DEVICE_EMBEDDING:
		return shape[1];
	case DEVICE_VECTOR:
	case DEVICE_BUFFER:
		break;
	}
	return shape[0];
}

static struct cuda_tensor *param_tensor(struct lowering *l, struct device_param *param,
					enum cuda_storage storage, enum device_slot slot,
					uint32_t channels, enum cuda_element element)
{
	struct cuda_program *program = l->program;
	struct cuda_tensor *tensor;

	for (uint32_t i = 0; i < program->tensor_count; i++) {
		tensor = program->tensors[i];
		if (tensor->param == param && tensor->storage == storage && tensor->slot == slot &&
		    tensor->shape.c == channels)
			return tensor;
	}
	tensor = tensor_new(l);
	snprintf(tensor->name, sizeof(tensor->name), "%.96s%s", param->name,
		 slot == DEVICE_GRAD ? " gradient" : "");
	tensor->storage = storage;
	tensor->param = param;
	tensor->slot = slot;
	tensor->shape = param_shape(param, channels);
	tensor->element = element;
	tensor->element_bytes = cuda_element_size(element);
	tensor->bytes = device_shape_elements(tensor->shape) * tensor->element_bytes;
	return tensor;
}

struct cuda_tensor *lower_param(struct lowering *l, struct device_param *param,
				enum device_slot slot)
{
	return param_tensor(l, param, CUDA_IN_PARAMETER, slot, param_channels(param), CUDA_F32);
}

struct cuda_tensor *lower_weights(struct lowering *l, struct device_param *param, uint32_t channels)
{
	enum cuda_element element = l->options->element;

	if (!param->store->shards.gathers || !shards_divide(param))
		return param_tensor(l, param, CUDA_IN_WEIGHTS, DEVICE_VALUE, channels, element);
	struct cuda_tensor *weights = param_tensor(l, param, CUDA_IN_BUCKET, DEVICE_VALUE,
						   param_channels(param), element);
	if (channels == param_channels(param))
		return weights;
	struct cuda_tensor *padded =
		param_tensor(l, param, CUDA_IN_ARENA, DEVICE_VALUE, channels, element);
	padded->unpadded = weights;
	return padded;
}

struct cuda_op *lower_op(struct lowering *l, enum cuda_op_kind kind, const struct device_node *node)
{
	struct cuda_program *program = l->program;
	struct cuda_op *op = &l->scratch_op;
	void *items = program->ops;

	if (!l->failure &&
	    grow_array(&items, program->op_count, &program->op_capacity, sizeof(*program->ops)) < 0)
		lower_fail(l, -ENOMEM, "out of memory");
	program->ops = items;
	if (!l->failure)
		op = &program->ops[program->op_count++];
	memset(op, 0, sizeof(*op));
	op->kind = kind;
	op->node = node;
	op->backward = l->backward;
	strcpy(op->engine, "own");
	return op;
}

struct cuda_tensor *lower_operand(struct lowering *l, const struct device_node *node,
				  enum cuda_role role)
{
	struct device_param *const params[CUDA_ROLES] = {
		[CUDA_GAMMA] = node->gamma,
		[CUDA_BETA] = node->beta,
		[CUDA_RUNNING_MEAN] = node->running_mean,
		[CUDA_RUNNING_VAR] = node->running_var,
		[CUDA_POSITIONS] = node->positions,
		[CUDA_CLASS_TOKEN] = node->class_token,
	};

	return params[role] ? lower_param(l, params[role], DEVICE_VALUE)
			    : node_state(l, node)->tensors[role];
}

void lower_set_operands(struct lowering *l, struct cuda_op *op, const struct device_node *node,
			uint64_t roles)
{
	for (int role = 0; role < CUDA_ROLES; role++)
		if (roles & CUDA_BIT(role))
			op->operands[role] = lower_operand(l, node, (enum cuda_role)role);
}

void lower_set_param_gradient(struct lowering *l, struct cuda_op *op, enum cuda_role role,
			      struct device_param *param)
{
	op->operands[role] = lower_param(l, param, DEVICE_GRAD);
	if (l->gradient_written[param->index])
		op->adds |= CUDA_BIT(role);
	l->gradient_written[param->index] = true;
}

void lower_set_workspace(struct lowering *l, struct cuda_op *op, uint64_t bytes)
{
	op->workspace_bytes = bytes;
	if (!bytes)
		return;
	if (!l->workspace)
		l->workspace = arena_tensor(l, "workspace", "", (struct device_shape){0}, 1);
	if (bytes > l->workspace->bytes)
		l->workspace->bytes = bytes;
	op->operands[CUDA_WORKSPACE] = l->workspace;
}

void lower_log_fallback(struct lowering *l, const struct device_node *node,
			const struct conv_problem *problem, const char *instead)
{
	struct cuda_program *program = l->program;
	char problem_name[256], line[512];
	size_t length = strlen(program->log);

	conv_problem_name(problem, problem_name, sizeof(problem_name));
	snprintf(line, sizeof(line), "%s: no plan for %s; %s\n", node->name, problem_name, instead);
	char *log = realloc(program->log, length + strlen(line) + 1);
	if (!log) {
		lower_fail(l, -ENOMEM, "out of memory");
		return;
	}
	strcpy(log + length, line);
	program->log = log;
	program->fallbacks++;
}
