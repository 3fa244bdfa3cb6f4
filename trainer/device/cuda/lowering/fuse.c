/*
 * Fusion across nodes: decides which results are fused away, and which operation computes the
 * others.
 */
#include "trainer/device/cuda/lowering/lower.h"

/* True if the node has a norm, no residual, and this activation. */
static bool is_norm_with(const struct device_node *node, enum device_activation activation)
{
	return node->has_norm && !node->residual && node->activation == activation;
}

/* True if the node reads the value exactly once, as its x. */
static bool reads_as_x(const struct device_node *node, const struct device_value *value)
{
	return node->x == value && device_node_reads(node, value) == 1;
}

static bool is_conv(const struct device_node *node)
{
	return node->kind == DEVICE_NODE_CONV;
}

/* The only node that reads the value; NULL if there are several. */
static struct device_node *only_reader(const struct lowering *l, const struct device_value *value)
{
	struct device_node *reader = NULL;

	for (uint32_t i = value->producer->index + 1; i < l->graph->node_count; i++) {
		struct device_node *node = l->graph->nodes[i];
		unsigned reads = device_node_reads(node, value);

		if (!reads)
			continue;
		if (reader || reads > 1)
			return NULL;
		reader = node;
	}
	return reader;
}

static bool fuses_prologue(struct lowering *l, const struct device_node *reader)
{
	if (reader->kind == DEVICE_NODE_MAX_POOL)
		return true;
	if (lower_conv_fuses_prologue(l, reader, CONV_SCALE_BIAS_RELU, false))
		return true;
	lower_log_fallback(l, reader, &node_state(l, reader)->problem,
			   "norm and ReLU before it are a pass of their own");
	return false;
}

/* Discards the plans of readers that can fuse, after another reader cannot. */
static void drop_plans(struct lowering *l, const struct device_value *value)
{
	for (uint32_t i = value->producer->index + 1; i < l->graph->node_count; i++)
		if (l->graph->nodes[i]->x == value)
			lower_drop_plan(l, l->graph->nodes[i]);
}

static bool all_fuse(struct lowering *l, const struct device_node *node)
{
	const struct device_value *value = node->y;

	for (uint32_t i = node->index + 1; i < l->graph->node_count; i++) {
		struct device_node *reader = l->graph->nodes[i];

		if (!device_node_reads(reader, value))
			continue;
		if (!reads_as_x(reader, value) ||
		    (!is_conv(reader) && reader->kind != DEVICE_NODE_MAX_POOL))
			return false;
	}
	for (uint32_t i = node->index + 1; i < l->graph->node_count; i++) {
		struct device_node *reader = l->graph->nodes[i];

		if (reader->x == value && !fuses_prologue(l, reader)) {
			drop_plans(l, value);
			return false;
		}
	}
	return true;
}

/* True if both norms have one scale and bias for the same sample groups. */
static bool have_like_groups(const struct device_node *a, const struct device_node *b)
{
	uint32_t each;

	return device_node_groups(a, &each) == device_node_groups(b, &each);
}

bool lower_is_fused_away(struct lowering *l, const struct device_node *node)
{
	const struct device_node *reader;

	if (lower_infers(l, node) || l->options->fusion == DEVICE_FUSION_NONE ||
	    !node->y->consumers)
		return false;
	if (is_norm_with(node, DEVICE_IDENTITY)) {
		reader = only_reader(l, node->y);
		return reader && reader->residual == node->y && reader->has_norm &&
		       have_like_groups(node, reader) && !lower_infers(l, reader);
	}
	return l->options->fusion == DEVICE_FUSION_C && lower_norm_is_whole(node) &&
	       is_norm_with(node, DEVICE_RELU) && all_fuse(l, node);
}

bool lower_sums_in_next(struct lowering *l, const struct device_node *node)
{
	const struct device_node *refused = NULL;

	if (lower_infers(l, node) || l->options->fusion != DEVICE_FUSION_C || !node->has_norm ||
	    !lower_norm_is_whole(node) || !node->residual || node->activation != DEVICE_RELU)
		return false;
	enum conv_prologue prologue = lower_value(l, node->residual)
					      ? CONV_SCALE_BIAS_ADD_RELU
					      : CONV_DUAL_SCALE_BIAS_ADD_RELU;
	for (uint32_t i = node->index + 1; i < l->graph->node_count; i++) {
		const struct device_node *reader = l->graph->nodes[i];

		if (!reads_as_x(reader, node->y) || !is_conv(reader) || reader->window_h != 1 ||
		    reader->window_w != 1 || reader->stride != 1 || reader->pad ||
		    reader->pad_extra)
			continue;
		if (lower_conv_fuses_prologue(l, reader, prologue, true)) {
			lower_conv_with_sum(l, reader, node);
			return true;
		}
		refused = reader;
	}
	if (refused)
		lower_log_fallback(l, refused, &node_state(l, refused)->problem,
				   "norm, sum and ReLU before it are a pass of their own");
	return false;
}

const struct device_node *lower_norm_before(struct lowering *l, const struct device_value *x)
{
	const struct device_node *node = x->producer;
	const struct value_state *value = value_state(l, x);

	return l->options->fusion == DEVICE_FUSION_C && value->uses_left == 1 &&
			       value->gradient_count <= 1 && node->has_norm &&
			       lower_norm_is_whole(node) && node->activation == DEVICE_RELU &&
			       lower_norm_differentiates(node)
		       ? node
		       : NULL;
}

void lower_strided_readers_first(struct lowering *l, const struct device_node *node)
{
	const struct device_value *x = node->x;

	if (l->options->fusion != DEVICE_FUSION_C || node->stride != 1 || !x->producer->has_norm)
		return;
	for (uint32_t i = x->producer->index + 1; i < node->index; i++) {
		const struct device_node *other = l->graph->nodes[i];

		if (other->x == x && is_conv(other) && other->stride != 1 && other->backward &&
		    !value_state(l, other->y)->uses_left)
			lower_node_backward(l, other);
	}
}
