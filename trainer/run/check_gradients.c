/*
 * trainer --check-gradients: compares the gradients that backward computes on the first batch with
 * finite differences of the loss. Each parameter is moved along its gradient, which checks the
 * gradient's length; elements with zero gradient are moved in a random direction, in which the loss
 * must be flat. Slopes are central differences with a step that is halved until halving no longer
 * matters. Tolerated are the remaining change, the rounding of an fp32 loss, and a kink at the
 * point itself, e.g. two equal maxima: the gradient may be that of either side, and the central
 * difference is the mean of both.
 */
#include "format/base/random.h"
#include "trainer/run/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_TOLERANCE 0.01 /* of the gradient's norm */
#define CHECK_ROUNDING  2e-8 /* of a loss, as measured: a mean over a batch */
#define CHECK_FALL      2e-4 /* of the loss, by the gradient */
#define CHECK_REACH     0.02 /* of the norm of what is moved */
#define CHECK_SMALL     0.01 /* root of the mean square of values that hide what is before them */
#define CHECK_FILLED    0.1  /* which takes their place */

enum { CHECK_HALVINGS = 8, CHECK_DIRECTIONS = 2 };

/* Arrays for one parameter, in host layout. */
struct check_arrays {
	float *values, *gradient, *direction, *moved;
};

struct check {
	struct check_arrays arrays;
	struct device_batch batch;
	double loss;
	unsigned checked, wrong, flat;
	FILE *file;
};

struct slope {
	double measured, doubt;
};

/* For one step size: the slope, and half the difference between the one-sided slopes. */
struct difference {
	double slope, bend;
};

enum verdict { CHECK_FLAT, CHECK_RIGHT, CHECK_WRONG };

static int check_fail(struct run *run, int r)
{
	return run_fail(run, r, "--check-gradients: %s", run_device_text(run, r));
}

static int check_loss(struct run *run, double *ret_loss)
{
	struct device_graph *graph = run->train.graph;
	struct device_results results = {0};
	uint64_t ticket, step;
	if (*run->options.stop)
		return -EINTR;
	int r = device_feed(graph, &run->check->batch, &ticket);
	if (!r)
		r = device_forward(graph, false, &step);
	if (!r)
		r = device_results(graph, step, true, &results);
	if (!r)
		r = device_fed(graph, ticket, true);
	*ret_loss = results.loss;
	return r ? check_fail(run, r) : 0;
}

/* Loss with the parameter moved by a distance along the direction. */
static int check_move(struct run *run, struct device_param *param, double way, double *ret_loss)
{
	const struct check_arrays *arrays = &run->check->arrays;
	size_t count = device_param_elements(param);
	for (size_t i = 0; i < count; i++)
		arrays->moved[i] =
			(float)((double)arrays->values[i] + way * (double)arrays->direction[i]);
	int r = device_param_write(param, DEVICE_VALUE, arrays->moved);
	return r ? check_fail(run, r) : check_loss(run, ret_loss);
}

static int check_difference(struct run *run, struct device_param *param, double way,
			    struct difference *ret_difference)
{
	double above = 0, below = 0;
	int r = check_move(run, param, way, &above);
	if (!r)
		r = check_move(run, param, -way, &below);
	*ret_difference = (struct difference){
		.slope = (above - below) / (2 * way),
		.bend = (above + below - 2 * run->check->loss) / (2 * way),
	};
	return r;
}

/*
 * Halves the step size until the slope matches the gradient, or rounding would hide it. The error
 * due to curvature shrinks with the step; that of a kink does not.
 */
static int check_slope(struct run *run, struct device_param *param, double way, double expected,
		       double length, struct slope *ret_slope)
{
	struct difference whole = {0}, half = {0};
	int r = check_difference(run, param, way, &whole);
	for (int i = 0; i < CHECK_HALVINGS && !r; i++, way /= 2, whole = half) {
		r = check_difference(run, param, way / 2, &half);
		double rounding = CHECK_ROUNDING * fabs(run->check->loss) / way;
		double change = fabs(half.slope - whole.slope);
		double kink = fabs(2 * half.bend - whole.bend);
		struct slope slope = {half.slope, 2 * (change + rounding) + kink};
		bool fits = fabs(half.slope - expected) < CHECK_TOLERANCE * length;
		*ret_slope = slope;
		if (fits || rounding > CHECK_TOLERANCE / 4 * length)
			break;
	}
	return r;
}

static double norm(const float *values, size_t count)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += (double)values[i] * (double)values[i];
	return sqrt(sum);
}

/*
 * Sets a direction of length 1: the gradient's, or a random one where the gradient is 0. False if
 * there is none.
 */
static bool check_direct(struct run *run, size_t index, size_t count, bool along)
{
	const struct check_arrays *arrays = &run->check->arrays;
	struct random_stream stream;
	random_init(&stream, run->recipe->train.seed, 0, index, RANDOM_MIX);
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
	if (fabs(expected - slope.measured) > CHECK_TOLERANCE * length + slope.doubt)
		return CHECK_WRONG;
	return length > 2 * slope.doubt ? CHECK_RIGHT : CHECK_FLAT;
}

