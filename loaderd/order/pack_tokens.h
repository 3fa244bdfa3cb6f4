/* What packs.c reads of the tokens of samples. */
#pragma once

#include "loaderd/order/packs.h"

struct pack_tokens {
	uint64_t *keys; /* [key_count]: tokens << 32 | patches, each once */
	uint32_t key_count;
	uint32_t *table; /* [table_size], by a hash of the key: 0, or 1 + its number */
	uint64_t table_size;
	uint32_t *ids; /* [count]: the number of each sample's key */
	uint64_t count;
};
