#include "tools/packimg/common/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	ARENA_CHUNK = 4 << 20,
	ARENA_LARGE = ARENA_CHUNK / 4, /* larger allocations get a chunk of their own */
	ARRAY_FIRST = 64,              /* initial capacity of an array, in items */
};

struct arena_chunk {
	struct arena_chunk *next;
	uint8_t *data;
	size_t used, capacity;
	bool in_file;
};

void buffer_deinit(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){0};
}

int buffer_reserve(struct buffer *buffer, size_t capacity)
{
	if (capacity <= buffer->capacity)
		return 0;
	if (capacity < buffer->capacity + buffer->capacity / 2)
		capacity = buffer->capacity + buffer->capacity / 2;
	uint8_t *data = realloc(buffer->data, capacity);
	if (!data)
		return -ENOMEM;
	buffer->data = data;
	buffer->capacity = capacity;
	return 0;
}

int buffer_append(struct buffer *buffer, const void *bytes, size_t size)
{
	if (size > SIZE_MAX / 2 - buffer->size)
		return -ENOMEM;
	if (buffer_reserve(buffer, buffer->size + size))
		return -ENOMEM;
	if (size)
		memcpy(buffer->data + buffer->size, bytes, size);
	buffer->size += size;
	return 0;
}

int array_reserve(void *array, size_t count, size_t *capacity, size_t size)
{
	size_t more = *capacity ? *capacity * 2 : ARRAY_FIRST;
	void *items;

	if (count < *capacity)
		return 0;
	memcpy(&items, array, sizeof(items));
	items = reallocarray(items, more, size);
	if (!items)
		return -ENOMEM;
	memcpy(array, &items, sizeof(items));
	*capacity = more;
	return 0;
}

const char *temporary_folder(void)
{
	const char *folder = getenv("TMPDIR");

	return folder && *folder ? folder : "/var/tmp";
}

int temporary_file(void)
{
	char path[4096];

	int fd = open(temporary_folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	/* Some file systems do not support O_TMPFILE. */
	int n = snprintf(path, sizeof(path), "%s/.packimg-XXXXXX", temporary_folder());
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	unlink(path);
	return fd;
}

static void chunk_free(struct arena *arena, struct arena_chunk *chunk)
{
	if (!chunk->in_file)
		arena->held -= chunk->capacity;
	munmap(chunk->data, chunk->capacity);
	free(chunk);
}

void arena_deinit(struct arena *arena)
{
	struct arena_chunk *chunk, *next;

	for (chunk = arena->chunks; chunk; chunk = next) {
		next = chunk->next;
		chunk_free(arena, chunk);
	}
	*arena = (struct arena){0};
}

/* Maps zero-filled anonymous memory. */
static int map_memory(size_t capacity, void **ret_data)
{
	void *data =
		mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (data == MAP_FAILED)
		return -errno;
	*ret_data = data;
	return 0;
}

/* Maps a temporary file, whose pages the kernel can write to disk. */
static int map_shared(int fd, size_t capacity, void **ret_data)
{
	/* Allocate the file's blocks now: otherwise a full disk would raise SIGBUS later. */
	int r = -posix_fallocate(fd, 0, (off_t)capacity);
	if (r)
		return r;
	void *data = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	*ret_data = data;
	return 0;
}

static int map_file(size_t capacity, void **ret_data)
{
	int fd = temporary_file();

	if (fd < 0)
		return fd;
	int r = map_shared(fd, capacity, ret_data);
	close(fd);
	return r;
}

static void chunk_forget(const struct arena_chunk *chunk)
{
	if (chunk->in_file)
		madvise(chunk->data, chunk->capacity, MADV_DONTNEED);
}

void arena_forget(const struct arena *arena)
{
	for (const struct arena_chunk *chunk = arena->chunks; chunk; chunk = chunk->next)
		chunk_forget(chunk);
}

/*
 * Creates a chunk. With `first` it becomes the head of the list, that is, the chunk from which
 * allocations are made, and the pages of the previous head may be dropped from memory. Otherwise it
 * holds a single allocation.
 */
static struct arena_chunk *chunk_new(struct arena *arena, size_t size, bool first)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct arena_chunk *chunk = calloc(1, sizeof(*chunk)), *before = arena->chunks;
	void *data = NULL;
	int r = chunk && size <= SIZE_MAX / 2 ? 0 : -ENOMEM;

	if (!r) {
		chunk->capacity = (size + page - 1) / page * page;
		chunk->in_file = chunk->capacity > ARENA_MEMORY - arena->held;
		r = chunk->in_file ? map_file(chunk->capacity, &data)
				   : map_memory(chunk->capacity, &data);
	}
	if (r) {
		arena->fault = r;
		free(chunk);
		return NULL;
	}
	chunk->data = data;
	if (!chunk->in_file)
		arena->held += chunk->capacity;
	if (before) {
		chunk_forget(before);
		if (before->next)
			chunk_forget(before->next);
	}
	if (!first)
		chunk->used = chunk->capacity;
	if (first || !before) {
		chunk->next = before;
		arena->chunks = chunk;
	} else {
		chunk->next = before->next;
		before->next = chunk;
	}
	return chunk;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	struct arena_chunk *chunk = arena->chunks;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + 7) & ~(size_t)7;
	if (size > ARENA_LARGE)
		return arena_array(arena, size);
	if (!chunk || chunk->capacity - chunk->used < size) {
		chunk = chunk_new(arena, ARENA_CHUNK, true);
		if (!chunk)
			return NULL;
	}
	void *result = chunk->data + chunk->used;
	chunk->used += size;
	return result;
}

char *arena_copy(struct arena *arena, const char *text, size_t size)
{
	char *copy = arena_alloc(arena, size + 1);

	if (!copy)
		return NULL;
	memcpy(copy, text, size);
	copy[size] = 0;
	return copy;
}

void *arena_array(struct arena *arena, size_t size)
{
	struct arena_chunk *chunk = chunk_new(arena, size ? size : 1, false);

	return chunk ? chunk->data : NULL;
}

void arena_release(struct arena *arena, void *array)
{
	for (struct arena_chunk **link = &arena->chunks; array && *link; link = &(*link)->next) {
		struct arena_chunk *chunk = *link;

		if (chunk->data != array)
			continue;
		*link = chunk->next;
		chunk_free(arena, chunk);
		return;
	}
}

int arena_reserve(struct arena *arena, void *array, size_t count, size_t *capacity, size_t size)
{
	size_t more = *capacity ? *capacity * 2 : ARRAY_FIRST;
	void *items, *grown;

	if (count < *capacity)
		return 0;
	if (more > SIZE_MAX / 2 / size)
		return -ENOMEM;
	grown = arena_array(arena, more * size);
	if (!grown)
		return -ENOMEM;
	memcpy(&items, array, sizeof(items));
	if (items)
		memcpy(grown, items, count * size);
	arena_release(arena, items);
	memcpy(array, &grown, sizeof(grown));
	*capacity = more;
	return 0;
}
