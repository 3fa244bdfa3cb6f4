/*
 * Convolutions and linear layers. A linear layer is a 1 x 1 convolution over n positions: on oneDNN that runs as fast as its
 * inner product, and there is one path to test.
 *
 * Training runs the bare convolution (with bias and ReLU where nothing lies between) and leaves the rest to post.c. Evaluation folds the norm into
 * weights and bias, and residual and activation into the primitive where oneDNN has a fast kernel for that.
 */
#include "cpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conv_shapes {
	struct device_shape x, y;
	struct device_shape weight; /* n: K, c: C, h: R, w: S */
};

static struct conv_shapes conv_shapes(const struct device_node *node)
{
	struct conv_shapes shapes = {.x = node->x->shape, .y = node->y->shape};

	if (node->linear) {
		shapes.x =
			(struct device_shape){1, 1, node->x->shape.n, node->weight->spec.shape[1]};
		shapes.y = (struct device_shape){1, 1, node->y->shape.n, node->y->shape.c};
	}
	shapes.weight =
		(struct device_shape){shapes.y.c, node->window_h, node->window_w, shapes.x.c};
	return shapes;
}

/* Descriptions of a convolution: oneDNN chooses how weights lie. */
struct conv_descs {
	dnnl_memory_desc_t x, y, weight, bias;
	dnnl_dims_t strides, padding;
};

static int describe(const struct cpu_graph *graph, const struct device_node *node,
		    enum element y_element, dnnl_data_type_t weight_type,
		    struct conv_descs *ret_descs)
{
	struct conv_shapes shapes = conv_shapes(node);
	dnnl_data_type_t type = cpu_type(graph->device->element);
	dnnl_dims_t channels = {shapes.y.c};
	int r = cpu_describe(&ret_descs->x, shapes.x, type, dnnl_nhwc);

	if (r == 0)
		r = cpu_describe(&ret_descs->y, shapes.y, cpu_type(y_element), dnnl_nhwc);
	if (r == 0)
		r = cpu_describe(&ret_descs->weight, shapes.weight, weight_type,
				 dnnl_format_tag_any);
	if (r == 0)
		r = cpu_status(dnnl_memory_desc_init_by_tag(&ret_descs->bias, 1, channels, dnnl_f32,
							    dnnl_x));
	for (int i = 0; i < 2; i++) {
		ret_descs->strides[i] = node->stride;
		ret_descs->padding[i] = node->pad;
	}
	return r;
}

static bool has_bias(const struct cpu_graph *graph, const struct device_node *node)
{
	return node->bias || (node->has_norm && !cpu_training(graph));
}

/* Appends what the primitive does after the convolution. */
static int append_post_ops(dnnl_primitive_attr_t attributes, const struct conv_descs *descs,
			   bool residual, enum device_activation activation)
{
	dnnl_post_ops_t ops;
	int r = cpu_status(dnnl_post_ops_create(&ops));

	if (r < 0)
		return r;
	if (residual)
		r = cpu_status(dnnl_post_ops_append_binary(ops, dnnl_binary_add, &descs->y));
	if (r == 0 && activation == DEVICE_RELU)
		r = cpu_status(dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0));
	if (r == 0 && activation == DEVICE_GELU)
		r = cpu_status(dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_gelu_erf, 0, 0));
	if (r == 0)
		r = cpu_status(dnnl_primitive_attr_set_post_ops(attributes, ops));
	dnnl_post_ops_destroy(ops);
	return r;
}

static const char *engine_name(const dnnl_primitive_desc_t desc)
{
	const char *name = "";

	if (desc)
		dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
	return name;
}

