/* A buffer that only grows, 128-byte aligned, with 128 readable bytes behind what was asked for. Contents are lost when it grows. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct scratch {
	uint8_t *data;
	size_t size;
};

/* 0 or -ENOMEM, which leaves the buffer as it was. */
int scratch_reserve(struct scratch *scratch, size_t size);
void scratch_deinit(struct scratch *scratch);
