/*
 * How to turn a batch into the input of a graph with device_input_spec.resamples: plain structures
 * for both backends and for CUDA C. For each row and column of the input, a tap holds the rows or
 * columns of the batch's image to combine and their weights; taps express resizing, dropping and
 * copying. For each sample, a blend holds its partner.
 */
#ifndef TRAINER_DEVICE_RESAMPLE_H
#define TRAINER_DEVICE_RESAMPLE_H

#include "trainer/device/graph.h"
#include "trainer/device/steps.h"

/* Limit on a tap's count, reached when shrinking by DEVICE_SHRINK_MAX. */
#define DEVICE_TAPS_MAX (2 * DEVICE_SHRINK_MAX + 1)

struct device_tap {
	uint32_t first, count; /* rows or columns of the batch's image */
	float weights[DEVICE_TAPS_MAX];
};

/* Arrays, all in one allocation. */
struct device_changes {
	struct device_blend *blends; /* [n] */
	struct device_tap *rows;     /* [h] */
	struct device_tap *columns;  /* [w] */
};

/* Bytes of the allocation of struct device_changes; 0 if the graph does not resample. */
size_t device_changes_bytes(const struct device_graph *graph);
/* Pointers into the allocation. */
struct device_changes device_changes_at(const struct device_graph *graph, void *memory);
/* Fills the allocation. Changes that the batch does not request become the identity. */
void device_changes_fill(const struct device_graph *graph, const struct device_batch *batch,
			 void *ret_memory);
/* Size of the batch's images, whose size fields may be 0. */
struct device_shape device_batch_shape(const struct device_graph *graph,
				       const struct device_batch *batch);
/* -EINVAL, with the device's error string set, if the batch does not fit the graph. */
int device_changes_check(const struct device_graph *graph, const struct device_batch *batch);

#endif
