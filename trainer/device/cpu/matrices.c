/*
 * Orthogonalisation for by_matrix optimizers (optimizers/updates.h); counterpart of
 * cuda/matrices.c, in fp32 throughout.
 *
 * A task is a matrix with all its iterations, on one thread: the summation order of oneDNN's
 * product then does not depend on the number of threads, and all ranks get the same bits.
 */
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/optimizers/updates.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct orthogonalize_job {
	struct cpu_device *device;
	struct device_params *params;
	struct update_polynomial polynomial;
	_Atomic int failed; /* dnnl_status_t */
};

/* x [rows][columns]; `min` is the shorter side. */
struct matrix {
	float *x;
	float *copy;           /* [rows][columns] */
	float *gram, *product; /* [least][least] */
	dnnl_dim_t rows, columns, min;
};

/* Proportional to the FLOPs of an iteration. */
static double matrix_work(const struct device_param *param)
{
	double row = device_param_row(param), rows = device_param_matrix(param);
	double min = row < rows ? row : rows;

	return min * min * (2 * (double)param->elements / min + min);
}

/* Elements of the scratch arrays of struct matrix. */
static size_t matrix_scratch(const struct device_param *param)
{
	size_t row = device_param_row(param), rows = device_param_matrix(param);
	size_t min = row < rows ? row : rows;

	return (param->elements + 15) / 16 * 16 + 2 * ((min * min + 15) / 16 * 16);
}

/* Inserts parameter `index` into the sorted list of `count`. */
static void matrices_insert(struct device_params *params, uint32_t index)
{
	struct cpu_params *cpu = params->backend;
	double work = matrix_work(params->items[index]);
	uint32_t at = cpu->matrix_count++;

	for (; at && matrix_work(params->items[cpu->matrices[at - 1]]) < work; at--)
		cpu->matrices[at] = cpu->matrices[at - 1];
	cpu->matrices[at] = index;
}

int cpu_matrices_allocate(struct device_params *params)
{
	struct cpu_params *cpu = params->backend;
	const struct cpu_device *device = (const struct cpu_device *)params->device;

	cpu->matrices = calloc(params->count + 1, sizeof(*cpu->matrices));
	if (!cpu->matrices)
		return -ENOMEM;
	for (size_t i = 0; i < params->count; i++) {
		const struct device_param *param = params->items[i];

		if (!device_param_matrix(param))
			continue;
		matrices_insert(params, (uint32_t)i);
		if (matrix_scratch(param) > cpu->matrix_elements)
			cpu->matrix_elements = matrix_scratch(param);
	}
	if (!cpu->matrix_count)
		return 0;
	cpu->matrix_scratch = aligned_alloc(64, device->thread_pool.threads * cpu->matrix_elements *
							sizeof(float));
	return cpu->matrix_scratch ? 0 : -ENOMEM;
}

static struct matrix matrix_of(const struct cpu_params *cpu, const struct device_param *param,
			       unsigned thread)
{
	struct matrix m = {
		.x = cpu_param_slot(param, DEVICE_GRAD),
		.copy = cpu->matrix_scratch + thread * cpu->matrix_elements,
		.rows = device_param_matrix(param),
		.columns = device_param_row(param),
	};

	m.min = m.rows < m.columns ? m.rows : m.columns;
	m.gram = m.copy + (param->elements + 15) / 16 * 16;
	m.product = m.gram + (m.min * m.min + 15) / 16 * 16;
	return m;
}

/* Divides x by its Frobenius norm. */
static void matrix_scale(const struct kernels *kernels, const struct matrix *m)
{
	size_t count = (size_t)(m->rows * m->columns);
	float norm = (float)sqrt(kernels->sum_squares(m->x, count));
	float factor = 1 / (norm > UPDATE_MATRIX_NORM_MIN ? norm : UPDATE_MATRIX_NORM_MIN);

	for (size_t i = 0; i < count; i++)
		m->x[i] *= factor;
}

/*
 * If X is wide, X <- (a + b A + c A^2) X with A = X X'.
 * If X is tall, the equivalent X <- X (a + b A + c A^2) with A = X' X.
 */
static dnnl_status_t matrix_step(const struct matrix *m, struct update_polynomial p)
{
	bool wide = m->rows <= m->columns;
	dnnl_dim_t k = m->min;
	dnnl_status_t status =
		dnnl_sgemm(wide ? 'N' : 'T', wide ? 'T' : 'N', k, k, wide ? m->columns : m->rows, 1,
			   m->x, m->columns, m->x, m->columns, 0, m->gram, k);

	memcpy(m->product, m->gram, (size_t)(k * k) * sizeof(float));
	memcpy(m->copy, m->x, (size_t)(m->rows * m->columns) * sizeof(float));
	if (status == dnnl_success)
		status = dnnl_sgemm('N', 'N', k, k, k, p.c, m->gram, k, m->gram, k, p.b, m->product,
				    k);
	if (status == dnnl_success)
		status =
			dnnl_sgemm('N', 'N', m->rows, m->columns, k, 1, wide ? m->product : m->copy,
				   wide ? k : m->columns, wide ? m->copy : m->product,
				   wide ? m->columns : k, p.a, m->x, m->columns);
	return status;
}

static void orthogonalize_task(void *context, uint32_t task, unsigned thread)
{
	struct orthogonalize_job *job = context;
	const struct cpu_params *cpu = job->params->backend;

	if (task >= cpu->matrix_count)
		return;
	const struct device_param *param = job->params->items[cpu->matrices[task]];
	struct matrix m = matrix_of(cpu, param, thread);
	dnnl_status_t status = dnnl_success;

	if (!device_param_trains(param))
		return;
	matrix_scale(job->device->loops.kernels, &m);
	for (uint32_t i = 0; i < job->params->optimizer.ns_steps && status == dnnl_success; i++)
		status = matrix_step(&m, job->polynomial);
	if (status != dnnl_success)
		atomic_store_explicit(&job->failed, (int)status, memory_order_relaxed);
}

int cpu_orthogonalize(struct cpu_device *device, struct device_params *params)
{
	const struct cpu_params *cpu = params->backend;
	struct orthogonalize_job job = {
		.device = device,
		.params = params,
		.polynomial = update_polynomial_of(params->optimizer.kind),
	};

	/*
	 * one extra task: thread_pool_run() would run a single task outside the parallel region,
	 * where oneDNN would use all threads
	 */
	thread_pool_run(&device->thread_pool, cpu->matrix_count + 1, orthogonalize_task, &job);
	return cpu_status((dnnl_status_t)job.failed);
}
