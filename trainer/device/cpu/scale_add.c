/*
 * Scale and add: y = activation(residual + s x), sample by sample, since gate and draws are per
 * sample. One pass forward, one backward: backward sums dz x over a sample's positions, which gives
 * the gradients of its gate and, summed over samples, of gamma. Backward regenerates the random
 * draws.
 */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A thread's buffers for a sample: scale and factors [channels], and the sums of dz x. */
struct share {
	float *scale, *gate;
	double *product;
};

static size_t share_bytes(uint32_t channels)
{
	return ((size_t)channels * (2 * sizeof(float) + sizeof(double)) + 63) / 64 * 64;
}

static struct share share_of(const struct cpu_node *node, unsigned thread)
{
	uint32_t channels = node->node->y->shape.c;
	char *memory = (char *)node->norm_act.memory + thread * share_bytes(channels);
	double *product = (double *)memory;
	float *scale = (float *)(product + channels);

	return (struct share){scale, scale + channels, product};
}

struct scale_add_job {
	struct cpu_exec *exec;
	struct cpu_node *node;
	struct dropout_key key;
	struct dropout_rate path, dropout;
	const float *gamma; /* or NULL */
	void *dgate;        /* or NULL */
	bool stores_dz, products, sums_gamma;
	uint32_t tasks;
};

static struct scale_add_job scale_add_job(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	uint32_t samples = n->y->shape.n;

	return (struct scale_add_job){
		.exec = exec,
		.node = node,
		.key = dropout_key(&exec->draws, n->scale.layer),
		.path = dropout_rate(n->scale.drop_path),
		.dropout = dropout_rate(n->scale.dropout),
		.gamma = n->gamma ? cpu_param_slot(n->gamma, exec->weights) : NULL,
		.tasks = samples < LOOPS_TASKS_MAX ? samples : LOOPS_TASKS_MAX,
	};
}

static int scale_add_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	uint32_t channels = node->node->y->shape.c;
	int r = loops_reserve(&exec->device->loops, channels);

	if (r < 0)
		return r;
	node->norm_act.memory =
		aligned_alloc(64, exec->device->thread_pool.threads * share_bytes(channels));
	return node->norm_act.memory ? 0 : -ENOMEM;
}

/*
 * The memory of y's gradient is reused: for the gradient before the activation, which is also the
 * residual's; or, if the residual needs no gradient, for the gradient of x.
 */
static int scale_add_plan_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	uint32_t step = cpu_backward_step(exec, node), first = node->y->gradient_blocks[0];
	bool passes_on = n->residual && n->residual->active;
	bool gates = n->gate && n->gate->active;
	int r = 0;

	if (n->activation == DEVICE_RELU)
		arena_extend(&exec->arena, node->y->block, step);
	if (gates || device_param_trains(n->gamma))
		arena_extend(&exec->arena, node->x->block, step);
	if (node->gate)
		arena_extend(&exec->arena, node->gate->block, step);
	if (passes_on)
		cpu_contribute(exec, node->residual, first);
	if (n->x->active && passes_on)
		r = cpu_plan_gradient(exec, node, step);
	else if (n->x->active)
		cpu_contribute(exec, node->x, node->dx_block = first);
	if (r == 0 && gates) {
		r = cpu_add_block(exec, cpu_value_bytes(n->gate, exec->device->element), step,
				  &node->workspace_block);
		if (r == 0)
			cpu_contribute(exec, node->gate, node->workspace_block);
	}
	return r;
}

/* Computes the factor of a sample's x. gate receives its per-sample part: gate and drop-path. */
static void find_scale(const struct scale_add_job *job, uint32_t sample, const struct share *share)
{
	const struct cpu_node *node = job->node;
	const struct cpu_value *gate = node->gate;
	uint32_t channels = node->node->y->shape.c;
	uint32_t word = dropout_sample(job->key, job->exec->draws.first + sample);
	float path = dropout_factor(job->path, word);

	for (uint32_t c = 0; c < channels; c++)
		share->gate[c] = 1;
	if (gate)
		job->exec->device->loops.kernels->convert(
			share->gate, ELEMENT_F32,
			(const char *)gate->data +
				(size_t)sample * channels * element_size(gate->element),
			gate->element, channels);
	for (uint32_t c = 0; c < channels; c++) {
		share->gate[c] *= path;
		share->scale[c] = share->gate[c] * (job->gamma ? job->gamma[c] : 1);
	}
}

/* Address of the sample in a tensor; NULL for NULL. */
static void *part(const struct scale_add_job *job, void *data, uint32_t sample)
{
	struct device_shape shape = job->node->node->y->shape;
	size_t size = (size_t)shape.h * shape.w * shape.c;

	return data ? (char *)data + sample * size * element_size(job->exec->device->element)
		    : NULL;
}

static struct scale_add_args sample_args(const struct scale_add_job *job, uint32_t sample,
					 const struct share *share)
{
	const struct cpu_node *node = job->node;
	struct device_shape shape = node->node->y->shape;

	return (struct scale_add_args){
		.x = part(job, node->x->data, sample),
		.y = part(job, node->y->data, sample),
		.element = job->exec->device->element,
		.activation = node->node->activation,
		.rows = (size_t)shape.h * shape.w,
		.channels = shape.c,
		.scale = share->scale,
		.dropout = job->dropout,
		.key = job->key,
		.sample = job->exec->draws.first + sample,
	};
}

