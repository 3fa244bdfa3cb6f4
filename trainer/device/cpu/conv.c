/*
 * Convolutions and linear layers as conv_plan.c has planned them: bound to their memory, prepared
 * with the weights of the moment, and run.
 */
#include "trainer/device/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

static int bind_reorder(struct cpu_graph *graph, struct cpu_op *op, void *from, void *to)
{
	int r = cpu_op_bind(graph, op, DNNL_ARG_FROM, cpu_op_part(op, dnnl_query_src_md), from);

	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_TO, cpu_op_part(op, dnnl_query_dst_md), to);
	return r < 0 ? r : cpu_op_bind_scratchpad(graph, op);
}

static int bind_forward(struct cpu_graph *graph, struct cpu_node *node)
{
	struct cpu_op *op = &node->forward;
	void *y = node->direct ? node->y->data : cpu_block(graph, node->raw_block);
	float *bias = cpu_training(graph) && node->node->bias
			      ? cpu_param_slot(node->node->bias, DEVICE_VALUE)
			      : node->folded_bias;
	int r = cpu_op_bind(graph, op, DNNL_ARG_SRC, cpu_op_part(op, dnnl_query_src_md),
			    node->x->data);

	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_WEIGHTS, cpu_op_part(op, dnnl_query_weights_md),
				node->weights_forward);
	if (r == 0 && cpu_conv_has_bias(graph, node->node))
		r = cpu_op_bind(graph, op, DNNL_ARG_BIAS,
				dnnl_primitive_desc_query_md(op->desc, dnnl_query_weights_md, 1),
				bias);
	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_DST, cpu_op_part(op, dnnl_query_dst_md), y);
	if (r == 0 && !cpu_training(graph) && node->direct && node->residual)
		r = cpu_op_bind(graph, op, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
				cpu_op_part(op, dnnl_query_dst_md), node->residual->data);
	if (r == 0)
		r = cpu_op_bind_scratchpad(graph, op);
	return r < 0 ? r
		     : bind_reorder(graph, &node->reorder_forward,
				    cpu_param_slot(node->node->weight, DEVICE_VALUE),
				    node->weights_forward);
}

static int bind_backward_data(struct cpu_graph *graph, struct cpu_node *node)
{
	struct cpu_op *op = &node->backward_data;
	int r = cpu_op_bind(graph, op, DNNL_ARG_DIFF_DST, cpu_op_part(op, dnnl_query_diff_dst_md),
			    node->post.dx);

	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_WEIGHTS, cpu_op_part(op, dnnl_query_weights_md),
				node->weights_backward);
	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_DIFF_SRC,
				cpu_op_part(op, dnnl_query_diff_src_md),
				cpu_block(graph, node->dx_block));
	if (r == 0)
		r = cpu_op_bind_scratchpad(graph, op);
	return r < 0 ? r
		     : bind_reorder(graph, &node->reorder_backward,
				    cpu_param_slot(node->node->weight, DEVICE_VALUE),
				    node->weights_backward);
}

static int bind_backward_weights(struct cpu_graph *graph, struct cpu_node *node)
{
	struct cpu_op *op = &node->backward_weights;
	void *gradient = cpu_block(graph, node->weights_gradient_block);
	float *master = cpu_param_slot(node->node->weight, DEVICE_GRAD);
	int r = cpu_op_bind(graph, op, DNNL_ARG_SRC, cpu_op_part(op, dnnl_query_src_md),
			    node->x->data);

	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_DIFF_DST,
				cpu_op_part(op, dnnl_query_diff_dst_md), node->post.dx);
	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_DIFF_WEIGHTS,
				cpu_op_part(op, dnnl_query_diff_weights_md), gradient);
	if (r == 0)
		r = cpu_op_bind_scratchpad(graph, op);
	if (r == 0)
		r = bind_reorder(graph, &node->reorder_gradient, gradient, master);
	return r < 0 ? r : bind_reorder(graph, &node->reorder_gradient_add, gradient, master);
}

