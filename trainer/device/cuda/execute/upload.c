/* Feeds batches: copies them on a separate stream while the previous step runs. */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/kernels/deferred.h"

#include <errno.h>
#include <string.h>

/*
 * Enlarges a buffer for a batch larger than all previous ones. Nothing else allocates after
 * planning.
 */
static int upload_widen(struct cuda_exec *exec, void **buffer, uint64_t *size, uint64_t bytes)
{
	if (bytes <= *size)
		return 0;
	int r = exec->device->base.ops->synchronize(&exec->device->base);
	if (r < 0)
		return r;
	gpu_free(*buffer);
	*buffer = NULL;
	*size = 0;
	r = gpu_allocate(bytes, buffer);
	if (r == 0)
		*size = bytes;
	return cuda_check(exec->device, r, "memory for a batch");
}

/* Copies through the page-locked staging buffer. */
static int upload_copy_staged(struct cuda_exec *exec, struct cuda_staging *staging, void *to,
			      const void *images, uint64_t bytes)
{
	int r = gpu_event_synchronize(staging->fed); /* wait for the copy before */

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
	return gpu_copy_in(to, staging->host, bytes, exec->device->copy);
}

static int upload_copy_images(struct cuda_exec *exec, struct cuda_staging *staging,
			      const struct device_batch *batch, bool *ret_staged)
{
	struct device_shape shape = device_batch_shape(exec->graph, batch);
	uint64_t finished = (uint64_t)batch->count * shape.h * shape.w * batch->channels *
			    device_element_size(batch->element);
	uint64_t bytes = batch->deferred ? batch->count * device_batch_image(batch) : finished;
	void *to;
	int r = upload_widen(exec, &staging->images, &staging->bytes, finished);

	if (r == 0 && batch->deferred)
		r = upload_widen(exec, &staging->delivered, &staging->delivered_bytes, bytes);
	if (r < 0)
		return r;
	to = batch->deferred ? staging->delivered : staging->images;
	r = gpu_stream_wait(exec->device->copy, staging->used);
	*ret_staged = !cuda_is_registered(exec->device, batch->images, bytes);
	if (r == 0 && *ret_staged)
		r = upload_copy_staged(exec, staging, to, batch->images, bytes);
	else if (r == 0)
		r = gpu_copy_in(to, batch->images, bytes, exec->device->copy);
	return cuda_check(exec->device, r, "copying a batch");
}

/* Applies deferred operations after the copy, while the previous step runs. */
static int upload_finish(struct cuda_exec *exec, struct cuda_staging *staging,
			 struct cuda_ticket *ticket, const struct device_batch *batch)
{
	uint64_t samples = exec->graph->input->y->shape.n;
	uint64_t bytes = samples * sizeof(struct deferred);
	struct kernel_device copies = exec->device->kernels;

	if (!batch->deferred)
		return 0;
	int r = upload_widen(exec, &staging->deferred, &staging->deferred_bytes, bytes);
	if (r == 0 && !ticket->deferred)
		r = gpu_allocate_host(bytes, &ticket->deferred);
	if (r < 0)
		return cuda_check(exec->device, r, "memory for a batch");
	memcpy(ticket->deferred, batch->deferred, batch->count * sizeof(struct deferred));
	r = gpu_copy_in(staging->deferred, ticket->deferred, batch->count * sizeof(struct deferred),
			exec->device->copy);
	copies.stream = exec->device->copy;
	if (r == 0)
		r = deferred_finish(&copies, &(struct deferred_finish){
						     .deferred = staging->deferred,
						     .delivered = staging->delivered,
						     .finished = staging->images,
						     .count = batch->count,
						     .width = batch->delivered_width,
						     .height = batch->delivered_height,
						     .channels = batch->channels,
					     });
	return cuda_check(exec->device, r, "finishing a batch's images");
}

static int upload_copy_targets(struct cuda_exec *exec, struct cuda_staging *staging,
			       struct cuda_ticket *ticket, const struct device_batch *batch)
{
	/* the teacher's logits are last */
	size_t words = batch->teacher_kept ? device_target_own_words(exec->graph)
					   : device_target_words(exec->graph);
	int r = gpu_event_synchronize(ticket->event); /* wait for the copy before */

	if (r < 0)
		return cuda_check(exec->device, r, "waiting for a batch");
	device_targets_fill(exec->graph, batch, ticket->targets);
	r = gpu_copy_in(staging->targets, ticket->targets,
			exec->graph->input->y->shape.n * sizeof(int32_t) * words,
			exec->device->copy);
	return cuda_check(exec->device, r, "copying targets");
}

/*
 * Copies the tables of resampling. The buffers of the ticket are free, because the copy of targets
 * has waited for them.
 */
static int upload_copy_changes(struct cuda_exec *exec, struct cuda_staging *staging,
			       struct cuda_ticket *ticket, const struct device_batch *batch)
{
	if (!ticket->changes)
		return 0;
	device_changes_fill(exec->graph, batch, ticket->changes);
	int r = gpu_copy_in(staging->changes, ticket->changes, device_changes_bytes(exec->graph),
			    exec->device->copy);
	return cuda_check(exec->device, r, "copying how a batch is resampled");
}

int cuda_upload(struct device_graph *graph, const struct device_batch *batch, uint64_t *ret_ticket)
{
	struct cuda_exec *exec = graph->backend;
	uint64_t number = exec->ticket + 1;
	struct cuda_staging *staging = &exec->staging[number % 2];
	struct cuda_ticket *ticket = &exec->tickets[number % CUDA_TICKETS];
	struct device_shape shape = device_batch_shape(graph, batch);

	if (exec->fed)
		return device_fail(graph->device, -EBUSY,
				   "a second batch was fed before the first was used");
	gpu_range_push("feed");
	int r = upload_copy_images(exec, staging, batch, &ticket->staged);
	if (r == 0)
		r = upload_copy_targets(exec, staging, ticket, batch);
	if (r == 0)
		r = upload_finish(exec, staging, ticket, batch);
	if (r == 0)
		r = upload_copy_changes(exec, staging, ticket, batch);
	if (r == 0)
		r = cuda_check(exec->device, gpu_event_record(staging->fed, exec->device->copy),
			       "copying a batch");
	if (r == 0)
		r = cuda_check(exec->device, gpu_event_record(ticket->event, exec->device->copy),
			       "copying a batch");
	gpu_range_pop();
	if (r < 0)
		return r;
	exec->batch = (struct step_arguments){
		.images = staging->images,
		.labels = staging->targets,
		.teacher = batch->teacher_kept
				   ? batch->teacher
				   : device_target_arrays(graph, staging->targets).teacher,
		.teacher_scale =
			batch->teacher_kept && batch->teacher_scale != 0 ? batch->teacher_scale : 1,
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

		exec->batch.blends = changes.blends;
		exec->batch.rows = changes.rows;
		exec->batch.columns = changes.columns;
	}
	exec->fed = true;
	exec->ticket = number;
	*ret_ticket = number;
	return 0;
}

int cuda_upload_done(struct device_graph *graph, uint64_t ticket, bool wait)
{
	struct cuda_exec *exec = graph->backend;
	struct cuda_ticket *own = &exec->tickets[ticket % CUDA_TICKETS];

	/* the copy is known to be done: a later upload waited for it, or it was staged */
	if (ticket + CUDA_TICKETS <= exec->ticket || own->staged)
		return 0;
	int r = wait ? gpu_event_synchronize(own->event) : gpu_event_query(own->event);
	return r == -EAGAIN ? r : cuda_check(exec->device, r, "copying a batch");
}
