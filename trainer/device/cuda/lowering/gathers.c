/*
 * Gathers of weights (trainer/device/gathers.h) as operations of a program.
 *
 * A program is first lowered as if its weights were there. Then a GATHER is inserted for each
 * bucket where it may start, and a PAD before the first operation that reads a weight with more
 * channels. Both write again what backward reads, to the same memory: the tensors get a second
 * lifetime, as in recompute.c.
 */
#include "trainer/device/gathers.h"
#include "trainer/device/cuda/lowering/lower.h"
#include "trainer/device/shards.h"

#include <errno.h>
#include <stdlib.h>

/* A padded weight, and the first operation forward and backward that reads it, or UINT32_MAX. */
struct padding {
	struct cuda_tensor *padded;
	uint32_t first[2];
};

struct inserter {
	struct lowering *l;
	struct cuda_program *program;
	struct gathers gathers;
	struct cuda_tensor *buckets[DEVICE_SHARD_BUCKETS_MAX];
	struct padding *paddings; /* [padding_count] */
	uint32_t padding_count;
	struct cuda_op *ops; /* [count] the new list */
	uint32_t count;
	uint32_t *moved; /* [op_count] from old indices to new ones */
};

static bool is_backward(const struct inserter *in, uint32_t at)
{
	return at >= in->program->backward_start;
}

static struct cuda_tensor *bucket_of(struct inserter *in, const struct cuda_tensor *weights,
				     const struct device_node *node)
{
	const struct device_shards *shards = &in->program->graph->params->shards;
	uint32_t index = shards_bucket(weights->param);
	struct device_shape shape = {1, 1, 1, (uint32_t)shards->buckets[index].count};

	if (!in->buckets[index])
		in->buckets[index] =
			lower_tensor(in->l, node, "bucket of weights", shape, in->program->element);
	return in->buckets[index];
}

static void add_padded(struct inserter *in, struct cuda_tensor *padded, uint32_t at)
{
	struct padding *padding = in->paddings;

	while (padding < in->paddings + in->padding_count && padding->padded != padded)
		padding++;
	if (padding == in->paddings + in->padding_count) {
		in->padding_count++;
		*padding = (struct padding){padded, {UINT32_MAX, UINT32_MAX}};
	}
	if (padding->first[is_backward(in, at)] == UINT32_MAX)
		padding->first[is_backward(in, at)] = at;
}

static void find_reads(struct inserter *in)
{
	gathers_init(&in->gathers, in->program->backward_start);
	for (uint32_t i = 0; i < in->program->op_count; i++) {
		const struct cuda_op *op = &in->program->ops[i];

		for (int role = 0; role < CUDA_ROLES; role++) {
			struct cuda_tensor *tensor = op->operands[role], *weights = tensor;

			if (tensor && tensor->unpadded) {
				weights = tensor->unpadded;
				add_padded(in, tensor, i);
			}
			if (!weights || weights->storage != CUDA_IN_BUCKET)
				continue;
			weights->bucket = bucket_of(in, weights, op->node);
			gathers_add_read(&in->gathers, weights->param, i);
		}
	}
	gathers_order(&in->gathers);
}

/* Appends an operation that node needs; old_at: the one of the old list that follows. */
static struct cuda_op *insert(struct inserter *in, enum cuda_op_kind kind,
			      const struct device_node *node, uint32_t old_at)
{
	struct cuda_op *op = &in->ops[in->count++];

	*op = (struct cuda_op){
		.kind = kind, .node = node, .backward = is_backward(in, old_at), .engine = "own"};
	return op;
}

static void insert_gathers(struct inserter *in, uint32_t old_at)
{
	for (uint32_t i = 0; i < in->gathers.count; i++) {
		const struct gather *gather = &in->gathers.items[i];

		if (gather->start != old_at)
			continue;
		struct cuda_op *op =
			insert(in, CUDA_OP_GATHER, in->program->ops[gather->first].node, old_at);
		op->gather.bucket = gather->bucket;
		op->operands[CUDA_Y] = in->buckets[gather->bucket];
	}
}

static void insert_paddings(struct inserter *in, uint32_t old_at)
{
	for (uint32_t i = 0; i < in->padding_count; i++) {
		const struct padding *padding = &in->paddings[i];

		if (padding->first[is_backward(in, old_at)] != old_at)
			continue;
		struct cuda_op *op = insert(in, CUDA_OP_PAD, in->program->ops[old_at].node, old_at);
		op->operands[CUDA_W] = padding->padded->unpadded;
		op->operands[CUDA_W16] = padding->padded;
	}
}

static void insert_all(struct inserter *in)
{
	struct cuda_program *program = in->program;
	uint32_t begin = in->count;

	for (uint32_t i = 0; i < program->op_count; i++) {
		if (i == program->backward_start)
			begin = in->count;
		insert_gathers(in, i);
		insert_paddings(in, i);
		in->moved[i] = in->count;
		in->ops[in->count++] = program->ops[i];
	}
	program->backward_start = program->backward_start < program->op_count ? begin : in->count;
}

/* What an inserted operation writes; NULL for others. */
static struct cuda_tensor *inserted_result(const struct cuda_op *op)
{
	return op->kind == CUDA_OP_GATHER ? op->operands[CUDA_Y]
	       : op->kind == CUDA_OP_PAD  ? op->operands[CUDA_W16]
					  : NULL;
}

/* Sets second lifetimes, by indices into the new list. */
static void set_lifetimes(const struct inserter *in)
{
	for (uint32_t i = 0; i < in->program->tensor_count; i++) {
		struct cuda_tensor *tensor = in->program->tensors[i];

		if (tensor->second_first)
			tensor->second_first = in->moved[tensor->second_first];
	}
	for (uint32_t i = 0; i < in->count; i++)
		for (uint32_t j = 0; j < i && inserted_result(&in->ops[i]); j++)
			if (inserted_result(&in->ops[j]) == inserted_result(&in->ops[i]))
				inserted_result(&in->ops[i])->second_first = i;
}

void lower_gathers(struct lowering *l)
{
	struct cuda_program *program = l->program;
	struct inserter in = {.l = l, .program = program};
	size_t most = (size_t)program->op_count + GATHERS_MAX;

	in.paddings = calloc(program->tensor_count + 1, sizeof(*in.paddings));
	in.moved = calloc(program->op_count + 1, sizeof(*in.moved));
	if (in.paddings && in.moved) {
		find_reads(&in);
		most += 2 * (size_t)in.padding_count;
		in.ops = calloc(most, sizeof(*in.ops));
	}
	if (!in.ops)
		lower_fail(l, -ENOMEM, "out of memory");
	if (!l->failure) {
		insert_all(&in);
		set_lifetimes(&in);
		free(program->ops);
		program->ops = in.ops;
		program->op_count = in.count;
		program->op_capacity = (uint32_t)most;
		in.ops = NULL;
	}
	free(in.ops);
	free(in.moved);
	free(in.paddings);
}
