/* Steps: queued, captured, replayed; what comes of them. */
#include "cuda.h"
#include "kernels/elementwise.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool training(const struct cuda_graph *cuda)
{
	return cuda->graph->options.mode == DEVICE_TRAIN;
}

static struct cuda_params *store_of(const struct cuda_graph *cuda)
{
	return cuda->graph->params->backend;
}

/* ---- the work of a step ---- */

/* Queues a search of what an operation wrote; anomalies are numbered by operation and role. */
static int search(struct cuda_graph *cuda, uint32_t index)
{
	const struct cuda_op *op = &cuda->program->ops[index];
	int r = 0;

	for (int role = 0; role < CUDA_ROLES && r == 0; role++) {
		const struct cuda_tensor *tensor = op->operands[role];

		if (!tensor || role == CUDA_WORKSPACE || role == CUDA_INDEX ||
		    role == CUDA_ADDEND || !cuda_op_writes(op, (enum cuda_role)role))
			continue;
		r = elementwise_check(&cuda->device->kernels,
				      &(struct elementwise_check){
					      .x = cuda_tensor_data(cuda, tensor),
					      .count = device_shape_elements(tensor->shape),
					      .element = tensor->element,
					      .tensor = index * CUDA_ROLES + (uint32_t)role,
					      .first = cuda->anomaly,
				      });
	}
	return r;
}

static int fail_op(struct cuda_graph *cuda, const struct cuda_op *op, int r)
{
	struct device *device = &cuda->device->base;

	if (*device->error)
		return r;
	return device_fail(device, r, "%s: %s could not be launched: %s", op->node->name,
			   cuda_op_name(op->kind), *gpu_error() ? gpu_error() : strerror(-r));
}

static bool is_ready(const struct cuda_graph *cuda, const struct cuda_op *op)
{
	return !training(cuda) && (cuda->variant & CUDA_VARIANT_READY) && cuda_op_is_constant(op);
}

static int queue_operation(struct cuda_graph *cuda, uint32_t index)
{
	const struct cuda_op *op = &cuda->program->ops[index];
	int r = cuda_ranks_before(cuda, op);

	gpu_range_push(op->node->name);
	if (r == 0)
		r = cuda_execute(cuda, op);
	gpu_range_pop();
	if (r == 0 && cuda->device->base.options.detect_anomaly)
		r = search(cuda, index);
	return r == 0 ? cuda_ranks_after(cuda, index) : r;
}

static int queue_operations(struct cuda_graph *cuda)
{
	const struct device_options *options = &cuda->device->base.options;
	int r = 0;

	*cuda->device->base.error = 0;
	for (uint32_t i = 0; i < cuda->program->op_count && r == 0; i++) {
		const struct cuda_op *op = &cuda->program->ops[i];

		if (options->profile)
			r = gpu_event_record(cuda->times[i], cuda->device->compute);
		if (r == 0 && !is_ready(cuda, op))
			r = queue_operation(cuda, i);
		if (r < 0)
			return fail_op(cuda, op, r);
	}
	if (options->profile)
		r = gpu_event_record(cuda->times[cuda->program->op_count], cuda->device->compute);
	return cuda_check(cuda->device, r, "timing");
}

/* Without a loss nothing else writes the results: all zeros, but for the loss scale. */
static int begin_results(struct cuda_graph *cuda)
{
	int r = gpu_fill(cuda->results, 0, sizeof(*cuda->results), cuda->device->compute);

	if (r == 0)
		r = gpu_copy(&cuda->results->loss_scale, &store_of(cuda)->state->loss_scale,
			     sizeof(double), cuda->device->compute);
	return cuda_check(cuda->device, r, "results");
}

static int begin_gradients(struct cuda_graph *cuda)
{
	int r = 0;

	if (!training(cuda) || (cuda->variant & CUDA_VARIANT_ADDS))
		return 0;
	for (uint32_t i = 0; i < cuda->untouched_count && r == 0; i++)
		r = gpu_fill(store_of(cuda)->slots[DEVICE_GRAD] + cuda->untouched[i].offset, 0,
			     cuda->untouched[i].count * sizeof(float), cuda->device->compute);
	return cuda_check(cuda->device, r, "gradients");
}

