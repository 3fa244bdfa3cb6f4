/*
 * The parts of a by_matrix optimizer (optimizers/updates.h) around its matrix products: scaling a
 * gradient matrix, converting it to `element` and zero-padding its rows and columns; evaluating a
 * polynomial of a matrix and its square; copying the result back. The iterations preserve the zero
 * padding. The kernels need no workspace and read and write each operand once.
 */
#ifndef TRAINER_DEVICE_CUDA_ORTHOGONALIZE_H
#define TRAINER_DEVICE_CUDA_ORTHOGONALIZE_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/optimizers/updates.h"

struct orthogonalize_matrix {
	float *gradient;       /* [rows][columns] */
	void *x;               /* [x_rows][x_columns] of type `element` */
	const double *squares; /* in device memory: sum of squares of the gradient */
	const struct update_decision *decision; /* in device memory; kernels return unless `made` */
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
	const void *gram;    /* [gram_side][gram_side] of type `element` */
	const float *square; /* [gram_side][gram_side] fp32: gram times gram */
	void *product;       /* [gram_side][gram_side] of type `element`: a I + b gram + c square */
	uint32_t gram_side;
	enum cuda_element element;
	struct update_polynomial polynomial;
};
int orthogonalize_combine(const struct kernel_device *device,
			  const struct orthogonalize_combine *arguments);

#endif
