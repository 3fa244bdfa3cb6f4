/* Steps: queue, capture, replay, results. */
#include "format/base/system/clock.h"
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/kernels/elementwise.h"

#include <errno.h>
#include <string.h>

static bool run_is_training(const struct cuda_exec *exec)
{
	return exec->graph->options.mode == DEVICE_TRAIN;
}

static struct cuda_params *run_store(const struct cuda_exec *exec)
{
	return exec->graph->params->backend;
}

/* ---- the work of a step ---- */

/*
 * Queues checks of the results of an operation for non-finite elements. A result is numbered by
 * operation and role.
 */
static int run_search(struct cuda_exec *exec, uint32_t index)
{
	const struct cuda_op *op = &exec->program->ops[index];
	int r = 0;

	/* a gather is not waited for yet; the first operation that reads the weights is searched */
	for (int role = 0; role < CUDA_ROLES && r == 0 && op->kind != CUDA_OP_GATHER; role++) {
		const struct cuda_tensor *tensor = op->operands[role];

		if (!tensor || role == CUDA_WORKSPACE || role == CUDA_INDEX ||
		    role == CUDA_ADDEND || !cuda_op_writes(op, (enum cuda_role)role))
			continue;
		r = elementwise_check(&exec->device->kernels,
				      &(struct elementwise_check){
					      .x = cuda_tensor_data(exec, tensor),
					      .count = device_shape_elements(tensor->shape),
					      .element = tensor->element,
					      .tensor = index * CUDA_ROLES + (uint32_t)role,
					      .first = exec->anomaly,
				      });
	}
	return r;
}

static int run_fail_op(struct cuda_exec *exec, const struct cuda_op *op, int r)
{
	struct device *device = &exec->device->base;

	if (*device->error)
		return r;
	return device_fail(device, r, "%s: %s could not be launched: %s", op->node->name,
			   cuda_op_name(op->kind), *gpu_error() ? gpu_error() : strerror(-r));
}

/* True for operations that the variant skips. */
static bool run_is_idle(const struct cuda_exec *exec, const struct cuda_op *op)
{
	if (run_is_training(exec))
		return (exec->variant & CUDA_VARIANT_FORWARD) && op->backward;
	return (exec->variant & CUDA_VARIANT_READY) && cuda_op_is_constant(op);
}

/* True if operations are launched one by one, between events. */
static bool run_is_timed(const struct cuda_exec *exec)
{
	return exec->device->base.options.profile || exec->device->base.watch;
}

static int run_queue_operation(struct cuda_exec *exec, uint32_t index)
{
	const struct cuda_op *op = &exec->program->ops[index];
	int r = cuda_ranks_before(exec, op);

	gpu_range_push(op->node->name);
	if (r == 0)
		r = cuda_execute(exec, op);
	gpu_range_pop();
	if (r == 0 && exec->device->base.options.detect_anomaly)
		r = run_search(exec, index);
	return r == 0 ? cuda_ranks_after_op(exec, index) : r;
}

static int run_queue_operations(struct cuda_exec *exec)
{
	bool timed = run_is_timed(exec);
	int r = 0;

	*exec->device->base.error = 0;
	for (uint32_t i = 0; i < exec->program->op_count && r == 0; i++) {
		const struct cuda_op *op = &exec->program->ops[i];

		if (timed)
			r = gpu_event_record(exec->times[i], exec->device->compute);
		if (r == 0 && !run_is_idle(exec, op))
			r = run_queue_operation(exec, i);
		if (r < 0)
			return run_fail_op(exec, op, r);
	}
	if (timed)
		r = gpu_event_record(exec->times[exec->program->op_count], exec->device->compute);
	return cuda_check(exec->device, r, "timing");
}

