/*
 * Objects of heap types, for both extensions: in the limited API of 3.9, a type's functions are
 * only available through PyType_GetSlot(). Hold the GIL.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Allocates an object, zeroed after its head. Returns NULL with an exception set if out of memory.
 */
void *object_new(PyTypeObject *type);
/* Frees an object and drops its reference to its type. Call it last in tp_dealloc. */
void object_free(PyObject *self);
