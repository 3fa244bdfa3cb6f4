/*
 * A step of train.selective_backprop: a forward pass computes the losses of all samples, as the
 * step would but without mixup and CutMix, and the kept samples are copied for a graph of their
 * number. The pass does not touch running statistics. The kept samples then form the batch: draws
 * depend on the position in it, and neighbours in it are mixed.
 */
#include "trainer/algorithms/select.h"
#include "trainer/algorithms/mix.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int run_open_selection(struct run *run)
{
	const struct recipe *recipe = run->recipe;
	uint32_t share = data_train_share(&run->data), parts = recipe_accumulate(recipe);
	uint32_t count = select_count(&recipe->train, share);
	if (!select_is_on(&recipe->train))
		return 0;
	if (run->comm->world > 1)
		return run_fail(
			run, -EINVAL,
			"train.selective_backprop = %g is for one rank, and there are %u: what "
			"is kept of a batch may be of any of them; leave it 0",
			recipe->train.selective_backprop, run->comm->world);
	if (count % parts || (mix_is_on(&recipe->train) && count / parts % 2))
		return run_fail(
			run, -EINVAL,
			"train.selective_backprop = %g keeps %u of data.batch_size = %u, which "
			"does not divide into %u micro-batch%s%s: take another share",
			recipe->train.selective_backprop, count, share, parts,
			parts == 1 ? "" : "es",
			mix_is_on(&recipe->train) ? " of pairs to be mixed" : "");
	run_close_selection(run);
	run->selected.losses = calloc(share, sizeof(*run->selected.losses));
	run->selected.picks = calloc(count, sizeof(*run->selected.picks));
	run->selected.labels = calloc(count, sizeof(*run->selected.labels));
	run->selected.deferred = calloc(count, sizeof(*run->selected.deferred));
	return run->selected.losses && run->selected.picks && run->selected.labels &&
			       run->selected.deferred
		       ? 0
		       : run_fail(run, -ENOMEM, "out of memory");
}

void run_close_selection(struct run *run)
{
	free(run->selected.losses);
	free(run->selected.picks);
	free(run->selected.labels);
	free(run->selected.deferred);
	free(run->selected.images);
	memset(&run->selected, 0, sizeof(run->selected));
}

/* Once its losses are there, the device has read the batch. */
static int select_losses(struct run *run, const struct device_batch *batch, uint64_t *ret_ticket)
{
	struct device_graph *graph = run->train.graph;
	uint32_t parts = recipe_accumulate(run->recipe);
	int r = 0;
	for (uint32_t part = 0; part < parts && !r; part++) {
		struct device_batch slice = run_slice(run, batch, part);
		uint64_t step;
		r = device_feed(graph, &slice, ret_ticket);
		if (!r)
			r = device_forward(graph, false, &step);
		if (!r)
			r = device_losses(graph, run->selected.losses + part * run->train.count);
	}
	return r ? run_fail_step(run, r, "losses of the batch") : 0;
}

/* The device may still be reading the previously kept samples. */
static int select_make_room(struct run *run, size_t size)
{
	int r = run->selected.ticket
			? device_fed(run->selected_train.graph, run->selected.ticket, true)
			: 0;
	if (r)
		return run_fail_step(run, r, "copying a batch");
	run->selected.ticket = 0;
	if (run->selected.size >= size)
		return 0;
	free(run->selected.images);
	run->selected.size = 0;
	run->selected.images = malloc(size);
	if (!run->selected.images)
		return run_fail(run, -ENOMEM, "out of memory");
	run->selected.size = size;
	return 0;
}

static void select_copy(struct run *run, struct device_batch *batch, uint32_t count, size_t image)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t pick = run->selected.picks[i];
		memcpy((char *)run->selected.images + i * image,
		       (const char *)batch->images + pick * image, image);
		run->selected.labels[i] = batch->labels ? batch->labels[pick] : -1;
		if (batch->deferred)
			run->selected.deferred[i] = batch->deferred[pick];
	}
	if (batch->deferred)
		batch->deferred = run->selected.deferred;
	batch->images = run->selected.images;
	batch->labels = run->selected.labels;
	batch->count = count;
}

int run_select(struct run *run, struct device_batch *batch, struct run_graph **ret_graph,
	       uint64_t *ret_ticket)
{
	const struct recipe_train *recipe = &run->recipe->train;
	uint32_t count = select_count(recipe, batch->count);
	size_t image = device_batch_image(batch);
	*ret_graph = &run->train;
	if (!select_is_due(recipe, run->state.step, run->steps, run->state.batch))
		return 0;
	int r = select_losses(run, batch, ret_ticket);
	if (!r)
		r = select_make_room(run, count * image);
	if (!r && select_draw(recipe, run->state.step + 1, run->selected.losses, batch->count,
			      run->selected.picks))
		r = run_fail(run, -ENOMEM, "out of memory");
	if (r)
		return r;
	select_copy(run, batch, count, image);
	*ret_graph = &run->selected_train;
	return 0;
}
