#include "proto/python/objects.h"
#include "proto/python/order.h"

#include <errno.h>
#include <stdbool.h>

enum {
	SIGNAL_SLICE_MS = 100, /* between two checks for Ctrl-C */
	FIELDS_MAX = 16,
	VALUES_MAX = 64,
};

/* user: a callable (done, total, of bytes). An exception ends feed_open(), and stays set. */
static int call_with_progress(PyObject *user, uint64_t done, uint64_t total, bool bytes)
{
	PyGILState_STATE state = PyGILState_Ensure();
	PyObject *result = NULL;
	if (PyErr_CheckSignals() == 0)
		result = PyObject_CallFunction(user, "KKO", (unsigned long long)done,
					       (unsigned long long)total,
					       bytes ? Py_True : Py_False);
	int r = result ? 0 : -EINTR;
	Py_XDECREF(result);
	PyGILState_Release(state);
	return r;
}

/* feed_options.progress */
static int call_progress(void *user, uint64_t done, uint64_t total)
{
	return call_with_progress(user, done, total, false);
}

/* feed_options.fetching */
static int call_fetching(void *user, uint64_t done, uint64_t total)
{
	return call_with_progress(user, done, total, true);
}

/* Opens a stream without the GIL. */
static PyObject *stream_open(PyTypeObject *type, const struct feed_options *options,
			     PyObject *progress)
{
	char error[FEED_ERROR_MAX];
	struct feed *feed = NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = feed_open(options, &feed, error);
	Py_END_ALLOW_THREADS if (r < 0)
	{
		return PyErr_Occurred() ? NULL : raise_error(r, error);
	}
	struct stream *stream = object_new(type);
	if (!stream) {
		feed_close(feed);
		return NULL;
	}
	stream->feed = feed;
	stream->field_count = options->field_count;
	stream->progress = progress == Py_None ? NULL : progress;
	Py_XINCREF(stream->progress);
	return (PyObject *)stream;
}

static PyObject *stream_open_in_order(PyTypeObject *type, struct feed_options *options,
				      PyObject *description, PyObject *progress)
{
	struct parsed_order parsed;
	if (description == Py_None)
		return stream_open(type, options, progress);
	PyObject *stream = NULL;
	if (order_parse(description, &parsed) == 0) {
		options->order = &parsed.order;
		stream = stream_open(type, options, progress);
	}
	order_parsed_free(&parsed);
	return stream;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = {"socket",     "dataset",     "pipeline",
				"name",       "batch_size",  "shuffle",
				"seed",       "epoch",       "batch",
				"epoch_end",  "rank",        "world",
				"last",       "bad",         "slots",
				"fields",     "field_bytes", "timeout_ms",
				"writable",   "reconnect",   "reconnect_timeout_ms",
				"cut_values", "repeats",     "wanted",
				"values",     "order",       "progress",
				NULL};
	struct feed_options options;
	const char *field_names[FIELDS_MAX], *value_names[VALUES_MAX];
	PyObject *dataset, *fields, *values, *order, *progress;
	int shuffle, writable, reconnect, cut_values, wanted;
	unsigned long long seed, epoch, batch, epoch_end;
	feed_options_init(&options);
	if (!PyArg_ParseTupleAndKeywords(
		    arguments, keywords, "zOssIpKKKKIIIIIOIIppIpIpOOO", names, &options.socket,
		    &dataset, &options.pipeline, &options.name, &options.batch_size, &shuffle,
		    &seed, &epoch, &batch, &epoch_end, &options.rank, &options.world, &options.last,
		    &options.bad, &options.slots, &fields, &options.field_bytes,
		    &options.open_timeout_ms, &writable, &reconnect, &options.reconnect_timeout_ms,
		    &cut_values, &options.repeats, &wanted, &values, &order, &progress))
		return NULL;
	if (progress != Py_None) {
		options.progress = call_progress;
		options.fetching = call_fetching;
		options.progress_user = progress;
	}
	if (dataset != Py_None && !PyArg_Parse(dataset, "y", &options.dataset))
		return NULL;
	Py_ssize_t field_count = parse_texts("fields", fields, field_names, FIELDS_MAX);
	Py_ssize_t value_count = parse_texts("values", values, value_names, VALUES_MAX);
	if (field_count < 0 || value_count < 0)
		return NULL;
	options.values = value_names;
	options.value_count = (uint32_t)value_count;
	options.fields = field_names;
	options.field_count = (uint32_t)field_count;
	options.shuffle = (uint32_t)shuffle;
	options.cut_values = (uint32_t)cut_values;
	options.wanted = (uint32_t)wanted;
	options.writable = writable ? FEED_WRITABLE : FEED_OWN;
	options.reconnect = reconnect ? FEED_RECONNECT : FEED_RECONNECT_NEVER;
	options.seed = seed;
	options.epoch = epoch;
	options.batch = batch;
	options.epoch_end = epoch_end;
	return stream_open_in_order(type, &options, order, progress);
}

