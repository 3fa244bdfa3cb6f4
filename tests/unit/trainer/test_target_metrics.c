/*
 * Metrics of multi-label and regression outputs against scikit-learn 1.9.1, with v, t and y of
 * make_rows():
 *
 *	average_precision_score(t[:, c], v[:, c]), f1_score(t, v > 0, average="micro"),
 *	mean_absolute_error(y, v), root_mean_squared_error(y, v), r2_score(y, v),
 *	also with multioutput="raw_values"
 */
#include "tests/test.h"
#include "trainer/algorithms/target_metrics.h"
#include "trainer/device/ops.h"

#include <math.h>

enum { SAMPLES = 40, OUTPUTS = 4 };

struct made {
	float values[SAMPLES * OUTPUTS], labels[SAMPLES * OUTPUTS], numbers[SAMPLES * OUTPUTS];
	struct target_rows labelled, measured;
};

/*
 * Values repeat, so that thresholds tie. Output 3 has no positive sample, and its number is 2 in
 * every sample.
 */
static void make_rows(struct made *made)
{
	for (unsigned i = 0; i < SAMPLES; i++)
		for (unsigned k = 0; k < OUTPUTS; k++) {
			unsigned at = i * OUTPUTS + k;
			made->values[at] = (float)((i * 37 + k * 11) % 23) / 4 - 2.75f;
			made->labels[at] = k < 3 && (i * 11 + k * 5) % (5 + k) < 2;
			made->numbers[at] = k < 3 ? (float)(((i * 13 + k * 17) % 19) / 3.0 - 2) : 2;
		}
	made->labelled = (struct target_rows){SAMPLES, OUTPUTS, made->values, made->labels};
	made->measured = (struct target_rows){SAMPLES, OUTPUTS, made->values, made->numbers};
}

static void near(double value, double expected)
{
	if (!(fabs(value - expected) < 1e-6))
		fail_msg("%.15g, expected %.15g", value, expected);
}

TEST(multi_label)
{
	static const double expected[3] = {0.414742691455815, 0.363479876953611, 0.34664927543217};
	double each[OUTPUTS], mean;
	struct made made;
	make_rows(&made);
	assert_int_equal(target_average_precision(&made.labelled, each, &mean), 0);
	for (unsigned k = 0; k < 3; k++)
		near(each[k], expected[k]);
	assert_true(isnan(each[3]));
	near(mean, 0.374957281280532);
	near(target_micro_f1(&made.labelled), 0.379310344827586);
}

/* The precision of a diverged network is NaN, not the best one. */
TEST(not_finite)
{
	double each[OUTPUTS], mean;
	struct made made;
	make_rows(&made);
	made.values[5] = NAN;
	assert_int_equal(target_average_precision(&made.labelled, each, &mean), 0);
	assert_true(isnan(each[1]) && !isnan(each[0]) && isnan(mean));
	assert_true(isnan(target_errors(&made.measured, 1).mae));
}

TEST(nothing_positive)
{
	const float values[2] = {-1, -2}, labels[2] = {0, 0};
	const struct target_rows rows = {2, 1, values, labels};
	double each, mean;
	assert_int_equal(target_average_precision(&rows, &each, &mean), 0);
	assert_true(isnan(each) && mean == 0 && target_micro_f1(&rows) == 0);
}

TEST(regression)
{
	static const struct target_errors expected[OUTPUTS] = {
		{2.07916666666667, 2.55780396260368, -0.904964108785765},
		{2.18541666666667, 2.67060256413334, -1.12987349647449},
		{2.20833333333333, 2.74564048387014, -1.30948429920858},
		{2.14375, 2.58753019306056, 0},
	};
	struct made made;
	make_rows(&made);
	for (unsigned k = 0; k < OUTPUTS; k++) {
		struct target_errors errors = target_errors(&made.measured, k);
		near(errors.mae, expected[k].mae);
		near(errors.rmse, expected[k].rmse);
		near(errors.r2, expected[k].r2);
	}
	struct target_errors mean = target_mean_errors(&made.measured);
	near(mean.mae, 2.15416666666667);
	near(mean.rmse, 2.64039430091693);
	near(mean.r2, -0.836080476117209);
	assert_true(target_errors(&(struct target_rows){2, 1, made.numbers, made.numbers}, 0).r2 ==
		    1);
}

TEST(losses)
{
	const float values[2] = {0.5f, -3}, targets[2] = {1, 0};
	near(target_loss(DEVICE_SIGMOID, values, targets, 2),
	     (log(1 + exp(-0.5)) + log(1 + exp(-3))) / 2);
	near(target_loss(DEVICE_SQUARED, values, targets, 2), (0.25 + 9) / 2);
	near(target_loss(DEVICE_HUBER, values, targets, 2), (0.125 + 2.5) / 2);
}
