/* The loss against its definition in double precision. */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/loss.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct loss_case {
	uint32_t n, classes, logits_stride, dlogits_stride, count;
	float smoothing, logit_scale;
	double loss_scale; /* 0 if without state */
	bool coarse;       /* many equal logits */
	bool gradient, labels;
};

static const struct loss_case loss_cases[] = {
	{5, 10, 10, 10, 5, 0, 0, 0, false, true, true},
	{33, 1000, 1000, 1000, 33, 0.1f, 1, 1024, false, true, true},
	{300, 7, 8, 16, 290, 0.1f, 0.125f, 65536, true, true, true},
	{4, 1, 1, 8, 4, 0.5f, 2, 1, false, true, true},
	{6, 257, 264, 0, 6, 0, 1, 1, true, false, true},
	{3, 4, 4, 4, 3, 0, 0, 2, true, true, false},
};

struct loss_expected {
	double loss;
	uint32_t samples, top1, top5;
	double *gradient;
};

static void reference_sample(const struct loss_case *k, const double *logits, int32_t label,
			     struct loss_expected *e, double *gradient)
{
	double scale = k->logit_scale != 0 ? (double)k->logit_scale : 1, largest = -INFINITY,
	       sum = 0;
	uint32_t rank = 0;

	for (uint32_t i = 0; i < k->classes; i++) {
		rank += logits[i] > logits[label] ||
			(logits[i] == logits[label] && (int32_t)i < label);
		largest = fmax(largest, logits[i] * scale);
	}
	for (uint32_t i = 0; i < k->classes; i++)
		sum += exp(logits[i] * scale - largest);
	for (uint32_t i = 0; i < k->classes; i++) {
		double target = (double)k->smoothing / k->classes +
				((int32_t)i == label ? 1 - (double)k->smoothing : 0);
		double logarithm = logits[i] * scale - largest - log(sum);

		e->loss -= target * logarithm;
		gradient[i] = (exp(logarithm) - target) * scale;
	}
	e->top1 += rank < 1;
	e->top5 += rank < 5;
	e->samples++;
}

static struct loss_expected reference_loss_case(const struct loss_case *k, const double *logits,
						const int32_t *labels)
{
	struct loss_expected e = {
		.gradient =
			calloc((uint64_t)k->n * k->dlogits_stride + k->classes, sizeof(double))};
	double *row = calloc(k->classes, sizeof(*row)),
	       scale = k->loss_scale != 0 ? k->loss_scale : 1;

	for (uint32_t i = 0; i < k->n; i++) {
		if (!k->labels || labels[i] < 0 || labels[i] >= (int32_t)k->classes)
			continue;
		reference_sample(k, logits + (uint64_t)i * k->logits_stride, labels[i], &e, row);
		if (k->gradient)
			memcpy(e.gradient + (uint64_t)i * k->dlogits_stride, row,
			       k->classes * sizeof(*row));
	}
	e.loss /= e.samples ? e.samples : 1;
	for (uint64_t i = 0; i < (uint64_t)k->n * k->dlogits_stride; i++)
		e.gradient[i] *= e.samples ? scale / e.samples : 0;
	free(row);
	return e;
}

static void check_results(const struct array *array, const struct loss_expected *e,
			  double loss_scale)
{
	struct device_results got;

	array_read_bytes(array, &got);
	assert_int_equal(got.step, 42);
	assert_int_equal(got.samples, e->samples);
	assert_int_equal(got.top1, e->top1);
	assert_int_equal(got.top5, e->top5);
	if (!(fabs(got.loss - e->loss) <= 1e-5 * (1 + e->loss)))
		fail_msg("loss is %.9g, not %.9g", got.loss, e->loss);
	assert_true(got.loss_scale == loss_scale && got.grad_norm == 0);
	assert_true(!got.updated && !got.skipped);
}

