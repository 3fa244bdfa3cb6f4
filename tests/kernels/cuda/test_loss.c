/* The loss against its definition in double precision. */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/loss.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"

#include <math.h>

struct loss_case {
	uint32_t n, classes, logits_stride, dlogits_stride, count;
	float smoothing, logit_scale;
	double loss_scale; /* 0: no state */
	bool coarse;       /* use few distinct values, so that many logits are equal */
	bool gradient;
};

/* clang-format off */
static const struct loss_case loss_cases[] = {
	{5, 10, 10, 10, 5, 0, 0, 0, false, true},
	{33, 1000, 1000, 1000, 33, 0.1f, 1, 1024, false, true},
	{300, 7, 8, 16, 290, 0.1f, 0.125f, 65536, true, true},
	{4, 1, 1, 8, 4, 0.5f, 2, 1, false, true},
	{6, 257, 264, 0, 6, 0, 1, 1, true, false},
};
/* clang-format on */
static const struct loss_case no_labels = {3, 4, 4, 4, 3, 0, 0, 2, true, true};
static const struct kernel_shape any[] = {{1, 1, 1, 1}};

/* Operands of a loss. The labels are in `values`, or NULL if there are none. */
struct loss {
	struct loss_arguments a;
	struct array *logits, *dlogits, *results;
	int32_t values[300];
};

static struct loss new_loss(const struct loss_case *k, enum cuda_element logits_element,
			    enum cuda_element element, bool labelled)
{
	struct device_params_state state = {.loss_scale = k->loss_scale};
	struct step_arguments step = {.step = 42, .count = k->count};
	uint64_t logits = (uint64_t)k->n * k->logits_stride;
	struct loss l = {
		.logits = k->coarse ? new_coarse(logits, logits_element)
				    : new_uniform(logits, logits_element, -9, 9),
		.dlogits = new_blank((uint64_t)k->n * k->dlogits_stride, element),
		.results = new_bytes(NULL, sizeof(struct device_results)),
	};

	assert_true(k->n <= sizeof(l.values) / sizeof(*l.values));
	for (uint32_t i = 0; i < k->n; i++)
		l.values[i] = i >= k->count
				      ? -1
				      : (int32_t)(kernels_uniform(2, i) * (k->classes + 2)) - 1;
	if (labelled)
		step.labels = array_uses(new_bytes(l.values, k->n * sizeof(*l.values)));
	l.a = (struct loss_arguments){
		.step = array_uses(new_bytes(&step, sizeof(step))),
		.state = k->loss_scale != 0 ? array_uses(new_bytes(&state, sizeof(state))) : NULL,
		.logits = array_reads(l.logits),
		.dlogits = k->gradient ? array_writes(l.dlogits) : NULL,
		.results = array_uses(l.results),
		.workspace = array_uses(new_bytes(NULL, loss_workspace(k->n))),
		.n = k->n,
		.classes = k->classes,
		.logits_stride = k->logits_stride,
		.dlogits_stride = k->dlogits_stride,
		.logits_element = logits_element,
		.dlogits_element = element,
		.plain = true,
		.smoothing = k->smoothing,
		.logit_scale = k->logit_scale,
	};
	return l;
}

static struct device_results results_of(const struct loss *l)
{
	struct device_results results;

	array_read_bytes(l->results, &results);
	return results;
}

/*
 * Adds a labelled sample to the expected results. `gradient` [classes] is not yet divided by the
 * number of labels.
 */
static void reference_sample(const struct loss_case *k, const double *logits, int32_t label,
			     struct device_results *results, double *gradient)
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

		results->loss -= target * logarithm;
		if (k->gradient)
			gradient[i] = (exp(logarithm) - target) * scale;
	}
	results->top1 += rank < 1;
	results->top5 += rank < 5;
	results->samples++;
}

static void check_loss(const struct loss_case *k, enum cuda_element logits_element,
		       enum cuda_element element, bool labelled)
{
	struct loss l = new_loss(k, logits_element, element, labelled);
	struct device_results results = {0};
	double loss_scale = k->loss_scale != 0 ? k->loss_scale : 1;

	if (queued(loss_forward(&kernels_device, &l.a)))
		return;
	for (uint32_t i = 0; i < k->n && labelled; i++)
		if (l.values[i] >= 0 && l.values[i] < (int32_t)k->classes)
			reference_sample(k, l.logits->v + (uint64_t)i * k->logits_stride,
					 l.values[i], &results,
					 want(l.dlogits) + (uint64_t)i * k->dlogits_stride);
	for (uint64_t i = 0; i < l.dlogits->count && results.samples; i++)
		want(l.dlogits)[i] *= loss_scale / results.samples;
	results.loss /= results.samples ? results.samples : 1;
	struct device_results got = results_of(&l);
	assert_int_equal(got.step, 42);
	assert_int_equal(got.samples, results.samples);
	assert_int_equal(got.top1, results.top1);
	assert_int_equal(got.top5, results.top5);
	if (!(fabs(got.loss - results.loss) <= 1e-5 * (1 + results.loss)))
		fail_msg("loss is %.9g, not %.9g", got.loss, results.loss);
	assert_true(got.loss_scale == loss_scale && got.grad_norm == 0);
	assert_true(!got.updated && !got.skipped);
	if (k->gradient)
		expect(l.dlogits, element_tolerance(element) * 2, "dlogits");
}