static void stream_dealloc(PyObject *self)
{
	feed_close(((struct stream *)self)->feed);
	Py_XDECREF(((struct stream *)self)->progress);
	object_free(self);
}

static int enter(struct stream *stream)
{
	if (stream->busy) {
		PyErr_SetString(PyExc_RuntimeError, "another thread is waiting on this Feed; only "
						    "one at a time may take batches from it");
		return -1;
	}
	stream->busy = 1;
	return 0;
}

/* Says why there is no batch yet, if there is something to say. */
static int tell_wait(struct stream *stream)
{
	const char *text = stream->progress ? feed_wait_text(stream->feed) : "";
	if (*text == '\0')
		return 0;
	PyObject *result = PyObject_CallMethod(stream->progress, "waiting", "N", text_of(text));
	Py_XDECREF(result);
	return result ? 0 : -1;
}

/*
 * next(timeout_ms) returns a Slot, or None at the end. A negative timeout waits without limit, in
 * slices, so that signals are handled.
 */
static PyObject *stream_next(PyObject *self, PyObject *argument)
{
	struct stream *stream = (struct stream *)self;
	struct feed_batch batch = {.size = sizeof(batch)};
	long timeout_ms = PyLong_AsLong(argument);
	if ((timeout_ms == -1 && PyErr_Occurred()) || enter(stream) < 0)
		return NULL;
	int r;
	for (;;) {
		int slice_ms = timeout_ms < 0 || timeout_ms > SIGNAL_SLICE_MS ? SIGNAL_SLICE_MS
									      : (int)timeout_ms;
		Py_BEGIN_ALLOW_THREADS r = feed_next(stream->feed, slice_ms, &batch);
		Py_END_ALLOW_THREADS if (timeout_ms >= 0) timeout_ms -= slice_ms;
		if (r != -ETIMEDOUT || timeout_ms == 0)
			break;
		if (PyErr_CheckSignals() < 0 || tell_wait(stream) < 0) {
			stream->busy = 0;
			return NULL;
		}
	}
	stream->busy = 0;
	if (r < 0)
		return raise_error(r, feed_error(stream->feed));
	if (r == FEED_END)
		Py_RETURN_NONE;

	struct slot *slot = object_new(slot_type);
	if (!slot) {
		feed_release(stream->feed, &batch);
		return NULL;
	}
	Py_INCREF(self);
	slot->stream = stream;
	slot->batch = batch;
	stream->held++;
	return (PyObject *)slot;
}

static PyObject *stream_held(PyObject *self, PyObject *unused)
{
	return PyLong_FromUnsignedLong(((struct stream *)self)->held);
}

/* Converts a sequence of numbers. The caller frees the list with PyMem_Free(). */
static uint64_t *parse_samples(PyObject *sequence, uint32_t *ret_count)
{
	Py_ssize_t count = PySequence_Size(sequence);
	if (count < 0)
		return NULL;
	if (count > UINT32_MAX) {
		PyErr_SetString(PyExc_OverflowError, "too many samples for a batch");
		return NULL;
	}
	uint64_t *samples = PyMem_Malloc(count > 0 ? (size_t)count * sizeof(*samples) : 1);
	if (!samples) {
		PyErr_NoMemory();
		return NULL;
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *item = PySequence_GetItem(sequence, i);
		PyObject *number = item ? PyNumber_Index(item) : NULL;
		Py_XDECREF(item);
		samples[i] = number ? PyLong_AsUnsignedLongLong(number) : 0;
		Py_XDECREF(number);
		if (PyErr_Occurred()) {
			PyMem_Free(samples);
			return NULL;
		}
	}
	*ret_count = (uint32_t)count;
	return samples;
}

