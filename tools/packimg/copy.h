/*
 * Copies samples from datasets to new ones, without changing their bytes; shared by merge and
 * split. An output unites the classes of its inputs by name (the numbers of the first input are
 * kept, new names follow), and their fields by name (int64 becomes float64 if another input has
 * float64). Inputs that record a schema must all have the same one. A damaged sample is never
 * copied with a new checksum. One thread.
 */
#pragma once

#include "tools/packimg/common/command.h"
#include "tools/packimg/common/name_table.h"
#include "tools/packimg/common/progress.h"
#include "tools/packimg/image/statistics.h"

struct copy_input {
	const char *path;
	struct packimg *dataset;
	int32_t *labels; /* maps class numbers of this input to the output's */
	uint32_t class_count;
	uint32_t fields[PACKIMG_FIELDS_MAX]; /* maps field numbers of this input to the output's */
};

/* All inputs as one sequence of samples. */
struct copy_set {
	struct copy_input *inputs;
	uint32_t count;
	struct arena arena;
	struct name_table classes, fields;
	enum packimg_field_type types[PACKIMG_FIELDS_MAX];
	const struct schema *schema; /* of all inputs, NULL without one; owned by the first */
	uint64_t samples;            /* total of all inputs */
	bool numbers_only;           /* no input names its classes: labels stay unchanged */
};

int copy_set_init(struct copy_set *set, const char *const *paths, uint32_t count,
		  struct packimg_error *error);
void copy_set_deinit(struct copy_set *set);
/* Creates a writer with the set's classes and fields. */
int copy_begin(const struct copy_set *set, const char *path,
	       const struct packimg_writer_options *options, struct packimg_writer **ret_writer,
	       struct packimg_error *error);
/* Returns the label in the output; PACKIMG_LABEL_NONE also for a damaged index record. */
int32_t copy_label(const struct copy_set *set, uint64_t number);
/* Policy for damaged samples, and progress of a copy. */
struct copy_progress {
	struct progress progress;
	bool skip; /* skip damaged samples, with a message, and count them */
	uint64_t skipped;
};

enum { COPY_SKIPPED = 1 };

/*
 * Copies a sample. Returns COPY_SKIPPED if it was damaged and skipped, -EINTR after an interrupt.
 */
int copy_next(const struct copy_set *set, uint64_t number, struct packimg_writer *writer,
	      struct copy_progress *copying, struct packimg_error *error);
/*
 * Combines the means and deviations of the inputs, weighted by the numbers of pixels on which they
 * are based.
 */
void copy_statistics(const struct copy_set *set, struct statistics *statistics);
/* Returns the value of a metadata key, which the caller frees; NULL if absent. */
char *copy_metadata(const struct packimg *dataset, const char *key);
