/* Scripts of fuzz inputs: bytes that choose what comes next. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct script {
	const uint8_t *bytes;
	size_t left;
};

/* Returns the next byte; 0 after the last. */
static inline uint8_t script_next(struct script *script)
{
	if (script->left == 0)
		return 0;
	script->left--;
	return *script->bytes++;
}

/* Returns mostly small numbers, and some that provoke arithmetic errors. */
static inline uint64_t script_number(uint8_t byte)
{
	static const uint64_t values[] = {UINT32_MAX, UINT64_MAX, 1 << 20, INT64_MAX};
	return byte < 0xfc ? byte % 12 : values[byte - 0xfc];
}
