/* Consistency checks of a program that do not use the planner's code. */
#include "tests/unit/trainer/cuda/cuda_planner_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(char *error, const struct cuda_op *op, const struct cuda_tensor *tensor,
		const char *what)
{
	snprintf(error, DEVICE_ERROR_MAX, "%s of %s: %s %s", op ? cuda_op_name(op->kind) : "tensor",
		 op ? op->node->name : "the arena", tensor ? tensor->name : "an operand", what);
	return -EINVAL;
}

/* Returns the operands that a fused convolution needs in addition to the plain ones. */
static uint64_t needed_fused(const struct conv_problem *problem)
{
	uint64_t roles = 0;

	switch (problem->prologue) {
	case CONV_PLAIN:
		break;
	case CONV_DUAL_SCALE_BIAS_ADD_RELU:
		roles |= CUDA_BIT(CUDA_PRESCALE2) | CUDA_BIT(CUDA_PREBIAS2);
		/* fall through */
	case CONV_SCALE_BIAS_ADD_RELU:
		roles |= CUDA_BIT(CUDA_RESIDUAL) | CUDA_BIT(CUDA_ACTIVATED);
		/* fall through */
	case CONV_SCALE_BIAS_RELU:
		roles |= CUDA_BIT(CUDA_PRESCALE) | CUDA_BIT(CUDA_PREBIAS);
		break;
	}
	switch (problem->epilogue) {
	case CONV_STORE:
		break;
	case CONV_STATISTICS:
		roles |= CUDA_BIT(CUDA_SUM) | CUDA_BIT(CUDA_PRODUCTS);
		break;
	case CONV_BIAS:
		roles |= CUDA_BIT(CUDA_CHANNEL_BIAS) |
			 (problem->residual ? CUDA_BIT(CUDA_RESIDUAL) : 0);
		break;
	case CONV_ADD:
		roles |= CUDA_BIT(CUDA_RESIDUAL);
		break;
	case CONV_RELU_NORM:
		roles |= CUDA_BIT(CUDA_RAW) | CUDA_BIT(CUDA_MEAN) | CUDA_BIT(CUDA_DEVIATION) |
			 CUDA_BIT(CUDA_GAMMA) | CUDA_BIT(CUDA_BETA) | CUDA_BIT(CUDA_SUM) |
			 CUDA_BIT(CUDA_PRODUCTS) | CUDA_BIT(CUDA_A) | CUDA_BIT(CUDA_B) |
			 CUDA_BIT(CUDA_C) | (problem->residual ? CUDA_BIT(CUDA_RESIDUAL) : 0);
		break;
	}
	switch (problem->shortcut) {
	case CONV_NO_SHORTCUT:
		break;
	case CONV_SHORTCUT:
		roles |= CUDA_BIT(CUDA_SHORTCUT);
		break;
	case CONV_SHORTCUT_NORM:
		roles |= CUDA_BIT(CUDA_RAW2) | CUDA_BIT(CUDA_MEAN2) | CUDA_BIT(CUDA_DEVIATION2) |
			 CUDA_BIT(CUDA_GAMMA2) | CUDA_BIT(CUDA_BETA2) | CUDA_BIT(CUDA_SUM2) |
			 CUDA_BIT(CUDA_PRODUCTS2) | CUDA_BIT(CUDA_A2) | CUDA_BIT(CUDA_B2) |
			 CUDA_BIT(CUDA_C2);
		break;
	}
	return roles;
}

static bool has_size(const struct cuda_tensor *tensor, uint32_t n, uint32_t h, uint32_t w,
		     uint32_t c, enum cuda_element element)
{
	return !tensor || (tensor->bytes == (uint64_t)n * h * w * c * cuda_element_size(element) &&
			   tensor->element == element);
}

