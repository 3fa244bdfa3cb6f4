/*
 * Pools: oneDNN's for windows (a global maximum is a window as large as the image), ours for the
 * global average.
 */
#include "trainer/device/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

#define IMAGES_TASKS 32

static int describe(struct cpu_graph *graph, const struct cpu_node *node, dnnl_memory_desc_t *x,
		    dnnl_memory_desc_t *y)
{
	dnnl_data_type_t type = cpu_type(graph->device->element);
	int r = cpu_describe(x, node->node->x->shape, type, dnnl_nhwc);

	return r < 0 ? r : cpu_describe(y, node->node->y->shape, type, dnnl_nhwc);
}

struct window {
	dnnl_dims_t strides, kernel, padding;
	dnnl_alg_kind_t algorithm;
};

static struct window window(const struct device_node *node)
{
	bool global = node->kind == DEVICE_NODE_GLOBAL_MAX_POOL;
	int64_t height = node->x->shape.h, width = node->x->shape.w, pad = global ? 0 : node->pad;
	struct window w = {
		.algorithm = node->kind == DEVICE_NODE_AVERAGE_POOL
				     ? dnnl_pooling_avg_exclude_padding
				     : dnnl_pooling_max,
		.strides = {global ? 1 : node->stride, global ? 1 : node->stride},
		.kernel = {global ? height : node->window_h, global ? width : node->window_w},
		.padding = {pad, pad},
	};

	return w;
}

static int pooling_plan(struct cpu_graph *graph, struct cpu_node *node)
{
	struct window w = window(node->node);
	dnnl_memory_desc_t x, y;
	dnnl_pooling_desc_t pooling;
	const dnnl_memory_desc_t *workspace;
	const char *engine = "";
	int r = describe(graph, node, &x, &y);

	if (r == 0)
		r = cpu_status(dnnl_pooling_forward_desc_init(
			&pooling,
			cpu_training(graph) ? dnnl_forward_training : dnnl_forward_inference,
			w.algorithm, &x, &y, w.strides, w.kernel, w.padding, w.padding));
	if (r == 0)
		r = cpu_op_new(graph, &node->forward, &pooling, NULL);
	if (r == 0)
		r = cpu_add_result(graph, node, graph->device->element);
	if (r < 0)
		return r;
	dnnl_primitive_desc_query(node->forward.desc, dnnl_query_impl_info_str, 0, &engine);
	snprintf(node->engine, sizeof(node->engine), "%s", engine);
	workspace = cpu_op_part(&node->forward, dnnl_query_workspace_md);
	if (cpu_training(graph) && workspace && dnnl_memory_desc_get_size(workspace))
		r = cpu_add_block(graph, dnnl_memory_desc_get_size(workspace),
				  cpu_forward_step(node), &node->workspace_block);
	return r;
}

/* The gradient of x gets a block of its own, all contributions to y's are live. */
static int plan_gradient(struct cpu_graph *graph, struct cpu_node *node)
{
	uint32_t step = cpu_backward_step(graph, node);
	int r;

	for (uint32_t i = 0; i < node->y->gradient_count; i++)
		arena_extend(&graph->arena, node->y->gradient_blocks[i], step);
	if (!node->node->x->active)
		return 0;
	r = cpu_add_block(graph, cpu_value_bytes(graph, node->node->x, graph->device->element),
			  step, &node->dx_block);
	if (r == 0)
		cpu_contribute(graph, node->x, node->dx_block);
	return r;
}

static int pooling_plan_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	struct window w = window(node->node);
	dnnl_memory_desc_t x, y;
	dnnl_pooling_desc_t pooling;
	int r = plan_gradient(graph, node);

	if (r < 0 || !node->node->x->active)
		return r;
	if (node->workspace_block != CPU_NO_BLOCK)
		arena_extend(&graph->arena, node->workspace_block, cpu_backward_step(graph, node));
	r = describe(graph, node, &x, &y);
	if (r == 0)
		r = cpu_status(dnnl_pooling_backward_desc_init(
			&pooling, w.algorithm, &x, &y, w.strides, w.kernel, w.padding, w.padding));
	return r < 0 ? r : cpu_op_new(graph, &node->backward_data, &pooling, node->forward.desc);
}

