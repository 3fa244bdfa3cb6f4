/* Gathers of weights on the CPU: their memory in the arena, and when they happen in a pass. */
#include "trainer/device/gathers.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool cpu_gathers(const struct cpu_exec *exec)
{
	return exec->graph->params->shards.gathers;
}

static int gathers_check(struct cpu_exec *exec, int r)
{
	struct device *device = &exec->device->base;

	return r < 0 ? device_fail(device, -ECOMM, "%s", comm_error(device->options.comm)) : 0;
}

/* Adds the steps in which the node reads its weight. */
static void gathers_add_node(struct gathers *plan, const struct cpu_node *node)
{
	const struct device_node *n = node->node;

	if (!n->weight)
		return;
	gathers_add_read(plan, n->weight, n->index);
	if (node->recompute_step)
		gathers_add_read(plan, n->weight, node->recompute_step);
	if (n->backward && n->x->active)
		gathers_add_read(plan, n->weight, node->backward_step);
}

/* Takes memory for a gather, in the place of its bucket's first one if there was one. */
static int gathers_add_block(struct cpu_exec *exec, const struct gather *gather)
{
	const struct device_range *bucket = &exec->graph->params->shards.buckets[gather->bucket];
	uint32_t *block = &exec->gathers.blocks[gather->bucket];

	if (*block == CPU_NO_BLOCK)
		return arena_add_block(&exec->arena, bucket->count * sizeof(float), gather->start,
				       gather->last, block);
	arena_add_second(&exec->arena, *block, gather->start);
	arena_extend(&exec->arena, *block, gather->last);
	return 0;
}

int cpu_gathers_plan(struct cpu_exec *exec)
{
	struct cpu_gathers *gathers = &exec->gathers;
	int r = 0;

	if (!cpu_gathers(exec))
		return 0;
	gathers_init(&gathers->plan, exec->graph->node_count);
	for (uint32_t i = 0; i < exec->graph->node_count; i++)
		gathers_add_node(&gathers->plan, &exec->nodes[i]);
	gathers_order(&gathers->plan);
	for (uint32_t i = 0; i < DEVICE_SHARD_BUCKETS_MAX; i++)
		gathers->blocks[i] = CPU_NO_BLOCK;
	for (uint32_t i = 0; i < gathers->plan.count && r == 0; i++)
		r = gathers_add_block(exec, &gathers->plan.items[i]);
	return r;
}

int cpu_gathers_bind(struct cpu_exec *exec)
{
	const struct device_params *params = exec->graph->params;
	struct cpu_gathers *gathers = &exec->gathers;

	if (!cpu_gathers(exec))
		return 0;
	gathers->weights = calloc(params->count + 1, sizeof(*gathers->weights));
	if (!gathers->weights)
		return -ENOMEM;
	for (size_t i = 0; i < params->count; i++) {
		const struct device_param *param = params->items[i];

		if (!shards_divide(param))
			continue;
		uint32_t bucket = shards_bucket(param);
		float *memory = cpu_block(exec, gathers->blocks[bucket]);
		if (memory)
			gathers->weights[i] =
				memory + (param->offset - params->shards.buckets[bucket].first);
	}
	return 0;
}

void cpu_gathers_release(struct cpu_exec *exec)
{
	free(exec->gathers.weights);
}

void cpu_gathers_begin(struct cpu_exec *exec)
{
	exec->gathers.started = exec->gathers.done = 0;
}

/* Starts gather `index`, from this rank's part. In a warm-up all weights are zero. */
static int gathers_start(struct cpu_exec *exec, uint32_t index)
{
	struct cpu_gathers *gathers = &exec->gathers;
	const struct device_shards *shards = &exec->graph->params->shards;
	uint32_t bucket = gathers->plan.items[index].bucket;
	const struct device_range *range = &shards->buckets[bucket];
	float *values = cpu_block(exec, gathers->blocks[bucket]);
	size_t each = range->count / shards->world;

	if (exec->warms_up) {
		memset(values, 0, range->count * sizeof(float));
		return 0;
	}
	memcpy(values + shards->rank * each,
	       exec->params->slots[DEVICE_VALUE] + range->first / shards->world,
	       each * sizeof(float));
	return gathers_check(exec,
			     comm_all_gather_start(exec->device->base.options.comm, values, each,
						   COMM_FLOAT, &gathers->requests[index]));
}

/* Waits for the gathers that the step is the first to read. */
static int gathers_finish(struct cpu_exec *exec, uint32_t step)
{
	struct cpu_gathers *gathers = &exec->gathers;
	const struct gathers *plan = &gathers->plan;
	struct device *device = &exec->device->base;
	int r = 0;

	while (gathers->done < gathers->started && plan->items[gathers->done].first <= step &&
	       r == 0) {
		uint64_t begin = device_span_begin(device);

		if (!exec->warms_up)
			r = comm_wait(device->options.comm, gathers->requests[gathers->done]);
		device_span_end(device, "gather of weights", "",
				!cpu_training(exec)      ? "evaluation"
				: step >= plan->backward ? "backward"
							 : "forward",
				begin);
		gathers->done++;
	}
	return gathers_check(exec, r);
}

int cpu_gathers_reach(struct cpu_exec *exec, uint32_t step)
{
	struct cpu_gathers *gathers = &exec->gathers;
	const struct gathers *plan = &gathers->plan;
	int r;

	while (gathers->started < plan->count && plan->items[gathers->started].start <= step) {
		r = gathers_start(exec, gathers->started);
		if (r < 0)
			return r;
		gathers->started++;
	}
	r = gathers_finish(exec, step);
	if (r < 0 || gathers->done == gathers->started || exec->warms_up)
		return r;
	return gathers_check(exec, comm_progress(exec->device->base.options.comm));
}

float *cpu_weight(const struct cpu_exec *exec, const struct device_param *weight,
		  enum device_slot slot)
{
	return cpu_gathers(exec) ? exec->gathers.weights[weight->index]
				 : cpu_param_slot(weight, slot);
}

int cpu_plan_weights(struct cpu_exec *exec, size_t bytes, uint32_t step, uint32_t *ret_block,
		     void **ret_weights)
{
	if (cpu_gathers(exec))
		return cpu_add_block(exec, bytes, step, ret_block);
	*ret_weights = aligned_alloc(64, bytes);
	if (!*ret_weights)
		return -ENOMEM;
	memset(*ret_weights, 0, bytes);
	return 0;
}
