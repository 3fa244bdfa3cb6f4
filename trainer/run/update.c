/*
 * One update of the weights from a step's batch: the device steps that it takes.
 *
 * With train.accumulate, the batch is computed in micro-batches, consecutive slices of it. The
 * whole batch is available before the first slice starts, so an update is made completely or not at
 * all, and checkpoints never fall between micro-batches.
 *
 * With train.sam, the batch is computed twice: the first pass gives the perturbation, and the
 * second one the gradient at the perturbed weights. Random draws are the same in both. Batch norms
 * update running statistics only in the first pass, as implementations by the paper's authors and
 * others recommend, since the perturbed weights are never evaluated.
 */
#include "trainer/algorithms/colout.h"
#include "trainer/algorithms/mix.h"
#include "trainer/algorithms/optim.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <stdlib.h>

/* Random draws of the update's passes; equal for the perturbed weights. */
static struct device_draws update_draws(const struct run *run, uint32_t share)
{
	return (struct device_draws){
		.seed = run->recipe->train.seed,
		.step = run->state.step + 1,
		.first = run->comm->rank * share,
	};
}

static struct device_batch update_slice(const struct run *run, const struct run_graph *graph,
					const struct device_batch *batch, uint32_t part)
{
	struct device_batch slice = *batch;
	size_t first = (size_t)part * graph->count;
	slice.images = (const char *)batch->images + first * device_batch_image(batch);
	slice.deferred = batch->deferred ? batch->deferred + first : NULL;
	slice.labels = batch->labels ? batch->labels + first : NULL;
	slice.labels2 = batch->labels2 ? batch->labels2 + first : NULL;
	slice.shares = batch->shares ? batch->shares + first : NULL;
	slice.blends = batch->blends ? batch->blends + first : NULL;
	slice.targets = batch->targets ? batch->targets + first * run->data.classes : NULL;
	slice.teacher = batch->teacher ? batch->teacher + first * run->data.classes : NULL;
	slice.count = graph->count;
	slice.draws = update_draws(run, batch->count);
	slice.draws.first += (uint32_t)first;
	return slice;
}

struct device_batch run_slice(const struct run *run, const struct device_batch *batch,
			      uint32_t part)
{
	return update_slice(run, &run->train, batch, part);
}

/* Applies ColOut to the batch, if enabled; the same in all passes. */
static int update_thin(struct run *run, struct device_batch *batch)
{
	double share = run->recipe->data.colout;
	uint32_t *picks;
	if (!(share > 0))
		return 0;
	picks = realloc(run->picks, (run->train.height + run->train.width) * sizeof(*picks));
	if (!picks)
		return run_fail(run, -ENOMEM, "out of memory");
	run->picks = picks;
	colout_draw(share, run->recipe->train.seed, run->state.step + 1, batch->height,
		    batch->width, picks, picks + run->train.height);
	batch->rows = picks;
	batch->columns = picks + run->train.height;
	return 0;
}

/* Applies mixup and CutMix to the batch, if enabled; the same in all passes. */
static void update_mix(struct run *run, const struct run_graph *graph, struct device_batch *batch)
{
	struct mix_batch of = {
		.seed = run->recipe->train.seed,
		.step = run->state.step + 1,
		.first = run->comm->rank * data_train_share(&run->data),
		.count = batch->count,
		.micro = graph->count,
		.height = graph->height,
		.width = graph->width,
	};
	if (!mix_is_on(&run->recipe->train))
		return;
	mix_draw(&run->recipe->train, &of, run->mix.blends, run->mix.shares);
	for (uint32_t i = 0; i < batch->count; i++)
		run->mix.labels2[i] = batch->labels ? batch->labels[i ^ 1] : -1;
	batch->blends = run->mix.blends;
	batch->labels2 = run->mix.labels2;
	batch->shares = run->mix.shares;
}