static int queue_gradients(struct cuda_graph *cuda)
{
	int r = cuda->graph->loss ? 0 : begin_results(cuda);

	if (r == 0)
		r = begin_gradients(cuda);
	if (r == 0)
		r = cuda_ranks_begin(cuda);
	if (r == 0)
		r = queue_operations(cuda);
	return r < 0 ? r : cuda_ranks_end(cuda);
}

static int queue_update(struct cuda_graph *cuda)
{
	if (!training(cuda) || !(cuda->variant & CUDA_VARIANT_UPDATES))
		return 0;
	return cuda_check(cuda->device,
			  cuda_queue_update(cuda->graph->params, cuda->arguments, cuda->results),
			  "update");
}

static int queue_step(struct cuda_graph *cuda)
{
	int r = queue_gradients(cuda);

	return r < 0 ? r : queue_update(cuda);
}

static int capture(struct cuda_graph *cuda)
{
	gpu_graph captured = NULL;
	int r = gpu_capture_begin(cuda->device->compute), ended;

	if (r < 0)
		return cuda_check(cuda->device, r, "capturing a step");
	r = queue_step(cuda);
	ended = gpu_capture_end(cuda->device->compute, &captured);
	if (r == 0)
		r = cuda_check(cuda->device, ended, "capturing a step");
	if (r < 0) {
		gpu_graph_free(captured);
		return r;
	}
	cuda->captured[cuda->variant] = captured;
	return 0;
}

/* The first time operation by operation, for libraries may load and set up what a capture must not see; the second time captured. */
static int run_captured(struct cuda_graph *cuda)
{
	int r = 0;

	if (!cuda->warm[cuda->variant]) {
		cuda->warm[cuda->variant] = true;
		return queue_step(cuda);
	}
	if (!cuda->captured[cuda->variant])
		r = capture(cuda);
	if (r < 0)
		return r;
	return cuda_check(cuda->device,
			  gpu_graph_launch(cuda->captured[cuda->variant], cuda->device->compute),
			  "replaying a step");
}

/* ---- looking into a step ---- */

static int name_anomaly(struct cuda_graph *cuda, uint64_t first, bool gradient)
{
	uint32_t number = (uint32_t)(first >> 40);
	const struct cuda_op *op = &cuda->program->ops[number / CUDA_ROLES];
	const struct cuda_tensor *tensor = op->operands[number % CUDA_ROLES];

	return device_fail(&cuda->device->base, -EDOM,
			   "%s: its %s is not finite (%s, element %llu of %llu, after %s %s)",
			   op->node->name,
			   gradient			  ? "gradient"
			   : tensor->value == op->node->y ? "result"
							  : "forward pass",
			   tensor->name, (unsigned long long)(first & ((1ull << 40) - 1)),
			   (unsigned long long)device_shape_elements(tensor->shape),
			   op->backward ? "backward" : "forward", cuda_op_name(op->kind));
}

/*
 * An overflow in the gradients is what loss scaling is for: the update will be skipped and the scale lowered. Only with a scale of at most 1 there is something
 * wrong.
 */
static int judge_anomaly(struct cuda_graph *cuda, uint64_t first)
{
	uint32_t number = (uint32_t)(first >> 40);
	bool gradient;
	double scale;
	int r;

	if (first == ELEMENTWISE_FINITE)
		return 0;
	/* the loss's comes with its forward pass */
	gradient =
		cuda->program->ops[number / CUDA_ROLES].backward || number % CUDA_ROLES == CUDA_DX;
	r = cuda_loss_scale(cuda->graph->params, &scale);
	if (r < 0 || (gradient && scale > 1))
		return r;
	return name_anomaly(cuda, first, gradient);
}

