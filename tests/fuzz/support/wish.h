/* Orders of feeds as fuzz inputs choose them, with the lists that a client sends for them. */
#pragma once

#include "proto/feed.pb-c.h"
#include "tests/fuzz/support/script.h"

#include <stdbool.h>

enum { ORDER_PARTS_MAX = 4, ORDER_STAGES_MAX = 4, ORDER_BUCKETS_MAX = 4 };

/* The order of a client's next feed. */
struct wish {
	uint32_t parts, stages, buckets; /* counts; no parts: no order */
	bool part_batches, ends;
	uint64_t epoch_samples;
	uint32_t block_samples, group_blocks;
	uint32_t batch_tokens;
	const char *tokens_field;
	uint8_t length, values, kind; /* of the lists, see list_file() */
	uint8_t filling;              /* see filling_file(); 0: the files are complete */
	Loaderd__Part part[ORDER_PARTS_MAX];
	Loaderd__Choice choice[ORDER_PARTS_MAX];
	Loaderd__Stage stage[ORDER_STAGES_MAX];
	Loaderd__Bucket bucket[ORDER_BUCKETS_MAX];
	uint32_t shares[ORDER_STAGES_MAX][ORDER_PARTS_MAX];
	Loaderd__Part *part_list[ORDER_PARTS_MAX];
	Loaderd__Stage *stage_list[ORDER_STAGES_MAX];
	Loaderd__Bucket *bucket_list[ORDER_BUCKETS_MAX];
};

/* Chooses an order, most of which a daemon accepts. */
void wish_plan(struct wish *wish, struct script *script);
/* Asks for the order, once: sets wish->parts to 0. The lists stay for NeedFiles. */
void wish_ask(struct wish *wish, Loaderd__OpenFeed *open);
/* Returns a new memory file with the list that an order has of this kind. */
int wish_list_file(const struct wish *wish, Loaderd__PartFile kind);