/* -ENOTSUP too when only a slow reference kernel is there and `fast` is wanted. */
static int create_forward(struct cpu_graph *graph, struct cpu_node *node, enum element y_element,
			  bool residual, enum device_activation activation, bool fast)
{
	struct conv_descs descs;
	dnnl_convolution_desc_t conv;
	dnnl_primitive_attr_t attributes;
	int r = describe(graph, node->node, y_element, cpu_type(graph->device->element), &descs);

	if (r < 0)
		return r;
	r = cpu_status(dnnl_convolution_forward_desc_init(
		&conv, cpu_training(graph) ? dnnl_forward_training : dnnl_forward_inference,
		dnnl_convolution_direct, &descs.x, &descs.weight,
		has_bias(graph, node->node) ? &descs.bias : NULL, &descs.y, descs.strides,
		descs.padding, descs.padding));
	if (r < 0)
		return r;
	attributes = cpu_attributes();
	if (!attributes)
		return -ENOMEM;
	r = append_post_ops(attributes, &descs, residual, activation);
	if (r == 0)
		r = cpu_status(dnnl_primitive_desc_create(&node->forward.desc, &conv, attributes,
							  graph->device->engine, NULL));
	dnnl_primitive_attr_destroy(attributes);
	if (r == 0 && fast &&
	    (strstr(engine_name(node->forward.desc), "ref") ||
	     strstr(engine_name(node->forward.desc), "gemm"))) {
		dnnl_primitive_desc_destroy(node->forward.desc);
		node->forward.desc = NULL;
		return -ENOTSUP;
	}
	return r < 0 ? r : cpu_op_create(graph, &node->forward);
}

static int create_reorder(struct cpu_graph *graph, struct cpu_op *op,
			  const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, bool adds)
{
	dnnl_primitive_attr_t attributes = cpu_attributes();
	dnnl_post_ops_t ops = NULL;
	int r = 0;

	if (!attributes)
		return -ENOMEM;
	if (adds) {
		r = cpu_status(dnnl_post_ops_create(&ops));
		if (r == 0)
			r = cpu_status(dnnl_post_ops_append_sum(ops, 1));
		if (r == 0)
			r = cpu_status(dnnl_primitive_attr_set_post_ops(attributes, ops));
	}
	if (r == 0)
		r = cpu_status(
			dnnl_reorder_primitive_desc_create(&op->desc, from, graph->device->engine,
							   to, graph->device->engine, attributes));
	if (ops)
		dnnl_post_ops_destroy(ops);
	dnnl_primitive_attr_destroy(attributes);
	return r < 0 ? r : cpu_op_create(graph, op);
}

/* fp32 [K][R][S][C], as the store has it */
static int describe_master(const struct device_node *node, dnnl_memory_desc_t *ret_desc)
{
	return cpu_describe(ret_desc, conv_shapes(node).weight, dnnl_f32, dnnl_nhwc);
}

static const dnnl_memory_desc_t *part(const struct cpu_op *op, dnnl_query_t what)
{
	return dnnl_primitive_desc_query_md(op->desc, what, 0);
}

/* Memory for weights in the format that `op` wants, and the reorder that fills it. */
static int plan_weights(struct cpu_graph *graph, struct cpu_node *node, const struct cpu_op *op,
			struct cpu_op *reorder, void **ret_weights)
{
	const dnnl_memory_desc_t *weights = part(op, dnnl_query_weights_md);
	size_t bytes = (dnnl_memory_desc_get_size(weights) + 63) / 64 * 64;
	dnnl_memory_desc_t master;
	int r = describe_master(node->node, &master);

	*ret_weights = aligned_alloc(64, bytes);
	if (!*ret_weights)
		return -ENOMEM;
	memset(*ret_weights, 0, bytes);
	return r < 0 ? r : create_reorder(graph, reorder, &master, weights, false);
}

static double conv_flops(const struct device_node *node)
{
	struct conv_shapes s = conv_shapes(node);

	return 2.0 * (double)device_shape_elements(s.y) * s.weight.h * s.weight.w * s.weight.c;
}

static bool is_logits(const struct cpu_graph *graph, const struct device_node *node)
{
	return graph->graph->loss && graph->graph->loss->x == node->y;
}

