/*
 * Runs convolutions and linear layers that conv_plan.c planned: binds memory, prepares weights
 * after they change, and runs the primitives.
 */
#include "trainer/device/cpu/cpu.h"

#include <string.h>

/* [K], or NULL */
static float *conv_bias(const struct cpu_exec *exec, const struct cpu_node *node)
{
	if (!cpu_conv_has_bias(exec, node->node))
		return NULL;
	return cpu_infers(exec, node->node) ? node->folded_bias
					    : cpu_param_slot(node->node->bias, DEVICE_VALUE);
}

static int conv_bind(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	struct cpu_norm_act *norm_act = &node->norm_act;
	bool infers = cpu_infers(exec, n), fuses = infers && node->direct && node->residual;
	float *weight = cpu_weight(exec, n->weight, DEVICE_VALUE),
	      *weight_gradient = cpu_param_gradient(n->weight);
	float *bias = conv_bias(exec, node);
	void *gradient = cpu_block(exec, node->weights_gradient_block);
	int r = cpu_norm_act_bind(exec, node);

	if (cpu_gathers(exec)) {
		node->weights_forward = cpu_block(exec, node->weights_forward_block);
		node->weights_backward = cpu_block(exec, node->weights_backward_block);
	}
	const struct cpu_binding bindings[] = {
		{&node->forward,
		 {{DNNL_ARG_SRC, node->x->data},
		  {DNNL_ARG_WEIGHTS, node->weights_forward},
		  {DNNL_ARG_BIAS, bias},
		  {DNNL_ARG_DST, norm_act->raw},
		  {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
		   fuses ? node->residual->data : NULL}}},
		{&node->reorder_forward,
		 {{DNNL_ARG_FROM, weight}, {DNNL_ARG_TO, node->weights_forward}}},
		{&node->backward_data,
		 {{DNNL_ARG_DIFF_DST, norm_act->dx},
		  {DNNL_ARG_WEIGHTS, node->weights_backward},
		  {DNNL_ARG_DIFF_SRC, cpu_block(exec, node->dx_block)}}},
		{&node->reorder_backward,
		 {{DNNL_ARG_FROM, weight}, {DNNL_ARG_TO, node->weights_backward}}},
		{&node->backward_weights,
		 {{DNNL_ARG_SRC, node->x->data},
		  {DNNL_ARG_DIFF_DST, norm_act->dx},
		  {DNNL_ARG_DIFF_WEIGHTS, gradient}}},
		{&node->reorder_gradient,
		 {{DNNL_ARG_FROM, gradient}, {DNNL_ARG_TO, weight_gradient}}},
		{&node->reorder_gradient_add,
		 {{DNNL_ARG_FROM, gradient}, {DNNL_ARG_TO, weight_gradient}}},
	};

	return r < 0 ? r : cpu_bind(exec, bindings, sizeof(bindings) / sizeof(*bindings));
}

struct fold_job {
	const float *weights; /* [K][row] */
	const float *scale;   /* [K] */
	float *folded;        /* [K][row] */
	size_t row;
};

static void conv_fold_task(void *context, uint32_t task, unsigned thread)
{
	const struct fold_job *job = context;
	const float *from = job->weights + task * job->row;
	float *to = job->folded + task * job->row, scale = job->scale[task];

	for (size_t i = 0; i < job->row; i++)
		to[i] = from[i] * scale;
}

/*
 * Evaluation: scales the weights by the folded norm, converts them to the primitive's format, and
 * sets the bias.
 */
static int conv_prepare_evaluation(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	float *weights = cpu_weight(exec, n->weight, exec->weights);
	uint32_t channels = n->y->shape.c;
	float *scale = node->folded_bias + channels;

	if (n->has_norm) {
		struct fold_job job = {weights, scale, exec->fold, n->weight->elements / channels};

		cpu_running_affine(node, exec->weights, scale, node->folded_bias);
		thread_pool_run(&exec->device->thread_pool, channels, conv_fold_task, &job);
		weights = exec->fold;
	} else if (n->bias) {
		memcpy(node->folded_bias, cpu_param_slot(n->bias, exec->weights),
		       channels * sizeof(float));
	}
	if (node->winograd) {
		cpu_winograd_prepare(exec, node, weights);
		return 0;
	}
	int r = cpu_status(
		dnnl_memory_set_data_handle(node->reorder_forward.args[0].memory, weights));
	return r < 0 ? r : cpu_op_run(exec, &node->reorder_forward);
}

