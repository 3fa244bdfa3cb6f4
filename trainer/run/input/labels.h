/*
 * Labels of a dataset, read from its index by this process instead of through the daemon, so that
 * no sample need be read and decoded. Stateless functions.
 */
#pragma once

#include "format/base/uuid.h"
#include "format/packimg.h"
#include "trainer/run/context.h"
#include "trainer/run/input/data.h"

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
/*
 * Reads the labels of a dataset and checks that it is the one the daemon opened (`found`). counts
 * as in labels_count().
 */
int labels_read(struct run_context *ctx, const char *path, const struct uuid *found,
		uint32_t classes, uint64_t *counts, struct labels *ret_labels);
/* Rank 0: reports how many samples have no label; fails if none has one. */
int labels_report_missing(struct run_context *ctx, const struct data *data);
