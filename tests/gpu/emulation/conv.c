/*
 * Straightforward implementation of every pattern: operands as floats, one loop nest per direction,
 * with the inner loop over contiguous channels.
 */
#include "tests/gpu/emulation/element.h"
#include "tests/gpu/emulation/engines.h"
#include "tests/gpu/emulation/queue.h"
#include "tests/gpu/emulation/tuning.h"
#include "trainer/device/ops.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conv_plan {
	struct conv_problem problem;
	/*
	 * [n][h][w][c], [n][p][q][k], [k][r][s][c / groups] (forward: [r][s][c / groups][k]);
	 * allocated at the first execution
	 */
	float *x, *y, *w;
	size_t x_count, y_count, w_count;
};

struct conv_work {
	const struct conv_plan *plan;
	struct conv_arguments arguments;
};

static _Thread_local char failure[256];

static float load(enum cuda_element element, const void *from, size_t index)
{
	float value;

	elements_to_floats(element, (const char *)from + index * cuda_element_size(element), &value,
			   1);
	return value;
}

/* Applies the prologue to plan->x. */
static void prologue(const struct conv_plan *plan, const struct conv_arguments *arguments)
{
	const struct conv_problem *problem = &plan->problem;
	enum cuda_element element = problem->element;
	bool adds = problem->prologue >= CONV_SCALE_BIAS_ADD_RELU;

	elements_to_floats(element, arguments->x, plan->x, plan->x_count);
	if (problem->prologue == CONV_PLAIN)
		return;
	for (size_t i = 0; i < plan->x_count; i++) {
		size_t c = i % problem->c;
		float value = plan->x[i] * load(element, arguments->scale, c) +
			      load(element, arguments->bias, c);

		if (problem->prologue == CONV_SCALE_BIAS_ADD_RELU)
			value += load(element, arguments->residual, i);
		if (problem->prologue == CONV_DUAL_SCALE_BIAS_ADD_RELU)
			value += load(element, arguments->residual, i) *
					 load(element, arguments->scale2, c) +
				 load(element, arguments->bias2, c);
		/* not fmaxf(), which does not propagate NaN */
		plan->x[i] = element_round(element, value < 0 ? 0 : value);
	}
	if (adds)
		floats_to_elements(element, plan->x, arguments->activated, plan->x_count);
}

/* Transposes w from [k][r s c] to [r s c][k]. */
static void transpose_weights(const struct conv_plan *plan, const void *w)
{
	size_t width = plan->problem.k, inner = plan->w_count / width;

	for (size_t k = 0; k < width; k++)
		for (size_t i = 0; i < inner; i++)
			plan->w[i * width + k] = load(plan->problem.element, w, k * inner + i);
}

/*
 * Offsets of a position of y, of a position in the window, and of the position of x that they
 * multiply.
 */
struct tap {
	size_t y, w, x; /* index of the first channel; w indexes [r][s][c / groups] within one k */
};

typedef void (*tap_function)(const struct conv_plan *plan, const struct tap *tap);

/* Calls function for every tap that lies inside x. */
static void for_each_tap(const struct conv_plan *plan, tap_function function)
{
	const struct conv_problem *problem = &plan->problem;

	for (size_t i = 0; i < (size_t)problem->n * problem->p * problem->q; i++) {
		size_t q = i % problem->q, p = i / problem->q % problem->p;
		size_t n = i / problem->q / problem->p;

		for (size_t j = 0; j < (size_t)problem->r * problem->s; j++) {
			/*
			 * in the padding, h and w wrap around to values far above problem->h and
			 * problem->w
			 */
			size_t h = p * problem->stride + j / problem->s - problem->pad;
			size_t w = q * problem->stride + j % problem->s - problem->pad;

			if (h >= problem->h || w >= problem->w)
				continue;
			function(plan,
				 &(struct tap){
					 .y = i * problem->k,
					 .w = j * conv_weight_channels(problem),
					 .x = ((n * problem->h + h) * problem->w + w) * problem->c,
				 });
		}
	}
}

/*
 * Adds `count` rows, each multiplied by its factor, in order. Adds several rows per pass, so that
 * sums stay in registers.
 */
