/*
 * Kernels of every instruction set against plain C: all widths from 1, odd strides, canaries around
 * the results. Some C kernels are checked against double precision here; test_device_ops checks all
 * against the reference.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"
#include "trainer/device/cpu/kernels.h"

#include <math.h>

#define ROWS   3
#define MARGIN 16
#define SPACE  (2 * MARGIN + ROWS * (KERNEL_WIDTH_MAX + 9))

/* Inputs and outputs of one call; outputs lie between canaries. */
struct data {
	float f32[6][SPACE];
	uint16_t bf16[6][SPACE];
	float columns[6][KERNEL_WIDTH_MAX];
};

static const struct kernels *variants[3];
static unsigned variant_count;

static void find_variants(void)
{
	for (int isa = CPU_ISA_AVX2; isa <= (int)cpu_isa_supported() && isa <= CPU_ISA_AVX512BW;
	     isa++)
		variants[variant_count++] = kernels_of((enum cpu_isa)isa);
}

static void fill(struct data *data, uint64_t seed)
{
	for (unsigned i = 0; i < 6; i++) {
		for (unsigned j = 0; j < SPACE; j++) {
			float v = (float)(round((uniform(seed + i, j) * 4 - 2) * 64) / 64);
			uint32_t bits;

			memcpy(&bits, &v, sizeof(bits));
			data->f32[i][j] = v;
			data->bf16[i][j] = (uint16_t)(bits >> 16);
		}
		for (unsigned j = 0; j < KERNEL_WIDTH_MAX; j++)
			data->columns[i][j] = (float)(uniform(seed + 10 + i, j) * 2 - 1);
	}
}

static void *tensor(struct data *data, unsigned i, enum element element)
{
	return element == ELEMENT_BF16 ? (void *)(data->bf16[i] + MARGIN)
				       : (void *)(data->f32[i] + MARGIN);
}

static float value(const struct data *data, unsigned i, unsigned j, enum element element)
{
	uint32_t bits = (uint32_t)data->bf16[i][j] << 16;
	float v;

	memcpy(&v, &bits, sizeof(v));
	return element == ELEMENT_BF16 ? v : data->f32[i][j];
}

/*
 * Compares whole structures: results, and memory that kernels must not write. A bf16 result may be
 * rounded to a neighbouring value.
 */
static void compare(const struct data *a, const struct data *b, enum element element,
		    const char *what, size_t width)
{
	double tolerance = element == ELEMENT_BF16 ? 1.0 / 64 : 1e-5;

	for (unsigned i = 0; i < 6; i++)
		for (unsigned j = 0; j < SPACE; j++) {
			double x = (double)value(a, i, j, element),
			       y = (double)value(b, i, j, element);

			if (!(fabs(x - y) <= tolerance * (1 + fabs(y))))
				fail_msg("%s, element %d, width %zu: tensor %u differs at %u: %g "
					 "against %g",
					 what, element, width, i, j, x, y);
		}
}

static void compare_sums(const double *a, const double *b, size_t width, const char *what)
{
	for (size_t i = 0; i < KERNEL_WIDTH_MAX; i++) {
		if (i >= width ? a[i] != b[i] : !(fabs(a[i] - b[i]) <= 1e-5 * (1 + fabs(b[i]))))
			fail_msg("%s, width %zu: sum %zu is %g against %g", what, width, i, a[i],
				 b[i]);
	}
}

typedef void (*call)(const struct kernels *k, struct data *d, enum element element, size_t width,
		     double *sum, double *second);

static void call_statistics(const struct kernels *k, struct data *d, enum element element,
			    size_t width, double *sum, double *second)
{
	k->statistics(tensor(d, 0, element), element, ROWS, width + 5, width, d->columns[0], sum,
		      second);
}

static void apply_with(const struct kernels *k, struct data *d, enum element element, size_t width,
		       int activation, bool residual)
{
	struct apply_args args = {
		.x = tensor(d, 0, element),
		.x_element = element,
		.residual = residual ? tensor(d, 1, element) : NULL,
		.y = tensor(d, 2, element),
		.element = element,
		.scale = d->columns[0],
		.bias = d->columns[1],
		.activation = activation,
	};

	k->apply(&args, ROWS, width + 5, width);
}

static void call_apply(const struct kernels *k, struct data *d, enum element element, size_t width,
		       double *sum, double *second)
{
	apply_with(k, d, element, width, DEVICE_IDENTITY, true);
}

