/* Scale and add, forward and backward, against plain loops in double precision. */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/scale_add.h"
#include "trainer/device/ops.h"
#include "trainer/device/steps.h"

#include <errno.h>

/*
 * Channels that form whole packs and that do not; one tile and several; positions that a block
 * covers in one turn or in several, or that several blocks share.
 */
static const struct kernel_shape shapes[] = {
	{1, 1, 1, 1},  {3, 5, 1, 7},   {2, 7, 7, 32},  {5, 3, 3, 264},
	{9, 3, 1, 40}, {1, 70, 10, 8}, {2, 13, 10, 9}, {3, 17, 1, 520},
};

/* Operands that are present, and gradients that are wanted. */
struct scale_case {
	bool residual, gate, gamma, relu;
	float drop_path, dropout;
	bool two, dz, dx, dgate, dgamma, add;
};

/* clang-format off */
static const struct scale_case scale_cases[] = {
	{.gamma = true, .residual = true, .dz = true, .dx = true, .dgamma = true, .two = true},
	{.gate = true, .residual = true, .relu = true, .dz = true, .dx = true, .dgate = true},
	{.drop_path = 0.5f, .residual = true, .dx = true},
	{.dropout = 0.25f, .dx = true},
	{.gate = true, .gamma = true, .dgamma = true},
	{.gate = true, .gamma = true, .residual = true, .relu = true, .drop_path = 0.25f, .dropout = 0.25f,
	 .two = true, .dz = true, .dx = true, .dgate = true, .dgamma = true, .add = true},
	{.gamma = true, .dropout = 0.5f, .relu = true, .dx = true, .dgamma = true, .add = true},
	{.relu = true, .dx = true},
	{.gate = true, .dgate = true},
};
/* clang-format on */

static const struct device_draws draws = {0x123456789abcdef, 77, 12};

/* Factors of s. */
struct scale {
	const struct kernel_case *k;
	const struct scale_case *settings;
	struct array *gate, *gamma;
};

static uint64_t count_of(const struct kernel_case *k)
{
	return (uint64_t)k->n * k->h * k->w * k->c;
}

static struct scale_add_arguments scale_arguments(const struct kernel_case *k,
						  enum cuda_element element, struct scale *s)
{
	const struct step_arguments step = {.draws = draws};
	const struct scale_case *settings = k->settings;

	*s = (struct scale){k, settings, new_uniform((uint64_t)k->n * k->c, element, 0, 1),
			    new_uniform(k->c, CUDA_F32, -1, 2)};
	return (struct scale_add_arguments){
		.step = array_uses(new_bytes(&step, sizeof(step))),
		.gate = settings->gate ? array_reads(s->gate) : NULL,
		.gamma = settings->gamma ? array_reads(s->gamma) : NULL,
		.layer = 99,
		.path = dropout_rate(settings->drop_path),
		.dropout = dropout_rate(settings->dropout),
		.n = k->n,
		.positions = k->h * k->w,
		.channels = k->c,
		.element = element,
		.activation = settings->relu ? DEVICE_RELU : DEVICE_IDENTITY,
	};
}

/* Returns the index in [n][channels] for element i of [n][positions][channels]. */
static uint64_t vector_of(const struct scale *s, uint64_t i)
{
	return i / ((uint64_t)s->k->h * s->k->w * s->k->c) * s->k->c + i % s->k->c;
}

static double gate_of(const struct scale *s, uint64_t i)
{
	return s->settings->gate ? s->gate->v[vector_of(s, i)] : 1;
}

static double gamma_of(const struct scale *s, uint64_t i)
{
	return s->settings->gamma ? s->gamma->v[i % s->k->c] : 1;
}

/*
 * Returns the random factor from dropout_rng.h, which test_device_draws.c compares with its
 * definition.
 */
static double dropout_factors_of(const struct scale *s, uint64_t i)
{
	struct dropout_key key = dropout_key(&draws, 99);
	uint64_t size = (uint64_t)s->k->h * s->k->w * s->k->c;
	uint32_t sample = draws.first + (uint32_t)(i / size), at = (uint32_t)(i % size);
	struct philox_block block = dropout_quad(key, sample, at / 4);
	uint32_t words[4] = {block.a, block.b, block.c, block.d};

	return (double)dropout_factor(dropout_rate(s->settings->drop_path),
				      dropout_sample(key, sample)) *
	       (double)dropout_factor(dropout_rate(s->settings->dropout), words[at % 4]);
}

static void forward(const struct kernel_case *k, enum cuda_element element)
{
	struct scale s;
	struct scale_add_arguments a = scale_arguments(k, element, &s);
	struct array *x = new_uniform(count_of(k), element, -1, 2),
		     *residual = new_uniform(count_of(k), element, -1, 1),
		     *y = new_blank(count_of(k), element);

	a.x = array_reads(x);
	a.residual = s.settings->residual ? array_reads(residual) : NULL;
	a.y = array_writes(y);
	if (queued(scale_add_forward(&kernels_device, &a)))
		return;
	for (uint64_t i = 0; i < y->count; i++) {
		double z = gamma_of(&s, i) * gate_of(&s, i) * dropout_factors_of(&s, i) * x->v[i] +
			   (s.settings->residual ? residual->v[i] : 0);

		want(y)[i] = s.settings->relu && z < 0 ? 0 : z;
	}
	expect(y, 2 * element_tolerance(element), "y");
}

