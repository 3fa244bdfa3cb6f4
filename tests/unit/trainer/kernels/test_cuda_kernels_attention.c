/* Attention, forward and backward, against plain loops in double precision. */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/attention.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/*
 * Positions that fill tiles and that do not, one and several tiles for both kinds of kernel;
 * channels for tensor cores (whole packs, not all of them filling the 16 channels of an mma
 * operand), and others.
 */
static const uint32_t shapes[][4] = {
	/* n, t, heads, d */
	{1, 1, 1, 8},   {2, 5, 2, 64},   {1, 33, 1, 20},  {1, 64, 2, 16},
	{1, 65, 1, 40}, {1, 130, 1, 64}, {2, 129, 1, 24},
};

#define SHAPES (sizeof(shapes) / sizeof(*shapes))

/* All operands of the kernels; freed together. */
struct operands {
	uint32_t n, t, heads, d;
	enum cuda_element element;
	struct array qkv, y, dy, dqkv, log_sum, delta;
	double *ys, *gradients, *log_sums; /* expected */
};

static struct operands operands_new(uint32_t n, uint32_t t, uint32_t heads, uint32_t d,
				    enum cuda_element element)
{
	uint64_t count = (uint64_t)n * t * heads * d, queries = (uint64_t)n * t * heads;

	return (struct operands){
		.n = n,
		.t = t,
		.heads = heads,
		.d = d,
		.element = element,
		.qkv = array_uniform(3 * count, element, 1, -2, 2),
		.y = array_blank(count, element),
		.dy = array_uniform(count, element, 2, -1, 1),
		.dqkv = array_blank(3 * count, element),
		.log_sum = array_blank(queries, CUDA_F32),
		.delta = array_blank(queries, CUDA_F32),
		.ys = kernels_zeros(count * sizeof(double)),
		.gradients = kernels_zeros(3 * count * sizeof(double)),
		.log_sums = kernels_zeros(queries * sizeof(double)),
	};
}