static void call_apply_relu(const struct kernels *k, struct data *d, enum element element,
			    size_t width, double *sum, double *second)
{
	apply_with(k, d, element, width, DEVICE_RELU, true);
}

static void call_apply_gelu(const struct kernels *k, struct data *d, enum element element,
			    size_t width, double *sum, double *second)
{
	apply_with(k, d, element, width, DEVICE_GELU, false);
}

static void reduce_with(const struct kernels *k, struct data *d, enum element element, size_t width,
			double *sum, double *second, enum slope slope, bool two)
{
	struct reduce_args args = {
		.gradient = {tensor(d, 0, element), two ? tensor(d, 1, element) : NULL},
		.x = tensor(d, 2, element),
		.y = tensor(d, 3, element),
		.residual = two ? tensor(d, 4, element) : NULL,
		.dz = tensor(d, 5, element),
		.element = element,
		.slope = slope,
		.scale = d->columns[0],
		.bias = d->columns[1],
		.mean = d->columns[2],
	};

	k->reduce(&args, ROWS, width + 5, width, sum, second);
}

static void call_reduce(const struct kernels *k, struct data *d, enum element element, size_t width,
			double *sum, double *second)
{
	reduce_with(k, d, element, width, sum, second, SLOPE_RELU_Y, true);
}

static void call_reduce_gelu(const struct kernels *k, struct data *d, enum element element,
			     size_t width, double *sum, double *second)
{
	reduce_with(k, d, element, width, sum, second, SLOPE_GELU_X, false);
}

static void call_dx(const struct kernels *k, struct data *d, enum element element, size_t width,
		    double *sum, double *second)
{
	struct dx_args args = {
		.gradient = tensor(d, 0, element),
		.x = tensor(d, 1, element),
		.dx = tensor(d, 2, element),
		.element = element,
		.slope = SLOPE_ONE,
		.a = d->columns[2],
		.b = d->columns[3],
		.c = d->columns[4],
	};

	k->dx(&args, ROWS, width + 5, width);
}

static void call_layer_norm(const struct kernels *k, struct data *d, enum element element,
			    size_t width, double *sum, double *second)
{
	float mean[ROWS], deviation[ROWS];
	struct layer_norm_args args = {
		.x = tensor(d, 0, element),
		.y = tensor(d, 1, element),
		.element = element,
		.gamma = d->columns[0],
		.beta = d->columns[1],
		.mean = mean,
		.deviation = deviation,
		.epsilon = 0.1f,
	};
	struct layer_norm_backward_args backward = {
		.gradient = tensor(d, 2, element),
		.x = tensor(d, 0, element),
		.dx = tensor(d, 3, element),
		.element = element,
		.gamma = d->columns[0],
		.mean = mean,
		.deviation = deviation,
	};

	k->layer_norm(&args, ROWS, width);
	k->layer_norm_backward(&backward, ROWS, width, sum, second);
}

/* Dense, with ROWS channels. The gradients of keys and values overwrite k and v. */
static void call_attention(const struct kernels *k, struct data *d, enum element element,
			   size_t width, double *sum, double *second)
{
	float log_sum[KERNEL_WIDTH_MAX];
	struct attention_args args = {
		.q = tensor(d, 0, element),
		.k = tensor(d, 1, element),
		.v = tensor(d, 2, element),
		.y = tensor(d, 3, element),
		.element = element,
		.log_sum = log_sum,
		.scale = 0.5f,
		.t = width,
		.d = ROWS,
		.stride = ROWS,
		.y_stride = ROWS,
		.scratch = aligned_alloc(64, attention_scratch(width, ROWS)),
		.gradient = tensor(d, 4, element),
		.dq = tensor(d, 5, element),
		.dk = tensor(d, 1, element),
		.dv = tensor(d, 2, element),
	};

	k->attention(&args);
	k->attention_backward(&args);
	for (size_t i = 0; i < width; i++)
		sum[i] = log_sum[i];
	free(args.scratch);
}

/* With dropout; each row's draws begin at a different offset in a block of random words. */
static void call_scale_add(const struct kernels *k, struct data *d, enum element element,
			   size_t width, double *sum, double *second)
{
	struct scale_add_args args = {
		.x = tensor(d, 0, element),
		.residual = tensor(d, 1, element),
		.y = tensor(d, 2, element),
		.element = element,
		.activation = DEVICE_RELU,
		.rows = ROWS,
		.channels = (uint32_t)width,
		.scale = d->columns[0],
		.dropout = dropout_rate(0.3f),
		.key = {{1, 2}},
		.sample = 3,
	};

	k->scale_add(&args);
	args.gradient[0] = tensor(d, 3, element);
	args.gradient[1] = tensor(d, 1, element);
	args.dz = tensor(d, 3, element);
	args.dx = tensor(d, 4, element);
	k->scale_add_backward(&args, sum);
}

