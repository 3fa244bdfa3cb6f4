/* Tokens of vision transformers: adds position embeddings; selects a single token. */
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/pos_embed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TASKS 32

struct tokens_job {
	const struct kernels *kernels;
	enum element element;
	const char *from; /* x; backward: dy */
	char *to;         /* y; backward: dx */
	const float *positions, *class_token;
	const float *ones; /* [KERNEL_WIDTH_MAX] */
	float *sums;       /* [tokens][channels], dy summed over samples */
	size_t samples, places, tokens, channels;
	size_t taken;
};

static struct tokens_job tokens_job(const struct cpu_exec *exec, const struct cpu_node *node)
{
	const struct device_shape *x = &node->node->x->shape, *y = &node->node->y->shape;

	return (struct tokens_job){
		.kernels = exec->device->loops.kernels,
		.element = exec->device->element,
		.samples = x->n,
		.places = (size_t)x->h * x->w,
		.tokens = (size_t)y->h * y->w,
		.channels = x->c,
		.taken = node->node->position,
	};
}

/* Size in bytes of `rows` rows. */
static size_t tokens_bytes(const struct tokens_job *job, size_t rows)
{
	return rows * job->channels * element_size(job->element);
}

static size_t tokens_width(const struct tokens_job *job, size_t first)
{
	size_t width = job->channels - first;

	return width < KERNEL_WIDTH_MAX ? width : KERNEL_WIDTH_MAX;
}

/* A row of y: input of type `element` plus the embedding of its position. */
static void tokens_row(const struct tokens_job *job, const void *x, enum element element,
		       size_t sample, size_t token)
{
	char *y = job->to + tokens_bytes(job, sample * job->tokens + token);

	for (size_t c = 0; c < job->channels; c += KERNEL_WIDTH_MAX)
		job->kernels->apply(
			&(struct apply_args){
				.x = (const char *)x + c * element_size(element),
				.x_element = element,
				.y = y + c * element_size(job->element),
				.element = job->element,
				.scale = job->ones,
				.bias = job->positions + token * job->channels + c,
			},
			1, job->channels, tokens_width(job, c));
}

static void tokens_forward_task(void *context, uint32_t task, unsigned thread)
{
	const struct tokens_job *job = context;
	size_t first = job->tokens - job->places, rows = job->samples * job->tokens;

	for (size_t row = rows * task / TASKS; row < rows * (task + 1) / TASKS; row++) {
		size_t sample = row / job->tokens, token = row % job->tokens;
		size_t place = sample * job->places + token - first;

		if (token < first)
			tokens_row(job, job->class_token, ELEMENT_F32, sample, token);
		else
			tokens_row(job, job->from + tokens_bytes(job, place), job->element, sample,
				   token);
	}
}

static float *tokens_floats(const struct cpu_node *node)
{
	const struct device_shape *y = &node->node->y->shape;

	return malloc((size_t)y->w * y->c * sizeof(float));
}

static int tokens_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	struct pos_embed_size size;

	if (!device_node_resizes(node->node, &size))
		return 0;
	node->resized = tokens_floats(node);
	return node->resized ? 0 : -ENOMEM;
}

static int tokens_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	struct tokens_job job = tokens_job(exec, node);
	struct pos_embed_size size;
	float ones[KERNEL_WIDTH_MAX];

	for (size_t i = 0; i < KERNEL_WIDTH_MAX; i++)
		ones[i] = 1;
	job.from = node->x->data;
	job.to = node->y->data;
	job.positions = cpu_param_slot(n->positions, exec->weights);
	if (device_node_resizes(n, &size)) {
		pos_embed_resize(&size, job.positions, node->resized);
		job.positions = node->resized;
	}
	if (n->class_token)
		job.class_token = cpu_param_slot(n->class_token, exec->weights);
	job.ones = ones;
	thread_pool_run(&exec->device->thread_pool, TASKS, tokens_forward_task, &job);
	return 0;
}

/* Without a class token, the gradient of x equals the gradient of y and uses its memory. */
static int tokens_plan_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	int r = 0;

	if (n->x->active && n->class_token)
		r = cpu_plan_gradient(exec, node, cpu_backward_step(exec, node));
	else if (n->x->active)
		cpu_contribute(exec, node->x, node->y->gradient_blocks[0]);
	if (r < 0 || !(device_param_trains(n->positions) || device_param_trains(n->class_token)))
		return r;
	node->sums = tokens_floats(node);
	node->own_sums = malloc(n->positions->elements * sizeof(float));
	return node->sums && node->own_sums ? 0 : -ENOMEM;
}