static void add_rows(float *restrict sums, size_t width, const float *restrict factors,
		     const float *restrict rows, size_t stride, size_t count)
{
	size_t i = 0;

	for (; i + 4 <= count; i += 4, rows += 4 * stride)
		for (size_t j = 0; j < width; j++)
			sums[j] = sums[j] + factors[i] * rows[j] +
				  factors[i + 1] * rows[stride + j] +
				  factors[i + 2] * rows[2 * stride + j] +
				  factors[i + 3] * rows[3 * stride + j];
	for (; i < count; i++, rows += stride)
		for (size_t j = 0; j < width; j++)
			sums[j] += factors[i] * rows[j];
}

static void tap_forward(const struct conv_plan *plan, const struct tap *tap)
{
	size_t channels = conv_weight_channels(&plan->problem), width = plan->problem.k;
	size_t groups = plan->problem.groups, share = width / groups;

	for (size_t group = 0; group < groups; group++)
		add_rows(plan->y + tap->y + group * share, share,
			 plan->x + tap->x + group * channels,
			 plan->w + tap->w * width + group * share, width, channels);
}

static void tap_data(const struct conv_plan *plan, const struct tap *tap)
{
	size_t channels = conv_weight_channels(&plan->problem);
	size_t groups = plan->problem.groups, share = plan->problem.k / groups;
	size_t stride = plan->w_count / plan->problem.k;

	for (size_t group = 0; group < groups; group++)
		add_rows(plan->x + tap->x + group * channels, channels,
			 plan->y + tap->y + group * share,
			 plan->w + group * share * stride + tap->w, stride, share);
}

static void tap_weights(const struct conv_plan *plan, const struct tap *tap)
{
	size_t channels = conv_weight_channels(&plan->problem);
	size_t groups = plan->problem.groups, share = plan->problem.k / groups;
	size_t stride = plan->w_count / plan->problem.k;

	for (size_t group = 0; group < groups; group++) {
		const float *restrict x = plan->x + tap->x + group * channels;
		const float *y = plan->y + tap->y + group * share;

		for (size_t k = 0; k < share; k++) {
			float *restrict w = plan->w + (group * share + k) * stride + tap->w;

			for (size_t c = 0; c < channels; c++)
				w[c] += y[k] * x[c];
		}
	}
}

/* Computes sum[k] and squares[k] of the stored output. */
static void statistics(const struct conv_plan *plan, const struct conv_arguments *arguments)
{
	size_t width = plan->problem.k;

	for (size_t k = 0; k < width; k++) {
		double sum = 0, squares = 0;

		for (size_t i = k; i < plan->y_count; i += width) {
			double y = element_round(plan->problem.element, plan->y[i]);

			sum += y;
			squares += y * y;
		}
		arguments->sum[k] = (float)sum;
		arguments->squares[k] = (float)squares;
	}
}

static float activate(enum device_activation activation, float z)
{
	switch (activation) {
	case DEVICE_RELU:
		return z < 0 ? 0 : z;
	case DEVICE_GELU:
		return 0.5f * z * (1 + erff(z * (float)M_SQRT1_2));
	default:
		return z;
	}
}

static void add_bias(const struct conv_plan *plan, const struct conv_arguments *arguments)
{
	const struct conv_problem *problem = &plan->problem;

	for (size_t i = 0; i < plan->y_count; i++) {
		float z = plan->y[i];

		if (problem->residual)
			z += load(problem->element, arguments->residual, i);
		z += load(problem->element, arguments->channel_bias, i % problem->k);
		plan->y[i] = activate(problem->activation, z);
	}
}

static void run_forward(const struct conv_plan *plan, const struct conv_arguments *arguments)
{
	prologue(plan, arguments);
	transpose_weights(plan, arguments->w);
	memset(plan->y, 0, plan->y_count * sizeof(float));
	for_each_tap(plan, tap_forward);
	if (plan->problem.epilogue == CONV_STATISTICS)
		statistics(plan, arguments);
	if (plan->problem.epilogue == CONV_BIAS)
		add_bias(plan, arguments);
	floats_to_elements(plan->problem.element, plan->y, arguments->y, plan->y_count);
}

static void add_residual(const struct conv_plan *plan, const void *residual)
{
	for (size_t i = 0; i < plan->x_count; i++)
		plan->x[i] += load(plan->problem.element, residual, i);
}

