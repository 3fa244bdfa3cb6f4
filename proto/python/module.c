/*
 * loaderd._feed: libfeed for Python, in the limited API. Three types: Stream (a feed), Slot (a
 * batch held), Array (a section of a batch, exported by buffer protocol and DLPack). An Array keeps
 * its Slot, a Slot its Stream; the slot goes back to the daemon when the last of them dies, in
 * whatever thread that happens. Names, defaults and NumPy are the business of loaderd/__init__.py.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "proto/client/feed.h"
#include "proto/python/dlpack.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
	DIMENSIONS_MAX = 4,
	SIGNAL_SLICE_MS = 100, /* between two looks for Ctrl-C */
	FIELDS_MAX = 16,
	SETTINGS_MAX = 64,
};

static PyObject *error_type; /* args: (code, text) */
static PyTypeObject *stream_type, *slot_type, *array_type, *daemon_type;

/*
 * A sentence of libfeed's, which may be cut within a character, or tell of a path that is no UTF-8.
 */
static PyObject *text_of(const char *text)
{
	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *raise_error(int code, const char *text)
{
	PyObject *arguments = Py_BuildValue("(iN)", -code, text_of(text));
	if (arguments) {
		PyErr_SetObject(error_type, arguments);
		Py_DECREF(arguments);
	}
	return NULL;
}

/* Frees an object of one of our heap types. */
static void object_free(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	release(self);
	Py_DECREF(type);
}

/* Array */

enum element { U8, F16, BF16, F32, I32, U64, I64, F64, ELEMENTS };

/*
 * Python has no format for bfloat16: its bits travel as unsigned short there. Sample indices are
 * signed in DLPack, for PyTorch's sake.
 */
static const struct {
	const char *format;
	uint8_t size, dlpack_code;
} elements[ELEMENTS] = {
	[U8] = {"B", 1, DLPACK_UINT},     [F16] = {"e", 2, DLPACK_FLOAT},
	[BF16] = {"H", 2, DLPACK_BFLOAT}, [F32] = {"f", 4, DLPACK_FLOAT},
	[I32] = {"i", 4, DLPACK_INT},     [U64] = {"Q", 8, DLPACK_INT},
	[I64] = {"q", 8, DLPACK_INT},     [F64] = {"d", 8, DLPACK_FLOAT},
};

struct array {
	PyObject_HEAD PyObject *slot;
	const void *data;
	enum element element;
	int dimensions;
	Py_ssize_t shape[DIMENSIONS_MAX], strides[DIMENSIONS_MAX];
};

static PyObject *array_new(PyObject *slot, const void *data, enum element element, int dimensions,
			   const Py_ssize_t *shape)
{
	allocfunc allocate = (allocfunc)PyType_GetSlot(array_type, Py_tp_alloc);
	struct array *array = (struct array *)allocate(array_type, 0);
	if (!array)
		return NULL;
	Py_INCREF(slot);
	array->slot = slot;
	array->data = data;
	array->element = element;
	array->dimensions = dimensions;
	Py_ssize_t stride = elements[element].size;
	for (int i = dimensions - 1; i >= 0; i--) {
		array->shape[i] = shape[i];
		array->strides[i] = stride;
		stride *= shape[i];
	}
	return (PyObject *)array;
}

static void array_dealloc(PyObject *self)
{
	Py_XDECREF(((struct array *)self)->slot);
	object_free(self);
}

static int array_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	struct array *array = (struct array *)self;
	Py_INCREF(self);
	*view = (Py_buffer){
		.buf = (void *)array->data,
		.obj = self,
		.len = array->strides[0] * array->shape[0],
		.itemsize = elements[array->element].size,
		.ndim = array->dimensions,
		.format = flags & PyBUF_FORMAT ? (char *)elements[array->element].format : NULL,
		.shape = flags & PyBUF_ND ? array->shape : NULL,
		.strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? array->strides : NULL,
	};
	return 0;
}

/* What a consumer of DLPack gets: the description and a reference to the array, in one block. */
struct export
{
	union {
		struct dlpack_managed plain;
		struct dlpack_managed_versioned versioned;
	} managed;
	PyObject *array;
	int64_t shape[DIMENSIONS_MAX], strides[DIMENSIONS_MAX];
};

