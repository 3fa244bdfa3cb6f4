/*
 * Which sample a thread was decoding when it faulted. The handler leaves that in memory that
 * outlives the process, and the process then ends as it would have: whoever starts the next one can
 * tell a sample that ends workers from a worker that was ended.
 *
 * crash_marker_install() once per process; crash_marker_thread() on each thread that decodes;
 * crash_marker_begin() and crash_marker_end() around a sample, on that thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct crash_marker {
	_Atomic uint32_t noted; /* the first fault only */
	uint32_t signal;
	uint8_t uuid[16]; /* of the dataset */
	uint64_t sample;
};

/*
 * Where to note it; lives as long as the process. Handlers that were there before are called
 * afterwards.
 */
int crash_marker_install(struct crash_marker *marker);
/* Lets the handler run when the thread has used up its stack. */
void crash_marker_thread(void);
void crash_marker_begin(const uint8_t uuid[16], uint64_t sample);
void crash_marker_end(void);
/* For another handler that ends the process. Safe in handlers. */
void crash_marker_note(int signal_number);