static int check_param(struct run *run, size_t index, struct device_param *param)
{
	static const char *const words[] = {"too flat to tell", "", "DIFFERS"};
	struct check *check = run->check;
	size_t count = device_param_elements(param);
	struct slope slopes[CHECK_DIRECTIONS] = {0};
	enum verdict worst = CHECK_FLAT;
	int r = device_param_read(param, DEVICE_VALUE, check->arrays.values);
	if (!r)
		r = device_param_read(param, DEVICE_GRAD, check->arrays.gradient);
	if (r)
		return check_fail(run, r);
	double length = norm(check->arrays.gradient, count);
	double reach = CHECK_REACH * fmax(norm(check->arrays.values, count), CHECK_FILLED);
	double way = fmin(reach, CHECK_FALL * check->loss / length);
	for (int i = 0; i < CHECK_DIRECTIONS && !r; i++) {
		double expected = i ? 0 : length;
		if (!check_direct(run, index, count, !i))
			continue;
		r = check_slope(run, param, way, expected, length, &slopes[i]);
		enum verdict verdict = r ? CHECK_FLAT : check_judge(expected, slopes[i], length);
		worst = verdict > worst ? verdict : worst;
	}
	int restored = device_param_write(param, DEVICE_VALUE, check->arrays.values);
	if (r || restored)
		return r ? r : check_fail(run, restored);
	check->checked++;
	check->wrong += worst == CHECK_WRONG;
	check->flat += worst == CHECK_FLAT;
	fprintf(check->file, "%-40s %10zu  %12.5g %12.5g  %12.5g  %s\n",
		device_param_spec(param)->name, count, length, slopes[0].measured,
		slopes[1].measured, words[worst]);
	return 0;
}

static bool check_takes(const struct device_param *param)
{
	const struct device_param_spec *spec = device_param_spec(param);
	return spec->kind != DEVICE_BUFFER && !spec->frozen;
}

/*
 * Parameters initialised to 0 or 1e-6, such as at the end of a residual block, would hide all
 * layers before them: fills them with other values.
 */
static int check_fill(struct run *run)
{
	float *values = run->check->arrays.values;
	int r = 0;
	for (size_t i = 0; i < device_params_count(run->params) && !r; i++) {
		struct device_param *param = device_params_at(run->params, i);
		size_t count = device_param_elements(param);
		r = check_takes(param) ? device_param_read(param, DEVICE_VALUE, values) : 0;
		if (r || !check_takes(param) ||
		    norm(values, count) > CHECK_SMALL * sqrt((double)count))
			continue;
		struct random_stream stream;
		random_init(&stream, run->recipe->train.seed, 1, i, RANDOM_MIX);
		for (size_t j = 0; j < count; j++)
			values[j] = (float)(random_u32(&stream) & 1 ? CHECK_FILLED : -CHECK_FILLED);
		r = device_param_write(param, DEVICE_VALUE, values);
	}
	return r ? check_fail(run, r) : 0;
}

/*
 * Replaces the first update; restores the device's state, except for the parameters filled above.
 */
static int check_observe(struct run *run, const struct device_batch *batch)
{
	struct check *check = run->check;
	uint64_t ticket, step;
	check->batch = run_slice(run, batch, 0);
	int r = check_fill(run);
	if (!r)
		r = check_loss(run, &check->loss);
	if (r)
		return r;
	r = device_feed(run->train.graph, &check->batch, &ticket);
	if (!r)
		r = device_step(run->train.graph, NULL, &step);
	if (!r)
		r = device_fed(run->train.graph, ticket, true);
	if (r)
		return check_fail(run, r);
	fprintf(check->file, "%-40s %10s  %12s %12s  %12s\n", "parameter", "elements", "gradient",
		"measured", "where it is 0");
	for (size_t i = 0; i < device_params_count(run->params) && !r; i++) {
		struct device_param *param = device_params_at(run->params, i);
		r = check_takes(param) ? check_param(run, i, param) : 0;
	}
	device_params_drop_gradients(run->params);
	return r;
}

static int check_report(struct run *run)
{
	const struct check *check = run->check;
	if (check->wrong)
		return run_fail(run, -EDOM,
				"--check-gradients: of %u parameters %u have gradients that the "
				"loss does not follow; the table has them",
				check->checked, check->wrong);
	fprintf(check->file, "the loss, %.5f, follows the gradients of %u parameters%s",
		check->loss, check->checked - check->flat, check->flat ? ", " : "\n");
	if (check->flat)
		fprintf(check->file, "and is too flat to tell of %u\n", check->flat);
	return 0;
}

int run_check_gradients(struct run *run, FILE *file)
{
	size_t size = device_params_largest(run->params) * sizeof(float);
	struct check check = {.file = file};
	struct check_arrays *arrays = &check.arrays;
	int r = run_refuse_ranks(run, "--check-gradients");
	if (r)
		return r;
	arrays->values = malloc(size);
	arrays->gradient = malloc(size);
	arrays->direction = malloc(size);
	arrays->moved = malloc(size);
	run->check = &check;
	run->observe = check_observe;
	r = arrays->values && arrays->gradient && arrays->direction && arrays->moved
		    ? run_step(run)
		    : run_fail(run, -ENOMEM, "out of memory");
	run->observe = NULL;
	if (!r)
		r = check_report(run);
	else if (r == -EINTR || r == RUN_LOST)
		r = run_fail(run, -EINTR, "--check-gradients: stopped after %u parameters",
			     check.checked);
	run->check = NULL;
	free(arrays->values);
	free(arrays->gradient);
	free(arrays->direction);
	free(arrays->moved);
	return r;
}
