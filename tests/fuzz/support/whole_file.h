/*
 * Mutations of .pimg files that keep the checksums valid: they change a short piece, then recompute
 * all checksums. Without that, nearly all mutations would fail at a checksum. Used by the targets
 * that read files and by those that send files to a daemon.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * A function that mutates data in place, to at most size_max bytes, and returns the new size, such
 * as LLVMFuzzerMutate().
 */
typedef size_t whole_file_mutator(uint8_t *data, size_t size, size_t size_max);

/*
 * Recomputes the checksums of the header, of all sections, and of the first samples with their side
 * data and columns.
 */
void whole_file_repair(uint8_t *data, size_t size);
/*
 * Applies mutate() to a piece selected by seed, sometimes to the whole file, and repairs the
 * checksums. Returns the new size.
 */
size_t whole_file_mutate(uint8_t *data, size_t size, size_t size_max, unsigned seed,
			 whole_file_mutator *mutate);
