/*
 * Batches on their way to the device: copied on a stream of their own while the step before them
 * runs.
 */
#include "trainer/device/cuda/cuda.h"

#include <errno.h>
#include <string.h>

/* A batch wider than any before; the only memory that is taken after planning. */
static int feed_widen(struct cuda_graph *cuda, struct cuda_staging *staging, uint64_t bytes)
{
	int r = cuda->device->base.ops->synchronize(&cuda->device->base);

	if (r < 0)
		return r;
	gpu_free(staging->images);
	staging->images = NULL;
	staging->bytes = 0;
	r = gpu_allocate(bytes, &staging->images);
	if (r == 0)
		staging->bytes = bytes;
	return cuda_check(cuda->device, r, "memory for a batch");
}

/* By way of page-locked memory of ours. */
static int feed_copy_staged(struct cuda_graph *cuda, struct cuda_staging *staging,
			    const void *images, uint64_t bytes)
{
	int r = gpu_event_synchronize(staging->fed); /* what was copied from there last */

	if (r == 0 && staging->host_bytes < bytes) {
		gpu_free_host(staging->host);
		staging->host = NULL;
		staging->host_bytes = 0;
		r = gpu_allocate_host(bytes, &staging->host);
		if (r == 0)
			staging->host_bytes = bytes;
	}
	if (r < 0)
		return r;
	memcpy(staging->host, images, bytes);
	return gpu_copy_in(staging->images, staging->host, bytes, cuda->device->copy);
}

static int feed_copy_images(struct cuda_graph *cuda, struct cuda_staging *staging,
			    const struct device_batch *batch, bool *ret_staged)
{
	struct device_shape shape = device_batch_shape(cuda->graph, batch);
	uint64_t bytes = (uint64_t)batch->count * shape.h * shape.w * batch->channels *
			 device_element_size(batch->element);
	int r;

	if (bytes > staging->bytes) {
		r = feed_widen(cuda, staging, bytes);
		if (r < 0)
			return r;
	}
	r = gpu_stream_wait(cuda->device->copy, staging->used);
	*ret_staged = !cuda_is_registered(cuda->device, batch->images, bytes);
	if (r == 0 && *ret_staged)
		r = feed_copy_staged(cuda, staging, batch->images, bytes);
	else if (r == 0)
		r = gpu_copy_in(staging->images, batch->images, bytes, cuda->device->copy);
	return cuda_check(cuda->device, r, "copying a batch");
}

static int feed_copy_targets(struct cuda_graph *cuda, struct cuda_staging *staging,
			     struct cuda_ticket *ticket, const struct device_batch *batch)
{
	int r = gpu_event_synchronize(ticket->event); /* of the copy that had these before */

	if (r < 0)
		return cuda_check(cuda->device, r, "waiting for a batch");
	device_targets_fill(cuda->graph, batch, ticket->targets);
	r = gpu_copy_in(staging->targets, ticket->targets,
			cuda->graph->input->y->shape.n * sizeof(int32_t) *
				device_target_words(cuda->graph),
			cuda->device->copy);
	return cuda_check(cuda->device, r, "copying targets");
}

/* How the batch becomes the input; the ticket's memory is free since its targets were filled in. */
static int feed_copy_changes(struct cuda_graph *cuda, struct cuda_staging *staging,
			     struct cuda_ticket *ticket, const struct device_batch *batch)
{
	int r;

	if (!ticket->changes)
		return 0;
	device_changes_fill(cuda->graph, batch, ticket->changes);
	r = gpu_copy_in(staging->changes, ticket->changes, device_changes_bytes(cuda->graph),
			cuda->device->copy);
	return cuda_check(cuda->device, r, "copying how a batch is resampled");
}

int cuda_feed(struct device_graph *graph, const struct device_batch *batch, uint64_t *ret_ticket)
{
	struct cuda_graph *cuda = graph->backend;
	uint64_t number = cuda->ticket + 1;
	struct cuda_staging *staging = &cuda->staging[number % 2];
	struct cuda_ticket *ticket = &cuda->tickets[number % CUDA_TICKETS];
	struct device_shape shape = device_batch_shape(graph, batch);
	int r;

	if (cuda->fed)
		return device_fail(graph->device, -EBUSY,
				   "a second batch was fed before the first was used");
	gpu_range_push("feed");
	r = feed_copy_images(cuda, staging, batch, &ticket->staged);
	if (r == 0)
		r = feed_copy_targets(cuda, staging, ticket, batch);
	if (r == 0)
		r = feed_copy_changes(cuda, staging, ticket, batch);
	if (r == 0)
		r = cuda_check(cuda->device, gpu_event_record(staging->fed, cuda->device->copy),
			       "copying a batch");
	if (r == 0)
		r = cuda_check(cuda->device, gpu_event_record(ticket->event, cuda->device->copy),
			       "copying a batch");
	gpu_range_pop();
	if (r < 0)
		return r;
	cuda->batch = (struct step_arguments){
		.images = staging->images,
		.labels = staging->targets,
		.count = batch->count,
		.channels = batch->channels,
		.element = (uint32_t)batch->element,
		.flip = batch->flip,
		.height = shape.h,
		.width = shape.w,
		.draws = batch->draws,
	};
	if (staging->changes) {
		struct device_changes changes = device_changes_at(graph, staging->changes);

		cuda->batch.blends = changes.blends;
		cuda->batch.rows = changes.rows;
		cuda->batch.columns = changes.columns;
	}
	cuda->fed = true;
	cuda->ticket = number;
	*ret_ticket = number;
	return 0;
}

int cuda_fed(struct device_graph *graph, uint64_t ticket, bool wait)
{
	struct cuda_graph *cuda = graph->backend;
	struct cuda_ticket *own = &cuda->tickets[ticket % CUDA_TICKETS];
	int r;

	/* feeding so many more has waited for it */
	if (ticket + CUDA_TICKETS <= cuda->ticket || own->staged)
		return 0;
	r = wait ? gpu_event_synchronize(own->event) : gpu_event_query(own->event);
	return r == -EAGAIN ? r : cuda_check(cuda->device, r, "copying a batch");
}