/* Without a loss, no operation writes the results: zeroes them, and sets the loss scale. */
static int run_begin_results(struct cuda_exec *exec)
{
	int r = gpu_fill(exec->results, 0, sizeof(*exec->results), exec->device->compute);

	if (r == 0)
		r = gpu_copy(&exec->results->loss_scale, &run_store(exec)->state->loss_scale,
			     sizeof(double), exec->device->compute);
	return cuda_check(exec->device, r, "results");
}

static int run_begin_gradients(struct cuda_exec *exec)
{
	int r = 0;

	if (!run_is_training(exec) || (exec->variant & (CUDA_VARIANT_ADDS | CUDA_VARIANT_FORWARD)))
		return 0;
	if (exec->ranks.gradients)
		r = gpu_fill(run_store(exec)->slots[DEVICE_GRAD], 0,
			     exec->graph->params->shards.divided /
				     device_world(&exec->device->base) * sizeof(float),
			     exec->device->compute);
	for (uint32_t i = 0; i < exec->untouched_count && r == 0; i++)
		r = gpu_fill(run_store(exec)->slots[DEVICE_GRAD] + exec->untouched[i].offset, 0,
			     exec->untouched[i].count * sizeof(float), exec->device->compute);
	return cuda_check(exec->device, r, "gradients");
}

static int run_queue_gradients(struct cuda_exec *exec)
{
	int r = exec->graph->loss ? 0 : run_begin_results(exec);

	if (r == 0)
		r = run_begin_gradients(exec);
	if (r == 0)
		r = cuda_ranks_begin_step(exec);
	if (r == 0)
		r = run_queue_operations(exec);
	return r < 0 ? r : cuda_ranks_end_step(exec);
}

static int run_queue_update(struct cuda_exec *exec)
{
	if (!run_is_training(exec) || !(exec->variant & CUDA_VARIANT_UPDATES))
		return 0;
	struct device_params *params = exec->graph->params;
	int r = 0;

	if (exec->variant & CUDA_VARIANT_PERTURBS)
		return cuda_queue_perturb(params, exec->arguments, exec->results);
	if (exec->variant & CUDA_VARIANT_PERTURBED)
		r = cuda_queue_restore(params);
	return r < 0 ? r : cuda_queue_update(params, exec->arguments, exec->results);
}

static int run_queue_step(struct cuda_exec *exec)
{
	int r = run_queue_gradients(exec);

	return r < 0 ? r : run_queue_update(exec);
}

/*
 * The counters of bytes sent that include those of all communicators; scratch for a single rank,
 * which sends none.
 */
static struct comm_sent *run_sent(const struct cuda_exec *exec)
{
	static struct comm_sent none;
	struct comm *comm = exec->device->base.options.comm;

	while (comm && comm->parent)
		comm = comm->parent;
	return comm ? &comm->sent : &none;
}

static const enum cuda_variant run_warmup_variant = CUDA_VARIANT_WARMS_UP | CUDA_VARIANT_HOLDS;

static int run_capture(struct cuda_exec *exec)
{
	gpu_graph captured = NULL;
	struct comm_sent before = *run_sent(exec), *sent = &exec->captured_sent[exec->variant];

	gpu_graph_free(exec->captured[run_warmup_variant]);
	exec->captured[run_warmup_variant] = NULL;
	int r = gpu_capture_begin(exec->device->compute);
	if (r < 0)
		return cuda_check(exec->device, r, "capturing a step");
	r = run_queue_step(exec);
	int ended = gpu_capture_end(exec->device->compute, &captured);
	if (r == 0)
		r = cuda_check(exec->device, ended, "capturing a step");
	if (r < 0) {
		gpu_graph_free(captured);
		return r;
	}
	exec->captured[exec->variant] = captured;
	/* a capture counts what only its replays send */
	*sent = *run_sent(exec);
	comm_sent_add(sent, &before, -1);
	*run_sent(exec) = before;
	return 0;
}

/*
 * Runs a variant operation by operation the first time, because libraries may then load modules and
 * initialize, which a capture forbids. Captures it the second time, and replays it from then on.
 */