/*
 * Consumers call this from any thread, with or without the interpreter's lock, perhaps after its
 * end.
 */
static void export_free(struct export *export)
{
	if (Py_IsInitialized()) {
		PyGILState_STATE state = PyGILState_Ensure();
		Py_DECREF(export->array);
		PyGILState_Release(state);
	}
	free(export);
}

static void plain_deleter(struct dlpack_managed *managed)
{
	export_free(managed->context);
}

static void versioned_deleter(struct dlpack_managed_versioned *managed)
{
	export_free(managed->context);
}

/* A capsule that was consumed has been renamed, and its consumer calls the deleter. */
static void capsule_free(PyObject *capsule)
{
	struct dlpack_managed *plain;
	struct dlpack_managed_versioned *versioned;
	if (PyCapsule_IsValid(capsule, "dltensor")) {
		plain = PyCapsule_GetPointer(capsule, "dltensor");
		plain->deleter(plain);
	} else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
		versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
		versioned->deleter(versioned);
	}
}

static void export_fill(struct export *export, struct dlpack_tensor *tensor, struct array *array)
{
	*tensor = (struct dlpack_tensor){
		.data = (void *)array->data,
		.device = {DLPACK_CPU, 0},
		.dimensions = array->dimensions,
		.type = {elements[array->element].dlpack_code,
			 (uint8_t)(8 * elements[array->element].size), 1},
		.shape = export->shape,
		.strides = export->strides,
	};
	for (int i = 0; i < array->dimensions; i++) {
		export->shape[i] = array->shape[i];
		export->strides[i] = array->strides[i] / elements[array->element].size;
	}
	Py_INCREF((PyObject *)array);
	export->array = (PyObject *)array;
}

/* The versioned form when the consumer knows it. `stream` means nothing on the CPU. */
static PyObject *array_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
	PyObject *stream = NULL, *version = Py_None, *device = Py_None, *copy = Py_None;
	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO", names, &stream, &version,
					 &device, &copy))
		return NULL;
	unsigned major = 0, minor = 0;
	int device_type = DLPACK_CPU, device_id = 0;
	if (version != Py_None && !PyArg_ParseTuple(version, "II", &major, &minor))
		return NULL;
	if (device != Py_None && !PyArg_ParseTuple(device, "ii", &device_type, &device_id))
		return NULL;
	if (device_type != DLPACK_CPU || copy == Py_True) {
		PyErr_SetString(
			PyExc_BufferError,
			"batches are exported where they lie, in host memory, without a copy");
		return NULL;
	}
	int versioned = major >= 1;
	struct export *export = calloc(1, sizeof(*export));
	if (!export)
		return PyErr_NoMemory();
	PyObject *capsule;
	if (versioned) {
		struct dlpack_managed_versioned *managed = &export->managed.versioned;
		managed->version_major = 1;
		managed->context = export;
		managed->deleter = versioned_deleter;
		export_fill(export, &managed->tensor, (struct array *)self);
		capsule = PyCapsule_New(managed, "dltensor_versioned", capsule_free);
	} else {
		struct dlpack_managed *managed = &export->managed.plain;
		managed->context = export;
		managed->deleter = plain_deleter;
		export_fill(export, &managed->tensor, (struct array *)self);
		capsule = PyCapsule_New(managed, "dltensor", capsule_free);
	}
	if (!capsule)
		export_free(export);
	return capsule;
}

static PyObject *array_dlpack_device(PyObject *self, PyObject *unused)
{
	return Py_BuildValue("(ii)", DLPACK_CPU, 0);
}

static PyObject *array_shape(PyObject *self, void *closure)
{
	struct array *array = (struct array *)self;
	PyObject *shape = PyTuple_New(array->dimensions);
	for (int i = 0; shape && i < array->dimensions; i++)
		PyTuple_SetItem(shape, i, PyLong_FromSsize_t(array->shape[i]));
	return shape;
}

static PyObject *array_address(PyObject *self, void *closure)
{
	return PyLong_FromVoidPtr((void *)((struct array *)self)->data);
}

