/*
 * Level C across nodes: decides which results stay virtual, and which operation computes the
 * others.
 */
#include "trainer/device/cuda/lowering/lower.h"

/*
 * True if only scale, bias and ReLU (or nothing, with `identity`) are between raw and the result.
 */
static bool is_norm_with(const struct device_node *node, enum device_activation activation)
{
	return node->has_norm && !node->residual && node->activation == activation;
}

/* True if the node reads the value once, as its x. */
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

static bool takes_through_prologue(struct lowering *l, struct device_node *reader,
				   struct lower_node *n)
{
	struct lower_node *r = lower_node(l, reader);

	if (reader->kind == DEVICE_NODE_MAX_POOL)
		return true;
	if (lower_conv_takes(l, r, CONV_SCALE_BIAS_RELU, false))
		return true;
	lower_note(l, reader, &r->problem, "norm and ReLU before it are a pass of their own");
	return false;
}

/* Discards the plans of readers that agreed before one refused. */
static void forget_readers(struct lowering *l, const struct device_value *value)
{
	for (uint32_t i = value->producer->index + 1; i < l->graph->node_count; i++)
		if (l->graph->nodes[i]->x == value)
			lower_forget_plan(l, &l->nodes[i]);
}

static bool all_take(struct lowering *l, struct lower_node *n)
{
	const struct device_value *value = n->node->y;

	for (uint32_t i = n->node->index + 1; i < l->graph->node_count; i++) {
		struct device_node *reader = l->graph->nodes[i];

		if (!device_node_reads(reader, value))
			continue;
		if (!reads_as_x(reader, value) ||
		    (!is_conv(reader) && reader->kind != DEVICE_NODE_MAX_POOL))
			return false;
	}
	for (uint32_t i = n->node->index + 1; i < l->graph->node_count; i++) {
		struct device_node *reader = l->graph->nodes[i];

		if (reader->x == value && !takes_through_prologue(l, reader, n)) {
			forget_readers(l, value);
			return false;
		}
	}
	return true;
}

/* True if both have scale and bias for equal sample groups. */
static bool have_like_groups(const struct device_node *a, const struct device_node *b)
{
	uint32_t each;

	return device_node_groups(a, &each) == device_node_groups(b, &each);
}

bool lower_stays_virtual(struct lowering *l, struct lower_node *n)
{
	const struct device_node *reader;

	if (lower_infers(l, n->node) || l->options->fusion == DEVICE_FUSION_NONE ||
	    !n->node->y->consumers)
		return false;
	if (is_norm_with(n->node, DEVICE_IDENTITY)) {
		reader = only_reader(l, n->node->y);
		return reader && reader->residual == n->node->y && reader->has_norm &&
		       have_like_groups(n->node, reader) && !lower_infers(l, reader);
	}
	return l->options->fusion == DEVICE_FUSION_C && lower_norm_is_whole(n->node) &&
	       is_norm_with(n->node, DEVICE_RELU) && all_take(l, n);
}

bool lower_sums_in_next(struct lowering *l, struct lower_node *n)
{
	const struct device_node *node = n->node;
	struct lower_node *asked = NULL;
	enum conv_prologue prologue;

	if (lower_infers(l, node) || l->options->fusion != DEVICE_FUSION_C || !node->has_norm ||
	    !lower_norm_is_whole(node) || !node->residual || node->activation != DEVICE_RELU)
		return false;
	prologue = lower_value(l, node->residual)->y ? CONV_SCALE_BIAS_ADD_RELU
						     : CONV_DUAL_SCALE_BIAS_ADD_RELU;
	for (uint32_t i = node->index + 1; i < l->graph->node_count; i++) {
		struct device_node *reader = l->graph->nodes[i];
		struct lower_node *r = lower_node(l, reader);

		if (!reads_as_x(reader, node->y) || !is_conv(reader) || reader->window_h != 1 ||
		    reader->window_w != 1 || reader->stride != 1 || reader->pad ||
		    reader->pad_extra)
			continue;
		if (lower_conv_takes(l, r, prologue, true)) {
			lower_conv_with_sum(l, r, n);
			return true;
		}
		asked = r;
	}
	if (asked)
		lower_note(l, asked->node, &asked->problem,
			   "norm, sum and ReLU before it are a pass of their own");
	return false;
}

bool lower_norm_before(struct lowering *l, const struct device_value *x,
		       struct lower_node **ret_producer)
{
	const struct device_node *node = x->producer;
	const struct lower_value *value = lower_value(l, x);

	if (l->options->fusion != DEVICE_FUSION_C || value->uses_left != 1 ||
	    value->gradient_count > 1 || !node->has_norm || !lower_norm_is_whole(node) ||
	    node->activation != DEVICE_RELU || !lower_norm_differentiates(l, lower_node(l, node)))
		return false;
	*ret_producer = lower_node(l, node);
	return true;
}

void lower_let_others_first(struct lowering *l, struct lower_node *n)
{
	const struct device_value *x = n->node->x;

	if (l->options->fusion != DEVICE_FUSION_C || n->node->stride != 1 || !x->producer->has_norm)
		return;
	for (uint32_t i = x->producer->index + 1; i < n->node->index; i++) {
		struct lower_node *other = &l->nodes[i];

		if (other->node->x == x && is_conv(other->node) && other->node->stride != 1 &&
		    other->node->backward && !lower_value(l, other->node->y)->uses_left)
			lower_node_backward(l, other);
	}
}
