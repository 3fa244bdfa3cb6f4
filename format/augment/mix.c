#include "format/augment/mix.h"

#include "format/base/portable_math.h"
#include "format/base/random.h"

#include <math.h>
#include <stdbool.h>

/* Uniform in (0, 1). */
static double mix_uniform(struct random_stream *stream)
{
	return (random_u32(stream) + 0.5) * 0x1p-32;
}

/* Standard normal, by Marsaglia's polar method. */
static double mix_normal(struct random_stream *stream)
{
	double u, v, square;
	do {
		u = 2 * mix_uniform(stream) - 1;
		v = 2 * mix_uniform(stream) - 1;
		square = u * u + v * v;
	} while (square >= 1);
	return u * sqrt(-2 * portable_log(square) / square);
}

/*
 * Returns the logarithm of a Gamma(alpha, 1) variate (Marsaglia and Tsang 2000, "A Simple Method
 * for Generating Gamma Variables"). For alpha < 1, multiplies a Gamma(alpha + 1, 1) variate by
 * pow(U, 1 / alpha), with U uniform in (0, 1). The product may underflow, hence the logarithm.
 */
static double mix_log_gamma(struct random_stream *stream, double alpha)
{
	double boost = alpha < 1 ? portable_log(mix_uniform(stream)) / alpha : 0;
	double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);
	for (;;) {
		double x = mix_normal(stream), v = 1 + c * x;
		if (v <= 0)
			continue;
		v = v * v * v;
		if (portable_log(mix_uniform(stream)) <
		    0.5 * x * x + d - d * v + d * portable_log(v))
			return portable_log(d * v) + boost;
	}
}

/* Returns a Beta(alpha, alpha) variate, X / (X + Y), where X and Y are Gamma(alpha, 1) variates. */
static double mix_beta(struct random_stream *stream, double alpha)
{
	double x = mix_log_gamma(stream, alpha), y = mix_log_gamma(stream, alpha);
	return 1 / (1 + portable_exp(fmin(fmax(y - x, -700), 700)));
}

static uint32_t mix_clip(int64_t position, uint32_t size)
{
	return position < 0 ? 0 : position > size ? size : (uint32_t)position;
}

double mix_box(uint32_t height, uint32_t width, double share, uint32_t row, uint32_t column,
	       struct mix_blend *ret_blend)
{
	double ratio = sqrt(1 - share);
	int64_t box_height = (int64_t)(height * ratio), box_width = (int64_t)(width * ratio);
	struct mix_blend *blend = ret_blend;

	blend->top = mix_clip(row - box_height / 2, height);
	blend->bottom = mix_clip(row + (box_height + 1) / 2, height);
	blend->left = mix_clip(column - box_width / 2, width);
	blend->right = mix_clip(column + (box_width + 1) / 2, width);
	return 1 - (double)(blend->bottom - blend->top) * (blend->right - blend->left) /
			   ((double)height * width);
}

double mix_draw_blend(const struct mix_rule *rule, uint64_t seed, uint64_t step, uint64_t number,
		      uint32_t height, uint32_t width, struct mix_blend *ret_blend)
{
	struct random_stream stream;

	random_init(&stream, seed, step, number, RANDOM_MIX);
	bool mixes = mix_uniform(&stream) < rule->prob;
	bool either = mix_uniform(&stream) < rule->switch_prob;
	bool cuts = rule->cutmix > 0 && (!(rule->mixup > 0) || either);

	*ret_blend = (struct mix_blend){.share = 1};
	if (!mixes)
		return 1;
	double share = mix_beta(&stream, cuts ? rule->cutmix : rule->mixup);
	if (!cuts) {
		ret_blend->share = (float)share;
		return (double)ret_blend->share;
	}
	uint32_t row = random_below(&stream, height);
	uint32_t column = random_below(&stream, width);

	return mix_box(height, width, share, row, column, ret_blend);
}