static PyMethodDef array_methods[] = {
	{"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
	 NULL},
	{"__dlpack_device__", array_dlpack_device, METH_NOARGS, NULL},
	{NULL},
};

static PyGetSetDef array_attributes[] = {
	{"shape", array_shape, NULL, "Extents.", NULL},
	{"address", array_address, NULL, "Where the data lies.", NULL},
	{NULL},
};

static PyType_Slot array_slots[] = {
	{Py_tp_doc, "A section of a batch in shared memory: buffer protocol and DLPack."},
	{Py_tp_dealloc, array_dealloc},
	{Py_bf_getbuffer, array_getbuffer},
	{Py_tp_methods, array_methods},
	{Py_tp_getset, array_attributes},
	{0},
};

static PyType_Spec array_spec = {
	.name = "loaderd._feed.Array",
	.basicsize = sizeof(struct array),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = array_slots,
};

/* Stream */

struct stream {
	PyObject_HEAD struct feed *feed;
	int busy; /* a thread is in feed_next without the interpreter's lock */
	uint32_t field_count;
};

/* Slot */

struct slot {
	PyObject_HEAD struct stream *stream;
	struct feed_batch batch;
};

static void slot_dealloc(PyObject *self)
{
	struct slot *slot = (struct slot *)self;
	if (slot->stream) {
		feed_release(slot->stream->feed, &slot->batch); /* refuses in a fork */
		Py_DECREF((PyObject *)slot->stream);
	}
	object_free(self);
}

static PyObject *images_at(PyObject *self, const void *data)
{
	static const enum element from_feed[] = {
		[FEED_U8] = U8, [FEED_F16] = F16, [FEED_BF16] = BF16, [FEED_F32] = F32};
	const struct feed_batch *batch = &((struct slot *)self)->batch;
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

/* What must not be written to: not for users' eyes. */
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

static PyObject *slot_samples(PyObject *self, PyObject *unused)
{
	return slot_section(self, ((struct slot *)self)->batch.samples, U64);
}

static PyObject *slot_flags(PyObject *self, PyObject *unused)
{
	return slot_section(self, ((struct slot *)self)->batch.flags, U8);
}

/*
 * Text of bytes, which are taken over: of a copy, as Python reads them several times, and a daemon
 * could change them meanwhile.
 */
static PyObject *decoded(PyObject *bytes)
{
	PyObject *text = PyUnicode_DecodeUTF8(PyBytes_AsString(bytes), PyBytes_Size(bytes),
					      "surrogateescape");
	Py_DECREF(bytes);
	return text;
}

/*
 * Records {uint32 size, bytes} as a list of bytes objects, or of str where they are text; a size
 * beyond the record is cut. What is no UTF-8, as names of files need not be, comes as os.fsdecode()
 * has it.
 */
static PyObject *records(const struct feed_field *field, uint32_t count)
{
	PyObject *list = PyList_New(count);
	for (uint32_t i = 0; list && i < count; i++) {
		const char *record = (const char *)field->values + field->stride * i;
		/* once: a daemon could change it */
		uint32_t size = *(const volatile uint32_t *)record;
		if (size > field->stride - sizeof(size))
			size = (uint32_t)(field->stride - sizeof(size));
		PyObject *value = PyBytes_FromStringAndSize(record + sizeof(size), size);
		if (value && field->type == FEED_TEXT)
			value = decoded(value);
		if (!value || PyList_SetItem(list, i, value) < 0) {
			Py_DECREF(list);
			return NULL;
		}
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
	{"samples", slot_samples, METH_NOARGS, NULL},
	{"flags", slot_flags, METH_NOARGS, NULL},
	{"field", slot_field, METH_O, "field(i): an Array, or (list of bytes or str, type)."},
	{"facts", slot_facts, METH_NOARGS,
	 "(number, epoch, batch, count, height, width, channels, element, layout, bad, last, "
	 "publish_ns, reconnects)"},
	{NULL},
};

static PyType_Slot slot_slots[] = {
	{Py_tp_doc, "A batch held; it goes back when nothing refers to it any more."},
	{Py_tp_dealloc, slot_dealloc},
	{Py_tp_methods, slot_methods},
	{0},
};

static PyType_Spec slot_spec = {
	.name = "loaderd._feed.Slot",
	.basicsize = sizeof(struct slot),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slot_slots,
};

/* Texts that live as long as the tuple they are in. Returns their number. */
static Py_ssize_t parse_texts(const char *name, PyObject *tuple, const char **texts, int most)
{
	Py_ssize_t count = PyTuple_Size(tuple);
	if (count > most) {
		PyErr_Format(PyExc_ValueError, "%s: %zd given, there can be %d", name, count, most);
		return -1;
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		texts[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL);
		if (!texts[i])
			return -1;
	}
	return count;
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
				"cut_values", NULL};
	struct feed_options options;
	const char *field_names[FIELDS_MAX];
	PyObject *fields;
	int shuffle, writable, reconnect, cut_values;
	unsigned long long seed, epoch, batch, epoch_end;
	feed_options_init(&options);
	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "zyssIpKKKKIIIIIOIIppIp", names,
					 &options.socket, &options.dataset, &options.pipeline,
					 &options.name, &options.batch_size, &shuffle, &seed,
					 &epoch, &batch, &epoch_end, &options.rank, &options.world,
					 &options.last, &options.bad, &options.slots, &fields,
					 &options.field_bytes, &options.open_timeout_ms, &writable,
					 &reconnect, &options.reconnect_timeout_ms, &cut_values))
		return NULL;
	Py_ssize_t field_count = parse_texts("fields", fields, field_names, FIELDS_MAX);
	if (field_count < 0)
		return NULL;
	options.fields = field_names;
	options.field_count = (uint32_t)field_count;
	options.shuffle = (uint32_t)shuffle;
	options.cut_values = (uint32_t)cut_values;
	options.writable = writable ? FEED_WRITABLE : FEED_OWN;
	options.reconnect = reconnect ? FEED_RECONNECT : FEED_RECONNECT_NEVER;
	options.seed = seed;
	options.epoch = epoch;
	options.batch = batch;
	options.epoch_end = epoch_end;

	char error[FEED_ERROR_MAX];
	struct feed *feed = NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = feed_open(&options, &feed, error);
	Py_END_ALLOW_THREADS if (r < 0) return raise_error(r, error);
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct stream *stream = (struct stream *)allocate(type, 0);
	if (!stream) {
		feed_close(feed);
		return NULL;
	}
	stream->feed = feed;
	stream->field_count = options.field_count;
	return (PyObject *)stream;
}

