/*
 * Plans a graph for a GPU: the program, its memory, and everything that steps need, so that they
 * allocate nothing.
 */
#include "trainer/device/cuda/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *cuda_tensor_data(const struct cuda_graph *graph, const struct cuda_tensor *tensor)
{
	enum device_slot slot = tensor->slot;

	switch (tensor->storage) {
	case CUDA_IN_ARENA:
		return tensor->data;
	case CUDA_IN_PARAMETER:
		if (graph->graph->options.mode == DEVICE_EVAL && slot == DEVICE_VALUE &&
		    (graph->variant & CUDA_VARIANT_EMA))
			slot = DEVICE_EMA;
		if (graph->graph->options.mode == DEVICE_EVAL && slot == DEVICE_VALUE &&
		    (graph->variant & CUDA_VARIANT_SWA))
			slot = DEVICE_SWA;
		return cuda_param_slot(tensor->param, slot);
	case CUDA_IN_WEIGHTS:
		return cuda_param_copy(tensor->param);
	}
	return NULL;
}

/* ---- memory ---- */

static int plan_arena(struct cuda_graph *cuda)
{
	struct cuda_program *program = cuda->program;
	uint64_t max = cuda->device->base.options.arena_bytes_max;
	int r = 0;

	if (max && program->arena.size > max)
		return device_fail(&cuda->device->base, -ENOMEM,
				   "no more than %.3f GiB are allowed", (double)max / (1 << 30));
	cuda->arena = cuda_allocate(&r, program->arena.size);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < program->tensor_count; i++) {
		struct cuda_tensor *tensor = program->tensors[i];

		if (tensor->storage == CUDA_IN_ARENA)
			tensor->data = cuda->arena + program->arena.blocks[tensor->block].offset;
	}
	/*
	 * fill with NaNs, so that an element that no operation wrote is not mistaken for a result
	 */
	return gpu_fill(cuda->arena, 0xff, program->arena.size, cuda->device->compute);
}

static int plan_workspace(struct cuda_graph *cuda)
{
	uint64_t max = 0;

	for (uint32_t i = 0; i < cuda->program->op_count; i++) {
		uint64_t bytes = cuda_kernel_workspace(cuda, &cuda->program->ops[i]);

		max = bytes > max ? bytes : max;
	}
	return max ? gpu_allocate(max, &cuda->workspace) : 0;
}

/* Bytes of a batch of the most common kind: uint8 images with up to 4 channels. */
static uint64_t usual_batch_bytes(struct device_shape shape)
{
	uint64_t positions = (uint64_t)shape.n * shape.h * shape.w;

	return shape.c <= 4 ? positions * 4 : positions * shape.c * sizeof(float);
}

static int plan_staging(struct cuda_graph *cuda)
{
	const struct device_node *input = cuda->graph->input;
	uint64_t bytes = input ? usual_batch_bytes(input->y->shape) : 0;
	uint64_t targets =
		input ? input->y->shape.n * sizeof(int32_t) * device_target_words(cuda->graph) : 0;
	uint64_t changes = device_changes_bytes(cuda->graph);
	int r = 0;

	for (int i = 0; i < 2; i++) {
		struct cuda_staging *staging = &cuda->staging[i];

		staging->images = cuda_allocate(&r, bytes);
		staging->bytes = bytes;
		staging->targets = cuda_allocate(&r, targets);
		if (changes)
			staging->changes = cuda_allocate(&r, changes);
		staging->used = cuda_event(&r, false);
		staging->fed = cuda_event(&r, false);
	}
	for (int i = 0; i < CUDA_TICKETS; i++) {
		cuda->tickets[i].targets = cuda_allocate_host(&r, targets);
		if (changes)
			cuda->tickets[i].changes = cuda_allocate_host(&r, changes);
		cuda->tickets[i].event = cuda_event(&r, false);
	}
	return r;
}

static int plan_rings(struct cuda_graph *cuda)
{
	int r = 0;

	cuda->result_ring = cuda_allocate_host(&r, DEVICE_RESULTS_MAX * sizeof(*cuda->result_ring));
	for (int i = 0; i < DEVICE_RESULTS_MAX; i++)
		cuda->done[i] = cuda_event(&r, false);
	cuda->arguments = cuda_allocate(&r, sizeof(*cuda->arguments));
	cuda->results = cuda_allocate(&r, sizeof(*cuda->results));
	if (cuda->device->base.options.detect_anomaly)
		cuda->anomaly = cuda_allocate(&r, sizeof(*cuda->anomaly));
	return r;
}

/* ---- further buffers of steps ---- */

