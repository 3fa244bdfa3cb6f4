/* Planning a graph for the CPU: buffers and their lifetimes, the arena, binding. */
#include "trainer/device/cpu/cpu.h"

#include "format/base/system/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

uint32_t cpu_backward_step(const struct cpu_exec *exec, const struct cpu_node *node)
{
	return node->backward_step;
}

bool cpu_training(const struct cpu_exec *exec)
{
	return exec->graph->options.mode == DEVICE_TRAIN;
}

bool cpu_infers(const struct cpu_exec *exec, const struct device_node *node)
{
	bool moves = node->has_norm && !node->norm.fixed;

	return !cpu_training(exec) || (!node->backward && !moves);
}

size_t cpu_value_bytes(const struct device_value *value, enum element element)
{
	return device_shape_elements(value->shape) * element_size(element);
}

int cpu_add_block(struct cpu_exec *exec, uint64_t bytes, uint32_t step, uint32_t *ret_block)
{
	int r = arena_add_block(&exec->arena, bytes, step, step, ret_block);

	if (r < 0)
		return r;
	if (exec->graph->options.keep_all) {
		arena_extend(&exec->arena, *ret_block, 0);
		arena_extend(&exec->arena, *ret_block, exec->end);
	}
	if (step < exec->graph->node_count && exec->nodes[step].recompute_step)
		arena_add_second(&exec->arena, *ret_block, exec->nodes[step].recompute_step);
	return 0;
}

const struct device_value *cpu_output(const struct cpu_node *node, int index)
{
	const struct device_value *output = node->node->outputs[index];

	return output && output->producer == node->node ? output : NULL;
}

void *cpu_block(const struct cpu_exec *exec, uint32_t block)
{
	return block == CPU_NO_BLOCK ? NULL
				     : (char *)exec->memory + exec->arena.blocks[block].offset;
}

void cpu_contribute(struct cpu_exec *exec, struct cpu_value *value, uint32_t block)
{
	value->gradient_blocks[value->gradient_count++] = block;
}

int cpu_plan_gradient(struct cpu_exec *exec, struct cpu_node *node, uint32_t step)
{
	int r = cpu_add_block(exec, cpu_value_bytes(node->node->x, exec->device->element), step,
			      &node->dx_block);

	if (r == 0)
		cpu_contribute(exec, node->x, node->dx_block);
	return r;
}

void cpu_sum_gradients(struct cpu_exec *exec, struct cpu_node *node, uint32_t first)
{
	struct cpu_value *y = node->y;

	for (uint32_t i = first; i < y->gradient_count; i++)
		loops_add(&exec->device->loops, y->gradients[0], y->gradients[i],
			  exec->device->element, device_shape_elements(node->node->y->shape));
}

static const struct cpu_node_ops *const ops[DEVICE_NODE_KINDS] = {
#define NODE(kind, name) [DEVICE_NODE_##kind] = &cpu_##name##_ops,
	DEVICE_NODES(NODE)
#undef NODE
};

static int graph_make_values(struct cpu_exec *exec)
{
	const struct device_graph *graph = exec->graph;

	for (uint32_t i = 0; i < graph->value_count; i++) {
		struct cpu_value *value = &exec->values[i];
		uint32_t contributions = graph->values[i]->consumers + 1;

		value->block = value->sum_block = CPU_NO_BLOCK;
		value->element = graph->values[i]->saved ? ELEMENT_F32 : exec->device->element;
		value->gradient_blocks = calloc(contributions, sizeof(*value->gradient_blocks));
		value->gradients = calloc(contributions, sizeof(*value->gradients));
		if (!value->gradient_blocks || !value->gradients)
			return -ENOMEM;
		value->kept = graph->options.keep_all ||
			      (!graph->values[i]->consumers && !graph->values[i]->saved);
	}
	return 0;
}

static struct cpu_value *graph_value_of(struct cpu_exec *exec, const struct device_value *value)
{
	return value ? &exec->values[value->index] : NULL;
}

static void graph_make_nodes(struct cpu_exec *exec)
{
	for (uint32_t i = 0; i < exec->graph->node_count; i++) {
		struct cpu_node *node = &exec->nodes[i];

		node->node = exec->graph->nodes[i];
		node->ops = ops[node->node->kind];
		for (int j = 0; j < DEVICE_NODE_INPUTS; j++)
			node->inputs[j] = graph_value_of(exec, node->node->inputs[j]);
		for (int j = 0; j < DEVICE_NODE_OUTPUTS; j++)
			node->outputs[j] = graph_value_of(exec, node->node->outputs[j]);
		node->raw_block = node->weights_gradient_block = node->dx_block =
			node->workspace_block = node->weights_forward_block =
				node->weights_backward_block = CPU_NO_BLOCK;
		node->norm_act.dx_block = CPU_NO_BLOCK;
	}
}

