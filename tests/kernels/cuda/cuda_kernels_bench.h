/* Timing of kernels, and placement of arrays while they are timed. For cuda_kernels_test.c. */
#pragma once

#include "tests/kernels/cuda/cuda_kernels_test.h"

/*
 * Copies meaningful input (indices, tables) to device memory that all repetitions share; returns
 * its address.
 */
void *bench_keep(const void *bytes, uint64_t count);
/*
 * Places the array in the current slice if it has no memory yet, and counts its bytes as moved
 * `times` times.
 */
void bench_operand(struct array *array, unsigned times);
/*
 * Prints the cost of the cases that `text` selects. `only` names the element of activations (NULL:
 * f16). Returns the exit status, 77 if there is no GPU.
 */
int kernels_bench(const struct kernel_case *cases, unsigned count, const char *only,
		  const char *text);
