/*
 * Labels of a dataset. Reads them from the dataset's index in this process instead of through the
 * daemon, which would read and decode the samples. Stateless functions.
 */
#pragma once

#include "format/base/uuid.h"
#include "format/packimg.h"
#include "trainer/run/context.h"
#include "trainer/run/input/data.h"

struct labels {
	uint64_t samples;
	uint64_t unlabelled;   /* samples without a label */
	uint64_t out_of_range; /* samples whose label is not below the number of classes */
};

/*
 * As packimg_open(), for use with packimg_sample() only. Maps nothing, so a file truncated
 * meanwhile causes read errors instead of SIGBUS. An address is opened through the fetcher.
 */
int labels_open(const char *path, struct packimg **ret_dataset, struct packimg_error *error);
/*
 * Adds to counts[classes] the number of samples of each label; skips samples whose record cannot be
 * read. counts may be NULL.
 */
void labels_count(const struct packimg *dataset, uint32_t classes, uint64_t *counts,
		  struct labels *ret_labels);
/*
 * Reads the labels of a dataset and checks that the daemon opened the same one, whose UUID is
 * `found`. counts: as in labels_count().
 */
int labels_read(struct run_context *ctx, const char *path, const struct uuid *found,
		uint32_t classes, uint64_t *counts, struct labels *ret_labels);
/* Rank 0: reports how many samples are unlabelled; fails if all are. */
int labels_report_missing(struct run_context *ctx, const struct data *data);
