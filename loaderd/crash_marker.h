/*
 * Records which sample a thread was decoding when it crashed. The signal handler writes it to
 * memory that outlives the process, then lets the process end as it would have, so that the
 * supervisor can tell a sample that crashes workers from a worker that something else killed.
 *
 * Call crash_marker_install() once per process, crash_marker_thread() on each thread that decodes,
 * crash_marker_begin() and crash_marker_end() around each sample on that thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct crash_marker {
	_Atomic uint32_t noted; /* set by the first crash alone */
	uint32_t signal;
	uint8_t uuid[16]; /* of the dataset */
	uint64_t sample;
};

/* marker must live as long as the process. Previously installed handlers run afterwards. */
int crash_marker_install(struct crash_marker *marker);
/* Gives the thread an alternate signal stack, for stack overflows. */
void crash_marker_thread(void);
void crash_marker_begin(const uint8_t uuid[16], uint64_t sample);
void crash_marker_end(void);
/* For other handlers that end the process. Async-signal-safe. */
void crash_marker_note(int signal_number);
