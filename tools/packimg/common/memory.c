#include "tools/packimg/common/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	ARENA_CHUNK = 4 << 20,
	ARENA_MEMORY = 256 << 20, /* bytes before chunks move to files */
};

struct arena_chunk {
	struct arena_chunk *next;
	uint8_t *data;
	size_t used, room;
};

void buffer_deinit(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){0};
}

int buffer_make_room(struct buffer *buffer, size_t room)
{
	if (room <= buffer->room)
		return 0;
	if (room < buffer->room + buffer->room / 2)
		room = buffer->room + buffer->room / 2;
	uint8_t *data = realloc(buffer->data, room);
	if (!data)
		return -ENOMEM;
	buffer->data = data;
	buffer->room = room;
	return 0;
}

int buffer_append(struct buffer *buffer, const void *bytes, size_t size)
{
	if (size > SIZE_MAX / 2 - buffer->size)
		return -ENOMEM;
	if (buffer_make_room(buffer, buffer->size + size))
		return -ENOMEM;
	if (size)
		memcpy(buffer->data + buffer->size, bytes, size);
	buffer->size += size;
	return 0;
}

int array_room(void *array, size_t count, size_t *room, size_t size)
{
	size_t more = *room ? *room * 2 : 64;
	void *items;

	if (count < *room)
		return 0;
	memcpy(&items, array, sizeof(items));
	items = reallocarray(items, more, size);
	if (!items)
		return -ENOMEM;
	memcpy(array, &items, sizeof(items));
	*room = more;
	return 0;
}

void arena_deinit(struct arena *arena)
{
	struct arena_chunk *chunk, *next;

	for (chunk = arena->chunks; chunk; chunk = next) {
		next = chunk->next;
		munmap(chunk->data, chunk->room);
		free(chunk);
	}
	*arena = (struct arena){0};
}

/*
 * An anonymous mapping, or one of an unlinked file under TMPDIR, whose pages the kernel can write
 * out.
 */
static void *chunk_map(size_t room, bool in_file)
{
	const char *folder = getenv("TMPDIR");
	void *data = MAP_FAILED;
	int fd;

	if (in_file) {
		fd = open(folder && *folder ? folder : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC,
			  0600);
		if (fd >= 0) {
			/* Blocks are allocated now: a full disk must not become SIGBUS later. */
			if (!posix_fallocate(fd, 0, (off_t)room))
				data = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			close(fd);
		}
	}
	if (data == MAP_FAILED)
		data = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return data == MAP_FAILED ? NULL : data;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	struct arena_chunk *chunk = arena->chunks;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + 7) & ~(size_t)7;
	if (!chunk || chunk->room - chunk->used < size) {
		size_t room = size > ARENA_CHUNK ? size : ARENA_CHUNK;

		chunk = calloc(1, sizeof(*chunk));
		if (!chunk)
			return NULL;
		chunk->data = chunk_map(room, arena->bytes >= ARENA_MEMORY);
		if (!chunk->data) {
			free(chunk);
			return NULL;
		}
		chunk->room = room;
		chunk->next = arena->chunks;
		arena->chunks = chunk;
		arena->bytes += room;
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
