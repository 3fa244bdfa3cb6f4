/*
 * Reads bytes that another process may be changing, such as a mapped file whose owner may write to
 * it at any time. The value that is validated must be the value that is used: copy it once, then
 * validate and use the copy. Pure functions, any thread.
 */
#pragma once

#include <stddef.h>
#include <string.h>

/*
 * Copies size bytes exactly once. A plain memcpy() does not guarantee that: the compiler may assume
 * that the memory does not change and load a value again where it is used. The empty asm statement
 * is a compiler barrier that may have changed all memory, so the compiler cannot reload from
 * `from`.
 */
static inline void copy_once(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	__asm__ volatile("" : : "r"(to) : "memory");
}
