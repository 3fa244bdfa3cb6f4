/*
 * Labels of a dataset, read from its index by this process instead of through the daemon, so that
 * no sample need be read and decoded. Stateless functions.
 */
#pragma once

#include "format/packimg.h"

struct labels {
	uint64_t samples;
	uint64_t unlabelled; /* samples without a label */
	uint64_t beyond;     /* samples whose label exceeds the model's classes */
};

/*
 * As packimg_open(), but only for packimg_sample(): nothing is mapped, so a file truncated
 * meanwhile causes read errors instead of SIGBUS.
 */
int labels_open(const char *path, struct packimg **ret_dataset, struct packimg_error *error);
/*
 * Counts samples by label; skips samples whose record cannot be read. counts: [classes], added to;
 * may be NULL.
 */
void labels_count(const struct packimg *dataset, uint32_t classes, uint64_t *counts,
		  struct labels *ret_labels);