static int run_searched(struct cuda_graph *cuda)
{
	gpu_stream stream = cuda->device->compute;
	uint64_t first = 0;
	int r = cuda_check(cuda->device,
			   gpu_fill(cuda->anomaly, 0xff, sizeof(*cuda->anomaly), stream),
			   "looking for anomalies");

	if (r == 0)
		r = queue_gradients(cuda);
	if (r == 0)
		r = cuda_check(cuda->device,
			       gpu_copy_out(&first, cuda->anomaly, sizeof(first), stream),
			       "looking for anomalies");
	if (r == 0)
		r = cuda_check(cuda->device, gpu_stream_synchronize(stream),
			       "looking for anomalies");
	if (r == 0)
		r = judge_anomaly(cuda, first);
	return r < 0 ? r : queue_update(cuda);
}

static int add_times(struct cuda_graph *cuda)
{
	int r = gpu_stream_synchronize(cuda->device->compute);

	for (uint32_t i = 0; i < cuda->program->op_count && r == 0; i++) {
		const struct cuda_op *op = &cuda->program->ops[i];
		float milliseconds = 0;

		r = gpu_event_elapsed(cuda->times[i], cuda->times[i + 1], &milliseconds);
		cuda->layers[op->node->index].seconds[op->backward] += (double)milliseconds * 1e-3;
	}
	cuda->runs++;
	return cuda_check(cuda->device, r, "timing");
}

static int run_work(struct cuda_graph *cuda)
{
	const struct device_options *options = &cuda->device->base.options;
	int r;

	if (options->detect_anomaly)
		r = run_searched(cuda);
	else if (options->profile || options->eager)
		r = queue_step(cuda);
	else
		r = run_captured(cuda);
	return r == 0 && options->profile ? add_times(cuda) : r;
}

/* ---- gradients that were given ---- */

static int write_given(struct cuda_graph *cuda, struct cuda_given *given, double scale)
{
	const struct device_value *value = given->tensor->value;
	uint64_t count = device_shape_elements(value->shape);
	float *scaled = malloc(count * sizeof(float));
	void *memory = NULL;
	int r = scaled ? gpu_allocate(count * sizeof(float), &memory) : -ENOMEM;

	for (uint64_t i = 0; r == 0 && i < count; i++)
		scaled[i] = (float)((double)given->values[i] * scale);
	if (r == 0)
		r = gpu_copy_in(memory, scaled, count * sizeof(float), cuda->device->compute);
	if (r == 0)
		r = elementwise_copy(&cuda->device->kernels,
				     &(struct elementwise_copy){
					     .from = memory,
					     .to = cuda_tensor_data(cuda, given->tensor),
					     .rows = count / value->shape.c,
					     .from_columns = value->shape.c,
					     .to_columns = given->tensor->shape.c,
					     .from_element = CUDA_F32,
					     .to_element = given->tensor->element,
				     });
	if (r == 0)
		r = gpu_stream_synchronize(cuda->device->compute);
	gpu_free(memory);
	free(scaled);
	given->scale = scale;
	return cuda_check(cuda->device, r, "a given gradient");
}

/* They must carry the loss scale, which an update may have moved. */
static int rescale_given(struct cuda_graph *cuda)
{
	double scale;
	int r = 0;

	if (!cuda->given_count || cuda->device->base.info.precision != DEVICE_FP16)
		return 0;
	r = cuda_loss_scale(cuda->graph->params, &scale);
	for (uint32_t i = 0; i < cuda->given_count && r == 0; i++)
		if (cuda->given[i].values && cuda->given[i].scale != scale)
			r = write_given(cuda, &cuda->given[i], scale);
	return r;
}

/* ---- steps ---- */

/* Sends the step's arguments off. */
static int begin(struct cuda_graph *cuda, const struct device_hyper *hyper)
{
	struct cuda_device *device = cuda->device;
	uint64_t slot = (cuda->steps + 1) % DEVICE_RESULTS_MAX;
	struct step_store store = {.arguments = cuda->batch, .to = cuda->arguments};
	int r;

	if (!cuda->fed)
		return device_fail(&device->base, -EINVAL, "no batch was fed for this step");
	r = rescale_given(cuda);
	/* the step that had this place in the ring; the host is never further ahead */
	if (r == 0)
		r = cuda_ranks_wait(device, cuda->done[slot], "waiting for a step");
	if (r < 0)
		return r;
	store.arguments.step = cuda->steps + 1;
	if (hyper)
		store.arguments.hyper = *hyper;
	r = step_store(&device->kernels, &store);
	if (r == 0)
		r = gpu_stream_wait(device->compute, cuda->staging[cuda->ticket % 2].fed);
	return cuda_check(device, r, "beginning a step");
}

