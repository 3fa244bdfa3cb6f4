/*
 * The part of the buffer protocol that Array implements, as CPython lays it out. Python.h declares
 * it to extensions in the limited API from 3.11 on only. The layout is older: 3.9 and 3.10, which
 * no longer change, have the same, and from 3.11 on it belongs to the stable ABI. With these
 * declarations one extension runs on 3.9 and all later versions. test_python_buffer.c compares
 * them with Python.h.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Py_buffer. The consumer owns it; the exporter owns what the pointers point to. */
struct buffer_view {
	void *buf;
	PyObject *obj;            /* a new reference to the exporter */
	Py_ssize_t len, itemsize; /* bytes */
	int readonly;
	int ndim;
	char *format;
	Py_ssize_t *shape, *strides, *suboffsets; /* of ndim elements, or NULL */
	void *internal;
};

/* Bits of the flags of a request: PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES. */
enum { BUFFER_FORMAT = 0x4, BUFFER_ND = 0x8, BUFFER_STRIDES = 0x18 };

/* Py_bf_getbuffer, the type's slot with int (*)(PyObject *, struct buffer_view *, int flags). */
enum { BUFFER_SLOT_GET = 1 };
