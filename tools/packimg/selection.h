/*
 * Which samples of a dataset a command is about: all, or those of given indices and classes. Parsed
 * from the command line before the dataset is open, resolved once it is. One thread.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/brace_expand.h"

#include <stdint.h>

struct selection {
	const char *indices;        /* "0-9,15,100-"; NULL: all */
	struct string_list classes; /* names or numbers; none: all */
};

void selection_deinit(struct selection *selection);
/*
 * Indices of the chosen samples, ascending, each once; the caller frees them. -EINVAL, -ENOENT
 * (class), -ERANGE, -ENOMEM.
 */
int selection_resolve(const struct selection *selection, const struct packimg *dataset,
		      uint64_t **ret_samples, uint64_t *ret_count, struct packimg_error *error);

/* Of all its files. */
uint64_t dataset_bytes(const struct packimg *dataset);

/* The name of a sample's class; NULL: it has none. */
const char *sample_class(const struct packimg *dataset, const struct packimg_sample *sample);

/* As people and JSON see it. */
const char *field_type_name(enum packimg_field_type type);