/* Each operand of a convolution must have the size and element that the problem requires. */
static int check_conv(const struct cuda_op *op, char *error)
{
	const struct conv_problem *p = &op->conv.problem;
	struct cuda_tensor *const *o = op->operands;
	bool forward = p->direction == CONV_FORWARD, weights = p->direction == CONV_WEIGHTS;

	if (conv_problem_check(p) < 0)
		return fail(error, op, NULL, "does not fit its problem");
	if (!has_size(forward || weights ? o[CUDA_X] : o[CUDA_DX], p->n, p->h, p->w, p->c,
		      p->element) ||
	    !has_size(o[CUDA_RAW], p->n, p->h, p->w, p->c, p->element) ||
	    !has_size(o[CUDA_SHORTCUT], p->n, p->h, p->w, p->c, p->element) ||
	    !has_size(o[CUDA_RAW2], p->n, p->h, p->w, p->c, p->element) ||
	    !has_size(o[CUDA_ACTIVATED], p->n, p->h, p->w, p->c, p->element))
		return fail(error, op, o[CUDA_X], "has not the problem's input shape");
	if (!has_size(forward ? o[CUDA_Y] : o[CUDA_DY], p->n, p->p, p->q, p->k, p->element))
		return fail(error, op, o[CUDA_Y], "has not the problem's output shape");
	if (!has_size(o[CUDA_W], p->k, p->r, p->s, conv_weight_channels(p), p->element) ||
	    !has_size(o[CUDA_DW], p->k, p->r, p->s, conv_weight_channels(p), p->gradient))
		return fail(error, op, weights ? o[CUDA_DW] : o[CUDA_W],
			    "has not the problem's weights' shape");
	if (!has_size(o[CUDA_CHANNEL_BIAS], 1, 1, 1, p->k, p->element))
		return fail(error, op, o[CUDA_CHANNEL_BIAS], "is not the bias of the problem");
	if (p->epilogue == CONV_BIAS && p->residual
		    ? !has_size(o[CUDA_RESIDUAL], p->n, p->p, p->q, p->k, p->element)
		    : !has_size(o[CUDA_RESIDUAL], p->n, p->h, p->w, p->c, p->element))
		return fail(error, op, o[CUDA_RESIDUAL], "has not the problem's shape");
	return 0;
}

static int check_matmul(const struct cuda_op *op, char *error)
{
	const struct matmul_problem *p = &op->matmul.problem;

	if (!op->matmul.plan)
		return fail(error, op, NULL, "has no plan");
	if (p->bias != (op->operands[CUDA_CHANNEL_BIAS] != NULL) ||
	    !has_size(op->operands[CUDA_CHANNEL_BIAS], 1, 1, 1, p->columns, p->result))
		return fail(error, op, op->operands[CUDA_CHANNEL_BIAS],
			    "is not the bias of the problem");
	if (p->residual != (op->operands[CUDA_RESIDUAL] != NULL) ||
	    (p->residual && (op->operands[CUDA_RESIDUAL]->element != p->result ||
			     op->operands[CUDA_RESIDUAL]->bytes != op->operands[CUDA_Y]->bytes)))
		return fail(error, op, op->operands[CUDA_RESIDUAL],
			    "is not the residual of the problem");
	return 0;
}

/* All tensors of an elementwise pass must have the same size. */
static int check_elementwise(const struct cuda_op *op, char *error)
{
	static const enum cuda_role roles[] = {CUDA_X,   CUDA_Y,  CUDA_RESIDUAL, CUDA_DY,
					       CUDA_DY2, CUDA_DZ, CUDA_DX};
	const struct cuda_tensor *first = NULL;

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++) {
		const struct cuda_tensor *tensor = op->operands[roles[i]];

		if (!tensor)
			continue;
		if (first && tensor->bytes != first->bytes)
			return fail(error, op, tensor, "differs in size from the others");
		first = tensor;
	}
	return 0;
}

static int check_operands(const struct cuda_program *program, const struct cuda_op *op, char *error)
{
	const struct cuda_op_def *operation = cuda_op_def(op);
	uint64_t roles = operation->reads | operation->writes;
	int r;

	if (op->kind == CUDA_OP_CONV) {
		roles |= needed_fused(&op->conv.problem);
		if (!op->conv.plan)
			return fail(error, op, NULL, "has no plan");
		r = check_conv(op, error);
		if (r < 0)
			return r;
	}
	if (op->kind == CUDA_OP_MATMUL) {
		r = check_matmul(op, error);
		if (r < 0)
			return r;
	}
	for (int role = 0; role < CUDA_ROLES; role++)
		if ((roles & CUDA_BIT(role)) && !op->operands[role])
			return fail(error, op, NULL, "is missing");
	if (op->backward != (op >= program->ops + program->backward_start))
		return fail(error, op, NULL, "is on the wrong side of the backward pass's start");
	return operation->elementwise ? check_elementwise(op, error) : 0;
}

static bool is_live(const struct cuda_tensor *tensor, uint32_t index)
{
	return (index >= tensor->first && index <= tensor->last) ||
	       (tensor->second_first && index >= tensor->second_first &&
		index <= tensor->second_last);
}