int run_warm_up(struct run *run)
{
	const struct run_graph *train = &run->train;
	struct device_batch batch;
	uint64_t ticket;
	int r = run_device_batch(run, &run->feed, &run->batch, "data.pipeline", &batch);
	if (!r)
		r = update_thin(run, &batch);
	if (r)
		return r;
	update_mix(run, train, &batch);
	r = run_teacher_forward(run, &batch);
	if (r)
		return r == -ENOMEM ? r : 0; /* the step reports other errors better */
	batch = run_slice(run, &batch, 0);
	for (int i = 0; i < 2 && !r; i++) {
		r = device_feed(train->graph, &batch, &ticket);
		if (!r)
			r = device_rehearse(train->graph);
	}
	if (r != -ENOMEM)
		return 0; /* the step reports errors better */
	return run_fail(run, r, "computing model.name = %s for %u image%s of %u x %u: %s",
			run->recipe->model.name, train->count, train->count == 1 ? "" : "s",
			train->width, train->height, run_device_text(run, r));
}

/* hyper NULL for gradients only. pending: complete except for device_step. */
static int update_queue(struct run *run, const struct device_batch *batch,
			const struct device_hyper *hyper, struct run_pending pending,
			uint64_t *ret_ticket)
{
	int r = run->pending_count == RUN_PENDING_MAX ? run_collect(run, RUN_PENDING_MAX - 1) : 0;
	if (r)
		return r;
	uint64_t begin = run_span_begin(run);
	r = device_feed(pending.graph, batch, ret_ticket);
	run_span_end(run, begin, "feed");
	if (r)
		return run_fail_step(run, r, "feeding a batch");
	begin = run_span_begin(run);
	r = device_step(pending.graph, hyper, &pending.device_step);
	run_span_end(run, begin, "compute");
	if (r)
		return run_fail_step(run, r, "computing");
	run->pending[run->pending_count++] = pending;
	return 0;
}

/* Computes all micro-batches; the last one gets `hyper`. */
static int update_pass(struct run *run, const struct run_graph *graph,
		       const struct device_batch *batch, const struct device_hyper *hyper,
		       struct run_pending pending, uint64_t *ret_ticket)
{
	uint32_t parts = (uint32_t)run->recipe->train.accumulate;
	int r = 0;
	pending.graph = graph->graph;
	for (uint32_t part = 0; part < parts && !r; part++) {
		bool ends = part == parts - 1;
		struct device_batch slice = update_slice(run, graph, batch, part);
		pending.last = ends && !(hyper->perturb > 0);
		r = update_queue(run, &slice, ends ? hyper : NULL, pending, ret_ticket);
	}
	return r;
}

int run_update(struct run *run, const struct device_batch *batch, uint64_t *ret_ticket)
{
	const struct recipe_train *recipe = &run->recipe->train;
	uint64_t step = run->state.step + 1;
	struct device_batch mixed = *batch;
	struct device_hyper hyper;
	struct run_graph *graph;
	uint64_t last, *ticket = ret_ticket;
	int r = update_thin(run, &mixed);
	if (!r)
		r = run_select(run, &mixed, &graph, ret_ticket);
	if (r)
		return r;
	/* the kept samples are in the run's memory, and the batch was already read */
	if (graph != &run->train)
		ticket = &last;
	update_mix(run, graph, &mixed);
	r = run_teacher_forward(run, &mixed);
	if (r)
		return r;
	if (run->observe && (r = run->observe(run, &mixed)))
		return r;
	optim_hyper(run->recipe, &run->schedule, step, run->state.batches_per_epoch, &hyper);
	for (unsigned i = 0; i < DEVICE_STARTS_MAX; i++)
		hyper.begun[i] = run->state.begun[i] ? run->state.begun[i] - 1 : 0;
	for (unsigned i = 0; i < DEVICE_GROUPS_MAX && run->find_rate > 0; i++)
		hyper.lr[i] *= (float)run->find_rate;
	struct run_pending pending = {.step = step, .lr = (double)hyper.lr[MODEL_WEIGHTS]};
	if (recipe->sam > 0 && step % recipe->sam_every == 0) {
		struct device_hyper perturbs = hyper;
		perturbs.perturb = (float)recipe->sam;
		r = update_pass(run, graph, &mixed, &perturbs, pending, ticket);
		pending.again = true;
	}
	if (!r)
		r = update_pass(run, graph, &mixed, &hyper, pending, ticket);
	if (!r && ticket == &last)
		run->selected.ticket = last;
	return r;
}
