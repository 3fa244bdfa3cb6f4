/*
 * Autotunes the convolutions of a program: finds the fastest plan of each, and compares each fused
 * pattern with its unfused parts, i.e. other plans and additional passes over memory.
 */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/kernels/norm.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define PASS_CHANNELS 64
#define PASS_BYTES_MAX                                                                             \
	(1ull << 29)     /* size of the matrix used for timing, far larger than the caches */
#define PASS_ROUNDS 5    /* the result is that of the fastest round */
#define PASS_RUNS   8    /* launches between two events */
#define GAIN_MIN    0.03 /* fraction of time; less may be noise, and unfused needs more memory */

struct tuner {
	struct cuda_exec *exec;
	const struct conv_engines *engines;
	void *workspace;
	uint64_t workspace_bytes;
	gpu_event from, to;
	/* model of the kernels that run the other parts of an unfused pattern: */
	double launch_ms, bytes_per_ms;
};

/* ---- passes of our kernels ---- */

/*
 * Measures the milliseconds of a pass that reads and writes the first `rows` rows of the arena.
 * Fills `lead` bytes before it.
 */
static int tune_time_pass(const struct tuner *t, uint64_t rows, uint64_t lead, double *ret_ms)
{
	struct cuda_device *device = t->exec->device;
	const struct norm_arguments pass = {
		.x = t->exec->arena,
		.y = t->exec->arena,
		.rows = rows,
		.channels = PASS_CHANNELS,
		.element = device->element,
		.activation = DEVICE_RELU,
	};
	float ms = 0;
	int r = 0;

	*ret_ms = INFINITY;
	for (int round = 0; round < PASS_ROUNDS && r == 0; round++) {
		r = gpu_fill(t->workspace, 0, lead, device->compute);
		if (r == 0)
			r = gpu_event_record(t->from, device->compute);
		for (int i = 0; i < PASS_RUNS && r == 0; i++)
			r = norm_apply(&device->kernels, &pass);
		if (r == 0)
			r = gpu_event_record(t->to, device->compute);
		if (r == 0)
			r = gpu_event_synchronize(t->to);
		if (r == 0)
			r = gpu_event_elapsed(t->from, t->to, &ms);
		if (r == 0)
			*ret_ms = fmin(*ret_ms, (double)ms / PASS_RUNS);
	}
	return r;
}

static int tune_time_passes(struct tuner *t)
{
	uint64_t row = PASS_CHANNELS * cuda_element_size(t->exec->device->element);
	uint64_t bytes = t->exec->program->arena.size;
	uint64_t lead = t->workspace_bytes < ENGINES_LEAD ? t->workspace_bytes : ENGINES_LEAD;
	double ms = 0;
	int r = 0;

	t->from = cuda_event(&r, true);
	t->to = cuda_event(&r, true);
	bytes = bytes < PASS_BYTES_MAX ? bytes : PASS_BYTES_MAX;
	if (r == 0)
		r = tune_time_pass(t, 1, lead, &t->launch_ms);
	if (r == 0)
		r = tune_time_pass(t, bytes / row, 0, &ms);
	t->bytes_per_ms = 2 * (double)bytes / ms;
	return cuda_check(t->exec->device, r, "timing a pass over memory");
}

/* Milliseconds of a pass with sums, which is followed by the second stage. */
static double tune_pass_ms(const struct tuner *t, double bytes)
{
	return 2 * t->launch_ms + bytes / t->bytes_per_ms;
}

/* ---- convolutions ---- */

/* True if an earlier operation has the same problem. */
static bool tune_is_repeated(const struct cuda_program *program, uint32_t index)
{
	const struct conv_problem *problem = &program->ops[index].conv.problem;

	for (uint32_t i = 0; i < index; i++)
		if (program->ops[i].kind == CUDA_OP_CONV &&
		    memcmp(&program->ops[i].conv.problem, problem, sizeof(*problem)) == 0)
			return true;
	return false;
}

static struct conv_arguments tune_arguments(const struct tuner *t, const struct cuda_op *op)
{
	struct conv_arguments arguments = cuda_conv_arguments(t->exec, op);

	arguments.workspace = t->workspace;
	/* use ADDEND: another graph may already have summed gradients in DW */
	if (op->operands[CUDA_ADDEND])
		arguments.w = cuda_tensor_data(t->exec, op->operands[CUDA_ADDEND]);
	return arguments;
}

/*
 * Measures the milliseconds of the fastest plan: 0 if no plan runs within the available workspace,
 * INFINITY if the problem was refused earlier.
 */