uint32_t cpu_segment_first(const struct cpu_exec *exec, uint32_t last)
{
	struct device_node *const *nodes = exec->graph->nodes;
	uint32_t first = last;

	if (!device_node_recomputes(exec->graph, nodes[last]) ||
	    nodes[last + 1]->segment == nodes[last]->segment)
		return last + 1;
	while (first > 0 && nodes[first - 1]->segment == nodes[last]->segment)
		first--;
	return first;
}

/*
 * Numbers the schedule's steps: forward in order, then backward, where each segment's recomputation
 * precedes its backward.
 */
static void graph_schedule(struct cpu_exec *exec)
{
	uint32_t step = exec->graph->node_count;

	for (uint32_t i = exec->graph->node_count; i-- > 0;) {
		for (uint32_t j = cpu_segment_first(exec, i); j <= i; j++)
			if (device_node_recomputes(exec->graph, exec->graph->nodes[j]))
				exec->nodes[j].recompute_step = step++;
		exec->nodes[i].backward_step = step++;
	}
	exec->end = step;
}

/*
 * Plans the gradients that the caller writes for results without consumers, and the copies that
 * keep_all keeps of every gradient.
 */
static int graph_plan_grad_outputs(struct cpu_exec *exec, const struct device_value *value,
				   uint32_t step)
{
	struct cpu_value *own = graph_value_of(exec, value);
	size_t bytes = cpu_value_bytes(value, exec->device->element);
	uint32_t block;
	int r;

	if (device_value_grad_is_input(value)) {
		own->grad_output = calloc(1, bytes);
		if (!own->grad_output)
			return -ENOMEM;
		r = cpu_add_block(exec, bytes, step, &block);
		if (r < 0)
			return r;
		cpu_contribute(exec, own, block);
	}
	return exec->graph->options.keep_all ? cpu_add_block(exec, bytes, step, &own->sum_block)
					     : 0;
}

/* Contributions to the gradients of the node's outputs are live until its backward step. */
static int graph_plan_node_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	uint32_t step = cpu_backward_step(exec, node);
	int r = 0;

	for (int i = 0; i < DEVICE_NODE_OUTPUTS && r == 0; i++) {
		const struct device_value *output = cpu_output(node, i);
		const struct cpu_value *own = node->outputs[i];

		if (!output)
			continue;
		if (output->active)
			r = graph_plan_grad_outputs(exec, output, step);
		for (uint32_t j = 0; j < own->gradient_count; j++)
			arena_extend(&exec->arena, own->gradient_blocks[j], step);
	}
	return r < 0 || !node->ops->plan_backward ? r : node->ops->plan_backward(exec, node);
}

static int graph_add_result(struct cpu_exec *exec, struct cpu_node *node, int i)
{
	const struct device_value *output = cpu_output(node, i);
	struct cpu_value *own = node->outputs[i];

	if (!output)
		return 0;
	int r = cpu_add_block(exec, cpu_value_bytes(output, own->element), node->node->index,
			      &own->block);
	if (r == 0 && own->kept) {
		arena_keep(&exec->arena, own->block);
		arena_extend(&exec->arena, own->block, exec->end);
	}
	if (r == 0 && output->saved && node->node->backward)
		arena_extend(&exec->arena, own->block, cpu_backward_step(exec, node));
	return r;
}

static int graph_plan_node(struct cpu_exec *exec, struct cpu_node *node)
{
	for (int i = 0; i < DEVICE_NODE_INPUTS; i++)
		if (node->inputs[i])
			arena_extend(&exec->arena, node->inputs[i]->block, node->node->index);
	strcpy(node->engine, "own");
	int r = node->ops->plan ? node->ops->plan(exec, node) : 0;
	for (int i = 0; i < DEVICE_NODE_OUTPUTS && r == 0; i++)
		r = graph_add_result(exec, node, i);
	return r;
}

/* Sets the error of a planning or binding step; 0 stays 0. */
static int graph_fail_node(struct cpu_exec *exec, const struct cpu_node *node, int r,
			   const char *what)
{
	return r < 0 ? sentence_fail(exec->error, DEVICE_ERROR_MAX, r, "%s: %s failed: %s",
				     node->node->name, what, strerror(-r))
		     : 0;
}

static int graph_plan_nodes(struct cpu_exec *exec)
{
	uint32_t count = exec->graph->node_count;
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++)
		r = graph_fail_node(exec, &exec->nodes[i], graph_plan_node(exec, &exec->nodes[i]),
				    "planning its forward pass");
	for (uint32_t i = count; i-- > 0 && r == 0;)
		if (exec->nodes[i].node->backward)
			r = graph_fail_node(exec, &exec->nodes[i],
					    graph_plan_node_backward(exec, &exec->nodes[i]),
					    "planning its backward pass");
	return r;
}

