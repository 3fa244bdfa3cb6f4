/*
 * Between the files that queue operations: from roles to the arguments of kernels/, family by
 * family.
 */
#pragma once

#include "trainer/device/cuda/cuda.h"

/* Where an operand lies; NULL: the operation has none of that role. */
void *cuda_at(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role);
/* Whether this step adds to a parameter's gradient instead of storing it. */
bool cuda_adds(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role);
uint32_t cuda_channels(const struct cuda_op *op, enum cuda_role role);
uint64_t cuda_rows(const struct cuda_tensor *tensor);

/* Queue one operation of that kind: norms (execute_norm.c), pools (execute_pooling.c). */
typedef int cuda_executor(struct cuda_graph *graph, const struct cuda_op *op);
cuda_executor cuda_execute_statistics;
cuda_executor cuda_execute_norm_finalize;
cuda_executor cuda_execute_norm_running;
cuda_executor cuda_execute_apply;
cuda_executor cuda_execute_backward;
cuda_executor cuda_execute_bias_gradient;
cuda_executor cuda_execute_norm_backward_finalize;
cuda_executor cuda_execute_norm_backward_apply;

cuda_executor cuda_execute_max_pool;
cuda_executor cuda_execute_max_pool_backward;
cuda_executor cuda_execute_max_pool_norm_reduce;
cuda_executor cuda_execute_max_pool_norm_apply;
cuda_executor cuda_execute_average_pool;
cuda_executor cuda_execute_average_pool_backward;
cuda_executor cuda_execute_global;
