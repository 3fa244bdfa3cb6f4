/*
 * Recomputes forward results of a segment in the backward pass instead of keeping them (Chen, Xu,
 * Zhang, Guestrin 2016, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174, section
 * 3).
 *
 * A program is first lowered as if all results were kept. Then, for each segment, the forward
 * operations whose results its backward pass reads are repeated before the first operation that
 * reads one. They have the same operands as in forward: the tensors that they write get a second
 * lifetime, and no new tensors are created. A tensor is kept instead if
 * - it is small. Norm statistics are, so they are computed and all-reduced only once
 * - another segment reads it, i.e. it is the input of a segment
 * - it is readable after a step
 * - the operation that writes it cannot be repeated, e.g. because it updates running statistics
 */
#include "trainer/device/cuda/lowering/lower.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tensor_use {
	const struct cuda_op *writer; /* forward operation that can be repeated, or NULL */
	bool stays, needed;
};

struct recompute {
	struct cuda_program *program;
	/* [tensor_count], indexed by the tensor number stored in `block` */
	struct tensor_use *uses;
	bool *repeated;      /* [backward_start] */
	uint32_t *needed_at; /* [segments] index of the first operation that reads a result */
	uint32_t segments, count;
};

static bool can_repeat(const struct cuda_program *program, const struct cuda_op *op)
{
	const struct cuda_op_def *def = cuda_op_def(op);

	return device_node_recomputes(program->graph, op->node) && !def->minor &&
	       !cuda_op_is_constant(op) && !def->moves;
}

static bool is_small(const struct cuda_tensor *tensor)
{
	return (uint64_t)tensor->shape.n * tensor->shape.h * tensor->shape.w <= 1;
}

/* Returns NULL if the operand is not in the arena. */
static struct tensor_use *use_of(const struct recompute *c, const struct cuda_op *op, int role)
{
	const struct cuda_tensor *tensor = op->operands[role];

	return tensor && tensor->storage == CUDA_IN_ARENA ? &c->uses[tensor->block] : NULL;
}

static void find_writers(struct recompute *c)
{
	for (uint32_t i = 0; i < c->program->tensor_count; i++) {
		struct cuda_tensor *tensor = c->program->tensors[i];

		tensor->block = i;
		c->uses[i].stays = tensor->kept || tensor->grad_output || is_small(tensor);
	}
	for (uint32_t i = 0; i < c->program->backward_start; i++) {
		const struct cuda_op *op = &c->program->ops[i];

		for (int role = 0; role < CUDA_ROLES; role++) {
			struct tensor_use *use = use_of(c, op, role);

			if (!use || !cuda_op_writes(op, (enum cuda_role)role))
				continue;
			use->stays |= use->writer || !can_repeat(c->program, op);
			use->writer = op;
		}
	}
}

/* Marks tensors that backward reads and that are not kept. */
static void find_needed(struct recompute *c)
{
	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < c->program->op_count; i++) {
			const struct cuda_op *op = &c->program->ops[i];
			bool backward = i >= c->program->backward_start;

			for (int role = 0; role < CUDA_ROLES; role++) {
				struct tensor_use *use = use_of(c, op, role);

				if (!use || !use->writer)
					continue;
				if (pass == 0 && use->writer->node->segment != op->node->segment)
					use->stays = true;
				if (pass == 0 || !backward || use->stays)
					continue;
				use->needed = true;
				if (i < c->needed_at[op->node->segment])
					c->needed_at[op->node->segment] = i;
			}
		}
}

/*
 * Iterates backward, because repeating an operation requires its inputs, which may need to be
 * repeated, too.
 */
static void find_repeated(struct recompute *c)
{
	for (uint32_t i = c->program->backward_start; i-- > 0;) {
		const struct cuda_op *op = &c->program->ops[i];

		for (int role = 0; role < CUDA_ROLES; role++) {
			const struct tensor_use *use = use_of(c, op, role);

			if (use && use->writer == op && use->needed)
				c->repeated[i] = true;
		}
		c->count += c->repeated[i];
		for (int role = 0; role < CUDA_ROLES && c->repeated[i]; role++) {
			struct tensor_use *use = use_of(c, op, role);

			if (use && use->writer && !use->stays)
				use->needed = true;
		}
	}
}

/* Marks an operation that is inserted at index `at` of the new list. */
static void repeat(const struct recompute *c, struct cuda_op *op, uint32_t at)
{
	op->backward = op->recomputed = true;
	for (int role = 0; role < CUDA_ROLES; role++) {
		const struct tensor_use *use = use_of(c, op, role);

		if (use && use->writer && !use->stays && cuda_op_writes(op, (enum cuda_role)role))
			op->operands[role]->second_first = at;
	}
}

static int rewrite(struct recompute *c)
{
	struct cuda_program *program = c->program;
	uint32_t count = program->op_count + c->count, at = 0;
	struct cuda_op *ops = calloc(count, sizeof(*ops));

	if (!ops)
		return -ENOMEM;
	for (uint32_t i = 0; i < program->op_count; i++) {
		uint32_t segment = program->ops[i].node->segment;

		for (uint32_t j = 0; i >= program->backward_start && c->needed_at[segment] == i &&
				     j < program->backward_start;
		     j++) {
			if (!c->repeated[j] || program->ops[j].node->segment != segment)
				continue;
			ops[at] = program->ops[j];
			repeat(c, &ops[at], at);
			at++;
		}
		ops[at++] = program->ops[i];
	}
	free(program->ops);
	program->ops = ops;
	program->op_count = program->op_capacity = count;
	return 0;
}

int program_recompute(struct cuda_program *program)
{
	const struct device_graph *graph = program->graph;
	struct recompute c = {.program = program};
	int r = -ENOMEM;

	c.segments = graph->nodes[graph->node_count - 1]->segment + 1;
	if (c.segments == 1)
		return 0;
	c.uses = calloc(program->tensor_count + 1, sizeof(*c.uses));
	c.repeated = calloc(program->backward_start + 1, sizeof(*c.repeated));
	c.needed_at = malloc(c.segments * sizeof(*c.needed_at));
	if (c.uses && c.repeated && c.needed_at) {
		memset(c.needed_at, 0xff, c.segments * sizeof(*c.needed_at));
		find_writers(&c);
		find_needed(&c);
		find_repeated(&c);
		r = c.count ? rewrite(&c) : 0;
	}
	free(c.uses);
	free(c.repeated);
	free(c.needed_at);
	return r;
}
