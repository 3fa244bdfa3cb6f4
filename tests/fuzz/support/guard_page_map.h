/*
 * Replaces mmap() and munmap() so that reads beyond a mapped file are detected. Maps each file
 * between two inaccessible regions of 1 GiB, and poisons the bytes between the end of the file and
 * the end of its last page for AddressSanitizer. After a plain mapping come zeroes and then other
 * mappings, so that an overread would go unnoticed. Link with -Wl,--wrap for both functions
 * (meson.build). Only one thread may map and unmap, and only whole mappings may be unmapped.
 */
#pragma once

#include <stddef.h>

/*
 * Reports an error if the first or the last byte of the range is not readable. For ranges that a
 * library without sanitizer instrumentation reads.
 */
void guard_page_map_expect(const void *bytes, size_t size);
