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

		shapes.x = (struct device_shape){1, 1, rows, n->weight->shape[1]};
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
static struct onednn_tensor conv_describe_weights(const struct cpu_node *node,
						  dnnl_data_type_t type, bool as_stored)
{
	struct device_shape weight = conv_shapes(node).weight;
	uint32_t groups = node->node->groups;

	if (groups == 1)
		return cpu_describe(weight, type, as_stored ? dnnl_nhwc : dnnl_format_tag_any);
	return (struct onednn_tensor){
		.rank = 5,
		.dims = {groups, weight.n / groups, weight.c, weight.h, weight.w},
		.type = type,
		.tag = as_stored ? dnnl_gohwi : dnnl_format_tag_any,
	};
}

/* The convolution without its bias, with the weight format left to oneDNN. */
static struct onednn_conv conv_describe(const struct cpu_exec *exec, const struct cpu_node *node,
					enum element y_element, dnnl_data_type_t weight_type)
{
	struct conv_shapes shapes = conv_shapes(node);

	return (struct onednn_conv){
		.x = cpu_describe(shapes.x, cpu_type(exec->device->element), dnnl_nhwc),
		.weight = conv_describe_weights(node, weight_type, false),
		.y = cpu_describe(shapes.y, cpu_type(y_element), dnnl_nhwc),
		.window = cpu_window(node->node),
	};
}

bool cpu_conv_has_bias(const struct cpu_exec *exec, const struct device_node *node)
{
	return device_node_adds_bias(node) || (node->has_norm && cpu_infers(exec, node));
}

/* Adds the operations that the primitive fuses after the convolution. */
static int conv_append_post_ops(dnnl_primitive_attr_t attributes, const struct onednn_tensor *y,
				bool residual, enum device_activation activation)
{
	dnnl_post_ops_t ops;
	int r = cpu_status(dnnl_post_ops_create(&ops));

	if (r < 0)
		return r;
	if (residual)
		r = cpu_status(onednn_append_tensor(ops, y));
	if (r == 0 && activation == DEVICE_RELU)
		r = cpu_status(onednn_append_activation(ops, dnnl_eltwise_relu));
	if (r == 0 && activation == DEVICE_GELU)
		r = cpu_status(onednn_append_activation(ops, dnnl_eltwise_gelu_erf));
	if (r == 0 && activation == DEVICE_LOGISTIC)
		r = cpu_status(onednn_append_activation(ops, dnnl_eltwise_logistic));
	if (r == 0)
		r = cpu_status(dnnl_primitive_attr_set_post_ops(attributes, ops));
	dnnl_post_ops_destroy(ops);
	return r;
}

/* Also -ENOTSUP if `fast` is set and only a slow reference kernel exists. */
static int conv_create_forward(struct cpu_exec *exec, struct cpu_node *node, bool residual,
			       enum device_activation activation, bool fast)
{
	struct onednn_conv conv =
		conv_describe(exec, node, node->y->element, cpu_type(exec->device->element));
	bool infers = cpu_infers(exec, node->node);

	if (cpu_conv_has_bias(exec, node->node))
		conv.bias = (struct onednn_tensor){
			.rank = 1, .dims = {conv.y.dims[1]}, .type = dnnl_f32, .tag = dnnl_x};
	dnnl_primitive_attr_t attributes = cpu_attributes();
	if (!attributes)
		return -ENOMEM;
	struct onednn_choice choice = {.engine = exec->device->engine, .attributes = attributes};
	int r = conv_append_post_ops(attributes, &conv.y, residual, activation);
	if (r == 0)
		r = cpu_status(onednn_conv(&choice,
					   infers ? dnnl_forward_inference : dnnl_forward_training,
					   &conv, &node->forward.desc));
	dnnl_primitive_attr_destroy(attributes);
	if (r == 0 && fast &&
	    (strstr(onednn_name(node->forward.desc), "ref") ||
	     strstr(onednn_name(node->forward.desc), "gemm"))) {
		dnnl_primitive_desc_destroy(node->forward.desc);
		node->forward.desc = NULL;
		return -ENOTSUP;
	}
	return r < 0 ? r : cpu_op_create(exec, &node->forward);
}

/* A gradient; weight_type: of the weights, or of their gradient. */
static int conv_create_backward(struct cpu_exec *exec, struct cpu_node *node, dnnl_prop_kind_t pass,
				dnnl_data_type_t weight_type, const char *avoided,
				struct cpu_op *op)
{
	struct onednn_conv conv = conv_describe(exec, node, exec->device->element, weight_type);
	struct onednn_choice choice = {exec->device->engine, exec->device->attributes,
				       node->forward.desc, avoided};
	int r = cpu_status(onednn_conv(&choice, pass, &conv, &op->desc));

	return r < 0 ? r : cpu_op_create(exec, op);
}

/*
 * Converts the store's weights to the layout of an argument of `primitive`, or with `back` that
 * argument to the layout of the store.
 */
