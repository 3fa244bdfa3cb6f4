/*
 * Between the files of loaderd._feed, libfeed for Python in the limited API: four types, each a
 * file of its own, and module.c, which has what they share. Stream is a feed, Slot a batch held,
 * Array a section of a batch, exported by buffer protocol and DLPack. An Array keeps its Slot, a
 * Slot its Stream; the slot goes back to the daemon when the last of them dies, in whatever thread
 * that happens. Names, defaults and NumPy are the business of loaderd/__init__.py.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "proto/client/feed.h"

#include <stdint.h>

enum element { U8, F16, BF16, F32, I32, U64, I64, F64, ELEMENTS };

struct stream {
	PyObject_HEAD struct feed *feed;
	int busy; /* a thread is in feed_next without the interpreter's lock */
	uint32_t field_count;
};

struct slot {
	PyObject_HEAD struct stream *stream;
	struct feed_batch batch;
};

/* The types once the module is there, and what they are made of. */
extern PyTypeObject *array_type, *slot_type;
extern PyType_Spec array_spec, slot_spec, stream_spec, daemon_spec;

/*
 * A sentence of libfeed's, which may be cut within a character, or tell of a path that is no UTF-8.
 */
PyObject *text_of(const char *text);
/* Of libfeed's negative errno; NULL. */
PyObject *raise_error(int code, const char *text);
/*
 * Puts an item into a list, which takes it over, and returns the list; NULL, without the list and
 * with an exception: there is no item.
 */
PyObject *list_put(PyObject *list, Py_ssize_t i, PyObject *item);
/* An object of one of our heap types; NULL, with an exception: no memory. */
void *object_new(PyTypeObject *type);
void object_free(PyObject *self);
/* Texts that live as long as the tuple they are in. Returns their number, -1 with an exception. */
Py_ssize_t parse_texts(const char *name, PyObject *tuple, const char **texts, int most);

PyObject *array_new(PyObject *slot, const void *data, enum element element, int dimensions,
		    const Py_ssize_t *shape);
