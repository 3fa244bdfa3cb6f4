/*
 * Parses the boxes of an AVIF file (ISO/IEC 14496-12), for information that libavif does not
 * provide. Bytes are untrusted: reads past the end return 0. Pure functions, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;

#define BOX_TYPE(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* A byte range, consumed from the front. */
struct bytes {
	uint8_t *at, *end;
};

/* Wraps a file. Do not write through it unless data belongs to the caller. */
struct bytes bytes_of(const uint8_t *data, size_t size);
/* Takes a big-endian number of count bytes. */
uint64_t bytes_take(struct bytes *bytes, uint32_t count);
void bytes_skip(struct bytes *bytes, uint64_t count);
/* Takes a box (4.2): its type and content. Returns false at the end. */
bool bytes_take_box(struct bytes *bytes, uint32_t *ret_type, struct bytes *ret_content);
/* Returns the first box of a type; empty if there is none. */
struct bytes bytes_find_box(struct bytes bytes, uint32_t wanted);

/*
 * Works around libavif 0.11, which rejects a file whose last box extends to the end without a size
 * (4.2), and a sequence with an audio track. For such a file, makes `file` a copy, or changes it in
 * place, so that the box has a size and the track becomes free space. Returns 0 or -ENOMEM.
 */
int avif_make_plain(const uint8_t *data, size_t size, struct buffer *file);
