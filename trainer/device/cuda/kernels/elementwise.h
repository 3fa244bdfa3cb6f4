/* Sums, conversions and padding, weight folding, and the search for non-finite elements. */
#ifndef TRAINER_DEVICE_CUDA_ELEMENTWISE_H
#define TRAINER_DEVICE_CUDA_ELEMENTWISE_H

#include "trainer/device/cuda/kernels/row_reduce.h"

/* y = a + b over `count` elements of E; y may be a or b. Reads a and b once, writes y once. */
struct elementwise_add {
	const void *a, *b;
	void *y;
	uint64_t count;
	enum cuda_element element;
	uint64_t packs; /* filled in by the launcher */
};
int elementwise_add(const struct kernel_device *device, const struct elementwise_add *arguments);

/*
 * to [rows][to_columns] = from [rows][from_columns], between any two elements, rounded to nearest
 * even. Missing columns become 0, excess columns are dropped. add: to += from. For gradients of
 * weights (converted, without padding), weights (converted, padded), and values read and written.
 */
struct elementwise_copy {
	const void *from;
	void *to;
	uint64_t rows;
	uint32_t from_columns, to_columns;
	enum cuda_element from_element, to_element;
	bool add;
	uint64_t packs; /* filled in by the launcher */
};
int elementwise_copy(const struct kernel_device *device, const struct elementwise_copy *arguments);

/*
 * Several copies in one launch, for small ones that hardly take longer than a launch: all between
 * the same elements, without padding, to disjoint destinations.
 */
#define ELEMENTWISE_COPIES_MAX 16
struct elementwise_copies {
	struct elementwise_copy list[ELEMENTWISE_COPIES_MAX];
	uint32_t count;
	/* set by the launcher: first block of each copy */
	uint32_t blocks[ELEMENTWISE_COPIES_MAX];
};
int elementwise_copies(const struct kernel_device *device,
		       const struct elementwise_copies *arguments);

/*
 * Evaluation: to [k][positions][to_columns] E = w scale_k, bias = beta - mean scale, scale = gamma
 * / sqrt(variance + epsilon); columns missing in w become 0. Reads w once, writes `to` once.
 */
struct elementwise_fold {
	const float *w; /* [k][positions][from_columns]; positions = R S */
	const float *gamma, *beta, *running_mean, *running_var; /* [k] */
	float epsilon;
	void *to;
	void *bias; /* [k] */
	uint32_t k, positions, from_columns, to_columns;
	enum cuda_element to_element, bias_element;
};
int elementwise_fold(const struct kernel_device *device, const struct elementwise_fold *arguments);

/*
 * Searches for non-finite elements: *first = min(*first, tensor << 40 | index of the first one).
 * Start with *first = ELEMENTWISE_FINITE; after any number of checks it holds the lowest tensor
 * number and its element. Reads x once.
 */
#define ELEMENTWISE_FINITE UINT64_MAX
struct elementwise_check {
	const void *x;  /* [count] E */
	uint64_t count; /* below 2^40 */
	enum cuda_element element;
	uint32_t tensor; /* below 2^24 - 1 */
	uint64_t *first; /* in device memory */
	uint64_t packs;  /* filled in by the launcher */
};
int elementwise_check(const struct kernel_device *device,
		      const struct elementwise_check *arguments);

#endif
