#include "trainer/device/cpu/loops.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TASK_ELEMENTS_MIN 16384 /* smaller tasks cost more than they gain */

void loops_columns_init(struct columns *columns, uint32_t channels)
{
	columns->channels = channels;
	columns->fold = channels <= KERNEL_WIDTH_MAX ? KERNEL_WIDTH_MAX / channels : 1;
	columns->width = channels * columns->fold;
}

void columns_repeat(const struct columns *columns, const float *values, float *ret_repeated)
{
	/* skip the first copy if values is already ret_repeated */
	for (uint32_t i = values == ret_repeated; i < columns->fold; i++)
		memcpy(ret_repeated + (size_t)i * columns->channels, values,
		       columns->channels * sizeof(float));
}

int loops_reserve(struct loops *loops, uint32_t channels)
{
	double *partial;

	if (channels <= loops->channels_max)
		return 0;
	partial =
		aligned_alloc(64, sizeof(double) * 2 * LOOPS_TASKS_MAX * ((channels + 7) / 8 * 8));
	if (!partial)
		return -ENOMEM;
	free(loops->partial);
	loops->partial = partial;
	loops->channels_max = channels;
	return 0;
}

void loops_deinit(struct loops *loops)
{
	free(loops->partial);
	loops->partial = NULL;
	loops->channels_max = 0;
}

/* Splits `count` units of `size` elements into tasks of multiples of `multiple` units. */
static uint32_t loops_cut(size_t count, size_t size, size_t multiple, size_t *ret_each)
{
	size_t each = (count + LOOPS_TASKS_MAX - 1) / LOOPS_TASKS_MAX;
	size_t min = (TASK_ELEMENTS_MIN + size - 1) / size;

	if (each < min)
		each = min;
	each = (each + multiple - 1) / multiple * multiple;
	*ret_each = each;
	return (uint32_t)((count + each - 1) / each);
}

/* A rectangle of a tensor, as a kernel's arguments describe it. */
struct piece {
	size_t at; /* offset in elements from the tensor's start */
	size_t rows, stride, width;
	size_t column; /* first element of the per-column arrays */
	size_t row;    /* index of the first row, if rows are whole */
};

struct row_job {
	struct loops *loops;
	const struct columns *columns;
	size_t rows;
	void (*piece)(const struct row_job *job, const struct piece *piece, double *sum,
		      double *second);
	const void *args; /* the kernel's arguments */
	bool whole;       /* pieces consist of whole rows */
	bool sums;
	size_t each;
};

/* Adds the sums of the `fold` columns of each channel to the channel's sum. */
static void loops_unfold(double *to, const double *from, size_t width, uint32_t channels)
{
	for (size_t i = 0; i < width; i += channels)
		for (uint32_t c = 0; c < channels; c++)
			to[c] += from[i + c];
}

static void loops_run_piece(const struct row_job *job, const struct piece *piece, double *sum,
			    double *second)
{
	double s[KERNEL_WIDTH_MAX], q[KERNEL_WIDTH_MAX];
	uint32_t channels = job->columns->channels;

	if (!job->sums) {
		job->piece(job, piece, NULL, NULL);
		return;
	}
	memset(s, 0, piece->width * sizeof(double));
	memset(q, 0, piece->width * sizeof(double));
	job->piece(job, piece, s, q);
	if (channels > KERNEL_WIDTH_MAX) {
		loops_unfold(sum + piece->column, s, piece->width, (uint32_t)piece->width);
		loops_unfold(second + piece->column, q, piece->width, (uint32_t)piece->width);
	} else {
		loops_unfold(sum, s, piece->width, channels);
		loops_unfold(second, q, piece->width, channels);
	}
}

static void loops_run_rows(void *context, uint32_t task, unsigned thread)
{
	const struct row_job *job = context;
	const struct columns *columns = job->columns;
	size_t channels = columns->channels, first = task * job->each;
	size_t rows = job->rows - first < job->each ? job->rows - first : job->each;
	double *sum = NULL, *second = NULL;

	if (job->sums) {
		sum = job->loops->partial + (size_t)task * 2 * channels;
		second = sum + channels;
		memset(sum, 0, 2 * channels * sizeof(double));
	}
	if (job->whole) {
		job->piece(job,
			   &(struct piece){first * channels, rows, channels, channels, 0, first},
			   sum, second);
	} else if (channels > KERNEL_WIDTH_MAX) {
		for (size_t c = 0; c < channels; c += KERNEL_WIDTH_MAX) {
			size_t width =
				channels - c < KERNEL_WIDTH_MAX ? channels - c : KERNEL_WIDTH_MAX;

			loops_run_piece(
				job,
				&(struct piece){first * channels + c, rows, channels, width, c, 0},
				sum, second);
		}
	} else {
		size_t whole = rows / columns->fold, rest = rows % columns->fold;
		size_t at = first * channels;

		if (whole)
			loops_run_piece(
				job,
				&(struct piece){at, whole, columns->width, columns->width, 0, 0},
				sum, second);
		if (rest)
			loops_run_piece(job,
					&(struct piece){at + whole * columns->width, 1, 0,
							rest * channels, 0, 0},
					sum, second);
	}
}

