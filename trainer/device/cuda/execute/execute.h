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
/*
 * What the operation's kernels may write besides: NULL unless its row says that they take a
 * workspace, so that a row which forgets it fails whatever runs the operation.
 */
void *cuda_workspace(const struct cuda_graph *graph, const struct cuda_op *op);
uint64_t cuda_rows(const struct cuda_tensor *tensor);

/* Queues one operation of the kinds whose rows name it, in the file of its family, execute*.c. */
#define OPERATION(kind, executor, ...)                                                             \
	int cuda_execute_##executor(struct cuda_graph *graph, const struct cuda_op *op);
#include "trainer/device/cuda/lowering/operations.h"
#undef OPERATION