static PyObject *stream_want(PyObject *self, PyObject *arguments)
{
	struct stream *stream = (struct stream *)self;
	PyObject *number, *sequence;
	uint32_t count = 0;
	if (!PyArg_ParseTuple(arguments, "O!O", &PyLong_Type, &number, &sequence))
		return NULL;
	unsigned long long epoch = PyLong_AsUnsignedLongLong(number); /* raises OverflowError */
	if (PyErr_Occurred())
		return NULL;
	uint64_t *samples = parse_samples(sequence, &count);
	if (!samples)
		return NULL;
	if (enter(stream) < 0) {
		PyMem_Free(samples);
		return NULL;
	}
	int r;
	Py_BEGIN_ALLOW_THREADS r = feed_want(stream->feed, epoch, samples, count);
	Py_END_ALLOW_THREADS PyMem_Free(samples);
	stream->busy = 0;
	if (r < 0)
		return raise_error(r, feed_error(stream->feed));
	Py_RETURN_NONE;
}

static PyObject *stream_forget(PyObject *self, PyObject *unused)
{
	struct stream *stream = (struct stream *)self;
	if (enter(stream) < 0)
		return NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = feed_forget(stream->feed);
	Py_END_ALLOW_THREADS stream->busy = 0;
	if (r < 0)
		return raise_error(r, feed_error(stream->feed));
	Py_RETURN_NONE;
}

static PyObject *stream_close(PyObject *self, PyObject *unused)
{
	struct stream *stream = (struct stream *)self;
	if (enter(stream) < 0)
		return NULL;
	feed_disconnect(stream->feed);
	stream->busy = 0;
	Py_RETURN_NONE;
}

static PyObject *stream_position(PyObject *self, PyObject *unused)
{
	uint64_t epoch, batch;
	feed_position(((struct stream *)self)->feed, &epoch, &batch);
	return Py_BuildValue("(KK)", (unsigned long long)epoch, (unsigned long long)batch);
}

static PyObject *stream_info(PyObject *self, PyObject *unused)
{
	struct feed_info info = {.size = sizeof(info)};
	feed_info(((struct stream *)self)->feed, &info);
	return Py_BuildValue("{sKsKsKsKsKsKsIsIsIsIsNsKsKsy#}", "epoch_batches",
			     (unsigned long long)info.epoch_batches, "epoch_samples",
			     (unsigned long long)info.epoch_samples, "order_hash",
			     (unsigned long long)info.order_hash, "feed_id", info.feed_id,
			     "samples", info.samples, "batches_per_epoch", info.batches_per_epoch,
			     "classes", info.classes, "slots", info.slots, "batch_size",
			     info.batch_size, "targets", info.target_count, "address",
			     PyLong_FromVoidPtr((void *)info.memory), "bytes",
			     (unsigned long long)info.memory_size, "reconnects",
			     (unsigned long long)info.reconnects, "uuid", info.dataset_uuid,
			     (Py_ssize_t)sizeof(info.dataset_uuid));
}

/* (first, samples, chosen, uuid) of each part */
static PyObject *stream_parts(PyObject *self, PyObject *unused)
{
	const struct feed *feed = ((struct stream *)self)->feed;
	struct feed_info info = {.size = sizeof(info)};
	feed_info(feed, &info);
	PyObject *list = PyList_New(info.part_count);
	for (uint32_t i = 0; list && i < info.part_count; i++) {
		struct feed_opened_part part = {.size = sizeof(part)};
		feed_opened_part(feed, i, &part);
		list = list_put(list, i,
				Py_BuildValue("(KKKy#)", (unsigned long long)part.first,
					      (unsigned long long)part.samples,
					      (unsigned long long)part.chosen, part.uuid,
					      (Py_ssize_t)sizeof(part.uuid)));
	}
	return list;
}

