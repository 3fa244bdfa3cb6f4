/*
 * Runs kernel grids on the host, as the emulation's gpu_launch(). Blocks run one after another; the
 * threads of a block are fibers that switch only at barriers and shuffles. A seed determines the
 * order of blocks, and of threads between barriers, so code that depends on an order CUDA does not
 * guarantee gives different results for different seeds. Single-threaded.
 *
 * kernel.h maps the kernel language to these functions. Misuse that would hang a device or give
 * wrong results ends the program with a message: threads that wait at different barriers, a warp of
 * which only some lanes shuffle, misaligned vectors.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* CUDA's indices of the running thread, and the size of its grid. */
struct emulation_index {
	uint32_t x, y;
};
extern struct emulation_index threadIdx, blockIdx, gridDim;

/* Sets the seed of the order from the next block on; 0 (initially) means ascending order. */
void emulation_order(uint64_t seed);

/* The functions below are called by kernels. */
void emulation_barrier(const char *file, int line);
/* Declares memory shared by the block; the first thread that declares it fills it with 0xff. */
void emulation_shared(void *memory, size_t size);
float emulation_shuffle_f32(float value, uint32_t mask, const char *file, int line);
double emulation_shuffle_f64(double value, uint32_t mask, const char *file, int line);
uint32_t emulation_shuffle_u32(uint32_t value, uint32_t mask, const char *file, int line);
/* One lane's contribution to a warp-wide operation. */
struct emulation_fragment {
	uint32_t word[6];
	const void *row;
};
/*
 * Exchanges fragments between the lanes of a warp. Returns those of all 32 lanes, valid until the
 * next exchange.
 */
const struct emulation_fragment *emulation_exchange(const struct emulation_fragment *own,
						    const char *file, int line);
void emulation_misaligned(const void *address, size_t alignment) __attribute__((noreturn));

static inline void emulation_aligned(const void *address, size_t alignment)
{
	if ((uintptr_t)address % alignment)
		emulation_misaligned(address, alignment);
}
