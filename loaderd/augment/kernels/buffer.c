#include "loaderd/augment/kernels/buffer.h"

#include <errno.h>
#include <stdlib.h>

int buffer_reserve(struct buffer *buffer, size_t size)
{
	if (size <= buffer->size)
		return 0;
	/* A quarter more than asked: crops of random size would otherwise grow it many times. */
	size = (size + size / 4 + 4095) & ~(size_t)4095;
	void *data = aligned_alloc(64, size);

	if (!data)
		return -ENOMEM;
	free(buffer->data);
	buffer->data = data;
	buffer->size = size;
	return 0;
}
