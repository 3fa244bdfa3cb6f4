/*
 * The samples of a dataset that a command processes: all, or those with given indices and classes.
 * Parsed from the command line before the dataset is opened, resolved afterwards. One thread.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/brace_expand.h"

#include <stdint.h>

struct selection {
	const char *indices;        /* list of indices, such as "0-9,15,100-"; NULL for all */
	struct string_list classes; /* names or numbers of classes; empty for all */
};

void selection_deinit(struct selection *selection);
/*
 * Returns the indices of the selected samples, ascending and without duplicates; the caller frees
 * them. -EINVAL, -ENOENT (class), -ERANGE, -ENOMEM.
 */
int selection_resolve(const struct selection *selection, const struct packimg *dataset,
		      uint64_t **ret_samples, uint64_t *ret_count, struct packimg_error *error);

/* Returns the total size of the dataset's files. */
uint64_t dataset_bytes(const struct packimg *dataset);

/* Returns the name of a sample's class; NULL if it has none. */
const char *sample_class(const struct packimg *dataset, const struct packimg_sample *sample);

/* The name for people and in JSON. */
const char *field_type_name(enum packimg_field_type type);
