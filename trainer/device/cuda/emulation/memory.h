/* Between gpu.c, which queues and runs work, and memory.c, where it reads and writes. */
#pragma once

#include "queue.h"

/* Keeps the words for gpu_error(), and returns the result. */
int emulation_fail(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What a thread must not call while it captures: its captures are void then. True: it does, and has failed. */
bool emulation_forbidden(const char *what);
/* True: the stream is captured, and its capture is void now. */
bool emulation_void_capture(gpu_stream stream);
/* Runs all that is queued. */
void emulation_drain(void);

/* Whether AddressSanitizer stops those who touch device memory. */
void emulation_protect(bool on);
/* What there is of it, and whether host memory can be registered read-only. */
void emulation_describe_memory(struct gpu_properties *properties);
