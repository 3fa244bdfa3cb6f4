/*
 * Chooses the values that a feed delivers, from the request, the dataset and the daemon's limits:
 * OpenFeed.fields for rings of version 1, OpenFeed.values for version 2. Called once for each feed,
 * on a job thread. See proto/SPEC.md, "Values" and "Fields".
 */
#pragma once

#include "loaderd/batch/batch.h"
#include "loaderd/config.h"
#include "proto/feed.pb-c.h"

#include <stdbool.h>

struct refusal;

/* Returns true if the client makes the last transforms itself. */
bool delivery_defers(const Loaderd__OpenFeed *request);
/*
 * Fills in options->values, whose names are those of the dataset's schema. options has the dataset
 * and the pipeline. Returns -errno with the refusal filled in.
 */
int delivery_choose(const Loaderd__OpenFeed *request, const struct config *config,
		    struct batcher_options *options, struct refusal *refusal);
/*
 * Adds to the refusal of a ring that is too large which sections are the largest, and the largest
 * batch whose ring has at most `most` bytes. Does nothing for rings of version 1.
 */
void delivery_explain_size(const struct batcher_options *options, uint64_t most,
			   struct refusal *refusal);
/*
 * Announces the sections of a ring of version 2, and how many of the last are targets. The caller
 * frees *ret_sections, one block, with free(). Sets no sections for version 1. Returns -ENOMEM.
 */
int delivery_announce(const struct batcher_options *options, Loaderd__Section ***ret_sections,
		      size_t *ret_count, uint32_t *ret_targets);
