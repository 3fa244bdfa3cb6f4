/*
 * Work queue of the emulated GPU. A kernel launch or the execution of a plan queues a function and
 * a copy of its arguments. The emulation calls the function when the stream reaches it; while the
 * stream is captured it records the function instead and calls it at every replay. As with CUDA,
 * the arguments are copied when work is queued, but the memory that they point to is not.
 */
#pragma once

#include "trainer/device/cuda/gpu.h"

/* `arguments` points to the copy, which is aligned for any type. */
typedef void (*emulation_work)(const void *arguments);

/* Queues work. Returns 0 or -ENOMEM. */
int emulation_queue(gpu_stream stream, emulation_work work, const void *arguments, size_t size);
/*
 * Runs the stream's work up to the first event that has not passed: as early as CUDA permits, so
 * that work that should have waited for another stream's gives a wrong result. No-op during a
 * capture.
 */
void emulation_run_ready(gpu_stream stream);
/*
 * Sets whether polling an event runs queued work (initially true). Work that waits for other ranks
 * must run in the same order on all of them, independently of polling: with false only waiting runs
 * work.
 */
void emulation_run_when_polled(bool run);

/*
 * Limits device memory to this many bytes, used and free; 0 means as much as the host has. For
 * tests; programs use the environment variable.
 */
void emulation_limit_memory(uint64_t bytes);
#define EMULATION_MEMORY "LOADERD_EMULATED_MEMORY"
/* Sets the byte that fills newly allocated device memory (initially 0xff). */
void emulation_fresh_memory(uint8_t byte);
/*
 * Sets whether read-only host memory can be registered, and whether writable memory can. For tests;
 * programs set EMULATION_REGISTERING to "writable" (only writable mappings can be registered) or
 * "none".
 */
void emulation_allow_registering(bool read_only, bool writable);
#define EMULATION_REGISTERING "LOADERD_EMULATED_REGISTERING"
/* Simulates a broken GPU, as after a kernel wrote out of bounds: every later wait fails. */
void emulation_break(bool broken);
/*
 * Returns the number of calls of gpu_allocate and gpu_allocate_host so far, for checking that a
 * loop does not allocate.
 */
uint64_t emulation_allocations(void);
/* Returns the number of graphs launched so far. */
uint64_t emulation_launches(void);
/*
 * Returns the number of kernels, matrix products, copies and fills run so far. Captured work counts
 * at every replay.
 */
uint64_t emulation_works(void);
