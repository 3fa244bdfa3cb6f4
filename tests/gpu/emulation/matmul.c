#include "tests/gpu/emulation/element.h"
#include "tests/gpu/emulation/engines.h"
#include "tests/gpu/emulation/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct matmul_plan {
	struct matmul_problem problem;
	/*
	 * [rows][inner], [inner][columns], [columns], [rows][columns]; allocated at the first
	 * execution
	 */
	float *a, *b, *bias, *d;
};

struct matmul_work {
	const struct matmul_plan *plan;
	struct matmul_arguments arguments;
};

static _Thread_local char failure[256];

/* Loads [rows][columns] into ret_to, from the same layout or its transpose. */
static void load(enum cuda_element element, const void *from, bool transposed, size_t rows,
		 size_t columns, float *ret_to)
{
	size_t size = cuda_element_size(element);

	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < columns; j++) {
			size_t at = transposed ? j * rows + i : i * columns + j;

			elements_to_floats(element, (const char *)from + at * size,
					   &ret_to[i * columns + j], 1);
		}
}

static void run(const void *work)
{
	const struct matmul_plan *plan = ((const struct matmul_work *)work)->plan;
	const struct matmul_arguments *arguments = &((const struct matmul_work *)work)->arguments;
	const struct matmul_problem *problem = &plan->problem;
	size_t columns = problem->columns, inner = problem->inner, count = problem->rows * columns;

	memset(arguments->workspace, 0xa5, EMULATION_WORKSPACE);
	load(problem->element, arguments->a, problem->transposed_a, problem->rows, inner, plan->a);
	load(problem->element, arguments->b, problem->transposed_b, inner, columns, plan->b);
	if (problem->bias)
		elements_to_floats(problem->result, arguments->bias, plan->bias, columns);
	memset(plan->d, 0, count * sizeof(float));
	if (problem->residual)
		elements_to_floats(problem->result, arguments->residual, plan->d, count);
	for (size_t i = 0; i < problem->rows; i++) {
		float *restrict d = plan->d + i * columns;

		for (size_t l = 0; l < inner; l++) {
			const float *restrict b = plan->b + l * columns;
			float a = plan->a[i * inner + l];

			for (size_t j = 0; j < columns; j++)
				d[j] += a * b[j];
		}
		if (problem->bias)
			for (size_t j = 0; j < columns; j++)
				d[j] += plan->bias[j];
	}
	floats_to_elements(problem->result, plan->d, arguments->d, count);
}

static int fail(const struct matmul_problem *problem, int result, const char *what)
{
	char name[160];

	matmul_problem_name(problem, name, sizeof(name));
	snprintf(failure, sizeof(failure), "%s: %s", name, what);
	return result;
}

static int make_plan(void *state, const struct matmul_problem *problem,
		     struct matmul_plan **ret_plan)
{
	if (!problem->rows || !problem->columns || !problem->inner)
		return fail(problem, -EINVAL, "a matrix has no elements");
	struct matmul_plan *plan = calloc(1, sizeof(*plan));
	if (!plan)
		return -ENOMEM;
	plan->problem = *problem;
	*ret_plan = plan;
	return 0;
}

static void plan_info(const struct matmul_plan *plan, struct conv_plan_info *ret_info)
{
	*ret_info = (struct conv_plan_info){
		.engine = "emulated",
		.workspace_bytes = EMULATION_WORKSPACE,
		.deterministic = true,
	};
}

static void plan_free(struct matmul_plan *plan)
{
	if (!plan)
		return;
	free(plan->a);
	free(plan->b);
	free(plan->bias);
	free(plan->d);
	free(plan);
}

static int allocate(struct matmul_plan *plan)
{
	size_t rows = plan->problem.rows, columns = plan->problem.columns;
	size_t inner = plan->problem.inner;

	if (!plan->a)
		plan->a = malloc(rows * inner * sizeof(float));
	if (!plan->b)
		plan->b = malloc(inner * columns * sizeof(float));
	if (!plan->bias)
		plan->bias = malloc(columns * sizeof(float));
	if (!plan->d)
		plan->d = malloc(rows * columns * sizeof(float));
	return plan->a && plan->b && plan->bias && plan->d ? 0 : -ENOMEM;
}

static bool is_there(const void *pointer)
{
	return pointer && (uintptr_t)pointer % CONV_ALIGNMENT == 0;
}

static int execute(void *state, struct matmul_plan *plan, const struct matmul_arguments *arguments,
		   gpu_stream stream)
{
	struct matmul_work work = {plan, *arguments};

	if (!is_there(arguments->a) || !is_there(arguments->b) || !is_there(arguments->d) ||
	    !is_there(arguments->workspace) || (plan->problem.bias && !is_there(arguments->bias)) ||
	    (plan->problem.residual && !is_there(arguments->residual)))
		return fail(&plan->problem, -EINVAL,
			    "executed without a pointer that it needs, aligned to 16 bytes");
	if (allocate(plan) < 0)
		return fail(&plan->problem, -ENOMEM, "no memory to compute it in");
	return emulation_queue(stream, run, &work, sizeof(work));
}

static const char *error(void *state)
{
	return failure;
}

const struct matmul_engines emulation_matmul_engines = {
	.plan = make_plan,
	.plan_info = plan_info,
	.plan_free = plan_free,
	.execute = execute,
	.error = error,
};
