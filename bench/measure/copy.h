/*
 * Measures the machine's memcpy bandwidth, the yardstick for handing over batches.
 *
 * Each thread copies between two private buffers that are far larger than any cache, with the C
 * library's memcpy. A copied byte counts once, although it is read and written, like a batch's
 * bytes.
 */
#pragma once

/*
 * Bytes per second of `threads` threads together over about `seconds`; a negative errno if memory
 * or threads cannot be allocated.
 */
double copy_measure(unsigned threads, double seconds);