static void forward_task(void *context, uint32_t task, unsigned thread)
{
	const struct scale_add_job *job = context;
	const struct cpu_node *node = job->node;
	uint32_t samples = node->node->y->shape.n;
	struct share share = share_of(node, thread);

	for (uint32_t i = (uint32_t)((uint64_t)samples * task / job->tasks);
	     i < (uint64_t)samples * (task + 1) / job->tasks; i++) {
		find_scale(job, i, &share);
		struct scale_add_args args = sample_args(job, i, &share);
		args.residual = node->residual ? part(job, node->residual->data, i) : NULL;
		job->exec->device->loops.kernels->scale_add(&args);
	}
}

static int scale_add_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	struct scale_add_job job = scale_add_job(exec, node);

	thread_pool_run(&exec->device->thread_pool, job.tasks, forward_task, &job);
	return 0;
}

/*
 * Computes, from the sums over a sample's positions, the gradient of its gate and its contribution
 * to the gradient of gamma.
 */
static void gradients_from_sums(const struct scale_add_job *job, uint32_t sample,
				const struct share *share, float path, double *dgamma)
{
	uint32_t channels = job->node->node->y->shape.c;
	enum element element = job->exec->device->element;
	float *dgate = share->scale; /* reuse: scale is no longer needed */

	for (uint32_t c = 0; dgamma && c < channels; c++)
		dgamma[c] += share->product[c] * (double)share->gate[c];
	if (!job->dgate)
		return;
	for (uint32_t c = 0; c < channels; c++)
		dgate[c] = (float)share->product[c] * path * (job->gamma ? job->gamma[c] : 1);
	job->exec->device->loops.kernels->convert(
		(char *)job->dgate + (size_t)sample * channels * element_size(element), element,
		dgate, ELEMENT_F32, channels);
}

static void backward_sample(const struct scale_add_job *job, uint32_t sample,
			    const struct share *share, double *dgamma)
{
	const struct cpu_node *node = job->node;
	const struct cpu_value *y = node->y;
	uint32_t word = dropout_sample(job->key, job->exec->draws.first + sample);

	find_scale(job, sample, share);
	struct scale_add_args args = sample_args(job, sample, share);
	args.gradient[0] = part(job, y->gradients[0], sample);
	args.gradient[1] = y->gradient_count > 1 ? part(job, y->gradients[1], sample) : NULL;
	args.dz = job->stores_dz ? part(job, y->gradients[0], sample) : NULL;
	args.dx = part(job, cpu_block(job->exec, node->dx_block), sample);
	if (job->products)
		memset(share->product, 0, args.channels * sizeof(double));
	job->exec->device->loops.kernels->scale_add_backward(&args,
							     job->products ? share->product : NULL);
	if (job->products)
		gradients_from_sums(job, sample, share, dropout_factor(job->path, word), dgamma);
}

static void backward_task(void *context, uint32_t task, unsigned thread)
{
	const struct scale_add_job *job = context;
	struct device_shape shape = job->node->node->y->shape;
	struct share share = share_of(job->node, thread);
	double *dgamma = NULL;

	if (job->sums_gamma) {
		dgamma = job->exec->device->loops.partial + (size_t)task * shape.c;
		memset(dgamma, 0, shape.c * sizeof(double));
	}
	for (uint32_t i = (uint32_t)((uint64_t)shape.n * task / job->tasks);
	     i < (uint64_t)shape.n * (task + 1) / job->tasks; i++)
		backward_sample(job, i, &share, dgamma);
}

/* Adds the tasks' parts of gamma's gradient in order. */
static void add_gamma(const struct scale_add_job *job)
{
	const struct loops *loops = &job->exec->device->loops;
	uint32_t channels = job->node->node->y->shape.c;
	float *sum = share_of(job->node, 0).scale;

	for (uint32_t c = 0; c < channels; c++) {
		double all = 0;

		for (uint32_t task = 0; task < job->tasks; task++)
			all += loops->partial[(size_t)task * channels + c];
		sum[c] = (float)all;
	}
	cpu_param_add_gradient(job->node->node->gamma, sum);
}

static int scale_add_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	struct scale_add_job job = scale_add_job(exec, node);
	bool passes_on = n->residual && n->residual->active;

	cpu_sum_gradients(exec, node, 2);
	job.dgate = cpu_block(exec, node->workspace_block);
	job.sums_gamma = device_param_trains(n->gamma);
	job.products = job.dgate || job.sums_gamma;
	job.stores_dz = passes_on && (node->y->gradient_count > 1 || n->activation == DEVICE_RELU);
	if (job.products || job.stores_dz || n->x->active)
		thread_pool_run(&exec->device->thread_pool, job.tasks, backward_task, &job);
	if (job.sums_gamma)
		add_gamma(&job);
	return 0;
}

const struct cpu_node_ops cpu_scale_add_ops = {
	.plan = scale_add_plan,
	.plan_backward = scale_add_plan_backward,
	.forward = scale_add_forward,
	.backward = scale_add_backward,
};