/* Evaluation: everything in the primitive if there is a fast kernel for it, else convolution and bias only, and the rest in place. */
static int plan_evaluation(struct cpu_graph *graph, struct cpu_node *node, enum element y_element)
{
	const struct device_node *n = node->node;
	bool plain = !n->residual && n->activation == DEVICE_IDENTITY;
	size_t elements = n->weight->elements;
	int r = create_forward(graph, node, y_element, n->residual, n->activation, !plain);

	node->direct = r == 0;
	if (r == -ENOTSUP && !plain)
		r = create_forward(graph, node, y_element, false, DEVICE_IDENTITY, false);
	if (r < 0)
		return r;
	if (n->has_norm && elements > graph->fold_elements)
		graph->fold_elements = elements;
	node->folded_bias = calloc(n->y->shape.c, sizeof(float) * 2);
	return node->folded_bias ? 0 : -ENOMEM;
}

static int plan_training(struct cpu_graph *graph, struct cpu_node *node, enum element y_element)
{
	const struct device_node *n = node->node;
	int r;

	node->direct = !n->has_norm && !n->residual && n->activation != DEVICE_GELU;
	r = create_forward(graph, node, y_element, false,
			   node->direct ? n->activation : DEVICE_IDENTITY, false);
	if (r < 0 || node->direct)
		return r;
	return cpu_add_block(graph, cpu_value_bytes(graph, n->y, graph->device->element),
			     cpu_forward_step(node), &node->raw_block);
}

static int conv_plan(struct cpu_graph *graph, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	bool wide = is_logits(graph, n) && n->activation == DEVICE_IDENTITY && !n->residual &&
		    !n->has_norm;
	enum element y_element = wide ? ELEMENT_F32 : graph->device->element;
	int r = cpu_training(graph) ? plan_training(graph, node, y_element)
				    : plan_evaluation(graph, node, y_element);

	if (r == 0)
		r = cpu_add_result(graph, node, y_element);
	if (r == 0)
		r = plan_weights(graph, node, &node->forward, &node->reorder_forward,
				 &node->weights_forward);
	if (r == 0)
		r = cpu_post_plan(graph, node);
	if (r < 0)
		return r;
	if (!cpu_training(graph) && !node->direct)
		node->raw_block = node->y->block;
	node->post.present = !node->direct;
	node->flops_forward = conv_flops(n);
	snprintf(node->engine, sizeof(node->engine), "%s%s", engine_name(node->forward.desc),
		 node->direct ? "" : " + own");
	return 0;
}

static int create_backward_data(struct cpu_graph *graph, struct cpu_node *node)
{
	struct conv_descs descs;
	dnnl_convolution_desc_t conv;
	int r = describe(graph, node->node, graph->device->element,
			 cpu_type(graph->device->element), &descs);

	if (r == 0)
		r = cpu_status(dnnl_convolution_backward_data_desc_init(
			&conv, dnnl_convolution_direct, &descs.x, &descs.weight, &descs.y,
			descs.strides, descs.padding, descs.padding));
	return r < 0 ? r : cpu_op_new(graph, &node->backward_data, &conv, node->forward.desc);
}

static int create_backward_weights(struct cpu_graph *graph, struct cpu_node *node)
{
	struct conv_descs descs;
	dnnl_convolution_desc_t conv;
	int r = describe(graph, node->node, graph->device->element, dnnl_f32, &descs);

	if (r == 0)
		r = cpu_status(dnnl_convolution_backward_weights_desc_init(
			&conv, dnnl_convolution_direct, &descs.x, &descs.weight, NULL, &descs.y,
			descs.strides, descs.padding, descs.padding));
	return r < 0 ? r : cpu_op_new(graph, &node->backward_weights, &conv, node->forward.desc);
}

static int plan_data_gradient(struct cpu_graph *graph, struct cpu_node *node)
{
	int r = create_backward_data(graph, node);

	if (r == 0)
		r = plan_weights(graph, node, &node->backward_data, &node->reorder_backward,
				 &node->weights_backward);
	if (r == 0)
		r = cpu_add_block(graph,
				  cpu_value_bytes(graph, node->node->x, graph->device->element),
				  cpu_backward_step(graph, node), &node->dx_block);
	if (r < 0)
		return r;
	cpu_contribute(graph, node->x, node->dx_block);
	node->flops_backward += node->flops_forward;
	return 0;
}

