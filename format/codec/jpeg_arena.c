#include "format/base/poison.h"
#include "format/codec/jpeg_common.h"

#include <jerror.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	ARENA_ALIGN = 64,
	ARENA_CHUNK_MIN = 256 << 10,
	/*
	 * Larger chunks are only for larger requests. Limits the memory that is allocated but not
	 * charged.
	 */
	ARENA_CHUNK_MAX = 4 << 20,
	/*
	 * Memory kept for the next image. Reallocation costs little compared with decoding an image
	 * that needs more.
	 */
	ARENA_KEPT_MAX = 64 << 20,
	/*
	 * libjpeg-turbo's SIMD code accesses rows in whole vectors, up to two of 32 bytes past the
	 * end.
	 */
	ARENA_ROW_ALIGN = 64,
};

struct jpeg_arena_chunk {
	struct jpeg_arena_chunk *next;
	size_t size, used; /* bytes after the chunk header and its padding */
};

/* libjpeg leaves this structure opaque for the memory manager to define. */
struct jvirt_barray_control {
	struct jvirt_barray_control *next;
	JBLOCKARRAY rows; /* NULL until realised */
	JDIMENSION blocks_per_row, row_count;
	bool zeroed;
};

static struct jpeg_arena *arena_of(j_common_ptr cinfo)
{
	return cinfo->client_data;
}

static size_t round_up(size_t size, size_t alignment)
{
	return (size + alignment - 1) & ~(alignment - 1);
}

static uint8_t *chunk_memory(struct jpeg_arena_chunk *chunk)
{
	return (uint8_t *)chunk + ARENA_ALIGN;
}

static struct jpeg_arena_chunk *chunk_new(size_t size)
{
	struct jpeg_arena_chunk *chunk = aligned_alloc(ARENA_ALIGN, ARENA_ALIGN + size);

	if (!chunk)
		return NULL;
	*chunk = (struct jpeg_arena_chunk){.size = size};
	poison(chunk_memory(chunk), size); /* poisoned until allocated */
	return chunk;
}

static void *arena_take(j_common_ptr cinfo, size_t size)
{
	struct jpeg_arena *arena = arena_of(cinfo);
	struct jpeg_arena_chunk *chunk = arena->chunks;

	if (size > SIZE_MAX / 4)
		ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 0);
	size_t asked = size;
	size = round_up(size, ARENA_ALIGN);
	if (scratch_budget_take(arena->budget, size) < 0)
		ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 0);
	if (!chunk || chunk->size - chunk->used < size) {
		size_t chunk_size = chunk ? chunk->size * 2 : ARENA_CHUNK_MIN;
		if (chunk_size > ARENA_CHUNK_MAX)
			chunk_size = ARENA_CHUNK_MAX;
		if (chunk_size < size)
			chunk_size = size;
		chunk = chunk_new(chunk_size);
		if (!chunk)
			ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 0);
		chunk->next = arena->chunks;
		arena->chunks = chunk;
	}
	void *memory = chunk_memory(chunk) + chunk->used;
	unpoison(memory, asked);
	chunk->used += size;
	arena->used += size;
	return memory;
}

static void *arena_alloc(j_common_ptr cinfo, int pool, size_t size)
{
	/*
	 * The permanent pool is in the arena too: an image must not see tables of the previous one.
	 */
	return arena_take(cinfo, size);
}

/* Allocates rows of row_size bytes in one block, and pointers to them. */
static void **arena_rows(j_common_ptr cinfo, size_t row_size, JDIMENSION row_count)
{
	if (row_count == 0 || row_size > SIZE_MAX / 4 / row_count)
		ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 0);
	void **rows = arena_take(cinfo, row_count * sizeof(*rows));
	uint8_t *memory = arena_take(cinfo, row_count * row_size);

	for (JDIMENSION i = 0; i < row_count; i++)
		rows[i] = memory + i * row_size;
	return rows;
}

static JSAMPARRAY arena_alloc_sarray(j_common_ptr cinfo, int pool, JDIMENSION samples_per_row,
				     JDIMENSION row_count)
{
	size_t row_size = round_up((size_t)samples_per_row * sizeof(JSAMPLE), ARENA_ROW_ALIGN);

	return (JSAMPARRAY)arena_rows(cinfo, row_size, row_count);
}