/* True if a block that the node would recompute is needed. */
static bool graph_is_wanted(const struct cpu_exec *exec, const struct cpu_node *node)
{
	for (uint32_t i = 0; i < exec->arena.count; i++)
		if (exec->arena.blocks[i].second_first == node->recompute_step &&
		    exec->arena.blocks[i].second_last)
			return true;
	return false;
}

static void graph_plan_node_recompute(struct cpu_exec *exec, struct cpu_node *node)
{
	uint32_t step = node->recompute_step;
	bool wanted = graph_is_wanted(exec, node);

	for (uint32_t i = 0; i < exec->arena.count; i++) {
		if (exec->arena.blocks[i].second_first != step)
			continue;
		if (wanted)
			arena_extend(&exec->arena, i, step);
		else
			arena_keep(&exec->arena, i);
	}
	if (!wanted) {
		node->recompute_step = 0;
		return;
	}
	node->flops_backward += node->flops_forward;
	for (int i = 0; i < DEVICE_NODE_INPUTS; i++)
		if (node->inputs[i])
			arena_extend(&exec->arena, node->inputs[i]->block, step);
	for (int i = 0; i < DEVICE_NODE_OUTPUTS; i++)
		if (cpu_output(node, i))
			arena_extend(&exec->arena, node->outputs[i]->block, step);
}

/* Walks backward, since a recomputed node needs its inputs. */
static void graph_plan_recompute(struct cpu_exec *exec)
{
	for (uint32_t i = exec->graph->node_count; i-- > 0;)
		if (exec->nodes[i].recompute_step)
			graph_plan_node_recompute(exec, &exec->nodes[i]);
}

static uint64_t graph_memory_max(const struct cpu_exec *exec)
{
	return exec->graph->device->options.arena_bytes_max;
}

/* Sets the error string for an arena that does not fit, which names the three largest tensors. */
static void graph_explain_memory(struct cpu_exec *exec, uint64_t available)
{
	uint64_t limit = UINT64_MAX;
	int length =
		snprintf(exec->error, DEVICE_ERROR_MAX,
			 "activations and workspace take %.3f GiB, and %.3f are %s; use a smaller "
			 "batch. Largest:",
			 (double)exec->arena.size / (1 << 30), (double)available / (1 << 30),
			 graph_memory_max(exec) ? "allowed" : "free");

	for (int rank = 0; rank < 3; rank++) {
		const struct cpu_node *largest = NULL;
		uint64_t size = 0;

		for (uint32_t i = 0; i < exec->graph->node_count; i++) {
			const struct cpu_node *node = &exec->nodes[i];
			uint64_t bytes = node->y->block == CPU_NO_BLOCK
						 ? 0
						 : exec->arena.blocks[node->y->block].size;

			if (bytes > size && bytes < limit) {
				size = bytes;
				largest = node;
			}
		}
		if (!largest || length >= DEVICE_ERROR_MAX)
			return;
		limit = size;
		length += snprintf(exec->error + length, (size_t)(DEVICE_ERROR_MAX - length),
				   "%s %s (%.1f MiB)", rank ? "," : "", largest->node->name,
				   (double)size / (1 << 20));
	}
}

/* Linux overcommits memory and kills processes that use it, so check first what fits. */
static int graph_map_arena(struct cpu_exec *exec)
{
	uint64_t available = graph_memory_max(exec);
	void *memory = MAP_FAILED;
	int r = 0;

	if (exec->scratchpad_size) {
		r = arena_add_block(&exec->arena, exec->scratchpad_size, 0, exec->end,
				    &exec->scratchpad_block);
		if (r < 0)
			return r;
	}
	r = arena_layout(&exec->arena);
	if (r < 0)
		return r;
	size_t size = (exec->arena.size + HUGE_PAGE) / HUGE_PAGE * HUGE_PAGE;
	if (!available)
		available = memory_available();
	if (exec->arena.size <= available)
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      0);
	if (memory == MAP_FAILED) {
		graph_explain_memory(exec, available);
		return -ENOMEM;
	}
	/*
	 * Activations are streamed: with small pages, TLB misses would take a large fraction of the
	 * time.
	 */
	madvise(memory, size, MADV_HUGEPAGE);
	exec->memory = memory;
	exec->memory_size = size;
	return 0;
}

