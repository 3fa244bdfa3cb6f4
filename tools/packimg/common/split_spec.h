/* Parses "train=0.9,val=0.1", the parts of a split, for convert and split. Pure functions. */
#pragma once

#include "format/packimg.h"

#include <stdint.h>

enum {
	SPLIT_PARTS_MAX = 64,
};

struct split_part {
	const char *name; /* points into the parsed text */
	double fraction;
};

/*
 * Splits text in place. -EINVAL for a name that is empty, repeated or contains '/', a fraction
 * outside (0, 1], or a sum above 1.
 */
int split_parse(char *text, struct split_part parts[static SPLIT_PARTS_MAX], uint32_t *ret_count,
		struct packimg_error *error);
/*
 * Builds PATH/NAME-train.pimg from PATH/NAME.pimg and "train"; the caller frees it. NULL if out of
 * memory. Slashes in the part's name become '_'; file_name.h escapes other bytes.
 */
char *split_path(const char *output, const char *part);
