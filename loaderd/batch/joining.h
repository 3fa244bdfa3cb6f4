/*
 * Joining of samples, by mosaic: puts the parts of several samples that one picture shows, and
 * their rows, together. A sample that cannot be made is left out: its part is fill, and it has no
 * rows. One thread makes all of a joined sample, each stored sample in a guard of its own. See
 * loaderd(1), PIPELINES.
 */
#pragma once

#include "loaderd/batch/values.h"

/*
 * Draws the mosaic of sample `index`, and begins its pictures, in `buffer`, without rows. Returns
 * -ENOMEM.
 */
int joining_begin(const struct value_table *values, uint64_t seed, uint64_t epoch, uint64_t index,
		  struct io_buffer *buffer, struct value_join *ret_join);
/*
 * Adds sample `number` of the mosaic, whose origin this is: pictures, and rows at index i of a
 * slot. May be called again for the same sample, until joining_keep() or joining_leave_out().
 * Errors as of values_put().
 */
int joining_add(const struct value_table *values, uint32_t number,
		const struct value_origin *origin, const struct ring_geometry *layout,
		struct ring_slot *slot, uint32_t i, struct value_join *join,
		struct packimg_error *error);
/* Keeps the sample that was added last. */
void joining_keep(struct value_join *join);
/* Leaves out the sample that joining_add() could not add, or was not called for. */
void joining_leave_out(const struct value_table *values, struct value_join *join);
/*
 * Makes the finished sample from what is joined. origin: of sample 0, with `join`. Errors as of
 * values_put().
 */
int joining_finish(const struct value_table *values, const struct value_origin *origin,
		   const struct ring_geometry *layout, struct ring_slot *slot, uint32_t i,
		   uint8_t *flags, struct packimg_error *error);
