/*
 * Calls to cuBLASLt, with a stand-in that computes on the host: row-major products of every kind
 * equal those that conv.h defines. The program's argument is the stand-in's directory.
 */
#include "trainer/device/cuda/cudnn/cudnn_engines.h"

#include "tests/test.h"
#include "trainer/device/device.h"

#include <math.h>

#define ROWS_MAX 8

static const struct gpu_properties gpu = {.name = "a GPU"};

/* Numbers whose sums are exact. */
static void fill(float *values, size_t count, unsigned seed)
{
	for (size_t i = 0; i < count; i++)
		values[i] = (float)((i * 7 + seed * 13 + i * i * 3) % 17) - 8;
}

static void check(const struct matmul_engines *engines, const struct matmul_problem *p,
		  bool in_place)
{
	float a[ROWS_MAX * ROWS_MAX], b[ROWS_MAX * ROWS_MAX], workspace[16];
	_Alignas(2 * CONV_ALIGNMENT) float biases[CONV_ALIGNMENT / sizeof(float) + ROWS_MAX];
	float *bias = biases +
		      CONV_ALIGNMENT / sizeof(float); /* aligned to CONV_ALIGNMENT, but no better */
	float c[ROWS_MAX * ROWS_MAX], d[ROWS_MAX * ROWS_MAX], before[ROWS_MAX * ROWS_MAX];
	const struct matmul_arguments arguments = {a, b, bias, in_place ? d : c, d, workspace};
	struct conv_plan_info info;
	struct matmul_plan *plan;

	fill(a, ROWS_MAX * ROWS_MAX, 1);
	fill(b, ROWS_MAX * ROWS_MAX, 2);
	fill(bias, ROWS_MAX, 3);
	fill(c, ROWS_MAX * ROWS_MAX, 4);
	fill(d, ROWS_MAX * ROWS_MAX, 5);
	memcpy(before, d, sizeof(d));
	if (engines->plan(engines->state, p, &plan) < 0)
		fail_msg("%s", engines->error(engines->state));
	engines->plan_info(plan, &info);
	assert_int_equal(info.workspace_bytes, 64);
	if (engines->execute(engines->state, plan, &arguments, NULL) < 0)
		fail_msg("%s", engines->error(engines->state));
	engines->plan_free(plan);
	for (size_t i = 0; i < ROWS_MAX * ROWS_MAX; i++) {
		size_t row = i / p->columns, column = i % p->columns;
		float sum = 0;

		if (row >= p->rows) {
			assert_true(d[i] == before[i]);
			continue;
		}
		for (size_t l = 0; l < p->inner; l++)
			sum += a[p->transposed_a ? l * p->rows + row : row * p->inner + l] *
			       b[p->transposed_b ? column * p->inner + l : l * p->columns + column];
		sum += !p->residual ? 0 : in_place ? before[i] : c[i];
		sum += p->bias ? bias[column] : 0;
		assert_true(d[i] == sum);
	}
}

static struct matmul_engines open_engines(void)
{
	const struct engines_options options = {.gpu = &gpu};
	struct matmul_engines engines;
	char error[DEVICE_ERROR_MAX];
	size_t version;

	if (cublaslt_open(&options, &engines, &version, error) < 0)
		fail_msg("%s", error);
	return engines;
}

TEST(products)
{
	static const uint32_t sizes[][3] = {{5, 7, 3}, {8, 2, 8}, {1, 6, 4}, {4, 1, 5}};
	struct matmul_engines engines = open_engines();

	for (unsigned i = 0; i < 4 * 32; i++) {
		struct matmul_problem problem;

		matmul_problem_init(&problem);
		problem.rows = sizes[i / 32][0];
		problem.columns = sizes[i / 32][1];
		problem.inner = sizes[i / 32][2];
		problem.transposed_a = i & 1;
		problem.transposed_b = i & 2;
		problem.bias = i & 4;
		problem.residual = i & 8;
		check(&engines, &problem, i & 16);
	}
	cublaslt_close(&engines);
}

/* The 16-bit products of layers have plans, also with a bias. */
TEST(elements)
{
	struct matmul_engines engines = open_engines();

	for (unsigned i = 0; i < 3 * 8; i++) {
		struct matmul_problem problem;
		struct matmul_plan *plan;

		matmul_problem_init(&problem);
		problem.rows = problem.columns = problem.inner = 8;
		problem.element = (enum cuda_element)(i / 8);
		problem.result = i & 1 ? CUDA_F32 : problem.element;
		problem.bias = i & 2;
		problem.residual = i & 4;
		if (engines.plan(engines.state, &problem, &plan) < 0)
			fail_msg("%s", engines.error(engines.state));
		engines.plan_free(plan);
	}
	cublaslt_close(&engines);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 1;
	setenv("LOADERD_CUDA_LIBRARIES", argv[1], 1);
	return test_run(NULL, NULL);
}