static int end(struct cuda_graph *cuda, uint64_t *ret_step)
{
	struct cuda_device *device = cuda->device;
	uint64_t slot = (cuda->steps + 1) % DEVICE_RESULTS_MAX;
	int r = gpu_copy_out(&cuda->result_ring[slot], cuda->results, sizeof(*cuda->results),
			     device->compute);

	if (r == 0)
		r = gpu_event_record(cuda->done[slot], device->compute);
	if (r < 0)
		return cuda_check(device, r, "ending a step");
	*ret_step = ++cuda->steps;
	return 0;
}

static int run(struct cuda_graph *cuda, enum cuda_variant variant, const struct device_hyper *hyper,
	       uint64_t *ret_step)
{
	int r = begin(cuda, hyper), used;

	if (r < 0)
		return r;
	cuda->fed = false;
	cuda->variant = variant;
	gpu_range_push(training(cuda) ? "step" : "evaluate");
	r = run_work(cuda);
	gpu_range_pop();
	/* also after a failure: the next batch may come */
	used = gpu_event_record(cuda->staging[cuda->ticket % 2].used, cuda->device->compute);
	if (r == 0)
		r = cuda_check(cuda->device, used, "ending a step");
	return r < 0 ? r : end(cuda, ret_step);
}

int cuda_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step)
{
	struct cuda_graph *cuda = graph->backend;
	struct cuda_params *store = store_of(cuda);
	int variant = (store->fresh ? 0 : CUDA_VARIANT_ADDS) | (hyper ? CUDA_VARIANT_UPDATES : 0);
	int r = run(cuda, (enum cuda_variant)variant, hyper, ret_step);

	/* a micro-batch moves running statistics */
	store->version++;
	if (r == 0)
		store->fresh = hyper != NULL;
	return r;
}

int cuda_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step)
{
	struct cuda_graph *cuda = graph->backend;
	uint64_t version = store_of(cuda)->version;
	bool ready = cuda->constant == version && cuda->constant_slot == weights;
	int variant =
		(weights == DEVICE_EMA ? CUDA_VARIANT_EMA : 0) | (ready ? CUDA_VARIANT_READY : 0);
	int r = run(cuda, (enum cuda_variant)variant, NULL, ret_step);

	cuda->constant = r < 0 ? 0 : version;
	cuda->constant_slot = weights;
	return r;
}

int cuda_results(struct device_graph *graph, uint64_t step, bool wait,
		 struct device_results *ret_results)
{
	struct cuda_graph *cuda = graph->backend;
	gpu_event done = cuda->done[step % DEVICE_RESULTS_MAX];
	int r = 0;

	if (!step || step > cuda->steps || cuda->steps - step >= DEVICE_RESULTS_MAX)
		return -ERANGE;
	/* ranks must not find different answers to whether it is there yet: it is what has been waited for */
	if (!wait && cuda->device->collective && step > cuda->ranks.awaited)
		return -EAGAIN;
	if (!wait)
		r = gpu_event_query(done);
	if (r == -EAGAIN)
		return r;
	r = r < 0 ? cuda_check(cuda->device, r, "a step's results")
		  : cuda_ranks_wait(cuda->device, done, "a step's results");
	if (r < 0)
		return r;
	cuda->ranks.awaited = step > cuda->ranks.awaited ? step : cuda->ranks.awaited;
	*ret_results = cuda->result_ring[step % DEVICE_RESULTS_MAX];
	ret_results->step = step;
	return 0;
}

/* ---- values ---- */

