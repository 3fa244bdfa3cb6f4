/* The tokens of samples: a dictionary of their numbers, and which of them each sample has. */
#include "loaderd/order/pack_tokens.h"

#include <errno.h>
#include <stdlib.h>

enum { TABLE_MIN = 64 };

static uint64_t key_of(uint32_t tokens, uint32_t patches)
{
	return (uint64_t)tokens << 32 | patches;
}

/* Returns the place of a key in the table, or the empty one where it would be. */
static uint64_t find_place(const struct pack_tokens *tokens, uint64_t key)
{
	uint64_t mask = tokens->table_size - 1;
	uint64_t at = (key * UINT64_C(0x9E3779B97F4A7C15) >> 32) & mask;
	while (tokens->table[at] != 0 && tokens->keys[tokens->table[at] - 1] != key)
		at = (at + 1) & mask;
	return at;
}

/* Doubles the room for keys. */
static int grow(struct pack_tokens *tokens)
{
	uint64_t size = tokens->table_size > 0 ? 2 * tokens->table_size : TABLE_MIN;
	uint64_t *keys = realloc(tokens->keys, size / 2 * sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	tokens->keys = keys;
	uint32_t *table = calloc(size, sizeof(*table));
	if (!table)
		return -ENOMEM;
	free(tokens->table);
	tokens->table = table;
	tokens->table_size = size;
	for (uint32_t i = 0; i < tokens->key_count; i++)
		table[find_place(tokens, keys[i])] = i + 1;
	return 0;
}

struct pack_tokens *pack_tokens_new(uint64_t samples)
{
	struct pack_tokens *tokens = calloc(1, sizeof(*tokens));
	if (!tokens)
		return NULL;
	tokens->ids = malloc((samples + 1) * sizeof(*tokens->ids));
	if (!tokens->ids || grow(tokens) < 0) {
		pack_tokens_free(tokens);
		return NULL;
	}
	return tokens;
}

int pack_tokens_add(struct pack_tokens *tokens, uint32_t count, uint32_t patches)
{
	uint64_t key = key_of(count, patches), at = find_place(tokens, key);
	if (tokens->table[at] == 0) {
		if (tokens->key_count == PACKS_GROUPS_MAX)
			return -E2BIG;
		if (tokens->key_count == tokens->table_size / 2) {
			if (grow(tokens) < 0)
				return -ENOMEM;
			at = find_place(tokens, key);
		}
		tokens->keys[tokens->key_count] = key;
		tokens->table[at] = ++tokens->key_count;
	}
	tokens->ids[tokens->count++] = tokens->table[at] - 1;
	return 0;
}

void pack_tokens_free(struct pack_tokens *tokens)
{
	if (!tokens)
		return;
	free(tokens->keys);
	free(tokens->table);
	free(tokens->ids);
	free(tokens);
}
