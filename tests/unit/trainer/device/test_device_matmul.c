/*
 * Matrix products against naive loops in double precision. Linked with the emulated engines, and a
 * second time with cuBLASLt for a device.
 */
#include "tests/gpu/emulation/element.h"
#include "tests/unit/trainer/device/engines_test.h"

/* Computes the expected result from the operands as the engine sees them and stores it in *d. */
static void reference(const struct matmul_problem *p, const struct operand *a,
		      const struct operand *b, const struct operand *bias,
		      const struct operand *residual, struct operand *d)
{
	for (size_t i = 0; i < d->count; i++) {
		size_t row = i / p->columns, column = i % p->columns;
		double sum = p->residual ? residual->v[i] : 0;

		for (size_t l = 0; l < p->inner; l++)
			sum += a->v[p->transposed_a ? l * p->rows + row : row * p->inner + l] *
			       b->v[p->transposed_b ? column * p->inner + l
						    : l * p->columns + column];
		d->v[i] = sum + (p->bias ? bias->v[column] : 0);
	}
}

static void expect_reference(const struct matmul_problem *p, const struct operand *d)
{
	float *values = calloc(d->count, sizeof(float));
	char name[160];

	assert_non_null(values);
	elements_to_floats(p->result, d->data, values, d->count);
	double error = relative_error(values, d->v, d->count);
	free(values);
	matmul_problem_name(p, name, sizeof(name));
	if (!(error <= tolerances[p->result]))
		fail_msg("%s is off by %g", name, error);
}

static void check(const struct matmul_problem *p, struct matmul_plan *plan, bool in_place,
		  gpu_stream stream)
{
	const struct matmul_engines *matmul = &engines.matmul;
	struct operand operands[] = {
		operand_new((size_t)p->rows * p->inner, p->element, 1, -1, 1),
		operand_new((size_t)p->inner * p->columns, p->element, 2, -1, 1),
		operand_new(p->columns, p->result, 3, -1, 1),
		operand_new((size_t)p->rows * p->columns, p->result, 4, -1, 1),
		operand_new((size_t)p->rows * p->columns, p->result, 5, -1, 1),
	};
	struct operand *a = &operands[0], *b = &operands[1], *bias = &operands[2];
	struct operand *residual = &operands[in_place ? 4 : 3], *d = &operands[4];
	struct conv_plan_info info;
	void *workspace;

	matmul->plan_info(plan, &info);
	assert_int_equal(gpu_allocate(info.workspace_bytes, &workspace), 0);
	for (size_t i = 0; i < 5; i++)
		copy_in(&operands[i], stream);
	if (matmul->execute(matmul->state, plan,
			    &(struct matmul_arguments){a->place, b->place, bias->place,
						       residual->place, d->place, workspace},
			    stream) < 0)
		fail_msg("%s", matmul->error(matmul->state));
	copy_out(d, stream);
	assert_int_equal(gpu_stream_synchronize(stream), 0);
	gpu_free(workspace);
	reference(p, a, b, bias, residual, d);
	expect_reference(p, d);
	for (size_t i = 0; i < 5; i++)
		operand_free(&operands[i]);
}

TEST(matmul)
{
	static const uint32_t sizes[][3] = {{5, 7, 3}, {1, 10, 17}, {8, 1, 1}, {3, 3, 33}};
	const struct matmul_engines *matmul = &engines.matmul;
	gpu_stream stream;

	assert_int_equal(gpu_stream_new(&stream), 0);
	for (unsigned i = 0; i < 4 * 3 * 2 * 16; i++) {
		struct matmul_problem p;
		struct matmul_plan *plan;

		matmul_problem_init(&p);
		p.rows = sizes[i % 4][0];
		p.columns = sizes[i % 4][1];
		p.inner = sizes[i % 4][2];
		p.element = (enum cuda_element)(i / 4 % 3);
		p.result = i / 12 % 2 ? p.element : CUDA_F32;
		p.transposed_a = i / 24 & 1;
		p.transposed_b = i / 24 & 2;
		p.bias = i / 24 & 4;
		p.residual = i / 24 & 8;
		int r = matmul->plan(matmul->state, &p, &plan);
		if (!emulated && r == -ENOENT)
			continue;
		if (r < 0)
			fail_msg("%s", matmul->error(matmul->state));
		check(&p, plan, false, stream);
		if (p.residual)
			check(&p, plan, true, stream);
		matmul->plan_free(plan);
	}
	gpu_stream_free(stream);
}

int main(void)
{
	return run_with_engines();
}
