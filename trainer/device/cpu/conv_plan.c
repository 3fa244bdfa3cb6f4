/*
 * Plans convolutions and linear layers: oneDNN primitives and weight formats. A linear layer is a 1
 * x 1 convolution over its rows, which in oneDNN is as fast as its inner product and leaves one
 * code path to test.
 *
 * In fp32, 3 x 3 convolutions of stride 1 without groups use winograd.c instead of primitives if
 * they have enough channels and tiles for it to be faster (cpu_winograd_fits()).
 *
 * Training runs the bare convolution (with bias and ReLU if nothing is between them) and leaves the
 * rest to norm_act.c. Evaluation, as well as untrained layers with fixed norms in training, folds
 * the norm into weights and bias, and fuses residual and activation into the primitive if oneDNN
 * has a fast kernel for it.
 */
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conv_shapes {
	struct device_shape x, y;
	struct device_shape weight; /* n: K, c: C / groups, h: R, w: S */
};

static struct conv_shapes conv_shapes(const struct cpu_node *node)
{
	const struct device_node *n = node->node;
	struct conv_shapes shapes = {.x = n->x->shape, .y = n->y->shape};

	if (node->ops->flat) {
		uint32_t rows = n->y->shape.n * n->y->shape.h * n->y->shape.w;

		shapes.x = (struct device_shape){1, 1, rows, n->weight->spec.shape[1]};
		shapes.y = (struct device_shape){1, 1, rows, n->y->shape.c};
	}
	shapes.weight =
		(struct device_shape){shapes.y.c, n->window_h, n->window_w, shapes.x.c / n->groups};
	return shapes;
}

/*
 * Weights in the primitive's preferred format or in the store's, [K][R][S][C / groups]; with groups
 * oneDNN adds a leading dimension for them.
 */
static int conv_describe_weights(const struct cpu_node *node, dnnl_data_type_t type, bool as_stored,
				 dnnl_memory_desc_t *ret_desc)
{
	struct device_shape weight = conv_shapes(node).weight;
	uint32_t groups = node->node->groups;
	dnnl_dims_t grouped = {groups, weight.n / groups, weight.c, weight.h, weight.w};

	if (groups == 1)
		return cpu_describe(ret_desc, weight, type,
				    as_stored ? dnnl_nhwc : dnnl_format_tag_any);
	return cpu_status(dnnl_memory_desc_init_by_tag(
		ret_desc, 5, grouped, type, as_stored ? dnnl_gohwi : dnnl_format_tag_any));
}

/* Descriptors of a convolution, with the weight format left to oneDNN. */
struct conv_descs {
	dnnl_memory_desc_t x, y, weight, bias;
	dnnl_dims_t strides, padding, padding_end;
};

static int conv_describe(const struct cpu_exec *exec, const struct cpu_node *node,
			 enum element y_element, dnnl_data_type_t weight_type,
			 struct conv_descs *ret_descs)
{
	struct conv_shapes shapes = conv_shapes(node);
	dnnl_data_type_t type = cpu_type(exec->device->element);
	dnnl_dims_t channels = {shapes.y.c};
	int r = cpu_describe(&ret_descs->x, shapes.x, type, dnnl_nhwc);

	if (r == 0)
		r = cpu_describe(&ret_descs->y, shapes.y, cpu_type(y_element), dnnl_nhwc);
	if (r == 0)
		r = conv_describe_weights(node, weight_type, false, &ret_descs->weight);
	if (r == 0)
		r = cpu_status(dnnl_memory_desc_init_by_tag(&ret_descs->bias, 1, channels, dnnl_f32,
							    dnnl_x));
	for (int i = 0; i < 2; i++) {
		ret_descs->strides[i] = node->node->stride;
		ret_descs->padding[i] = node->node->pad;
		ret_descs->padding_end[i] = node->node->pad + node->node->pad_extra;
	}
	return r;
}

bool cpu_conv_has_bias(const struct cpu_exec *exec, const struct device_node *node)
{
	return node->bias || (node->has_norm && cpu_infers(exec, node));
}

/* Adds the operations that the primitive fuses after the convolution. */
static int conv_append_post_ops(dnnl_primitive_attr_t attributes, const struct conv_descs *descs,
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
	if (r == 0 && activation == DEVICE_LOGISTIC)
		r = cpu_status(dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_logistic, 0, 0));
	if (r == 0)
		r = cpu_status(dnnl_primitive_attr_set_post_ops(attributes, ops));
	dnnl_post_ops_destroy(ops);
	return r;
}

static const char *conv_engine_name(dnnl_primitive_desc_t desc)
{
	const char *name = "";

	if (desc)
		dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
	return name;
}

