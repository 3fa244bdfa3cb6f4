/*
 * Records which sample a thread was decoding when it crashed. The signal handler writes to memory
 * that outlives the process, then lets the signal take its default action. The supervisor reads the
 * marker to tell a sample that crashes workers from a crash with another cause.
 *
 * Call crash_marker_install() once per process, crash_marker_thread() on each thread that decodes,
 * and crash_marker_begin() and crash_marker_end() around each sample on that thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct crash_marker {
	_Atomic uint32_t noted; /* 0 empty, 1 being written, 2 complete; set once */
	uint32_t signal;
	uint8_t uuid[16]; /* of the dataset */
	uint64_t sample;
};

/*
 * marker must stay valid until the process exits. The handler chains to a previous one that was
 * installed with SA_SIGINFO. Returns 0 or -errno.
 */
int crash_marker_install(struct crash_marker *marker);
/* Installs an alternate signal stack for the calling thread, for stack overflows. */
void crash_marker_thread(void);
void crash_marker_begin(const uint8_t uuid[16], uint64_t sample);
void crash_marker_end(void);
/* Records the crash from another fatal signal's handler. Async-signal-safe. */
void crash_marker_note(int signal_number);
