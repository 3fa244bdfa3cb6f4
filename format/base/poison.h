/*
 * Shows the address sanitizer which bytes of memory that the program divides itself, such as a ring
 * of reads or an arena, may be accessed. It sees a bad access to such memory only where it lies
 * outside the whole mapping. Poisoned bytes must not be read or written; system calls are not
 * checked, so the kernel may fill them. Memory is unpoisoned before it goes back to munmap(). All
 * of this compiles to nothing without the sanitizer. Any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifndef __has_feature
#define __has_feature(name) 0 /* GCC has a macro instead */
#endif

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
enum { POISON_IS_SEEN = 1 };
#else
enum { POISON_IS_SEEN = 0 };
#define __asan_poison_memory_region(memory, size)   ((void)(memory), (void)(size))
#define __asan_unpoison_memory_region(memory, size) ((void)(memory), (void)(size))
#define __asan_region_is_poisoned(memory, size)     ((void)(memory), (void)(size), NULL)
#endif

static inline void poison(const void *memory, size_t size)
{
	__asan_poison_memory_region(memory, size);
}

static inline void unpoison(const void *memory, size_t size)
{
	__asan_unpoison_memory_region(memory, size);
}

/* The first poisoned byte of these; NULL: none, or there is no sanitizer. */
static inline const uint8_t *poison_find(const void *memory, size_t size)
{
	return __asan_region_is_poisoned((void *)memory, size);
}

/*
 * For bytes that a library without instrumentation is about to read, xxHash for example: has the
 * sanitizer report the first that must not be.
 */
static inline void poison_expect_none(const void *memory, size_t size)
{
	const volatile uint8_t *found = poison_find(memory, size);
	if (found)
		(void)*found;
}