/* Backward pass of a batch norm followed by ReLU. */
struct norm {
	const void *raw;                              /* [n][h][w][c] of element */
	const float *mean, *deviation, *gamma, *beta; /* [c] */
	float *dgamma, *dbeta, *a, *b, *d;            /* [c] */
};

/* (raw - mean) * deviation */
static float normal(const struct norm *norm, enum cuda_element element, size_t index, size_t c)
{
	return (load(element, norm->raw, index) - norm->mean[c]) * norm->deviation[c];
}

/* Sums plan->x, which is dz, and computes the gradients and coefficients of the norm. */
static void norm_backward(const struct conv_plan *plan, const struct norm *norm)
{
	size_t channels = plan->problem.c;
	double count = (double)(plan->x_count / channels);

	for (size_t c = 0; c < channels; c++) {
		double dbeta = 0, dgamma = 0;

		for (size_t i = c; i < plan->x_count; i += channels) {
			dbeta += plan->x[i];
			dgamma += (double)plan->x[i] * normal(norm, plan->problem.element, i, c);
		}
		double a = (double)norm->gamma[c] * norm->deviation[c];
		double b = -a * norm->deviation[c] * dgamma / count;
		norm->dbeta[c] = (float)dbeta;
		norm->dgamma[c] = (float)dgamma;
		norm->a[c] = (float)a;
		norm->b[c] = (float)b;
		norm->d[c] = (float)(-a * dbeta / count - b * norm->mean[c]);
	}
}

/* Replaces plan->x, which is dx, by dz, computed from dx [+ residual]. */
static void relu_norm(const struct conv_plan *plan, const struct conv_arguments *arguments)
{
	const struct conv_problem *problem = &plan->problem;
	enum cuda_element element = problem->element;
	const struct norm norm = {
		arguments->raw,  arguments->mean,   arguments->deviation, arguments->gamma,
		arguments->beta, arguments->dgamma, arguments->dbeta,     arguments->a,
		arguments->b,    arguments->d,
	};
	const struct norm norm2 = {
		arguments->raw2,  arguments->mean2,   arguments->deviation2, arguments->gamma2,
		arguments->beta2, arguments->dgamma2, arguments->dbeta2,     arguments->a2,
		arguments->b2,    arguments->d2,
	};

	for (size_t i = 0; i < plan->x_count; i++) {
		size_t c = i % problem->c;
		float z = norm.gamma[c] * normal(&norm, element, i, c) + norm.beta[c];

		if (problem->shortcut == CONV_SHORTCUT)
			z += load(element, arguments->shortcut, i);
		if (problem->shortcut == CONV_SHORTCUT_NORM)
			z += norm2.gamma[c] * normal(&norm2, element, i, c) + norm2.beta[c];
		plan->x[i] = z > 0 ? element_round(element, plan->x[i]) : 0;
	}
	norm_backward(plan, &norm);
	if (problem->shortcut == CONV_SHORTCUT_NORM)
		norm_backward(plan, &norm2);
}

static void run_data(const struct conv_plan *plan, const struct conv_arguments *arguments)
{
	enum cuda_element element = plan->problem.element;

	elements_to_floats(element, arguments->y, plan->y, plan->y_count);
	elements_to_floats(element, arguments->w, plan->w, plan->w_count);
	memset(plan->x, 0, plan->x_count * sizeof(float));
	for_each_tap(plan, tap_data);
	if (plan->problem.epilogue == CONV_ADD || plan->problem.residual)
		add_residual(plan, arguments->residual);
	if (plan->problem.epilogue == CONV_RELU_NORM)
		relu_norm(plan, arguments);
	floats_to_elements(element, plan->x, arguments->x, plan->x_count);
}

static void run_weights(const struct conv_plan *plan, const struct conv_arguments *arguments)
{
	prologue(plan, arguments);
	elements_to_floats(plan->problem.element, arguments->y, plan->y, plan->y_count);
	memset(plan->w, 0, plan->w_count * sizeof(float));
	for_each_tap(plan, tap_weights);
	floats_to_elements(plan->problem.gradient, plan->w, arguments->w, plan->w_count);
}

static void run(const void *work)
{
	const struct conv_work *conv = work;

	memset(conv->arguments.workspace, 0xa5, EMULATION_WORKSPACE);
	switch (conv->plan->problem.direction) {
	case CONV_FORWARD:
		run_forward(conv->plan, &conv->arguments);
		break;
	case CONV_DATA:
		run_data(conv->plan, &conv->arguments);
		break;
	case CONV_WEIGHTS:
		run_weights(conv->plan, &conv->arguments);
		break;
	}
}

