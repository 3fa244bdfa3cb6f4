/* The loss node. */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <stdlib.h>

#define TASKS 32

static int loss_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	uint32_t classes = node->node->x->shape.c;

	/* device_logits() reads the logits after the step */
	arena_extend(&exec->arena, node->x->block, cpu_backward_step(exec, &exec->nodes[0]));
	exec->loss_scratch = malloc(LOSS_SCRATCH * exec->device->thread_pool.threads *
				    (size_t)classes * sizeof(float));
	exec->losses = calloc(node->node->x->shape.n, sizeof(float));
	if (!exec->loss_scratch || !exec->losses)
		return -ENOMEM;
	if (!cpu_training(exec) || !node->node->x->active)
		return 0;
	/* The gradient is live from the forward step, which computes it along with the loss. */
	return cpu_plan_gradient(exec, node, node->node->index);
}

struct loss_job {
	struct cpu_exec *exec;
	struct cpu_node *node;
	char *gradient;
	float gradient_scale, teacher_scale;
	struct loss_sums sums[TASKS];
};

static void loss_task(void *context, uint32_t task, unsigned thread)
{
	struct loss_job *job = context;
	const struct device_node *node = job->node->node;
	size_t rows = node->x->shape.n, classes = node->x->shape.c;
	size_t first = rows * task / TASKS, last = rows * (task + 1) / TASKS;
	enum element element = job->exec->device->element, logits = job->node->x->element;
	struct device_target_arrays targets =
		device_target_arrays(job->exec->graph, job->exec->targets);
	struct loss_args args = {
		.logits = (const char *)job->node->x->data + first * classes * element_size(logits),
		.logits_element = logits,
		.gradient = job->gradient ? job->gradient + first * classes * element_size(element)
					  : NULL,
		.gradient_element = element,
		.losses = job->exec->losses + first,
		.labels = targets.labels + first,
		.labels2 = targets.labels2 ? targets.labels2 + first : NULL,
		.shares = targets.shares ? targets.shares + first : NULL,
		.targets = targets.targets ? targets.targets + first * classes : NULL,
		.teacher = targets.teacher ? targets.teacher + first * classes : NULL,
		.rows = last - first,
		.classes = node->x->shape.c,
		.spec = &node->loss,
		.plain = device_loss_is_plain(&node->loss),
		.gradient_scale = job->gradient_scale,
		.teacher_scale = job->teacher_scale,
		.scratch = job->exec->loss_scratch + LOSS_SCRATCH * thread * classes,
	};

	job->exec->device->loops.kernels->loss(&args, &job->sums[task]);
}

double cpu_loss_weight(const struct cpu_exec *exec)
{
	const struct device_node *loss = exec->graph->loss;
	const float *weights = loss->loss.class_weights;
	uint32_t n = loss->x->shape.n;
	int32_t classes = (int32_t)loss->x->shape.c;
	struct device_target_arrays targets = device_target_arrays(exec->graph, exec->targets);
	double sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		int32_t label = targets.labels[i];
		double share = targets.shares ? (double)targets.shares[i] : 1;

		if (label < 0 || label >= classes)
			continue;
		sum += share * (double)weights[label];
		if (targets.labels2)
			sum += (1 - share) * (double)weights[targets.labels2[i]];
	}
	return sum;
}

static int loss_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	struct loss_job job = {
		.exec = exec, .node = node, .gradient = cpu_block(exec, node->dx_block)};
	struct loss_sums all = {0};
	double divisor, samples;
	int r = cpu_ranks_divisor(exec, &divisor, &samples);

	if (r < 0)
		return r;
	job.gradient_scale = divisor > 0 ? 1.0f / (float)divisor : 0;
	job.teacher_scale = samples > 0 ? (float)(divisor / samples) : 0;
	thread_pool_run(&exec->device->thread_pool, TASKS, loss_task, &job);
	for (uint32_t i = 0; i < TASKS; i++) {
		all.loss += job.sums[i].loss;
		all.top1 += job.sums[i].top1;
		all.top5 += job.sums[i].top5;
	}
	return cpu_ranks_loss(exec, all.loss, all.top1, all.top5);
}

const struct cpu_node_ops cpu_loss_ops = {.plan = loss_plan, .forward = loss_forward};
