/*
 * The samples of a dataset that a command processes: all, or those with given indices and classes
 * that match a filter. Parsed from the command line before the dataset is opened, resolved
 * afterwards. One thread.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/brace_expand.h"

#include <stdint.h>

struct selection {
	const char *indices;        /* list of indices, such as "0-9,15,100-"; NULL for all */
	struct string_list classes; /* names or numbers of classes; empty for all */
	const char *where;          /* format/where.h; NULL for all */
	/*
	 * Set by selection_resolve(): the number of samples that are not selected because what the
	 * filter reads of them is damaged, and the first of these.
	 */
	uint64_t damaged, damaged_first;
};

/* Row of the option that sets `where`, for a struct that has a selection at this offset. */
#define SELECTION_WHERE(at)                                                                        \
	{                                                                                          \
		"where", 'w', "FILTER",                                                            \
			"only samples that match a filter, such as 'width >= 200 and label in "    \
			"(1, 5)'",                                                                 \
			OPTIONS_TEXT, (at) + offsetof(struct selection, where)                     \
	}

void selection_deinit(struct selection *selection);
/*
 * Returns the indices of the selected samples, ascending and without duplicates; the caller frees
 * them. -EINVAL (also for a filter that is wrong), -ENOENT (class), -ERANGE, -ENOMEM.
 */
int selection_resolve(struct selection *selection, const struct packimg *dataset,
		      uint64_t **ret_samples, uint64_t *ret_count, struct packimg_error *error);
/*
 * Reports damaged samples on standard error. Returns COMMAND_SKIPPED if there are any, else
 * COMMAND_OK.
 */
int selection_report(const struct selection *selection);

/* Returns the total size of the dataset's files. */
uint64_t dataset_bytes(const struct packimg *dataset);

/* Returns the name of a sample's class; NULL if it has none. */
const char *sample_class(const struct packimg *dataset, const struct packimg_sample *sample);

/* The name for people and in JSON. */
const char *field_type_name(enum packimg_field_type type);
