/*
 * Replaces mmap() and munmap() so that reads past a mapped file are detected. Maps each file
 * between two inaccessible regions of 1 GiB, and poisons the bytes between the end of the file and
 * the end of its last page for AddressSanitizer. After a plain mapping come zeroes and then
 * arbitrary other mappings, so an overrun would go unnoticed. Link with -Wl,--wrap for both
 * functions (meson.build). One thread maps and unmaps; a mapping is unmapped as a whole.
 */
#pragma once

#include <stddef.h>

/*
 * Reports an error if the first or last of these bytes is not readable. Use it for bytes that a
 * library without sanitizer instrumentation reads.
 */
void guard_page_map_expect(const void *bytes, size_t size);