static int tune_time_problem(const struct tuner *t, const struct cuda_op *op,
			     const struct conv_problem *problem, double *ret_ms)
{
	const struct conv_engines *engines = t->engines;
	struct conv_arguments arguments = tune_arguments(t, op);
	struct conv_plan_info info = {.tuned_ms = 0};
	struct conv_plan *plan;
	int r = engines->tune(engines->state, problem, &arguments, t->workspace_bytes,
			      t->exec->device->compute);

	*ret_ms = 0;
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = engines->plan(engines->state, problem, &plan);
	if (r == 0) {
		engines->plan_info(plan, &info);
		engines->plan_free(plan);
	}
	*ret_ms = r == -ENOENT ? INFINITY : (double)info.tuned_ms;
	if (r < 0 && r != -ENOENT)
		return device_fail(&t->exec->device->base, r, "%s: autotuning failed: %s",
				   op->node->name, engines->error(engines->state));
	return 0;
}

/* ---- fused or unfused ---- */

/*
 * Splits the first fused part off the problem. Returns the rest, and the bytes that the separate
 * part moves; false if nothing is fused.
 */
static bool tune_unfuse(const struct conv_problem *problem, struct conv_problem *ret_rest,
			double *ret_bytes)
{
	double size = cuda_element_size(problem->element);
	double x = size * problem->n * problem->h * problem->w * problem->c;
	double y = size * problem->n * problem->p * problem->q * problem->k;

	*ret_rest = *problem;
	if (problem->direction == CONV_FORWARD && problem->prologue != CONV_PLAIN) {
		ret_rest->prologue = CONV_PLAIN;
		*ret_bytes = x * (problem->prologue == CONV_SCALE_BIAS_RELU ? 2 : 3);
		return true;
	}
	switch (problem->epilogue) {
	case CONV_STATISTICS:
		ret_rest->epilogue = CONV_STORE;
		*ret_bytes = y;
		return true;
	case CONV_RELU_NORM:
		ret_rest->epilogue = problem->residual ? CONV_ADD : CONV_STORE;
		ret_rest->residual = false;
		ret_rest->shortcut = CONV_NO_SHORTCUT;
		*ret_bytes = x * (problem->shortcut == CONV_NO_SHORTCUT ? 3 : 4);
		return true;
	case CONV_ADD:
		/* the operation that reads the sum can read both gradients instead */
		ret_rest->epilogue = CONV_STORE;
		*ret_bytes = x;
		return true;
	default:
		return false;
	}
}

/*
 * Refuses the problem. If it has a prologue and sums statistics, also refuses the prologue alone,
 * which lowering would try next.
 */
static int tune_refuse(const struct tuner *t, const struct cuda_op *op,
		       const struct conv_problem *problem, double ms)
{
	const struct conv_engines *engines = t->engines;
	struct conv_problem bare = *problem;
	int r = engines->refuse(engines->state, problem, (float)ms);

	bare.epilogue = CONV_STORE;
	if (r == 0 && problem->prologue != CONV_PLAIN && problem->epilogue == CONV_STATISTICS)
		r = engines->refuse(engines->state, &bare, (float)ms);
	return r < 0 ? device_fail(&t->exec->device->base, r, "%s: autotuning failed: %s",
				   op->node->name, engines->error(engines->state))
		     : 0;
}

/*
 * Returns the milliseconds of the faster of fused and unfused, and refuses the fused problem if it
 * is slower. `saved_ms`: milliseconds that other operations save if this problem is unfused.
 */
static int tune_choose(const struct tuner *t, const struct cuda_op *op,
		       const struct conv_problem *problem, double saved_ms, double *ret_ms)
{
	struct conv_problem rest;
	double bytes, unfused_ms;
	int r = tune_time_problem(t, op, problem, ret_ms);

	if (r < 0 || *ret_ms == 0 || !tune_unfuse(problem, &rest, &bytes))
		return r;
	double pass = tune_pass_ms(t, bytes);
	/*
	 * a lower bound first: if moving the operands of the rest already takes too long, it is not
	 * timed
	 */
	if (pass + (double)conv_problem_bytes(&rest) / t->bytes_per_ms > *ret_ms + saved_ms)
		return 0;
	r = tune_choose(t, op, &rest, 0, &unfused_ms);
	if (r < 0 || unfused_ms == 0 || unfused_ms + pass > (1 - GAIN_MIN) * (*ret_ms + saved_ms))
		return r;
	if (isfinite(*ret_ms))
		r = tune_refuse(t, op, problem, unfused_ms + pass);
	*ret_ms = unfused_ms + pass;
	return r;
}

