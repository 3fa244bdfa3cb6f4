/* The two ends of a graph: the batch as it comes from the feed, and the loss. */
#include "format/base/half.h"
#include "trainer/device/cpu/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TASKS 32

static int input_plan(struct cpu_graph *graph, struct cpu_node *node)
{
	graph->labels = malloc(node->node->y->shape.n * sizeof(int32_t));
	return graph->labels ? 0 : -ENOMEM;
}

const struct cpu_node_ops cpu_input_ops = {.plan = input_plan};

struct feed_job {
	struct cpu_graph *graph;
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

/* One row of pixels that is not plain bytes, or is mirrored. */
static void feed_row(const struct feed_job *job, size_t first, char *to)
{
	const struct device_batch *batch = job->batch;
	uint32_t channels = job->spec->shape.c, width = job->spec->shape.w;
	enum element element = job->graph->device->element;
	bool bytes = batch->element == DEVICE_ELEMENT_U8;

	for (uint32_t x = 0; x < width; x++) {
		uint32_t source = batch->flip ? width - 1 - x : x;

		for (uint32_t c = 0; c < channels; c++) {
			float value = element_at(batch, (first + source) * batch->channels + c);

			if (bytes)
				value = value * job->scale[c] + job->bias[c];
			job->graph->device->loops.kernels->convert(
				to + ((size_t)x * channels + c) * element_size(element), element,
				&value, ELEMENT_F32, 1);
		}
	}
}

static void feed_image(const struct feed_job *job, size_t image)
{
	struct device_shape shape = job->spec->shape;
	const struct device_batch *batch = job->batch;
	enum element element = job->graph->device->element;
	size_t pixels = (size_t)shape.h * shape.w,
	       row = (size_t)shape.w * shape.c * element_size(element);
	char *to = job->to + image * shape.h * row;

	if (image >= batch->count) {
		memset(to, 0, shape.h * row);
	} else if (batch->element == DEVICE_ELEMENT_U8 && !batch->flip) {
		job->graph->device->loops.kernels->normalize(
			to, element, shape.c,
			(const uint8_t *)batch->images + image * pixels * batch->channels,
			batch->channels, pixels, job->scale, job->bias);
	} else {
		for (uint32_t y = 0; y < shape.h; y++)
			feed_row(job, image * pixels + (size_t)y * shape.w, to + y * row);
	}
}

static void feed_task(void *context, uint32_t task, unsigned thread)
{
	const struct feed_job *job = context;
	size_t images = job->spec->shape.n;

	for (size_t i = images * task / TASKS; i < images * (task + 1) / TASKS; i++)
		feed_image(job, i);
}

int cpu_feed(struct device_graph *base, const struct device_batch *batch, uint64_t *ret_ticket)
{
	struct cpu_graph *graph = base->backend;
	struct device_node *node = base->input;
	struct feed_job job = {
		.graph = graph,
		.batch = batch,
		.spec = &node->input,
		.to = graph->values[node->y->index].data,
	};

	if (graph->fed_count)
		return device_fail(base->device, -EBUSY,
				   "a second batch was fed before the first was used");
	for (uint32_t c = 0; c < node->y->shape.c && c < 4; c++) {
		job.scale[c] = 1 / node->input.std[c];
		job.bias[c] = -node->input.mean[c] / node->input.std[c];
	}
	team_enter(&graph->device->team);
	team_run(&graph->device->team, TASKS, feed_task, &job);
	team_leave(&graph->device->team);
	for (uint32_t i = 0; i < node->y->shape.n; i++)
		graph->labels[i] = batch->labels && i < batch->count ? batch->labels[i] : -1;
	graph->fed_count = batch->count;
	*ret_ticket = ++graph->tickets;
	return 0;
}

int cpu_fed(struct device_graph *base, uint64_t ticket, bool wait)
{
	return 0; /* the batch was read when it was fed */
}

/* ---- loss ---- */

static int loss_plan(struct cpu_graph *graph, struct cpu_node *node)
{
	uint32_t classes = node->node->x->shape.c;

	/* read after the step by device_logits() */
	arena_extend(&graph->arena, node->x->block, cpu_backward_step(graph, &graph->nodes[0]));
	graph->loss_scratch = malloc(graph->device->team.threads * (size_t)classes * sizeof(float));
	if (!graph->loss_scratch)
		return -ENOMEM;
	if (!cpu_training(graph) || !node->node->x->active)
		return 0;
	/* The gradient is written in the forward pass, which has all it takes. */
	return cpu_add_gradient(graph, node, node->node->index);
}

struct loss_job {
	struct cpu_graph *graph;
	struct cpu_node *node;
	char *gradient;
	float gradient_scale;
	struct loss_sums sums[TASKS];
};

static void loss_task(void *context, uint32_t task, unsigned thread)
{
	struct loss_job *job = context;
	const struct device_node *node = job->node->node;
	size_t rows = node->x->shape.n, classes = node->x->shape.c;
	size_t first = rows * task / TASKS, last = rows * (task + 1) / TASKS;
	enum element element = job->graph->device->element, logits = job->node->x->element;
	struct loss_args args = {
		.logits = (const char *)job->node->x->data + first * classes * element_size(logits),
		.logits_element = logits,
		.gradient = job->gradient ? job->gradient + first * classes * element_size(element)
					  : NULL,
		.gradient_element = element,
		.labels = job->graph->labels + first,
		.rows = last - first,
		.classes = node->x->shape.c,
		.smoothing = node->loss.smoothing,
		.logit_scale = node->loss.logit_scale,
		.gradient_scale = job->gradient_scale,
		.scratch = job->graph->loss_scratch + thread * classes,
	};

	job->graph->device->loops.kernels->loss(&args, &job->sums[task]);
}

static int loss_forward(struct cpu_graph *graph, struct cpu_node *node)
{
	struct loss_job job = {
		.graph = graph, .node = node, .gradient = cpu_block(graph, node->dx_block)};
	struct loss_sums all = {0};
	uint32_t samples;
	int r = cpu_ranks_samples(graph, &samples);

	if (r < 0)
		return r;
	job.gradient_scale = samples ? 1.0f / (float)samples : 0;
	team_run(&graph->device->team, TASKS, loss_task, &job);
	for (uint32_t i = 0; i < TASKS; i++) {
		all.loss += job.sums[i].loss;
		all.top1 += job.sums[i].top1;
		all.top5 += job.sums[i].top5;
	}
	return cpu_ranks_loss(graph, all.loss, all.top1, all.top5);
}

const struct cpu_node_ops cpu_loss_ops = {.plan = loss_plan, .forward = loss_forward};
