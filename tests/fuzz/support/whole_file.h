/*
 * Mutations of .pimg files that keep the checksums valid: they change a short piece, then recompute
 * all checksums, because a plain change of bytes nearly always fails at a checksum. Used by the
 * targets that read files and by those that pass files to a daemon.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Mutates data in place, at most to size_max bytes, and returns the new size. LLVMFuzzerMutate() is
 * such a function.
 */
typedef size_t whole_file_mutator(uint8_t *data, size_t size, size_t size_max);

/*
 * Recomputes the checksums of header and sections, and of the first samples, their side data and
 * columns.
 */
void whole_file_repair(uint8_t *data, size_t size);
/*
 * Mutates a piece drawn by seed, sometimes the whole file, with mutate(), and repairs the
 * checksums. Returns the new size.
 */
size_t whole_file_mutate(uint8_t *data, size_t size, size_t size_max, unsigned seed,
			 whole_file_mutator *mutate);