static void call_add(const struct kernels *k, struct data *d, enum element element, size_t width,
		     double *sum, double *second)
{
	k->add(tensor(d, 0, element), tensor(d, 1, element), element, width * 2 + 1);
}

static void call_pool(const struct kernels *k, struct data *d, enum element element, size_t width,
		      double *sum, double *second)
{
	k->column_mean(tensor(d, 0, element), tensor(d, 1, element), element, ROWS, width);
	k->column_spread(tensor(d, 2, element), tensor(d, 3, element), element, ROWS, width);
}

static void call_normalize(const struct kernels *k, struct data *d, enum element element,
			   size_t width, double *sum, double *second)
{
	k->normalize(tensor(d, 0, element), element, 3, (const uint8_t *)d->bf16[4], 3, width / 3,
		     d->columns[0], d->columns[1]);
	k->normalize(tensor(d, 1, element), element, 3, (const uint8_t *)d->bf16[4], 4, width / 3,
		     d->columns[0], d->columns[1]);
}

static void call_loss(const struct kernels *k, struct data *d, enum element element, size_t width,
		      double *sum, double *second)
{
	int32_t labels[ROWS] = {0, (int32_t)width - 1, -1};
	float scratch[2 * KERNEL_WIDTH_MAX], losses[ROWS];
	struct device_loss_spec spec = {.smoothing = 0.1f, .logit_scale = 0.7f, .temperature = 1};
	struct loss_sums sums = {0};
	struct loss_args args = {
		.logits = tensor(d, 0, element),
		.logits_element = element,
		.gradient = tensor(d, 1, element),
		.gradient_element = element,
		.labels = labels,
		.rows = ROWS,
		.classes = (uint32_t)width,
		.losses = losses,
		.spec = &spec,
		.plain = true,
		.gradient_scale = 0.5f,
		.scratch = scratch,
	};

	k->loss(&args, &sums);
	sum[0] = sums.loss;
	second[0] = sums.samples * 100 + sums.top1 * 10 + sums.top5;
}

static void call_updates(const struct kernels *k, struct data *d, enum element element,
			 size_t width, double *sum, double *second)
{
	struct device_hyper hyper = {
		.lr = {0.1f},
		.weight_decay = {0.01f},
		.momentum = 0.9f,
		.beta1 = 0.9f,
		.beta2 = 0.99f,
		.epsilon = 1e-3f,
	};
	struct device_optimizer_spec optimizer = {.nesterov = true};
	struct update_decision decision = {
		.gradient_scale = 0.5f, .correction1 = 10, .correction2 = 100, .ema_decay = 0.75f};
	struct update_args args = {
		.w = d->f32[0] + MARGIN,
		.g = d->f32[1] + MARGIN,
		.state = {d->f32[2] + MARGIN, d->f32[3] + MARGIN},
		.count = width,
		.lr_factor = 1,
		.hyper = &hyper,
		.optimizer = &optimizer,
		.decision = &decision,
	};
	float *ema = d->f32[4] + MARGIN;

	k->update[DEVICE_SGD](&args);
	k->average(ema, args.w, width, decision.ema_decay);
	for (size_t i = 0; i < width; i++)
		args.state[1][i] = fabsf(args.state[1][i]);
	k->update[DEVICE_ADAMW](&args);
	k->average(ema, args.w, width, decision.ema_decay);
	sum[0] = k->sum_squares(d->f32[5] + MARGIN, width);
}

static const struct {
	const char *name;
	call function;
} calls[] = {
	{"statistics", call_statistics},
	{"apply", call_apply},
	{"apply relu", call_apply_relu},
	{"apply gelu", call_apply_gelu},
	{"reduce", call_reduce},
	{"reduce gelu", call_reduce_gelu},
	{"dx", call_dx},
	{"layer norm", call_layer_norm},
	{"attention", call_attention},
	{"scale add", call_scale_add},
	{"add", call_add},
	{"pool", call_pool},
	{"normalize", call_normalize},
	{"loss", call_loss},
	{"updates", call_updates},
};

