/*
 * Extra fields of a feed: which of the dataset's they are, what room each has in a slot, and how a
 * sample's values get there. Chosen once when the feed opens (worker/subscription.c), then read by
 * all workers. proto/SPEC.md, "Fields".
 */
#pragma once

#include "loaderd/augment/transform.h"
#include "loaderd/io/dataset.h"
#include "loaderd/io/io.h"
#include "proto/ring.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Numbers of no field: the sample's source name, which clients ask for as "__key__"; and
 * "__deferred__", what of the pipeline is left to the client (transform_defer()).
 */
enum { VALUE_KEY = PACKIMG_FIELDS_MAX, VALUE_DEFERRED };

struct field_column {
	uint32_t number; /* of the field in the dataset, VALUE_KEY or VALUE_DEFERRED */
	uint32_t type;   /* enum packimg_field_type, as the client is told */
	uint32_t room;   /* bytes of one value; means nothing for numbers */
};

struct field_columns {
	uint32_t count;
	bool whole; /* a value that finds no room ends the feed; else it is cut */
	struct field_column columns[RING_FIELDS_MAX];
};

/* The sample whose values are wanted, and where they come from. */
struct value_source {
	const struct dataset *dataset;
	uint64_t index;
	const struct transform_scratch *scratch; /* has just made it */
	struct io_buffer *bytes;                 /* the worker's, where nothing is mapped */
};

/*
 * Copies the values of a sample to place i of a slot; inside the dataset's guard. *flags: what is
 * to be said of it, enum ring_sample_flag, is added. -EBADMSG: a value is damaged; -ENOMEM;
 * -EINVAL: it finds no room, which is no fault of the sample. All with a sentence.
 */
int field_values_put(const struct field_columns *columns, const struct value_source *source,
		     const struct ring_header *layout, struct ring_slot *slot, uint32_t i,
		     uint8_t *flags, struct packimg_error *error);
