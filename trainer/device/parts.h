/*
 * The parts of a store's tensors that ranks write to and read from sharded checkpoints: each rank
 * reads and writes its own, without the others. Offsets and counts are in elements of the host
 * layout. Call the functions after device_params_allocate().
 */
#pragma once

#include "trainer/device/params.h"

/*
 * A range of a slice of a tensor. The tensor is a sequence of `blocks` equally long blocks, and
 * each block of `slices` equally long runs; a slice has one run of each block, and a tensor that is
 * not split over a group of ranks is a single slice.
 */
struct device_part {
	uint32_t slices, slice;
	uint64_t blocks;
	uint64_t first, count; /* elements of the slice */
};

/* Number of ranks that train the store together, and the number of this one. */
unsigned device_params_ranks(const struct device_params *params, unsigned *ret_rank);
/*
 * The part of a parameter's slot that a rank writes to a checkpoint; its count may be 0. The parts
 * of all ranks have each element once: what several ranks have, they divide, except short tensors
 * and running statistics, which only the first of these ranks writes.
 */
struct device_part device_param_saved_part(const struct device_param *param, enum device_slot slot,
					   unsigned rank);
/*
 * The part that this rank needs to fill what it has of the slot: of a slot that all ranks have
 * whole, the whole tensor.
 */
struct device_part device_param_needed_part(const struct device_param *param,
					    enum device_slot slot);
/*
 * Copy a saved part from this rank's slot, and a needed part to it. values + part->first is the
 * part's first element. Errors as of device_param_read() and device_param_write().
 */
int device_param_read_part(struct device_param *param, enum device_slot slot,
			   const struct device_part *part, float *ret_values);
int device_param_write_part(struct device_param *param, enum device_slot slot, const float *values);