static int plan_weight_gradient(struct cpu_graph *graph, struct cpu_node *node)
{
	const dnnl_memory_desc_t *gradient;
	dnnl_memory_desc_t master;
	int r = create_backward_weights(graph, node);

	if (r == 0)
		r = describe_master(node->node, &master);
	if (r < 0)
		return r;
	gradient = part(&node->backward_weights, dnnl_query_diff_weights_md);
	r = create_reorder(graph, &node->reorder_gradient, gradient, &master, false);
	if (r == 0)
		r = create_reorder(graph, &node->reorder_gradient_add, gradient, &master, true);
	if (r == 0)
		r = cpu_add_block(graph, dnnl_memory_desc_get_size(gradient),
				  cpu_backward_step(graph, node), &node->weights_gradient_block);
	arena_extend(&graph->arena, node->x->block, cpu_backward_step(graph, node));
	node->flops_backward += node->flops_forward;
	return r;
}

static int conv_plan_backward(struct cpu_graph *graph, struct cpu_node *node)
{
	size_t length = strlen(node->engine);
	int r = cpu_post_plan_backward(graph, node, node->raw_block);

	if (r == 0 && node->x->active)
		r = plan_data_gradient(graph, node);
	if (r == 0 && !node->node->weight->spec.frozen)
		r = plan_weight_gradient(graph, node);
	snprintf(node->engine + length, sizeof(node->engine) - length, " / %s / %s",
		 engine_name(node->backward_data.desc), engine_name(node->backward_weights.desc));
	return r;
}

static int bind_reorder(struct cpu_graph *graph, struct cpu_op *op, void *from, void *to)
{
	int r = cpu_op_bind(graph, op, DNNL_ARG_FROM, part(op, dnnl_query_src_md), from);

	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_TO, part(op, dnnl_query_dst_md), to);
	return r < 0 ? r : cpu_op_bind_scratchpad(graph, op);
}

static int bind_forward(struct cpu_graph *graph, struct cpu_node *node)
{
	struct cpu_op *op = &node->forward;
	void *y = node->direct ? node->y->data : cpu_block(graph, node->raw_block);
	float *bias = cpu_training(graph) && node->node->bias
			      ? cpu_param_slot(node->node->bias, DEVICE_VALUE)
			      : node->folded_bias;
	int r = cpu_op_bind(graph, op, DNNL_ARG_SRC, part(op, dnnl_query_src_md), node->x->data);

	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_WEIGHTS, part(op, dnnl_query_weights_md),
				node->weights_forward);
	if (r == 0 && has_bias(graph, node->node))
		r = cpu_op_bind(graph, op, DNNL_ARG_BIAS,
				dnnl_primitive_desc_query_md(op->desc, dnnl_query_weights_md, 1),
				bias);
	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_DST, part(op, dnnl_query_dst_md), y);
	if (r == 0 && !cpu_training(graph) && node->direct && node->residual)
		r = cpu_op_bind(graph, op, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
				part(op, dnnl_query_dst_md), node->residual->data);
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
	int r = cpu_op_bind(graph, op, DNNL_ARG_DIFF_DST, part(op, dnnl_query_diff_dst_md),
			    node->post.dx);

	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_WEIGHTS, part(op, dnnl_query_weights_md),
				node->weights_backward);
	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_DIFF_SRC, part(op, dnnl_query_diff_src_md),
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
	int r = cpu_op_bind(graph, op, DNNL_ARG_SRC, part(op, dnnl_query_src_md), node->x->data);

	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_DIFF_DST, part(op, dnnl_query_diff_dst_md),
				node->post.dx);
	if (r == 0)
		r = cpu_op_bind(graph, op, DNNL_ARG_DIFF_WEIGHTS,
				part(op, dnnl_query_diff_weights_md), gradient);
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
	float *folded;	      /* [K][row] */
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
		pool_run(&graph->device->pool, channels, fold_task, &job);
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

const struct cpu_node_ops cpu_conv_ops = {
	.plan = conv_plan,
	.plan_backward = conv_plan_backward,
	.bind = conv_bind,
	.forward = conv_forward,
	.backward = conv_backward,
	.release = conv_release,
};
