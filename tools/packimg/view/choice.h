/*
 * Selects the samples that packimg view shows: those of a selection with given field values and
 * keys, at most a given number, spread evenly over the dataset. Main thread only.
 */
#pragma once

#include "tools/packimg/selection.h"

struct choice {
	struct selection selection;
	struct string_list fields; /* "NAME=VALUE"; samples must match all of them; empty for any */
	struct string_list keys;   /* names of sources; empty for any */
	uint64_t count_max;
};

void choice_deinit(struct choice *choice);
/*
 * Returns the indices of the samples, ascending; the caller frees them. ret_found receives the
 * number of samples that match, before they are thinned out. -EINVAL, or -ENOENT with a message
 * that names what does not exist, or -ENOMEM.
 */
int choice_resolve(struct choice *choice, const struct packimg *dataset, uint64_t **ret_samples,
		   uint64_t *ret_count, uint64_t *ret_found, struct packimg_error *error);
