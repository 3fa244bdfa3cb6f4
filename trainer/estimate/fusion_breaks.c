#include "trainer/estimate/fusion_breaks.h"

static bool is_gated(const struct device_node *node)
{
	return node->kind == DEVICE_NODE_SCALE_ADD && node->gate;
}

static bool is_dropped(const struct device_node *node)
{
	return node->kind == DEVICE_NODE_SCALE_ADD && !node->gate && node->scale.drop_path > 0;
}

static bool is_scaled(const struct device_node *node)
{
	return node->kind == DEVICE_NODE_SCALE_ADD && !node->gate && node->gamma &&
	       !(node->scale.drop_path > 0);
}

/* True for a grouped convolution with constant weights, such as a blur. */
static bool is_blur(const struct device_node *node)
{
	return node->kind == DEVICE_NODE_CONV && node->weight->spec.constant && node->groups > 1;
}

static bool is_lone_norm(const struct device_node *node)
{
	return node->kind == DEVICE_NODE_NORM;
}

static bool is_average(const struct device_node *node)
{
	return node->kind == DEVICE_NODE_AVERAGE_POOL;
}

static const struct {
	bool (*is)(const struct device_node *node);
	const char *name;
} breaks[] = {
	{is_gated, "squeeze and excite between norm and sum"},
	{is_dropped, "stochastic depth between layer and sum"},
	{is_scaled, "scale by channel between layer and sum"},
	{is_blur, "blur between ReLU and stride"},
	{is_average, "average before a shortcut's convolution"},
	{is_lone_norm, "norm apart from its convolution"},
};

static void add(const struct roofline_device *device, const struct cuda_program *program,
		const struct device_node *node, struct roofline_sums *sums)
{
	for (int backward = 0; backward < 2; backward++) {
		struct roofline_sums own;

		roofline_sum(device, program, node, backward, &own);
		sums->bytes += own.bytes;
		sums->seconds += own.seconds;
	}
}

/* Adds the operations that compute a gate: from its global average to the gate. */
static void add_gate(const struct roofline_device *device, const struct cuda_program *program,
		     const struct device_value *gate, struct roofline_sums *sums)
{
	const struct device_node *node = gate->producer;

	add(device, program, node, sums);
	while (node->kind != DEVICE_NODE_GLOBAL_AVERAGE_POOL && node->x) {
		node = node->x->producer;
		add(device, program, node, sums);
	}
}

void fusion_breaks_print(const struct roofline_device *device, const struct cuda_program *program,
			 double times, double seconds, FILE *file)
{
	const struct device_graph *graph = program->graph;
	const char *title = "breaks";

	for (size_t i = 0; i < sizeof(breaks) / sizeof(*breaks); i++) {
		struct roofline_sums sums = {0};
		unsigned count = 0;

		for (uint32_t j = 0; j < graph->node_count; j++) {
			const struct device_node *node = graph->nodes[j];

			if (!breaks[i].is(node))
				continue;
			count++;
			add(device, program, node, &sums);
			if (node->kind == DEVICE_NODE_SCALE_ADD && node->gate)
				add_gate(device, program, node->gate, &sums);
		}
		if (!count)
			continue;
		fprintf(file, "%-12s%10.3f ms, %.1f MB, %.1f %% of the step: passes of %u x %s\n",
			title, sums.seconds * times * 1e3, sums.bytes * times * 1e-6,
			sums.seconds * times * 100 / seconds, count, breaks[i].name);
		title = "";
	}
}
