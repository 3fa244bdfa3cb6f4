/*
 * One update of the weights from a step's batch, and the device steps that it takes.
 *
 * With train.accumulate, the batch is computed in micro-batches, consecutive slices of it. The
 * whole batch is available before the first slice starts, so an update is made completely or not at
 * all, and checkpoints never fall between micro-batches.
 *
 * With train.sam, the batch is computed twice: the first pass gives the perturbation, and the
 * second one the gradient at the perturbed weights. Random draws are the same in both. Only the
 * first pass updates running statistics, because the perturbed weights are never evaluated; the
 * paper's authors and others recommend this.
 */
#include "trainer/run/network/micro_batch.h"
#include "trainer/run/run_internal.h"

#include "trainer/algorithms/optim.h"
#include "trainer/algorithms/select.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"

#include <errno.h>

int run_train_batch(struct run *run, const struct run_feed *feed, const struct feed_batch *batch,
		    struct device_batch *ret_batch)
{
	int r = run_feed_device_batch(&run->ctx, feed, batch, "data.pipeline", ret_batch);
	if (r < 0)
		return r;
	ret_batch->draws = (struct device_draws){
		.seed = run->ctx.recipe->train.seed,
		.step = run->state.step + 1,
		.first = run->ctx.data_comm->rank * batch->count,
	};
	return 0;
}

/* ---- warm-up ---- */

/* Computes the batch's first micro-batch twice, because a graph's second step may allocate more. */
static int update_warm_up(struct run *run, const struct device_batch *batch)
{
	const struct run_graph *train = &run->network.train;
	struct device_batch slice = micro_batch(batch, run->data.classes, train->count, 0);
	uint64_t ticket;
	for (int i = 0; i < 2; i++) {
		int r = device_upload(train->graph, &slice, &ticket);
		if (r == 0)
			r = device_warmup(train->graph);
		if (r < 0)
			return r;
	}
	return 0;
}

int run_warm_up(struct run *run)
{
	const struct run_graph *train = &run->network.train;
	struct device_batch batch;
	int r = run_train_batch(run, &run->input.feed, &run->input.batch, &batch);
	if (r < 0)
		return r;
	r = augment_colout(&run->augment, run->state.step + 1, train, &batch);
	if (r < 0)
		return r;
	augment_mix(&run->augment, run->state.step + 1, train, &batch);
	r = teacher_forward(&run->teacher, &batch);
	if (r == -ENOMEM)
		return run_fail_step(run, r, "the logits of train.teacher");
	if (r == 0)
		r = update_warm_up(run, &batch);
	if (r != -ENOMEM)
		return 0; /* ignore other errors here: the step reports them better */
	return run_fail(&run->ctx, r, "computing model.name = %s for %u image%s of %u x %u: %s",
			run->ctx.recipe->model.name, train->count, train->count == 1 ? "" : "s",
			train->width, train->height, run_device_text(&run->ctx, r));
}

/* ---- the update ---- */

/*
 * Queues a device step on a micro-batch. hyper: NULL to compute only gradients. pending: all fields
 * except device_step.
 */
static int update_queue(struct run *run, const struct device_batch *batch,
			const struct device_hyper *hyper, struct pending_step *pending,
			uint64_t *ret_ticket)
{
	if (run->queue.count == STEP_QUEUE_MAX) {
		int r = run_collect(run, STEP_QUEUE_MAX - 1);
		if (r < 0)
			return r;
	}
	uint64_t begin = tracer_span_begin(&run->tracer);
	int r = device_upload(pending->graph, batch, ret_ticket);
	tracer_span_end(&run->tracer, begin, "feed");
	if (r < 0)
		return run_fail_step(run, r, "feeding a batch");
	begin = tracer_span_begin(&run->tracer);
	r = device_step(pending->graph, hyper, &pending->device_step);
	tracer_span_end(&run->tracer, begin, "compute");
	if (r < 0)
		return run_fail_step(run, r, "computing");
	step_queue_push(&run->queue, pending);
	return 0;
}