int cuda_logits(struct device_graph *graph, float *ret_logits)
{
	struct cuda_graph *cuda = graph->backend;
	struct cuda_device *device = cuda->device;
	struct device_shape shape = graph->loss->x->shape;
	const float *from = cuda->scratch;
	int r = 0;

	if (from)
		r = elementwise_copy(&device->kernels,
				     &(struct elementwise_copy){
					     .from = cuda_tensor_data(cuda, cuda->logits),
					     .to = cuda->scratch,
					     .rows = shape.n,
					     .from_columns = cuda->logits->shape.c,
					     .to_columns = shape.c,
					     .from_element = cuda->logits->element,
					     .to_element = CUDA_F32,
				     });
	else
		from = cuda_tensor_data(cuda, cuda->logits);
	if (r == 0)
		r = gpu_copy_out(ret_logits, from, device_shape_elements(shape) * sizeof(float),
				 device->compute);
	if (r == 0)
		r = gpu_stream_synchronize(device->compute);
	return cuda_check(device, r, "logits");
}

static struct cuda_tensor *find_kept(const struct cuda_graph *cuda,
				     const struct device_value *value, enum device_slot slot)
{
	const struct cuda_program *program = cuda->program;

	for (uint32_t i = 0; i < program->tensor_count; i++) {
		struct cuda_tensor *tensor = program->tensors[i];

		if (tensor->value == value && (tensor->kept || tensor->given) &&
		    tensor->gradient == (slot == DEVICE_GRAD))
			return tensor;
	}
	return NULL;
}

/* Takes memory for the time of the call. */
static int read_tensor(struct cuda_graph *cuda, const struct cuda_tensor *tensor,
		       struct device_shape shape, float *ret_values)
{
	uint64_t count = device_shape_elements(shape);
	void *memory = NULL;
	int r = gpu_allocate(count * sizeof(float), &memory);

	if (r == 0)
		r = elementwise_copy(&cuda->device->kernels,
				     &(struct elementwise_copy){
					     .from = cuda_tensor_data(cuda, tensor),
					     .to = memory,
					     .rows = count / shape.c,
					     .from_columns = tensor->shape.c,
					     .to_columns = shape.c,
					     .from_element = tensor->element,
					     .to_element = CUDA_F32,
				     });
	if (r == 0)
		r = gpu_copy_out(ret_values, memory, count * sizeof(float), cuda->device->compute);
	if (r == 0)
		r = gpu_stream_synchronize(cuda->device->compute);
	gpu_free(memory);
	return cuda_check(cuda->device, r, tensor->name);
}

int cuda_value_read(struct device_graph *graph, const struct device_value *value,
		    enum device_slot slot, float *ret_values)
{
	struct cuda_graph *cuda = graph->backend;
	const struct cuda_tensor *tensor;
	struct device_results last = {.loss_scale = 1};
	int r;

	if (slot != DEVICE_VALUE && slot != DEVICE_GRAD)
		return -ENOENT;
	tensor = find_kept(cuda, value, slot);
	if (!tensor)
		return -ENOENT;
	r = read_tensor(cuda, tensor, value->shape, ret_values);
	if (r < 0 || slot == DEVICE_VALUE || !cuda->steps)
		return r;
	r = cuda_results(graph, cuda->steps, true, &last);
	for (uint64_t i = 0; r == 0 && i < device_shape_elements(value->shape); i++)
		ret_values[i] = (float)((double)ret_values[i] / last.loss_scale);
	return r;
}

int cuda_value_write(struct device_graph *graph, const struct device_value *value,
		     enum device_slot slot, const float *values)
{
	struct cuda_graph *cuda = graph->backend;
	uint64_t bytes = device_shape_elements(value->shape) * sizeof(float);
	double scale;
	int r;

	for (uint32_t i = 0; slot == DEVICE_GRAD && i < cuda->given_count; i++) {
		struct cuda_given *given = &cuda->given[i];

		if (given->tensor->value != value)
			continue;
		if (!given->values)
			given->values = malloc(bytes);
		if (!given->values)
			return -ENOMEM;
		memcpy(given->values, values, bytes);
		r = cuda_loss_scale(graph->params, &scale);
		return r < 0 ? r : write_given(cuda, given, scale);
	}
	return -ENOENT;
}
