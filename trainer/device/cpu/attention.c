/*
 * Attention on the CPU. A task is one head of one sample; its data fits the L2 cache of a core
 * (kernels_attention.c).
 */
#include "trainer/device/cpu/cpu.h"

#include <math.h>
#include <stdio.h>

static size_t attention_positions(const struct device_node *node)
{
	return (size_t)node->x->shape.h * node->x->shape.w;
}

static size_t attention_bytes(const struct device_node *node)
{
	return attention_scratch(attention_positions(node),
				 node->y->shape.c / node->attention.heads);
}

static int attention_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	cpu_need_scratchpad(exec, attention_bytes(node->node) * exec->device->thread_pool.threads);
	node->flops_forward = device_node_flops(node->node);
	snprintf(node->engine, sizeof(node->engine), "own, %s", exec->device->loops.kernels->isa);
	return 0;
}

static int attention_plan_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	uint32_t step = cpu_backward_step(exec, node);

	arena_extend(&exec->arena, node->x->block, step);
	arena_extend(&exec->arena, node->y->block, step);
	node->flops_backward = 2 * node->flops_forward;
	return cpu_plan_gradient(exec, node, step);
}

struct attention_job {
	struct cpu_exec *exec;
	const struct cpu_node *node;
	void *dx; /* NULL in forward */
};

static void *attention_at(void *tensor, size_t index, enum element element)
{
	return (char *)tensor + index * element_size(element);
}

static void attention_task(void *context, uint32_t task, unsigned thread)
{
	const struct attention_job *job = context;
	const struct device_node *node = job->node->node;
	const struct kernels *kernels = job->exec->device->loops.kernels;
	enum element element = job->exec->device->element;
	size_t heads = node->attention.heads, channels = node->y->shape.c,
	       t = attention_positions(node);
	size_t sample = task / heads, d = channels / heads, first = task % heads * d;
	size_t at = sample * t * 3 * channels + first, y_at = sample * t * channels + first;
	char *scratch = cpu_block(job->exec, job->exec->scratchpad_block);
	struct attention_args args = {
		.q = attention_at(job->node->x->data, at, element),
		.k = attention_at(job->node->x->data, at + channels, element),
		.v = attention_at(job->node->x->data, at + 2 * channels, element),
		.y = attention_at(job->node->y->data, y_at, element),
		.element = element,
		.scale = 1 / sqrtf((float)d),
		.t = t,
		.d = d,
		.stride = 3 * channels,
		.y_stride = channels,
		.scratch = (float *)(scratch + thread * attention_bytes(node)),
		.dropout = dropout_rate(node->attention.dropout),
		.key = dropout_key(&job->exec->draws, node->attention.layer),
		.sample = job->exec->draws.first + (uint32_t)sample,
		.head = node->attention.first + (uint32_t)(task % heads),
	};

	if (job->node->log_sum)
		args.log_sum = (float *)job->node->log_sum->data + task * t;
	if (!job->dx) {
		kernels->attention(&args);
		return;
	}
	args.gradient = attention_at(job->node->y->gradients[0], y_at, element);
	args.dq = attention_at(job->dx, at, element);
	args.dk = attention_at(job->dx, at + channels, element);
	args.dv = attention_at(job->dx, at + 2 * channels, element);
	kernels->attention_backward(&args);
}

static void attention_run(struct cpu_exec *exec, const struct cpu_node *node, void *dx)
{
	struct attention_job job = {exec, node, dx};

	thread_pool_run(&exec->device->thread_pool,
			node->node->x->shape.n * node->node->attention.heads, attention_task, &job);
}

static int attention_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	attention_run(exec, node, NULL);
	return 0;
}

static int attention_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	cpu_sum_gradients(exec, node, 1);
	attention_run(exec, node, cpu_block(exec, node->dx_block));
	return 0;
}

const struct cpu_node_ops cpu_attention_ops = {
	.plan = attention_plan,
	.plan_backward = attention_plan_backward,
	.forward = attention_forward,
	.backward = attention_backward,
};
