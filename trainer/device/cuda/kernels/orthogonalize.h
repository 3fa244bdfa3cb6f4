/*
 * Steps of by_matrix optimizers (optimizers/updates.h) around the matrix products: scale a matrix,
 * convert it to their element and zero-pad both sides, which iterations preserve; evaluate a
 * polynomial of a matrix and its square; and copy the result back. No workspace; each reads and
 * writes every operand once.
 */
#ifndef TRAINER_DEVICE_CUDA_ORTHOGONALIZE_H
#define TRAINER_DEVICE_CUDA_ORTHOGONALIZE_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/optimizers/updates.h"

struct orthogonalize_matrix {
	float *gradient;       /* [rows][columns] */
	void *x;               /* [x_rows][x_columns] of element */
	const double *squares; /* sum of squares of the gradient, one number in device memory */
	const struct update_decision *decision; /* in device memory; no-op unless `made` */
	uint32_t rows, columns, x_rows, x_columns;
	enum cuda_element element;
};
/* x = gradient / max(its norm, UPDATE_MATRIX_NORM_MIN), zero-padded */
int orthogonalize_begin(const struct kernel_device *device,
			const struct orthogonalize_matrix *arguments);
/* gradient = x */
int orthogonalize_end(const struct kernel_device *device,
		      const struct orthogonalize_matrix *arguments);

struct orthogonalize_combine {
	const void *gram;    /* [side][side] of element */
	const float *square; /* [side][side], the square of gram */
	void *product;       /* [side][side] of element: a I + b gram + c square */
	uint32_t side;
	enum cuda_element element;
	struct update_polynomial polynomial;
};
int orthogonalize_combine(const struct kernel_device *device,
			  const struct orthogonalize_combine *arguments);

#endif