static int graph_bind_all(struct cpu_exec *exec)
{
	for (uint32_t i = 0; i < exec->graph->value_count; i++) {
		struct cpu_value *value = &exec->values[i];

		value->data = cpu_block(exec, value->block);
		value->sum = cpu_block(exec, value->sum_block);
		for (uint32_t j = 0; j < value->gradient_count; j++)
			value->gradients[j] = cpu_block(exec, value->gradient_blocks[j]);
	}
	for (uint32_t i = 0; i < exec->graph->node_count; i++) {
		struct cpu_node *node = &exec->nodes[i];
		int r = node->ops->bind ? node->ops->bind(exec, node) : 0;

		if (r < 0)
			return graph_fail_node(exec, node, r, "binding memory");
	}
	if (exec->fold_elements) {
		exec->fold =
			aligned_alloc(64, (exec->fold_elements * sizeof(float) + 63) / 64 * 64);
		if (!exec->fold)
			return -ENOMEM;
	}
	return 0;
}

static void graph_release_node(struct cpu_node *node)
{
	for (int i = 0; i < CPU_PRIMITIVES; i++)
		cpu_op_release(&node->primitives[i]);
	if (node->weights_forward_block == CPU_NO_BLOCK)
		free(node->weights_forward);
	if (node->weights_backward_block == CPU_NO_BLOCK)
		free(node->weights_backward);
	free(node->folded_bias);
	free(node->resized);
	free(node->sums);
	free(node->own_sums);
	free(node->norm_act.memory);
}

void cpu_graph_release(struct device_graph *graph)
{
	struct cpu_exec *exec = graph->backend;

	if (!exec)
		return;
	for (uint32_t i = 0; exec->nodes && i < graph->node_count; i++)
		graph_release_node(&exec->nodes[i]);
	for (uint32_t i = 0; exec->values && i < graph->value_count; i++) {
		free(exec->values[i].gradient_blocks);
		free(exec->values[i].gradients);
		free(exec->values[i].grad_output);
	}
	if (exec->memory)
		munmap(exec->memory, exec->memory_size);
	cpu_ranks_release(exec);
	cpu_gathers_release(exec);
	arena_deinit(&exec->arena);
	free(exec->nodes);
	free(exec->values);
	free(exec->fold);
	free(exec->targets);
	free(exec->loss_scratch);
	free(exec->losses);
	free(exec->changes);
	free(exec->rows);
	free(exec->finished);
	free(exec);
	graph->backend = NULL;
}

int cpu_graph_plan(struct device_graph *graph, char *error)
{
	struct cpu_exec *exec = calloc(1, sizeof(*exec));

	snprintf(error, DEVICE_ERROR_MAX, "out of memory");
	if (!exec)
		return -ENOMEM;
	graph->backend = exec;
	exec->graph = graph;
	exec->device = (struct cpu_device *)graph->device;
	exec->params = graph->params->backend;
	exec->error = error;
	exec->scratchpad_block = CPU_NO_BLOCK;
	arena_init(&exec->arena);
	exec->nodes = calloc(graph->node_count, sizeof(*exec->nodes));
	exec->values = calloc(graph->value_count, sizeof(*exec->values));
	int r = exec->nodes && exec->values ? graph_make_values(exec) : -ENOMEM;
	/* oneDNN creates primitives for the number of threads set at that time */
	thread_pool_enter(&exec->device->thread_pool);
	if (r == 0) {
		graph_make_nodes(exec);
		graph_schedule(exec);
		r = graph_plan_nodes(exec);
	}
	if (r == 0)
		graph_plan_recompute(exec);
	if (r == 0)
		r = cpu_ranks_plan(exec);
	if (r == 0)
		r = cpu_gathers_plan(exec);
	if (r == 0)
		r = graph_map_arena(exec);
	if (r == 0)
		r = cpu_ranks_bind(exec);
	if (r == 0)
		r = cpu_gathers_bind(exec);
	if (r == 0)
		r = graph_bind_all(exec);
	thread_pool_leave(&exec->device->thread_pool);
	if (r < 0) {
		cpu_graph_release(graph);
		return r;
	}
	exec->error = NULL;
	*error = 0;
	return 0;
}

void cpu_graph_info(const struct device_graph *graph, struct device_graph_info *info)
{
	const struct cpu_exec *exec = graph->backend;

	info->arena_bytes = exec->arena.size;
	info->unshared_bytes = exec->arena.unshared;
	for (uint32_t i = 0; i < graph->node_count; i++) {
		info->flops_forward += exec->nodes[i].flops_forward;
		info->flops_backward += exec->nodes[i].flops_backward;
	}
}

void cpu_graph_layer(const struct device_graph *graph, uint32_t index,
		     struct device_layer_info *info)
{
	const struct cpu_exec *exec = graph->backend;
	const struct cpu_node *node = &exec->nodes[index];

	info->engine = node->engine;
	info->flops_forward = node->flops_forward;
	info->flops_backward = node->flops_backward;
	info->forward_ns = node->forward_ns;
	info->backward_ns = node->backward_ns;
	info->runs = node->runs;
}