static JBLOCKARRAY arena_alloc_barray(j_common_ptr cinfo, int pool, JDIMENSION blocks_per_row,
				      JDIMENSION row_count)
{
	return (JBLOCKARRAY)arena_rows(cinfo, (size_t)blocks_per_row * sizeof(JBLOCK), row_count);
}

static jvirt_barray_ptr arena_request_virt_barray(j_common_ptr cinfo, int pool, boolean zeroed,
						  JDIMENSION blocks_per_row, JDIMENSION row_count,
						  JDIMENSION rows_at_once)
{
	struct jpeg_arena *arena = arena_of(cinfo);
	struct jvirt_barray_control *array = arena_take(cinfo, sizeof(*array));

	*array = (struct jvirt_barray_control){
		.next = arena->arrays,
		.blocks_per_row = blocks_per_row,
		.row_count = row_count,
		.zeroed = zeroed,
	};
	arena->arrays = array;
	return array;
}

static void arena_realize_virt_arrays(j_common_ptr cinfo)
{
	for (struct jvirt_barray_control *array = arena_of(cinfo)->arrays; array;
	     array = array->next) {
		if (array->rows)
			continue;
		array->rows = arena_alloc_barray(cinfo, JPOOL_IMAGE, array->blocks_per_row,
						 array->row_count);
		if (array->zeroed)
			memset(array->rows[0], 0,
			       (size_t)array->row_count * array->blocks_per_row * sizeof(JBLOCK));
	}
}

static JBLOCKARRAY arena_access_virt_barray(j_common_ptr cinfo, jvirt_barray_ptr array,
					    JDIMENSION first_row, JDIMENSION row_count,
					    boolean writable)
{
	if (!array->rows || first_row > array->row_count ||
	    row_count > array->row_count - first_row)
		ERREXIT(cinfo, JERR_BAD_VIRTUAL_ACCESS);
	return array->rows + first_row;
}

static void chunks_free(struct jpeg_arena *arena)
{
	while (arena->chunks) {
		struct jpeg_arena_chunk *next = arena->chunks->next;
		free(arena->chunks);
		arena->chunks = next;
	}
}

static void arena_free_pool(j_common_ptr cinfo, int pool)
{
	struct jpeg_arena *arena = arena_of(cinfo);

	if (pool != JPOOL_IMAGE)
		return;
	/*
	 * Merge several chunks into one that is large enough for this image, so that a similar
	 * image needs no more.
	 */
	if (arena->used > ARENA_KEPT_MAX) {
		chunks_free(arena);
	} else if (arena->chunks && arena->chunks->next) {
		chunks_free(arena);
		arena->chunks = chunk_new(round_up(arena->used + arena->used / 4, ARENA_ALIGN));
	}
	if (arena->chunks) {
		poison(chunk_memory(arena->chunks), arena->chunks->size);
		arena->chunks->used = 0;
	}
	arena->used = 0;
	arena->arrays = NULL;
}

void jpeg_arena_attach(struct jpeg_arena *arena, struct scratch_budget *budget, j_common_ptr cinfo)
{
	struct jpeg_memory_mgr *manager = cinfo->mem;

	*arena = (struct jpeg_arena){.manager = manager, .original = *manager, .budget = budget};
	cinfo->client_data = arena;
	manager->alloc_small = arena_alloc;
	manager->alloc_large = arena_alloc;
	manager->alloc_sarray = arena_alloc_sarray;
	manager->alloc_barray = arena_alloc_barray;
	manager->request_virt_barray = arena_request_virt_barray;
	manager->realize_virt_arrays = arena_realize_virt_arrays;
	manager->access_virt_barray = arena_access_virt_barray;
	manager->free_pool = arena_free_pool;
}

void jpeg_arena_detach(struct jpeg_arena *arena)
{
	if (arena->manager)
		*arena->manager = arena->original;
	chunks_free(arena);
	*arena = (struct jpeg_arena){0};
}