static void tokens_dx_task(void *context, uint32_t task, unsigned thread)
{
	const struct tokens_job *job = context;
	size_t first = job->tokens - job->places;

	for (size_t n = job->samples * task / TASKS; n < job->samples * (task + 1) / TASKS; n++)
		memcpy(job->to + tokens_bytes(job, n * job->places),
		       job->from + tokens_bytes(job, n * job->tokens + first),
		       tokens_bytes(job, job->places));
}

/* Sums a token's channels over samples. */
static void tokens_sum(const struct tokens_job *job, size_t token, size_t c)
{
	double sums[KERNEL_WIDTH_MAX] = {0};
	size_t width = tokens_width(job, c);

	job->kernels->reduce(
		&(struct reduce_args){
			.gradient = {job->from + tokens_bytes(job, token) +
				     c * element_size(job->element)},
			.element = job->element,
			.slope = SLOPE_ONE,
		},
		job->samples, job->tokens * job->channels, width, sums, NULL);
	for (size_t i = 0; i < width; i++)
		job->sums[token * job->channels + c + i] = (float)sums[i];
}

static void tokens_sums_task(void *context, uint32_t task, unsigned thread)
{
	const struct tokens_job *job = context;
	size_t first = job->tokens * task / TASKS, end = job->tokens * (task + 1) / TASKS;

	for (size_t token = first; token < end; token++)
		for (size_t c = 0; c < job->channels; c += KERNEL_WIDTH_MAX)
			tokens_sum(job, token, c);
}

static int tokens_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	struct tokens_job job = tokens_job(exec, node);
	struct pos_embed_size size;
	bool resizes = device_node_resizes(n, &size);

	cpu_sum_gradients(exec, node, 1);
	job.from = node->y->gradients[0];
	job.to = cpu_block(exec, node->dx_block);
	job.sums = node->sums;
	if (job.to)
		thread_pool_run(&exec->device->thread_pool, TASKS, tokens_dx_task, &job);
	if (job.sums)
		thread_pool_run(&exec->device->thread_pool, TASKS, tokens_sums_task, &job);
	if (resizes && device_param_trains(n->positions))
		pos_embed_resize_backward(&size, job.sums, node->own_sums);
	if (device_param_trains(n->positions))
		cpu_param_add_gradient(n->positions, resizes ? node->own_sums : job.sums);
	if (device_param_trains(n->class_token))
		cpu_param_add_gradient(n->class_token, job.sums);
	return 0;
}

const struct cpu_node_ops cpu_pos_embed_ops = {
	.plan = tokens_plan,
	.plan_backward = tokens_plan_backward,
	.forward = tokens_forward,
	.backward = tokens_backward,
};

/* ---- taking a token ---- */

static int take_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	struct tokens_job job = tokens_job(exec, node);

	for (size_t n = 0; n < job.samples; n++)
		memcpy((char *)node->y->data + tokens_bytes(&job, n),
		       (const char *)node->x->data + tokens_bytes(&job, n * job.places + job.taken),
		       tokens_bytes(&job, 1));
	return 0;
}

static int take_plan_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	return node->node->x->active ? cpu_plan_gradient(exec, node, cpu_backward_step(exec, node))
				     : 0;
}

static void take_task(void *context, uint32_t task, unsigned thread)
{
	const struct tokens_job *job = context;

	for (size_t n = job->samples * task / TASKS; n < job->samples * (task + 1) / TASKS; n++) {
		char *dx = job->to + tokens_bytes(job, n * job->places);

		memset(dx, 0, tokens_bytes(job, job->places));
		memcpy(dx + tokens_bytes(job, job->taken), job->from + tokens_bytes(job, n),
		       tokens_bytes(job, 1));
	}
}

static int take_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	struct tokens_job job = tokens_job(exec, node);

	if (!node->node->x->active)
		return 0;
	cpu_sum_gradients(exec, node, 1);
	job.from = node->y->gradients[0];
	job.to = cpu_block(exec, node->dx_block);
	thread_pool_run(&exec->device->thread_pool, TASKS, take_task, &job);
	return 0;
}

const struct cpu_node_ops cpu_select_token_ops = {
	.plan_backward = take_plan_backward,
	.forward = take_forward,
	.backward = take_backward,
};
