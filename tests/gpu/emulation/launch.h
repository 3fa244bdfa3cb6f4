/*
 * Runs grids of kernels on the host, as gpu_launch() of the emulation: blocks one after the other,
 * the threads of a block as fibers that change at barriers and shuffles only. The order of blocks
 * and of threads between barriers follows from a seed, so that what depends on an order that CUDA
 * does not promise differs from one seed to the next. Used by one thread.
 *
 * kernel.h maps the kernels' vocabulary to this. Misuse that a
 * device would answer with a hang or with wrong numbers ends the program with a text: threads that
 * wait at different barriers, a warp of which some lanes shuffle and others do not, vectors not
 * aligned.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Of the thread that runs. */
struct emulation_place {
	uint32_t thread, block_x, block_y, blocks_x;
};
extern struct emulation_place emulation_here;

/* Seed of the order from the next block on; 0 (at start): ascending. */
void emulation_order(uint64_t seed);

/* Below: called by kernels. */
void emulation_barrier(const char *file, int line);
/* Declares memory shared by the block; the first thread to do so fills it with 0xff. */
void emulation_shared(void *memory, size_t size);
float emulation_shuffle_f32(float value, uint32_t mask, const char *file, int line);
double emulation_shuffle_f64(double value, uint32_t mask, const char *file, int line);
uint32_t emulation_shuffle_u32(uint32_t value, uint32_t mask, const char *file, int line);
/* What a lane brings to an operation of its whole warp. */
struct emulation_fragment {
	uint32_t word[6];
	const void *row;
};
/* What all lanes of the warp brought, [32]; valid until the next exchange. */
const struct emulation_fragment *emulation_exchange(const struct emulation_fragment *own,
						    const char *file, int line);
void emulation_misaligned(const void *address, size_t alignment) __attribute__((noreturn));

static inline void emulation_aligned(const void *address, size_t alignment)
{
	if ((uintptr_t)address % alignment)
		emulation_misaligned(address, alignment);
}
