/* Kernels of norm.h for layer norm: over rows by warps or blocks, and sums as columns.h says. */
#include "trainer/device/cuda/kernels/norm.h"

#include "trainer/device/cuda/kernels/cu/kernel.h"
#include "trainer/device/cuda/kernels/cu/reduce.h"
#include "trainer/device/cuda/kernels/tables.h"

#define PACKS 4 /* that a thread has of a row at once */

/* Whose row it is, and which of its threads this one. */
struct row_place {
	uint64_t row;
	uint32_t thread, threads;
};

DEVICE struct row_place row_of_warp(void)
{
	struct row_place here;

	here.row = (uint64_t)kernel_block_x() * (KERNEL_THREADS / KERNEL_WARP) +
		   kernel_thread() / KERNEL_WARP;
	here.thread = kernel_thread() % KERNEL_WARP;
	here.threads = KERNEL_WARP;
	return here;
}

DEVICE struct row_place row_of_block(void)
{
	struct row_place here;

	here.row = kernel_block_x();
	here.thread = kernel_thread();
	here.threads = KERNEL_THREADS;
	return here;
}

/* Over the threads of the row, which all call it and get the result. */
DEVICE float row_sum(float value, uint32_t threads)
{
	return threads == KERNEL_WARP ? reduce_warp_f32(value) : (float)reduce_sum_f64(value);
}

#define KERNEL_BODY "trainer/device/cuda/kernels/cu/layer_norm_kernels.h"
#include "trainer/device/cuda/kernels/cu/instances.h"

LAYER_NORM_KERNELS(INSTANCES)
