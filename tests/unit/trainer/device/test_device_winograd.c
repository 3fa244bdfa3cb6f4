/*
 * Convolutions that the CPU does by Winograd: results and both gradients against sums in double
 * precision, closer than device-ops asks; the same bits with any number of threads; and what else
 * may follow such a layer.
 */
#include "tests/unit/trainer/device/test_device_reference.h"

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* twice what the weights of the last case below come to, sums over 17,100 positions */
#define TOLERANCE 3e-6

struct conv_case {
	struct device_shape x;
	uint32_t k, pad;
	bool bias;
};

static const struct conv_case cases[] = {
	{{3, 8, 8, 32}, 32, 1, false},   /* whole tiles */
	{{2, 7, 8, 40}, 44, 1, true},    /* tiles and blocks of channels that are not full */
	{{2, 6, 6, 32}, 48, 0, false},   /* no padding, of which the gradient of x has two */
	{{2, 5, 6, 48}, 32, 2, true},    /* and the other way round */
	{{1, 3, 3, 272}, 64, 1, false},  /* deeper than a panel stays in the cache; one tile */
	{{2, 4, 4, 33}, 300, 1, true},   /* many results */
	{{60, 15, 19, 32}, 32, 1, true}, /* more tiles than a block, of one thread and of all */
};

struct run {
	float *y, *dx, *dw, *db;
};

static float *floats(const struct tensor *tensor)
{
	float *v = malloc(tensor_count(tensor) * sizeof(float));

	tensor_to_float(tensor, v);
	return v;
}

static void check_engine(const struct device_graph *graph)
{
	struct device_layer_info info;

	for (uint32_t i = 0; device_graph_layer(graph, i, &info) == 0; i++)
		if (!strcmp(info.name, "conv")) {
			assert_non_null(strstr(info.engine, "winograd"));
			return;
		}
	fail();
}

struct fixture {
	const struct conv_case *conv;
	struct tensor x, w, b, g;
};

static struct fixture make(const struct conv_case *conv)
{
	struct device_shape y = {conv->x.n, conv->x.h + 2 * conv->pad - 2,
				 conv->x.w + 2 * conv->pad - 2, conv->k};
	struct fixture f = {
		conv,
		tensor_new(conv->x),
		tensor_new((struct device_shape){conv->k, 3, 3, conv->x.c}),
		tensor_new((struct device_shape){1, 1, 1, conv->k}),
		tensor_new(y),
	};

	tensor_fill(&f.x, 1, false);
	tensor_fill(&f.w, 2, false);
	tensor_fill(&f.b, 3, false);
	tensor_fill(&f.g, 4, false);
	return f;
}

static void drop(struct fixture *f)
{
	tensor_free(&f->x);
	tensor_free(&f->w);
	tensor_free(&f->b);
	tensor_free(&f->g);
}

/* A step of the layer alone. */
static struct run run(const struct fixture *f, unsigned threads)
{
	struct device *device = open_device(DEVICE_FP32, threads);
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	struct device_graph_options options = {.mode = DEVICE_TRAIN, .keep_all = true};
	struct device_input_spec spec = {
		.name = "input", .shape = f->x.shape, .std = {1, 1, 1, 1}, .gradient = true};
	struct device_conv_spec conv = {.name = "conv", .stride = 1, .pad = f->conv->pad};
	float *x = floats(&f->x), *w = floats(&f->w), *b = floats(&f->b), *g = floats(&f->g);
	struct device_batch batch = {.images = x,
				     .count = f->x.shape.n,
				     .channels = f->x.shape.c,
				     .element = DEVICE_ELEMENT_F32};
	struct device_params *params;
	struct device_graph *graph;
	struct device_value *input, *y;
	char error[DEVICE_ERROR_MAX];
	uint64_t ticket;
	struct run found = {floats(&f->g), floats(&f->x), floats(&f->w), floats(&f->b)};

