/*
 * Layer norm kernels of norm.h. A warp or a block handles a row; sums over rows follow columns.h.
 */
#include "trainer/device/cuda/kernels/norm.h"

#include "trainer/device/cuda/kernels/common/block_reduce.h"
#include "trainer/device/cuda/kernels/common/kernel.h"
#include "trainer/device/cuda/kernels/tables.h"

#define PACKS 4 /* packs of a row in registers per thread */

/* A row, and the thread's index among the threads that handle it. */
struct row_place {
	uint64_t row;
	uint32_t thread, threads;
};

DEVICE struct row_place row_of_warp(void)
{
	struct row_place here;

	here.row =
		(uint64_t)blockIdx.x * (KERNEL_THREADS / KERNEL_WARP) + threadIdx.x / KERNEL_WARP;
	here.thread = threadIdx.x % KERNEL_WARP;
	here.threads = KERNEL_WARP;
	return here;
}

DEVICE struct row_place row_of_block(void)
{
	struct row_place here;

	here.row = blockIdx.x;
	here.thread = threadIdx.x;
	here.threads = KERNEL_THREADS;
	return here;
}

/* Sum over the threads of the row. All of them must call; all receive the result. */
DEVICE float row_sum(float value, uint32_t threads)
{
	return threads == KERNEL_WARP ? reduce_warp<float>(value)
				      : (float)reduce_sum<double>(value);
}

#define KERNEL_BODY "trainer/device/cuda/kernels/common/layer_norm_kernels.h"
#include "trainer/device/cuda/kernels/common/instances.h"

LAYER_NORM_KERNELS(INSTANCES)
