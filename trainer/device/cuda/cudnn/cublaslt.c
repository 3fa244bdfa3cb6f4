/*
 * Implements struct matmul_engines with cuBLASLt. cuBLASLt is column-major: a row-major matrix is,
 * to cuBLASLt, its transpose. The code therefore computes d' = b' a', which has `columns` rows and
 * `rows` columns, so that the bias has one element per row of d'.
 */
#include "trainer/device/cuda/cudnn/cudnn_engines.h"
#include "trainer/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACE_MAX (32u << 20) /* bytes, cuBLAS's own default on Hopper */

struct cublaslt_engines {
	struct cublaslt_library library;
	cublasLtHandle_t handle; /* NULL without a device */
	size_t workspace_max;
	bool tf32;
	char error[DEVICE_ERROR_MAX];
};

struct matmul_plan {
	struct matmul_problem problem;
	const struct cublaslt_library *library;
	cublasLtMatmulDesc_t operation;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	struct conv_plan_info info;
};

static int cublaslt_fail(struct cublaslt_engines *engines, const struct matmul_problem *problem,
			 cublasStatus_t status, const char *call)
{
	size_t version = engines->library.cublasLtGetVersion();
	char name[160];

	if (status == CUBLAS_STATUS_SUCCESS)
		return 0;
	matmul_problem_name(problem, name, sizeof(name));
	snprintf(engines->error, sizeof(engines->error), "cuBLASLt %zu.%zu.%zu, %s: %s: %s",
		 version / 10000, version / 100 % 100, version % 100, name, call,
		 engines->library.cublasLtGetStatusString(status));
	if (status == CUBLAS_STATUS_NOT_SUPPORTED)
		return -ENOENT;
	return status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -EIO;
}

static cudaDataType_t cublaslt_data_type(enum cuda_element element)
{
	switch (element) {
	case CUDA_F16:
		return CUDA_R_16F;
	case CUDA_BF16:
		return CUDA_R_16BF;
	default:
		return CUDA_R_32F;
	}
}

static cublasStatus_t cublaslt_describe_operation(struct cublaslt_engines *engines,
						  struct matmul_plan *plan)
{
	const struct cublaslt_library *library = &engines->library;
	const struct matmul_problem *problem = &plan->problem;
	bool tf32 = engines->tf32 && problem->element == CUDA_F32;
	cublasOperation_t a = problem->transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasOperation_t b = problem->transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasLtEpilogue_t epilogue =
		problem->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
	cudaDataType_t bias = cublaslt_data_type(problem->result);
	/*
	 * placeholder: the heuristic derives the alignment of the bias from its pointer
	 * (cublasLt.h), and takes NULL as aligned to anything
	 */
	const void *aligned = (const void *)(uintptr_t)CONV_ALIGNMENT;
	const struct {
		cublasLtMatmulDescAttributes_t name;
		const void *value;
		size_t size;
	} attributes[] = {
		{CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof(a)},
		{CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof(b)},
		{CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)},
		{CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof(bias)},
		{CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof(aligned)},
	};
	cublasStatus_t status = library->cublasLtMatmulDescCreate(
		&plan->operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
		CUDA_R_32F);

	/* only a bias has the last two attributes */
	for (size_t i = 0; i < (problem->bias ? 5u : 3u) && status == CUBLAS_STATUS_SUCCESS; i++)
		status = library->cublasLtMatmulDescSetAttribute(
			plan->operation, attributes[i].name, attributes[i].value,
			attributes[i].size);
	return status;
}

/* Describes a row-major matrix [rows][columns]. */
static cublasStatus_t cublaslt_describe_matrix(const struct cublaslt_library *library,
					       cublasLtMatrixLayout_t *ret_layout,
					       enum cuda_element element, uint32_t rows,
					       uint32_t columns)
{
	return library->cublasLtMatrixLayoutCreate(ret_layout, cublaslt_data_type(element), columns,
						   rows, columns);
}

static cublasStatus_t cublaslt_describe(struct cublaslt_engines *engines, struct matmul_plan *plan)
{
	const struct cublaslt_library *library = &engines->library;
	const struct matmul_problem *p = &plan->problem;
	cublasStatus_t status = cublaslt_describe_operation(engines, plan);

	if (status == CUBLAS_STATUS_SUCCESS)
		status = cublaslt_describe_matrix(library, &plan->a, p->element,
						  p->transposed_a ? p->inner : p->rows,
						  p->transposed_a ? p->rows : p->inner);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = cublaslt_describe_matrix(library, &plan->b, p->element,
						  p->transposed_b ? p->columns : p->inner,
						  p->transposed_b ? p->inner : p->columns);
	if (status == CUBLAS_STATUS_SUCCESS)
		status =
			cublaslt_describe_matrix(library, &plan->d, p->result, p->rows, p->columns);
	return status;
}

static cublasStatus_t cublaslt_set_preference(const struct cublaslt_engines *engines,
					      cublasLtMatmulPreference_t preference)
{
	static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
	};
	const struct cublaslt_library *library = &engines->library;
	uint64_t workspace = engines->workspace_max;
	uint32_t alignment = CONV_ALIGNMENT;
	cublasStatus_t status = library->cublasLtMatmulPreferenceSetAttribute(
		preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
		sizeof(workspace));

	for (size_t i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
		status = library->cublasLtMatmulPreferenceSetAttribute(
			preference, alignments[i], &alignment, sizeof(alignment));
	return status;
}

