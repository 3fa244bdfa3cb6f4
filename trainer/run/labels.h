/*
 * Labels of a dataset, from the index of its files, which this process opens beside the daemon:
 * samples need not be read and decoded for them. Plain functions.
 */
#pragma once

#include "format/packimg.h"

struct labels {
	uint64_t samples;
	uint64_t unlabelled; /* without a label */
	uint64_t beyond;     /* with one that is no class of the model */
};

/*
 * As packimg_open(), but for packimg_sample() alone: nothing is mapped, so that a file that is cut
 * short while it is read costs its records, and not this process.
 */
int labels_open(const char *path, struct packimg **ret_dataset, struct packimg_error *error);
/*
 * Samples whose record cannot be read have no part in any count. counts: [classes], added to; may
 * be NULL.
 */
void labels_count(const struct packimg *dataset, uint32_t classes, uint64_t *counts,
		  struct labels *ret_labels);
