#include "proto/python/objects.h"

#include <stdbool.h>

static void slot_dealloc(PyObject *self)
{
	struct slot *slot = (struct slot *)self;
	if (slot->stream) {
		slot->stream->held--;
		feed_release(slot->stream->feed, &slot->batch); /* fails in a forked child */
		Py_DECREF((PyObject *)slot->stream);
	}
	object_free(self);
}

/* The element of a section that has numbers. */
static enum element element_of(const struct feed_section *section)
{
	static const enum element from_feed[] = {
		[FEED_U8] = U8,   [FEED_F16] = F16, [FEED_BF16] = BF16, [FEED_F32] = F32,
		[FEED_U16] = U16, [FEED_I16] = I16, [FEED_I32] = I32,   [FEED_I64] = I64,
		[FEED_U64] = U64, [FEED_F64] = F64};
	return from_feed[section->element];
}

/* An array of `count` values of the section's shape. */
static PyObject *section_array(PyObject *self, const struct feed_section *section, size_t count)
{
	Py_ssize_t shape[1 + 4] = {(Py_ssize_t)count};
	for (uint32_t d = 0; d < section->dims; d++)
		shape[1 + d] = section->shape[d];
	return array_new(self, section->data, element_of(section), 1 + (int)section->dims, shape);
}

/* All patches of a batch, also what is between those of two samples: [patches, elements]. */
static PyObject *patches_at(PyObject *self, const void *images)
{
	struct slot *slot = (struct slot *)self;
	struct feed_section section = {.size = sizeof(section)};
	int r = feed_section(slot->stream->feed, &slot->batch, 0, &section);
	if (r < 0)
		return raise_error(r, feed_error(slot->stream->feed));
	section.data = (const char *)images +
		       ((const char *)section.data - (const char *)slot->batch.images);
	return section_array(self, &section, section.bytes / section.row);
}

static PyObject *images_at(PyObject *self, const void *data)
{
	static const enum element from_feed[] = {
		[FEED_U8] = U8, [FEED_F16] = F16, [FEED_BF16] = BF16, [FEED_F32] = F32};
	const struct feed_batch *batch = &((struct slot *)self)->batch;
	if (batch->layout == FEED_PATCHES)
		return patches_at(self, data);
	Py_ssize_t shape[4] = {batch->count, batch->height, batch->width, batch->channels};
	if (batch->layout == FEED_NCHW) {
		shape[1] = batch->channels;
		shape[2] = batch->height;
		shape[3] = batch->width;
	}
	return array_new(self, data, from_feed[batch->element], 4, shape);
}

static PyObject *slot_images(PyObject *self, PyObject *unused)
{
	return images_at(self, ((struct slot *)self)->batch.images);
}

/* Read-only by contract and not exposed to users. */
static PyObject *slot_shared_images(PyObject *self, PyObject *unused)
{
	return images_at(self, ((struct slot *)self)->batch.shared_images);
}

static PyObject *slot_section(PyObject *self, const void *data, enum element element)
{
	Py_ssize_t count = ((struct slot *)self)->batch.count;
	return array_new(self, data, element, 1, &count);
}

static PyObject *slot_labels(PyObject *self, PyObject *unused)
{
	return slot_section(self, ((struct slot *)self)->batch.labels, I32);
}

/* Returns the dataset index of the first sample without a label. */
static PyObject *slot_unlabelled(PyObject *self, PyObject *unused)
{
	const struct feed_batch *batch = &((struct slot *)self)->batch;
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->labels[i] < 0)
			return PyLong_FromUnsignedLongLong(batch->samples[i]);
	Py_RETURN_NONE;
}

static PyObject *slot_samples(PyObject *self, PyObject *unused)
{
	return slot_section(self, ((struct slot *)self)->batch.samples, U64);
}

static PyObject *slot_flags(PyObject *self, PyObject *unused)
{
	return slot_section(self, ((struct slot *)self)->batch.flags, U8);
}

/*
 * Decodes bytes and drops the reference to them. The bytes are a copy, because Python reads them
 * several times and a daemon could change the original meanwhile.
 */
static PyObject *decoded(PyObject *bytes)
{
	PyObject *text = PyUnicode_DecodeUTF8(PyBytes_AsString(bytes), PyBytes_Size(bytes),
					      "surrogateescape");
	Py_DECREF(bytes);
	return text;
}

/*
 * Returns records {uint32 size, bytes} as a list of bytes objects, or of str if they are text.
 * Truncates a size that exceeds the record. Text that is not UTF-8, such as some file names, is
 * decoded like os.fsdecode().
 */
static PyObject *records(const struct feed_field *field, uint32_t count)
{
	PyObject *list = PyList_New(count);
	for (uint32_t i = 0; list && i < count; i++) {
		const char *record = (const char *)field->values + field->stride * i;
		/* volatile: read once, since a daemon could change it */
		uint32_t size = *(const volatile uint32_t *)record;
		if (size > field->stride - sizeof(size))
			size = (uint32_t)(field->stride - sizeof(size));
		PyObject *value = PyBytes_FromStringAndSize(record + sizeof(size), size);
		if (value && field->type == FEED_TEXT)
			value = decoded(value);
		list = list_put(list, i, value);
	}
	return list;
}

