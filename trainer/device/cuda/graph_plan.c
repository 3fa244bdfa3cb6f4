/*
 * Plans a graph for a GPU: the program, its memory, and everything that steps need, so that they
 * allocate nothing.
 */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/shards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *cuda_tensor_data(const struct cuda_exec *exec, const struct cuda_tensor *tensor)
{
	enum device_slot slot = tensor->slot;

	switch (tensor->storage) {
	case CUDA_IN_ARENA:
		return tensor->data;
	case CUDA_IN_PARAMETER:
		if (slot == DEVICE_GRAD && cuda_ranks_gradient(exec, tensor->param))
			return cuda_ranks_gradient(exec, tensor->param);
		if (exec->graph->options.mode == DEVICE_EVAL && slot == DEVICE_VALUE &&
		    (exec->variant & CUDA_VARIANT_EMA))
			slot = DEVICE_EMA;
		if (exec->graph->options.mode == DEVICE_EVAL && slot == DEVICE_VALUE &&
		    (exec->variant & CUDA_VARIANT_SWA))
			slot = DEVICE_SWA;
		return cuda_param_slot(tensor->param, slot);
	case CUDA_IN_WEIGHTS:
		return cuda_param_copy(tensor->param);
	case CUDA_IN_BUCKET:
		return tensor->data;
	}
	return NULL;
}

/* ---- memory ---- */

/* The address of a gathered weight in its bucket. */
static void plan_place_weights(struct cuda_tensor *tensor)
{
	if (!tensor->bucket)
		return;
	const struct device_param *param = tensor->param;
	const struct device_range *bucket = &param->store->shards.buckets[shards_bucket(param)];

	tensor->data = (char *)tensor->bucket->data +
		       (param->offset - bucket->first) * tensor->element_bytes;
}

static int plan_arena(struct cuda_exec *exec)
{
	struct cuda_program *program = exec->program;
	uint64_t max = exec->device->base.options.arena_bytes_max;
	int r = 0;

	if (max && program->arena.size > max)
		return device_fail(&exec->device->base, -ENOMEM,
				   "no more than %.3f GiB are allowed", (double)max / (1 << 30));
	exec->arena = cuda_allocate(&r, program->arena.size);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < program->tensor_count; i++) {
		struct cuda_tensor *tensor = program->tensors[i];

		if (tensor->storage == CUDA_IN_ARENA)
			tensor->data = exec->arena + program->arena.blocks[tensor->block].offset;
	}
	for (uint32_t i = 0; i < program->tensor_count; i++)
		plan_place_weights(program->tensors[i]);
	/*
	 * fill with NaNs, so that an element that no operation wrote is not mistaken for a result
	 */
	return gpu_fill(exec->arena, 0xff, program->arena.size, exec->device->compute);
}

static int plan_workspace(struct cuda_exec *exec)
{
	uint64_t max = 0;

	for (uint32_t i = 0; i < exec->program->op_count; i++) {
		uint64_t bytes = cuda_kernel_workspace(exec, &exec->program->ops[i]);

		max = bytes > max ? bytes : max;
	}
	return max ? gpu_allocate(max, &exec->workspace) : 0;
}

/* Bytes of a batch of the most common kind: uint8 images with up to 4 channels. */
static uint64_t usual_batch_bytes(struct device_shape shape)
{
	uint64_t positions = (uint64_t)shape.n * shape.h * shape.w;

	return shape.c <= 4 ? positions * 4 : positions * shape.c * sizeof(float);
}

static int plan_staging(struct cuda_exec *exec)
{
	const struct device_node *input = exec->graph->input;
	uint64_t bytes = input ? usual_batch_bytes(input->y->shape) : 0;
	uint64_t targets =
		input ? input->y->shape.n * sizeof(int32_t) * device_target_words(exec->graph) : 0;
	uint64_t changes = device_changes_bytes(exec->graph);
	int r = 0;

	for (int i = 0; i < 2; i++) {
		struct cuda_staging *staging = &exec->staging[i];

		staging->images = cuda_allocate(&r, bytes);
		staging->bytes = bytes;
		staging->targets = cuda_allocate(&r, targets);
		if (changes)
			staging->changes = cuda_allocate(&r, changes);
		staging->used = cuda_event(&r, false);
		staging->fed = cuda_event(&r, false);
	}
	for (int i = 0; i < CUDA_TICKETS; i++) {
		exec->tickets[i].targets = cuda_allocate_host(&r, targets);
		if (changes)
			exec->tickets[i].changes = cuda_allocate_host(&r, changes);
		exec->tickets[i].event = cuda_event(&r, false);
	}
	return r;
}

