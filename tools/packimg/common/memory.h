/*
 * Buffers and arenas. A buffer grows and is reused: after warm-up a worker allocates nothing. An
 * arena holds data that lives until the end of a command (names, field values, the arrays of a
 * catalogue) and frees it all at once. The arena counts every byte before it allocates it. Beyond
 * ARENA_MEMORY it allocates from unlinked temporary files, so that input cannot increase memory use
 * without limit. Each object is used by one thread at a time.
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
/* Ensures a capacity of at least `capacity` bytes and keeps the contents. 0 or -ENOMEM. */
int buffer_reserve(struct buffer *buffer, size_t capacity);
int buffer_append(struct buffer *buffer, const void *bytes, size_t size);

/*
 * If the array at *array is full, enlarges it so that it holds count + 1 items of `size` bytes.
 * capacity is in items. 0 or -ENOMEM.
 */
int array_reserve(void *array, size_t count, size_t *capacity, size_t size);

enum {
	ARENA_MEMORY = 96 << 20, /* bytes of an arena that stay in memory; the rest is in files */
};

struct arena {
	struct arena_chunk *chunks;
	uint64_t held; /* bytes of chunks in memory, at most ARENA_MEMORY */
	/*
	 * negative errno of the last failed allocation of a chunk, in memory or in a file; 0 if
	 * none failed
	 */
	int fault;
};

void arena_deinit(struct arena *arena);
/*
 * Returns memory aligned to 8 bytes. NULL if memory, or the disk that contains TMPDIR, is
 * exhausted; the reason is in arena.fault.
 */
void *arena_alloc(struct arena *arena, size_t size);
/* Returns a null-terminated copy. */
char *arena_copy(struct arena *arena, const char *text, size_t size);
/* Returns zero-filled memory that arena_release() can free early; NULL as for arena_alloc(). */
void *arena_array(struct arena *arena, size_t size);
void arena_release(struct arena *arena, void *array);
/*
 * Like array_reserve(), for an array in the arena. *array is NULL at first; arena_release() frees
 * the array, or it is freed with the arena.
 */
int arena_reserve(struct arena *arena, void *array, size_t count, size_t *capacity, size_t size);
/*
 * Drops the pages of chunks in files from memory until they are used again. Other threads may read
 * them at the same time.
 */
void arena_forget(const struct arena *arena);

/* Creates an unlinked file in TMPDIR (default /var/tmp). Returns its fd, or a negative errno. */
int temporary_file(void);
/* Returns the folder used by temporary_file(). */
const char *temporary_folder(void);
