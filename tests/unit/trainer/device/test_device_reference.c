#include "tests/unit/trainer/device/test_device_reference.h"

#include "format/base/random.h"
#include "tests/test.h"

#include <math.h>

double uniform(uint64_t seed, uint64_t counter)
{
	uint64_t z =
		seed * 0x9e3779b97f4a7c15u + counter * 0xd1342543de82ef95u + 0x632be59bd9b4e019u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

size_t tensor_count(const struct tensor *t)
{
	return (size_t)t->shape.n * t->shape.h * t->shape.w * t->shape.c;
}

struct tensor tensor_new(struct device_shape shape)
{
	struct tensor t = {.shape = shape};

	t.v = calloc(tensor_count(&t) + 1, sizeof(double));
	assert_non_null(t.v);
	return t;
}

void tensor_free(struct tensor *tensor)
{
	free(tensor->v);
	tensor->v = NULL;
}

void tensor_fill(struct tensor *tensor, uint64_t seed, bool coarse)
{
	for (size_t i = 0; i < tensor_count(tensor); i++) {
		double v = uniform(seed, i) * 2 - 1;

		tensor->v[i] = coarse ? round(v * 64) / 64 : (double)(float)v;
	}
}

void tensor_to_float(const struct tensor *tensor, float *to)
{
	for (size_t i = 0; i < tensor_count(tensor); i++)
		to[i] = (float)tensor->v[i];
}

static double *at(const struct tensor *t, uint32_t n, uint32_t h, uint32_t w, uint32_t c)
{
	return &t->v[(((size_t)n * t->shape.h + h) * t->shape.w + w) * t->shape.c + c];
}

/*
 * Finds the input position for output position p at offset r of the window; returns false in the
 * padding.
 */
static bool source(const struct tensor *x, uint32_t p, uint32_t stride, uint32_t pad, uint32_t r,
		   uint32_t limit, uint32_t *ret)
{
	int64_t i = (int64_t)p * stride + r - pad;

	*ret = (uint32_t)i;
	return i >= 0 && i < limit;
}

struct tensor reference_conv(const struct tensor *x, const struct tensor *weight, uint32_t stride,
			     uint32_t pad, uint32_t pad_extra)
{
	struct device_shape w = weight->shape;
	uint32_t pads = 2 * pad + pad_extra, share = w.n / (x->shape.c / w.c);
	struct tensor y =
		tensor_new((struct device_shape){x->shape.n, (x->shape.h + pads - w.h) / stride + 1,
						 (x->shape.w + pads - w.w) / stride + 1, w.n});

	for (size_t i = 0; i < tensor_count(&y); i++) {
		uint32_t k = (uint32_t)(i % w.n), q = (uint32_t)(i / w.n % y.shape.w);
		uint32_t p = (uint32_t)(i / w.n / y.shape.w % y.shape.h),
			 n = (uint32_t)(i / w.n / y.shape.w / y.shape.h);
		uint32_t row, column;

		for (uint32_t r = 0; r < w.h; r++)
			for (uint32_t s = 0; s < w.w; s++) {
				if (!source(x, p, stride, pad, r, x->shape.h, &row) ||
				    !source(x, q, stride, pad, s, x->shape.w, &column))
					continue;
				const double *from = at(x, n, row, column, k / share * w.c);
				const double *by = at(weight, k, r, s, 0);
				for (uint32_t c = 0; c < w.c; c++)
					y.v[i] += from[c] * by[c];
			}
	}
	return y;
}

/*
 * Bicubic weight of old position `at` for new position `of`, when resizing from `from` to `to`
 * positions; not yet normalised to sum to 1.
 */
static double cubic(uint32_t at, uint32_t of, double from, double to)
{
	double scale = from / to, centre = (of + 0.5) * scale, wide = fmax(scale, 1);
	double x = fabs(at + 0.5 - centre) / wide;

	return x < 1   ? 1.5 * x * x * x - 2.5 * x * x + 1
	       : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2
		       : 0;
}

static double resized(const struct tensor *positions, uint32_t first, uint32_t side,
		      const struct tensor *x, uint32_t place, uint32_t c)
{
	uint32_t row = place / x->shape.w, column = place % x->shape.w;
	double sum = 0, weights = 0;

	for (uint32_t i = 0; i < side * side; i++) {
		double weight = cubic(i / side, row, side, x->shape.h) *
				cubic(i % side, column, side, x->shape.w);

		sum += weight * positions->v[(first + i) * x->shape.c + c];
		weights += weight;
	}
	return sum / weights;
}

struct tensor reference_tokens(const struct tensor *x, const struct tensor *positions,
			       const struct tensor *class_token, uint32_t side)
{
	struct device_shape s = x->shape;
	uint32_t first = class_token != NULL, tokens = s.h * s.w + first;
	struct tensor y = tensor_new((struct device_shape){s.n, 1, tokens, s.c});

	for (size_t i = 0; i < tensor_count(&y); i++) {
		size_t c = i % s.c, token = i / s.c % tokens, n = i / s.c / tokens;

		y.v[i] = (side && token >= first ? resized(positions, first, side, x,
							   (uint32_t)token - first, (uint32_t)c)
						 : positions->v[token * s.c + c]) +
			 (token < first ? class_token->v[c]
					: x->v[((n * s.h * s.w) + token - first) * s.c + c]);
	}
	return y;
}

struct tensor reference_take(const struct tensor *x, uint32_t position)
{
	struct device_shape s = x->shape;
	struct tensor y = tensor_new((struct device_shape){s.n, 1, 1, s.c});

	for (size_t i = 0; i < tensor_count(&y); i++)
		y.v[i] = *at(x, (uint32_t)(i / s.c), position / s.w, position % s.w,
			     (uint32_t)(i % s.c));
	return y;
}

void reference_affine(struct tensor *x, const struct tensor *gamma, const struct tensor *beta,
		      const struct tensor *mean, const struct tensor *variance, double epsilon)
{
	for (size_t i = 0; i < tensor_count(x); i++) {
		size_t c = i % x->shape.c;

		x->v[i] = (x->v[i] - mean->v[c]) / sqrt(variance->v[c] + epsilon) * gamma->v[c] +
			  beta->v[c];
	}
}

void reference_norm(struct tensor *x, const struct tensor *gamma, const struct tensor *beta,
		    double epsilon, double *ret_mean, double *ret_variance)
{
	struct device_shape vector = {1, 1, 1, x->shape.c};
	struct tensor mean = tensor_new(vector), variance = tensor_new(vector);
	double rows = (double)(tensor_count(x) / x->shape.c);

	for (size_t i = 0; i < tensor_count(x); i++)
		mean.v[i % x->shape.c] += x->v[i] / rows;
	for (size_t i = 0; i < tensor_count(x); i++)
		variance.v[i % x->shape.c] += pow(x->v[i] - mean.v[i % x->shape.c], 2) / rows;
	reference_affine(x, gamma, beta, &mean, &variance, epsilon);
	if (ret_mean)
		memcpy(ret_mean, mean.v, x->shape.c * sizeof(double));
	if (ret_variance)
		memcpy(ret_variance, variance.v, x->shape.c * sizeof(double));
	tensor_free(&mean);
	tensor_free(&variance);
}

void reference_layer_norm(struct tensor *x, const struct tensor *gamma, const struct tensor *beta,
			  double epsilon)
{
	uint32_t channels = x->shape.c;

	for (size_t first = 0; first < tensor_count(x); first += channels) {
		double *v = x->v + first, mean = 0, variance = 0;

		for (uint32_t c = 0; c < channels; c++)
			mean += v[c] / channels;
		for (uint32_t c = 0; c < channels; c++)
			variance += (v[c] - mean) * (v[c] - mean) / channels;
		for (uint32_t c = 0; c < channels; c++)
			v[c] = (v[c] - mean) / sqrt(variance + epsilon) * gamma->v[c] + beta->v[c];
	}
}

/*
 * Computes y [d] for one query from its scores against all keys; p [t] receives the probabilities,
 * `drawn` [t] holds the dropout factors.
 */
static void attend(const double *q, const double *k, const double *v, uint32_t t, size_t stride,
		   uint32_t d, const double *drawn, double *p, double *y)
{
	double sum = 0;

	for (uint32_t j = 0; j < t; j++) {
		p[j] = 0;
		for (uint32_t c = 0; c < d; c++)
			p[j] += q[c] * k[j * stride + c] / sqrt(d);
		p[j] = exp(p[j]);
		sum += p[j];
	}
	for (uint32_t c = 0; c < d; c++) {
		y[c] = 0;
		for (uint32_t j = 0; j < t; j++)
			y[c] += drawn[j] * p[j] / sum * v[j * stride + c];
	}
}

void reference_add(struct tensor *x, const struct tensor *y)
{
	for (size_t i = 0; i < tensor_count(x); i++)
		x->v[i] += y->v[i];
}

void reference_bias(struct tensor *x, const struct tensor *bias)
{
	for (size_t i = 0; i < tensor_count(x); i++)
		x->v[i] += bias->v[i % x->shape.c];
}

void reference_activate(struct tensor *x, enum device_activation activation)
{
	for (size_t i = 0; i < tensor_count(x); i++) {
		if (activation == DEVICE_RELU && x->v[i] < 0)
			x->v[i] = 0;
		if (activation == DEVICE_GELU)
			x->v[i] *= 0.5 * erfc(-x->v[i] / sqrt(2));
		if (activation == DEVICE_LOGISTIC)
			x->v[i] = 1 / (1 + exp(-x->v[i]));
	}
}

void reference_gate(struct tensor *x, const struct tensor *gate)
{
	size_t sample = tensor_count(x) / x->shape.n, c = x->shape.c;

	for (size_t i = 0; i < tensor_count(x); i++)
		x->v[i] *= gate->v[i / sample * c + i % c];
}

void reference_scale(struct tensor *x, const struct tensor *gamma)
{
	for (size_t i = 0; i < tensor_count(x); i++)
		x->v[i] *= gamma->v[i % x->shape.c];
}

/* Returns the dropout factor for a random word of Philox. */
static double dropout_factor(uint32_t word, double probability)
{
	return word < probability * 0x1p32 ? 0 : 1 / (1 - probability);
}

void reference_drop(struct tensor *x, const struct device_draws *draws, const char *layer,
		    double drop_path, double dropout)
{
	uint32_t seed[2] = {(uint32_t)draws->seed, (uint32_t)(draws->seed >> 32)};
	uint32_t name[4] = {(uint32_t)draws->step, (uint32_t)(draws->step >> 32), 0x811c9dc5, 0};
	uint32_t key[4], block[4];
	size_t sample = tensor_count(x) / x->shape.n;

	for (; *layer; layer++)
		name[2] = (name[2] ^ (unsigned char)*layer) * 0x01000193;
	random_philox(seed, name, key);
	for (size_t i = 0; i < tensor_count(x); i++) {
		uint32_t number = draws->first + (uint32_t)(i / sample);
		uint32_t element = (uint32_t)(i % sample);

		random_philox(key, (uint32_t[4]){0, 0, number, 1}, block);
		x->v[i] *= dropout_factor(block[0], drop_path);
		random_philox(key, (uint32_t[4]){element / 4, 0, number, 0}, block);
		x->v[i] *= dropout_factor(block[element % 4], dropout);
	}
}

struct tensor reference_attention(const struct tensor *qkv, uint32_t heads,
				  const struct device_draws *draws, const char *layer,
				  double dropout)
{
	struct device_shape s = qkv->shape;
	uint32_t channels = s.c / 3, d = channels / heads, t = s.h * s.w, padded = (t + 3) / 4 * 4;
	struct tensor y = tensor_new((struct device_shape){s.n, s.h, s.w, channels});
	/* each query's draws begin a new block of random words */
	struct tensor drawn = tensor_new((struct device_shape){s.n, heads, t, padded});
	double *p = malloc(t * sizeof(*p));

	for (size_t i = 0; i < tensor_count(&drawn); i++)
		drawn.v[i] = 1;
	if (dropout > 0)
		reference_drop(&drawn, draws, layer, 0, dropout);
	for (uint32_t n = 0; n < s.n; n++)
		for (uint32_t head = 0; head < heads; head++) {
			const double *q = at(qkv, n, 0, 0, head * d);

			for (uint32_t i = 0; i < t; i++)
				attend(q + (size_t)i * s.c, q + channels, q + 2 * (size_t)channels,
				       t, s.c, d, at(&drawn, n, head, i, 0), p,
				       at(&y, n, 0, 0, head * d) + (size_t)i * channels);
		}
	free(p);
	tensor_free(&drawn);
	return y;
}

struct tensor reference_pool(const struct tensor *x, uint32_t window_h, uint32_t window_w,
			     uint32_t stride, uint32_t pad, uint32_t pad_extra, bool average)
{
	struct device_shape s = x->shape;
	uint32_t pads = 2 * pad + pad_extra;
	struct tensor y =
		tensor_new((struct device_shape){s.n, (s.h + pads - window_h) / stride + 1,
						 (s.w + pads - window_w) / stride + 1, s.c});

	for (size_t i = 0; i < tensor_count(&y); i++) {
		uint32_t c = (uint32_t)(i % s.c), q = (uint32_t)(i / s.c % y.shape.w);
		uint32_t p = (uint32_t)(i / s.c / y.shape.w % y.shape.h),
			 n = (uint32_t)(i / s.c / y.shape.w / y.shape.h);
		double sum = 0, largest = -INFINITY;
		uint32_t count = 0, row, column;

		for (uint32_t r = 0; r < window_h; r++)
			for (uint32_t t = 0; t < window_w; t++) {
				if (!source(x, p, stride, pad, r, s.h, &row) ||
				    !source(x, q, stride, pad, t, s.w, &column))
					continue;
				sum += *at(x, n, row, column, c);
				largest = fmax(largest, *at(x, n, row, column, c));
				count++;
			}
		y.v[i] = average ? sum / count : largest;
	}
	return y;
}

double reference_loss(const struct tensor *logits, const int32_t *labels, double smoothing,
		      double scale)
{
	uint32_t classes = logits->shape.c, samples = 0;
	double loss = 0;

	for (uint32_t n = 0; n < logits->shape.n; n++) {
		const double *z = &logits->v[(size_t)n * classes];
		double sum = 0, largest = z[0];

		if (labels[n] < 0)
			continue;
		for (uint32_t i = 0; i < classes; i++)
			largest = fmax(largest, z[i]);
		for (uint32_t i = 0; i < classes; i++)
			sum += exp(scale * (z[i] - largest));
		double log_sum = log(sum) + scale * largest;
		for (uint32_t i = 0; i < classes; i++) {
			double target =
				smoothing / classes + ((int32_t)i == labels[n] ? 1 - smoothing : 0);

			loss -= target * (scale * z[i] - log_sum);
		}
		samples++;
	}
	return samples ? loss / samples : 0;
}

double relative_error(const float *a, const double *b, size_t count)
{
	double error = 0, norm = 0;

	for (size_t i = 0; i < count; i++) {
		error += pow((double)a[i] - b[i], 2);
		norm += b[i] * b[i];
	}
	return norm > 0 ? sqrt(error / norm) : sqrt(error);
}

double largest_error(const float *a, const double *b, size_t count)
{
	double largest = 0;

	for (size_t i = 0; i < count; i++)
		largest = fmax(largest, isfinite(a[i]) ? fabs((double)a[i] - b[i]) : INFINITY);
	return largest;
}

static const char *setting(const char *name, const char *fallback)
{
	const char *value = getenv(name);

	return value && *value ? value : fallback;
}

/*
 * Returns the index among the words of the environment variable's value; fails the test for any
 * other value.
 */
static unsigned choice(const char *name, const char *fallback, const char *const words[])
{
	const char *value = setting(name, fallback);
	unsigned i = 0;

	while (words[i] && strcmp(words[i], value) != 0)
		i++;
	if (!words[i])
		fail_msg("%s=%s is not known", name, value);
	return i;
}

/*
 * Returns the precision that the environment selects for a test that requests `asked`; DEVICE_AUTO
 * to skip the test.
 */
static enum device_precision chosen_precision(enum device_precision asked)
{
	static const char *const words[] = {"any", "fp32", "bf16", "fp16", NULL};
	enum device_precision chosen =
		(enum device_precision)choice("DEVICE_TEST_PRECISION", "any", words);

	if (chosen == DEVICE_AUTO)
		return asked;
	return (chosen == DEVICE_FP32) == (asked == DEVICE_FP32) ? chosen : DEVICE_AUTO;
}

struct device *open_device_with(const struct device_options *wanted)
{
	static const char *const fusions[] = {"auto", "none", "b", "c", NULL};
	struct device_options options = *wanted;
	struct device *device = NULL;
	char error[DEVICE_ERROR_MAX];
	int r;

	options.precision = chosen_precision(wanted->precision);
	if (options.precision == DEVICE_AUTO)
		skip();
	options.fusion = (enum device_fusion)choice("DEVICE_TEST_FUSION", "auto", fusions);
	options.eager = options.eager || *setting("DEVICE_TEST_EAGER", "");
	options.deterministic = true;
	r = device_open(setting("DEVICE_TEST_BACKEND", "cpu"), &options, &device, error);
	if (r == -ENOTSUP) {
		print_message("skipped: %s\n", error);
		skip();
	}
	if (r < 0)
		fail_msg("%s", error);
	return device;
}

struct device *open_device(enum device_precision precision, unsigned threads)
{
	return open_device_with(
		&(struct device_options){.precision = precision, .threads = threads});
}

double half_tolerance(const struct device *device, double tolerance)
{
	return device_info(device)->precision == DEVICE_FP16 ? tolerance / 2 : tolerance;
}

struct device_param *add_param(struct device_params *params, const char *name,
			       enum device_param_kind kind, struct device_shape shape)
{
	struct device_param_spec spec = {.name = name, .kind = kind};
	struct device_param *param = NULL;

	if (kind == DEVICE_CONV_WEIGHT) {
		spec.shape[0] = shape.n;
		spec.shape[1] = shape.h;
		spec.shape[2] = shape.w;
		spec.shape[3] = shape.c;
	} else if (kind == DEVICE_LINEAR_WEIGHT || kind == DEVICE_EMBEDDING) {
		spec.shape[0] = shape.n;
		spec.shape[1] = shape.c;
	} else {
		spec.shape[0] = shape.c;
		spec.group = 1;
	}
	assert_int_equal(device_param_add(params, &spec, &param), 0);
	return param;
}
