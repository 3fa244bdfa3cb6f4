/*
 * Parses the parts of a split, such as "train=0.9,val=0.1", for convert and split. Pure functions.
 */
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
 * Splits text in place. -EINVAL if a name is empty, repeated or contains '/', if a fraction is
 * outside (0, 1], or if the sum exceeds 1.
 */
int split_parse(char *text, struct split_part parts[static SPLIT_PARTS_MAX], uint32_t *ret_count,
		struct packimg_error *error);
/*
 * Builds PATH/NAME-train.pimg from PATH/NAME.pimg and "train"; the caller frees it. NULL if out of
 * memory. Slashes in the part's name become '_'; file_name.h escapes other bytes.
 */
char *split_path(const char *output, const char *part);
