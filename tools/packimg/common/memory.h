/*
 * The tool's ways to hold bytes. A buffer grows and is reused: after warm-up a worker allocates
 * nothing. An arena keeps what lives until the end of a command (names, field values, the arrays of
 * a catalogue) and gives it all back at once. It is charged with every byte before that is
 * allocated, and what would exceed ARENA_MEMORY lies in nameless temporary files, so that no input
 * decides how much memory is taken. Each is used by one thread at a time.
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
/* Makes room for at least `room` bytes in all, keeping the contents; 0 or -ENOMEM. */
int buffer_reserve(struct buffer *buffer, size_t capacity);
int buffer_append(struct buffer *buffer, const void *bytes, size_t size);

/*
 * Room for one more item behind count of `size` bytes each, in the array that the pointer at
 * `array` leads to. 0 or -ENOMEM.
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
/* Leaves what is in files to the kernel until it is touched again. Others may be reading it. */
void arena_forget(const struct arena *arena);

/* A file without a name under TMPDIR (default /var/tmp), or a negative errno. */
int temporary_file(void);
/* The folder that it is in. */
const char *temporary_folder(void);
