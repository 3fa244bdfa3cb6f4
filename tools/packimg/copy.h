/*
 * Samples from datasets into new ones, bytes as they are: what merge and split share. An output
 * unites the classes of its inputs by name (numbers of the first input are kept, new names follow)
 * and their fields by name (int64 becomes float64 where one input has that). Damaged samples are
 * never copied under a new checksum. One thread.
 */
#pragma once

#include "tools/packimg/common/command.h"
#include "tools/packimg/common/name_table.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/image/statistics.h"

struct copy_input {
	const char *path;
	struct packimg *dataset;
	int32_t *labels; /* this input's class number to the output's */
	uint32_t class_count;
	uint32_t fields[PACKIMG_FIELDS_MAX]; /* likewise */
};

/* Inputs as one whole. */
struct copy_set {
	struct copy_input *inputs;
	uint32_t count;
	struct arena arena;
	struct name_table classes, fields;
	enum packimg_field_type types[PACKIMG_FIELDS_MAX];
	uint64_t samples;  /* of all inputs */
	bool numbers_only; /* no input names its classes: labels stay as they are */
};

int copy_set_init(struct copy_set *set, const char *const *paths, uint32_t count,
		  struct packimg_error *error);
void copy_set_deinit(struct copy_set *set);
/* A writer that knows classes and fields. */
int copy_begin(const struct copy_set *set, const char *path,
	       const struct packimg_writer_options *options, struct packimg_writer **ret_writer,
	       struct packimg_error *error);
/* Label in the output, PACKIMG_LABEL_NONE also for a damaged record. */
int32_t copy_label(const struct copy_set *set, uint64_t number);
/* How a copy deals with damage, and shows how far it is. */
struct copy_progress {
	struct progress progress;
	bool skip; /* damaged samples, which are said and counted */
	uint64_t skipped;
};

enum { COPY_SKIPPED = 1 };

/* Copies a sample, unless somebody interrupts (-EINTR). COPY_SKIPPED: it was damaged. */
int copy_next(const struct copy_set *set, uint64_t number, struct packimg_writer *writer,
	      struct copy_progress *course, struct packimg_error *error);
/* What the inputs know of means and deviations, weighted by the pixels they looked at. */
void copy_statistics(const struct copy_set *set, struct statistics *statistics);
/* The value of a key in a dataset's metadata, to be freed; NULL when it is not there. */
char *copy_metadata(const struct packimg *dataset, const char *key);
