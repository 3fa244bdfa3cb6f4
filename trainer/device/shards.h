/*
 * Shards of a store: with several ranks, each keeps and updates a part of the optimizer's state
 * (ZeRO: Rajbhandari, Rasley, Ruwase, He 2020, arXiv:1910.02054, section 5).
 *
 * A sharded store has its weights first, in buckets whose length divides by SHARD_ALIGN * world;
 * rank r owns the r-th part of each bucket, so that one reduce-scatter and one all-gather per
 * bucket work in place. Vectors and embeddings follow, then running statistics: these are few, and
 * every rank keeps and updates them whole. A divided slot has the rank's parts of all buckets, one
 * after the other, and then the whole parameters.
 *
 * If graphs gather the weights (gathers.h), no bucket is longer than the longest weight, unless
 * more than DEVICE_SHARD_BUCKETS_MAX would be needed: two of them are in memory at a time.
 *
 * Plain bookkeeping for every backend. Offsets and counts are in elements.
 */
#pragma once

#include "trainer/device/backend.h"

#define SHARD_ALIGN 16

/* True if the parameter is divided among the ranks: a weight of a sharded store. */
bool shards_divide(const struct device_param *param);
/* True if the slot has only this rank's shard of divided parameters. */
bool shards_divide_slot(const struct device_params *params, enum device_slot slot);
/*
 * Sets the offsets of the parameters and plans params->shards. elements: limit on a bucket's
 * length, as in buckets_plan(). Call for a sharded store only.
 */
void shards_plan(struct device_params *params, size_t elements);
/* Limit on the length of a bucket of a store that gathers its weights. */
size_t shards_gathered_limit(const struct device_params *params);
/* Index of the bucket of a divided parameter. */
uint32_t shards_bucket(const struct device_param *param);
/* The part of a parameter that a rank owns; the whole parameter if it is not divided. */
struct device_range shards_part(const struct device_param *param, unsigned rank);
/* Offset in a slot of element `first` of a parameter, which this rank must have in that slot. */
size_t shards_offset(const struct device_param *param, enum device_slot slot, size_t first);
/* Offset in DEVICE_GRAD of what lies at `offset` behind the buckets in a slot that is whole. */
size_t shards_whole_offset(const struct device_params *params, size_t offset);