TEST(variants)
{
	static struct data expected, got;
	double sums[4][KERNEL_WIDTH_MAX];

	if (!variant_count)
		skip();
	for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++)
		for (size_t width = 1; width <= KERNEL_WIDTH_MAX; width += width < 70 ? 1 : 47)
			for (int e = 0; e < 2; e++)
				for (unsigned v = 0; v < variant_count; v++) {
					if (calls[c].function == call_updates && e)
						continue;
					memset(sums, 0, sizeof(sums));
					fill(&expected, width);
					fill(&got, width);
					calls[c].function(&kernels_c, &expected, (enum element)e,
							  width, sums[0], sums[1]);
					calls[c].function(variants[v], &got, (enum element)e, width,
							  sums[2], sums[3]);
					compare(&got, &expected, (enum element)e, calls[c].name,
						width);
					compare_sums(sums[2], sums[0], width, calls[c].name);
					compare_sums(sums[3], sums[1], width, calls[c].name);
				}
}

/* Rounding to bf16 goes to nearest even, keeps infinities, and keeps a NaN a NaN. */
TEST(rounding)
{
	static const struct {
		uint32_t from;
		uint16_t to;
	} cases[] = {
		{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
		{0x3f818000, 0x3f82}, {0x3f817fff, 0x3f81}, {0x7f800000, 0x7f80},
		{0xff800000, 0xff80}, {0x7f7fffff, 0x7f80}, {0x80000000, 0x8000},
		{0x00000001, 0x0000}, {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff},
		{0x7fc00000, 0x7fc0},
	};

	for (unsigned v = 0; v <= variant_count; v++) {
		const struct kernels *k = v ? variants[v - 1] : &kernels_c;

		for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
			float from[40];
			uint16_t to[40];

			for (unsigned j = 0; j < 40; j++)
				memcpy(&from[j], &cases[i].from, sizeof(float));
			k->convert(to, ELEMENT_BF16, from, ELEMENT_F32, 40);
			for (unsigned j = 0; j < 40; j++)
				assert_int_equal(to[j], cases[i].to);
		}
	}
}

/* GELU against erfc, over its curved range. */
TEST(gelu)
{
	for (unsigned v = 0; v <= variant_count; v++) {
		const struct kernels *k = v ? variants[v - 1] : &kernels_c;

		for (double z = -12; z < 12; z += 0.0173) {
			float x = (float)z, one = 1, zero = 0, y;
			struct apply_args args = {.x = &x,
						  .y = &y,
						  .scale = &one,
						  .bias = &zero,
						  .activation = DEVICE_GELU};

			k->apply(&args, 1, 1, 1);
			assert_true(fabs((double)y - (double)x * 0.5 * erfc(-(double)x / sqrt(2))) <
				    1e-6 * (1 + fabs(z)));
		}
	}
}

TEST(sigmoid)
{
	for (unsigned v = 0; v <= variant_count; v++) {
		const struct kernels *k = v ? variants[v - 1] : &kernels_c;

		for (double z = -120; z < 120; z += 0.173) {
			float x = (float)z, one = 1, zero = 0, y;
			struct apply_args args = {.x = &x,
						  .y = &y,
						  .scale = &one,
						  .bias = &zero,
						  .activation = DEVICE_LOGISTIC};

			k->apply(&args, 1, 1, 1);
			assert_true(fabs((double)y - 1 / (1 + exp(-(double)x))) < 1e-6);
		}
	}
}

TEST(finite)
{
	for (unsigned v = 0; v <= variant_count; v++) {
		const struct kernels *k = v ? variants[v - 1] : &kernels_c;

		for (unsigned count = 1; count < 70; count++)
			for (unsigned bad = 0; bad < count; bad += 3) {
				float x[70] = {0};

				x[count - 1] = -3e38f;
				assert_true(k->finite(x, ELEMENT_F32, count));
				assert_true(isfinite(k->sum_squares(x, count)));
				x[bad] = bad % 2 ? NAN : -INFINITY;
				assert_false(k->finite(x, ELEMENT_F32, count));
				assert_false(isfinite(k->sum_squares(x, count)));
			}
	}
}