static void check_loss(const struct loss_case *k, enum cuda_element logits_element,
		       enum cuda_element element)
{
	struct array logits =
		k->coarse ? array_coarse((uint64_t)k->n * k->logits_stride, logits_element, 1)
			  : array_uniform((uint64_t)k->n * k->logits_stride, logits_element, 1, -9,
					  9);
	struct array dlogits = array_blank((uint64_t)k->n * k->dlogits_stride, element);
	struct array results = array_bytes(NULL, sizeof(struct device_results)),
		     workspace = array_bytes(NULL, loss_workspace(k->n));
	struct device_params_state params = {.loss_scale = k->loss_scale};
	struct array state = array_bytes(&params, sizeof(params)), labels, arguments;
	struct step_arguments step = {.step = 42, .count = k->count};
	int32_t *values = malloc(k->n * sizeof(*values));
	struct loss_expected expected;

	for (uint32_t i = 0; i < k->n; i++)
		values[i] = i >= k->count ? -1
					  : (int32_t)(kernels_uniform(2, i) * (k->classes + 2)) - 1;
	labels = array_bytes(values, k->n * sizeof(*values));
	step.labels = k->labels ? array_uses(&labels) : NULL;
	arguments = array_bytes(&step, sizeof(step));
	struct loss_arguments loss = {
		.step = array_uses(&arguments),
		.state = k->loss_scale != 0 ? array_uses(&state) : NULL,
		.logits = array_reads(&logits),
		.dlogits = k->gradient ? array_writes(&dlogits) : NULL,
		.results = array_uses(&results),
		.workspace = array_uses(&workspace),
		.n = k->n,
		.classes = k->classes,
		.logits_stride = k->logits_stride,
		.dlogits_stride = k->dlogits_stride,
		.logits_element = logits_element,
		.dlogits_element = element,
		.smoothing = k->smoothing,
		.logit_scale = k->logit_scale,
	};

	assert_int_equal(loss_forward(&kernels_device, &loss), 0);
	if (kernels_timing) {
		free(values);
		return;
	}
	expected = reference_loss_case(k, logits.v, values);
	check_results(&results, &expected, k->loss_scale != 0 ? k->loss_scale : 1);
	if (k->gradient)
		array_expect(&dlogits, expected.gradient, element_tolerance(element) * 2,
			     "dlogits of %u x %u", k->n, k->classes);
	free(values);
	free(expected.gradient);
	array_free(&logits);
	array_free(&dlogits);
	array_free(&results);
	array_free(&workspace);
	array_free(&state);
	array_free(&labels);
	array_free(&arguments);
}

static void test_loss(void **state)
{
	for (int element = 0; element < ELEMENTS; element++) {
		kernels_vary((unsigned)element % KERNELS_VARIATIONS);
		for (unsigned i = 0; i < sizeof(loss_cases) / sizeof(*loss_cases); i++) {
			check_loss(&loss_cases[i], CUDA_F32, (enum cuda_element)element);
			if (element != CUDA_F32)
				check_loss(&loss_cases[i], (enum cuda_element)element,
					   (enum cuda_element)element);
		}
	}
}

/* A diverged net does not count as correct by accident, and its loss is NaN. */
static void test_loss_diverged(void **state)
{
	int32_t label[2] = {0, 2};
	struct array logits = array_coarse(12, CUDA_F32, 1), dlogits = array_blank(12, CUDA_F16);
	struct array labels = array_bytes(label, sizeof(label)),
		     results = array_bytes(NULL, sizeof(struct device_results));
	struct array workspace = array_bytes(NULL, loss_workspace(2));
	struct step_arguments step = {.labels = labels.data, .count = 2};
	struct array arguments = array_bytes(&step, sizeof(step));
	struct device_results got;
	struct loss_arguments loss = {
		.step = arguments.data,
		.logits = logits.data,
		.dlogits = dlogits.data,
		.results = results.data,
		.workspace = workspace.data,
		.n = 2,
		.classes = 6,
		.logits_stride = 6,
		.dlogits_stride = 6,
		.dlogits_element = CUDA_F16,
	};

	for (unsigned i = 0; i < 12; i++)
		logits.v[i] = i < 6 ? NAN : 0;
	logits.v[8] = INFINITY;
	array_write(&logits);
	assert_int_equal(loss_forward(&kernels_device, &loss), 0);
	array_read_bytes(&results, &got);
	assert_int_equal(got.samples, 2);
	assert_int_equal(got.top1 + got.top5, 0);
	assert_true(isnan(got.loss));
	array_read(&dlogits);
	for (unsigned i = 0; i < 6; i++)
		assert_true(isnan(dlogits.v[i]));
	array_free(&logits);
	array_free(&dlogits);
	array_free(&labels);
	array_free(&results);
	array_free(&workspace);
	array_free(&arguments);
}