/* Runs a job; adds the tasks' sums in order, if there are any. */
static void loops_run_job(struct row_job *job, double *ret_sum, double *ret_second)
{
	struct loops *loops = job->loops;
	uint32_t channels = job->columns->channels;
	uint32_t tasks = loops_cut(job->rows, channels, job->columns->fold, &job->each);

	job->sums = ret_sum;
	thread_pool_run(loops->thread_pool, tasks, loops_run_rows, job);
	if (!ret_sum)
		return;
	memset(ret_sum, 0, channels * sizeof(double));
	if (ret_second)
		memset(ret_second, 0, channels * sizeof(double));
	for (uint32_t task = 0; task < tasks; task++) {
		const double *partial = loops->partial + (size_t)task * 2 * channels;

		for (uint32_t c = 0; c < channels; c++)
			ret_sum[c] += partial[c];
		if (ret_second)
			for (uint32_t c = 0; c < channels; c++)
				ret_second[c] += partial[channels + c];
	}
}

static const void *at(const void *data, enum element element, size_t index)
{
	return data ? (const char *)data + index * element_size(element) : NULL;
}

static void *at_mutable(void *data, enum element element, size_t index)
{
	return data ? (char *)data + index * element_size(element) : NULL;
}

struct statistics_args {
	const void *x;
	enum element element;
	const float *shift;
};

static void loops_statistics_piece(const struct row_job *job, const struct piece *p, double *sum,
				   double *second)
{
	const struct statistics_args *args = job->args;

	job->loops->kernels->statistics(at(args->x, args->element, p->at), args->element, p->rows,
					p->stride, p->width, args->shift + p->column, sum, second);
}

void loops_statistics(struct loops *loops, const struct columns *columns, size_t rows,
		      const void *x, enum element element, const float *shift, double *ret_sum,
		      double *ret_square)
{
	struct statistics_args args = {x, element, shift};

	loops_run_job(&(struct row_job){loops, columns, rows, loops_statistics_piece, &args},
		      ret_sum, ret_square);
}

static void loops_apply_piece(const struct row_job *job, const struct piece *p, double *sum,
			      double *second)
{
	struct apply_args args = *(const struct apply_args *)job->args;

	args.x = at(args.x, args.x_element, p->at);
	args.residual = at(args.residual, args.element, p->at);
	args.y = at_mutable(args.y, args.element, p->at);
	args.scale += p->column;
	args.bias += p->column;
	job->loops->kernels->apply(&args, p->rows, p->stride, p->width);
}

void loops_apply(struct loops *loops, const struct columns *columns, size_t rows,
		 const struct apply_args *args)
{
	loops_run_job(&(struct row_job){loops, columns, rows, loops_apply_piece, args}, NULL, NULL);
}

static void loops_reduce_piece(const struct row_job *job, const struct piece *p, double *sum,
			       double *second)
{
	struct reduce_args args = *(const struct reduce_args *)job->args;

	args.gradient[0] = at(args.gradient[0], args.element, p->at);
	args.gradient[1] = at(args.gradient[1], args.element, p->at);
	args.x = at(args.x, args.element, p->at);
	args.y = at(args.y, args.element, p->at);
	args.residual = at(args.residual, args.element, p->at);
	args.dz = at_mutable(args.dz, args.element, p->at);
	args.scale = args.scale ? args.scale + p->column : NULL;
	args.bias = args.bias ? args.bias + p->column : NULL;
	args.mean = args.mean ? args.mean + p->column : NULL;
	job->loops->kernels->reduce(&args, p->rows, p->stride, p->width, sum, second);
}

void loops_reduce(struct loops *loops, const struct columns *columns, size_t rows,
		  const struct reduce_args *args, double *ret_sum, double *ret_product)
{
	loops_run_job(&(struct row_job){loops, columns, rows, loops_reduce_piece, args}, ret_sum,
		      ret_product);
}