static void operands_free(struct operands *o)
{
	struct array *arrays[] = {&o->qkv, &o->y, &o->dy, &o->dqkv, &o->log_sum, &o->delta};

	for (unsigned i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		array_free(arrays[i]);
	free(o->ys);
	free(o->gradients);
	free(o->log_sums);
}

static double dot(const double *a, const double *b, uint32_t d)
{
	double sum = 0;

	for (uint32_t c = 0; c < d; c++)
		sum += a[c] * b[c];
	return sum;
}

/*
 * Computes one query of a head. q, k and v of the head, and their gradients, begin at offset `at`
 * in qkv.
 */
static void reference_query(struct operands *o, uint64_t at, uint64_t y_at, uint32_t i, double *p)
{
	uint32_t d = o->d, width = o->heads * d, stride = 3 * width;
	const double *q = o->qkv.v + at + (uint64_t)i * stride, *k = o->qkv.v + at + width;
	const double *v = k + width, *dy = o->dy.v + y_at + (uint64_t)i * width;
	double *y = o->ys + y_at + (uint64_t)i * width, *dq = o->gradients + at;
	double *dk = dq + width, *dv = dk + width, sum = 0, delta = 0, scale = 1 / sqrt(d);

	dq += (uint64_t)i * stride;
	for (uint32_t j = 0; j < o->t; j++) {
		p[j] = exp(scale * dot(q, k + (uint64_t)j * stride, d));
		sum += p[j];
	}
	o->log_sums[at / stride / o->t * o->heads * o->t + at % stride / d * o->t + i] = log(sum);
	for (uint32_t j = 0; j < o->t; j++) {
		p[j] /= sum;
		delta += p[j] * dot(dy, v + (uint64_t)j * stride, d);
		for (uint32_t c = 0; c < d; c++)
			y[c] += p[j] * v[(uint64_t)j * stride + c];
	}
	for (uint32_t j = 0; j < o->t; j++) {
		double ds = p[j] * (dot(dy, v + (uint64_t)j * stride, d) - delta) * scale;

		for (uint32_t c = 0; c < d; c++) {
			dq[c] += ds * k[(uint64_t)j * stride + c];
			dk[(uint64_t)j * stride + c] += ds * q[c];
			dv[(uint64_t)j * stride + c] += p[j] * dy[c];
		}
	}
}

static void reference(struct operands *o)
{
	uint32_t width = o->heads * o->d;
	double *p = kernels_zeros(o->t * sizeof(double));

	for (uint32_t n = 0; n < o->n; n++)
		for (uint32_t head = 0; head < o->heads; head++)
			for (uint32_t i = 0; i < o->t; i++)
				reference_query(o, (uint64_t)n * o->t * 3 * width + head * o->d,
						(uint64_t)n * o->t * width + head * o->d, i, p);
	free(p);
}

/* Probabilities and gradients of scores are rounded to the element before they are summed. */
static double tolerance_of(const struct operands *o)
{
	return (o->element == CUDA_F32 ? 40 : 8) * element_tolerance(o->element);
}

static void check_forward(struct operands *o, bool statistics)
{
	struct attention_arguments a = {
		.qkv = array_reads(&o->qkv),
		.y = array_writes(&o->y),
		.log_sum = statistics ? array_writes(&o->log_sum) : NULL,
		.n = o->n,
		.t = o->t,
		.heads = o->heads,
		.d = o->d,
		.element = o->element,
	};

	assert_int_equal(attention_forward(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	array_expect(&o->y, o->ys, tolerance_of(o), "y of %u x %u x %u x %u", o->n, o->t, o->heads,
		     o->d);
	if (statistics)
		array_expect(&o->log_sum, o->log_sums, 1e-5, "sums of %u x %u x %u x %u", o->n,
			     o->t, o->heads, o->d);
}

static void check_backward(struct operands *o)
{
	struct attention_arguments a = {
		.qkv = array_reads(&o->qkv),
		.y = array_reads(&o->y),
		.log_sum = array_reads(&o->log_sum),
		.dy = array_reads(&o->dy),
		.dqkv = array_writes(&o->dqkv),
		.delta = array_uses(&o->delta),
		.n = o->n,
		.t = o->t,
		.heads = o->heads,
		.d = o->d,
		.element = o->element,
	};

	assert_int_equal(attention_backward(&kernels_device, &a), 0);
	if (!kernels_timing)
		array_expect(&o->dqkv, o->gradients, tolerance_of(o), "dqkv of %u x %u x %u x %u",
			     o->n, o->t, o->heads, o->d);
}

static void test_attention(void **state)
{
	for (unsigned i = 0; i < SHAPES * ELEMENTS * KERNELS_VARIATIONS; i++) {
		const uint32_t *shape = shapes[i / KERNELS_VARIATIONS / ELEMENTS];
		struct operands o;

		kernels_vary(i % KERNELS_VARIATIONS);
		o = operands_new(shape[0], shape[1], shape[2], shape[3],
				 (enum cuda_element)(i / KERNELS_VARIATIONS % ELEMENTS));
		reference(&o);
		check_forward(&o, false);
		check_forward(&o, true);
		check_backward(&o);
		operands_free(&o);
	}
}

/* With scores far from zero, exponentials do not overflow and absent keys do not count. */
static void test_large_scores(void **state)
{
	for (int element = 0; element < ELEMENTS; element++)
		for (int sign = -1; sign <= 1; sign += 2) {
			struct operands o = operands_new(1, 37, 1, 16, (enum cuda_element)element);

			/* all queries are equal, and all keys, so all scores are about 400 */
			for (uint64_t i = 0; i < o.qkv.count; i++) {
				uint64_t part = i / 16 % 3;

				if (part < 2)
					o.qkv.v[i] = part ? 10 : sign * 10;
			}
			array_write(&o.qkv);
			reference(&o);
			check_forward(&o, true);
			check_backward(&o);
			operands_free(&o);
		}
}

static void test_refused(void **state)
{
	struct attention_arguments a = {.n = 1, .t = 8, .heads = 1, .d = 65};

	assert_int_equal(attention_forward(&kernels_device, &a), -EINVAL);
	assert_int_equal(attention_backward(&kernels_device, &a), -EINVAL);
}

/* ---- timed: vision transformers ---- */

static void run(const struct kernel_case *k, enum cuda_element element, bool backward)
{
	struct operands o = operands_new(k->n, k->h * k->w + 1, k->c / 64, 64, element);

	if (!kernels_timing)
		reference(&o);
	if (!backward || !kernels_timing)
		check_forward(&o, true);
	if (backward)
		check_backward(&o);
	operands_free(&o);
}

static void forward(const struct kernel_case *k, enum cuda_element element)
{
	run(k, element, false);
}

static void backward(const struct kernel_case *k, enum cuda_element element)
{
	run(k, element, true);
}

/* clang-format off */
static const struct kernel_case timed[] = {
	{"attention_forward", "14x14x192", forward, 14, 14, 192},
	{"attention_forward", "14x14x384", forward, 14, 14, 384},
	{"attention_forward", "14x14x768", forward, 14, 14, 768},
	{"attention_backward", "14x14x192", backward, 14, 14, 192},
	{"attention_backward", "14x14x384", backward, 14, 14, 384},
	{"attention_backward", "14x14x768", backward, 14, 14, 768},
};
/* clang-format on */

#define TIMED (sizeof(timed) / sizeof(*timed))

static void test_timed(void **state)
{
	kernels_check(timed, TIMED);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attention),
		cmocka_unit_test(test_large_scores),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: attention", tests, kernels_test_open,
					   kernels_test_close);
}
