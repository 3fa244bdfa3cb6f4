/*
 * Orthogonalization for by_matrix optimizers (optimizers/updates.h); counterpart of cpu/matrices.c.
 * Computes in the device's element type, with fp32 sums. Rounding X, whose norm is near 1, affects
 * an update as little as the iteration itself, whose singular values end only near 1. With fp32
 * elements, products are computed in fp32 or tf32.
 *
 * Processes the matrices one after the other, in buffers sized for the largest. If an update is
 * skipped, the buffers contain arbitrary values, and nothing reads the products.
 */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/kernels/orthogonalize.h"
#include "trainer/device/cuda/lowering/matrix_products.h"

#include <errno.h>
#include <stdlib.h>

struct cuda_matrix {
	const struct device_param *param;
	uint32_t first; /* index of the matrix's first chunk */
	struct matrix_shape shape;
	/* plans, owned by the first matrix of the same shape */
	struct matmul_plan *plans[MATRIX_PRODUCTS];
	bool owns;
};

struct cuda_matrices {
	struct cuda_device *device;
	struct cuda_matrix *list; /* [count] */
	uint32_t count;
	void *x[2], *gram, *product, *workspace; /* in device memory */
	float *square;
};

void cuda_matrices_free(struct cuda_matrices *matrices)
{
	if (!matrices)
		return;
	const struct matmul_engines *engines = &matrices->device->engines.matmul;

	for (uint32_t i = 0; i < matrices->count; i++)
		for (int product = 0; product < MATRIX_PRODUCTS && matrices->list[i].owns;
		     product++)
			engines->plan_free(matrices->list[i].plans[product]);
	gpu_free(matrices->x[0]);
	gpu_free(matrices->x[1]);
	gpu_free(matrices->gram);
	gpu_free(matrices->product);
	gpu_free(matrices->square);
	gpu_free(matrices->workspace);
	free(matrices->list);
	free(matrices);
}

/* Returns the first matrix of the same shape; NULL if there is none before this one. */
static const struct cuda_matrix *matrices_like(const struct cuda_matrices *matrices,
					       const struct matrix_shape *shape)
{
	for (uint32_t i = 0; i < matrices->count; i++) {
		const struct matrix_shape *other = &matrices->list[i].shape;

		if (other->rows == shape->rows && other->columns == shape->columns)
			return &matrices->list[i];
	}
	return NULL;
}

static int matrices_plan(struct cuda_matrices *matrices, struct cuda_matrix *matrix,
			 uint64_t *workspace_bytes)
{
	struct cuda_device *device = matrices->device;
	const struct matmul_engines *engines = &device->engines.matmul;

	matrix->owns = true;
	for (int product = 0; product < MATRIX_PRODUCTS; product++) {
		struct matmul_problem problem;
		struct conv_plan_info info;
		char name[256];

		matrix_problem_init(&problem, &matrix->shape, (enum matrix_product)product,
				    device->element);
		int r = engines->plan(engines->state, &problem, &matrix->plans[product]);
		if (r < 0) {
			matrix->plans[product] = NULL;
			matmul_problem_name(&problem, name, sizeof(name));
			return device_fail(&device->base, r == -ENOENT ? -ENOTSUP : r,
					   "update of %s: the library has no plan for %s: %s",
					   matrix->param->spec.name, name,
					   engines->error(engines->state));
		}
		engines->plan_info(matrix->plans[product], &info);
		if (info.workspace_bytes > *workspace_bytes)
			*workspace_bytes = info.workspace_bytes;
	}
	return 0;
}

static int matrices_add(struct cuda_matrices *matrices, const struct device_param *param,
			uint32_t first, uint64_t *workspace_bytes)
{
	struct cuda_matrix *matrix = &matrices->list[matrices->count];

	matrix->param = param;
	matrix->first = first;
	matrix->shape = matrix_shape_of(param);
	const struct cuda_matrix *like = matrices_like(matrices, &matrix->shape);
	matrices->count++;
	if (!like)
		return matrices_plan(matrices, matrix, workspace_bytes);
	for (int product = 0; product < MATRIX_PRODUCTS; product++)
		matrix->plans[product] = like->plans[product];
	return 0;
}

static int matrices_add_all(struct cuda_matrices *matrices, const struct device_params *params,
			    uint64_t *workspace_bytes)
{
	uint32_t first = 0;
	int r = 0;

	for (size_t i = 0; i < params->count && r == 0; i++) {
		const struct device_param *param = params->items[i];

		if (device_param_matrix(param))
			r = matrices_add(matrices, param, first, workspace_bytes);
		first += (uint32_t)((param->elements + UPDATE_CHUNK_MAX - 1) / UPDATE_CHUNK_MAX);
	}
	return r;
}