/*
 * Two ranks: the gradient is divided by the number of labels of both, and the results cover both.
 */
static void test_loss_shared(void **state)
{
	enum { N = 3, CLASSES = 4 };
	int32_t label[N] = {2, -1, 0};
	struct array logits = array_uniform(N * CLASSES, CUDA_F32, 1, -2, 2);
	struct array dlogits = array_blank(N * CLASSES, CUDA_F32),
		     alone = array_blank(N * CLASSES, CUDA_F32);
	struct array labels = array_bytes(label, sizeof(label)),
		     results = array_bytes(NULL, sizeof(struct device_results));
	struct array workspace = array_bytes(NULL, loss_workspace(N));
	struct step_arguments step = {.labels = labels.data, .count = N, .step = 42};
	struct array arguments = array_bytes(&step, sizeof(step)), totals, own;
	struct loss_totals got, all;
	struct device_results mine, both;
	struct loss_arguments loss = {
		.step = arguments.data,
		.logits = logits.data,
		.dlogits = alone.data,
		.results = results.data,
		.workspace = workspace.data,
		.n = N,
		.classes = CLASSES,
		.logits_stride = CLASSES,
		.dlogits_stride = CLASSES,
		.logits_element = CUDA_F32,
		.dlogits_element = CUDA_F32,
	};

	assert_int_equal(loss_forward(&kernels_device, &loss), 0);
	array_read_bytes(&results, &mine);
	own = array_bytes(NULL, sizeof(struct loss_totals));
	loss.totals = own.data;
	assert_int_equal(loss_count(&kernels_device, &loss), 0);
	array_read_bytes(&own, &got);
	assert_true(got.samples == 2 && got.divisor == 2);
	/* the other rank has three more */
	all = (struct loss_totals){.samples = 5, .divisor = 5};
	totals = array_bytes(&all, sizeof(all));
	loss.totals = totals.data;
	loss.dlogits = dlogits.data;
	assert_int_equal(loss_forward(&kernels_device, &loss), 0);
	array_read_bytes(&totals, &got);
	assert_true(got.samples == 5 && got.top1 == mine.top1 && got.top5 == 2);
	assert_true(fabs(got.loss - 2 * mine.loss) < 1e-12);
	array_read(&alone);
	array_read(&dlogits);
	for (unsigned i = 0; i < N * CLASSES; i++)
		assert_true(fabs(dlogits.v[i] - alone.v[i] * 2 / 5) < 1e-7);
	all = (struct loss_totals){5, 5, 7.5, 3, 4};
	array_free(&totals);
	totals = array_bytes(&all, sizeof(all));
	loss.totals = totals.data;
	assert_int_equal(loss_share(&kernels_device, &loss), 0);
	array_read_bytes(&results, &both);
	assert_true(both.step == 42 && both.samples == 5 && both.top1 == 3 && both.top5 == 4 &&
		    both.loss == 1.5);
	array_free(&logits);
	array_free(&dlogits);
	array_free(&alone);
	array_free(&labels);
	array_free(&results);
	array_free(&workspace);
	array_free(&arguments);
	array_free(&totals);
	array_free(&own);
}

/* ---- timed ---- */

static void loss(const struct kernel_case *k, enum cuda_element element)
{
	const struct loss_case how = {k->n, k->c,  k->c,  k->c, k->n, 0.1f,
				      0,    65536, false, true, true};

	check_loss(&how, CUDA_F32, element);
}

static const struct kernel_case timed[] = {
	{"loss_softmax", "1000", loss, 1, 1, 1000},
};

#define TIMED (sizeof(timed) / sizeof(*timed))

static void test_timed(void **state)
{
	kernels_check(timed, TIMED);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loss),
		cmocka_unit_test(test_loss_diverged),
		cmocka_unit_test(test_loss_shared),
		cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: loss", tests, kernels_test_open,
					   kernels_test_close);
}
