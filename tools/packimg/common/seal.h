/*
 * Set files of sets on disk (format/SPEC.md, "Set files"). Nothing opens a set by them there; they
 * are made to be copied to a store with the shards. One thread.
 */
#pragma once

#include "format/packimg.h"

#include <stdint.h>

/*
 * Writes BASE.pimg.set, of the shards BASE-00000-of-....pimg, which must open as a set. It appears
 * when it is complete, and replaces one that is there. Errors of header_read() and of files.
 */
int seal_write(const char *base, uint32_t shard_count, struct packimg_error *error);
/*
 * Compares the set file of the set at a path, as of packimg_open(), with the shards. 0 if they are
 * equal, or there is none; -ESTALE; -EBADMSG if it is damaged; errors of files.
 */
int seal_compare(const char *path, struct packimg_error *error);
