/*
 * Buffers and arenas. A buffer grows and is reused: after warm-up a worker allocates nothing. An
 * arena holds what lives until the end of a command (names, field values, the arrays of a
 * catalogue) and frees it all at once. Every byte is charged to it before it is allocated; beyond
 * ARENA_MEMORY it allocates from unlinked temporary files, so that no input decides how much memory
 * is used. Each is used by one thread at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buffer {
	uint8_t *data;
	size_t size;     /* bytes in use */
	size_t capacity; /* bytes allocated */
};

void buffer_deinit(struct buffer *buffer);
/* Ensures a capacity of at least `capacity` bytes, keeping the contents; 0 or -ENOMEM. */
int buffer_reserve(struct buffer *buffer, size_t capacity);
int buffer_append(struct buffer *buffer, const void *bytes, size_t size);

/*
 * Grows the array at *array if it is full, so that it holds count + 1 items of `size` bytes.
 * capacity is in items. 0 or -ENOMEM.
 */
int array_reserve(void *array, size_t count, size_t *capacity, size_t size);

enum {
	ARENA_MEMORY = 96 << 20, /* bytes of an arena that are not in files */
};

struct arena {
	struct arena_chunk *chunks;
	uint64_t held; /* bytes of chunks that are not in files, ARENA_MEMORY at most */
	/* Why a chunk could not be had: a negative errno of memory or of a file; 0: all could. */
	int fault;
};

void arena_deinit(struct arena *arena);
/* Aligned to 8 bytes; NULL when memory, or the disk under TMPDIR, is out: see arena.fault. */
void *arena_alloc(struct arena *arena, size_t size);
/* A terminated copy. */
char *arena_copy(struct arena *arena, const char *text, size_t size);
/* Zeros that arena_release() may give back before the end; NULL as of arena_alloc(). */
void *arena_array(struct arena *arena, size_t size);
void arena_release(struct arena *arena, void *array);
/*
 * As array_reserve(), of an array that is the arena's: NULL at first, and given back by
 * arena_release() or with all the rest.
 */
int arena_reserve(struct arena *arena, void *array, size_t count, size_t *capacity, size_t size);
/* Drops the pages of file-backed chunks until they are used again. Other threads may read them. */
void arena_forget(const struct arena *arena);

/* An unlinked file under TMPDIR (default /var/tmp), or a negative errno. */
int temporary_file(void);
/* The folder that it is in. */
const char *temporary_folder(void);
