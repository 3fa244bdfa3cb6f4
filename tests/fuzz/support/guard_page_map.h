/*
 * Files are mapped with a gigabyte that nobody can touch before and behind them, and the address
 * sanitizer forbids what lies between a file's end and that of its last page: a plain mapping is
 * followed by zeroes and then by whatever the kernel has put there, so that reading on finds
 * nothing wrong. Stands in for mmap() and munmap() where linked with -Wl,--wrap for them
 * (meson.build). One thread maps and unmaps; a mapping goes as a whole.
 */
#pragma once

#include <stddef.h>

/*
 * For what a library reads that knows nothing of the sanitizer: reports if the ends of these bytes
 * are not to be read.
 */
void guard_page_map_expect(const void *bytes, size_t size);
