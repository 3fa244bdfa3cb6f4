/*
 * trainer --check-gradients: compares the gradients of the first batch with finite differences of
 * the loss.
 *
 * Each parameter is moved along its gradient, where the derivative must be the gradient's norm.
 * Elements with zero gradient are also moved in a random direction, where the derivative must be
 * zero. Derivatives are central differences with a step size that is halved until halving no longer
 * matters.
 *
 * The comparison tolerates:
 * - the change of the derivative by the last halving
 * - the rounding of an fp32 loss
 * - a kink at the point itself, such as two equal maxima: the gradient may be that of either side,
 *   and the central difference is the mean of both
 */
#include "format/base/random.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"
#include "trainer/run/network/micro_batch.h"
#include "trainer/run/run_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define CHECK_TOLERANCE 0.01 /* fraction of the gradient's norm */
#define CHECK_ROUNDING  2e-8 /* relative error of a loss, measured for the mean over a batch */
#define CHECK_FALL      2e-4 /* largest step size: expected change, as a fraction of the loss */
#define CHECK_REACH     0.02 /* largest step size, as a fraction of the parameter's norm */
#define CHECK_SMALL     0.01 /* root mean square below which values hide the layers before them */
#define CHECK_FILLED    0.1  /* magnitude of the values that replace them */

enum { CHECK_HALVINGS = 8, CHECK_DIRECTIONS = 2 };

/* Arrays for one parameter, in host layout. */
struct check_arrays {
	float *values, *gradient, *direction, *moved;
};

struct check {
	struct run *run;
	struct check_arrays arrays;
	struct device_batch batch;
	double loss;
	unsigned checked, wrong, flat;
	FILE *file;
};

struct slope {
	double measured, uncertainty;
};

/* For one step size: the central difference, and half the difference between the one-sided ones. */
struct difference {
	double slope, bend;
};

enum verdict { CHECK_FLAT, CHECK_RIGHT, CHECK_WRONG };

static int check_fail(struct check *check, int r)
{
	struct run_context *ctx = &check->run->ctx;
	return run_fail(ctx, r, "--check-gradients: %s", run_device_text(ctx, r));
}

static int check_loss(struct check *check, double *ret_loss)
{
	struct device_graph *graph = check->run->network.train.graph;
	struct device_results results = {0};
	uint64_t step;
	if (*check->run->ctx.options.stop)
		return -EINTR;
	int r = micro_batch_forward(graph, &check->batch, false, &step);
	if (r == 0)
		r = device_results(graph, step, true, &results);
	if (r < 0)
		return check_fail(check, r);
	*ret_loss = results.loss;
	return 0;
}

/* Computes the loss with the parameter moved by a distance along the direction. */
static int check_move(struct check *check, struct device_param *param, double distance,
		      double *ret_loss)
{
	const struct check_arrays *arrays = &check->arrays;
	size_t count = device_param_elements(param);
	for (size_t i = 0; i < count; i++)
		arrays->moved[i] = (float)((double)arrays->values[i] +
					   distance * (double)arrays->direction[i]);
	int r = device_param_write(param, DEVICE_VALUE, arrays->moved);
	return r < 0 ? check_fail(check, r) : check_loss(check, ret_loss);
}

static int check_difference(struct check *check, struct device_param *param, double distance,
			    struct difference *ret_difference)
{
	double above = 0, below = 0;
	int r = check_move(check, param, distance, &above);
	if (r < 0)
		return r;
	r = check_move(check, param, -distance, &below);
	if (r < 0)
		return r;
	*ret_difference = (struct difference){
		.slope = (above - below) / (2 * distance),
		.bend = (above + below - 2 * check->loss) / (2 * distance),
	};
	return 0;
}

/*
 * Measures a derivative: halves the step size until the derivative matches the expected one, or
 * rounding would hide it. The error due to curvature shrinks with the step size, that of a kink
 * does not.
 */
