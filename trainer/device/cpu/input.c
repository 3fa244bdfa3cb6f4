/* The graph's input: converts the uploaded batch. */
#include "format/augment/deferred.h"
#include "format/base/half.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/resample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TASKS 32

static int input_plan(struct cpu_exec *exec, struct cpu_node *node)
{
	exec->targets =
		malloc(node->node->y->shape.n * sizeof(int32_t) * device_target_words(exec->graph));
	return exec->targets ? cpu_resample_plan(exec) : -ENOMEM;
}

const struct cpu_node_ops cpu_input_ops = {.plan = input_plan};

struct feed_job {
	struct cpu_exec *exec;
	const struct device_batch *batch;
	const struct device_input_spec *spec;
	float scale[4], bias[4];
	char *to;
};

static float element_at(const struct device_batch *batch, size_t index)
{
	switch (batch->element) {
	case DEVICE_ELEMENT_F16:
		return half_to_float(((const uint16_t *)batch->images)[index]);
	case DEVICE_ELEMENT_BF16:
		return bfloat_to_float(((const uint16_t *)batch->images)[index]);
	case DEVICE_ELEMENT_F32:
		return ((const float *)batch->images)[index];
	case DEVICE_ELEMENT_U8:
		break;
	}
	return (float)((const uint8_t *)batch->images)[index];
}

/* Converts a row of pixels that is not plain bytes or is mirrored. */
static void upload_row(const struct feed_job *job, size_t first, char *to)
{
	const struct device_batch *batch = job->batch;
	uint32_t channels = job->spec->shape.c, width = job->spec->shape.w;
	enum element element = job->exec->device->element;
	bool bytes = batch->element == DEVICE_ELEMENT_U8;

	for (uint32_t x = 0; x < width; x++) {
		uint32_t source = batch->flip ? width - 1 - x : x;

		for (uint32_t c = 0; c < channels; c++) {
			float value = element_at(batch, (first + source) * batch->channels + c);

			if (bytes)
				value = value * job->scale[c] + job->bias[c];
			job->exec->device->loops.kernels->convert(
				to + ((size_t)x * channels + c) * element_size(element), element,
				&value, ELEMENT_F32, 1);
		}
	}
}

static void upload_image(const struct feed_job *job, size_t image, unsigned thread)
{
	struct device_shape shape = job->spec->shape;
	const struct device_batch *batch = job->batch;
	enum element element = job->exec->device->element;
	size_t pixels = (size_t)shape.h * shape.w,
	       row = (size_t)shape.w * shape.c * element_size(element);
	char *to = job->to + image * shape.h * row;

	if (image >= batch->count) {
		memset(to, 0, shape.h * row);
	} else if (job->spec->resamples) {
		struct cpu_resample_job resample = {job->exec, batch, job->scale, job->bias};

		cpu_resample_image(&resample, image, thread, to);
	} else if (batch->element == DEVICE_ELEMENT_U8 && !batch->flip) {
		job->exec->device->loops.kernels->normalize(
			to, element, shape.c,
			(const uint8_t *)batch->images + image * pixels * batch->channels,
			batch->channels, pixels, job->scale, job->bias);
	} else {
		for (uint32_t y = 0; y < shape.h; y++)
			upload_row(job, image * pixels + (size_t)y * shape.w, to + y * row);
	}
}

static void upload_task(void *context, uint32_t task, unsigned thread)
{
	const struct feed_job *job = context;
	size_t images = job->spec->shape.n;

	for (size_t i = images * task / TASKS; i < images * (task + 1) / TASKS; i++)
		upload_image(job, i, thread);
}

/* ---- deferred operations ---- */

struct finish_job {
	const struct device_batch *batch;
	uint8_t *to;
};

static void finish_task(void *context, uint32_t task, unsigned thread)
{
	const struct finish_job *job = context;
	const struct device_batch *batch = job->batch;
	size_t images = batch->count,
	       finished = (size_t)batch->height * batch->width * batch->channels;

	for (size_t i = images * task / TASKS; i < images * (task + 1) / TASKS; i++)
		deferred_apply(&batch->deferred[i],
			       (const uint8_t *)batch->images + i * device_batch_image(batch),
			       batch->delivered_width, batch->delivered_height, batch->channels,
			       job->to + i * finished);
}

/* Replaces *batch with a batch of finished images in the graph's memory. */
static int finish(struct cpu_exec *exec, struct device_batch *batch)
{
	size_t size = (size_t)batch->count * batch->height * batch->width * batch->channels;
	struct thread_pool *thread_pool = &exec->device->thread_pool;

	if (size > exec->finished_size) {
		free(exec->finished);
		exec->finished = malloc(size);
		exec->finished_size = exec->finished ? size : 0;
		if (!exec->finished)
			return device_fail(&exec->device->base, -ENOMEM,
					   "no memory for a batch's images");
	}
	struct finish_job job = {batch, exec->finished};

	thread_pool_enter(thread_pool);
	thread_pool_run(thread_pool, TASKS, finish_task, &job);
	thread_pool_leave(thread_pool);
	batch->images = exec->finished;
	batch->deferred = NULL;
	return 0;
}

int cpu_upload(struct device_graph *base, const struct device_batch *delivered,
	       uint64_t *ret_ticket)
{
	struct cpu_exec *exec = base->backend;
	struct device_node *node = base->input;
	struct device_batch finished = *delivered;
	const struct device_batch *batch = &finished;
	struct feed_job job = {
		.exec = exec,
		.batch = batch,
		.spec = &node->input,
		.to = exec->values[node->y->index].data,
	};

	if (exec->fed_count)
		return device_fail(base->device, -EBUSY,
				   "a second batch was fed before the first was used");
	int r = delivered->deferred ? finish(exec, &finished) : 0;

	if (r < 0)
		return r;
	for (uint32_t c = 0; c < node->y->shape.c && c < 4; c++) {
		job.scale[c] = 1 / node->input.std[c];
		job.bias[c] = -node->input.mean[c] / node->input.std[c];
	}
	if (exec->changes)
		device_changes_fill(base, batch, exec->changes);
	thread_pool_enter(&exec->device->thread_pool);
	thread_pool_run(&exec->device->thread_pool, TASKS, upload_task, &job);
	thread_pool_leave(&exec->device->thread_pool);
	device_targets_fill(base, batch, exec->targets);
	exec->fed_count = batch->count;
	exec->draws = batch->draws;
	*ret_ticket = ++exec->tickets;
	return 0;
}

int cpu_upload_done(struct device_graph *base, uint64_t ticket, bool wait)
{
	return 0; /* the upload has already converted the batch */
}
