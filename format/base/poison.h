/*
 * AddressSanitizer annotations for memory that the program manages itself, such as a ring of reads
 * or an arena; without them, AddressSanitizer detects only accesses outside the whole mapping.
 * Poisoned bytes must not be read or written. System calls are not checked, so the kernel may fill
 * poisoned bytes. Unpoison memory before munmap(). Compiles to nothing without AddressSanitizer.
 * Any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifndef __has_feature
#define __has_feature(name) 0 /* GCC defines __SANITIZE_ADDRESS__ instead */
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

/* Returns the first poisoned byte; NULL if there is none, or without AddressSanitizer. */
static inline const uint8_t *poison_find(const void *memory, size_t size)
{
	return __asan_region_is_poisoned((void *)memory, size);
}

/*
 * Reports the first poisoned byte. Call it before a library without instrumentation, such as
 * xxHash, reads the bytes.
 */
static inline void poison_expect_none(const void *memory, size_t size)
{
	const volatile uint8_t *found = poison_find(memory, size);
	if (found)
		(void)*found;
}
