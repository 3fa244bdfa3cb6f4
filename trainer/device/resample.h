/*
 * How a batch becomes the input of a graph that admits more than bytes as they are
 * (device_input_spec.resamples): plain structures, for both backends and for CUDA C. Every position
 * of the input's rows and columns says which of the batch's it is made of, so resizing, leaving out
 * and neither are one thing; every sample says what of another it takes.
 */
#ifndef TRAINER_DEVICE_RESAMPLE_H
#define TRAINER_DEVICE_RESAMPLE_H

#include "trainer/device/device.h"

/* What shrinking by DEVICE_SHRINK_MAX takes. */
#define DEVICE_TAPS_MAX (2 * DEVICE_SHRINK_MAX + 1)

struct device_tap {
	uint32_t first, count; /* positions of the batch's image */
	float weights[DEVICE_TAPS_MAX];
};

/* In one piece of memory: of a graph's samples, of the input's rows, of its columns. */
struct device_changes {
	struct device_blend *blends; /* [n] */
	struct device_tap *rows;     /* [h] */
	struct device_tap *columns;  /* [w] */
};

/* Bytes of that memory; 0: the graph's input takes batches as they are. */
size_t device_changes_bytes(const struct device_graph *graph);
/* Where its parts are. */
struct device_changes device_changes_at(const struct device_graph *graph, void *memory);
/* Fills them. What the batch does not ask for is left as it is by what they say. */
void device_changes_fill(const struct device_graph *graph, const struct device_batch *batch,
			 void *ret_memory);
/* The size of the batch's images, which need not say it. */
struct device_shape device_batch_shape(const struct device_graph *graph,
				       const struct device_batch *batch);
/* -EINVAL, with the device's text, where batch and graph do not fit. */
int device_changes_check(const struct device_graph *graph, const struct device_batch *batch);

#endif