static int check_slope(struct check *check, struct device_param *param, double distance,
		       double expected, double length, struct slope *ret_slope)
{
	struct difference whole = {0}, half = {0};
	int r = check_difference(check, param, distance, &whole);
	if (r < 0)
		return r;
	for (int i = 0; i < CHECK_HALVINGS; i++, distance /= 2, whole = half) {
		r = check_difference(check, param, distance / 2, &half);
		if (r < 0)
			return r;
		double rounding = CHECK_ROUNDING * fabs(check->loss) / distance;
		double change = fabs(half.slope - whole.slope);
		double kink = fabs(2 * half.bend - whole.bend);
		struct slope slope = {half.slope, 2 * (change + rounding) + kink};
		bool fits = fabs(half.slope - expected) < CHECK_TOLERANCE * length;
		*ret_slope = slope;
		if (fits || rounding > CHECK_TOLERANCE / 4 * length)
			break;
	}
	return 0;
}

static double norm(const float *values, size_t count)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += (double)values[i] * (double)values[i];
	return sqrt(sum);
}

/*
 * Sets a unit direction: the gradient's if `along`, else a random one over the elements whose
 * gradient is 0. Returns false if there is no such direction.
 */
static bool check_set_direction(struct check *check, size_t index, size_t count, bool along)
{
	const struct check_arrays *arrays = &check->arrays;
	struct random_stream stream;
	random_init(&stream, check->run->ctx.recipe->train.seed, 0, index, RANDOM_MIX);
	for (size_t i = 0; i < count; i++) {
		float sign = random_u32(&stream) & 1 ? 1 : -1;
		arrays->direction[i] = along                      ? arrays->gradient[i]
				       : arrays->gradient[i] == 0 ? sign
								  : 0;
	}
	double length = norm(arrays->direction, count);
	for (size_t i = 0; i < count && length > 0; i++)
		arrays->direction[i] = (float)((double)arrays->direction[i] / length);
	return length > 0;
}

static enum verdict check_judge(double expected, struct slope slope, double length)
{
	if (!isfinite(slope.measured) || !isfinite(expected))
		return CHECK_WRONG;
	if (fabs(expected - slope.measured) > CHECK_TOLERANCE * length + slope.uncertainty)
		return CHECK_WRONG;
	return length > 2 * slope.uncertainty ? CHECK_RIGHT : CHECK_FLAT;
}

/* Measures the derivative in both directions and judges each. */
static int check_slopes(struct check *check, size_t index, struct device_param *param,
			double length, struct slope slopes[CHECK_DIRECTIONS],
			enum verdict *ret_worst)
{
	size_t count = device_param_elements(param);
	double reach = CHECK_REACH * fmax(norm(check->arrays.values, count), CHECK_FILLED);
	double distance = fmin(reach, CHECK_FALL * check->loss / length);
	for (int i = 0; i < CHECK_DIRECTIONS; i++) {
		double expected = i ? 0 : length;
		if (!check_set_direction(check, index, count, !i))
			continue;
		int r = check_slope(check, param, distance, expected, length, &slopes[i]);
		if (r < 0)
			return r;
		enum verdict verdict = check_judge(expected, slopes[i], length);
		*ret_worst = verdict > *ret_worst ? verdict : *ret_worst;
	}
	return 0;
}

static int check_param(struct check *check, size_t index, struct device_param *param)
{
	static const char *const words[] = {"too flat to tell", "", "DIFFERS"};
	size_t count = device_param_elements(param);
	struct slope slopes[CHECK_DIRECTIONS] = {0};
	enum verdict worst = CHECK_FLAT;
	int r = device_param_read(param, DEVICE_VALUE, check->arrays.values);
	if (r == 0)
		r = device_param_read(param, DEVICE_GRAD, check->arrays.gradient);
	if (r < 0)
		return check_fail(check, r);
	double length = norm(check->arrays.gradient, count);
	r = check_slopes(check, index, param, length, slopes, &worst);
	int restored = device_param_write(param, DEVICE_VALUE, check->arrays.values);
	if (r < 0)
		return r;
	if (restored < 0)
		return check_fail(check, restored);
	check->checked++;
	check->wrong += worst == CHECK_WRONG;
	check->flat += worst == CHECK_FLAT;
	fprintf(check->file, "%-40s %10zu  %12.5g %12.5g  %12.5g  %s\n",
		device_param_spec(param)->name, count, length, slopes[0].measured,
		slopes[1].measured, words[worst]);
	return 0;
}