/* Makes the weights that the gradient of the data reads. */
static int conv_prepare_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	if (!node->winograd)
		return cpu_op_run(exec, &node->reorder_backward);
	if (node->weights_backward)
		cpu_winograd_prepare_backward(exec, node,
					      cpu_weight(exec, node->node->weight, DEVICE_VALUE));
	return 0;
}

/* Makes what forward reads, and what backward reads unless that is gathered again. */
static int conv_prepare(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct cpu_params *params = exec->params;
	bool evaluates = cpu_infers(exec, node->node);
	int r = 0;

	if (!cpu_gathers(exec) && node->weights_version == params->weights_version &&
	    (!evaluates ||
	     (node->buffers_version == params->buffers_version && node->prepared == exec->weights)))
		return 0;
	if (evaluates)
		r = conv_prepare_evaluation(exec, node);
	else if (node->winograd)
		cpu_winograd_prepare(exec, node,
				     cpu_weight(exec, node->node->weight, DEVICE_VALUE));
	else
		r = cpu_op_run(exec, &node->reorder_forward);
	if (r == 0 && !cpu_gathers(exec))
		r = conv_prepare_backward(exec, node);
	if (r < 0)
		return r;
	node->weights_version = params->weights_version;
	node->buffers_version = params->buffers_version;
	node->prepared = exec->weights;
	return 0;
}

static int conv_forward(struct cpu_exec *exec, struct cpu_node *node)
{
	int r = conv_prepare(exec, node);

	if (r == 0 && node->winograd)
		cpu_winograd_forward(exec, node, conv_bias(exec, node));
	else if (r == 0)
		r = cpu_op_run(exec, &node->forward);
	if (r == 0 && device_node_sums_result(node->node))
		r = cpu_group_sum(exec, node->norm_act.raw, node->node->y, node->y->element);
	return r == 0 && !node->direct ? cpu_norm_act_forward(exec, node) : r;
}

static int conv_backward_winograd(struct cpu_exec *exec, struct cpu_node *node)
{
	if (node->winograd_learns)
		cpu_winograd_weight_gradient(exec, node);
	if (node->weights_backward)
		cpu_winograd_data_gradient(exec, node);
	return 0;
}

static int conv_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	int r = cpu_norm_act_backward(exec, node);

	if (r == 0 && cpu_gathers(exec) && node->weights_backward)
		r = conv_prepare_backward(exec, node);
	if (r < 0)
		return r;
	if (node->winograd)
		return conv_backward_winograd(exec, node);
	if (node->depthwise)
		cpu_depthwise_run(exec, node);
	if (node->backward_weights.primitive) {
		r = cpu_op_run(exec, &node->backward_weights);
		if (r == 0)
			r = cpu_op_run(exec, cpu_param_take_fresh(node->node->weight)
						     ? &node->reorder_gradient
						     : &node->reorder_gradient_add);
	}
	if (r == 0)
		r = cpu_op_run(exec, &node->backward_data);
	if (r == 0 && node->backward_data.primitive && device_node_sums_gradient(node->node))
		r = cpu_group_sum(exec, cpu_block(exec, node->dx_block), node->node->x,
				  exec->device->element);
	return r;
}

#define CONVOLUTION                                                                                \
	.plan = cpu_conv_plan, .plan_backward = cpu_conv_plan_backward, .bind = conv_bind,         \
	.forward = conv_forward, .backward = conv_backward

const struct cpu_node_ops cpu_conv_ops = {CONVOLUTION};
const struct cpu_node_ops cpu_linear_ops = {CONVOLUTION, .flat = true};
