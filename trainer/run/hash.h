/* Non-cryptographic hashes that identify files and weights. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Extends `hash` by the bytes, order included. Of several calls, all but the last must pass a
 * multiple of 8 bytes.
 */
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size);
/*
 * Hashes a regular file; a negative errno if it cannot be read, -EBADF if it is not a regular file.
 */
int hash_file(const char *path, uint64_t *ret_hash);
