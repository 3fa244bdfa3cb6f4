/* Between gpu.c, which queues and runs work, and memory.c, where it reads and writes. */
#pragma once

#include "tests/gpu/emulation/queue.h"

/* Keeps the words for gpu_error(), and returns the result. */
int emulation_fail(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * For calls that are forbidden while the thread captures: invalidates its captures. True: it was
 * capturing, and has failed.
 */
bool emulation_forbidden(const char *what);
/* Invalidates the stream's capture. True: there was one. */
bool emulation_void_capture(gpu_stream stream);
/* Runs all that is queued. */
void emulation_drain(void);

/* Whether AddressSanitizer reports accesses to device memory. */
void emulation_protect(bool on);
/* What there is of it, and whether host memory can be registered read-only. */
void emulation_describe_memory(struct gpu_properties *properties);
