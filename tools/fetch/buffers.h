/*
 * Buffers in which replies are collected, all of one size and from one mapping, so that memory is
 * bounded: malloc() would keep freed buffers of many sizes, up to twice as much as were ever in
 * use. The buffer that was given back last is taken first, since it has its pages. Main thread
 * only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buffers {
	uint8_t *memory; /* [count][size] */
	size_t size;     /* bytes of a buffer */
	unsigned count;
	unsigned *given; /* [given_count] numbers of buffers that nobody has */
	unsigned given_count;
};

/* -ENOMEM: there are no buffers, and buffers_take() returns NULL. */
int buffers_init(struct buffers *buffers, unsigned count, size_t size);
/* Nobody has a buffer any more. */
void buffers_close(struct buffers *buffers);
/* [size] bytes with any content; NULL: all buffers are in use. */
uint8_t *buffers_take(struct buffers *buffers);
/* Takes back what buffers_take() has returned; nothing if it is NULL. */
void buffers_give(struct buffers *buffers, uint8_t *buffer);