/* Stores `from` rounded so that bf16 holds it exactly; returns the stored value. */
static float put(void *to, enum element element, size_t i, double from)
{
	float v = (float)(round(from * 32) / 32);
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	if (element == ELEMENT_BF16)
		((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
	else
		((float *)to)[i] = v;
	return v;
}

static double get(const void *from, enum element element, size_t i)
{
	float v;

	if (element == ELEMENT_F32)
		return (double)((const float *)from)[i];
	uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
	memcpy(&v, &bits, sizeof(v));
	return (double)v;
}

/*
 * Means of columns, and gradients spread over rows, against sums in double: all instruction sets
 * share the source, so comparing them with each other would not find its bugs.
 */
static void columns_of_width(const struct kernels *k, enum element element, size_t width)
{
	enum { WIDTH_MAX = 2 * KERNEL_WIDTH_MAX + 1 };
	static float x[ROWS * WIDTH_MAX], y[WIDTH_MAX + 1];
	static double expected[WIDTH_MAX];
	double tolerance = element == ELEMENT_BF16 ? 1.0 / 128 : 1e-6;

	memset(expected, 0, sizeof(expected));
	for (size_t i = 0; i < ROWS * width; i++)
		expected[i % width] += (double)put(x, element, i, uniform(width, i) * 4 - 2) / ROWS;
	put(y, element, width, 77);
	k->column_mean(y, x, element, ROWS, width);
	for (size_t i = 0; i < width; i++)
		if (!(fabs(get(y, element, i) - expected[i]) <=
		      tolerance * (1 + fabs(expected[i]))))
			fail_msg("element %d, width %zu: mean %zu is %g, not %g", element, width, i,
				 get(y, element, i), expected[i]);
	assert_true(get(y, element, width) == 77);
	k->column_spread(x, y, element, ROWS, width);
	for (size_t i = 0; i < ROWS * width; i++) {
		double share = get(y, element, i % width) / ROWS;

		if (!(fabs(get(x, element, i) - share) <= tolerance * (1 + fabs(share))))
			fail_msg("element %d, width %zu: share %zu is %g, not %g", element, width,
				 i, get(x, element, i), share);
	}
}

/*
 * Column sums of x - shift and of (x - shift)^2 against sums in double; kernels add them to
 * existing values.
 */
static void statistics_of_width(const struct kernels *k, enum element element, size_t width)
{
	static float x[ROWS * (KERNEL_WIDTH_MAX + 3)], shift[KERNEL_WIDTH_MAX];
	double sum[KERNEL_WIDTH_MAX + 1] = {0}, square[KERNEL_WIDTH_MAX + 1] = {0};
	double sums[KERNEL_WIDTH_MAX] = {0}, squares[KERNEL_WIDTH_MAX] = {0};
	size_t stride = width + 3;

	for (size_t i = 0; i < width; i++) {
		shift[i] = (float)(uniform(3, i) - 0.5);
		sum[i] = sums[i] = 2;
		square[i] = squares[i] = 3;
	}
	for (size_t i = 0; i < ROWS * stride; i++) {
		double v = (double)put(x, element, i, uniform(width, i) * 4 - 2);

		if (i % stride >= width)
			continue;
		v -= (double)shift[i % stride];
		sums[i % stride] += v;
		squares[i % stride] += v * v;
	}
	k->statistics(x, element, ROWS, stride, width, shift, sum, square);
	for (size_t i = 0; i < width; i++)
		if (!(fabs(sum[i] - sums[i]) <= 1e-5) || !(fabs(square[i] - squares[i]) <= 1e-4))
			fail_msg("element %d, width %zu: column %zu sums to %g and %g, not %g and "
				 "%g",
				 element, width, i, sum[i], square[i], sums[i], squares[i]);
	assert_true(sum[width] == 0 && square[width] == 0);
}

TEST(columns)
{
	static const size_t widths[] = {1,   2,   3,   17,  64,   255,  511,
					512, 513, 514, 600, 1023, 1024, 1025};

	for (unsigned v = 0; v <= variant_count; v++)
		for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++)
			for (int e = 0; e < 2; e++) {
				const struct kernels *k = v ? variants[v - 1] : &kernels_c;

				columns_of_width(k, (enum element)e, widths[i]);
				if (widths[i] <= KERNEL_WIDTH_MAX)
					statistics_of_width(k, (enum element)e, widths[i]);
			}
}

/* c = a b, or c += a b, with `a` read along its columns and a gap between b's panels. */
static void product_of(const struct kernels *k, size_t rows, size_t depth, size_t panels, bool adds)
{
	size_t apart = (depth + 2) * PRODUCT_PANEL, c_row = (panels + 1) * PRODUCT_PANEL;
	float *a = malloc(rows * depth * sizeof(float));
	float *b = aligned_alloc(64, panels * apart * sizeof(float));
	float *c = aligned_alloc(64, rows * c_row * sizeof(float));
	struct product_args args = {a, 1, rows, b, apart, c, c_row, rows, depth, panels, adds};

	for (size_t i = 0; i < rows * depth; i++)
		a[i] = (float)(uniform(1, i) - 0.5);
	for (size_t i = 0; i < panels * apart; i++)
		b[i] = (float)(uniform(2, i) - 0.5);
	for (size_t i = 0; i < rows * c_row; i++)
		c[i] = (float)uniform(3, i);
	k->product(&args);
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < c_row; j++) {
			double sum = (double)(float)uniform(3, i * c_row + j);

			if (j < panels * PRODUCT_PANEL) {
				sum = adds ? sum : 0;
				for (size_t d = 0; d < depth; d++)
					sum += (double)a[i + d * rows] *
					       (double)b[j / PRODUCT_PANEL * apart +
							 d * PRODUCT_PANEL + j % PRODUCT_PANEL];
			}
			if (!(fabs((double)c[i * c_row + j] - sum) <= 1e-5))
				fail_msg("%s: %zu rows, depth %zu, %zu panels: (%zu, %zu) is %g, "
					 "not %g",
					 k->isa, rows, depth, panels, i, j,
					 (double)c[i * c_row + j], sum);
		}
	free(a);
	free(b);
	free(c);
}