static int matrices_allocate(struct cuda_matrices *matrices, uint64_t workspace_bytes)
{
	enum cuda_element element = matrices->device->element;
	uint64_t x = 0, gram = 0, square = 0;
	int r = 0;

	for (uint32_t i = 0; i < matrices->count; i++) {
		const struct matrix_shape *shape = &matrices->list[i].shape;

		if (matrix_x_bytes(shape, element) > x)
			x = matrix_x_bytes(shape, element);
		if (matrix_gram_bytes(shape, element) > gram)
			gram = matrix_gram_bytes(shape, element);
		if (matrix_gram_bytes(shape, CUDA_F32) > square)
			square = matrix_gram_bytes(shape, CUDA_F32);
	}
	matrices->x[0] = cuda_allocate(&r, x);
	matrices->x[1] = cuda_allocate(&r, x);
	matrices->gram = cuda_allocate(&r, gram);
	matrices->product = cuda_allocate(&r, gram);
	matrices->square = cuda_allocate(&r, square);
	matrices->workspace = cuda_allocate(&r, workspace_bytes + CONV_ALIGNMENT);
	return cuda_check(matrices->device, r, "memory for the products of the update");
}

int cuda_matrices_new(struct device_params *params, struct cuda_matrices **ret_matrices)
{
	uint64_t workspace_bytes = 0;

	if (!params->has_optimizer || !(DEVICE_OPTIMIZERS_BY_MATRIX >> params->optimizer.kind & 1))
		return 0;
	struct cuda_matrices *matrices = calloc(1, sizeof(*matrices));
	if (!matrices)
		return -ENOMEM;
	matrices->device = (struct cuda_device *)params->device;
	matrices->list = calloc(params->count + 1, sizeof(*matrices->list));
	int r = matrices->list ? matrices_add_all(matrices, params, &workspace_bytes) : -ENOMEM;
	if (r == 0 && matrices->count)
		r = matrices_allocate(matrices, workspace_bytes);
	if (r < 0) {
		cuda_matrices_free(matrices);
		return r;
	}
	*ret_matrices = matrices;
	return 0;
}

/* d = product of a and b. */
static int matrix_multiply(const struct cuda_matrices *matrices, const struct cuda_matrix *matrix,
			   enum matrix_product product, const void *a, const void *b, void *d)
{
	struct cuda_device *device = matrices->device;
	const struct matmul_engines *engines = &device->engines.matmul;
	struct matmul_arguments arguments = {
		.a = a, .b = b, .d = d, .workspace = matrices->workspace};
	int r = engines->execute(engines->state, matrix->plans[product], &arguments,
				 device->compute);

	return r < 0 ? device_fail(&device->base, r, "update of %s: %s", matrix->param->spec.name,
				   engines->error(engines->state))
		     : 0;
}

/* One iteration, from x[0] to x[1]. */
static int matrix_step(const struct cuda_matrices *matrices, const struct cuda_matrix *matrix,
		       void *const x[2], struct update_polynomial polynomial)
{
	bool wide = matrix_is_wide(&matrix->shape);
	const struct orthogonalize_combine combine = {
		.gram = matrices->gram,
		.square = matrices->square,
		.product = matrices->product,
		.gram_side = matrix->shape.gram_side,
		.element = matrices->device->element,
		.polynomial = polynomial,
	};
	int r = matrix_multiply(matrices, matrix, MATRIX_GRAM, x[0], x[0], matrices->gram);

	if (r == 0)
		r = matrix_multiply(matrices, matrix, MATRIX_SQUARE, matrices->gram, matrices->gram,
				    matrices->square);
	if (r == 0)
		r = cuda_check(matrices->device,
			       orthogonalize_combine(&matrices->device->kernels, &combine),
			       "update of a matrix");
	if (r == 0)
		r = matrix_multiply(matrices, matrix, MATRIX_APPLY, wide ? matrices->product : x[0],
				    wide ? x[0] : matrices->product, x[1]);
	return r;
}

static int matrix_queue(const struct cuda_matrices *matrices, const struct cuda_matrix *matrix,
			const struct update *update)
{
	struct orthogonalize_matrix ends = {
		.gradient = cuda_param_slot(matrix->param, DEVICE_GRAD),
		.x = matrices->x[0],
		.squares = update_matrix_squares(update, matrix->first),
		.decision = update->decision,
		.rows = device_param_matrix(matrix->param),
		.columns = device_param_row(matrix->param),
		.x_rows = matrix->shape.rows,
		.x_columns = matrix->shape.columns,
		.element = matrices->device->element,
	};
	struct update_polynomial polynomial = update_polynomial_of(update->optimizer.kind);
	uint32_t steps = update->optimizer.ns_steps;
	struct cuda_device *device = matrices->device;
	int r = cuda_check(device, orthogonalize_begin(&device->kernels, &ends),
			   "update of a matrix");

	for (uint32_t i = 0; i < steps && r == 0; i++) {
		void *const x[2] = {matrices->x[i % 2], matrices->x[(i + 1) % 2]};

		r = matrix_step(matrices, matrix, x, polynomial);
	}
	ends.x = matrices->x[steps % 2];
	return r < 0 ? r
		     : cuda_check(device, orthogonalize_end(&device->kernels, &ends),
				  "update of a matrix");
}

int cuda_queue_matrices(struct device_params *params, const struct update *update)
{
	const struct cuda_params *cuda = params->backend;
	const struct cuda_matrices *matrices = cuda->matrices;
	int r = 0;

	for (uint32_t i = 0; matrices && i < matrices->count && r == 0; i++)
		if (device_param_trains(matrices->list[i].param))
			r = matrix_queue(matrices, &matrices->list[i], update);
	return r;
}