static int plan_weights(struct cuda_graph *cuda)
{
	const struct cuda_program *program = cuda->program;
	int r = 0;

	for (uint32_t i = 0; i < program->tensor_count && r == 0; i++) {
		const struct cuda_tensor *tensor = program->tensors[i];

		if (tensor->storage == CUDA_IN_WEIGHTS)
			r = cuda_param_prepare(tensor->param, tensor->shape.c);
	}
	if (r == 0)
		r = cuda_params_publish(cuda->graph->params);
	return r;
}

static void plan_mark_touched(const struct cuda_graph *cuda, bool *touched)
{
	const struct cuda_program *program = cuda->program;

	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *op = &program->ops[i];

		for (int role = 0; role < CUDA_ROLES; role++) {
			const struct cuda_tensor *tensor = op->operands[role];

			if (tensor && tensor->storage == CUDA_IN_PARAMETER &&
			    tensor->slot == DEVICE_GRAD && cuda_op_writes(op, (enum cuda_role)role))
				touched[tensor->param->index] = true;
		}
	}
}

/*
 * Finds gradients that no operation writes, which the first step after an update must zero. Merges
 * adjacent ranges.
 */
static int plan_untouched(struct cuda_graph *cuda)
{
	const struct device_params *params = cuda->graph->params;
	struct cuda_range *range = NULL;
	bool *touched;

	if (cuda->graph->options.mode != DEVICE_TRAIN || !params->has_optimizer)
		return 0;
	touched = calloc(params->count + 1, sizeof(*touched));
	cuda->untouched = calloc(params->count + 1, sizeof(*cuda->untouched));
	if (!touched || !cuda->untouched) {
		free(touched);
		return -ENOMEM;
	}
	plan_mark_touched(cuda, touched);
	for (size_t i = 0; i < params->count; i++) {
		const struct device_param *param = params->items[i];

		if (touched[i] || param->spec.kind == DEVICE_BUFFER || param->spec.frozen) {
			range = NULL;
			continue;
		}
		if (!range) {
			range = &cuda->untouched[cuda->untouched_count++];
			range->offset = param->offset;
		}
		range->count = param->offset + param->elements - range->offset;
	}
	free(touched);
	return 0;
}

/* Lists the gradients of outputs, which are zeros until the caller writes them. */
static int plan_grad_outputs(struct cuda_graph *cuda)
{
	const struct cuda_program *program = cuda->program;
	int r = 0;

	cuda->grad_outputs = calloc(program->tensor_count + 1, sizeof(*cuda->grad_outputs));
	if (!cuda->grad_outputs)
		return -ENOMEM;
	for (uint32_t i = 0; i < program->tensor_count && r == 0; i++) {
		struct cuda_tensor *tensor = program->tensors[i];

		if (!tensor->grad_output)
			continue;
		cuda->grad_outputs[cuda->grad_output_count++].tensor = tensor;
		r = gpu_fill(tensor->data, 0, tensor->bytes, cuda->device->compute);
	}
	return r;
}

static int plan_logits(struct cuda_graph *cuda)
{
	const struct cuda_program *program = cuda->program;
	const struct device_value *logits = cuda->graph->loss ? cuda->graph->loss->x : NULL;
	int r = 0;

	for (uint32_t i = 0; logits && i < program->tensor_count; i++)
		if (program->tensors[i]->value == logits && !program->tensors[i]->gradient)
			cuda->logits = program->tensors[i];
	if (!cuda->logits ||
	    (cuda->logits->element == CUDA_F32 && cuda->logits->shape.c == logits->shape.c))
		return 0;
	cuda->scratch = cuda_allocate(&r, device_shape_elements(logits->shape) * sizeof(float));
	return r;
}

/* Buffers of the loss, other than batch and results. */
static int plan_loss(struct cuda_graph *cuda)
{
	const struct device_graph *graph = cuda->graph;
	struct device_shape shape = graph->loss ? graph->loss->x->shape : (struct device_shape){0};
	int r = 0;

	if (!graph->loss)
		return 0;
	cuda->losses = cuda_allocate(&r, shape.n * sizeof(float));
	if (graph->class_weights)
		cuda->class_weights = cuda_allocate(&r, shape.c * sizeof(float));
	if (r < 0 || !graph->class_weights)
		return r;
	return cuda_copy_in(cuda->device, cuda->class_weights, graph->class_weights,
			    shape.c * sizeof(float));
}

int cuda_plan_times(struct cuda_graph *cuda)
{
	uint32_t count = cuda->program->op_count + 2;
	int r = 0;

	if (cuda->times)
		return 0;
	cuda->times = calloc(count, sizeof(*cuda->times));
	if (!cuda->times)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		cuda->times[i] = cuda_event(&r, true);
	return r;
}

