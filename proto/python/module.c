#include "proto/python/objects.h"

#include <string.h>

static PyObject *error_type; /* args: (code, text) */
PyTypeObject *array_type, *slot_type;
static PyTypeObject *stream_type, *daemon_type;

PyObject *text_of(const char *text)
{
	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *raise_error(int code, const char *text)
{
	PyObject *arguments = Py_BuildValue("(iN)", -code, text_of(text));
	if (arguments) {
		PyErr_SetObject(error_type, arguments);
		Py_DECREF(arguments);
	}
	return NULL;
}

PyObject *list_put(PyObject *list, Py_ssize_t i, PyObject *item)
{
	if (item && PyList_SetItem(list, i, item) == 0)
		return list;
	Py_DECREF(list);
	return NULL;
}

PyObject *object_refuse_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	PyErr_SetString(PyExc_TypeError, "only loaderd makes objects of this type: open a Feed");
	return NULL;
}

Py_ssize_t parse_texts(const char *name, PyObject *tuple, const char **texts, int most)
{
	Py_ssize_t count = PyTuple_Size(tuple);
	if (count > most) {
		PyErr_Format(PyExc_ValueError, "%s: %zd given, at most %d are allowed", name, count,
			     most);
		return -1;
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		if (!PyArg_Parse(PyTuple_GetItem(tuple, i), "s", &texts[i]))
			return -1;
	}
	return count;
}

static PyObject *class_names(const struct feed_dataset *dataset)
{
	PyObject *list = PyList_New(dataset->classes);
	for (uint32_t i = 0; list && i < dataset->classes; i++)
		list = list_put(list, i, text_of(dataset->class_names[i]));
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
		list = list_put(list, i, facts);
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
		"(KNNNNy#N(II))", (unsigned long long)dataset->samples, class_names(dataset),
		statistics(dataset, dataset->mean), statistics(dataset, dataset->std),
		text_of(dataset->metadata), dataset->uuid, (Py_ssize_t)sizeof(dataset->uuid),
		dataset_fields(dataset), dataset->block_samples, dataset->group_blocks);
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
	 "dataset(socket, path): (samples, classes, mean, std, metadata, uuid, fields, blocks)"},
	{"transforms", module_transforms, METH_NOARGS,
	 "transforms(): [(name, text, [(name, form, words, min, max, required, default)])]"},
	{"default_socket", module_default_socket, METH_NOARGS,
	 "The socket that is used if none is given."},
	{NULL},
};

/* PyModule_AddObjectRef() of 3.10 */
static int add_object(PyObject *module, const char *name, PyObject *object)
{
	Py_INCREF(object);
	int r = PyModule_AddObject(module, name, object);
	if (r < 0)
		Py_DECREF(object);
	return r;
}

static int add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **ret_type)
{
	PyObject *type = PyType_FromSpec(spec);
	if (!type)
		return -1;
	*ret_type = (PyTypeObject *)type;
	return add_object(module, name, type);
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
	if (!error_type || add_object(module, "Error", error_type) < 0 ||
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
