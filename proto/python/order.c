#include "proto/python/order.h"

#include <string.h>

/* Takes the bytes of a list of elements of this size, or None. */
static int parse_list(PyObject *list, size_t element, const void **ret_entries, uint64_t *ret_count)
{
	char *bytes;
	Py_ssize_t size;
	if (list == Py_None)
		return 0;
	if (PyBytes_AsStringAndSize(list, &bytes, &size) < 0)
		return -1;
	*ret_entries = bytes;
	*ret_count = (size_t)size / element;
	return 0;
}

static int parse_part(PyObject *description, struct feed_part *part)
{
	PyObject *samples, *weights, *class_weights;
	const void *entries[3] = {NULL, NULL, NULL};
	int balanced;
	*part = (struct feed_part){.size = sizeof(*part)};
	if (!PyArg_ParseTuple(description, "ysOOOpI", &part->dataset, &part->where, &samples,
			      &weights, &class_weights, &balanced, &part->classes_per_batch) ||
	    parse_list(samples, sizeof(uint64_t), &entries[0], &part->sample_count) < 0 ||
	    parse_list(weights, sizeof(float), &entries[1], &part->weight_count) < 0 ||
	    parse_list(class_weights, sizeof(float), &entries[2], &part->class_weight_count) < 0)
		return -1;
	part->samples = entries[0];
	part->weights = entries[1];
	part->class_weights = entries[2];
	part->balanced = (uint32_t)balanced;
	return 0;
}

static int parse_stage(PyObject *description, Py_ssize_t parts, struct feed_stage *stage,
		       uint32_t *shares)
{
	PyObject *list;
	unsigned long long from;
	if (!PyArg_ParseTuple(description, "KO!", &from, &PyTuple_Type, &list))
		return -1;
	stage->from = from;
	stage->shares = parts > 1 ? shares : NULL;
	for (Py_ssize_t p = 0; parts > 1 && p < parts; p++) {
		PyObject *share = PyTuple_GetItem(list, p);
		if (!share || !PyArg_Parse(share, "I", &shares[p]))
			return -1;
	}
	return 0;
}

static int parse_all(PyObject *parts, PyObject *stages, struct parsed_order *order)
{
	Py_ssize_t part_count = PyTuple_Size(parts), stage_count = PyTuple_Size(stages);
	order->parts = PyMem_Calloc((size_t)part_count + 1, sizeof(*order->parts));
	order->part_list = PyMem_Calloc((size_t)part_count + 1, sizeof(struct feed_part *));
	order->stages = PyMem_Calloc((size_t)stage_count + 1, sizeof(*order->stages));
	order->shares =
		PyMem_Calloc((size_t)(part_count * stage_count) + 1, sizeof(*order->shares));
	if (!order->parts || !order->part_list || !order->stages || !order->shares) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t p = 0; p < part_count; p++) {
		order->part_list[p] = &order->parts[p];
		if (parse_part(PyTuple_GetItem(parts, p), &order->parts[p]) < 0)
			return -1;
	}
	for (Py_ssize_t s = 0; s < stage_count; s++)
		if (parse_stage(PyTuple_GetItem(stages, s), part_count, &order->stages[s],
				order->shares + s * part_count) < 0)
			return -1;
	order->order.parts = order->part_list;
	order->order.part_count = (uint32_t)part_count;
	order->order.stages = order->stages;
	order->order.stage_count = (uint32_t)stage_count;
	return 0;
}

static int parse_buckets(PyObject *buckets, struct parsed_order *order)
{
	Py_ssize_t count = PyTuple_Size(buckets);
	order->buckets = PyMem_Calloc((size_t)count + 1, sizeof(*order->buckets));
	if (!order->buckets) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t b = 0; b < count; b++)
		if (!PyArg_ParseTuple(PyTuple_GetItem(buckets, b), "III", &order->buckets[b].width,
				      &order->buckets[b].height, &order->buckets[b].batch_size))
			return -1;
	order->order.buckets = order->buckets;
	order->order.bucket_count = (uint32_t)count;
	return 0;
}

int order_parse(PyObject *description, struct parsed_order *ret_order)
{
	PyObject *parts, *stages, *buckets;
	const char *tokens_field;
	unsigned long long epoch_samples;
	int part_batches;
	*ret_order = (struct parsed_order){.order = {.size = sizeof(ret_order->order)}};
	if (!PyArg_ParseTuple(description, "O!O!IKpO!IsII", &PyTuple_Type, &parts, &PyTuple_Type,
			      &stages, &ret_order->order.ends, &epoch_samples, &part_batches,
			      &PyTuple_Type, &buckets, &ret_order->order.batch_tokens,
			      &tokens_field, &ret_order->order.block_samples,
			      &ret_order->order.group_blocks))
		return -1;
	ret_order->order.tokens_field = tokens_field;
	ret_order->order.epoch_samples = epoch_samples;
	ret_order->order.part_batches = (uint32_t)part_batches;
	if (parse_buckets(buckets, ret_order) < 0)
		return -1;
	return parse_all(parts, stages, ret_order);
}

void order_parsed_free(struct parsed_order *order)
{
	PyMem_Free(order->parts);
	PyMem_Free(order->part_list);
	PyMem_Free(order->stages);
	PyMem_Free(order->shares);
	PyMem_Free(order->buckets);
}
