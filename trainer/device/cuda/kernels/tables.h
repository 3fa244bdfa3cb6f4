/*
 * Declares the kernels for their launchers. nvcc defines them for the device, or the C compiler for
 * the host. Each table is indexed by columns_instance().
 */
#ifndef TRAINER_DEVICE_CUDA_TABLES_H
#define TRAINER_DEVICE_CUDA_TABLES_H

#include "trainer/device/cuda/gpu.h"
#include "trainer/device/cuda/kernels/row_reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Kernels with one instance per element type and vector width, listed by family; each has a table
 * NAME_kernels[]. A copy uses the instance of its source's element type.
 */
/* clang-format off */
#define NORM_KERNELS(X) \
	X(norm_statistics) \
	X(norm_apply) X(norm_apply_curved) \
	X(norm_backward) X(norm_backward_curved) \
	X(norm_backward_lean) X(norm_backward_curved_lean) \
	X(norm_backward_apply) X(norm_backward_apply_curved)

#define LAYER_NORM_KERNELS(X) \
	X(layer_norm) X(layer_norm_wide) \
	X(layer_norm_backward) X(layer_norm_backward_wide) \
	X(layer_norm_sums)

#define SCALE_ADD_KERNELS(X) \
	X(scale_add) X(scale_add_backward)

#define POOL_KERNELS(X) \
	X(pool_max) X(pool_max_pairs) \
	X(pool_max_backward) X(pool_max_backward_tiles) X(pool_max_backward_pairs) \
	X(pool_max_norm_reduce) X(pool_max_norm_apply) X(pool_max_norm_apply_tiles) \
	X(pool_average) X(pool_average_backward) \
	X(pool_global_average) X(pool_global_average_backward) \
	X(pool_global_max) X(pool_global_max_backward)

#define ELEMENTWISE_KERNELS(X) \
	X(elementwise_add) X(elementwise_check) X(elementwise_copy) X(elementwise_copies)

#define TOKENS_KERNELS(X) \
	X(tokens_forward) X(tokens_backward) X(tokens_take) X(tokens_take_backward)
/* clang-format on */

#define KERNEL_TABLE_DECLARE(name) extern const struct gpu_kernel name##_kernels[KERNEL_INSTANCES];
NORM_KERNELS(KERNEL_TABLE_DECLARE)
LAYER_NORM_KERNELS(KERNEL_TABLE_DECLARE)
SCALE_ADD_KERNELS(KERNEL_TABLE_DECLARE)
POOL_KERNELS(KERNEL_TABLE_DECLARE)
ELEMENTWISE_KERNELS(KERNEL_TABLE_DECLARE)
TOKENS_KERNELS(KERNEL_TABLE_DECLARE)
extern const struct gpu_kernel tokens_resize_kernel, tokens_resize_backward_kernel;

extern const struct gpu_kernel columns_combine_kernel;

/* Blocks of the reducing kernels that fit on a multiprocessor. */
#define NORM_STATISTICS_RESIDENT 4
#define NORM_BACKWARD_RESIDENT   2
#define LAYER_NORM_SUMS_RESIDENT 2
#define POOL_REDUCE_RESIDENT     2

extern const struct gpu_kernel norm_finalize_kernel;
extern const struct gpu_kernel norm_running_kernel;
extern const struct gpu_kernel norm_backward_finalize_kernel;

/* Rows or columns of the score matrix per block: in fp32 arithmetic, and on tensor cores. */
#define ATTENTION_TILE        32
#define ATTENTION_MATRIX_TILE 128

/* In order: any element; fp16; bf16; fp16 with dropout; bf16 with dropout. attention.c selects. */
extern const struct gpu_kernel attention_forward_kernels[5];
extern const struct gpu_kernel attention_queries_kernels[5];
extern const struct gpu_kernel attention_keys_kernels[5];

/* Packs per block of elementwise_copies(): FLAT_UNROLL per thread. */
#define ELEMENTWISE_BLOCK 1024

extern const struct gpu_kernel elementwise_copy_columns_kernel;
extern const struct gpu_kernel elementwise_fold_kernel;

extern const struct gpu_kernel scale_add_gates_kernel;

extern const struct gpu_kernel step_store_kernel;
extern const struct gpu_kernel input_normalize_kernel;
extern const struct gpu_kernel input_resample_kernel;
extern const struct gpu_kernel deferred_finish_kernel;
extern const struct gpu_kernel loss_softmax_kernel;
extern const struct gpu_kernel loss_any_kernel;
extern const struct gpu_kernel loss_total_kernel;
extern const struct gpu_kernel loss_count_kernel;
extern const struct gpu_kernel loss_share_kernel;

extern const struct gpu_kernel orthogonalize_begin_kernel;
extern const struct gpu_kernel orthogonalize_combine_kernel;
extern const struct gpu_kernel orthogonalize_end_kernel;

extern const struct gpu_kernel update_squares_kernel;
extern const struct gpu_kernel update_decide_kernel;
extern const struct gpu_kernel update_condition_kernel;
extern const struct gpu_kernel update_direct_kernel;
extern const struct gpu_kernel update_measure_kernel;
extern const struct gpu_kernel update_total_kernel;
extern const struct gpu_kernel update_apply_kernel;
extern const struct gpu_kernel update_perturb_kernel;
extern const struct gpu_kernel update_restore_kernel;
extern const struct gpu_kernel update_average_kernel;

#ifdef __cplusplus
}
#endif

#endif