static void stream_dealloc(PyObject *self)
{
	feed_close(((struct stream *)self)->feed);
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

/*
 * next(timeout_ms): a Slot, or None at the end. Negative waits for ever, in slices, so that signals
 * are seen.
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
		if (PyErr_CheckSignals() < 0) {
			stream->busy = 0;
			return NULL;
		}
	}
	stream->busy = 0;
	if (r < 0)
		return raise_error(r, feed_error(stream->feed));
	if (r == FEED_END)
		Py_RETURN_NONE;

	allocfunc allocate = (allocfunc)PyType_GetSlot(slot_type, Py_tp_alloc);
	struct slot *slot = (struct slot *)allocate(slot_type, 0);
	if (!slot) {
		feed_release(stream->feed, &batch);
		return NULL;
	}
	Py_INCREF(self);
	slot->stream = stream;
	slot->batch = batch;
	return (PyObject *)slot;
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
	return Py_BuildValue("{sKsKsKsIsIsIsNsKsKsy#}", "feed_id", info.feed_id, "samples",
			     info.samples, "batches_per_epoch", info.batches_per_epoch, "classes",
			     info.classes, "slots", info.slots, "batch_size", info.batch_size,
			     "address", PyLong_FromVoidPtr((void *)info.memory), "bytes",
			     (unsigned long long)info.memory_size, "reconnects",
			     (unsigned long long)info.reconnects, "uuid", info.dataset_uuid,
			     (Py_ssize_t)sizeof(info.dataset_uuid));
}

/* Of memory that is registered with a device: keep(address) before, drop(address) afterwards. */
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
	/* what is not kept is dropped already */
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
	{"close", stream_close, METH_NOARGS, "Hangs up; batches held stay readable."},
	{"position", stream_position, METH_NOARGS,
	 "(epoch, batch) after the last batch handed out."},
	{"info", stream_info, METH_NOARGS, NULL},
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

static PyType_Spec stream_spec = {
	.name = "loaderd._feed.Stream",
	.basicsize = sizeof(struct stream),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = stream_slots,
};

/* Daemon */

struct daemon {
	PyObject_HEAD struct feed_daemon *daemon; /* NULL once stopped */
};

static PyObject *daemon_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = {"binary", "threads", "settings", NULL};
	struct feed_daemon_options options = {.size = sizeof(options)};
	const char *settings[SETTINGS_MAX];
	PyObject *list;
	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "zIO", names, &options.binary,
					 &options.threads, &list))
		return NULL;
	Py_ssize_t count = parse_texts("settings", list, settings, SETTINGS_MAX);
	if (count < 0)
		return NULL;
	options.settings = settings;
	options.setting_count = (uint32_t)count;
	char error[FEED_ERROR_MAX];
	struct feed_daemon *started = NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = feed_daemon_start_with(&options, &started, error);
	Py_END_ALLOW_THREADS if (r < 0) return raise_error(r, error);
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct daemon *daemon = (struct daemon *)allocate(type, 0);
	if (!daemon) {
		feed_daemon_stop(started);
		return NULL;
	}
	daemon->daemon = started;
	return (PyObject *)daemon;
}