static int run_captured(struct cuda_exec *exec)
{
	int r = 0;

	if (!exec->warm[exec->variant]) {
		exec->warm[exec->variant] = true;
		return run_queue_step(exec);
	}
	if (!exec->captured[exec->variant])
		r = run_capture(exec);
	if (r < 0)
		return r;
	comm_sent_add(run_sent(exec), &exec->captured_sent[exec->variant], 1);
	return cuda_check(exec->device,
			  gpu_graph_launch(exec->captured[exec->variant], exec->device->compute),
			  "replaying a step");
}

/* ---- looking into a step ---- */

static int run_name_anomaly(struct cuda_exec *exec, uint64_t first, bool gradient)
{
	uint32_t number = (uint32_t)(first >> 40);
	const struct cuda_op *op = &exec->program->ops[number / CUDA_ROLES];
	const struct cuda_tensor *tensor = op->operands[number % CUDA_ROLES];

	return device_fail(&exec->device->base, -EDOM,
			   "%s: its %s is not finite (%s, element %llu of %llu, after %s %s)",
			   op->node->name,
			   gradient                       ? "gradient"
			   : tensor->value == op->node->y ? "result"
							  : "forward pass",
			   tensor->name, (unsigned long long)(first & ((1ull << 40) - 1)),
			   (unsigned long long)device_shape_elements(tensor->shape),
			   op->backward ? "backward" : "forward", cuda_op_name(op->kind));
}

/*
 * Decides whether non-finite gradients are an anomaly. With loss scaling an overflow is expected:
 * the update is skipped and the scale lowered. So it is an anomaly only at a scale of at most 1.
 */
static int run_judge_anomaly(struct cuda_exec *exec, uint64_t first)
{
	uint32_t number = (uint32_t)(first >> 40);
	bool gradient;
	double scale;

	if (first == ELEMENTWISE_FINITE)
		return 0;
	/* the forward operation of the loss writes a gradient */
	gradient =
		exec->program->ops[number / CUDA_ROLES].backward || number % CUDA_ROLES == CUDA_DX;
	int r = cuda_loss_scale(exec->graph->params, &scale);
	if (r < 0 || (gradient && scale > 1))
		return r;
	return run_name_anomaly(exec, first, gradient);
}

static int run_searched(struct cuda_exec *exec)
{
	gpu_stream stream = exec->device->compute;
	uint64_t first = 0;
	int r = cuda_check(exec->device,
			   gpu_fill(exec->anomaly, 0xff, sizeof(*exec->anomaly), stream),
			   "looking for anomalies");

	if (r == 0)
		r = run_queue_gradients(exec);
	if (r == 0)
		r = cuda_check(exec->device,
			       gpu_copy_out(&first, exec->anomaly, sizeof(first), stream),
			       "looking for anomalies");
	if (r == 0)
		r = cuda_check(exec->device, gpu_stream_synchronize(stream),
			       "looking for anomalies");
	if (r == 0)
		r = run_judge_anomaly(exec, first);
	return r < 0 ? r : run_queue_update(exec);
}

static int run_add_times(struct cuda_exec *exec)
{
	int r = gpu_stream_synchronize(exec->device->compute);

	for (uint32_t i = 0; i < exec->program->op_count && r == 0; i++) {
		const struct cuda_op *op = &exec->program->ops[i];
		float milliseconds = 0;

		r = gpu_event_elapsed(exec->times[i], exec->times[i + 1], &milliseconds);
		exec->layers[op->node->index].seconds[op->backward] += (double)milliseconds * 1e-3;
	}
	exec->runs++;
	return cuda_check(exec->device, r, "timing");
}

static int run_work(struct cuda_exec *exec)
{
	const struct device_options *options = &exec->device->base.options;
	int r;

	if (options->detect_anomaly)
		r = run_searched(exec);
	else if (run_is_timed(exec) || options->eager)
		r = run_queue_step(exec);
	else
		r = run_captured(exec);
	return r == 0 && options->profile ? run_add_times(exec) : r;
}

