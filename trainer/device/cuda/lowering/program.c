/*
 * The parts of a program: operations, tensors, bytes, lifetimes, the arena.
 */
#include "trainer/device/cuda/lowering/lower.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum device_fusion program_fusion(enum device_fusion asked, enum cuda_element element)
{
	if (asked != DEVICE_FUSION_AUTO)
		return asked;
	/*
	 * cuDNN only has all of level C in fp16. In bf16 it compiles, for each shape, statistics
	 * and the forward prologue of norm and ReLU, but no gradients and no sums of blocks, so
	 * normalised activations are stored anyway (cudnn/README.md).
	 */
	return element == CUDA_F16 ? DEVICE_FUSION_C : DEVICE_FUSION_B;
}

/* ---- growing ---- */

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

static int grow(void **items, uint32_t count, uint32_t *capacity, size_t size)
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
	if (grow(&items, program->tensor_count, &program->tensor_capacity, sizeof(void *)) == 0) {
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

struct cuda_tensor *lower_vector(struct lowering *l, struct lower_node *n, enum cuda_role role,
				 const char *what)
{
	struct device_shape shape = {1, 1, 1, n->node->y->shape.c};
	uint32_t each;

	shape.w = device_node_groups(n->node, &each);
	n->has[role] = lower_tensor(l, n->node, what, shape, CUDA_F32);
	return n->has[role];
}

struct cuda_tensor *lower_index(struct lowering *l, const struct device_node *node,
				struct device_shape shape, uint32_t element_bytes)
{
	return arena_tensor(l, node->name, "index", shape, element_bytes);
}

static struct device_shape param_shape(const struct device_param *param, uint32_t channels)
{
	const uint32_t *shape = param->spec.shape;

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
	const uint32_t *shape = param->spec.shape;

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
	return param_tensor(l, param, CUDA_IN_WEIGHTS, DEVICE_VALUE, channels, l->options->element);
}

struct cuda_op *lower_op(struct lowering *l, enum cuda_op_kind kind, const struct device_node *node)
{
	struct cuda_program *program = l->program;
	struct cuda_op *op = &l->scratch_op;
	void *items = program->ops;

	if (!l->failure &&
	    grow(&items, program->op_count, &program->op_capacity, sizeof(*program->ops)) < 0)
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

struct cuda_tensor *lower_operand(struct lowering *l, const struct lower_node *n,
				  enum cuda_role role)
{
	struct device_param *const params[CUDA_ROLES] = {
		[CUDA_GAMMA] = n->node->gamma,
		[CUDA_BETA] = n->node->beta,
		[CUDA_RUNNING_MEAN] = n->node->running_mean,
		[CUDA_RUNNING_VAR] = n->node->running_var,
		[CUDA_POSITIONS] = n->node->positions,
		[CUDA_CLASS_TOKEN] = n->node->class_token,
	};

	return params[role] ? lower_param(l, params[role], DEVICE_VALUE) : n->has[role];
}

void lower_take(struct lowering *l, struct cuda_op *op, const struct lower_node *n, uint64_t roles)
{
	for (int role = 0; role < CUDA_ROLES; role++)
		if (roles & CUDA_BIT(role))
			op->operands[role] = lower_operand(l, n, (enum cuda_role)role);
}

void lower_gradient_slot(struct lowering *l, struct cuda_op *op, enum cuda_role role,
			 struct device_param *param)
{
	op->operands[role] = lower_param(l, param, DEVICE_GRAD);
	if (l->gradient_written[param->index])
		op->adds |= CUDA_BIT(role);
	l->gradient_written[param->index] = true;
}

void lower_workspace(struct lowering *l, struct cuda_op *op, uint64_t bytes)
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

void lower_note(struct lowering *l, const struct device_node *node,
		const struct conv_problem *problem, const char *instead)
{
	struct cuda_program *program = l->program;
	char problem_name[256], line[512];
	size_t length = strlen(program->log);
	char *log;

	conv_problem_name(problem, problem_name, sizeof(problem_name));
	snprintf(line, sizeof(line), "%s: no plan for %s; %s\n", node->name, problem_name, instead);
	log = realloc(program->log, length + strlen(line) + 1);
	if (!log) {
		lower_fail(l, -ENOMEM, "out of memory");
		return;
	}
	strcpy(log + length, line);
	program->log = log;
	program->fallbacks++;
}

/* ---- finishing ---- */

/* Every operand once; operands updated in place twice. */
static uint64_t op_bytes(const struct cuda_op *op)
{
	uint64_t bytes = 0;

	for (int role = 0; role < CUDA_ROLES; role++) {
		const struct cuda_tensor *tensor = op->operands[role];

		if (!tensor || role == CUDA_WORKSPACE || role == CUDA_ADDEND)
			continue;
		bytes += tensor->bytes;
		if ((cuda_op_def(op)->moves | op->adds) & CUDA_BIT(role))
			bytes += tensor->bytes;
	}
	/* assume a batch of bytes; the actual type is known only at run time */
	if (op->kind == CUDA_OP_INPUT)
		bytes += device_shape_elements(op->node->y->shape);
	return bytes;
}

static void use_tensor(struct cuda_tensor *tensor, uint32_t at)
{
	uint32_t *last = tensor->again && at >= tensor->again ? &tensor->last_again : &tensor->last;

	if (at < tensor->first)
		tensor->first = at;
	if (at > *last)
		*last = at;
}

static void finish_op(struct cuda_program *program, uint32_t at)
{
	struct cuda_op *op = &program->ops[at];

	for (int role = 0; role < CUDA_ROLES; role++) {
		struct cuda_tensor *tensor = op->operands[role];

		if (!tensor)
			continue;
		use_tensor(tensor, at);
		if (!cuda_op_writes(op, role))
			continue;
		op->written |= CUDA_BIT(role);
		if (cuda_op_def(op)->constant) {
			use_tensor(tensor, 0);
			use_tensor(tensor, program->op_count - 1);
		}
	}
	op->bytes = op_bytes(op);
	op->flops = cuda_op_def(op)->passes * device_node_flops(op->node);
}

static void finish_ops(struct cuda_program *program)
{
	for (uint32_t i = 0; i < program->tensor_count; i++) {
		program->tensors[i]->first = UINT32_MAX;
		program->tensors[i]->last = 0;
	}
	for (uint32_t i = 0; i < program->op_count; i++)
		finish_op(program, i);
}

int program_finish(struct cuda_program *program, bool keep_all)
{
	uint32_t end = program->op_count ? program->op_count - 1 : 0;

	finish_ops(program);
	for (uint32_t i = 0; i < program->tensor_count; i++) {
		struct cuda_tensor *tensor = program->tensors[i];
		bool workspace = tensor->storage == CUDA_IN_ARENA && !tensor->shape.n;
		int r;

		if (tensor->storage != CUDA_IN_ARENA)
			continue;
		if (tensor->kept || tensor->given || keep_all || workspace)
			use_tensor(tensor, end);
		if (tensor->given || keep_all || workspace)
			tensor->first = 0;
		if (workspace)
			program->workspace_bytes = tensor->bytes;
		if (tensor->first > tensor->last)
			tensor->first = tensor->last; /* unused */
		r = arena_add(&program->arena, tensor->bytes, tensor->first, tensor->last,
			      &tensor->block);
		if (r < 0)
			return r;
		if (tensor->again) {
			arena_again(&program->arena, tensor->block, tensor->again);
			arena_extend(&program->arena, tensor->block, tensor->last_again);
		}
	}
	return arena_layout(&program->arena);
}

void program_info(const struct cuda_program *program, struct device_graph_info *info)
{
	info->arena_bytes = program->arena.size;
	info->unshared_bytes = program->arena.unshared;
	info->fallbacks = program->fallbacks;
	info->fallback_log = program->log;
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		*(op->backward ? &info->flops_backward : &info->flops_forward) += op->flops;
		*(op->backward ? &info->bytes_backward : &info->bytes_forward) += (double)op->bytes;
	}
}

void program_free(struct cuda_program *program)
{
	if (!program)
		return;
	for (uint32_t i = 0; i < program->op_count; i++) {
		struct cuda_op *op = &program->ops[i];

		if (op->again)
			continue;
		if (op->kind == CUDA_OP_CONV && op->conv.plan)
			program->conv->plan_free(op->conv.plan);
		if (op->kind == CUDA_OP_MATMUL && op->matmul.plan)
			program->matmul->plan_free(op->matmul.plan);
	}
	for (uint32_t i = 0; i < program->tensor_count; i++)
		free(program->tensors[i]);
	arena_deinit(&program->arena);
	free(program->tensors);
	free(program->ops);
	free(program->log);
	free(program);
}
