/*
 * Interface between gpu.c, which queues and runs work, and memory.c, which allocates device memory
 * and copies.
 */
#pragma once

#include "tests/gpu/emulation/queue.h"

/* Stores the message for gpu_error() and returns result. */
int emulation_fail(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Call in functions that CUDA forbids during a capture. Returns false if the thread is not
 * capturing; otherwise invalidates its captures, sets the error and returns true.
 */
bool emulation_forbidden(const char *what);
/* Invalidates the stream's capture. Returns false if there is none. */
bool emulation_void_capture(gpu_stream stream);
/* Runs all queued work. */
void emulation_drain(void);

/* Poisons (true) or unpoisons (false) device memory for AddressSanitizer. */
void emulation_protect(bool on);
/* Fills in total and free device memory, and whether read-only host memory can be registered. */
void emulation_describe_memory(struct gpu_properties *properties);
