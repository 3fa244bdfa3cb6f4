/*
 * The boxes of an AVIF file (ISO/IEC 14496-12), for what libavif cannot be asked. Bytes are a
 * stranger's: what would lie behind their end is 0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;

#define BOX_TYPE(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* Bytes that are taken from the first on. */
struct bytes {
	uint8_t *at, *end;
};

/* All of a file's, which are not to be written unless they are the caller's. */
struct bytes bytes_of(const uint8_t *data, size_t size);
/* A number, the highest byte first. */
uint64_t bytes_take(struct bytes *bytes, uint32_t count);
void bytes_skip(struct bytes *bytes, uint64_t count);
/* A box (4.2): its type, and what is in it. False at the end. */
bool bytes_take_box(struct bytes *bytes, uint32_t *ret_type, struct bytes *ret_content);
/* The first box of a type; empty: there is none. */
struct bytes bytes_find_box(struct bytes bytes, uint32_t wanted);

/*
 * libavif 0.11 reads no file whose last box reaches to the end without saying its size (4.2), and
 * no sequence with a track of sound. Where there is one, `file` becomes a copy, or what it holds is
 * changed, in which the box says its size and the track is free space. 0 or -ENOMEM.
 */
int avif_make_plain(const uint8_t *data, size_t size, struct buffer *file);
