/*
 * Reads bytes that another process may be changing, such as a mapped file whose owner may write to
 * it at any time. Copy a value once, then validate and use the copy, so that the value validated is
 * the value used. Pure functions, any thread.
 */
#pragma once

#include <stddef.h>
#include <string.h>

/*
 * Copies size bytes exactly once. A plain memcpy() does not guarantee that: the compiler may assume
 * that memory does not change, and load a value again where it is used. The empty asm statement
 * tells the compiler that all memory may have changed, so it cannot load from `from` again.
 */
static inline void copy_once(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	__asm__ volatile("" : : "r"(to) : "memory");
}
