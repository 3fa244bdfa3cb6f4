/* Attention, forward and backward, against plain loops in double precision. */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/attention.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/*
 * Positions that fill tiles and that do not, one and several tiles for both kinds of kernel;
 * channels for tensor cores (whole packs, not all of them filling the 16 channels of an mma
 * operand), and others.
 */
static const struct kernel_shape shapes[] = {
	/* n, t, heads, d */
	{1, 1, 1, 8},   {2, 5, 2, 64},   {1, 33, 1, 20},  {1, 64, 2, 16},
	{1, 65, 1, 40}, {1, 130, 1, 64}, {2, 129, 1, 24},
};

struct attention {
	struct attention_arguments a;
	struct array *qkv, *dy;
	/* expected values */
	double *y, *dqkv, *log_sum;
};

static struct attention new_attention(const uint32_t shape[4], enum cuda_element element)
{
	uint64_t queries = (uint64_t)shape[0] * shape[1] * shape[2], count = queries * shape[3];
	struct attention o = {
		.a = {.n = shape[0],
		      .t = shape[1],
		      .heads = shape[2],
		      .d = shape[3],
		      .element = element},
		.qkv = new_uniform(3 * count, element, -2, 2),
		.dy = new_uniform(count, element, -1, 1),
		.y = new_doubles(count),
		.dqkv = new_doubles(3 * count),
		.log_sum = new_doubles(queries),
	};

