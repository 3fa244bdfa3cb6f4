#include "trainer/run/network/micro_batch.h"

struct device_batch micro_batch(const struct device_batch *batch, uint32_t classes, uint32_t count,
				uint32_t part)
{
	struct device_batch slice = *batch;
	size_t first = (size_t)part * count;
	slice.images = (const char *)batch->images + first * device_batch_image(batch);
	slice.deferred = batch->deferred ? batch->deferred + first : NULL;
	slice.labels = batch->labels ? batch->labels + first : NULL;
	slice.labels2 = batch->labels2 ? batch->labels2 + first : NULL;
	slice.shares = batch->shares ? batch->shares + first : NULL;
	slice.blends = batch->blends ? batch->blends + first : NULL;
	slice.targets = batch->targets ? batch->targets + first * classes : NULL;
	slice.teacher = batch->teacher ? batch->teacher + first * classes : NULL;
	slice.count = count;
	slice.draws.first += (uint32_t)first;
	return slice;
}

int micro_batch_gradients(struct device_graph *graph, const struct device_batch *batch)
{
	uint64_t ticket, step;
	int r = device_upload(graph, batch, &ticket);
	if (r < 0)
		return r;
	r = device_step(graph, NULL, &step);
	return r < 0 ? r : device_upload_done(graph, ticket, true);
}

int micro_batch_forward(struct device_graph *graph, const struct device_batch *batch,
			bool moves_statistics, uint64_t *ret_step)
{
	uint64_t ticket;
	int r = device_upload(graph, batch, &ticket);
	if (r < 0)
		return r;
	r = device_forward(graph, moves_statistics, ret_step);
	return r < 0 ? r : device_upload_done(graph, ticket, true);
}
