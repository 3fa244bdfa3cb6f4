#include "trainer/estimate/mesh_slices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum mesh_slice {
	SLICE_NONE,
	SLICE_ROWS,    /* outputs are divided: qkv, fc1 */
	SLICE_COLUMNS, /* inputs are divided, so the result is to be summed: proj, fc2 */
	SLICE_HEADS,   /* attention */
};

/* Sets the slice of each node, nodes[graph->node_count]. */
static void find_nodes(const struct device_graph *graph, uint8_t *nodes)
{
	for (uint32_t i = 0; i < graph->node_count; i++) {
		const struct device_node *node = graph->nodes[i];
		const struct device_node *before = node->x ? node->x->producer : NULL;
		if (node->kind == DEVICE_NODE_ATTENTION) {
			nodes[i] = SLICE_HEADS;
			nodes[before->index] = SLICE_ROWS;
		}
		if (node->kind != DEVICE_NODE_LINEAR || !before)
			continue;
		bool hidden =
			before->kind == DEVICE_NODE_LINEAR && before->activation == DEVICE_GELU;
		if (hidden)
			nodes[before->index] = SLICE_ROWS;
		if (hidden || before->kind == DEVICE_NODE_ATTENTION)
			nodes[i] = SLICE_COLUMNS;
	}
}

static void find_params(struct mesh_slices *slices)
{
	const struct device_graph *graph = slices->program->graph;
	for (uint32_t i = 0; i < graph->node_count; i++) {
		const struct device_node *node = graph->nodes[i];
		uint8_t slice = slices->nodes[i];
		if (slice != SLICE_ROWS && slice != SLICE_COLUMNS)
			continue;
		slices->params[node->weight->index] = true;
		if (node->bias)
			slices->params[node->bias->index] = slice == SLICE_ROWS;
	}
	for (size_t i = 0; i < graph->params->count; i++) {
		const struct device_param *param = graph->params->items[i];
		/* tensors start on cache lines */
		uint64_t elements = (param->elements + 15) / 16 * 16;
		if (device_param_trains(param))
			slices->elements[i] =
				slices->params[i] ? elements / slices->parts : elements;
	}
}

/* True if the operand of an operation of this slice has only a part of its channels on a rank. */
static bool operand_is_sliced(const struct mesh_slices *slices, const struct cuda_op *op, int role)
{
	const struct cuda_tensor *tensor = op->operands[role];
	uint8_t slice = slices->nodes[op->node->index];
	if (tensor->value) {
		uint8_t made = slices->nodes[tensor->value->producer->index];
		return made == SLICE_ROWS || made == SLICE_HEADS;
	}
	if (role == CUDA_ADDEND)
		return slice != SLICE_NONE;
	if (role == CUDA_DX && slice == SLICE_COLUMNS)
		return true;
	/* before the activation, and what attention saves */
	return slice == SLICE_HEADS ||
	       (slice == SLICE_ROWS && tensor->shape.c == op->node->y->shape.c &&
		tensor->shape.n == op->node->y->shape.n);
}

static void find_tensors(struct mesh_slices *slices)
{
	for (uint32_t i = 0; i < slices->program->op_count; i++) {
		const struct cuda_op *op = &slices->program->ops[i];
		for (int role = 0; role < CUDA_ROLES; role++) {
			const struct cuda_tensor *tensor = op->operands[role];
			if (tensor && tensor->storage == CUDA_IN_ARENA && role != CUDA_WORKSPACE &&
			    operand_is_sliced(slices, op, role))
				slices->tensors[tensor->block] = true;
		}
	}
}

int mesh_slices_init(struct mesh_slices *slices, const struct cuda_program *program, uint32_t parts)
{
	const struct device_graph *graph = program->graph;
	*slices = (struct mesh_slices){.program = program, .parts = parts};
	slices->tensors = calloc(program->arena.count + 1, sizeof(*slices->tensors));
	slices->params = calloc(graph->params->count + 1, sizeof(*slices->params));
	slices->nodes = calloc(graph->node_count + 1, sizeof(*slices->nodes));
	slices->elements = calloc(graph->params->count + 1, sizeof(*slices->elements));
	if (!slices->tensors || !slices->params || !slices->nodes || !slices->elements) {
		mesh_slices_deinit(slices);
		return -ENOMEM;
	}
	if (parts > 1) {
		find_nodes(graph, slices->nodes);
		find_tensors(slices);
	}
	find_params(slices);
	return 0;
}