/* Chooses the algorithm that the heuristic ranks first. */
static cublasStatus_t cublaslt_choose(struct cublaslt_engines *engines, struct matmul_plan *plan)
{
	const struct cublaslt_library *library = &engines->library;
	cublasLtMatmulHeuristicResult_t result = {0};
	cublasLtMatmulPreference_t preference;
	int count = 0;
	cublasStatus_t status = library->cublasLtMatmulPreferenceCreate(&preference);

	if (status != CUBLAS_STATUS_SUCCESS)
		return status;
	status = cublaslt_set_preference(engines, preference);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = library->cublasLtMatmulAlgoGetHeuristic(engines->handle, plan->operation,
								 plan->b, plan->a, plan->d, plan->d,
								 preference, 1, &result, &count);
	library->cublasLtMatmulPreferenceDestroy(preference);
	if (status == CUBLAS_STATUS_SUCCESS && !count)
		status = CUBLAS_STATUS_NOT_SUPPORTED;
	if (status == CUBLAS_STATUS_SUCCESS)
		status = result.state;
	plan->algorithm = result.algo;
	plan->info.workspace_bytes = result.workspaceSize;
	return status;
}

static void cublaslt_plan_free(struct matmul_plan *plan)
{
	if (!plan)
		return;
	if (plan->d)
		plan->library->cublasLtMatrixLayoutDestroy(plan->d);
	if (plan->b)
		plan->library->cublasLtMatrixLayoutDestroy(plan->b);
	if (plan->a)
		plan->library->cublasLtMatrixLayoutDestroy(plan->a);
	if (plan->operation)
		plan->library->cublasLtMatmulDescDestroy(plan->operation);
	free(plan);
}

static int cublaslt_plan(void *state, const struct matmul_problem *problem,
			 struct matmul_plan **ret_plan)
{
	struct cublaslt_engines *engines = state;
	struct matmul_plan *plan = calloc(1, sizeof(*plan));

	if (!plan)
		return -ENOMEM;
	plan->problem = *problem;
	plan->library = &engines->library;
	/* cuBLASLt reduces in a fixed order as long as device and configuration are the same */
	plan->info.deterministic = true;
	int r = cublaslt_fail(engines, problem, cublaslt_describe(engines, plan), "describing it");
	if (r == 0 && engines->handle)
		r = cublaslt_fail(engines, problem, cublaslt_choose(engines, plan),
				  "cublasLtMatmulAlgoGetHeuristic");
	if (r < 0) {
		cublaslt_plan_free(plan);
		return r;
	}
	if (!engines->handle)
		plan->info.workspace_bytes = engines->workspace_max;
	snprintf(plan->info.engine, sizeof(plan->info.engine), "cublasLt%s",
		 engines->handle ? "" : " (chosen on the GPU)");
	*ret_plan = plan;
	return 0;
}

static void cublaslt_plan_info(const struct matmul_plan *plan, struct conv_plan_info *ret_info)
{
	*ret_info = plan->info;
}

static int cublaslt_execute(void *state, struct matmul_plan *plan,
			    const struct matmul_arguments *arguments, gpu_stream stream)
{
	struct cublaslt_engines *engines = state;
	const struct cublaslt_library *library = &engines->library;
	const float alpha = 1, beta = plan->problem.residual ? 1 : 0;
	/* without a residual, beta is 0 and c is not read */
	const void *c = plan->problem.residual ? arguments->residual : arguments->d;
	cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

	if (!engines->handle)
		return cublaslt_fail(engines, &plan->problem, CUBLAS_STATUS_NOT_INITIALIZED,
				     "executed without a device");
	if (plan->problem.bias)
		status = library->cublasLtMatmulDescSetAttribute(
			plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &arguments->bias,
			sizeof(arguments->bias));
	if (status == CUBLAS_STATUS_SUCCESS)
		status = library->cublasLtMatmul(
			engines->handle, plan->operation, &alpha, arguments->b, plan->b,
			arguments->a, plan->a, &beta, c, plan->d, arguments->d, plan->d,
			&plan->algorithm, arguments->workspace, plan->info.workspace_bytes, stream);
	return cublaslt_fail(engines, &plan->problem, status, "cublasLtMatmul");
}

static const char *cublaslt_error(void *state)
{
	return ((struct cublaslt_engines *)state)->error;
}

int cublaslt_open(const struct engines_options *options, struct matmul_engines *ret_engines,
		  size_t *ret_version, char *error)
{
	struct cublaslt_engines *engines = calloc(1, sizeof(*engines));
	cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

	if (!engines) {
		snprintf(error, DEVICE_ERROR_MAX, "no memory for engines");
		return -ENOMEM;
	}
	engines->tf32 = options->tf32;
	engines->workspace_max = WORKSPACE_MAX;
	if (options->workspace_max && options->workspace_max < WORKSPACE_MAX)
		engines->workspace_max = options->workspace_max;
	int r = cublaslt_library_load(&engines->library, error);
	if (r == 0 && options->gpu)
		status = engines->library.cublasLtCreate(&engines->handle);
	if (status != CUBLAS_STATUS_SUCCESS) {
		snprintf(error, DEVICE_ERROR_MAX, "%s: cublasLtCreate: %s", options->gpu->name,
			 engines->library.cublasLtGetStatusString(status));
		r = -EIO;
	}
	if (r < 0) {
		free(engines);
		return r;
	}
	*ret_version = engines->library.cublasLtGetVersion();
	*ret_engines = (struct matmul_engines){
		.state = engines,
		.plan = cublaslt_plan,
		.plan_info = cublaslt_plan_info,
		.plan_free = cublaslt_plan_free,
		.execute = cublaslt_execute,
		.error = cublaslt_error,
	};
	return 0;
}

void cublaslt_close(struct matmul_engines *engines)
{
	struct cublaslt_engines *state = engines->state;

	if (!state)
		return;
	if (state->handle)
		state->library.cublasLtDestroy(state->handle);
	free(state);
	engines->state = NULL;
}
