/* Internal to execute/: translates roles to arguments of kernels/, by family. */
#pragma once

#include "trainer/device/cuda/cuda.h"

/* Address of an operand; NULL if the operation has none of that role. */
void *cuda_at(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role);
/* True if this step adds to a parameter's gradient instead of storing it. */
bool cuda_adds(const struct cuda_graph *graph, const struct cuda_op *op, enum cuda_role role);
/*
 * Workspace of the operation; NULL unless its table row declares one, so that a row that forgets it
 * fails whenever the operation runs.
 */
void *cuda_workspace(const struct cuda_graph *graph, const struct cuda_op *op);
uint64_t cuda_rows(const struct cuda_tensor *tensor);

/* Queues one operation of the kinds whose rows name it, in the file of its family, execute*.c. */
#define OPERATION(kind, executor, ...)                                                             \
	int cuda_execute_##executor(struct cuda_graph *graph, const struct cuda_op *op);
#include "trainer/device/cuda/ops/ops.h"
#undef OPERATION
