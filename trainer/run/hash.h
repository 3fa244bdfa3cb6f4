/* Hashes that tell files and weights apart, of a program or a run; against no adversary. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Of `hash` and order and value of every byte; all but the last of several are of 8 n bytes. */
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size);
/* Of a regular file; a negative errno where it cannot be read, -EBADF where it is none. */
int hash_file(const char *path, uint64_t *ret_hash);
