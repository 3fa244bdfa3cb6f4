#include "trainer/run/hash.h"

#include "format/base/system/io.h"

#include <string.h>
#include <unistd.h>

/* Mixes each word by multiplication and xor-shift, as splitmix64. */
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
	uint64_t hash = 1, at = 0;
	int64_t n;
	int fd = io_open_regular(path);
	if (fd < 0)
		return fd;
	while ((n = io_read_at(fd, buffer, sizeof(buffer), at)) > 0) {
		hash = hash_bytes(hash, buffer, (size_t)n);
		at += (uint64_t)n;
	}
	close(fd);
	if (n < 0)
		return (int)n;
	*ret_hash = hash;
	return 0;
}
