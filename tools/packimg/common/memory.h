/*
 * Buffers and arenas. A buffer grows and is reused: after warm-up a worker allocates nothing. An
 * arena holds data that lives until the end of a command (names, field values, the arrays of a
 * catalogue) and frees it all at once. Every byte is charged to the arena before it is allocated;
 * beyond ARENA_MEMORY it allocates from unlinked temporary files, so input cannot drive memory use
 * up. Each is used by one thread at a time.
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
	ARENA_MEMORY = 96 << 20, /* bytes of an arena outside files */
};

struct arena {
	struct arena_chunk *chunks;
	uint64_t held; /* bytes of chunks outside files, at most ARENA_MEMORY */
	/*
	 * error of the last failed chunk allocation, memory or file: a negative errno; 0 if none
	 * failed
	 */
	int fault;
};

void arena_deinit(struct arena *arena);
/*
 * Returns memory aligned to 8 bytes; NULL if memory, or the disk under TMPDIR, is exhausted: see
 * arena.fault.
 */
void *arena_alloc(struct arena *arena, size_t size);
/* Returns a terminated copy. */
char *arena_copy(struct arena *arena, const char *text, size_t size);
/* Returns zeroed memory that arena_release() may free early; NULL as for arena_alloc(). */
void *arena_array(struct arena *arena, size_t size);
void arena_release(struct arena *arena, void *array);
/*
 * Like array_reserve(), for an array that belongs to the arena: NULL at first, freed by
 * arena_release() or with the arena.
 */
int arena_reserve(struct arena *arena, void *array, size_t count, size_t *capacity, size_t size);
/*
 * Drops the pages of file-backed chunks from memory until their next use. Other threads may read
 * them meanwhile.
 */
void arena_forget(const struct arena *arena);

/* Creates an unlinked file under TMPDIR (default /var/tmp); a negative errno on failure. */
int temporary_file(void);
/* The folder used by temporary_file(). */
const char *temporary_folder(void);
