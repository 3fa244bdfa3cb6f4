/*
 * How bytes are read that somebody else may be changing: those of a mapped file, whose owner may
 * write to it at any moment. What is checked must be what is used, so it is copied, once, then
 * checked and used in the copy.
 */
#pragma once

#include <stddef.h>
#include <string.h>

/*
 * A plain memcpy() does not say that: the compiler takes memory for unchanging and may read a value
 * from there again where it is used. The empty statement could have changed everything, for all
 * that it knows, so it cannot.
 */
static inline void copy_once(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	__asm__ volatile("" : : "r"(to) : "memory");
}
