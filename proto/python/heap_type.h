/*
 * Objects of heap types, for both extensions: the limited API of 3.9 reaches a type's
 * functions by PyType_GetSlot() alone. Hold the GIL.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Allocates an object, zeroed behind its head; NULL with an exception set if out of memory. */
void *object_new(PyTypeObject *type);
/* Frees an object and drops its reference to its type. Call it last in tp_dealloc. */
void object_free(PyObject *self);
