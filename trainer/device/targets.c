/* Properties of losses, and a step's targets, for all backends. */
#include "trainer/device/backend.h"

#include <math.h>
#include <string.h>

bool device_loss_is_regression(const struct device_loss_spec *loss)
{
	return loss->kind == DEVICE_SQUARED || loss->kind == DEVICE_HUBER;
}

bool device_loss_is_plain(const struct device_loss_spec *loss)
{
	return loss->kind == DEVICE_SOFTMAX && loss->targets == DEVICE_LABELS &&
	       !loss->class_weights && !(loss->teacher_weight > 0);
}

bool device_loss_is_weighted(const struct device_loss_spec *loss)
{
	return loss->kind == DEVICE_SOFTMAX && loss->targets != DEVICE_DENSE && loss->class_weights;
}

size_t device_target_own_words(const struct device_graph *graph)
{
	enum device_targets targets = graph->loss ? graph->loss->loss.targets : DEVICE_LABELS;

	return targets == DEVICE_DENSE ? 1 + graph->loss->x->shape.c
				       : (targets == DEVICE_TWO_LABELS ? 3 : 1);
}

static bool has_teacher(const struct device_graph *graph)
{
	return graph->loss && graph->loss->loss.teacher_weight > 0;
}

size_t device_target_words(const struct device_graph *graph)
{
	return device_target_own_words(graph) + (has_teacher(graph) ? graph->loss->x->shape.c : 0);
}

struct device_target_arrays device_target_arrays(const struct device_graph *graph, void *words)
{
	enum device_targets targets = graph->loss ? graph->loss->loss.targets : DEVICE_LABELS;
	struct device_target_arrays arrays = {.labels = words};
	size_t n = graph->input->y->shape.n;

	if (words && targets == DEVICE_TWO_LABELS) {
		arrays.labels2 = arrays.labels + n;
		arrays.shares = (float *)(arrays.labels2 + n);
	} else if (words && targets == DEVICE_DENSE) {
		arrays.targets = (float *)(arrays.labels + n);
	}
	if (words && has_teacher(graph))
		arrays.teacher = (float *)(arrays.labels + n * device_target_own_words(graph));
	return arrays;
}

/* Index of the first maximum. */
static int32_t largest_of(const float *values, uint32_t count)
{
	uint32_t largest = 0;

	for (uint32_t i = 1; i < count; i++)
		if (values[i] > values[largest])
			largest = i;
	return (int32_t)largest;
}

static bool is_class(const struct device_graph *graph, int32_t label)
{
	return label >= 0 && label < (int32_t)graph->loss->x->shape.c;
}

static void fill_dense(const struct device_graph *graph, const struct device_batch *batch,
		       const struct device_target_arrays *to)
{
	size_t n = graph->input->y->shape.n, classes = graph->loss->x->shape.c;

	memset(to->targets, 0, n * classes * sizeof(float));
	memcpy(to->targets, batch->targets, batch->count * classes * sizeof(float));
	for (size_t i = 0; i < batch->count; i++) {
		const float *targets = to->targets + i * classes;

		if (isnan(*targets))
			to->labels[i] = -1;
		else if (!is_class(graph, to->labels[i]))
			to->labels[i] = largest_of(targets, (uint32_t)classes);
	}
}

static void fill_teacher(const struct device_graph *graph, const struct device_batch *batch,
			 const struct device_target_arrays *to)
{
	size_t n = graph->input->y->shape.n, classes = graph->loss->x->shape.c;

	memset(to->teacher, 0, n * classes * sizeof(float));
	memcpy(to->teacher, batch->teacher, batch->count * classes * sizeof(float));
}

/*
 * Sets the second labels and shares, and swaps a sample's labels if needed so that the first has
 * the larger share.
 */
static void fill_second(const struct device_graph *graph, const struct device_batch *batch,
			const struct device_target_arrays *to)
{
	for (uint32_t i = 0; i < graph->input->y->shape.n; i++) {
		int32_t label = to->labels[i];
		int32_t second = batch->labels2 && i < batch->count ? batch->labels2[i] : -1;

		to->labels2[i] = label;
		to->shares[i] = 1;
		if (!is_class(graph, label) || !is_class(graph, second))
			continue;
		to->shares[i] = batch->shares[i];
		to->labels2[i] = second;
		if (to->shares[i] >= 0.5f)
			continue;
		to->shares[i] = 1 - to->shares[i];
		to->labels[i] = second;
		to->labels2[i] = label;
	}
}

void device_targets_fill(const struct device_graph *graph, const struct device_batch *batch,
			 void *ret_words)
{
	struct device_target_arrays to = device_target_arrays(graph, ret_words);

	for (uint32_t i = 0; i < graph->input->y->shape.n; i++)
		to.labels[i] = batch->labels && i < batch->count ? batch->labels[i] : -1;
	if (to.targets)
		fill_dense(graph, batch, &to);
	if (to.labels2)
		fill_second(graph, batch, &to);
	if (to.teacher && !batch->teacher_kept)
		fill_teacher(graph, batch, &to);
}