	assert_int_equal(device_params_new(device, &params), 0);
	conv.weight = add_param(params, "weight", DEVICE_CONV_WEIGHT, f->w.shape);
	if (f->conv->bias)
		conv.bias = add_param(params, "bias", DEVICE_VECTOR, f->b.shape);
	assert_int_equal(device_params_allocate(params, &optimizer), 0);
	assert_int_equal(device_param_write(conv.weight, DEVICE_VALUE, w), 0);
	if (conv.bias)
		assert_int_equal(device_param_write(conv.bias, DEVICE_VALUE, b), 0);
	assert_int_equal(device_graph_new(params, &options, &graph), 0);
	input = device_input(graph, &spec);
	y = device_conv(graph, input, &conv);
	if (device_graph_plan(graph, error) < 0)
		fail_msg("%s", error);
	check_engine(graph);
	assert_int_equal(device_value_write(graph, y, DEVICE_GRAD, g), 0);
	assert_int_equal(device_feed(graph, &batch, &ticket), 0);
	assert_int_equal(device_step(graph, NULL, &ticket), 0);
	assert_int_equal(device_value_read(graph, y, DEVICE_VALUE, found.y), 0);
	assert_int_equal(device_value_read(graph, input, DEVICE_GRAD, found.dx), 0);
	assert_int_equal(device_param_read(conv.weight, DEVICE_GRAD, found.dw), 0);
	if (conv.bias)
		assert_int_equal(device_param_read(conv.bias, DEVICE_GRAD, found.db), 0);
	device_graph_free(graph);
	device_params_free(params);
	device_close(device);
	free(x);
	free(w);
	free(b);
	free(g);
	return found;
}

static void run_free(struct run *run)
{
	free(run->y);
	free(run->dx);
	free(run->dw);
	free(run->db);
}

/* Adds what a result's gradient is worth to those of x and w. */
static void differentiate(const struct fixture *f, struct tensor *dx, struct tensor *dw)
{
	struct device_shape x = f->x.shape, y = f->g.shape;

	for (size_t at = 0; at < tensor_count(&f->g); at++) {
		size_t k = at % y.c, q = at / y.c % y.w, p = at / y.c / y.w % y.h,
		       n = at / y.c / y.w / y.h;

		for (size_t tap = 0; tap < 9; tap++) {
			size_t h = p + tap / 3 - f->conv->pad, w = q + tap % 3 - f->conv->pad;
			size_t pixel = ((n * x.h + h) * x.w + w) * x.c;
			size_t weight = (k * 9 + tap) * x.c;

			/* what is above or left of the picture is far below or right of it */
			for (size_t c = 0; c < x.c && h < x.h && w < x.w; c++) {
				dx->v[pixel + c] += f->g.v[at] * f->w.v[weight + c];
				dw->v[weight + c] += f->g.v[at] * f->x.v[pixel + c];
			}
		}
	}
}

static void compare(const char *what, size_t number, const float *got,
		    const struct tensor *expected)
{
	double error = relative_error(got, expected->v, tensor_count(expected));

	if (!(error <= TOLERANCE))
		fail_msg("%s of case %zu: relative error %g", what, number, error);
}

static void test_against_double(void **state)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fixture f = make(&cases[i]);
		struct run found = run(&f, 0);
		struct tensor y = reference_conv(&f.x, &f.w, 1, f.conv->pad, 0);
		struct tensor dx = tensor_new(f.x.shape), dw = tensor_new(f.w.shape);

		if (f.conv->bias)
			reference_bias(&y, &f.b);
		differentiate(&f, &dx, &dw);
		compare("result", i, found.y, &y);
		compare("gradient of x", i, found.dx, &dx);
		compare("gradient of the weights", i, found.dw, &dw);
		tensor_free(&y);
		tensor_free(&dx);
		tensor_free(&dw);
		run_free(&found);
		drop(&f);
	}
}

static void test_threads(void **state)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fixture f = make(&cases[i]);
		struct run one = run(&f, 1);

		for (unsigned threads = 2; threads <= 5; threads++) {
			struct run other = run(&f, threads);

			assert_memory_equal(one.y, other.y, tensor_count(&f.g) * sizeof(float));
			assert_memory_equal(one.dx, other.dx, tensor_count(&f.x) * sizeof(float));
			assert_memory_equal(one.dw, other.dw, tensor_count(&f.w) * sizeof(float));
			run_free(&other);
		}
		run_free(&one);
		drop(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_double),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
