/* Tokens with and without a class token, and taking one token, against plain loops. */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/tokens.h"

#include <errno.h>

/* n, places, -, channels */
static const struct kernel_shape shapes[] = {{1, 1, 1, 1},   {3, 6, 1, 7},   {5, 12, 1, 32},
					     {9, 4, 1, 200}, {33, 3, 1, 12}, {2, 49, 1, 1030}};

struct tokens_case {
	bool classes, dx, sums, add;
};

/* clang-format off */
static const struct tokens_case cases[] = {
	{false, true, false, false}, {false, false, true, false}, {false, true, true, true},
	{true, true, false, false}, {true, false, true, false}, {true, true, true, true},
};
/* clang-format on */

static struct tokens_arguments arguments_of(const struct kernel_case *k, bool classes,
					    enum cuda_element element)
{
	return (struct tokens_arguments){
		.n = k->n,
		.places = k->h * k->w,
		.tokens = k->h * k->w + classes,
		.channels = k->c,
		.element = element,
	};
}

/* Returns the index in x or dx for element i of y; -1 for the class token. */
static int64_t place_of(const struct tokens_arguments *a, uint64_t i)
{
	uint64_t token = i / a->channels % a->tokens, sample = i / a->channels / a->tokens;

	if (token < a->tokens - a->places)
		return -1;
	return (int64_t)((sample * a->places + token - (a->tokens - a->places)) * a->channels +
			 i % a->channels);
}

static void forward(const struct kernel_case *k, enum cuda_element element)
{
	const struct tokens_case *settings = k->settings;
	struct tokens_arguments a = arguments_of(k, settings->classes, element);
	uint64_t row = (uint64_t)a.tokens * k->c;
	struct array *x = new_coarse((uint64_t)k->n * a.places * k->c, element),
		     *y = new_blank(k->n * row, element);
	struct array *positions = new_coarse(row, CUDA_F32),
		     *class_token = new_coarse(k->c, CUDA_F32);

	a.x = array_reads(x);
	a.y = array_writes(y);
	a.positions = array_reads(positions);
	a.class_token = settings->classes ? array_reads(class_token) : NULL;
	if (queued(tokens_forward(&kernels_device, &a)))
		return;
	for (uint64_t i = 0; i < y->count; i++) {
		int64_t place = place_of(&a, i);

		want(y)[i] = positions->v[i % row] +
			     (place < 0 ? class_token->v[i % k->c] : x->v[place]);
	}
	expect(y, element_tolerance(element), "y");
}

/* The class token's sums equal those of the first position. */
static void backward(const struct kernel_case *k, enum cuda_element element)
{
	const struct tokens_case *settings = k->settings;
	struct tokens_arguments a = arguments_of(k, settings->classes, element);
	uint64_t row = (uint64_t)a.tokens * k->c;
	struct array *dy = new_coarse(k->n * row, element),
		     *dx = new_blank((uint64_t)k->n * a.places * k->c, element);
	struct array *dpositions = new_coarse(row, CUDA_F32),
		     *dclass_token = new_coarse(k->c, CUDA_F32);

	a.dy = array_reads(dy);
	a.dx = settings->dx ? array_writes(dx) : NULL;
	a.dpositions = settings->sums ? array_writes(dpositions) : NULL;
	a.dclass_token = settings->sums && settings->classes ? array_writes(dclass_token) : NULL;
	a.add_positions = a.add_class_token = settings->add;
	if (queued(tokens_backward(&kernels_device, &a)))
		return;
	for (uint64_t i = 0; i < row; i++)
		want(dpositions)[i] = settings->add ? dpositions->v[i] : 0;
	for (uint64_t i = 0; i < k->c; i++)
		want(dclass_token)[i] = settings->add ? dclass_token->v[i] : 0;
	for (uint64_t i = 0; i < dy->count; i++) {
		int64_t place = place_of(&a, i);

		want(dpositions)[i % row] += dy->v[i];
		if (place < 0)
			want(dclass_token)[i % k->c] += dy->v[i];
		else
			want(dx)[place] = dy->v[i];
	}
	if (settings->dx)
		expect(dx, 0, "dx");
	if (settings->sums)
		expect(dpositions, 1e-6, "dpositions");
	if (settings->sums && settings->classes)
		expect(dclass_token, 1e-6, "dclass_token");
}

/* Takes the first position, the last, and one in the middle; y and dy hold one token per sample. */
static void take(const struct kernel_case *k, enum cuda_element element)
{
	uint64_t image = (uint64_t)k->h * k->w * k->c;

	for (uint32_t part = 0; part <= 2; part++) {
		struct tokens_arguments a = arguments_of(k, false, element);
		struct array *x = new_coarse(k->n * image, element),
			     *dx = new_blank(k->n * image, element);
		struct array *y = new_blank((uint64_t)k->n * k->c, element),
			     *dy = new_coarse((uint64_t)k->n * k->c, element);

		a.tokens = 1;
		a.taken = part < 2 ? part * (a.places - 1) : a.places / 2;
		a.x = array_reads(x);
		a.y = array_writes(y);
		a.dy = array_reads(dy);
		a.dx = array_writes(dx);
		queued(tokens_take(&kernels_device, &a));
		queued(tokens_take_backward(&kernels_device, &a));
		for (uint64_t i = 0; i < y->count; i++) {
			uint64_t at = i / k->c * image + (uint64_t)a.taken * k->c + i % k->c;

			want(y)[i] = x->v[at];
			want(dx)[at] = dy->v[i];
		}
		expect(y, 0, "y");
		expect(dx, 0, "dx");
	}
}

static void refused(void)
{
	struct tokens_arguments a = {
		.n = 1u << 16, .places = 1u << 10, .tokens = 1u << 10, .channels = 64};

	assert_int_equal(tokens_forward(&kernels_device, &a), -EINVAL);
}

static const struct kernel_test tests[] = {
	CHECK_EACH(forward, shapes, cases),
	CHECK_EACH(backward, shapes, cases),
	CHECK(take, shapes),
	ONCE(refused),
};

/* Timed: vision transformers. */
static const struct tokens_case all = {.classes = true, .dx = true, .sums = true};

static const struct kernel_case timed[] = {
	{"tokens", "14x14x384", forward, 14, 14, 384, &all},
	{"tokens", "14x14x768", forward, 14, 14, 768, &all},
	{"tokens_backward", "14x14x384", backward, 14, 14, 384, &all},
	{"tokens_backward", "14x14x768", backward, 14, 14, 768, &all},
};

KERNELS_MAIN(&cuda_kernels, tests, timed)
