/*
 * Pools. In fp32, max pools with windows of at most MAX_POOL_TAPS elements (the window of a global
 * pool is the image) use kernels_pooling.c, since oneDNN takes five times as long in training. The
 * global average is also a local kernel. Other pools use oneDNN.
 */
#include "trainer/device/cpu/cpu.h"

#include <stdio.h>

#define IMAGES_TASKS 32

static struct onednn_pool pooling_describe(const struct cpu_exec *exec, const struct cpu_node *node)
{
	const struct device_node *n = node->node;
	dnnl_data_type_t type = cpu_type(exec->device->element);

	return (struct onednn_pool){
		.kind = node->ops->pooling,
		.x = cpu_describe(n->x->shape, type, dnnl_nhwc),
		.y = cpu_describe(n->y->shape, type, dnnl_nhwc),
		.window = cpu_window(n),
	};
}

static int pooling_create(struct cpu_exec *exec, struct cpu_node *node, dnnl_prop_kind_t pass,
			  const_dnnl_primitive_desc_t forward, struct cpu_op *op)
{
	struct onednn_pool pool = pooling_describe(exec, node);
	struct onednn_choice choice = {exec->device->engine, exec->device->attributes, forward,
				       NULL};
	int r = cpu_status(onednn_pool(&choice, pass, &pool, &op->desc));

	return r < 0 ? r : cpu_op_create(exec, op);
}

/* ---- max pools in fp32 ---- */

static bool is_own_max(const struct cpu_exec *exec, const struct cpu_node *node)
{
	const struct device_node *n = node->node;

	return exec->device->element == ELEMENT_F32 && node->ops->pooling == dnnl_pooling_max &&
	       (uint64_t)n->window_h * n->window_w <= MAX_POOL_TAPS;
}

static int max_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	return cpu_training(exec) ? cpu_add_block(exec, device_shape_elements(node->node->y->shape),
						  node->node->index, &node->workspace_block)
				  : 0;
}

struct max_job {
	const struct cpu_exec *exec;
	const struct cpu_node *node;
	bool backward;
};

static void max_task(void *context, uint32_t image, unsigned thread)
{
	const struct max_job *job = context;
	const struct cpu_node *node = job->node;
	const struct kernels *kernels = job->exec->device->loops.kernels;
	const struct device_node *n = node->node;
	struct device_shape x = n->x->shape, y = n->y->shape;
	size_t in = (size_t)x.h * x.w * x.c * image, out = (size_t)y.h * y.w * y.c * image;
	uint8_t *taps = cpu_block(job->exec, node->workspace_block);
	struct max_pool_args args = {
		.x = (const float *)node->x->data + in,
		.y = (float *)node->y->data + out,
		.taps = taps ? taps + out : NULL,
		.h = x.h,
		.w = x.w,
		.c = x.c,
		.p = y.h,
		.q = y.w,
		.window_h = n->window_h,
		.window_w = n->window_w,
		.stride = n->stride,
		.pad = n->pad,
	};

	if (!job->backward) {
		kernels->max_pool(&args);
		return;
	}
	args.gradient = (const float *)node->y->gradients[0] + out;
	args.dx = (float *)cpu_block(job->exec, node->dx_block) + in;
	kernels->max_pool_backward(&args);
}

static int max_run(struct cpu_exec *exec, struct cpu_node *node, bool backward)
{
	struct max_job job = {exec, node, backward};

	thread_pool_run(&exec->device->thread_pool, node->node->x->shape.n, max_task, &job);
	return 0;
}

/* ---- windows ---- */

static int pooling_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	if (is_own_max(exec, node))
		return max_plan(exec, node);
	int r = pooling_create(exec, node,
			       cpu_training(exec) ? dnnl_forward_training : dnnl_forward_inference,
			       NULL, &node->forward);
	if (r < 0)
		return r;
	snprintf(node->engine, sizeof(node->engine), "%s", onednn_name(node->forward.desc));
	size_t workspace = onednn_bytes(node->forward.desc, DNNL_ARG_WORKSPACE);
	return cpu_training(exec) && workspace
		       ? cpu_add_block(exec, workspace, node->node->index, &node->workspace_block)
		       : 0;
}

