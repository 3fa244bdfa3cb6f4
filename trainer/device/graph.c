/*
 * Graphs: the part common to all backends, and the queries of backend.h. record.c appends
 * operations.
 */
#include "trainer/device/op_defs.h"

#include <errno.h>
#include <stdlib.h>

int device_graph_new(struct device_params *params, const struct device_graph_options *options,
		     struct device_graph **ret_graph)
{
	if (options->mode != DEVICE_TRAIN && options->mode != DEVICE_EVAL)
		return device_fail(params->device, -EINVAL, "graph mode %d is not known",
				   (int)options->mode);
	struct device_graph *graph = calloc(1, sizeof(*graph));
	if (!graph)
		return -ENOMEM;
	graph->params = params;
	graph->device = params->device;
	graph->options = *options;
	*ret_graph = graph;
	return 0;
}

void device_graph_free(struct device_graph *graph)
{
	if (!graph)
		return;
	if (graph->planned)
		graph->device->ops->graph_release(graph);
	for (uint32_t i = 0; i < graph->node_count; i++)
		free(graph->nodes[i]);
	for (uint32_t i = 0; i < graph->value_count; i++)
		free(graph->values[i]);
	free(graph->nodes);
	free(graph->values);
	free(graph->class_weights);
	free(graph);
}

int device_graph_failure(const struct device_graph *graph, const char **ret_text)
{
	if (ret_text)
		*ret_text = graph->error;
	return graph->failure;
}

struct device_shape device_value_shape(const struct device_value *value)
{
	return value ? value->shape : (struct device_shape){0};
}

void device_begin_block(struct device_graph *graph)
{
	graph->blocks++;
}

bool device_value_grad_is_input(const struct device_value *value)
{
	return !value->graph->loss && !value->consumers && !value->saved;
}

unsigned device_node_reads(const struct device_node *node, const struct device_value *value)
{
	unsigned count = 0;

	for (int i = 0; i < DEVICE_NODE_INPUTS; i++)
		count += node->inputs[i] == value;
	return count;
}

bool device_node_recomputes(const struct device_graph *graph, const struct device_node *node)
{
	return graph->options.mode == DEVICE_TRAIN && !graph->options.keep_all &&
	       node->kind != DEVICE_NODE_INPUT &&
	       node->segment < graph->nodes[graph->node_count - 1]->segment;
}

/*
 * A value is active if the differentiated result depends on it and it depends on something that
 * needs a gradient.
 */
static void mark_active(struct device_graph *graph)
{
	for (uint32_t i = 0; i < graph->value_count; i++) {
		graph->values[i]->active = false;
		graph->values[i]->uses = 0;
	}
	for (uint32_t i = graph->node_count; i-- > 0;) {
		struct device_node *node = graph->nodes[i];

		node->backward = false;
		for (int j = 0; j < DEVICE_NODE_OUTPUTS; j++) {
			struct device_value *output = node->outputs[j];

			if (!output)
				continue;
			if (node == graph->loss || device_value_grad_is_input(output))
				output->active = output->needs_gradient;
			node->backward |= output->active;
		}
		for (int j = 0; j < DEVICE_NODE_INPUTS && node->backward; j++) {
			if (!node->inputs[j] || !node->inputs[j]->needs_gradient)
				continue;
			node->inputs[j]->active = true;
			node->inputs[j]->uses++;
		}
	}
}

int device_graph_plan(struct device_graph *graph, char *error)
{
	char scratch[DEVICE_ERROR_MAX];

	if (!error)
		error = scratch;
	if (graph->planned)
		return sentence_fail(error, DEVICE_ERROR_MAX, -EBUSY,
				     "the graph is planned already");
	if (!graph->failure && !graph->params->allocated)
		record_failure(graph, -EINVAL, "the parameters are not allocated yet");
	if (!graph->failure && !graph->input)
		record_failure(graph, -EINVAL, "the graph has no input");
	if (graph->failure)
		return sentence_fail(error, DEVICE_ERROR_MAX, graph->failure, "%s", graph->error);
	if (graph->options.mode == DEVICE_TRAIN)
		mark_active(graph);
	int r = graph->device->ops->graph_plan(graph, error);
	graph->planned = r == 0;
	return r;
}
