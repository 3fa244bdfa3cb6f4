/*
 * Mutations of .pimg files that leave them whole: a short piece changes, then all checksums are put
 * right, since a change of the bytes alone nearly always ends at a checksum. Shared by the targets
 * that read files, and by those that pass them to a daemon.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Changes bytes, their number too; returns that, at most size_max. LLVMFuzzerMutate() is one. */
typedef size_t whole_file_mutator(uint8_t *data, size_t size, size_t size_max);

/*
 * Puts right the checksums of header and sections, and those of the first samples, their side data,
 * and columns.
 */
void whole_file_repair(uint8_t *data, size_t size);
/*
 * Has a piece drawn by seed, sometimes all, changed by mutate(), and repairs the checksums. Returns
 * the new size.
 */
size_t whole_file_mutate(uint8_t *data, size_t size, size_t size_max, unsigned seed,
			 whole_file_mutator *mutate);
