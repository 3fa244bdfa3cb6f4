/* "train=0.9,val=0.1": the parts of a split, as convert and split take them. Pure. */
#pragma once

#include "format/packimg.h"

#include <stdint.h>

enum {
	SPLIT_PARTS_MAX = 64,
};

struct split_part {
	const char *name; /* into the text that was parsed */
	double fraction;
};

/*
 * Cuts text up in place. -EINVAL: a name that is empty, given twice or holds '/', a fraction
 * outside (0, 1], a sum above 1.
 */
int split_parse(char *text, struct split_part parts[static SPLIT_PARTS_MAX], uint32_t *ret_count,
		struct packimg_error *error);
/*
 * PATH/NAME.pimg and "train" give PATH/NAME-train.pimg; the caller frees it. NULL: out of memory.
 * Slashes in the part's name become '_', what file_name.h escapes is escaped.
 */
char *split_path(const char *output, const char *part);
