#include "proto/python/objects.h"

#include "proto/python/buffer.h"
#include "proto/python/dlpack.h"

#include <stdlib.h>

enum { DIMENSIONS_MAX = 5 };

/*
 * Python has no buffer format for bfloat16, so it is exported as unsigned short. Sample indices are
 * signed in DLPack, for PyTorch.
 */
static const struct {
	const char *format;
	uint8_t size, dlpack_code;
} elements[ELEMENTS] = {
	[U8] = {"B", 1, DLPACK_UINT},     [F16] = {"e", 2, DLPACK_FLOAT},
	[BF16] = {"H", 2, DLPACK_BFLOAT}, [F32] = {"f", 4, DLPACK_FLOAT},
	[U16] = {"H", 2, DLPACK_UINT},    [I16] = {"h", 2, DLPACK_INT},
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

PyObject *array_new(PyObject *slot, const void *data, enum element element, int dimensions,
		    const Py_ssize_t *shape)
{
	struct array *array = object_new(array_type);
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

static int array_getbuffer(PyObject *self, struct buffer_view *view, int flags)
{
	struct array *array = (struct array *)self;
	Py_INCREF(self);
	*view = (struct buffer_view){
		.buf = (void *)array->data,
		.obj = self,
		.len = array->strides[0] * array->shape[0],
		.itemsize = elements[array->element].size,
		.ndim = array->dimensions,
		.format = flags & BUFFER_FORMAT ? (char *)elements[array->element].format : NULL,
		.shape = flags & BUFFER_ND ? array->shape : NULL,
		.strides = (flags & BUFFER_STRIDES) == BUFFER_STRIDES ? array->strides : NULL,
	};
	return 0;
}

/* One block for the consumer of DLPack: the tensor and a reference to the array. */
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
 * Consumers call this from any thread, with or without the GIL, perhaps after the interpreter has
 * ended.
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

/* A consumed capsule has been renamed; its consumer calls the deleter. */
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

/* Returns the versioned form if the consumer supports it. `stream` is meaningless on the CPU. */
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
		PyErr_SetString(PyExc_BufferError,
				"batches are exported without a copy, from host memory");
		return NULL;
	}
	struct export *export = calloc(1, sizeof(*export));
	if (!export)
		return PyErr_NoMemory();
	PyObject *capsule;
	if (major >= 1) {
		struct dlpack_managed_versioned *managed = &export->managed.versioned;
		*managed = (struct dlpack_managed_versioned){
			.version_major = 1, .context = export, .deleter = versioned_deleter};
		export_fill(export, &managed->tensor, (struct array *)self);
		capsule = PyCapsule_New(managed, "dltensor_versioned", capsule_free);
	} else {
		struct dlpack_managed *managed = &export->managed.plain;
		*managed = (struct dlpack_managed){.context = export, .deleter = plain_deleter};
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
	{"address", array_address, NULL, "Address of the data.", NULL},
	{NULL},
};

static PyType_Slot array_slots[] = {
	{Py_tp_doc, "A section of a batch in shared memory: buffer protocol and DLPack."},
	{Py_tp_new, object_refuse_new},
	{Py_tp_dealloc, array_dealloc},
	{BUFFER_SLOT_GET, array_getbuffer},
	{Py_tp_methods, array_methods},
	{Py_tp_getset, array_attributes},
	{0},
};

PyType_Spec array_spec = {
	.name = "loaderd._feed.Array",
	.basicsize = sizeof(struct array),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = array_slots,
};
