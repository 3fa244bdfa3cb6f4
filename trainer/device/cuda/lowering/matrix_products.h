/*
 * The products of matrices that a step of an optimizer by_matrix takes (optimizers/updates.h): X X'
 * or X' X, whichever is smaller, its square, and what both make times X. Both sides of X are padded
 * to multiples of MATRIX_SIDE, so that tensor cores take rows of any length; the zeros there stay.
 */
#pragma once

#include "trainer/device/backend.h"
#include "trainer/device/cuda/conv.h"

#define MATRIX_SIDE 8

enum matrix_product { MATRIX_GRAM, MATRIX_SQUARE, MATRIX_APPLY, MATRIX_PRODUCTS };

struct matrix_shape {
	uint32_t rows, columns; /* of X, padded */
	uint32_t side;          /* the smaller one: of the gram matrix */
};

/* Of a parameter that is a matrix (device_param_matrix()). */
struct matrix_shape matrix_shape_of(const struct device_param *param);
/* X and its polynomial are of `element`, the square of fp32. */
void matrix_problem_init(struct matmul_problem *problem, const struct matrix_shape *shape,
			 enum matrix_product product, enum cuda_element element);
/* Where X is the right factor of the last product, which is where it is wide. */
bool matrix_is_wide(const struct matrix_shape *shape);

/* Bytes: two of X, between which products go back and forth, and three of its sides'. */
uint64_t matrix_x_bytes(const struct matrix_shape *shape, enum cuda_element element);
uint64_t matrix_gram_bytes(const struct matrix_shape *shape, enum cuda_element element);
