/*
 * A cuBLASLt that multiplies immediately, on the host, with cuBLASLt's conventions: column-major
 * matrices, each optionally transposed, and a bias along the rows. It is loaded instead of the real
 * library and has the same interface. Like the real one it plans for all elements, requires a bias
 * of the result's type, and its heuristic derives a bias's alignment from the pointer. It computes
 * only in fp32.
 */
#include <cublasLt.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT_MAX 256 /* bytes */

struct layout {
	cudaDataType type;
	uint64_t rows, columns;
	int64_t stride;
};

struct operation {
	cublasOperation_t a, b;
	cublasLtEpilogue_t epilogue;
	cudaDataType bias_type;
	const float *bias;
};

#pragma GCC visibility push(default)

size_t cublasLtGetVersion(void)
{
	return CUBLAS_VERSION;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
	return "a status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
	*handle = malloc(1);
	return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
	free(handle);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
					  uint64_t rows, uint64_t columns, int64_t stride)
{
	struct layout *made = malloc(sizeof(*made));

	if (!made)
		return CUBLAS_STATUS_ALLOC_FAILED;
	*made = (struct layout){type, rows, columns, stride};
	*layout = (cublasLtMatrixLayout_t)made;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
	free(layout);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
					cudaDataType_t scale)
{
	*desc = calloc(1, sizeof(struct operation));
	return *desc ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
	free(desc);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
					      cublasLtMatmulDescAttributes_t name,
					      const void *value, size_t size)
{
	struct operation *operation = (struct operation *)desc;

	switch (name) {
	case CUBLASLT_MATMUL_DESC_TRANSA:
		memcpy(&operation->a, value, size);
		break;
	case CUBLASLT_MATMUL_DESC_TRANSB:
		memcpy(&operation->b, value, size);
		break;
	case CUBLASLT_MATMUL_DESC_EPILOGUE:
		memcpy(&operation->epilogue, value, size);
		break;
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
		memcpy(&operation->bias, value, size);
		break;
	case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
		memcpy(&operation->bias_type, value, size);
		break;
	default:
		return CUBLAS_STATUS_INVALID_VALUE;
	}
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
	*preference = malloc(1);
	return *preference ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
	free(preference);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
						    cublasLtMatmulPreferenceAttributes_t name,
						    const void *value, size_t size)
{
	return CUBLAS_STATUS_SUCCESS;
}

/* Returns the rows or columns of an operand after the operation's transposition. */
static uint64_t operand_size(const struct layout *layout, cublasOperation_t operation, bool rows)
{
	return rows == (operation == CUBLAS_OP_N) ? layout->rows : layout->columns;
}

static float element(const float *matrix, const struct layout *layout, cublasOperation_t operation,
		     uint64_t row, uint64_t column)
{
	return operation == CUBLAS_OP_N ? matrix[column * (uint64_t)layout->stride + row]
					: matrix[row * (uint64_t)layout->stride + column];
}

/*
 * Supported types: 16-bit products give their own type or fp32, and the bias has the result's type.
 */
static bool has_types(const struct operation *operation, const struct layout *a,
		      const struct layout *b, const struct layout *d)
{
	return a->type == b->type && (d->type == a->type || d->type == CUDA_R_32F) &&
	       (operation->epilogue != CUBLASLT_EPILOGUE_BIAS || operation->bias_type == d->type);
}

static bool fits(const struct operation *operation, const struct layout *a, const struct layout *b,
		 const struct layout *d)
{
	return operand_size(a, operation->a, true) == d->rows &&
	       operand_size(b, operation->b, false) == d->columns &&
	       operand_size(a, operation->a, false) == operand_size(b, operation->b, true) &&
	       a->stride >= (int64_t)a->rows && b->stride >= (int64_t)b->rows &&
	       d->stride >= (int64_t)d->rows;
}

/* Returns the bias's alignment, up to ALIGNMENT_MAX. */
static uint64_t alignment(const struct operation *operation)
{
	uint64_t address = (uintptr_t)operation->bias | ALIGNMENT_MAX;

	return operation->epilogue == CUBLASLT_EPILOGUE_BIAS ? address & -address : 1;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
					      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
					      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
					      cublasLtMatmulPreference_t preference, int capacity,
					      cublasLtMatmulHeuristicResult_t results[], int *count)
{
	*count = 1;
	if (!has_types((struct operation *)desc, (struct layout *)a, (struct layout *)b,
		       (struct layout *)d))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	memset(results, 0, sizeof(results[0]));
	results[0].workspaceSize = 64;
	results[0].algo.data[0] = alignment((struct operation *)desc);
	return fits((struct operation *)desc, (struct layout *)a, (struct layout *)b,
		    (struct layout *)d)
		       ? CUBLAS_STATUS_SUCCESS
		       : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
			      const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
			      cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
			      cublasLtMatrixLayout_t c_layout, void *d,
			      cublasLtMatrixLayout_t d_layout,
			      const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t size,
			      cudaStream_t stream)
{
	const struct operation *operation = (struct operation *)desc;
	const struct layout *la = (struct layout *)a_layout, *lb = (struct layout *)b_layout;
	const struct layout *lc = (struct layout *)c_layout, *ld = (struct layout *)d_layout;
	uint64_t inner = operand_size(la, operation->a, false);

	if (la->type != CUDA_R_32F || !fits(operation, la, lb, ld) || !c || !workspace ||
	    size != 64 || alignment(operation) < algorithm->data[0])
		return CUBLAS_STATUS_INVALID_VALUE;
	for (uint64_t column = 0; column < ld->columns; column++)
		for (uint64_t row = 0; row < ld->rows; row++) {
			float *to = (float *)d + column * (uint64_t)ld->stride + row, sum = 0;

			for (uint64_t i = 0; i < inner; i++)
				sum += element(a, la, operation->a, row, i) *
				       element(b, lb, operation->b, i, column);
			sum *= *(const float *)alpha;
			if (*(const float *)beta != 0)
				sum += *(const float *)beta *
				       ((const float *)c)[column * (uint64_t)lc->stride + row];
			if (operation->epilogue == CUBLASLT_EPILOGUE_BIAS)
				sum += operation->bias[row];
			*to = sum;
		}
	return CUBLAS_STATUS_SUCCESS;
}
#pragma GCC visibility pop
