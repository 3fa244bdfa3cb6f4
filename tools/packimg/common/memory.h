/*
 * The tool's ways to hold bytes. A buffer grows and is reused: after warm-up a worker allocates
 * nothing. An arena keeps what lives until the end of a command (names, field values) and gives it
 * all back at once; past its first quarter GiB it lives in unlinked temporary files, so that a
 * catalogue of a hundred million names does not need that much memory. Each is used by one thread
 * at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buffer {
	uint8_t *data;
	size_t size; /* bytes in use */
	size_t room; /* bytes allocated */
};

void buffer_deinit(struct buffer *buffer);
/* Makes room for at least `room` bytes in all, keeping the contents; 0 or -ENOMEM. */
int buffer_make_room(struct buffer *buffer, size_t room);
int buffer_append(struct buffer *buffer, const void *bytes, size_t size);

/*
 * Room for one more item behind count of `size` bytes each, in the array that the pointer at
 * `array` leads to. 0 or -ENOMEM.
 */
int array_room(void *array, size_t count, size_t *room, size_t size);

struct arena {
	struct arena_chunk *chunks;
	uint64_t bytes; /* in all chunks */
};

void arena_deinit(struct arena *arena);
/* Aligned to 8 bytes; NULL when memory (or the disk under TMPDIR) is out. */
void *arena_alloc(struct arena *arena, size_t size);
/* A terminated copy. */
char *arena_copy(struct arena *arena, const char *text, size_t size);