void mesh_slices_deinit(struct mesh_slices *slices)
{
	free(slices->tensors);
	free(slices->params);
	free(slices->nodes);
	free(slices->elements);
	*slices = (struct mesh_slices){0};
}

uint32_t mesh_slices_refuse(const struct device_graph *graph, uint32_t parts, const char **ret_what)
{
	*ret_what = NULL;
	for (uint32_t i = 0; i < graph->node_count; i++) {
		const struct device_node *node = graph->nodes[i];
		bool hidden = node->kind == DEVICE_NODE_LINEAR && node->activation == DEVICE_GELU;
		if (node->kind == DEVICE_NODE_ATTENTION) {
			*ret_what = "heads";
			if (node->attention.heads % parts)
				return node->attention.heads;
		} else if (hidden && *ret_what && node->y->shape.c % parts) {
			*ret_what = "hidden channels";
			return node->y->shape.c;
		}
	}
	return 0;
}

static bool is_sliced(const struct mesh_slices *slices, const struct cuda_tensor *tensor)
{
	if (tensor->storage == CUDA_IN_ARENA)
		return slices->tensors[tensor->block];
	return slices->params[tensor->param->index];
}

double mesh_slices_seconds(const struct mesh_slices *slices, const struct roofline_device *device,
			   const struct cuda_op *op)
{
	double bytes = (double)op->bytes, flops = op->flops;
	double others = 1 - 1.0 / slices->parts; /* share of the other ranks */
	for (int role = 0; role < CUDA_ROLES; role++) {
		const struct cuda_tensor *tensor = op->operands[role];
		bool twice = (cuda_op_def(op)->moves | op->adds) & CUDA_BIT(role);
		if (tensor && role != CUDA_WORKSPACE && role != CUDA_ADDEND &&
		    is_sliced(slices, tensor))
			bytes -= others * (double)tensor->bytes * (twice ? 2 : 1);
	}
	if (slices->nodes[op->node->index] != SLICE_NONE)
		flops /= slices->parts;
	/* what follows a sum is a pass of its own, which reads the result and writes it */
	if (mesh_slices_sum(slices, op) && op->operands[CUDA_RESIDUAL])
		bytes += 2 * (double)op->operands[CUDA_Y]->bytes;
	return roofline_seconds(device, slices->program->element, flops, bytes);
}

uint64_t mesh_slices_sum(const struct mesh_slices *slices, const struct cuda_op *op)
{
	const struct cuda_tensor *x = op->operands[CUDA_X], *dx = op->operands[CUDA_DX];
	uint8_t slice = slices->nodes[op->node->index];
	/* a recomputed result is summed again */
	if (!cuda_op_def(op)->product)
		return 0;
	if (slice == SLICE_COLUMNS && x && op->operands[CUDA_Y])
		return op->operands[CUDA_Y]->bytes;
	return slice == SLICE_ROWS && dx ? dx->bytes : 0;
}

int mesh_slices_arena(const struct mesh_slices *slices, uint64_t *ret_bytes)
{
	const struct arena *whole = &slices->program->arena;
	struct arena arena = *whole;
	arena.blocks = malloc((whole->count + 1) * sizeof(*arena.blocks));
	if (!arena.blocks)
		return -ENOMEM;
	memcpy(arena.blocks, whole->blocks, whole->count * sizeof(*arena.blocks));
	for (uint32_t i = 0; i < arena.count; i++)
		if (slices->tensors[i])
			arena.blocks[i].size =
				(arena.blocks[i].size / slices->parts + ARENA_ALIGNMENT - 1) /
				ARENA_ALIGNMENT * ARENA_ALIGNMENT;
	int r = arena_layout(&arena);
	*ret_bytes = arena.size;
	free(arena.blocks);
	return r;
}