static PyObject *daemon_stop(PyObject *self, PyObject *unused)
{
	struct feed_daemon *stopping = ((struct daemon *)self)->daemon;
	((struct daemon *)self)->daemon = NULL;
	Py_BEGIN_ALLOW_THREADS feed_daemon_stop(stopping);
	Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static void daemon_dealloc(PyObject *self)
{
	feed_daemon_stop(((struct daemon *)self)->daemon);
	object_free(self);
}

static PyObject *daemon_restart(PyObject *self, PyObject *unused)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	char error[FEED_ERROR_MAX] = "The daemon was stopped.";
	int r = -ECONNREFUSED;
	if (daemon) {
		Py_BEGIN_ALLOW_THREADS r = feed_daemon_restart(daemon, error);
		Py_END_ALLOW_THREADS
	}
	if (r < 0)
		return raise_error(r, error);
	Py_RETURN_NONE;
}

static PyObject *daemon_socket(PyObject *self, void *closure)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	if (!daemon)
		Py_RETURN_NONE;
	return PyUnicode_FromString(feed_daemon_socket(daemon));
}

static PyObject *daemon_pid(PyObject *self, void *closure)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	if (!daemon)
		Py_RETURN_NONE;
	return PyLong_FromLong(feed_daemon_pid(daemon));
}

static PyObject *daemon_alive(PyObject *self, void *closure)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	return PyBool_FromLong(daemon && feed_daemon_alive(daemon));
}

static PyObject *daemon_log(PyObject *self, void *closure)
{
	struct feed_daemon *daemon = ((struct daemon *)self)->daemon;
	char text[4096];
	size_t length = !daemon ? 0 : feed_daemon_log(daemon, text, sizeof(text));
	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
}

static PyMethodDef daemon_methods[] = {
	{"stop", daemon_stop, METH_NOARGS, "Stops it and waits."},
	{"restart", daemon_restart, METH_NOARGS,
	 "Starts it again, on its socket, if it has ended."},
	{NULL},
};

static PyGetSetDef daemon_attributes[] = {
	{"socket", daemon_socket, NULL, NULL, NULL},
	{"pid", daemon_pid, NULL, NULL, NULL},
	{"alive", daemon_alive, NULL, NULL, NULL},
	{"log", daemon_log, NULL, "The end of what it wrote to standard error.", NULL},
	{NULL},
};

static PyType_Slot daemon_slots[] = {
	{Py_tp_doc, "A private daemon."},  {Py_tp_new, daemon_new},
	{Py_tp_dealloc, daemon_dealloc},   {Py_tp_methods, daemon_methods},
	{Py_tp_getset, daemon_attributes}, {0},
};

