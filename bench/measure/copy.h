/*
 * copy: the machine's memcpy bandwidth, the yardstick for handing batches over.
 *
 * Every thread copies between two buffers of its own, far larger than any cache, with the C
 * library's memcpy; counted are the bytes copied, as a batch's bytes are counted once although they
 * are read and written.
 */
#pragma once

/*
 * Bytes per second by so many threads together over about that time; a negative errno when memory
 * or threads are lacking.
 */
double copy_measure(unsigned threads, double seconds);
