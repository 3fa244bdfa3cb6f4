/*
 * Weight gradient of depthwise convolutions with large windows. oneDNN 2.6 has depthwise kernels
 * for windows up to 3 only; for larger windows it uses kernels of grouped convolutions, whose
 * vectors hold a single channel. A task handles a block of channels and sums all samples in order,
 * so results do not depend on the number of threads. Uses the graph's scratchpad.
 */
#include "trainer/device/cpu/cpu.h"

#include <string.h>

bool cpu_depthwise_fits(const struct cpu_exec *exec, const struct cpu_node *node)
{
	const struct device_node *n = node->node;
	uint32_t channels = n->x->shape.c;

	return exec->device->element == ELEMENT_F32 && n->kind == DEVICE_NODE_CONV &&
	       n->groups == channels && n->y->shape.c == channels &&
	       channels % DEPTHWISE_BLOCK == 0 && n->stride == 1 && !n->pad_extra &&
	       n->window_h == n->window_w && (n->window_h == 5 || n->window_h == 7);
}

/* Number of floats in the padded copy of a channel block of x. */
static size_t padded_size(const struct device_node *n)
{
	return (size_t)(n->x->shape.h + 2 * n->pad) * (n->x->shape.w + 2 * n->pad) *
	       DEPTHWISE_BLOCK;
}

void cpu_depthwise_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	size_t floats = node->node->weight->elements +
			exec->device->thread_pool.threads * padded_size(node->node);

	arena_extend(&exec->arena, node->x->block, cpu_backward_step(exec, node));
	cpu_need_scratchpad(exec, floats * sizeof(float));
	node->flops_backward += node->flops_forward;
	node->depthwise = true;
}

struct depthwise_job {
	const struct cpu_exec *exec;
	const struct cpu_node *node;
	float *gradient; /* [K][R][S] */
	float *padded;   /* one per thread */
};

static void pad(const struct depthwise_job *job, float *to, uint32_t sample, uint32_t channel)
{
	const struct device_node *n = job->node->node;
	struct device_shape x = n->x->shape;
	size_t row = (size_t)(x.w + 2 * n->pad) * DEPTHWISE_BLOCK;
	const float *from =
		(const float *)job->node->x->data + (size_t)sample * x.h * x.w * x.c + channel;

	for (uint32_t h = 0; h < x.h; h++)
		for (uint32_t w = 0; w < x.w; w++)
			memcpy(to + (h + n->pad) * row + (w + n->pad) * DEPTHWISE_BLOCK,
			       from + ((size_t)h * x.w + w) * x.c, DEPTHWISE_BLOCK * sizeof(float));
}

static void depthwise_task(void *context, uint32_t task, unsigned thread)
{
	const struct depthwise_job *job = context;
	const struct device_node *n = job->node->node;
	uint32_t taps = n->window_h * n->window_w, channel = task * DEPTHWISE_BLOCK;
	float sum[DEPTHWISE_WINDOW_MAX * DEPTHWISE_WINDOW_MAX * DEPTHWISE_BLOCK] = {0};
	float *padded = job->padded + thread * padded_size(n);
	struct depthwise_args args = {
		.x = padded,
		.stride = n->y->shape.c,
		.p = n->y->shape.h,
		.q = n->y->shape.w,
		.window = n->window_h,
	};

	memset(padded, 0, padded_size(n) * sizeof(float));
	for (uint32_t i = 0; i < n->x->shape.n; i++) {
		pad(job, padded, i, channel);
		args.gradient = (const float *)job->node->norm_act.dx +
				(size_t)i * args.p * args.q * args.stride + channel;
		job->exec->device->loops.kernels->depthwise(&args, sum);
	}
	for (uint32_t c = 0; c < DEPTHWISE_BLOCK; c++)
		for (uint32_t t = 0; t < taps; t++)
			job->gradient[(size_t)(channel + c) * taps + t] =
				sum[(size_t)t * DEPTHWISE_BLOCK + c];
}

void cpu_depthwise_run(struct cpu_exec *exec, struct cpu_node *node)
{
	float *scratch = cpu_block(exec, exec->scratchpad_block);
	struct depthwise_job job = {exec, node, scratch, scratch + node->node->weight->elements};

	thread_pool_run(&exec->device->thread_pool, node->node->x->shape.c / DEPTHWISE_BLOCK,
			depthwise_task, &job);
	cpu_param_add_gradient(node->node->weight, job.gradient);
}