static PyType_Spec daemon_spec = {
	.name = "loaderd._feed.Daemon",
	.basicsize = sizeof(struct daemon),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = daemon_slots,
};

/* Module */

static PyObject *class_names(const struct feed_dataset *dataset)
{
	PyObject *list = PyList_New(dataset->classes);
	for (uint32_t i = 0; list && i < dataset->classes; i++) {
		PyObject *text = text_of(dataset->class_names[i]);
		if (!text || PyList_SetItem(list, i, text) < 0) {
			Py_DECREF(list);
			return NULL;
		}
	}
	return list;
}

static PyObject *statistics(const struct feed_dataset *dataset, const double *v)
{
	if (!dataset->has_statistics)
		Py_RETURN_NONE;
	return Py_BuildValue("(ddd)", v[0], v[1], v[2]);
}

static PyObject *dataset_fields(const struct feed_dataset *dataset)
{
	PyObject *list = PyList_New(dataset->field_count);
	for (uint32_t i = 0; list && i < dataset->field_count; i++) {
		const struct feed_dataset_field *field = &dataset->fields[i];
		PyObject *facts =
			field->longest == FEED_LONGEST_UNKNOWN
				? Py_BuildValue("(NIO)", text_of(field->name), field->type, Py_None)
				: Py_BuildValue("(NIK)", text_of(field->name), field->type,
						(unsigned long long)field->longest);
		if (!facts || PyList_SetItem(list, i, facts) < 0) {
			Py_DECREF(list);
			return NULL;
		}
	}
	return list;
}

static PyObject *module_dataset(PyObject *module, PyObject *arguments)
{
	const char *socket, *path;
	if (!PyArg_ParseTuple(arguments, "zy", &socket, &path))
		return NULL;
	char error[FEED_ERROR_MAX];
	struct feed_dataset *dataset = NULL;
	int r;
	Py_BEGIN_ALLOW_THREADS r = feed_dataset(socket, path, &dataset, error);
	Py_END_ALLOW_THREADS if (r < 0) return raise_error(r, error);
	PyObject *result = Py_BuildValue(
		"(KNNNNy#N)", (unsigned long long)dataset->samples, class_names(dataset),
		statistics(dataset, dataset->mean), statistics(dataset, dataset->std),
		text_of(dataset->metadata), dataset->uuid, (Py_ssize_t)sizeof(dataset->uuid),
		dataset_fields(dataset));
	feed_dataset_free(dataset);
	return result;
}

static PyObject *module_default_socket(PyObject *module, PyObject *unused)
{
	char path[4096];
	int r = feed_default_socket(path, sizeof(path));
	if (r < 0)
		return raise_error(r, "$LOADERD_SOCKET is too long.");
	return PyUnicode_DecodeFSDefault(path);
}

static PyMethodDef module_methods[] = {
	{"dataset", module_dataset, METH_VARARGS,
	 "dataset(socket, path): (samples, classes, mean, std, metadata, uuid, fields)"},
	{"default_socket", module_default_socket, METH_NOARGS, "What no socket stands for."},
	{NULL},
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **ret_type)
{
	PyObject *type = PyType_FromSpec(spec);
	if (!type)
		return -1;
	*ret_type = (PyTypeObject *)type;
	return PyModule_AddObjectRef(module, name, type);
}

static struct PyModuleDef module_definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "loaderd._feed",
	.m_doc = "libfeed; use the package loaderd.",
	.m_size = -1,
	.m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__feed(void);

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__feed(void)
{
	PyObject *module = PyModule_Create(&module_definition);
	if (!module)
		return NULL;
	error_type = PyErr_NewException("loaderd._feed.Error", NULL, NULL);
	if (!error_type || PyModule_AddObjectRef(module, "Error", error_type) < 0 ||
	    add_type(module, "Array", &array_spec, &array_type) < 0 ||
	    add_type(module, "Slot", &slot_spec, &slot_type) < 0 ||
	    add_type(module, "Stream", &stream_spec, &stream_type) < 0 ||
	    add_type(module, "Daemon", &daemon_spec, &daemon_type) < 0 ||
	    PyModule_AddStringConstant(module, "version", LOADERD_VERSION) < 0) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