/* Plans a separate block for the gradient of x. */
static int pooling_plan_gradient(struct cpu_exec *exec, struct cpu_node *node)
{
	return node->node->x->active ? cpu_plan_gradient(exec, node, cpu_backward_step(exec, node))
				     : 0;
}

static int pooling_plan_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	int r = pooling_plan_gradient(exec, node);

	if (r < 0 || !node->node->x->active)
		return r;
	if (node->workspace_block != CPU_NO_BLOCK)
		arena_extend(&exec->arena, node->workspace_block, cpu_backward_step(exec, node));
	if (is_own_max(exec, node))
		return 0;
	return pooling_create(exec, node, dnnl_backward_data, node->forward.desc,
			      &node->backward_data);
}

static int pooling_bind(struct cpu_exec *exec, struct cpu_node *node)
{
	void *workspace = cpu_block(exec, node->workspace_block);
	const struct cpu_binding bindings[] = {
		{&node->forward,
		 {{DNNL_ARG_SRC, node->x->data},
		  {DNNL_ARG_DST, node->y->data},
		  {DNNL_ARG_WORKSPACE, workspace}}},
		{&node->backward_data,
		 {{DNNL_ARG_DIFF_DST, node->y->gradients[0]},
		  {DNNL_ARG_DIFF_SRC, cpu_block(exec, node->dx_block)},
		  {DNNL_ARG_WORKSPACE, workspace}}},
	};

	return cpu_bind(exec, bindings, 2);
}

static int pooling_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	return is_own_max(exec, node) ? max_run(exec, node, false)
				      : cpu_op_run(exec, &node->forward);
}

static int pooling_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	cpu_sum_gradients(exec, node, 1);
	if (!is_own_max(exec, node))
		return cpu_op_run(exec, &node->backward_data);
	return max_run(exec, node, true);
}

#define POOLING                                                                                    \
	.plan = pooling_plan, .plan_backward = pooling_plan_backward, .bind = pooling_bind,        \
	.forward = pooling_forward, .backward = pooling_backward

const struct cpu_node_ops cpu_max_pool_ops = {POOLING, .pooling = dnnl_pooling_max};
const struct cpu_node_ops cpu_average_pool_ops = {POOLING,
						  .pooling = dnnl_pooling_avg_exclude_padding};
const struct cpu_node_ops cpu_global_max_pool_ops = {POOLING, .pooling = dnnl_pooling_max};

/* ---- global average ---- */

struct average_job {
	const struct kernels *kernels;
	const char *from;
	char *to;
	enum element element;
	size_t images, positions, channels;
	bool backward;
};

static void average_task(void *context, uint32_t task, unsigned thread)
{
	const struct average_job *job = context;
	size_t size = element_size(job->element), image = job->positions * job->channels * size,
	       row = job->channels * size;

	for (size_t n = job->images * task / IMAGES_TASKS;
	     n < job->images * (task + 1) / IMAGES_TASKS; n++) {
		if (job->backward)
			job->kernels->column_spread(job->to + n * image, job->from + n * row,
						    job->element, job->positions, job->channels);
		else
			job->kernels->column_mean(job->to + n * row, job->from + n * image,
						  job->element, job->positions, job->channels);
	}
}

static void run_average(struct cpu_exec *exec, struct cpu_node *node, const void *from, void *to,
			bool backward)
{
	struct device_shape shape = node->node->x->shape;
	struct average_job job = {
		.kernels = exec->device->loops.kernels,
		.from = from,
		.to = to,
		.element = exec->device->element,
		.images = shape.n,
		.positions = (size_t)shape.h * shape.w,
		.channels = shape.c,
		.backward = backward,
	};

	thread_pool_run(&exec->device->thread_pool, IMAGES_TASKS, average_task, &job);
}

static int average_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	run_average(exec, node, node->x->data, node->y->data, false);
	return 0;
}

static int average_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	if (!node->node->x->active)
		return 0;
	cpu_sum_gradients(exec, node, 1);
	run_average(exec, node, node->y->gradients[0], cpu_block(exec, node->dx_block), true);
	return 0;
}

const struct cpu_node_ops cpu_global_average_pool_ops = {
	.plan_backward = pooling_plan_gradient,
	.forward = average_forward,
	.backward = average_backward,
};