static void loops_dx_piece(const struct row_job *job, const struct piece *p, double *sum,
			   double *second)
{
	struct dx_args args = *(const struct dx_args *)job->args;

	args.gradient = at(args.gradient, args.element, p->at);
	args.x = at(args.x, args.element, p->at);
	args.dx = at_mutable(args.dx, args.element, p->at);
	args.scale += p->column;
	args.bias += p->column;
	args.a += p->column;
	args.b += p->column;
	args.c += p->column;
	job->loops->kernels->dx(&args, p->rows, p->stride, p->width);
}

void loops_dx(struct loops *loops, const struct columns *columns, size_t rows,
	      const struct dx_args *args)
{
	loops_run_job(&(struct row_job){loops, columns, rows, loops_dx_piece, args}, NULL, NULL);
}

static void loops_layer_norm_piece(const struct row_job *job, const struct piece *p, double *sum,
				   double *second)
{
	struct layer_norm_args args = *(const struct layer_norm_args *)job->args;

	args.x = at(args.x, args.element, p->at);
	args.y = at_mutable(args.y, args.element, p->at);
	args.mean = args.mean ? args.mean + p->row : NULL;
	args.deviation = args.deviation ? args.deviation + p->row : NULL;
	job->loops->kernels->layer_norm(&args, p->rows, p->width);
}

void loops_layer_norm(struct loops *loops, size_t rows, uint32_t channels,
		      const struct layer_norm_args *args)
{
	const struct columns columns = {channels, 1, channels};

	loops_run_job(&(struct row_job){loops, &columns, rows, loops_layer_norm_piece, args,
					.whole = true},
		      NULL, NULL);
}

static void loops_layer_norm_backward_piece(const struct row_job *job, const struct piece *p,
					    double *sum, double *second)
{
	struct layer_norm_backward_args args = *(const struct layer_norm_backward_args *)job->args;

	args.gradient = at(args.gradient, args.element, p->at);
	args.x = at(args.x, args.element, p->at);
	args.dx = at_mutable(args.dx, args.element, p->at);
	args.mean += p->row;
	args.deviation += p->row;
	job->loops->kernels->layer_norm_backward(&args, p->rows, p->width, sum, second);
}

void loops_layer_norm_backward(struct loops *loops, size_t rows, uint32_t channels,
			       const struct layer_norm_backward_args *args, double *ret_dbeta,
			       double *ret_dgamma)
{
	const struct columns columns = {channels, 1, channels};

	loops_run_job(&(struct row_job){loops, &columns, rows, loops_layer_norm_backward_piece,
					args, .whole = true},
		      ret_dbeta, ret_dgamma);
}

struct flat_job {
	struct loops *loops;
	void *to;
	const void *from;
	enum element element;
	size_t count, each;
	_Atomic bool bad;
};

static size_t loops_flat_part(const struct flat_job *job, uint32_t task)
{
	size_t first = task * job->each;

	return job->count - first < job->each ? job->count - first : job->each;
}

static void loops_add_task(void *context, uint32_t task, unsigned thread)
{
	struct flat_job *job = context;
	size_t first = task * job->each;

	job->loops->kernels->add(at_mutable(job->to, job->element, first),
				 at(job->from, job->element, first), job->element,
				 loops_flat_part(job, task));
}

void loops_add(struct loops *loops, void *to, const void *from, enum element element, size_t count)
{
	struct flat_job job = {
		.loops = loops, .to = to, .from = from, .element = element, .count = count};
	uint32_t tasks = loops_cut(count, 1, 64, &job.each);

	thread_pool_run(loops->thread_pool, tasks, loops_add_task, &job);
}

static void loops_finite_task(void *context, uint32_t task, unsigned thread)
{
	struct flat_job *job = context;

	if (!job->loops->kernels->finite(at(job->from, job->element, task * job->each),
					 job->element, loops_flat_part(job, task)))
		atomic_store_explicit(&job->bad, true, memory_order_relaxed);
}

bool loops_finite(struct loops *loops, const void *x, enum element element, size_t count)
{
	struct flat_job job = {.loops = loops, .from = x, .element = element, .count = count};
	uint32_t tasks = loops_cut(count, 1, 64, &job.each);

	thread_pool_run(loops->thread_pool, tasks, loops_finite_task, &job);
	return !job.bad;
}