static int conv_bind(struct cpu_graph *graph, struct cpu_node *node)
{
	int r;

	cpu_post_bind(graph, node, cpu_block(graph, node->raw_block));
	r = bind_forward(graph, node);
	if (r == 0 && node->backward_data.primitive)
		r = bind_backward_data(graph, node);
	if (r == 0 && node->backward_weights.primitive)
		r = bind_backward_weights(graph, node);
	return r;
}

struct fold_job {
	const float *weights; /* [K][row] */
	const float *scale;   /* [K] */
	float *folded;        /* [K][row] */
	size_t row;
};

static void fold_task(void *context, uint32_t task, unsigned thread)
{
	const struct fold_job *job = context;
	const float *from = job->weights + task * job->row;
	float *to = job->folded + task * job->row, scale = job->scale[task];

	for (size_t i = 0; i < job->row; i++)
		to[i] = from[i] * scale;
}

/* Evaluation: weights, scaled by the norm, in the primitive's format; and the bias. */
static int prepare_evaluation(struct cpu_graph *graph, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	float *weights = cpu_param_slot(n->weight, graph->weights);
	uint32_t channels = n->y->shape.c;
	float *scale = node->folded_bias + channels;
	int r;

	if (n->has_norm) {
		struct fold_job job = {weights, scale, graph->fold, n->weight->elements / channels};

		cpu_running_affine(node, graph->weights, scale, node->folded_bias);
		team_run(&graph->device->team, channels, fold_task, &job);
		weights = graph->fold;
	} else if (n->bias) {
		memcpy(node->folded_bias, cpu_param_slot(n->bias, graph->weights),
		       channels * sizeof(float));
	}
	r = cpu_status(dnnl_memory_set_data_handle(node->reorder_forward.args[0].memory, weights));
	return r < 0 ? r : cpu_op_run(graph, &node->reorder_forward);
}

static int prepare(struct cpu_graph *graph, struct cpu_node *node)
{
	const struct cpu_params *params = graph->params;
	bool evaluates = !cpu_training(graph);
	int r;

	if (node->weights_version == params->weights_version &&
	    (!evaluates || (node->buffers_version == params->buffers_version &&
			    node->prepared == graph->weights)))
		return 0;
	r = evaluates ? prepare_evaluation(graph, node) : cpu_op_run(graph, &node->reorder_forward);
	if (r == 0 && node->backward_data.primitive)
		r = cpu_op_run(graph, &node->reorder_backward);
	if (r < 0)
		return r;
	node->weights_version = params->weights_version;
	node->buffers_version = params->buffers_version;
	node->prepared = graph->weights;
	return 0;
}

static int conv_forward(struct cpu_graph *graph, struct cpu_node *node)
{
	int r = prepare(graph, node);

	if (r == 0)
		r = cpu_op_run(graph, &node->forward);
	return r == 0 && node->post.present ? cpu_post_forward(graph, node) : r;
}

static int conv_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	int r = cpu_post_backward(graph, node);

	if (r == 0 && node->backward_weights.primitive) {
		r = cpu_op_run(graph, &node->backward_weights);
		if (r == 0)
			r = cpu_op_run(graph, cpu_param_take_fresh(node->node->weight)
						      ? &node->reorder_gradient
						      : &node->reorder_gradient_add);
	}
	if (r == 0 && node->backward_data.primitive)
		r = cpu_op_run(graph, &node->backward_data);
	return r;
}

static void conv_release(struct cpu_node *node)
{
	cpu_op_release(&node->forward);
	cpu_op_release(&node->backward_data);
	cpu_op_release(&node->backward_weights);
	cpu_op_release(&node->reorder_forward);
	cpu_op_release(&node->reorder_backward);
	cpu_op_release(&node->reorder_gradient);
	cpu_op_release(&node->reorder_gradient_add);
	free(node->weights_forward);
	free(node->weights_backward);
	free(node->folded_bias);
	cpu_post_release(node);
}

#define CONVOLUTION                                                                                \
	{                                                                                          \
		.plan = cpu_conv_plan, .plan_backward = cpu_conv_plan_backward, .bind = conv_bind, \
		.forward = conv_forward, .backward = conv_backward, .release = conv_release,       \
	}

const struct cpu_node_ops cpu_conv_ops = CONVOLUTION;
const struct cpu_node_ops cpu_linear_ops = CONVOLUTION;
