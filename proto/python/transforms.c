#include "format/augment/transform_list.h"
#include "proto/python/objects.h"

static PyObject *transform_arguments(const struct transform_entry *entry)
{
	PyObject *list = PyList_New((Py_ssize_t)entry->argument_count);
	for (size_t i = 0; list && i < entry->argument_count; i++) {
		const struct transform_argument *argument = &entry->arguments[i];
		PyObject *facts =
			Py_BuildValue("(sssddOs)", argument->name, argument->form, argument->words,
				      argument->min, argument->max,
				      argument->required ? Py_True : Py_False, argument->otherwise);
		list = list_put(list, (Py_ssize_t)i, facts);
	}
	return list;
}

PyObject *module_transforms(PyObject *module, PyObject *unused)
{
	struct transform_entry entry;
	PyObject *list = PyList_New(0);
	for (size_t i = 0; list && transform_list_get(i, &entry); i++) {
		PyObject *facts =
			Py_BuildValue("(ssN)", entry.name, entry.text, transform_arguments(&entry));
		if (!facts || PyList_Append(list, facts) < 0) {
			Py_DECREF(list);
			list = NULL;
		}
		Py_XDECREF(facts);
	}
	return list;
}
