/* Scale and add, forward and backward, against plain loops in double precision. */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/scale_add.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Channels that form whole packs and that do not; one tile and several; positions that a block
 * covers in one turn or in several, or that several blocks share.
 */
static const uint32_t shapes[][3] = {
	/* n, positions, channels */
	{1, 1, 1},  {3, 5, 7},   {2, 49, 32}, {5, 9, 264},
	{9, 3, 40}, {1, 700, 8}, {2, 130, 9}, {3, 17, 520},
};

#define SHAPES (sizeof(shapes) / sizeof(*shapes))

/* Operands that are present, and gradients that are wanted. */
struct scale_case {
	bool residual, gate, gamma, relu;
	float drop_path, dropout;
	bool two, dz, dx, dgate, dgamma, add;
};

static const struct scale_case scale_cases[] = {
	{.gamma = true, .residual = true, .dz = true, .dx = true, .dgamma = true, .two = true},
	{.gate = true, .residual = true, .relu = true, .dz = true, .dx = true, .dgate = true},
	{.drop_path = 0.5f, .residual = true, .dx = true},
	{.dropout = 0.25f, .dx = true},
	{.gate = true, .gamma = true, .dgamma = true},
	{.gate = true,
	 .gamma = true,
	 .residual = true,
	 .relu = true,
	 .drop_path = 0.25f,
	 .dropout = 0.25f,
	 .two = true,
	 .dz = true,
	 .dx = true,
	 .dgate = true,
	 .dgamma = true,
	 .add = true},
	{.gamma = true, .dropout = 0.5f, .relu = true, .dx = true, .dgamma = true, .add = true},
	{.relu = true, .dx = true},
	{.gate = true, .dgate = true},
};

#define CASES (sizeof(scale_cases) / sizeof(*scale_cases))

static const struct device_draws draws = {0x123456789abcdef, 77, 12};

struct operands {
	uint32_t n, positions, channels;
	enum cuda_element element;
	struct array x, residual, dy, dy2, y, dz, dx; /* [n][positions][channels] */
	struct array gate, dgate;                     /* [n][channels] */
	struct array gamma, dgamma;                   /* [channels] */
	struct array step, partial;
	double *factor; /* [n][positions][channels]: drawn */
	double *wanted, *gates, *gammas;
};

static struct operands operands_new(uint32_t n, uint32_t positions, uint32_t channels,
				    enum cuda_element element)
{
	uint64_t count = (uint64_t)n * positions * channels, vectors = (uint64_t)n * channels;
	struct step_arguments step = {.draws = draws};

	return (struct operands){
		.n = n,
		.positions = positions,
		.channels = channels,
		.element = element,
		.x = array_uniform(count, element, 1, -1, 2),
		.residual = array_uniform(count, element, 2, -1, 1),
		.dy = array_uniform(count, element, 3, -1, 1),
		.dy2 = array_uniform(count, element, 4, -1, 1),
		.y = array_uniform(count, element, 5, -1, 1),
		.dz = array_blank(count, element),
		.dx = array_blank(count, element),
		.gate = array_uniform(vectors, element, 6, 0, 1),
		.dgate = array_blank(vectors, element),
		.gamma = array_uniform(channels, CUDA_F32, 7, -1, 2),
		.dgamma = array_uniform(channels, CUDA_F32, 8, -1, 1),
		.step = array_bytes(&step, sizeof(step)),
		.partial = array_bytes(
			NULL, scale_add_workspace(kernels_device.multiprocessors, n, channels)),
		.factor = kernels_zeros(count * sizeof(double)),
		.wanted = kernels_zeros(count * sizeof(double)),
		.gates = kernels_zeros(vectors * sizeof(double)),
		.gammas = kernels_zeros(channels * sizeof(double)),
	};
}