/* Queues all micro-batches; the last one gets `hyper`. */
static int update_pass(struct run *run, const struct run_graph *graph,
		       const struct device_batch *batch, const struct device_hyper *hyper,
		       struct pending_step pending, uint64_t *ret_ticket)
{
	uint32_t parts = (uint32_t)run->ctx.recipe->train.accumulate;
	pending.graph = graph->graph;
	for (uint32_t part = 0; part < parts; part++) {
		bool ends = part == parts - 1;
		struct device_batch slice =
			micro_batch(batch, run->data.classes, graph->count, part);
		pending.last = ends && !(hyper->perturb > 0);
		int r = update_queue(run, &slice, ends ? hyper : NULL, &pending, ret_ticket);
		if (r < 0)
			return r;
	}
	return 0;
}

static void update_hyper(const struct run *run, uint64_t step, struct device_hyper *ret_hyper)
{
	struct device_hyper *hyper = ret_hyper;
	optim_hyper(run->ctx.recipe, &run->length.schedule, step, run->state.batches_per_epoch,
		    hyper);
	for (unsigned i = 0; i < DEVICE_STARTS_MAX; i++)
		hyper->begun[i] = run->state.begun[i] ? run->state.begun[i] - 1 : 0;
	for (unsigned i = 0; i < DEVICE_GROUPS_MAX && run->hook.lr_factor > 0; i++)
		hyper->lr[i] *= (float)run->hook.lr_factor;
}

/* Queues the passes over the batch: two with train.sam, else one. */
static int update_passes(struct run *run, const struct run_graph *graph,
			 const struct device_batch *batch, uint64_t *ret_ticket)
{
	const struct recipe_train *recipe = &run->ctx.recipe->train;
	uint64_t step = run->state.step + 1;
	struct device_hyper hyper;
	update_hyper(run, step, &hyper);
	struct pending_step pending = {.step = step, .lr = (double)hyper.lr[MODEL_WEIGHTS]};
	if (recipe->sam > 0 && step % recipe->sam_every == 0) {
		struct device_hyper perturbs = hyper;
		perturbs.perturb = (float)recipe->sam;
		int r = update_pass(run, graph, batch, &perturbs, pending, ret_ticket);
		if (r < 0)
			return r;
		pending.again = true;
	}
	return update_pass(run, graph, batch, &hyper, pending, ret_ticket);
}

/*
 * With train.selective_backprop: reduces the batch to its kept samples. *ret_ticket is as in
 * run_update().
 */
static int update_select(struct run *run, struct device_batch *batch, uint64_t *ret_ticket)
{
	int r = selection_compute_losses(&run->selection, batch, ret_ticket);
	if (r < 0)
		return run_fail_step(run, r, "losses of the batch");
	r = selection_wait(&run->selection);
	if (r < 0)
		return run_fail_step(run, r, "copying a batch");
	return selection_apply(&run->selection, run->state.step + 1, batch);
}

int run_update(struct run *run, const struct device_batch *batch, uint64_t *ret_ticket)
{
	struct run_graph *graph = &run->network.train;
	struct device_batch augmented = *batch;
	uint64_t step = run->state.step + 1, selected_ticket;
	bool selects = select_is_due(&run->ctx.recipe->train, run->state.step, run->length.steps,
				     run->state.batch);
	int r = augment_colout(&run->augment, step, graph, &augmented);
	if (r < 0)
		return r;
	if (selects) {
		r = update_select(run, &augmented, ret_ticket);
		if (r < 0)
			return r;
		graph = &run->network.selected;
	}
	augment_mix(&run->augment, step, graph, &augmented);
	r = teacher_forward(&run->teacher, &augmented);
	if (r < 0)
		return run_fail_step(run, r, "the logits of train.teacher");
	if (run->hook.before) {
		r = run->hook.before(run->hook.data, &augmented);
		if (r < 0)
			return r;
	}
	if (!selects)
		return update_passes(run, graph, &augmented, ret_ticket);
	/* the kept samples are copies, and the device has already read the batch */
	r = update_passes(run, graph, &augmented, &selected_ticket);
	if (r < 0)
		return r;
	selection_queued(&run->selection, selected_ticket);
	return 0;
}
