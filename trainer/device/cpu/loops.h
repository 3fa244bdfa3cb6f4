/*
 * The kernels of kernels.h, run in parallel by the thread pool. A tensor is [rows][channels]. Rows
 * are split into tasks by their number only; each task has private sums, which are added in task
 * order, so results do not depend on the number of threads or on scheduling.
 */
#pragma once

#include "trainer/device/cpu/kernels.h"
#include "trainer/device/cpu/thread_pool.h"

#define LOOPS_TASKS_MAX 32

/*
 * Channel layout for kernels: small channel counts are repeated so that `fold` positions form one
 * row.
 */
struct columns {
	uint32_t channels;
	uint32_t fold;  /* positions per row, 1 when channels > KERNEL_WIDTH_MAX / 2 */
	uint32_t width; /* channels * fold: elements of every per-column array */
};

struct loops {
	struct thread_pool *thread_pool;
	const struct kernels *kernels;
	double *partial; /* [LOOPS_TASKS_MAX][2][channels_max] */
	uint32_t channels_max;
};

void loops_columns_init(struct columns *columns, uint32_t channels);
/* Fills ret_repeated[width] with `fold` copies of values[channels]. */
void columns_repeat(const struct columns *columns, const float *values, float *ret_repeated);

/* Allocates the private sums for up to this number of channels. */
int loops_reserve(struct loops *loops, uint32_t channels);
void loops_deinit(struct loops *loops);

/*
 * Sums over rows of x - shift and of (x - shift)^2; shift is [width], the results are [channels].
 */
void loops_statistics(struct loops *loops, const struct columns *columns, size_t rows,
		      const void *x, enum element element, const float *shift, double *ret_sum,
		      double *ret_square);
void loops_apply(struct loops *loops, const struct columns *columns, size_t rows,
		 const struct apply_args *args);
/*
 * ret_sum, ret_product: [channels]; both NULL to compute only dz; ret_product NULL without
 * args->mean.
 */
void loops_reduce(struct loops *loops, const struct columns *columns, size_t rows,
		  const struct reduce_args *args, double *ret_sum, double *ret_product);
void loops_dx(struct loops *loops, const struct columns *columns, size_t rows,
	      const struct dx_args *args);
void loops_layer_norm(struct loops *loops, size_t rows, uint32_t channels,
		      const struct layer_norm_args *args);
/* ret_dbeta, ret_dgamma: [channels], or both NULL */
void loops_layer_norm_backward(struct loops *loops, size_t rows, uint32_t channels,
			       const struct layer_norm_backward_args *args, double *ret_dbeta,
			       double *ret_dgamma);
void loops_add(struct loops *loops, void *to, const void *from, enum element element, size_t count);
/* False if any element is not finite. */
bool loops_finite(struct loops *loops, const void *x, enum element element, size_t count);