/* Nanoseconds between two events of the step. */
static uint64_t run_elapsed_ns(const struct cuda_exec *exec, uint32_t from, uint32_t to, int *r)
{
	float milliseconds = 0;

	if (*r == 0)
		*r = gpu_event_elapsed(exec->times[from], exec->times[to], &milliseconds);
	return (uint64_t)((double)milliseconds * 1e6);
}

/*
 * Reports the times of a step to device_watch(). Nothing else was in flight when it began, at
 * begin_ns.
 */
static int run_report_span(struct cuda_exec *exec, uint64_t begin_ns)
{
	const struct device *device = &exec->device->base;
	uint32_t count = exec->program->op_count;
	bool updates = run_is_training(exec) && (exec->variant & CUDA_VARIANT_UPDATES);
	int r = gpu_event_record(exec->times[count + 1], exec->device->compute);

	if (r == 0)
		r = gpu_stream_synchronize(exec->device->compute);
	for (uint32_t i = 0; i <= count && r == 0; i++) {
		const struct cuda_op *op = i < count ? &exec->program->ops[i] : NULL;
		struct device_span span = {"update", "", "update",
					   begin_ns + run_elapsed_ns(exec, 0, i, &r),
					   begin_ns + run_elapsed_ns(exec, 0, i + 1, &r)};

		if (op ? run_is_idle(exec, op) : !updates)
			continue;
		if (op) {
			span.name = op->node->name;
			span.kind = cuda_op_name(op->kind);
			span.pass = !run_is_training(exec) ? "evaluation"
				    : op->backward         ? "backward"
							   : "forward";
		}
		if (r == 0)
			device->watch(device->watch_of, &span);
	}
	return cuda_check(exec->device, r, "timing");
}

static int run_watched(struct cuda_exec *exec)
{
	int r = cuda_plan_times(exec);

	if (r == 0)
		r = gpu_stream_synchronize(exec->device->compute);
	if (r < 0)
		return cuda_check(exec->device, r, "timing");
	/* the first event is recorded after this, so no span is reported before it began */
	uint64_t begin = clock_ns(CLOCK_MONOTONIC);

	r = run_work(exec);
	return r < 0 ? r : run_report_span(exec, begin);
}

/* ---- steps ---- */

/* Queues the step's arguments. */
static int run_begin(struct cuda_exec *exec, const struct device_hyper *hyper)
{
	struct cuda_device *device = exec->device;
	uint64_t slot = (exec->steps + 1) % DEVICE_RESULTS_MAX;
	struct step_store store = {.arguments = exec->batch, .to = exec->arguments};

	if (!exec->fed)
		return device_fail(&device->base, -EINVAL, "no batch was fed for this step");
	int r = cuda_rescale_grad_outputs(exec);
	/*
	 * wait for the step that last used this ring entry: this limits how far the host is ahead
	 */
	if (r == 0)
		r = cuda_ranks_wait(device, exec->done[slot], "waiting for a step");
	if (r < 0)
		return r;
	store.arguments.step = exec->steps + 1;
	if (hyper)
		store.arguments.hyper = *hyper;
	r = step_store(&device->kernels, &store);
	if (r == 0)
		r = gpu_stream_wait(device->compute, exec->staging[exec->ticket % 2].fed);
	return cuda_check(device, r, "beginning a step");
}

static int run_end(struct cuda_exec *exec, uint64_t *ret_step)
{
	struct cuda_device *device = exec->device;
	uint64_t slot = (exec->steps + 1) % DEVICE_RESULTS_MAX;
	int r = gpu_copy_out(&exec->result_ring[slot], exec->results, sizeof(*exec->results),
			     device->compute);

	if (r == 0)
		r = gpu_event_record(exec->done[slot], device->compute);
	if (r < 0)
		return cuda_check(device, r, "ending a step");
	*ret_step = ++exec->steps;
	return 0;
}

