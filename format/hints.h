/*
 * Samples by class, and sizes of images (SPEC.md, "Members" and "Sizes"), without a pass over the
 * index. Both are optional and only hints: writers derive them from the index, and opening a file
 * does not compare them with it. packimg_class_member() therefore checks what it returns against
 * the label; a size must be checked against the sample's record when it is used. Every function
 * reads the file at each call, and depends on nothing that was read before. The functions of
 * `members` read with pread(), also if the file is mapped, so that they need no guard against
 * SIGBUS. Any thread. A joined dataset has neither section: ask its parts (join.h).
 */
#pragma once

#include "format/packimg.h"

struct shard; /* format/reader.h */

/* True if every file of the dataset has section `members`. */
bool packimg_has_members(const struct packimg *dataset);
/*
 * Copies the shard's table of class_count + 1 starts: class c has ret_starts[c + 1] - ret_starts[c]
 * samples in it. -EBADMSG if the table is damaged; -ERANGE if there is no such shard; -ENODATA if
 * the shard lacks the section. After a failure, the contents of ret_starts are undefined.
 */
int packimg_class_starts(const struct packimg *dataset, uint32_t shard, uint64_t *ret_starts);
/*
 * Returns the number, in the dataset, of the rank-th sample of a class in a shard. -EBADMSG if the
 * section is damaged: the class has fewer samples now, or the sample does not exist or has another
 * label; -ERANGE and -ENODATA as above.
 */
int packimg_class_member(const struct packimg *dataset, uint32_t shard, uint32_t class_number,
			 uint64_t rank, uint64_t *ret_index);

/* True if every file of the dataset has section `sizes`. */
bool packimg_has_sizes(const struct packimg *dataset);
/*
 * Copies upright width and height of samples first to first + count - 1, which may be in several
 * shards. -ERANGE if there are fewer samples; -ENODATA if a shard lacks the section; -EBADMSG if an
 * unmapped file has shrunk. After a failure, the contents of ret_sizes are undefined.
 */
int packimg_sizes(const struct packimg *dataset, uint64_t first, uint64_t count,
		  uint16_t (*ret_sizes)[2]);

/*
 * Compares both sections of a shard, as far as there are any, with the index, whose records must be
 * sound. -EBADMSG if they differ; -ENOMEM.
 */
int hints_check(const struct packimg *dataset, const struct shard *shard,
		struct packimg_error *error);