	o.a.qkv = array_reads(o.qkv);
	return o;
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
static void reference_query(struct attention *o, uint64_t at, uint64_t y_at, uint32_t i, double *p)
{
	uint32_t d = o->a.d, t = o->a.t, heads = o->a.heads, width = heads * d, stride = 3 * width;
	const double *q = o->qkv->v + at + (uint64_t)i * stride, *k = o->qkv->v + at + width;
	const double *v = k + width, *dy = o->dy->v + y_at + (uint64_t)i * width;
	double *y = o->y + y_at + (uint64_t)i * width, *dq = o->dqkv + at;
	double *dk = dq + width, *dv = dk + width, sum = 0, delta = 0, scale = 1 / sqrt(d);

	dq += (uint64_t)i * stride;
	for (uint32_t j = 0; j < t; j++) {
		p[j] = exp(scale * dot(q, k + (uint64_t)j * stride, d));
		sum += p[j];
	}
	o->log_sum[at / stride / t * heads * t + at % stride / d * t + i] = log(sum);
	for (uint32_t j = 0; j < t; j++) {
		p[j] /= sum;
		delta += p[j] * dot(dy, v + (uint64_t)j * stride, d);
		for (uint32_t c = 0; c < d; c++)
			y[c] += p[j] * v[(uint64_t)j * stride + c];
	}
	for (uint32_t j = 0; j < t; j++) {
		double ds = p[j] * (dot(dy, v + (uint64_t)j * stride, d) - delta) * scale;

		for (uint32_t c = 0; c < d; c++) {
			dq[c] += ds * k[(uint64_t)j * stride + c];
			dk[(uint64_t)j * stride + c] += ds * q[c];
			dv[(uint64_t)j * stride + c] += p[j] * dy[c];
		}
	}
}

static void reference(struct attention *o)
{
	const struct attention_arguments *a = &o->a;
	uint64_t width = a->heads * a->d;
	double *p = new_doubles(a->t);

	for (uint32_t n = 0; n < a->n; n++)
		for (uint32_t head = 0; head < a->heads; head++)
			for (uint32_t i = 0; i < a->t; i++)
				reference_query(o, n * a->t * 3 * width + head * a->d,
						n * a->t * width + head * a->d, i, p);
}

/* Probabilities and gradients of scores are rounded to the element before they are summed. */
static double tolerance_of(enum cuda_element element)
{
	return (element == CUDA_F32 ? 40 : 8) * element_tolerance(element);
}

static void check_forward(struct attention *o, bool statistics)
{
	struct array *y = new_blank(o->dy->count, o->a.element),
		     *log_sum = new_blank(o->dy->count / o->a.d, CUDA_F32);

	o->a.y = array_writes(y);
	o->a.log_sum = statistics ? array_writes(log_sum) : NULL;
	if (queued(attention_forward(&kernels_device, &o->a)))
		return;
	memcpy(want(y), o->y, y->count * sizeof(double));
	memcpy(want(log_sum), o->log_sum, log_sum->count * sizeof(double));
	expect(y, tolerance_of(o->a.element), "y");
	if (statistics)
		expect(log_sum, 1e-5, "log_sum");
}

/* Runs after check_forward() with statistics; reads its y and log_sum. */
static void check_backward(struct attention *o)
{
	struct array *dqkv = new_blank(o->qkv->count, o->a.element),
		     *delta = new_blank(o->dy->count / o->a.d, CUDA_F32);

	o->a.dy = array_reads(o->dy);
	o->a.dqkv = array_writes(dqkv);
	o->a.delta = array_uses(delta);
	if (queued(attention_backward(&kernels_device, &o->a)))
		return;
	memcpy(want(dqkv), o->dqkv, dqkv->count * sizeof(double));
	expect(dqkv, tolerance_of(o->a.element), "dqkv");
}

static void attention(const struct kernel_case *k, enum cuda_element element)
{
	struct attention o = new_attention((const uint32_t[]){k->n, k->h, k->w, k->c}, element);

	reference(&o);
	check_forward(&o, false);
	check_forward(&o, true);
	check_backward(&o);
}

/*
 * With scores far from zero, exponentials do not overflow and positions beyond the last key have no
 * weight. All queries are equal and all keys are equal, so that all scores are about 400.
 */
static void large_scores(void)
{
	for (int element = 0; element < ELEMENTS; element++)
		for (int sign = -1; sign <= 1; sign += 2) {
			struct attention o = new_attention((const uint32_t[]){1, 37, 1, 16},
							   (enum cuda_element)element);

			for (uint64_t i = 0; i < o.qkv->count; i++)
				if (i / 16 % 3 < 2)
					o.qkv->v[i] = i / 16 % 3 ? 10 : sign * 10;
			array_write(o.qkv);
			reference(&o);
			check_forward(&o, true);
			check_backward(&o);
			kernels_release();
		}
}

static void refused(void)
{
	struct attention_arguments a = {.n = 1, .t = 8, .heads = 1, .d = 65};

	assert_int_equal(attention_forward(&kernels_device, &a), -EINVAL);
	assert_int_equal(attention_backward(&kernels_device, &a), -EINVAL);
}

static const struct kernel_test tests[] = {
	CHECK(attention, shapes),
	ONCE(large_scores),
	ONCE(refused),
};

/* ---- timed: vision transformers ---- */

static struct attention new_timed(const struct kernel_case *k, enum cuda_element element)
{
	struct attention o =
		new_attention((const uint32_t[]){k->n, k->h * k->w + 1, k->c / 64, 64}, element);

	if (!kernels_timing)
		reference(&o);
	return o;
}

static void forward(const struct kernel_case *k, enum cuda_element element)
{
	struct attention o = new_timed(k, element);

	check_forward(&o, true);
}

static void backward(const struct kernel_case *k, enum cuda_element element)
{
	struct attention o = new_timed(k, element);

	if (kernels_timing) {
		o.a.y = array_reads(new_blank(o.dy->count, element));
		o.a.log_sum = array_reads(new_blank(o.dy->count / 64, CUDA_F32));
	} else {
		check_forward(&o, true);
	}
	check_backward(&o);
}

static const struct kernel_case timed[] = {
	{"attention_forward", "14x14x192", forward, 14, 14, 192},
	{"attention_forward", "14x14x384", forward, 14, 14, 384},
	{"attention_forward", "14x14x768", forward, 14, 14, 768},
	{"attention_backward", "14x14x192", backward, 14, 14, 192},
	{"attention_backward", "14x14x384", backward, 14, 14, 384},
	{"attention_backward", "14x14x768", backward, 14, 14, 768},
};

KERNELS_MAIN(&cuda_kernels, tests, timed)
