/*
 * The kernels, for their launchers: defined by nvcc for the device, or by the C compiler for the
 * host. Tables are indexed by columns_instance().
 */
#ifndef TRAINER_DEVICE_CUDA_TABLES_H
#define TRAINER_DEVICE_CUDA_TABLES_H

#include "trainer/device/cuda/gpu.h"
#include "trainer/device/cuda/kernels/columns.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct gpu_kernel columns_combine_kernel;

/* How many blocks of the reducing kernels fit on a multiprocessor. */
#define NORM_STATISTICS_RESIDENT 4
#define NORM_BACKWARD_RESIDENT   2
#define LAYER_NORM_SUMS_RESIDENT 2
#define POOL_REDUCE_RESIDENT     2

extern const struct gpu_kernel norm_statistics_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel norm_apply_kernels[KERNEL_INSTANCES],
	norm_apply_gelu_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel norm_backward_kernels[KERNEL_INSTANCES],
	norm_backward_gelu_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel norm_backward_lean_kernels[KERNEL_INSTANCES],
	norm_backward_gelu_lean_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel norm_backward_apply_kernels[KERNEL_INSTANCES],
	norm_backward_apply_gelu_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel layer_norm_kernels[KERNEL_INSTANCES],
	layer_norm_wide_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel layer_norm_backward_kernels[KERNEL_INSTANCES],
	layer_norm_backward_wide_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel layer_norm_sums_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel norm_finalize_kernel;
extern const struct gpu_kernel norm_running_kernel;
extern const struct gpu_kernel norm_backward_finalize_kernel;

extern const struct gpu_kernel pool_max_kernels[KERNEL_INSTANCES],
	pool_max_pairs_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_max_backward_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_max_backward_tiles_kernels[KERNEL_INSTANCES],
	pool_max_backward_pairs_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_max_norm_reduce_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_max_norm_apply_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_max_norm_apply_tiles_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_average_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_average_backward_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_global_average_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_global_max_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_global_average_backward_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel pool_global_max_backward_kernels[KERNEL_INSTANCES];

/* packs of a block of elementwise_copies(): FLAT_UNROLL of each thread */
#define ELEMENTWISE_BLOCK 1024

extern const struct gpu_kernel elementwise_add_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel elementwise_check_kernels[KERNEL_INSTANCES];
/* by the source's element */
extern const struct gpu_kernel elementwise_copy_kernels[KERNEL_INSTANCES];
extern const struct gpu_kernel elementwise_copies_kernels[KERNEL_INSTANCES]; /* likewise */
extern const struct gpu_kernel elementwise_copy_columns_kernel;
extern const struct gpu_kernel elementwise_fold_kernel;

extern const struct gpu_kernel step_store_kernel;
extern const struct gpu_kernel input_normalize_kernel;
extern const struct gpu_kernel loss_softmax_kernel;
extern const struct gpu_kernel loss_total_kernel;
extern const struct gpu_kernel loss_count_kernel;
extern const struct gpu_kernel loss_share_kernel;

extern const struct gpu_kernel update_squares_kernel;
extern const struct gpu_kernel update_decide_kernel;
extern const struct gpu_kernel update_apply_kernel;

#ifdef __cplusplus
}
#endif

#endif
