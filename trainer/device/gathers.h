/*
 * Gathers of weights of which each rank keeps only its part (DEVICE_SHARD_PARAMETERS; ZeRO's stage
 * 3: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.3): when a graph collects which bucket of
 * its sharded store, and how long its memory holds the bucket.
 *
 * A pass gathers each bucket that its operations read once, as a whole: forward, and again backward
 * if gradients of activations or recomputed results need its weights. Gathers are in the order of
 * their first reads, which depends only on the graph and so is the same on every rank. Each starts
 * when the one before it is first read, and is waited for before its own first read, so that
 * computation hides it. If backward begins with the bucket that forward read last, the two are one
 * gather.
 *
 * Plain bookkeeping for every backend, which numbers the steps of its schedule: those of forward
 * come before those of backward. Created by planning, owned by the graph.
 */
#pragma once

#include "trainer/device/backend.h"

#define GATHERS_MAX (2 * DEVICE_SHARD_BUCKETS_MAX)

struct gather {
	uint32_t bucket;      /* index into device_shards.buckets */
	uint32_t start;       /* step before which it may start: from here on memory is its own */
	uint32_t first, last; /* steps that read it */
};

struct gathers {
	struct gather items[GATHERS_MAX]; /* in the order in which they start */
	uint32_t count;
	uint32_t backward; /* first step of backward */
};

void gathers_init(struct gathers *gathers, uint32_t backward);
/* Adds a read of a parameter's values; no-op unless it has to be gathered. Any order of steps. */
void gathers_add_read(struct gathers *gathers, const struct device_param *param, uint32_t step);
/* After the last read: orders the gathers, merges and sets their starts. */
void gathers_order(struct gathers *gathers);