static int bind_one(struct cpu_graph *graph, struct cpu_op *op, int argument, dnnl_query_t what,
		    void *data)
{
	return cpu_op_bind(graph, op, argument, cpu_op_part(op, what), data);
}

static int pooling_bind(struct cpu_graph *graph, struct cpu_node *node)
{
	void *workspace = cpu_block(graph, node->workspace_block);
	int r = bind_one(graph, &node->forward, DNNL_ARG_SRC, dnnl_query_src_md, node->x->data);

	if (r == 0)
		r = bind_one(graph, &node->forward, DNNL_ARG_DST, dnnl_query_dst_md, node->y->data);
	if (r == 0 && workspace)
		r = bind_one(graph, &node->forward, DNNL_ARG_WORKSPACE, dnnl_query_workspace_md,
			     workspace);
	if (r == 0)
		r = cpu_op_bind_scratchpad(graph, &node->forward);
	if (r < 0 || !node->backward_data.primitive)
		return r;
	r = bind_one(graph, &node->backward_data, DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md,
		     node->y->gradients[0]);
	if (r == 0)
		r = bind_one(graph, &node->backward_data, DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md,
			     cpu_block(graph, node->dx_block));
	if (r == 0 && workspace)
		r = bind_one(graph, &node->backward_data, DNNL_ARG_WORKSPACE,
			     dnnl_query_workspace_md, workspace);
	return r < 0 ? r : cpu_op_bind_scratchpad(graph, &node->backward_data);
}

static int pooling_forward(struct cpu_graph *graph, struct cpu_node *node)
{
	return cpu_op_run(graph, &node->forward);
}

/* Adds all contributions to y's gradient into the first. */
static void sum_gradients(struct cpu_graph *graph, struct cpu_node *node)
{
	for (uint32_t i = 1; i < node->y->gradient_count; i++)
		loops_add(&graph->device->loops, node->y->gradients[0], node->y->gradients[i],
			  graph->device->element, device_shape_elements(node->node->y->shape));
}

static int pooling_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	if (!node->backward_data.primitive)
		return 0;
	sum_gradients(graph, node);
	return cpu_op_run(graph, &node->backward_data);
}

static void pooling_release(struct cpu_node *node)
{
	cpu_op_release(&node->forward);
	cpu_op_release(&node->backward_data);
}

#define POOLING                                                                                    \
	{                                                                                          \
		.plan = pooling_plan, .plan_backward = pooling_plan_backward,                      \
		.bind = pooling_bind, .forward = pooling_forward, .backward = pooling_backward,    \
		.release = pooling_release,                                                        \
	}

const struct cpu_node_ops cpu_max_pool_ops = POOLING;
const struct cpu_node_ops cpu_average_pool_ops = POOLING;
const struct cpu_node_ops cpu_global_max_pool_ops = POOLING;

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

static void run_average(struct cpu_graph *graph, struct cpu_node *node, const void *from, void *to,
			bool backward)
{
	struct device_shape shape = node->node->x->shape;
	struct average_job job = {
		.kernels = graph->device->loops.kernels,
		.from = from,
		.to = to,
		.element = graph->device->element,
		.images = shape.n,
		.positions = (size_t)shape.h * shape.w,
		.channels = shape.c,
		.backward = backward,
	};

	team_run(&graph->device->team, IMAGES_TASKS, average_task, &job);
}

static int average_plan(struct cpu_graph *graph, struct cpu_node *node)
{
	strcpy(node->engine, "own");
	return cpu_add_result(graph, node, graph->device->element);
}

static int average_forward(struct cpu_graph *graph, struct cpu_node *node)
{
	run_average(graph, node, node->x->data, node->y->data, false);
	return 0;
}

static int average_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	if (!node->node->x->active)
		return 0;
	sum_gradients(graph, node);
	run_average(graph, node, node->y->gradients[0], cpu_block(graph, node->dx_block), true);
	return 0;
}

const struct cpu_node_ops cpu_global_average_pool_ops = {
	.plan = average_plan,
	.plan_backward = plan_gradient,
	.forward = average_forward,
	.backward = average_backward,
};
