/*
 * Orders as loaderd/_order.py describes them to Stream: None, or (parts, stages, ends,
 * epoch_samples, part_batches, buckets). A bucket is (width, height, batch_size). A part is
 * (dataset, where, samples, weights, class_weights, balanced, classes_per_batch), its lists bytes
 * of u64 and f32 or None; a stage is (from, shares).
 */
#pragma once

#include "proto/python/objects.h"

struct parsed_order {
	struct feed_order order; /* points into the Python objects, and to the members below */
	struct feed_part *parts;
	const struct feed_part **part_list;
	struct feed_stage *stages;
	uint32_t *shares;
	struct feed_bucket *buckets;
};

/*
 * Fills in *ret_order, whose strings and lists live as long as `description`. Returns -1 with an
 * exception set. Call order_parsed_free() in any case.
 */
int order_parse(PyObject *description, struct parsed_order *ret_order);
void order_parsed_free(struct parsed_order *order);