static void backward(const struct kernel_case *k, enum cuda_element element)
{
	const struct scale_case *settings = k->settings;
	double tolerance = 4 * element_tolerance(element);
	bool sums = settings->dgate || settings->dgamma;
	struct scale s;
	struct scale_add_arguments a = scale_arguments(k, element, &s);
	struct array *x = new_uniform(count_of(k), element, -1, 2),
		     *y = new_uniform(count_of(k), element, -1, 1),
		     *dy = new_uniform(count_of(k), element, -1, 1),
		     *dy2 = new_uniform(count_of(k), element, -1, 1);
	struct array *dz = new_blank(count_of(k), element), *dx = new_blank(count_of(k), element);
	struct array *dgate = new_blank((uint64_t)k->n * k->c, element),
		     *dgamma = new_uniform(k->c, CUDA_F32, -1, 1);
	uint64_t partial = scale_add_workspace(kernels_device.multiprocessors, k->n, k->c);

	a.dy = array_reads(dy);
	a.dy2 = settings->two ? array_reads(dy2) : NULL;
	a.y = settings->relu ? array_reads(y) : NULL;
	a.x = sums ? array_reads(x) : NULL;
	a.dz = settings->dz ? array_writes(dz) : NULL;
	a.dx = settings->dx ? array_writes(dx) : NULL;
	a.dgate = settings->dgate ? array_writes(dgate) : NULL;
	a.dgamma = settings->dgamma ? array_writes(dgamma) : NULL;
	a.add_dgamma = settings->add;
	a.partial = sums ? array_uses(new_bytes(NULL, partial)) : NULL;
	if (queued(scale_add_backward(&kernels_device, &a)))
		return;
	for (uint32_t c = 0; c < k->c; c++)
		want(dgamma)[c] = settings->add ? dgamma->v[c] : 0;
	for (uint64_t i = 0; i < x->count; i++) {
		double g = settings->relu && y->v[i] <= 0
				   ? 0
				   : dy->v[i] + (settings->two ? dy2->v[i] : 0);

		want(dz)[i] = g;
		g *= dropout_factors_of(&s, i);
		want(dx)[i] = g * gamma_of(&s, i) * gate_of(&s, i);
		want(dgate)[vector_of(&s, i)] += g * x->v[i] * gamma_of(&s, i);
		want(dgamma)[i % k->c] += g * x->v[i] * gate_of(&s, i);
	}
	if (settings->dz)
		expect(dz, tolerance, "dz");
	if (settings->dx)
		expect(dx, tolerance, "dx");
	if (settings->dgate)
		expect(dgate, tolerance, "dgate");
	if (settings->dgamma)
		expect(dgamma, 2e-5, "dgamma");
}

static void refused(void)
{
	struct scale_add_arguments a = {.n = 2, .positions = 3, .channels = 8};
	float dgamma[8];

	assert_int_equal(scale_add_backward(&kernels_device, &a), -EINVAL);
	a.dgamma = dgamma;
	assert_int_equal(scale_add_backward(&kernels_device, &a), -EINVAL);
}

static const struct kernel_test tests[] = {
	CHECK_EACH(forward, shapes, scale_cases),
	CHECK_EACH(backward, shapes, scale_cases),
	ONCE(refused),
};

/* Timed: blocks of squeeze-excite ResNets and of ConvNeXt. */
/* clang-format off */
static const struct scale_case
	excite = {.gate = true, .residual = true, .relu = true, .dz = true, .dx = true, .dgate = true},
	layer_scale = {.gamma = true, .residual = true, .drop_path = 0.1f, .two = true, .dz = true, .dx = true, .dgamma = true},
	dropped = {.dropout = 0.1f, .dx = true};

static const struct kernel_case timed[] = {
	{"scale_add", "gate 56x56x256", forward, 56, 56, 256, &excite},
	{"scale_add", "gate 7x7x2048", forward, 7, 7, 2048, &excite},
	{"scale_add", "gamma 56x56x96", forward, 56, 56, 96, &layer_scale},
	{"scale_add", "dropout 14x14x384", forward, 14, 14, 384, &dropped},
	{"scale_add_backward", "gate 56x56x256", backward, 56, 56, 256, &excite},
	{"scale_add_backward", "gate 7x7x2048", backward, 7, 7, 2048, &excite},
	{"scale_add_backward", "gamma 56x56x96", backward, 56, 56, 96, &layer_scale},
	{"scale_add_backward", "dropout 14x14x384", backward, 14, 14, 384, &dropped},
};
/* clang-format on */

KERNELS_MAIN(&cuda_kernels, tests, timed)
