/* Autotuning the convolutions of a program. */
#include "cuda.h"

#include <errno.h>
#include <string.h>

/* Whether an earlier operation has the same problem. */
static bool seen(const struct cuda_program *program, uint32_t index)
{
	const struct conv_problem *problem = &program->ops[index].conv.problem;

	for (uint32_t i = 0; i < index; i++)
		if (program->ops[i].kind == CUDA_OP_CONV &&
		    !memcmp(&program->ops[i].conv.problem, problem, sizeof(*problem)))
			return true;
	return false;
}

/* As much workspace as engines may want, or what there is. */
static int take_workspace(uint64_t *ret_bytes, void **ret_memory)
{
	uint64_t bytes = ENGINES_WORKSPACE_MAX;
	int r = gpu_allocate(bytes, ret_memory);

	while (r == -ENOMEM && bytes > 1 << 20) {
		bytes /= 2;
		r = gpu_allocate(bytes, ret_memory);
	}
	*ret_bytes = bytes;
	return r;
}

int cuda_tune(struct cuda_graph *graph)
{
	struct cuda_device *device = graph->device;
	const struct conv_engines *engines = &device->engines.conv;
	const struct cuda_program *program = graph->program;
	uint64_t bytes;
	void *workspace = NULL;
	int r = take_workspace(&bytes, &workspace);

	/* no NaNs, whose arithmetic takes another power than numbers' */
	if (r == 0)
		r = gpu_fill(graph->arena, 0x11, program->arena.size, device->compute);
	for (uint32_t i = 0; i < program->op_count && r == 0; i++) {
		const struct cuda_op *op = &program->ops[i];
		struct conv_arguments arguments;

		if (op->kind != CUDA_OP_CONV || seen(program, i))
			continue;
		arguments = cuda_conv_arguments(graph, op);
		arguments.workspace = workspace;
		/* gradients may be summed up already */
		if (op->operands[CUDA_ADDEND])
			arguments.w = cuda_tensor_data(graph, op->operands[CUDA_ADDEND]);
		r = engines->tune(engines->state, &op->conv.problem, &arguments, bytes,
				  device->compute);
		/* none that runs with so little: the plan at hand stays */
		if (r == -ENOENT)
			r = 0;
		if (r < 0)
			device_fail(&device->base, r, "%s: autotuning failed: %s", op->node->name,
				    engines->error(engines->state));
	}
	gpu_free(workspace);
	return r;
}