static bool is_in_bucket(const struct cuda_tensor *weights)
{
	const struct device_param *param = weights->param;
	const struct device_range *bucket = param->store->shards.buckets;

	while (param->offset >= bucket->first + bucket->count)
		bucket++;
	return weights->bucket && weights->bucket->storage == CUDA_IN_ARENA &&
	       weights->bucket->bytes == bucket->count * weights->element_bytes &&
	       weights->bytes == param->elements * weights->element_bytes;
}

/*
 * In execution order, every tensor is written before it is read; the first write to a parameter's
 * gradient stores, later ones add.
 */
static int check_order(const struct cuda_program *program, uint32_t index, bool *written,
		       char *error)
{
	const struct cuda_op *op = &program->ops[index];

	for (int pass = 0; pass < 2; pass++) {
		for (int role = 0; role < CUDA_ROLES; role++) {
			const struct cuda_tensor *tensor = op->operands[role];
			bool writes = tensor && cuda_op_writes(op, role), adds;

			if (!tensor || writes != (pass == 1))
				continue;
			if (tensor->storage == CUDA_IN_BUCKET) {
				if (writes || !is_in_bucket(tensor))
					return fail(error, op, tensor, "is not in its bucket");
				tensor = tensor->bucket;
			}
			if (writes != !!(op->written & CUDA_BIT(role)))
				return fail(error, op, tensor, "is not marked as it is used");
			if (tensor->storage == CUDA_IN_ARENA && !is_live(tensor, index))
				return fail(error, op, tensor, "is used outside its lifetime");
			if (tensor->storage == CUDA_IN_ARENA && !writes && !tensor->grad_output &&
			    !written[tensor->block])
				return fail(error, op, tensor, "is read before it is written");
			if (tensor->storage == CUDA_IN_PARAMETER && tensor->slot == DEVICE_GRAD) {
				adds = op->adds & CUDA_BIT(role);
				if (!writes ||
				    adds != written[program->arena.count + tensor->param->index])
					return fail(error, op, tensor,
						    "is added to and stored in the wrong order");
				written[program->arena.count + tensor->param->index] = true;
			}
			if (tensor->storage == CUDA_IN_ARENA && writes)
				written[tensor->block] = true;
		}
	}
	return 0;
}

static bool ranges_overlap(uint64_t a, uint64_t a_end, uint64_t b, uint64_t b_end)
{
	return a < b_end && b < a_end;
}

/* Returns true if both tensors are live at any one operation. */
static bool live_together(const struct cuda_program *program, const struct cuda_tensor *a,
			  const struct cuda_tensor *b)
{
	for (uint32_t i = 0; i < program->op_count; i++)
		if (is_live(a, i) && is_live(b, i))
			return true;
	return false;
}

/* A second lifetime begins where the tensor is written again. */
static bool begins_again(const struct cuda_program *program, const struct cuda_tensor *tensor)
{
	const struct cuda_op *op = &program->ops[tensor->second_first];

	for (int role = 0; role < CUDA_ROLES; role++)
		if (op->operands[role] == tensor && cuda_op_writes(op, (enum cuda_role)role))
			return true;
	return false;
}

static int check_places(const struct cuda_program *program, char *error)
{
	const struct arena_block *blocks = program->arena.blocks;

	for (uint32_t i = 0; i < program->tensor_count; i++) {
		const struct cuda_tensor *a = program->tensors[i];

		if (a->storage != CUDA_IN_ARENA)
			continue;
		if (blocks[a->block].size < a->bytes ||
		    blocks[a->block].offset + a->bytes > program->arena.size)
			return fail(error, NULL, a, "does not lie in the arena");
		if (a->second_first && !begins_again(program, a))
			return fail(error, NULL, a, "is not written where it lives again");
		for (uint32_t j = 0; j < i; j++) {
			const struct cuda_tensor *b = program->tensors[j];

			if (b->storage == CUDA_IN_ARENA &&
			    ranges_overlap(
				    blocks[a->block].offset, blocks[a->block].offset + a->bytes,
				    blocks[b->block].offset, blocks[b->block].offset + b->bytes) &&
			    live_together(program, a, b))
				return fail(error, NULL, a, "lies on another one that lives");
		}
	}
	return 0;
}

int program_check(const struct cuda_program *program, char *error)
{
	bool *written =
		calloc(program->arena.count + program->graph->params->count + 1, sizeof(bool));
	int r = 0;

	if (!written) {
		snprintf(error, DEVICE_ERROR_MAX, "out of memory");
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < program->op_count && r == 0; i++) {
		r = check_operands(program, &program->ops[i], error);
		if (r == 0)
			r = check_order(program, i, written, error);
	}
	free(written);
	return r < 0 ? r : check_places(program, error);
}