static int run_step(struct cuda_exec *exec, enum cuda_variant variant,
		    const struct device_hyper *hyper, uint64_t *ret_step)
{
	int r = run_begin(exec, hyper);

	if (r < 0)
		return r;
	exec->fed = false;
	exec->variant = variant;
	gpu_range_push(run_is_training(exec) ? "step" : "evaluate");
	r = exec->device->base.watch ? run_watched(exec) : run_work(exec);
	gpu_range_pop();
	/* record even after a failure, so that the next batch can be fed */
	int used = gpu_event_record(exec->staging[exec->ticket % 2].used, exec->device->compute);
	if (r == 0)
		r = cuda_check(exec->device, used, "ending a step");
	return r < 0 ? r : run_end(exec, ret_step);
}

int cuda_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step)
{
	struct cuda_exec *exec = graph->backend;
	struct cuda_params *store = run_store(exec);
	bool perturbed = graph->params->perturbed;
	int variant = (store->fresh ? 0 : CUDA_VARIANT_ADDS) | (hyper ? CUDA_VARIANT_UPDATES : 0) |
		      (hyper && hyper->perturb > 0 ? CUDA_VARIANT_PERTURBS : 0) |
		      (perturbed ? CUDA_VARIANT_PERTURBED | CUDA_VARIANT_HOLDS : 0);
	int r = run_step(exec, (enum cuda_variant)variant, hyper, ret_step);

	/* micro-batches update running statistics */
	store->version++;
	if (r == 0)
		store->fresh = hyper;
	return r;
}

int cuda_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step)
{
	struct cuda_exec *exec = graph->backend;
	int variant = CUDA_VARIANT_FORWARD | (moves_statistics ? 0 : CUDA_VARIANT_HOLDS);

	run_store(exec)->version++;
	return run_step(exec, (enum cuda_variant)variant, NULL, ret_step);
}

/* The second warm-up is captured like a step. Its graph is kept until a real step is captured. */
int cuda_warmup(struct device_graph *graph)
{
	struct cuda_exec *exec = graph->backend;
	uint64_t step;
	int r = run_step(exec, run_warmup_variant, NULL, &step);

	return r < 0 ? r : graph->device->ops->synchronize(graph->device);
}

int cuda_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step)
{
	struct cuda_exec *exec = graph->backend;
	uint64_t version = run_store(exec)->version;
	bool ready = exec->constant == version && exec->constant_slot == weights;
	int variant = (weights == DEVICE_EMA ? CUDA_VARIANT_EMA : 0) |
		      (weights == DEVICE_SWA ? CUDA_VARIANT_SWA : 0) |
		      (ready ? CUDA_VARIANT_READY : 0);
	int r = run_step(exec, (enum cuda_variant)variant, NULL, ret_step);

	exec->constant = r < 0 ? 0 : version;
	exec->constant_slot = weights;
	return r;
}

int cuda_results(struct device_graph *graph, uint64_t step, bool wait,
		 struct device_results *ret_results)
{
	struct cuda_exec *exec = graph->backend;
	gpu_event done = exec->done[step % DEVICE_RESULTS_MAX];
	int r = 0;

	if (!step || step > exec->steps || exec->steps - step >= DEVICE_RESULTS_MAX)
		return -ERANGE;
	/*
	 * all ranks must return the same, so results are ready only after a call that waited for
	 * them
	 */
	if (!wait && (exec->device->collective || exec->device->group) &&
	    step > exec->ranks.awaited)
		return -EAGAIN;
	if (!wait)
		r = gpu_event_query(done);
	if (r == -EAGAIN)
		return r;
	r = r < 0 ? cuda_check(exec->device, r, "a step's results")
		  : cuda_ranks_wait(exec->device, done, "a step's results");
	if (r < 0)
		return r;
	exec->ranks.awaited = step > exec->ranks.awaited ? step : exec->ranks.awaited;
	*ret_results = exec->result_ring[step % DEVICE_RESULTS_MAX];
	ret_results->step = step;
	return 0;
}
