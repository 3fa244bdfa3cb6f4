/* Where arrays lie while kernels are timed. For cuda_kernels_test.c. */
#pragma once

#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

/* Memory of the device with these bytes, from which the kernel that is queued reads meaning. */
void *bench_keep(const void *bytes, uint64_t count);
/*
 * Gives the array its piece of the slice, if it has none yet, and counts its bytes as moved so many
 * times.
 */
void bench_operand(struct array *array, unsigned times);
