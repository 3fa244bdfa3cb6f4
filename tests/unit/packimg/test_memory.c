/* An arena's memory use is bounded, however much is allocated from it. */
#include "tests/test.h"
#include "tools/packimg/common/memory.h"

#include <inttypes.h>

enum {
	MEBIBYTE = 1 << 20,
	PIECE = 300 << 10, /* bytes; several fit into a chunk */
	PIECES = 700,
	LARGE = 40 * MEBIBYTE,
	ITEMS = 9 * MEBIBYTE,
};

/* Returns the bytes of this process's anonymous memory. */
static uint64_t anonymous(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	uint64_t kibibytes = 0;
	char line[256];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "RssAnon: %" SCNu64, &kibibytes);
	fclose(file);
	return kibibytes << 10;
}

TEST(arena_is_bounded)
{
	struct arena arena = {0};
	uint8_t *pieces[PIECES], *large[3];
	uint64_t *items = NULL, before = anonymous();
	size_t capacity = 0;

	for (int i = 0; i < PIECES; i++) {
		pieces[i] = arena_alloc(&arena, PIECE);
		assert_non_null(pieces[i]);
		memset(pieces[i], i % 251, PIECE);
	}
	for (int i = 0; i < 3; i++) {
		large[i] = arena_array(&arena, LARGE);
		assert_non_null(large[i]);
		assert_int_equal(large[i][LARGE - 1], 0);
		memset(large[i], 100 + i, LARGE);
	}
	for (size_t i = 0; i < ITEMS; i++) {
		assert_int_equal(arena_reserve(&arena, &items, i, &capacity, sizeof(*items)), 0);
		items[i] = i;
	}
	assert_in_range(arena.held, ARENA_MEMORY / 2, ARENA_MEMORY);
	assert_in_range(anonymous(), 0, before + ARENA_MEMORY + 8 * MEBIBYTE);
	arena_forget(&arena);
	for (int i = 0; i < PIECES; i++)
		assert_true(pieces[i][0] == i % 251 && pieces[i][PIECE - 1] == i % 251);
	for (int i = 0; i < 3; i++)
		assert_true(large[i][0] == 100 + i && large[i][LARGE - 1] == 100 + i);
	for (size_t i = 0; i < ITEMS; i += 1000)
		assert_int_equal(items[i], i);
	for (int i = 0; i < 3; i++)
		arena_release(&arena, large[i]);
	arena_release(&arena, items);
	arena_release(&arena, NULL);
	arena_deinit(&arena);
	assert_int_equal(arena.held, 0);
}

/* Without a spill file, allocating more than the memory limit fails and uses no more memory. */
TEST(arena_without_files)
{
	struct arena arena = {0};
	void *piece;

	assert_int_equal(setenv("TMPDIR", "/nowhere", 1), 0);
	do
		piece = arena_alloc(&arena, PIECE);
	while (piece);
	assert_int_equal(arena.fault, -ENOENT);
	assert_in_range(arena.held, ARENA_MEMORY - 4 * MEBIBYTE, ARENA_MEMORY);
	arena_deinit(&arena);
	unsetenv("TMPDIR");
}
