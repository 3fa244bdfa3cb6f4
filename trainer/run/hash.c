#include "trainer/run/hash.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Multiplication and xor-shift per word, as splitmix64 mixes. */
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
	const char *at = bytes;
	for (size_t i = 0; i < size; i += 8) {
		uint64_t word = 0;
		memcpy(&word, at + i, size - i < 8 ? size - i : 8);
		hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
		hash ^= hash >> 31;
	}
	return hash;
}

int hash_file(const char *path, uint64_t *ret_hash)
{
	char buffer[65536];
	uint64_t hash = 1;
	size_t n;
	FILE *file = fopen(path, "re");
	if (!file)
		return -errno;
	while ((n = fread(buffer, 1, sizeof(buffer), file)) > 0)
		hash = hash_bytes(hash, buffer, n);
	int r = ferror(file) ? -EIO : 0;
	fclose(file);
	if (!r)
		*ret_hash = hash;
	return r;
}
