/*
 * Extra fields of a feed: which dataset fields it delivers, the capacity of each in a slot, and
 * how to copy a sample's values there. Chosen once when the feed opens (worker/subscription.c),
 * then read by all threads. See proto/SPEC.md, "Fields".
 */
#pragma once

#include "format/augment/pipeline.h"
#include "loaderd/io/dataset.h"
#include "loaderd/io/io.h"
#include "proto/ring.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Column numbers that are not dataset fields: VALUE_KEY is the sample's source name, requested as
 * "__key__"; VALUE_DEFERRED is "__deferred__", the parameters of the transforms left to the client
 * (pipeline_defer()).
 */
enum { VALUE_KEY = PACKIMG_FIELDS_MAX, VALUE_DEFERRED };

struct field_column {
	uint32_t number;   /* dataset field, VALUE_KEY or VALUE_DEFERRED */
	uint32_t type;     /* enum packimg_field_type, as announced to the client */
	uint32_t capacity; /* bytes of one value; unused for numbers */
};

struct field_columns {
	uint32_t count;
	bool whole; /* if a value does not fit: true fails the feed, false truncates the value */
	struct field_column columns[RING_FIELDS_MAX];
};

/* The sample whose values are copied. */
struct value_source {
	const struct dataset *dataset;
	uint64_t index;
	const struct pipeline_scratch *scratch; /* scratch that made the sample's pixels */
	struct io_buffer *bytes;                /* the thread's buffer, for unmapped datasets */
};

/*
 * Copies a sample's values to index i of a slot. Call it inside the dataset's guard. Adds enum
 * ring_sample_flag bits to *flags. Returns -EBADMSG if a value is damaged, -ENOMEM, or -EINVAL if a
 * value does not fit (the sample is not at fault). All set error->text.
 */
int field_values_put(const struct field_columns *columns, const struct value_source *source,
		     const struct ring_header *layout, struct ring_slot *slot, uint32_t i,
		     uint8_t *flags, struct packimg_error *error);