TEST(product)
{
	static const size_t depths[] = {1, 16, 128, 129, 257, 600};

	for (unsigned v = 0; v <= variant_count; v++)
		for (size_t i = 0; i < sizeof(depths) / sizeof(*depths); i++)
			for (size_t panels = 1; panels <= 9; panels++)
				product_of(v ? variants[v - 1] : &kernels_c, 1 + 2 * panels,
					   depths[i], panels, panels % 2);
}

enum { POOL_H = 5, POOL_W = 8, POOL_C = 521, POOL_SIZE = POOL_H * POOL_W * POOL_C };
enum { POOLED_SIZE = (POOL_H + 4) * (POOL_W + 4) * POOL_C }; /* with the widest padding */

/* A window yields the first of its largest values, or its last NaN, as in PyTorch. */
static void max_pool_of(const struct kernels *k, size_t window, size_t stride, size_t pad)
{
	static float x[POOL_SIZE], dx[POOL_SIZE], expected[POOL_SIZE];
	static float y[POOLED_SIZE], gradient[POOLED_SIZE];
	static uint8_t taps[POOLED_SIZE];
	struct max_pool_args args = {x, y, taps, gradient, dx, POOL_H, POOL_W, POOL_C};

	args.p = (POOL_H + 2 * pad - window) / stride + 1;
	args.q = (POOL_W + 2 * pad - window) / stride + 1;
	args.window_h = args.window_w = window;
	args.stride = stride;
	args.pad = pad;
	for (size_t i = 0; i < POOL_SIZE; i++) { /* many values are equal */
		double v = floor(uniform(4, i) * 40);

		x[i] = v == 0 ? NAN : (float)(v / 8 - 3);
		expected[i] = 0;
		dx[i] = 7;
	}
	for (size_t i = 0; i < POOLED_SIZE; i++)
		gradient[i] = (float)i / 64;
	k->max_pool(&args);
	k->max_pool_backward(&args);
	for (size_t i = 0; i < args.p * args.q * POOL_C; i++) {
		size_t c = i % POOL_C, q = i / POOL_C % args.q, p = i / POOL_C / args.q, found = 0;
		float best = -INFINITY;

		for (size_t tap = 0; tap < window * window; tap++) {
			size_t h = p * stride + tap / window - pad,
			       w = q * stride + tap % window - pad,
			       at = (h * POOL_W + w) * POOL_C + c;

			if (h >= POOL_H || w >= POOL_W || !(x[at] > best || isnan(x[at])))
				continue;
			best = x[at];
			found = at;
		}
		assert_memory_equal(&y[i], &best, sizeof(best));
		expected[found] += gradient[i];
	}
	assert_memory_equal(dx, expected, sizeof(dx));
}

TEST(max_pool)
{
	static const size_t windows[][3] = {{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {2, 3, 1}, {5, 1, 4}};

	for (unsigned v = 0; v <= variant_count; v++)
		for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++)
			max_pool_of(v ? variants[v - 1] : &kernels_c, windows[i][0], windows[i][1],
				    windows[i][2]);
}

int main(void)
{
	find_variants();
	return test_run(NULL, NULL);
}
