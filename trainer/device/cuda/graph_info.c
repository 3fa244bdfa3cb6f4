/* Reports on a planned graph: engines, FLOPs, bytes and times, per layer and in total. */
#include "trainer/device/cuda/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* A node is labelled with the engine of its first convolution or product. */
int cuda_make_layers(struct cuda_exec *exec)
{
	const struct cuda_program *program = exec->program;

	exec->layers = calloc(exec->graph->node_count + 1, sizeof(*exec->layers));
	if (!exec->layers)
		return -ENOMEM;
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];
		struct cuda_layer *layer = &exec->layers[op->node->index];
		bool main = cuda_op_def(op)->product;

		layer->flops[op->backward] += op->flops;
		layer->bytes[op->backward] += (double)op->bytes;
		if (!op->backward && (main || !*layer->engine) && *op->engine)
			snprintf(layer->engine, sizeof(layer->engine), "%s", op->engine);
	}
	return 0;
}

void cuda_graph_info(const struct device_graph *graph, struct device_graph_info *info)
{
	const struct cuda_exec *exec = graph->backend;
	const struct conv_engines *engines = &exec->device->engines.conv;

	program_info(exec->program, info);
	if (engines->cache_error)
		info->warning = engines->cache_error(engines->state);
}

void cuda_graph_layer(const struct device_graph *graph, uint32_t index,
		      struct device_layer_info *info)
{
	const struct cuda_exec *exec = graph->backend;
	const struct cuda_layer *layer = &exec->layers[index];

	info->engine = layer->engine;
	info->flops_forward = layer->flops[0];
	info->flops_backward = layer->flops[1];
	info->bytes_forward = layer->bytes[0];
	info->bytes_backward = layer->bytes[1];
	info->forward_ns = (uint64_t)(layer->seconds[0] * 1e9);
	info->backward_ns = (uint64_t)(layer->seconds[1] * 1e9);
	info->runs = exec->runs;
}
