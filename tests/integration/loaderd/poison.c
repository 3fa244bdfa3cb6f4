/*
 * By LD_PRELOAD: whoever computes the checksum POISON_XXH3 (16 hexadecimal digits) faults, as a
 * decoder with a hole might at one sample.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static volatile char *volatile nowhere;

__attribute__((visibility("default"))) uint64_t XXH3_64bits(const void *data, size_t size);

uint64_t XXH3_64bits(const void *data, size_t size)
{
	static uint64_t (*real)(const void *, size_t);
	static uint64_t poison;
	if (!real) {
		const char *wish = getenv("POISON_XXH3");
		poison = !wish ? 0 : strtoull(wish, NULL, 16);
		real = (uint64_t(*)(const void *, size_t))dlsym(RTLD_NEXT, "XXH3_64bits");
	}
	uint64_t hash = real(data, size);
	if (poison != 0 && hash == poison)
		*nowhere = 0;
	return hash;
}
