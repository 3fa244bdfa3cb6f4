/* A lowered program: bytes, lifetimes, the arena. */
#include "trainer/device/cuda/lowering/lower.h"

#include <stdlib.h>

enum device_fusion program_fusion(enum device_fusion requested, enum cuda_element element)
{
	if (requested != DEVICE_FUSION_AUTO)
		return requested;
	/*
	 * In fp16 cuDNN has all patterns of level C. In bf16 it has only statistics and the forward
	 * prologue of norm and ReLU, both compiled at run time for each shape, but no gradients and
	 * no sums of blocks, so normalized activations would be stored anyway (cudnn/README.md).
	 */
	return element == CUDA_F16 ? DEVICE_FUSION_C : DEVICE_FUSION_B;
}

/* Bytes of all operands; operands updated in place count twice. */
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
	uint32_t *last = tensor->second_first && at >= tensor->second_first ? &tensor->second_last
									    : &tensor->last;

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
		use_tensor(tensor->bucket ? tensor->bucket : tensor, at);
		if (!cuda_op_writes(op, role))
			continue;
		op->written |= CUDA_BIT(role);
		if (cuda_op_is_constant(op)) {
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

		if (tensor->storage != CUDA_IN_ARENA)
			continue;
		if (tensor->kept || tensor->grad_output || keep_all || workspace)
			use_tensor(tensor, end);
		if (tensor->grad_output || keep_all || workspace)
			tensor->first = 0;
		if (workspace)
			program->workspace_bytes = tensor->bytes;
		if (tensor->first > tensor->last)
			tensor->first = tensor->last; /* unused */
		int r = arena_add_block(&program->arena, tensor->bytes, tensor->first, tensor->last,
					&tensor->block);
		if (r < 0)
			return r;
		if (tensor->second_first) {
			arena_add_second(&program->arena, tensor->block, tensor->second_first);
			arena_extend(&program->arena, tensor->block, tensor->second_last);
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

		if (op->recomputed)
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