static int plan_rings(struct cuda_exec *exec)
{
	int r = 0;

	exec->result_ring = cuda_allocate_host(&r, DEVICE_RESULTS_MAX * sizeof(*exec->result_ring));
	for (int i = 0; i < DEVICE_RESULTS_MAX; i++)
		exec->done[i] = cuda_event(&r, false);
	exec->arguments = cuda_allocate(&r, sizeof(*exec->arguments));
	exec->results = cuda_allocate(&r, sizeof(*exec->results));
	if (exec->device->base.options.detect_anomaly)
		exec->anomaly = cuda_allocate(&r, sizeof(*exec->anomaly));
	return r;
}

/* ---- further buffers of steps ---- */

static int plan_weights(struct cuda_exec *exec)
{
	const struct cuda_program *program = exec->program;
	int r = 0;

	for (uint32_t i = 0; i < program->tensor_count && r == 0; i++) {
		const struct cuda_tensor *tensor = program->tensors[i];

		if (tensor->storage == CUDA_IN_WEIGHTS)
			r = cuda_param_prepare(tensor->param, tensor->shape.c);
	}
	if (r == 0)
		r = cuda_params_publish(exec->graph->params);
	return r;
}

static void plan_mark_touched(const struct cuda_exec *exec, bool *touched)
{
	const struct cuda_program *program = exec->program;

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
static int plan_untouched(struct cuda_exec *exec)
{
	const struct device_params *params = exec->graph->params;
	struct cuda_range *range = NULL;

	if (exec->graph->options.mode != DEVICE_TRAIN || !params->has_optimizer)
		return 0;
	bool *touched = calloc(params->count + 1, sizeof(*touched));
	exec->untouched = calloc(params->count + 1, sizeof(*exec->untouched));
	if (!touched || !exec->untouched) {
		free(touched);
		return -ENOMEM;
	}
	plan_mark_touched(exec, touched);
	for (size_t i = 0; i < params->count; i++) {
		const struct device_param *param = params->items[i];

		touched[i] = touched[i] || param->spec.kind == DEVICE_BUFFER || param->spec.frozen;
		/* cuda_ranks_after_op() zeroes gradients of which the store keeps parts */
		if (touched[i] || device_param_is_sharded(param, DEVICE_GRAD)) {
			range = NULL;
			continue;
		}
		size_t offset = shards_offset(param, DEVICE_GRAD, 0);
		if (!range || offset < range->offset) {
			range = &exec->untouched[exec->untouched_count++];
			range->offset = offset;
		}
		range->count = offset + param->elements - range->offset;
	}
	for (size_t i = 0; i < params->count; i++)
		touched[i] = !touched[i];
	exec->ranks.untouched = touched;
	return 0;
}

/* Lists the gradients of outputs, which are zeros until the caller writes them. */
static int plan_grad_outputs(struct cuda_exec *exec)
{
	const struct cuda_program *program = exec->program;
	int r = 0;

	exec->grad_outputs = calloc(program->tensor_count + 1, sizeof(*exec->grad_outputs));
	if (!exec->grad_outputs)
		return -ENOMEM;
	for (uint32_t i = 0; i < program->tensor_count && r == 0; i++) {
		struct cuda_tensor *tensor = program->tensors[i];

		if (!tensor->grad_output)
			continue;
		exec->grad_outputs[exec->grad_output_count++].tensor = tensor;
		r = gpu_fill(tensor->data, 0, tensor->bytes, exec->device->compute);
	}
	return r;
}

static int plan_logits(struct cuda_exec *exec)
{
	const struct cuda_program *program = exec->program;
	const struct device_value *logits = exec->graph->loss ? exec->graph->loss->x : NULL;
	int r = 0;

	for (uint32_t i = 0; logits && i < program->tensor_count; i++)
		if (program->tensors[i]->value == logits && !program->tensors[i]->gradient)
			exec->logits = program->tensors[i];
	if (!exec->logits ||
	    (exec->logits->element == CUDA_F32 && exec->logits->shape.c == logits->shape.c))
		return 0;
	exec->scratch = cuda_allocate(&r, device_shape_elements(logits->shape) * sizeof(float));
	return r;
}

/* Buffers of the loss, other than batch and results. */
static int plan_loss(struct cuda_exec *exec)
{
	const struct device_graph *graph = exec->graph;
	struct device_shape shape = graph->loss ? graph->loss->x->shape : (struct device_shape){0};
	int r = 0;

	if (!graph->loss)
		return 0;
	exec->losses = cuda_allocate(&r, shape.n * sizeof(float));
	if (graph->class_weights)
		exec->class_weights = cuda_allocate(&r, shape.c * sizeof(float));
	if (r < 0 || !graph->class_weights)
		return r;
	return cuda_copy_in(exec->device, exec->class_weights, graph->class_weights,
			    shape.c * sizeof(float));
}

int cuda_plan_times(struct cuda_exec *exec)
{
	uint32_t count = exec->program->op_count + 2;
	int r = 0;

	if (exec->times)
		return 0;
	exec->times = calloc(count, sizeof(*exec->times));
	if (!exec->times)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		exec->times[i] = cuda_event(&r, true);
	return r;
}

static int plan_times(struct cuda_exec *exec)
{
	return exec->device->base.options.profile ? cuda_plan_times(exec) : 0;
}

/* ---- planning ---- */

/*
 * Refuses different GPU models for by_matrix optimizers: matrix products round differently on them,
 * so the weights of ranks would diverge. Other updates are elementwise on identical gradients, so
 * they give the same bits.
 */
static int plan_kinds(struct cuda_exec *exec)
{
	const struct device_params *params = exec->graph->params;
	const struct cuda_params *store = params->backend;

	/* tuner is the lowest rank with this kind of GPU, 0 if rank 0 has the same kind */
	if (exec->graph->options.mode != DEVICE_TRAIN || !store->matrices || !exec->device->tuner)
		return 0;
	snprintf(
		exec->error, DEVICE_ERROR_MAX,
		"optimizer %s: its products differ between GPUs, and this one, %s, or its cuDNN is "
		"of another kind than rank 0's; take GPUs of one kind, or another optimizer",
		device_params_optimizer(params)->name, exec->device->gpu.name);
	return -ENOTSUP;
}

static int plan_lower(struct cuda_exec *exec)
{
	struct cuda_device *device = exec->device;
	struct program_options options = {
		.fusion = device->fusion,
		.element = device->element,
		.deterministic = device->base.options.deterministic,
		.conv = &device->engines.conv,
		.matmul = &device->engines.matmul,
	};

	return program_new(exec->graph, &options, &exec->program, exec->error);
}

#define NAMED 3 /* number of tensors that an error lists */

static const struct cuda_tensor *plan_largest_except(const struct cuda_program *program,
						     const struct cuda_tensor *const *named,
						     int count)
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
static void plan_explain_memory(struct cuda_exec *exec)
{
	const struct cuda_program *program = exec->program;
	const struct cuda_tensor *named[NAMED];
	struct gpu_properties now = exec->device->gpu;
	size_t length = strlen(exec->error);

	/* its memory counts as available to the plan */
	gpu_free(exec->arena);
	exec->arena = NULL;
	gpu_select(exec->device->index, &now);
	length += (size_t)snprintf(
		exec->error + length, DEVICE_ERROR_MAX - length,
		": activations and workspace take %.3f GiB, and of the GPU's %.2f GiB %.3f are "
		"free for them and the rest; use a smaller batch. Largest:",
		(double)program->arena.size / (1 << 30), (double)now.memory_total / (1 << 30),
		(double)now.memory_free / (1 << 30));
	for (int i = 0; i < NAMED && length < DEVICE_ERROR_MAX; i++) {
		named[i] = plan_largest_except(program, named, i);
		if (!named[i])
			return;
		length += (size_t)snprintf(exec->error + length, DEVICE_ERROR_MAX - length,
					   "%s %s (%.1f MiB)", i ? "," : "", named[i]->name,
					   (double)named[i]->bytes / (1 << 20));
	}
}

/* Sets a message for failures without one. */
static void plan_explain(struct cuda_exec *exec, int r)
{
	const char *text = exec->device->base.error;

	if (!*text)
		text = *gpu_error() ? gpu_error() : strerror(-r);
	snprintf(exec->error, DEVICE_ERROR_MAX, "%.500s", text);
	if (r == -ENOMEM)
		plan_explain_memory(exec);
}

static int plan_wait(struct cuda_exec *exec)
{
	return gpu_stream_synchronize(exec->device->compute);
}

typedef int (*part)(struct cuda_exec *exec);

/*
 * Runs the parts of planning until NULL. After each part, either all ranks continue or none does.
 */
static int plan_parts(struct cuda_exec *exec, const part *parts)
{
	int r = 0;

	for (; *parts && r == 0; parts++) {
		*exec->error = *exec->device->base.error = 0;
		r = (*parts)(exec);
	}
	if (r < 0 && !*exec->error)
		plan_explain(exec, r);
	return cuda_ranks_agree(exec->graph, r, exec->error);
}

/* Tunes, and builds the program again, because tuning may change it and its workspace. */
static int plan_tune(struct cuda_exec *exec)
{
	static const part tuning[] = {cuda_tune, NULL}, anew[] = {plan_lower, plan_arena, NULL};
	int r;

	if (!exec->device->base.options.autotune || !exec->device->engines.conv.tune)
		return 0;
	r = plan_parts(exec, tuning);
	if (r == 0)
		r = cuda_ranks_share(exec);
	if (r < 0)
		return r;
	gpu_free(exec->arena);
	exec->arena = NULL;
	program_free(exec->program);
	exec->program = NULL;
	return plan_parts(exec, anew);
}

static int plan_graph(struct cuda_exec *exec)
{
	static const part first[] = {plan_kinds, plan_lower, plan_arena, plan_weights, NULL};
	static const part rest[] = {
		plan_workspace,    plan_rings,      plan_staging, plan_untouched,
		plan_grad_outputs, plan_logits,     plan_loss,    cuda_make_layers,
		plan_times,        cuda_ranks_plan, plan_wait,    NULL,
	};
	int r = cuda_ranks_share(exec);

	if (r == 0)
		r = plan_parts(exec, first);
	if (r == 0)
		r = plan_tune(exec);
	if (r == 0)
		r = plan_parts(exec, rest);
	if (r < 0)
		return r;
	r = cuda_ranks_compare(exec);
	if (r < 0)
		plan_explain(exec, r);
	return r;
}

int cuda_graph_plan(struct device_graph *graph, char *error)
{
	struct cuda_exec *exec = calloc(1, sizeof(*exec));

	snprintf(error, DEVICE_ERROR_MAX, "out of memory");
	int r = cuda_ranks_agree(graph, exec ? 0 : -ENOMEM, error);
	if (r < 0) {
		free(exec);
		return r;
	}
	graph->backend = exec;
	exec->graph = graph;
	exec->device = (struct cuda_device *)graph->device;
	exec->error = error;
	r = plan_graph(exec);
	if (r < 0) {
		cuda_graph_release(graph);
		return r;
	}
	exec->error = NULL;
	*error = 0;
	return 0;
}

static void plan_release_staging(struct cuda_exec *exec)
{
	for (int i = 0; i < 2; i++) {
		struct cuda_staging *staging = &exec->staging[i];

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
		gpu_event_free(exec->tickets[i].event);
		gpu_free_host(exec->tickets[i].targets);
		gpu_free_host(exec->tickets[i].changes);
		gpu_free_host(exec->tickets[i].deferred);
	}
}

void cuda_graph_release(struct device_graph *graph)
{
	struct cuda_exec *exec = graph->backend;

	if (!exec)
		return;
	gpu_stream_synchronize(exec->device->copy);
	gpu_stream_synchronize(exec->device->compute);
	for (int i = 0; i < CUDA_VARIANTS; i++)
		gpu_graph_free(exec->captured[i]);
	for (uint32_t i = 0; exec->times && i < exec->program->op_count + 2; i++)
		gpu_event_free(exec->times[i]);
	for (int i = 0; i < DEVICE_RESULTS_MAX; i++)
		gpu_event_free(exec->done[i]);
	for (uint32_t i = 0; i < exec->grad_output_count; i++)
		free(exec->grad_outputs[i].values);
	plan_release_staging(exec);
	gpu_free_host(exec->result_ring);
	gpu_free(exec->workspace);
	gpu_free(exec->arguments);
	gpu_free(exec->results);
	gpu_free(exec->anomaly);
	gpu_free(exec->scratch);
	gpu_free(exec->losses);
	gpu_free(exec->class_weights);
	cuda_ranks_release(exec);
	gpu_free(exec->arena);
	program_free(exec->program);
	free(exec->untouched);
	free(exec->grad_outputs);
	free(exec->layers);
	free(exec->times);
	free(exec);
	graph->backend = NULL;
}
