/*
 * Parses the boxes of an AVIF file (ISO/IEC 14496-12), for information that libavif does not
 * provide. The bytes are untrusted: reads beyond the end return 0. Pure functions, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;

#define BOX_TYPE(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* A range of bytes, which is consumed from the front. */
struct bytes {
	uint8_t *at, *end;
};

/* Wraps a file. Do not write through the result unless data belongs to the caller. */
struct bytes bytes_of(const uint8_t *data, size_t size);
/* Consumes a big-endian number of `count` bytes. */
uint64_t bytes_take(struct bytes *bytes, uint32_t count);
void bytes_skip(struct bytes *bytes, uint64_t count);
/* Consumes a box (4.2) and returns its type and content. Returns false at the end. */
bool bytes_take_box(struct bytes *bytes, uint32_t *ret_type, struct bytes *ret_content);
/* Returns the first box of a type; an empty one if there is none. */
struct bytes bytes_find_box(struct bytes bytes, uint32_t wanted);

/*
 * Works around libavif 0.11, which rejects a file whose last box extends to the end without a size
 * (4.2), and a sequence with an audio track. Gives the box a size and turns the track into free
 * space, in place if `file` holds a copy already, otherwise in a copy that it stores in `file`.
 * Returns 0 or -ENOMEM.
 */
int avif_make_plain(const uint8_t *data, size_t size, struct buffer *file);