/* Also -ENOTSUP if `fast` is set and only a slow reference kernel exists. */
static int conv_create_forward(struct cpu_exec *exec, struct cpu_node *node, bool residual,
			       enum device_activation activation, bool fast)
{
	struct conv_descs descs;
	dnnl_convolution_desc_t conv;
	int r = conv_describe(exec, node, node->y->element, cpu_type(exec->device->element),
			      &descs);

	if (r < 0)
		return r;
	r = cpu_status(dnnl_convolution_forward_desc_init(
		&conv,
		cpu_infers(exec, node->node) ? dnnl_forward_inference : dnnl_forward_training,
		dnnl_convolution_direct, &descs.x, &descs.weight,
		cpu_conv_has_bias(exec, node->node) ? &descs.bias : NULL, &descs.y, descs.strides,
		descs.padding, descs.padding_end));
	if (r < 0)
		return r;
	dnnl_primitive_attr_t attributes = cpu_attributes();
	if (!attributes)
		return -ENOMEM;
	r = conv_append_post_ops(attributes, &descs, residual, activation);
	if (r == 0)
		r = cpu_status(dnnl_primitive_desc_create(&node->forward.desc, &conv, attributes,
							  exec->device->engine, NULL));
	dnnl_primitive_attr_destroy(attributes);
	if (r == 0 && fast &&
	    (strstr(conv_engine_name(node->forward.desc), "ref") ||
	     strstr(conv_engine_name(node->forward.desc), "gemm"))) {
		dnnl_primitive_desc_destroy(node->forward.desc);
		node->forward.desc = NULL;
		return -ENOTSUP;
	}
	return r < 0 ? r : cpu_op_create(exec, &node->forward);
}

static int conv_create_reorder(struct cpu_exec *exec, struct cpu_op *op,
			       const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
			       bool adds)
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
			dnnl_reorder_primitive_desc_create(&op->desc, from, exec->device->engine,
							   to, exec->device->engine, attributes));
	if (ops)
		dnnl_post_ops_destroy(ops);
	dnnl_primitive_attr_destroy(attributes);
	return r < 0 ? r : cpu_op_create(exec, op);
}

/* Plans memory for weights in the format of `op`, and the reorder into it. */
static int conv_plan_weights(struct cpu_exec *exec, struct cpu_node *node, const struct cpu_op *op,
			     struct cpu_op *reorder, void **ret_weights)
{
	size_t bytes = (cpu_op_bytes(op, DNNL_ARG_WEIGHTS) + 63) / 64 * 64;
	dnnl_memory_desc_t master;
	int r = conv_describe_weights(node, dnnl_f32, true, &master);

	*ret_weights = aligned_alloc(64, bytes);
	if (!*ret_weights)
		return -ENOMEM;
	memset(*ret_weights, 0, bytes);
	return r < 0 ? r
		     : conv_create_reorder(exec, reorder, &master,
					   cpu_op_part(op, DNNL_ARG_WEIGHTS), false);
}

/* True for logits that go straight to the loss, which reads them in fp32. */
static bool conv_is_wide(const struct cpu_exec *exec, const struct device_node *node)
{
	const struct device_node *loss = exec->graph->loss;

	return loss && loss->x == node->y && node->activation == DEVICE_IDENTITY &&
	       !node->residual && !node->has_norm;
}

/*
 * Evaluation: fuses everything if there is a fast kernel for it, else only convolution and bias,
 * with the rest done in place.
 */
static int conv_plan_evaluation(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	bool plain = !n->residual && n->activation == DEVICE_IDENTITY;
	size_t elements = n->weight->elements;
	int r = 0;

	if (node->winograd) {
		node->direct = plain;
	} else {
		r = conv_create_forward(exec, node, n->residual, n->activation, !plain);
		node->direct = r == 0;
	}
	if (r == -ENOTSUP && !plain)
		r = conv_create_forward(exec, node, false, DEVICE_IDENTITY, false);
	if (r < 0)
		return r;
	if (n->has_norm && elements > exec->fold_elements)
		exec->fold_elements = elements;
	node->folded_bias = calloc(n->y->shape.c, sizeof(float) * 2);
	return node->folded_bias ? 0 : -ENOMEM;
}

static int conv_plan_training(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;
	int r = 0;

	/*
	 * backward of other activations needs the activation's input, which a fused primitive does
	 * not store
	 */
	node->direct = !n->has_norm && !n->residual &&
		       (n->activation == DEVICE_IDENTITY ||
			(n->activation == DEVICE_RELU && !node->winograd));
	if (!node->winograd)
		r = conv_create_forward(exec, node, false,
					node->direct ? n->activation : DEVICE_IDENTITY, false);
	if (r < 0 || node->direct)
		return r;
	return cpu_add_block(exec, cpu_value_bytes(n->y, exec->device->element), node->node->index,
			     &node->raw_block);
}