/*
 * Returns the weight gradient that has the same prologue as this forward operation of its node. It
 * loses the prologue if the forward operation does.
 */
static const struct cuda_op *tune_gradient_with(const struct cuda_program *program,
						const struct cuda_op *op)
{
	for (uint32_t i = 0; i < program->op_count; i++) {
		const struct cuda_op *other = &program->ops[i];

		if (other->kind == CUDA_OP_CONV && other->node == op->node &&
		    other->conv.problem.direction == CONV_WEIGHTS &&
		    other->conv.problem.prologue == op->conv.problem.prologue)
			return other;
	}
	return NULL;
}

/*
 * Measures what the prologue costs in that weight gradient: 0 if there is none or if unfusing
 * cannot gain anything. False if it could not be timed; the forward operation then stays fused.
 */
static int tune_time_gradient(const struct tuner *t, const struct cuda_op *op, double *ret_ms,
			      bool *ret_timed)
{
	const struct conv_problem *problem = &op->conv.problem;
	const struct cuda_op *gradient = NULL;
	struct conv_problem rest;
	double own, with, without = 0, bytes;
	int r = tune_time_problem(t, op, problem, &own);

	*ret_ms = 0;
	*ret_timed = true;
	if (problem->direction == CONV_FORWARD && problem->prologue != CONV_PLAIN)
		gradient = tune_gradient_with(t->exec->program, op);
	if (r < 0 || !gradient || !tune_unfuse(problem, &rest, &bytes))
		return r;
	struct conv_problem plain = gradient->conv.problem;
	plain.prologue = CONV_PLAIN;
	double min =
		(double)(conv_problem_bytes(&rest) + conv_problem_bytes(&plain)) / t->bytes_per_ms;
	r = tune_time_problem(t, gradient, &gradient->conv.problem, &with);
	if (r < 0 || (with > 0 && min + tune_pass_ms(t, bytes) > own + with))
		return r;
	r = tune_time_problem(t, gradient, &plain, &without);
	*ret_timed = with > 0 && without > 0;
	*ret_ms = with - without;
	return r;
}

static int tune_choose_for(const struct tuner *t, const struct cuda_op *op)
{
	double saved_ms, ms;
	bool timed;
	int r = tune_time_gradient(t, op, &saved_ms, &timed);

	return r < 0 || !timed ? r : tune_choose(t, op, &op->conv.problem, saved_ms, &ms);
}

/* ---- the whole program ---- */

static int tune_operations(struct tuner *t)
{
	const struct cuda_program *program = t->exec->program;
	double ms;
	int r = 0;

	for (uint32_t i = 0; i < program->op_count && r == 0; i++)
		if (program->ops[i].kind == CUDA_OP_CONV && !tune_is_repeated(program, i))
			r = tune_time_problem(t, &program->ops[i], &program->ops[i].conv.problem,
					      &ms);
	if (r == 0 && t->engines->refuse)
		r = tune_time_passes(t);
	for (uint32_t i = 0; i < program->op_count && r == 0 && t->engines->refuse; i++)
		if (program->ops[i].kind == CUDA_OP_CONV && !tune_is_repeated(program, i))
			r = tune_choose_for(t, &program->ops[i]);
	return r;
}

/* Allocates as much workspace as engines may need, or as the GPU has. */
static int tune_take_workspace(struct tuner *t)
{
	t->workspace_bytes = ENGINES_WORKSPACE_MAX;
	int r = gpu_allocate(t->workspace_bytes, &t->workspace);
	while (r == -ENOMEM && t->workspace_bytes > 1 << 20) {
		t->workspace_bytes /= 2;
		r = gpu_allocate(t->workspace_bytes, &t->workspace);
	}
	return r;
}

int cuda_tune(struct cuda_exec *exec)
{
	struct cuda_device *device = exec->device;
	struct tuner t = {.exec = exec, .engines = &device->engines.conv};

	if (!cuda_ranks_tunes(exec))
		return 0;
	int r = tune_take_workspace(&t);
	/* do not fill with NaNs: arithmetic on them draws a different power than on numbers */
	if (r == 0)
		r = gpu_fill(exec->arena, 0x11, exec->program->arena.size, device->compute);
	if (r == 0)
		r = tune_operations(&t);
	gpu_event_free(t.to);
	gpu_event_free(t.from);
	gpu_free(t.workspace);
	return r;
}
