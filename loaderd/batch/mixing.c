#include "loaderd/batch/mixing.h"

#include "format/augment/mix_images.h"
#include "format/base/system/ticks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct pipeline_batch *steps_of(const struct batcher *batcher)
{
	return pipeline_batch(batcher->options.pipeline);
}

/*
 * The draw of a plain feed has the number of its step, as the trainer's has. A wanted feed has no
 * positions, which a reconnect could keep: its draw has the number of the batch's first sample.
 */
void mixing_begin(const struct batcher *batcher, struct batcher_work *work)
{
	const struct order *order = &batcher->options.order;
	const struct mix_rule *rule = &steps_of(batcher)->mix;
	uint64_t step, number = 0;
	work->weight = 1;
	if (!pipeline_mixes(batcher->options.pipeline))
		return;
	if (batcher->wants) {
		step = work->epoch;
		number = order_slice_at(&work->slice, 0).sample;
	} else {
		step = order_step(order, work->epoch, work->batch);
	}
	work->weight =
		(float)mix_draw_blend(rule, order->seed, step, number, work->shapes[0].height,
				      work->shapes[0].width, &work->blend);
}

int mixing_check_label(const struct batcher *batcher, const struct packimg_sample *sample,
		       struct packimg_error *error)
{
	uint32_t classes = batcher->options.values.classes;
	bool given = steps_of(batcher)->classes > 0;
	if (classes == 0 || sample->label < 0 || (uint32_t)sample->label < classes)
		return 0;
	snprintf(error->text, sizeof(error->text),
		 "sample %llu: its label is %d, and its target has the classes 0 to %u, %s",
		 (unsigned long long)dataset_number(batcher->options.dataset, sample->index),
		 sample->label, classes - 1,
		 given ? "as targets(num_classes=) says; give as many as there are"
		       : "as many as the dataset has");
	return given ? -EINVAL : -EBADMSG;
}

/* Returns the address of a sample's value in a section of that number. */
static void *mixing_cell(const struct batcher *batcher, const struct batcher_work *work,
			 uint32_t section, uint32_t i)
{
	const struct ring_section *place = &batcher->ring.layout.sections[section];
	return (uint8_t *)work->slot + place->offset + i * place->stride;
}

/* Writes the target of sample i, as trainer/device/cpu/kernels_loss.c computes it. */
static void put_dense(const struct batcher *batcher, const struct batcher_work *work, uint32_t i,
		      int32_t label, int32_t other, float weight)
{
	const struct value_table *values = &batcher->options.values;
	float smoothing = (float)steps_of(batcher)->label_smoothing, scale = 1 - smoothing;
	float offset = label < 0 ? 0 : smoothing / (float)values->classes;
	float *target = mixing_cell(batcher, work, values->target, i);
	float sum[2] = {offset + scale * weight, offset + scale * (1 - weight)};
	for (uint32_t k = 0; k < values->classes; k++)
		target[k] = offset;
	if (label < 0)
		return;
	/* computed beforehand, since the client may be able to write to the target */
	target[label] = label == other ? sum[0] + scale * (1 - weight) : sum[0];
	if (label != other)
		target[other] = sum[1];
}

static void put_pair(const struct batcher *batcher, const struct batcher_work *work, uint32_t i,
		     int32_t label, int32_t other, float weight)
{
	uint32_t section = batcher->options.values.target;
	const int32_t labels[2] = {label < 0 ? -1 : label, label < 0 ? -1 : other};
	memcpy(mixing_cell(batcher, work, section, i), labels, sizeof(labels));
	memcpy(mixing_cell(batcher, work, section + 1, i), &weight, sizeof(weight));
}

/* Writes the target of sample i. other: its partner, or itself without one. */
static void put_target(const struct batcher *batcher, const struct batcher_work *work, uint32_t i,
		       const struct mixing_sample *own, const struct mixing_sample *other)
{
	bool both = own != other && own->label >= 0 && other->label >= 0;
	int32_t second = both && work->weight < 1 ? other->label : own->label;
	float weight = both ? work->weight : 1;
	if (batcher->options.values.classes > 0)
		put_dense(batcher, work, i, own->label, second, weight);
	else
		put_pair(batcher, work, i, own->label, second, weight);
}

void mixing_finish(const struct batcher *batcher, struct batcher_work *work, uint32_t i,
		   const struct mixing_sample *pair, uint32_t count, struct sample_times *times)
{
	bool both = count == 2 && pair[0].made && pair[1].made;
	const struct pipeline_shape *shape = &work->shapes[0];
	uint8_t *image = (uint8_t *)work->slot + batcher->ring.layout.sections[RING_IMAGES].offset +
			 i * shape->sample_size;
	uint64_t start = ticks_now();
	if (both && work->weight < 1)
		mix_images(batcher->isa, shape, &work->blend, image, image + shape->sample_size);
	for (uint32_t k = 0; k < count; k++)
		if (pair[k].made)
			put_target(batcher, work, i + k, &pair[k], &pair[both ? 1 - k : k]);
	times->stages.augment += ticks_since(start);
}