static void loss_of_f32(const struct kernel_case *k, enum cuda_element element)
{
	check_loss(k->settings, CUDA_F32, element, true);
}

static void loss_of_element(const struct kernel_case *k, enum cuda_element element)
{
	check_loss(k->settings, element, element, true);
}

static void loss_without_labels(const struct kernel_case *k, enum cuda_element element)
{
	check_loss(&no_labels, CUDA_F32, element, false);
	check_loss(&no_labels, element, element, false);
}

/* With NaN logits the label does not count as ranked first, and the loss is NaN. */
static void diverged(void)
{
	static const struct loss_case k = {2, 6, 6, 6, 2, 0, 0, 0, true, true};
	struct loss l = new_loss(&k, CUDA_F32, CUDA_F16, true);
	const int32_t labels[2] = {0, 2};
	struct step_arguments step = {.labels = new_bytes(labels, sizeof(labels))->data,
				      .count = 2};

	for (unsigned i = 0; i < 12; i++)
		l.logits->v[i] = i < 6 ? NAN : 0;
	l.logits->v[8] = INFINITY;
	array_write(l.logits);
	l.a.step = new_bytes(&step, sizeof(step))->data;
	queued(loss_forward(&kernels_device, &l.a));
	assert_int_equal(results_of(&l).samples, 2);
	assert_int_equal(results_of(&l).top1 + results_of(&l).top5, 0);
	assert_true(isnan(results_of(&l).loss));
	array_read(l.dlogits);
	for (unsigned i = 0; i < 6; i++)
		assert_true(isnan(l.dlogits->v[i]));
}

static struct loss_totals totals_of(const struct array *array)
{
	struct loss_totals totals;

	array_read_bytes(array, &totals);
	return totals;
}

/*
 * Two ranks: the gradient is divided by the labels of both ranks, and the results are totals of
 * both.
 */
static void shared(void)
{
	static const struct loss_case k = {3, 4, 4, 4, 3, 0, 0, 0, false, true};
	const struct loss_totals labelled = {.samples = 5, .divisor = 5}, all = {5, 5, 7.5, 3, 4};
	const int32_t labels[3] = {2, -1, 0};
	struct loss l = new_loss(&k, CUDA_F32, CUDA_F32, true);
	struct step_arguments step = {
		.labels = new_bytes(labels, sizeof(labels))->data, .count = 3, .step = 42};
	struct array *own = new_bytes(NULL, sizeof(struct loss_totals)),
		     *totals = new_bytes(&labelled, sizeof(labelled)),
		     *sums = new_bytes(&all, sizeof(all)), *divided = new_blank(12, CUDA_F32);
	struct device_results mine, both;

	l.a.step = new_bytes(&step, sizeof(step))->data;
	queued(loss_forward(&kernels_device, &l.a));
	mine = results_of(&l);
	l.a.totals = own->data;
	queued(loss_count(&kernels_device, &l.a));
	assert_true(totals_of(own).samples == 2 && totals_of(own).divisor == 2);
	/* the other rank has three more labels */
	l.a.totals = totals->data;
	l.a.dlogits = divided->data;
	queued(loss_forward(&kernels_device, &l.a));
	assert_true(totals_of(totals).samples == 5 && totals_of(totals).top1 == mine.top1 &&
		    totals_of(totals).top5 == 2);
	assert_true(fabs(totals_of(totals).loss - 2 * mine.loss) < 1e-12);
	array_read(l.dlogits);
	for (unsigned i = 0; i < 12; i++)
		want(divided)[i] = l.dlogits->v[i] * 2 / 5;
	expect(divided, 5e-8, "dlogits of two ranks");
	l.a.totals = sums->data;
	queued(loss_share(&kernels_device, &l.a));
	both = results_of(&l);
	assert_true(both.step == 42 && both.samples == 5 && both.top1 == 3 && both.top5 == 4 &&
		    both.loss == 1.5);
}

static const struct kernel_test tests[] = {
	CHECK_EACH(loss_of_f32, any, loss_cases),
	CHECK_EACH(loss_of_element, any, loss_cases),
	CHECK(loss_without_labels, any),
	ONCE(diverged),
	ONCE(shared),
};

static void softmax(const struct kernel_case *k, enum cuda_element element)
{
	const struct loss_case settings = {k->n, k->c, k->c,  k->c,  k->n,
					   0.1f, 0,    65536, false, true};

	check_loss(&settings, CUDA_F32, element, true);
}

static const struct kernel_case timed[] = {
	{"loss_softmax", "1000", softmax, 1, 1, 1000},
};

KERNELS_MAIN(&cuda_kernels, tests, timed)