static bool check_applies_to(const struct device_param *param)
{
	const struct device_param_spec *spec = device_param_spec(param);
	return spec->kind != DEVICE_BUFFER && !spec->frozen;
}

/*
 * Fills a parameter initialised to 0 or 1e-6, such as at the end of a residual block, with other
 * values; otherwise it would hide the gradients of all layers before it.
 */
static int check_fill_param(struct check *check, size_t index, struct device_param *param)
{
	float *values = check->arrays.values;
	size_t count = device_param_elements(param);
	struct random_stream stream;
	int r = device_param_read(param, DEVICE_VALUE, values);
	if (r < 0 || norm(values, count) > CHECK_SMALL * sqrt((double)count))
		return r;
	random_init(&stream, check->run->ctx.recipe->train.seed, 1, index, RANDOM_MIX);
	for (size_t i = 0; i < count; i++)
		values[i] = (float)(random_u32(&stream) & 1 ? CHECK_FILLED : -CHECK_FILLED);
	return device_param_write(param, DEVICE_VALUE, values);
}

static int check_fill(struct check *check)
{
	struct device_params *params = check->run->network.params;
	for (size_t i = 0; i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		int r = check_applies_to(param) ? check_fill_param(check, i, param) : 0;
		if (r < 0)
			return check_fail(check, r);
	}
	return 0;
}

static int check_params(struct check *check)
{
	struct device_params *params = check->run->network.params;
	fprintf(check->file, "%-40s %10s  %12s %12s  %12s\n", "parameter", "elements", "gradient",
		"measured", "where it is 0");
	for (size_t i = 0; i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		int r = check_applies_to(param) ? check_param(check, i, param) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Called before the first update, which is not made. Restores the device's state, except for the
 * parameters that check_fill() fills.
 */
static int check_before_step(void *data, const struct device_batch *batch)
{
	struct check *check = data;
	struct run *run = check->run;
	const struct run_graph *train = &run->network.train;
	check->batch = micro_batch(batch, run->data.classes, train->count, 0);
	int r = check_fill(check);
	if (r < 0)
		return r;
	r = check_loss(check, &check->loss);
	if (r < 0)
		return r;
	r = micro_batch_gradients(train->graph, &check->batch);
	if (r < 0)
		return check_fail(check, r);
	r = check_params(check);
	device_params_drop_gradients(run->network.params);
	return r;
}

static int check_report(const struct check *check)
{
	if (check->wrong)
		return run_fail(&check->run->ctx, -EDOM,
				"--check-gradients: of %u parameters, %u have gradients that "
				"differ from the slope of the loss; see the table",
				check->checked, check->wrong);
	fprintf(check->file, "the loss, %.5f, matches the gradients of %u parameters%s",
		check->loss, check->checked - check->flat, check->flat ? ", " : "\n");
	if (check->flat)
		fprintf(check->file, "and is too flat to check %u\n", check->flat);
	return 0;
}

static int check_run(struct check *check)
{
	struct run *run = check->run;
	run->hook = (struct step_hook){.before = check_before_step, .data = check};
	int r = run_step(run);
	run->hook = (struct step_hook){0};
	if (r == -EINTR || r == RUN_LOST)
		return run_fail(&run->ctx, -EINTR, "--check-gradients: stopped after %u parameters",
				check->checked);
	return r < 0 ? r : check_report(check);
}

int run_check_gradients(struct run *run, FILE *file)
{
	size_t size = device_params_largest(run->network.params) * sizeof(float);
	struct check check = {.run = run, .file = file};
	struct check_arrays *arrays = &check.arrays;
	int r = run_refuse_ranks(&run->ctx, "--check-gradients");
	if (r < 0)
		return r;
	arrays->values = malloc(size);
	arrays->gradient = malloc(size);
	arrays->direction = malloc(size);
	arrays->moved = malloc(size);
	r = arrays->values && arrays->gradient && arrays->direction && arrays->moved
		    ? check_run(&check)
		    : run_fail(&run->ctx, -ENOMEM, "out of memory");
	free(arrays->values);
	free(arrays->gradient);
	free(arrays->direction);
	free(arrays->moved);
	return r;
}