static int conv_create_reorder(struct cpu_exec *exec, const struct cpu_node *node,
			       const_dnnl_primitive_attr_t attributes,
			       const struct cpu_op *primitive, int argument, bool back,
			       struct cpu_op *op)
{
	struct onednn_tensor stored = conv_describe_weights(node, dnnl_f32, true);
	struct onednn_choice choice = {.engine = exec->device->engine, .attributes = attributes};
	int r = cpu_status(
		onednn_reorder(&choice, &stored, primitive->desc, argument, back, &op->desc));

	return r < 0 ? r : cpu_op_create(exec, op);
}

static int conv_append_sum(dnnl_primitive_attr_t attributes)
{
	dnnl_post_ops_t ops;
	int r = cpu_status(dnnl_post_ops_create(&ops));

	if (r < 0)
		return r;
	r = cpu_status(onednn_append_sum(ops));
	if (r == 0)
		r = cpu_status(dnnl_primitive_attr_set_post_ops(attributes, ops));
	dnnl_post_ops_destroy(ops);
	return r;
}

/* The reorders of the weight gradient to the store: one overwrites, the other adds. */
static int conv_create_gradient_reorders(struct cpu_exec *exec, struct cpu_node *node)
{
	const struct cpu_op *gradient = &node->backward_weights;
	int r = conv_create_reorder(exec, node, exec->device->attributes, gradient,
				    DNNL_ARG_DIFF_WEIGHTS, true, &node->reorder_gradient);

	if (r < 0)
		return r;
	dnnl_primitive_attr_t attributes = cpu_attributes();
	if (!attributes)
		return -ENOMEM;
	r = conv_append_sum(attributes);
	if (r == 0)
		r = conv_create_reorder(exec, node, attributes, gradient, DNNL_ARG_DIFF_WEIGHTS,
					true, &node->reorder_gradient_add);
	dnnl_primitive_attr_destroy(attributes);
	return r;
}

/* Plans memory for weights in the format of a pass, and the reorder into it. */
static int conv_plan_weights(struct cpu_exec *exec, struct cpu_node *node, bool backward)
{
	const struct cpu_op *op = backward ? &node->backward_data : &node->forward;
	size_t bytes = (onednn_bytes(op->desc, DNNL_ARG_WEIGHTS) + 63) / 64 * 64;
	int r = backward ? cpu_plan_weights(exec, bytes, cpu_backward_step(exec, node),
					    &node->weights_backward_block, &node->weights_backward)
			 : cpu_plan_weights(exec, bytes, node->node->index,
					    &node->weights_forward_block, &node->weights_forward);

	return r < 0 ? r
		     : conv_create_reorder(
			       exec, node, exec->device->attributes, op, DNNL_ARG_WEIGHTS, false,
			       backward ? &node->reorder_backward : &node->reorder_forward);
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
	/* the residual comes after the sum over the group */
	bool sums = !plain && device_node_sums_result(n);
	size_t elements = n->weight->elements;
	int r = 0;

	if (node->winograd) {
		node->direct = plain;
	} else {
		r = sums ? -ENOTSUP
			 : conv_create_forward(exec, node, n->residual, n->activation, !plain);
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
		r = conv_plan_weights(exec, node, false);
	if (r == 0)
		r = cpu_norm_act_plan(exec, node);
	if (r < 0)
		return r;
	cpu_group_plan(exec, n);
	node->flops_forward = device_node_flops(n);
	snprintf(node->engine, sizeof(node->engine), "%s%s",
		 node->winograd ? "winograd" : onednn_name(node->forward.desc),
		 node->direct ? "" : " + own");
	return 0;
}

static int conv_create_backward_data(struct cpu_exec *exec, struct cpu_node *node)
{
	/*
	 * here oneDNN 2.6 sums channels in pairs; with an odd number it adds whatever follows the
	 * last channel, so gradients are wrong at some image sizes
	 */
	bool odd = node->node->y->shape.c / node->node->groups % 2 != 0;

	return conv_create_backward(exec, node, dnnl_backward_data, cpu_type(exec->device->element),
				    odd ? "jit_bf16_1x1" : NULL, &node->backward_data);
}

static int conv_plan_data_gradient(struct cpu_exec *exec, struct cpu_node *node)
{
	int r = node->winograd ? cpu_winograd_plan_data_gradient(exec, node)
			       : conv_create_backward_data(exec, node);

	if (r == 0 && !node->winograd)
		r = conv_plan_weights(exec, node, true);
	node->flops_backward += node->flops_forward;
	return r < 0 ? r : cpu_plan_gradient(exec, node, cpu_backward_step(exec, node));
}

static int conv_plan_weight_gradient(struct cpu_exec *exec, struct cpu_node *node)
{
	int r = conv_create_backward(exec, node, dnnl_backward_weights, dnnl_f32, NULL,
				     &node->backward_weights);

	if (r == 0)
		r = conv_create_gradient_reorders(exec, node);
	if (r == 0)
		r = cpu_add_block(exec,
				  onednn_bytes(node->backward_weights.desc, DNNL_ARG_DIFF_WEIGHTS),
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
			 onednn_name(node->backward_data.desc),
			 node->depthwise ? "own" : onednn_name(node->backward_weights.desc));
	return r;
}
