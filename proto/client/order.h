/*
 * The order of a feed, kept for reopening it: the parts' paths, and their lists in memory files,
 * which are sent to each daemon. Immutable once made. Internal: not installed.
 */
#pragma once

#include "proto/client/feed.h"
#include "proto/feed.pb-c.h"

#include <stdbool.h>

/* As many as there are values of Loaderd__PartFile. */
enum { ORDER_FILES = 4 };

struct kept_part {
	char *path;             /* absolute */
	int lists[ORDER_FILES]; /* by Loaderd__PartFile; -1 if there is none */
};

struct kept_order {
	uint32_t part_count, stage_count;
	struct kept_part *parts;
	/* what OpenFeed says of it */
	Loaderd__Part **messages;
	Loaderd__Stage **stages;
	uint64_t epoch_samples;
	uint32_t ends;
	bool part_batches;
	Loaderd__Bucket **buckets; /* [bucket_count], in one block */
	uint32_t bucket_count;
	uint32_t block_samples, group_blocks;
	uint32_t batch_tokens;
	char *tokens_field;
};

/*
 * Copies an order. -EINVAL if it cannot be sent, -ENOMEM, or an error of memfd_create(); the text
 * is in error.
 */
int order_keep(const struct feed_order *order, struct kept_order **ret_kept, char *error);
/* Sets the request's members; they point into `kept`. */
void order_fill(const struct kept_order *kept, Loaderd__OpenFeed *request);
/* Sets *ret_name to a name of all parts for error texts, which the caller frees. -ENOMEM. */
int order_name(const struct kept_order *kept, char **ret_name, char *error);
/* Accepts NULL. */
void order_free(struct kept_order *kept);