/* the number of samples of each bucket */
static PyObject *stream_buckets(PyObject *self, PyObject *unused)
{
	const struct feed *feed = ((struct stream *)self)->feed;
	PyObject *list = PyList_New(0);
	uint64_t samples;
	for (uint32_t b = 0; list && feed_bucket_samples(feed, b, &samples) == 0; b++) {
		PyObject *number = PyLong_FromUnsignedLongLong(samples);
		if (!number || PyList_Append(list, number) < 0)
			Py_CLEAR(list);
		Py_XDECREF(number);
	}
	return list;
}

/* (name, role, line of the schema, name of the view) of each section */
static PyObject *stream_sections(PyObject *self, PyObject *unused)
{
	const struct feed *feed = ((struct stream *)self)->feed;
	struct feed_info info = {.size = sizeof(info)};
	feed_info(feed, &info);
	PyObject *list = PyList_New(info.section_count);
	for (uint32_t i = 0; list && i < info.section_count; i++) {
		struct feed_section section = {.size = sizeof(section)};
		int r = feed_section(feed, NULL, i, &section);
		list = list_put(list, i,
				r < 0 ? raise_error(r, feed_error(feed))
				      : Py_BuildValue("(NINN)", text_of(section.name), section.role,
						      text_of(section.schema),
						      text_of(section.view_name)));
	}
	return list;
}

/* For memory registered with a device: call keep(address) before, drop(address) afterwards. */
static PyObject *stream_keep(PyObject *self, PyObject *argument)
{
	void *memory = PyLong_AsVoidPtr(argument);
	if (!memory && PyErr_Occurred())
		return NULL;
	int r = feed_keep_memory(((struct stream *)self)->feed, memory);
	if (r < 0)
		return raise_error(r, "This is not the feed's memory.");
	Py_RETURN_NONE;
}

static PyObject *stream_drop(PyObject *self, PyObject *argument)
{
	void *memory = PyLong_AsVoidPtr(argument);
	if (!memory && PyErr_Occurred())
		return NULL;
	/* memory that is not kept is already dropped */
	feed_drop_memory(((struct stream *)self)->feed, memory);
	Py_RETURN_NONE;
}

static PyObject *stream_reconnect_text(PyObject *self, PyObject *unused)
{
	return text_of(feed_reconnect_text(((struct stream *)self)->feed));
}

static PyObject *stream_fileno(PyObject *self, PyObject *unused)
{
	return PyLong_FromLong(feed_fd(((struct stream *)self)->feed));
}

static PyMethodDef stream_methods[] = {
	{"next", stream_next, METH_O, "next(timeout_ms): a Slot, or None at the end."},
	{"held", stream_held, METH_NOARGS, "Number of Slots that exist."},
	{"want", stream_want, METH_VARARGS,
	 "want(epoch, samples): asks a wanted stream for its next batch."},
	{"forget", stream_forget, METH_NOARGS,
	 "Drops the batches that are wanted and were not returned."},
	{"close", stream_close, METH_NOARGS, "Hangs up; batches held stay readable."},
	{"position", stream_position, METH_NOARGS,
	 "(epoch, batch) after the last batch handed out."},
	{"info", stream_info, METH_NOARGS, NULL},
	{"parts", stream_parts, METH_NOARGS,
	 "[(first, samples, chosen, uuid)] of the parts; [] without an order."},
	{"buckets", stream_buckets, METH_NOARGS, "The number of samples of each bucket."},
	{"sections", stream_sections, METH_NOARGS,
	 "[(name, role, line of the schema, name of the view)] of a batch's sections; [] with "
	 "fields."},
	{"keep", stream_keep, METH_O,
	 "keep(address): the memory stays mapped until drop(address)."},
	{"drop", stream_drop, METH_O, NULL},
	{"reconnect_text", stream_reconnect_text, METH_NOARGS, "What the last reconnect was."},
	{"fileno", stream_fileno, METH_NOARGS, NULL},
	{NULL},
};

static PyType_Slot stream_slots[] = {
	{Py_tp_doc, "A subscription."},
	{Py_tp_new, stream_new},
	{Py_tp_dealloc, stream_dealloc},
	{Py_tp_methods, stream_methods},
	{0},
};

PyType_Spec stream_spec = {
	.name = "loaderd._feed.Stream",
	.basicsize = sizeof(struct stream),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = stream_slots,
};
