/* Reads the values of a sample that a filter names. Any thread. */
#pragma once

#include "format/where/where_text.h"

/* A sample, and its record once it has been looked up. */
struct where_view {
	struct where_sample sample;
	bool has_record;
	struct packimg_sample record;
};

/* Returns 0, -EBADMSG or -ERANGE as where_match(). */
int where_read_value(struct where_view *view, const struct where_read *read,
		     struct where_operand *ret_operand);