static PyObject *slot_field(PyObject *self, PyObject *argument)
{
	struct slot *slot = (struct slot *)self;
	struct feed_field field;
	long index = PyLong_AsLong(argument);
	if (index == -1 && PyErr_Occurred())
		return NULL;
	if (index < 0 ||
	    feed_field(slot->stream->feed, &slot->batch, (uint32_t)index, &field) < 0) {
		PyErr_Format(PyExc_IndexError, "the feed delivers %u fields, not %ld",
			     slot->stream->field_count, index);
		return NULL;
	}
	switch (field.type) {
	case FEED_INT64:
		return slot_section(self, field.values, I64);
	case FEED_FLOAT64:
		return slot_section(self, field.values, F64);
	default:
		return Py_BuildValue("(Ni)", records(&field, slot->batch.count), (int)field.type);
	}
}

/* Bytes or text of each sample, as a list of copies. */
static PyObject *section_bytes(const struct feed_section *section, uint32_t count)
{
	bool is_text = section->role == FEED_ROLE_TEXT || section->role == FEED_ROLE_KEY;
	PyObject *list = PyList_New(count);
	for (uint32_t i = 0; list && i < count; i++) {
		const void *bytes;
		int64_t size = feed_rows(section, i, &bytes);
		PyObject *value = size < 0 ? raise_error((int)size, "The daemon wrote a value "
								    "outside of its section.")
					   : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
		if (value && is_text)
			value = decoded(value);
		list = list_put(list, i, value);
	}
	return list;
}

/* (all rows, starts, counts) */
static PyObject *section_rows(PyObject *self, const struct feed_section *section, uint32_t count)
{
	PyObject *starts = PyList_New(count), *counts = PyList_New(count);
	for (uint32_t i = 0; starts && counts && i < count; i++) {
		const void *rows;
		int64_t number = feed_rows(section, i, &rows);
		if (number < 0) {
			Py_DECREF(starts);
			Py_DECREF(counts);
			return raise_error((int)number,
					   "The daemon wrote a value outside of its section.");
		}
		size_t start =
			(size_t)((const char *)rows - (const char *)section->data) / section->row;
		starts = list_put(starts, i, PyLong_FromSize_t(start));
		counts = list_put(counts, i, PyLong_FromLongLong(number));
	}
	PyObject *all = starts && counts
				? section_array(self, section, section->bytes / section->row)
				: NULL;
	if (all)
		return Py_BuildValue("(NNN)", all, starts, counts);
	Py_XDECREF(starts);
	Py_XDECREF(counts);
	return NULL;
}

/* shared: where a device may know the memory, as with slot_shared_images(). */
static PyObject *value_at(PyObject *self, PyObject *argument, bool shared)
{
	struct slot *slot = (struct slot *)self;
	const struct feed_batch *batch = &slot->batch;
	struct feed_section section = {.size = sizeof(section)};
	long index = PyLong_AsLong(argument);
	if (index == -1 && PyErr_Occurred())
		return NULL;
	if (index < 0 ||
	    feed_section(slot->stream->feed, &slot->batch, (uint32_t)index, &section) < 0) {
		PyErr_Format(PyExc_IndexError, "the batch has no section %ld", index);
		return NULL;
	}
	if (shared)
		section.data = (const char *)batch->shared_images +
			       ((const char *)section.data - (const char *)batch->images);
	if (section.kind == FEED_DENSE)
		return section_array(self, &section, slot->batch.count);
	if (section.element == FEED_NO_ELEMENT)
		return section_bytes(&section, slot->batch.count);
	return section_rows(self, &section, slot->batch.count);
}

static PyObject *slot_value(PyObject *self, PyObject *argument)
{
	return value_at(self, argument, false);
}

static PyObject *slot_shared_value(PyObject *self, PyObject *argument)
{
	return value_at(self, argument, true);
}

static PyObject *slot_facts(PyObject *self, PyObject *unused)
{
	const struct feed_batch *b = &((struct slot *)self)->batch;
	return Py_BuildValue("(KKKIIIIIIIOKK)", b->number, b->epoch, b->batch, b->count, b->height,
			     b->width, b->channels, b->element, b->layout, b->bad,
			     b->last ? Py_True : Py_False, b->publish_ns, b->reconnects);
}

static PyMethodDef slot_methods[] = {
	{"images", slot_images, METH_NOARGS, NULL},
	{"shared_images", slot_shared_images, METH_NOARGS,
	 "Where a device may know the memory; writing there may be a crash."},
	{"labels", slot_labels, METH_NOARGS, NULL},
	{"unlabelled", slot_unlabelled, METH_NOARGS,
	 "Index in the dataset of the first sample without a label, or None."},
	{"samples", slot_samples, METH_NOARGS, NULL},
	{"flags", slot_flags, METH_NOARGS, NULL},
	{"field", slot_field, METH_O, "field(i): an Array, or (list of bytes or str, type)."},
	{"value", slot_value, METH_O,
	 "value(section): an Array, a list of bytes or str, or (all rows, starts, counts)."},
	{"shared_value", slot_shared_value, METH_O,
	 "value(section) of a dense section, where a device may know the memory."},
	{"facts", slot_facts, METH_NOARGS,
	 "(number, epoch, batch, count, height, width, channels, element, layout, bad, last, "
	 "publish_ns, reconnects)"},
	{NULL},
};

static PyType_Slot slot_slots[] = {
	{Py_tp_doc, "A batch held; it goes back when nothing refers to it any more."},
	{Py_tp_new, object_refuse_new},
	{Py_tp_dealloc, slot_dealloc},
	{Py_tp_methods, slot_methods},
	{0},
};

PyType_Spec slot_spec = {
	.name = "loaderd._feed.Slot",
	.basicsize = sizeof(struct slot),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slot_slots,
};
