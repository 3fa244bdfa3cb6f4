/*
 * LD_PRELOAD library that crashes a process when it computes one of the checksums in POISON_XXH3
 * (16 hexadecimal digits each, separated by spaces). Simulates a decoder that crashes on certain
 * samples.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { POISONS_MAX = 64 };

static volatile char *volatile nowhere;

__attribute__((visibility("default"))) uint64_t XXH3_64bits(const void *data, size_t size);

uint64_t XXH3_64bits(const void *data, size_t size)
{
	static uint64_t (*real)(const void *, size_t);
	static uint64_t poison[POISONS_MAX];
	static unsigned count;
	if (!real) {
		const char *value = getenv("POISON_XXH3");
		char *end = (char *)value;
		while (end && *end != '\0' && count < POISONS_MAX)
			poison[count++] = strtoull(end, &end, 16);
		real = (uint64_t(*)(const void *, size_t))dlsym(RTLD_NEXT, "XXH3_64bits");
	}
	uint64_t hash = real(data, size);
	for (unsigned i = 0; i < count; i++)
		if (hash == poison[i])
			*nowhere = 0;
	return hash;
}