static int plan_times(struct cuda_graph *cuda)
{
	return cuda->device->base.options.profile ? cuda_plan_times(cuda) : 0;
}

/* ---- planning ---- */

/*
 * Refuses different GPU models for by_matrix optimizers: matrix products round differently on them,
 * so the weights of ranks would diverge. Other updates are elementwise on identical gradients, so
 * they give the same bits.
 */
static int plan_kinds(struct cuda_graph *cuda)
{
	const struct device_params *params = cuda->graph->params;
	const struct cuda_params *store = params->backend;

	/* tuner is the lowest rank with this kind of GPU, 0 if rank 0 has the same kind */
	if (cuda->graph->options.mode != DEVICE_TRAIN || !store->matrices || !cuda->device->tuner)
		return 0;
	snprintf(
		cuda->error, DEVICE_ERROR_MAX,
		"optimizer %s: its products differ between GPUs, and this one, %s, or its cuDNN is "
		"of another kind than rank 0's; take GPUs of one kind, or another optimizer",
		device_params_optimizer(params)->name, cuda->device->gpu.name);
	return -ENOTSUP;
}

static int plan_lower(struct cuda_graph *cuda)
{
	struct cuda_device *device = cuda->device;
	struct program_options options = {
		.fusion = device->fusion,
		.element = device->element,
		.deterministic = device->base.options.deterministic,
		.conv = &device->engines.conv,
		.matmul = &device->engines.matmul,
	};

	return program_new(cuda->graph, &options, &cuda->program, cuda->error);
}

#define NAMED 3 /* number of tensors that an error lists */

static const struct cuda_tensor *plan_largest_but(const struct cuda_program *program,
						  const struct cuda_tensor *const *named, int count)
{
	const struct cuda_tensor *largest = NULL;

	for (uint32_t i = 0; i < program->tensor_count; i++) {
		const struct cuda_tensor *tensor = program->tensors[i];
		bool other = tensor->storage == CUDA_IN_ARENA;

		for (int j = 0; j < count; j++)
			other = other && tensor != named[j];
		if (other && (!largest || tensor->bytes > largest->bytes))
			largest = tensor;
	}
	return largest;
}

/* Appends to the error how much GPU memory the plan needs, and its largest tensors. */
static void plan_explain_memory(struct cuda_graph *cuda)
{
	const struct cuda_program *program = cuda->program;
	const struct cuda_tensor *named[NAMED];
	struct gpu_properties now = cuda->device->gpu;
	size_t length = strlen(cuda->error);

	/* its memory counts as available to the plan */
	gpu_free(cuda->arena);
	cuda->arena = NULL;
	gpu_select(cuda->device->index, &now);
	length += (size_t)snprintf(
		cuda->error + length, DEVICE_ERROR_MAX - length,
		": activations and workspace take %.3f GiB, and of the GPU's %.2f GiB %.3f are "
		"free for them and the rest; use a smaller batch. Largest:",
		(double)program->arena.size / (1 << 30), (double)now.memory_total / (1 << 30),
		(double)now.memory_free / (1 << 30));
	for (int i = 0; i < NAMED && length < DEVICE_ERROR_MAX; i++) {
		named[i] = plan_largest_but(program, named, i);
		if (!named[i])
			return;
		length += (size_t)snprintf(cuda->error + length, DEVICE_ERROR_MAX - length,
					   "%s %s (%.1f MiB)", i ? "," : "", named[i]->name,
					   (double)named[i]->bytes / (1 << 20));
	}
}

/* Sets a message for failures without one. */
static void plan_explain(struct cuda_graph *cuda, int r)
{
	const char *text = cuda->device->base.error;

	if (!*text)
		text = *gpu_error() ? gpu_error() : strerror(-r);
	snprintf(cuda->error, DEVICE_ERROR_MAX, "%.500s", text);
	if (r == -ENOMEM)
		plan_explain_memory(cuda);
}

static int plan_wait(struct cuda_graph *cuda)
{
	return gpu_stream_synchronize(cuda->device->compute);
}

typedef int (*part)(struct cuda_graph *cuda);

/*
 * Runs the parts of planning until NULL. After each part, either all ranks continue or none does.
 */
static int plan_parts(struct cuda_graph *cuda, const part *parts)
{
	int r = 0;

	for (; *parts && r == 0; parts++) {
		*cuda->error = *cuda->device->base.error = 0;
		r = (*parts)(cuda);
	}
	if (r < 0 && !*cuda->error)
		plan_explain(cuda, r);
	return cuda_ranks_agree(cuda->graph, r, cuda->error);
}