static void operands_free(struct operands *o)
{
	struct array *arrays[] = {&o->x,      &o->residual, &o->dy,     &o->dy2,   &o->y,
				  &o->dz,     &o->dx,       &o->gate,   &o->dgate, &o->gamma,
				  &o->dgamma, &o->step,     &o->partial};

	for (unsigned i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		array_free(arrays[i]);
	free(o->factor);
	free(o->wanted);
	free(o->gates);
	free(o->gammas);
}

static struct scale_add_arguments arguments_of(struct operands *o, const struct scale_case *k)
{
	return (struct scale_add_arguments){
		.step = array_uses(&o->step),
		.gate = k->gate ? array_reads(&o->gate) : NULL,
		.gamma = k->gamma ? array_reads(&o->gamma) : NULL,
		.layer = 99,
		.path = draws_drop(k->drop_path),
		.dropout = draws_drop(k->dropout),
		.n = o->n,
		.positions = o->positions,
		.channels = o->channels,
		.element = o->element,
		.activation = k->relu ? DEVICE_RELU : DEVICE_IDENTITY,
	};
}

/* Draws with draws.h, which test_device_draws.c compares with the definition. */
static void draw(struct operands *o, const struct scale_case *k)
{
	struct draws_key key = draws_key(&draws, 99);
	struct draws_drop path = draws_drop(k->drop_path), dropout = draws_drop(k->dropout);
	uint64_t size = (uint64_t)o->positions * o->channels;

	for (uint64_t i = 0; i < o->x.count; i++) {
		uint32_t sample = draws.first + (uint32_t)(i / size), at = (uint32_t)(i % size);
		struct philox_block block = draws_quad(key, sample, at / 4);
		uint32_t words[4] = {block.a, block.b, block.c, block.d};

		o->factor[i] = (double)draws_factor(path, draws_sample(key, sample)) *
			       (double)draws_factor(dropout, words[at % 4]);
	}
}

static uint64_t vector_of(const struct operands *o, uint64_t i)
{
	return i / ((uint64_t)o->positions * o->channels) * o->channels + i % o->channels;
}

static double gate_of(const struct operands *o, const struct scale_case *k, uint64_t i)
{
	return k->gate ? o->gate.v[vector_of(o, i)] : 1;
}

static double gamma_of(const struct operands *o, const struct scale_case *k, uint64_t i)
{
	return k->gamma ? o->gamma.v[i % o->channels] : 1;
}

static void check_forward(struct operands *o, const struct scale_case *k)
{
	struct scale_add_arguments a = arguments_of(o, k);

	a.x = array_reads(&o->x);
	a.residual = k->residual ? array_reads(&o->residual) : NULL;
	a.y = array_writes(&o->dz);
	assert_int_equal(scale_add_forward(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	draw(o, k);
	for (uint64_t i = 0; i < o->x.count; i++) {
		double z = gamma_of(o, k, i) * gate_of(o, k, i) * o->factor[i] * o->x.v[i] +
			   (k->residual ? o->residual.v[i] : 0);

		o->wanted[i] = k->relu && z < 0 ? 0 : z;
	}
	array_expect(&o->dz, o->wanted, 2 * element_tolerance(o->element),
		     "y of %u x %u x %u, case %d", o->n, o->positions, o->channels,
		     (int)(k - scale_cases));
}

static double dz_of(const struct operands *o, const struct scale_case *k, uint64_t i)
{
	double dz = o->dy.v[i] + (k->two ? o->dy2.v[i] : 0);

	return k->relu && o->y.v[i] <= 0 ? 0 : dz;
}

/* Computes the sums, and dx in `wanted`. */
static void reference_backward(struct operands *o, const struct scale_case *k)
{
	memset(o->gates, 0, (uint64_t)o->n * o->channels * sizeof(double));
	for (uint32_t c = 0; c < o->channels; c++)
		o->gammas[c] = k->add ? o->dgamma.v[c] : 0;
	draw(o, k);
	for (uint64_t i = 0; i < o->x.count; i++) {
		double dz = dz_of(o, k, i) * o->factor[i], product = dz * o->x.v[i];

		o->wanted[i] = dz * gamma_of(o, k, i) * gate_of(o, k, i);
		o->gates[vector_of(o, i)] += product * gamma_of(o, k, i);
		o->gammas[i % o->channels] += product * gate_of(o, k, i);
	}
}

static void check_backward(struct operands *o, const struct scale_case *k)
{
	struct scale_add_arguments a = arguments_of(o, k);
	double tolerance = 4 * element_tolerance(o->element);
	bool sums = k->dgate || k->dgamma;

	a.dy = array_reads(&o->dy);
	a.dy2 = k->two ? array_reads(&o->dy2) : NULL;
	a.y = k->relu ? array_reads(&o->y) : NULL;
	a.x = sums ? array_reads(&o->x) : NULL;
	a.dz = k->dz ? array_writes(&o->dz) : NULL;
	a.dx = k->dx ? array_writes(&o->dx) : NULL;
	a.dgate = k->dgate ? array_writes(&o->dgate) : NULL;
	a.dgamma = k->dgamma ? array_writes(&o->dgamma) : NULL;
	a.add_dgamma = k->add;
	a.partial = sums ? array_uses(&o->partial) : NULL;
	if (!kernels_timing)
		reference_backward(o, k);
	assert_int_equal(scale_add_backward(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	if (k->dx)
		array_expect(&o->dx, o->wanted, tolerance, "dx of %u x %u x %u, case %d", o->n,
			     o->positions, o->channels, (int)(k - scale_cases));
	if (k->dgate)
		array_expect(&o->dgate, o->gates, tolerance, "dgate of %u x %u x %u, case %d", o->n,
			     o->positions, o->channels, (int)(k - scale_cases));
	if (k->dgamma)
		array_expect(&o->dgamma, o->gammas, 2e-5, "dgamma of %u x %u x %u, case %d", o->n,
			     o->positions, o->channels, (int)(k - scale_cases));
	for (uint64_t i = 0; i < o->x.count; i++)
		o->wanted[i] = dz_of(o, k, i);
	if (k->dz)
		array_expect(&o->dz, o->wanted, tolerance, "dz of %u x %u x %u, case %d", o->n,
			     o->positions, o->channels, (int)(k - scale_cases));
}

static void test_scale_add(void **state)
{
	for (unsigned i = 0; i < SHAPES * ELEMENTS * KERNELS_VARIATIONS; i++) {
		const uint32_t *shape = shapes[i / KERNELS_VARIATIONS / ELEMENTS];
		enum cuda_element element = (enum cuda_element)(i / KERNELS_VARIATIONS % ELEMENTS);

		for (unsigned k = 0; k < CASES; k++) {
			struct operands o;

			kernels_vary(i % KERNELS_VARIATIONS);
			o = operands_new(shape[0], shape[1], shape[2], element);
			check_forward(&o, &scale_cases[k]);
			check_backward(&o, &scale_cases[k]);
			operands_free(&o);
		}
	}
}

static void test_refused(void **state)
{
	struct scale_add_arguments a = {.n = 2, .positions = 3, .channels = 8};
	float dgamma[8];

	assert_int_equal(scale_add_backward(&kernels_device, &a), -EINVAL);
	a.dgamma = dgamma;
	assert_int_equal(scale_add_backward(&kernels_device, &a), -EINVAL);
}

/* ---- timed: blocks of squeeze-excite ResNets and of ConvNeXt ---- */

static void timed_forward(const struct kernel_case *k, enum cuda_element element)
{
	struct operands o = operands_new(k->n, k->h * k->w, k->c, element);

	check_forward(&o, k->how);
	operands_free(&o);
}

static void timed_backward(const struct kernel_case *k, enum cuda_element element)
{
	struct operands o = operands_new(k->n, k->h * k->w, k->c, element);

	check_backward(&o, k->how);
	operands_free(&o);
}

static const struct scale_case excite = {
	.gate = true, .residual = true, .relu = true, .dz = true, .dx = true, .dgate = true};
static const struct scale_case layer_scale = {.gamma = true,
					      .residual = true,
					      .drop_path = 0.1f,
					      .two = true,
					      .dz = true,
					      .dx = true,
					      .dgamma = true};
static const struct scale_case dropped = {.dropout = 0.1f, .dx = true};

/* clang-format off */
static const struct kernel_case timed[] = {
	{"scale_add", "gate 56x56x256", timed_forward, 56, 56, 256, &excite},
	{"scale_add", "gate 7x7x2048", timed_forward, 7, 7, 2048, &excite},
	{"scale_add", "gamma 56x56x96", timed_forward, 56, 56, 96, &layer_scale},
	{"scale_add", "dropout 14x14x384", timed_forward, 14, 14, 384, &dropped},
	{"scale_add_backward", "gate 56x56x256", timed_backward, 56, 56, 256, &excite},
	{"scale_add_backward", "gate 7x7x2048", timed_backward, 7, 7, 2048, &excite},
	{"scale_add_backward", "gamma 56x56x96", timed_backward, 56, 56, 96, &layer_scale},
	{"scale_add_backward", "dropout 14x14x384", timed_backward, 14, 14, 384, &dropped},
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
		cmocka_unit_test(test_scale_add),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: scale and add", tests, kernels_test_open,
					   kernels_test_close);
}