int cpu_conv_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct device_node *n = node->node;

	if (conv_is_wide(exec, n))
		node->y->element = ELEMENT_F32;
	node->winograd = cpu_winograd_fits(exec, node);
	int r = cpu_infers(exec, n) ? conv_plan_evaluation(exec, node)
				    : conv_plan_training(exec, node);
	if (r == 0 && node->winograd)
		r = cpu_winograd_plan(exec, node);
	else if (r == 0)
		r = conv_plan_weights(exec, node, &node->forward, &node->reorder_forward,
				      &node->weights_forward);
	if (r == 0)
		r = cpu_norm_act_plan(exec, node);
	if (r < 0)
		return r;
	node->flops_forward = device_node_flops(n);
	snprintf(node->engine, sizeof(node->engine), "%s%s",
		 node->winograd ? "winograd" : conv_engine_name(node->forward.desc),
		 node->direct ? "" : " + own");
	return 0;
}

static int conv_create_backward_data(struct cpu_exec *exec, struct cpu_node *node)
{
	struct conv_descs descs;
	dnnl_convolution_desc_t conv;
	int r = conv_describe(exec, node, exec->device->element, cpu_type(exec->device->element),
			      &descs);

	if (r == 0)
		r = cpu_status(dnnl_convolution_backward_data_desc_init(
			&conv, dnnl_convolution_direct, &descs.x, &descs.weight, &descs.y,
			descs.strides, descs.padding, descs.padding_end));
	/*
	 * here oneDNN 2.6 sums channels in pairs; with an odd number it adds whatever follows the
	 * last channel, so gradients are wrong at some image sizes
	 */
	bool odd = node->node->y->shape.c / node->node->groups % 2 != 0;
	return r < 0 ? r
		     : cpu_op_new(exec, &node->backward_data, &conv, node->forward.desc,
				  odd ? "jit_bf16_1x1" : NULL);
}

static int conv_create_backward_weights(struct cpu_exec *exec, struct cpu_node *node)
{
	struct conv_descs descs;
	dnnl_convolution_desc_t conv;
	int r = conv_describe(exec, node, exec->device->element, dnnl_f32, &descs);

	if (r == 0)
		r = cpu_status(dnnl_convolution_backward_weights_desc_init(
			&conv, dnnl_convolution_direct, &descs.x, &descs.weight, NULL, &descs.y,
			descs.strides, descs.padding, descs.padding_end));
	return r < 0 ? r
		     : cpu_op_new(exec, &node->backward_weights, &conv, node->forward.desc, NULL);
}

static int conv_plan_data_gradient(struct cpu_exec *exec, struct cpu_node *node)
{
	int r = node->winograd ? cpu_winograd_plan_data_gradient(exec, node)
			       : conv_create_backward_data(exec, node);

	if (r == 0 && !node->winograd)
		r = conv_plan_weights(exec, node, &node->backward_data, &node->reorder_backward,
				      &node->weights_backward);
	node->flops_backward += node->flops_forward;
	return r < 0 ? r : cpu_plan_gradient(exec, node, cpu_backward_step(exec, node));
}

static int conv_plan_weight_gradient(struct cpu_exec *exec, struct cpu_node *node)
{
	dnnl_memory_desc_t master;
	int r = conv_create_backward_weights(exec, node);

	if (r == 0)
		r = conv_describe_weights(node, dnnl_f32, true, &master);
	if (r < 0)
		return r;
	const dnnl_memory_desc_t *gradient =
		cpu_op_part(&node->backward_weights, DNNL_ARG_DIFF_WEIGHTS);
	r = conv_create_reorder(exec, &node->reorder_gradient, gradient, &master, false);
	if (r == 0)
		r = conv_create_reorder(exec, &node->reorder_gradient_add, gradient, &master, true);
	if (r == 0)
		r = cpu_add_block(exec, dnnl_memory_desc_get_size(gradient),
				  cpu_backward_step(exec, node), &node->weights_gradient_block);
	arena_extend(&exec->arena, node->x->block, cpu_backward_step(exec, node));
	node->flops_backward += node->flops_forward;
	return r;
}

int cpu_conv_plan_backward(struct cpu_exec *exec, struct cpu_node *node)
{
	size_t length = strlen(node->engine);
	int r = cpu_norm_act_plan_backward(exec, node);

	if (r == 0 && node->node->x->active)
		r = conv_plan_data_gradient(exec, node);
	if (r == 0 && device_param_trains(node->node->weight)) {
		if (cpu_depthwise_fits(exec, node))
			cpu_depthwise_plan(exec, node);
		else if (node->winograd)
			cpu_winograd_plan_weight_gradient(exec, node);
		else
			r = conv_plan_weight_gradient(exec, node);
	}
	if (!node->winograd)
		snprintf(node->engine + length, sizeof(node->engine) - length, " / %s / %s",
			 conv_engine_name(node->backward_data.desc),
			 node->depthwise ? "own" : conv_engine_name(node->backward_weights.desc));
	return r;
}
