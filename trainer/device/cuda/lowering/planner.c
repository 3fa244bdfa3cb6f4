#include "trainer/device/cuda/lowering/planner.h"

#include <errno.h>
#include <stdlib.h>

struct planner {
	struct device base;
	const struct program_options *options;
};

static void planner_close(struct device *device)
{
	free(device);
}

static int planner_params_allocate(struct device_params *params)
{
	return 0;
}

static void planner_params_release(struct device_params *params)
{
}

static int planner_graph_plan(struct device_graph *graph, char *error)
{
	const struct planner *planner = (const struct planner *)graph->device;
	struct cuda_program *program;
	int r = program_new(graph, planner->options, &program, error);

	if (r == 0)
		graph->backend = program;
	return r;
}

static void planner_graph_release(struct device_graph *graph)
{
	program_free(graph->backend);
}

static int planner_synchronize(struct device *device)
{
	return 0;
}

static void planner_drop_gradients(struct device_params *params)
{
}

static void planner_graph_info(const struct device_graph *graph, struct device_graph_info *info)
{
	program_info(graph->backend, info);
}

static void planner_graph_layer(const struct device_graph *graph, uint32_t index,
				struct device_layer_info *info)
{
	const struct cuda_program *program = graph->backend;

	info->kind = info->engine = "";
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		if (op->node->index == index)
			*(op->backward ? &info->flops_backward : &info->flops_forward) += op->flops;
	}
}

/* Operations that allocate memory or run a step. */
#define REFUSE(name, device, ...)                                                                  \
	static int planner_##name(__VA_ARGS__)                                                     \
	{                                                                                          \
		return device_fail(device, -ENOTSUP, "this device only plans");                    \
	}

REFUSE(param_write, param->store->device, struct device_param *param, enum device_slot slot,
       const struct device_range *part, const float *values)
REFUSE(param_read, param->store->device, struct device_param *param, enum device_slot slot,
       const struct device_range *part, float *ret_values)
REFUSE(get_state, params->device, struct device_params *params,
       struct device_params_state *ret_state)
REFUSE(set_state, params->device, struct device_params *params,
       const struct device_params_state *state)
REFUSE(upload, graph->device, struct device_graph *graph, const struct device_batch *batch,
       uint64_t *ret_ticket)
REFUSE(upload_done, graph->device, struct device_graph *graph, uint64_t ticket, bool wait)
REFUSE(step, graph->device, struct device_graph *graph, const struct device_hyper *hyper,
       uint64_t *ret_step)
REFUSE(forward, graph->device, struct device_graph *graph, bool moves_statistics,
       uint64_t *ret_step)
REFUSE(warmup, graph->device, struct device_graph *graph)
REFUSE(evaluate, graph->device, struct device_graph *graph, enum device_slot weights,
       uint64_t *ret_step)
REFUSE(results, graph->device, struct device_graph *graph, uint64_t step, bool wait,
       struct device_results *ret_results)
REFUSE(logits, graph->device, struct device_graph *graph, float *ret_logits)
REFUSE(losses, graph->device, struct device_graph *graph, float *ret_losses)
REFUSE(value_read, graph->device, struct device_graph *graph, const struct device_value *value,
       enum device_slot slot, float *ret_values)
REFUSE(value_write, graph->device, struct device_graph *graph, const struct device_value *value,
       enum device_slot slot, const float *values)

static const struct device_ops planner_ops = {
	.close = planner_close,
	.synchronize = planner_synchronize,
	.params_allocate = planner_params_allocate,
	.params_release = planner_params_release,
	.param_write = planner_param_write,
	.param_read = planner_param_read,
	.drop_gradients = planner_drop_gradients,
	.get_state = planner_get_state,
	.set_state = planner_set_state,
	.graph_plan = planner_graph_plan,
	.graph_release = planner_graph_release,
	.graph_info = planner_graph_info,
	.graph_layer = planner_graph_layer,
	.upload = planner_upload,
	.upload_done = planner_upload_done,
	.step = planner_step,
	.forward = planner_forward,
	.warmup = planner_warmup,
	.evaluate = planner_evaluate,
	.results = planner_results,
	.logits = planner_logits,
	.losses = planner_losses,
	.value_read = planner_value_read,
	.value_write = planner_value_write,
};

int planner_open(const struct program_options *options, struct device **ret_device)
{
	static const enum device_precision precisions[] = {
		[CUDA_F32] = DEVICE_FP32, [CUDA_F16] = DEVICE_FP16, [CUDA_BF16] = DEVICE_BF16};
	struct planner *planner = calloc(1, sizeof(*planner));

	if (!planner)
		return -ENOMEM;
	planner->base.ops = &planner_ops;
	planner->base.info.name = "planner";
	planner->base.info.precision = precisions[options->element];
	planner->options = options;
	*ret_device = &planner->base;
	return 0;
}

const struct cuda_program *planner_program(const struct device_graph *graph)
{
	return graph->backend;
}
