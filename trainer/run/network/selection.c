/*
 * A step of train.selective_backprop. A forward pass computes the losses of all samples, without
 * mixup and CutMix and without updating running statistics. The kept samples are then copied into a
 * smaller batch, for which a separate graph is planned. Draws of later augmentation depend on the
 * index in that batch, and mixup blends samples adjacent in it.
 */
#include "trainer/run/network/selection.h"

#include "trainer/algorithms/mix.h"
#include "trainer/algorithms/select.h"
#include "trainer/device/graph.h"
#include "trainer/device/steps.h"
#include "trainer/run/network/micro_batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t selection_count(const struct selection *selection)
{
	return select_count(&selection->ctx->recipe->train, data_train_share(selection->data));
}

static int selection_check(const struct selection *selection, uint32_t count)
{
	const struct recipe_train *recipe = &selection->ctx->recipe->train;
	uint32_t parts = recipe_accumulate(selection->ctx->recipe);
	if (selection->ctx->data_comm->world > 1)
		return run_fail(
			selection->ctx, -EINVAL,
			"train.selective_backprop = %g does not work on batches divided over "
			"%u ranks, because the kept samples may be of any of them: set it to 0",
			recipe->selective_backprop, selection->ctx->data_comm->world);
	if (count % parts || (mix_is_on(recipe) && count / parts % 2))
		return run_fail(selection->ctx, -EINVAL,
				"train.selective_backprop = %g keeps %u of data.batch_size = %u, "
				"which is not divisible into %u micro-batch%s%s: use another share",
				recipe->selective_backprop, count,
				data_train_share(selection->data), parts, parts == 1 ? "" : "es",
				mix_is_on(recipe) ? " of pairs to blend" : "");
	return 0;
}

int selection_open(struct selection *selection)
{
	uint32_t count = selection_count(selection);
	if (!select_is_on(&selection->ctx->recipe->train))
		return 0;
	int r = selection_check(selection, count);
	if (r < 0)
		return r;
	selection_close(selection);
	selection->losses = calloc(data_train_share(selection->data), sizeof(*selection->losses));
	selection->picks = calloc(count, sizeof(*selection->picks));
	selection->labels = calloc(count, sizeof(*selection->labels));
	selection->deferred = calloc(count, sizeof(*selection->deferred));
	selection->targets =
		calloc((size_t)count * data_target_numbers(selection->data), sizeof(float));
	if (!selection->losses || !selection->picks || !selection->labels || !selection->deferred ||
	    !selection->targets)
		return run_fail(selection->ctx, -ENOMEM, "out of memory");
	return 0;
}

void selection_close(struct selection *selection)
{
	free(selection->losses);
	free(selection->picks);
	free(selection->labels);
	free(selection->targets);
	free(selection->deferred);
	free(selection->images);
	*selection = (struct selection){
		.ctx = selection->ctx, .data = selection->data, .network = selection->network};
}

int selection_plan(struct selection *selection)
{
	const struct recipe *recipe = selection->ctx->recipe;
	struct network *network = selection->network;
	/* the old ticket is of an earlier graph, which was freed */
	selection->ticket = 0;
	if (!select_is_on(&recipe->train))
		return 0;
	return network_plan(network, &network->selected, DEVICE_TRAIN,
			    selection_count(selection) / recipe_accumulate(recipe),
			    network->train.height, network->train.width);
}

int selection_compute_losses(struct selection *selection, const struct device_batch *batch,
			     uint64_t *ret_ticket)
{
	const struct run_graph *train = &selection->network->train;
	for (uint32_t part = 0; part < recipe_accumulate(selection->ctx->recipe); part++) {
		struct device_batch slice =
			micro_batch(batch, selection->data->classes, train->count, part);
		uint64_t step;
		int r = device_upload(train->graph, &slice, ret_ticket);
		if (r == 0)
			r = device_forward(train->graph, false, &step);
		if (r == 0)
			r = device_losses(train->graph, selection->losses + part * train->count);
		if (r < 0)
			return r;
	}
	return 0;
}

int selection_wait(struct selection *selection)
{
	if (!selection->ticket)
		return 0;
	int r = device_upload_done(selection->network->selected.graph, selection->ticket, true);
	if (r < 0)
		return r;
	selection->ticket = 0;
	return 0;
}

static int selection_reserve(struct selection *selection, size_t size)
{
	if (selection->size >= size)
		return 0;
	free(selection->images);
	selection->size = 0;
	selection->images = malloc(size);
	if (!selection->images)
		return -ENOMEM;
	selection->size = size;
	return 0;
}

static void selection_copy(struct selection *selection, uint32_t count, struct device_batch *batch)
{
	size_t image = device_batch_image(batch), outputs = selection->data->classes;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t pick = selection->picks[i];
		memcpy((char *)selection->images + i * image,
		       (const char *)batch->images + pick * image, image);
		selection->labels[i] = batch->labels ? batch->labels[pick] : -1;
		if (batch->targets)
			memcpy(selection->targets + i * outputs, batch->targets + pick * outputs,
			       outputs * sizeof(float));
		if (batch->deferred)
			selection->deferred[i] = batch->deferred[pick];
	}
	if (batch->deferred)
		batch->deferred = selection->deferred;
	if (batch->targets)
		batch->targets = selection->targets;
	batch->images = selection->images;
	batch->labels = selection->labels;
	batch->count = count;
}

int selection_apply(struct selection *selection, uint64_t step, struct device_batch *batch)
{
	const struct recipe_train *recipe = &selection->ctx->recipe->train;
	uint32_t count = select_count(recipe, batch->count);
	int r = selection_reserve(selection, count * device_batch_image(batch));
	if (r == 0)
		r = select_draw(recipe, step, selection->losses, batch->count, selection->picks);
	if (r < 0)
		return run_fail(selection->ctx, -ENOMEM, "out of memory");
	selection_copy(selection, count, batch);
	return 0;
}

void selection_queued(struct selection *selection, uint64_t ticket)
{
	selection->ticket = ticket;
}
