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
 * Copies `from` [rows][from_columns] to `to` [rows][to_columns], converting between any two element
 * types, rounded to nearest even. Columns that `from` lacks become 0; columns that `to` lacks are
 * dropped. With `add`, adds to `to` instead of storing. Used for weight gradients (conversion
 * without padding), weights (conversion with padding), and tensors that the host reads or writes.
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
 * Several small copies in one launch, since each hardly takes longer than the launch itself. All
 * copies have the same element types, no padding, and disjoint destinations.
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
 * Folds a batch norm into the preceding convolution, for evaluation:
 * - scale = gamma / sqrt(running_var + epsilon)
 * - to [k][positions][to_columns] = w scale, with 0 for columns that w lacks
 * - bias = beta - running_mean scale
 * Reads w once, writes `to` once.
 */
struct elementwise_fold {
	const void *w; /* [k][positions][from_columns] of w_element; positions = R S */
	enum cuda_element w_element;
	const float *gamma, *beta, *running_mean, *running_var; /* [k] */
	float epsilon;
	void *to;
	void *bias; /* [k] */
	uint32_t k, positions, from_columns, to_columns;
	enum cuda_element to_element, bias_element;
};
int elementwise_fold(const struct kernel_device *device, const struct elementwise_fold *arguments);

/*
 * Searches for non-finite elements: *first = min(*first, tensor << 40 | index of the tensor's first
 * non-finite element). Initialize *first to ELEMENTWISE_FINITE. After any number of checks it
 * identifies the lowest tensor number and the first such element of that tensor. Reads x once.
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
