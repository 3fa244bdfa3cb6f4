#include "trainer/device/cuda/lowering/matrix_products.h"

static uint32_t padded(uint32_t side)
{
	return (side + MATRIX_SIDE - 1) / MATRIX_SIDE * MATRIX_SIDE;
}

struct matrix_shape matrix_shape_of(const struct device_param *param)
{
	struct matrix_shape shape = {padded(device_param_matrix(param)),
				     padded(device_param_row(param)), 0};

	shape.gram_side = shape.rows < shape.columns ? shape.rows : shape.columns;
	return shape;
}

bool matrix_is_wide(const struct matrix_shape *shape)
{
	return shape->rows <= shape->columns;
}

void matrix_problem_init(struct matmul_problem *problem, const struct matrix_shape *shape,
			 enum matrix_product product, enum cuda_element element)
{
	bool wide = matrix_is_wide(shape);

	matmul_problem_init(problem);
	problem->rows = problem->columns = problem->inner = shape->gram_side;
	problem->element = problem->result = element;
	switch (product) {
	case MATRIX_GRAM:
		problem->inner = wide ? shape->columns : shape->rows;
		problem->transposed_a = !wide;
		problem->transposed_b = wide;
		break;
	case MATRIX_SQUARE:
		problem->result = CUDA_F32;
		break;
	case MATRIX_APPLY:
		problem->rows = shape->rows;
		problem->columns = shape->columns;
		break;
	case MATRIX_PRODUCTS:
		break;
	}
}

uint64_t matrix_x_bytes(const struct matrix_shape *shape, enum cuda_element element)
{
	return (uint64_t)shape->rows * shape->columns * cuda_element_size(element);
}

uint64_t matrix_gram_bytes(const struct matrix_shape *shape, enum cuda_element element)
{
	return (uint64_t)shape->gram_side * shape->gram_side * cuda_element_size(element);
}
