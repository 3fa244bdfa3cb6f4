/*
 * How emulated work is queued: a launch of a kernel or the execution of a plan hands over a
 * function and a copy of its arguments. The emulated GPU calls the function when the stream's turn
 * comes, or records it while the stream is captured and calls it at every replay. So arguments are
 * copied when work is queued, as CUDA does; what pointers in them lead to is not.
 */
#pragma once

#include "trainer/device/cuda/gpu.h"

/* `arguments` points to the copy, aligned for any type. */
typedef void (*emulation_work)(const void *arguments);

/* -ENOMEM. */
int emulation_queue(gpu_stream stream, emulation_work work, const void *arguments, size_t size);
/*
 * Whether polling an event runs queued work; true initially. Work that waits for other ranks must
 * run in the same order on all of them, not when one happens to poll: with false only waiting runs
 * any.
 */
void emulation_run_when_polled(bool run);

/*
 * For tests. Bytes of device memory there are from now on, free or not; 0: as much as the host has.
 * Programs are told by the environment.
 */
void emulation_limit_memory(uint64_t bytes);
#define EMULATION_MEMORY "LOADERD_EMULATED_MEMORY"
/* What every byte of it is when it is allocated; 0xff at first. */
void emulation_fresh_memory(uint8_t byte);
/*
 * Whether read-only host memory can be registered, and whether any can. Programs are told by the
 * environment: EMULATION_REGISTERING is "writable" for only what is mapped so, "none" for none.
 */
void emulation_allow_registering(bool read_only, bool writable);
#define EMULATION_REGISTERING "LOADERD_EMULATED_REGISTERING"
/*
 * Whether the emulated GPU is broken, as by a kernel that wrote out of bounds: everything that
 * waits for it then fails.
 */
void emulation_break(bool broken);
/*
 * Calls of gpu_allocate and gpu_allocate_host so far: a loop that allocates nothing does not move
 * it.
 */
uint64_t emulation_allocations(void);
/* Graphs launched so far. */
uint64_t emulation_launches(void);
/* Kernels, products, copies and fills that have run so far, captured ones at every replay. */
uint64_t emulation_works(void);