static bool refuses(const struct conv_problem *problem)
{
	const char *plans = getenv(EMULATION_PLANS);

	return emulation_refused(problem) ||
	       (plans && strcmp(plans, "plain") == 0 &&
		(problem->prologue != CONV_PLAIN || problem->epilogue != CONV_STORE));
}

static int make_plan(void *state, const struct conv_problem *problem, struct conv_plan **ret_plan)
{
	char name[160];

	if (conv_problem_check(problem) < 0) {
		conv_problem_name(problem, name, sizeof(name));
		snprintf(failure, sizeof(failure), "%s: not a convolution", name);
		return -EINVAL;
	}
	if (refuses(problem))
		return -ENOENT;
	struct conv_plan *plan = calloc(1, sizeof(*plan));
	if (!plan)
		return -ENOMEM;
	plan->problem = *problem;
	plan->x_count = (size_t)problem->n * problem->h * problem->w * problem->c;
	plan->y_count = (size_t)problem->n * problem->p * problem->q * problem->k;
	plan->w_count =
		(size_t)problem->k * problem->r * problem->s * conv_weight_channels(problem);
	*ret_plan = plan;
	return 0;
}

static void plan_info(const struct conv_plan *plan, struct conv_plan_info *ret_info)
{
	*ret_info = (struct conv_plan_info){
		.engine = "emulated",
		.workspace_bytes = EMULATION_WORKSPACE,
		.deterministic = true,
		.tuned_ms = (float)emulation_tuned_ms(&plan->problem),
	};
}

static void plan_free(struct conv_plan *plan)
{
	if (!plan)
		return;
	free(plan->x);
	free(plan->y);
	free(plan->w);
	free(plan);
}

static int allocate(struct conv_plan *plan)
{
	if (!plan->x)
		plan->x = malloc(plan->x_count * sizeof(float));
	if (!plan->y)
		plan->y = malloc(plan->y_count * sizeof(float));
	if (!plan->w)
		plan->w = malloc(plan->w_count * sizeof(float));
	return plan->x && plan->y && plan->w ? 0 : -ENOMEM;
}

static int execute(void *state, struct conv_plan *plan, const struct conv_arguments *arguments,
		   gpu_stream stream)
{
	struct conv_work work = {plan, *arguments};
	const char *missing = conv_arguments_missing(&plan->problem, arguments);
	char name[160];

	if (!missing && !arguments->workspace)
		missing = "workspace";
	if (missing) {
		conv_problem_name(&plan->problem, name, sizeof(name));
		snprintf(failure, sizeof(failure), "%s: executed without %s, aligned to %d bytes",
			 name, missing, CONV_ALIGNMENT);
		return -EINVAL;
	}
	if (allocate(plan) < 0) {
		conv_problem_name(&plan->problem, name, sizeof(name));
		snprintf(failure, sizeof(failure), "%s: no memory to compute it in", name);
		return -ENOMEM;
	}
	return emulation_queue(stream, run, &work, sizeof(work));
}

/* Runs the problem once, to check that the arguments are complete. */
static int tune(void *state, const struct conv_problem *problem,
		const struct conv_arguments *arguments, uint64_t workspace_bytes, gpu_stream stream)
{
	struct conv_plan *plan;

	if (refuses(problem))
		return 0;
	if (workspace_bytes < EMULATION_WORKSPACE)
		return -ENOENT;
	if (emulation_tuned_ms(problem) < 0) {
		snprintf(failure, sizeof(failure), "no time was taken");
		return -EIO;
	}
	int r = make_plan(state, problem, &plan);
	if (r < 0)
		return r;
	r = execute(state, plan, arguments, stream);
	if (r == 0)
		r = gpu_stream_synchronize(stream);
	plan_free(plan);
	return r;
}

static const char *error(void *state)
{
	return failure;
}

const struct conv_engines emulation_conv_engines = {
	.plan = make_plan,
	.plan_info = plan_info,
	.plan_free = plan_free,
	.execute = execute,
	.tune = tune,
	.refuse = emulation_refuse,
	.export_tuning = emulation_export_tuning,
	.import_tuning = emulation_import_tuning,
	.error = error,
};