/* Tunes, and builds the program again, because tuning may change it and its workspace. */
static int plan_tune(struct cuda_graph *cuda)
{
	static const part tuning[] = {cuda_tune, NULL}, anew[] = {plan_lower, plan_arena, NULL};
	int r;

	if (!cuda->device->base.options.autotune || !cuda->device->engines.conv.tune)
		return 0;
	r = plan_parts(cuda, tuning);
	if (r == 0)
		r = cuda_ranks_share(cuda);
	if (r < 0)
		return r;
	gpu_free(cuda->arena);
	cuda->arena = NULL;
	program_free(cuda->program);
	cuda->program = NULL;
	return plan_parts(cuda, anew);
}

static int plan_graph(struct cuda_graph *cuda)
{
	static const part first[] = {plan_kinds, plan_lower, plan_arena, plan_weights, NULL};
	static const part rest[] = {
		plan_workspace,    plan_rings,      plan_staging, plan_untouched,
		plan_grad_outputs, plan_logits,     plan_loss,    cuda_make_layers,
		plan_times,        cuda_ranks_plan, plan_wait,    NULL,
	};
	int r = cuda_ranks_share(cuda);

	if (r == 0)
		r = plan_parts(cuda, first);
	if (r == 0)
		r = plan_tune(cuda);
	if (r == 0)
		r = plan_parts(cuda, rest);
	if (r < 0)
		return r;
	r = cuda_ranks_compare(cuda);
	if (r < 0)
		plan_explain(cuda, r);
	return r;
}

int cuda_graph_plan(struct device_graph *graph, char *error)
{
	struct cuda_graph *cuda = calloc(1, sizeof(*cuda));
	int r;

	snprintf(error, DEVICE_ERROR_MAX, "out of memory");
	r = cuda_ranks_agree(graph, cuda ? 0 : -ENOMEM, error);
	if (r < 0) {
		free(cuda);
		return r;
	}
	graph->backend = cuda;
	cuda->graph = graph;
	cuda->device = (struct cuda_device *)graph->device;
	cuda->error = error;
	r = plan_graph(cuda);
	if (r < 0) {
		cuda_graph_release(graph);
		return r;
	}
	cuda->error = NULL;
	*error = 0;
	return 0;
}

static void plan_release_staging(struct cuda_graph *cuda)
{
	for (int i = 0; i < 2; i++) {
		struct cuda_staging *staging = &cuda->staging[i];

		gpu_event_free(staging->used);
		gpu_event_free(staging->fed);
		gpu_free(staging->images);
		gpu_free(staging->targets);
		gpu_free(staging->changes);
		gpu_free(staging->delivered);
		gpu_free(staging->deferred);
		gpu_free_host(staging->host);
	}
	for (int i = 0; i < CUDA_TICKETS; i++) {
		gpu_event_free(cuda->tickets[i].event);
		gpu_free_host(cuda->tickets[i].targets);
		gpu_free_host(cuda->tickets[i].changes);
		gpu_free_host(cuda->tickets[i].deferred);
	}
}

void cuda_graph_release(struct device_graph *graph)
{
	struct cuda_graph *cuda = graph->backend;

	if (!cuda)
		return;
	gpu_stream_synchronize(cuda->device->copy);
	gpu_stream_synchronize(cuda->device->compute);
	for (int i = 0; i < CUDA_VARIANTS; i++)
		gpu_graph_free(cuda->captured[i]);
	for (uint32_t i = 0; cuda->times && i < cuda->program->op_count + 2; i++)
		gpu_event_free(cuda->times[i]);
	for (int i = 0; i < DEVICE_RESULTS_MAX; i++)
		gpu_event_free(cuda->done[i]);
	for (uint32_t i = 0; i < cuda->grad_output_count; i++)
		free(cuda->grad_outputs[i].values);
	plan_release_staging(cuda);
	gpu_free_host(cuda->result_ring);
	gpu_free(cuda->workspace);
	gpu_free(cuda->arguments);
	gpu_free(cuda->results);
	gpu_free(cuda->anomaly);
	gpu_free(cuda->scratch);
	gpu_free(cuda->losses);
	gpu_free(cuda->class_weights);
	cuda_ranks_release(cuda);
	gpu_free(cuda->arena);
	program_free(cuda->program);
	free(cuda->untouched);
	free(cuda->grad_outputs);
	free(cuda->layers);
	free(cuda->times);
	free(cuda);
	graph->backend = NULL;
}
