/*
 * proto/python/buffer.h against the declarations of Python.h, which this file reads without the
 * limited API: same layout, same constants. The compiler is the test.
 */
#include "proto/python/buffer.h"

#include <stddef.h>

#define SAME(member)                                                                               \
	_Static_assert(offsetof(struct buffer_view, member) == offsetof(Py_buffer, member) &&      \
			       sizeof(((struct buffer_view *)0)->member) ==                        \
				       sizeof(((Py_buffer *)0)->member),                           \
		       #member)

SAME(buf);
SAME(obj);
SAME(len);
SAME(itemsize);
SAME(readonly);
SAME(ndim);
SAME(format);
SAME(shape);
SAME(strides);
SAME(suboffsets);
SAME(internal);
_Static_assert(sizeof(struct buffer_view) == sizeof(Py_buffer), "size");
_Static_assert(BUFFER_FORMAT == PyBUF_FORMAT && BUFFER_ND == PyBUF_ND, "flags");
_Static_assert(BUFFER_STRIDES == PyBUF_STRIDES, "flags");
_Static_assert(BUFFER_SLOT_GET == Py_bf_getbuffer, "slot");

int main(void)
{
	return 0;
}
