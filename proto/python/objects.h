/*
 * Shared declarations of loaderd._feed, the Python binding of libfeed, in the limited API of 3.9;
 * buffer.h declares what that lacks. There are four types, one per file, and module.c with the
 * common code. Stream is a feed, Slot a held batch, Array a section of a batch, exported through
 * the buffer protocol and DLPack. An Array keeps its Slot alive, a Slot its Stream; the slot is
 * released to the daemon when the last of them dies, in whichever thread that happens.
 * loaderd/_subscription.py handles names and defaults, loaderd/_batch.py NumPy.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "proto/client/feed.h"
#include "proto/python/heap_type.h"

#include <stdint.h>

/* Python 3.9 has no immutable types: attributes of our types can be assigned there. */
#ifndef Py_TPFLAGS_IMMUTABLETYPE
#define Py_TPFLAGS_IMMUTABLETYPE 0
#endif

enum element { U8, F16, BF16, F32, U16, I16, I32, I64, U64, F64, ELEMENTS };

struct stream {
	PyObject_HEAD struct feed *feed;
	int busy; /* nonzero while a thread is in feed_next() without the GIL */
	uint32_t field_count;
	uint32_t held;      /* slots that exist; protected by the GIL */
	PyObject *progress; /* has waiting(text); NULL: nobody listens */
};

struct slot {
	PyObject_HEAD struct stream *stream;
	struct feed_batch batch;
};

/* The types, created at module initialisation, and their specs. */
extern PyTypeObject *array_type, *slot_type;
extern PyType_Spec array_spec, slot_spec, stream_spec, daemon_spec;

/*
 * Decodes a text of libfeed, which may be cut within a character or contain a path that is not
 * UTF-8.
 */
PyObject *text_of(const char *text);
/* Raises the exception for a negative errno of libfeed and returns NULL. */
PyObject *raise_error(int code, const char *text);
/*
 * Stores an item in a list, which takes over the reference, and returns the list. If item is NULL,
 * frees the list and returns NULL with an exception set.
 */
PyObject *list_put(PyObject *list, Py_ssize_t i, PyObject *item);
/* tp_new of types that only this module instantiates: raises TypeError. */
PyObject *object_refuse_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords);
/*
 * Fills in pointers to the tuple's strings, which live as long as the tuple. Returns their number,
 * or -1 with an exception set.
 */
Py_ssize_t parse_texts(const char *name, PyObject *tuple, const char **texts, int most);

/* _feed.transforms(): lists the transforms. */
PyObject *module_transforms(PyObject *module, PyObject *unused);

PyObject *array_new(PyObject *slot, const void *data, enum element element, int dimensions,
		    const Py_ssize_t *shape);
