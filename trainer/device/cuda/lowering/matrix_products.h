/*
 * Matrix products in an update of a by_matrix optimizer (optimizers/updates.h). With G the smaller
 * of the gram matrices X X' and X' X, they are G, its square, and the product of X with a
 * polynomial of both. Both sides of X are zero-padded to multiples of MATRIX_SIDE, so that tensor
 * cores can process rows of any length. The products keep the padding zero.
 */
#pragma once

#include "trainer/device/backend.h"
#include "trainer/device/cuda/conv.h"

#define MATRIX_SIDE 8

enum matrix_product { MATRIX_GRAM, MATRIX_SQUARE, MATRIX_APPLY, MATRIX_PRODUCTS };

struct matrix_shape {
	uint32_t rows, columns; /* size of X with padding */
	uint32_t gram_side;     /* side of the gram matrix: the smaller of the two */
};

/* `param` must be a matrix (device_param_matrix()). */
struct matrix_shape matrix_shape_of(const struct device_param *param);
/* X, the gram matrix and the polynomial have type `element`; the square is fp32. */
void matrix_problem_init(struct matmul_problem *problem, const struct matrix_shape *shape,
			 enum matrix_product product, enum cuda_element element);
/* True if X is the right factor of MATRIX_APPLY, which is the case if rows <= columns. */
bool matrix_is_wide(const struct matrix_shape *shape);

/*
 * Bytes of one buffer. An update needs two buffers of the size of X, between which products
 * alternate, and three of the size of the gram matrix: gram matrix and polynomial of `element`,
 * square in fp32. An fp32 buffer takes the bytes for CUDA_F32.
 */
uint64_t matrix_x_bytes(const struct matrix_shape *shape, enum cuda_element element);
uint64_t matrix_gram_bytes(const struct matrix_shape *shape, enum cuda_element element);
