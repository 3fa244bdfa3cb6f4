/* Non-cryptographic hashes that identify files and weights. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Returns `hash` updated with the bytes, in order. If the data is split over several calls, the
 * size of all but the last must be a multiple of 8.
 */
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size);
/*
 * Hashes a regular file. Returns a negative errno if it cannot be read, -EBADF if it is not a
 * regular file.
 */
int hash_file(const char *path, uint64_t *ret_hash);
